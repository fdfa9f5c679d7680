"""Physician Fee Schedule as carriers receive it (PFALL, PFREV): finished prices by locality, no header."""

from __future__ import annotations

from pathlib import Path

from .gpci import check_locality
from .schedule import NATIONAL, BadRow, FeeScheduleError, Schedule, amount, cells, code_of, is_remark, only

# The layout of the annual payment amount file: 16 fields, of which these count.
_WIDTH, _YEAR, _CARRIER, _LOCALITY, _CODE, _MODIFIER, _NON_FACILITY, _STATUS = 16, 0, 1, 2, 3, 4, 5, 9
PRICED = frozenset("ART")  # status codes under which Medicare pays the published amounts


def is_carrier_file(rows: list[tuple[int, list[str]]]) -> bool:
    """Whether the first row is one of prices rather than a title or header."""
    first = rows[0][1] if rows else []
    return len(first) == _WIDTH and first[_YEAR].isdigit() and first[_CARRIER].isdigit()


def read_carrier(path: str | Path, rows: list[tuple[int, list[str]]], locality: str) -> Schedule:
    """Non-facility prices, US dollars, at a locality; imaging is capped in the file already.

    Raises FeeScheduleError, also for ``national``: the file has no national price.
    """
    if locality == NATIONAL:
        raise FeeScheduleError(
            f"{path}: a carrier file has prices by locality only; set data.fee_schedules.locality (such as '10112-00')"
        )
    check_locality(locality)
    schedule = Schedule("PFS", Path(path), locality=locality)
    years = set()
    for line, row in rows:
        if row and row[0].startswith("TRL"):
            schedule.left_out["trailer"] += 1
            continue
        if is_remark(row):
            continue
        schedule.rows += 1
        try:
            years.add(cells(row, _WIDTH)[_YEAR])
            _add(schedule, row, locality)
        except BadRow as why:
            schedule.reject(line, why)
    schedule.year = only(years, path, "year", "give the file of one year")
    if not schedule.rates and schedule.left_out["another locality"]:
        raise FeeScheduleError(f"{path}: no rows of locality {locality!r}")
    return schedule.check()


def _add(schedule: Schedule, row: list[str], locality: str) -> None:
    if f"{row[_CARRIER]}-{row[_LOCALITY]}" != locality:
        schedule.left_out["another locality"] += 1
        return
    code, usd = code_of(row, _CODE), amount(row[_NON_FACILITY], "non-facility amount")
    if row[_STATUS] not in PRICED:
        schedule.left_out[f"status {row[_STATUS] or 'blank'}"] += 1
    elif not usd:
        schedule.left_out["rate of 0"] += 1
    else:
        schedule.add(code, row[_MODIFIER], usd)
