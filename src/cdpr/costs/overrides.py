"""The user's own prices: ``examination,price_usd,billing_group``, before every other price.

An examination of the vocabulary is overridden under all its spellings, any other name under this one; either also
with a side or a trailing remark. The price of a panel holds for the analytes that are billed within it. Rows without a
price are not filled in yet and are passed over, so a review table that is filled in by and by can be used as it is.
"""

from dataclasses import replace
from pathlib import Path

from ..cases import is_physical, normalise
from .catalogue import Catalogue, Price, general_name
from .tables import CatalogueError, amount, read_table

NO_GROUP = "none"


def with_overrides(catalogue: Catalogue, path: str | Path) -> Catalogue:
    """The catalogue with the user's prices, US dollars.

    An empty ``billing_group`` keeps the group that the examination is in, ``none`` takes it out. Messages never
    repeat a name: names that come from notes may be a patient's words. Raises CatalogueError.
    """
    overrides: dict[str, Price] = {}
    lines: dict[str, str] = {}
    for where, row in read_table(Path(path), ("examination", "price_usd"), optional=("billing_group",)):
        if not row["price_usd"]:
            continue
        if not normalise(row["examination"]):
            raise CatalogueError(f"{where}: field 'examination': empty")
        if is_physical(row["examination"]):
            raise CatalogueError(f"{where}: field 'examination': the physical examination is free of charge")
        usd = amount(where, "price_usd", row["price_usd"])
        name = general_name(row["examination"])
        key = normalise(name)
        if key in lines:
            raise CatalogueError(f"{where}: field 'examination': stands in line {lines[key]} already")
        lines[key] = where.rpartition(":")[2]
        known = catalogue.find(name)
        group = row["billing_group"] or (known.group if known is not None else None)
        overrides[key] = Price(name, "", usd, "override", "", None if group == NO_GROUP else group, "override")
    return replace(catalogue, overrides=overrides)
