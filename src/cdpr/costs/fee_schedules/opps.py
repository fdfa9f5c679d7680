"""Outpatient Prospective Payment System, Addendum B: what a hospital is paid, facility costs included."""

import re
import warnings
import zipfile
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from .schedule import FeeScheduleError, Row, Schedule, Table, amount, code_of

_YEAR = re.compile(r"\bCY\s*(20\d\d)\b")


def read_opps(path: str | Path) -> Schedule:
    """National payment rates, US dollars, from the workbook (xlsx).

    Packaged codes and others without a rate are left out, by status indicator. Raises FeeScheduleError.
    """
    schedule = Schedule("OPPS", Path(path))
    table = Table(schedule.path, _first_sheet(schedule.path), "HCPCS Code", kind="Addendum B")
    titles = (_YEAR.search(cell) for _, row in table.above for cell in row)
    schedule.year = next((found[1] for found in titles if found), "")
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
    """Row numbers and cells as text. Raises FeeScheduleError for what is no whole workbook."""
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
    """A cell as text; numbers with the 15 digits that a spreadsheet shows, so that 5.355, kept as 5.3549999999999995,
    is rounded as it is published; without an exponent."""
    if isinstance(cell, float):
        return f"{Decimal(f'{cell:.15g}'):f}"
    return "" if cell is None else str(cell).strip()
