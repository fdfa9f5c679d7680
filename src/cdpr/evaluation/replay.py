"""Rebuilds finished episodes from the replies in evaluation rows and the results in cases. The effort of an episode is
what it requested, as counts, and what that cost."""

from collections.abc import Sequence
from dataclasses import fields

from ..cases import CaseRecord
from ..environment import DiagnosticEnvironment, Effort, State, Trajectory, Turn
from .row import EvaluationRow

COUNTS = tuple(field.name for field in fields(Effort) if field.name != "cost_usd")
"""The counts of an effort; a row has each as ``n_<name>``."""


async def replay(
    environment: DiagnosticEnvironment, case: CaseRecord, replies: Sequence[str], forced: bool = False
) -> Trajectory:
    """Rebuild the finished episode of a case from the texts of its ``replies`` (at least one); returns its trajectory.
    ``forced`` says that the last reply had to be a diagnosis. A last reply without a diagnosis is invalid, as in the
    evaluation. Raises ModelFailure where a model that judges or matches gives no answer."""
    state = await state_after(environment, case, replies[:-1])
    return environment.finish(state, await environment.respond(state, Turn(replies[-1])), forced)


async def state_after(environment: DiagnosticEnvironment, case: CaseRecord, replies: Sequence[str]) -> State:
    """Rebuild the state of a case after the texts ``replies``; the environment answers each reply again."""
    state = environment.initial(case)
    for reply in replies:
        state = state.after(await environment.respond(state, Turn(reply)))
    return state


def deviations(row: EvaluationRow, effort: Effort) -> list[str]:
    """Compare the effort of a replayed episode with the row of the evaluated one. Returns a phrase such as ``issued 3,
    now 2`` for each count that differs, and for the cost in US dollars; empty where all are equal."""
    recorded = {name: getattr(row, f"n_{name}") for name in COUNTS} | {"cost_usd": row.cost_usd}
    replayed = {name: getattr(effort, name) for name in COUNTS} | {"cost_usd": round(effort.cost_usd, 6)}
    return [f"{name} {recorded[name]}, now {replayed[name]}" for name in recorded if recorded[name] != replayed[name]]
