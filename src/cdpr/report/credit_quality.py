"""The figure of target ``credit_quality``: the process reward as an estimate of the advantage."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..job import Job
from ..settings import Settings
from . import style

Rows = Sequence[Mapping[str, Any]]

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
# Where the labels of points stand beside a falling and a rising line: offset in points, alignment.
PLACES = {
    ("rmse", "cdpr"): ((4, 3), "left"), ("rmse", "vineppo"): ((-4, -8), "right"),
    ("rank_correlation", "cdpr"): ((4, -8), "left"), ("rank_correlation", "vineppo"): ((-4, 3), "right"),
}  # fmt: skip
BASELINES = {
    "policy_weighted": ("CDPR, baseline weighted by $\\hat{p}$", "D"),
    "leave_one_out": ("CDPR, baseline without the action taken", "v"),
}


def plot_credit_quality(settings: Settings, job: Job) -> None:
    """Bias, variance and rank correlation by setting, RMSE and rank correlation by tokens per decision.

    Of what stage ``credit_quality`` wrote. Hollow points are the default settings, the band around the bias is its
    standard error over cases.
    """
    quality = json.loads(job.inputs["quality"].read_text(encoding="utf-8"))
    rows = quality["rows"]
    with style.drawing(7.2, 7.6, job.out) as figure:
        figure.get_layout_engine().set(h_pad=0.08)
        upper, lower = figure.subfigures(2, 1, height_ratios=[1.9, 1.25])
        grid = upper.subplots(len(MEASURES), len(SWEEPS), sharex="col", sharey="row")
        for row, measure in enumerate(MEASURES):
            for column, key in enumerate(SWEEPS):
                _draw_sweep(grid[row, column], rows, measure, key)
            grid[row, 0].set_ylabel(MEASURES[measure][0])
            if measure != "bias":
                grid[row, 0].margins(y=0.15)  # room for the highest mark, as zero lies far below
                grid[row, 0].set_ylim(bottom=0)
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


def _draw_sweep(panel: style.Axes, rows: Rows, measure: str, key: str) -> None:
    label, doubling = SWEEPS[key]
    points = [row for row in rows if row["estimator"] == "cdpr" and row["sweep"] == key]
    values = [row["value"] for row in points]
    for column, name, colour, line, marker in MEASURES[measure][1]:
        panel.plot(values, [row[column] for row in points], color=colour, linestyle=line, marker=marker, markersize=3.5,
                   linewidth=1.2, label=name)  # fmt: skip
        _hollow(panel, points, "value", column, colour, marker)
    if measure == "bias":
        panel.axhline(0, color=style.GREY, linewidth=0.7)
        low, high = ([row["bias"] + side * row["bias_error"] for row in points] for side in (-1, 1))
        panel.fill_between(values, low, high, color=style.BLUE, alpha=0.15, linewidth=0)
    if doubling:
        panel.set_xscale("log", base=2)
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.minorticks_off()
    if measure == list(MEASURES)[-1]:
        panel.set_xlabel(label)


def _draw_price(panel: style.Axes, rows: Rows, measure: str, label: str) -> None:
    """A measure by tokens per decision: one line per estimator, its points labelled with K; the other baselines."""
    from matplotlib.ticker import LogLocator

    for estimator, (name, colour, line, marker) in ESTIMATORS.items():
        offset, side = PLACES[measure, estimator]
        points = [row for row in rows if row["estimator"] == estimator and row["sweep"] == "continuations"]
        x, y = [row["tokens_per_decision"] for row in points], [row[measure] for row in points]
        panel.plot(x, y, color=colour, linestyle=line, marker=marker, markersize=4, label=name)
        _hollow(panel, points, "tokens_per_decision", measure, colour, marker)
        for row in points:
            at = (row["tokens_per_decision"], row[measure])
            panel.annotate(
                f"K={row['value']}", at, offset, textcoords="offset points", fontsize=6, color=colour, ha=side
            )
    for row in rows:
        if row["sweep"] == "baseline" and row["value"] in BASELINES:
            name, marker = BASELINES[row["value"]]
            panel.plot(row["tokens_per_decision"], row[measure], color=style.PURPLE, linestyle="", marker=marker,
                       markersize=4, label=name)  # fmt: skip
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()
    panel.margins(x=0.1, y=0.12)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("tokens generated per decision")
    panel.set_ylabel(label)


def _legend(part: style.SubFigure, panel: style.Axes) -> None:
    """One legend above the panels of a part, with what one of them shows."""
    handles, labels = panel.get_legend_handles_labels()
    part.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=6.5, handlelength=2.6,
                columnspacing=1.4)  # fmt: skip


def _hollow(panel: style.Axes, rows: Rows, x: str, y: str, colour: str, marker: str) -> None:
    for row in (row for row in rows if row["default"]):
        panel.plot(row[x], row[y], color=colour, marker=marker, markersize=3.5, markerfacecolor="white", zorder=3)
