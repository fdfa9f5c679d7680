"""verl's agent-loop worker in this process, without Ray: for tests and benchmarks of our hooks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_module
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.utils.dataset.rl_dataset import collate_fn

from cdpr.training.verl.agent_loop import BatchAdvantages, EpisodeOutput, GroupHook
from cdpr.training.verl.configuration import hydra_arguments, translate_settings
from cdpr.training.verl.session import Schedule, Session


class Observed:
    """A mixin of a worker: ``outputs`` holds the output of every episode, by row and member of its group."""

    outputs: dict[tuple[int, int], Any]

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **row: Any) -> Any:
        result = await super()._agent_loop_postprocess(output, validate, **row)  # type: ignore[misc]
        self.outputs[row["index"], row["session_id"]] = output
        return result


class _OneRow:
    """A mixin of a worker that takes only one row of an episode, the trajectory."""

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **row: Any) -> Any:
        first = output[0] if isinstance(output, list) else output
        return await super()._agent_loop_postprocess(first, validate, **row)  # type: ignore[misc]


class Worker(Observed, GroupHook, _OneRow, AgentLoopWorker):
    """Our loop and group hook."""


def worker(session: Session, server: Any, kind: type = Worker) -> Any:
    """A worker that asks ``server`` (see :class:`~_local_server.LocalServer`)."""
    arguments = hydra_arguments(translate_settings(session.settings, session.policy, session.state))
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=arguments)
    return kind(config, server, None, None)


def batch(session: Session, iteration: int, part: str = "train", loop: str | None = None) -> DataProto:
    """The rows of one iteration as verl's trainer hands them to a worker; ``loop`` names another agent loop."""
    schedule = Schedule(part, config={"cdpr_session": str(Path(session.state) / "session.json")})
    n = session.settings.training.group_size if part == "train" else 1
    rows = [row for j in range(len(schedule)) if (row := schedule[j])["iteration"] == iteration]
    rows = [row | ({"agent_name": loop} if loop else {}) for row in rows for _ in range(n)]
    data = DataProto.from_single_dict(collate_fn(rows))
    data.meta_info = {"global_steps": iteration, "validate": part == "validation"}
    data.non_tensor_batch["uid"] = np.array([f"g{row['index']}" for row in rows], object)
    data.non_tensor_batch["session_id"] = np.array([i % n for i in range(len(rows))], object)
    return data


def work(session: Session, by: Any, iteration: int, part: str = "train") -> tuple[list[EpisodeOutput], BatchAdvantages]:
    """All episodes of one iteration, in order, and the advantages of the batch (none of validation)."""
    by.outputs = {}
    asyncio.run(by.generate_sequences(batch(session, iteration, part)))
    uids = dict.fromkeys(f"g{place}" for place, _ in by.outputs) if part == "train" else ()
    return [by.outputs[key] for key in sorted(by.outputs)], by.finish_batch(list(uids))
