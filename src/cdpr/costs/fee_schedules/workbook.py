"""Rows of the first sheet of an xlsx workbook, with the standard library."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from .schedule import FeeScheduleError

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_SHEET = "xl/worksheets/sheet1.xml"


def sheet_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Row number and text by column letter. Raises FeeScheduleError for what is no whole workbook."""
    try:
        with zipfile.ZipFile(path) as book:
            if _SHEET not in book.namelist():
                raise FeeScheduleError(f"{path}: no sheet {_SHEET}; is this an xlsx workbook?")
            shared = _shared_strings(book)
            with book.open(_SHEET) as sheet:
                for _, row in ElementTree.iterparse(sheet):
                    if row.tag == f"{_MAIN}row":
                        yield int(row.get("r", "0")), _cells(row, shared)
                        row.clear()
    except OSError as error:
        raise FeeScheduleError(f"{path}: cannot be read: {error.strerror or error}") from error
    except zipfile.BadZipFile as error:
        raise FeeScheduleError(f"{path}: not a whole xlsx workbook ({error}); fetch or save it anew") from error
    except (ElementTree.ParseError, zlib.error, EOFError, ValueError, IndexError, NotImplementedError) as error:
        if isinstance(error, FeeScheduleError):
            raise
        raise FeeScheduleError(f"{path}: damaged sheet {_SHEET} ({error}); fetch or save it anew") from error


def _shared_strings(book: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in book.namelist():
        return []
    root = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
    return ["".join(t.text or "" for t in item.iter(f"{_MAIN}t")) for item in root.iter(f"{_MAIN}si")]


def _cells(row: ElementTree.Element, shared: list[str]) -> dict[str, str]:
    return {cell.get("r", "").rstrip("0123456789"): _text(cell, shared) for cell in row}


def _text(cell: ElementTree.Element, shared: list[str]) -> str:
    if cell.get("t") == "inlineStr":
        return "".join(t.text or "" for t in cell.iter(f"{_MAIN}t"))
    value = cell.find(f"{_MAIN}v")
    text = (value.text or "") if value is not None else ""
    return shared[int(text)] if cell.get("t") == "s" and text else text
