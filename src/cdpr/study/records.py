"""What the study writes and reads, line by line."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, ValidationError

from ..cases import CaseRecord
from ..environment import State
from ..evaluation.row import public_text
from ..files import write_text
from ..settings import Settings


class StudyError(ValueError):
    """A study that cannot go on; the message says what is wrong, where, and what to do."""


class Record(BaseModel):
    """What a file of the study holds: closed, and hashable."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(Record):
    """One examination asked for before the state: its answer as it was shown, and what was charged in US dollars."""

    kind: Literal["result", "repeat", "unavailable", "invalid", "over_budget"]
    examination: str
    text: str = ""
    usd: NonNegativeFloat = 0.0


class StudyState(Record):
    """A decision state. ``dataset``, ``note_id`` (of credentialed cases a digest, as in evaluations), ``turn`` (0: only
    the presentation is known) and ``source``, the run whose workup it is from, are where it is; ``digest`` is its
    identity. ``replies`` lead there, in the full grammar. As private as the case."""

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
    """What is proposed at a state, and stands on a card. ``reasoning`` are the words without the action; ``leaning`` is
    the diagnosis that would have been given there, asked of those that give no reasons; ``usd`` what the request would
    be charged."""

    state: str
    reasoning: str = ""
    leaning: str = ""
    kind: Literal["request", "diagnosis", "unreadable"] = "unreadable"
    action: str = ""
    usd: NonNegativeFloat | None = None


class Proposal(Content):
    """What a run proposes at a state."""

    run: str


class StateMeans(Record):
    """What raters gave a run at a state, unsealed: means over raters by dimension, None where nobody rated. ``state``
    is the digest of :class:`StudyState`, whose place stands beside it."""

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
    """Identity of a state: the case, and its evidence in order, whatever words led there; 16 hexadecimal digits."""
    content = [case.dataset, public_text(settings, case, case.note_id), state.key[1]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def write_lines(path: Path, lines: Iterable[BaseModel]) -> None:
    """One JSON object a line."""
    write_text(path, "".join(line.model_dump_json() + "\n" for line in lines))


def read_lines(path: Path, kind: type[Line]) -> list[Line]:
    """Raises StudyError for a line that is none; the message quotes nothing of it."""
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
