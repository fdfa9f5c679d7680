"""Table 2: CDPR without one of its parts, on the in-domain test cases."""

import math
from collections.abc import Sequence
from pathlib import Path

from ..evaluation.significance import detectable_difference
from ..results import frame
from ..results.methods import IN_DOMAIN, ablation_methods, tier_mark
from ..results.paper import printed_rows
from ..results.results import Results
from ..results.table import Column, Row, Sheet, Table
from ..settings import Settings, job_of, labels_of, variants

METRICS = frame.IN_DOMAIN_METRICS
_PRINTED = {"acc": "Acc. (%)", "aen": "AEN", "aec": "AEC (USD)"}
_TESTS = ("only_this", "only_cdpr", "mcnemar_p", "mcnemar_p_holm", "discordant", "detectable")


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding: the figures, the changes against CDPR, tests and power; then the paper's Table 2. As plain numbers
    (accuracy as a share) ``change_*`` is against CDPR, ``paper_*`` what the paper prints. Raises as :class:`Results`
    does."""
    results = Results(settings, folder, ablation_methods(settings))
    base, *others = results.methods
    labels, paper = labels_of(settings, "ablations"), printed_rows("ablation.csv", *_PRINTED)
    by_variant = {row["variant"]: frame.paper_cells(row, _PRINTED) for row in paper}
    parts, rows = [], []
    for decoding in results.decodings:
        changes = frame.changes(results, [(method, base, IN_DOMAIN) for method in others], decoding)
        text = f"Ablation minus {base.label} on the same cases, {decoding} decoding ({tier_mark(settings)})."
        changed = frame.change_table(changes, METRICS, text, f"tab:ablation_changes_{decoding}")
        tested = [row if "hole" in row else row | _tests(row) for row in changes]
        parts += [
            (f"{decoding.capitalize()} decoding", _levels(results, decoding)),
            (f"Changes against {base.label}, {decoding} decoding", changed),
            (f"Tests and power, {decoding} decoding", _power(results, base.label, tested, decoding)),
        ]
        for method, change in zip(results.methods, [{}, *tested], strict=True):
            row = results.summary(method, IN_DOMAIN, decoding) | by_variant.get(method.name, {})
            row |= {"variant": method.name, "method": method.label, "job": job_of(settings, method.name)}
            rows.append(row | frame.prefixed("change_", change) | {name: change.get(name) for name in _TESTS})
    printed = [row | {"ours": labels.get(row["variant"])} for row in paper]
    columns = [Column(name, header) for name, header in _PRINTED.items()]
    parts.append(frame.paper_table(settings, columns, printed, "ablations"))
    names = ("tier", "cost_unit_usd", "decoding", "variant", "method", "job", "status", "seeds", "k", "n")
    estimates = [f"{change}{metric.name}" for change in ("", "change_") for metric in METRICS]
    keys = frame.long_keys(names, estimates, (*_TESTS, *(f"paper_{name}" for name in _PRINTED)))
    return Sheet(f"Ablations ({tier_mark(settings)})", parts, rows, keys)


write_ablations = frame.writer(sheet)


def _levels(results: Results, decoding: str) -> Table:
    columns = [frame.METHOD, *frame.COUNTS, *frame.interval_columns(METRICS, marked=2)]
    rows = [results.summary(method, IN_DOMAIN, decoding) for method in results.methods]
    jobs = {m.label: job for m in results.methods if (job := job_of(results.settings, m.name)) != m.name}
    notes = [
        *results.remarks(),
        *(f"{label} trains what {variants(results.settings)[job].label} trains: one job, and these are its runs."
          for label, job in jobs.items()),
        "k / N: right diagnoses per seed / cases. Best in bold, second underlined. Every row is judged with the same "
        "utility, whatever it was trained with.",
    ]  # fmt: skip
    text = f"Ablations. {frame.in_domain_caption(results.settings, decoding)}"
    return Table(columns, rows, text, notes, f"tab:ablations_{decoding}")


def _tests(change: Row) -> Row:
    """McNemar's tests of a change as plain numbers, the share of discordant cases, and the smallest difference that it
    could have shown, as a share: infinite where none is, None where the two never differ, which says nothing."""
    tests, share = change["tests"], frame.discordant_share(change)
    smallest = detectable_difference(change["cases"], share) if share else None
    return {
        "only_this": "+".join(str(test.only_first) for test in tests),
        "only_cdpr": "+".join(str(test.only_second) for test in tests),
        "mcnemar_p": "+".join(f"{test.p_value:.6g}" for test in tests),
        "mcnemar_p_holm": "+".join(f"{p:.6g}" for p in change["holm"]),
        "discordant": share, "discordant_text": change["discordant"], "share": share, "detectable": smallest,
        "detectable_text": "none" if smallest == math.inf else None,
    }  # fmt: skip


def _power(results: Results, base: str, changes: Sequence[Row], decoding: str) -> Table:
    """Whether accuracies differ, seed by seed, and which difference the cases could have shown at all."""
    columns = [
        frame.METHOD, frame.CASES, *frame.mcnemar_columns(f"only ablation : only {base} right"),
        Column("share", "discordant (%)", decimals=1, factor=100.0),
        Column("detectable", "detectable (points)", decimals=1, factor=100.0),
    ]  # fmt: skip
    notes = [
        "McNemar: exact, seed by seed; Holm's family: all tests of this table (ablations and seeds).",
        "detectable: the smallest true difference in accuracy that a paired test of one seed, at 5% and before Holm, "
        "finds with 80% power, given N and the share of cases on which exactly one of the two is right. What is "
        "smaller may be there and not be seen.",
    ]
    text = f"Accuracy of the ablations against {base}, {decoding} decoding ({tier_mark(results.settings)})."
    return Table(columns, changes, text, notes, f"tab:ablation_tests_{decoding}")
