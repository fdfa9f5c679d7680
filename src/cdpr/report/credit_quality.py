"""The figure of target ``credit_quality``: the process reward as an estimate of the advantage."""

import json
from typing import Any

import pandas as pd

from ..job import Job
from ..settings import Settings
from . import style

# Swept key: label of its column, and whether its axis doubles.
SWEEPS = {
    "samples": ("samples $n_s$", True), "continuations": ("continuations $K$", True),
    "horizon": ("horizon $H$", False), "candidates": ("candidates $M$", False),
}  # fmt: skip
# Measure of a row of panels: label, and its lines (column of the table, label, colour, line, marker).
MEASURES = {
    "bias": ("bias", (
        ("bias", "all decisions", style.BLUE, "-", "o"),
        ("bias_examinations", "examinations", style.ORANGE, "--", "s"),
        ("bias_diagnoses", "diagnoses", style.GREEN, "-.", "^"),
    )),
    "variance": ("variance", (("variance", "", style.BLUE, "-", "o"),)),
    "rank_correlation": ("rank correlation", (("rank_correlation", "", style.BLUE, "-", "o"),)),
}  # fmt: skip
ESTIMATORS = {"cdpr": ("CDPR", style.BLUE, "-", "o"), "vineppo": ("VinePPO", style.VERMILION, "--", "s")}
# Labels of points beside a falling and a rising line: offset in points, alignment.
LABELS = {
    ("rmse", "cdpr"): ((4, 3), "left"), ("rmse", "vineppo"): ((-4, -8), "right"),
    ("rank_correlation", "cdpr"): ((4, -8), "left"), ("rank_correlation", "vineppo"): ((-4, 3), "right"),
}  # fmt: skip
BASELINES = {
    "leave_one_out": ("CDPR, baseline without the action taken", "v"),
    "policy_weighted": ("CDPR, baseline weighted by $\\hat{p}$", "D"),
}


def plot_credit_quality(settings: Settings, job: Job) -> None:
    """Plot bias, variance and rank correlation by setting, RMSE and rank correlation by tokens per decision.

    The numbers are those of stage ``credit_quality``. Hollow points are the default settings, the band around the bias
    is its standard error over cases.
    """
    quality = json.loads(job.inputs["quality"].read_text(encoding="utf-8"))
    rows = pd.DataFrame(quality["rows"])
    with style.drawing(7.2, 7.6, job.out) as figure:
        figure.get_layout_engine().set(h_pad=0.08)
        upper, lower = figure.subfigures(2, 1, height_ratios=[1.9, 1.25])
        grid = upper.subplots(len(MEASURES), len(SWEEPS), sharex="col", sharey="row")
        for panels, measure in zip(grid, MEASURES, strict=True):
            for panel, key in zip(panels, SWEEPS, strict=True):
                _draw_sweep(panel, rows[(rows.estimator == "cdpr") & (rows["sweep"] == key)], measure)
            panels[0].set_ylabel(MEASURES[measure][0])
            if measure != "bias":
                panels[0].margins(y=0.15)  # room for the highest mark, as zero is far below
                panels[0].set_ylim(bottom=0)
        for panel, key in zip(grid[-1], SWEEPS, strict=True):
            panel.set_xlabel(SWEEPS[key][0])
        _legend(upper, grid[0, 0])
        error, rank = lower.subplots(1, 2)
        _draw_price(error, rows, "rmse", "RMSE")
        error.axhline(quality["truth_rms"], color=style.GREY, linestyle=":", linewidth=1, label="estimate always 0")
        _draw_price(rank, rows, "rank_correlation", "rank correlation")
        _legend(lower, error)
        notes = (
            f"{quality['decisions']} decisions in {quality['states']} states of {quality['cases']} validation cases; "
            f"{quality['replicates']} replicates on the same workups; hollow: default; "
            "band: standard error over cases\n"
            f"truth: {quality['truth']} whole continuations a state, mean standard error "
            f"{quality['truth_error_mean']:.3f} of a root mean square of {quality['truth_rms']:.3f}"
        )
        style.mark_tier(figure, settings, notes)


def _draw_sweep(panel: style.Axes, points: pd.DataFrame, measure: str) -> None:
    """Draw a measure by the value of one setting."""
    values = points["value"].astype(float)
    for column, name, colour, line, marker in MEASURES[measure][1]:
        _draw_line(panel, values, points[column], points, colour, marker, linestyle=line, markersize=3.5, linewidth=1.2,
                   label=name)  # fmt: skip
    if measure == "bias":
        panel.axhline(0, color=style.GREY, linewidth=0.7)
        low, high = (points.bias + side * points.bias_error for side in (-1, 1))
        panel.fill_between(values, low, high, color=style.BLUE, alpha=0.15, linewidth=0)
    if SWEEPS[points["sweep"].iloc[0]][1]:
        panel.set_xscale("log", base=2)
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.minorticks_off()


def _draw_price(panel: style.Axes, rows: pd.DataFrame, measure: str, label: str) -> None:
    """Draw a measure by tokens per decision: a line per estimator, its points labelled with K; the other baselines."""
    from matplotlib.ticker import LogLocator

    for estimator, (name, colour, line, marker) in ESTIMATORS.items():
        offset, side = LABELS[measure, estimator]
        points = rows[(rows.estimator == estimator) & (rows["sweep"] == "continuations")]
        x, y = points.tokens_per_decision, points[measure]
        _draw_line(panel, x, y, points, colour, marker, linestyle=line, markersize=4, label=name)
        for at, count in zip(zip(x, y, strict=True), points.value, strict=True):
            panel.annotate(f"K={count}", at, offset, textcoords="offset points", fontsize=6, color=colour, ha=side)
    for value, (name, marker) in BASELINES.items():
        at = rows[(rows["sweep"] == "baseline") & (rows.value == value)]
        panel.plot(at.tokens_per_decision, at[measure], color=style.PURPLE, linestyle="", marker=marker, markersize=4,
                   label=name)  # fmt: skip
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()
    panel.margins(x=0.1, y=0.12)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("tokens generated per decision")
    panel.set_ylabel(label)


def _draw_line(
    panel: style.Axes, x: pd.Series, y: pd.Series, points: pd.DataFrame, colour: str, marker: str, **look: Any
) -> None:
    """Draw a line of points; those of the default settings are hollow."""
    panel.plot(x, y, color=colour, marker=marker, **look)
    for at in points.index[points.default]:
        panel.plot(x[at], y[at], color=colour, marker=marker, markersize=3.5, markerfacecolor="white", zorder=3)


def _legend(part: style.SubFigure, panel: style.Axes) -> None:
    """Draw one legend above the panels of a part, with the entries of one of them."""
    handles, labels = panel.get_legend_handles_labels()
    part.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=6.5, handlelength=2.6,
                columnspacing=1.4)  # fmt: skip
