"""Outpatient Prospective Payment System, Addendum B: what a hospital is paid, facility costs included."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .schedule import BadRow, Columns, FeeScheduleError, Schedule, amount, code_of
from .workbook import sheet_rows

_YEAR = re.compile(r"\bCY\s*(20\d\d)\b")


def read_opps(path: str | Path) -> Schedule:
    """National payment rates, US dollars, from the workbook (xlsx).

    Packaged codes and others without a rate are left out, by status indicator. Raises FeeScheduleError.
    """
    schedule = Schedule("OPPS", Path(path))
    rows = list(sheet_rows(Path(path)))
    # "HCPCS Code" also occurs inside a title, so the whole cell counts.
    start = next((i for i, (_, row) in enumerate(rows) if "HCPCS CODE" in _names(row).values()), None)
    if start is None:
        raise FeeScheduleError(f"{path}: no row with a cell 'HCPCS Code'; is this Addendum B?")
    schedule.year = _year(row for _, row in rows[:start])
    line, header = rows[start]
    letters = list(header)
    columns = Columns(path, line, [header[letter] for letter in letters])
    code, status, rate = (letters[columns.find(name)] for name in ("HCPCS CODE", "SI", "PAYMENT RATE"))
    for line, row in rows[start + 1 :]:
        own = row.get(code, "").strip()
        if not own or _names(row) == _names(header):
            continue
        schedule.rows += 1
        try:
            own, text = code_of([own], 0, "HCPCS Code"), row.get(rate, "").strip()
            usd = amount(_decimal(text), "Payment Rate") if text else None
            if not usd:
                schedule.left_out[f"no rate, status {row.get(status, '').strip() or 'blank'}"] += 1
            else:
                schedule.add(own, "", usd)
        except BadRow as why:
            schedule.reject(line, why)
    return schedule.check()


def _names(row: dict[str, str]) -> dict[str, str]:
    return {letter: " ".join(text.upper().split()) for letter, text in row.items() if text.strip()}


def _decimal(text: str) -> str:
    """Workbooks keep small and large numbers with an exponent."""
    try:
        return format(float(text), "f") if "e" in text.casefold() else text
    except ValueError:
        return text


def _year(titles: Iterable[dict[str, str]]) -> str:
    for row in titles:
        for text in row.values():
            found = _YEAR.search(text)
            if found:
                return found[1]
    return ""
