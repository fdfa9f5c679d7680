"""Finished workups, rebuilt from the replies in evaluation rows and the results in cases."""

from collections.abc import Sequence
from dataclasses import fields

from ..cases import CaseRecord
from ..environment import DiagnosticEnvironment, Effort, Trajectory, Turn
from .row import EvaluationRow

COUNTS = tuple(field.name for field in fields(Effort) if field.name != "cost_usd")
"""The counts of an effort; a row has each as ``n_<name>``."""


async def replay(
    environment: DiagnosticEnvironment, case: CaseRecord, replies: Sequence[str], forced: bool = False
) -> Trajectory:
    """The workup behind ``replies``; a last one without a diagnosis is invalid, as in the evaluation."""
    state = environment.initial(case)
    for reply in replies[:-1]:
        state = state.after(await environment.respond(state, Turn(reply)))
    return environment.finish(state, await environment.respond(state, Turn(replies[-1])), forced)


def deviations(row: EvaluationRow, effort: Effort) -> list[str]:
    """The counts in which a workup differs from its row, in words; empty for the workup that was evaluated."""
    recorded = {name: getattr(row, f"n_{name}") for name in COUNTS} | {"cost_usd": row.cost_usd}
    now = {name: getattr(effort, name) for name in COUNTS} | {"cost_usd": round(effort.cost_usd, 6)}
    return [f"{name} {recorded[name]}, now {now[name]}" for name in recorded if recorded[name] != now[name]]
