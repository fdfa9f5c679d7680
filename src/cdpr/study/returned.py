"""Files that raters send back, read: whatever tool they are from, and whatever programs do to files on the way."""

import codecs
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .records import StudyError
from .rubric import dimensions

PHYSICIAN, SIMULATED, MODEL = "physician", "simulated", "language model"
FORMAT = "cdpr-study-ratings"
_BESIDE = (".", "~$")  # names of files that systems and office programs leave beside others
_HTML = "it is the form itself, and ratings stay in the browser: open it there, press Export JSON, and send that file"
_INSTEAD = {".html": _HTML, ".zip": "unpack it, and put the files that are in it here", ".xls": "save it as .xlsx",
            ".ods": "save it as .xlsx"}  # fmt: skip

Row = Mapping[str, Any]


class Unreadable(Exception):
    """A file that is no form of ours; says why."""


class Returned:
    """One file: the studies and raters that its rows name, who filled it in (empty: it does not say), what ``kind`` of
    rater, and its ``rows``, each with its ``code`` and its cells by the name of the dimension."""

    def __init__(self, path: Path, rows: Sequence[Row], kind: str = PHYSICIAN):
        self.path, self.rows, self.kind = path, rows, kind
        self.studies, self.raters, people = (
            {str(row[name]) for row in rows if row.get(name)} for name in ("study", "rater", "filled_by")
        )
        if len(people) > 1:
            raise Unreadable(f"two raters under one name: {len(people)} people filled it in; one file each")
        self.filled_by = next(iter(people), "")


def returned_files(paths: Iterable[Path]) -> list[Path]:
    """Files, and all those in folders but what programs leave there. Raises StudyError where there are none."""
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise StudyError(f"{path}: there is no such file or folder")
        inside = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()
                                                      and not p.name.startswith(_BESIDE))  # fmt: skip
        if not inside:
            raise StudyError(f"{path}: holds no form: expected files that end in {', '.join(sorted(_READERS))}")
        files += inside
    return files


def read_returned(path: Path) -> Returned:
    """What a file holds. Raises Unreadable for one that is no form."""
    ending = path.suffix.lower()
    if ending not in _READERS:
        expected = f"expected a file that ends in {', '.join(sorted(_READERS))}; put nothing else here"
        raise Unreadable(_INSTEAD.get(ending, expected))
    try:
        return _READERS[ending](path)
    except json.JSONDecodeError as error:
        raise Unreadable(f"it is cut off or was edited: line {error.lineno} is no JSON; have it sent again") from error
    except (UnicodeDecodeError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise Unreadable("it is no file that our forms export") from error


def _text(path: Path) -> str:
    """Spreadsheet programs save in encodings of their own; codes and scores are the same in all of them."""
    raw = path.read_bytes()
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return raw.decode("utf-16")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


def _json(path: Path) -> Returned:
    content = json.loads(_text(path))
    if isinstance(content, list):
        return Returned(path, list(_label_studio(content)))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Unreadable(f"neither an export of our form (format: {FORMAT}) nor a list of Label Studio's tasks")
    head = {name: content[name] for name in ("study", "rater", "filled_by")}
    return Returned(path, [{**row, "code": str(row["code"]), **head} for row in content["ratings"]], content["kind"])


def _label_studio(tasks: Sequence[Row]) -> Iterator[Row]:
    """Every finished annotation of a task; two of one task are two rows, hence a duplicate."""
    if not all("annotations" in task and "data" in task for task in tasks):
        raise Unreadable("it is no whole export of Label Studio: choose JSON there, not JSON-MIN")
    for task in tasks:
        for annotation in task["annotations"]:
            if not annotation.get("was_cancelled"):
                who = annotation.get("completed_by")
                rated = {one["from_name"]: one["value"]["rating"] for one in annotation["result"]
                         if one["type"] == "rating"}  # fmt: skip
                yield {**task["data"], **rated, "filled_by": str(who.get("id") if isinstance(who, dict) else who)}


def _csv(path: Path) -> Returned:
    """Our own CSV, or REDCap's export; where commas are decimal points, programs write semicolons."""
    text = _text(path)
    head = text.partition("\n")[0]
    return _table(path, csv.reader(io.StringIO(text), delimiter=max(",;\t", key=head.count)))


def _xlsx(path: Path) -> Returned:
    from openpyxl import load_workbook

    try:
        book = load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # whatever a broken archive raises
        raise Unreadable("it is no workbook") from error
    if "ratings" not in book.sheetnames:
        raise Unreadable("it has no sheet 'ratings'")
    return _table(path, book["ratings"].iter_rows(values_only=True))


def _table(path: Path, lines: Iterator[Sequence[Any]]) -> Returned:
    """A table with a header; lines without a cell are passed over. REDCap calls the code ``record_id``."""
    names = ["" if name is None else str(name).strip() for name in next(lines, ())]
    code = "code" if "code" in names else "record_id"
    if missing := {code, "study", "rater", *dimensions()} - set(names):
        raise Unreadable(f"no column {', '.join(sorted(missing))}")
    rows = [dict(zip(names, line, strict=False)) for line in lines if any(cell not in (None, "") for cell in line)]
    return Returned(path, [row | {"code": str(row.get(code) or "").strip()} for row in rows])


_READERS: dict[str, Callable[[Path], Returned]] = {".json": _json, ".csv": _csv, ".xlsx": _xlsx}
