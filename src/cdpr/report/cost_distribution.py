"""How the cost of a work-up is distributed over cases: what an average cost hides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..evaluation.metrics import Evaluation
from ..job import Job
from ..results.methods import DATASETS, Method, domain, main_methods
from ..results.results import Hole, Results, results_folder
from ..results.sources import notices
from ..results.table import number
from ..settings import Settings
from . import style


def plot_cost_distribution(settings: Settings, job: Job) -> None:
    """Share of cases whose work-up costs at most so much, per data set.

    One line per agent that does not know the disease model (main decoding, seeds pooled), its median marked; medians
    and the share of free work-ups stand beside. Costs are linear up to 10 USD and logarithmic beyond. What is missing
    is named. Raises as :class:`Results` does.
    """
    methods = learned_methods(settings)
    results = Results(settings, results_folder(settings, job), methods)
    decoding = settings.evaluation.decodings[0]
    evaluations = {d: {m: results.evaluations(m, d, decoding) for m in methods} for d in DATASETS}
    with style.drawing(7.2, 5.4, job.out) as figure:
        layout = [*style.domains(), ["table", "table"]]
        heights = [*[1] * (len(layout) - 1), 0.16 * (len(methods) + 2)]
        panels = figure.subplot_mosaic(layout, width_ratios=[1.3, 1], height_ratios=heights)
        spent = {d: {m: costs(e) for m, e in at.items() if not isinstance(e, Hole)} for d, at in evaluations.items()}
        _table(panels.pop("table"), settings, methods, spent)
        highest = max((float(at[-1]) for of_dataset in spent.values() for at in of_dataset.values()), default=0.0)
        for dataset, panel in panels.items():
            cases = max(
                (len(e[0].note_ids) for e in evaluations[dataset].values() if not isinstance(e, Hole)), default=0
            )
            _draw_panel(panel, settings, methods, spent[dataset])
            panel.set_title(f"{DATASETS[dataset]} ({domain(dataset)}, N = {cases})")
            style.cost_axis(panel, highest, "cost of the work-up, at most (USD)")
            panel.set_ylabel("cases (%)")
            panel.set_ylim(0, 1.02)
            panel.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
        lost = [
            f"{m.label} ({DATASETS[d]})" for d, at in evaluations.items() for m, e in at.items() if isinstance(e, Hole)
        ]
        note = f"{decoding} decoding; seeds pooled; mark: median; 90%: quantile; free: USD 0"
        notes = [*notices(settings), style.missing_note(lost), *style.folded(results.divergences()), note]
        style.foot(figure, settings, notes)


def learned_methods(settings: Settings) -> list[Method]:
    """The agents of the main table that examine and do not know the model that made the cases."""
    return [m for m in main_methods(settings) if m.runs and m.learned and m.name != "immediate"]


def costs(evaluations: Sequence[Evaluation]) -> np.ndarray:
    """Cost of every work-up (USD), seeds pooled, sorted [work-ups]."""
    return np.sort(np.concatenate([evaluation.metric("aec") for evaluation in evaluations]))


def share_at_most(sorted_costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct costs and the share of work-ups that cost no more, starting from nobody below zero."""
    values, counts = np.unique(sorted_costs, return_counts=True)
    shares = np.cumsum(counts) / counts.sum()
    return np.concatenate([[-1.0], values, [1e6]]), np.concatenate([[0.0], shares, [1.0]])


def _draw_panel(
    panel: style.Axes, settings: Settings, methods: Sequence[Method], spent: Mapping[Method, np.ndarray]
) -> None:
    panel.axhline(0.5, color=style.GREY, linewidth=0.6, zorder=1)
    for method, at in spent.items():
        look = style.look_of(settings, method.name, methods.index(method))
        own = method.name == "cdpr"
        panel.plot(*share_at_most(at), drawstyle="steps-post", color=look.colour, linestyle=look.line,
                   linewidth=2.0 if own else 1.3, zorder=3 if own else 2)  # fmt: skip
        panel.plot(float(np.median(at)), 0.5, linestyle="", marker=look.marker, markersize=6, color=look.colour,
                   markeredgecolor="white", markeredgewidth=0.5, zorder=4, clip_on=False)  # fmt: skip
    if not spent:
        style.empty(panel, "missing: no evaluations", 0.6)


def _table(axes: style.Axes, settings: Settings, methods: Sequence[Method], spent: Mapping[str, Mapping]) -> None:
    """Legend and numbers in one: a line per agent; by data set its median and 90th percentile of cost (USD) and its
    share of free work-ups."""
    axes.set_axis_off()
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
