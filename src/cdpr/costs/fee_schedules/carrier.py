"""Physician Fee Schedule as carriers receive it (PFALL, PFREV): finished prices by locality, no header."""

from __future__ import annotations

from pathlib import Path

from .locality import check_locality
from .schedule import NATIONAL, BadRow, FeeScheduleError, Row, Schedule, amount, code_of, is_remark, only

_WIDTH = 16  # fields of the annual payment amount file
PRICED = frozenset("ART")  # status codes under which Medicare pays the published amounts


def is_carrier_file(rows: list[Row]) -> bool:
    """Whether the first row is one of prices (year, carrier, ...) rather than a title or header."""
    first = rows[0][1] if rows else []
    return len(first) == _WIDTH and first[0].isdigit() and first[1].isdigit()


def read_carrier(path: Path, rows: list[Row], locality: str) -> Schedule:
    """Non-facility prices, US dollars, at a locality; imaging is capped in the file already.

    Raises FeeScheduleError, also for ``national``: the file has no national price.
    """
    if locality == NATIONAL:
        raise FeeScheduleError(
            f"{path}: a carrier file has prices by locality only; set data.fee_schedules.locality (such as '10112-00')"
        )
    check_locality(locality)
    schedule, years = Schedule("PFS", path, locality=locality), set()
    for line, row in rows:
        if row and row[0].startswith("TRL"):
            schedule.left_out["trailer"] += 1
        elif not is_remark(row):
            schedule.rows += 1
            with schedule.row(line):
                if len(row) < _WIDTH:
                    raise BadRow(f"{len(row)} fields, expected {_WIDTH}; is the file whole?")
                years.add(row[0])
                _add(schedule, row)
    schedule.year = only(years, path, "year", "give the file of one year")
    if not schedule.rates and schedule.left_out["another locality"]:
        raise FeeScheduleError(f"{path}: no rows of locality {locality!r}")
    return schedule.check()


def _add(schedule: Schedule, row: list[str]) -> None:
    _, carrier, number, code, modifier, price, _, _, _, status = row[:10]
    if f"{carrier}-{number}" != schedule.locality:
        schedule.left_out["another locality"] += 1
        return
    code, usd = code_of(code), amount(price, "non-facility amount")
    if status not in PRICED:
        schedule.left_out[f"status {status or 'blank'}"] += 1
    elif not usd:
        schedule.left_out["rate of 0"] += 1
    else:
        schedule.add(code, modifier, usd)
