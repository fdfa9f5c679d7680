"""What there is to learn and whether it could be seen: the preflight as a table and as a figure."""

from pathlib import Path

from ..evaluation.preflight import (
    CASE_SHARE,
    COST_TO_TEST_AIM,
    GAIN_AIM,
    PAPER_COST_TO_TEST,
    READING_AIM,
    SEED_SD,
    Headroom,
    Preflight,
    Resolution,
    starting_utility,
    verdict,
)
from ..job import Job
from ..results import frame
from ..results.methods import DATASETS, backbone, domain, tier_mark
from ..results.table import Column, Row, Sheet, Table
from ..settings import Settings
from . import style

_GAIN = (
    Column("decoding", "Decoding", align="l"),
    *(Column(name, header, "Accuracy (%)", 1, factor=100.0) for name, header in (
        ("immediate", "immediate diagnosis"), ("accuracy", "before training"),
        ("exact", "exact posterior, same evidence"), ("best_choice", "value of information, equal spend"))),
    *(Column(name, header, "Points", 1, factor=100.0) for name, header in (
        ("reading", "reading errors"), ("choice", "best choice"), ("gain", "both"))),
    Column("aen", "AEN"), Column("aec", "AEC (USD)"), Column("best_aec", "AEC, value of information (USD)"),
    Column("cost_to_test", "Cost term / test term"),
)  # fmt: skip
_SHOWN = (
    frame.DATA_SET, Column("cases", "N"), Column("seeds", "Seeds"),
    Column("least_accuracy", "smallest shown", "Δ Acc. (points)", 1, factor=100.0),
    Column("choice", "best choice", "Δ Acc. (points)", 1, factor=100.0),
    Column("least_utility", "smallest shown", "Δ Utility", 3), Column("choice_utility", "best choice", "Δ Utility", 3),
    Column("accuracy", "before training", "Accuracy (%)", 1, factor=100.0),
    Column("chance", "chance", "Accuracy (%)", 1, factor=100.0),
    Column("at_once", "Diagnosed at once (%)", decimals=1, factor=100.0),
)  # fmt: skip
# Steps of the figure: from one accuracy to the next, label and colour.
_STEPS = (
    ("", "immediate", "diagnosed at once", style.GREY),
    ("immediate", "accuracy", "its own evidence, as it reads it", style.BLUE),
    ("accuracy", "exact", "read without errors", style.ORANGE),
    ("exact", "best_choice", "better chosen, equal spend", style.GREEN),
)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """The table of the results in a folder; as plain numbers fractions, US dollars and units of utility."""
    preflight = _read(folder / "preflight.json")
    rows = [_figures(at, least) for at in preflight.headrooms for least in preflight.resolutions
            if at.dataset == least.dataset]  # fmt: skip
    smallest, gain = _smallest_shown(settings, preflight, rows), _gain(settings, preflight, rows)
    parts = [("The answer", smallest), ("What there is to learn", gain)]
    keys = [*dict.fromkeys(["dataset", "decoding", "utility", *(column.key for column in (*_GAIN, *_SHOWN))])]
    return Sheet(f"Can this experiment answer its question? ({tier_mark(settings)})", parts, rows, keys, decimals=4)


write_headroom = frame.writer(sheet)


def plot_headroom(settings: Settings, job: Job) -> None:
    """Accuracy as steps, per benchmark and decoding: diagnosed at once, with the evidence that the policy gathers, read
    by the exact posterior, and ordered by value of information for no more money. A step to the left loses. Where the
    posterior is not known, the last two are missing. The bracket is the smallest difference that can be shown."""
    preflight = _read(job.inputs["preflight"])
    decodings = list(dict.fromkeys(at.decoding for at in preflight.headrooms))
    with style.drawing(7.2, 1.1 + 0.95 * len(decodings), job.out) as figure:
        grid = figure.subplots(1, len(preflight.resolutions), sharex=True, sharey=True, squeeze=False)
        for panel, least in zip(grid[0], preflight.resolutions, strict=True):
            for place, at in enumerate(at for at in preflight.headrooms if at.dataset == least.dataset):
                _draw_steps(panel, at, least, place)
            panel.set_title(f"{DATASETS[least.dataset]} ({domain(least.dataset)}, N = {least.cases})")
            panel.set_xlabel("accuracy (%)")
            panel.grid(axis="y", visible=False)
        grid[0, 0].set_yticks([place + 0.3 for place in range(len(decodings))], decodings)
        grid[0, 0].set_ylim(len(decodings) - 0.05, -0.3)
        grid[0, 0].set_xlim(0, 100)
        handles = [grid[0, 0].barh(0, 0, color=colour, label=text) for *_, text, colour in _STEPS]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(_STEPS), fontsize=7, columnspacing=1.2)
        style.foot(figure, settings, [
            *(f"{DATASETS[dataset]}: {why}" for dataset, why in preflight.unavailable.items()),
            "bracket: the smallest difference in accuracy that the planned cases and seeds can show"
            if any(least.accuracy is not None for least in preflight.resolutions) else "",
        ])  # fmt: skip


def _draw_steps(panel: style.Axes, at: Headroom, least: Resolution, place: int) -> None:
    """The steps of one decoding below each other, and the bracket below the last of them."""
    for row, (start, end, _, colour) in enumerate(_STEPS):
        low, high = 0.0 if not start else getattr(at, start), getattr(at, end)
        if low is None or high is None:
            continue
        y = place + 0.2 * row
        panel.barh(y, 100 * (high - low), left=100 * low, height=0.17, color=colour)
        text = f"{'↓ ' if high < low else ''}{100 * high:.1f}"
        panel.text(100 * max(low, high) + 1.5, y, text, fontsize=6, va="center", color=style.GREY)
    if least.accuracy is None:
        return
    low, y = 100 * (at.accuracy if at.exact is None else at.exact), place + 0.72
    panel.plot([low, low + 100 * least.accuracy], [y, y], color=style.BLACK, linewidth=0.9, marker="|", markersize=4)


def _read(path: Path) -> Preflight:
    return Preflight.model_validate_json(path.read_bytes())


def _gain(settings: Settings, preflight: Preflight, rows: list[Row]) -> Table:
    """A row per data set and decoding, with missing parts listed in notes."""
    text = f"{backbone(settings)} before training ({tier_mark(settings)})."
    return Table(_GAIN, rows, text, [
        "Reading errors: accuracy of the exact posterior's diagnoses, on the evidence that the policy gathered, "
        f"above the policy's own; aim: at most {100 * READING_AIM:g} points.",
        "Best choice: accuracy of value of information above that of the exact posterior, at the policy's spend (AEC). "
        "Two policies choose by it, one at full charges and one at a quarter, and one orders nothing: the dearer works "
        "up as many cases as the money lasts for, a cheaper one the others. "
        f"Both: reading errors and best choice; aim: at least {100 * GAIN_AIM:g} points.",
        "Cost term / test term: what the utility charges for money over what it charges for examinations, at the "
        f"policy's own operating point; aim: at least {COST_TO_TEST_AIM:g}; the paper's: about {PAPER_COST_TO_TEST:g}.",
        *(f"{text}." for text in preflight.weaknesses),
        *(f"{DATASETS[dataset]}: not available: {why}." for dataset, why in preflight.unavailable.items()),
    ], "tab:headroom", by="heading")  # fmt: skip


def _smallest_shown(settings: Settings, preflight: Preflight, rows: list[Row]) -> Table:
    """A row per data set under the first decoding: gains against what can be shown; the verdict above it, and why."""
    first = preflight.headrooms[0].decoding
    rows = [row for row in rows if row["decoding"] == first]
    text = f"{verdict(preflight)} Figures: {first} decoding ({tier_mark(settings)}). {starting_utility(preflight)}"
    return Table(_SHOWN, rows, text, [
        *(f"{text}." for of_dataset in preflight.obstacles.values() for text in of_dataset),
        "Smallest shown: the true difference between two trained methods whose 95% interval in these tables excludes "
        "zero with 80% power; its SE² = v (k / N + (1 − k) / (N S)) + 2 s² / S, for N cases and S seeds. "
        "v, the variance of the difference between one run of each method on a case, is that between the greedy and "
        f"the sampled workups before training. Assumed are k = {CASE_SHARE:g}, the part of v that stays with the case "
        f"whatever the seed, and s = {SEED_SD:g}, the deviation between seeds of a method's mean.",
        "Best choice: what value of information gains over the policy beyond what reading errors cost, in accuracy at "
        "equal spend, in utility at its own. Chance: always naming the commonest diagnosis of the data set.",
    ], "tab:headroom_shown")  # fmt: skip


def _figures(at: Headroom, least: Resolution) -> Row:
    derived = {name: getattr(at, name) for name in ("reading", "choice", "gain", "choice_utility")}
    derived |= {"seeds": least.seeds, "least_accuracy": least.accuracy, "least_utility": least.utility}
    derived |= {"dataset_text": (label := DATASETS[at.dataset]), "heading": f"{label} ({domain(at.dataset)})"}
    return at.model_dump() | derived
