"""Ways to assign credit, side by side: what each policy does in-domain, and what its training cost."""

from pathlib import Path

import numpy as np

from ..results import frame
from ..results.curves import read_curves
from ..results.methods import IN_DOMAIN, OURS, TRAINED, Method, comparator_methods, tier_mark
from ..results.results import Hole, Results
from ..results.table import Column, Sheet, Table
from ..settings import Settings

METRICS = frame.IN_DOMAIN_METRICS
_FACTORS = {metric.name: metric.factor for metric in METRICS}


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding the figures with what training cost, and the changes against CDPR; as plain numbers a line per
    decoding and method, in its units; ``change_*`` (accuracy as a share) is against CDPR. Raises as
    :class:`Results` does."""
    results = Results(settings, folder, comparator_methods(settings))
    ours, others = results.method(OURS), [m for m in results.methods if m.learned and m.name != OURS]
    parts, lines = [], []
    for decoding in results.decodings:
        changes = frame.changes(results, [(method, ours, IN_DOMAIN) for method in others], decoding)
        text = f"Method minus {ours.label} on the same cases, {decoding} decoding ({tier_mark(settings)})."
        changed = frame.change_table(changes, METRICS, text, f"tab:comparator_changes_{decoding}")
        parts += [(f"{decoding.capitalize()} decoding", _levels(results, decoding)),
                  (f"Changes against {ours.label}, {decoding} decoding", changed)]  # fmt: skip
        numbers = {one.first: one.numbers(METRICS) for one in changes}
        for method in results.methods:
            cells = frame.line(results, method, IN_DOMAIN, decoding) | numbers.get(method, {})
            summary = results.summary(method, IN_DOMAIN, decoding)
            if not isinstance(summary, Hole):
                cells |= training_tokens(results, method) | frame.numbers(summary.estimates, _FACTORS)
            lines.append(cells | {"decoding": decoding, "variant": method.name, "method": method.label})
    estimates = [f"{change}{metric.name}" for change in ("", "change_") for metric in METRICS]
    plain = frame.long_table(lines, ("decoding", "variant", "method", "status"), estimates, ("tokens",))
    return Sheet(f"Ways to assign credit ({tier_mark(settings)})", parts, plain)


write_comparators = frame.writer(sheet)


def _levels(results: Results, decoding: str) -> Table:
    """A row per method: the in-domain metrics with 95% intervals, and the tokens of training (millions) per run."""
    columns = [frame.METHOD, *frame.interval_columns(METRICS), Column("tokens", "Tokens (M)")]
    lines = frame.method_lines(results, METRICS, decoding, lambda method, _: training_tokens(results, method))
    text = (f"{frame.in_domain_caption(results.settings, decoding)} Tokens of training: mean over seeds, without "
            "validation, with probes and continuations; snakemake write_timings measures its time.")  # fmt: skip
    return Table(columns, lines, text, results.remarks(), f"tab:comparators_{decoding}")


def training_tokens(results: Results, method: Method) -> dict[str, float]:
    """Tokens (millions) at the end of training, of a run that diverged at its last validation."""
    curves = read_curves(results.folder, method, ("accuracy",)) if method.group == TRAINED else None
    if curves is None or not curves.runs:
        return {}
    return {"tokens": float(np.nanmax(curves.values["tokens"], axis=1).mean()) / 1e6}
