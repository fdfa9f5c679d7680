"""Numbered replies of a policy, and the continuations that follow from them.

Reply k at a state is a function of (seed, stream, state, k) and continuation k takes reply k wherever it comes. So
the continuations of one action are independent of each other, while those of different actions that meet in a state
share what follows: nothing is drawn twice, and neither order nor company changes a result.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..environment import DiagnosticEnvironment, Effort, FinalDiagnosis, Policy, State, Step
from ..llm import ModelFailure
from ..seeding import derive_seed


@dataclass(frozen=True)
class Continuation:
    """What followed a state until the diagnosis: verdict and effort. Utilities are computed when it is
    read, so that changing a lambda ages nothing."""

    correct: bool
    effort: Effort


@dataclass
class Draws:
    """The replies drawn from one policy, each once. ``stream`` names the random numbers; ``failed`` counts replies
    that a model did not give; ``journal`` holds what was drawn, with the states, and ``tokens`` its length."""

    environment: DiagnosticEnvironment
    policy: Policy
    seed: int
    stream: tuple
    known: dict[tuple, dict[int, Step | asyncio.Future | None]] = field(default_factory=dict)
    failed: int = 0
    tokens: int = 0
    journal: list[tuple[State, Step]] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """What is logged of them."""
        return {"credit/continuation_tokens": self.tokens, "credit/failed": self.failed}

    async def steps(self, state: State, numbers: Sequence[int], forced: bool = False) -> dict[int, Step]:
        """The steps that the replies ``numbers`` make at a state; those that failed are left out."""
        known = self.known.setdefault((state.words, forced), {})
        missing = [k for k in numbers if k not in known]
        if missing:
            waiting = asyncio.get_running_loop().create_future()
            known.update(dict.fromkeys(missing, waiting))
            try:
                known.update(zip(missing, await self._draw(state, missing, forced), strict=True))
            finally:
                waiting.set_result(None)
        found: dict[int, Step] = {}
        for k in numbers:
            if isinstance(asked := known[k], asyncio.Future):  # another continuation asked first
                await asked
            if isinstance(step := known[k], Step):
                found[k] = step
        return found

    async def _draw(self, state: State, numbers: Sequence[int], forced: bool) -> Sequence[Step | None]:
        seed = derive_seed(self.seed, self.stream, state.key, forced)
        try:
            turns = await self.policy.sample(state, numbers, forced, seed)
            steps = [await self.environment.respond(state, turn) for turn in turns]
        except (ModelFailure, TimeoutError):
            self.failed += len(numbers)
            return [None] * len(numbers)
        self.tokens += sum(len(turn.token_ids) for turn in turns)
        self.journal += [(state, step) for step in steps]
        return steps

    async def follow(self, state: State, numbers: Sequence[int], horizon: float = math.inf) -> dict[int, Continuation]:
        """Continuations ``numbers`` from a state, by number: at most ``horizon`` decisions, then a forced diagnosis
        (equation "rollout"). Those in which a reply failed are left out."""
        forced = horizon <= 0 or self.environment.must_diagnose(state, self.policy)
        steps = await self.steps(state, numbers, forced)
        found: dict[int, Continuation] = {}
        onward: dict[str, list[int]] = {}
        for k, step in steps.items():
            if forced or isinstance(step.action, FinalDiagnosis):
                last, correct = self.environment.conclude(state, step)
                found[k] = Continuation(correct, last.effort)
            else:
                onward.setdefault(step.turn.text, []).append(k)
        branches = [(steps[ks[0]], ks) for ks in onward.values()]
        futures = [self.follow(state.after(step), ks, horizon - 1) for step, ks in branches]
        ends = [await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures)
        for (step, _), end in zip(branches, ends, strict=True):
            found.update({k: Continuation(c.correct, step.effort + c.effort) for k, c in end.items()})
        return found
