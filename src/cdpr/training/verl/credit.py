"""Our algorithms on one finished group, while the policy's servers are awake."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from ...agents.policy import PolicyAgent
from ...environment import Trajectory
from ...llm import ModelSpec, open_model
from ...settings import SettingsError
from ..algorithms.base import Advantages, Context
from ..trainer import check_finite
from .session import Session


class GroupCredit:
    """The algorithm of a run, asked group by group.

    It is the torch trainer's own code. What an algorithm remembers between iterations (the rollout cache) lives here,
    hence in the one agent-loop worker.
    """

    def __init__(self, session: Session, client: Any):
        self.session, self.client = session, client
        policy = self._agent(ModelSpec.of_rollouts(session.settings), client=client)
        context = Context(session.settings, session.environment, policy, self._frozen, _no_snapshot, session.seed)
        name = session.settings.training.algorithm
        self.algorithm = importlib.import_module(f"..algorithms.{name}", __package__).build(context)

    async def of(self, group: Sequence[Trajectory], iteration: int) -> Advantages:
        """Advantages of one group. Raises FloatingPointError where one is not finite."""
        credit = await self.algorithm.advantages([group], iteration)
        check_finite(credit, [group])
        return credit

    def _agent(self, spec: ModelSpec, **parts: Any) -> PolicyAgent:
        model = open_model(spec, tokenizer=self.session.tokenizer, **parts)
        settings = self.session.settings
        return PolicyAgent(model, self.session.prompts, settings.policy, settings.training.temperature)

    def _frozen(self) -> PolicyAgent:
        """The initial policy: at the address that the settings give, or on the servers that the trainer started."""
        settings = self.session.settings
        if settings.training.verl.frozen.url is None:
            frozen = getattr(self.client, "frozen", None)
            if frozen is None:
                raise SettingsError("no frozen server: set training.verl.frozen.url, or leave verl to start one")
            return self._agent(ModelSpec.of_rollouts(settings), client=frozen)
        credentialed = any(case.credentialed for cases in self.session.parts.values() for case in cases)
        return self._agent(ModelSpec.of_frozen_server(settings, credentialed=credentialed))


def _no_snapshot() -> PolicyAgent:
    raise SettingsError(
        "credit.continuation.policy: lagged needs a copy of the policy that verl does not keep; use frozen_init or "
        "current, or training.engine: torch"
    )
