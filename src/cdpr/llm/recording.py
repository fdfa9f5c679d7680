"""Recordings of the answers of models, so that every answer is paid for once. An answer is written to the disk before
it is used, and read when the same question comes again.

A *question* is everything that decides the answer: the model (for local weights their digest), the messages, the
sampling parameters, and the index of the sample. Unless the temperature is 0 it includes the seed, so that another
``evaluation.seed`` samples again even from servers without seeds. Address and key of the server are not part of it.

A reply that is no answer (:attr:`~.types.Completion.is_answer`: its text is empty, or the server cannot answer the
conversation) is recorded too. A replay returns it; in the other modes the model is asked again.
"""

import asyncio
import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ..files import DigestCache, shipped_text
from ..pseudonym import pseudonym
from .journal import open_journal
from .once import share
from .spec import ModelSpec
from .types import CASE, DATASET, SYSTEM, Completion, Messages, Model, ModelUnavailable, Sampling, Usage, repair_text

_ANSWER = TypeAdapter(Completion)  # turns answers into plain values for JSON, and checks those that are read


class AnswerMissing(ModelUnavailable):
    """A replay of recorded answers, which sends no requests, came to a question that has none. A question is a request
    with everything that decides its answer."""


class AnswerRow(NamedTuple):
    """A row of the database table ``answers``.

    - ``question``: the key of the question, a digest (:func:`question_key`).
    - ``model``: the name of the model that answered.
    - ``asked``: the question itself as JSON text: everything that decides the answer.
    - ``answer``: the answer as JSON text (:func:`write_answer`).
    - ``date``: when it was recorded, in ISO format.
    """

    question: str
    model: str
    asked: str
    answer: str
    date: str


class Recordings:
    """The database of recorded answers in ``<state>/recordings``. Answers about credentialed cases are in a folder of
    their own, which only the owner can read."""

    def __init__(self, state: str | Path, credentialed: bool) -> None:
        """Open the recordings in the folder ``state``: those about credentialed cases, which only the owner can read,
        or those about open ones."""
        self.folder = Path(state) / "recordings" / ("credentialed" if credentialed else "open")
        self.folder.mkdir(mode=0o700 if credentialed else 0o777, parents=True, exist_ok=True)
        self.journal = open_journal(self.folder / "answers.sqlite", shipped_text(__package__, "answers.sql"))

    def find(self, question: str) -> Completion | None:
        """Find the recorded answer of a model by the key of its question (:func:`question_key`); None where there is
        none."""
        for (answer,) in self.journal.read("SELECT answer FROM answers WHERE question = ?", (question,)):
            return read_answer(answer)  # there is at most one
        return None

    def record(self, model: str, asked: str, answer: Completion, system: str) -> Completion:
        """Record the answer of ``model`` to the question ``asked`` (JSON text), and that ``system`` (an agent, judge or
        matcher) uses it. Returns the answer to use: this one, or the one that another process recorded before."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        row = AnswerRow(question_key(asked), model, asked, write_answer(answer), date)
        earlier = self.journal.write(lambda database: insert_answer(database, row, [system], DATASET.get()))
        return read_answer(earlier or row.answer)  # read back, so that a replay gets the very same

    def record_use(self, question: str, system: str) -> None:
        """Record that ``system`` (an agent, judge or matcher) uses the answer to the question with the key
        ``question``, for cases of the current data set (:data:`~.types.DATASET`). Exports choose answers by this."""
        self.journal.write(lambda database: _insert_uses(database, [system], DATASET.get(), question))


def insert_answer(database: sqlite3.Connection, row: AnswerRow, systems: Sequence[str], dataset: str) -> str | None:
    """Insert the answer in ``row`` into the database, unless its question has an answer already. In both cases note
    that ``systems`` (agents, judges, matchers) use the question's answer, for cases of ``dataset``.

    Returns None where ``row`` was inserted, and otherwise the JSON text of the earlier answer, which stays. An earlier
    reply that is no answer (:attr:`~.types.Completion.is_answer`), such as an empty text, is replaced by ``row``.
    """
    _insert_uses(database, systems, dataset, row.question)
    recorded = database.execute("SELECT answer FROM answers WHERE question = ?", (row.question,)).fetchone()
    if recorded:
        [earlier] = recorded  # the one selected column
        if earlier == row.answer or read_answer(earlier).is_answer:
            return earlier
    database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
    return None


def _insert_uses(database: sqlite3.Connection, systems: Sequence[str], dataset: str, question: str) -> None:
    """Note in the database who uses the answer to a question: ``systems`` (agents, judges, matchers), for cases of
    ``dataset``. ``question`` is the key of the question. What is noted already stays."""
    database.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", (dataset, question))
    database.executemany("INSERT OR IGNORE INTO uses VALUES (?, ?)", [(system, question) for system in systems])


class RecordedModel(Model):
    """A model that answers from recordings. Only questions without a recorded answer are sent to the model ``inner``,
    and its answers are recorded; an empty reply is no answer (:attr:`~.types.Completion.is_answer`). Without ``inner``
    it is a replay: it returns what is recorded, and raises AnswerMissing where nothing is.

    It takes only messages. Policies, which take token ids, are not recorded, since their replies cost nothing.
    """

    def __init__(self, spec: ModelSpec, inner: Model | None) -> None:
        """Open the recordings of the model ``spec``. ``inner`` is the model that answers questions without a recorded
        answer; None for a replay, which asks no model."""
        self.inner = inner
        self.recordings = Recordings(spec.state, spec.credentialed)
        self._spec = spec
        self._name, self._identity = spec.name or Path(spec.where).name, model_identity(spec)
        self._tasks: dict[str, asyncio.Task[Completion]] = {}

    def __repr__(self) -> str:
        """The name of the inner model, for error messages."""
        return f"<recorded {self.inner!r}>"

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Get one answer to a conversation for each index in ``samples``, recorded or new. Raises AnswerMissing where a
        replay, which asks no model, has no recorded answer."""
        return list(await asyncio.gather(*(self._answer(messages, k, sampling, seed) for k in samples)))

    def refresh(self) -> None:
        """Clear the caches of the inner model."""
        if self.inner:
            self.inner.refresh()

    async def _answer(self, messages: Messages, sample: int, sampling: Sampling, seed: int) -> Completion:
        """Get the answer with the index ``sample`` to a conversation: the recorded one, or a new one of ``inner``,
        which is then recorded. A recorded reply that is no answer, such as an empty text, is requested again.

        Without ``inner`` (a replay) whatever is recorded is returned; raises AnswerMissing where nothing is.
        """
        asked = canonical_json(question_fields(self._identity, messages, sample, sampling, seed))
        question, system = question_key(asked), SYSTEM.get()
        recorded = self.recordings.find(question)
        if self.inner is None:
            if recorded is None:
                raise self._missing_answer(question, system)
            return recorded
        if recorded and recorded.is_answer:
            self.recordings.record_use(question, system)
            return recorded
        inner = self.inner

        async def ask_and_record() -> Completion:
            """Get the answer of the inner model and record it; returns the answer to use."""
            [answer] = await inner.chat(messages, (sample,), sampling, seed)
            return self.recordings.record(self._name, asked, answer, system)

        # The same question, asked by several coroutines at the same time, is sent once.
        return await share(self._tasks, question, ask_and_record)

    def _missing_answer(self, question: str, system: str) -> AnswerMissing:
        """Make the error that a replay has no answer to the question with this key. It names the case, or its pseudonym
        if it is credentialed."""
        case = CASE.get() or "unknown"
        if self._spec.credentialed:
            case = pseudonym(self._spec.state, case)
        return AnswerMissing(
            f"{system or 'a model'}: no recorded answer of {self._name} for case {case} (question {question[:16]}) in "
            f"{self.recordings.folder}; import an archive that holds it (`cdpr recordings import FILE`; it must have "
            "been recorded under these settings and prompts), or set calls.mode to record, which asks the model"
        )


# Questions and answers


def model_identity(spec: ModelSpec) -> dict[str, Any]:
    """Collect the fields that identify a model in recorded questions, for JSON:

    - ``kind``: that of :class:`ModelSpec`; ``model``: its name on a server;
    - ``weights``: the digest of its weights, if they are on this machine;
    - ``served``: the program, command and flags of a server that the job starts;
    - ``extra``: further fields of its requests, by its entry.

    :func:`question_fields` adds messages and sampling parameters. How the answer is cut out of a reply is not included,
    because replies are recorded whole.
    """
    fields: dict[str, Any] = {"kind": spec.kind}
    server = spec.server  # None unless this job starts it
    local_weights: str | None = spec.where  # the folder of a model in this process
    if spec.kind != "folder":
        fields["model"] = spec.name
        # None: the weights are not on this machine, so there is no digest of them.
        local_weights = server.weights if server and Path(server.weights).exists() else None
    if local_weights:
        fields["weights"] = DigestCache(Path(spec.state) / "recordings" / "digests.json").digest(local_weights)
    if server:
        fields["served"] = {"program": server.serving.program, "command": server.serving.command}
        if spec.entry:
            fields["served"]["serve"] = [*server.flags]
        if not local_weights:  # the server loads them from Hugging Face's hub, by this id
            fields["served"]["weights"] = server.weights
    if spec.entry and spec.entry.extra:
        fields["extra"] = spec.entry.extra
    return fields


def question_fields(
    model: Mapping[str, Any], messages: Messages, sample: int, sampling: Sampling, seed: int
) -> dict[str, Any]:
    """Build a question, everything that decides an answer, as a dictionary for JSON. It has

    - the fields ``model``, which identify the model (:func:`model_identity`),
    - the messages, and the index of the sample,
    - the temperature, and the other sampling parameters that differ from their defaults,
    - the seed, unless the temperature is 0.
    """
    parameters = {}
    for field in dataclasses.fields(sampling):
        value = getattr(sampling, field.name)
        # Without defaults, so that recordings stay valid when Sampling gets a new field.
        if value != field.default or field.name == "temperature":
            parameters[field.name] = value
    question = {**model, "messages": [dict(message) for message in messages], "sample": sample, "sampling": parameters}
    if sampling.temperature != 0:
        question["seed"] = seed
    return question


def canonical_json(fields: Mapping[str, Any]) -> str:
    """Write fields as JSON text with sorted names, so that equal fields give equal texts."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def question_key(asked: str) -> str:
    """Compute the key under which the answer to a question, a request with everything that decides its answer, is
    recorded: the SHA-256 of ``asked``, the question as JSON text with sorted names (:func:`canonical_json`)."""
    return hashlib.sha256(asked.encode()).hexdigest()


def write_answer(answer: Completion) -> str:
    """Write the answer of a model as JSON text, to be recorded. Token ids and log-probabilities are left out: agents
    use only the text of recorded answers."""
    return canonical_json(_ANSWER.dump_python(answer, exclude={"token_ids", "logprobs"}))


def read_answer(text: str) -> Completion:
    """Read the recorded answer of a model from its JSON text. Impossible token counts become None and unpaired
    surrogates U+FFFD, because earlier versions recorded both. Raises ValueError for a text that holds no answer."""
    fields = json.loads(text)
    usage = fields.get("usage")
    if isinstance(usage, dict):
        usage = Usage.from_counts(usage.get("prompt_tokens"), usage.get("completion_tokens"))
    answer = _ANSWER.validate_python({**fields, "usage": usage, "token_ids": (), "logprobs": ()})
    return dataclasses.replace(answer, text=repair_text(answer.text))
