"""The paper's claims, read from ``workflow/paper/claims.yaml``: what the paper says, and which result would support it.

An entry whose ``of``, ``than``, ``on`` or ``by`` is a list is one claim per value of the list. A table of the paper is
one claim per printed number.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from ...files import read_table
from ...settings import parse_settings
from ...settings.experiments import Value
from ...settings.section import Section
from ...study.rubric import dimensions
from ..methods import AVERAGE, DATASETS, IN_DOMAIN
from ..paper import METRICS, facts_folder, sample_prices

Name = Annotated[str, Field(min_length=1)]
# A number as the paper prints it: `53.07`, or a fraction such as `1/16`.
PrintedNumber = Annotated[str, Field(pattern=r"^\d+(\.\d+|/[1-9]\d*)?$")]
DataSet = Literal["mimic_iv", "clinicalbench", "private", "average"]
TestMetric = Literal["accuracy", "aen", "aec", "n_na", "utility"]
Side = Literal["above", "below"]
# Labels of data sets in claims, by name.
DATASET_NAMES = {**DATASETS, AVERAGE: "the average"}
# What ``says`` of a claim calls the columns of the printed tables.
_PRINTED_WORDS = {"acc": "accuracy (%)", "aen": "examinations per case", "aec": "cost per case (USD)"}
# How many `names` a claim about the setup has, by `what`; a claim about anything else has none. The names are a data
# set (cases), two variants (same_training), or examinations (price; for billed_together two or more).
_NAME_COUNTS = {"cases": (1,), "same_training": (2,), "price": (1,), "billed_together": range(2, 100)}


class ClaimsError(ValueError):
    """A file of claims that cannot be used; the message names the file, the claim and the field."""


class Claim(Section):
    """A statement of the paper. Each kind of claim is a subclass, whose fields say which result would support it.

    ``says`` is the statement in words of our own, and ``place`` where the paper makes it; ``also`` are the places where
    it is repeated. ``printed`` are the numbers of the statement as the paper prints them. ``headline`` claims are shown
    first.
    """

    id: Name
    also: tuple[str, ...] = ()
    place: Name
    kind: str
    says: Name
    printed: tuple[str, ...] = ()
    headline: bool = False


class FigureClaim(Claim):
    """A printed number is the ``metric`` of the method ``of`` on the test cases of the data set ``on``; the metric
    ``final_accuracy`` is the validation accuracy at the end of training.

    With ``than`` the number is a ``statistic`` of two methods: ``of`` minus ``than`` (``difference``), ``of`` divided
    by ``than`` (``ratio``), or by how many percent ``of`` is lower (``reduction``). ``within`` is how far the true
    number can be from the printed one; by default half a unit of the last printed digit.
    """

    kind: Literal["figure"]
    printed: tuple[PrintedNumber]
    of: Name
    than: str = ""
    metric: TestMetric | Literal["final_accuracy"]
    on: DataSet
    statistic: Literal["mean", "difference", "ratio", "reduction"] = "mean"
    within: float | None = Field(None, gt=0)

    @property
    def number(self) -> float:
        """The printed number; ``1/16`` is read as a fraction."""
        return float(Fraction(self.printed[0]))

    @property
    def rounding(self) -> float:
        """How far the true number can be from the printed one: ``within``, or else half a unit of the last printed
        digit (0.005 for ``53.07``)."""
        decimals = len(self.printed[0].partition(".")[2])
        return 0.5 * 10.0**-decimals if self.within is None else self.within


class MethodClaim(Claim):
    """On the test cases of the data set ``on``, the ``metric`` of the method ``of`` is above or below that of the
    method ``than``, or close to it.

    ``side`` says whether above or below; the difference must be larger than ``margin``, in units of the printed tables
    (a negative margin tolerates a difference to the other side). With ``times``, ``of`` is compared with ``times`` the
    metric of ``than``. With ``within`` instead of ``side``, the two must differ by less than ``within``.
    """

    kind: Literal["compare"]
    of: Name
    than: Name
    metric: TestMetric
    on: DataSet
    side: Side | None = None
    within: float | None = Field(None, gt=0)
    margin: float = 0.0
    times: float | None = Field(None, gt=0)


class TrainingClaim(Claim):
    """The training of the variant ``of`` takes more or less than that of ``than``, or ends with a higher or lower
    accuracy.

    ``by`` says what is compared. ``seconds`` (CPU time on a CPU) and generated ``tokens`` are counted until validation
    accuracy reaches the fraction ``share`` of its final value (None: until the last step). ``final_accuracy`` is the
    last validation accuracy in %. ``probes`` compares two parts of one training: the tokens generated to sample next
    actions must be above or below ``times`` the tokens generated to continue episodes.

    With ``nearer_to``, the distances of ``of`` and of ``than`` from this third variant are compared: ``side: below``
    means that ``of`` is nearer. ``side`` and ``within`` are those of :class:`MethodClaim`.
    """

    kind: Literal["training"]
    of: Name
    than: str = ""
    by: Literal["seconds", "tokens", "final_accuracy", "probes"]
    share: float | None = Field(0.95, gt=0, le=1)
    nearer_to: str = ""
    times: float | None = Field(None, gt=0)
    side: Side | None = None
    within: float | None = Field(None, gt=0)


class SuperlativeClaim(Claim):
    """The ``metric`` of one method is above (or below, by ``side``) that of all others on the data set ``on``.

    The one is the method ``of``; the others are the methods ``among``, by default all rows of the paper's Table 1. With
    ``among: data_sets``, the method's metric on ``on`` is compared with its metric on the other data sets. With
    ``sweep`` (values of one setting), the one is the variant with this ``value``, and the others are those with the
    other values.
    """

    kind: Literal["best"]
    side: Side
    metric: TestMetric
    on: DataSet
    of: str = ""
    among: tuple[str, ...] | Literal["data_sets"] = ()
    sweep: str = ""
    value: float | None = None


class SetupClaim(Claim):
    """The settings, the workflow or its prices are as the paper says: ``what``, looked up for ``names`` (see
    :func:`~.judge.judge_setup`), equals ``value``. For ``what: settings``, ``value`` maps the names of settings to
    their values."""

    kind: Literal["setup"]
    what: Literal["settings", "benchmarks", "out_of_domain", "groups", "agents", "ablations", "schemes", "sweeps",
                  "cases", "same_training", "price", "billed_together"]  # fmt: skip
    value: Value | dict[str, Value]
    names: tuple[str, ...] = ()


class StudyClaim(Claim):
    """What the raters of the expert study find. ``asks`` is one of:

    - ``leads``: CDPR has the highest mean score on ``dimension``, by default on all dimensions;
    - ``largest_lead``: its lead is largest on ``dimension``;
    - ``above``: the mean score of the method ``of`` is above that of ``than`` on all of ``on_dimensions``;
    - ``agreement``: Krippendorff's alpha is above ``value`` on every dimension.
    """

    kind: Literal["study"]
    asks: Literal["leads", "largest_lead", "above", "agreement"]
    dimension: str = ""
    on_dimensions: tuple[str, ...] = ()
    of: str = ""
    than: str = ""
    value: float = 0.0


class UntestedClaim(Claim):
    """A statement that no run of this pipeline tests (``not_run``), or that no result could ever decide
    (``undecidable``), such as a definition, an argument, or a fact about the authors' own setup. ``why`` gives the
    reason."""

    kind: Literal["not_run", "undecidable"]
    why: Name


_ANY_KIND: TypeAdapter[Claim] = TypeAdapter(Annotated[
    FigureClaim | MethodClaim | TrainingClaim | SuperlativeClaim | SetupClaim | StudyClaim | UntestedClaim,
    Field(discriminator="kind"),
])  # fmt: skip


def _find_conflict(claim: Claim) -> str:
    """Say which fields of a claim do not go together; an empty text where all do."""
    # Conditions that must agree (all true or all false) are put in a set, which has two members where they do not.
    match claim:
        case FigureClaim() if (claim.statistic == "mean") != (not claim.than):
            return "field 'than': it goes with a statistic of two methods, and only with it"
        case FigureClaim() if claim.metric == "final_accuracy" and (claim.than or claim.on != IN_DOMAIN):
            return f"field 'metric': `final_accuracy` is of one training, on {IN_DOMAIN}"
        case MethodClaim() | TrainingClaim() if (claim.side is None) == (claim.within is None):
            return "field 'side': either `side` or `within`"
        case TrainingClaim() if len({claim.by == "probes", not claim.than, claim.times is not None}) > 1:
            return "field 'by': `probes` goes with `times`, everything else with `than`"
        case SuperlativeClaim() if len({not claim.of, bool(claim.sweep), claim.value is not None}) > 1:
            return "field 'of': either `of`, or `sweep` with `value`"
        case SetupClaim() if (claim.what == "settings") != isinstance(claim.value, dict):
            return "field 'value': settings by name for `settings`, else one value"
        case SetupClaim() if len(claim.names) not in _NAME_COUNTS.get(claim.what, (0,)):
            return f"field 'names': {claim.what} does not take {len(claim.names)}"
        case StudyClaim() if claim.asks == "above" and not (claim.of and claim.than and claim.on_dimensions):
            return "field 'asks': `above` goes with `of`, `than` and `on_dimensions`"
        case StudyClaim() if claim.asks == "largest_lead" and not claim.dimension:
            return "field 'dimension': `largest_lead` needs it"
        case StudyClaim() if not {claim.dimension, *claim.on_dimensions} <= {"", *dimensions()}:
            return f"field 'dimension': one of {', '.join(dimensions())}"
    return ""


class PrintedTable(Section):
    """A table of the paper in a CSV file. ``rows`` maps printed names of methods to our names, where these differ."""

    id: str
    place: str
    file: str
    rows: dict[str, str] = Field(default_factory=dict)


class _ClaimsFile(Section):
    """The contents of ``claims.yaml``: tables whose numbers are claims, and single claims. ``sample_prices`` is the
    place in the paper that prints the prices of its sample patient record, which are claims too."""

    tables: list[PrintedTable] = Field(default_factory=list)
    sample_prices: str = ""
    claims: list[dict[str, Any]]


def read_claims(path: str | Path | None = None) -> list[Claim]:
    """Read all claims of a file, by default ``workflow/paper/claims.yaml``. A claim that the paper makes at several
    places is one claim. Raises :class:`ClaimsError`."""
    path = Path(path) if path else facts_folder() / "claims.yaml"
    try:
        content = _ClaimsFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        raise ClaimsError(f"{path}: cannot be read as YAML: {error}") from error
    except ValidationError as error:
        raise ClaimsError(f"{path}: {_first_problem(error)}") from error
    # All claims as dictionaries, before their fields are checked.
    entries = [single for entry in content.claims for single in _expand_lists(entry)]
    for table in content.tables:
        entries += _table_entries(path, table)
    if content.sample_prices:
        entries += _price_entries(content.sample_prices)
    claims: dict[str, Claim] = {}
    for entry in entries:
        try:
            claim = _ANY_KIND.validate_python(entry)
        except ValidationError as error:
            raise ClaimsError(f"{path}: claim {entry.get('id')!r}: {_first_problem(error)}") from error
        if conflict := _find_conflict(claim):
            raise ClaimsError(f"{path}: claim {claim.id!r}: {conflict}")
        if claim.id in claims:
            raise ClaimsError(f"{path}: claim {claim.id!r}: field 'id': appears twice")
        claims[claim.id] = claim
    return _merge_repeated(claims.values())


def _merge_repeated(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims without those that repeat an earlier one, which need the same result. The earlier claim lists
    the place of the repeated one in ``also``."""
    merged: dict[str, Claim] = {}  # by what decides the claim
    for claim in claims:
        not_compared = {"id", "place", "also", "headline"}
        if not isinstance(claim, UntestedClaim):  # one that is tested is the same claim in any words
            not_compared.add("says")
        question = claim.model_dump_json(exclude=not_compared)
        first = merged.setdefault(question, claim)
        if first is not claim:
            also, headline = tuple(dict.fromkeys((*first.also, claim.place))), first.headline or claim.headline
            merged[question] = first.model_copy(update={"also": also, "headline": headline})
    return list(merged.values())


def _expand_lists(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the claims that an entry of ``claims.yaml`` makes: one per combination of values, where its fields
    ``of``, ``than``, ``on`` or ``by`` are lists; else the entry itself.

    The values are added to the id of each claim. In its sentence ``says``, braces such as ``{of}`` are replaced by the
    labels of the values.
    """
    listed = [field for field in ("of", "than", "on", "by") if isinstance(entry.get(field), list)]
    if not listed:
        yield dict(entry)
        return
    for values in itertools.product(*(entry[field] for field in listed)):
        chosen = dict(zip(listed, values, strict=True))
        labels = {field: _label(value) for field, value in chosen.items()}
        single_id = ".".join([str(entry.get("id")), *map(str, values)])
        yield {**entry, **chosen, "id": single_id, "says": str(entry.get("says")).format(**labels)}


def _label(name: str) -> str:
    """Return the label that tables give to a data set or a variant of the registry; other names unchanged."""
    variant = parse_settings({}).experiments.variants.get(name)
    return DATASET_NAMES.get(name, variant.label if variant else name)


def _table_entries(path: Path, table: PrintedTable) -> Iterator[dict[str, Any]]:
    """Yield an entry of kind ``figure`` for every number of a ``table`` of the paper, whose file is beside ``path``,
    that of the claims. Raises ClaimsError where the table's ``rows`` names a row that its file does not have."""
    csv_path = path.parent / table.file
    rows = [row for _, row in read_table(csv_path, ("method", "dataset"), ClaimsError)]
    if unknown := sorted(set(table.rows) - {row.get("method") for row in rows}):
        raise ClaimsError(f"{path}: table {table.id!r}: field 'rows': {csv_path} has no row {unknown[0]!r}")
    for row, (column, metric) in itertools.product(rows, METRICS.items()):
        if not row.get(column):
            continue
        method, dataset = row["method"], row["dataset"]
        what = f"{DATASET_NAMES.get(dataset, dataset)}: {_PRINTED_WORDS[column]}"
        yield {
            "id": f"{table.id}.{method}.{dataset}.{column}".replace(" ", "_"), "place": table.place, "kind": "figure",
            "says": f"{method}, {what}", "printed": [row[column]],
            "of": table.rows.get(method, method), "metric": metric, "on": dataset,
        }  # fmt: skip


def _price_entries(place: str) -> Iterator[dict[str, Any]]:
    """Yield an entry of kind ``setup`` for every price of the paper's sample patient record. ``place`` is where the
    paper prints them."""
    for name, usd in sample_prices().items():
        yield {
            "id": f"price.{name}".replace(" ", "_"), "place": place, "kind": "setup", "printed": [f"{usd:.2f}"],
            "says": f"{name} is charged at this price (USD).", "what": "price", "names": [name], "value": usd,
        }  # fmt: skip


def _first_problem(error: ValidationError) -> str:
    """Describe the first problem that pydantic found: ``field 'side': Input should be 'above' or 'below'``."""
    first = error.errors()[0]
    # The location of a field of a claim begins with the kind of the claim.
    path = first["loc"][1:] if error.title.startswith("tagged-union") else first["loc"]
    field = ".".join(map(str, path))
    return f"field {field!r}: {first['msg']}" if field else str(first["msg"])
