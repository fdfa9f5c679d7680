"""Physician Fee Schedule: relative value units, conversion factor, locality and imaging cap.

price = (work x PW + practice expense x PE + malpractice x MP) x conversion factor, with the locality's indices PW, PE,
MP (1 for national prices), and for imaging not more than the same with the units of the hospital outpatient payment.
Carriers receive finished prices by locality (PFALL, PFREV), without a header.
"""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from .locality import Caps, Indices, check_locality, place_key, read_gpci, read_opps_cap
from .schedule import (
    NATIONAL,
    BadRow,
    FeeScheduleError,
    Row,
    Schedule,
    Table,
    amount,
    code_of,
    is_remark,
    is_year,
    plain,
    prevailing,
    read_rows,
    same,
)  # fmt: skip

_QUARTERS = {"JANUARY": "A", "APRIL": "B", "JULY": "C", "OCTOBER": "D"}
_PRICED = frozenset("ART")  # status codes under which Medicare pays the published amounts
_FACTORS = 10, 200  # US dollars per unit; 32 to 40 since 1998
CAPPED = "rows with a published imaging cap"
_WIDTH = 16  # fields of a carrier file
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
    opps_cap: str | Path | None = None,
) -> Schedule:
    """Non-facility prices, US dollars, from the relative value file (PPRRVU) or a carrier file (PFALL, PFREV).

    Codes that Medicare does not pay by these units (all laboratory tests among them) are left out. A locality needs
    ``gpci``, except with a carrier file. With ``opps_cap`` the published caps of the locality hold, and are compared
    with those computed from the units. Raises FeeScheduleError.
    """
    rows = read_rows(Path(path))
    if _is_carrier_file(rows):
        _refuse("with a carrier file, whose prices are finished", gpci=gpci, opps_cap=opps_cap)
        return _read_carrier(Path(path), rows, locality)
    table = Table(Path(path), rows, "HCPCS", kind="the PPRRVU file")
    if locality == NATIONAL:
        _refuse("for national prices; set data.fee_schedules.locality", gpci=gpci, opps_cap=opps_cap)
    if locality != NATIONAL and gpci is None:
        raise FeeScheduleError(f"locality {locality!r} needs data.fee_schedules.gpci, the indices of the same year")
    place = Indices() if locality == NATIONAL else read_gpci(gpci, locality)
    caps = read_opps_cap(opps_cap, locality) if opps_cap else Caps()
    schedule = Schedule("PFS", table.path, *_release(table), locality=locality)
    # The last header row alone repeats names (two PE RVU, two TOTAL). Titles fill a single cell and are no part of it.
    header = [row for _, row in table.above if not is_remark(row)] + [table.header]
    table.names = [plain(" ".join(row[i] for row in header if i < len(row))) for i in range(len(table.header))]
    _price_rows(schedule, table, place, caps, conversion_factor)
    if caps and not schedule.notes[CAPPED]:
        raise FeeScheduleError(f"{opps_cap}: none of its codes is priced by {table.path.name}; are both of one year?")
    schedule.check().rejected += caps.rejected
    if caps:
        schedule.notes["rows of imaging caps"], schedule.notes["localities with imaging caps"] = (
            caps.rows,
            caps.localities,
        )
    return schedule


def _refuse(where: str, **files: str | Path | None) -> None:
    """Raises FeeScheduleError for a file that would set nothing."""
    for name, path in files.items():
        if path is not None:
            raise FeeScheduleError(f"{path}: sets nothing {where}, or leave data.fee_schedules.{name} empty")


def _price_rows(schedule: Schedule, table: Table, place: Indices, caps: Caps, conversion_factor: float | None) -> None:
    code, read = table.find("HCPCS"), table.reader("HCPCS", "MOD", "STATUS CODE", "CONV FACTOR", *_UNITS)
    found: list[tuple[int, dict[str, str]]] = []
    for line, row in table.below:
        if is_remark(row) or row[code : code + 1] == ["HCPCS"]:
            continue
        schedule.rows += 1
        with schedule.row(line):
            found.append((line, read(row)))
    if conversion_factor is None:
        printed, factor = _factor(schedule, [cells["CONV FACTOR"] for _, cells in found])
    else:
        printed, factor = None, Decimal(str(conversion_factor))
    for line, cells in found:
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
                if key in caps:
                    schedule.notes[CAPPED] += 1
                schedule.add(*key, _price(schedule, units, place, caps.get(key), factor))


def _price(
    schedule: Schedule, units: Sequence[Decimal], place: Indices, cap: Decimal | None, factor: Decimal
) -> Decimal:
    """Price of a row; ``cap`` is the published one. Imaging that is capped has practice expense units for it."""
    work, expense, malpractice, _, capped_expense, capped_malpractice = units
    full = computed = _units_at(place, work, expense, malpractice) * factor
    if capped_expense:
        computed = min(full, _units_at(place, work, capped_expense, capped_malpractice) * factor)
    if computed < full:
        schedule.notes["rows at the imaging cap"] += 1
    if cap is None:
        return computed
    if abs(cap - computed) > Decimal("0.01"):
        schedule.notes["published imaging caps that differ from the units"] += 1
    return min(full, cap)


def _units_at(place: Indices, work: Decimal, expense: Decimal, malpractice: Decimal) -> Decimal:
    return work * place.work + expense * place.expense + malpractice * place.malpractice


def _factor(schedule: Schedule, cells: Sequence[str]) -> tuple[str, Decimal]:
    """The conversion factor as it is printed, and as a number."""
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


def _is_carrier_file(rows: list[Row]) -> bool:
    """Whether the first row is one of prices (year, carrier, ...) rather than a title or header."""
    return any(len(row) == _WIDTH and is_year(row[0]) and row[1].isdigit() for _, row in rows[:5])


def _read_carrier(path: Path, rows: list[Row], locality: str) -> Schedule:
    """Non-facility prices, US dollars, at a locality; imaging is capped in the file already.

    Raises FeeScheduleError, also for ``national``: the file has no national price.
    """
    if locality == NATIONAL:
        raise FeeScheduleError(
            f"{path}: a carrier file has prices by locality only; set data.fee_schedules.locality (such as '10112-00')"
        )
    check_locality(locality)
    schedule, found, places = Schedule("PFS", path, locality=locality), [], Counter()
    for line, row in rows:
        if row and row[0].startswith("TRL"):
            schedule.left_out["trailer"] += 1
        elif not is_remark(row):
            schedule.rows += 1
            with schedule.row(line):
                if len(row) < _WIDTH:
                    raise BadRow(f"{len(row)} fields, expected {_WIDTH}; is the file whole?")
                found.append((line, row))
    schedule.year = prevailing((row[0] for _, row in found), path, "year", "give the file of one year")
    for line, row in found:
        with schedule.row(line):
            same(row[0], schedule.year, "year")
            places[place_key(row[1], row[2])] += 1
            _add(schedule, row)
    if not places[locality]:
        there = ", ".join(place for place, _ in places.most_common(8))
        raise FeeScheduleError(f"{path}: no rows of locality {locality!r}, but of {there or 'none'}")
    return schedule.check()


def _add(schedule: Schedule, row: list[str]) -> None:
    _, carrier, number, code, modifier, price, _, _, _, status = row[:10]
    if place_key(carrier, number) != schedule.locality:
        schedule.left_out["another locality"] += 1
        return
    code, usd = code_of(code), amount(price, "non-facility amount")
    if status not in _PRICED:
        schedule.left_out[f"status {status or 'blank'}"] += 1
    elif not usd:
        schedule.left_out["rate of 0"] += 1
    else:
        schedule.add(code, modifier, usd)
