"""Reading small CSV and JSON sources whole, with errors that name file, line and field."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .funnel import IngestError
from .tables import open_text, read_header

_REPAIR = "repair the file or export it again"


def csv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and stripped fields of each row. Raises IngestError."""
    if not path.is_file():
        raise IngestError(path, "no such file", "see docs/reference/private-format.md for the layout")
    missing = [column for column in columns if column not in read_header(path)]
    if missing:
        raise IngestError(path, "no such column", f"expected {', '.join(columns)}", line=1, field=missing[0])
    try:
        with open_text(path) as lines:
            reader = csv.DictReader(lines, strict=True)
            for row in reader:
                if None in row or None in row.values():
                    problem = "more fields than columns" if None in row else "fewer fields than columns"
                    raise IngestError(path, problem, "put fields with commas in double quotes", line=reader.line_num)
                yield reader.line_num, {name: text.strip() for name, text in row.items()}
    except (OSError, EOFError, csv.Error) as error:
        raise IngestError(path, f"cannot be read ({error})", _REPAIR) from error
    except UnicodeDecodeError as error:
        raise IngestError(
            path, f"not UTF-8 ({error.reason})", "save the file as UTF-8", line=_bad_line(path)
        ) from error


def read_utf8(path: Path) -> str:
    """The text of a file. Raises IngestError naming the line that is not UTF-8."""
    if not path.is_file():
        raise IngestError(path, "no such file", "check the path of this data set in config.yaml")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise IngestError(
            path, f"not UTF-8 ({error.reason})", "save the file as UTF-8", line=_bad_line(path)
        ) from error


def parse_json(path: Path, text: str, line: int = 1) -> Any:
    """A JSON value that begins at a line of a file. Raises IngestError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = line + error.lineno - 1
        raise IngestError(path, f"not JSON at column {error.colno} ({error.msg})", _REPAIR, line=place) from error


def _not_utf8(path: Path, error: UnicodeDecodeError) -> IngestError:
    return IngestError(path, f"not UTF-8 ({error.reason})", "save the file as UTF-8", line=_bad_line(path))


def _bad_line(path: Path) -> int | None:
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return number
    return None
