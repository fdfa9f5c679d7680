"""Table 1: every agent on every benchmark as measured here, with the effort of each agent, which explains rows that
accuracy and cost alone do not. The paper's numbers are in a table of their own. The table of open cases, which are in
none of the paper's benchmarks, has the same layout."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..environment.utility import utility_formula
from ..evaluation.metrics import METRICS, Metric
from ..settings import Prices, Settings, SettingsError, model_of
from . import methods, paper
from .methods import AVERAGE, AVERAGED, DATASETS, Method, domain, main_methods, notices
from .results import NotMeasured, Results, describe_changes, evaluations_of
from .table import EMPTY, Column, Row, Sheet, add_prefix, declared_columns

# Metrics: those that the main table shows for every data set, and those whose differences between methods are shown.
SHOWN = tuple(metric for metric in METRICS.values() if metric.main)
COMPARED = tuple(metric for metric in METRICS.values() if metric.compared)
# Our method and its main rivals, which are compared in tables of their own.
PAIRS = (("cdpr", "grpo"), ("cdpr", "utility_grpo"))


def sheet_main_table(settings: Settings, folder: Path) -> Sheet:
    """Return the tables of the main results in ``folder``. For each decoding: all methods in the paper's layout, and
    our method against its main rivals; then for each decoding counts and intervals; then the paper's table. The CSV has
    the rows of :func:`long_rows`. Raises as :class:`Results` does."""
    results = Results(settings, folder, main_methods(settings))
    methods = {method.name: method for method in results.methods}
    sheet = Sheet(settings, "main_table")
    for decoding in results.decodings:
        add_levels(sheet, results, decoding)
        for first, second in PAIRS:
            if first in methods and second in methods:
                _add_pair(sheet, results, methods[first], methods[second], decoding)
    for decoding in results.decodings:
        _add_intervals(sheet, results, decoding)
    _add_paper(sheet, results.methods)
    sheet.rows += long_rows(results)
    return sheet


def column_groups(datasets: Mapping[str, str]) -> dict[str, str]:
    """Return the headers above groups of columns by data set, of which ``datasets`` has the labels: ``{"mimic_iv":
    "MIMIC-IV (in-domain)", ...}``, and last the group ``average``. Open cases, which lack the data sets of the paper's
    average, have no average and no domains."""
    if not set(AVERAGED) <= set(datasets):
        return dict(datasets)
    return {name: f"{label} ({domain(name)})" for name, label in datasets.items()} | {AVERAGE: "Average"}


def add_levels(sheet: Sheet, results: Results, decoding: str) -> None:
    """Add the table of all methods in the paper's layout: accuracy, examinations and cost per data set and on average;
    utility on average alone. Methods that cannot be run here are shown with the main decoding only."""
    is_main = decoding == results.decodings[0]
    rows = [_main_row(results, method, decoding) for method in results.methods if method.runs or is_main]
    words = legend_words(results) | {
        "missing": [f"{row['label']}, missing: {files}" for row in rows for files in row["missing"]],
        "main": " (main)" if is_main else "", "remarks": results.notes(),
        "measured": "; ".join(f"{metric.short}: {metric.about}" for metric in SHOWN),
        "utility": utility_formula(results.settings.utility), "notices": notices(results.settings),
    }  # fmt: skip
    # The average also has the metrics that are only compared, such as utility.
    columns = _wide_columns(results.datasets, SHOWN, list(dict.fromkeys([*SHOWN, *COMPARED])))
    sheet.add("levels", rows, decoding, columns, **words)


def _wide_columns(datasets: Mapping[str, str], metrics: Sequence[Metric], of_average: Sequence[Metric]) -> list[Column]:
    """Return the columns of the paper's layout, whose keys are data set and metric: ``mimic_iv.aec``. Each of the
    ``datasets`` has the ``metrics``, and the average has the metrics ``of_average``."""
    return [Column(f"{dataset}.{metric.name}", metric.short or metric.header, group, marked=2, factor=metric.factor,
                   higher_is_better=metric.higher_is_better)
            for dataset, group in column_groups(datasets).items()
            for metric in (of_average if dataset == AVERAGE else metrics)]  # fmt: skip


def _main_row(results: Results, method: Method, decoding: str) -> Row:
    """Return the results of a method on all data sets as one row, with keys such as ``mimic_iv.aec``. ``missing`` has a
    text for each data set of which files are missing. A method that is run on none of the data sets has the ``reason``,
    unless files are missing."""
    summaries = {dataset: results.summary(method, dataset, decoding) for dataset in column_groups(results.datasets)}
    row: Row = {"label": method.label, "group": method.group, "learned": method.learned,
                "seeds": len(method.runs) if method.learned else None}  # fmt: skip
    for dataset, summary in summaries.items():
        row |= add_prefix(f"{dataset}.", summary)
        if "reason" in summary:
            row |= {f"{dataset}.{metric}_text": "missing" if summary["missing"] else EMPTY for metric in METRICS}
    # The average, whose data sets are among these, is left out.
    not_measured = [summaries[dataset] for dataset in results.datasets if "reason" in summaries[dataset]]
    row["missing"] = [summary["missing"] for summary in not_measured if summary["missing"]]
    if len(not_measured) == len(results.datasets) and not row["missing"]:
        row["reason"] = not_measured[0]["reason"]
    return row


def _add_pair(sheet: Sheet, results: Results, first: Method, second: Method, decoding: str) -> None:
    """Add the table of differences between two methods, first minus second: a row per data set. Holm's correction is
    over the McNemar tests of this table (data sets and seeds)."""
    pairs = [(first, second, dataset) for dataset in results.datasets]
    changes = results.compare_pairs(pairs, decoding)
    sheet.add(
        "paired", changes, decoding, pair=f"{first.label} against {second.label}", names=f"{first.name}_{second.name}",
        findings=describe_changes(changes, COMPARED), judging=results.judging_notes(),
    )  # fmt: skip


def _add_intervals(sheet: Sheet, results: Results, decoding: str) -> None:
    """Add the table of what is behind each result: counts, 95% intervals over seeds and cases, and deviation between
    seeds; a row per method and data set."""
    rows = []
    for method in results.methods:
        for dataset, dataset_label in results.datasets.items() if method.runs else ():
            row = results.summary(method, dataset, decoding)
            if "reason" in row:  # it covers the column of data sets
                row |= {"label": f"{method.label}, {dataset_label}"}
            rows.append(row)
    resamples = results.settings.evaluation.bootstrap
    sheet.add("intervals", rows, decoding, judging=results.judging_notes(), resamples=resamples)


def long_rows(results: Results) -> list[Row]:
    """Return the rows of the CSV: one per decoding, method, and data set or average. Methods that are not ``learned``
    (not run, or reference policies, which are deterministic) have rows of the main decoding alone. ``paper_*`` is what
    the paper prints."""
    # The paper's Table 1, by its method and data set.
    printed = {(row["method"], row["dataset"]): paper.paper_cells(row, paper.METRICS)
               for row in paper.printed_rows("main_results.csv", *paper.METRICS)}  # fmt: skip
    rows = []
    for decoding in results.decodings:
        is_main = decoding == results.decodings[0]
        for method in (method for method in results.methods if is_main or method.learned):
            for dataset in column_groups(results.datasets):
                row = results.summary(method, dataset, decoding) | {"paper_method": method.paper or None}
                rows.append(row | printed.get((method.paper, dataset), {}))
    return rows


def _add_paper(sheet: Sheet, methods: Sequence[Method]) -> None:
    """Add the table of the paper's results: a row per method of the paper. Its last column names our counterpart, if
    that is run here."""
    ours = {method.paper: method.label for method in methods if method.paper and method.runs}
    rows: dict[str, Row] = {}
    for printed in paper.printed_rows("main_results.csv"):  # a row per method and data set
        name = printed["method"]
        row = rows.setdefault(name, {"method": name, "group": printed["group"], "ours": ours.get(name)})
        # The paper's numbers are shown as it prints them.
        row |= {f"{printed['dataset']}.{metric}_text": printed[figure] or EMPTY
                for figure, metric in paper.METRICS.items()}  # fmt: skip
    metrics = [METRICS[name] for name in paper.METRICS.values()]
    columns = _wide_columns({name: DATASETS[name] for name in AVERAGED}, metrics, metrics)
    sheet.add("paper", list(rows.values()), columns=[*columns, *declared_columns(["ours"])])


def legend_words(results: Results) -> dict[str, Any]:
    """Return the words of the main table's notes: whether there are rows that know the hospital or pay for the whole
    record, which servers answered as another model (a sentence each), the language model that judges, and the data sets
    that are not in the average."""
    settings = results.settings
    answered = [(method.label, results.answering_models(method)) for method in results.methods]
    return {
        "knows_hospital": any(method.knows_hospital for method in results.methods),
        # Static diagnosis and the agent with all examinations, if both are run.
        "pay_for_record": {"static", "all_tests"} <= {method.name for method in results.methods if method.runs},
        "answered": [f"{label}: the server answered as {', '.join(names)}, not as the requested model."
                     for label, names in answered if names],
        "judge": methods.judge_labels(settings)[0] if settings.judge.model else "",  # the judge whose verdicts count
        "not_averaged": ", ".join(label for name, label in results.datasets.items() if name not in AVERAGED),
    }  # fmt: skip


# How each agent used language models


def sheet_effort(settings: Settings, folder: Path) -> Sheet:
    """Return a table per decoding of each agent's calls, tokens and dollars per case, from the results in ``folder``.
    Raises as :class:`Results` does."""
    results = Results(settings, folder, main_methods(settings))
    sheet = Sheet(settings, "effort")
    for decoding in results.decodings:
        _add_effort(sheet, results, decoding)
        sheet.rows += sheet.tables[-1].rows
    return sheet


def _add_effort(sheet: Sheet, results: Results, decoding: str) -> None:
    """Add the table of calls, tokens and dollars per case: a row per agent and data set, and a row with the reason for
    an agent that is not run."""
    rows, price_notes = [], []
    for method in results.methods:
        for dataset in results.datasets if method.runs else [""]:  # without runs, a single row with the reason
            rows.append(_effort_row(results, method, dataset, decoding))
        if method.runs and (prices := _prices(results.settings, method)):
            price_notes.append(f"{method.label}: {prices.input:g} USD a million tokens asked, {prices.output:g} "
                               f"answered ({prices.source}, {prices.date}).")  # fmt: skip
    sheet.add("effort", rows, decoding, prices=price_notes)


def _effort_row(results: Results, method: Method, dataset: str, decoding: str) -> Row:
    """Return calls, tokens, dollars and failed replies of an agent as a row: means of the fields of
    :class:`~cdpr.evaluation.row.EvaluationRow` over the cases and seeds of a data set. ``invalid`` is the mean of
    ``n_invalid``, and ``forced`` is in %. ``usd`` is computed from the tokens; ``usd_in_all`` is its sum over cases and
    seeds. A mean is left out where a case lacks the value, such as tokens that a server did not report. Where a run is
    missing, the row has the ``reason``."""
    row: Row = {"tier": results.settings.tier, "decoding": decoding, "group": method.group, "method": method.name,
                "label": method.label, "dataset": dataset,
                "dataset_text": results.datasets.get(dataset)}  # fmt: skip
    try:
        rows = results.rows(method, dataset, decoding).rename(columns={"n_invalid": "invalid"})
    except NotMeasured as error:
        return row | {"status": error.reason, "reason": error.reason}
    # A value that a case lacks is NaN, and so is the mean.
    means = rows.select_dtypes(["number", "bool"]).mean(skipna=False).to_dict()
    means["forced"] *= 100
    if prices := _prices(results.settings, method):
        means["usd"] = prices.usd(means.get("prompt_tokens", math.nan), means.get("completion_tokens", math.nan))
        means["usd_in_all"] = means["usd"] * len(rows)
    row |= {"status": "measured", "cases": len(rows), "runs": evaluations_of(method, dataset)}
    return row | {name: mean for name, mean in means.items() if not math.isnan(mean)}


def _prices(settings: Settings, method: Method) -> Prices | None:
    """Return the token prices of the model that an agent uses; None where no provider charges for it."""
    agent = settings.agents.get(method.name)
    model = model_of(settings, agent) if agent else None
    return model.prices if model else None


# Open cases


def sheet_open_cases(settings: Settings, folder: Path) -> Sheet:
    """Return three tables for each decoding from the results in ``folder``: the agents' results in the layout of the
    main table; the numbers of cases and seeds behind them, with intervals; and the calls, tokens and dollars of
    language models per case. Open cases are cases outside the benchmarks: public ones, or the user's own in FHIR.

    Raises SettingsError where the settings name no open cases or no agent can be run on them, and as :class:`Results`
    does.
    """
    datasets = methods.open_datasets(settings)
    if not datasets:
        raise SettingsError("there are no open cases: set data.agentclinic.path to agentclinic_medqa.jsonl "
                            "(docs/how-to/real-data.md names the other files)")  # fmt: skip
    shown = methods.open_methods(settings)
    runs = [run for method in shown for run in method.runs]
    if all(methods.why_unfit(settings, run, dataset) for run in runs for dataset in datasets):
        raise SettingsError(
            "no model can diagnose the open cases yet: `make local-llm` downloads one, then add "
            "`--configfile config/local_llm.yaml`; `cdpr systems` says what each row needs"
        )
    results = Results(settings, folder, shown, datasets)
    most = settings.evaluation.open_cases.cases
    # The caption's words on the origin of the cases, in place of those of the benchmarks.
    how_many = "all cases" if most is None else f"up to {most} cases"
    mark = f"tier: {settings.tier} — {how_many} of each data set"
    sheet = Sheet(settings, "open_cases", mark=mark)
    for add_table, decoding in itertools.product((add_levels, _add_intervals, _add_effort), results.decodings):
        add_table(sheet, results, decoding)
    sheet.rows += long_rows(results)
    return sheet
