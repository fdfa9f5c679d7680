"""Outpatient Prospective Payment System, Addendum B: what a hospital is paid, facility costs included."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from .schedule import BadRow, Columns, FeeScheduleError, Schedule, amount, code_of, header_at

_YEAR = re.compile(r"\bCY\s*(20\d\d)\b")


def read_opps(path: str | Path) -> Schedule:
    """National payment rates, US dollars, from the workbook (xlsx).

    Packaged codes and others without a rate are left out, by status indicator. Raises FeeScheduleError.
    """
    schedule = Schedule("OPPS", Path(path))
    rows = _first_sheet(Path(path))
    start = header_at(path, rows, "HCPCS Code", kind="Addendum B")
    schedule.year = _year(row for _, row in rows[:start])
    columns = Columns(path, *rows[start])
    code, status, rate = (columns.find(name) for name in ("HCPCS CODE", "SI", "PAYMENT RATE"))
    for line, row in rows[start + 1 :]:
        row = row + [""] * (len(columns.names) - len(row))
        if not row[code] or columns.repeated(row):
            continue
        schedule.rows += 1
        try:
            own = code_of(row, code, "HCPCS Code")
            usd = amount(row[rate], "Payment Rate") if row[rate] else None
            if not usd:
                schedule.left_out[f"no rate, status {row[status] or 'blank'}"] += 1
            else:
                schedule.add(own, "", usd)
        except BadRow as why:
            schedule.reject(line, why)
    return schedule.check()


def _first_sheet(path: Path) -> list[tuple[int, list[str]]]:
    """Row numbers and cells as text. Raises FeeScheduleError for what is no whole workbook."""
    from openpyxl import load_workbook

    try:
        with path.open("rb") as file:
            rows = load_workbook(file, read_only=True, data_only=True).worksheets[0].iter_rows(values_only=True)
            return [(line, [_text(cell) for cell in row]) for line, row in enumerate(rows, 1)]
    except OSError as error:
        raise FeeScheduleError(f"{path}: cannot be read: {error.strerror or error}") from error
    except zipfile.BadZipFile as error:
        raise FeeScheduleError(f"{path}: not a whole xlsx workbook ({error}); fetch or save it anew") from error
    except (ParseError, zlib.error, EOFError, ValueError, LookupError, TypeError, NotImplementedError) as error:
        raise FeeScheduleError(f"{path}: damaged sheet or no xlsx workbook ({error}); fetch or save it anew") from error


def _text(cell: Any) -> str:
    """A cell as text; numbers with the 17 digits that a workbook keeps, and without an exponent."""
    if isinstance(cell, float):
        return f"{Decimal(f'{cell:.17g}'):f}"
    return "" if cell is None else str(cell).strip()


def _year(titles: Iterable[list[str]]) -> str:
    return next((found[1] for row in titles for cell in row if (found := _YEAR.search(cell))), "")
