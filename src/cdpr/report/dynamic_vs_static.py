"""Table 3: CDPR, which requests examinations one by one, against a diagnosis from the whole record at once."""

from pathlib import Path
from typing import Any

from ..evaluation.metrics import METRICS, estimate
from ..settings import Settings
from . import comparisons, layout
from .methods import IN_DOMAIN, dynamic_methods
from .paper import printed_rows
from .results import Results
from .table import Row, Sheet

STATIC, DYNAMIC = "static", "cdpr"
COMPARED = (comparisons.ACCURACY, comparisons.AEC, comparisons.UTILITY)
REDUCTION = "aec_reduction"
_PRINTED = ("acc", "aec", "aec_reduction_percent")
_COUNTERPARTS = {"Static diagnosis": STATIC, "CDPR": DYNAMIC}


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make, per decoding, a table of both methods with the reduction of cost, and one of the change; then the paper's
    Table 3. As plain numbers (accuracy and reduction as shares) ``change_*`` is CDPR minus static, ``paper_*`` what the
    paper prints. Raises as :class:`Results` does."""
    results = Results(settings, folder, dynamic_methods(settings))
    static, dynamic = results.methods
    words: dict[str, Any] = {"pair": f"{dynamic.label} against {static.label}", "remarks": results.remarks()}
    rows = {_COUNTERPARTS[row["method"]]: row for row in printed_rows("dynamic_vs_static.csv", *_PRINTED)}
    parts, lines = [], []
    for decoding in results.decodings:
        (change,) = comparisons.changes(results, [(dynamic, static, IN_DOMAIN)], decoding)
        before, after = (results.summary(method, IN_DOMAIN, decoding) for method in results.methods)
        after = after | reduction(results, decoding)
        words |= {"readings": comparisons.readings([change], COMPARED)}
        parts += [layout.part(settings, "dynamic_vs_static.levels", [before, after], decoding, **words),
                  layout.part(settings, "dynamic_vs_static.changes", [change], decoding, **words)]  # fmt: skip
        # A row without figures shows no change either.
        lines += [before, after if "reason" in after else after | comparisons.prefixed("change_", change)]
    lines = [row | comparisons.paper_cells(rows[row["method"]], _PRINTED) for row in lines]
    printed = [row | {"ours": results.method(name).label} for name, row in rows.items()]
    parts.append(layout.part(settings, "dynamic_vs_static.paper", printed))
    return layout.declared_sheet(settings, "dynamic_vs_static", parts, lines)


write_dynamic_vs_static = comparisons.writer(sheet)


def reduction(results: Results, decoding: str) -> Row:
    """Compute by which share the dynamic cost is below the static cost, negative where it is higher, as columns of
    :func:`~cdpr.evaluation.metrics.estimate`.

    A ratio of means: both are resampled together, over the same cases and the seeds of the dynamic method. A text says
    why there is none.
    """
    static, dynamic = results.methods
    before, after = (results.summary(method, IN_DOMAIN, decoding) for method in results.methods)
    if reason := before.get("reason") or after.get("reason"):
        return {f"{REDUCTION}_text": reason}
    column = list(METRICS).index("aec")
    draws = [results.draws(method, IN_DOMAIN, decoding)[:, column] for method in (static, dynamic)]
    if not (draws[0] > 0).all():
        return {f"{REDUCTION}_text": "not defined: static diagnosis costs nothing"}
    return estimate(REDUCTION, [1 - usd / before["aec"] for usd in after["aec_by_seed"]], 1 - draws[1] / draws[0])
