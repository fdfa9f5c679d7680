"""Table 2: CDPR without one of its parts, on the in-domain test cases."""

import math
from pathlib import Path
from typing import Any

from ..evaluation.significance import detectable_difference
from ..settings import Settings, job_of, labels_of, variants
from . import comparisons, layout
from .methods import IN_DOMAIN, ablation_methods
from .paper import printed_rows
from .results import Results
from .table import Row, Sheet

METRICS = comparisons.IN_DOMAIN_METRICS
_PRINTED = ("acc", "aen", "aec")
_TESTS = ("only_this", "only_cdpr", "mcnemar_p", "mcnemar_p_holm", "discordant", "detectable")


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make, per decoding, the tables of figures, of changes against CDPR, and of tests and power; then the paper's
    Table 2. As plain numbers (accuracy as a share) ``change_*`` is against CDPR, ``paper_*`` what the paper prints.
    Raises as :class:`Results` does."""
    results = Results(settings, folder, ablation_methods(settings))
    base, *others = results.methods
    labels, paper = labels_of(settings, "ablations"), printed_rows("ablation.csv", *_PRINTED)
    by_variant = {row["variant"]: comparisons.paper_cells(row, _PRINTED) for row in paper}
    jobs = {m: job for m in results.methods if (job := job_of(settings, m.name)) != m.name}
    shared = [f"{m.label} trains what {variants(settings)[job].label} trains: one job, and these are its runs."
              for m, job in jobs.items()]  # fmt: skip
    words: dict[str, Any] = {"base": base.label, "remarks": results.remarks(), "shared": shared}
    parts, rows = [], []
    for decoding in results.decodings:
        levels = [results.summary(method, IN_DOMAIN, decoding) for method in results.methods]
        changes = comparisons.changes(results, [(method, base, IN_DOMAIN) for method in others], decoding)
        tested = [row if "reason" in row else row | _tests(row) for row in changes]
        words["readings"] = comparisons.readings(changes, METRICS)
        parts += [layout.part(settings, f"ablations.{table}", shown, decoding, **words)
                  for table, shown in (("levels", levels), ("changes", changes), ("power", tested))]  # fmt: skip
        for method, level, change in zip(results.methods, levels, [{}, *tested], strict=True):
            row = level | by_variant.get(method.name, {})
            row |= {"variant": method.name, "method": method.label, "job": job_of(settings, method.name)}
            rows.append(row | comparisons.prefixed("change_", change) | {name: change.get(name) for name in _TESTS})
    parts.append(
        layout.part(settings, "ablations.paper", [row | {"ours": labels.get(row["variant"])} for row in paper])
    )
    return layout.declared_sheet(settings, "ablations", parts, rows)


write_ablations = comparisons.writer(sheet)


def _tests(change: Row) -> Row:
    """Return McNemar's tests of a change as plain numbers, the share of discordant cases, and the smallest difference
    that it could have shown, as a share: infinite where none is, None where the two never differ."""
    tests, share = change["tests"], comparisons.discordant_share(change)
    smallest = detectable_difference(change["cases"], share) if share else None
    return {
        "only_this": "+".join(str(test.only_first) for test in tests),
        "only_cdpr": "+".join(str(test.only_second) for test in tests),
        "mcnemar_p": "+".join(f"{test.p_value:.6g}" for test in tests),
        "mcnemar_p_holm": "+".join(f"{p:.6g}" for p in change["holm"]),
        "discordant": share, "discordant_text": change["discordant"], "share": share, "detectable": smallest,
        "detectable_text": "none" if smallest == math.inf else None,
    }  # fmt: skip
