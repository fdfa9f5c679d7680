"""Recordings of open cases as one file, so that others redo a table without paying for it again."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import replacing
from .recording import Recordings, canonical, keep_answer, question_of, read_answer, write_answer

_MEMBER = "answers.jsonl"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same recordings make the same bytes
_AT_ONCE = 1000  # answers of one transaction


class ArchiveError(ValueError):
    """An archive that cannot be written or read; the message says why and what to do."""


@dataclass
class Imported:
    """What became of an archive's answers: ``new`` ones are kept, ``known`` ones were there, and of ``conflicting``
    ones (another answer to the same question) the one that was there stays. ``systems`` ask them, those ``of_weights``
    a model whose weights lay there: their digest is part of the question."""

    new: int = 0
    known: int = 0
    conflicting: int = 0
    systems: tuple[str, ...] = ()
    of_weights: tuple[str, ...] = ()


def export_recordings(state: str | Path, file: str | Path, systems: Sequence[str] = ()) -> int:
    """Write all recordings of open cases, or those that ``systems`` ask, and return how many they are.

    The archive is a zip file with one line of JSON per answer, sorted by question; the same recordings make the same
    bytes. Raises ArchiveError where a recording is of a credentialed case, and where there is nothing to write.
    """
    asked = _private(state, systems)
    if not Recordings.exist(state, credentialed=False):
        raise ArchiveError(
            f"nothing to export: {state}/recordings holds no answers about open cases"
            + (" (those about credentialed cases never leave it)" if asked else "")
        )
    recordings, count = Recordings(state, credentialed=False), 0
    with replacing(file) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        member = zipfile.ZipInfo(_MEMBER, _EPOCH)
        member.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(member, "w", force_zip64=True) as out:
            for line in _lines(recordings, systems):
                if line["question"] in asked:
                    raise ArchiveError(
                        f"question {line['question'][:16]} was also asked about a credentialed case (its data set was "
                        f"marked otherwise once): its answer must not leave {state}. Export other systems (--system), "
                        f"or remove {recordings.folder} if its cases are credentialed"
                    )
                out.write(canonical(line).encode() + b"\n")
                count += 1
        if not count:
            raise ArchiveError(
                f"nothing to export: {', '.join(systems) or 'nobody'} asked anything about open cases that is kept in "
                f"{state}/recordings" + ("; answers about credentialed cases never leave it" if asked else "")
            )
    return count


def import_recordings(state: str | Path, file: str | Path) -> Imported:
    """Keep the answers of an archive beside those that are there. Raises ArchiveError for what is no archive, or one
    whose answers do not belong to their questions; what stands before the first such line is kept."""
    recordings, told = Recordings(state, credentialed=False), Imported()
    systems: set[str] = set()
    of_weights: set[str] = set()
    batch: list[dict[str, Any]] = []
    try:
        with zipfile.ZipFile(file) as archive, archive.open(_MEMBER) as lines:
            for number, line in enumerate(io.TextIOWrapper(lines, encoding="utf-8"), 1):
                batch.append(found := _checked(line, f"{file}, line {number}"))
                systems |= {*found["systems"]}
                of_weights |= {*found["systems"]} if "weights" in found["asked"] else set()
                if len(batch) == _AT_ONCE:
                    _keep_all(recordings, batch, told)
    except (zipfile.BadZipFile, KeyError, EOFError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{file}: no archive of recordings ({type(error).__name__}); fetch it again") from error
    _keep_all(recordings, batch, told)
    told.systems, told.of_weights = tuple(sorted(systems)), tuple(sorted(of_weights))
    return told


def _private(state: str | Path, systems: Sequence[str]) -> set[str]:
    """Questions about credentialed cases."""
    if not Recordings.exist(state, credentialed=True):
        return set()
    rows = Recordings(state, credentialed=True).journal.read("SELECT question, system FROM uses")
    return {question for question, system in rows if not systems or system in systems}


def _lines(recordings: Recordings, systems: Sequence[str]) -> Iterator[dict[str, Any]]:
    last = ""
    while rows := recordings.journal.read(
        "SELECT question, model, asked, answer, date FROM answers WHERE question > ? ORDER BY question LIMIT ?",
        last, _AT_ONCE,
    ):  # fmt: skip
        for question, model, asked, answer, date in rows:
            uses = recordings.journal.read("SELECT system FROM uses WHERE question = ? ORDER BY system", question)
            users = [system for (system,) in uses if not systems or system in systems]
            if users or not systems:
                yield {"question": question, "model": model, "asked": json.loads(asked), "answer": json.loads(answer),
                       "date": date, "systems": users}  # fmt: skip
        last = rows[-1][0]


def _checked(line: str, place: str) -> dict[str, Any]:
    """A line of an archive, its answer an answer and its question the digest of what was asked."""
    try:
        found = json.loads(line)
        read_answer(canonical(found["answer"]))
        right = found["question"] == question_of(canonical(found["asked"]))
        texts = [found["model"], found["date"], *found["systems"]]
    except (ValueError, TypeError, LookupError, RecursionError):
        right, texts = False, []
    if not right or not all(isinstance(text, str) for text in texts):
        raise ArchiveError(
            f"{place}: the answer does not belong to its question; the archive is damaged or was edited, fetch it again"
        )
    return found


def _keep_all(recordings: Recordings, batch: list[dict[str, Any]], told: Imported) -> None:
    for new, known in recordings.journal.write_now(lambda database: [_keep(database, line) for line in batch]):
        told.new += new
        told.known += known
        told.conflicting += not (new or known)
    batch.clear()


def _keep(database: sqlite3.Connection, line: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the answer is new, and whether the very same was there."""
    question, answer = line["question"], write_answer(read_answer(canonical(line["answer"])))
    there = database.execute("SELECT answer FROM answers WHERE question = ?", (question,)).fetchone()
    known = there is not None and there[0] == answer
    row = (question, line["model"], canonical(line["asked"]), answer, line["date"])
    new = not known and keep_answer(database, row) is None
    uses = [(system, question) for system in line["systems"]]
    database.executemany("INSERT INTO uses VALUES (?, ?) ON CONFLICT DO NOTHING", uses)
    return new, known
