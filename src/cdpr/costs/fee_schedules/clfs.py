"""Clinical Laboratory Fee Schedule: one national rate per code."""

from __future__ import annotations

from pathlib import Path

from .schedule import BadRow, Columns, Schedule, amount, cells, code_of, header_at, is_remark, only, read_rows


def read_clfs(path: str | Path) -> Schedule:
    """Laboratory rates, US dollars, from the CSV file of a quarter.

    Locally priced codes (indicator ``L``, printed as 0) have no national rate and are left out. The release is the
    quarter of the latest effective date. Raises FeeScheduleError.
    """
    schedule = Schedule("CLFS", Path(path))
    rows = read_rows(path)
    start = header_at(path, rows, "YEAR", "HCPCS", kind="the CLFS file")
    columns = Columns(path, *rows[start])
    code, modifier, indicator, rate, year = (columns.find(n) for n in ("HCPCS", "MOD", "INDICATOR", "RATE", "YEAR"))
    since = columns.names.index("EFF_DATE") if "EFF_DATE" in columns.names else None
    width = max(code, modifier, indicator, rate, year) + 1
    years, dates = set(), {""}
    for line, row in rows[start + 1 :]:
        if is_remark(row) or columns.repeated(row):
            continue
        schedule.rows += 1
        try:
            own, cost = code_of(cells(row, width), code), amount(row[rate], "RATE")
            if row[indicator] == "L" or not cost:
                schedule.left_out["locally priced" if row[indicator] == "L" else "rate of 0"] += 1
            else:
                schedule.add(own, row[modifier], cost)
            years.add(row[year])
            dates.add(row[since] if since is not None and since < len(row) else "")
        except BadRow as why:
            schedule.reject(line, why)
    schedule.year = only(years, path, "year", "give the file of one year")
    latest = max(dates)
    if latest.isdigit() and len(latest) == 8 and 1 <= int(latest[4:6]) <= 12:
        schedule.release = f"Q{(int(latest[4:6]) + 2) // 3}"
    return schedule.check()
