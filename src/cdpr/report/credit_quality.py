"""The figure of target ``credit_quality``: how well the process reward estimates the advantage of an action."""

import json
from typing import Any

import pandas as pd

from ..job import Job
from ..settings import Settings
from . import style

# The settings of the estimation that are varied, each a column of panels, with its label and symbol. The axes of those
# in DOUBLING are logarithmic, since their values double from one to the next.
SWEEPS = {"samples": "samples n_s", "continuations": "continuations K", "horizon": "horizon H",
          "candidates": "candidates M"}  # fmt: skip
DOUBLING = ("samples", "continuations")
# Measures of the error, each a row of panels with this label; its lines are {column of the numbers: label}. The only
# line of a row has no label.
MEASURES = {
    "bias": {"bias": "all decisions", "bias_examinations": "examinations", "bias_diagnoses": "diagnoses"},
    "variance": {"variance": ""},
    "rank correlation": {"rank_correlation": ""},
}
# The looks of lines, by column of the numbers or by estimator; all other lines have DEFAULT_LINE.
LINES: dict[str, dict[str, Any]] = {
    "bias_examinations": {"color": style.ORANGE, "linestyle": "--", "marker": "s"},
    "bias_diagnoses": {"color": style.GREEN, "linestyle": "-.", "marker": "^"},
    "vineppo": {"color": style.VERMILION, "linestyle": "--", "marker": "s"},
}
DEFAULT_LINE = {"color": style.BLUE, "linestyle": "-", "marker": "o"}
ESTIMATORS = {"cdpr": "CDPR", "vineppo": "VinePPO"}
# Other baselines of CDPR's advantage, each a single point: its label and marker.
BASELINES = {
    "leave_one_out": ("CDPR, baseline without the action taken", "v"),
    "policy_weighted": ("CDPR, baseline weighted by the policy", "D"),
}


def plot_credit_quality(settings: Settings, job: Job) -> None:
    """Plot bias, variance and rank correlation of the process reward against four settings of its estimation; below,
    RMSE and rank correlation by tokens generated per decision, beside VinePPO. All measure how close the estimated
    advantage of an action is to the true one.

    The numbers are those of the stage ``measure_credit_quality``: a row per estimator and setting. Hollow points are
    the default settings. The band around the bias is its standard error over cases.
    """
    quality = json.loads(job.inputs["quality"].read_text(encoding="utf-8"))
    rows = pd.DataFrame(quality["rows"])
    with style.drawing(7.2, 7.6, job.out) as figure:
        figure.get_layout_engine().set(h_pad=0.08)
        upper, lower = figure.subfigures(2, 1, height_ratios=[1.9, 1.25])
        grid = upper.subplots(len(MEASURES), len(SWEEPS), sharex="col", sharey="row")
        for panels, measure in zip(grid, MEASURES, strict=True):
            for panel, setting in zip(panels, SWEEPS, strict=True):
                points = rows[(rows.estimator == "cdpr") & (rows["sweep"] == setting)]
                _draw_sweep(panel, points, setting, measure)
            panels[0].set_ylabel(measure)
            if measure != "bias":  # which may be negative; the panels of a row share their vertical axis
                panels[0].margins(y=0.15)  # room for the highest marker, as zero is far below
                panels[0].set_ylim(bottom=0)
        for panel, label in zip(grid[-1], SWEEPS.values(), strict=True):
            panel.set_xlabel(label)
        style.draw_legend_above(upper, grid[0, 0], size=6.5, handlelength=2.6, columnspacing=1.4)
        error_panel, rank_panel = lower.subplots(1, 2)
        _draw_by_tokens(error_panel, rows, "rmse", "RMSE")
        # An estimate that is always 0 has the root mean square of the true advantages as its error.
        error_panel.axhline(quality["truth_rms"], color=style.GREY, linestyle=":", linewidth=1,
                            label="estimate always 0")  # fmt: skip
        _draw_by_tokens(rank_panel, rows, "rank_correlation", "rank correlation")
        style.draw_legend_above(lower, error_panel, size=6.5, handlelength=2.6, columnspacing=1.4)
        style.write_notes(figure, settings, [
            f"{quality['decisions']} decisions in {quality['states']} states of {quality['cases']} validation cases; "
            f"{quality['replicates']} replicates on the same workups; hollow: default; "
            "band: standard error over cases",
            f"truth: {quality['truth']} whole continuations a state, mean standard error "
            f"{quality['truth_error_mean']:.3f} of a root mean square of {quality['truth_rms']:.3f}",
        ])  # fmt: skip


def _draw_sweep(panel: style.Axes, points: pd.DataFrame, setting: str, measure: str) -> None:
    """Draw a measure of :data:`MEASURES` with all its lines by the value of one ``setting``. ``points`` has a row per
    value, with a column per line."""
    values = points["value"].astype(float)
    for column, label in MEASURES[measure].items():
        _draw_line(panel, values, points[column], points.default, LINES.get(column, DEFAULT_LINE), label)
    if measure == "bias":
        panel.axhline(0, color=style.GREY, linewidth=0.7)
        low, high = points.bias - points.bias_error, points.bias + points.bias_error
        panel.fill_between(values, low, high, color=style.BLUE, alpha=0.15, linewidth=0)
    if setting in DOUBLING:
        panel.set_xscale("log", base=2)
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.minorticks_off()


def _draw_by_tokens(panel: style.Axes, rows: pd.DataFrame, measure: str, label: str) -> None:
    """Draw the column ``measure`` of ``rows`` by tokens per decision, under the axis ``label``: a line for CDPR and one
    for VinePPO, whose points are labelled with their number of continuations K, and a single point for each other
    baseline of CDPR (:data:`BASELINES`)."""
    from matplotlib.ticker import LogLocator

    for estimator, name in ESTIMATORS.items():
        points = rows[(rows.estimator == estimator) & (rows["sweep"] == "continuations")]
        look = LINES.get(estimator, DEFAULT_LINE)
        _draw_line(panel, points.tokens_per_decision, points[measure], points.default, look, name)
        # CDPR's labels are to the right of its line, VinePPO's to the left. With more tokens the error falls: to the
        # right of a falling line there is room above it, to the left below it. The correlation rises: the reverse.
        is_cdpr = estimator == "cdpr"
        is_above = is_cdpr == (measure == "rmse")
        offset = (4 if is_cdpr else -4, 3 if is_above else -8)  # to the right and upwards, in typographic points
        for point in points.itertuples():
            panel.annotate(f"K={point.value}", (point.tokens_per_decision, getattr(point, measure)), offset,
                           textcoords="offset points", fontsize=6, color=look["color"],
                           ha="left" if is_cdpr else "right")  # fmt: skip
    for baseline, (name, marker) in BASELINES.items():
        point = rows[(rows["sweep"] == "baseline") & (rows.value == baseline)]
        panel.plot(point.tokens_per_decision, point[measure], color=style.PURPLE, linestyle="", marker=marker,
                   markersize=4, label=name)  # fmt: skip
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()
    panel.margins(x=0.1, y=0.12)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("tokens generated per decision")
    panel.set_ylabel(label)


def _draw_line(
    panel: style.Axes, x: pd.Series, y: pd.Series, is_default: pd.Series, look: dict[str, Any], label: str
) -> None:
    """Draw a line of points. The points of the default settings, where ``is_default``, are hollow."""
    panel.plot(x, y, **look, markersize=3.5, linewidth=1.2, label=label)
    panel.plot(x[is_default], y[is_default], **look | {"linestyle": ""}, markersize=3.5, markerfacecolor="white",
               zorder=3)  # fmt: skip
