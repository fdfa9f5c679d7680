"""What depends on the locality: practice cost indices (GPCI) and imaging caps (OPPSCAP)."""

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from .schedule import BadRow, FeeScheduleError, Table, amount, code_of, read_rows

_INDICES = {  # what they lie between, with room: 0.99 to 1.5, 0.87 to 1.42 and 0.2 to 2.7 in 2025
    "PW GPCI": (Decimal("0.8"), Decimal("1.6")),
    "PE GPCI": (Decimal("0.6"), Decimal("2")),
    "MP GPCI": (Decimal("0.1"), Decimal("4")),
}
_DEAREST_CAP = 100_000  # US dollars
_STATUS = re.compile(r"[A-Z]")


class Caps(dict[tuple[str, str], Decimal]):
    """Capped prices, US dollars, by code and modifier, of a locality; ``rows`` of the file are of so many
    ``localities``, and ``rejected`` lists those that cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = self.localities = 0
        self.rejected: list[str] = []


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
    Raises FeeScheduleError, also where the columns cannot be those of such indices.
    """
    check_locality(locality)
    table = Table(Path(path), read_rows(Path(path)), "Locality Number", kind="the GPCI file")
    contractor = _place(table, "CONTRACTOR")
    number, name = table.find("LOCALITY NUMBER"), table.find("LOCALITY NAME")
    places = {part: _place(table, part) for part in ("PW GPCI", "PE GPCI", "MP GPCI")}
    known: dict[str, tuple[int, list[str]]] = {}
    for line, row in table.below:
        if len(row) <= max(contractor, number, name, *places.values()) or not row[contractor].isdigit():
            continue
        known.setdefault(place_key(row[contractor], row[number]), (line, row))
    for part, place in places.items():
        _check_indices(table, part, place, [row[place] for _, row in known.values()])
    if locality in known:
        line, row = known[locality]
        try:
            work, expense, malpractice = (amount(row[place], part) for part, place in places.items())
        except BadRow as why:
            raise FeeScheduleError(f"{path}:{line}: {why}") from why
        return Indices(work, expense, malpractice, row[name].rstrip("*").strip())
    near = [key for key in known if key[:5] == locality[:5] or key[-2:] == locality[-2:]] or [*known]
    raise FeeScheduleError(f"{path}: no locality {locality!r}; near it: {', '.join(near[:8]) or 'none'}")


def _check_indices(table: Table, part: str, place: int, cells: Sequence[str]) -> None:
    """Raises FeeScheduleError for a column of which more than a few cells are no such indices."""
    low, high = _INDICES[part]
    if "FLOOR" in table.names[place] and "WITHOUT" not in table.names[place]:
        low = Decimal(1)
    odd = [cell for cell in cells if not re.fullmatch(r"\d*\.?\d+", cell) or not low <= Decimal(cell) <= high]
    if len(odd) * 10 > len(cells):
        raise FeeScheduleError(
            f"{table.path}:{table.line}: {len(odd)} of {len(cells)} cells under {table.names[place]!r} are no indices "
            f"from {low} to {high} (the first: {odd[0][:20]!r}); do the columns stand under their names?"
        )


def read_opps_cap(path: str | Path, locality: str) -> Caps:
    """Capped non-facility imaging prices (Deficit Reduction Act of 2005, section 5102), US dollars, by code and
    modifier at a locality (``10112-00``).

    Carrier-priced codes (status C) are left out. Raises FeeScheduleError for a bad header, a file in which most rows
    are bad, and one without any cap at this locality.
    """
    table = Table(Path(path), read_rows(Path(path)), "HCPCS", "LOCALITY", kind="the OPPSCAP file")
    names = ("NON-FACILITY PRICE", "NON-FACILTY PRICE")  # the second as published
    price = next((name for name in names if name in table.names), names[0])
    read = table.reader("HCPCS", "MOD", "PROCSTAT", "CARRIER", "LOCALITY", price)
    caps, places = Caps(), set()
    for line, row in table.rows():
        caps.rows += 1
        try:
            cells = read(row)
            key = code_of(cells["HCPCS"]), cells["MOD"]
            if not (cells["CARRIER"].isdecimal() and cells["LOCALITY"].isdecimal()):
                raise BadRow("field 'LOCALITY': contractor and locality are not numbers")
            if not _STATUS.fullmatch(cells["PROCSTAT"]):
                raise BadRow(f"field 'PROCSTAT': {cells['PROCSTAT'][:20]!r} is no status")
            place = place_key(cells["CARRIER"], cells["LOCALITY"])
            places.add(place)
            if place == locality and cells["PROCSTAT"] != "C":
                cap = amount(cells[price], price)
                if not 0 < cap < _DEAREST_CAP:
                    raise BadRow(f"field {price!r}: {cap} US dollars are no cap")
                if caps.setdefault(key, cap) != cap:
                    raise BadRow(f"{' '.join(key).strip()} stands twice, with two caps")
        except BadRow as why:
            caps.rejected.append(f"{Path(path).name}, line {line}: {why}")
    caps.localities = len(places)
    if len(caps.rejected) * 2 > caps.rows:
        told = f"{len(caps.rejected)} of {caps.rows} rows cannot be read; the first: {caps.rejected[0]}"
        raise FeeScheduleError(f"{path}: {told}")
    if not caps:
        raise FeeScheduleError(f"{path}: no cap at locality {locality!r}, of {caps.rows} rows for {len(places)} "
                               "localities; leave data.fee_schedules.opps_cap empty to compute caps from the "
                               "units")  # fmt: skip
    return caps


def place_key(contractor: str, number: str) -> str:
    """Contractor and locality as settings name them, with the zeros that a spreadsheet drops."""
    return f"{contractor.zfill(5)}-{number.zfill(2)}"


def _place(table: Table, part: str) -> int:
    found = [i for i, name in enumerate(table.names) if part in name]
    floored = [i for i in found if "WITHOUT" not in table.names[i]]
    if len(floored or found) != 1:
        raise FeeScheduleError(f"{table.path}:{table.line}: {len(found)} columns with {part!r}; expected one")
    return (floored or found)[0]
