"""What our hooks add to a step of verl: verl's own agent-loop worker against ours, with the same calls of the model.

One iteration of CDPR is worked up once with the real policy, and every reply is kept. Then two workers of verl take
turns in one process, over a server that answers from what was kept: ours (episode, environment, prompts, group hook,
credit, token rewards) and verl's with the plainest loop that makes the same calls (turns one after another, then
everything that credit asked). The difference is what our code takes; it is held against a whole step of verl's trainer,
measured by `make verl-cpu-demo`, with a tiny policy: against a real model's step the share is smaller still.

Needs the demo's cases and warm start, and verl (`make verl-cpu-demo` has all). Writes flat keys to
results/benchmarks/verl_hooks.json.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from _figures import save
from _local_server import LocalServer
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    AgentLoopWorker,
    register,
)
from verl_worker import Observed, batch, work, worker

from cdpr.metrics_log import read_metrics
from cdpr.settings import load_settings, resolve_variant
from cdpr.settings.load import merge, parse_settings
from cdpr.training.verl.session import Session, read_session

Call = tuple[tuple[int, ...], int, int, int, float]


class Recorded:
    """A server that answers from ``replies``; without a reply it asks ``server`` and keeps what it says, also which
    member of which group asked (``made``)."""

    def __init__(self, server: LocalServer, frozen: Recorded | None = None):
        self.server, self.frozen = server, frozen
        self.replies: dict[Call, Any] = {}
        self.calls = 0

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any, **_: Any) -> Any:
        asked = sampling_params
        call = (tuple(prompt_ids), asked["seed"], asked["sample"], asked["max_tokens"], asked["temperature"])
        self.calls += 1
        if call not in self.replies:
            self.replies[call] = await self.server.generate(
                request_id, prompt_ids=prompt_ids, sampling_params=sampling_params
            )
        return self.replies[call]


class Plain(Observed, AgentLoopWorker):
    """verl's worker with nothing of ours in it."""


@register("replay")
class Replay(AgentLoopBase):
    """Repeats the calls of an episode, and with the last member of a group those of the group's credit."""

    turns: dict[tuple[int, int], list[tuple[list[int], dict[str, Any]]]]
    credit: dict[int, list[tuple[bool, list[int], dict[str, Any]]]]
    waiting: dict[int, int]

    def __init__(self, *args: Any, hf_model_type: str | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)  # the tiny policy is of no family whose chat verl knows

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """One episode."""
        start, response, mask, logprobs = time.perf_counter(), [], [], []
        place, member = int(row["index"]), int(row["session_id"])
        turns = Replay.turns[place, member]
        for prompt, asked in turns:
            between = prompt[len(turns[0][0]) + len(response) :]
            reply = await self.server_manager.generate(str(row["uid"]), prompt_ids=prompt, sampling_params=asked)
            response += [*between, *reply.token_ids]
            mask += [0] * len(between) + [1] * len(reply.token_ids)
            logprobs += [0.0] * len(between) + list(reply.log_probs)
        Replay.waiting[place] -= 1
        if not Replay.waiting[place]:
            servers = (self.server_manager, self.server_manager.frozen)
            await asyncio.gather(*(
                servers[frozen].generate(str(row["uid"]), prompt_ids=prompt, sampling_params=asked)
                for frozen, prompt, asked in Replay.credit[place]
            ))  # fmt: skip
        return AgentLoopOutput(
            prompt_ids=turns[0][0], response_ids=response, response_mask=mask, response_logprobs=logprobs,
            num_turns=2 * len(turns), metrics=AgentLoopMetrics(generate_sequences=time.perf_counter() - start),
            reward_score=0.0, extra_fields={"min_global_steps": 0, "max_global_steps": 0, "reward_extra_info": {}},
        )  # fmt: skip


class Watched(Recorded):
    """Keeps, while an iteration is worked up, who asked for what: ``log`` has (group, frozen, prompt, parameters)."""

    log: list[tuple[str, bool, list[int], dict[str, Any]]] | None = None

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any, **more: Any) -> Any:
        if self.log is not None:
            self.log.append((request_id, self.frozen is None, list(prompt_ids), dict(sampling_params)))
        return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params, **more)


def record(session: Session, server: Watched) -> int:
    """Work up iteration 0 and prepare its replay; returns the number of calls."""
    server.log = server.frozen.log = []
    outputs, _ = work(session, worker(session, server), 0)
    log, server.log, server.frozen.log = server.log, None, None
    n = session.settings.training.group_size
    Replay.turns = {}
    taken = set()
    for k, output in enumerate(outputs):
        turns = [(list(step.turn.prompt_ids), None) for step in output.trajectory.steps]
        found = []
        for (prompt, _), step in zip(turns, output.trajectory.steps, strict=True):
            at = next(
                j for j, (_, frozen, asked, _) in enumerate(log)
                if j not in taken and not frozen and asked == prompt
                and server.replies[_key(log[j])].token_ids == list(step.turn.token_ids)
            )  # fmt: skip
            taken.add(at)
            found.append((prompt, log[at][3]))
        Replay.turns[k // n, k % n] = found
    Replay.credit = defaultdict(list)
    for j, (group, frozen, prompt, asked) in enumerate(log):
        if j not in taken:
            Replay.credit[int(group.removeprefix("g"))].append((frozen, prompt, asked))
    return len(log)


def _key(entry: tuple[str, bool, list[int], dict[str, Any]]) -> Call:
    _, _, prompt, asked = entry
    return (tuple(prompt), asked["seed"], asked["sample"], asked["max_tokens"], asked["temperature"])


def measure(session: Session, server: Watched, rounds: int) -> dict[str, list[float]]:
    """Processor seconds of one iteration by each worker, turn about, after one round that does not count."""
    found: dict[str, list[float]] = {"ours": [], "verl": []}
    size, n = session.settings.training.prompts_per_batch, session.settings.training.group_size
    calls = {}
    for k in range(rounds + 1):
        for name in found:
            by = worker(session, server, *([] if name == "ours" else [Plain]))  # a fresh one: no cache from before
            rows = batch(session, 0, loop=None if name == "ours" else "replay")
            Replay.waiting = {place: n for place in range(size)}
            by.outputs = {}
            server.calls = server.frozen.calls = 0
            gc.collect()
            start = time.process_time()
            asyncio.run(by.generate_sequences(rows))
            seconds = time.process_time() - start
            calls[name] = server.calls + server.frozen.calls
            found[name] += [seconds] if k else []
    assert calls["ours"] == calls["verl"], calls
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/verl_hooks.json"))
    parser.add_argument("--cases", type=Path, default=Path("results/cases/mimic_iv.jsonl"))
    parser.add_argument("--policy", type=Path, default=Path("results/policies/warm_start"))
    parser.add_argument("--timings", type=Path, default=Path("results/training/cdpr_verl-seed0/timings.jsonl"))
    parser.add_argument("--rounds", type=int, default=7, help="counted rounds of each worker")
    arguments = parser.parse_args()
    for path in (arguments.cases, arguments.policy, arguments.timings):
        if not path.exists():
            parser.error(f"{path} is missing; make it with: make verl-cpu-demo")
    torch.set_num_threads(1)
    base = resolve_variant(load_settings("config.yaml"), "cdpr_verl")
    settings = parse_settings(merge(base.model_dump(), {"training": {"verl": {"rollout": "cpu"}}}))
    with tempfile.TemporaryDirectory() as state:
        path = Path(state) / "session.json"
        Session(settings, arguments.cases, arguments.policy, Path(state), 0).write(path)
        session = read_session(str(path))
        server = Watched(LocalServer(session.policy), Watched(LocalServer(session.policy)))
        calls = record(session, server)
        found = measure(session, server, arguments.rounds)
    ours, plain = (statistics.median(found[name]) for name in ("ours", "verl"))
    rows = [row for row in read_metrics(arguments.timings) if "time/update" in row]
    steps = [sum(v for name, v in row.items() if name.startswith("time/")) for row in rows]
    step = statistics.quantiles(steps, n=4)[0]  # of a run that may not have had the machine for itself
    flat = {
        "calls": calls, "ours_seconds": round(ours, 4), "verl_seconds": round(plain, 4),
        "added_seconds": round(ours - plain, 4), "ours_over_verl": round(ours / plain, 3),
        "step_seconds": round(step, 3), "added_share_of_a_step": round((ours - plain) / step, 4),
        "rounds": arguments.rounds, "torch": torch.__version__,
    }  # fmt: skip
    save(arguments.out, flat)


if __name__ == "__main__":
    main()
