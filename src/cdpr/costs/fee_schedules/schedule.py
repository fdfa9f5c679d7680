"""What every reader of a fee schedule gives back, and how rows and amounts are read.

A file that is not laid out as expected is an error. A single bad row is rejected: listed with its line and field,
and counted. When most rows are bad the file itself is, which is an error again.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Self

_CODE = re.compile(r"[A-Z0-9]\d{3}[A-Z0-9]")
_AMOUNT = re.compile(r"\$?((\d+|\d{1,3}(,\d{3})+)(\.\d*)?|\.\d+)")
_ITEM = re.compile(r"(?P<code>[A-Z0-9]\d{3}[A-Z0-9])(-(?P<modifier>[A-Z0-9]{2}))?")
_CENT = Decimal("0.01")
NATIONAL = "national"
Row = tuple[int, list[str]]  # the line that it ends on, and its cells


class FeeScheduleError(ValueError):
    """A fee schedule that cannot be used; the message names file, line and field."""


class BadRow(ValueError):
    """A row that cannot be used: which field, and why."""


@dataclass
class Schedule:
    """Rates in US dollars by (code, modifier); a blank modifier is the whole service.

    ``left_out`` counts rows without a price by reason, ``rejected`` lists rows that cannot be read, ``notes`` are
    further counts worth telling.
    """

    kind: str
    path: Path
    year: str = ""
    release: str = ""
    locality: str = NATIONAL
    rates: dict[tuple[str, str], float] = field(default_factory=dict)
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def source(self) -> str:
        """Kind, year and release, for example ``CLFS 2025 Q2``."""
        return " ".join(part for part in (self.kind, self.year, self.release) if part)

    def rate(self, codes: str) -> float | None:
        """Rate of the codes joined by ``+`` (``71046``, ``71046-26``): their sum; None when one has no rate."""
        parts = [self.rates.get(item) for item in split_codes(codes)]
        return None if None in parts else round(sum(parts), 2)

    def add(self, code: str, modifier: str, usd: Decimal) -> None:
        """Add a rate. Raises BadRow for a code that has another rate already."""
        amount = float(usd.quantize(_CENT, ROUND_HALF_UP))
        if self.rates.setdefault((code, modifier), amount) != amount:
            raise BadRow(f"{code} {modifier}".strip() + " stands twice, with two rates")

    @contextmanager
    def row(self, line: int) -> Iterator[None]:
        """Within it a row that cannot be read is listed, with its line."""
        try:
            yield
        except BadRow as why:
            self.rejected.append(f"line {line}: {why}")

    def check(self) -> Self:
        """The schedule itself. Raises FeeScheduleError without any rate, or when most rows were rejected."""
        if len(self.rejected) * 2 > self.rows:
            raise FeeScheduleError(
                f"{self.path}: {len(self.rejected)} of {self.rows} rows cannot be read; the first: {self.rejected[0]}"
            )
        if not self.rates:
            raise FeeScheduleError(f"{self.path}: no row has a rate; is the file whole?")
        return self


def split_codes(codes: str) -> list[tuple[str, str]]:
    """(code, modifier) of each part. Raises ValueError for what is no list of codes."""
    items = [_ITEM.fullmatch(part.strip()) for part in codes.split("+")]
    if None in items:
        raise ValueError(f"{codes!r} is not CODE, CODE-MODIFIER or several of them joined by '+'")
    return [(item["code"], item["modifier"] or "") for item in items]


def read_rows(path: Path) -> list[Row]:
    """All rows of a CSV file with the lines they end on, cells stripped; UTF-8, else Windows-1252.

    Raises FeeScheduleError for a file that is missing, is no text, or breaks off inside a quoted field.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FeeScheduleError(f"{path}: cannot be read: {error.strerror}") from error
    if raw.startswith(b"PK") or b"\0" in raw:
        raise FeeScheduleError(f"{path}: this is no CSV file; unpack it, or save it as CSV")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise FeeScheduleError(f"{path}:{reader.line_num}: not CSV ({error}); is the file whole?") from error


def plain(name: str) -> str:
    """A column's name for comparison: upper case, single spaces."""
    return " ".join(name.upper().split())


def is_remark(row: Iterable[str]) -> bool:
    """Whether a row is empty or a remark in a single cell (title, footnote)."""
    return sum(bool(cell) for cell in row) <= 1


class Table:
    """The rows ``above`` and ``below`` the first row that has cells of all these names, its columns by ``names``.

    Raises FeeScheduleError where there is no such row.
    """

    def __init__(self, path: Path, rows: Sequence[Row], *header: str, kind: str):
        wanted = {plain(name) for name in header}
        start = next((i for i, (_, row) in enumerate(rows) if wanted <= {plain(cell) for cell in row}), None)
        if start is None:
            raise FeeScheduleError(f"{path}: no header row with {' and '.join(header)}; is this {kind}?")
        self.path, self.above, (self.line, self.header), self.below = path, rows[:start], rows[start], rows[start + 1 :]
        self.names = [plain(cell) for cell in self.header]

    def find(self, name: str) -> int:
        """Place of a column. Raises FeeScheduleError when it is not there, or twice."""
        times = self.names.count(name)
        if not times:
            known = ", ".join(filter(None, self.names))
            raise FeeScheduleError(f"{self.path}:{self.line}: no column {name!r}; found {known}")
        if times > 1:
            raise FeeScheduleError(f"{self.path}:{self.line}: column {name!r} stands {times} times")
        return self.names.index(name)

    def reader(self, *wanted: str) -> Callable[[Sequence[str]], dict[str, str]]:
        """A function from a row to its cells by these names, which raises BadRow for one that breaks off before."""
        places = {name: self.find(name) for name in wanted}
        width = max(places.values()) + 1

        def read(row: Sequence[str]) -> dict[str, str]:
            if len(row) < width:
                raise BadRow(f"{len(row)} fields, expected {width}; is the file whole?")
            return {name: row[place] for name, place in places.items()}

        return read

    def repeats_header(self, row: Sequence[str]) -> bool:
        """Whether a row is the header once more."""
        return [plain(cell) for cell in row] == self.names

    def rows(self) -> Iterator[Row]:
        """Lines and rows without remarks and repeated headers."""
        return ((line, row) for line, row in self.below if not is_remark(row) and not self.repeats_header(row))


def code_of(text: str, name: str = "HCPCS") -> str:
    """The code in a cell. Raises BadRow."""
    if not _CODE.fullmatch(text.upper()):
        raise BadRow(f"field {name!r}: {text[:20]!r} is not a code of five characters")
    return text.upper()


def amount(text: str, name: str) -> Decimal:
    """An amount that is not negative. Raises BadRow."""
    if not _AMOUNT.fullmatch(text):
        raise BadRow(f"field {name!r}: {text[:20]!r} is not an amount")
    return Decimal(text.lstrip("$").replace(",", ""))


def only(values: Iterable[str], path: Path, what: str, advice: str) -> str:
    """The one value that all rows share, empty for none. Raises FeeScheduleError."""
    distinct = sorted(set(values) - {""})
    if len(distinct) > 1:
        raise FeeScheduleError(f"{path}: rows of more than one {what} ({', '.join(distinct[:4])}); {advice}")
    return distinct[0] if distinct else ""
