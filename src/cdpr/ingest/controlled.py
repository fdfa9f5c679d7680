"""The leak-controlled variant of a benchmark: the same cases without whatever gives the diagnosis away."""

import re
from collections.abc import Iterator
from pathlib import Path

from ..cases import SECTIONS, CaseRecord, RecordError, iterate_records, write_records
from ..job import Job
from ..settings import Settings
from .attrition import Attrition
from .draft import tells_something
from .leaks import STRICT, control
from .summary import build_summary

_BULLET = re.compile(rf"- ({'|'.join(SECTIONS)}): (.*)")


def remove_leaks(settings: Settings, job: Job) -> None:
    """Write the leak-controlled test cases of a benchmark, and the report of what was taken out, in numbers."""
    attrition = Attrition(job.options["dataset"])
    attrition.splits = {"test": write_records(job.out["controlled"], _test_cases(job.inputs["cases"], attrition))}
    attrition.conclude(job)


def _test_cases(path: Path, attrition: Attrition) -> Iterator[CaseRecord]:
    for line, record in enumerate(iterate_records(path), 1):
        try:
            case = controlled(record, attrition) if record.split == "test" else None
        except RecordError as error:
            raise RecordError(f"{path}:{line}: {error}") from None
        if case is not None:
            yield case


def parse_summary(summary: str) -> dict[str, str]:
    """Text by section; the inverse of :func:`cdpr.ingest.summary.build_summary`.

    Raises RecordError for a line that is no ``- Section: text``; the message does not quote it.
    """
    sections: dict[str, str] = {}
    for number, line in enumerate(summary.split("\n"), 1):
        match = _BULLET.fullmatch(line)
        if match is None or match[1] in sections:
            raise RecordError(f"field 'case_summary': line {number} is not '- Section: text', each section once; "
                              "ingest the data set again")  # fmt: skip
        sections[match[1]] = match[2]
    return sections


def controlled(record: CaseRecord, attrition: Attrition) -> CaseRecord | None:
    """The record under the strictest leak control, or None when no examination, or neither complaint nor present
    illness, is left of it (counted in ``attrition``).

    What remains keeps its price, that of its whole billing group included: benchmark and variant differ in what they
    tell, not in what it costs. Raises RecordError for a summary that is not in the unified format.
    """
    attrition.read += 1
    results = record.key_pertinent_results_dict
    cleared = control(
        record.note_id, record.diagnosis_results, parse_summary(record.case_summary), results, STRICT, attrition
    )
    history, results = cleared or ({}, {})
    if not tells_something(history):
        return attrition.drop("no complaint and no present illness", record.note_id)
    if not results:
        return attrition.drop("no examination", record.note_id)
    attrition.kept += 1
    return record.model_copy(update={
        "case_summary": build_summary(history),
        "key_pertinent_results_dict": results,
        "exam_cost_map": {exam: usd for exam, usd in record.exam_cost_map.items() if exam in results},
        "exam_billing_group": {exam: group for exam, group in record.exam_billing_group.items() if exam in results},
    })  # fmt: skip
