"""Figures of one setting changed at a time (a sweep): accuracy and cost by value of the setting."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..files import write_text
from ..job import Job
from ..settings import Settings, Sweep, job_of, sweeps, value_at
from . import style
from .methods import IN_DOMAIN, OURS, Method, variant_method
from .results import Results
from .table import Row, to_csv

# The columns of the CSV (:func:`sweep_rows`).
_COLUMNS = ("tier", "decoding", "sweep", "symbol", "value", "default", "variant", "seeds", "k", "n", "accuracy", "low",
            "high", "aen", "aec", "n_na", "utility", "difference", "difference_low", "difference_high",
            "status")  # fmt: skip
PANELS_PER_ROW = 3


class Panel(NamedTuple):
    """A sweep, which is one panel of the figure.

    - ``methods``: its variants, in the order of the values of the setting.
    - ``rows``: their in-domain results with the main decoding (:meth:`Results.summary`), each with its ``value`` as
      text.
    - ``default``: the index, among these, of the variant with the value that the configuration gives the setting.
    """

    sweep: Sweep
    methods: Sequence[Method]
    rows: Sequence[Row]
    default: int


def read_panels(settings: Settings, folder: Path, figure: str, every: bool = False) -> tuple[Results, list[Panel]]:
    """Read the sweeps of ``figure``, with the values that ``experiments.swept`` and ``experiments.points`` choose, or
    with ``every`` value of the registry. Returns the results, and a panel per sweep. Raises as :class:`Results`
    does."""
    variants = sweeps(settings, figure, every)  # names of variants, by sweep and then by value
    # A variant that is the same training as another one gets the runs of that one, and keeps its own name.
    methods = {variant: replace(variant_method(settings, job_of(settings, variant)), name=variant)
               for points in variants.values() for variant in points.values()}  # fmt: skip
    results = Results(settings, folder, list(methods.values()))
    panels = []
    for name, points in variants.items():
        sweep = settings.experiments.sweeps[name]
        own_value = value_at(settings, sweep.setting)
        rows = []
        for value, variant in points.items():
            text = f"{value:g}" if isinstance(value, float) else str(value).lower()
            row = results.summary(methods[variant], IN_DOMAIN, results.decodings[0])
            rows.append(row | {"sweep": name, "symbol": sweep.symbol, "variant": variant, "value": text,
                               "default": "yes" if value == own_value else "no"})  # fmt: skip
        shown = [methods[variant] for variant in points.values()]
        panels.append(Panel(sweep, shown, rows, default=list(points).index(own_value)))
    return results, panels


def draw_sweeps(settings: Settings, job: Job, figure: str, every: bool = False) -> None:
    """Draw a panel for each sweep with at least two values, and write the numbers of all sweeps as ``csv``.

    A panel shows accuracy (%) by value with 95% intervals over seeds and cases, and below it the cost (USD). Values are
    evenly spaced, each above its number of seeds. The default is marked. Raises as :func:`read_panels`.
    """
    results, all_panels = read_panels(settings, job.inputs["results"], figure, every)
    panels = [panel for panel in all_panels if len(panel.rows) > 1]
    rows = max(1, math.ceil(len(panels) / PANELS_PER_ROW))
    with style.drawing(7.2, 0.75 + 2.2 * rows, job.out) as drawn:
        grid = drawn.subplots(2 * rows, PANELS_PER_ROW, height_ratios=[2.1, 1.0] * rows, squeeze=False, sharey="row")
        # A sweep has two panels, one above the other: accuracy in rows 0, 2, ... of the grid, cost in rows 1, 3, ...
        upper, lower = grid[::2].ravel(), grid[1::2].ravel()
        for unused in (*upper[len(panels) :], *lower[len(panels) :]):
            unused.set_axis_off()
        for panel, above, below in zip(panels, upper, lower, strict=False):
            _draw_panel(above, below, settings, panel)
        for above, below in zip(grid[::2, 0], grid[1::2, 0], strict=True):
            above.set_ylabel("accuracy (%)")
            below.set_ylabel("USD")
            below.set_ylim(bottom=0)
        # The panel with the most labels, ``[1]``: it also has "missing", if any panel has.
        most_labels = max(upper, key=lambda panel: len(panel.get_legend_handles_labels()[1]))
        style.draw_legend_above(drawn, most_labels)
        style.write_notes(drawn, settings, _notes(results, panels, all_panels))
    write_text(job.out["csv"], to_csv(sweep_rows(results, all_panels), _COLUMNS))


# The paper's figure, a panel for each of its six settings; the same with every value of the registry; and a panel for
# each setting that the paper leaves open, with every value.
plot_sensitivity = partial(draw_sweeps, figure="sensitivity")
plot_sensitivity_all = partial(draw_sweeps, figure="sensitivity", every=True)
plot_further_sensitivity = partial(draw_sweeps, figure="further_sensitivity", every=True)


def sweep_rows(results: Results, panels: Iterable[Panel]) -> list[Row]:
    """Return the rows of the CSV, one per sweep and value. Accuracies are fractions. ``low`` and ``high`` are the
    interval of the accuracy. ``difference``, with its interval, is the accuracy minus that of the default value on the
    same cases and seeds; the row of the default has none. ``status`` names runs that diverged."""
    csv_rows = []
    for panel in panels:
        for position, row in enumerate(panel.rows):
            change: Row = {}
            if position != panel.default:
                method, default = panel.methods[position], panel.methods[panel.default]
                change = results.change(method, default, IN_DOMAIN, results.decodings[0])
            differences = {f"difference{end}": change.get(f"accuracy{end}") for end in ("", "_low", "_high")}
            ends = {"low": row.get("accuracy_low"), "high": row.get("accuracy_high")}
            csv_rows.append(row | ends | differences)
    return csv_rows


def _draw_panel(above: style.Axes, below: style.Axes, settings: Settings, panel: Panel) -> None:
    """Draw a sweep: its accuracy in the panel ``above``, its cost in the panel ``below``."""
    _draw_metric(above, panel, "accuracy", 100.0, style.look_of(settings, OURS).colour)
    _draw_metric(below, panel, "aec", 1.0, style.GREY)
    for axes in (above, below):
        axes.set_xlim(-0.5, len(panel.rows) - 0.5)
        axes.set_xticks(range(len(panel.rows)))
        axes.grid(False, axis="x")
    above.tick_params(labelbottom=False)
    above.set_title(f"{panel.sweep.label}{style.synthetic_suffix(settings)}", loc="left", fontsize=7)
    seeds_by_value = zip(panel.rows, panel.methods, strict=True)
    below.set_xticklabels([f"{row['value']}\n×{len(method.runs)}" for row, method in seeds_by_value])
    below.get_xticklabels()[panel.default].set_fontweight("bold")
    below.set_xlabel(panel.sweep.symbol, labelpad=1)


def _draw_metric(axes: style.Axes, panel: Panel, metric: str, factor: float, colour: str) -> None:
    """Draw a metric of a sweep, times ``factor``, by value with its intervals. The default is a diamond. A cross at the
    bottom marks a value whose results are missing."""
    mean, low, high = (factor * np.array([row.get(f"{metric}{end}", np.nan) for row in panel.rows])
                       for end in ("", "_low", "_high"))  # fmt: skip
    axes.errorbar(range(len(mean)), mean, yerr=np.maximum([mean - low, high - mean], 0), color=colour, linewidth=1.2,
                  elinewidth=0.8, capsize=2, marker="o", markersize=4.5, markerfacecolor="white", zorder=2,
                  label="CDPR, one setting changed")  # fmt: skip
    axes.plot(panel.default, mean[panel.default], "D", markersize=5, color=colour, zorder=3, label="default")
    missing = np.flatnonzero(np.isnan(mean))
    # The transform takes x in data units and y as a fraction of the height of the panel.
    if len(missing):
        axes.plot(missing, np.full(len(missing), 0.06), "x", color=style.BLACK, markersize=4, label="missing",
                  transform=axes.get_xaxis_transform())  # fmt: skip


def _notes(results: Results, panels: Sequence[Panel], all_panels: Sequence[Panel]) -> list[str]:
    """Return the notes below the figure: which settings have one value only, which runs are missing or diverged, who
    judged, and what bars and labels are. ``panels`` are the sweeps that are drawn."""
    settings = results.settings
    unswept = ", ".join(panel.sweep.symbol for panel in all_panels if panel not in panels)
    rows = [row for panel in panels for row in panel.rows]
    missing = [row["variant"] for row in rows if "reason" in row]
    runs = dict.fromkeys(run for row in rows for run, _dataset in row.get("runs", ()))  # each once, in order
    diverged = "; ".join(results.divergences(runs))
    cases = max((row.get("n", 0) for row in rows), default=0)
    return [
        f"not swept in the {settings.tier}: {unswept} (snakemake sensitivity_all)" if unswept else "",
        style.missing_note(missing),
        f"{diverged}: evaluated with the weights before" if diverged else "",
        *results.judging_notes(),
        f"{settings.evaluation.decodings[0]} decoding, {f'{cases} ' if cases else ''}in-domain test cases; bars: 95% "
        "intervals over seeds and cases; values evenly spaced; below a value: × number of training seeds",
    ]
