"""Reads prices from the fee schedules of the Centers for Medicare & Medicaid Services, as published, of any year.

Only codes and prices are read, because the descriptions in these files belong to the American Medical Association. A
file with another layout is an error. A single bad row is rejected: listed with its line and field, and counted. When
most rows are bad, the file is an error too.
"""

import csv
import io
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import median
from typing import Any, Self
from xml.etree.ElementTree import ParseError

from ..cases.patterns import Patterns, fill
from ..files import TableError, csv_records, parse_yaml, shipped_text

_BINARY_BYTES = bytes([*range(9), *range(14, 32)])  # no text has any of these
Row = tuple[int, list[str]]  # the line that it begins on, and its cells
Cells = dict[str, str]  # cells of a row by the names of their columns
NATIONAL = "national"  # the locality of prices that hold in the whole country
_CENT = Decimal("0.01")
_DEAREST = Decimal(9_999_999)  # US dollars; a higher number is a date or something else
_LEAST_JUDGED = 50  # with fewer rates a schedule is not checked by what they have in common
_FEW_SHARE = 0.1  # largest share of rows that differ from the others in a cell that should be the same in all
_LAYOUT = fill(parse_yaml(shipped_text(__package__, "fee_schedules.yaml")))
_UNITS, _INDICES, _PATTERN = _LAYOUT["units"], _LAYOUT["indices"], Patterns(_LAYOUT["patterns"])
_ASK_FOR_NAMES = "do the columns stand under their names?"  # the end of messages about implausible columns


# Tables as published: CSV files and workbooks with titles, stacked headers and footnotes.


class Table:
    """A table in a published file, which may have titles, headers over several rows, and footnotes.

    The header is the first row with all the names ``header``; the last name is that of the column of codes. Rows above
    the header are ``titles``. A title row with several filled cells is an upper row of the header: its cells are the
    first words of the columns' names. ``rows`` are the rows below, without remarks (a single filled cell) and repeated
    headers. Raises TableError where no row has all names, and for codes above
    the header.
    """

    def __init__(self, path: Path, rows: Sequence[Row], *header: str, kind: str):
        """Find the header in ``rows``, and read the names of columns and the rows below it. ``kind`` names the file in
        messages. Raises TableError without a header, and for codes above it."""
        names = {plain(name) for name in header}
        start = next((i for i, (_, row) in enumerate(rows) if names <= {plain(cell) for cell in row}), None)
        if start is None:
            raise TableError(f"{path}: no header row with {' and '.join(header)}; is this {kind}?")
        self.path, self.kind, self.titles = path, kind, [row for _, row in rows[:start]]
        # The header, and the index of its column of codes.
        self.line, last_header = rows[start]
        width, code = len(last_header), [plain(cell) for cell in last_header].index(plain(header[-1]))
        early = [line for line, row in rows[:start] if code < len(row) and _PATTERN.code.fullmatch(row[code].upper())]
        if early:
            problem = f"{len(early)} rows of codes stand above the header (line {self.line})"
            raise TableError(f"{path}:{early[0]}: {problem}; use the file as published")
        # The name of a column is what all rows of the header have in it, from top to bottom.
        stacked = [row for row in self.titles if not _is_remark(row)] + [last_header]
        self.names = [plain(" ".join(row[i] for row in stacked if i < len(row))) for i in range(width)]
        # The rows below, filled up to the width of the header.
        padded = [(line, row + [""] * (width - len(row))) for line, row in rows[start + 1 :] if not _is_remark(row)]
        self.rows = [(line, row) for line, row in padded if row[code] != last_header[code]]  # no repeated header

    def select(self, *names: str) -> list[tuple[int, Cells]]:
        """Return (line, cells of the columns ``names`` by name) for every row. Raises TableError for a column that is
        missing or occurs twice."""
        known = ", ".join("".join(filter(str.isprintable, name[:60])) for name in self.names if name)  # for messages
        for name in names:
            if name not in self.names:
                problem = f"no column {name!r}; found {known[:1000]}; is this {self.kind}?"
                raise TableError(f"{self.path}:{self.line}: {problem}")
            if (times := self.names.count(name)) > 1:
                raise TableError(f"{self.path}:{self.line}: column {name!r} stands {times} times")
        places = {name: self.names.index(name) for name in names}  # index of each column
        return [(line, {name: row[place] for name, place in places.items()}) for line, row in self.rows]

    def find_part(self, part: str) -> str:
        """Return the name of the one column whose name contains ``part``. Medicare publishes its geographic cost
        indices twice, with and without the legal minimum: of several columns those named "WITHOUT ..." do not count.
        Raises TableError where none or several are left."""
        columns = [name for name in self.names if part in name]
        columns = [name for name in columns if "WITHOUT" not in name] or columns
        if len(columns) != 1:
            raise TableError(f"{self.path}:{self.line}: {len(columns)} columns with {part!r}; expected one")
        return columns[0]


def read_csv(path: Path) -> list[Row]:
    """Return all rows of a CSV file, each with its line, and without spaces around cells. The file is UTF-8 or
    Windows-1252. Raises TableError for a file that is missing, is no text, or ends inside a quoted field."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror}") from error
    if raw.startswith(b"PK") or raw.translate(None, _BINARY_BYTES) != raw:
        raise TableError(f"{path}: this is no CSV file; unpack it, or save it as CSV")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")
    try:
        return [(line, [cell.strip() for cell in row]) for line, row in csv_records(io.StringIO(text, newline=""))]
    except csv.Error as error:
        message, line = error.args  # as ``csv_records`` raises it
        raise TableError(f"{path}:{line}: not CSV ({message}); is the file whole?") from error


def read_sheet(path: Path) -> list[Row]:
    """Return all rows of the first sheet of an xlsx workbook, each with its number and its cells as text. Raises
    TableError for a file that is no whole workbook."""
    from openpyxl import load_workbook

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that are not read
            rows = load_workbook(file, read_only=True, data_only=True).worksheets[0].iter_rows(values_only=True)
            return [(line, [_cell_text(cell) for cell in row]) for line, row in enumerate(rows, 1)]
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror or error}") from error
    except zipfile.BadZipFile as error:
        raise TableError(f"{path}: not a whole xlsx workbook ({error}); fetch or save it anew") from error
    except (ParseError, zlib.error, EOFError, ValueError, LookupError, TypeError, NotImplementedError) as error:
        raise TableError(f"{path}: damaged sheet or no xlsx workbook ({error}); fetch or save it anew") from error


def _cell_text(cell: Any) -> str:
    """Return a cell of a workbook as text. A number has 15 digits, as a spreadsheet displays it, and no exponent:
    5.355, stored as 5.3549999999999995, is then rounded as published."""
    if isinstance(cell, float):
        return f"{Decimal(f'{cell:.15g}'):f}"
    return "" if cell is None else str(cell).strip()


def plain(name: str) -> str:
    """Return the name of a column for comparison: upper case, single spaces."""
    return " ".join(name.upper().split())


def _is_remark(row: Iterable[str]) -> bool:
    """Whether a row has at most one filled cell: it is empty, a title or a footnote."""
    return sum(bool(cell) for cell in row) <= 1


class BadRow(ValueError):
    """A row of a fee schedule that cannot be used; the message says which field is wrong, and why."""


@dataclass
class Schedule:
    """The prices of a fee schedule: ``rates`` are US dollars by (code, modifier). An empty modifier is the whole
    service.

    ``left_out`` counts, by reason, rows that add no price. ``rejected`` lists rows that cannot be read. ``notes`` are
    further counts for the report. ``rows`` counts all rows.
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
        """Kind, year and release of the schedule, for example ``CLFS 2025 Q2``."""
        return " ".join(part for part in (self.kind, self.year, self.release) if part)

    def rate(self, codes: str) -> float | None:
        """Return the US dollars of one code, or of several joined by ``+`` (``71046+71046-26``): their sum. None where
        one of them has no price."""
        rates = [self.rates[item] for item in split_codes(codes) if item in self.rates]
        return round(sum(rates), 2) if len(rates) == len(split_codes(codes)) else None

    def fill(self, rows: Iterable[tuple[int, Cells]], price: Callable[[Cells], Decimal | str]) -> Self:
        """Add the prices of ``rows`` to the schedule, and return it. The first cell of a row is the code. ``price``
        returns the US dollars of a row, or the reason why it has none, or raises BadRow.

        Raises TableError if no row has a price, if most rows are rejected, or if the prices together cannot be those of
        such a schedule."""
        for line, cells in rows:
            self.rows += 1
            try:
                column, code = next(iter(cells.items()))
                if not _PATTERN.code.fullmatch(code.upper()):
                    raise BadRow(f"field {column!r}: {code[:20]!r} is not a code of five characters")
                self._add(code.upper(), cells.get("MOD", ""), price(cells))
            except BadRow as why:
                self.rejected.append(f"line {line}: {why}")
        if (bad := len(self.rejected)) * 2 > self.rows:
            raise TableError(f"{self.path}: {bad} of {self.rows} rows cannot be read; the first: {self.rejected[0]}")
        if not self.rates:
            raise TableError(f"{self.path}: no row has a rate; is the file whole?")
        if len(self.rates) >= _LEAST_JUDGED and (odd := self._find_oddity()):
            raise TableError(f"{self.path}: {odd}; {_ASK_FOR_NAMES}")
        return self

    def _add(self, code: str, modifier: str, price: Decimal | str) -> None:
        """Add the price of a code and modifier in US dollars; if ``price`` is a text, count it as the reason why there
        is none. Raises BadRow for an impossible modifier or price, and for a code that has another price already."""
        if isinstance(price, str):
            self.left_out[price] += 1
            return
        if not _PATTERN.modifier.fullmatch(modifier):
            raise BadRow(f"field 'MOD': {modifier[:20]!r} is not a modifier")
        if price > _DEAREST:
            raise BadRow(f"{price:,} US dollars are no rate; is it a date?")
        usd = float(price.quantize(_CENT, ROUND_HALF_UP))
        if not usd:
            self.left_out["rate below half a cent"] += 1
            return
        if (code, modifier) in self.rates:
            if self.rates[code, modifier] != usd:
                raise BadRow(f"{code} {modifier}".strip() + " occurs twice, with two rates")
            self.left_out["repeated"] += 1
        self.rates[code, modifier] = usd

    def _find_oddity(self) -> str | None:
        """Say why these cannot be the columns of codes, modifiers and prices: every row has a modifier, most prices are
        equal, or their median is implausible. None where nothing is odd."""
        if all(modifier for _, modifier in self.rates):
            return "every row has a modifier"
        usd, times = Counter(self.rates.values()).most_common(1)[0]
        if times * 2 > len(self.rates):
            return f"{times:,} of {len(self.rates):,} rates are {usd:.2f} US dollars"
        low, high = _LAYOUT["medians"][self.kind]
        middle = median(self.rates.values())
        return None if low <= middle <= high else f"half of the rates are above {middle:,.2f} US dollars"


def split_codes(codes: str) -> list[tuple[str, str]]:
    """Split billing codes joined by ``+``, each ``CODE`` or ``CODE-XX`` with the modifier XX of two characters. Returns
    (code, modifier) of each; the modifier is empty where there is none. Raises ValueError for any other text, also an
    empty one."""
    parts = codes.split("+")
    items = [item for part in parts if (item := _PATTERN.code_with_modifier.fullmatch(part.strip()))]
    if len(items) < len(parts):
        raise ValueError(f"{codes!r} is not CODE, CODE-MODIFIER or several of them joined by '+'")
    return [(item["code"], item["modifier"] or "") for item in items]


def read_clfs(path: Path) -> Schedule:
    """Read laboratory prices in US dollars from the CSV file of a quarter of the Clinical Laboratory Fee Schedule.

    Codes that are priced locally (indicator ``L``, printed as 0) have no national price and are left out. The release
    is the quarter of the latest effective date. Raises TableError for a file that cannot be used.
    """
    table = Table(path, read_csv(path), "YEAR", "HCPCS", kind="the CLFS file")
    rows = table.select("HCPCS", "MOD", "INDICATOR", "RATE", "YEAR", "EFF_DATE")
    year = _find_prevailing(rows, "YEAR", table.path, "year", "give the file of one year")
    latest = max(filter(_PATTERN.date.fullmatch, (cells["EFF_DATE"] for _, cells in rows)), default="")
    release = f"Q{(int(latest[4:6]) + 2) // 3}" if latest else ""  # by the month of YYYYMMDD

    def price(cells: Cells) -> Decimal | str:
        """Return the US dollars of a row, or the reason why it has none; raises BadRow for a row of another year."""
        _check_same(cells, "YEAR", year)
        usd = _read_amount(cells, "RATE")
        return "locally priced" if cells["INDICATOR"] == "L" else usd or "rate of 0"

    return Schedule("CLFS", table.path, year, release).fill(rows, price)


def read_opps(path: Path) -> Schedule:
    """Read national prices of hospital outpatient services (facility costs included) in US dollars from the xlsx
    workbook of Addendum B of the Outpatient Prospective Payment System.

    Codes without a price of their own are left out, and counted by their status indicator. Raises TableError for a file
    that cannot be used.
    """
    table = Table(path, read_sheet(path), "HCPCS Code", kind="Addendum B")
    years = (match[1] for row in table.titles for cell in row if (match := _PATTERN.calendar_year.search(cell)))
    rows = [(line, cells) for line, cells in table.select("HCPCS CODE", "SI", "PAYMENT RATE") if cells["HCPCS CODE"]]

    def price(cells: Cells) -> Decimal | str:
        """Return the US dollars of a row, or the reason why it has none."""
        usd = _read_amount(cells, "PAYMENT RATE") if cells["PAYMENT RATE"] else None
        return usd or f"no rate, status {cells['SI'] or 'blank'}"

    return Schedule("OPPS", table.path, next(years, "")).fill(rows, price)


def read_pfs(
    path: Path, *, conversion_factor: float | None = None, locality: str = NATIONAL, gpci: Path | None = None
) -> Schedule:
    """Compute prices in a physician's office, US dollars, from the relative value file (PPRRVU) of the Physician Fee
    Schedule.

    price = (work x PW + practice expense x PE + malpractice x MP) x conversion factor. PW, PE and MP are the indices of
    the ``locality`` (1 for national prices), which the file ``gpci`` of the same year has. The price of imaging has a
    cap, computed likewise from the units of hospital outpatient payment: to the cent the published one (OPPSCAP).

    ``conversion_factor`` is US dollars per unit, by default the one in the file. Codes that Medicare does not pay by
    these units (all laboratory tests among them) are left out. Raises TableError for a file that cannot be used, and
    for a ``locality`` without ``gpci`` or the reverse.
    """
    # Read the factor and the indices of the locality.
    table = Table(path, read_csv(path), "HCPCS", kind="the PPRRVU file")
    if locality == NATIONAL and gpci is not None:
        remedy = "set data.fee_schedules.locality, or leave data.fee_schedules.gpci empty"
        raise TableError(f"{gpci}: sets nothing for national prices; {remedy}")
    if locality != NATIONAL and gpci is None:
        raise TableError(f"locality {locality!r} needs data.fee_schedules.gpci, the indices of the same year")
    schedule = Schedule("PFS", table.path, *_read_release(table), locality=locality)
    indices = (Decimal(1),) * 3 if gpci is None else read_gpci(gpci, locality, schedule.year)
    rows = table.select("HCPCS", "MOD", "STATUS CODE", "CONV FACTOR", *_UNITS)
    printed = None if conversion_factor else _read_printed_factor(rows, table.path)
    factor = Decimal(printed or str(conversion_factor))

    def in_usd(*units: Decimal) -> Decimal:
        """Convert units of work, practice expense and malpractice to US dollars, by the indices of the locality and the
        conversion factor."""
        return sum((unit * index for unit, index in zip(units, indices, strict=True)), Decimal(0)) * factor

    def price(cells: Cells) -> Decimal | str:
        """Return the US dollars of a row, at most the imaging cap, or the reason why it has none. Raises BadRow for
        units that do not add up to their total, and for another conversion factor than in the other rows."""
        if printed:
            _check_same(cells, "CONV FACTOR", printed)
        work, expense, malpractice, total, capped_expense, capped_malpractice = (_read_amount(cells, n) for n in _UNITS)
        if work + expense + malpractice != total:
            raise BadRow("work, non-facility PE and MP do not add up to the non-facility total")
        if cells["STATUS CODE"] not in _LAYOUT["paid"]:
            return f"status {cells['STATUS CODE'] or 'blank'}"
        usd, cap = in_usd(work, expense, malpractice), in_usd(work, capped_expense, capped_malpractice)
        if capped_expense and cap < usd:  # only imaging with a cap has units for it
            schedule.notes["rows at the imaging cap"] += 1
            return cap
        return usd if total else "no units"

    return schedule.fill(rows, price)


def _read_printed_factor(rows: Sequence[tuple[int, Cells]], path: Path) -> str:
    """Return the conversion factor (US dollars per unit) that nearly all ``rows`` of a file print. Raises TableError
    where they differ or it is implausible."""
    advice, (low, high) = "set data.fee_schedules.conversion_factor", _LAYOUT["factors"]
    factor = _find_prevailing(rows, "CONV FACTOR", path, "conversion factor", advice)
    usd = _parse_decimal(factor)
    if usd is None or not low <= usd <= high:
        problem = f"field 'CONV FACTOR': {factor[:20]!r} are no US dollars per unit, {low} to {high}"
        raise TableError(f"{path}: {problem}; {_ASK_FOR_NAMES} Else {advice}")
    return factor


def _read_release(table: Table) -> tuple[str, str]:
    """Return year and release in the title of a file of the Physician Fee Schedule, such as ``2025`` and ``RVU25D``;
    empty texts where the title does not say."""
    for title in (plain(" ".join(row)) for row in table.titles):
        if "PHYSICIAN FEE SCHEDULE" in title and title[:4].isdigit():
            letters = [letter for month, letter in _LAYOUT["quarters"].items() if month in title]
            return title[:4], f"RVU{title[2:4]}{letters[0]}" if letters else ""
    return "", ""


def read_gpci(path: Path, locality: str, year: str = "") -> tuple[Decimal, ...]:
    """Read the geographic practice cost indices of one ``locality`` (contractor and locality, such as ``10112-00``):
    the indices of work, practice expense and malpractice.

    Of a work index with and without its legal minimum of 1, the one with the minimum is read. Leading zeros of the
    numbers of contractor and locality, which spreadsheets drop, are restored. Raises TableError for an unknown
    locality, for implausible indices, and for a file of another ``year``.
    """
    if not _PATTERN.locality.fullmatch(locality):
        problem = f"{locality!r} is neither 'national' nor contractor and locality, such as '10112-00'"
        raise TableError(f"data.fee_schedules.locality: {problem}")
    # Index the rows by "contractor-locality".
    table = Table(path, read_csv(path), "Locality Number", kind="the GPCI file")
    contractor, *columns = (table.find_part(part) for part in ("CONTRACTOR", *_INDICES))
    _check_year(table, columns, year)
    known: dict[str, tuple[int, Cells]] = {}
    for line, cells in table.select(contractor, "LOCALITY NUMBER", *columns):
        if cells[contractor].isdigit():
            known.setdefault(f"{cells[contractor].zfill(5)}-{cells['LOCALITY NUMBER'].zfill(2)}", (line, cells))
    if locality not in known:
        near = [key for key in known if key[:5] == locality[:5] or key[-2:] == locality[-2:]] or [*known]
        raise TableError(f"{path}: no locality {locality!r}; near it: {', '.join(near[:8]) or 'none'}")
    # Check the three indices of the locality.
    line, cells = known[locality]
    for column, (low, high) in zip(columns, _INDICES.values(), strict=True):
        index = _parse_decimal(cells[column])
        if index is None or not Decimal(low) <= index <= Decimal(high):
            problem = f"{cells[column][:20]!r} under {column!r} is no index from {low} to {high}"
            raise TableError(f"{path}:{line}: {problem}; {_ASK_FOR_NAMES}")
    return tuple(Decimal(cells[column]) for column in columns)


def _check_year(table: Table, columns: Sequence[str], year: str) -> None:
    """Raise TableError unless the indices in ``table`` are of this ``year``. Their year is in the names of the columns,
    else in the titles, else in the name of the file. An empty ``year`` is not checked."""
    texts = (" ".join(columns), " ".join(cell for row in table.titles for cell in row), table.path.name)
    years_by_text = map(_PATTERN.year.findall, texts)
    years = set(next(filter(None, years_by_text), []))  # in the first text that has any
    if year and years != {year}:
        problem = f"indices of {' and '.join(sorted(years)) or 'no stated year'} beside relative values of {year}"
        raise TableError(f"{table.path}:{table.line}: {problem}; set data.fee_schedules.gpci to that year's file")


def _read_amount(cells: Cells, name: str) -> Decimal:
    """Return the cell ``name`` of a row as a number of at least 0. Raises BadRow for any other text."""
    usd = _parse_decimal(cells[name])
    if usd is None:
        raise BadRow(f"field {name!r}: {cells[name][:20]!r} is not an amount")
    return usd


def _parse_decimal(text: str) -> Decimal | None:
    """Return an amount such as ``$1,234.50`` as a number; None for any other text."""
    return Decimal(text.lstrip("$").replace(",", "")) if _PATTERN.amount.fullmatch(text) else None


def _find_prevailing(rows: Iterable[tuple[int, Cells]], name: str, path: Path, what: str, advice: str) -> str:
    """Return the most frequent cell of column ``name``, without empty cells; empty where all are.

    ``what`` (the year, ...) and ``advice`` are words for the error message. Raises TableError when more than a tenth of
    the filled cells differ from it; :func:`_check_same` rejects the rows of fewer, and of empty cells, one by one.
    """
    counts = Counter(cells[name] for _, cells in rows if cells[name])
    if not counts:
        return ""
    prevailing, times = counts.most_common(1)[0]
    if counts.total() - times > _FEW_SHARE * counts.total():
        examples = ", ".join(sorted(value[:20] for value, _ in counts.most_common(4)))
        raise TableError(f"{path}: rows of more than one {what} ({examples}); {advice}")
    return prevailing


def _check_same(cells: Cells, name: str, expected: str) -> None:
    """Raise BadRow if the cell ``name`` of a row differs from ``expected``, the cell that nearly all rows of the file
    share."""
    if cells[name] != expected:
        raise BadRow(f"field {name!r}: {cells[name][:20]!r} where the other rows have {expected[:20]!r}")
