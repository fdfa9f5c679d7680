"""Every answer is paid for once: it is on the disk before it is used, and found there when its question comes again.

A question is what decides the answer: the model, its digest where its weights lie here, the messages, how they are
sampled, and which sample is meant. The seed belongs to it at temperatures above 0, so that another
``evaluation.seed`` draws anew, also from servers that take no seeds; greedy answers do not depend on it. Address and
key of a server are no part: a recording serves whoever has the same question.

That a question had no answer, whether nothing was said after all tries or the conversation was too long for the model
(:attr:`~.types.Completion.answered`), is kept as well, but not as an answer: a replay comes to the same, and whoever
may ask asks again.
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
from dataclasses import dataclass
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


class AnswerMissing(ModelUnavailable):
    """A replay came to a question that was not recorded."""


class Recordings:
    """The answers below ``<state>/recordings``; those to questions about credentialed cases lie apart, in a folder that
    its owner alone may enter."""

    def __init__(self, state: str | Path, credentialed: bool) -> None:
        self.folder = Path(state) / "recordings" / ("credentialed" if credentialed else "open")
        self.journal: Journal = open_journal(
            self.folder / "answers.sqlite", _SCHEMA, mode=0o700 if credentialed else 0o777
        )

    @staticmethod
    def exist(state: str | Path, credentialed: bool) -> bool:
        """Whether any answer was ever kept there."""
        return (Path(state) / "recordings" / ("credentialed" if credentialed else "open") / "answers.sqlite").exists()

    def find(self, question: str, system: str) -> tuple[Completion, bool] | None:
        """The answer to a question, and whether it is known that ``system`` asks it."""
        rows = self.journal.read(
            "SELECT answer, EXISTS (SELECT 1 FROM uses WHERE system = ? AND uses.question = answers.question) "
            "FROM answers WHERE question = ?", system, question,
        )  # fmt: skip
        return (read_answer(rows[0][0]), bool(rows[0][1])) if rows else None

    async def keep(self, model: str, asked: str, answer: Completion, system: str) -> Completion:
        """Keep an answer, or that there is none; returns the kept one, which is another process's answer where that was
        faster."""
        row = (question_of(asked), model, asked, write_answer(answer), _now())
        kept = await self.journal.write(lambda database: _keep(database, row, system))
        return read_answer(kept)

    async def note_use(self, question: str, system: str) -> None:
        """Keep that ``system`` asks a question."""
        await self.journal.write(lambda database: _note(database, system, question))


class RecordedModel(Model):
    """``inner``, asked what no recording answers; None: nobody is asked. It takes messages: answers to prompts of
    tokens are those of models in this process, which cost nothing and repeat themselves."""

    def __init__(self, spec: ModelSpec, inner: Model | None) -> None:
        self.inner = inner
        self.recordings = Recordings(spec.state, spec.credentialed)
        self._spec = spec
        self._called, self._identity = spec.name or Path(spec.where).name, identity(spec)
        self._under_way: dict[str, asyncio.Task[Completion]] = {}

    def __repr__(self) -> str:
        return f"<recorded {self.inner!r}>"

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        return list(await asyncio.gather(*(self._one(messages, k, sampling, seed) for k in samples)))

    def refresh(self) -> None:
        if self.inner:
            self.inner.refresh()

    async def _one(self, messages: Messages, sample: int, sampling: Sampling, seed: int) -> Completion:
        asked = canonical(asked_for(self._identity, messages, sample, sampling, seed))
        question, system = question_of(asked), SYSTEM.get()
        found = self.recordings.find(question, system)
        if found and (found[0].answered or self.inner is None):
            answer, noted = found
            if self.inner and not noted:
                await self.recordings.note_use(question, system)
            return answer
        if self.inner is None:
            case = CASE.get() or "unknown"
            if self._spec.credentialed:
                case = pseudonym(self._spec.state, case)
            raise AnswerMissing(
                f"{system or 'a model'}: no recorded answer of {self._called} for case {case} "
                f"(question {question[:16]}) in {self.recordings.folder}; import an archive that holds it (`cdpr "
                "recordings import FILE`; it must have been recorded under these settings and prompts), or set "
                "calls.mode to record, which asks the model"
            )
        if question not in self._under_way:  # one that is asked twice at the same time is paid for once
            task = asyncio.ensure_future(self._ask(asked, messages, sample, sampling, seed, system))
            self._under_way[question] = task
            task.add_done_callback(lambda _: self._under_way.pop(question))
        return await asyncio.shield(self._under_way[question])

    async def _ask(
        self, asked: str, messages: Messages, sample: int, sampling: Sampling, seed: int, system: str
    ) -> Completion:
        assert self.inner is not None
        [answer] = await self.inner.chat(messages, (sample,), sampling, seed)
        return await self.recordings.keep(self._called, asked, answer, system)


def recorded(spec: ModelSpec, open_inner: Callable[[], Model]) -> RecordedModel:
    """The model of ``spec`` with its recordings; in a replay it is not opened, so that neither its package nor its key,
    its server or its memory is needed."""
    return RecordedModel(spec, None if spec.replayed else open_inner())


# What a question is


def identity(spec: ModelSpec) -> dict[str, Any]:
    """What tells a model and the terms of its requests apart, whoever serves it. (How its entry draws and folds shows
    in the question itself; how an answer is cut out of a reply is done with what was recorded.)"""
    told: dict[str, Any] = {"kind": spec.kind}
    if spec.kind == "folder":
        told["weights"] = DigestCache(Path(spec.state) / "recordings" / "digests.json").digest(spec.where)
    else:
        told["model"] = spec.name
        if spec.server and (weights := spec.server.local_weights):
            told["weights"] = DigestCache(Path(spec.state) / "recordings" / "digests.json").digest(weights)
    return told | ({"extra": spec.entry.extra} if spec.entry and spec.entry.extra else {})


def asked_for(
    model: Mapping[str, Any], messages: Messages, sample: int, sampling: Sampling, seed: int
) -> dict[str, Any]:
    """A question: all that decides the answer."""
    told = {**model, "messages": [dict(message) for message in messages], "sample": sample}
    told["sampling"] = {  # only what is set: a field that comes later leaves old recordings as they are
        field.name: value
        for field in dataclasses.fields(sampling)
        if (value := getattr(sampling, field.name)) != field.default or field.name == "temperature"
    }
    return told if sampling.temperature == 0 else told | {"seed": seed}


def canonical(asked: Mapping[str, Any]) -> str:
    """A question as one text, the same however it came about."""
    return json.dumps(asked, sort_keys=True, separators=(",", ":"))


def question_of(asked: str) -> str:
    """The key of a question: the SHA-256 of its text."""
    return hashlib.sha256(asked.encode()).hexdigest()


# What an answer is


def write_answer(answer: Completion) -> str:
    """An answer as it is kept."""
    told = {"text": answer.text, "finish_reason": answer.finish_reason, "model": answer.model,
            "usage": dataclasses.asdict(answer.usage) if answer.usage else None}  # fmt: skip
    return canonical(told)


def read_answer(text: str) -> Completion:
    """A kept answer. Raises ValueError, TypeError or LookupError for what is none."""
    told = json.loads(text)
    if not isinstance(told["text"], str) or told["finish_reason"] not in ("stop", "length", "refusal", "too_long"):
        raise ValueError("no answer")
    usage = Usage(**told["usage"]) if told["usage"] else None
    return Completion(told["text"], (), (), told["finish_reason"], usage, told["model"])


def keep_answer(database: sqlite3.Connection, row: tuple[str, ...]) -> str | None:
    """Insert a row of answers, unless its question is answered; returns the answer that was there before, if any."""
    there = database.execute("SELECT answer FROM answers WHERE question = ?", row[:1]).fetchone()
    if there and read_answer(there[0]).answered:
        return there[0]
    database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
    return None


def _keep(database: sqlite3.Connection, row: tuple[str, ...], system: str) -> str:
    before = keep_answer(database, row)
    _note(database, system, row[0])
    return before or row[3]


def _note(database: sqlite3.Connection, system: str, question: str) -> None:
    database.execute("INSERT INTO uses VALUES (?, ?) ON CONFLICT DO NOTHING", (system, question))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


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
    for new, known in recordings.journal.write_now(lambda database: [_import_answer(database, line) for line in batch]):
        told.new += new
        told.known += known
        told.conflicting += not (new or known)
    batch.clear()


def _import_answer(database: sqlite3.Connection, line: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the answer is new, and whether the very same was there."""
    question, answer = line["question"], write_answer(read_answer(canonical(line["answer"])))
    there = database.execute("SELECT answer FROM answers WHERE question = ?", (question,)).fetchone()
    known = there is not None and there[0] == answer
    row = (question, line["model"], canonical(line["asked"]), answer, line["date"])
    new = not known and keep_answer(database, row) is None
    uses = [(system, question) for system in line["systems"]]
    database.executemany("INSERT INTO uses VALUES (?, ?) ON CONFLICT DO NOTHING", uses)
    return new, known
