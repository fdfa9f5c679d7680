"""Episodes as the site reads them, decision by decision: evidence, action and cost; credit and the oracle's opinion
where there are any.

Everything is plain JSON. Keys are short, as there are thousands of them; ``site/inspector.js`` names them in one place.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...cases import CaseRecord, is_physical
from ...credit.scores import StateCredit
from ...credit.states import ActionKey
from ...credit.states import action_of as credited_action
from ...environment import DiagnosticEnvironment, FinalDiagnosis, RequestTest, Step, Trajectory
from ...evaluation.credit_workups import CreditedCase, Ending
from ...evaluation.replay import deviations, replay
from ...evaluation.row import EvaluationRow, public_text
from ...hospital.posterior import canonical_name
from ...settings import Settings
from ...study.records import state_digest
from .oracle import Opinion, Oracle

Fields = dict[str, Any]
_DIGITS = 6


class InspectorError(ValueError):
    """Results that do not belong together; the message says which and what to do."""


@dataclass(frozen=True)
class View:
    """The episodes of one run on one data set. ``credit`` is that of the ``chosen`` cases, on which the ``oracle``
    gives its opinion (None: the model behind the cases is not known). ``rated`` are digests of the states that the
    expert study had rated. An agent that sees the ``whole_record`` at once takes no decisions."""

    settings: Settings
    environment: DiagnosticEnvironment
    cases: Mapping[str, CaseRecord]
    credit: Mapping[str, CreditedCase]
    chosen: Container[str]
    oracle: Oracle | None
    rated: Collection[str]
    whole_record: bool

    async def workups(self, rows: Iterable[EvaluationRow]) -> list[Fields]:
        """Make the episodes of an evaluation. Raises InspectorError for a row of a case that is not there, or whose
        requests are answered otherwise than when it was evaluated."""
        by_name = {public_text(self.settings, case, name): case for name, case in self.cases.items()}
        workups = []
        for row in rows:
            if row.note_id not in by_name:
                raise InspectorError(f"case {row.note_id} was evaluated and is not among the cases; evaluate again")
            workups.append(await self._workup(by_name[row.note_id], row))
        return workups

    async def _workup(self, case: CaseRecord, row: EvaluationRow) -> Fields:
        """Make one episode with its steps. The episode is replayed from the replies in the row; rows of credentialed
        cases have none, but their credit has. Without replies, or for an agent without decisions, there are no
        steps."""
        credit = self.credit.get(case.note_id)
        if credit and row.decoding not in credit.decodings:
            credit = None
        index = credit.decodings.index(row.decoding) if credit else 0  # of the decoding in the credit
        replies = credit.replies[index] if credit else row.replies
        fields = {
            "case": show_text(self.settings, case, case.note_id), "decoding": row.decoding, "right": row.correct,
            "forced": row.forced, "said": row.diagnosis, "cost": row.cost_usd, "utility": row.utility,
            "tests": row.n_tests, "missed": row.n_na, "turns": row.turns, "steps": [],
        }  # fmt: skip
        if replies is None or self.whole_record:
            return fields
        workup = await replay(self.environment, case, replies, row.forced)
        if odd := deviations(row, workup.effort()):
            raise InspectorError(
                f"case {fields['case']}: its requests are answered otherwise than when it was evaluated "
                f"({', '.join(odd)}); evaluate again"
            )
        fields["said"] = show_text(self.settings, case, workup.diagnosis or "")
        fields["steps"] = list(self._steps(workup, credit, index))
        return fields

    def _steps(self, workup: Trajectory, credit: CreditedCase | None, index: int) -> Iterator[Fields]:
        """Yield the decisions of an episode, the ``index``-th of its credit."""
        case, open_text = workup.case, is_readable(self.settings, workup.case)
        credits = credited(credit, index) if credit else {}
        oracle = self.oracle if case.note_id in self.chosen and open_text else None
        spent = 0.0

        named = exam_names(case)

        def show(action: ActionKey) -> list[str]:
            kind, text = action
            return [kind, show_text(self.settings, case, text if kind == "end" else named(text))]

        for t, step in enumerate(workup.steps):
            spent += step.observation.charge_usd
            fields: Fields = {"act": show(action_of(step)), "charge": _round(step.observation.charge_usd)}
            fields["spent"] = _round(spent)
            if open_text:
                fields["reply"] = step.turn.text
            if self.rated and (digest := state_digest(self.settings, case, workup.states[t])) in self.rated:
                fields["rated"] = digest
            state = credit.states[credits[t]] if credit and t in credits else None
            opinion = None
            if oracle and not (workup.forced and step is workup.steps[-1]):
                others = [candidate.action for candidate in state.candidates] if state else []
                opinion = oracle.opinion(workup.states[t], action_of(step), others)
                fields["oracle"] = _opinion(opinion, show)
            if credit and state:
                taken = credited_action(step, self.settings.credit.diagnoses)
                fields["credit"] = {
                    "entropy": _round(state.entropy),
                    "why": credit.selected[index][t],
                    "process": _round(credit.process[index][t]),
                    "candidates": list(_candidates(state, credit.endings[credits[t]], opinion, show, taken, self._cut)),
                }
            yield fields

    def _cut(self, end: Ending) -> bool:
        """Tell whether a continuation ended at H, where its diagnosis was forced."""
        credit = self.settings.credit
        if end.source == "suffix" and credit.cache.long_suffixes == "keep":
            return False
        return sum(kind != "end" for kind, _ in end.path) >= credit.horizon


_Show = Callable[[ActionKey], list[str]]


def is_readable(settings: Settings, case: CaseRecord) -> bool:
    """Tell whether the site may show texts of a case."""
    return settings.inspector.credentialed or not case.credentialed


def show_text(settings: Settings, case: CaseRecord, text: str) -> str:
    """Return a text of a case for the site; its pseudonym where it may not be read."""
    return text if not text or is_readable(settings, case) else public_text(settings, case, text)


def exam_names(case: CaseRecord) -> Callable[[str], str]:
    """Return a function that gives each examination one name on the site: the vocabulary's (``Complete Blood Count``
    for ``FBC``). An examination that it does not know, a physical one, and one that a record has twice keep their
    own."""
    known = Counter(map(canonical_name, case.key_pertinent_results_dict))

    def named(text: str) -> str:
        name = None if is_physical(text) else canonical_name(text)
        return name if name and known[name] < 2 else text

    return named


def action_of(step: Step) -> ActionKey:
    """Return the action of a step: a diagnosis by its words, a request by the examination that it met, or by its own
    words."""
    if isinstance(step.action, FinalDiagnosis):
        return "end", step.action.text
    kind, name = step.evidence
    return kind, step.action.name if isinstance(step.action, RequestTest) and not step.observation.exam_key else name


def credited(credit: CreditedCase, index: int) -> dict[int, int]:
    """Map each decision of the ``index``-th episode to the number of its state; forced decisions have none."""
    return {t: number for number, state in enumerate(credit.states) for i, t in state.visits if i == index}


def _candidates(
    state: StateCredit, endings: Iterable[Iterable[Ending]], opinion: Opinion | None, show: _Show, taken: ActionKey,
    cut: Callable[[Ending], bool],
) -> Iterator[Fields]:  # fmt: skip
    """Yield the actions at a state: those with a value, then the others that the policy drew. ``taken`` is marked, and
    so is a continuation that was ``cut`` at H."""
    share = {one.action: one.p for one in state.actions}
    for value, ends in zip(state.candidates, endings, strict=True):
        candidates = {
            "act": show(value.action), "taken": value.action == taken, "top": value.in_top_m,
            "share": _round(share.pop(value.action, 0.0)),
            "value": _round(value.value), "right": _round(value.correct), "tests": _round(value.tests),
            "cost": _round(value.cost_usd), "missed": _round(value.infeasible), "failed": value.failed,
            "endings": [
                {"from": end.source, "right": end.correct, "tests": end.tests, "cost": _round(end.cost_usd),
                 "missed": end.infeasible, "utility": _round(end.utility), "cut": cut(end),
                 "path": [show(action) for action in end.path]}
                for end in ends
            ],
        }  # fmt: skip
        yield candidates | ({"true": _round(opinion.values[value.action])} if opinion else {})
    yield from ({"act": show(action), "share": _round(p)} for action, p in share.items())


def _opinion(opinion: Opinion, show: _Show) -> Fields:
    return {
        "posterior": [[disease, _round(p)] for disease, p in opinion.posterior],
        "best": show(opinion.best), "value": _round(opinion.best_value), "lost": _round(opinion.lost),
        "taken": _round(next(iter(opinion.values.values()))), "disagrees": opinion.disagrees,
    }  # fmt: skip


def _round(number: float | None) -> float | None:
    return None if number is None else round(number, _DIGITS)
