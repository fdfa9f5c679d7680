"""Recordings of answers: every answer is paid for once. It is written to the disk before it is used, and read when the
same question comes again. An archive takes the recordings of open cases to other projects.

A question is everything that decides the answer: the model, the digest of its weights where they are local, the
messages, the sampling parameters, and the index of the sample. Above temperature 0 it includes the seed, so that
another ``evaluation.seed`` samples again, even from servers without seeds. It does not include address and key.

A missing answer (not :attr:`~.types.Completion.is_answer`: an empty text, or a conversation that the server cannot
answer) is recorded too. A replay repeats it; other modes ask again.
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
_IMPORTED = "imported"  # the data set of answers from an archive, which are about open cases
_MOST_EXPANSION = 200  # largest ratio of unpacked to packed bytes, above a megabyte; JSON shrinks to about a tenth
# Errors of reading a damaged archive; RuntimeError: encrypted, or an unknown compression.
_DAMAGED = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, RuntimeError, UnicodeDecodeError)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date: the same recordings make the same bytes


class AnswerMissing(ModelUnavailable):
    """A replay reached a question without a recorded answer."""


class ArchiveError(ValueError):
    """An archive that cannot be written or read; the message says why and what to do."""


class Recordings:
    """The recorded answers in ``<state>/recordings``. Those about credentialed cases have a folder that only the owner
    can read."""

    def __init__(self, state: str | Path, credentialed: bool) -> None:
        self.folder = _folder(state, credentialed)
        self.folder.mkdir(mode=0o700 if credentialed else 0o777, parents=True, exist_ok=True)
        self.journal = open_journal(self.folder / "answers.sqlite", _SCHEMA)

    @staticmethod
    def exist(state: str | Path, credentialed: bool) -> bool:
        """Whether there is a database of recorded answers."""
        return (_folder(state, credentialed) / "answers.sqlite").exists()

    def find(self, question: str, system: str) -> tuple[Completion, bool] | None:
        """Find the recorded answer to the question with this key; returns it, and whether its use by ``system`` for the
        current data set is recorded. None where there is no answer."""
        rows = self.journal.read(
            "SELECT answer, EXISTS (SELECT 1 FROM uses WHERE system = ? AND uses.question = answers.question) AND "
            "EXISTS (SELECT 1 FROM sources WHERE dataset = ? AND sources.question = answers.question) "
            "FROM answers WHERE question = ?",
            (system, DATASET.get(), question),
        )
        return (read_answer(rows[0][0]), bool(rows[0][1])) if rows else None

    def record(self, model: str, text: str, answer: Completion, system: str) -> Completion:
        """Record the answer of ``model`` to the question ``text``, and its use by ``system``; returns the answer that
        counts: this one, or one that another process recorded before."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        row = (question_key(text), model, text, write_answer(answer), date)
        use = [system], DATASET.get()
        return read_answer(self.journal.write(lambda database: _insert(database, row, *use)) or row[3])


def _folder(state: str | Path, credentialed: bool) -> Path:
    """The folder of the recordings of open, or of credentialed, cases."""
    return Path(state) / "recordings" / ("credentialed" if credentialed else "open")


def _insert(database: sqlite3.Connection, row: tuple[str, ...], systems: Sequence[str], dataset: str) -> str | None:
    """Insert a row of the table ``answers``, and its uses by ``systems`` for a data set. Where the question already has
    an answer, that one stays and is returned as JSON text, and only the uses are inserted; else returns None."""
    _insert_uses(database, systems, dataset, row[0])
    earlier = database.execute("SELECT answer FROM answers WHERE question = ?", row[:1]).fetchone()
    if earlier and (earlier[0] == row[3] or read_answer(earlier[0]).is_answer):
        return earlier[0]
    database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
    return None


def _insert_uses(database: sqlite3.Connection, systems: Sequence[str], dataset: str, question: str) -> None:
    """Insert that these systems use a question for cases of a data set."""
    database.execute("INSERT INTO sources VALUES (?, ?) ON CONFLICT DO NOTHING", (dataset, question))
    rows = [(system, question) for system in systems]
    database.executemany("INSERT INTO uses VALUES (?, ?) ON CONFLICT DO NOTHING", rows)


class RecordedModel(Model):
    """A model that answers from recordings, and sends only questions without a recorded answer to ``inner``. Without
    ``inner`` it is a replay, which raises AnswerMissing for them. It takes only messages: models that take tokens run
    in this process, free and repeatable."""

    def __init__(self, spec: ModelSpec, inner: Model | None) -> None:
        self.inner = inner
        self.recordings = Recordings(spec.state, spec.credentialed)
        self._spec = spec
        self._name, self._identity = spec.name or Path(spec.where).name, model_identity(spec)
        self._tasks: dict[str, asyncio.Task[Completion]] = {}

    def __repr__(self) -> str:
        return f"<recorded {self.inner!r}>"

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """The answers to a conversation, each recorded or new. Raises AnswerMissing where a replay has none."""
        return list(await asyncio.gather(*(self._answer(messages, k, sampling, seed) for k in samples)))

    def refresh(self) -> None:
        """Clear the caches of the inner model."""
        if self.inner:
            self.inner.refresh()

    async def _answer(self, messages: Messages, sample: int, sampling: Sampling, seed: int) -> Completion:
        """Get one answer to a conversation: the recorded one, or a new one of ``inner``, which is then recorded. Raises
        AnswerMissing where a replay has none."""
        text = canonical_json(question_fields(self._identity, messages, sample, sampling, seed))
        question, system = question_key(text), SYSTEM.get()
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
        if question not in self._tasks:  # the same question, asked twice at the same time, is paid for once

            async def ask_and_record(inner: Model) -> Completion:
                """Get the answer of the inner model, and record it."""
                [answer] = await inner.chat(messages, (sample,), sampling, seed)
                return self.recordings.record(self._name, text, answer, system)

            self._tasks[question] = asyncio.ensure_future(ask_and_record(self.inner))
            self._tasks[question].add_done_callback(lambda _: self._tasks.pop(question))
        return await asyncio.shield(self._tasks[question])


# Questions and answers


def model_identity(spec: ModelSpec) -> dict[str, Any]:
    """The fields of a question that identify the model: its name or weights, further fields of its requests, and the
    command of a server that the job starts. (Sampling and messages are other fields; the answer is cut out of a reply
    after recording.)"""
    fields: dict[str, Any] = {"kind": spec.kind}
    weights: str | None = spec.where
    if spec.kind != "folder":
        fields["model"] = spec.name
        weights = spec.server.weights if spec.server and Path(spec.server.weights).exists() else None
    if weights:
        fields["weights"] = DigestCache(Path(spec.state) / "recordings" / "digests.json").digest(weights)
    if spec.server:
        fields["served"] = {"program": spec.server.serving.program, "command": spec.server.serving.command}
        if spec.entry:
            fields["served"]["serve"] = [*spec.server.flags]
        if not weights:
            fields["served"]["weights"] = spec.server.weights
    if spec.entry and spec.entry.extra:
        fields["extra"] = spec.entry.extra
    return fields


def question_fields(
    model: Mapping[str, Any], messages: Messages, sample: int, sampling: Sampling, seed: int
) -> dict[str, Any]:
    """Build a question as JSON fields, from the :func:`model_identity` and everything else that decides the answer."""
    question = {**model, "messages": [dict(message) for message in messages], "sample": sample}
    question["sampling"] = {  # without defaults, so that a new field leaves old recordings valid
        field.name: value
        for field in dataclasses.fields(sampling)
        if (value := getattr(sampling, field.name)) != field.default or field.name == "temperature"
    }
    return question if sampling.temperature == 0 else question | {"seed": seed}


def canonical_json(fields: Mapping[str, Any]) -> str:
    """Write fields as JSON text with sorted names, so that equal fields give equal texts."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def question_key(text: str) -> str:
    """The key of a question in the database: the SHA-256 of its :func:`canonical_json` text."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_answer(answer: Completion) -> str:
    """Write an answer as JSON text, without token ids and log-probabilities."""
    return canonical_json(_ANSWER.dump_python(answer, exclude={"token_ids", "logprobs"}))


def read_answer(text: str) -> Completion:
    """Read an answer from its JSON text. Impossible token counts and unpaired surrogates, which earlier versions
    recorded, are corrected. Raises ValueError for a text that holds no answer."""
    fields = json.loads(text)
    counts = fields.get("usage")
    usage = Usage.of(*map(counts.get, ("prompt_tokens", "completion_tokens"))) if isinstance(counts, dict) else None
    answer = _ANSWER.validate_python({**fields, "usage": usage, "token_ids": (), "logprobs": ()})
    return dataclasses.replace(answer, text=clean_text(answer.text))


# Archives


@dataclasses.dataclass
class Imported:
    """The result of an import. Counts of its answers: ``new`` ones, those ``known`` already, and those ``conflicting``
    with an existing answer, which stays. ``systems`` use them; those in ``of_weights`` use a model whose weights were
    local."""

    new: int = 0
    known: int = 0
    conflicting: int = 0
    systems: set[str] = dataclasses.field(default_factory=set)
    of_weights: set[str] = dataclasses.field(default_factory=set)


class _Line(BaseModel):
    """A line of an archive: an answer, its question (the key ``question``, the fields ``asked``), and the systems that
    use it."""

    question: str
    model: str
    date: str
    systems: list[str]
    asked: dict[str, Any]
    answer: dict[str, Any]


def export_recordings(
    state: str | Path, file: str | Path, systems: Sequence[str] = (), credentialed: Collection[str] = ()
) -> int:
    """Write the recorded answers about open cases to the archive ``file``; returns their number. With ``systems`` only
    those that these systems use; :func:`withheld` ones, which may be about a data set in ``credentialed``, are left
    out.

    The archive is a zip file with one line of JSON per answer, sorted by question; equal recordings give equal bytes.
    Raises ArchiveError where a recording is of a credentialed case, and where there is nothing to write.
    """
    open_users, private_users = (_users_by_question(state, private, systems) for private in (False, True))
    for question in withheld(state, systems, credentialed):
        private_users[question] = open_users.pop(question)
    if not open_users:
        raise ArchiveError(
            f"nothing to export: {state}/recordings has no answers about open cases"
            + (f" for {', '.join(systems)}" if systems else "")
            + ("; answers about credentialed cases never leave it" if private_users else "")
        )
    for question in open_users.keys() & private_users.keys():
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
        for question, names in open_users.items():
            [(_, model, content, answer, date)] = journal.read(query, (question,))
            fields = {"question": question, "model": model, "date": date, "systems": names}
            line = canonical_json(fields | {"asked": json.loads(content), "answer": json.loads(answer)})
            out.write(line.encode() + b"\n")
    return len(open_users)


def import_recordings(state: str | Path, file: str | Path) -> Imported:
    """Add the answers of the archive ``file`` to the recordings of open cases; returns their counts. Raises
    ArchiveError for a file that is no archive and for a line whose answer does not belong to its question; nothing is
    imported then."""
    imported = Imported()

    def add_all(database: sqlite3.Connection) -> None:
        """Add all lines of the archive in one transaction."""
        for number, text in enumerate(_read_lines(file), 1):
            _import_line(database, text, f"{file}, line {number}", imported)

    Recordings(state, credentialed=False).journal.write(add_all)
    return imported


def _read_lines(file: str | Path) -> Iterator[str]:
    """Yield the lines of an archive. Raises ArchiveError for a file that is none, or that would become too large."""
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
    """List the recorded questions (keys) that must not be exported: they were recorded as those of open cases, and are
    about a data set that was marked as credentialed later, or about an unknown one. ``credentialed`` are the data sets
    that are marked now; only questions of ``systems`` are listed, if any are named."""
    users, datasets = _users_by_question(state, False, systems), defaultdict(set)
    if not (users and credentialed):
        return []
    for dataset, question in Recordings(state, credentialed=False).journal.read("SELECT * FROM sources"):
        datasets[question].add(dataset)
    return [question for question in users if not datasets[question] - {""} or datasets[question] & {*credentialed}]


def _users_by_question(state: str | Path, credentialed: bool, systems: Sequence[str]) -> dict[str, list[str]]:
    """The systems that use each recorded question, by its key, in the order of the keys; only ``systems``, if any are
    named."""
    users: dict[str, list[str]] = defaultdict(list)
    if Recordings.exist(state, credentialed):
        uses = Recordings(state, credentialed).journal.read("SELECT * FROM uses ORDER BY question, system")
        for system, question in uses:
            if not systems or system in systems:
                users[question].append(system)
    return users


def _import_line(database: sqlite3.Connection, text: str, where: str, imported: Imported) -> None:
    """Add a line of an archive to the database, and count it in ``imported``. Raises ArchiveError, which begins with
    ``where``, for an answer that does not belong to its question."""
    try:
        line = _Line.model_validate_json(text)
        answer, content = write_answer(read_answer(canonical_json(line.answer))), canonical_json(line.asked)
        if line.question != question_key(content) or json.loads(answer) | line.answer != json.loads(answer):
            raise ValueError("another question, or an answer that no server gave")
    except ValueError as error:
        raise ArchiveError(
            f"{where}: the answer does not belong to its question; the archive is damaged or was edited, fetch it again"
        ) from error
    earlier = _insert(database, (line.question, line.model, content, answer, line.date), line.systems, _IMPORTED)
    imported.new += earlier is None
    imported.known += earlier == answer
    imported.conflicting += earlier not in (None, answer)
    imported.systems.update(line.systems)
    if "weights" in line.asked:
        imported.of_weights.update(line.systems)
