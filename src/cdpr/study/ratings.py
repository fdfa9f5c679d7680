"""Ratings that came back, from whatever tool and whatever programs do to files on the way: read, put together, and
everything that is wrong with them."""

import codecs
import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import file_type, write_text
from .blinding import Items
from .records import StudyError
from .rubric import SCALE, dimensions

PHYSICIAN, SIMULATED, MODEL = "physician", "simulated", "language model"
FORMAT = "cdpr-study-ratings"
_BESIDE = (".", "~$")  # names of files that systems and office programs leave beside others
_HTML = "it is the form itself, and ratings stay in the browser: open it there, press Export JSON, and send that file"
_INSTEAD = {".html": _HTML, ".zip": "unpack it, and put the files that are in it here", ".xls": "save it as .xlsx",
            ".ods": "save it as .xlsx"}  # fmt: skip

Row = Mapping[str, Any]
_SHOWN = 30  # problems that a message lists
_QUOTED = 12  # characters of a cell that a message quotes: somebody may have written of a patient there


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
        if not file_type(path):
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


# All files together


@dataclass
class Ratings:
    """Scores by rater, content and dimension; what is missing is not in it. ``kind`` is who the raters are,
    ``missing`` how many ratings there should have been besides."""

    kind: str
    scores: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    missing: int = 0


def read_ratings(paths: Iterable[Path], items: Items, *, allow_missing: bool = False) -> Ratings:
    """Everything that came back, put together. Raises StudyError, which lists what is wrong."""
    ratings, problems = check_ratings(paths, items, allow_missing=allow_missing)
    if problems:
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise StudyError("\n  ".join(["these ratings cannot be used:", *problems[:_SHOWN], *more]))
    return ratings


def check_ratings(paths: Iterable[Path], items: Items, *, allow_missing: bool = False) -> tuple[Ratings, list[str]]:
    """The ratings, and what is wrong with them, a line each."""
    problems: list[str] = []
    files: dict[str, list[Returned]] = defaultdict(list)
    for path in returned_files(paths):
        try:
            returned = read_returned(path)
            files[_whose(returned, items)].append(returned)
        except Unreadable as why:
            problems.append(f"{path}: cannot be read: {why}")
        except StudyError as why:
            problems.append(str(why))
    kinds = {returned.kind for those in files.values() for returned in those}
    if len(kinds) > 1:
        problems.append(f"raters of different kinds ({', '.join(sorted(kinds))}) lie in one folder; keep them apart")
    ratings = Ratings(next(iter(kinds), PHYSICIAN))
    for rater in items.forms:
        problems += _together(rater, files[rater], items, ratings, allow_missing)
    if not ratings.scores and not problems:
        problems.append("missing: no form came back")
    return ratings, problems


def _whose(returned: Returned, items: Items) -> str:
    """The rater of a file. Raises StudyError for a file of another study, and for none or several raters."""
    path = returned.path
    if foreign := returned.studies - {items.study}:
        raise StudyError(f"{path}: wrong study: it is of {_quoted(min(foreign))}, these forms are of {items.study}")
    if not returned.raters:
        raise StudyError(f"{path}: holds no rating that names its rater; have it exported again")
    if len(returned.raters) > 1:
        several = ", ".join(map(_quoted, sorted(returned.raters)[:3]))
        raise StudyError(f"{path}: holds ratings of several raters ({several}); one file each, please")
    (rater,) = returned.raters
    if rater not in items.forms:
        raise StudyError(f"{path}: unknown rater {_quoted(rater)}; the study has {', '.join(items.forms)}")
    return rater


def _together(rater: str, files: Sequence[Returned], items: Items, ratings: Ratings, allow_missing: bool) -> list[str]:
    """Put a rater's scores into ``ratings``; what is wrong with them."""
    pages = items.forms[rater]
    everything = sum(len(page.cards) for page in pages) * len(dimensions())
    if not files:
        ratings.missing += everything
        return [] if allow_missing else [f"{rater}: missing: no form came back, or none that can be read"]
    if len(files) > 1:
        return [_several(rater, files, items)]
    scores, problems = _scores(files[0], rater, items)
    ratings.scores[rater] = scores
    missing = everything - sum(map(len, scores.values()))
    ratings.missing += missing
    if missing and not allow_missing and not problems:
        open_states = sum(any(len(scores.get(card.content, ())) < len(dimensions()) for card in page.cards)
                          for page in pages)  # fmt: skip
        problems.append(f"{files[0].path}: missing: {missing} of {everything} ratings of {rater}, in "
                        f"{open_states} states; have it finished, or set study.allow_missing")  # fmt: skip
    return problems


def _several(rater: str, files: Sequence[Returned], items: Items) -> str:
    names = ", ".join(str(returned.path) for returned in files)
    first, *others = (_scores(returned, rater, items)[0] for returned in files)
    people = {returned.filled_by for returned in files if returned.filled_by}
    if all(scores == first for scores in others):
        return f"{rater}: duplicate: the same ratings in {names}; keep one of the files"
    if len(people) == 1:
        return f"{rater}: duplicate: {names} are two versions of one form; keep the later one"
    return (f"{rater}: two raters under one name: {names} differ and come from different forms; give each rater "
            "the form of their own name. Where one rater used two machines: load one file after the other into the "
            "form, and export once more")  # fmt: skip


def _scores(returned: Returned, rater: str, items: Items) -> tuple[dict[str, dict[str, int]], list[str]]:
    codes, path = items.codes(), returned.path
    scores: dict[str, dict[str, int]] = {}
    problems = []
    for row in returned.rows:
        code = row["code"]
        owner, content = codes.get(code, ("", ""))
        if not code:
            problems.append(f"{path}: edited key: a row without a code; take out rows that were added")
        elif not owner:
            problems.append(f"{path}: edited key: {_quoted(code)} is no code of study {items.study}")
        elif owner != rater:
            problems.append(f"{path}: edited key: {code} is of the form of {owner}, not of {rater}")
        elif content in scores:
            problems.append(f"{path}: duplicate: {code} stands twice")
        else:
            cells = {name: row.get(name) for name in dimensions()}
            cells = {name: cell for name, cell in cells.items() if cell is not None and str(cell).strip()}
            rated = {name: _score(cell) for name, cell in cells.items()}
            scores[content] = {name: score for name, score in rated.items() if score is not None}
            problems += [f"{path}: out of range: {code}, {name}: {_quoted(cells[name])} is no whole number from 1 to 5"
                         for name, score in rated.items() if score is None]  # fmt: skip
    return scores, problems


def _score(value: Any) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number in SCALE and not isinstance(value, bool) else None


def _quoted(value: Any) -> str:
    text = str(value)
    short = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
    return repr(short) if isinstance(value, str) else short


def write_ratings(path: Path, study: str, rater: str, kind: str, scores: Mapping[str, Mapping[str, int]]) -> None:
    """A form filled in by a program, as the HTML form exports it: ``scores`` by code."""
    rows = [{"code": code, **values, "comment": ""} for code, values in scores.items()]
    content = {"format": FORMAT, "version": 1, "study": study, "rater": rater, "kind": kind, "filled_by": kind,
            "exported": "", "ratings": rows}  # fmt: skip
    write_text(path, json.dumps(content, indent=1) + "\n")
