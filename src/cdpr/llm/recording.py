"""Recordings: every answer is paid for once. It is on the disk before it is used, and read there when its question
comes again; an archive takes the recordings of open cases to other projects.

A question is everything that decides the answer: the model, the digest of its weights where they are local, the
messages, how they are sampled, and the number of the sample. The seed belongs to it at temperatures above 0, so that
another ``evaluation.seed`` draws anew, also from servers without seeds. Address and key of a server are no part of it.

The absence of an answer (no word after all tries, or a conversation too long for the model: not
:attr:`~.types.Completion.is_answer`) is recorded too: a replay repeats it, other modes ask again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import io
import json
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..files import DigestCache, replacing
from ..pseudonym import pseudonym
from .journal import Journal, open_journal
from .spec import ModelSpec
from .types import CASE, SYSTEM, Completion, Messages, Model, ModelUnavailable, Sampling, Usage

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    question TEXT PRIMARY KEY, model TEXT NOT NULL, asked TEXT NOT NULL, answer TEXT NOT NULL, date TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS uses (system TEXT, question TEXT, PRIMARY KEY (system, question)) WITHOUT ROWID;
"""
_MEMBER = "answers.jsonl"  # of an archive
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date: the same recordings make the same bytes
_BATCH = 1000  # answers of one transaction


class AnswerMissing(ModelUnavailable):
    """A replay reached a question without a recorded answer."""


class ArchiveError(ValueError):
    """An archive that cannot be written or read; the message says why and what to do."""


class Recordings:
    """The answers below ``<state>/recordings``; those about credentialed cases are in a folder of their own, which only
    its owner may enter."""

    def __init__(self, state: str | Path, credentialed: bool) -> None:
        self.folder = _folder(state, credentialed)
        self.journal: Journal = open_journal(
            self.folder / "answers.sqlite", _SCHEMA, mode=0o700 if credentialed else 0o777
        )

    @staticmethod
    def exist(state: str | Path, credentialed: bool) -> bool:
        """Whether any answer was recorded there."""
        return (_folder(state, credentialed) / "answers.sqlite").exists()

    def find(self, question: str, system: str) -> tuple[Completion, bool] | None:
        """The answer to a question, and whether its use by ``system`` is recorded."""
        rows = self.journal.read(
            "SELECT answer, EXISTS (SELECT 1 FROM uses WHERE system = ? AND uses.question = answers.question) "
            "FROM answers WHERE question = ?",
            system,
            question,
        )
        return (read_answer(rows[0][0]), bool(rows[0][1])) if rows else None

    async def keep(self, model: str, text: str, answer: Completion, system: str) -> Completion:
        """Record an answer, or its absence; returns the recorded one, which may be the earlier answer of another
        process."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        row = (question_of(text), model, text, write_answer(answer), date)

        def insert(database: sqlite3.Connection) -> str:
            earlier = _insert_answer(database, row)
            _insert_uses(database, [system], row[0])
            return earlier or row[3]

        return read_answer(await self.journal.write(insert))

    async def note_use(self, question: str, system: str) -> None:
        """Record that ``system`` asks a question."""
        await self.journal.write(lambda database: _insert_uses(database, [system], question))


def _folder(state: str | Path, credentialed: bool) -> Path:
    return Path(state) / "recordings" / ("credentialed" if credentialed else "open")


def _insert_answer(database: sqlite3.Connection, row: tuple[str, ...]) -> str | None:
    """Insert a row of answers, unless its question has an answer; returns the earlier answer, if any."""
    earlier = database.execute("SELECT answer FROM answers WHERE question = ?", row[:1]).fetchone()
    if earlier and read_answer(earlier[0]).is_answer:
        return earlier[0]
    database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
    return None


def _insert_uses(database: sqlite3.Connection, systems: Sequence[str], question: str) -> None:
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
        text = canonical(question_fields(self._identity, messages, sample, sampling, seed))
        question, system = question_of(text), SYSTEM.get()
        record = self.recordings.find(question, system)
        if record and (record[0].is_answer or self.inner is None):
            answer, use_is_known = record
            if self.inner and not use_is_known:
                await self.recordings.note_use(question, system)
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
            task = asyncio.ensure_future(self._ask(self.inner, text, messages, sample, sampling, seed, system))
            self._tasks[question] = task
            task.add_done_callback(lambda _: self._tasks.pop(question))
        return await asyncio.shield(self._tasks[question])

    async def _ask(
        self, inner: Model, text: str, messages: Messages, sample: int, sampling: Sampling, seed: int, system: str
    ) -> Completion:
        [answer] = await inner.chat(messages, (sample,), sampling, seed)
        return await self.recordings.keep(self._name, text, answer, system)


def recorded_model(spec: ModelSpec, open_inner: Callable[[], Model]) -> RecordedModel:
    """The model of ``spec`` with its recordings; a replay does not open it, so it needs no package, key or server."""
    return RecordedModel(spec, None if spec.is_replay else open_inner())


# Questions and answers


def identity(spec: ModelSpec) -> dict[str, Any]:
    """What identifies a model and the terms of its requests, whatever its server. (How its entry samples and folds is
    in the question itself; cutting the answer out of a reply happens after recording.)"""
    fields: dict[str, Any] = {"kind": spec.kind}
    weights: str | None = spec.where
    if spec.kind != "folder":
        fields["model"] = spec.name
        weights = spec.server.local_weights if spec.server else None
    if weights:
        fields["weights"] = DigestCache(Path(spec.state) / "recordings" / "digests.json").digest(weights)
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
    usage = dataclasses.asdict(answer.usage) if answer.usage else None
    return canonical(
        {"text": answer.text, "finish_reason": answer.finish_reason, "model": answer.model, "usage": usage}
    )


def read_answer(text: str) -> Completion:
    """An answer from JSON. Raises ValueError, TypeError or LookupError for any other text."""
    fields = json.loads(text)
    if not isinstance(fields["text"], str) or fields["finish_reason"] not in ("stop", "length", "refusal", "too_long"):
        raise ValueError("no answer")
    usage = Usage(**fields["usage"]) if fields["usage"] else None
    return Completion(fields["text"], (), (), fields["finish_reason"], usage, fields["model"])


# Archives


@dataclasses.dataclass
class Imported:
    """Counts of an archive's answers: ``new`` ones were added, ``known`` ones existed; of ``conflicting`` ones (another
    answer to the same question) the existing answer stays. ``systems`` ask them, those ``of_weights`` with a digest of
    local weights in the question."""

    new: int = 0
    known: int = 0
    conflicting: int = 0
    systems: tuple[str, ...] = ()
    of_weights: tuple[str, ...] = ()


def export_recordings(state: str | Path, file: str | Path, systems: Sequence[str] = ()) -> int:
    """Write all recordings of open cases, or those of ``systems``; returns their number.

    The archive is a zip file with one line of JSON per answer, sorted by question; the same recordings make the same
    bytes. Raises ArchiveError where a recording is of a credentialed case, and where there is nothing to write.
    """
    private = _private_questions(state, systems)
    if not Recordings.exist(state, credentialed=False):
        raise ArchiveError(
            f"nothing to export: {state}/recordings holds no answers about open cases"
            + (" (those about credentialed cases never leave it)" if private else "")
        )
    recordings, count = Recordings(state, credentialed=False), 0
    with replacing(file) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        member = zipfile.ZipInfo(_MEMBER, _EPOCH)
        member.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(member, "w", force_zip64=True) as out:
            for line in _lines(recordings, systems):
                if line["question"] in private:
                    raise ArchiveError(
                        f"question {line['question'][:16]} was also asked about a credentialed case (its data set was "
                        f"marked otherwise once): its answer must not leave {state}. Export other systems (--system), "
                        f"or remove {recordings.folder} if its cases are credentialed"
                    )
                out.write(canonical(line).encode() + b"\n")
                count += 1
        if not count:
            raise ArchiveError(
                f"nothing to export: {', '.join(systems) or 'no system'} asked anything about open cases that is in "
                f"{state}/recordings" + ("; answers about credentialed cases never leave it" if private else "")
            )
    return count


def import_recordings(state: str | Path, file: str | Path) -> Imported:
    """Add the answers of an archive. Raises ArchiveError for any other file, and for a line whose answer does not
    belong to its question; earlier lines stay imported."""
    recordings, imported = Recordings(state, credentialed=False), Imported()
    systems: set[str] = set()
    of_weights: set[str] = set()
    batch: list[dict[str, Any]] = []

    def add_batch() -> None:
        for new, known in recordings.journal.write_now(lambda database: [_import(database, line) for line in batch]):
            imported.new += new
            imported.known += known
            imported.conflicting += not (new or known)
        batch.clear()

    try:
        with zipfile.ZipFile(file) as archive, archive.open(_MEMBER) as lines:
            for number, text in enumerate(io.TextIOWrapper(lines, encoding="utf-8"), 1):
                line = _read_line(text, f"{file}, line {number}")
                batch.append(line)
                systems.update(line["systems"])
                if "weights" in line["asked"]:
                    of_weights.update(line["systems"])
                if len(batch) == _BATCH:
                    add_batch()
    except (zipfile.BadZipFile, KeyError, EOFError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{file}: no archive of recordings ({type(error).__name__}); fetch it again") from error
    add_batch()
    return dataclasses.replace(imported, systems=tuple(sorted(systems)), of_weights=tuple(sorted(of_weights)))


def _private_questions(state: str | Path, systems: Sequence[str]) -> set[str]:
    """Questions about credentialed cases."""
    if not Recordings.exist(state, credentialed=True):
        return set()
    rows = Recordings(state, credentialed=True).journal.read("SELECT question, system FROM uses")
    return {question for question, system in rows if not systems or system in systems}


def _lines(recordings: Recordings, systems: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The lines of an archive, read in batches: recordings may not fit into memory."""
    last = ""
    query = (
        "SELECT question, model, asked, answer, date, (SELECT json_group_array(system) FROM uses "
        "WHERE uses.question = answers.question) FROM answers WHERE question > ? ORDER BY question LIMIT ?"
    )
    while rows := recordings.journal.read(query, last, _BATCH):
        for last, model, question, answer, date, uses in rows:
            users = sorted(system for system in json.loads(uses) if not systems or system in systems)
            if users or not systems:
                fields = {"question": last, "model": model, "date": date, "systems": users}
                yield fields | {"asked": json.loads(question), "answer": json.loads(answer)}


def _read_line(text: str, place: str) -> dict[str, Any]:
    """A line of an archive. Raises ArchiveError where the answer is none or the question another one."""
    try:
        line = json.loads(text)
        read_answer(canonical(line["answer"]))
        valid = line["question"] == question_of(canonical(line["asked"]))
        valid &= all(isinstance(name, str) for name in (line["model"], line["date"], *line["systems"]))
    except (ValueError, TypeError, LookupError, RecursionError):
        valid = False
    if not valid:
        raise ArchiveError(
            f"{place}: the answer does not belong to its question; the archive is damaged or was edited, fetch it again"
        )
    return line


def _import(database: sqlite3.Connection, line: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the answer is new, and whether the same answer existed."""
    question, answer = line["question"], write_answer(read_answer(canonical(line["answer"])))
    existing = database.execute("SELECT answer FROM answers WHERE question = ?", (question,)).fetchone()
    known = existing is not None and existing[0] == answer
    row = (question, line["model"], canonical(line["asked"]), answer, line["date"])
    new = not known and _insert_answer(database, row) is None
    _insert_uses(database, line["systems"], question)
    return new, known
