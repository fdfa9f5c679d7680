"""The figure of how the cost of a workup is distributed over cases, and the axis of costs."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from ..job import Job
from ..settings import Settings
from . import style
from .methods import DATASETS, IN_DOMAIN, Method, main_methods
from .results import NotMeasured, Results
from .sources import notices
from .table import number


def plot_cost_distribution(settings: Settings, job: Job) -> None:
    """Share of cases whose workup costs at most so much, per data set.

    One line per agent that does not know the disease model (main decoding, seeds pooled), its median marked; medians
    and the share of free workups stand beside. Costs are linear up to 10 USD and logarithmic beyond. What is missing
    is named. Raises as :class:`Results` does.
    """
    methods = learned_methods(settings)
    results = Results(settings, job.inputs["results"], methods)
    decoding = settings.evaluation.decodings[0]
    # Cost of every episode (USD), seeds pooled, sorted.
    spent: dict[str, dict[Method, np.ndarray]] = {dataset: {} for dataset in DATASETS}
    cases, lost = dict.fromkeys(DATASETS, 0), []
    for dataset, method in itertools.product(DATASETS, methods):
        try:
            rows = results.rows(method, dataset, decoding)
        except NotMeasured:
            lost.append(f"{method.label} ({DATASETS[dataset]})")
            continue
        spent[dataset][method] = np.sort(rows.cost_usd)
        cases[dataset] = max(cases[dataset], rows.note_id.nunique())
    with style.drawing(7.2, 5.4, job.out) as figure:
        panels, table = _panels(figure, [1.3, 1], 0.16 * (len(methods) + 2))
        _table(table, settings, methods, spent)
        highest = max((float(at[-1]) for of_dataset in spent.values() for at in of_dataset.values()), default=0.0)
        for dataset, panel in panels.items():
            _draw_costs(panel, settings, methods, spent[dataset])
            panel.set_title(style.cases_of(settings, dataset, [{"n": cases[dataset]}]))
            cost_axis(panel, highest, "cost of the workup, at most (USD)")
            panel.set_ylabel("cases (%)")
            panel.set_ylim(0, 1.02)
            panel.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
        axis = "cost: linear up to 10 USD, logarithmic beyond"
        note = f"{decoding} decoding; seeds pooled; mark: median; 90%: quantile; free: USD 0"
        missing, broken = style.missing_note(lost), style.folded(results.remarks())
        notes = [*notices(settings), missing, *broken, axis, note]
        style.foot(figure, settings, notes)


def learned_methods(settings: Settings) -> list[Method]:
    """The agents of the main table that examine and do not know the model that made the cases."""
    return [m for m in main_methods(settings) if m.learned and m.name != "immediate"]


def share_at_most(sorted_costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct costs and the share of workups that cost no more, starting from a share of 0 below zero."""
    values, counts = np.unique(sorted_costs, return_counts=True)
    shares = np.cumsum(counts) / counts.sum()
    return np.concatenate([[-1.0], values, [1e6]]), np.concatenate([[0.0], shares, [1.0]])


def _panels(figure: style.Figure, widths: Sequence[float], below: float) -> tuple[dict[str, style.Axes], style.Axes]:
    """A panel per data set, in-domain cases at the left over the whole height, the other benchmarks below each other;
    and an empty one below all, of so much of their height."""
    layout = [[IN_DOMAIN, dataset] for dataset in DATASETS if dataset != IN_DOMAIN]
    heights = [*[1] * len(layout), below]
    panels = figure.subplot_mosaic([*layout, ["below", "below"]], width_ratios=widths, height_ratios=heights)
    lowest = panels.pop("below")
    lowest.set_axis_off()
    return panels, lowest


def cost_axis(panel: style.Axes, highest: float, label: str) -> None:
    """An axis of USD up to ``highest``: linear up to 10, where free workups are, and logarithmic beyond."""
    from matplotlib.ticker import FixedLocator, NullLocator

    panel.set_xscale("symlog", linthresh=10, linscale=0.6)
    panel.xaxis.set_major_locator(FixedLocator([0, 5, 10, 20, 50, 200, 1000, 5000]))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.set_xlim(-1.0, max(100.0, highest * 1.25))
    panel.set_xlabel(label)


def _draw_costs(
    panel: style.Axes, settings: Settings, methods: Sequence[Method], spent: Mapping[Method, np.ndarray]
) -> None:
    panel.axhline(0.5, color=style.GREY, linewidth=0.6, zorder=1)
    for method, at in spent.items():
        look = style.look_of(settings, method.name, methods.index(method))
        own = method.name == "cdpr"
        edge = look.colour if look.marker.startswith("$") else "white"  # a white edge would cover a thin letter
        panel.plot(*share_at_most(at), drawstyle="steps-post", color=look.colour, linestyle=look.line,
                   linewidth=2.0 if own else 1.3, zorder=3 if own else 2)  # fmt: skip
        panel.plot(float(np.median(at)), 0.5, linestyle="", marker=look.marker, markersize=6, color=look.colour,
                   markeredgecolor=edge, markeredgewidth=0.5, zorder=4, clip_on=False)  # fmt: skip
    if not spent:
        style.empty(panel, "missing: no evaluations", 0.6)


def _table(axes: style.Axes, settings: Settings, methods: Sequence[Method], spent: Mapping[str, Mapping]) -> None:
    """Legend and numbers in one: a line per agent; by data set its median and 90th percentile of cost (USD) and its
    share of free workups."""
    axes.set_xlim(0, 1)
    axes.set_ylim(len(methods) + 1.6, -0.4)
    width = 0.66 / len(DATASETS)  # the labels of the agents take the rest
    ends = {dataset: 1 - width * (len(DATASETS) - 1 - place) for place, dataset in enumerate(DATASETS)}
    small = {"fontsize": 7, "ha": "right", "va": "center"}
    for dataset, end in ends.items():
        axes.text(end - 0.09, 0, f"{DATASETS[dataset]} (USD)", fontsize=7, ha="center", va="center", fontweight="bold")
        axes.plot([end - 0.19, end], [0.45] * 2, color=style.GREY, linewidth=0.5)
        for offset, head in ((0.135, "median"), (0.06, "90%"), (0.0, "free")):
            axes.text(end - offset, 0.95, head, color=style.GREY, **small)
    for position, method in enumerate(methods):
        y = position + 2.0
        look = style.look_of(settings, method.name, position)
        axes.plot([0.0, 0.03, 0.06], [y] * 3, color=look.colour, linestyle=look.line, marker=look.marker,
                  markevery=[1], markersize=5, linewidth=1.4)  # fmt: skip
        axes.text(0.075, y, method.label, fontsize=7, va="center")
        for dataset, end in ends.items():
            if (at := spent[dataset].get(method)) is None:
                axes.text(end, y, "missing", **small)
                continue
            median, p90 = np.quantile(at, [0.5, 0.9])
            for offset, text in ((0.135, number(median)), (0.06, number(p90)), (0.0, f"{np.mean(at == 0):.0%}")):
                axes.text(end - offset, y, text, **small)
