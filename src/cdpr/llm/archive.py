"""Archives of recorded answers of models (:mod:`.recording`), with which one project repeats the paid calls of another
without paying (``cdpr recordings``).

An archive is a zip file with one line of JSON per answer about an open case, a case that anyone is allowed to see. The
lines are sorted by the key of their question, so equal recordings give equal bytes.
"""

import io
import json
import sqlite3
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ..files import replacing
from ..settings import Settings, SettingsError
from ..settings.datasets import DATASETS
from ..settings.judging import ASKERS
from . import recording
from .recording import AnswerRow, Recordings, canonical_json

_MEMBER = "answers.jsonl"  # of the zip file
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the date of the member, the first that a zip file can have
# An archive whose text is over this many times larger than its compressed form is refused: someone may have made it to
# fill the memory.
_MOST_COMPRESSED = 200
_IMPORTED = "imported"  # in place of a data set, for answers from an archive, which are all about open cases
# Errors of reading a damaged archive; RuntimeError: encrypted, or an unknown compression.
_DAMAGED = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, RuntimeError, UnicodeDecodeError)


class ArchiveError(ValueError):
    """An archive cannot be written or read; the message says why."""


@dataclass
class Imported:
    """The result of an import of recorded answers. It counts the answers of the archive that were ``new``, that were
    ``known`` already, and that were ``conflicting``: another answer to the same question is recorded and stays.
    ``systems`` are the agents, judges and matchers that use these answers."""

    new: int = 0
    known: int = 0
    conflicting: int = 0
    systems: set[str] = field(default_factory=set)


class _Line(BaseModel):
    """A line of an archive: an ``answer`` of ``model`` with its date, and the ``systems`` (agents, judges, matchers)
    that use it. ``asked`` is its question, the fields of the request that decide the answer; ``question`` is their
    digest."""

    question: str
    model: str
    date: str
    systems: list[str]
    asked: dict[str, Any]
    answer: dict[str, Any]


def export_recordings(
    state: str | Path, file: str | Path, systems: Sequence[str] = (), credentialed: Collection[str] = ()
) -> tuple[int, int]:
    """Write the recorded answers of models about open cases to the archive ``file``; returns their number, and that of
    the answers left out. ``state`` is the folder of the recordings. With ``systems`` (names of agents, judges,
    matchers) only the answers that these use are written.

    ``credentialed`` are the data sets whose text must not leave the machine. Left out are answers that were recorded as
    those of open cases, but may be about one of them: because it was marked as credentialed later, or because no data
    set was recorded. Raises ArchiveError where the answer to the same question was also recorded for a credentialed
    case, and where no answer is left to write.
    """
    private = {question for (question,) in Recordings(state, True).journal.read("SELECT question FROM answers")}
    recordings, lines, withheld = Recordings(state, False), [], 0
    for *columns, users, datasets in recordings.journal.read("SELECT * FROM answers_with_uses"):
        row, sources = AnswerRow(*columns), json.loads(datasets or "[]")
        names = sorted(name for name in json.loads(users) if not systems or name in systems)
        if not names:
            continue
        if credentialed and (not sources or {*sources} & {*credentialed}):
            withheld += 1
            continue
        if row.question in private:
            case = "a credentialed case (its data set was marked otherwise once)"
            remedy = f"Export other systems (--system), or remove {recordings.folder} if its cases are credentialed"
            problem = f"question {row.question[:16]} is also that of {case}: its answer must not leave {state}"
            raise ArchiveError(f"{problem}. {remedy}")
        content = {"systems": names, "asked": json.loads(row.asked), "answer": json.loads(row.answer)}
        lines.append(canonical_json(row._asdict() | content) + "\n")
    if not lines:
        chosen = f" for {', '.join(systems)}" if systems else ""
        reason = "; answers about credentialed cases never leave it" if private or withheld else ""
        raise ArchiveError(f"nothing to export: {state}/recordings has no answers about open cases{chosen}{reason}")
    member = zipfile.ZipInfo(_MEMBER, _EPOCH)  # a fixed date, so that equal answers give equal bytes
    with replacing(file) as partial, zipfile.ZipFile(partial, "w") as archive:
        archive.writestr(member, "".join(lines), zipfile.ZIP_DEFLATED)
    return len(lines), withheld


def import_recordings(state: str | Path, file: str | Path) -> Imported:
    """Add the answers of models in the archive ``file`` to the recordings in the folder ``state``; returns their
    counts. Raises ArchiveError for a file that is no archive, and for a line whose answer does not belong to its
    question; nothing is imported then."""

    def add_all(database: sqlite3.Connection) -> Imported:
        """Add all lines of the archive to the database, in one transaction; returns their counts."""
        imported = Imported()
        for number, text in enumerate(_read_lines(file), 1):
            line, row = _parse_line(text, f"{file}, line {number}")
            earlier = recording.insert_answer(database, row, line.systems, _IMPORTED)
            imported.new += earlier is None
            imported.known += earlier == row.answer
            imported.conflicting += earlier not in (None, row.answer)
            imported.systems.update(line.systems)
        return imported

    return Recordings(state, credentialed=False).journal.write(add_all)


def _read_lines(file: str | Path) -> Iterator[str]:
    """Yield the lines of an archive. Raises ArchiveError for a file that is no archive, or that would unpack to
    suspiciously many bytes."""
    try:
        with zipfile.ZipFile(file) as archive, archive.open(_MEMBER) as lines:
            member = archive.getinfo(_MEMBER)
            # At least a megabyte counts as compressed, so that texts of up to 200 MiB are always accepted.
            if member.file_size > _MOST_COMPRESSED * max(member.compress_size, 2**20):
                problem = f"would become {member.file_size:,} bytes: no archive of recordings"
                raise ArchiveError(f"{file}: {problem}; nothing was imported")
            yield from io.TextIOWrapper(lines, encoding="utf-8")
    except _DAMAGED as error:
        if getattr(error, "filename", None):  # the file itself cannot be opened: Python's message says why
            raise
        raise ArchiveError(f"{file}: no archive of recordings ({type(error).__name__}); fetch it again") from error


def _parse_line(text: str, where: str) -> tuple[_Line, AnswerRow]:
    """Check the line ``text`` of an archive; returns it and the row of its answer.

    Raises ArchiveError, which begins with ``where`` (file and number of the line), for a line that is not valid, for an
    answer that does not belong to its question, and for one that no server can have given.
    """
    try:
        line = _Line.model_validate_json(text)
        asked = canonical_json(line.asked)
        answer = recording.write_answer(recording.read_answer(canonical_json(line.answer)))
        if line.question != recording.question_key(asked):
            raise ValueError("the digest of another question")
        # `read_answer` adds the fields that the line lacks, and repairs values that no server can have given. Here the
        # line is refused where one of its own fields was repaired.
        read_back = json.loads(answer)
        if {**read_back, **line.answer} != read_back:
            raise ValueError("an answer that no server gave")
    except ValueError as error:
        remedy = "the archive is damaged or was edited, fetch it again"
        raise ArchiveError(f"{where}: the answer does not belong to its question; {remedy}") from error
    return line, AnswerRow(line.question, line.model, asked, answer, line.date)


# The command


def run_export(settings: Settings, file: str, systems: Sequence[str]) -> str:
    """Run ``cdpr recordings export``: write the recorded answers of models about open cases to the archive ``file``,
    for another project to use. ``systems`` are the agents, judges and matchers whose answers are written (empty: all).
    Returns the message to print. Raises SettingsError for an unknown system, and ArchiveError where there is nothing to
    write or an answer must not leave the machine."""
    if unknown := sorted({*systems} - settings.agents.keys() - {*ASKERS}):
        problem = "no agent of workflow/agents.yaml has that name, and no judge or matcher"
        raise SettingsError(f"{', '.join(unknown)}: {problem}; `cdpr systems` lists all")
    state = settings.paths.state
    credentialed = [name for name in DATASETS if settings.data.source(name).credentialed]
    written, withheld = export_recordings(state, file, systems, credentialed)
    left_out = f"; {withheld:,} left out: their data set is credentialed by now, or was not recorded"
    return f"{file}: {written:,} answers about open cases{left_out if withheld else ''}"


def run_import(settings: Settings, file: str) -> str:
    """Run ``cdpr recordings import``: add the answers of models in the archive ``file`` to the recordings of this
    project. Returns the message to print, with their counts and how to replay them. Raises ArchiveError for a file that
    is no archive, or a damaged one."""
    imported = import_recordings(settings.paths.state, file)
    return (
        f"{file}: {imported.new:,} new answers, {imported.known:,} known ones, {imported.conflicting:,} conflicting "
        f"(what was recorded here stays). They are of {', '.join(sorted(imported.systems))}.\n"
        "To replay them without key, server or network: set calls.mode to replay, and keep the lines of `agents`, "
        "`models`, `judge` and `matcher`, and the weights of local models, with which they were recorded; a model of a "
        'provider needs `enabled: true`, one of a server any address (`at: "http://127.0.0.1/v1"`)'
    )
