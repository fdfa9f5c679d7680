"""``workflow/paper/claims.yaml``, typed: what the paper says and what would count as support.

An entry whose ``of``, ``than``, ``on`` or ``by`` is a list stands for one claim per value; the tables of the paper
stand for one claim per printed number.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from ..results.methods import DATASETS
from ..results.paper import facts_folder, sample_prices
from ..settings.experiments import Value, shipped_experiments
from ..settings.section import Section

Metric = Literal["accuracy", "aen", "aec", "n_na", "utility"]
On = Literal["mimic_iv", "clinicalbench", "private", "average"]
Side = Literal["above", "below"]
Axis = Literal["seconds", "tokens"]
PLACES = {**DATASETS, "average": "the average"}
_COLUMNS = {"acc": "accuracy", "aen": "aen", "aec": "aec"}
_NAMED = {"accuracy": "accuracy (%)", "aen": "examinations per case", "aec": "cost per case (USD)"}
_LISTED = ("of", "than", "on", "by")


class ClaimsError(ValueError):
    """A ledger that cannot be used; the message names the file, the claim and the field."""


class _Claim(Section):
    """``printed`` are the numbers that the sentence prints, as it prints them; ``headline`` claims stand first."""

    id: str = Field(min_length=1)
    place: str = Field(min_length=1)
    says: str = Field(min_length=1)
    printed: tuple[str, ...] = ()
    headline: bool = False


class Figure(_Claim):
    """A printed number. ``statistic`` relates ``of`` to ``than`` (``reduction``: by how many % it is lower);
    ``value`` is the number where the print is none (``1/16``); ``within`` is its half width, by default half a unit of
    the last printed place."""

    kind: Literal["figure"]
    of: str
    metric: Metric
    on: On
    statistic: Literal["mean", "difference", "ratio", "reduction"] = "mean"
    than: str = ""
    value: float | None = None
    within: float | None = None

    @model_validator(mode="after")
    def _is_a_number(self) -> Figure:
        if (self.statistic == "mean") != (not self.than):
            raise ValueError("`than` goes with a statistic of two, and only with it")
        return _one_number(self)


class Greater(_Claim):
    """``of`` above (or below) ``than`` by more than ``margin`` (as printed: points, tests, USD; negative: no more than
    that on the other side), or more than ``times`` as much (below: less than ``times`` as much)."""

    kind: Literal["greater"]
    of: str
    than: str
    metric: Metric
    on: On
    side: Side
    margin: float = 0.0
    times: float = Field(1.0, gt=0)


class Best(_Claim):
    """``of`` above (or below) every other row: those named, or every row of the paper's Table 1."""

    kind: Literal["best"]
    of: str
    metric: Metric
    on: On
    side: Side
    among: tuple[str, ...] = ()


class Close(_Claim):
    """``of`` and ``than`` differ by less than ``margin``."""

    kind: Literal["close"]
    of: str
    than: str
    metric: Metric
    on: On
    margin: float = Field(gt=0)


class Hardest(_Claim):
    """``of`` is less accurate on this data set than on each of the others."""

    kind: Literal["hardest"]
    of: str
    on: On


class Peak(_Claim):
    """In-domain accuracy over a sweep is best at ``value``."""

    kind: Literal["peak"]
    sweep: str
    value: float


class Slower(_Claim):
    """Training of ``of`` takes more (or less) than that of ``than``, ``by`` wall-clock seconds or generated tokens:
    until validation accuracy reaches ``share`` of its final value, or (``share: null``) until the last iteration.
    ``nearer_to``: the difference from this variant is compared instead; then ``side`` below means that ``of`` is
    nearer."""

    kind: Literal["slower"]
    of: str
    than: str
    side: Side
    share: float | None = Field(0.95, gt=0, le=1)
    by: Axis = "seconds"
    nearer_to: str = ""


class Plateau(_Claim):
    """Final validation accuracy of ``of``: a printed number, above or below that of ``than``, or within ``margin``."""

    kind: Literal["plateau"]
    of: str
    than: str = ""
    side: Side = "above"
    margin: float | None = Field(None, gt=0)
    value: float | None = None
    within: float | None = None

    @model_validator(mode="after")
    def _is_a_number(self) -> Plateau:
        return self if self.than else _one_number(self)


class Lightweight(_Claim):
    """In the training of ``of`` next-action probes take less than ``times`` as many tokens as continuations."""

    kind: Literal["lightweight"]
    of: str
    times: float = Field(gt=0)


class Setting(_Claim):
    """The configuration at hand holds these values."""

    kind: Literal["setting"]
    settings: dict[str, Value] = Field(min_length=1)


class Number(_Claim):
    """How many of something this workflow has."""

    kind: Literal["number"]
    what: Literal["benchmarks", "out_of_domain", "groups", "agents", "ablations", "schemes", "sweeps"]
    value: int


class Cases(_Claim):
    """How many test cases of a data set were evaluated."""

    kind: Literal["cases"]
    on: On
    value: int


class SameJob(_Claim):
    """``of`` and ``than`` come to the same training."""

    kind: Literal["same_job"]
    of: str
    than: str


class Price(_Claim):
    """What the paper's sample record charges for an examination."""

    kind: Literal["price"]
    examination: str
    usd: float


class BilledTogether(_Claim):
    """The examinations are charged as one."""

    kind: Literal["billed_together"]
    examinations: tuple[str, ...] = Field(min_length=2)


class NotRun(_Claim):
    """What no run of this pipeline can tell, with why."""

    kind: Literal["not_run"]
    why: str = Field(min_length=1)


Claim = (
    Figure | Greater | Best | Close | Hardest | Peak | Slower | Plateau | Lightweight | Setting | Number | Cases
    | SameJob | Price | BilledTogether | NotRun
)  # fmt: skip
KINDS = {kind.model_fields["kind"].annotation.__args__[0]: kind for kind in get_args(Claim)}  # type: ignore[union-attr]


class Printed(Section):
    """A table of the paper in a CSV file; ``rows`` names our counterpart of a printed row, others stand for
    themselves."""

    id: str
    place: str
    file: str
    rows: dict[str, str] = Field(default_factory=dict)


class _Ledger(Section):
    tables: list[Printed] = Field(default_factory=list)
    sample_prices: str = ""
    claims: list[dict[str, Any]]


def read_claims(path: str | Path | None = None) -> list[Claim]:
    """All claims of a ledger (default: the project's), tables spelled out. Raises :class:`ClaimsError`."""
    path = Path(path) if path else facts_folder() / "claims.yaml"
    try:
        ledger = _Ledger.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        raise ClaimsError(f"{path}: cannot be read as YAML: {error}") from error
    except ValidationError as error:
        raise ClaimsError(f"{path}: {_first(error)}") from error
    entries = itertools.chain.from_iterable(_spelled_out(path, entry) for entry in ledger.claims)
    tables = itertools.chain.from_iterable(_rows_of(path, table) for table in ledger.tables)
    prices = _sample_prices(ledger.sample_prices) if ledger.sample_prices else ()
    found: dict[str, Claim] = {}
    for entry in itertools.chain(entries, tables, prices):
        claim = _typed(path, entry)
        if claim.id in found:
            raise ClaimsError(f"{path}: claim {claim.id!r}: field 'id': stands twice")
        found[claim.id] = claim
    return list(found.values())


def _typed(path: Path, entry: Mapping[str, Any]) -> Claim:
    kind = entry.get("kind")
    if kind not in KINDS:
        raise ClaimsError(f"{path}: claim {entry.get('id')!r}: field 'kind': expected one of {', '.join(KINDS)}, "
                          f"got {kind!r}")  # fmt: skip
    try:
        return TypeAdapter(Annotated[KINDS[kind], Field()]).validate_python(entry)
    except ValidationError as error:
        raise ClaimsError(f"{path}: claim {entry.get('id')!r}: {_first(error)}") from error


def _spelled_out(path: Path, entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry per combination of the values of ``of``, ``than`` and ``on``; ``printed`` may be given by value."""
    listed = [name for name in _LISTED if isinstance(entry.get(name), list)]
    for values in itertools.product(*(entry[name] for name in listed)):
        chosen = dict(zip(listed, values, strict=True))
        one = {**entry, **chosen}
        if chosen:
            one["id"] = ".".join([str(entry.get("id")), *map(str, values)])
            one["says"] = str(entry.get("says")).format(**{name: _label(value) for name, value in chosen.items()})
        if isinstance(entry.get("printed"), dict):
            strange = set(entry["printed"]) - {v for name in listed for v in entry[name]}
            if strange:
                raise ClaimsError(f"{path}: claim {entry.get('id')!r}: field 'printed': {min(map(str, strange))!r} is "
                                  f"no value of {' or '.join(_LISTED)}")  # fmt: skip
            one["printed"] = [n for value in values for n in entry["printed"].get(value, ())]
        yield one


def _label(name: str) -> str:
    """A data set or variant as tables call it; other names as they are."""
    variant = shipped_experiments().variants.get(name)
    return PLACES.get(name, variant.label if variant else name)


def _rows_of(path: Path, table: Printed) -> Iterator[dict[str, Any]]:
    source = path.parent / table.file
    try:
        rows = list(csv.DictReader(source.read_text(encoding="utf-8").splitlines()))
    except OSError as error:
        raise ClaimsError(f"{path}: table {table.id!r}: {source} cannot be read: {error.strerror}") from error
    strange = sorted(set(table.rows) - {row.get("method") for row in rows})
    if strange:
        raise ClaimsError(f"{path}: table {table.id!r}: field 'rows': {source} has no row {strange[0]!r}")
    for row in rows:
        for column, metric in _COLUMNS.items():
            if not row.get(column):
                continue
            on, method = row["dataset"], row["method"]
            yield {
                "id": f"{table.id}.{method}.{on}.{column}".replace(" ", "_"), "place": table.place, "kind": "figure",
                "says": f"{method}, {PLACES.get(on, on)}: {_NAMED[metric]}", "printed": [row[column]],
                "of": table.rows.get(method, method), "metric": metric, "on": on,
            }  # fmt: skip


def _sample_prices(place: str) -> Iterator[dict[str, Any]]:
    for name, usd in sample_prices().items():
        yield {
            "id": f"price.{name}".replace(" ", "_"), "place": place, "kind": "price", "printed": [f"{usd:.2f}"],
            "says": f"{name} is charged at this price (USD).", "examination": name, "usd": usd,
        }  # fmt: skip


def _one_number(claim: Any) -> Any:
    if len(claim.printed) != 1:
        raise ValueError(f"field 'printed': one number, got {len(claim.printed)}")
    if claim.value is None:
        float(claim.printed[0])
    return claim


def printed_number(claim: Figure | Plateau) -> tuple[float, float]:
    """A printed number and how far from it the true one may lie by rounding."""
    text = claim.printed[0]
    value = float(text) if claim.value is None else claim.value
    return value, claim.within if claim.within is not None else 0.5 * 10.0 ** -len(text.partition(".")[2])


def _first(error: ValidationError) -> str:
    one = error.errors()[0]
    where = ".".join(map(str, one["loc"]))
    return f"field {where!r}: {one['msg']}" if where else str(one["msg"])
