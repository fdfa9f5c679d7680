"""Recordings: every answer is paid for once. It is on the disk before it is used, and read there when its question
comes again; an archive takes the recordings of open cases to other projects.

A question is everything that decides the answer: the model, the digest of its weights where they are local, the
messages, how they are sampled, and the number of the sample. The seed belongs to it at temperatures above 0, so that
another ``evaluation.seed`` draws again, also from servers without seeds. Address and key of a server are no part of it.

The absence of an answer (no word after all tries, or a conversation too long for the model: not
:attr:`~.types.Completion.is_answer`) is recorded too: a replay repeats it, other modes ask again.
"""

import asyncio
import dataclasses
import hashlib
import io
import json
import sqlite3
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from ..files import DigestCache, replacing
from ..pseudonym import pseudonym
from .journal import open_journal
from .spec import ModelSpec
from .types import CASE, DATASET, SYSTEM, Completion, Messages, Model, ModelUnavailable, Sampling, Usage, clean_text

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    question TEXT PRIMARY KEY, model TEXT NOT NULL, asked TEXT NOT NULL, answer TEXT NOT NULL, date TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS uses (system TEXT, question TEXT, PRIMARY KEY (system, question)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sources (dataset TEXT, question TEXT, PRIMARY KEY (dataset, question)) WITHOUT ROWID;
"""
_ANSWER = TypeAdapter(Completion)
_MEMBER = "answers.jsonl"  # of an archive
_IMPORTED = "imported"  # in the place of the data set of an archive's answers, which are about open cases
_MOST_EXPANSION = 200  # of an archive's bytes, above a megabyte; JSON shrinks to about a tenth
# Errors of reading a damaged archive; RuntimeError: one that is encrypted, or packed in a way unknown here.
_DAMAGED = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, RuntimeError, UnicodeDecodeError)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date: the same recordings make the same bytes


class AnswerMissing(ModelUnavailable):
    """A replay reached a question without a recorded answer."""


class ArchiveError(ValueError):
    """An archive that cannot be written or read; the message says why and what to do."""


class Recordings:
    """The answers below ``<state>/recordings``; those about credentialed cases in one for its owner alone."""

    def __init__(self, state: str | Path, credentialed: bool) -> None:
        self.folder = _folder(state, credentialed)
        self.folder.mkdir(mode=0o700 if credentialed else 0o777, parents=True, exist_ok=True)
        self.journal = open_journal(self.folder / "answers.sqlite", _SCHEMA)

    @staticmethod
    def exist(state: str | Path, credentialed: bool) -> bool:
        """Whether any answer was recorded there."""
        return (_folder(state, credentialed) / "answers.sqlite").exists()

    def find(self, question: str, system: str) -> tuple[Completion, bool] | None:
        """The answer to a question, and whether its use by ``system`` for the data set at hand is recorded."""
        rows = self.journal.read(
            "SELECT answer, EXISTS (SELECT 1 FROM uses WHERE system = ? AND uses.question = answers.question) AND "
            "EXISTS (SELECT 1 FROM sources WHERE dataset = ? AND sources.question = answers.question) "
            "FROM answers WHERE question = ?",
            (system, DATASET.get(), question),
        )
        return (read_answer(rows[0][0]), bool(rows[0][1])) if rows else None

    def record(self, model: str, text: str, answer: Completion, system: str) -> Completion:
        """Record an answer, or its absence; returns the recorded one, perhaps the earlier one of another process."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        row = (question_of(text), model, text, write_answer(answer), date)
        use = [system], DATASET.get()
        return read_answer(self.journal.write(lambda database: _insert(database, row, *use)) or row[3])


def _folder(state: str | Path, credentialed: bool) -> Path:
    return Path(state) / "recordings" / ("credentialed" if credentialed else "open")


def _insert(database: sqlite3.Connection, row: tuple[str, ...], systems: Sequence[str], dataset: str) -> str | None:
    """Insert a row of answers, unless its question has an answer, and its uses; returns the earlier answer, if any."""
    _insert_uses(database, systems, dataset, row[0])
    earlier = database.execute("SELECT answer FROM answers WHERE question = ?", row[:1]).fetchone()
    if earlier and (earlier[0] == row[3] or read_answer(earlier[0]).is_answer):
        return earlier[0]
    database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
    return None


def _insert_uses(database: sqlite3.Connection, systems: Sequence[str], dataset: str, question: str) -> None:
    database.execute("INSERT INTO sources VALUES (?, ?) ON CONFLICT DO NOTHING", (dataset, question))
    rows = [(system, question) for system in systems]
    database.executemany("INSERT INTO uses VALUES (?, ?) ON CONFLICT DO NOTHING", rows)


class RecordedModel(Model):
    """``inner`` with recordings: it gets only questions without a recorded answer; None: replay only. It takes
    messages: models that take tokens are in this process, cost nothing and repeat themselves."""

    def __init__(self, spec: ModelSpec, inner: Model | None) -> None:
        self.inner = inner
        self.recordings = Recordings(spec.state, spec.credentialed)
        self._spec = spec
        self._name, self._identity = spec.name or Path(spec.where).name, identity(spec)
        self._tasks: dict[str, asyncio.Task[Completion]] = {}

    def __repr__(self) -> str:
        return f"<recorded {self.inner!r}>"

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        return list(await asyncio.gather(*(self._one(messages, k, sampling, seed) for k in samples)))

    def refresh(self) -> None:
        if self.inner:
            self.inner.refresh()

    async def _one(self, messages: Messages, sample: int, sampling: Sampling, seed: int) -> Completion:
        """The recorded answer to a question, else that of ``inner``, which is recorded. Raises AnswerMissing in a
        replay."""
        text = canonical(question_fields(self._identity, messages, sample, sampling, seed))
        question, system = question_of(text), SYSTEM.get()
        record = self.recordings.find(question, system)
        if record and (record[0].is_answer or self.inner is None):
            answer, use_is_known = record
            if self.inner and not use_is_known:
                use = [system], DATASET.get(), question
                self.recordings.journal.write(lambda database: _insert_uses(database, *use))
            return answer
        if self.inner is None:
            case = CASE.get() or "unknown"
            if self._spec.credentialed:
                case = pseudonym(self._spec.state, case)
            raise AnswerMissing(
                f"{system or 'a model'}: no recorded answer of {self._name} for case {case} "
                f"(question {question[:16]}) in {self.recordings.folder}; import an archive that holds it (`cdpr "
                "recordings import FILE`; it must have been recorded under these settings and prompts), or set "
                "calls.mode to record, which asks the model"
            )
        if question not in self._tasks:  # equal questions at the same time are paid for once

            async def ask(inner: Model) -> Completion:
                [answer] = await inner.chat(messages, (sample,), sampling, seed)
                return self.recordings.record(self._name, text, answer, system)

            self._tasks[question] = asyncio.ensure_future(ask(self.inner))
            self._tasks[question].add_done_callback(lambda _: self._tasks.pop(question))
        return await asyncio.shield(self._tasks[question])


# Questions and answers


def identity(spec: ModelSpec) -> dict[str, Any]:
    """What identifies a model and the terms of its requests, and how a server of the job serves it. (How its entry
    samples and folds is in the question itself; cutting the answer out of a reply happens after recording.)"""
    fields: dict[str, Any] = {"kind": spec.kind}
    weights: str | None = spec.where
    if spec.kind != "folder":
        fields["model"] = spec.name
        weights = spec.server.weights if spec.server and Path(spec.server.weights).exists() else None
    if weights:
        fields["weights"] = DigestCache(Path(spec.state) / "recordings" / "digests.json").digest(weights)
    if spec.server:
        served, own = spec.server.serving, {} if spec.entry is None else {"serve": [*spec.server.flags]}
        here = {} if weights else {"weights": spec.server.weights}
        fields["served"] = {"program": served.program, "command": served.command, **own, **here}
    return fields | ({"extra": spec.entry.extra} if spec.entry and spec.entry.extra else {})


def question_fields(
    model: Mapping[str, Any], messages: Messages, sample: int, sampling: Sampling, seed: int
) -> dict[str, Any]:
    """A question: everything that decides the answer."""
    question = {**model, "messages": [dict(message) for message in messages], "sample": sample}
    question["sampling"] = {  # without defaults, so that a new field leaves old recordings valid
        field.name: value
        for field in dataclasses.fields(sampling)
        if (value := getattr(sampling, field.name)) != field.default or field.name == "temperature"
    }
    return question if sampling.temperature == 0 else question | {"seed": seed}


def canonical(fields: Mapping[str, Any]) -> str:
    """A question as one text that does not depend on the order of its fields."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def question_of(text: str) -> str:
    """The key of a question: the SHA-256 of its text."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_answer(answer: Completion) -> str:
    """An answer as JSON."""
    return canonical(_ANSWER.dump_python(answer, exclude={"token_ids", "logprobs"}))


def read_answer(text: str) -> Completion:
    """An answer from JSON; one that an earlier version recorded unchecked is corrected. Raises ValueError for any other
    object."""
    fields = json.loads(text)
    counts = fields.get("usage")
    usage = Usage.of(*map(counts.get, ("prompt_tokens", "completion_tokens"))) if isinstance(counts, dict) else None
    answer = _ANSWER.validate_python({**fields, "usage": usage, "token_ids": (), "logprobs": ()})
    return dataclasses.replace(answer, text=clean_text(answer.text))


# Archives


@dataclasses.dataclass
class Imported:
    """Counts of an archive's answers: ``new``, ``known``, and ``conflicting`` (the existing answer stays). ``systems``
    ask them, those ``of_weights`` with a digest of local weights."""

    new: int = 0
    known: int = 0
    conflicting: int = 0
    systems: set[str] = dataclasses.field(default_factory=set)
    of_weights: set[str] = dataclasses.field(default_factory=set)


class _Line(BaseModel):
    """A line of an archive: an answer, its question, and the systems that ask it."""

    question: str
    model: str
    date: str
    systems: list[str]
    asked: dict[str, Any]
    answer: dict[str, Any]


def export_recordings(
    state: str | Path, file: str | Path, systems: Sequence[str] = (), credentialed: Collection[str] = ()
) -> int:
    """Write all recordings of open cases, or those of ``systems``, but no :func:`withheld` ones; returns their number.

    The archive is a zip file with one line of JSON per answer, sorted by question; the same recordings make the same
    bytes. Raises ArchiveError where a recording is of a credentialed case, and where there is nothing to write.
    """
    users, private = (_users(state, marked, systems) for marked in (False, True))
    for question in withheld(state, systems, credentialed):
        private[question] = users.pop(question)
    if not users:
        raise ArchiveError(
            f"nothing to export: {state}/recordings has no answers about open cases"
            + (f" for {', '.join(systems)}" if systems else "")
            + ("; answers about credentialed cases never leave it" if private else "")
        )
    for question in users.keys() & private.keys():
        raise ArchiveError(
            f"question {question[:16]} is also that of a credentialed case (its data set was marked otherwise "
            f"once): its answer must not leave {state}. Export other systems (--system), or remove "
            f"{_folder(state, credentialed=False)} if its cases are credentialed"
        )
    journal, query = Recordings(state, credentialed=False).journal, "SELECT * FROM answers WHERE question = ?"
    member = zipfile.ZipInfo(_MEMBER, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    with (
        replacing(file) as partial,
        zipfile.ZipFile(partial, "w") as archive,
        archive.open(member, "w", force_zip64=True) as out,
    ):
        for question, names in users.items():
            [(_, model, content, answer, date)] = journal.read(query, (question,))
            fields = {"question": question, "model": model, "date": date, "systems": names}
            line = canonical(fields | {"asked": json.loads(content), "answer": json.loads(answer)})
            out.write(line.encode() + b"\n")
    return len(users)


def import_recordings(state: str | Path, file: str | Path) -> Imported:
    """Add the answers of an archive. Raises ArchiveError for any other file, and for a line whose answer does not
    belong to its question; nothing is imported then."""
    imported = Imported()

    def add_all(database: sqlite3.Connection) -> None:
        for number, text in enumerate(_lines(file), 1):
            _import(database, text, f"{file}, line {number}", imported)

    Recordings(state, credentialed=False).journal.write(add_all)
    return imported


def _lines(file: str | Path) -> Iterator[str]:
    """The lines of an archive. Raises ArchiveError for any other file."""
    try:
        with zipfile.ZipFile(file) as archive, archive.open(_MEMBER) as lines:
            member = archive.getinfo(_MEMBER)
            if member.file_size > _MOST_EXPANSION * max(member.compress_size, 2**20):
                raise ArchiveError(
                    f"{file}: {member.compress_size:,} bytes that would become {member.file_size:,}: no archive of "
                    "recordings, which shrink to about a tenth; nothing was imported"
                )
            yield from io.TextIOWrapper(lines, encoding="utf-8")
    except _DAMAGED as error:
        if getattr(error, "filename", None):  # no such file
            raise
        raise ArchiveError(f"{file}: no archive of recordings ({type(error).__name__}); fetch it again") from error


def withheld(state: str | Path, systems: Sequence[str], credentialed: Collection[str]) -> list[str]:
    """Questions recorded as of open cases that may be of cases whose data sets are marked ``credentialed`` by now: of
    these data sets, or of an unknown one."""
    users, sources = _users(state, False, systems), defaultdict(set)
    if not (users and credentialed):
        return []
    for dataset, question in Recordings(state, credentialed=False).journal.read("SELECT * FROM sources"):
        sources[question].add(dataset)
    return [question for question in users if not sources[question] - {""} or sources[question] & {*credentialed}]


def _users(state: str | Path, credentialed: bool, systems: Sequence[str]) -> dict[str, list[str]]:
    """The questions, sorted, with the systems that ask them; only ``systems``, if there are any."""
    users: dict[str, list[str]] = defaultdict(list)
    if Recordings.exist(state, credentialed):
        uses = Recordings(state, credentialed).journal.read("SELECT * FROM uses ORDER BY question, system")
        for system, question in uses:
            if not systems or system in systems:
                users[question].append(system)
    return users


def _import(database: sqlite3.Connection, text: str, place: str, imported: Imported) -> None:
    """Add a line of an archive. Raises ArchiveError where the answer is none or the question another one."""
    try:
        line = _Line.model_validate_json(text)
        answer, content = write_answer(read_answer(canonical(line.answer))), canonical(line.asked)
        if line.question != question_of(content) or json.loads(answer) | line.answer != json.loads(answer):
            raise ValueError("another question, or an answer that no server gave")
    except ValueError as error:
        raise ArchiveError(
            f"{place}: the answer does not belong to its question; the archive is damaged or was edited, fetch it again"
        ) from error
    earlier = _insert(database, (line.question, line.model, content, answer, line.date), line.systems, _IMPORTED)
    imported.new += earlier is None
    imported.known += earlier == answer
    imported.conflicting += earlier not in (None, answer)
    imported.systems.update(line.systems)
    if "weights" in line.asked:
        imported.of_weights.update(line.systems)
