"""Stage ``control_leaks``: the leak-controlled variant of a benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ..cases import CaseRecord, RecordError, iterate_records, write_records
from ..files import write_text
from ..ingest.controlled import controlled
from ..ingest.funnel import Funnel
from ..job import Job
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the controlled test cases and the report of what was taken out, in numbers."""
    funnel = Funnel(job.options["dataset"])
    funnel.splits = {"test": write_records(job.out["controlled"], _cleared(job.inputs["cases"], funnel))}
    report = funnel.report()
    write_text(job.out["report"], json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    job.metrics.update(read=funnel.read, kept=funnel.kept)
    shown = "".join(f"\n  {row['leak']}: {row['action']} in {row['cases']}" for row in report["leaks"])
    print(f"{funnel.dataset}, leak-controlled: kept {funnel.kept} of {funnel.read} test cases{shown}")


def _cleared(path: Path, funnel: Funnel) -> Iterator[CaseRecord]:
    for line, record in enumerate(iterate_records(path), 1):
        try:
            case = controlled(record, funnel) if record.split == "test" else None
        except RecordError as error:
            raise RecordError(f"{path}:{line}: {error}") from None
        if case is not None:
            yield case
