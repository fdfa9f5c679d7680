"""All raw files of the synthetic hospital."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..settings.schema import HospitalSettings
from .model import load_hospital

DATASETS = ("mimic_iv", "clinicalbench", "private")


def write_hospital(settings: HospitalSettings, out_dir: str | Path, datasets: Iterable[str] = DATASETS) -> None:
    """Write ``mimic_iv/{hosp,note}/*.csv.gz``, ``clinicalbench/clinicalbench.json`` and
    ``private/{cases,results}.csv`` below ``out_dir``, or only some of them. Raises ValueError for another name."""
    from .write_clinicalbench import write_clinicalbench
    from .write_mimic import write_mimic
    from .write_private import write_private

    hospital, out = load_hospital(), Path(out_dir)
    for dataset in datasets:
        if dataset == "mimic_iv":
            write_mimic(hospital, out / dataset, settings.mimic_patients, settings.seed)
        elif dataset == "clinicalbench":
            write_clinicalbench(hospital, out / dataset, settings.clinicalbench_cases, settings.seed)
        elif dataset == "private":
            write_private(hospital, out / dataset, settings.private_cases, settings.seed)
        else:
            raise ValueError(f"data set {dataset!r}: the hospital writes {', '.join(DATASETS)}")
