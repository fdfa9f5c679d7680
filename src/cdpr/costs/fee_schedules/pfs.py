"""Physician Fee Schedule: relative value units, conversion factor, locality and imaging cap.

price = (work x PW + practice expense x PE + malpractice x MP) x conversion factor, with the locality's indices PW, PE,
MP (1 for national prices), and for imaging not more than the same with the units of the hospital outpatient payment.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from .carrier import PRICED, is_carrier_file, read_carrier
from .gpci import Indices, read_gpci
from .opps_cap import Caps, read_opps_cap
from .schedule import (
    NATIONAL,
    BadRow,
    Columns,
    FeeScheduleError,
    Schedule,
    amount,
    cells,
    code_of,
    header_at,
    is_remark,
    only,
    plain,
    read_rows,
)

_QUARTERS = {"JANUARY": "A", "APRIL": "B", "JULY": "C", "OCTOBER": "D"}
# Names as stacked from the header rows.
_PARTS = {
    "work": "WORK RVU",
    "expense": "NON-FAC PE RVU",
    "malpractice": "MP RVU",
    "total": "NON-FACILITY TOTAL",
    "capped_expense": "NON-FACILITY PE USED FOR OPPS PAYMENT AMOUNT",
    "capped_malpractice": "MP USED FOR OPPS PAYMENT AMOUNT",
}


@dataclass(frozen=True)
class _Units:
    work: Decimal
    expense: Decimal
    malpractice: Decimal
    total: Decimal
    capped_expense: Decimal
    capped_malpractice: Decimal

    def at(self, place: Indices) -> Decimal:
        """Units at a locality."""
        return self.work * place.work + self.expense * place.expense + self.malpractice * place.malpractice

    def cap_at(self, place: Indices) -> Decimal | None:
        """The most that imaging may have; None where there is no cap."""
        if not self.capped_expense:
            return None
        return (
            self.work * place.work + self.capped_expense * place.expense + self.capped_malpractice * place.malpractice
        )


def read_pfs(
    path: str | Path,
    *,
    conversion_factor: float | None = None,
    locality: str = NATIONAL,
    gpci: str | Path | None = None,
    opps_cap: str | Path | None = None,
) -> Schedule:
    """Non-facility prices, US dollars, from the relative value file (PPRRVU) or a carrier file (PFALL, PFREV).

    Codes that Medicare does not pay by these units (all laboratory tests among them) are left out. A locality needs
    ``gpci``, except with a carrier file. With ``opps_cap`` the published caps of the locality hold, and are compared
    with those computed from the units. Raises FeeScheduleError.
    """
    rows = read_rows(path)
    if is_carrier_file(rows):
        return read_carrier(path, rows, locality)
    start = header_at(path, rows, "HCPCS", kind="the PPRRVU file")
    if locality != NATIONAL and gpci is None:
        raise FeeScheduleError(f"locality {locality!r} needs data.fee_schedules.gpci, the indices of the same year")
    place = Indices() if locality == NATIONAL else read_gpci(gpci, locality)
    caps = read_opps_cap(opps_cap, locality) if opps_cap and locality != NATIONAL else {}
    schedule = Schedule("PFS", Path(path), *_release(rows[:start]), locality=locality)
    columns = Columns(path, rows[start][0], _stacked(rows[: start + 1]))
    _read_units(schedule, rows[start + 1 :], columns, place, caps, conversion_factor)
    if opps_cap and locality != NATIONAL and not caps:
        schedule.notes["localities without published imaging caps"] = 1
    return schedule.check()


def _read_units(
    schedule: Schedule,
    rows: list[tuple[int, list[str]]],
    columns: Columns,
    place: Indices,
    caps: Caps,
    conversion_factor: float | None,
) -> None:
    code, modifier, status, factor = (columns.find(n) for n in ("HCPCS", "MOD", "STATUS CODE", "CONV FACTOR"))
    parts = {part: columns.find(name) for part, name in _PARTS.items()}
    width = max(code, modifier, status, factor, *parts.values()) + 1
    found: list[tuple[int, str, str, _Units]] = []
    factors = set()
    for line, row in rows:
        if is_remark(row) or row[code : code + 1] == ["HCPCS"]:
            continue
        schedule.rows += 1
        try:
            own = code_of(cells(row, width), code)
            units = _Units(**{part: amount(row[column], _PARTS[part]) for part, column in parts.items()})
            if units.work + units.expense + units.malpractice != units.total:
                raise BadRow("work, non-facility PE and MP do not add up to the non-facility total")
            factors.add(row[factor])
        except BadRow as why:
            schedule.reject(line, why)
            continue
        if row[status] not in PRICED:
            schedule.left_out[f"status {row[status] or 'blank'}"] += 1
        elif not units.total:
            schedule.left_out["no units"] += 1
        else:
            found.append((line, own, row[modifier], units))
    each = _factor(schedule, factors, conversion_factor)
    for line, own, mod, units in found:
        try:
            schedule.add(own, mod, _price(schedule, (own, mod), units, place, caps, each))
        except BadRow as why:
            schedule.reject(line, why)


def _price(
    schedule: Schedule, key: tuple[str, str], units: _Units, place: Indices, caps: Caps, each: Decimal
) -> Decimal:
    full, cap = units.at(place) * each, units.cap_at(place)
    computed = full if cap is None else min(full, cap * each)
    if computed < full:
        _count(schedule, "rows at the imaging cap")
    if key not in caps:
        return computed
    if abs(caps[key] - computed) > Decimal("0.01"):
        _count(schedule, "published imaging caps that differ from the units")
    return min(full, caps[key])


def _count(schedule: Schedule, what: str) -> None:
    schedule.notes[what] = schedule.notes.get(what, 0) + 1


def _factor(schedule: Schedule, factors: set[str], given: float | None) -> Decimal:
    if given is not None:
        return Decimal(str(given))
    text = only(factors, schedule.path, "conversion factor", "set data.fee_schedules.conversion_factor")
    try:
        factor = amount(text, "CONV FACTOR")
    except BadRow as why:
        raise FeeScheduleError(f"{schedule.path}: {why}; set data.fee_schedules.conversion_factor") from why
    if not factor:
        raise FeeScheduleError(f"{schedule.path}: field 'CONV FACTOR': 0; set data.fee_schedules.conversion_factor")
    return factor


def _stacked(rows: list[tuple[int, list[str]]]) -> list[str]:
    """Column names from the header row and the rows above it that continue into it.

    The last row alone repeats names (two PE RVU, two TOTAL). Titles fill a single cell and are no part of it.
    """
    header = [row for _, row in rows[:-1] if not is_remark(row)] + [rows[-1][1]]
    return [plain(" ".join(row[i] for row in header if i < len(row))) for i in range(len(rows[-1][1]))]


def _release(preamble: list[tuple[int, list[str]]]) -> tuple[str, str]:
    """Year and release, for example ``2025`` and ``RVU25D``, from the title."""
    for _, row in preamble:
        title = plain(" ".join(row))
        if "PHYSICIAN FEE SCHEDULE" in title and title[:4].isdigit():
            letters = [letter for month, letter in _QUARTERS.items() if month in title]
            return title[:4], f"RVU{title[2:4]}{letters[0]}" if letters else ""
    return "", ""
