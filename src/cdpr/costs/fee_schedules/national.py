"""Fee schedules with one national rate per code: laboratory tests (CLFS) and hospital outpatient services (OPPS,
Addendum B, facility costs included)."""

import re
import warnings
import zipfile
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from .schedule import FeeScheduleError, Row, Schedule, Table, amount, code_of, is_year, prevailing, read_rows, same

_DATE = re.compile(r"20\d\d(0[1-9]|1[0-2])\d\d")
_YEAR = re.compile(r"\bCY\s*(20\d\d)\b")


def read_clfs(path: str | Path) -> Schedule:
    """Laboratory rates, US dollars, from the CSV file of a quarter.

    Locally priced codes (indicator ``L``, printed as 0) have no national rate and are left out. The release is the
    quarter of the latest effective date. Raises FeeScheduleError.
    """
    schedule = Schedule("CLFS", Path(path))
    table = Table(schedule.path, read_rows(schedule.path), "YEAR", "HCPCS", kind="the CLFS file")
    read = table.reader("HCPCS", "MOD", "INDICATOR", "RATE", "YEAR")
    since = table.names.index("EFF_DATE") if "EFF_DATE" in table.names else None
    readable: list[tuple[int, dict[str, str]]] = []
    dates = {""}
    for line, row in table.rows():
        schedule.rows += 1
        with schedule.row(line):
            readable.append((line, read(row)))
            dates.add(row[since] if since is not None and since < len(row) else "")
    years = (cells["YEAR"] for _, cells in readable)
    schedule.year = prevailing(years, schedule.path, "year", "give the file of one year")
    if schedule.year and not is_year(schedule.year):
        raise FeeScheduleError(
            f"{schedule.path}: field 'YEAR': {schedule.year[:20]!r} is no year; do the columns stand under their names?"
        )
    for line, cells in readable:
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


def read_opps(path: str | Path) -> Schedule:
    """National payment rates, US dollars, from the workbook (xlsx).

    Packaged codes and others without a rate are left out, by status indicator. Raises FeeScheduleError.
    """
    schedule = Schedule("OPPS", Path(path))
    table = Table(schedule.path, _first_sheet(schedule.path), "HCPCS Code", kind="Addendum B")
    titles = (_YEAR.search(cell) for _, row in table.above for cell in row)
    schedule.year = next((title[1] for title in titles if title), "")
    code, status, rate = (table.find(name) for name in ("HCPCS CODE", "SI", "PAYMENT RATE"))
    for line, row in table.below:
        row = row + [""] * (len(table.names) - len(row))
        if not row[code] or table.repeats_header(row):
            continue
        schedule.rows += 1
        with schedule.row(line):
            own = code_of(row[code], "HCPCS Code")
            usd = amount(row[rate], "Payment Rate") if row[rate] else None
            if not usd:
                schedule.left_out[f"no rate, status {row[status] or 'blank'}"] += 1
            else:
                schedule.add(own, "", usd)
    return schedule.check()


def _first_sheet(path: Path) -> list[Row]:
    """Row numbers and cells as text. Raises FeeScheduleError for a file that is no whole workbook."""
    from openpyxl import load_workbook

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that are not read
            rows = load_workbook(file, read_only=True, data_only=True).worksheets[0].iter_rows(values_only=True)
            return [(line, [_text(cell) for cell in row]) for line, row in enumerate(rows, 1)]
    except OSError as error:
        raise FeeScheduleError(f"{path}: cannot be read: {error.strerror or error}") from error
    except zipfile.BadZipFile as error:
        raise FeeScheduleError(f"{path}: not a whole xlsx workbook ({error}); fetch or save it anew") from error
    except (ParseError, zlib.error, EOFError, ValueError, LookupError, TypeError, NotImplementedError) as error:
        raise FeeScheduleError(f"{path}: damaged sheet or no xlsx workbook ({error}); fetch or save it anew") from error


def _text(cell: Any) -> str:
    """A cell as text; numbers with the 15 digits of a spreadsheet's display, so that 5.355, stored as
    5.3549999999999995, is rounded as published; without an exponent."""
    if isinstance(cell, float):
        return f"{Decimal(f'{cell:.15g}'):f}"
    return "" if cell is None else str(cell).strip()
