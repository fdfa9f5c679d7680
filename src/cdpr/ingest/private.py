"""A hospital's own export: ``cases.csv`` and ``results.csv`` (docs/reference/private-format.md) -> case records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..cases import PHYSICAL_SUFFIX, Analyte, CaseRecord, format_analytes
from ..settings.schema import Data, Source
from .flat_files import csv_rows
from .funnel import Funnel, IngestError
from .leaks import why_unusable
from .summary import build_summary, one_line, patient_information, says_something

CASE_COLUMNS = ("case_id", "patient_id", "age", "sex", "chief_complaint", "present_illness", "past_history",
                "personal_history", "family_history", "allergy_history", "discharge_diagnosis")  # fmt: skip
RESULT_COLUMNS = ("case_id", "sequence", "category", "examination", "item", "value", "unit", "reference_low",
                  "reference_high", "flag", "report")  # fmt: skip
CATEGORIES = ("lab", "culture", "imaging", "procedure", "physical")
_HISTORY = {
    "chief_complaint": "Chief Complaint",
    "present_illness": "History of Present Illness",
    "past_history": "Past Medical History",
    "personal_history": "Personal History",
    "family_history": "Family History",
    "allergy_history": "Allergy History",
}
_SEX = {"", "M", "F", "MALE", "FEMALE"}
_FLAGS = {"": "", "N": "", "H": "abnormal", "L": "abnormal", "A": "abnormal"}
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


@dataclass
class _Examination:
    """Rows of one examination of a case, in the order of their sequence numbers."""

    analytes: dict[str, Analyte] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)

    def text(self) -> str:
        parts = [format_analytes(self.analytes.values()), *dict.fromkeys(self.reports)]
        return "; ".join(part for part in parts if part)


def read_private(source: Source, data: Data, path: str | Path) -> tuple[list[CaseRecord], Funnel]:
    """Records of all usable cases, ordered by number. Raises IngestError."""
    folder, funnel = Path(path), Funnel("private")
    results = _read_results(folder / "results.csv", funnel)
    records: list[CaseRecord] = []
    seen: set[str] = set()
    cases = folder / "cases.csv"
    for line, row in csv_rows(cases, CASE_COLUMNS):
        funnel.read += 1
        number = row["case_id"]
        if not number or number in seen:
            problem = f"{number!r} stands twice" if number else "is empty"
            raise IngestError(cases, problem, "give every case a number of its own", line=line, field="case_id")
        seen.add(number)
        found = {key: text for key, exam in results.pop(number, {}).items() if (text := exam.text())}
        summary = _summary(cases, line, row)
        diagnosis = one_line(row["discharge_diagnosis"])
        told = row["chief_complaint"] or row["present_illness"]
        rule = why_unusable(diagnosis, summary, found, None if told else "no complaint and no present illness")
        if rule:
            funnel.drop(rule, number)
            continue
        records.append(_record(row, found, summary, diagnosis, source.credentialed))
    for number in results:
        funnel.count("results of unknown cases", len(results[number]))
    return sorted(records, key=lambda record: record.note_id), funnel


def _record(
    row: Mapping[str, str], found: dict[str, str], summary: str, diagnosis: str, credentialed: bool
) -> CaseRecord:
    return CaseRecord(
        note_id=row["case_id"],
        case_summary=summary,
        key_pertinent_results_dict=found,
        final_diagnosis=diagnosis,
        diagnosis_results=diagnosis,
        dataset="private",
        split="test",
        subject_key=row["patient_id"] or row["case_id"],
        credentialed=credentialed,
    )


def _summary(path: Path, line: int, row: Mapping[str, str]) -> str:
    age, sex = row["age"], row["sex"]
    if age and not (age.isdecimal() and int(age) < 130):
        raise IngestError(path, f"{age!r} is not an age in whole years", "correct it or leave it empty",
                          line=line, field="age")  # fmt: skip
    if sex.upper() not in _SEX:
        raise IngestError(path, f"{sex!r} is none of M, F, male, female", "correct it or leave it empty",
                          line=line, field="sex")  # fmt: skip
    history = {name: row[column] for column, name in _HISTORY.items()}
    return build_summary({"Patient Information": patient_information(int(age) if age else None, sex)} | history)


def _read_results(path: Path, funnel: Funnel) -> dict[str, dict[str, _Examination]]:
    """Examinations by case and key, whatever the order of the rows."""
    rows = [(row["case_id"], _sequence(path, line, row), line, row) for line, row in csv_rows(path, RESULT_COLUMNS)]
    rows.sort(key=lambda r: (*r[:2], sorted(r[3].items())))
    results: dict[str, dict[str, _Examination]] = {}
    for case, _, line, row in rows:
        funnel.count("result rows")
        if row["category"] not in CATEGORIES:
            raise IngestError(path, f"{row['category']!r} is no category", f"use one of {', '.join(CATEGORIES)}",
                              line=line, field="category")  # fmt: skip
        name, report = one_line(row["examination"]), one_line(row["report"])
        if not name:
            raise IngestError(path, "is empty", "name the examination", line=line, field="examination")
        if not says_something(row["value"]) and not says_something(report):
            funnel.count("result rows without a result")
            continue
        key = name + PHYSICAL_SUFFIX if row["category"] == "physical" else name
        exam = results.setdefault(case, {}).setdefault(key, _Examination())
        if says_something(row["value"]):
            analyte = _analyte(path, line, row)
            if exam.analytes.setdefault(analyte.label, analyte) is not analyte:
                funnel.count("repeated items")
        else:
            exam.reports.append(f"{one_line(row['item'])}: {report}" if row["item"] else report)
    return results


def _analyte(path: Path, line: int, row: Mapping[str, str]) -> Analyte:
    flag = _FLAGS.get(row["flag"].upper())
    if flag is None:
        raise IngestError(path, f"{row['flag']!r} is no flag", "use H, L, A or leave it empty", line=line, field="flag")
    return Analyte(
        label=one_line(row["item"]) or one_line(row["examination"]),
        value=one_line(row["value"]),
        units=row["unit"] or None,
        low=_number(path, line, row, "reference_low"),
        high=_number(path, line, row, "reference_high"),
        flag=flag or None,
        comments=one_line(row["report"]) or None,
    )


def _sequence(path: Path, line: int, row: Mapping[str, str]) -> float:
    number = _number(path, line, row, "sequence")
    if number is None:
        raise IngestError(path, "is empty", "number the rows of each case", line=line, field="sequence")
    return number


def _number(path: Path, line: int, row: Mapping[str, str], name: str) -> float | None:
    if not row[name]:
        return None
    if not _NUMBER.fullmatch(row[name]):
        raise IngestError(path, f"{row[name]!r} is not a number", "correct it or leave it empty", line=line, field=name)
    return float(row[name])
