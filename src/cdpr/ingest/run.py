"""One entry for all data sets: read, split by patient, report."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..cases import CaseRecord, split_by_subject
from ..settings import Settings
from ..settings.data import Data
from .agentclinic import read_agentclinic
from .clinicalbench import read_clinicalbench
from .draft import Finish, finish
from .funnel import Funnel, IngestError
from .mimic_iv import Improve, read_mimic_iv
from .private import read_private

IMPORTERS: dict[str, Callable[[Any, Path, Finish, Funnel], Iterator[CaseRecord]]] = {
    "mimic_iv": read_mimic_iv,
    "clinicalbench": read_clinicalbench,
    "private": read_private,
    "agentclinic": read_agentclinic,
}


def ingest(
    dataset: str,
    settings: Settings,
    raw: str | Path,
    processes: int = 1,
    improve: Improve | None = None,
    scratch: Path | None = None,
) -> tuple[list[CaseRecord], Funnel]:
    """Records of a data set with their splits, ordered by ``note_id``, and the funnel.

    MIMIC-IV is split by patient; the test set is drawn first, so that it does not change with the size of the
    others. The other data sets are benchmarks: all cases are test cases. Raises IngestError for raw data that
    cannot be trusted, and when the synthetic hospital has fewer cases than the settings ask for; real data that
    falls short is split in the same proportions, with a warning in the funnel.

    ``processes`` read notes of MIMIC-IV side by side; more than one needs a main module that may be imported again.
    ``improve`` helps with those in free form (see :mod:`cdpr.ingest.structurer`); ``scratch`` is where linked tables
    lie meanwhile (left out: under ``TMPDIR``).
    """
    if dataset not in IMPORTERS:
        raise ValueError(f"unknown data set {dataset!r}; known: {', '.join(IMPORTERS)}")
    source, path, funnel = getattr(settings.data, dataset), Path(raw), Funnel(dataset)
    if not path.exists():
        raise IngestError(path, "no such file or folder", f"set data.{dataset}.path, or make the synthetic files first")
    importer = IMPORTERS[dataset]
    if dataset == "mimic_iv":
        importer = functools.partial(importer, processes=processes, improve=improve, scratch=scratch)
    complete = functools.partial(finish, dataset=dataset, credentialed=source.credentialed, leaks=settings.data.leaks)
    try:
        records = sorted(importer(source, path, complete, funnel), key=lambda record: record.note_id)
    except IngestError as error:
        raise (error.without_text() if source.credentialed else error) from None
    if not records:
        dropped = ", ".join(f"{len(ids)} ({rule})" for rule, ids in funnel.dropped.items())
        raise IngestError(path, f"no usable case among {funnel.read}", f"see what was dropped: {dropped or 'nothing'}")
    if dataset == "mimic_iv":
        records = _split(records, settings, path, funnel)
    funnel.kept = len(records)
    for name in ("train", "validation", "test"):
        funnel.splits[name] = sum(record.split == name for record in records)
    return records, funnel


def _split(records: list[CaseRecord], settings: Settings, path: Path, funnel: Funnel) -> list[CaseRecord]:
    data = settings.data
    sizes = {"test": data.test_cases, "validation": data.validation_cases, "train": data.train_cases}
    wanted, there = sum(sizes.values()), len(records)
    synthetic = data.mimic_iv.path is None
    if there < wanted and not synthetic:
        sizes = {name: round(size * there / wanted) for name, size in sizes.items()}
        told = ", ".join(f"about {size} {name}" for name, size in sizes.items())
        funnel.warnings.append(f"{there} usable cases where {wanted} are asked for: split in proportion ({told})")
        sizes["train"] = there  # what rounding leaves over
    split = split_by_subject([record.subject_key for record in records], sizes, data.split_seed)
    if synthetic:
        train = sum(split.get(record.subject_key) == "train" for record in records)
        _check_sizes(there, data, path, train)
    kept = []
    for record in records:
        if record.subject_key in split:
            kept.append(record.model_copy(update={"split": split[record.subject_key]}))
        else:
            funnel.drop("beyond the number of cases asked for", record.note_id)
    return kept


def _check_sizes(there: int, data: Data, path: Path, train: int) -> None:
    """Raise IngestError when the synthetic hospital cannot fill the splits."""
    asked = f"{data.test_cases} test, {data.validation_cases} validation, {data.train_cases} train"
    if train < data.train_cases:
        raise IngestError(path, f"{there} usable cases do not fill the splits asked for ({asked})",
                          "raise hospital.mimic_patients or lower data.train_cases")  # fmt: skip
