"""verl's agent loop: one of our episodes, from the same prompts, seeds and environment as everywhere."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Collection
from typing import Any

from pydantic import Field
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from ....cases import CaseRecord
from ....environment import State, Trajectory, case_seed, run_episode
from ....llm import ModelFailure, ModelSpec, open_model
from ....llm.rollout_server import CONVERSATION
from ...run import VALIDATION_SEED
from ..session import read_session
from .tokens import tokens_of

_log = logging.getLogger(__name__)
# It tells of every episode that no family of chat templates is known, which is how we want it.
logging.getLogger("verl.utils.tokenizer.continuous_token_wiring").setLevel(logging.ERROR)


class EpisodeOutput(AgentLoopOutput):
    """What an episode left behind. ``trajectory`` is None where it failed; ``failure`` then names the kind of error,
    and ``fatal`` tells a fault of the program from a server that gave no answer. ``alternatives`` are replies evaluated
    beside it that are trained on too, rows of their own."""

    trajectory: Trajectory | None = Field(default=None, exclude=True)
    failure: str = Field(default="", exclude=True)
    fatal: bool = Field(default=False, exclude=True)
    alternatives: list[EpisodeOutput] = Field(default_factory=list, exclude=True)


class DiagnosticLoop(AgentLoopBase):
    """Works up the case that a row of the schedule names. Never raises: verl would train the rest of the group as if
    nothing had happened."""

    def __init__(self, *args: Any, hf_model_type: str | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)  # of no family: prompts are ours, verl joins no turns

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> EpisodeOutput:
        """One episode; ``row`` is one of :class:`~cdpr.training.verl.hooks.schedule.Schedule`, with verl's ``uid`` and
        ``session_id``."""
        session = read_session(self.data_config.cdpr_session)
        run, case = session.run, getattr(session.run, row["part"])[int(row["place"])]
        model = open_model(ModelSpec.of_rollouts(run.settings), client=self.server_manager, tokenizer=run.tokenizer)
        if row["part"] == "validation":
            agent, seed = run.agent(model, temperature=0.0), case_seed(VALIDATION_SEED, case)
        else:
            agent = run.agent(model)
            seed = run.episode_seed(case, int(row["iteration"]), int(row.get("session_id", 0)))
        CONVERSATION.set(str(row.get("uid", case.note_id)))
        start = time.perf_counter()
        try:
            trajectory = await run_episode(run.environment, agent, case, seed)
        except ModelFailure as error:
            _log.warning("an episode failed: %s", error)
            return self._failed(session, case, type(error).__name__, fatal=False)
        except Exception as error:
            # Of a fault of the program only where it arose is told: its message may quote a case.
            _log.error("a fault in an episode: %s\n%s", type(error).__name__,
                       "".join(traceback.format_tb(error.__traceback__)))  # fmt: skip
            return self._failed(session, case, type(error).__name__, fatal=True)
        tokens = tokens_of(trajectory, limit=self.rollout_config.response_length)
        return EpisodeOutput(
            prompt_ids=tokens.prompt,
            response_ids=tokens.response,
            response_mask=tokens.mask,
            response_logprobs=tokens.logprobs,
            num_turns=2 * len(trajectory.steps),
            metrics=AgentLoopMetrics(generate_sequences=time.perf_counter() - start),
            extra_fields=_extra(tokens.cut, model.versions),
            trajectory=trajectory,
        )

    def _failed(self, session, case: CaseRecord, kind: str, fatal: bool) -> EpisodeOutput:
        """A prompt and one token without loss: verl needs every member of a group."""
        prompt = session.run.prompts.context_ids(State(case))
        return EpisodeOutput(
            prompt_ids=list(prompt),
            response_ids=[session.run.tokenizer.end_of_turn],
            response_mask=[0],
            response_logprobs=[0.0],
            num_turns=0,
            metrics=AgentLoopMetrics(),
            extra_fields=_extra(0, ()),
            failure=kind,
            fatal=fatal,
        )


def _extra(cut: int, versions: Collection[int]) -> dict[str, int]:
    """Tokens left out, and the first and the last version of the weights that answered, which verl wants to know."""
    first, last = min(versions, default=0), max(versions, default=0)
    return {"min_global_steps": first, "max_global_steps": last, "cut_tokens": cut}
