"""All raw files of the synthetic hospital."""

from __future__ import annotations

import functools
import os
import pkgutil
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ..job import Job
from ..settings import Settings
from ..settings.datasets import DATASETS
from ..settings.schema import HospitalSettings
from .model import Hospital, load_hospital

WRITTEN = tuple(name for name, entry in DATASETS.items() if entry.writer)
# The model, the folder to write to, how many patients or cases, the seed.
Writer = Callable[[Hospital, Path, int, int], None]


def make_hospital(settings: Settings, job: Job) -> None:
    """Write the raw files of each data set that is asked for, in its native format, on all cores of the job."""
    writing = functools.partial(_write_one, settings.hospital)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(writing, job.out.values(), job.out))
    for dataset, folder in job.out.items():
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        job.metrics[f"bytes/{dataset}"] = size
        print(f"{dataset}: {size / 1e6:.1f} MB of raw files")


def _write_one(settings: HospitalSettings, folder: Path, dataset: str) -> None:
    write_hospital(settings, folder.parent, [dataset])


def write_hospital(settings: HospitalSettings, out_dir: str | Path, datasets: Iterable[str] = WRITTEN) -> None:
    """Write a folder of each data set below ``out_dir``. Raises ValueError for one that the hospital does not write."""
    for dataset in datasets:
        if dataset not in WRITTEN:
            raise ValueError(f"data set {dataset!r}: the hospital writes {', '.join(WRITTEN)}")
        entry = DATASETS[dataset]
        write: Writer = pkgutil.resolve_name(entry.writer)
        write(load_hospital(), Path(out_dir) / dataset, getattr(settings, entry.size), settings.seed)
