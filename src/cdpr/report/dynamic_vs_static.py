"""Table 3 of the paper: CDPR, which orders examinations one by one, against a diagnosis from the whole record at
once."""

from pathlib import Path
from typing import Any

from ..evaluation.metrics import METRICS, estimate
from ..settings import Settings
from . import comparisons, layout
from .methods import IN_DOMAIN, OURS, dynamic_methods
from .paper import printed_rows
from .results import Results
from .table import Row, Sheet

# Columns of the paper's table; and the names in it of our two methods.
_PRINTED = ("acc", "aec", "aec_reduction_percent")
_METHOD_IN_PAPER = {"static": "Static diagnosis", OURS: "CDPR"}


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return the tables of the comparison from the results in ``folder``. For each decoding: the results of both
    methods with the reduction of cost, and their differences; then the paper's Table 3.

    The CSV has a row per decoding and method, with accuracy and reduction as fractions. ``change_*`` are CDPR minus
    static diagnosis, and ``paper_*`` what the paper prints. Raises as :class:`Results` does.
    """
    results = Results(settings, folder, dynamic_methods(settings))
    static, dynamic = results.methods
    paper = {row["method"]: row for row in printed_rows("dynamic_vs_static.csv", *_PRINTED)}
    words: dict[str, Any] = {"pair": f"{dynamic.label} against {static.label}", "remarks": results.notes()}
    tables, csv_rows = [], []
    for decoding in results.decodings:
        (change,) = comparisons.compare_pairs(results, [(dynamic, static, IN_DOMAIN)], decoding)
        of_static = results.summary(static, IN_DOMAIN, decoding)
        of_dynamic = results.summary(dynamic, IN_DOMAIN, decoding) | cost_reduction(results, decoding)
        shown = (comparisons.ACCURACY, comparisons.AEC, comparisons.UTILITY)
        words["findings"] = comparisons.describe_changes([change], shown)
        tables.append(layout.table(settings, "dynamic_vs_static.levels", [of_static, of_dynamic], decoding, **words))
        tables.append(layout.table(settings, "dynamic_vs_static.changes", [change], decoding, **words))
        for row in (of_static, of_dynamic | comparisons.add_prefix("change_", change)):
            csv_rows.append(row | comparisons.paper_cells(paper[_METHOD_IN_PAPER[row["method"]]], _PRINTED))
    printed = [paper[_METHOD_IN_PAPER[method.name]] | {"ours": method.label} for method in results.methods]
    tables.append(layout.table(settings, "dynamic_vs_static.paper", printed))
    return layout.declared_sheet(settings, "dynamic_vs_static", tables, csv_rows)


def cost_reduction(results: Results, decoding: str) -> Row:
    """Return the fraction by which the dynamic method costs less per case than the static one (negative where it costs
    more), as the columns ``aec_reduction*`` of :func:`~cdpr.evaluation.metrics.estimate`; where there is none, the
    reason as ``aec_reduction_text``.

    It is one minus a ratio of mean costs. In its interval both means are of the same resampled cases, and that of the
    dynamic method also of resampled seeds.
    """
    static, dynamic = (results.summary(method, IN_DOMAIN, decoding) for method in results.methods)
    if reason := static.get("reason") or dynamic.get("reason"):
        return {"aec_reduction_text": reason}
    samples = results.samples(results.methods, IN_DOMAIN, decoding)  # [1 + resamples, methods, metrics]
    static_usd, dynamic_usd = samples[1:, :, list(METRICS).index("aec")].T  # [resamples] each; samples[0] are the means
    if not (static_usd > 0).all():
        return {"aec_reduction_text": "not defined: static diagnosis costs nothing"}
    by_seed = [1 - usd / static["aec"] for usd in dynamic["aec_by_seed"]]
    return estimate("aec_reduction", by_seed, 1 - dynamic_usd / static_usd)
