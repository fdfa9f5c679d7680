import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..evaluation.metrics import ACCURACY, AEC, IN_DOMAIN_METRICS, METRICS, UTILITY, Metric, estimate
from ..evaluation.preflight import exact_accuracy
from ..evaluation.significance import detectable_difference
from ..settings import Settings, job_of, labels_of, resolve_variant, variants
from . import methods, paper
from .curves import read_curves
from .methods import IN_DOMAIN, OURS, TRAINED, Method
from .results import NotMeasured, Results, describe_changes
from .table import Column, Row, Sheet, add_prefix


def _add_results(
    sheet: Sheet, results: Results, pairs: Sequence[tuple[Method, Method]] = (),
    metrics: Sequence[Metric] = IN_DOMAIN_METRICS, further: Callable[[Method, str], Row] = lambda method, decoding: {},
) -> None:  # fmt: skip
    """Add to a sheet, for each decoding, those of these tables that it declares:

    - ``levels``: the results of all methods; ``further(method, decoding)`` gives columns beside those of
      :meth:`Results.summary`;
    - ``changes``: the differences between the two methods of each of the ``pairs``, with sentences about ``metrics``;
    - ``power``: the tests behind these differences.

    The CSV gets a row per decoding and method, the ``variant``. In it ``change_*`` are the differences of the pair that
    begins with the method.
    """
    for decoding in results.decodings:
        levels = [results.summary(method, IN_DOMAIN, decoding) | further(method, decoding)
                  for method in results.methods]  # fmt: skip
        # A row with a reason was not measured, so it has no tests.
        changes = [row if "reason" in row else row | _test_columns(row)
                   for row in results.compare_pairs([(*pair, IN_DOMAIN) for pair in pairs], decoding)]  # fmt: skip
        findings = describe_changes(changes, metrics)
        for table, rows in {"levels": levels, "changes": changes, "power": changes}.items():
            if table in sheet.declared:
                sheet.add(table, rows, decoding, findings=findings)
        change_of = {row["method"]: row for row in changes}
        for level in levels:
            change = change_of.get(level["method"], {})
            names = {"decoding": decoding, "variant": level["method"]}
            sheet.rows.append(change | level | names | add_prefix("change_", change))


# Table 2: ablations


def sheet_ablations(settings: Settings, folder: Path) -> Sheet:
    """Return the tables of the ablations from the results in ``folder``. For each decoding: results, differences from
    CDPR, and tests of accuracy with their power; then the paper's Table 2.

    The CSV has a row per decoding and method, with accuracy as a fraction. ``change_*`` are differences from CDPR, and
    ``paper_*`` what the paper prints. Raises as :class:`Results` does.
    """
    results = Results(settings, folder, methods.list_methods(settings, "ablations"))
    base, *ablations = results.methods
    printed = {row["variant"]: row for row in paper.printed_rows("ablation.csv", *paper.METRICS)}
    sheet = Sheet(settings, "ablations", base=base.label, remarks=results.notes(), shared=_shared_job_notes(results))
    _add_results(sheet, results, [(method, base) for method in ablations])
    for row in sheet.rows:
        variant = row["variant"]
        row |= {"method": row["label"], "job": job_of(settings, variant)}
        if variant in printed:
            row |= paper.paper_cells(printed[variant], paper.METRICS)
    labels = labels_of(settings, "ablations")
    sheet.add("paper", [row | {"ours": labels.get(variant)} for variant, row in printed.items()])
    return sheet


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


# Table 3: dynamic against static diagnosis

# Columns of the paper's table; and the names in it of our two methods.
_PRINTED = ("acc", "aec", "aec_reduction_percent")
_METHOD_IN_PAPER = {"static": "Static diagnosis", OURS: "CDPR"}


def sheet_dynamic_vs_static(settings: Settings, folder: Path) -> Sheet:
    """Return the tables of the comparison from the results in ``folder``. For each decoding: the results of both
    methods with the reduction of cost, and their differences; then the paper's Table 3.

    The CSV has a row per decoding and method, with accuracy and reduction as fractions. ``change_*`` are CDPR minus
    static diagnosis, and ``paper_*`` what the paper prints. Raises as :class:`Results` does.
    """
    results = Results(settings, folder, methods.list_methods(settings, "dynamic_vs_static"))
    static, dynamic = results.methods
    printed = {row["method"]: row for row in paper.printed_rows("dynamic_vs_static.csv", *_PRINTED)}
    pair = f"{dynamic.label} against {static.label}"
    sheet = Sheet(settings, "dynamic_vs_static", pair=pair, remarks=results.notes())
    _add_results(sheet, results, [(dynamic, static)], (ACCURACY, AEC, UTILITY),
                 lambda method, decoding: cost_reduction(results, decoding) if method is dynamic else {})  # fmt: skip
    for row in sheet.rows:
        row |= paper.paper_cells(printed[_METHOD_IN_PAPER[row["method"]]], _PRINTED)
    rows_of_paper = [printed[_METHOD_IN_PAPER[method.name]] | {"ours": method.label} for method in results.methods]
    sheet.add("paper", rows_of_paper)
    return sheet


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


# Ways to assign credit


def sheet_comparators(settings: Settings, folder: Path) -> Sheet:
    """Return two tables per decoding from the results in ``folder``: results with the tokens generated in training, and
    differences from CDPR.

    The CSV has a row per decoding and method. In it results are in printed units (accuracy in %), but differences from
    CDPR, ``change_*``, are not (accuracy as a fraction). Raises as :class:`Results`, and TableError for a broken file
    of training metrics.
    """
    results = Results(settings, folder, methods.list_methods(settings, "comparators"))
    ours = results.method(OURS)
    sheet = Sheet(settings, "comparators", remarks=results.notes(), base=ours.label)
    pairs = [(method, ours) for method in results.methods if method.learned and method is not ours]
    _add_results(sheet, results, pairs, further=lambda method, _: _training_tokens(results, method))
    for row in sheet.rows:
        row |= _printed_units(row) | {"method": row["label"]}
    return sheet


def _training_tokens(results: Results, method: Method) -> Row:
    """Return the column ``tokens``: millions of tokens generated in training, a mean over seeds. Those of a run that
    diverged are counted up to its last validation. Empty for a method that is not trained, and without training
    metrics. Raises TableError for a broken file of training metrics."""
    curves = read_curves(results.folder, method, ["accuracy"])  # they have the tokens at every validation
    if method.group != TRAINED or not curves.runs:
        return {}
    tokens_by_seed = np.nanmax(curves.values["tokens"], axis=1)  # they are counted up: the last value is the largest
    return {"tokens": float(tokens_by_seed.mean()) / 1e6}


def _printed_units(row: Row) -> Row:
    """Return the metrics of a row, with their intervals and deviations between seeds, in the units that tables print:
    accuracy in %. Values that the row lacks are left out."""
    factors = {f"{metric.name}{end}": metric.factor
               for metric in IN_DOMAIN_METRICS for end in ("", "_low", "_high", "_seed_sd")}  # fmt: skip
    return {column: factor * row[column] for column, factor in factors.items() if row.get(column) is not None}


# What the gain of a training rule is made of

# The learning rates of every rule are compared by a utility in which a right diagnosis has this weight.
GRID_WEIGHT = 3.0


def sheet_frontier_parts(settings: Settings, folder: Path) -> Sheet:
    """Return, from the results in ``folder``, a table per decoding of in-domain results beside the accuracy that exact
    diagnoses from the same examinations would have, and the table of learning rates. Raises as :class:`Results`, and
    TableError for a broken file of training metrics."""
    # In-domain alone, without a label, since these tables do not name the data set.
    results = Results(settings, folder, methods.list_methods(settings, "frontier_parts"), {IN_DOMAIN: ""})
    sheet = Sheet(settings, "frontier_parts", remarks=results.notes())
    _add_results(sheet, results, further=lambda method, decoding: (
        _training_tokens(results, method) | _exact_columns(results, method, decoding)))  # fmt: skip
    _add_grid(sheet, settings, folder)
    return sheet


def _exact_columns(results: Results, method: Method, decoding: str) -> Row:
    """Return two columns about the diagnoses that a method made from the examination results that it had gathered:

    - ``exact``: the accuracy (%) of the likeliest diagnosis from the same results, by Bayes' rule under the model that
      generated the cases;
    - ``reading``: what the method could gain by better reading of these results, ``exact`` minus its own accuracy.

    Empty where a run is missing, or where the cases are real, so that no model is known that generated them.
    """
    try:
        episodes = results.rows(method, IN_DOMAIN, decoding)
    except NotMeasured:
        return {}
    if not methods.is_synthetic(results.settings, IN_DOMAIN):
        return {}
    cases = results.folder / "cases" / f"{IN_DOMAIN}.jsonl"
    exact = exact_accuracy(results.settings, IN_DOMAIN, cases, episodes)  # all runs have the same number of cases
    return {"exact": 100 * exact, "reading": 100 * (exact - episodes.correct.mean())}


def _add_grid(sheet: Sheet, settings: Settings, folder: Path) -> None:
    """Add the table of validation results by learning rate: a row per training rule and learning rate, a column per
    validated step. A value is 100 U / w, the utility in which a right diagnosis has the weight w
    (:data:`GRID_WEIGHT`), divided by w: the accuracy in % less what examinations cost. The best value of each rule is
    marked."""
    all_rows: list[Row] = []
    values_by_rule: dict[str, list[float]] = {}
    all_steps: dict[str, None] = {}  # each once, in order
    for method in methods.list_methods(settings, "frontier_grid"):
        curves = read_curves(folder, method, ("accuracy", "utility"))
        accuracy, utility, steps = (curves.mean(name) for name in ("accuracy", "utility", "step"))
        costs = accuracy - utility  # the weight of a right diagnosis in the logged utility is 1
        values = 100 * (accuracy - costs / GRID_WEIGHT)
        # Step 0 is left out: it is before training, and the same for all.
        value_by_step = {f"{step:g}": float(value) for step, value in zip(steps, values, strict=True) if step}
        rate = resolve_variant(settings, method.name).training.learning_rate
        all_rows.append({"label": method.label, "rate": f"{rate:g}", "seeds": len(method.runs), **value_by_step})
        values_by_rule.setdefault(method.label, []).extend(value_by_step.values())
        all_steps |= dict.fromkeys(value_by_step)
    all_rows.sort(key=lambda row: list(values_by_rule).index(row["label"]))
    for row in all_rows:
        best = max(values_by_rule[row["label"]], default=math.inf)
        row |= {f"{step}_mark": "best" for step in all_steps if row.get(step) == best}
    columns = [Column(step, step, "100 U / w after so many iterations") for step in all_steps]
    validation_cases = settings.data.validation_cases
    sheet.add("grid", all_rows, columns=columns, weight=GRID_WEIGHT, validation_cases=validation_cases)
