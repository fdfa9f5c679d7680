"""What depends on the locality: practice cost indices (GPCI) and imaging caps (OPPSCAP)."""

import re
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from .schedule import BadRow, FeeScheduleError, Table, amount, code_of, read_rows

Caps = dict[tuple[str, str], Decimal]


class Indices(NamedTuple):
    """Multipliers of work, practice expense and malpractice units; all 1 for national prices."""

    work: Decimal = Decimal(1)
    expense: Decimal = Decimal(1)
    malpractice: Decimal = Decimal(1)
    name: str = "national"


def check_locality(locality: str) -> None:
    """Raises FeeScheduleError for a locality that is not written as contractor and number."""
    if not re.fullmatch(r"\d{5}-\d{2}", locality):
        raise FeeScheduleError(
            f"data.fee_schedules.locality: {locality!r} is neither 'national' nor contractor and locality such as "
            "'10112-00'"
        )


def read_gpci(path: str | Path, locality: str) -> Indices:
    """Geographic practice cost indices of one locality (``10112-00``).

    Where the file gives the work index with and without its legal floor of 1, the one with the floor counts.
    Contractor and locality numbers are text; leading zeros that a spreadsheet has dropped are put back.
    Raises FeeScheduleError.
    """
    check_locality(locality)
    table = Table(Path(path), read_rows(Path(path)), "Locality Number", kind="the GPCI file")
    contractor = _place(table, "CONTRACTOR")
    number, name = table.find("LOCALITY NUMBER"), table.find("LOCALITY NAME")
    places = {part: _place(table, part) for part in ("PW GPCI", "PE GPCI", "MP GPCI")}
    known = []
    for line, row in table.below:
        if len(row) <= max(contractor, number, name, *places.values()) or not row[contractor].isdigit():
            continue
        known.append(_key(row[contractor], row[number]))
        if known[-1] == locality:
            try:
                work, expense, malpractice = (amount(row[place], part) for part, place in places.items())
            except BadRow as why:
                raise FeeScheduleError(f"{path}:{line}: {why}") from why
            return Indices(work, expense, malpractice, row[name].rstrip("*").strip())
    near = [key for key in known if key[:5] == locality[:5] or key[-2:] == locality[-2:]] or known
    raise FeeScheduleError(f"{path}: no locality {locality!r}; near it: {', '.join(near[:8]) or 'none'}")


def read_opps_cap(path: str | Path, locality: str) -> Caps:
    """Capped non-facility imaging prices (Deficit Reduction Act of 2005, section 5102), US dollars, by code and
    modifier at a locality (``10112-00``).

    Carrier-priced codes (status C) are left out. Empty when the file does not have the locality. Raises
    FeeScheduleError for a bad header or a bad row of this locality.
    """
    table = Table(Path(path), read_rows(Path(path)), "HCPCS", "LOCALITY", kind="the OPPSCAP file")
    names = ("NON-FACILITY PRICE", "NON-FACILTY PRICE")  # the second as published
    price = next((name for name in names if name in table.names), names[0])
    read = table.reader("HCPCS", "MOD", "PROCSTAT", "CARRIER", "LOCALITY", price)
    caps: Caps = {}
    for line, row in table.rows():
        try:
            cells = read(row)
            if _key(cells["CARRIER"], cells["LOCALITY"]) == locality and cells["PROCSTAT"] != "C":
                caps[code_of(cells["HCPCS"]), cells["MOD"]] = amount(cells[price], price)
        except BadRow as why:
            raise FeeScheduleError(f"{path}:{line}: {why}") from why
    return caps


def _key(contractor: str, number: str) -> str:
    return f"{contractor.zfill(5)}-{number.zfill(2)}"


def _place(table: Table, part: str) -> int:
    found = [i for i, name in enumerate(table.names) if part in name]
    floored = [i for i in found if "WITHOUT" not in table.names[i]]
    if len(floored or found) != 1:
        raise FeeScheduleError(f"{table.path}:{table.line}: {len(found)} columns with {part!r}; expected one")
    return (floored or found)[0]
