"""Clinical Laboratory Fee Schedule: one national rate per code."""

import re
from pathlib import Path

from .schedule import FeeScheduleError, Schedule, Table, amount, code_of, is_year, prevailing, read_rows, same

_DATE = re.compile(r"20\d\d(0[1-9]|1[0-2])\d\d")


def read_clfs(path: str | Path) -> Schedule:
    """Laboratory rates, US dollars, from the CSV file of a quarter.

    Locally priced codes (indicator ``L``, printed as 0) have no national rate and are left out. The release is the
    quarter of the latest effective date. Raises FeeScheduleError.
    """
    schedule = Schedule("CLFS", Path(path))
    table = Table(schedule.path, read_rows(schedule.path), "YEAR", "HCPCS", kind="the CLFS file")
    read = table.reader("HCPCS", "MOD", "INDICATOR", "RATE", "YEAR")
    since = table.names.index("EFF_DATE") if "EFF_DATE" in table.names else None
    found: list[tuple[int, dict[str, str]]] = []
    dates = {""}
    for line, row in table.rows():
        schedule.rows += 1
        with schedule.row(line):
            found.append((line, read(row)))
            dates.add(row[since] if since is not None and since < len(row) else "")
    schedule.year = prevailing(
        (cells["YEAR"] for _, cells in found), schedule.path, "year", "give the file of one year"
    )
    if schedule.year and not is_year(schedule.year):
        raise FeeScheduleError(
            f"{schedule.path}: field 'YEAR': {schedule.year[:20]!r} is no year; do the columns stand under their names?"
        )
    for line, cells in found:
        with schedule.row(line):
            same(cells["YEAR"], schedule.year, "YEAR")
            code, usd = code_of(cells["HCPCS"]), amount(cells["RATE"], "RATE")
            if cells["INDICATOR"] == "L" or not usd:
                schedule.left_out["locally priced" if cells["INDICATOR"] == "L" else "rate of 0"] += 1
            else:
                schedule.add(code, cells["MOD"], usd)
    latest = max(filter(_DATE.fullmatch, dates), default="")
    if latest:
        schedule.release = f"Q{(int(latest[4:6]) + 2) // 3}"
    return schedule.check()
