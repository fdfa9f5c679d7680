"""Writes all raw files of the synthetic hospital."""

import itertools
import pkgutil
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ..job import Job
from ..settings import DATASETS, HospitalSettings, Settings
from .model import Hospital, load_hospital

_THREADS = 2  # processes that write; the job has as many cores (rules/data.smk)
WRITTEN = tuple(name for name, entry in DATASETS.items() if entry.writer)  # data sets that the hospital can write
Writer = Callable[[Hospital, str, Path, int, int], None]
"""A function that writes the files of a data set. Its arguments: the model of the hospital, the name of the data set,
the folder, the number of patients or cases, the seed."""


def make_hospital(settings: Settings, job: Job) -> None:
    """Stage ``make_hospital``: write the raw files of each data set in ``job.out`` to its folder there, in parallel.
    The job's metrics are the sizes in bytes."""
    with ProcessPoolExecutor(_THREADS) as pool:
        # ``list`` waits for all, and raises their errors.
        list(pool.map(_write_dataset, itertools.repeat(settings.hospital), job.out, job.out.values()))
    for dataset, folder in job.out.items():
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        job.metrics[f"bytes/{dataset}"] = size
        print(f"{dataset}: {size / 1e6:.1f} MB of raw files")


def write_hospital(settings: HospitalSettings, out_dir: str | Path, datasets: Iterable[str] = WRITTEN) -> None:
    """Write the raw files of each of the ``datasets`` to the folder ``OUT_DIR/DATASET``. The default is all data sets
    that the synthetic hospital has."""
    for dataset in datasets:
        _write_dataset(settings, dataset, Path(out_dir) / dataset)


def _write_dataset(settings: HospitalSettings, dataset: str, folder: Path) -> None:
    """Write the raw files of one data set to a folder. The settings give the number of cases and the seed."""
    entry = DATASETS[dataset]  # names the function that writes the data set, and the setting with its size
    write: Writer = pkgutil.resolve_name(entry.writer)
    write(load_hospital(), dataset, folder, getattr(settings, entry.size), settings.seed)
