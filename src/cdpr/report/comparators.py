"""Ways to assign credit, side by side: what each policy does in-domain, and what its training cost."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from ..evaluation.metrics import Estimate
from ..files import with_suffix, write_text
from ..settings import Settings
from .curves import read_curves
from .methods import COMPARATORS, IN_DOMAIN, OPEN, REFERENCE, Method, backbone, tier_mark, trained
from .results import Hole, Results
from .table import Cell, Column, Row, Table, interval, markdown_page, marks, to_csv, to_latex, to_markdown

# Metric, header, factor for printing, decimals, whether more is better.
SHOWN = (
    ("accuracy", "Acc. (%)", 100.0, 2, True), ("aen", "AEN", 1.0, 2, False), ("aec", "AEC (USD)", 1.0, 2, False),
    ("n_na", "N_na", 1.0, 2, False), ("utility", "Utility", 1.0, 3, True),
)  # fmt: skip


def write_comparators(settings: Settings, results_dir: str | Path, out_stem: str | Path) -> list[Path]:
    """Write ``out_stem`` + ``.csv``, ``.md`` and ``.tex``, one table per decoding. Missing evaluations become labelled
    holes. Raises ProvenanceError for results that do not belong together, CurveError for a broken metrics file."""
    methods = [
        Method("warm_start", backbone(settings), OPEN, ("warm_start",), learned=True),
        *(trained(settings, name, label) for name, label in COMPARATORS.items()),
        Method("value_of_information", "Value of information", REFERENCE, ("value_of_information",), decodes=False),
    ]
    results = Results(settings, results_dir, methods)
    tables = {d: comparator_table(results, d) for d in dict.fromkeys(settings.evaluation.decodings)}
    sections = [(f"{decoding.capitalize()} decoding", to_markdown(table)) for decoding, table in tables.items()]
    forms = {
        ".csv": to_csv(long_table(results, tables)),
        ".md": markdown_page(f"Ways to assign credit ({tier_mark(settings)})", sections),
        ".tex": "% needs \\usepackage{booktabs}\n" + "\n".join(map(to_latex, tables.values())),
    }
    return [write_text(with_suffix(out_stem, suffix), text) for suffix, text in forms.items()]


def comparator_table(results: Results, decoding: str) -> Table:
    """A row per method: the in-domain metrics with 95% intervals, training seconds and tokens per run."""
    columns = [Column("method", "Method", align="l")]
    columns += [Column(name, f"{header} [95%]", decimals=places) for name, header, _, places, _ in SHOWN]
    columns += [Column("minutes", "Training (min)", decimals=1), Column("tokens", "Tokens (M)", decimals=2)]
    found = {method.name: results.summary(method, IN_DOMAIN, decoding) for method in results.methods}
    best = {
        metric: marks(
            {m.name: _mean(found[m.name], metric, factor) for m in results.methods if m.learned},
            places,
            higher_is_better=up,
        )
        for metric, _, factor, places, up in SHOWN
    }
    rows: list[Row] = []
    for method in results.methods:
        summary = found[method.name]
        head = {"method": method.label}
        if isinstance(summary, Hole):
            rows.append(Row(head, summary.reason))
            continue
        cells = {
            metric: _cell(summary.estimates[metric], factor, places, best[metric].get(method.name, ""))
            for metric, _, factor, places, _ in SHOWN
        }
        rows.append(Row(head | cells | _cost(results, method)))
    weights = results.settings.utility
    text = (
        f"In-domain test cases, {decoding} decoding ({tier_mark(results.settings)}; cost_unit_usd = "
        f"{weights.cost_unit_usd:g}). Trained rows are means over the seeds "
        f"{', '.join(map(str, results.settings.seeds))}; intervals are over cases. Training: mean over seeds, without "
        "validation; tokens with probes and continuations."
    )
    return Table(columns, rows, text, label=f"tab:comparators_{decoding}")


def long_table(results: Results, decodings: Iterable[str]) -> Table:
    """The same figures as plain numbers, one line per decoding and method, intervals in columns of their own."""
    names = ["decoding", "variant", "method", "status"]
    numbers = [f"{metric}{end}" for metric, *_ in SHOWN for end in ("", "_low", "_high")] + ["minutes", "tokens"]
    columns = [Column(name, name) for name in names] + [Column(name, name, decimals=6) for name in numbers]
    rows = []
    for decoding in decodings:
        for method in results.methods:
            summary = results.summary(method, IN_DOMAIN, decoding)
            head = {"decoding": decoding, "variant": method.name, "method": method.label}
            if isinstance(summary, Hole):
                rows.append(Row(head | {"status": summary.reason}))
                continue
            cells: dict = {"status": "measured", **_cost(results, method)}
            for metric, _, factor, *_ in SHOWN:
                at = summary.estimates[metric]
                values = (at.mean, at.low, at.high)
                ends = ("", "_low", "_high")
                cells |= {f"{metric}{end}": value * factor for end, value in zip(ends, values, strict=True)}
            rows.append(Row(head | cells))
    return Table(columns, rows)


def _mean(summary, metric: str, factor: float) -> float | None:
    return None if isinstance(summary, Hole) else summary.estimates[metric].mean * factor


def _cell(estimate: Estimate, factor: float, places: int, mark: str) -> Cell:
    shown = interval(estimate.mean * factor, estimate.low * factor, estimate.high * factor, places)
    return Cell(estimate.mean * factor, mark, shown)  # type: ignore[arg-type]


def _cost(results: Results, method: Method) -> dict[str, float]:
    """Seconds and tokens at the end of training."""
    if method.runs == ("warm_start",) or not method.decodes:
        return {}
    curves = read_curves(results.folder, method, ("accuracy",))
    if not curves.runs:
        return {}
    return {"minutes": fmean(curves.axes["seconds"][:, -1]) / 60, "tokens": fmean(curves.axes["tokens"][:, -1]) / 1e6}
