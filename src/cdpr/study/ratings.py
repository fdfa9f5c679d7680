"""Forms that came back, in whatever tool they were filled in, and everything that is wrong with them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .blinding import Items
from .records import StudyError
from .rubric import SCALE, dimensions

PHYSICIAN, SIMULATED, MODEL = "physician", "simulated", "language model"
FORMAT = "cdpr-study-ratings"
_SHOWN = 30  # problems that a message lists
_QUOTED = 8  # characters of a wrong score that a message quotes


@dataclass(frozen=True)
class Returned:
    """One file: whose it says it is (empty: it does not say), who filled it in, and its rows: code and cells."""

    path: Path
    rows: Sequence[tuple[str, Mapping[str, Any]]]
    studies: frozenset[str] = frozenset()
    raters: frozenset[str] = frozenset()
    filled_by: str = ""
    kind: str = PHYSICIAN


@dataclass
class Ratings:
    """Scores by rater, content and dimension; what is missing is not in it. ``kind`` is who the raters are,
    ``missing`` how many ratings there should have been besides."""

    kind: str
    scores: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    missing: int = 0


class _Unreadable(Exception):
    """A file that is no form of ours; says why."""


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
    files: dict[str, list[Returned]] = {}
    kinds = set()
    for path in returned_files(paths):
        try:
            returned = _read(path)
        except (_Unreadable, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            why = str(error) if isinstance(error, _Unreadable) else "it is no file that our forms export"
            problems.append(f"{path}: cannot be read: {why}")
            continue
        rater, wrong = _whose(returned, items)
        problems += wrong
        if rater:
            files.setdefault(rater, []).append(returned)
            kinds.add(returned.kind)
    if len(kinds) > 1:
        problems.append(f"raters of different kinds ({', '.join(sorted(kinds))}) lie in one folder; keep them apart")
    ratings = Ratings(next(iter(kinds), PHYSICIAN))
    for rater in items.forms:
        problems += _together(rater, files.get(rater, []), items, ratings, allow_missing)
    return ratings, problems


def returned_files(paths: Iterable[Path]) -> list[Path]:
    """Files, and those in folders; a folder without any is an error."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise StudyError(f"{path}: there is no such file or folder")
        inside = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in _READERS)
        if not inside:
            raise StudyError(f"{path}: holds no form: expected files that end in {', '.join(sorted(_READERS))}")
        found += inside
    return found


def _whose(returned: Returned, items: Items) -> tuple[str, list[str]]:
    """The rater of a file, by its codes where it does not say so itself; and what is wrong with its head."""
    path, codes = returned.path, items.codes()
    if foreign := returned.studies - {items.study}:
        return "", [f"{path}: wrong study: it is of {', '.join(sorted(foreign))}, these forms are of {items.study}"]
    by_code = {codes[code][0] for code, _ in returned.rows if code in codes}
    named = returned.raters or by_code
    if not named:
        return "", [f"{path}: holds no code of study {items.study}: it is of another study, or its codes were edited"]
    if len(named) > 1:
        return "", [f"{path}: holds ratings of several raters ({', '.join(sorted(named))}); one file each, please"]
    (rater,) = named
    if rater not in items.forms:
        return "", [f"{path}: unknown rater {rater!r}; the study has {', '.join(items.forms)}"]
    return rater, []


def _together(rater: str, files: Sequence[Returned], items: Items, ratings: Ratings, allow_missing: bool) -> list[str]:
    """Put a rater's scores into ``ratings``; what is wrong with them."""
    wanted = [card.code for page in items.forms[rater] for card in page.cards]
    everything = len(wanted) * len(dimensions())
    if not files:
        ratings.missing += everything
        return [] if allow_missing and ratings.scores else [f"{rater}: missing: no form came back"]
    if len(files) > 1:
        return [_several(rater, files)]
    (returned,) = files
    scores, problems = _scores(returned, rater, items)
    ratings.scores[rater] = scores
    given = sum(map(len, scores.values()))
    ratings.missing += everything - given
    if given < everything and not allow_missing and not problems:
        open_states = sum(any(len(scores.get(card.content, ())) < len(dimensions()) for card in page.cards)
                          for page in items.forms[rater])  # fmt: skip
        problems.append(f"{returned.path}: missing: {everything - given} of {everything} ratings of {rater}, in "
                        f"{open_states} states; have it finished, or set study.allow_missing")  # fmt: skip
    return problems


def _several(rater: str, files: Sequence[Returned]) -> str:
    """What several files of one rater mean."""
    names = ", ".join(str(returned.path) for returned in files)
    told = {json.dumps([(code, {k: v for k, v in cells.items() if k != "comment"}) for code, cells in sorted(
        returned.rows, key=lambda row: row[0])], default=str) for returned in files}  # fmt: skip
    people = {returned.filled_by for returned in files if returned.filled_by}
    if len(told) == 1:
        return f"{rater}: duplicate: the same ratings in {names}; keep one of the files"
    if len(people) > 1 or not people:
        return (f"{rater}: two raters under one name: {names} differ and come from different forms; give each rater "
                "the form of their own name")  # fmt: skip
    return f"{rater}: duplicate: {names} are two versions of one form; keep the later one"


def _scores(returned: Returned, rater: str, items: Items) -> tuple[dict[str, dict[str, int]], list[str]]:
    codes, path = items.codes(), returned.path
    scores: dict[str, dict[str, int]] = {}
    problems, seen = [], set()
    for code, cells in returned.rows:
        if code not in codes:
            problems.append(f"{path}: edited key: {code!r} is no code of study {items.study}")
        elif codes[code][0] != rater:
            problems.append(f"{path}: edited key: {code} is of the form of {codes[code][0]}, not of {rater}")
        elif code in seen:
            problems.append(f"{path}: duplicate: {code} stands twice")
        else:
            seen.add(code)
            found = scores[codes[code][1]] = {}
            for dimension in dimensions():
                value = cells.get(dimension)
                if value is None or str(value).strip() == "":
                    continue
                score = _score(value)
                if score is None:
                    problems.append(
                        f"{path}: out of range: {code}, {dimension}: {value!r} is no whole number from 1 to 5"
                    )
                else:
                    found[dimension] = score
    return scores, problems


def _score(value: Any) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number in SCALE and not isinstance(value, bool) else None


# Readers, one per kind of file


def _read(path: Path) -> Returned:
    return _READERS[path.suffix](path)


def _json(path: Path) -> Returned:
    told = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(told, list):
        return _label_studio(path, told)
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise _Unreadable(f"neither an export of our form (format: {FORMAT}) nor a list of Label Studio's tasks")
    rows = [(str(row["code"]), row) for row in told["ratings"]]
    return Returned(path, rows, frozenset([told["study"]]), frozenset([told["rater"]]), told["filled_by"], told["kind"])


def _label_studio(path: Path, tasks: Sequence[Mapping[str, Any]]) -> Returned:
    """Every finished annotation of a task; two of one task are two rows, hence a duplicate."""
    rows, people = [], set()
    for task in tasks:
        for annotation in task["annotations"]:
            if annotation.get("was_cancelled"):
                continue
            cells = {
                one["from_name"]: one["value"]["rating"] for one in annotation["result"] if one["type"] == "rating"
            }
            rows.append((str(task["data"]["code"]), cells))
            who = annotation.get("completed_by")
            people.add(str(who.get("id") if isinstance(who, dict) else who))
    if len(people) > 1:
        raise _Unreadable(f"two raters under one name: {len(people)} people worked on these tasks; one project each")
    studies, raters = (frozenset(str(task["data"][name]) for task in tasks) for name in ("study", "rater"))
    return Returned(path, rows, studies, raters, next(iter(people), ""))


def _jsonl(path: Path) -> Returned:
    """Potato's ``annotated_instances.jsonl``: of a likert scale the label is the score, or its value is."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        labels = told["label_annotations"]
        cells = {name: _potato(labels[name]) for name in dimensions() if name in labels}
        rows.append((str(told.get("instance_id") or told["id"]), cells))
    return Returned(path, rows)


def _potato(chosen: Mapping[str, Any]) -> Any:
    for label, value in chosen.items():
        if re.fullmatch(r"\d+(\.\d+)?", str(value)):
            return value
        if value and (number := re.search(r"(\d+)$", str(label))):
            return number[1]
    return None


def _csv(path: Path) -> Returned:
    """Our own CSV, or REDCap's export."""
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    return _table(path, rows)


def _xlsx(path: Path) -> Returned:
    from openpyxl import load_workbook

    try:
        book = load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # whatever a broken archive raises
        raise _Unreadable("it is no workbook") from error
    if "ratings" not in book.sheetnames:
        raise _Unreadable("it has no sheet 'ratings'")
    lines = book["ratings"].iter_rows(values_only=True)
    heads = [str(head) for head in next(lines, ())]
    return _table(path, [dict(zip(heads, line, strict=False)) for line in lines if any(line)])


def _table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Returned:
    names = set().union(*(row.keys() for row in rows[:1]))
    code = "code" if "code" in names else "record_id"
    if missing := {code, "study", "rater", *dimensions()} - names:
        raise _Unreadable(f"no column {', '.join(sorted(map(str, missing)))}")
    studies, raters, people = (frozenset(str(row[name]) for row in rows if row.get(name))
                               for name in ("study", "rater", "filled_by"))  # fmt: skip
    if len(people) > 1:
        raise _Unreadable("two raters under one name: its rows come from different forms")
    return Returned(path, [(str(row[code]), row) for row in rows], studies, raters, next(iter(people), ""))


_READERS: dict[str, Callable[[Path], Returned]] = {".json": _json, ".jsonl": _jsonl, ".csv": _csv, ".xlsx": _xlsx}


def write_ratings(
    path: Path, study: str, rater: str, kind: str, scores: Iterator[tuple[str, Mapping[str, int]]]
) -> None:
    """A form filled in by a program, as the HTML form exports it: ``scores`` by code."""
    from ..files import write_text

    rows = [{"code": code, **values, "comment": ""} for code, values in scores]
    told = {"format": FORMAT, "version": 1, "study": study, "rater": rater, "kind": kind, "filled_by": kind,
            "exported": "", "ratings": rows}  # fmt: skip
    write_text(path, json.dumps(told, indent=1) + "\n")
