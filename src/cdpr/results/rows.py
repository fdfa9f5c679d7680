"""What result tables share: metrics as columns, cells with intervals and marks, changes against a base, plain numbers,
and the paper's printed figures beside them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..evaluation.metrics import Comparison, Estimate, Summary
from ..evaluation.statistics import holm
from ..files import with_suffix, write_text
from ..settings import Settings
from .methods import Method, tier_mark
from .paper import PaperFactsError, facts_folder
from .results import Hole, Results
from .table import EMPTY, Cell, Column, Table, interval, markdown_page, marks, number, to_csv, to_latex, to_markdown


@dataclass(frozen=True)
class Figure:
    """A metric as tables print it: ``factor`` brings it to the unit of the header."""

    metric: str
    header: str
    factor: float = 1.0
    decimals: int = 2
    higher_is_better: bool = False


ACCURACY = Figure("accuracy", "Acc. (%)", 100.0, higher_is_better=True)
AEN = Figure("aen", "AEN")
AEC = Figure("aec", "AEC (USD)")
N_NA = Figure("n_na", "N_na")
UTILITY = Figure("utility", "Utility", decimals=3, higher_is_better=True)
IN_DOMAIN_FIGURES = (ACCURACY, AEN, AEC, N_NA, UTILITY)

# What stands behind a mean in a CSV file, as endings of its column.
ENDS = ("", "_low", "_high", "_seed_sd")
_SEED = re.compile(r".*-seed(\d+)")


# Cells


def printed(estimate: Estimate, figure: Figure, *, signed: bool = False) -> str:
    """``58.90 [56.07, 61.83]``, in the printed unit."""
    values = (value * figure.factor for value in (estimate.mean, estimate.low, estimate.high))
    return interval(*values, figure.decimals, signed=signed)


def marked_cells(
    found: Mapping[str, Summary | Hole], competing: Iterable[str], figures: Sequence[Figure]
) -> dict[str, dict[str, Cell]]:
    """Cells with intervals by method and metric; best and second best of the ``competing`` methods are marked, where
    at least two of them were measured: one alone is the best of nothing."""
    measured = {name: summary.estimates for name, summary in found.items() if not isinstance(summary, Hole)}
    rivals = [name for name in competing if name in measured]
    rivals = rivals if len(rivals) > 1 else []
    cells: dict[str, dict[str, Cell]] = {name: {} for name in measured}
    for figure in figures:
        means = {name: at[figure.metric].mean * figure.factor for name, at in measured.items()}
        best = marks({n: means[n] for n in rivals}, figure.decimals, higher_is_better=figure.higher_is_better)
        for name, at in measured.items():
            text = printed(at[figure.metric], figure)
            cells[name][figure.metric] = Cell(means[name], best.get(name, ""), text)
    return cells


def counts(correct: tuple[int, ...], cases: int) -> str:
    """``583+590+577 / 3x1000``, or ``583 / 1000`` for one run."""
    trials = str(cases) if len(correct) == 1 else f"{len(correct)}×{cases}"
    return f"{'+'.join(map(str, correct))} / {trials}"


def seeds_of_runs(method: Method) -> str:
    """Training seeds behind a row: ``0, 1, 2``; a dash for what is not trained with seeds."""
    return ", ".join(map(str, _by_seed(method))) or EMPTY


def p_value(p: float) -> str:
    """A p-value with as many digits as it deserves."""
    return "<0.001" if p < 0.001 else number(p, 3)


def in_domain_caption(settings: Settings, decoding: str) -> str:
    """What a reader must know before comparing figures of in-domain cases."""
    return (
        f"In-domain test cases, {decoding} decoding ({tier_mark(settings)}; cost_unit_usd = "
        f"{settings.utility.cost_unit_usd:g}). Trained rows are means over the seeds "
        f"{', '.join(map(str, settings.seeds))}; intervals are over cases."
    )


# Comparisons


def paired(results: Results, first: Method, second: Method, dataset: str, decoding: str) -> Comparison | Hole:
    """First minus second on the same cases, over the seeds that both have; the one run of an agent that is not trained
    stands against every seed of the other. A hole when a run is missing or no seed is shared."""
    for method in (first, second):
        found = results.evaluations(method, dataset, decoding)
        if isinstance(found, Hole):
            return found
    one, two = _by_seed(first), _by_seed(second)
    if one and two:
        common = [seed for seed in one if seed in two]
        if not common:
            return Hole(f"not compared: {first.label} and {second.label} share no seed")
        runs = [tuple(side[seed] for seed in common) for side in (one, two)]
    else:
        most = max(len(first.runs), len(second.runs))
        runs = [side.runs * (most if len(side.runs) == 1 else 1) for side in (first, second)]
    return results.compare(replace(first, runs=runs[0]), replace(second, runs=runs[1]), dataset, decoding)


def adjusted(comparisons: Mapping[str, Comparison | Hole]) -> dict[str, list[float]]:
    """McNemar's p-values by row and seed after Holm; the family is all tests of these comparisons."""
    measured = {name: c for name, c in comparisons.items() if not isinstance(c, Hole)}
    values = iter(holm([test.p_value for c in measured.values() for test in c.mcnemar]))
    return {name: [next(values) for _ in c.mcnemar] for name, c in measured.items()}


def mcnemar_cells(comparison: Comparison, after_holm: Sequence[float]) -> dict[str, str]:
    """Discordant cases and p-values, seed by seed."""
    return {
        "discordant": ", ".join(f"{test.only_first}:{test.only_second}" for test in comparison.mcnemar),
        "p": ", ".join(p_value(test.p_value) for test in comparison.mcnemar),
        "p_holm": ", ".join(map(p_value, after_holm)),
    }


def discordant_share(comparison: Comparison) -> float:
    """Share of cases that exactly one of the two got right, on average over seeds."""
    found = [test.only_first + test.only_second for test in comparison.mcnemar]
    return sum(found) / len(found) / comparison.cases


# Plain numbers


def number_columns(*names: str) -> list[Column]:
    """CSV columns of estimates."""
    return [Column(f"{name}{end}", f"{name}{end}", decimals=6) for name in names for end in ENDS]


def numbers(name: str, estimate: Estimate, factor: float = 1.0) -> dict[str, float | None]:
    """Cells of an estimate for :func:`number_columns`."""
    values = (estimate.mean, estimate.low, estimate.high, estimate.seed_sd)
    return {f"{name}{end}": None if v is None else v * factor for end, v in zip(ENDS, values, strict=True)}


# The paper's own figures


def printed_rows(file: str, *values: str) -> Iterator[dict[str, str | float | None]]:
    """Rows of a file below ``workflow/paper`` with the columns ``values`` as numbers (None where nothing is printed).

    Raises PaperFactsError, which names file, line and field.
    """
    path = facts_folder() / file
    with path.open(encoding="utf-8", newline="") as lines:
        for line, row in enumerate(csv.DictReader(lines), 2):
            try:
                read = {name: float(row[name]) if row[name] else None for name in values}
            except (KeyError, TypeError, ValueError) as error:
                raise PaperFactsError(f"{path}:{line}: {type(error).__name__}: {error}") from error
            yield row | read


def paper_title(settings: Settings) -> str:
    """Heading of the paper's own figures."""
    warning = "" if settings.tier == "paper" else "; not comparable with the synthetic tier"
    return f"As printed in the paper (MIMIC-IV, Qwen3-4B{warning})"


# Files


def write_forms(out_stem: str | Path, title: str, plain: Table, sections: Sequence[tuple[str, Table]]) -> list[Path]:
    """Write ``out_stem`` + ``.csv`` (the plain numbers), ``.md`` and ``.tex`` (all sections)."""
    forms = {
        ".csv": to_csv(plain),
        ".md": markdown_page(title, [(heading, to_markdown(table)) for heading, table in sections]),
        ".tex": "% needs \\usepackage{booktabs}\n" + "\n".join(to_latex(table) for _, table in sections),
    }
    return [write_text(with_suffix(out_stem, suffix), text) for suffix, text in forms.items()]


def _by_seed(method: Method) -> dict[int, str]:
    found = {_SEED.fullmatch(run): run for run in method.runs}
    return {int(match[1]): run for match, run in found.items() if match}
