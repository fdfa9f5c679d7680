"""Rates from the fee schedules of the Centers for Medicare & Medicaid Services, as published.

Only codes and rates are read: the descriptors of these files belong to the American Medical Association.
Rates are national, in US dollars.
"""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

CONVERSION_FACTOR_2025 = 32.3465  # US dollars per relative value unit, calendar year 2025
_CODE = re.compile(r"[A-Z0-9]\d{3}[A-Z0-9]")
_PRICED_BY_RVU = {"A", "R", "T"}  # status codes under which Medicare pays the published units
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


class FeeScheduleError(ValueError):
    """A fee schedule that is not laid out as expected; the message names file and field."""


def read_clfs(path: str | Path) -> dict[str, float]:
    """Laboratory rates by code from the Clinical Laboratory Fee Schedule (rows without modifier).

    Locally priced codes (indicator ``L``, printed as 0) have no national rate and are left out.
    Raises FeeScheduleError.
    """
    header: list[str] | None = None
    rates: dict[str, float] = {}
    with Path(path).open(encoding="cp1252", newline="") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            if header is None:
                if row and row[0].strip() == "YEAR":
                    header = [name.strip() for name in row]
                    code, modifier, indicator, rate = (
                        _column(path, header, name) for name in ("HCPCS", "MOD", "INDICATOR", "RATE")
                    )
                continue
            if not row or row[modifier].strip() or row[indicator].strip() == "L":
                continue
            rates[row[code].strip()] = _amount(path, number, "RATE", row[rate])
    if header is None:
        raise FeeScheduleError(f"{path}: no header row that begins with YEAR; is this the CLFS file?")
    return rates


def read_pfs(path: str | Path, conversion_factor: float = CONVERSION_FACTOR_2025) -> dict[str, float]:
    """Global non-facility rates by code from the relative value file of the Physician Fee Schedule.

    rate = total units x conversion factor, and for imaging not more than the hospital outpatient cap
    (work + capped practice expense + malpractice, the last columns; Deficit Reduction Act). Codes that
    Medicare does not pay by these units (laboratory among them) are left out. Raises FeeScheduleError.
    """
    rates: dict[str, float] = {}
    started = False
    with Path(path).open(encoding="cp1252", newline="") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            started = started or (bool(row) and row[0].strip() == "HCPCS")
            if not started or len(row) < 31 or not _CODE.fullmatch(row[0].strip()):
                continue
            # The stacked header repeats names, so columns go by place: MOD, status, work, total, malpractice.
            if row[1].strip() or row[3].strip() not in _PRICED_BY_RVU:
                continue
            units = _amount(path, number, "non-facility total", row[11])
            if units == 0:
                continue
            # Places from the end hold in 2025 and 2026 alike: capped practice expense and malpractice.
            cap_expense = _amount(path, number, "OPPS non-facility PE", row[-3])
            if cap_expense:
                capped = sum(_amount(path, number, "OPPS cap", x) for x in (row[5], row[-3], row[-1]))
                units = min(units, capped)
            rates[row[0].strip()] = round(units * conversion_factor + 1e-9, 2)
    if not started:
        raise FeeScheduleError(f"{path}: no header row that begins with HCPCS; is this the PPRRVU file?")
    return rates


def read_opps(path: str | Path) -> dict[str, float]:
    """Payment rates by code from Addendum B of the outpatient prospective payment system (xlsx).

    Packaged codes and others without a rate are left out. Raises FeeScheduleError.
    """
    rates: dict[str, float] = {}
    header: dict[str, str] | None = None
    for number, cells in _sheet_rows(Path(path)):
        if header is None:
            if cells.get("A", "").strip() == "HCPCS Code":
                header = {text.strip(): column for column, text in cells.items()}
                if "Payment Rate" not in header:
                    raise FeeScheduleError(f"{path}:{number}: no column 'Payment Rate'")
            continue
        rate = cells.get(header["Payment Rate"], "").strip()
        if rate:
            rates[cells["A"].strip()] = round(_amount(path, number, "Payment Rate", rate), 2)
    if header is None:
        raise FeeScheduleError(f"{path}: no row whose first cell is 'HCPCS Code'; is this Addendum B?")
    return rates


def rate_of(codes: str, rates: dict[str, float]) -> float | None:
    """Rate of a catalogue row: the sum over codes joined by ``+``; None when one of them has no rate."""
    parts = [rates.get(code) for code in codes.split("+")]
    return None if None in parts else round(sum(parts), 2)


def _column(path: str | Path, header: list[str], name: str) -> int:
    if name not in header:
        raise FeeScheduleError(f"{path}: no column {name!r}; found {', '.join(header)}")
    return header.index(name)


def _amount(path: str | Path, line: int, field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise FeeScheduleError(f"{path}:{line}: field {field!r}: {text!r} is not a number") from error


def _sheet_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of the first sheet of a workbook: row number and text by column letter."""
    with zipfile.ZipFile(path) as book:
        shared: list[str] = []
        if "xl/sharedStrings.xml" in book.namelist():
            root = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
            shared = ["".join(t.text or "" for t in item.iter(f"{_MAIN}t")) for item in root.iter(f"{_MAIN}si")]
        with book.open("xl/worksheets/sheet1.xml") as sheet:
            for _, row in ElementTree.iterparse(sheet):
                if row.tag == f"{_MAIN}row":
                    yield int(row.get("r", "0")), {_letters(c.get("r", "")): _text(c, shared) for c in row}
                    row.clear()


def _letters(reference: str) -> str:
    return reference.rstrip("0123456789")


def _text(cell: ElementTree.Element, shared: list[str]) -> str:
    if cell.get("t") == "inlineStr":
        return "".join(t.text or "" for t in cell.iter(f"{_MAIN}t"))
    value = cell.find(f"{_MAIN}v")
    text = (value.text or "") if value is not None else ""
    return shared[int(text)] if cell.get("t") == "s" and text else text
