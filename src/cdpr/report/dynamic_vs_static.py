"""Table 3: CDPR, which requests examinations one by one, against a diagnosis from the whole record at once."""

from pathlib import Path
from typing import Any

from ..evaluation.metrics import METRICS, estimate
from ..settings import Settings
from . import comparisons, layout
from .methods import IN_DOMAIN, OURS, dynamic_methods
from .paper import printed_rows
from .results import Results
from .table import Row, Sheet

_PRINTED = ("acc", "aec", "aec_reduction_percent")
_METHOD_IN_PAPER = {"static": "Static diagnosis", OURS: "CDPR"}


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return, per decoding, a table of both methods with the reduction of cost, and one of the change; then the paper's
    Table 3.

    The CSV has a row per decoding and method, with accuracy and reduction as shares; ``change_*`` is CDPR minus static,
    ``paper_*`` what the paper prints. Raises as :class:`Results` does.
    """
    results = Results(settings, folder, dynamic_methods(settings))
    static, dynamic = results.methods
    paper = {row["method"]: row for row in printed_rows("dynamic_vs_static.csv", *_PRINTED)}
    words: dict[str, Any] = {"pair": f"{dynamic.label} against {static.label}", "remarks": results.notes()}
    parts, csv_rows = [], []
    for decoding in results.decodings:
        (change,) = comparisons.compare_pairs(results, [(dynamic, static, IN_DOMAIN)], decoding)
        before = results.summary(static, IN_DOMAIN, decoding)
        after = results.summary(dynamic, IN_DOMAIN, decoding) | cost_reduction(results, decoding)
        shown = (comparisons.ACCURACY, comparisons.AEC, comparisons.UTILITY)
        words["findings"] = comparisons.describe_changes([change], shown)
        parts.append(layout.part(settings, "dynamic_vs_static.levels", [before, after], decoding, **words))
        parts.append(layout.part(settings, "dynamic_vs_static.changes", [change], decoding, **words))
        # A row without figures shows no change either.
        changed = {} if "reason" in after else comparisons.add_prefix("change_", change)
        for row in (before, after | changed):
            csv_rows.append(row | comparisons.paper_cells(paper[_METHOD_IN_PAPER[row["method"]]], _PRINTED))
    printed = [paper[_METHOD_IN_PAPER[method.name]] | {"ours": method.label} for method in results.methods]
    parts.append(layout.part(settings, "dynamic_vs_static.paper", printed))
    return layout.declared_sheet(settings, "dynamic_vs_static", parts, csv_rows)


write_dynamic_vs_static = comparisons.writer(sheet)


def cost_reduction(results: Results, decoding: str) -> Row:
    """Return by which share the cost of the dynamic method is below that of the static one (negative where it is
    higher), as columns ``aec_reduction*`` of :func:`~cdpr.evaluation.metrics.estimate`; or a text why there is none.

    It is a ratio of means: both are resampled together, over the same cases and the seeds of the dynamic method.
    """
    before, after = (results.summary(method, IN_DOMAIN, decoding) for method in results.methods)
    if reason := before.get("reason") or after.get("reason"):
        return {"aec_reduction_text": reason}
    samples = results.samples(results.methods, IN_DOMAIN, decoding)
    static_usd, dynamic_usd = samples[1:, :, list(METRICS).index("aec")].T
    if not (static_usd > 0).all():
        return {"aec_reduction_text": "not defined: static diagnosis costs nothing"}
    by_seed = [1 - usd / before["aec"] for usd in after["aec_by_seed"]]
    return estimate("aec_reduction", by_seed, 1 - dynamic_usd / static_usd)
