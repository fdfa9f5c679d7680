"""Rates from the fee schedules of the Centers for Medicare & Medicaid Services, as published, of any year.

Only codes and rates are read: the descriptors of these files belong to the American Medical Association. A file with
another layout is an error. A single bad row is rejected: listed with its line and field, and counted. When most rows
are bad, the file is an error too.
"""

import csv
import io
import math
import operator
import re
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

from ..files import TableError, csv_records, parse_yaml, shipped_text

CODE = re.compile(r"[A-Z0-9]\d{3}[A-Z0-9]")
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1f]")
Row = tuple[int, list[str]]  # the line that it begins on, and its cells
Cells = dict[str, str]  # cells of a row by the names of their columns
NATIONAL = "national"
_ITEM = re.compile(rf"(?P<code>{CODE.pattern})(-(?P<modifier>[A-Z0-9]{{2}}))?")
_MODIFIER = re.compile(r"([A-Z0-9]{2})?")
_AMOUNT = re.compile(r"\$?((\d+|\d{1,3}(,\d{3})+)(\.\d*)?|\.\d+)")
_DATE = re.compile(r"20\d\d(0[1-9]|1[0-2])\d\d")
_YEAR = re.compile(r"\bCY\s*(20\d\d)\b")
_CENT = Decimal("0.01")
_DEAREST = Decimal(9_999_999)  # US dollars; dearer is a date or a number of another kind
_WHOLE = 50  # rates from which on a schedule is judged as a whole
_FEW = 0.1  # share of rows that may differ from the others in what all should share
_LAYOUT = parse_yaml(shipped_text(__package__, "fee_schedules.yaml"))
_UNITS, _INDICES = _LAYOUT["units"], _LAYOUT["indices"]
_NAMES = "do the columns stand under their names?"


# Tables as published: CSV files and workbooks with titles, stacked headers and footnotes.


class Table:
    """Rows below the first row that has cells of all names of ``header``, the last of which is that of codes.

    Names may be stacked: rows above the header belong to it, except titles, which fill a single cell. Remarks and
    repeated headers are no rows. Raises TableError where there is no header.
    """

    def __init__(self, path: Path, rows: Sequence[Row], *header: str, kind: str):
        names = {plain(name) for name in header}
        start = next((i for i, (_, row) in enumerate(rows) if names <= {plain(cell) for cell in row}), None)
        if start is None:
            raise TableError(f"{path}: no header row with {' and '.join(header)}; is this {kind}?")
        self.path, self.kind, self.titles = path, kind, [row for _, row in rows[:start]]
        self.line, last_header = rows[start]
        width, code = len(last_header), [plain(cell) for cell in last_header].index(plain(header[-1]))
        early = [line for line, row in rows[:start] if code < len(row) and CODE.fullmatch(row[code].upper())]
        if early:
            problem = f"{len(early)} rows of codes stand above the header (line {self.line})"
            raise TableError(f"{path}:{early[0]}: {problem}; use the file as published")
        stacked = [row for row in self.titles if not _is_remark(row)] + [last_header]
        self.names = [plain(" ".join(row[i] for row in stacked if i < len(row))) for i in range(width)]
        padded = [(line, row + [""] * (width - len(row))) for line, row in rows[start + 1 :] if not _is_remark(row)]
        self.rows = [(line, row) for line, row in padded if row[code] != last_header[code]]  # no repeated header

    def select(self, *names: str) -> list[tuple[int, Cells]]:
        """Lines and cells of these columns. Raises TableError for a column that is not there, or twice."""
        known = ", ".join("".join(filter(str.isprintable, name[:60])) for name in self.names if name)
        for name in names:
            if name not in self.names:
                problem = f"no column {name!r}; found {known[:1000]}; is this {self.kind}?"
                raise TableError(f"{self.path}:{self.line}: {problem}")
            if (times := self.names.count(name)) > 1:
                raise TableError(f"{self.path}:{self.line}: column {name!r} stands {times} times")
        places = {name: self.names.index(name) for name in names}
        return [(line, {name: row[place] for name, place in places.items()}) for line, row in self.rows]

    def find_part(self, part: str) -> str:
        """The name of the one column that has ``part`` in its name; of a work index with and without its legal floor,
        that with it. Raises TableError for none and for several."""
        columns = [name for name in self.names if part in name]
        columns = [name for name in columns if "WITHOUT" not in name] or columns
        if len(columns) != 1:
            raise TableError(f"{self.path}:{self.line}: {len(columns)} columns with {part!r}; expected one")
        return columns[0]


def read_csv(path: Path) -> list[Row]:
    """All rows of a CSV file, cells stripped; UTF-8, otherwise Windows-1252. Raises TableError for a file that is
    missing, is no text, or breaks off inside a quoted field."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror}") from error
    if raw.startswith(b"PK") or _BINARY.search(raw):
        raise TableError(f"{path}: this is no CSV file; unpack it, or save it as CSV")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")
    try:
        return [(line, [cell.strip() for cell in row]) for line, row in csv_records(io.StringIO(text, newline=""))]
    except csv.Error as error:
        raise TableError(f"{path}:{error.args[1]}: not CSV ({error.args[0]}); is the file whole?") from error


def read_sheet(path: Path) -> list[Row]:
    """Row numbers and cells of a workbook's first sheet, as text. Raises TableError for a file that is no whole
    workbook."""
    from openpyxl import load_workbook

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that are not read
            rows = load_workbook(file, read_only=True, data_only=True).worksheets[0].iter_rows(values_only=True)
            return [(line, [_text(cell) for cell in row]) for line, row in enumerate(rows, 1)]
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror or error}") from error
    except zipfile.BadZipFile as error:
        raise TableError(f"{path}: not a whole xlsx workbook ({error}); fetch or save it anew") from error
    except (ParseError, zlib.error, EOFError, ValueError, LookupError, TypeError, NotImplementedError) as error:
        raise TableError(f"{path}: damaged sheet or no xlsx workbook ({error}); fetch or save it anew") from error


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
        rates = [self.rates[item] for item in split_codes(codes) if item in self.rates]
        return round(math.fsum(rates), 2) if len(rates) == len(split_codes(codes)) else None

    def fill(self, rows: Iterable[tuple[int, Cells]], price: Callable[[Cells], Decimal | str]) -> Self:
        """The schedule with the rates of these rows, whose first cell is the code. ``price`` gives the US dollars of a
        row, or the reason why it has none, or raises BadRow. Raises TableError without any rate, when most rows
        were rejected, or when the rates together cannot be those of such a schedule."""
        for line, cells in rows:
            self.rows += 1
            try:
                column, code = next(iter(cells.items()))
                if not CODE.fullmatch(code.upper()):
                    raise BadRow(f"field {column!r}: {code[:20]!r} is not a code of five characters")
                self._add(code.upper(), cells.get("MOD", ""), price(cells))
            except BadRow as why:
                self.rejected.append(f"line {line}: {why}")
        if (bad := len(self.rejected)) * 2 > self.rows:
            raise TableError(f"{self.path}: {bad} of {self.rows} rows cannot be read; the first: {self.rejected[0]}")
        if not self.rates:
            raise TableError(f"{self.path}: no row has a rate; is the file whole?")
        if len(self.rates) >= _WHOLE and (odd := self._oddity()):
            raise TableError(f"{self.path}: {odd}; {_NAMES}")
        return self

    def _add(self, code: str, modifier: str, price: Decimal | str) -> None:
        """Take up the rate of a code and modifier, or count why there is none. Raises BadRow."""
        if isinstance(price, str):
            self.left_out[price] += 1
            return
        if not _MODIFIER.fullmatch(modifier):
            raise BadRow(f"field 'MOD': {modifier[:20]!r} is not a modifier")
        if price > _DEAREST:
            raise BadRow(f"{price:,} US dollars are no rate; is it a date?")
        usd = float(price.quantize(_CENT, ROUND_HALF_UP))
        if not usd:
            self.left_out["rate below half a cent"] += 1
            return
        if (code, modifier) in self.rates:
            if self.rates[code, modifier] != usd:
                raise BadRow(f"{code} {modifier}".strip() + " stands twice, with two rates")
            self.left_out["repeated"] += 1
        self.rates[code, modifier] = usd

    def _oddity(self) -> str | None:
        """Evidence that these are not the columns of codes, modifiers and rates; None without any."""
        if all(modifier for _, modifier in self.rates):
            return "every row has a modifier"
        usd, times = Counter(self.rates.values()).most_common(1)[0]
        if times * 2 > len(self.rates):
            return f"{times:,} of {len(self.rates):,} rates are {usd:.2f} US dollars"
        low, high = _LAYOUT["medians"][self.kind]
        middle = median(self.rates.values())
        return None if low <= middle <= high else f"half of the rates are above {middle:,.2f} US dollars"


def split_codes(codes: str) -> list[tuple[str, str]]:
    """(code, modifier) of each part. Raises ValueError for what is no list of codes."""
    parts = codes.split("+")
    items = [item for part in parts if (item := _ITEM.fullmatch(part.strip()))]
    if len(items) < len(parts):
        raise ValueError(f"{codes!r} is not CODE, CODE-MODIFIER or several of them joined by '+'")
    return [(item["code"], item["modifier"] or "") for item in items]


def read_clfs(path: Path) -> Schedule:
    """Laboratory rates, US dollars, from the CSV file of a quarter.

    Locally priced codes (indicator ``L``, printed as 0) have no national rate and are left out. The release is the
    quarter of the latest effective date. Raises TableError.
    """
    table = Table(path, read_csv(path), "YEAR", "HCPCS", kind="the CLFS file")
    rows = table.select("HCPCS", "MOD", "INDICATOR", "RATE", "YEAR", "EFF_DATE")
    year = _prevailing(rows, "YEAR", table.path, "year", "give the file of one year")
    latest = max(filter(_DATE.fullmatch, (cells["EFF_DATE"] for _, cells in rows)), default="")
    release = f"Q{(int(latest[4:6]) + 2) // 3}" if latest else ""

    def price(cells: Cells) -> Decimal | str:
        _check_same(cells, "YEAR", year)
        usd = _amount(cells, "RATE")
        return "locally priced" if cells["INDICATOR"] == "L" else usd or "rate of 0"

    return Schedule("CLFS", table.path, year, release).fill(rows, price)


def read_opps(path: Path) -> Schedule:
    """National payment rates of hospital outpatient services (facility costs included), US dollars, from the workbook
    of Addendum B (xlsx).

    Packaged codes and others without a rate are left out, by status indicator. Raises TableError.
    """
    table = Table(path, read_sheet(path), "HCPCS Code", kind="Addendum B")
    titles = (title[1] for row in table.titles for cell in row if (title := _YEAR.search(cell)))
    rows = [(line, cells) for line, cells in table.select("HCPCS CODE", "SI", "PAYMENT RATE") if cells["HCPCS CODE"]]

    def price(cells: Cells) -> Decimal | str:
        usd = _amount(cells, "PAYMENT RATE") if cells["PAYMENT RATE"] else None
        return usd or f"no rate, status {cells['SI'] or 'blank'}"

    return Schedule("OPPS", table.path, next(titles, "")).fill(rows, price)


def read_pfs(
    path: Path, *, conversion_factor: float | None = None, locality: str = NATIONAL, gpci: Path | None = None
) -> Schedule:
    """Non-facility prices, US dollars, from the relative value file (PPRRVU) of the Physician Fee Schedule.

    price = (work x PW + practice expense x PE + malpractice x MP) x conversion factor, with the locality's indices PW,
    PE, MP (1 for national prices), and for imaging not more than the same with the units of the hospital outpatient
    payment: so computed, the price is the published imaging cap (OPPSCAP) to the cent.

    Codes that Medicare does not pay by these units (all laboratory tests among them) are left out. A locality needs
    ``gpci``, of the same year. Raises TableError.
    """
    table = Table(path, read_csv(path), "HCPCS", kind="the PPRRVU file")
    if locality == NATIONAL and gpci is not None:
        remedy = "set data.fee_schedules.locality, or leave data.fee_schedules.gpci empty"
        raise TableError(f"{gpci}: sets nothing for national prices; {remedy}")
    if locality != NATIONAL and gpci is None:
        raise TableError(f"locality {locality!r} needs data.fee_schedules.gpci, the indices of the same year")
    schedule = Schedule("PFS", table.path, *_release(table), locality=locality)
    indices = (Decimal(1),) * 3 if gpci is None else read_gpci(gpci, locality, schedule.year)
    rows = table.select("HCPCS", "MOD", "STATUS CODE", "CONV FACTOR", *_UNITS)
    printed = None if conversion_factor else _printed_factor(rows, table.path)
    factor = Decimal(printed or str(conversion_factor))

    def in_usd(*units: Decimal) -> Decimal:
        return sum(map(operator.mul, units, indices), Decimal(0)) * factor

    def price(cells: Cells) -> Decimal | str:
        if printed:
            _check_same(cells, "CONV FACTOR", printed)
        work, expense, malpractice, total, capped_expense, capped_malpractice = (_amount(cells, n) for n in _UNITS)
        if work + expense + malpractice != total:
            raise BadRow("work, non-facility PE and MP do not add up to the non-facility total")
        if cells["STATUS CODE"] not in _LAYOUT["paid"]:
            return f"status {cells['STATUS CODE'] or 'blank'}"
        usd, cap = in_usd(work, expense, malpractice), in_usd(work, capped_expense, capped_malpractice)
        if capped_expense and cap < usd:  # only imaging that is capped has such units
            schedule.notes["rows at the imaging cap"] += 1
            return cap
        return usd if total else "no units"

    return schedule.fill(rows, price)


def _printed_factor(rows: Sequence[tuple[int, Cells]], path: Path) -> str:
    """The conversion factor that the file prints."""
    advice, (low, high) = "set data.fee_schedules.conversion_factor", _LAYOUT["factors"]
    factor = _prevailing(rows, "CONV FACTOR", path, "conversion factor", advice)
    usd = _decimal(factor)
    if usd is None or not low <= usd <= high:
        problem = f"field 'CONV FACTOR': {factor[:20]!r} are no US dollars per unit, {low} to {high}"
        raise TableError(f"{path}: {problem}; {_NAMES} Else {advice}")
    return factor


def _release(table: Table) -> tuple[str, str]:
    """Year and release, for example ``2025`` and ``RVU25D``, from the title."""
    for title in (plain(" ".join(row)) for row in table.titles):
        if "PHYSICIAN FEE SCHEDULE" in title and title[:4].isdigit():
            letters = [letter for month, letter in _LAYOUT["quarters"].items() if month in title]
            return title[:4], f"RVU{title[2:4]}{letters[0]}" if letters else ""
    return "", ""


def read_gpci(path: Path, locality: str, year: str = "") -> tuple[Decimal, ...]:
    """Geographic practice cost indices of one locality (``10112-00``): of work, practice expense and malpractice.

    Of a work index with and without its legal floor of 1, the one with the floor counts. Leading zeros of contractor
    and locality numbers, which spreadsheets drop, are restored. Raises TableError, also for implausible indices, and
    for a file that is not of the ``year``.
    """
    if not re.fullmatch(r"\d{5}-\d{2}", locality):
        problem = f"{locality!r} is neither 'national' nor contractor and locality, such as '10112-00'"
        raise TableError(f"data.fee_schedules.locality: {problem}")
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
    line, cells = known[locality]
    for column, (low, high) in zip(columns, _INDICES.values(), strict=True):
        index = _decimal(cells[column])
        if index is None or not Decimal(low) <= index <= Decimal(high):
            problem = f"{cells[column][:20]!r} under {column!r} is no index from {low} to {high}"
            raise TableError(f"{path}:{line}: {problem}; {_NAMES}")
    return tuple(Decimal(cells[column]) for column in columns)


def _check_year(table: Table, columns: Sequence[str], year: str) -> None:
    """Raises TableError unless a file of indices is of the year, as its columns say, else its titles, else its name."""
    texts = (" ".join(columns), " ".join(cell for row in table.titles for cell in row), table.path.name)
    years = set(next(filter(None, (re.findall(r"20\d\d", text) for text in texts)), []))
    if year and years != {year}:
        problem = f"indices of {' and '.join(sorted(years)) or 'no stated year'} beside relative values of {year}"
        raise TableError(f"{table.path}:{table.line}: {problem}; set data.fee_schedules.gpci to that year's file")


def _amount(cells: Cells, name: str) -> Decimal:
    """An amount that is not negative. Raises BadRow."""
    usd = _decimal(cells[name])
    if usd is None:
        raise BadRow(f"field {name!r}: {cells[name][:20]!r} is not an amount")
    return usd


def _decimal(text: str) -> Decimal | None:
    """An amount such as ``$1,234.50`` as a number; None for any other text."""
    return Decimal(text.lstrip("$").replace(",", "")) if _AMOUNT.fullmatch(text) else None


def _prevailing(rows: Iterable[tuple[int, Cells]], name: str, path: Path, what: str, advice: str) -> str:
    """The most frequent cell of column ``name``, which nearly all rows share; empty without rows.

    ``what`` (the year, ...) and ``advice`` are words for the message. Raises TableError when more than a tenth of the
    rows differ; the few that do are rejected one by one (:func:`_check_same`).
    """
    counts = Counter(cells[name] for _, cells in rows if cells[name])
    if not counts:
        return ""
    prevailing, times = counts.most_common(1)[0]
    if counts.total() - times > _FEW * counts.total():
        examples = ", ".join(sorted(value[:20] for value, _ in counts.most_common(4)))
        raise TableError(f"{path}: rows of more than one {what} ({examples}); {advice}")
    return prevailing


def _check_same(cells: Cells, name: str, expected: str) -> None:
    """Raises BadRow for a cell that differs from the prevailing one of the file."""
    if cells[name] != expected:
        raise BadRow(f"field {name!r}: {cells[name][:20]!r} where the other rows have {expected[:20]!r}")
