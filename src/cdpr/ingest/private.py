"""A hospital's own export (docs/reference/private-format.md) -> case records.

Two layouts, one code path: ``cases.csv`` and ``results.csv``, or ``cases.jsonl`` with the results inside the cases.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from ..cases import PHYSICAL_SUFFIX, Analyte, CaseRecord, normalise
from ..files import file_type, parse_yaml, shipped_text
from ..settings.datasets import PrivateSource
from .attrition import Attrition
from .draft import Draft, Import
from .flat_files import Element, IngestError, collected, csv_lines, file_called, filled_lines, header_faults, parse_json
from .names import Workup, result_part
from .summary import patient_information
from .texts import LONGEST_TEXT, filled, is_absent, one_line, quoted, visible

FORMAT = parse_yaml(shipped_text(__package__, "private_format.yaml"))
CASE_COLUMNS, RESULT_COLUMNS = FORMAT["case_columns"], FORMAT["result_columns"]
_AS_TEXT = re.compile(r'="(.*)"', re.DOTALL)  # how a table keeps a spreadsheet from reading a number
_SHOWN = 3  # cells of a warning
_MARKS = {"comma": (",", "."), "point": (".", ",")}
_NUMBER = re.compile(r"[<>≤≥=\s]*[-+]?\d{1,3}(?:([.,' ])\d{3})*(?:[.,]\d+)?|[<>≤≥=\s]*[-+]?\d+(?:[.,]\d+)?")
_POWER_OF_TEN = re.compile(r"[-+]?\d+(?:\.\d+)?[eE][-+]?\d{1,2}")


class Row(Element):
    """A row of a table, or an object in JSON, whose fields are text."""

    remedy = "write one case an object, its results as a list of objects"

    def __getitem__(self, name: str) -> str:
        return self.value[name]

    def with_fields(self, fields: Mapping[str, str]) -> Self:
        """The same row with other fields."""
        return self._part("", fields)


@dataclass
class Export:
    """Rows of an export as they stand in its files, what is wrong with them, and how often a column that the layout
    lacks holds something. ``whole``: whether every row of ``cases.csv`` could be read, ``ends`` on which line each
    table ends."""

    cases: list[Row] = field(default_factory=list)
    results: list[Row] = field(default_factory=list)
    problems: list[IngestError] = field(default_factory=list)
    ignored: Counter[tuple[str, str]] = field(default_factory=Counter)
    whole: bool = True
    ends: list[Row] = field(default_factory=list)
    decimal_mark: str | None = None

    def unlisted(self) -> list[Row]:
        """Results of cases that ``cases.csv`` does not list; none when it could not be read whole."""
        case_ids = {row["case_id"] for row in self.cases} | {""}
        return [row for row in self.results if row["case_id"] not in case_ids] if self.whole else []


def read_private(source: PrivateSource, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable cases. Raises the first IngestError of an export that has any."""
    export = read_export(work.path, source.decimal_mark)
    records = list(work.records(drafts(export, work.attrition)))
    if export.problems:
        raise export.problems[0]
    if doubtful := list(doubts(export)):
        cells = ", ".join(f"{one.path.name}:{one.line} ({one.field})" for one in doubtful[:_SHOWN])
        rest = ", ..." * (len(doubtful) > _SHOWN)
        work.attrition.warn(f"{len(doubtful):,} cells may be a spreadsheet's: {cells}{rest}; see cdpr check_export")
    yield from records


def doubts(export: Export) -> Iterator[IngestError]:
    """Fields that are worth a look, each as a problem that refuses nothing."""
    for row in (*export.cases, *export.results, *export.ends):
        for name, text in row.value.items():
            for slip in FORMAT["slips"]:
                has_unit = name == "value" and row.value.get("unit") and "unit" in slip["problem"]
                fits = re.fullmatch(slip["looks"], text, re.IGNORECASE | re.DOTALL)
                if fits and slip.get("column", name) == name and not has_unit:
                    yield row.wrong(name, f"{quoted(text)} {slip['problem']}", slip["remedy"])
                    break


def read_export(folder: Path, decimal_mark: str | None = None) -> Export:
    """The rows of either layout, as far as they can be read; numbers by the ``decimal_mark`` of their locale."""
    export = Export(decimal_mark=decimal_mark)
    names = ("cases.csv", "results.csv", "cases.jsonl")
    cases, results, objects = (_find(folder, name, export.problems) for name in names)
    if file_type(objects) == "file":
        with collected(export.problems):
            if "file" in (file_type(cases), file_type(results)):
                raise IngestError(folder, "holds cases.jsonl and CSV files", "keep one of the two layouts")
            for line, text in filled_lines(objects):
                with collected(export.problems):
                    _read_object(Row(parse_json(objects, text, line), objects, line), export)
        return export
    known = len(export.problems)
    with collected(export.problems):
        _read_table(cases, CASE_COLUMNS, export.cases, export)
    export.whole = len(export.problems) == known
    with collected(export.problems):
        _read_table(results, RESULT_COLUMNS, export.results, export)
    return export


def _find(folder: Path, name: str, problems: list[IngestError]) -> Path:
    """The file, compressed or not; the plain name where there is none, or are several."""
    with collected(problems):
        return file_called(folder, name) or folder / name
    return folder / name


def _read_table(path: Path, columns: Sequence[str], rows: list[Row], export: Export) -> None:
    """Add the rows of a table whose header has these columns, in any order and among others; fields are stripped."""
    lines = csv_lines(path)
    line, header = next(lines, (1, []))
    _check_separator(path, line, header)
    names = [one_line(visible(name)).casefold() for name in header]
    remedies = {c: "add this column" + ("" if c in FORMAT["filled"] else "; it may be empty") for c in columns}
    if faults := list(header_faults(path, line, names, remedies)):
        export.problems += faults
        return
    for line, fields in lines:
        fields = [visible(field).strip() for field in fields]
        with collected(export.problems):
            if [field.casefold() for field in fields] == names:
                raise IngestError(path, "the header stands here again", "remove this line", line=line)
            if len(fields) != len(names):
                what = f"{len(fields)} fields, the header has {len(names)}"
                raise IngestError(path, what, "put fields with commas in double quotes", line=line)
            if (longest := max(map(len, fields))) > LONGEST_TEXT:
                what = f"a text of {longest:,} characters"
                raise IngestError(path, what, "close every double quote, or shorten it", line=line)
            row = {name: _cell(name, text) for name, text in zip(names, fields, strict=True)}
            rows.append(Row(row, path, line))
            name = path.name.removesuffix(".gz")
            export.ignored.update((name, key) for key, text in row.items() if key not in columns and text)
    export.ends.append(Row({"rows": str(line)}, path, line))


def _cell(column: str, text: str) -> str:
    """The text of a cell as it was before a spreadsheet wrapped it; nothing where it says that it is missing. In the
    name of an item NA is sodium."""
    if formula := _AS_TEXT.fullmatch(text):
        text = formula[1]
    if column in FORMAT["numbers"]:
        text = unicodedata.normalize("NFKC", text)  # digits in full width
    return text if text == "NA" and column == "item" else filled(text)


def _check_separator(path: Path, line: int, header: Sequence[str]) -> None:
    """Raise IngestError for a table that is empty or whose columns are not separated by commas."""
    if not header:
        raise IngestError(path, "the file is empty", "begin it with the names of the columns", line=1)
    first = visible(header[0]).strip()
    if first.casefold().startswith("sep="):
        problem = "the line sep= that Excel writes stands before the header"
        raise IngestError(path, problem, "remove this line, and save the file with commas", line=line)
    if len(header) == 1 and (mark := re.search(r"[;\t|]", first)):
        problem = f"columns are separated by {FORMAT['separators'][mark[0]]}"
        raise IngestError(path, problem, "save the file with commas", line=line)


def _read_object(case: Row, export: Export) -> None:
    """Rows from the object of a case: its ``results`` are numbered by their place unless they say otherwise."""
    results = case.many("results")
    row = _as_text(case, {}, CASE_COLUMNS, export)
    export.cases.append(row)
    for number, result in enumerate(results, 1):
        implied = {"sequence": number, "case_id": case.value.get("case_id")}
        placed = _as_text(result, implied, RESULT_COLUMNS, export)
        if placed["case_id"] == row["case_id"]:
            export.results.append(placed)
        else:
            export.problems.append(placed.wrong("case_id", "differs from that of the case around it", "leave it out"))


def _as_text(row: Row, implied: Mapping[str, Any], columns: Sequence[str], export: Export) -> Row:
    """The fields of an object as text; absent and null are empty."""
    fields, values = dict.fromkeys(columns, ""), {**implied, **row.value}
    export.ignored.update((row.path.name, name) for name in values if name not in (*columns, "results"))
    for name in columns:
        value = values.get(name)
        if isinstance(value, (dict, list, bool)):
            what = f"expected text or a number, found {type(value).__name__}"
            export.problems.append(row.wrong(name, what, "write it as text"))
        elif value is not None:
            fields[name] = _cell(name, str(value))
    return row.with_fields(fields)


def drafts(export: Export, attrition: Attrition) -> Iterator[Draft]:
    """The cases of an export, in its order. A row with a problem is left out, a field with one is empty."""
    attrition.count("fields that the layout does not know", export.ignored.total())
    workups = _workups(export, attrition)
    numbers: set[str] = set()
    for row in _sound(export.cases, export):
        number, age, sex = row["case_id"], row["age"], row["sex"]
        if number in numbers:
            remedy = FORMAT["rules"]["case_id"]["empty"]
            export.problems.append(row.wrong("case_id", f"{quoted(number)} stands twice", remedy))
        if not number or number in numbers:
            continue
        numbers.add(number)
        history = {name: row[column] for column, name in FORMAT["history"].items()}
        person = patient_information(int(age) if age else None, FORMAT["sexes"].get(sex.casefold(), ""))
        yield Draft(
            note_id=number,
            subject_key=row["patient_id"],
            history={"Patient Information": person} | history,
            results=workups[number].results(),
            diagnosis=one_line(row["discharge_diagnosis"]),
            where=f"{row.path.name}, line {row.line}",
        )
    attrition.count("result rows of unknown cases", len(export.unlisted()))


def _sound(rows: Iterable[Row], export: Export) -> Iterator[Row]:
    """The rows with their numbers as Python writes them, and with those fields empty that break their rule, which is a
    problem."""
    problems = export.problems
    mark, other = _MARKS.get(export.decimal_mark or "", ("", ""))
    numbers = FORMAT["numbers"] if mark else ()
    for row in rows:
        fields = dict(row.value)
        for name in numbers:
            if _NUMBER.fullmatch(fields.get(name, "")):
                fields[name] = fields[name].replace(other, "").replace(mark, ".")
        for name, rule in FORMAT["rules"].items():
            text = fields.get(name)
            # The case around an object in JSON says what it belongs to.
            if text == "" and rule.get("empty") and not (name == "case_id" and row.place):
                problems.append(row.wrong(name, "is empty", rule["empty"]))
            if text and not re.fullmatch(rule["fits"], text, re.IGNORECASE):
                problems.append(row.wrong(name, f"{quoted(text)} {rule['problem']}", rule["remedy"]))
                fields[name] = ""
        yield row.with_fields(fields)


def _workups(export: Export, attrition: Attrition) -> dict[str, Workup]:
    """Results by case, whatever the order of the rows; spellings of a name that differ in case only are one."""
    rows = _sound(export.results, export)
    placed = [(row["case_id"], float(row["sequence"] or "inf"), sorted(row.value.items()), row) for row in rows]
    placed.sort(key=lambda entry: entry[:3])
    workups: dict[str, Workup] = defaultdict(Workup)
    spelled: dict[tuple[str, str], str] = {}
    for case, sequence, _, row in placed:
        attrition.count("result rows")
        key = _key(row, export.problems)
        if not case or not key or not row["category"] or sequence == math.inf:
            continue
        report, measured = one_line(row["report"]), not is_absent(row["value"])
        if not measured and is_absent(report):
            attrition.count("result rows without a result")
            continue
        key = spelled.setdefault((case, normalise(key) or key), key)
        text = f"{one_line(row['item'])}: {report}" if row["item"] else report
        if not workups[case].add(key, _analyte(row, export.problems) if measured else text):
            attrition.count("repeated items" if measured else "repeated reports")
    return workups


def _key(row: Row, problems: list[IngestError]) -> str:
    """Key of the row's examination; empty for a name that cannot be used."""
    name = one_line(row["examination"])
    if row["category"].casefold() == "physical" and name:
        return name.removesuffix(PHYSICAL_SUFFIX) + PHYSICAL_SUFFIX
    if name.endswith(PHYSICAL_SUFFIX):
        remedy = "give it the category physical, or another name"
        problems.append(row.wrong("examination", "the name marks a physical examination", remedy))
        return ""
    return name


def _analyte(row: Row, problems: list[IngestError]) -> Analyte:
    """The measured quantity of a row; bounds in the wrong order are a problem."""
    low, high = (float(row[name]) if row[name] else None for name in ("reference_low", "reference_high"))
    if low is not None and high is not None and low > high:
        problems.append(row.wrong("reference_low", "is above reference_high", "exchange or correct them"))
    remarks = [one_line(row["report"])]
    if (low is None) != (high is None):
        remarks.append(f"reference at least {low:g}" if high is None else f"reference at most {high:g}")
    value = result_part(row["value"])
    if _POWER_OF_TEN.fullmatch(value):
        value = f"{Decimal(value):f}"  # without the power of ten that spreadsheets write
    return Analyte(
        label=result_part(row["item"]) or result_part(row["examination"]),
        value=value,
        units=result_part(row["unit"]) or None,
        low=low,
        high=high,
        flag="abnormal" if row["flag"].upper() not in ("", "N") else None,
        comments=", ".join(filter(None, remarks)) or None,
    )
