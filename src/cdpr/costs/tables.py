"""Reading small price tables (CSV in UTF-8); every error names file, line and field."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

_AMOUNT = re.compile(r"\d{1,6}(\.\d+)?")


class CatalogueError(ValueError):
    """A price table that cannot be used; the message names file, line and field."""


def read_table(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> list[tuple[str, dict[str, str]]]:
    """Rows with their place (``file:line``), cells stripped; further columns are ignored.

    ``optional`` columns are empty where the file does not have them. Raises CatalogueError for a file that cannot be
    read, a column that is missing, or a row of another length than the header.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            header = reader.fieldnames or ()
            missing = [name for name in columns if name not in header]
            if missing:
                raise CatalogueError(f"{path}:1: no column {missing[0]!r}; expected {', '.join(columns)}")
            rows = [(f"{path}:{reader.line_num}", row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.reason if isinstance(error, UnicodeDecodeError) else error
        raise CatalogueError(f"{path}: cannot be read as CSV in UTF-8: {reason}") from error
    for where, row in rows:
        if None in row or None in row.values():
            raise CatalogueError(f"{where}: expected {len(header)} fields")
    return [(where, {name: (row.get(name) or "").strip() for name in (*columns, *optional)}) for where, row in rows]


def amount(where: str, field: str, text: str) -> float:
    """An amount in US dollars, 0 to 999,999.99. Raises CatalogueError, without the text: it may be a patient's."""
    if not _AMOUNT.fullmatch(text):
        raise CatalogueError(f"{where}: field {field!r}: not an amount in US dollars, such as 12.50")
    return float(text)
