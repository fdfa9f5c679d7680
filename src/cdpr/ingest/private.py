"""A hospital's own export (docs/reference/private-format.md) -> case records.

Two layouts, one code path: ``cases.csv`` and ``results.csv``, or ``cases.jsonl`` with the results inside the cases.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..cases import PHYSICAL_SUFFIX, Analyte, CaseRecord, format_analytes, normalise
from ..settings.datasets import Source
from .attrition import Attrition
from .draft import Draft, Import
from .error import IngestError
from .flat_files import LONGEST_NAME, RawRow, collected, csv_rows, filled_lines, parse_json, quoted, result_part
from .summary import CHINESE, one_line, patient_information, says_something

_HISTORY = {
    "chief_complaint": "Chief Complaint",
    "present_illness": "History of Present Illness",
    "past_history": "Past Medical History",
    "personal_history": "Personal History",
    "family_history": "Family History",
    "allergy_history": "Allergy History",
}
CASE_COLUMNS = ("case_id", "patient_id", "age", "sex", *_HISTORY, "discharge_diagnosis")
RESULT_COLUMNS = ("case_id", "sequence", "category", "examination", "item", "value", "unit", "reference_low",
                  "reference_high", "flag", "report")  # fmt: skip
FILLED = ("case_id", "discharge_diagnosis", "sequence", "category", "examination")
CATEGORIES = ("lab", "culture", "imaging", "procedure", "physical")
_SEX = {"": "", "m": "M", "male": "M", "男": "M", "f": "F", "female": "F", "女": "F"}
_FLAGS = {"": "", "N": "", "H": "abnormal", "L": "abnormal", "A": "abnormal", "↑": "abnormal", "↓": "abnormal"}
_OLDEST = 129  # years
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,2})?")


@dataclass
class Export:
    """Rows of an export as they stand in its files, what is wrong with them, and how often a column that the layout
    lacks holds something. ``whole`` tells whether every row of ``cases.csv`` could be read."""

    cases: list[RawRow] = field(default_factory=list)
    results: list[RawRow] = field(default_factory=list)
    problems: list[IngestError] = field(default_factory=list)
    ignored: Counter[tuple[str, str]] = field(default_factory=Counter)
    whole: bool = True

    def unlisted(self) -> list[RawRow]:
        """Results of cases that ``cases.csv`` does not list; none when it could not be read whole."""
        listed = {row["case_id"] for row in self.cases} | {""}
        return [row for row in self.results if row["case_id"] not in listed] if self.whole else []


def read_private(source: Source, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable cases. Raises the first IngestError of an export that has any."""
    export = read_export(work.path)
    records = list(work.records(drafts(export, work.attrition)))
    if export.problems:
        raise export.problems[0]
    yield from records


def read_export(folder: Path) -> Export:
    """The rows of either layout, as far as they can be read."""
    export = Export()
    paths = {name: _find(folder, name, export.problems) for name in ("cases.csv", "results.csv", "cases.jsonl")}
    if paths["cases.jsonl"] is not None:
        with collected(export.problems):
            if paths["cases.csv"] or paths["results.csv"]:
                raise IngestError(folder, "holds cases.jsonl and CSV files", "keep one of the two layouts")
            for line, text in filled_lines(paths["cases.jsonl"]):
                with collected(export.problems):
                    _read_object(paths["cases.jsonl"], line, text, export)
        return export
    known = len(export.problems)
    _read_table(paths["cases.csv"] or folder / "cases.csv", CASE_COLUMNS, export.cases, export)
    export.whole = len(export.problems) == known
    _read_table(paths["results.csv"] or folder / "results.csv", RESULT_COLUMNS, export.results, export)
    return export


def _find(folder: Path, name: str, problems: list[IngestError]) -> Path | None:
    paths = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(paths) > 1:
        problems.append(IngestError(folder, f"holds {name} and {name}.gz", "keep the one that is right"))
    return paths[0] if paths else None


def _read_table(path: Path, columns: Sequence[str], rows: list[RawRow], export: Export) -> None:
    name = path.name.removesuffix(".gz")
    with collected(export.problems):
        for row in csv_rows(path, columns, FILLED, export.problems):
            rows.append(row)
            export.ignored.update((name, key) for key, text in row.fields.items() if key not in columns and text)


def _read_object(path: Path, line: int, text: str, export: Export) -> None:
    """Rows from the object of a case: its ``results`` are numbered by their place unless they say otherwise."""
    case, remedy = parse_json(path, text, line), "write one case an object, its results as a list"
    if not isinstance(case, dict):
        raise IngestError(path, "no object", remedy, line=line)
    results = case.pop("results", None) or []
    if not isinstance(results, list):
        raise IngestError(path, "expected a list", remedy, line=line, field="results")
    row = _object_row(path, line, case, CASE_COLUMNS, "", export)
    export.cases.append(row)
    for place, result in enumerate(results):
        if not isinstance(result, dict):
            row.tell(f"results[{place}]", "no object", "write one result an object")
            continue
        numbered = {"sequence": place + 1, "case_id": case.get("case_id")} | result
        placed = _object_row(path, line, numbered, RESULT_COLUMNS, f"results[{place}].", export)
        if placed["case_id"] == row["case_id"]:
            export.results.append(placed)
        else:
            placed.tell("case_id", "differs from that of the case around it", "leave it out")


def _object_row(
    path: Path, line: int, values: Mapping[str, Any], columns: Sequence[str], within: str, export: Export
) -> RawRow:
    """The fields of an object as text; absent and null are empty."""
    fields = dict.fromkeys(columns, "")
    row = RawRow(path, line, fields, export.problems, within)
    export.ignored.update((path.name, name) for name in values if name not in columns)
    for name in columns:
        value = values.get(name)
        if isinstance(value, (dict, list, bool)):
            row.tell(name, f"expected text or a number, found {type(value).__name__}", "write it as text")
        elif value is not None:
            fields[name] = str(value).strip()
    return row


def drafts(export: Export, attrition: Attrition) -> Iterator[Draft]:
    """The cases of an export, in its order. A row with a problem is left out, a field with one is empty."""
    ignored = sum(export.ignored.values())
    if ignored:
        attrition.count("fields that the layout does not know", ignored)
    results = _examinations(export.results, attrition)
    numbers: set[str] = set()
    for row in export.cases:
        number = _identifier(row, "case_id")
        if number in numbers:
            row.tell("case_id", f"{quoted(number)} stands twice", "give every case a number of its own")
        if not number or number in numbers:
            continue
        numbers.add(number)
        workup = {key: exam.text() for key, exam in results.pop(number, {}).items()}
        history = _history(row)
        chinese = CHINESE.search(history["Chief Complaint"] + history["History of Present Illness"])
        yield Draft(
            note_id=number,
            subject_key=_identifier(row, "patient_id") or number,
            history=history,
            results={key: text for key, text in workup.items() if text},
            diagnosis=one_line(row["discharge_diagnosis"]),
            language="zh" if chinese else "en",
        )
    if unlisted := len(export.unlisted()):
        attrition.count("result rows of unknown cases", unlisted)


def _identifier(row: RawRow, name: str) -> str:
    """The identifier, or nothing for one that fits in no table, which is a problem. A patient may have none."""
    text = row[name]
    if not text:
        if name == "case_id":
            row.tell(name, "is empty", "give every case a number of its own")
    elif text != one_line(text) or len(text) > LONGEST_NAME or not says_something(text):
        problem = f"{quoted(text)} is no identifier"
        row.tell(name, problem, f"use letters and digits, at most {LONGEST_NAME} characters on one line")
    else:
        return text
    return ""


def _history(row: RawRow) -> dict[str, str]:
    age, sex = row["age"], _SEX.get(row["sex"].casefold())
    if age and not (age.isdecimal() and len(age) <= 3 and int(age) <= _OLDEST):
        row.tell("age", f"{quoted(age)} is not an age in whole years", "correct it or leave it empty")
        age = ""
    if sex is None:
        problem = f"{quoted(row['sex'])} is none of M, F, male, female"
        row.tell("sex", problem, "correct it or leave it empty")
    history = {name: row[column] for column, name in _HISTORY.items()}
    return {"Patient Information": patient_information(int(age) if age else None, sex or "")} | history


@dataclass
class _Examination:
    """Rows of one examination of a case, in the order of their sequence numbers."""

    analytes: dict[str, Analyte] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)

    def text(self) -> str:
        parts = [format_analytes(self.analytes.values()), *self.reports]
        return "; ".join(part for part in parts if part)


def _examinations(rows: Sequence[RawRow], attrition: Attrition) -> dict[str, dict[str, _Examination]]:
    """Examinations by case and key, whatever the order of the rows; spellings that differ in case only are one."""
    placed = [(row["case_id"], _number(row, "sequence"), sorted(row.fields.items()), row) for row in rows]
    placed.sort(key=lambda entry: (entry[0], math.inf if entry[1] is None else entry[1], entry[2]))
    results: dict[str, dict[str, _Examination]] = {}
    spelled: dict[tuple[str, str], str] = {}
    for case, sequence, _, row in placed:
        attrition.count("result rows")
        if not row["sequence"]:
            row.tell("sequence", "is empty", "number the rows of each case")
        key = _key(row)
        if not case and not row.within:
            row.tell("case_id", "is empty", "name the case that the result belongs to")
        if not case or key is None or sequence is None:
            continue
        report, measured = one_line(row["report"]), says_something(row["value"])
        if not measured and not says_something(report):
            attrition.count("result rows without a result")
            continue
        key = spelled.setdefault((case, normalise(key) or key), key)
        exam = results.setdefault(case, {}).setdefault(key, _Examination())
        if measured:
            analyte = _analyte(row)
            if exam.analytes.setdefault(analyte.label, analyte) is not analyte:
                attrition.count("repeated items")
            continue
        report = f"{one_line(row['item'])}: {report}" if row["item"] else report
        if report in exam.reports:
            attrition.count("repeated reports")
        else:
            exam.reports.append(report)
    return results


def _key(row: RawRow) -> str | None:
    """Key of the row's examination; None, with a problem recorded, for a category or a name that cannot be used."""
    category, name = row["category"].casefold(), one_line(row["examination"])
    if category not in CATEGORIES:
        problem = f"{quoted(row['category'])} is no category"
        row.tell("category", problem, f"use one of {', '.join(CATEGORIES)}")
    elif not says_something(name):
        row.tell("examination", "is empty", "name the examination")
    elif len(name) > LONGEST_NAME:
        problem = f"a name of {len(name):,} characters"
        row.tell("examination", problem, "put the text of a report into the column report")
    elif category == "physical":
        return name.removesuffix(PHYSICAL_SUFFIX) + PHYSICAL_SUFFIX
    elif name.endswith(PHYSICAL_SUFFIX):
        problem = "the name marks a physical examination"
        row.tell("examination", problem, "give it the category physical, or another name")
    else:
        return name
    return None


def _analyte(row: RawRow) -> Analyte:
    flag = _FLAGS.get(row["flag"].upper())
    if flag is None:
        row.tell("flag", f"{quoted(row['flag'])} is no flag", "use H, L, A or leave it empty")
    low, high = (_number(row, name) for name in ("reference_low", "reference_high"))
    if low is not None and high is not None and low > high:
        row.tell("reference_low", "is above reference_high", "exchange or correct them")
    remarks = [one_line(row["report"])]
    if (low is None) != (high is None):
        remarks.append(f"reference at least {low:g}" if high is None else f"reference at most {high:g}")
    return Analyte(
        label=result_part(row["item"]) or result_part(row["examination"]),
        value=_plain(result_part(row["value"])),
        units=result_part(row["unit"]) or None,
        low=low,
        high=high,
        flag=flag or None,
        comments=", ".join(filter(None, remarks)) or None,
    )


def _plain(value: str) -> str:
    """A number without a power of ten, as spreadsheets write it; any other text as it is."""
    return f"{Decimal(value):f}" if "E" in value.upper() and _NUMBER.fullmatch(value) else value


def _number(row: RawRow, name: str) -> float | None:
    text = row[name]
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        remedy = "write a point, not a comma" if "," in text else "correct it or leave it empty"
        row.tell(name, f"{quoted(text)} is not a number", remedy)
        return None
    return float(text)
