"""The check before training as a table: how much there is to learn, and whether the experiment could show a
difference."""

import json
from pathlib import Path

from ..evaluation import preflight
from ..settings import Settings
from . import layout
from .methods import DATASETS, backbone, domain
from .table import Row, Sheet


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return the tables made from ``preflight.json`` in ``folder``, the results folder. They have a row per data set
    and decoding. The CSV has fractions, US dollars and units of utility."""
    checked = json.loads((folder / "preflight.json").read_bytes())
    rows: list[Row] = []
    for row in checked["rows"]:
        label = DATASETS[row["dataset"]]
        rows.append(row | {"dataset_text": label, "heading": f"{label} ({domain(row['dataset'])})"})
    # The first table, with the answer, has the main decoding alone; the second, with the numbers behind it, has all.
    first_decoding = rows[0]["decoding"]
    obstacles = [f"{text}." for of_dataset in checked["obstacles"].values() for text in of_dataset]
    answer = layout.table(
        settings, "headroom.answer", [row for row in rows if row["decoding"] == first_decoding],
        first=first_decoding, verdict=checked["verdict"], start=checked["start"],
        share=preflight.CASE_SHARE, sd=preflight.SEED_SD, obstacles=obstacles,
    )  # fmt: skip
    gain = layout.table(
        settings, "headroom.gain", rows, backbone=backbone(settings), reading_aim=100 * preflight.READING_AIM,
        gain_aim=100 * preflight.GAIN_AIM, ratio_aim=preflight.COST_TO_TEST_AIM,
        paper_ratio=preflight.PAPER_COST_TO_TEST, weaknesses=[f"{text}." for text in checked["weaknesses"]],
        unavailable=[f"{DATASETS[dataset]}: not available: {why}." for dataset, why in checked["unavailable"].items()],
    )  # fmt: skip
    return layout.declared_sheet(settings, "headroom", [answer, gain], rows)
