"""Imports a hospital's own export in this project's format: ``cases.csv`` and ``results.csv``
(docs/reference/private-format.md)."""

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from ..cases import PHYSICAL_SUFFIX, Analyte, CaseRecord, normalise
from ..cases.patterns import Patterns
from ..files import parse_yaml, shipped_text
from ..settings.datasets import PrivateSource
from .attrition import Attrition
from .draft import Draft, Import, patient_information
from .flat_files import Element, IngestError, as_problems, csv_rows, find_file, header_errors
from .names import Workup, without_semicolons
from .texts import LONGEST_TEXT, blank_if_missing, is_absent, one_line, plain_text, quoted, visible

FORMAT = parse_yaml(shipped_text(__package__, "private_format.yaml"))
CASE_COLUMNS, RESULT_COLUMNS = FORMAT["case_columns"], FORMAT["result_columns"]
_PATTERN = Patterns(FORMAT["patterns"])
_OF_SLIPS = re.IGNORECASE | re.DOTALL
_SHOWN = 3  # most cells that a warning names
_HALF_WIDTH = {full: full - 0xFEE0 for full in range(0xFF01, 0xFF5F)}  # ASCII for characters as wide as Chinese ones


@dataclass
class Export:
    """The rows of an export as its files have them, and all its problems.

    ``cases`` and ``results`` are the rows that could be read. Any of ``problems`` is a reason to refuse the data set.
    ``ignored`` counts filled fields that the format does not have, by file and column. ``is_whole``: every row of
    ``cases.csv`` could be read. ``ends`` has a row for each table, with the single field ``rows``: the number of the
    table's last line, where a spreadsheet may have cut it. ``decimal_mark`` is the mark in numbers, ``comma`` or
    ``point``, the other of which separates thousands; None: a point, and thousands are not separated.
    """

    cases: list[Element] = field(default_factory=list)
    results: list[Element] = field(default_factory=list)
    problems: list[IngestError] = field(default_factory=list)
    ignored: Counter[tuple[str, str]] = field(default_factory=Counter)
    is_whole: bool = True
    ends: list[Element] = field(default_factory=list)
    decimal_mark: str | None = None

    def unlisted(self) -> list[Element]:
        """Return the results of cases that ``cases.csv`` does not list; empty where that file could not be read
        whole."""
        case_ids = {row.text("case_id") for row in self.cases} | {""}  # empty: listed as a problem elsewhere
        return [row for row in self.results if row.text("case_id") not in case_ids] if self.is_whole else []


def read_private(source: PrivateSource, work: Import) -> Iterator[CaseRecord]:
    """Read an export in the private format. Yields the records of all usable cases, and warns of doubtful cells. Raises
    the first IngestError of an export that has problems."""
    export = read_export(work.path, source.decimal_mark)
    records = list(work.records(make_drafts(export, work.attrition)))
    if export.problems:
        raise export.problems[0]
    if unlisted := export.unlisted():
        work.attrition.warn(f"{len(unlisted):,} result rows name no case of cases.csv")
    if doubtful := list(doubtful_cells(export)):
        cells = ", ".join(f"{one.path.name}:{one.line} ({one.field})" for one in doubtful[:_SHOWN])
        work.attrition.warn(f"{len(doubtful):,} cells may be a spreadsheet's, such as {cells}; see cdpr check_export")
    yield from records


def doubtful_cells(export: Export) -> Iterator[IngestError]:
    """Find fields that a spreadsheet may have changed, such as a range that became a date. Yields each as an
    IngestError that is only a warning; a field is listed once. So is the number of an unknown case that resembles a
    known one: "7" for "007"."""
    known = {_bare_number(row): row.text("case_id") for row in export.cases}
    for row in export.unlisted():
        if similar := known.get(_bare_number(row)):
            problem = f"differs only in zeros, marks, spaces or capital letters from {quoted(similar)} in cases.csv"
            yield row.error("case_id", f"{quoted(row.text('case_id'))} {problem}", "write it as in cases.csv")
    for row in (*export.cases, *export.results, *export.ends):
        for name, text in row.value.items():
            if slip := _slip_of(name, text, row.value.get("unit", "")):
                yield row.error(name, f"{quoted(text)} {slip['problem']}", slip["remedy"])


@functools.lru_cache(maxsize=1 << 14)  # cells repeat
def _slip_of(column: str, text: str, unit: str) -> dict[str, str] | None:
    """Return what a spreadsheet may have done to a cell, as an entry ``slips`` of ``private_format.yaml``: how such
    cells look, in which column (or any), unless their unit looks so, the problem and a remedy. None for any other
    cell."""
    own = (slip for slip in FORMAT["slips"] if slip.get("column", column) == column)
    alike = (slip for slip in own if re.fullmatch(slip["looks"], text, _OF_SLIPS))
    return next((slip for slip in alike if not re.fullmatch(slip.get("unless", "(?!)"), unit, _OF_SLIPS)), None)


def _bare_number(row: Element) -> str:
    """Return the number of a row's case without what spreadsheets and people write differently: zeros before it, ".0"
    behind it, marks, spaces and capital letters."""
    return re.sub(r"\.0+$|^0+|[\W_]", "", row.text("case_id").translate(_HALF_WIDTH).casefold())


def read_export(folder: Path, decimal_mark: str | None = None) -> Export:
    """Read the rows of an export, as far as possible. Problems are collected in the export's ``problems``, not raised.
    ``decimal_mark`` is kept for :func:`make_drafts`, which reads the numbers (:class:`Export`)."""
    export = Export(decimal_mark=decimal_mark)
    with as_problems(export.problems):
        _read_table(folder, "cases.csv", CASE_COLUMNS, export.cases, export)
    export.is_whole = not export.problems
    with as_problems(export.problems):
        _read_table(folder, "results.csv", RESULT_COLUMNS, export.results, export)
    return export


def _read_table(folder: Path, name: str, columns: Sequence[str], rows: list[Element], export: Export) -> None:
    """Read the CSV table ``name``, compressed or not, and append its rows to ``rows``, with fields stripped. The header
    must have ``columns``, in any order and among others. A row that cannot be read is added to the problems of the
    export. Raises IngestError for a file that is no such table. Of several forms of the file, which are a problem, the
    plain one is read."""
    path = folder / name
    with as_problems(export.problems):
        path = find_file(folder, name) or path
    lines = csv_rows(path)
    line, header = next(lines, (1, []))
    for slip in FORMAT["headers"]:
        if re.fullmatch(slip["looks"], visible(",".join(header)).strip(), re.IGNORECASE):
            raise IngestError(path, slip["problem"], slip["remedy"], line=line)
    names = [one_line(visible(column)).casefold() for column in header]
    may_be_empty = {column: "" if column in FORMAT["filled"] else "; it may be empty" for column in columns}
    remedies = {column: f"add this column{hint}" for column, hint in may_be_empty.items()}
    if errors := list(header_errors(path, line, names, remedies)):
        export.problems += errors
        return
    number = 1  # of the row, which is not that of its line where cells have several lines
    for line, fields in lines:
        number += 1
        fields = [visible(plain_text(field)).strip() for field in fields]
        with as_problems(export.problems):
            if [field.casefold() for field in fields] == names:
                raise IngestError(path, "the header stands here again", "remove this line", line=line)
            if len(fields) != len(names):
                problem = f"{len(fields)} fields, the header has {len(names)}"
                raise IngestError(path, problem, "put fields with commas in double quotes", line=line)
            if (longest := max(map(len, fields))) > LONGEST_TEXT:
                problem = f"a text of {longest:,} characters"
                raise IngestError(path, problem, "close every double quote, or shorten it", line=line)
            row = {column: _clean_cell(column, text) for column, text in zip(names, fields, strict=True)}
            rows.append(Element(row, path, line))
            export.ignored.update((name, column) for column, text in row.items() if column not in columns and text)
    export.ends.append(Element({"rows": str(number)}, path, line))


def _clean_cell(column: str, text: str) -> str:
    """Return the text of a cell without a spreadsheet's formula around it (``="3-5"``); empty where it says that the
    value is missing. In the column ``item`` NA is sodium."""
    if formula := _PATTERN.formula.fullmatch(text):
        text = formula[1]
    if column in FORMAT["numbers"]:
        text = text.translate(_HALF_WIDTH)  # not NFKC, which makes 105 of 10⁵ and 51⁄2 of 5½
    return text if text == "NA" and column == "item" else blank_if_missing(text)


def make_drafts(export: Export, attrition: Attrition) -> Iterator[Draft]:
    """Yield the drafts of an export's cases, in its order. A case without a number, or with that of an earlier case,
    is left out; a field that breaks its rule is empty. Both are added to the problems of the export."""
    attrition.count("fields that the layout does not know", export.ignored.total())
    workups = _collect_results(export, attrition)
    numbers: set[str] = set()  # of the cases so far
    for row in _valid_rows(export.cases, export):
        number, age, sex = row.text("case_id"), row.text("age"), row.text("sex")
        if number in numbers:
            remedy = FORMAT["rules"]["case_id"]["empty"]  # give every case a number of its own
            export.problems.append(row.error("case_id", f"{quoted(number)} occurs twice", remedy))
        elif number:
            numbers.add(number)
            history = {name: row.text(column) for column, name in FORMAT["history"].items()}
            person = patient_information(int(age) if age else None, FORMAT["sexes"].get(sex.casefold(), ""))
            yield Draft(
                note_id=number,
                subject_key=row.text("patient_id"),
                history={"Patient Information": person} | history,
                results=workups[number].results(),
                diagnosis=one_line(row.text("discharge_diagnosis")),
                where=f"{row.path.name}, line {row.line}",
            )
    attrition.count("result rows of unknown cases", len(export.unlisted()))


def _valid_rows(rows: Iterable[Element], export: Export) -> Iterator[Element]:
    """Yield the rows with numbers in Python's notation. A field that breaks its rule in ``private_format.yaml`` is made
    empty and added to the problems of the export."""
    local_number = FORMAT["local_numbers"].get(export.decimal_mark)
    for row in rows:
        fields = dict(row.value)
        for name in FORMAT["numbers"] if local_number else ():
            fields[name] = re.sub(local_number, _point_number, fields.get(name, ""))
        for name, rule in FORMAT["rules"].items():
            text = fields.get(name)
            if text == "" and rule.get("empty"):  # "empty": what to do about an empty field
                export.problems.append(row.error(name, "is empty", rule["empty"]))
            if text and not re.fullmatch(rule["fits"], text, re.IGNORECASE):
                export.problems.append(row.error(name, f"{quoted(text)} {rule['problem']}", rule["remedy"]))
                fields[name] = ""
        yield Element(fields, row.path, row.line)


def _point_number(number: re.Match[str]) -> str:
    """Return a number that an expression of ``local_numbers`` found, with a point and without marks of thousands."""
    return re.sub(r"\D", "", number[1]) + (f".{number[2]}" if number[2] else "")


def _collect_results(export: Export, attrition: Attrition) -> dict[str, Workup]:
    """Collect the results of each case, in the order of their ``sequence``; returns them by the number of the case.
    Names of an examination that differ only in upper and lower case are one."""
    # With what they are sorted by, so that the order in the file does not matter: case, sequence, all fields.
    rows = [(row.text("case_id"), float(row.text("sequence") or "inf"), sorted(row.value.items()), row)
            for row in _valid_rows(export.results, export)]  # fmt: skip
    workups: dict[str, Workup] = defaultdict(Workup)
    first_spellings: dict[tuple[str, str], str] = {}  # by (case, normalised name): the name as first written
    for case, _, _, row in sorted(rows, key=lambda entry: entry[:3]):
        attrition.count("result rows")
        key = _examination_key(row, export.problems)
        if not (case and key and row.text("category") and row.text("sequence")):  # a problem that is listed already
            continue
        report, is_measured = one_line(row.text("report")), not is_absent(row.text("value"))
        if not is_measured and is_absent(report):
            attrition.count("result rows without a result")
            continue
        key = first_spellings.setdefault((case, normalise(key) or key), key)  # normalised, a name of signs is empty
        text = f"{one_line(row.text('item'))}: {report}" if row.text("item") else report
        is_new = workups[case].add(key, _make_analyte(row, export.problems) if is_measured else text)
        if not is_new and is_measured and row.text("category").casefold() == "culture":  # one more organism
            is_new = workups[case].add(key, one_line(f"{row.text('item') or 'Also'}: {row.text('value')}"))
        if not is_new:
            attrition.count("repeated items" if is_measured else "repeated reports")
    return workups


def _examination_key(row: Element, problems: list[IngestError]) -> str:
    """Return the key of a row's examination. A name that cannot be used is added to ``problems``, and gives an empty
    key."""
    name = one_line(row.text("examination"))
    if row.text("category").casefold() == "physical" and name:
        return name.removesuffix(PHYSICAL_SUFFIX) + PHYSICAL_SUFFIX
    if name.endswith(PHYSICAL_SUFFIX):
        remedy = "give it the category physical, or another name"
        problems.append(row.error("examination", "the name marks a physical examination", remedy))
        return ""
    return name


def _make_analyte(row: Element, problems: list[IngestError]) -> Analyte:
    """Make an analyte of a row with a value. Bounds of the reference range in the wrong order are added to
    ``problems``; a single bound becomes a comment."""
    low, high = (float(row.text(name)) if row.text(name) else None for name in ("reference_low", "reference_high"))
    if low is not None and high is not None and low > high:
        problems.append(row.error("reference_low", "is above reference_high", "exchange or correct them"))
    remarks = [one_line(row.text("report"))]
    if (low is None) != (high is None):
        remarks.append(f"reference at least {low:g}" if high is None else f"reference at most {high:g}")
    label = without_semicolons(row.text("item")) or without_semicolons(row.text("examination"))
    value, units = without_semicolons(row.text("value")), without_semicolons(row.text("unit")) or None
    if _PATTERN.power_of_ten.fullmatch(value):
        value = f"{Decimal(value):f}"  # without the power of ten that spreadsheets write
    flag = "abnormal" if row.text("flag").upper() not in ("", "N") else None
    return Analyte(label, value, units, low, high, flag, comments=", ".join(filter(None, remarks)) or None)
