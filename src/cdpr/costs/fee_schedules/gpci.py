"""Geographic practice cost indices: what the three parts of a physician's service cost at a locality."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from .schedule import BadRow, Columns, FeeScheduleError, amount, cells, header_at, read_rows

_LOCALITY = re.compile(r"\d{5}-\d{2}")


@dataclass(frozen=True)
class Indices:
    """Multipliers of work, practice expense and malpractice units; all 1 for national prices."""

    work: Decimal = Decimal(1)
    expense: Decimal = Decimal(1)
    malpractice: Decimal = Decimal(1)
    name: str = "national"


def check_locality(locality: str) -> str:
    """The locality, if it is written as contractor and number. Raises FeeScheduleError."""
    if not _LOCALITY.fullmatch(locality):
        raise FeeScheduleError(
            f"data.fee_schedules.locality: {locality!r} is neither 'national' nor contractor and locality such as "
            "'10112-00'"
        )
    return locality


def read_gpci(path: str | Path, locality: str) -> Indices:
    """The indices of one locality (``10112-00``).

    Where the file gives the work index with and without its legal floor of 1, the one with the floor counts.
    Contractor and locality numbers are text; leading zeros that a spreadsheet has dropped are put back.
    Raises FeeScheduleError.
    """
    check_locality(locality)
    rows = read_rows(path)
    start = header_at(path, rows, "Locality Number", kind="the GPCI file")
    columns = Columns(path, *rows[start])
    contractor = _place(columns, "CONTRACTOR")
    number, name = columns.find("LOCALITY NUMBER"), columns.find("LOCALITY NAME")
    places = {part: _place(columns, part) for part in ("PW GPCI", "PE GPCI", "MP GPCI")}
    width = max(contractor, number, name, *places.values()) + 1
    known = []
    for line, row in rows[start + 1 :]:
        if len(row) < width or not row[contractor].isdigit():
            continue
        key = f"{row[contractor].zfill(5)}-{row[number].zfill(2)}"
        known.append(key)
        if key == locality:
            try:
                indices = [amount(cells(row, width)[place], part) for part, place in places.items()]
            except BadRow as why:
                raise FeeScheduleError(f"{path}:{line}: {why}") from why
            return Indices(*indices, name=row[name].rstrip("*").strip())
    near = [key for key in known if key[:5] == locality[:5] or key[-2:] == locality[-2:]] or known
    raise FeeScheduleError(f"{path}: no locality {locality!r}; near it: {', '.join(near[:8]) or 'none'}")


def _place(columns: Columns, part: str) -> int:
    found = [i for i, name in enumerate(columns.names) if part in name]
    floored = [i for i in found if "WITHOUT" not in columns.names[i]]
    if len(floored or found) != 1:
        raise FeeScheduleError(f"{columns.path}:{columns.line}: {len(found)} columns with {part!r}; expected one")
    return (floored or found)[0]
