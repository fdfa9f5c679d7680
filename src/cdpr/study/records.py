"""The records of the study, stored as one JSON object per line, and the five dimensions on which raters score."""

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt

from ..cases import CaseRecord
from ..environment import State
from ..evaluation.row import public_text
from ..files import Line, parse_yaml, read_json_lines, shipped_text, write_text
from ..settings import Settings

SCALE = (1, 2, 3, 4, 5)  # the scores


class StudyError(ValueError):
    """A study that cannot continue; the message says what is wrong, where, and what to do."""


class Record(BaseModel):
    """Base class of all records of the study. Records are hashable, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the single record of this class in a JSON file. Raises pydantic's ValidationError for any other
        content."""
        return cls.model_validate_json(path.read_bytes())


class Finding(Record):
    """One request before a state, with its answer.

    - ``kind``: the kind of the answer; ``text``: what the agent read.
    - ``examination``: the name of the requested examination; empty for an unreadable reply.
    - ``usd``: what the request was charged, in US dollars.
    """

    kind: Literal["result", "repeat", "unavailable", "invalid", "over_budget"]
    examination: str
    text: str = ""
    usd: NonNegativeFloat = 0.0


class StudyState(Record):
    """A state of an episode, at which raters judge what different methods would do next. It is as private as the case.

    - ``digest``: the identity of the state (:func:`state_digest`).
    - ``source``: the run whose episode it is from.
    - ``dataset``, ``note_id``: the case; for ``credentialed`` cases ``note_id`` is a pseudonym, as in evaluations.
    - ``turn``: the number of earlier replies.
    - ``presentation``: the text of the case; ``found``: what was requested before, with the answers.
    - ``replies``: the earlier replies, in the full grammar: replaying them rebuilds the state.
    """

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
    """What raters see of a proposal, that is of a method's next decision at the state with the digest ``state``.

    - ``reasoning``: the reply without its action.
    - ``kind``: whether the ``action`` is the name of a requested examination or a diagnosis; ``unreadable``: the reply
      has no action that can be read, and ``action`` is empty.
    - ``leaning``: the diagnosis that an agent gives when it must diagnose at this state; only of a request without
      reasoning, else empty.
    - ``usd``: the charge of a request in US dollars; None for any other action.
    """

    state: str
    reasoning: str = ""
    leaning: str = ""
    kind: Literal["request", "diagnosis", "unreadable"] = "unreadable"
    action: str = ""
    usd: NonNegativeFloat | None = None


class Proposal(Content):
    """A proposal with its author, the name of the ``run``."""

    run: str


class Card(Record):
    """A proposal in one rater's form.

    - ``code``: its name in this form; every form has another one for the same proposal.
    - ``content``: its name in the whole study (:attr:`Items.contents`).
    - ``letter``: the heading that the rater reads above it, A to H.
    """

    code: str
    content: str
    letter: str


class Page(Record):
    """One state in a rater's form: the digest of the state, and its proposals in the order of this form."""

    state: str
    cards: tuple[Card, ...]


class Items(Record):
    """All that is rated, without authors. Forms are written from these records, and returned ratings checked with them.

    - ``forms``: the pages of each rater, by the rater's name.
    - ``contents``: what each proposal says, by its name in the study.
    - ``study``: the name of the study, a digest of forms, contents and presentations.
    """

    study: str
    forms: dict[str, tuple[Page, ...]]
    contents: dict[str, Content]

    def cards(self, rater: str) -> list[Card]:
        """List the proposals in one rater's form, in the order of the form."""
        return [card for page in self.forms[rater] for card in page.cards]


class Key(Record):
    """The key of a ``study``, which says who proposed what; raters must not see it.

    - ``compared``: all compared runs, ours first.
    - ``left_out``: the reason for each method that could not be compared.
    - ``runs``: the runs that proposed each content, by the name of the content.
    """

    study: str
    compared: tuple[str, ...]
    left_out: dict[str, str]
    runs: dict[str, tuple[str, ...]]

    @classmethod
    def open(cls, path: Path, items: Items) -> Self:
        """Read the key that belongs to ``items`` from the file ``path``. Raises StudyError for the key of another
        study, or one with other contents."""
        key = cls.read(path)
        if key.study != items.study or set(key.runs) != set(items.contents):
            raise StudyError(f"{path}: this is the key of study {key.study}, the forms are of {items.study}; keep the "
                             "key that was written with them")  # fmt: skip
        return key


def state_digest(settings: Settings, case: CaseRecord, state: State) -> str:
    """Compute the identity of a state, 16 hexadecimal digits. It depends on the case and on the earlier requests with
    the kinds of their answers, in their order, and not on the wording of the replies."""
    _, requests_and_answers = state.key
    content = [case.dataset, public_text(settings, case, case.note_id), requests_and_answers]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def write_lines(path: Path, lines: Iterable[BaseModel]) -> None:
    """Write records to a file, one JSON object per line; :func:`read_lines` reads it."""
    write_text(path, "".join(line.model_dump_json() + "\n" for line in lines))


def read_lines(path: Path, kind: type[Line]) -> list[Line]:
    """Read a file with one record of the class ``kind`` per line. Raises StudyError as
    :func:`~cdpr.files.read_json_lines`."""
    return [record for _, record in read_json_lines(path, kind, StudyError)]


# The five dimensions of the ratings and the meaning of each score, in our words (paper, appendix "Expert Evaluation
# Protocol").


class Dimension(NamedTuple):
    """A dimension on which raters score a proposal from 1 to 5, such as ``evidence_support``.

    ``title`` is its name on the form, ``asks`` the question to the rater, and ``anchors`` the meaning of each score.
    """

    name: str
    title: str
    asks: str
    anchors: dict[int, str]


@functools.cache
def rubric() -> tuple[Dimension, ...]:
    """Read the five dimensions from ``rubric.yaml``, in the paper's order."""
    return tuple(Dimension(**entry) for entry in parse_yaml(shipped_text(__package__, "rubric.yaml")))


def dimensions() -> tuple[str, ...]:
    """Return the names of the five dimensions, in the paper's order."""
    return tuple(dimension.name for dimension in rubric())
