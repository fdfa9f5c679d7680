"""Table 2: CDPR without one of its parts, on the in-domain test cases."""

import math
from collections.abc import Sequence
from pathlib import Path

from ..evaluation.significance import detectable_difference
from ..results import frame
from ..results.methods import IN_DOMAIN, Method, ablation_methods, tier_mark
from ..results.paper import printed_rows
from ..results.results import Hole, Results
from ..results.table import Cell, Column, Sheet, Table
from ..settings import Settings, job_of, labels_of, variants

METRICS = frame.IN_DOMAIN_METRICS
_PRINTED = {"acc": "Acc. (%)", "aen": "AEN", "aec": "AEC (USD)"}


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding: the figures, the changes against CDPR, tests and power; then the paper's Table 2. As plain numbers
    (accuracy as a share) ``change_*`` is against CDPR, ``paper_*`` what the paper prints. Raises as :class:`Results`
    does."""
    results = Results(settings, folder, ablation_methods(settings))
    base, *others = results.methods
    labels, paper = labels_of(settings, "ablations"), printed_rows("ablation.csv", *_PRINTED)
    by_variant = {row["variant"]: frame.paper_cells(row, _PRINTED) for row in paper}
    parts, lines = [], []
    for decoding in results.decodings:
        changes = frame.changes(results, [(method, base, IN_DOMAIN) for method in others], decoding)
        text = f"Ablation minus {base.label} on the same cases, {decoding} decoding ({tier_mark(settings)})."
        changed = frame.change_table(changes, METRICS, text, f"tab:ablation_changes_{decoding}")
        parts += [
            (f"{decoding.capitalize()} decoding", _levels(results, decoding)),
            (f"Changes against {base.label}, {decoding} decoding", changed),
            (f"Tests and power, {decoding} decoding", _power(results, base, changes, decoding)),
        ]
        numbers = {one.first: _change_numbers(one) for one in changes}
        for method in results.methods:
            head = {"variant": method.name, "method": method.label, "job": job_of(settings, method.name)}
            cells = frame.line(results, method, IN_DOMAIN, decoding) | head | by_variant.get(method.name, {})
            lines.append(cells | numbers.get(method, {}))
    printed = [row | {"ours": labels.get(row["variant"])} for row in paper]
    columns = [Column(name, header) for name, header in _PRINTED.items()]
    parts.append(frame.paper_table(settings, columns, printed, "ablations"))
    names = ("tier", "cost_unit_usd", "decoding", "variant", "method", "job", "status", "seeds", "k", "n")
    tests = ("only_this", "only_cdpr", "mcnemar_p", "mcnemar_p_holm", "discordant", "detectable")
    estimates = [f"{change}{metric.name}" for change in ("", "change_") for metric in METRICS]
    plain = frame.long_table(lines, names, estimates, (*tests, *(f"paper_{name}" for name in _PRINTED)))
    return Sheet(f"Ablations ({tier_mark(settings)})", parts, plain)


write_ablations = frame.writer(sheet)


def _levels(results: Results, decoding: str) -> Table:
    columns = [frame.METHOD, *frame.COUNTS, *frame.interval_columns(METRICS)]
    lines = frame.method_lines(results, METRICS, decoding, frame.counts)
    jobs = {m.label: job for m in results.methods if (job := job_of(results.settings, m.name)) != m.name}
    notes = [
        *results.remarks(),
        *(f"{label} trains what {variants(results.settings)[job].label} trains: one job, and these are its runs."
          for label, job in jobs.items()),
        "k / N: right diagnoses per seed / cases. Best in bold, second underlined. Every row is judged with the same "
        "utility, whatever it was trained with.",
    ]  # fmt: skip
    text = f"Ablations. {frame.in_domain_caption(results.settings, decoding)}"
    return Table(columns, lines, text, notes, f"tab:ablations_{decoding}")


def _power(results: Results, base: Method, changes: Sequence[frame.Change], decoding: str) -> Table:
    """Whether accuracies differ, seed by seed, and which difference the cases could have shown at all."""
    columns = [
        frame.METHOD, Column("cases", "N"), *frame.mcnemar_columns(f"only ablation : only {base.label} right"),
        Column("share", "discordant (%)", decimals=1), Column("power", "detectable (points)", decimals=1),
    ]  # fmt: skip
    lines = []
    for change in changes:
        cells = change.cells(())
        if not isinstance(change.comparison, Hole):
            smallest = _detectable(change)
            power = Cell(text=None if smallest is None else "none")
            if smallest is not None and math.isfinite(smallest):
                power = Cell(100 * smallest, runs=change.runs)
            cells |= {"share": Cell(100 * change.discordant_share, runs=change.runs), "power": power}
        lines.append(cells)
    notes = [
        "McNemar: exact, seed by seed; Holm's family: all tests of this table (ablations and seeds).",
        "detectable: the smallest true difference in accuracy that a paired test of one seed, at 5% and before Holm, "
        "finds with 80% power, given N and the share of cases on which exactly one of the two is right. What is "
        "smaller may be there and not be seen.",
    ]
    text = f"Accuracy of the ablations against {base.label}, {decoding} decoding ({tier_mark(results.settings)})."
    return Table(columns, lines, text, notes, f"tab:ablation_tests_{decoding}")


def _change_numbers(change: frame.Change) -> frame.Cells:
    if isinstance(change.comparison, Hole):
        return {}
    tests = change.comparison.mcnemar
    return change.numbers(METRICS) | {
        "only_this": "+".join(str(test.only_first) for test in tests),
        "only_cdpr": "+".join(str(test.only_second) for test in tests),
        "mcnemar_p": "+".join(f"{test.p_value:.6g}" for test in tests),
        "mcnemar_p_holm": "+".join(f"{p:.6g}" for p in change.after_holm),
        "discordant": change.discordant_share,
        "detectable": _detectable(change),
    }


def _detectable(change: frame.Change) -> float | None:
    """As a share; infinite where nothing is, None where the two never differ, which says nothing."""
    share = change.discordant_share
    return detectable_difference(change.comparison.cases, share) if share else None
