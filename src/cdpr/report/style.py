"""How figures look: colours for every reader, marks for print, the same bytes every time."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, TypeAlias

from .. import escape
from ..files import write_bytes
from ..settings import AgentEntry, Look, Settings
from ..settings.experiments import Variant
from .methods import DATASETS, IN_DOMAIN, domain, synthetic, tier_mark
from .table import Row

# Matplotlib takes long to import, and most jobs draw nothing.
Axes: TypeAlias = Any
Figure: TypeAlias = Any
SubFigure: TypeAlias = Any
Bbox: TypeAlias = Any

# Okabe and Ito's palette: eight colours that remain distinct with any colour vision.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#6b6b6b"

# What every figure is drawn with.
PARAMETERS = Path(__file__).with_name("matplotlibrc.txt")

# For what the registries give no look: colours of Tol's muted palette, which no shipped row has.
_SPARE = tuple(Look.model_validate({"colour": colour, "marker": marker, "line": line}) for colour, marker, line in zip(
    ("#332288", "#882255", "#999933", YELLOW, "#AA4499", "#117733", "#DDCC77", "#CC6677"), "dhpHDX8*",
    ((0, (5, 1)), ":", (0, (3, 1, 1, 1)), "-.") * 2, strict=True))  # fmt: skip


def look_of(settings: Settings, name: str, position: int = 0) -> Look:
    """Return the look of an agent or variant in its registry. One without takes a spare look whose colour no other row
    has, as long as there are any: shown variants first; what is in no registry takes that of its ``position``."""
    variants = settings.experiments.variants
    rows: dict[str, AgentEntry | Variant] = {**settings.agents, **variants}
    if (entry := rows.get(name)) and entry.look:
        return entry.look
    used = {row.look.colour.lower() for row in rows.values() if row.look}
    spare = [look for look in _SPARE if look.colour.lower() not in used] or list(_SPARE)
    without = sorted((row for row in rows if not rows[row].look),
                     key=lambda row: row not in variants or set(variants[row].feeds) <= {"ablations"})  # fmt: skip
    return spare[(without.index(name) if name in without else position) % len(spare)]


@contextmanager
def drawing(width: float, height: float, out: Mapping[str, Path]) -> Iterator[Figure]:
    """Open an empty figure of so many inches that lays itself out; it is saved as ``png`` and ``pdf`` at the end. Drawn
    by Agg (no window, no global state), with this module's parameters alone, whatever matplotlibrc there is."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(fname=PARAMETERS):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        save(figure, out)


def cases_of(settings: Settings, dataset: str, rows: Iterable[Row] = (), gap: str = "\n") -> str:
    """Make the title of a panel, ``MIMIC-IV, synthetic`` and below it ``(in-domain, N = 1000)``."""
    cases = max((row["n"] for row in rows), default=0)
    return (f"{DATASETS[dataset]}{made_up(settings, dataset)}{gap}"
            f"({domain(dataset)}{f', N = {cases}' if cases else ''})")  # fmt: skip


def made_up(settings: Settings, dataset: str = IN_DOMAIN) -> str:
    """Return what the title of a panel adds where its cases are synthetic."""
    return ", synthetic" if synthetic(settings, dataset) else ""


def mark_tier(figure: Figure, settings: Settings, notes: str = "") -> None:
    """Say in the lower corners where the cases come from, in what unit costs enter the utility, and ``notes``."""
    figure.get_layout_engine().set(rect=(0, 0.045, 1, 0.955))
    corners(figure, f"{tier_mark(settings)}; cost unit: USD {settings.utility.cost_unit_usd:g}", notes)


def corners(figure: Figure, right: str, left: str) -> None:
    """Write small texts in the lower corners."""
    small = {"fontsize": 6.5, "color": GREY, "va": "bottom"}
    figure.text(0.995, 0.004, right, ha="right", **small)
    figure.text(0.005, 0.004, left, ha="left", **small)


def save(figure: Figure, out: Mapping[str, Path]) -> None:
    """Write ``png`` and ``pdf`` (fonts embedded) to their paths; neither holds a date or a program version. Both have
    the layout that the first drawing found."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text("\n".join(map(escape.figure, text.get_text().split("\n"))))
    pdf = {"Creator": "cdpr", "Producer": "cdpr", "CreationDate": None}
    for kind, metadata in (("png", {"Software": "cdpr"}), ("pdf", pdf)):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata)
        write_bytes(out[kind], buffer.getvalue())
        figure.set_layout_engine("none")


def empty(panel: Axes, text: str) -> None:
    """Say in a panel why it shows nothing."""
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", color=GREY)


def foot(figure: Figure, settings: Settings, lines: Iterable[str]) -> None:
    """Mark the tier and set notes below a figure, a line each (empty ones are left out), with room for all."""
    notes = [line for line in lines if line]
    mark_tier(figure, settings, "\n".join(notes))
    inches, height = 0.1 + 0.125 * max(1, len(notes)), figure.get_figheight()
    figure.set_figheight(height + max(0.0, inches - height / 3))  # many notes take no room from the panels
    room = inches / figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, room, 1, 1 - room))


def folded(notes: Iterable[str]) -> list[str]:
    """Wrap notes to lines that a figure has room for."""
    return [line for note in notes for line in wrap(note, 140)]


def missing_note(names: Sequence[str]) -> str:
    """Write a line that names what is missing; empty where nothing is."""
    items = [*names[:4], f"{len(names) - 4} more"] if len(names) > 5 else names
    return f"missing: {', '.join(items)}" if names else ""
