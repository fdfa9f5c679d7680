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
    """A reply that is neither a request nor a diagnosis; it costs lambda_na."""

    raw: str


Action = RequestTest | FinalDiagnosis | Invalid


@functools.lru_cache(maxsize=1 << 14)
def parse_action(text: str) -> Action:
    """The action of a reply in the full or the compact grammar, or :class:`Invalid`; never raises.

    The last verb counts, because models restate the format before they use it. Of the two verbs exactly one must have
    its argument, so a reply that hedges between both is invalid.
    """
    verbs = list(_VERB.finditer(text))
    if verbs:
        is_request = verbs[-1].group(1).upper().startswith("REQUEST")
        argument = (_TEST if is_request else _DIAGNOSIS).search(text, verbs[-1].end())
        return _action(is_request, argument.group(1) if argument else "", text)
    compact = _COMPACT.findall(text)
    if len(compact) != 1:
        return Invalid(text)
    [(verb, compact_argument)] = compact
    return _action(verb == "REQUEST_TEST", compact_argument, text)


def _action(is_request: bool, argument: str, raw: str) -> Action:
    """The action with this argument; :class:`Invalid` where the argument has no word."""
    argument = argument.strip(_DECORATION)
    if not argument:
        return Invalid(raw)
    return RequestTest(argument) if is_request else FinalDiagnosis(argument)


def render_action(action: Action, style: str = "full") -> str:
    """The reply that expresses an action in the ``full`` or ``compact`` grammar."""
    if isinstance(action, Invalid):
        return action.raw
    if isinstance(action, RequestTest):
        verb, label, argument = "REQUEST_TEST", "Test needed", action.name
    else:
        verb, label, argument = "FINAL_DIAGNOSIS", "Diagnosis", action.text
    return f"ACTION: {verb}\n{label}: {argument}" if style == "full" else f"{verb}: {argument}"


@dataclass(frozen=True)
class Observation:
    """The answer of the environment. ``exam_key`` is the record's key that a request matched; ``charge_usd`` the money
    charged for this request."""

    kind: Literal["result", "repeat", "unavailable", "invalid", "over_budget", "end"]
    text: str = ""
    exam_key: str | None = None
    charge_usd: float = 0.0


@dataclass(frozen=True)
class Turn:
    """One reply of an agent; of a language model in this process also its token ids and their log-probabilities."""

    text: str
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Step:
    """One decision: the reply, its action, and the answer."""

    turn: Turn
    action: Action
    observation: Observation

    @cached_property
    def evidence(self) -> tuple[str, str]:
        """The step's part of the evidence: the kind of the observation, and the examination (without a match: the
        normalised request)."""
        if self.observation.exam_key is not None:
            return self.observation.kind, self.observation.exam_key
        name = self.action.name if isinstance(self.action, RequestTest) else ""
        return self.observation.kind, normalise(name)

    @cached_property
    def effort(self) -> "Effort":
        """Counts of this step alone."""
        return Effort.of((self,))


@dataclass(frozen=True, eq=False)
class State:
    """s_t: the presentation x_0 and the history of actions with their observations."""

    case: CaseRecord
    history: tuple[Step, ...] = ()

    @cached_property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Identity of the state: the case and its ordered evidence, whatever the words of the replies."""
        return self.case.note_id, tuple(step.evidence for step in self.history)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The case and the exact replies so far: what a policy reads, where :attr:`key` is what it knows."""
        return self.case.note_id, *(step.turn.text for step in self.history)

    def after(self, step: Step) -> "State":
        """The next state, s (+) (a, o)."""
        return State(self.case, (*self.history, step))

    @cached_property
    def obtained(self) -> tuple[str, ...]:
        """Examination keys whose results are known, in order."""
        answers = (step.observation for step in self.history)
        return tuple(o.exam_key for o in answers if o.kind == "result" and o.exam_key is not None)

    @property
    def spent_usd(self) -> float:
        """Money charged so far."""
        return math.fsum(step.observation.charge_usd for step in self.history)


@dataclass(frozen=True)
class Effort:
    """Counts over some steps, and their cost in US dollars.

    ``issued``: requests, without items of the physical examination, which ``physical`` counts. Of the issued requests
    ``available`` had a new result, ``repeated`` an old one, ``unavailable`` none (also when beyond the budget).
    ``invalid``: replies that could not be parsed.
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
        """The counts of these steps."""
        issued = available = unavailable = invalid = repeated = physical = 0
        cost = 0.0
        for step in steps:
            answer = step.observation
            cost += answer.charge_usd
            invalid += answer.kind == "invalid"
            if not isinstance(step.action, RequestTest):
                continue
            if answer.exam_key is not None and is_physical(answer.exam_key):
                physical += 1
                continue
            issued += 1
            available += answer.kind == "result"
            repeated += answer.kind == "repeat"
            unavailable += answer.kind in ("unavailable", "over_budget")
        return cls(issued, available, unavailable, invalid, repeated, physical, cost)

    @property
    def infeasible(self) -> int:
        """N_na: unavailable requests and replies that could not be parsed."""
        return self.unavailable + self.invalid

    def __add__(self, other: "Effort") -> "Effort":
        return Effort(*map(operator.add, vars(self).values(), vars(other).values()))


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A finished episode, tau: all its decisions with the diagnosis, None where the last reply named none. ``forced``:
    the last turn had to be a diagnosis."""

    case: CaseRecord
    steps: tuple[Step, ...]
    diagnosis: str | None
    correct: bool
    forced: bool

    @cached_property
    def states(self) -> tuple[State, ...]:
        """s_0 ... s_T, one per decision."""
        return tuple(State(self.case, self.steps[:t]) for t in range(len(self.steps)))

    def effort(self, start: int = 0, stop: int | None = None) -> Effort:
        """The effort of the decisions from ``start`` to before ``stop``; by default of the whole episode."""
        return Effort.of(self.steps[start:stop])
