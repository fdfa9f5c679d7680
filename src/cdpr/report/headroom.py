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
from ..settings import Settings
from . import comparisons, layout, style
from .methods import DATASETS, backbone, domain
from .table import Row, Sheet

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
    first = preflight.headrooms[0].decoding
    answer = layout.part(
        settings, "headroom.answer", [row for row in rows if row["decoding"] == first], first=first,
        verdict=verdict(preflight), start=starting_utility(preflight), share=CASE_SHARE, sd=SEED_SD,
        obstacles=[f"{text}." for of_dataset in preflight.obstacles.values() for text in of_dataset],
    )  # fmt: skip
    gain = layout.part(
        settings, "headroom.gain", rows, backbone=backbone(settings), reading_aim=100 * READING_AIM,
        gain_aim=100 * GAIN_AIM, ratio_aim=COST_TO_TEST_AIM, paper_ratio=PAPER_COST_TO_TEST,
        weaknesses=[f"{text}." for text in preflight.weaknesses],
        unavailable=[f"{DATASETS[dataset]}: not available: {why}." for dataset, why in preflight.unavailable.items()],
    )  # fmt: skip
    return layout.declared_sheet(settings, "headroom", [answer, gain], rows)


write_headroom = comparisons.writer(sheet)


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
            panel.set_title(style.cases_of(settings, least.dataset, [{"n": least.cases}]))
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


def _figures(at: Headroom, least: Resolution) -> Row:
    derived = {name: getattr(at, name) for name in ("reading", "choice", "gain", "choice_utility")}
    derived |= {"seeds": least.seeds, "least_accuracy": least.accuracy, "least_utility": least.utility}
    derived |= {"dataset_text": (label := DATASETS[at.dataset]), "heading": f"{label} ({domain(at.dataset)})"}
    return at.model_dump() | derived
