"""Reads the completed forms, combines their ratings, and lists everything that is wrong with them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from ..files import file_type, write_text
from .records import SCALE, Items, StudyError, dimensions

PHYSICIAN, SIMULATED = "physician", "simulated"
_IGNORED = (".", "~$")  # first characters of files that systems and office programs leave beside others
_REMEDY = ("it is not a complete JSON export of the form: open the form in the browser where it was filled in, press "
           "Export JSON, put that file here, and keep other files out of this folder")  # fmt: skip
_MOST_CHARACTERS = 12  # of a value that a message quotes: a rater may have written of a patient there

Scores = dict[str, dict[str, int]]
"""Scores of one rater, by the name of the content and by dimension."""


class Form(BaseModel):
    """A file that the HTML form exports. ``filled_by`` is an identifier of the browser in which it was filled in.
    ``ratings`` has one entry per proposal: its ``code``, and its scores by dimension."""

    path: Path = Field(exclude=True)
    format: Literal["cdpr-study-ratings"]
    study: str
    rater: str
    kind: Literal["physician", "simulated"]
    filled_by: str
    ratings: list[dict[str, Any]]


@dataclass
class Ratings:
    """All ratings of a study: the ``kind`` of its raters (physician or simulated), the scores of each rater, and the
    number of ``missing`` ratings."""

    kind: str
    scores: dict[str, Scores] = field(default_factory=dict)
    missing: int = 0


def list_files(paths: Iterable[Path]) -> list[Path]:
    """List the files at ``paths``. A folder means all files in it, at any depth, except those with the name of a hidden
    or temporary file. Raises StudyError for a path that does not exist and for a folder without files."""
    files: list[Path] = []
    for path in paths:
        if not file_type(path):
            raise StudyError(f"{path}: there is no such file or folder")
        in_folder = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith(_IGNORED))
        if not (path.is_file() or in_folder):
            raise StudyError(f"{path}: holds no form: expected the JSON files that forms export")
        files += in_folder or [path]
    return files


def confirm_returned(paths: Iterable[Path], study: Path, allow_missing: bool) -> str:
    """Check returned forms for the command ``cdpr check_ratings``; returns a confirmation. ``study`` is the folder of
    the study. Raises StudyError where it has no ``cards.json``, and as :func:`read_ratings`."""
    cards = study / "cards.json"
    if not cards.exists():
        raise StudyError(f"{cards}: missing: make the forms first, or name the folder of the study in study.kept")
    ratings = read_ratings(paths, Items.read(cards), allow_missing=allow_missing)
    missing = f" ({ratings.missing} ratings are missing, as study.allow_missing allows)" if ratings.missing else ""
    return f"complete{missing}: {len(ratings.scores)} raters; set study.ratings to the folder of these files"


def read_ratings(paths: Iterable[Path], items: Items, *, allow_missing: bool = False) -> Ratings:
    """Read and combine the ratings in the forms at ``paths``; ``items`` are what was to be rated. With
    ``allow_missing`` a missing rating is no problem. Raises StudyError with a line for each problem, and as
    :func:`list_files`."""
    problems, forms = list[str](), list[Form]()
    for path in list_files(paths):
        try:
            form = Form(path=path, **json.loads(path.read_bytes()))
        except (ValueError, TypeError, RecursionError):  # no JSON or no form; no JSON object; too many nested brackets
            problems.append(f"{path}: cannot be read: {_REMEDY}")
            continue
        if form.study != items.study:
            problems.append(f"{path}: wrong study: it is of {_quote(form.study)}, these forms are of {items.study}")
        elif form.rater not in items.forms:
            problems.append(f"{path}: unknown rater {_quote(form.rater)}; the study has {', '.join(items.forms)}")
        else:
            forms.append(form)
    kinds = sorted({form.kind for form in forms})
    if len(kinds) > 1:
        problems.append(f"raters of different kinds ({', '.join(kinds)}) are in one folder; keep them apart")
    ratings = Ratings(kinds[0] if kinds else PHYSICIAN)
    for rater in items.forms:
        own = [form for form in forms if form.rater == rater]
        if len(own) > 1:
            problems.append(f"{rater}: duplicate: {', '.join(str(form.path) for form in own)}; keep the latest. Where "
                            "two raters used one form, give each the form of their own name")  # fmt: skip
            continue
        content_of = {card.code: card.content for card in items.cards(rater)}
        faults = list[str]()
        if own:
            ratings.scores[rater], faults = _read_scores(own[0], content_of)
        expected = len(content_of) * len(dimensions())
        missing = expected - sum(map(len, ratings.scores.get(rater, {}).values()))
        ratings.missing += missing
        problems += faults
        if missing and not faults and not allow_missing:
            problems.append(f"{own[0].path if own else rater}: missing: {missing} of {expected} ratings of {rater}; "
                            "have the form finished, or set study.allow_missing")  # fmt: skip
    if not ratings.scores and not problems:
        problems.append("missing: no form came back")
    if problems:
        raise StudyError("\n  ".join(["these ratings cannot be used:", *problems]))
    return ratings


def _read_scores(form: Form, content_of: Mapping[str, str]) -> tuple[Scores, list[str]]:
    """Read the scores of a form, whose codes mean the contents ``content_of``. Returns them by the name of the content
    and by dimension, and one line for each problem."""
    scores, problems = Scores(), list[str]()
    for row in form.ratings:
        code = str(row.get("code"))
        content = content_of.get(code)
        if content is None or content in scores:
            no_code = f"{_quote(code)} is no code of the form of {form.rater}, or is repeated"
            problems.append(f"{form.path}: edited key: {no_code}")
            continue
        scores[content] = {}
        for name in dimensions():
            value = row.get(name)
            if value in SCALE and value is not True:  # True equals 1
                scores[content][name] = int(value)
            elif value is not None:
                no_score = f"{name}: {_quote(value)} is no whole number from 1 to 5"
                problems.append(f"{form.path}: out of range: {code}, {no_score}")
    return scores, problems


def _quote(value: Any) -> str:
    """Quote at most the first 12 characters of a value in a message."""
    text = str(value)
    short = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return repr(short) if isinstance(value, str) else short


def write_ratings(path: Path, study: str, rater: str, kind: str, scores: Mapping[str, Mapping[str, int]]) -> None:
    """Write the ratings of a rater that is a program, in the format that the HTML form exports. ``scores`` are by the
    code of the proposal and by dimension."""
    rows = [{"code": code, **values, "comment": ""} for code, values in scores.items()]
    head = {"format": "cdpr-study-ratings", "version": 1, "study": study, "rater": rater}
    content = head | {"kind": kind, "filled_by": kind, "exported": "", "ratings": rows}
    write_text(path, json.dumps(content, indent=1) + "\n")
