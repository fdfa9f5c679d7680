"""Table 2 of the paper: CDPR without one of its parts, on the in-domain test cases."""

import math
from pathlib import Path
from typing import Any

from ..evaluation.significance import detectable_difference
from ..settings import Settings, job_of, labels_of, variants
from . import comparisons, layout
from .methods import IN_DOMAIN, ablation_methods
from .paper import METRICS, printed_rows
from .results import Results
from .table import Row, Sheet


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return the tables of the ablations from the results in ``folder``. For each decoding: results, differences from
    CDPR, and tests of accuracy with their power; then the paper's Table 2.

    The CSV has a row per decoding and method, with accuracy as a fraction. ``change_*`` are differences from CDPR, and
    ``paper_*`` what the paper prints. Raises as :class:`Results` does.
    """
    results = Results(settings, folder, ablation_methods(settings))
    base, *ablations = results.methods
    pairs = [(method, base, IN_DOMAIN) for method in ablations]
    paper = {row["variant"]: row for row in printed_rows("ablation.csv", *METRICS)}
    # Texts for the braces of the declarations in `tables.yaml`.
    words: dict[str, Any] = {"base": base.label, "remarks": results.notes(), "shared": _shared_job_notes(results)}
    tables, csv_rows = [], []
    for decoding in results.decodings:
        levels = [results.summary(method, IN_DOMAIN, decoding) for method in results.methods]
        # A row with a reason was not measured, so it has no tests.
        changes = [row if "reason" in row else row | _test_columns(row)
                   for row in comparisons.compare_pairs(results, pairs, decoding)]  # fmt: skip
        words["findings"] = comparisons.describe_changes(changes, comparisons.IN_DOMAIN_METRICS)
        for table, rows in {"levels": levels, "changes": changes, "power": changes}.items():
            tables.append(layout.table(settings, f"ablations.{table}", rows, decoding, **words))
        for level, change in zip(levels, [{}, *changes], strict=True):  # CDPR, the first, has no change
            variant = level["method"]
            printed = comparisons.paper_cells(paper[variant], METRICS) if variant in paper else {}
            names = {"variant": variant, "method": level["label"], "job": job_of(settings, variant)}
            csv_rows.append(change | level | printed | names | comparisons.add_prefix("change_", change))
    labels = labels_of(settings, "ablations")
    printed_table = [row | {"ours": labels.get(variant)} for variant, row in paper.items()]
    tables.append(layout.table(settings, "ablations.paper", printed_table))
    return layout.declared_sheet(settings, "ablations", tables, csv_rows)


def _shared_job_notes(results: Results) -> list[str]:
    """Return a sentence about each ablation whose settings make it the same training as another variant, so that both
    have the same runs."""
    labels = {name: entry.label for name, entry in variants(results.settings).items()}
    jobs = [(method, job_of(results.settings, method.name)) for method in results.methods]
    return [f"{method.label} trains what {labels[job]} trains: one job, and these are its runs."
            for method, job in jobs if job != method.name]  # fmt: skip


def _test_columns(change: Row) -> Row:
    """Return columns about the McNemar tests of a row of differences, which compare an ablation with CDPR case by case.

    - ``only_this``, ``only_cdpr``: how many cases only the ablation, and only CDPR got right, by seed (``4+7``);
    - ``mcnemar_p``, ``mcnemar_p_holm``: p-values by seed before and after Holm's correction (``0.125+0.00781``);
    - ``share``: the fraction of cases on which exactly one of the two was right, a mean over seeds;
    - ``discordant``: the same fraction, for the CSV; ``discordant_text``: the numbers of these cases, which the printed
      table shows in its place (``4:7, 5:6``);
    - ``detectable``: the smallest difference in accuracy, a fraction, that one test would have detected with 80% power:
      infinite where it could detect none, None where the two never differ. ``detectable_text`` is shown for infinity.
    """
    tests = change["tests"]
    differing = sum(test.only_first + test.only_second for test in tests)
    share = differing / len(tests) / change["cases"]
    detectable = detectable_difference(change["cases"], share) if share else None
    return {
        "only_this": "+".join(str(test.only_first) for test in tests),
        "only_cdpr": "+".join(str(test.only_second) for test in tests),
        "mcnemar_p": "+".join(f"{test.p_value:.6g}" for test in tests),
        "mcnemar_p_holm": "+".join(f"{p:.6g}" for p in change["holm"]),
        "discordant": share, "discordant_text": change["discordant"], "share": share, "detectable": detectable,
        "detectable_text": "none" if detectable == math.inf else None,
    }  # fmt: skip
