"""Reading small price tables (CSV in UTF-8); every error names file, line and field."""

import re
from collections.abc import Sequence
from pathlib import Path

from .. import files

_AMOUNT = re.compile(r"\d{1,6}(\.\d+)?")


class CatalogueError(ValueError):
    """A price table that cannot be used; the message names file, line and field."""


def read_table(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> list[tuple[str, dict[str, str]]]:
    """Rows with their place (``file:line``), cells stripped; further columns are ignored.

    ``optional`` columns are empty where the file does not have them. Raises CatalogueError for a file that cannot be
    read, a column that is missing, or a row of another length than the header.
    """
    return [
        (where, {name: row.get(name, "").strip() for name in (*columns, *optional)})
        for where, row in files.read_table(path, columns, CatalogueError)
    ]


def amount(where: str, field: str, text: str) -> float:
    """An amount in US dollars, 0 to 999,999.99. Raises CatalogueError, without the text: it may be a patient's."""
    if not _AMOUNT.fullmatch(text):
        raise CatalogueError(f"{where}: field {field!r}: not an amount in US dollars, such as 12.50")
    return float(text)
