"""The expert study, in which raters score the decisions of several methods: as tables in the paper's layout, with the
paper's numbers, and as the radar of its figure."""

import itertools
import math
from pathlib import Path
from textwrap import fill

import numpy as np

from ..job import Job
from ..settings import Settings, TrainedRun
from ..study.analysis import Analysis, Interval
from ..study.ratings import PHYSICIAN, SIMULATED
from ..study.records import rubric
from . import style
from .methods import DATASETS, Method, agent_method, variant_method
from .paper import printed_rows
from .table import Column, Row, Sheet

# The methods whose scores the paper prints, in the words of `workflow/paper/expert_study.csv`.
_PRINTED = ("CDPR", "next best", "GPT-5.4", "Med-Gemma-27B")


def describe_raters(analysis: Analysis) -> str:
    """Describe the raters: ``3 physicians``, or ``no ratings yet``. Simulated raters are not called physicians, nor are
    those who rated synthetic cases in a trial."""
    if not analysis.kind:
        return "no ratings yet"
    people = "raters of synthetic cases (a trial)" if analysis.synthetic else "physicians"
    names = {SIMULATED: "simulated raters (no physician has rated)", PHYSICIAN: people}
    return f"{len(analysis.raters)} {names[analysis.kind]}"


def _method_of(settings: Settings, run: str) -> Method:
    """Return the method that a run belongs to: the variant ``cdpr`` for ``cdpr-seed0``; any other run has the name of
    its agent."""
    trained = TrainedRun.parse(run)
    return variant_method(settings, trained.variant) if trained else agent_method(settings, run)


def _columns(name: str, estimate: Interval) -> Row:
    """Return value, low end and high end of an interval as columns of a row."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _titles(analysis: Analysis) -> dict[str, str]:
    """Return the titles of the dimensions (the questions of the rating form) by name. A star marks those on which our
    method scores higher than the best baseline, by a significant test after Holm's correction over the dimensions."""
    titles = {}
    for dimension in rubric():
        test = analysis.against_next_best(dimension.name) if analysis.scores else None
        is_better = test and test["difference"] > 0 and test["holm"] < analysis.level
        titles[dimension.name] = f"{dimension.title} *" if is_better else dimension.title
    return titles


# Figure


def plot_expert_study(settings: Settings, job: Job) -> None:
    """Plot a radar of the mean scores, a line per method and an angle per dimension, with a star where our method is
    significantly above the best baseline; beside it every mean with its interval, which a radar cannot show. Without
    ratings, the figure says so."""
    analysis = Analysis.read(job.inputs["study"])
    raters, titles = describe_raters(analysis), _titles(analysis)
    with style.drawing(7.2, 3.9, job.out) as figure:
        if not analysis.scores:
            style.write_in_empty_panel(figure.subplots(), "no ratings yet: the forms are in results/study/forms")
            style.write_notes(figure, settings, [raters])
            return
        radar, points = figure.add_subplot(1, 2, 1, projection="polar"), figure.add_subplot(1, 2, 2)
        angles = 2 * np.pi * np.arange(len(titles) + 1) / len(titles)  # the last is the first, which closes the line
        for position, run in enumerate(analysis.runs):
            method = _method_of(settings, run)
            look = style.look_of(settings, method.name, position)
            # The runs of a dimension are below each other, 0.13 of the distance between dimensions apart.
            shift = 0.13 * (position - (len(analysis.runs) - 1) / 2)
            rows = [_columns("score", analysis.scores[name][run]) | {"height": height + shift}
                    for height, name in enumerate(titles)]  # fmt: skip
            means = [math.nan if row["score"] is None else row["score"] for row in (*rows, rows[0])]
            radar.plot(angles, means, color=look.colour, marker=look.marker, linestyle=look.line, markersize=3.5,
                       linewidth=1.3, label=method.label)  # fmt: skip
            style.draw_points(points, rows, "score", "height", look, markersize=3.5)
        radar.set_theta_offset(np.pi / 2)  # angle 0 at the top
        radar.set_xticks(angles[:-1], [fill(title, 13) for title in titles.values()], fontsize=7)
        radar.tick_params(axis="x", pad=20)
        radar.set_ylim(1, 5)
        radar.set_yticks([2, 3, 4, 5], ["2", "3", "4", "5"], fontsize=6)
        points.set_yticks(range(len(titles)), titles.values(), fontsize=7)
        points.invert_yaxis()
        points.set_title(raters + ("\nsynthetic cases" if analysis.synthetic else ""), fontsize=7)
        points.set_xlabel("mean score [95% interval over cases]", fontsize=7.5)
        style.draw_legend_above(figure, radar, 3, borderpad=1.2)
        figure.get_layout_engine().set(w_pad=0.1)
        style.write_notes(figure, settings, [
            f"{raters}; {analysis.states} states of {analysis.cases} cases, "
            f"sampled from {_method_of(settings, analysis.source).label}",
            f"*: {_method_of(settings, analysis.ours).label} above the next-best baseline, signed-rank test (Pratt), "
            f"Holm over the dimensions, p < {analysis.level:g}",
            "scores run from 1 (centre of the radar) to 5",
        ])  # fmt: skip


# Tables


def sheet_expert_study(settings: Settings, folder: Path) -> Sheet:
    """Return the tables of the expert study from the results in ``folder``: mean scores, significance tests of our
    method against the others if any were made, and the agreement of raters if it was computed. The sheet's CSV file has
    the mean scores. Raises as :meth:`Analysis.read`."""
    analysis = Analysis.read(folder / "study" / "analysis.json")
    sheet = Sheet(settings, "expert_study", raters=describe_raters(analysis))
    _add_scores(sheet, settings, analysis)
    if analysis.comparisons:
        _add_tests(sheet, settings, analysis)
    if analysis.alpha:
        agreement = [{"dimension": dimension.title, **_columns("alpha", analysis.alpha[dimension.name])}
                     for dimension in rubric()]  # fmt: skip
        sheet.add("agreement", agreement)
    sheet.rows += _csv_rows(settings, analysis)
    return sheet


def _add_scores(sheet: Sheet, settings: Settings, analysis: Analysis) -> None:
    """Add the table of mean scores: our scores with intervals, and below them those that the paper prints. The row of a
    method without ratings has the reason."""
    # The headings of our rows and of the paper's.
    here = f"Here: {sheet.words['raters']}, {analysis.states} states"
    theirs = "The paper: three physicians, 300 states of its own (as far as it prints figures)"
    rows: list[Row] = []
    for run in analysis.runs:
        # Only rows that are ``learned`` take part in the marks of the best scores.
        rows.append({"label": _method_of(settings, run).label, "heading": here, "learned": True,
                     "reason": "" if analysis.scores else "no ratings yet"})  # fmt: skip
        for name, scores in analysis.scores.items():
            rows[-1] |= _columns(name, scores[run])
    rows += [{"label": name, "heading": here, "reason": why} for name, why in analysis.left_out.items()]
    printed = printed_rows("expert_study.csv", "score")  # a row per method and dimension
    for method in _PRINTED:
        texts = {row["dimension"]: f"{row['score']:.1f}" for row in printed if row["method"] == method}
        rows.append({"label": f"{method} (paper)", "heading": theirs} | texts)
    columns = [Column(name, title, interval=True, marked=2, higher_is_better=True)
               for name, title in _titles(analysis).items()]  # fmt: skip
    sheet.add(
        "scores", rows, columns=columns, states=analysis.states, cases=analysis.cases,
        source=_method_of(settings, analysis.source).label,
        among="one of them" if analysis.source in analysis.runs else "none of them",
        simulated=analysis.kind == SIMULATED, level=analysis.level, missing=analysis.missing,
    )  # fmt: skip


def _add_tests(sheet: Sheet, settings: Settings, analysis: Analysis) -> None:
    """Add the table of the tests of our method against every baseline, a row per test."""
    titles = {dimension.name: dimension.title for dimension in rubric()}
    rows = []
    for test in analysis.comparisons:
        outcome = "better" if test["difference"] > 0 else "worse"
        mark = outcome if test["holm"] < analysis.level else ""
        rows.append(test | {
            "than": _method_of(settings, test["than"]).label, "dimension": titles[test["dimension"]],
            "difference_low": test["low"], "difference_high": test["high"], "difference_mark": mark})  # fmt: skip
    sheet.add("tests", rows, ours=_method_of(settings, analysis.ours).label, target=analysis.target)


def _csv_rows(settings: Settings, analysis: Analysis) -> list[Row]:
    """Return the rows of the CSV: for each dimension and run one row over all data sets, then one per data set. The
    first has the agreement of raters on the dimension. For our run it also has the p-value of the test against the best
    baseline (``holm_against_next_best``)."""
    rows: list[Row] = []
    for dimension, run in itertools.product(analysis.scores, analysis.runs):
        score, test = analysis.scores[dimension][run], analysis.against_next_best(dimension)
        method = _method_of(settings, run).label
        common = {"raters": analysis.kind, "dimension": dimension, "run": run, "method": method}
        rows.append(common | {
            "dataset": "all", "mean": score.value, "low": score.low, "high": score.high,
            "alpha": analysis.alpha[dimension].value,
            "holm_against_next_best": test["holm"] if test and run == analysis.ours else None})  # fmt: skip
        rows += [common | {"dataset": dataset, "mean": means[dimension][run]}
                 for dataset, means in analysis.datasets.items() if dataset in DATASETS]  # fmt: skip
    return rows
