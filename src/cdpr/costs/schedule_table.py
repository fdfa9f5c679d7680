"""Tables of fee schedules as published: CSV files and workbooks with titles, stacked headers and footnotes."""

import csv
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from ..files import csv_records

CODE = re.compile(r"[A-Z0-9]\d{3}[A-Z0-9]")
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1f]")
Row = tuple[int, list[str]]  # the line that it begins on, and its cells
Cells = dict[str, str]  # cells of a row by the names of their columns


class FeeScheduleError(ValueError):
    """A fee schedule that cannot be used; the message names file, line and field."""


class Table:
    """Rows below the first row that has cells of all names of ``header``, the last of which is that of codes.

    Names may be stacked: rows above the header belong to it, except titles, which fill a single cell. Remarks and
    repeated headers are no rows. Raises FeeScheduleError where there is no header.
    """

    def __init__(self, path: Path, rows: Sequence[Row], *header: str, kind: str):
        names = {plain(name) for name in header}
        start = next((i for i, (_, row) in enumerate(rows) if names <= {plain(cell) for cell in row}), None)
        if start is None:
            raise FeeScheduleError(f"{path}: no header row with {' and '.join(header)}; is this {kind}?")
        self.path, self.kind, (self.line, last) = path, kind, rows[start]
        self.titles = [row for _, row in rows[:start]]
        code, width = [plain(cell) for cell in last].index(plain(header[-1])), len(last)
        early = [line for line, row in rows[:start] if code < len(row) and CODE.fullmatch(row[code].upper())]
        if early:
            problem = f"{len(early)} rows of codes stand above the header (line {self.line})"
            raise FeeScheduleError(f"{path}:{early[0]}: {problem}; use the file as published")
        stacked = [row for row in self.titles if not _is_remark(row)] + [last]
        self.names = [plain(" ".join(row[i] for row in stacked if i < len(row))) for i in range(width)]
        padded = ((line, row + [""] * (width - len(row))) for line, row in rows[start + 1 :] if not _is_remark(row))
        self.rows = [(line, row) for line, row in padded if row[code] != last[code]]

    def select(self, *names: str) -> list[tuple[int, Cells]]:
        """Lines and cells of these columns. Raises FeeScheduleError for a column that is not there, or twice."""
        known = ", ".join("".join(filter(str.isprintable, name[:60])) for name in self.names if name)
        for name in names:
            if name not in self.names:
                problem = f"no column {name!r}; found {known[:1000]}; is this {self.kind}?"
                raise FeeScheduleError(f"{self.path}:{self.line}: {problem}")
            if (times := self.names.count(name)) > 1:
                raise FeeScheduleError(f"{self.path}:{self.line}: column {name!r} stands {times} times")
        places = {name: self.names.index(name) for name in names}
        return [(line, {name: row[place] for name, place in places.items()}) for line, row in self.rows]

    def find_part(self, part: str) -> str:
        """The column whose name has this part, the one with the legal floor if there are two."""
        columns = [name for name in self.names if part in name]
        columns = [name for name in columns if "WITHOUT" not in name] or columns
        if len(columns) != 1:
            raise FeeScheduleError(f"{self.path}:{self.line}: {len(columns)} columns with {part!r}; expected one")
        return columns[0]


def read_csv(path: Path) -> list[Row]:
    """All rows of a CSV file, cells stripped; UTF-8, otherwise Windows-1252. Raises FeeScheduleError for a file that is
    missing, is no text, or breaks off inside a quoted field."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FeeScheduleError(f"{path}: cannot be read: {error.strerror}") from error
    if raw.startswith(b"PK") or _BINARY.search(raw):
        raise FeeScheduleError(f"{path}: this is no CSV file; unpack it, or save it as CSV")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")
    try:
        return [(line, [cell.strip() for cell in row]) for line, row in csv_records(io.StringIO(text, newline=""))]
    except csv.Error as error:
        raise FeeScheduleError(f"{path}:{error.args[1]}: not CSV ({error.args[0]}); is the file whole?") from error


def read_sheet(path: Path) -> list[Row]:
    """Row numbers and cells of a workbook's first sheet, as text. Raises FeeScheduleError for a file that is no whole
    workbook."""
    from openpyxl import load_workbook

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that are not read
            rows = load_workbook(file, read_only=True, data_only=True).worksheets[0].iter_rows(values_only=True)
            return [(line, [_text(cell) for cell in row]) for line, row in enumerate(rows, 1)]
    except OSError as error:
        raise FeeScheduleError(f"{path}: cannot be read: {error.strerror or error}") from error
    except zipfile.BadZipFile as error:
        raise FeeScheduleError(f"{path}: not a whole xlsx workbook ({error}); fetch or save it anew") from error
    except (ParseError, zlib.error, EOFError, ValueError, LookupError, TypeError, NotImplementedError) as error:
        raise FeeScheduleError(f"{path}: damaged sheet or no xlsx workbook ({error}); fetch or save it anew") from error


def _text(cell: Any) -> str:
    """A cell as text; numbers with the 15 digits of a spreadsheet's display, so that 5.355, stored as
    5.3549999999999995, is rounded as published; without an exponent."""
    if isinstance(cell, float):
        return f"{Decimal(f'{cell:.15g}'):f}"
    return "" if cell is None else str(cell).strip()


def plain(name: str) -> str:
    """A column's name for comparison: upper case, single spaces."""
    return " ".join(name.upper().split())


def _is_remark(row: Iterable[str]) -> bool:
    """Whether a row is empty or a remark in a single cell (title, footnote)."""
    return sum(bool(cell) for cell in row) <= 1
