"""States, actions and trajectories of the decision process (paper, section "Problem Formulation"), and the grammar of
actions."""

import functools
import math
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

from ..cases import CaseRecord, is_physical, normalise

# The paper's grammar puts the verb and its argument on lines of their own; the compact one on one line.
_VERB = re.compile(r"ACTION\s*:\W*(REQUEST[_ ]TEST|FINAL[_ ]DIAGNOSIS)", re.IGNORECASE)
_TEST = re.compile(r"^\W*Test needed\W*:[ \t*]*(.+)$", re.IGNORECASE | re.MULTILINE)
_DIAGNOSIS = re.compile(r"^\W*Diagnosis\W*:[ \t*]*(.+)$", re.IGNORECASE | re.MULTILINE)
_COMPACT = re.compile(r"^\W*(REQUEST_TEST|FINAL_DIAGNOSIS)\s*:\s*(.+)$", re.MULTILINE)
# Characters around an argument that are no part of it: spaces, quotation marks, Markdown, a final full stop.
_DECORATION = " \t\r\n*`_\"'[]<>."


@dataclass(frozen=True)
class RequestTest:
    """The action that requests one examination; ``name`` is free text, which the environment matches."""

    name: str


@dataclass(frozen=True)
class FinalDiagnosis:
    """The action that gives a diagnosis in free text and ends the episode."""

    text: str


@dataclass(frozen=True)
class Invalid:
    """A reply that is neither a request nor a diagnosis. It lowers the utility by lambda_na, as an unavailable
    examination does."""

    raw: str


Action = RequestTest | FinalDiagnosis | Invalid


@functools.lru_cache(maxsize=1 << 14)
def parse_action(text: str) -> Action:
    """Read the action in the text of a reply, in the full or the compact grammar. Returns :class:`Invalid` where there
    is none.

    In the full grammar the last "ACTION:" line counts, because models restate the format before they use it. In the
    compact grammar there must be exactly one action, so a reply that hedges between two is invalid.
    """
    verbs = list(_VERB.finditer(text))
    if verbs:
        is_request = verbs[-1].group(1).upper().startswith("REQUEST")
        argument = (_TEST if is_request else _DIAGNOSIS).search(text, verbs[-1].end())
        return _make_action(is_request, argument.group(1) if argument else "", text)
    compact = _COMPACT.findall(text)
    if len(compact) != 1:
        return Invalid(text)
    [(verb, compact_argument)] = compact
    return _make_action(verb == "REQUEST_TEST", compact_argument, text)


def _make_action(is_request: bool, argument: str, raw: str) -> Action:
    """Make the action with this argument: a request if ``is_request``, else a diagnosis. Returns :class:`Invalid` with
    the whole reply ``raw`` where the argument is empty."""
    argument = argument.strip(_DECORATION)
    if not argument:
        return Invalid(raw)
    return RequestTest(argument) if is_request else FinalDiagnosis(argument)


def render_action(action: Action, style: str = "full") -> str:
    """Write the reply that takes an action, in the ``full`` or ``compact`` grammar. The request of a CBC is
    ``REQUEST_TEST: CBC`` in the compact grammar. An invalid action gives its raw text."""
    if isinstance(action, Invalid):
        return action.raw
    if isinstance(action, RequestTest):
        verb, label, argument = "REQUEST_TEST", "Test needed", action.name
    else:
        verb, label, argument = "FINAL_DIAGNOSIS", "Diagnosis", action.text
    return f"ACTION: {verb}\n{label}: {argument}" if style == "full" else f"{verb}: {argument}"


def render_differential(shares: Iterable[tuple[str, float]]) -> str:
    """Write the first line of a compact reply from diagnoses and their shares (0 to 1), which are written in tenths:
    "DIFFERENTIAL: Sepsis 6, Pneumonia 2". It is empty without diagnoses."""
    entries = ", ".join(f"{name} {10 * share:.0f}" for name, share in shares)
    return f"DIFFERENTIAL: {entries}\n" if entries else ""


@dataclass(frozen=True)
class Observation:
    """The answer of the environment to a reply. ``kind`` says what the answer is:

    - ``result``: a new result; ``repeat``: one that was obtained before;
    - ``unavailable``: the record has no result of the examination; ``over_budget``: its price exceeds the budget;
    - ``invalid``: the reply has no action; ``end``: it has a diagnosis, which ends the episode.

    ``text`` is the result that is shown (empty: none), ``exam_key`` the key of its examination in the record (None:
    none). ``charge_usd`` is what the request cost in US dollars."""

    kind: Literal["result", "repeat", "unavailable", "invalid", "over_budget", "end"]
    text: str = ""
    exam_key: str | None = None
    charge_usd: float = 0.0


@dataclass(frozen=True)
class Turn:
    """One reply of an agent. Where a model answered a token prompt, ``prompt_ids`` are the token ids of the prompt,
    ``token_ids`` those of the reply, and ``logprobs`` the log-probabilities of the reply's tokens. All three are empty
    otherwise."""

    text: str
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Step:
    """One decision of an episode: the reply, its action, and the observation that answers it."""

    turn: Turn
    action: Action
    observation: Observation

    @cached_property
    def evidence(self) -> tuple[str, str]:
        """What the step adds to the identity of a state (:attr:`State.key`): the kind of its observation and the
        examination, such as ``("result", "CBC")``. The examination is its key in the record. Where the observation has
        no key, it is the normalised name in the request, and empty where the action is no request: ``("end", "")``."""
        if self.observation.exam_key is not None:
            return self.observation.kind, self.observation.exam_key
        name = self.action.name if isinstance(self.action, RequestTest) else ""
        return self.observation.kind, normalise(name)

    @cached_property
    def effort(self) -> "Effort":
        """The effort of this step alone, as counts and US dollars."""
        return Effort.of((self,))


@dataclass(frozen=True, eq=False)
class State:
    """A state s_t of an episode: the case, whose presentation x_0 is known, and the history of steps."""

    case: CaseRecord
    history: tuple[Step, ...] = ()

    @cached_property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The identity of the state: the case identifier, and the :attr:`Step.evidence` of its steps in order. It does
        not depend on the wording of the replies."""
        return self.case.note_id, tuple(step.evidence for step in self.history)

    @cached_property
    def prompt_key(self) -> tuple[str, ...]:
        """The identity of the prompt that a policy reads at the state: the case identifier, then the exact texts of all
        replies. Two states with the same :attr:`key` may have different prompts."""
        return self.case.note_id, *(step.turn.text for step in self.history)

    def after(self, step: Step) -> "State":
        """The next state: this one with ``step`` added to its history (in the paper: s (+) (a, o))."""
        return State(self.case, (*self.history, step))

    @cached_property
    def obtained(self) -> tuple[str, ...]:
        """The keys of the examinations whose results were obtained, in the order of the requests."""
        results = (step.observation for step in self.history if step.observation.kind == "result")
        return tuple(result.exam_key for result in results if result.exam_key is not None)

    @property
    def spent_usd(self) -> float:
        """The US dollars charged so far."""
        return math.fsum(step.observation.charge_usd for step in self.history)


@dataclass(frozen=True)
class Effort:
    """The effort of some steps: counts of their requests, and their cost in US dollars.

    ``physical`` counts requests that were answered with a result of the physical examination, new or known; ``issued``
    counts all others, also those for a physical examination that is not on record. Of the issued requests,
    ``available`` gave a new result, ``repeated`` one that was known, and ``unavailable`` none, because it is not on
    record or its price exceeds the budget. ``invalid`` counts replies that could not be parsed.
    """

    issued: int = 0
    available: int = 0
    unavailable: int = 0
    invalid: int = 0
    repeated: int = 0
    physical: int = 0
    cost_usd: float = 0.0

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Self:
        """Count the requests, unreadable replies and US dollars of these steps."""
        issued = available = unavailable = invalid = repeated = physical = 0
        cost = 0.0
        for step in steps:
            answer = step.observation
            cost += answer.charge_usd
            invalid += answer.kind == "invalid"
            is_request = isinstance(step.action, RequestTest)
            if is_request and is_physical(answer.exam_key or ""):
                physical += 1
            elif is_request:
                issued += 1
                available += answer.kind == "result"
                repeated += answer.kind == "repeat"
                unavailable += answer.kind in ("unavailable", "over_budget")
        return cls(issued, available, unavailable, invalid, repeated, physical, cost)

    @property
    def infeasible(self) -> int:
        """N_na: the number of unavailable requests and of replies that could not be parsed."""
        return self.unavailable + self.invalid

    def __add__(self, other: "Effort") -> "Effort":
        """Add two efforts, count by count."""
        return Effort(*map(operator.add, vars(self).values(), vars(other).values()))


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A finished episode tau: its case, all its steps, the diagnosis (None where the last reply names none), and
    whether the diagnosis is ``correct``. ``forced`` says that the last reply had to be a diagnosis."""

    case: CaseRecord
    steps: tuple[Step, ...]
    diagnosis: str | None
    correct: bool
    forced: bool

    @cached_property
    def states(self) -> tuple[State, ...]:
        """The states at which the decisions were taken, one per step: the first is the start of the episode, and the
        state after the last step is not among them."""
        return tuple(State(self.case, self.steps[:t]) for t in range(len(self.steps)))

    def effort(self, start: int = 0, stop: int | None = None) -> Effort:
        """The effort of the steps with indices ``start`` to ``stop - 1``, or from ``start`` on (None); by default of
        the whole episode."""
        return Effort.of(self.steps[start:stop])
