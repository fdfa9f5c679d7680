"""Rates of a fee schedule, and the reading of rows and amounts.

A file with another layout is an error. A single bad row is rejected: listed with its line and field, and counted. When
most rows are bad, the file is an error too.
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
from statistics import median
from typing import Self

from ...files import csv_records

_CODE = re.compile(r"[A-Z0-9]\d{3}[A-Z0-9]")
_AMOUNT = re.compile(r"\$?((\d+|\d{1,3}(,\d{3})+)(\.\d*)?|\.\d+)")
_ITEM = re.compile(r"(?P<code>[A-Z0-9]\d{3}[A-Z0-9])(-(?P<modifier>[A-Z0-9]{2}))?")
_MODIFIER = re.compile(r"([A-Z0-9]{2})?")
_CENT = Decimal("0.01")
_DEAREST = Decimal(9_999_999)  # US dollars; dearer is a date or a number of another kind
# Between these lies the median rate of a whole schedule, US dollars.
_MEDIANS = {"CLFS": (5, 500), "PFS": (10, 1_000), "OPPS": (50, 5_000)}
_WHOLE = 50  # rates from which on a schedule is judged as a whole
_FEW = 0.1  # share of rows that may differ from the others in what all should share
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1f]")
NATIONAL = "national"
Row = tuple[int, list[str]]  # the line that it begins on, and its cells


class FeeScheduleError(ValueError):
    """A fee schedule that cannot be used; the message names file, line and field."""


class BadRow(ValueError):
    """A row that cannot be used: which field, and why."""


@dataclass
class Schedule:
    """Rates in US dollars by (code, modifier); a blank modifier is the whole service.

    ``left_out`` counts rows without a price by reason, ``rejected`` lists rows that cannot be read, ``notes`` are
    further counts for the report.
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
        """Add a rate. Raises BadRow for a bad modifier or rate, and for a code that has another rate."""
        if not _MODIFIER.fullmatch(modifier):
            raise BadRow(f"field 'MOD': {modifier[:20]!r} is not a modifier")
        if usd > _DEAREST:
            raise BadRow(f"{usd:,} US dollars are no rate; is it a date?")
        amount = float(usd.quantize(_CENT, ROUND_HALF_UP))
        if not amount:
            self.left_out["rate below half a cent"] += 1
            return
        if (code, modifier) in self.rates:
            if self.rates[code, modifier] != amount:
                raise BadRow(f"{code} {modifier}".strip() + " stands twice, with two rates")
            self.left_out["repeated"] += 1
        self.rates[code, modifier] = amount

    @contextmanager
    def row(self, line: int) -> Iterator[None]:
        """A context in which a bad row is listed, with its line, instead of raised."""
        try:
            yield
        except BadRow as why:
            self.rejected.append(f"line {line}: {why}")

    def check(self) -> Self:
        """The schedule itself. Raises FeeScheduleError without any rate, when most rows were rejected, or when the
        rates together cannot be those of such a schedule."""
        if len(self.rejected) * 2 > self.rows:
            raise FeeScheduleError(
                f"{self.path}: {len(self.rejected)} of {self.rows} rows cannot be read; the first: {self.rejected[0]}"
            )
        if not self.rates:
            raise FeeScheduleError(f"{self.path}: no row has a rate; is the file whole?")
        if len(self.rates) >= _WHOLE and (odd := self._oddity()):
            raise FeeScheduleError(f"{self.path}: {odd}; do the columns stand under their names?")
        return self

    def _oddity(self) -> str | None:
        """Evidence that these are not the columns of codes, modifiers and rates; None without any."""
        if all(modifier for _, modifier in self.rates):
            return "every row has a modifier"
        usd, times = Counter(self.rates.values()).most_common(1)[0]
        if times * 2 > len(self.rates):
            return f"{times:,} of {len(self.rates):,} rates are {usd:.2f} US dollars"
        low, high = _MEDIANS[self.kind]
        middle = median(self.rates.values())
        return None if low <= middle <= high else f"half of the rates are above {middle:,.2f} US dollars"


def split_codes(codes: str) -> list[tuple[str, str]]:
    """(code, modifier) of each part. Raises ValueError for what is no list of codes."""
    items = [_ITEM.fullmatch(part.strip()) for part in codes.split("+")]
    if None in items:
        raise ValueError(f"{codes!r} is not CODE, CODE-MODIFIER or several of them joined by '+'")
    return [(item["code"], item["modifier"] or "") for item in items]


def read_rows(path: Path) -> list[Row]:
    """All rows of a CSV file with their first lines, cells stripped; UTF-8, otherwise Windows-1252.

    Raises FeeScheduleError for a file that is missing, is no text, or breaks off inside a quoted field.
    """
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
        names = {plain(name) for name in header}
        start = next((i for i, (_, row) in enumerate(rows) if names <= {plain(cell) for cell in row}), None)
        if start is None:
            raise FeeScheduleError(f"{path}: no header row with {' and '.join(header)}; is this {kind}?")
        self.kind, self.path, (self.line, self.header) = kind, path, rows[start]
        self.above, self.below = rows[:start], rows[start + 1 :]
        self.names = [plain(cell) for cell in self.header]
        place = self.names.index("HCPCS") if "HCPCS" in self.names else len(self.names)
        early = [line for line, row in self.above if place < len(row) and _CODE.fullmatch(row[place].upper())]
        if early:
            problem = f"{len(early)} rows of codes stand above the header (line {self.line})"
            raise FeeScheduleError(f"{path}:{early[0]}: {problem}; use the file as published")

    def find(self, name: str) -> int:
        """Place of a column. Raises FeeScheduleError when it is not there, or twice."""
        times = self.names.count(name)
        if not times:
            known = ", ".join("".join(filter(str.isprintable, name[:60])) for name in self.names if name)
            raise FeeScheduleError(
                f"{self.path}:{self.line}: no column {name!r}; found {known[:1000]}; is this {self.kind}?"
            )
        if times > 1:
            raise FeeScheduleError(f"{self.path}:{self.line}: column {name!r} stands {times} times")
        return self.names.index(name)

    def reader(self, *names: str) -> Callable[[Sequence[str]], dict[str, str]]:
        """A function from a row to its cells by these names; it raises BadRow for a row that is too short."""
        places = {name: self.find(name) for name in names}
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


def prevailing(values: Iterable[str], path: Path, what: str, advice: str) -> str:
    """The value of nearly all rows, empty without rows; other rows are bad (:func:`same`). Raises FeeScheduleError when
    more than a few differ."""
    counts = Counter(value for value in values if value)
    if not counts:
        return ""
    (first, times), *others = counts.most_common()
    if counts.total() - times > _FEW * counts.total():
        examples = ", ".join(sorted(value[:20] for value in (first, *(value for value, _ in others[:3]))))
        raise FeeScheduleError(f"{path}: rows of more than one {what} ({examples}); {advice}")
    return first


def same(value: str, expected: str, name: str) -> None:
    """Raises BadRow for a cell that differs from the prevailing value of the file."""
    if value != expected:
        raise BadRow(f"field {name!r}: {value[:20]!r} where the other rows have {expected[:20]!r}")


def is_year(text: str) -> bool:
    """Whether a cell holds a year of a fee schedule."""
    return re.fullmatch(r"20\d\d", text) is not None
