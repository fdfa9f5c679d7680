"""The paper's claims, read from ``workflow/paper/claims.yaml``: what the paper says, and which result would support it.

``claims.schema.yaml`` beside it explains the kinds of claims and their fields. An entry whose ``of``, ``than``, ``on``
or ``by`` is a list is one claim per value of the list. A table of the paper is one claim per printed number.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ...costs.price import load_catalogue
from ...files import parse_yaml
from ...settings import parse_settings
from ..methods import AVERAGE, DATASETS
from ..paper import METRICS, facts_folder, printed_rows

# Labels of data sets in claims, by name.
DATASET_NAMES = {**DATASETS, AVERAGE: "the average"}
# What ``says`` of a claim calls the columns of the printed tables.
_PRINTED_WORDS = {"acc": "accuracy (%)", "aen": "examinations per case", "aec": "cost per case (USD)"}
# A claim by field (``claims.schema.yaml``). Every claim has these three, the others where they are given.
Claim = dict[str, Any]
_EMPTY: Claim = {"also": [], "printed": [], "headline": False}


class ClaimsError(ValueError):
    """A file of claims that cannot be used; the message names the file, the claim and the field."""


def read_claims(path: str | Path | None = None) -> list[Claim]:
    """Read all claims of a file, by default ``workflow/paper/claims.yaml``. A claim that the paper makes at several
    places is one claim. Raises :class:`ClaimsError` for a file that cannot be read, a claim that breaks the rules of
    ``claims.schema.yaml``, and two claims with one id."""
    path = Path(path) if path else facts_folder() / "claims.yaml"
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ClaimsError(f"{path}: cannot be read as YAML: {error}") from error
    _check("file", content, f"{path}")
    entries = [single for entry in content["claims"] for single in _expand_lists(entry)]
    entries += [entry for table in content.get("tables", ()) for entry in _table_entries(table)]
    entries += _price_entries(content["sample_prices"]) if "sample_prices" in content else ()
    claims: dict[str, Claim] = {}
    for entry in entries:
        where = f"{path}: claim {entry.get('id')!r}"
        _check("claim", entry, where)
        if entry["id"] in claims:
            raise ClaimsError(f"{where}: field 'id': appears twice")
        claims[entry["id"]] = _EMPTY | entry
    return _merge_repeated(claims.values())


@cache
def validator(part: str) -> Any:
    """Return the validator of a part of ``claims.schema.yaml``: ``file``, ``claim`` or ``ledger``."""
    from jsonschema import Draft202012Validator

    schema = parse_yaml((facts_folder() / "claims.schema.yaml").read_text(encoding="utf-8"))
    return Draft202012Validator(schema[part] | {"$defs": schema["$defs"]})


def _check(part: str, content: Any, where: str) -> None:
    """Raise ClaimsError unless ``content`` is valid by a part of ``claims.schema.yaml``. The message begins with
    ``where`` and names the field; for a rule with a description, this is the message."""
    for error in validator(part).iter_errors(content):
        field = f"field {'.'.join(map(str, error.path))!r}: " if error.path else ""
        raise ClaimsError(f"{where}: {field}{error.schema.get('description', error.message)}")


def _merge_repeated(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims without those that repeat an earlier one, which need the same result. The earlier claim lists
    the place of the repeated one in ``also``."""
    merged: dict[str, Claim] = {}  # by what decides the claim
    for claim in claims:
        not_compared = {"id", "place", "also", "headline"}
        if "why" not in claim:  # one that is tested is the same claim in any words
            not_compared.add("says")
        question = json.dumps({name: claim[name] for name in sorted(claim) if name not in not_compared})
        first = merged.setdefault(question, claim)
        if first is not claim:
            also = list(dict.fromkeys((*first["also"], claim["place"])))
            merged[question] = first | {"also": also, "headline": first["headline"] or claim["headline"]}
    return list(merged.values())


def _expand_lists(entry: Mapping[str, Any]) -> Iterator[Claim]:
    """Yield the claims that an entry of ``claims.yaml`` makes: one per combination of values, where its fields
    ``of``, ``than``, ``on`` or ``by`` are lists; else the entry itself.

    The values are added to the id of each claim. In its sentence ``says``, braces such as ``{of}`` are replaced by the
    labels of the values.
    """
    listed = [field for field in ("of", "than", "on", "by") if isinstance(entry.get(field), list)]
    for values in itertools.product(*(entry[field] for field in listed)):
        chosen = dict(zip(listed, values, strict=True))
        labels = {field: _label(value) for field, value in chosen.items()}
        text = {"id": ".".join(map(str, (entry.get("id"), *values))), "says": str(entry.get("says")).format(**labels)}
        yield {**entry, **chosen, **(text if listed else {})}


def _label(name: str) -> str:
    """Return the label that tables give to a data set or a variant of the registry; other names unchanged."""
    variant = parse_settings({}).experiments.variants.get(name)
    return DATASET_NAMES.get(name, variant.label if variant else name)


def _table_entries(table: Mapping[str, Any]) -> Iterator[Claim]:
    """Yield a claim of kind ``figure`` for every number of a ``table`` of the paper."""
    for row, (column, metric) in itertools.product(printed_rows(table["file"]), METRICS.items()):
        method, dataset = row["method"], row["dataset"]
        if row.get(column):
            yield {
                "id": f"{table['id']}.{method}.{dataset}.{column}".replace(" ", "_"), "place": table["place"],
                "kind": "figure", "says": f"{method}, {DATASET_NAMES[dataset]}: {_PRINTED_WORDS[column]}",
                "printed": [row[column]], "of": table["rows"].get(method, method), "metric": metric, "on": dataset,
            }  # fmt: skip


def _price_entries(place: str) -> Iterator[Claim]:
    """Yield a claim of kind ``setup`` for every price of the paper's sample patient record. ``place`` is where the
    paper prints them."""
    for name, usd in load_catalogue().paper.items():
        yield {
            "id": f"price.{name}".replace(" ", "_"), "place": place, "kind": "setup", "printed": [f"{usd:.2f}"],
            "says": f"{name} is charged at this price (USD).", "what": "price", "names": [name], "value": usd,
        }  # fmt: skip
