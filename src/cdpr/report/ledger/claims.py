"""``workflow/paper/claims.yaml``, typed: what the paper says and what would count as support.

An entry whose ``of``, ``than``, ``on`` or ``by`` is a list stands for one claim per value; the tables of the paper
stand for one claim per printed number.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from ...files import read_table
from ...settings import parse_settings
from ...settings.experiments import Value
from ...settings.section import Section
from ...study.rubric import dimensions
from ..methods import DATASETS, IN_DOMAIN
from ..paper import facts_folder, sample_prices

On = Literal["", "mimic_iv", "clinicalbench", "private", "average"]
Metric = Literal["", "accuracy", "aen", "aec", "n_na", "utility", "final_accuracy"]
Side = Literal["above", "below"]
PLACES = {**DATASETS, "average": "the average"}
# Columns of the printed tables: our metric, and what it is in words.
_COLUMNS = {"acc": ("accuracy", "accuracy (%)"), "aen": ("aen", "examinations per case"),
            "aec": ("aec", "cost per case (USD)")}  # fmt: skip


class ClaimsError(ValueError):
    """A ledger that cannot be used; the message names the file, the claim and the field."""


class Claim(Section):
    """What the paper says. ``printed`` are the numbers that the sentence prints, as it prints them; ``headline`` claims
    are shown first; ``also`` are the places where the paper says the same again. By kind:

    - ``figure``: a printed number: ``metric`` of ``of``, on test cases or at the end of training (``final_accuracy``).
      ``statistic`` relates ``of`` to ``than`` (``reduction``: by how many % it is lower); ``within`` is its half width,
      by default half a unit of the last printed place.
    - ``compare``: on test cases ``of`` is above (or below) ``than`` by more than ``margin`` (as printed: points, tests,
      USD; negative: no more than that on the other side), or more than ``times`` as much (below: less than ``times`` as
      much); or they differ by less than ``within``.
    - ``training``: training of ``of`` beside that of ``than``, ``by`` ``seconds`` (processor time on a CPU) or
      generated ``tokens`` until validation accuracy reaches ``share`` of its final value (``share: null``: until the
      last iteration), or by ``final_accuracy``. ``nearer_to``: the difference from this variant is compared instead,
      and ``side`` below means that ``of`` is nearer. ``by: probes``: tokens of next-action probes against ``times``
      those of continuations, in one and the same training.
    - ``best``: ``of`` is above (or below) every other: ``among`` the rows named, by default all of the paper's Table 1;
      among the data sets (``on`` against the others); or the point ``value`` among the points of a ``sweep``.
    - ``setup``: the configuration, the workflow or its prices are as the paper says: ``what`` names what :mod:`.setup`
      looks up of ``names``, which should be ``value``.
    - ``study``: ours ``leads`` on a dimension or on all, has its ``largest_lead`` on one; ``of`` is ``above`` ``than``
      on ``on_dimensions``; the raters' ``agreement`` is above ``value`` on every dimension.
    - ``not_run``, ``undecidable``: what no run of this pipeline tells, with ``why``. Undecidable is what no result
      could ever tell: definitions, arguments and facts of the authors' own setup.
    """

    id: str = Field(min_length=1)
    also: tuple[str, ...] = ()
    place: str = Field(min_length=1)
    kind: Literal["figure", "compare", "training", "best", "setup", "study", "not_run", "undecidable"]
    says: str = Field(min_length=1)
    printed: tuple[str, ...] = ()
    headline: bool = False
    of: str = ""
    than: str = ""
    metric: Metric = ""
    on: On = ""
    side: Side | None = None
    within: float | None = Field(None, gt=0)
    statistic: Literal["mean", "difference", "ratio", "reduction"] = "mean"
    margin: float = 0.0
    times: float | None = Field(None, gt=0)
    by: Literal["", "seconds", "tokens", "final_accuracy", "probes"] = ""
    share: float | None = Field(0.95, gt=0, le=1)
    nearer_to: str = ""
    among: tuple[str, ...] | Literal["data_sets"] = ()
    sweep: str = ""
    value: Value | dict[str, Value] | None = None
    what: Literal["", "settings", "benchmarks", "out_of_domain", "groups", "agents", "ablations", "schemes", "sweeps",
                  "cases", "same_training", "price", "billed_together"] = ""  # fmt: skip
    names: tuple[str, ...] = ()
    asks: Literal["leads", "largest_lead", "above", "agreement"] | None = None
    dimension: str = ""
    on_dimensions: tuple[str, ...] = ()
    why: str = ""

    def number(self) -> tuple[float, float]:
        """Return the printed number, and how far from it the true one may be by rounding."""
        text = self.printed[0]
        rounding = 0.5 * 10.0 ** -len(text.partition(".")[2])
        return float(Fraction(text)), rounding if self.within is None else self.within

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if problem := next(_problems(self), None):
            raise ValueError(problem)
        return self


# Fields of each kind of claim: those that it needs, and those that it may have.
FIELDS = {
    "figure": ("of metric on", "statistic than within"),
    "compare": ("of than metric on", "side within margin times"),
    "training": ("of by", "than share nearer_to times side within"),
    "best": ("side metric on", "of among sweep value"),
    "setup": ("what value", "names"),
    "study": ("asks", "dimension on_dimensions of than value"),
    "not_run": ("why", ""),
    "undecidable": ("why", ""),
}
_OF_ALL = {"id", "also", "place", "kind", "says", "printed", "headline"}
# How many names a claim about the setup has, `billed_together` at least; none where it is not listed.
_NAMES = {"cases": 1, "same_training": 2, "price": 1, "billed_together": 2}
# What must hold of claims of some kinds, and what is wrong where it does not.
_RULES: tuple[tuple[str, Callable[[Claim], bool], str], ...] = (
    ("figure", lambda c: (c.statistic == "mean") == (not c.than),
     "`than` goes with a statistic of two, and only with it"),
    ("figure", lambda c: c.metric != "final_accuracy" or (not c.than and c.on == IN_DOMAIN),
     f"field 'metric': `final_accuracy` is of one training, on {IN_DOMAIN}"),
    ("figure", lambda c: len(c.printed) == 1 and re.fullmatch(r"\d+(\.\d+|/[1-9]\d*)?", c.printed[0]) is not None,
     "field 'printed': a figure is one number"),
    ("compare best", lambda c: c.metric != "final_accuracy", "field 'metric': such a claim is about test cases"),
    ("compare training", lambda c: (c.side is None) != (c.within is None), "field 'side': either `side` or `within`"),
    ("training", lambda c: (c.by == "probes") == (not c.than) == (c.times is not None),
     "field 'by': `probes` goes with `times`, everything else with `than`"),
    ("best", lambda c: (not c.of) == bool(c.sweep) == isinstance(c.value, (int, float)),
     "field 'of': either `of`, or `sweep` with `value`"),
    ("study", lambda c: c.asks != "above" or all((c.of, c.than, c.on_dimensions)),
     "field 'asks': `above` goes with `of`, `than` and `on_dimensions`"),
    ("study", lambda c: {"", *dimensions()}.issuperset((c.dimension, *c.on_dimensions)) and (
        c.asks != "largest_lead" or bool(c.dimension)), f"field 'dimension': one of {', '.join(dimensions())}"),
    ("setup", lambda c: (c.what == "settings") == isinstance(c.value, dict),
     "field 'value': settings by name for `settings`, else one value"),
)  # fmt: skip


def _problems(claim: Claim) -> Iterator[str]:
    """Yield what does not fit together in a claim."""
    kind, (needed, optional) = claim.kind, map(str.split, FIELDS[claim.kind])
    for name in sorted(claim.model_fields_set - _OF_ALL - {*needed, *optional}):
        yield f"field {name!r}: a claim of kind {kind} has none"
    for name in needed:
        if getattr(claim, name) in (None, ""):
            yield f"field {name!r}: a claim of kind {kind} needs it"
    yield from (problem for kinds, holds, problem in _RULES if kind in kinds.split() and not holds(claim))
    count, required = len(claim.names), _NAMES.get(claim.what, 0)
    if kind == "setup" and (count < required or (count > required and claim.what != "billed_together")):
        yield f"field 'names': {claim.what} takes {required}, got {count}"


class PrintedTable(Section):
    """A table of the paper in a CSV file; ``rows`` names our counterpart of a printed row, others stand for
    themselves."""

    id: str
    place: str
    file: str
    rows: dict[str, str] = Field(default_factory=dict)


class _Ledger(Section):
    tables: list[PrintedTable] = Field(default_factory=list)
    sample_prices: str = ""
    claims: list[dict[str, Any]]


def read_claims(path: str | Path | None = None) -> list[Claim]:
    """Read all claims of a ledger (default: the project's), with one claim per number of a table; statements that the
    paper repeats are one claim. Raises :class:`ClaimsError`."""
    path = Path(path) if path else facts_folder() / "claims.yaml"
    try:
        ledger = _Ledger.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        raise ClaimsError(f"{path}: cannot be read as YAML: {error}") from error
    except ValidationError as error:
        raise ClaimsError(f"{path}: {_first(error)}") from error
    entries = itertools.chain(
        *(_spelled_out(entry) for entry in ledger.claims),
        *(_rows_of(path, table) for table in ledger.tables),
        _sample_prices(ledger.sample_prices) if ledger.sample_prices else (),
    )
    ids: set[str] = set()
    claims: dict[str, Claim] = {}  # by what they ask of the results
    for entry in entries:
        try:
            claim = Claim.model_validate(entry)
        except ValidationError as error:
            raise ClaimsError(f"{path}: claim {entry.get('id')!r}: {_first(error)}") from error
        if claim.id in ids:
            raise ClaimsError(f"{path}: claim {claim.id!r}: field 'id': appears twice")
        ids.add(claim.id)
        apart = {"id", "place", "also", "headline"} | (set() if claim.why else {"says"})
        asks = claim.model_dump_json(exclude=apart)
        first = claims.setdefault(asks, claim)
        if first is not claim:  # the first stands for it, with the places of both
            also = tuple(dict.fromkeys((*first.also, claim.place)))
            claims[asks] = first.model_copy(update={"also": also, "headline": first.headline or claim.headline})
    return list(claims.values())


def _spelled_out(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one entry per combination of the values of ``of``, ``than``, ``on`` and ``by``."""
    multiple = [name for name in ("of", "than", "on", "by") if isinstance(entry.get(name), list)]
    for values in itertools.product(*(entry[name] for name in multiple)):
        chosen = dict(zip(multiple, values, strict=True))
        one = {**entry, **chosen}
        if chosen:
            one["id"] = ".".join([str(entry.get("id")), *map(str, values)])
            one["says"] = str(entry.get("says")).format(**{name: _label(value) for name, value in chosen.items()})
        yield one


def _label(name: str) -> str:
    """Return the label of a data set or variant in tables; other names as they are."""
    variant = parse_settings({}).experiments.variants.get(name)
    return PLACES.get(name, variant.label if variant else name)


def _rows_of(path: Path, table: PrintedTable) -> Iterator[dict[str, Any]]:
    source = path.parent / table.file
    rows = [row for _, row in read_table(source, ("method", "dataset"), ClaimsError)]
    if strange := sorted(set(table.rows) - {row.get("method") for row in rows}):
        raise ClaimsError(f"{path}: table {table.id!r}: field 'rows': {source} has no row {strange[0]!r}")
    for row, (column, (metric, words)) in itertools.product(rows, _COLUMNS.items()):
        if row.get(column):
            on, method = row["dataset"], row["method"]
            yield {
                "id": f"{table.id}.{method}.{on}.{column}".replace(" ", "_"), "place": table.place, "kind": "figure",
                "says": f"{method}, {PLACES.get(on, on)}: {words}", "printed": [row[column]],
                "of": table.rows.get(method, method), "metric": metric, "on": on,
            }  # fmt: skip


def _sample_prices(place: str) -> Iterator[dict[str, Any]]:
    for name, usd in sample_prices().items():
        yield {
            "id": f"price.{name}".replace(" ", "_"), "place": place, "kind": "setup", "printed": [f"{usd:.2f}"],
            "says": f"{name} is charged at this price (USD).", "what": "price", "names": [name], "value": usd,
        }  # fmt: skip


def _first(error: ValidationError) -> str:
    one = error.errors()[0]
    where = ".".join(map(str, one["loc"]))
    return f"field {where!r}: {one['msg']}" if where else str(one["msg"]).removeprefix("Value error, ")
