"""Table 2: CDPR without one of its parts, on the in-domain test cases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..evaluation.metrics import Comparison
from ..evaluation.significance import detectable_difference
from ..job import Job
from ..results import frame
from ..results.methods import IN_DOMAIN, OURS, Method, ablation_methods, tier_mark
from ..results.results import Results, results_folder
from ..results.table import Cell, Column, Sheet, Table, number
from ..settings import Settings, job_of, labels_of, variants

# The paper's test set, and shares of discordant cases to judge it by: it prints none itself.
PAPER_CASES, PAPER_DISCORDANT = 750, (0.30, 0.34)
METRICS = frame.IN_DOMAIN_METRICS
_FILE, _PRINTED = "ablation.csv", ("acc", "aen", "aec")


def write_ablations(settings: Settings, job: Job) -> None:
    """Write the table; missing evaluations become labelled holes. Raises as :class:`Results` does."""
    sheet(settings, results_folder(settings, job)).write(job.out)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding: the figures, the changes against CDPR, tests and power; then the paper's Table 2."""
    results = Results(settings, folder, ablation_methods(settings))
    base, *others = results.methods
    changes_of = {
        d: frame.changes(results, [(method, base, IN_DOMAIN) for method in others], d) for d in results.decodings
    }
    parts = []
    for decoding, those in changes_of.items():
        parts += [
            (f"{decoding.capitalize()} decoding", _levels(results, decoding)),
            (
                f"Changes against {base.label}, {decoding} decoding",
                _changes(base, those, decoding, tier_mark(settings)),
            ),
            (f"Tests and power, {decoding} decoding", _power(results, base, those, decoding)),
        ]
    columns = [Column("acc", "Acc. (%)"), Column("aen", "AEN"), Column("aec", "AEC (USD)")]
    labels = labels_of(settings, "ablations")
    printed = frame.paper_rows(_FILE, columns, lambda row: labels.get(row["variant"]))
    parts.append(frame.paper_table(settings, columns, printed, "ablations"))
    return Sheet(f"Ablations ({tier_mark(settings)})", parts, _long(results, changes_of))


def _levels(results: Results, decoding: str) -> Table:
    """The paper's columns, with N_na and utility, counts and 95% intervals."""
    columns = [frame.METHOD, *frame.COUNTS, *frame.interval_columns(METRICS)]
    rows = frame.method_rows(results, METRICS, decoding, [method.name for method in results.methods], frame.counts)
    notes = [note for method in results.methods for note in _shared_job(results.settings, method)]
    notes.append("k / N: right diagnoses per seed / cases. Best in bold, second underlined. Every row is judged with "
                 "the same utility, whatever it was trained with.")  # fmt: skip
    text = f"Ablations. {frame.in_domain_caption(results.settings, decoding)}"
    return Table(columns, rows, text, [*results.divergences(), *notes], f"tab:ablations_{decoding}")


def _changes(base: Method, changes: Sequence[frame.Change], decoding: str, mark: str) -> Table:
    """Each ablation minus CDPR on the same cases."""
    text = f"Ablation minus {base.label} on the same cases, {decoding} decoding ({mark})."
    return frame.change_table(changes, METRICS, text, f"tab:ablation_changes_{decoding}")


def _power(results: Results, base: Method, changes: Sequence[frame.Change], decoding: str) -> Table:
    """Whether accuracies differ, seed by seed, and which difference the cases could have shown at all."""
    columns = [
        frame.METHOD, Column("cases", "N"), *frame.mcnemar_columns(f"only ablation : only {base.label} right"),
        Column("share", "discordant (%)", decimals=1), Column("power", "detectable (points)", decimals=1),
    ]  # fmt: skip
    notes = [
        "McNemar: exact, seed by seed; Holm's family: all tests of this table (ablations and seeds).",
        "detectable: the smallest true difference in accuracy that a paired test of one seed, at 5% and before Holm, "
        "finds with 80% power, given N and the share of cases on which exactly one of the two is right. What is "
        "smaller may be there and not be seen.",
        _paper_power(),
    ]
    text = f"Accuracy of the ablations against {base.label}, {decoding} decoding ({tier_mark(results.settings)})."
    rows = frame.change_rows(changes, columns, (), _power_cells)
    return Table(columns, rows, text, notes, f"tab:ablation_tests_{decoding}")


def _long(results: Results, changes: Mapping[str, Sequence[frame.Change]]) -> Table:
    """One line per decoding and variant (accuracy as a share); ``change_*`` is against CDPR, ``paper_*`` what the paper
    prints."""
    metrics = [metric.name for metric in METRICS]
    paper = {row["variant"]: printed for row, printed in frame.paper_numbers(_FILE, _PRINTED)}
    lines = []
    for decoding, those in changes.items():
        changed = {one.first: _change_numbers(one) for one in those}
        for method in results.methods:
            head = {"variant": method.name, "method": method.label, "job": job_of(results.settings, method.name)}
            cells = frame.line(results, method, IN_DOMAIN, decoding) | head | paper.get(method.name, {})
            lines.append(cells | changed.get(method, {}))
    names = ("tier", "cost_unit_usd", "decoding", "variant", "method", "job", "status", "seeds", "k", "n")
    tests = ("only_this", "only_cdpr", "mcnemar_p", "mcnemar_p_holm", "discordant", "detectable")
    estimates = (*metrics, *(f"change_{metric}" for metric in metrics))
    return frame.long_table(lines, names, estimates, (*tests, *(f"paper_{name}" for name in _PRINTED)))


def _change_numbers(change: frame.Change) -> frame.Cells:
    if not isinstance(change.comparison, Comparison):
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


def _power_cells(change: frame.Change) -> frame.Cells:
    smallest = _detectable(change)
    power = Cell(text=None if smallest is None else "none")
    if smallest is not None and math.isfinite(smallest):
        power = Cell(100 * smallest, runs=change.runs)
    return {"share": Cell(100 * change.discordant_share, runs=change.runs), "power": power}


def _paper_power() -> str:
    """What the paper's own test set could have shown."""
    least, most = (100 * detectable_difference(PAPER_CASES, share) for share in PAPER_DISCORDANT)
    rows = [row for row, _ in frame.paper_numbers(_FILE, _PRINTED)]
    base = next(row["acc"] for row in rows if row["variant"] == OURS)
    below = [f"{row['method']} ({number(base - row['acc'], 2)})" for row in rows
             if row["variant"] != OURS and abs(base - row["acc"]) < least]  # fmt: skip
    return (
        f"The paper's N = {PAPER_CASES}: if {' to '.join(f'{100 * share:.0f}' for share in PAPER_DISCORDANT)}% of the "
        f"cases are discordant (it does not say), {number(least, 1)} to {number(most, 1)} points are detectable; "
        f"{len(below)} of its {len(rows) - 1} accuracy drops are smaller: {', '.join(below)}."
    )


def _shared_job(settings: Settings, method: Method) -> list[str]:
    job = job_of(settings, method.name)
    if job == method.name:
        return []
    return [f"{method.label} trains what {variants(settings)[job].label} trains: one job, and these are its runs."]
