"""The import of a data set, the same for all: read it, split it by patient, count."""

import pkgutil
import tempfile
from pathlib import Path

from ..cases import CaseRecord, write_records
from ..cases.record import split_by_subject
from ..files import file_type, write_csv
from ..job import Job
from ..settings import DATASETS, Settings
from .attrition import Attrition, Incident
from .draft import Import, Importer
from .flat_files import NOT_PERMITTED, IngestError

SPLITS = ("train", "validation", "test")
SPLIT_SEED = 0  # the same for every seed of training, so that all runs have the same split


def ingest_dataset(settings: Settings, job: Job) -> None:
    """Stage ``ingest_dataset``: import the raw files of one data set. Writes the case records, a report with the
    counts, and ``findings``, the list of dropped cases and leaks. Raises IngestError for raw data that cannot be
    used."""
    dataset = job.options["dataset"]
    if "raw" not in job.inputs:
        remedy = "name the raw files: --input raw=PATH, or set the path and run snakemake, which names them"
        raise IngestError(f"data.{dataset}.path", "the data set has no files", remedy)
    records, attrition = ingest(dataset, settings, job.inputs["raw"], job.state)
    write_records(job.out["records"], records)
    write_csv(job.out["findings"], Incident._fields, attrition.rows())
    attrition.conclude(job)
    job.metrics.update({f"dropped/{rule}": len(cases) for rule, cases in attrition.dropped.items()})


def ingest(
    dataset: str, settings: Settings, raw: str | Path, state: Path | None = None
) -> tuple[list[CaseRecord], Attrition]:
    """Import a data set from its raw file or folder ``raw``. Returns the case records, ordered by ``note_id``, and the
    counts of what was dropped.

    Cases of the training domain are split by patient; the test set is drawn first, so that it does not change with the
    size of the others. Textbook cases, for lessons, are all training cases; cases of other data sets are all test
    cases. ``state`` is a folder for unfinished work; by default a temporary one.

    Raises IngestError for raw data that cannot be used, and where the synthetic hospital has fewer cases than the
    settings request. Real data with too few cases is split in the same proportions, with a warning. Raises ValueError
    for an unknown data set.
    """
    if dataset not in DATASETS:
        raise ValueError(f"unknown data set {dataset!r}; known: {', '.join(DATASETS)}")
    if state is None:
        with tempfile.TemporaryDirectory(prefix="cdpr-ingest-") as folder:
            return ingest(dataset, settings, raw, Path(folder))
    source, path, attrition = settings.data.source(dataset), Path(raw), Attrition(dataset)
    if not file_type(path):
        raise IngestError(path, "no such file or folder", f"set data.{dataset}.path, or make the synthetic files first")
    # Found by its name, not imported: the code of one importer does not enter the run keys of other data sets.
    importer: Importer = pkgutil.resolve_name(DATASETS[dataset].importer)
    work = Import(source.credentialed, settings.data.leaks, attrition, path, state)
    try:
        records = sorted(importer(source, work), key=lambda record: record.note_id)
    except PermissionError as error:
        raise IngestError(str(error.filename), *NOT_PERMITTED) from None
    except IngestError as error:
        raise (error.without_text() if source.credentialed else error) from None
    # Report what was dropped, then split.
    attrition.warn_of_frequent_rules()
    if not records:
        dropped = ", ".join(f"{len(cases)} ({rule})" for rule, cases in attrition.dropped.items())
        remedy = "; ".join([f"see what was dropped: {dropped or 'nothing'}", *attrition.warnings])
        raise IngestError(path, f"no usable case among {attrition.read}", remedy)
    if DATASETS[dataset].role == "in_domain":
        records = _divide_cases(records, settings, path, attrition)
    elif DATASETS[dataset].role == "lessons":
        records = [record.model_copy(update={"split": "train"}) for record in records]
    attrition.kept = len(records)
    attrition.splits = {name: sum(record.split == name for record in records) for name in SPLITS}
    return records, attrition


def _divide_cases(records: list[CaseRecord], settings: Settings, path: Path, attrition: Attrition) -> list[CaseRecord]:
    """Assign the records to splits by patient; returns them. The settings say how many cases each split has: records
    beyond these are dropped, and too few real cases are divided in the same proportions. Raises IngestError where the
    synthetic hospital has too few cases."""
    data, dataset = settings.data, attrition.dataset
    sizes = {"test": data.test_cases, "validation": data.validation_cases, "train": data.train_cases}
    requested, usable = sum(sizes.values()), len(records)
    is_synthetic = data.source(dataset).path is None
    # Too few real cases: every split gets its share of them.
    if usable < requested and not is_synthetic:
        sizes = {name: round(size * usable / requested) for name, size in sizes.items()}
        expected = ", ".join(f"about {size} {name}" for name, size in sizes.items())
        warning = f"{usable} usable cases where {requested} are asked for: split in proportion ({expected})"
        attrition.warnings.append(warning)
        sizes["train"] = usable  # never reached: training gets whatever the rounded sizes of the others leave
    split_of = split_by_subject([record.subject_key for record in records], sizes, SPLIT_SEED)
    # A patient without a split is beyond the sizes.
    for record in records:
        if record.subject_key not in split_of:
            attrition.drop("beyond the number of cases asked for", record.note_id)
    records = [record for record in records if record.subject_key in split_of]
    divided = [record.model_copy(update={"split": split_of[record.subject_key]}) for record in records]
    splits = [record.split for record in divided]
    if is_synthetic and splits.count("train") < data.train_cases:
        requested_sizes = ", ".join(f"{size} {name}" for name, size in sizes.items())
        problem = f"{usable} usable cases do not fill the splits asked for ({requested_sizes})"
        raise IngestError(path, problem, f"raise hospital.{DATASETS[dataset].size} or lower data.train_cases")
    # The cases of a patient stay together, so one split may take all of them.
    cases = f"{len(divided)} usable cases of {len({record.subject_key for record in divided})} patients"
    for name in SPLITS:
        if getattr(data, f"{name}_cases") and name not in splits:
            attrition.warn(f"no case is left for the split {name!r}: {cases}")
    return divided
