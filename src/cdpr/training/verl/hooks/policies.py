"""The policies of a run behind their servers, for the algorithm that scores groups."""

from __future__ import annotations

from typing import Any

from ....agents.policy import PolicyAgent
from ....llm import ModelSpec, open_model
from ....settings import SettingsError
from ...algorithm import Context
from ..session import Session


class Policies:
    """``client`` asks verl's rollout servers."""

    def __init__(self, session: Session, client: Any):
        self.session, self.client = session, client

    def context(self) -> Context:
        """What the algorithm may use: the torch trainer's, but for copies of the policy."""
        run = self.session.run
        policy = self._agent(ModelSpec.of_rollouts(run.settings), client=self.client)
        return Context(run.settings, run.environment, policy, self._frozen, _no_snapshot, run.seed)

    def _agent(self, spec: ModelSpec, **parts: Any) -> PolicyAgent:
        return self.session.run.agent(open_model(spec, tokenizer=self.session.run.tokenizer, **parts))

    def _frozen(self) -> PolicyAgent:
        """The initial policy: at the address that the settings give, or on the servers that the trainer started."""
        run = self.session.run
        if run.settings.training.verl.frozen.url is None:
            frozen = getattr(self.client, "frozen", None)
            if frozen is None:
                raise SettingsError("no frozen server: set training.verl.frozen.url, or leave verl to start one")
            return self._agent(ModelSpec.of_rollouts(run.settings), client=frozen)
        credentialed = any(case.credentialed for case in (*run.train, *run.validation))
        return self._agent(ModelSpec.of_frozen_server(run.settings, credentialed=credentialed))


def _no_snapshot() -> PolicyAgent:
    raise AssertionError("the plan refuses an algorithm that asks for copies of the policy")
