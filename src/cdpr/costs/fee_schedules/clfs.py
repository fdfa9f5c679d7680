"""Clinical Laboratory Fee Schedule: one national rate per code."""

from pathlib import Path

from .schedule import Schedule, Table, amount, code_of, only, read_rows


def read_clfs(path: str | Path) -> Schedule:
    """Laboratory rates, US dollars, from the CSV file of a quarter.

    Locally priced codes (indicator ``L``, printed as 0) have no national rate and are left out. The release is the
    quarter of the latest effective date. Raises FeeScheduleError.
    """
    schedule = Schedule("CLFS", Path(path))
    table = Table(schedule.path, read_rows(schedule.path), "YEAR", "HCPCS", kind="the CLFS file")
    read = table.reader("HCPCS", "MOD", "INDICATOR", "RATE", "YEAR")
    since = table.names.index("EFF_DATE") if "EFF_DATE" in table.names else None
    years, dates = set(), {""}
    for line, row in table.rows():
        schedule.rows += 1
        with schedule.row(line):
            cells = read(row)
            code, usd = code_of(cells["HCPCS"]), amount(cells["RATE"], "RATE")
            if cells["INDICATOR"] == "L" or not usd:
                schedule.left_out["locally priced" if cells["INDICATOR"] == "L" else "rate of 0"] += 1
            else:
                schedule.add(code, cells["MOD"], usd)
            years.add(cells["YEAR"])
            dates.add(row[since] if since is not None and since < len(row) else "")
    schedule.year = only(years, schedule.path, "year", "give the file of one year")
    latest = max(dates)
    if latest.isdigit() and len(latest) == 8 and 1 <= int(latest[4:6]) <= 12:
        schedule.release = f"Q{(int(latest[4:6]) + 2) // 3}"
    return schedule.check()
