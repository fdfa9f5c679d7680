"""Finished workups told again: what the agent said, from the rows; what it was answered, from the cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from ..cases import CaseRecord
from ..environment import DiagnosticEnvironment, Effort, Trajectory, Turn
from .row import EvaluationRow

COUNTS = tuple(field.name for field in fields(Effort) if field.name != "cost_usd")
"""What an effort counts; a row calls each ``n_<name>``."""


async def retell(
    environment: DiagnosticEnvironment, case: CaseRecord, replies: Sequence[str], forced: bool = False
) -> Trajectory:
    """The workup behind ``replies``; a last one that names no diagnosis is invalid, as it was when it was evaluated."""
    state = environment.initial(case)
    for reply in replies[:-1]:
        state = state.after(await environment.respond(state, Turn(reply)))
    return environment.finish(state, await environment.respond(state, Turn(replies[-1])), forced)


def deviations(row: EvaluationRow, found: Effort) -> list[str]:
    """In which counts a workup differs from its row, in words; empty where it is the one that was evaluated."""
    told = {name: getattr(row, f"n_{name}") for name in COUNTS} | {"cost_usd": row.cost_usd}
    now = {name: getattr(found, name) for name in COUNTS} | {"cost_usd": round(found.cost_usd, 6)}
    return [f"{name} {told[name]}, now {now[name]}" for name in told if told[name] != now[name]]
