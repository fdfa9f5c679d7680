"""What a private export may not mean: fields that can be ingested, but read like a slip of the export."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .error import IngestError
from .flat_files import RawRow, quoted
from .private import Export

_SPREADSHEET_ERROR = re.compile(r"#(?:DIV/0!|N/A|NAME\?|NULL!|NUM!|REF!|VALUE!|#+)", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[<>≤≥=\s]*[-+]?\d+,\d+")
_WITH_UNIT = re.compile(r"[<>≤≥=\s]*[-+]?\d+(?:\.\d+)?\s*(?:%|°|(?!e\d+$)[a-zµμ][\w/%^*.·-]*)", re.IGNORECASE)
_CODE = re.compile(r"[A-TV-Z]\d[\dA-Z](?:\.[\dA-Z]{1,4})?|\d{3}\.\d{1,2}", re.IGNORECASE)  # ICD-10, ICD-9
_LIST = re.compile(r"\(?1\s*[.)、](?!\d).+?(?<!\d)2\s*[.)、](?!\d)", re.DOTALL)


def doubts(export: Export) -> Iterator[IngestError]:
    """Fields that are worth a look, each as a problem that refuses nothing."""
    for row in (*export.cases, *export.results):
        for name, text in row.fields.items():
            if _SPREADSHEET_ERROR.fullmatch(text):
                yield row.problem(name, f"{quoted(text)} is an error of a spreadsheet", "correct it or leave it empty")
    for row in export.cases:
        yield from _diagnosis(row)
    for row in export.results:
        yield from _value(row)
    yield from _alike(export)
    yield from _same_sequence(export)


def _diagnosis(row: RawRow) -> Iterator[IngestError]:
    text = row["discharge_diagnosis"]
    if _CODE.fullmatch(text):
        yield row.problem("discharge_diagnosis", f"{quoted(text)} looks like a code", "write the name of the disease")
    elif _LIST.match(text):
        problem = f"{quoted(text)} looks like a list"
        yield row.problem("discharge_diagnosis", problem, "keep the primary diagnosis alone")


def _value(row: RawRow) -> Iterator[IngestError]:
    text = row["value"]
    if _DECIMAL_COMMA.fullmatch(text):
        yield row.problem("value", f"{quoted(text)} has a comma", "write decimals with a point")
    elif not row["unit"] and _WITH_UNIT.fullmatch(text):
        yield row.problem("value", f"{quoted(text)} seems to hold the unit", "write the unit into the column unit")


def _alike(export: Export) -> Iterator[IngestError]:
    """The first row of each identifier that differs from an earlier one in the case of its letters only."""
    for name, rows in (("case_id", (*export.cases, *export.results)), ("patient_id", export.cases)):
        spelled: dict[str, str] = {}
        told: set[str] = set()
        for row in rows:
            text = row[name]
            first = spelled.setdefault(text.casefold(), text)
            if text != first and text not in told:
                told.add(text)
                problem = f"{quoted(text)} and {quoted(first)} differ in the case of letters only"
                yield row.problem(name, problem, "spell it alike if it is one")


def _same_sequence(export: Export) -> Iterator[IngestError]:
    seen: set[tuple[str, str]] = set()
    for row in export.results:
        place = row["case_id"], row["sequence"]
        if all(place) and place in seen:
            problem = f"{quoted(row['sequence'])} stands twice in this case"
            yield row.problem("sequence", problem, "number the rows of a case one by one, in their order")
        seen.add(place)
