"""Imaging caps of the Physician Fee Schedule by locality (OPPSCAP; Deficit Reduction Act of 2005, section 5102)."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from .schedule import BadRow, Columns, FeeScheduleError, amount, cells, code_of, header_at, is_remark, read_rows

Caps = dict[tuple[str, str], Decimal]


def read_opps_cap(path: str | Path, locality: str) -> Caps:
    """Capped non-facility prices, US dollars, by code and modifier at a locality (``10112-00``).

    Carrier-priced codes (status C) are left out. Empty when the file does not have the locality. Raises
    FeeScheduleError for a bad header or a bad row of this locality.
    """
    rows = read_rows(path)
    start = header_at(path, rows, "HCPCS", "LOCALITY", kind="the OPPSCAP file")
    columns = Columns(path, *rows[start])
    code, modifier, status, carrier, number = (
        columns.find(name) for name in ("HCPCS", "MOD", "PROCSTAT", "CARRIER", "LOCALITY")
    )
    price = columns.find("NON-FACILITY PRICE", "NON-FACILTY PRICE")  # the second as published
    width = max(code, modifier, status, carrier, number, price) + 1
    caps: Caps = {}
    for line, row in rows[start + 1 :]:
        if is_remark(row) or columns.repeated(row):
            continue
        try:
            if f"{cells(row, width)[carrier].zfill(5)}-{row[number].zfill(2)}" == locality and row[status] != "C":
                caps[code_of(row, code), row[modifier]] = amount(row[price], columns.names[price])
        except BadRow as why:
            raise FeeScheduleError(f"{path}:{line}: {why}") from why
    return caps
