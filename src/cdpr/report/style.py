"""How figures look: colours for every reader, marks for print, the same bytes every time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import with_suffix, write_bytes
from ..results.methods import tier_mark
from ..settings import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette: eight colours told apart with any colour vision.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#6b6b6b"

DPI = 200
_PARAMETERS = {
    "figure.dpi": DPI, "savefig.dpi": DPI, "font.family": "DejaVu Sans", "font.size": 8.5, "axes.titlesize": 9,
    "axes.labelsize": 8.5, "legend.fontsize": 8, "xtick.labelsize": 7.5, "ytick.labelsize": 7.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7, "axes.grid": True,
    "grid.color": "#dddddd", "grid.linewidth": 0.5, "axes.axisbelow": True, "lines.linewidth": 1.6,
    "legend.frameon": False, "pdf.fonttype": 42, "ps.fonttype": 42, "path.simplify": False, "text.usetex": False,
}  # fmt: skip


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of one method: two of the three suffice to tell it apart."""

    colour: str
    marker: str
    line: str = "-"


LOOKS: Mapping[str, Look] = {
    "warm_start": Look(GREY, "X"), "immediate": Look(GREY, "p"), "static": Look(PURPLE, "P"),
    "grpo": Look(ORANGE, "s", "--"), "utility_grpo": Look(GREEN, "^", "-."), "cdpr": Look(BLUE, "o", "-"),
    "without_selection": Look(PURPLE, "H", ":"), "without_cache": Look(VERMILION, "d", (0, (5, 1))),  # type: ignore[arg-type]
    "cdpr_step": Look(SKY, "$S$", "--"), "vineppo": Look(PURPLE, "$V$", ":"), "gigpo": Look(VERMILION, "$G$", "-."),
    # As their twins, hollow.
    "grpo_verl": Look(VERMILION, "$\u25a1$", ":"), "cdpr_verl": Look(SKY, "$\u25cb$", (0, (5, 1))),  # type: ignore[arg-type]
    "all_actions": Look(BLACK, "$A$", "-"),
    "zero_test": Look(BLACK, "v"),
    "random": Look(BLACK, "D"), "cheapest_first": Look(BLACK, "<"), "all_tests": Look(BLACK, ">"),
    "value_of_information": Look(BLACK, "*"),
}  # fmt: skip
_SPARE = (Look(VERMILION, "d", ":"), Look(SKY, "h", (0, (5, 1))), Look(YELLOW, "p", (0, (3, 1, 1, 1))))  # type: ignore[arg-type]


def look_of(name: str, position: int = 0) -> Look:
    """The look of a method; one without its own takes the spare look of its ``position``."""
    return LOOKS.get(name) or _SPARE[position % len(_SPARE)]


@contextmanager
def drawing() -> Iterator[None]:
    """Draw without a display, with this module's parameters and nobody's matplotlibrc."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_PARAMETERS)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches that lays itself out, drawn by Agg (no window, no global state)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def mark_tier(figure: Figure, settings: Settings, notes: str = "") -> None:
    """Say in the lower corners where the cases come from, in what unit costs enter the utility, and ``notes``."""
    unit = f"{settings.utility.cost_unit_usd:g}"
    figure.get_layout_engine().set(rect=(0, 0.045, 1, 0.955))
    small = {"fontsize": 6.5, "color": GREY, "va": "bottom"}
    figure.text(0.995, 0.004, f"{tier_mark(settings)}; cost unit: USD {unit}", ha="right", **small)
    figure.text(0.005, 0.004, notes, ha="left", **small)


def save(figure: Figure, stem: str | Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.pdf`` (fonts embedded); neither holds a date or a program version."""
    metadata = {
        "png": {"Software": "cdpr"},
        "pdf": {"Creator": "cdpr", "Producer": "cdpr", "CreationDate": None},
    }
    written = []
    for kind, entries in metadata.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=entries)
        written.append(write_bytes(with_suffix(stem, f".{kind}"), buffer.getvalue()))
    return written
