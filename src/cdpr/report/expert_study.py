"""The expert study, in which raters score the decisions of several methods: as tables in the paper's layout, with the
paper's numbers, and as the radar of its figure."""

import itertools
import math
import re
from pathlib import Path

import numpy as np

from ..job import Job
from ..settings import Settings, TrainedRun
from ..study.analysis import Analysis, Comparison, Interval
from ..study.ratings import PHYSICIAN, SIMULATED
from ..study.rubric import rubric
from . import layout, style
from .methods import DATASETS, Method, agent_method, tier_mark, variant_method
from .paper import printed_rows
from .table import EMPTY, Column, Row, Sheet, Table, interval

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


def _compare_with_next_best(analysis: Analysis, dimension: str) -> Comparison | None:
    """Return the test of our method against the best baseline, the one with the highest mean score on a dimension (a
    question of the rating form). None where there is no baseline, or no state has scores of both."""
    return analysis.comparison(dimension, analysis.next_best(dimension)) if len(analysis.runs) > 1 else None


def _starred(analysis: Analysis) -> set[str]:
    """Return the dimensions that get a star: our method scores higher than the best baseline there, by a significant
    test after Holm's correction over the dimensions."""
    tests = {dimension: _compare_with_next_best(analysis, dimension) for dimension in analysis.scores}
    return {name for name, test in tests.items() if test and test.difference > 0 and test.holm < analysis.level}


def _ends(estimate: Interval) -> tuple[float, float, float]:
    """Return value, low end and high end of an interval. An undefined value is NaN. Where the interval has no ends,
    both are the value, so that it is drawn without a bar."""
    value = math.nan if estimate.value is None else estimate.value
    low, high = (value if end is None else end for end in (estimate.low, estimate.high))
    return value, low, high


# Figure


def plot_expert_study(settings: Settings, job: Job) -> None:
    """Plot a radar of the mean scores, a line per method and an angle per dimension, with a star where our method is
    significantly above the best baseline; beside it every mean with its interval, which a radar cannot show. Without
    ratings, the figure says so."""
    analysis = Analysis.read(job.inputs["study"])
    raters = describe_raters(analysis)
    with style.drawing(7.2, 3.9, job.out) as figure:
        if not analysis.scores:
            style.write_in_empty_panel(figure.subplots(), "no ratings yet: the forms are in results/study/forms")
            style.write_notes(figure, settings, [raters])
            return
        radar, points = figure.add_subplot(1, 2, 1, projection="polar"), figure.add_subplot(1, 2, 2)
        # For each dimension its height among the points, and its angle in the radar (in radians).
        rows = np.arange(len(rubric()))
        angles = 2 * math.pi * rows / len(rubric())
        for position, run in enumerate(analysis.runs):
            method = _method_of(settings, run)
            look = style.look_of(settings, method.name, position)
            mean, low, high = np.array([_ends(analysis.scores[dimension.name][run]) for dimension in rubric()]).T
            # The first point is repeated at the end, which closes the line.
            radar.plot([*angles, angles[0]], [*mean, mean[0]], color=look.colour, marker=look.marker,
                       linestyle=look.line, markersize=3.5, linewidth=1.3, label=method.label)  # fmt: skip
            # The runs of a dimension are below each other, 0.13 of the distance between dimensions apart.
            heights = rows + 0.13 * (position - (len(analysis.runs) - 1) / 2)
            points.errorbar(mean, heights, xerr=[mean - low, high - mean], color=look.colour, marker=look.marker,
                            linestyle="none", markersize=3.5, linewidth=1)  # fmt: skip
        starred = _starred(analysis)
        titles = [f"{d.title} *" if d.name in starred else d.title for d in rubric()]
        _label_radar(radar, angles, titles)
        points.set_yticks(rows, titles, fontsize=7)
        points.invert_yaxis()
        points.set_title(raters + ("\nsynthetic cases" if analysis.synthetic else ""), fontsize=7)
        points.set_xlabel("mean score [95% interval over cases]", fontsize=7.5)
        style.draw_legend_above(figure, radar, 3, borderpad=1.2)
        figure.get_layout_engine().set(w_pad=0.1)
        style.write_notes(figure, settings, [
            f"{raters}; {analysis.states} states of {analysis.cases} cases, "
            f"sampled from {_method_of(settings, analysis.source).label}",
            f"*: {_method_of(settings, analysis.ours).label} above the next-best baseline, signed-rank test (Pratt), "
            f"Holm over the dimensions, p < {analysis.level:g}" if starred else "",
            "scores run from 1 (centre of the radar) to 5",
        ])  # fmt: skip


def _label_radar(radar: style.Axes, angles: np.ndarray, titles: list[str]) -> None:
    """Write titles on two lines at the angles (in radians) of a polar panel, outside its circle, and set its scale from
    1 to 5."""
    # The line break is at the first hyphen, which remains, or space, which does not.
    two_lines = [re.sub("[- ]", lambda gap: gap[0].strip() + "\n", title, count=1) for title in titles]
    radar.set_xticks(angles, two_lines, fontsize=7)
    radar.tick_params(axis="x", pad=3)
    for text, angle in zip(radar.get_xticklabels(), angles, strict=True):
        # Where the title is from the centre: -1 (left, below), 0 or 1 (right, above). Angle 0 is at the top, and angles
        # grow to the left. The side of the title that faces the circle is aligned with its tick.
        to_right, upwards = round(-math.sin(angle)), round(math.cos(angle))
        text.set(ha={-1: "right", 0: "center", 1: "left"}[to_right], va={-1: "top", 0: "center", 1: "bottom"}[upwards])
    radar.set_theta_offset(math.pi / 2)  # angle 0 at the top
    radar.set_ylim(1, 5)
    radar.set_yticks([2, 3, 4, 5], ["2", "3", "4", "5"], fontsize=6)


# Tables


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return the tables of the expert study from the results in ``folder``: mean scores, significance tests of our
    method against the others if any were made, and the agreement of raters if it was computed. The sheet's CSV file has
    the mean scores. Raises as :meth:`Analysis.read`."""
    analysis = Analysis.read(folder / "study" / "analysis.json")
    raters = describe_raters(analysis)
    parts = [_scores_table(settings, analysis, raters)]
    parts += [_tests_table(settings, analysis, raters)] if analysis.comparisons else []
    parts += [_agreement_table(settings, analysis, raters)] if analysis.alpha else []
    title = f"Expert study: {raters} ({tier_mark(settings)})"
    return layout.declared_sheet(settings, "expert_study", parts, _csv_rows(settings, analysis), title)


def _scores_table(settings: Settings, analysis: Analysis, raters: str) -> tuple[str, Table]:
    """Return the table of mean scores with its heading: our scores with intervals, and below them those that the paper
    prints. The row of a method without ratings has the reason."""
    # The headings of our rows and of the paper's.
    here = f"Here: {raters}, {analysis.states} states"
    theirs = "The paper: three physicians, 300 states of its own (as far as it prints figures)"
    starred = _starred(analysis)
    rows: list[Row] = []
    for run in analysis.runs:
        reason = "" if analysis.scores else "no ratings yet"
        # Only rows that are ``learned`` take part in the marks of the best scores.
        row: Row = {"label": _method_of(settings, run).label, "heading": here, "learned": True, "reason": reason}
        for name, scores in analysis.scores.items():
            score = scores[run]
            star = "*" if run == analysis.ours and name in starred else ""
            row[name] = score.value
            row[f"{name}_text"] = EMPTY if score.value is None else interval(*_ends(score)) + star
        rows.append(row)
    rows += [{"label": name, "heading": here, "reason": why} for name, why in analysis.left_out.items()]
    printed = printed_rows("expert_study.csv", "score")  # a row per method and dimension
    for method in _PRINTED:
        figures = {row["dimension"]: row["score"] for row in printed if row["method"] == method}
        texts = {f"{name}_text": f"{figure:.1f}" for name, figure in figures.items()}
        rows.append({"label": f"{method} (paper)", "heading": theirs} | figures | texts)
    columns = [Column(dimension.name, dimension.title, marked=2, higher_is_better=True) for dimension in rubric()]
    return layout.table(
        settings, "expert_study.scores", rows, columns=columns, raters=raters, states=analysis.states,
        cases=analysis.cases, source=_method_of(settings, analysis.source).label,
        among="one of them" if analysis.source in analysis.runs else "none of them",
        simulated=analysis.kind == SIMULATED, starred=starred, level=analysis.level, missing=analysis.missing,
    )  # fmt: skip


def _tests_table(settings: Settings, analysis: Analysis, raters: str) -> tuple[str, Table]:
    """Return the table of the tests of our method against every baseline, a row per test, with its heading."""
    titles = {dimension.name: dimension.title for dimension in rubric()}
    rows = []
    for test in analysis.comparisons:
        outcome = "better" if test.difference > 0 else "worse"
        mark = outcome if test.holm < analysis.level else ""
        rows.append(test.model_dump() | {
            "than": _method_of(settings, test.than).label, "dimension": titles[test.dimension],
            "difference_low": test.low, "difference_high": test.high, "difference_mark": mark})  # fmt: skip
    ours = _method_of(settings, analysis.ours).label
    return layout.table(settings, "expert_study.tests", rows, raters=raters, ours=ours, target=analysis.target)


def _agreement_table(settings: Settings, analysis: Analysis, raters: str) -> tuple[str, Table]:
    """Return the table of the raters' agreement (Krippendorff's alpha) on every dimension, with its heading."""
    rows = []
    for dimension in rubric():
        alpha = analysis.alpha[dimension.name]
        ends = {"alpha": alpha.value, "alpha_low": alpha.low, "alpha_high": alpha.high}
        text = "undefined" if None in ends.values() else None
        rows.append({"dimension": dimension.title, **ends, "alpha_text": text})
    return layout.table(settings, "expert_study.agreement", rows, raters=raters)


def _csv_rows(settings: Settings, analysis: Analysis) -> list[Row]:
    """Return the rows of the CSV: for each dimension and run one row over all data sets, then one per data set. The
    first has the agreement of raters on the dimension. For our run it also has the p-value of the test against the best
    baseline (``holm_against_next_best``)."""
    rows: list[Row] = []
    for dimension, run in itertools.product(analysis.scores, analysis.runs):
        score, test = analysis.scores[dimension][run], _compare_with_next_best(analysis, dimension)
        method = _method_of(settings, run).label
        common = {"raters": analysis.kind, "dimension": dimension, "run": run, "method": method}
        rows.append(common | {
            "dataset": "all", "mean": score.value, "low": score.low, "high": score.high,
            "alpha": analysis.alpha[dimension].value,
            "holm_against_next_best": test.holm if test and run == analysis.ours else None})  # fmt: skip
        rows += [common | {"dataset": dataset, "mean": means[dimension][run]}
                 for dataset, means in analysis.datasets.items() if dataset in DATASETS]  # fmt: skip
    return rows
