"""The look of all figures: colours that colour-blind readers can tell apart, markers for black-and-white print, and the
same bytes at every drawing."""

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, TypeAlias

import numpy as np

from .. import escape
from ..files import parse_yaml, shipped_text, write_bytes
from ..settings import Look, Settings
from .methods import DATASETS, IN_DOMAIN, domain, is_synthetic, tier_mark
from .table import Row

# Types of matplotlib, which takes long to import. Most jobs draw nothing, so it is imported where a figure is drawn.
Axes: TypeAlias = Any
Figure: TypeAlias = Any

# Of Okabe and Ito's palette, whose colours remain distinct with any colour vision.
BLACK, BLUE, PURPLE, GREY = "#000000", "#0072B2", "#CC79A7", "#6b6b6b"

# Matplotlib's parameters that every figure is drawn with.
PARAMETERS = Path(__file__).with_name("matplotlibrc.txt")


def declared(name: str) -> Any:
    """Return what ``figures.yaml`` declares under a name."""
    return parse_yaml(shipped_text(__package__, "figures.yaml"))[name]


def look_of(settings: Settings, name: str, position: int = 0) -> Look:
    """Return the look (colour, marker, line) of an agent or variant, as its registry gives it.

    An entry without a look takes one of the spare looks, if possible in a colour that no other entry has. Spare looks
    are assigned in the order of the registries, first to variants. A ``name`` that is in no registry
    takes the spare look at ``position``.
    """
    entries = settings.experiments.variants | settings.agents
    look_by_name = {name: entry.look for name, entry in entries.items()}
    if look := look_by_name.get(name):
        return look
    # Spare looks in the colour of an entry are left out, unless that leaves none.
    spare_looks = [Look.model_validate(look) for look in declared("spare_looks")]
    used = {look.colour.lower() for look in look_by_name.values() if look}
    unused = [look for look in spare_looks if look.colour.lower() not in used] or spare_looks
    # All entries without a look are in one order, whatever a figure shows, so that they look the same in all figures.
    without_look = [name for name, look in look_by_name.items() if not look]
    index = without_look.index(name) if name in without_look else position
    return unused[index % len(unused)]


@contextmanager
def drawing(width: float, height: float, out: Mapping[str, Path]) -> Iterator[Figure]:
    """Open an empty figure of ``width`` by ``height`` inches with automatic layout. When the ``with`` block ends, it is
    saved to ``out["png"]`` and ``out["pdf"]``. It needs no display, and ignores the user's matplotlib settings."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(fname=PARAMETERS):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        save(figure, out)


def save(figure: Figure, out: Mapping[str, Path]) -> None:
    """Write the figure to ``out["png"]`` and ``out["pdf"]``, without dates and program versions, so that the same
    figure gives the same bytes. Both have the layout computed for the first."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text("\n".join(escape.figure(line) for line in text.get_text().split("\n")))
    pdf = {"Creator": "cdpr", "Producer": "cdpr", "CreationDate": None}
    for kind, metadata in (("png", {"Software": "cdpr"}), ("pdf", pdf)):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata)
        write_bytes(out[kind], buffer.getvalue())
        figure.set_layout_engine("none")  # the next kind keeps the layout of the first
        # The solver of the layout sums numbers in an order that differs between processes. So positions differ in their
        # last digits, and a PDF would show them.
        for panel in figure.axes:
            panel.set_position(np.round(panel.get_position(original=True).bounds, 6))


# Parts of figures


def draw_points(panel: Axes, rows: Sequence[Row], x: str, y: str, look: Look, **options: Any) -> Any:
    """Draw a point per row, at its values of the columns ``x`` and ``y``, with bars for the intervals of those that
    have columns ``..._low`` and ``..._high``. Fractions named ``accuracy`` are drawn in %. ``options`` are further
    arguments of matplotlib's ``errorbar``."""
    values, bars = [], {}
    for axis, name in (("xerr", x), ("yerr", y)):
        factor = 100 if name == "accuracy" else 1
        columns = ([row.get(column, math.nan) for row in rows] for column in (name, f"{name}_low", f"{name}_high"))
        mean, low, high = factor * np.array(list(columns), dtype=float)
        values.append(mean)
        bars[axis] = np.maximum([mean - low, high - mean], 0)
    defaults = {"color": look.colour, "marker": look.marker, "linestyle": "", "elinewidth": 0.7, "markersize": 6}
    return panel.errorbar(*values, **bars, **defaults | {"ecolor": (look.colour, 0.5), "zorder": 3} | options)


# Words in figures


def panel_title(settings: Settings, dataset: str, rows: Iterable[Row] = (), separator: str = " ") -> str:
    """Return the title of a panel: ``MIMIC-IV, synthetic`` and, after ``separator``, ``(in-domain, N = 1000)``. N is
    the largest number of cases (``n``) of the ``rows`` that the panel shows; it is left out without rows."""
    cases = max((row["n"] for row in rows), default=0)
    count = f", N = {cases}" if cases else ""
    return f"{DATASETS[dataset]}{synthetic_suffix(settings, dataset)}{separator}({domain(dataset)}{count})"


def synthetic_suffix(settings: Settings, dataset: str = IN_DOMAIN) -> str:
    """Return ``, synthetic`` for the title of a panel whose cases are synthetic; else an empty text."""
    return ", synthetic" if is_synthetic(settings, dataset) else ""


def draw_legend_above(figure: Figure, panel: Axes, columns: int = 0, size: float = 7, **look: Any) -> None:
    """Draw the legend of one panel above all panels of a figure. It has this number of ``columns`` (0: a single row)
    and a font of ``size`` points; ``look`` are further arguments of matplotlib's ``legend``. Without labels nothing is
    drawn."""
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        columns = columns or len(labels)
        figure.legend(handles, labels, loc="outside upper center", ncols=columns, fontsize=size, **look)


def write_in_empty_panel(panel: Axes, text: str) -> None:
    """Write ``text``, the reason why a panel shows nothing, in its middle."""
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", color=GREY)


def write_notes(figure: Figure, settings: Settings, notes: Iterable[str]) -> None:
    """Write notes in the lower left corner of a figure, each on lines of its own (empty ones are left out); in the
    lower right, where the cases come from and the unit of costs in the utility. Many notes make the figure taller."""
    lines = [line for note in notes for line in wrap(note, 125)]  # 125 characters fit beside the origin
    origin = f"{tier_mark(settings)}; cost unit of the utility: USD {settings.utility.cost_unit_usd:g}"
    small = {"fontsize": 6.5, "color": GREY, "va": "bottom"}
    figure.text(0.995, 0.004, origin, ha="right", **small)
    figure.text(0.005, 0.004, "\n".join(lines), ha="left", **small)
    # In inches: a margin and a line each. Notes take up to a third of the height from the panels; what they need beyond
    # that makes the figure taller.
    notes_height, height = 0.1 + 0.125 * max(1, len(lines)), figure.get_figheight()
    figure.set_figheight(height + max(0.0, notes_height - height / 3))
    share = notes_height / figure.get_figheight()  # of the height; the panels get the rest, above the notes
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))


def missing_note(names: Sequence[str]) -> str:
    """Return a note that names what is missing; empty where nothing is. Of more than five names it has the first four,
    and says how many more there are."""
    if len(names) > 5:
        names = [*names[:4], f"{len(names) - 4} more"]
    return f"missing: {', '.join(names)}" if names else ""
