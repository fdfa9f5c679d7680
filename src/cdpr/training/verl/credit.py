"""Our algorithms on one finished group, while the policy's servers are awake."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from ...agents.policy import PolicyAgent
from ...environment import Trajectory
from ...llm.completions import TokenServer
from ...settings import SettingsError
from ..algorithms.base import Advantages, Context
from ..trainer import check_finite
from .model import RolloutModel, seeding
from .session import Session


class GroupCredit:
    """The algorithm of a run, asked group by group.

    It is the torch trainer's own code. What an algorithm remembers between iterations (the rollout cache) lives here,
    hence in the one agent-loop worker.
    """

    def __init__(self, session: Session, client: Any):
        self.session, self.client = session, client
        context = Context(
            session.settings, session.environment, self._agent(client), self._frozen, _no_snapshot, session.seed
        )
        name = session.settings.training.algorithm
        self.algorithm = importlib.import_module(f"..algorithms.{name}", __package__).build(context)

    async def of(self, group: Sequence[Trajectory], iteration: int) -> Advantages:
        """Advantages of one group. Raises FloatingPointError where one is not finite."""
        credit = await self.algorithm.advantages([group], iteration)
        check_finite(credit, [group])
        return credit

    def _agent(self, client: Any) -> PolicyAgent:
        plan = self.session.settings.training
        model = RolloutModel(client, self.session.tokenizer, seeding(plan.verl.rollout), plan.verl.timeout_s)
        return PolicyAgent(model, self.session.prompts, self.session.settings.policy, plan.temperature)

    def _frozen(self) -> PolicyAgent:
        """The initial policy: at the address that the settings give, or on the servers that the trainer started."""
        settings, place = self.session.settings, self.session.settings.training.verl.frozen
        if place.url is None:
            frozen = getattr(self.client, "frozen", None)
            if frozen is None:
                raise SettingsError("no frozen server: set training.verl.frozen.url, or leave verl to start one")
            return self._agent(frozen)
        credentialed = any(case.credentialed for cases in self.session.parts.values() for case in cases)
        model = TokenServer(
            place.url, place.name or settings.policy.model, settings.governance, self.session.tokenizer,
            credentialed=credentialed, at_once=place.at_once, timeout=settings.training.verl.timeout_s,
            retries=place.retries,
        )  # fmt: skip
        return PolicyAgent(model, self.session.prompts, settings.policy, settings.training.temperature)


def _no_snapshot() -> PolicyAgent:
    raise SettingsError(
        "credit.continuation.policy: lagged needs a copy of the policy that verl does not keep; use frozen_init or "
        "current, or training.engine: torch"
    )
