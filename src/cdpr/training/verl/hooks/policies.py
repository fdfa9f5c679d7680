"""The policies of a run behind their servers, for the algorithm that scores groups."""

from __future__ import annotations

from typing import Any

from ....agents.policy import PolicyAgent
from ....llm.completions import TokenServer
from ....settings import SettingsError
from ...algorithm import Context
from ..model import RolloutModel, seeding
from ..session import Session


class Policies:
    """``client`` asks verl's rollout servers."""

    def __init__(self, session: Session, client: Any):
        self.session, self.client = session, client

    def context(self) -> Context:
        """What the algorithm may use: the torch trainer's, but for copies of the policy."""
        run = self.session.run
        return Context(run.settings, run.environment, self._agent(self.client), self._frozen, _no_snapshot, run.seed)

    def _agent(self, client: Any) -> PolicyAgent:
        plan = self.session.settings.training
        model = RolloutModel(client, self.session.run.tokenizer, seeding(plan.verl.rollout), plan.verl.timeout_s)
        return self.session.run.agent(model)

    def _frozen(self) -> PolicyAgent:
        """The initial policy: at the address that the settings give, or on the servers that the trainer started."""
        settings, place = self.session.settings, self.session.settings.training.verl.frozen
        if place.url is None:
            frozen = getattr(self.client, "frozen", None)
            if frozen is None:
                raise SettingsError("no frozen server: set training.verl.frozen.url, or leave verl to start one")
            return self._agent(frozen)
        run = self.session.run
        credentialed = any(case.credentialed for case in (*run.train, *run.validation))
        model = TokenServer(
            place.url, place.name or settings.policy.model, settings.governance, run.tokenizer,
            credentialed=credentialed, at_once=place.at_once, timeout=settings.training.verl.timeout_s,
            retries=place.retries,
        )  # fmt: skip
        return run.agent(model)


def _no_snapshot() -> PolicyAgent:
    raise AssertionError("the plan refuses an algorithm that asks for copies of the policy")
