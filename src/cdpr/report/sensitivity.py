"""Figures of one setting changed at a time (a sweep): accuracy and cost by value of the setting."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from ..files import write_text
from ..job import Job
from ..settings import Look, Settings, job_of, sweeps, value_at
from . import style
from .methods import IN_DOMAIN, OURS, variant_method
from .results import Results
from .table import Row, to_csv

PANELS_PER_ROW = 3


def sweep_rows(settings: Settings, folder: Path, figure: str, every: bool = False) -> tuple[Results, list[Row]]:
    """Read the sweeps of ``figure``, with the values that ``experiments.swept`` and ``experiments.points`` choose, or
    with ``every`` value of the registry. Returns the results, and a row per sweep and value, in their order.

    A row has the in-domain results with the main decoding (:meth:`Results.summary`), where accuracies are fractions,
    with ``low`` and ``high`` for the interval of the accuracy. ``difference``, with its interval, is the accuracy minus
    that of the ``default`` value, the one that the configuration gives the setting, on the same cases and seeds; the
    row of the default has none. ``status`` says whether it was measured and which runs diverged, and ``planned`` is the
    number of training seeds.
    Raises as :class:`Results` does.
    """
    variants = sweeps(settings, figure, every)  # names of variants, by sweep and then by value
    # A variant that is the same training as another one gets the runs of that one, and keeps its own name.
    methods = {variant: replace(variant_method(settings, job_of(settings, variant)), name=variant)
               for points in variants.values() for variant in points.values()}  # fmt: skip
    results = Results(settings, folder, list(methods.values()))
    rows = []
    for name, points in variants.items():
        sweep = settings.experiments.sweeps[name]
        default = value_at(settings, sweep.setting)
        for value, variant in points.items():
            method = methods[variant]
            row = results.summary(method, IN_DOMAIN, results.decodings[0])
            change: Row = {}
            if value != default:
                change = results.change(method, methods[points[default]], IN_DOMAIN, results.decodings[0])
            rows.append(row | {
                "sweep": name, "symbol": sweep.symbol, "title": sweep.label, "variant": variant,
                "value": f"{value:g}" if isinstance(value, float) else str(value).lower(),
                "default": "yes" if value == default else "no", "planned": len(method.runs),
                "low": row.get("accuracy_low"), "high": row.get("accuracy_high"),
                **{f"difference{end}": change.get(f"accuracy{end}") for end in ("", "_low", "_high")},
            })  # fmt: skip
    return results, rows


def draw_sweeps(settings: Settings, job: Job, figure: str, every: bool = False) -> None:
    """Draw a panel for each sweep of ``figure`` with at least two values, and write the numbers of all sweeps as
    ``csv``. ``every`` is that of :func:`sweep_rows`.

    A panel shows accuracy (%) by value with 95% intervals over seeds and cases, and below it the cost (USD). Values are
    evenly spaced, each above its number of seeds. The default is marked. Raises as :func:`sweep_rows`.
    """
    results, rows = sweep_rows(settings, job.inputs["results"], figure, every)
    swept = [list(points) for _, points in groupby(rows, lambda row: row["sweep"])]
    shown = [points for points in swept if len(points) > 1]
    count = max(1, math.ceil(len(shown) / PANELS_PER_ROW))  # of the rows of panels
    with style.drawing(7.2, 0.75 + 2.2 * count, job.out) as drawn:
        grid = drawn.subplots(2 * count, PANELS_PER_ROW, height_ratios=[2.1, 1.0] * count, squeeze=False, sharey="row")
        # A sweep has two panels, one above the other: accuracy in rows 0, 2, ... of the grid, cost in rows 1, 3, ...
        pairs = list(zip(grid[::2].ravel(), grid[1::2].ravel(), strict=True))
        for above, below in pairs[len(shown) :]:
            above.set_axis_off()
            below.set_axis_off()
        for (above, below), points in zip(pairs, shown, strict=False):
            _draw_metric(above, points, "accuracy", style.look_of(settings, OURS).colour)
            _draw_metric(below, points, "aec", style.GREY)
            above.tick_params(labelbottom=False)
            above.set_title(f"{points[0]['title']}{style.synthetic_suffix(settings)}", loc="left", fontsize=7)
            below.set_xlabel(points[0]["symbol"], labelpad=1)
        for above, below in pairs[::PANELS_PER_ROW]:
            above.set_ylabel("accuracy (%)")
            below.set_ylabel("USD")
            below.set_ylim(bottom=0)
        # The panel with the most labels, ``[1]``: it also has "missing", if any panel has.
        most_labels = max(grid[::2].flat, key=lambda panel: len(panel.get_legend_handles_labels()[1]))
        style.draw_legend_above(drawn, most_labels)
        unswept = [points[0]["symbol"] for points in swept if points not in shown]
        style.write_notes(drawn, settings, _notes(results, [row for points in shown for row in points], unswept))
    write_text(job.out["csv"], to_csv(rows, style.declared("sensitivity")["csv"]))


# The paper's figure, a panel for each of its six settings; the same with every value of the registry; and a panel for
# each setting that the paper leaves open, with every value.
plot_sensitivity = partial(draw_sweeps, figure="sensitivity")
plot_sensitivity_all = partial(draw_sweeps, figure="sensitivity", every=True)
plot_further_sensitivity = partial(draw_sweeps, figure="further_sensitivity", every=True)


def _draw_metric(panel: style.Axes, rows: Sequence[Row], metric: str, colour: str) -> None:
    """Draw a metric of a sweep by value with its intervals. The default is a diamond. A cross at the bottom marks a
    value whose results are missing."""
    rows = [row | {"place": place} for place, row in enumerate(rows)]
    look = Look(colour=colour, marker="o", line="-")
    hollow = {"capsize": 2, "markersize": 4.5, "markerfacecolor": "white", "zorder": 2}
    style.draw_points(panel, rows, "place", metric, look, label="CDPR, one setting changed", linestyle="-", **hollow)
    default = [row for row in rows if row["default"] == "yes"]
    style.draw_points(panel, default, "place", metric, look, label="default", marker="D", markersize=5)
    missing = [row["place"] for row in rows if "reason" in row]
    if missing:
        # The transform takes x in data units and y as a fraction of the height of the panel.
        panel.plot(missing, np.full(len(missing), 0.06), "x", color=style.BLACK, markersize=4, label="missing",
                   transform=panel.get_xaxis_transform())  # fmt: skip
    panel.set_xticks(range(len(rows)), [f"{row['value']}\n×{row['planned']}" for row in rows])
    panel.get_xticklabels()[default[0]["place"]].set_fontweight("bold")
    panel.set_xlim(-0.5, len(rows) - 0.5)
    panel.grid(False, axis="x")


def _notes(results: Results, rows: Sequence[Row], unswept: Sequence[str]) -> list[str]:
    """Return the notes below the figure: which settings have one value only (``unswept``, their symbols), which runs
    are missing or diverged, who judged, and what bars and labels are. ``rows`` are those that are drawn."""
    settings = results.settings
    runs = dict.fromkeys(run for row in rows for run, _dataset in row.get("runs", ()))  # each once, in order
    diverged = "; ".join(results.divergences(runs))
    cases = max((row.get("n", 0) for row in rows), default=0)
    return [
        f"not swept in the {settings.tier}: {', '.join(unswept)} (snakemake sensitivity_all)" if unswept else "",
        style.missing_note([row["variant"] for row in rows if "reason" in row]),
        f"{diverged}: evaluated with the weights before" if diverged else "",
        *results.judging_notes(),
        f"{settings.evaluation.decodings[0]} decoding, {f'{cases} ' if cases else ''}in-domain test cases; bars: 95% "
        "intervals over seeds and cases; values evenly spaced; below a value: × number of training seeds",
    ]
