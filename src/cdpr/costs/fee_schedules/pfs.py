"""Physician Fee Schedule: relative value units, conversion factor, locality and imaging cap.

price = (work x PW + practice expense x PE + malpractice x MP) x conversion factor, with the locality's indices PW, PE,
MP (1 for national prices), and for imaging not more than the same with the units of the hospital outpatient payment:
so computed, the price is the published imaging cap (OPPSCAP) to the cent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from .schedule import (
    NATIONAL,
    BadRow,
    FeeScheduleError,
    Schedule,
    Table,
    amount,
    code_of,
    is_remark,
    plain,
    prevailing,
    read_rows,
    same,
)

_QUARTERS = {"JANUARY": "A", "APRIL": "B", "JULY": "C", "OCTOBER": "D"}
_PRICED = frozenset("ART")  # status codes under which Medicare pays the published amounts
_FACTORS = 10, 200  # US dollars per unit; 32 to 40 since 1998
# Columns of work, practice expense and malpractice units, of their total, and of the two that imaging is capped by;
# names as stacked from the header rows.
_UNITS = (
    "WORK RVU", "NON-FAC PE RVU", "MP RVU", "NON-FACILITY TOTAL",
    "NON-FACILITY PE USED FOR OPPS PAYMENT AMOUNT", "MP USED FOR OPPS PAYMENT AMOUNT",
)  # fmt: skip


def read_pfs(
    path: str | Path,
    *,
    conversion_factor: float | None = None,
    locality: str = NATIONAL,
    gpci: str | Path | None = None,
) -> Schedule:
    """Non-facility prices, US dollars, from the relative value file (PPRRVU).

    Codes that Medicare does not pay by these units (all laboratory tests among them) are left out. A locality needs
    ``gpci``. Raises FeeScheduleError.
    """
    table = Table(Path(path), read_rows(Path(path)), "HCPCS", kind="the PPRRVU file")
    if locality == NATIONAL and gpci is not None:
        raise FeeScheduleError(
            f"{gpci}: sets nothing for national prices; set data.fee_schedules.locality, or leave "
            "data.fee_schedules.gpci empty"
        )
    if locality != NATIONAL and gpci is None:
        raise FeeScheduleError(f"locality {locality!r} needs data.fee_schedules.gpci, the indices of the same year")
    place = Indices() if locality == NATIONAL else read_gpci(gpci, locality)
    schedule = Schedule("PFS", table.path, *_release(table), locality=locality)
    # The last header row alone repeats names (two PE RVU, two TOTAL). Titles fill a single cell and are no part of it.
    header = [row for _, row in table.above if not is_remark(row)] + [table.header]
    table.names = [plain(" ".join(row[i] for row in header if i < len(row))) for i in range(len(table.header))]
    _price_rows(schedule, table, place, conversion_factor)
    return schedule.check()


def _price_rows(schedule: Schedule, table: Table, place: Indices, conversion_factor: float | None) -> None:
    code, read = table.find("HCPCS"), table.reader("HCPCS", "MOD", "STATUS CODE", "CONV FACTOR", *_UNITS)
    readable: list[tuple[int, dict[str, str]]] = []
    for line, row in table.below:
        if is_remark(row) or row[code : code + 1] == ["HCPCS"]:
            continue
        schedule.rows += 1
        with schedule.row(line):
            readable.append((line, read(row)))
    if conversion_factor is None:
        printed, factor = _factor(schedule, [cells["CONV FACTOR"] for _, cells in readable])
    else:
        printed, factor = None, Decimal(str(conversion_factor))
    for line, cells in readable:
        with schedule.row(line):
            if printed is not None:
                same(cells["CONV FACTOR"], printed, "CONV FACTOR")
            key = code_of(cells["HCPCS"]), cells["MOD"]
            units = [amount(cells[name], name) for name in _UNITS]
            if sum(units[:3]) != units[3]:
                raise BadRow("work, non-facility PE and MP do not add up to the non-facility total")
            if cells["STATUS CODE"] not in _PRICED:
                schedule.left_out[f"status {cells['STATUS CODE'] or 'blank'}"] += 1
            elif not units[3]:
                schedule.left_out["no units"] += 1
            else:
                schedule.add(*key, _price(schedule, units, place, factor))


def _price(schedule: Schedule, units: Sequence[Decimal], place: Indices, factor: Decimal) -> Decimal:
    """Price of a row. Imaging that is capped has practice expense units for the cap."""
    work, expense, malpractice, _, capped_expense, capped_malpractice = units
    full = capped = _units_at(place, work, expense, malpractice) * factor
    if capped_expense:
        capped = min(full, _units_at(place, work, capped_expense, capped_malpractice) * factor)
    if capped < full:
        schedule.notes["rows at the imaging cap"] += 1
    return capped


def _units_at(place: Indices, work: Decimal, expense: Decimal, malpractice: Decimal) -> Decimal:
    return work * place.work + expense * place.expense + malpractice * place.malpractice


def _factor(schedule: Schedule, cells: Sequence[str]) -> tuple[str, Decimal]:
    """The conversion factor as printed, and as a number."""
    advice = "set data.fee_schedules.conversion_factor"
    text = prevailing(cells, schedule.path, "conversion factor", advice)
    try:
        factor = amount(text, "CONV FACTOR")
    except BadRow as why:
        raise FeeScheduleError(f"{schedule.path}: {why}; {advice}") from why
    low, high = _FACTORS
    if not low <= factor <= high:
        problem = f"field 'CONV FACTOR': {text} US dollars per unit"
        raise FeeScheduleError(f"{schedule.path}: {problem}; do the columns stand under their names? Else {advice}")
    return text, factor


def _release(table: Table) -> tuple[str, str]:
    """Year and release, for example ``2025`` and ``RVU25D``, from the title."""
    for _, row in table.above:
        title = plain(" ".join(row))
        if "PHYSICIAN FEE SCHEDULE" in title and title[:4].isdigit():
            letters = [letter for month, letter in _QUARTERS.items() if month in title]
            return title[:4], f"RVU{title[2:4]}{letters[0]}" if letters else ""
    return "", ""


_INDICES = {  # plausible ranges; in 2025: 0.99 to 1.5, 0.87 to 1.42 and 0.2 to 2.7
    "PW GPCI": (Decimal("0.8"), Decimal("1.6")),
    "PE GPCI": (Decimal("0.6"), Decimal("2")),
    "MP GPCI": (Decimal("0.1"), Decimal("4")),
}


class Indices(NamedTuple):
    """Multipliers of work, practice expense and malpractice units; all 1 for national prices."""

    work: Decimal = Decimal(1)
    expense: Decimal = Decimal(1)
    malpractice: Decimal = Decimal(1)
    name: str = "national"


def read_gpci(path: str | Path, locality: str) -> Indices:
    """Geographic practice cost indices of one locality (``10112-00``).

    Of a work index with and without its legal floor of 1, the one with the floor counts. Leading zeros of contractor
    and locality numbers, which spreadsheets drop, are restored. Raises FeeScheduleError, also for implausible indices.
    """
    if not re.fullmatch(r"\d{5}-\d{2}", locality):
        raise FeeScheduleError(
            f"data.fee_schedules.locality: {locality!r} is neither 'national' nor contractor and locality such as "
            "'10112-00'"
        )
    table = Table(Path(path), read_rows(Path(path)), "Locality Number", kind="the GPCI file")
    contractor = _place(table, "CONTRACTOR")
    number, name = table.find("LOCALITY NUMBER"), table.find("LOCALITY NAME")
    places = {part: _place(table, part) for part in ("PW GPCI", "PE GPCI", "MP GPCI")}
    known: dict[str, tuple[int, list[str]]] = {}
    for line, row in table.below:
        if len(row) <= max(contractor, number, name, *places.values()) or not row[contractor].isdigit():
            continue
        known.setdefault(f"{row[contractor].zfill(5)}-{row[number].zfill(2)}", (line, row))
    for part, place in places.items():
        _check_indices(table, part, place, [row[place] for _, row in known.values()])
    if locality in known:
        line, row = known[locality]
        try:
            work, expense, malpractice = (amount(row[place], part) for part, place in places.items())
        except BadRow as why:
            raise FeeScheduleError(f"{path}:{line}: {why}") from why
        return Indices(work, expense, malpractice, row[name].rstrip("*").strip())
    near = [key for key in known if key[:5] == locality[:5] or key[-2:] == locality[-2:]] or [*known]
    raise FeeScheduleError(f"{path}: no locality {locality!r}; near it: {', '.join(near[:8]) or 'none'}")


def _check_indices(table: Table, part: str, place: int, cells: Sequence[str]) -> None:
    """Raises FeeScheduleError for a column with many cells outside the plausible range."""
    low, high = _INDICES[part]
    if "FLOOR" in table.names[place] and "WITHOUT" not in table.names[place]:
        low = Decimal(1)
    odd = [cell for cell in cells if not re.fullmatch(r"\d*\.?\d+", cell) or not low <= Decimal(cell) <= high]
    if len(odd) * 10 > len(cells):
        raise FeeScheduleError(
            f"{table.path}:{table.line}: {len(odd)} of {len(cells)} cells under {table.names[place]!r} are no indices "
            f"from {low} to {high} (the first: {odd[0][:20]!r}); do the columns stand under their names?"
        )


def _place(table: Table, part: str) -> int:
    """The column of an index, the one with the legal floor if there are two."""
    columns = [i for i, name in enumerate(table.names) if part in name]
    columns = [i for i in columns if "WITHOUT" not in table.names[i]] or columns
    if len(columns) != 1:
        raise FeeScheduleError(f"{table.path}:{table.line}: {len(columns)} columns with {part!r}; expected one")
    return columns[0]
