"""The check before training as a table: how much there is to learn, and whether the experiment could show a
difference."""

from pathlib import Path

from ..evaluation import preflight
from ..settings import Settings
from . import layout
from .methods import DATASETS, backbone, domain
from .table import Row, Sheet


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return the tables made from ``preflight.json`` in ``folder``, the results folder. They have a row per data set
    and decoding. The CSV has fractions, US dollars and units of utility."""
    checked = preflight.Preflight.model_validate_json((folder / "preflight.json").read_bytes())
    resolutions = {resolution.dataset: resolution for resolution in checked.resolutions}
    rows = [_row(headroom, resolutions[headroom.dataset]) for headroom in checked.headrooms]
    # The first table, with the answer, has the main decoding alone; the second, with the numbers behind it, has all.
    first_decoding = checked.headrooms[0].decoding
    obstacles = [f"{text}." for of_dataset in checked.obstacles.values() for text in of_dataset]
    answer = layout.table(
        settings, "headroom.answer", [row for row in rows if row["decoding"] == first_decoding],
        first=first_decoding, verdict=preflight.verdict(checked), start=preflight.starting_utility(checked),
        share=preflight.CASE_SHARE, sd=preflight.SEED_SD, obstacles=obstacles,
    )  # fmt: skip
    gain = layout.table(
        settings, "headroom.gain", rows, backbone=backbone(settings), reading_aim=100 * preflight.READING_AIM,
        gain_aim=100 * preflight.GAIN_AIM, ratio_aim=preflight.COST_TO_TEST_AIM,
        paper_ratio=preflight.PAPER_COST_TO_TEST, weaknesses=[f"{text}." for text in checked.weaknesses],
        unavailable=[f"{DATASETS[dataset]}: not available: {why}." for dataset, why in checked.unavailable.items()],
    )  # fmt: skip
    return layout.declared_sheet(settings, "headroom", [answer, gain], rows)


def _row(headroom: preflight.Headroom, resolution: preflight.Resolution) -> Row:
    """Return what there is to learn on a data set with a decoding (``headroom``) as a row, with the smallest
    differences that its number of cases can show (``resolution``)."""
    label = DATASETS[headroom.dataset]
    # Properties, which `model_dump` leaves out.
    gains = {name: getattr(headroom, name) for name in ("reading", "choice", "gain", "choice_utility")}
    return headroom.model_dump() | gains | {
        "seeds": resolution.seeds, "least_accuracy": resolution.accuracy, "least_utility": resolution.utility,
        "dataset_text": label, "heading": f"{label} ({domain(headroom.dataset)})",
    }  # fmt: skip
