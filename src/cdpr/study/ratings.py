"""Read the completed forms, combine their ratings, and list everything that is wrong with them."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from ..files import file_type, write_text
from .blinding import Items
from .records import StudyError
from .rubric import SCALE, dimensions

PHYSICIAN, SIMULATED = "physician", "simulated"
FORMAT = "cdpr-study-ratings"
_IGNORED = (".", "~$")  # names of files that systems and office programs leave beside others
_HTML = "it is the form itself, and ratings stay in the browser: open it there, press Export JSON, and send that file"
_NO_FORM = "it is not a complete JSON export of the form: ask for a new export, and keep other files out of this folder"
_ZIP = "unpack it, and put the file that is in it here"
_SHOWN = 30  # problems that a message lists
_QUOTED = 12  # characters of a cell that a message quotes: a rater may have written of a patient there

Scores = dict[str, dict[str, int]]
"""Scores of one rater by content and dimension."""


class Returned(BaseModel):
    """One file, as the HTML form exports it: the ``kind`` of rater, the name of the person (empty: not given), and a
    row per proposal with its ``code`` and its scores by dimension."""

    path: Path = Field(exclude=True)
    format: Literal["cdpr-study-ratings"]
    study: str
    rater: str
    kind: Literal["physician", "simulated"]
    filled_by: str
    ratings: list[dict[str, Any]]


@dataclass
class Ratings:
    """Scores by rater, content and dimension, without missing ones. ``kind`` is the kind of raters, ``missing`` the
    number of missing ratings."""

    kind: str
    scores: dict[str, Scores] = field(default_factory=dict)
    missing: int = 0


def returned_files(paths: Iterable[Path]) -> list[Path]:
    """List files, and those in folders without the ones that programs leave there. Raises StudyError where there are
    none."""
    files: list[Path] = []
    for path in map(Path, paths):
        if not file_type(path):
            raise StudyError(f"{path}: there is no such file or folder")
        inside = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith(_IGNORED))
        if not inside and not path.is_file():
            raise StudyError(f"{path}: holds no form: expected the JSON files that forms export")
        files += inside or [path]
    return files


def read_ratings(paths: Iterable[Path], items: Items, *, allow_missing: bool = False) -> Ratings:
    """Read and combine the ratings of all files. Raises StudyError with a list of what is wrong."""
    ratings, problems = check_ratings(paths, items, allow_missing=allow_missing)
    if problems:
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise StudyError("\n  ".join(["these ratings cannot be used:", *problems[:_SHOWN], *more]))
    return ratings


def report_returned(paths: Iterable[Path], study: Path, allow_missing: bool) -> tuple[str, bool]:
    """Return what is wrong with forms that came back, as text, and whether they are complete. ``study`` is the folder
    of the study. Raises StudyError for a folder without forms."""
    cards = study / "cards.json"
    if not cards.exists():
        raise StudyError(f"{cards}: missing: make the forms first, or name the folder of the study in study.kept")
    items = Items.read(cards)
    ratings, problems = check_ratings(paths, items, allow_missing=allow_missing)
    missing = f" ({ratings.missing} ratings are missing, as study.allow_missing allows)" if ratings.missing else ""
    complete = f"complete{missing}: {len(ratings.scores)} raters; set study.ratings to the folder of these files"
    return "\n".join(problems) or complete, not problems


def check_ratings(paths: Iterable[Path], items: Items, *, allow_missing: bool = False) -> tuple[Ratings, list[str]]:
    """Return the ratings, and a line for everything that is wrong with them."""
    problems: list[str] = []
    files: dict[str, list[Returned]] = defaultdict(list)
    for path in returned_files(paths):
        try:
            returned = Returned(path=path, **json.loads(path.read_bytes()))
        except (ValueError, TypeError, RecursionError):
            remedy = {".html": _HTML, ".zip": _ZIP}.get(path.suffix.lower(), _NO_FORM)
            problems.append(f"{path}: cannot be read: {remedy}")
            continue
        if returned.study != items.study:
            problem = f"wrong study: it is of {_quoted(returned.study)}, these forms are of {items.study}"
            problems.append(f"{path}: {problem}")
        elif returned.rater not in items.forms:
            problem = f"unknown rater {_quoted(returned.rater)}; the study has {', '.join(items.forms)}"
            problems.append(f"{path}: {problem}")
        else:
            files[returned.rater].append(returned)
    kinds = {returned.kind for those in files.values() for returned in those}
    if len(kinds) > 1:
        problems.append(f"raters of different kinds ({', '.join(sorted(kinds))}) are in one folder; keep them apart")
    ratings = Ratings(next(iter(kinds), PHYSICIAN))
    for rater in items.forms:
        problems += _add(ratings, rater, files[rater], items, allow_missing)
    if not ratings.scores and not problems:
        problems.append("missing: no form came back")
    return ratings, problems


def _add(ratings: Ratings, rater: str, files: Sequence[Returned], items: Items, allow_missing: bool) -> list[str]:
    """Add a rater's scores to ``ratings``, and list what is wrong with them."""
    contents = [card.content for page in items.forms[rater] for card in page.cards]
    expected = len(contents) * len(dimensions())
    if len(files) > 1:
        names = ", ".join(str(returned.path) for returned in files)
        if len({returned.filled_by for returned in files if returned.filled_by}) > 1:
            return [
                f"{rater}: two raters under one name: {names}; give each rater the form of their own name. Where "
                "one rater used two machines: load one file after the other into the form, and export again"
            ]
        return [f"{rater}: duplicate: {names} are exports of the same form; keep the latest"]
    if not files:
        ratings.missing += expected
        return [] if allow_missing else [f"{rater}: missing: no form came back, or none that can be read"]
    scores, problems = _scores(files[0], items)
    missing = expected - sum(map(len, scores.values()))
    ratings.scores[rater] = scores
    ratings.missing += missing
    if missing and not allow_missing and not problems:
        unfinished = sum(len(scores.get(content, ())) < len(dimensions()) for content in contents)
        problems.append(f"{files[0].path}: missing: {missing} of {expected} ratings of {rater}, of {unfinished} "
                        "proposals; have it finished, or set study.allow_missing")  # fmt: skip
    return problems


def _scores(returned: Returned, items: Items) -> tuple[Scores, list[str]]:
    """Return the scores of a file, and list what is wrong with them."""
    codes, path, scores = items.codes(), returned.path, Scores()
    problems: list[str] = []
    wrong: set[str] = set()
    for code, count in Counter(str(row.get("code")) for row in returned.ratings).items():
        owner, _ = codes.get(code, ("", ""))
        if owner != returned.rater or count > 1:
            wrong.add(code)
        if owner != returned.rater:
            fault = f"is of the form of {owner}, not of {returned.rater}" if owner else f"is no code of {items.study}"
            problems.append(f"{path}: edited key: {_quoted(code)} {fault}")
        elif count > 1:
            problems.append(f"{path}: duplicate: {code} appears twice")
    for row in (row for row in returned.ratings if str(row.get("code")) not in wrong):
        values = {name: row[name] for name in dimensions() if row.get(name) is not None}
        scores[codes[row["code"]][1]] = {name: int(value) for name, value in values.items() if _is_score(value)}
        problems += [f"{path}: out of range: {row['code']}, {name}: {_quoted(value)} is no whole number from 1 to 5"
                     for name, value in values.items() if not _is_score(value)]  # fmt: skip
    return scores, problems


def _is_score(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value in SCALE


def _quoted(value: Any) -> str:
    text = str(value)
    short = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
    return repr(short) if isinstance(value, str) else short


def write_ratings(path: Path, study: str, rater: str, kind: str, scores: Mapping[str, Mapping[str, int]]) -> None:
    """Write a form that a program filled in, as the HTML form exports it; ``scores`` are by code."""
    rows = [{"code": code, **values, "comment": ""} for code, values in scores.items()]
    content = {"format": FORMAT, "version": 1, "study": study, "rater": rater, "kind": kind, "filled_by": kind,
            "exported": "", "ratings": rows}  # fmt: skip
    write_text(path, json.dumps(content, indent=1) + "\n")
