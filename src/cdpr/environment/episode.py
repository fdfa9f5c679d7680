"""The episode, written once: training, continuations and evaluation all run through here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..cases import CaseRecord
from ..llm.asking import CASE
from ..seeding import derive_seed
from .agent import Agent
from .environment import DiagnosticEnvironment
from .state import FinalDiagnosis, Trajectory

# Cases worked up at the same time: enough to fill batches, few enough to show progress.
WAVE = 256


async def run_episode(environment: DiagnosticEnvironment, agent: Agent, case: CaseRecord, seed: int) -> Trajectory:
    """Work up a case from its presentation to a diagnosis."""
    CASE.set(case.note_id)
    state = environment.initial(case)
    while True:
        forced = environment.must_diagnose(state, agent)
        turn = await agent.act(state, forced, derive_seed(seed, len(state.history)))
        step = await environment.respond(state, turn)
        if forced or agent.whole_record or isinstance(step.action, FinalDiagnosis):
            return environment.finish(state, step, forced)
        state = state.after(step)


def case_seed(seed: int, case: CaseRecord) -> int:
    """The seed of a case's workup: no other case's, and the same in whatever order and company cases come."""
    return derive_seed(seed, "case", case.note_id)


async def run_episodes(
    environment: DiagnosticEnvironment, agent: Agent, cases: Sequence[CaseRecord], seed: int
) -> list[Trajectory]:
    """One trajectory per case, in the order of the cases."""
    finished: list[Trajectory] = []
    for start in range(0, len(cases), WAVE):
        wave = cases[start : start + WAVE]
        episodes = (run_episode(environment, agent, case, case_seed(seed, case)) for case in wave)
        finished += await asyncio.gather(*episodes)
    return finished
