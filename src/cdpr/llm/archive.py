"""Archives of recorded answers of models (:mod:`.recording`), with which one project repeats the paid calls of another
without paying (``cdpr recordings``).

An archive is a text file with one line of JSON per answer about an open case, a case that anyone is allowed to see. The
lines are sorted by the key of their question, so equal recordings give equal bytes.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, model_validator

from ..files import read_json_lines, write_text
from ..settings import ASKERS, DATASETS, Settings, SettingsError
from .recording import AnswerRow, Recordings, canonical_json, insert_answer, question_key, read_answer, write_answer

_IMPORTED = "imported"  # in place of a data set, for answers from an archive, which are all about open cases
_DAMAGED = ("; this is no archive of recordings, or it is damaged or was edited: fetch it again (a zip file of an "
            "earlier version: unzip it)")  # fmt: skip


class ArchiveError(ValueError):
    """An archive cannot be written or read; the message says why."""


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

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Return the line unchanged. Raises ValueError for an answer that does not belong to its question, and for one
        that no server can have given."""
        if self.question != question_key(canonical_json(self.asked)):
            raise ValueError("the digest of another question")
        # `read_answer` adds the fields that the line lacks, and repairs values that no server can have given. Here the
        # line is refused where one of its own fields was repaired, or could not be read.
        with contextlib.suppress(ValueError):
            read_back = json.loads(self.row.answer)
            if {**read_back, **self.answer} == read_back:
                return self
        raise ValueError("an answer that no server gave")

    @property
    def row(self) -> AnswerRow:
        """The row of the database of recordings that holds the answer."""
        answer = write_answer(read_answer(canonical_json(self.answer)))
        return AnswerRow(self.question, self.model, canonical_json(self.asked), answer, self.date)


def run_export(settings: Settings, file: str | Path, systems: Sequence[str] = ()) -> str:
    """Run ``cdpr recordings export``: write the recorded answers of models about open cases to the archive ``file``,
    for another project to use. ``systems`` are the agents, judges and matchers whose answers are written (empty: all).
    Returns the message to print.

    Left out are answers that were recorded as those of open cases, but may be about a credentialed data set, whose text
    must not leave the machine: because it was marked as credentialed later, or because no data set was recorded. Raises
    SettingsError for an unknown system. Raises ArchiveError where the answer to the same question was also recorded for
    a credentialed case, and where no answer is left to write.
    """
    if unknown := sorted({*systems} - settings.agents.keys() - {*ASKERS}):
        problem = "no agent of workflow/agents.yaml has that name, and no judge or matcher"
        raise SettingsError(f"{', '.join(unknown)}: {problem}; `cdpr systems` lists all")
    state = settings.paths.state
    credentialed = {name for name in DATASETS if settings.data.source(name).credentialed}
    private = {question for (question,) in Recordings(state, True).journal.read("SELECT question FROM answers")}
    recordings, lines, withheld = Recordings(state, False), [], 0
    for *columns, users, datasets in recordings.journal.read("SELECT * FROM answers_with_uses"):
        row, sources = AnswerRow(*columns), json.loads(datasets or "[]")
        names = sorted(name for name in json.loads(users) if not systems or name in systems)
        if not names:
            continue
        if credentialed and (not sources or credentialed & {*sources}):
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
    write_text(file, "".join(lines))
    left_out = f"; {withheld:,} left out: their data set is credentialed by now, or was not recorded"
    return f"{file}: {len(lines):,} answers about open cases{left_out if withheld else ''}"


def run_import(settings: Settings, file: str | Path) -> str:
    """Run ``cdpr recordings import``: add the answers of models in the archive ``file`` to the recordings of this
    project. Returns the message to print, with their counts and how to replay them. Raises ArchiveError, which names
    the line, for a file that is no archive, for an answer that does not belong to its question, and for one that no
    server can have given; nothing is imported then."""
    lines = [line for _, line in read_json_lines(file, _Line, ArchiveError, _DAMAGED)]
    rows = [line.row for line in lines]
    # In one transaction. An earlier answer to the same question stays; None: there was none.
    earlier = Recordings(settings.paths.state, credentialed=False).journal.write(
        lambda database: [
            insert_answer(database, row, line.systems, _IMPORTED) for row, line in zip(rows, lines, strict=True)
        ]
    )
    new, known = earlier.count(None), sum(row.answer == answer for row, answer in zip(rows, earlier, strict=True))
    systems = sorted({system for line in lines for system in line.systems})
    return (
        f"{file}: {new:,} new answers, {known:,} known ones, {len(lines) - new - known:,} conflicting "
        f"(what was recorded here stays). They are of {', '.join(systems)}.\n"
        "To replay them without key, server or network: set calls.mode to replay, and keep the lines of `agents`, "
        "`models`, `judge` and `matcher`, and the weights of local models, with which they were recorded; a model of a "
        'provider needs `enabled: true`, one of a server any address (`at: "http://127.0.0.1/v1"`)'
    )
