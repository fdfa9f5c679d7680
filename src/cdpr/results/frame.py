"""Projections of the frame that tables share: typed cells with the runs behind them, rows of methods, rows of
differences, the long form of plain numbers, and the paper's printed figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..evaluation.metrics import METRICS, Comparison, Estimate, Metric, Summary
from ..evaluation.significance import holm
from ..job import Job
from ..settings import Settings, seeds_of_runs
from .methods import AVERAGE, DATASETS, IN_DOMAIN, Method, tier_mark
from .results import Hole, Results
from .table import EMPTY, Cell, Column, Heading, Runs, Sheet, Table, interval, marks, number

Cells = dict[str, Any]


ACCURACY, AEN, AEC = METRICS["accuracy"], METRICS["aen"], METRICS["aec"]
N_NA, UTILITY = METRICS["n_na"], METRICS["utility"]
IN_DOMAIN_METRICS = (ACCURACY, AEN, AEC, N_NA, UTILITY)

# What stands behind a mean in a CSV file, as endings of its column.
ENDS = ("", "_low", "_high", "_seed_sd")

# Columns and a note that tables share.
METHOD, DATA_SET = Column("method", "Method", align="l"), Column("dataset", "Data set", align="l")
COUNTS = (Column("seeds", "Training seeds"), Column("k", "k / N"))
SEED_SD = Column("seed_sd", "seed SD of Δ Acc.")
PAIRED_INTERVALS = (
    "Intervals: bootstrap over training seeds and cases, both paired; they cover other cases and training again. Of "
    "one seed there is an interval over cases alone, and nothing is called clear."
)


def interval_cell(metric: Metric, estimate: Estimate, runs: Runs = (), *, signed: bool = False) -> Cell:
    """``58.90 [56.07, 61.83]``, in the unit that tables print."""
    values = [value * metric.factor for value in (estimate.mean, estimate.low, estimate.high)]
    return Cell(values[0], text=interval(*values, metric.decimals, signed=signed), runs=runs)


# Rows of methods


def method_lines(
    results: Results, metrics: Sequence[Metric], decoding: str,
    more: Callable[[Method, Summary], Cells] = lambda method, summary: {}, second: bool = True,
) -> list[Cells]:  # fmt: skip
    """A line per method with its in-domain figures, with intervals, and ``more`` of it; or its hole. The best of those
    that do not know the hospital and, if asked for, the ``second`` best are marked, where at least two were measured:
    one alone is the best of nothing."""
    lines, rivals = [], []
    for method in results.methods:
        lines.append({"method": method.label})
        if isinstance(summary := results.summary(method, IN_DOMAIN, decoding), Hole):
            lines[-1]["hole"] = summary.reason
            continue
        runs = results.behind(IN_DOMAIN, method)
        lines[-1] |= {m.name: interval_cell(m, summary.estimates[m.name], runs) for m in metrics}
        lines[-1] |= more(method, summary)
        rivals += [lines[-1]] if method.learned else []
    for metric in metrics if len(rivals) > 1 else ():
        mark_best(rivals, metric.name, metric, metric.decimals, second)
    return lines


def mark_best(lines: Sequence[Cells], key: str, metric: Metric, decimals: int, second: bool = True) -> None:
    """Mark the best and, if asked for, the ``second`` best of the lines' cells in a column."""
    values = {place: line[key].value for place, line in enumerate(lines)}
    for place, mark in marks(values, decimals, higher_is_better=metric.higher_is_better).items():
        if mark == "best" or second:
            lines[place][key] = replace(lines[place][key], mark=mark)


def interval_columns(metrics: Sequence[Metric], prefix: str = "", short: bool = False) -> list[Column]:
    """A column with intervals per metric, of differences with the prefix ``Δ``; ``short``: under the main table's
    headers."""
    headers = [metric.short if short and metric.short else metric.header for metric in metrics]
    return [Column(metric.name, f"{prefix}{header} [95%]") for metric, header in zip(metrics, headers, strict=True)]


def counts(method: Method, summary: Summary) -> Cells:
    """Seeds ``0, 1, 2`` (a dash for what is not trained with seeds), and right diagnoses ``583+590+577 / 3×1000``, or
    ``583 / 1000`` of one run."""
    seeds = ", ".join(map(str, seeds_of_runs(method.runs))) or EMPTY
    trials = str(summary.cases) if len(summary.correct) == 1 else f"{len(summary.correct)}×{summary.cases}"
    return {"seeds": seeds, "k": f"{'+'.join(map(str, summary.correct))} / {trials}"}


# Rows of differences


@dataclass(frozen=True)
class Change:
    """First minus second at a place, or why there is none. ``after_holm`` are McNemar's p-values by seed, adjusted for
    the family of :func:`changes`."""

    first: Method
    second: Method
    place: str
    comparison: Comparison | Hole
    after_holm: Sequence[float] = ()

    @property
    def runs(self) -> Runs:
        """The evaluations that are compared."""
        return () if isinstance(self.comparison, Hole) else self.comparison.runs

    def numbers(self, metrics: Iterable[Metric]) -> Cells:
        """The differences as columns ``change_*`` of the long form; none for a hole."""
        if isinstance(self.comparison, Hole):
            return {}
        return numbers({f"change_{metric.name}": self.comparison.differences[metric.name] for metric in metrics})

    def cells(self, metrics: Sequence[Metric]) -> Cells:
        """What is compared: the first method, or the data set; differences with intervals, cases, the deviation between
        seeds, and McNemar's tests seed by seed."""
        head, at = {"method": self.first.label, "dataset": DATASETS.get(self.place)}, self.comparison
        if isinstance(at, Hole):
            return head | {"hole": at.reason}
        deviation = at.differences["accuracy"].seed_sd
        texts = {
            "discordant": discordant(at),
            "p": ", ".join(p_value(test.p_value) for test in at.mcnemar),
            "p_holm": ", ".join(map(p_value, self.after_holm)),
            "seed_sd": None if deviation is None else 100 * deviation,
        }
        return head | {
            "cases": at.cases,
            **{m.name: interval_cell(m, at.differences[m.name], self.runs, signed=True) for m in metrics},
            **{name: Cell(text, runs=self.runs) for name, text in texts.items()},
        }

    def reading(self, metrics: Sequence[Metric]) -> str:
        """The differences in words: what their intervals tell, whichever way they fall, or why they tell nothing."""
        against = f"{self.first.label} against {self.second.label}"
        if self.comparison.void:
            return f"{against}: open; {self.comparison.void}."
        verdicts: dict[str, list[str]] = {"better": [], "worse": [], "": []}
        for metric in metrics:
            name = metric.header.partition(" (")[0].rstrip(".")
            verdicts[favour(self.comparison, metric)].append(name)
        heads = {"better": "better on", "worse": "worse on", "": "open on"}
        parts = [f"{heads[how]} {', '.join(names)}" for how, names in verdicts.items() if names]
        settled = verdicts["better"] or verdicts["worse"]
        return f"{against}{' is' if settled else ':'} {'; '.join(parts)}."

    @property
    def discordant_share(self) -> float:
        """Share of cases that exactly one of the two got right, on average over seeds."""
        discordant = [test.only_first + test.only_second for test in self.comparison.mcnemar]
        return sum(discordant) / len(discordant) / self.comparison.cases


def changes(results: Results, pairs: Iterable[tuple[Method, Method, str]], decoding: str) -> list[Change]:
    """Comparisons of (first, second, place). The family for Holm are all their tests."""
    comparisons = [(*pair, results.compare(*pair, decoding)) for pair in pairs]
    values = iter(holm([t.p_value for *_, one in comparisons if isinstance(one, Comparison) for t in one.mcnemar]))
    return [
        Change(first, second, place, one, [next(values) for _ in getattr(one, "mcnemar", ())])
        for first, second, place, one in comparisons
    ]


def change_table(
    changes: Sequence[Change], metrics: Sequence[Metric], text: str, label: str,
    columns: Sequence[Column] = (), note: str = "",
) -> Table:  # fmt: skip
    """Each method minus another on the same cases, and what the differences tell; with ``columns`` and a ``note`` of
    its own."""
    columns = columns or [METHOD, Column("cases", "N"), *interval_columns(metrics, "Δ "), SEED_SD]
    measured = [one for one in changes if not isinstance(one.comparison, Hole)]
    several = len({one.place for one in changes}) > 1
    notes = [f"{DATASETS[one.place]}: " * several + one.reading(metrics) for one in measured]
    notes.append(f"{PAIRED_INTERVALS} {note}".strip())
    return Table(columns, [one.cells(metrics) for one in changes], text, notes, label)


def discordant(comparison: Comparison) -> str:
    """By seed, how many cases only the first and only the second got right: ``12:7, 9:8``."""
    return ", ".join(f"{test.only_first}:{test.only_second}" for test in comparison.mcnemar)


def mcnemar_columns(discordant: str) -> list[Column]:
    """McNemar's tests; ``discordant`` heads the counts of cases that only one of the two got right."""
    return [Column("discordant", discordant), Column("p", "McNemar p by seed"), Column("p_holm", "after Holm")]


def favour(comparison: Comparison, metric: Metric) -> str:
    """What a comparison shows: ``better``, ``worse``, or nothing where it is void or its interval holds zero."""
    difference = comparison.differences[metric.name]
    if comparison.void or difference.low <= 0 <= difference.high:
        return ""
    return "better" if (difference.low > 0) == metric.higher_is_better else "worse"


def p_value(p: float) -> str:
    """A p-value with as many digits as it deserves."""
    return "<0.001" if p < 0.001 else number(p, 3)


# The long form


def long_table(
    lines: Iterable[Cells], names: Sequence[str], estimates: Sequence[str] = (), more: Sequence[str] = ()
) -> Table:
    """Lines of the frame as plain numbers with six decimals: the columns ``names``, for each of the ``estimates`` its
    mean, interval and seed deviation, then ``more``. A line may hold more than is shown."""
    keys = [*names, *(f"{name}{end}" for name in estimates for end in ENDS), *more]
    return Table([Column(key, key, decimals=6) for key in keys], list(lines))


def line(results: Results, method: Method, place: str, decoding: str) -> Cells:
    """A line of the frame: where it is from, how it stands and, where it was measured, its counts and all metrics."""
    settings = results.settings
    cells: Cells = {
        "tier": settings.tier, "cost_unit_usd": str(settings.utility.cost_unit_usd),
        "decoding": "greedy" if method.knows_hospital else decoding, "group": method.group, "method": method.name,
        "label": method.label, "dataset": place,
    }  # fmt: skip
    estimates = results.estimates(method, place, decoding)
    if isinstance(estimates, Hole):
        return cells | {"status": estimates.reason}
    cells |= {"status": results.status(method), "seeds": len(method.runs)}
    if place != AVERAGE:
        summary = results.summary(method, place, decoding)
        cells |= {"k": "+".join(map(str, summary.correct)), "n": summary.cases, "cost_median": summary.cost_median,
                  "cost_p90": summary.cost_p90}  # fmt: skip
    return cells | numbers(estimates)


def numbers(estimates: Mapping[str, Estimate], factors: Mapping[str, float] | None = None) -> Cells:
    """Estimates by name as the columns that :func:`long_table` makes of them, times the ``factors`` of some."""
    return {
        f"{name}{end}": None if value is None else value * (factors or {}).get(name, 1.0)
        for name, at in estimates.items()
        for end, value in zip(ENDS, (at.mean, at.low, at.high, at.seed_sd), strict=True)
    }


# Captions and the paper's own figures


def in_domain_caption(settings: Settings, decoding: str) -> str:
    """What a reader must know before comparing figures of in-domain cases."""
    return (
        f"In-domain test cases, {decoding} decoding ({tier_mark(settings)}; cost_unit_usd = "
        f"{settings.utility.cost_unit_usd:g}). Trained rows are means over their training seeds; intervals are over "
        "seeds and cases."
    )


def paper_table(
    settings: Settings, columns: Sequence[Column], lines: Sequence[Heading | Cells], label: str, wide: bool = False
) -> tuple[str, Table]:
    """A table as the paper prints it, without its marks, below its heading; the last column, ``ours``, names our
    counterpart."""
    warning = "" if settings.tier == "paper" else "; not comparable with the synthetic tier"
    title = f"As printed in the paper (MIMIC-IV, Qwen3-4B{warning})"
    columns = [METHOD, *columns, Column("ours", "Our counterpart", align="l")]
    text = f"{title}. Nothing here was measured by this pipeline."
    return title, Table(columns, lines, text, label=f"tab:paper_{label}", wide=wide)


def paper_cells(row: Cells, names: Iterable[str]) -> Cells:
    """The figures of a row of the paper as columns ``paper_*`` of the long form."""
    return {f"paper_{name}": None if row[name] is None else number(row[name]) for name in names}


def writer(sheet: Callable[[Settings, Path], Sheet]) -> Callable[[Settings, Job], None]:
    """The stage that writes a sheet of the results; missing evaluations become labelled holes. Raises as the sheet."""
    return lambda settings, job: sheet(settings, job.inputs["results"]).write(job.out)
