"""The form as a spreadsheet, with cells that take nothing but 1 to 5."""

import datetime
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..escape import fill_xlsx
from ..files import write_bytes
from .rubric import dimensions, rubric

_DATE = datetime.datetime(2000, 1, 1)
_WIDTHS = (14, 7, 14, 7, 9, 70, 50, 13, 13, 13, 13, 13, 30)  # of the columns


def write(path: Path, rows: Sequence[Mapping[str, str | int]], title: str) -> None:
    """Write a rater's workbook: everything but ratings and comments is locked (without a password)."""
    from openpyxl import Workbook
    from openpyxl.styles import Alignment, Font, Protection
    from openpyxl.worksheet.datavalidation import DataValidation

    book = Workbook()
    sheet = book.active
    sheet.title = "ratings"
    sheet.append((*rows[0], *dimensions(), "comment"))
    for number, row in enumerate(rows, 2):
        for column, value in enumerate(row.values(), 1):
            fill_xlsx(sheet.cell(number, column), value)
    wrapped = Alignment(wrap_text=True, vertical="top")
    for cells in sheet.iter_rows(min_row=2, max_row=sheet.max_row, max_col=len(_WIDTHS)):
        for at, cell in enumerate(cells):
            cell.alignment = wrapped
            if at >= len(rows[0]):
                cell.protection = Protection(locked=False)
    for cell, width in zip(sheet[1], _WIDTHS, strict=True):
        cell.font = Font(bold=True)
        sheet.column_dimensions[cell.column_letter].width = width
    rated = DataValidation(
        type="whole", operator="between", formula1="1", formula2="5", allow_blank=True, showErrorMessage=True,
        errorTitle="1 to 5", error="Give a whole number from 1 to 5.",
    )  # fmt: skip
    sheet.add_data_validation(rated)
    rated.add(f"H2:L{sheet.max_row}")
    sheet.freeze_panes = "F2"
    sheet.protection.sheet = True
    guide = book.create_sheet("how to rate")
    guide.append([title])
    guide.append(["Rate every proposal by itself, from 1 to 5, by what is known at that moment. Rate alone."])
    guide.append(["", "1", "2", "3", "4", "5"])
    for dimension in rubric():
        guide.append([f"{dimension.title}: {dimension.asks}", *dimension.anchors.values()])
    write_bytes(path, _same_bytes(book))


def _same_bytes(book) -> bytes:
    """The workbook without the time at which it was saved, in its properties and in its archive."""
    saved, out = io.BytesIO(), io.BytesIO()
    book.properties.created = _DATE
    book.save(saved)
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "docProps/core.xml":
                text = re.sub(rb"(<dcterms:modified[^>]*>)[^<]*", rb"\g<1>2000-01-01T00:00:00Z", text)
            new.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
    return out.getvalue()
