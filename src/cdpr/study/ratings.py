"""Ratings that came back, put together, and everything that is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import write_text
from .blinding import Items
from .records import StudyError
from .returned import FORMAT, PHYSICIAN, Returned, Unreadable, read_returned, returned_files
from .rubric import SCALE, dimensions

_SHOWN = 30  # problems that a message lists
_QUOTED = 12  # characters of a cell that a message quotes: somebody may have written of a patient there


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
    files: dict[str, list[Returned]] = {}
    kinds = set()
    for path in returned_files(paths):
        try:
            returned = read_returned(path)
        except Unreadable as why:
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
    if not ratings.scores and not problems:
        problems.append("missing: no form came back")
    return ratings, problems


def _whose(returned: Returned, items: Items) -> tuple[str, list[str]]:
    """The rater of a file, by its codes where it does not say so itself; and what is wrong with its head."""
    path, codes = returned.path, items.codes()
    if foreign := returned.studies - {items.study}:
        return "", [f"{path}: wrong study: it is of {_listed(foreign)}, these forms are of {items.study}"]
    by_code = {codes[code][0] for code, _ in returned.rows if code in codes}
    raters = returned.raters or by_code
    if not raters:
        return "", [f"{path}: holds no code of study {items.study}: it is of another study, or its codes were edited"]
    if len(raters) > 1:
        return "", [f"{path}: holds ratings of several raters ({_listed(raters)}); one file each, please"]
    (rater,) = raters
    if rater not in items.forms:
        return "", [f"{path}: unknown rater {_quoted(rater)}; the study has {', '.join(items.forms)}"]
    return rater, []


def _together(rater: str, files: Sequence[Returned], items: Items, ratings: Ratings, allow_missing: bool) -> list[str]:
    """Put a rater's scores into ``ratings``; what is wrong with them."""
    codes = [card.code for page in items.forms[rater] for card in page.cards]
    everything = len(codes) * len(dimensions())
    if not files:
        ratings.missing += everything
        return [] if allow_missing else [f"{rater}: missing: no form came back, or none that can be read"]
    if len(files) > 1:
        return [_several(rater, files, items)]
    (returned,) = files
    scores, problems = _scores(returned, rater, items)
    ratings.scores[rater] = scores
    count = sum(map(len, scores.values()))
    ratings.missing += everything - count
    if count < everything and not allow_missing and not problems:
        open_states = sum(any(len(scores.get(card.content, ())) < len(dimensions()) for card in page.cards)
                          for page in items.forms[rater])  # fmt: skip
        problems.append(f"{returned.path}: missing: {everything - count} of {everything} ratings of {rater}, in "
                        f"{open_states} states; have it finished, or set study.allow_missing")  # fmt: skip
    return problems


def _several(rater: str, files: Sequence[Returned], items: Items) -> str:
    """What several files of one rater mean."""
    names = ", ".join(str(returned.path) for returned in files)
    first, *others = (_scores(returned, rater, items)[0] for returned in files)
    people = {returned.filled_by for returned in files if returned.filled_by}
    if all(scores == first for scores in others):
        return f"{rater}: duplicate: the same ratings in {names}; keep one of the files"
    if len(people) > 1 or not people:
        return (f"{rater}: two raters under one name: {names} differ and come from different forms; give each rater "
                "the form of their own name. Where one rater used two machines: load one file after the other into the "
                "form, and export once more")  # fmt: skip
    return f"{rater}: duplicate: {names} are two versions of one form; keep the later one"


def _scores(returned: Returned, rater: str, items: Items) -> tuple[dict[str, dict[str, int]], list[str]]:
    codes, path = items.codes(), returned.path
    scores: dict[str, dict[str, int]] = {}
    problems, codes_read = [], set()
    for code, cells in returned.rows:
        if not code:
            problems.append(f"{path}: edited key: a row without a code; take out rows that were added")
        elif code not in codes:
            problems.append(f"{path}: edited key: {_quoted(code)} is no code of study {items.study}")
        elif codes[code][0] != rater:
            problems.append(f"{path}: edited key: {code} is of the form of {codes[code][0]}, not of {rater}")
        elif code in codes_read:
            problems.append(f"{path}: duplicate: {code} stands twice")
        else:
            codes_read.add(code)
            row_scores = scores[codes[code][1]] = {}
            for dimension in dimensions():
                value = cells.get(dimension)
                if value is None or str(value).strip() == "":
                    continue
                score = _score(value)
                if score is None:
                    problems.append(
                        f"{path}: out of range: {code}, {dimension}: {_quoted(value)} is no whole number from 1 to 5"
                    )
                else:
                    row_scores[dimension] = score
    return scores, problems


def _score(value: Any) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number in SCALE and not isinstance(value, bool) else None


def _listed(values: Iterable[str]) -> str:
    few = sorted(values)
    return ", ".join([*map(_quoted, few[:3]), *(["..."] if len(few) > 3 else [])])


def _quoted(value: Any) -> str:
    """The beginning of a cell."""
    text = value if isinstance(value, str) else str(value)
    short = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
    return repr(short) if isinstance(value, str) else short


def write_ratings(
    path: Path, study: str, rater: str, kind: str, scores: Iterator[tuple[str, Mapping[str, int]]]
) -> None:
    """A form filled in by a program, as the HTML form exports it: ``scores`` by code."""
    rows = [{"code": code, **values, "comment": ""} for code, values in scores]
    content = {"format": FORMAT, "version": 1, "study": study, "rater": rater, "kind": kind, "filled_by": kind,
            "exported": "", "ratings": rows}  # fmt: skip
    write_text(path, json.dumps(content, indent=1) + "\n")
