"""The figure of target ``credit_quality``: how well the process reward estimates the advantage of an action."""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..job import Job
from ..settings import Settings
from . import style


def plot_credit_quality(settings: Settings, job: Job) -> None:
    """Plot bias, variance and rank correlation of the process reward against four settings of its estimation; below,
    RMSE and rank correlation by tokens generated per decision, beside VinePPO. All measure how close the estimated
    advantage of an action is to the true one.

    The numbers are those of the stage ``measure_credit_quality``: a row per estimator and setting. Hollow points are
    the default settings. The band around the bias is its standard error over cases.
    """
    quality = json.loads(job.inputs["quality"].read_text(encoding="utf-8"))
    rows, declared = pd.DataFrame(quality["rows"]), style.declared("credit_quality")
    sweeps, measures, looks = (declared[name] for name in ("sweeps", "measures", "looks"))
    with style.drawing(7.2, 7.6, job.out) as figure:
        figure.get_layout_engine().set(h_pad=0.08)
        upper, lower = figure.subfigures(2, 1, height_ratios=[1.9, 1.25])
        grid = upper.subplots(len(measures), len(sweeps), sharex="col", sharey="row")
        for panels, (measure, lines) in zip(grid, measures.items(), strict=True):
            for panel, setting in zip(panels, sweeps, strict=True):
                points = rows[(rows.estimator == "cdpr") & (rows["sweep"] == setting)].astype({"value": float})
                for column, label in lines.items():
                    _draw_line(panel, points, "value", column, looks.get(column, looks["default"]), label)
                if setting in declared["doubling"]:
                    panel.set_xscale("log", base=2)
                panel.set_xticks(points["value"], [f"{value:g}" for value in points["value"]])
                panel.minorticks_off()
                if measure == "bias":
                    panel.axhline(0, color=style.GREY, linewidth=0.7)
                    low, high = points.bias - points.bias_error, points.bias + points.bias_error
                    panel.fill_between(points["value"], low, high, color=style.BLUE, alpha=0.15, linewidth=0)
            panels[0].set_ylabel(measure)
            if measure != "bias":  # which may be negative; the panels of a row share their vertical axis
                panels[0].margins(y=0.15)  # room for the highest marker, as zero is far below
                panels[0].set_ylim(bottom=0)
        for panel, label in zip(grid[-1], sweeps.values(), strict=True):
            panel.set_xlabel(label)
        style.draw_legend_above(upper, grid[0, 0], size=6.5, handlelength=2.6, columnspacing=1.4)
        error_panel, rank_panel = lower.subplots(1, 2)
        # An estimate that is always 0 has the root mean square of the true advantages as its error.
        error_panel.axhline(quality["truth_rms"], color=style.GREY, linestyle=":", linewidth=1,
                            label="estimate always 0")  # fmt: skip
        _draw_by_tokens(error_panel, rows, declared, "rmse", "RMSE")
        _draw_by_tokens(rank_panel, rows, declared, "rank_correlation", "rank correlation")
        style.draw_legend_above(lower, error_panel, size=6.5, handlelength=2.6, columnspacing=1.4)
        style.write_notes(figure, settings, [note.format(**quality) for note in declared["notes"]])


def _draw_by_tokens(
    panel: style.Axes, rows: pd.DataFrame, declared: Mapping[str, Any], measure: str, label: str
) -> None:
    """Draw the column ``measure`` of ``rows`` by tokens per decision, under the axis ``label``: a line for each
    estimator that is ``declared``, whose points are labelled with their number of continuations K, and a single point
    for each baseline."""
    from matplotlib.ticker import LogLocator

    for estimator, line in declared["estimators"].items():
        points = rows[(rows.estimator == estimator) & (rows["sweep"] == "continuations")]
        look = declared["looks"].get(estimator, declared["looks"]["default"])
        _draw_line(panel, points, "tokens_per_decision", measure, look, line["label"])
        for number, *point in points[["value", "tokens_per_decision", measure]].itertuples(index=False):
            panel.annotate(f"K={number}", point, line["beside"], textcoords="offset points", fontsize=6, ha="center",
                           color=look["color"])  # fmt: skip
    for baseline, look in declared["baselines"].items():
        point = rows[(rows["sweep"] == "baseline") & (rows.value == baseline)]
        panel.plot(point.tokens_per_decision, point[measure], color=style.PURPLE, linestyle="", markersize=4, **look)
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()
    panel.margins(x=0.1, y=0.12)
    panel.set_ylim(bottom=0)
    panel.set(xlabel="tokens generated per decision", ylabel=label)


def _draw_line(panel: style.Axes, points: pd.DataFrame, x: str, y: str, look: dict[str, Any], label: str) -> None:
    """Draw a line of points, from the columns ``x`` and ``y``. The points of the default settings are hollow."""
    panel.plot(points[x], points[y], **look, markersize=3.5, linewidth=1.2, label=label)
    default = points[points.default]
    panel.plot(default[x], default[y], **look | {"linestyle": ""}, markersize=3.5, markerfacecolor="white", zorder=3)
