"""The records of the study, one JSON object a line."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, ValidationError

from ..cases import CaseRecord
from ..environment import State
from ..evaluation.row import public_text
from ..files import write_text
from ..settings import Settings


class StudyError(ValueError):
    """A study that cannot continue; the message says what is wrong, where, and what to do."""


class Record(BaseModel):
    """A record without further fields, hashable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file with one record."""
        return cls.model_validate_json(path.read_bytes())


class Finding(Record):
    """An examination requested before the state: its answer as the agent saw it, and its charge in US dollars."""

    kind: Literal["result", "repeat", "unavailable", "invalid", "over_budget"]
    examination: str
    text: str = ""
    usd: NonNegativeFloat = 0.0


class StudyState(Record):
    """A decision state. It is from turn ``turn`` (0: only the presentation is known) of an episode of the run
    ``source`` on case ``note_id`` (for credentialed cases a digest, as in evaluations) of ``dataset``; ``digest`` is
    its identity, and ``replies`` lead to it, in the full grammar. As private as the case."""

    digest: str
    dataset: str
    note_id: str
    turn: NonNegativeInt
    source: str
    credentialed: bool
    presentation: str
    found: tuple[Finding, ...]
    replies: tuple[str, ...]


class Content(Record):
    """A proposal at a state, as a card shows it. ``reasoning`` are the words without the action; ``leaning`` is the
    diagnosis that an agent without reasons would have given there; ``usd`` is the charge of a request."""

    state: str
    reasoning: str = ""
    leaning: str = ""
    kind: Literal["request", "diagnosis", "unreadable"] = "unreadable"
    action: str = ""
    usd: NonNegativeFloat | None = None


class Proposal(Content):
    """The proposal of a run at a state."""

    run: str


class StateMeans(Record):
    """The scores of a run at a state, unsealed: means over raters by dimension, None without a rating. ``state`` is the
    digest of :class:`StudyState`; ``dataset``, ``note_id``, ``turn`` and ``source`` are its fields."""

    state: str
    dataset: str
    note_id: str
    turn: NonNegativeInt
    source: str
    run: str
    kind: str
    action: str
    means: dict[str, float | None]


Line = TypeVar("Line", bound=Record)


def state_digest(settings: Settings, case: CaseRecord, state: State) -> str:
    """Compute the identity of a state, 16 hexadecimal digits, from the case and its evidence in order, not from
    words."""
    content = [case.dataset, public_text(settings, case, case.note_id), state.key[1]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def write_lines(path: Path, lines: Iterable[BaseModel]) -> None:
    """Write one JSON object a line."""
    write_text(path, "".join(line.model_dump_json() + "\n" for line in lines))


def read_lines(path: Path, kind: type[Line]) -> list[Line]:
    """Read the records of a file. Raises StudyError for a line that is none; the message quotes nothing of it."""
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines.append(kind.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            field = next((name for name in first["loc"][:1] if name in kind.model_fields), "line")
            raise StudyError(f"{path}:{number}: field {field!r}: {first['msg']}; remove the file and start snakemake "
                             "again") from None  # fmt: skip
    return lines
