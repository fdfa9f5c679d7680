"""The preflight as a table: what there is to learn, and whether it could be seen."""

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
from ..settings import Settings
from . import comparisons, layout
from .methods import DATASETS, backbone, domain
from .table import Row, Sheet


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make the table of the results in a folder; as plain numbers fractions, US dollars and units of utility."""
    preflight = _read(folder / "preflight.json")
    rows = [_figures(headroom, resolution) for headroom in preflight.headrooms for resolution in preflight.resolutions
            if headroom.dataset == resolution.dataset]  # fmt: skip
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


def _read(path: Path) -> Preflight:
    return Preflight.model_validate_json(path.read_bytes())


def _figures(headroom: Headroom, resolution: Resolution) -> Row:
    """Make the row of a data set and decoding: its headroom, the figures derived from it, and the smallest differences
    that its cases can detect."""
    label = DATASETS[headroom.dataset]
    derived = {name: getattr(headroom, name) for name in ("reading", "choice", "gain", "choice_utility")}
    derived |= {"seeds": resolution.seeds, "least_accuracy": resolution.accuracy, "least_utility": resolution.utility}
    derived |= {"dataset_text": label, "heading": f"{label} ({domain(headroom.dataset)})"}
    return headroom.model_dump() | derived
