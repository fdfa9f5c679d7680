"""What one training step asks its servers for, counted from real episodes: requests, prompt tokens, sampled tokens.

A policy works up one batch of training cases, and the code of training assigns credit under several settings. Every
reply is logged with its state. From the log come the requests (one a reply, or one for all replies of a state), the
prompt tokens (without prefix cache; with one, where a case keeps to its server or every request goes to any), and the
sampled tokens, once in the policy's own tokens and once in those of the paper's prompt (`training.verl.estimates`).
The last lines are the figures that the planner takes from here, and the seconds that it plans with them.

The tiny policy answers in a few words, so that replies, and with them states, are often equal to the letter. A model
that thinks aloud never repeats itself: `free_text` gives every reply words of its own, and the same actions.

Needs cases and a policy: the demo's (`snakemake --cores all results/policies/warm_start`), or `--policy FOLDER` with
`--configfile`. Writes flat keys to results/benchmarks/step_requests.json.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from _figures import save

from cdpr.cases import iterate_records
from cdpr.environment import Policy, State, Turn, run_episode
from cdpr.llm import ModelSpec, open_model
from cdpr.seeding import derive_seed
from cdpr.settings import Settings, load_settings, parse_settings, resolve_variant
from cdpr.settings.algorithms import algorithm_class
from cdpr.settings.load import merge
from cdpr.training.algorithm import Context, Group, score_groups
from cdpr.training.training_run import TrainingRun

OPENING, REPLY, RESULT, FORCED, NAME = 1200, 150, 150, 60, 12  # tokens with the paper's prompt
REPLICAS = 8
BLOCK = 16  # tokens whose keys and values a server keeps together

UNSHARED = {"merge": "none", "own_actions": "apart", "cache": {"scope": "off"}}
ARMS = {  # what differs from the paper's settings
    "unshared": UNSHARED,
    "paper": {},
    "budget 2": {"max_states": 2},
    "H 1": {"horizon": 1},
    "H 0, K 8": {"horizon": 0, "continuations": 8},
    "H 0, K 16": {"horizon": 0, "continuations": 16},
    "H 0, K 16, budget 2": {"horizon": 0, "continuations": 16, "max_states": 2},
    "H 0, K 16, n_s 4": {"horizon": 0, "continuations": 16, "samples": 4},
    "H 0, K 16, n_s 4, budget 2": {"horizon": 0, "continuations": 16, "samples": 4, "max_states": 2},
    "scored, H 0, K 1": {"verdicts": "scored", "horizon": 0, "continuations": 1},
}


@dataclass(frozen=True)
class Call:
    """``count`` replies of a server at a state, ``words`` its replies so far; ``sampled``: their tokens."""

    kind: str
    words: tuple[str, ...]
    count: int
    prompt: int
    sampled: int

    @property
    def paper_prompt(self) -> int:
        """Tokens of the prompt in the paper's style."""
        return OPENING + (len(self.words) - 1) * (REPLY + RESULT)

    @property
    def paper_sampled(self) -> int:
        """Tokens of the replies in the paper's style."""
        return self.count * {"forced": FORCED, "scored": 0}.get(self.kind, REPLY)


@dataclass
class Logged(Policy):
    """A policy whose replies are logged as ``kind``. ``free_text``: every reply has words of its own."""

    policy: Policy
    kind: str
    free_text: bool
    calls: list[Call] = field(default_factory=list)

    def must_diagnose(self, state: State) -> bool:
        return self.policy.must_diagnose(state)

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        return (await self.sample(state, (0,), forced, seed))[0]

    async def sample(self, state: State, numbers: Sequence[int], forced: bool, seed: int) -> list[Turn]:
        turns = await self.policy.sample(state, numbers, forced, seed)
        if self.free_text:
            thoughts = [derive_seed(seed, k, state.words) for k in numbers]
            turns = [
                replace(t, text=f"THINKING: {thought}\n{t.text}") for t, thought in zip(turns, thoughts, strict=True)
            ]
        sampled = sum(len(turn.token_ids) for turn in turns)
        kind = "forced" if forced and self.kind == "continuations" else self.kind
        self.calls.append(Call(kind, state.words, len(numbers), len(turns[0].prompt_ids), sampled))
        return turns

    async def score_diagnoses(self, state: State, names: Sequence[str], forced: bool) -> list[Turn]:
        turns = await self.policy.score_diagnoses(state, names, forced)
        self.calls.append(Call("scored", state.words, len(names), len(turns[0].prompt_ids), 0))
        return turns


def read_tokens(calls: Sequence[Call], routing: str) -> int:
    """Prompt tokens (paper's style) that servers must compute: all of them (``none``), or those that no earlier prompt
    on the same server began with, where servers serve whole cases (``case``) or requests go to any (``any``)."""
    if routing == "none":
        return sum(call.paper_prompt * call.count for call in calls)
    choose, known, total = random.Random(0), defaultdict(set), 0
    for call in calls:
        if call.kind == "scored":  # vLLM reads a scored prompt without its cache
            total += call.paper_prompt * call.count
            continue
        for _ in range(1 if routing == "case" else call.count):
            cache = known[0 if routing == "case" else choose.randrange(REPLICAS)]
            for depth in range(1, len(call.words) + 1):
                if call.words[:depth] not in cache:
                    cache.add(call.words[:depth])
                    total += OPENING if depth == 1 else REPLY + RESULT
            total += 1  # the last token is read again
    return total


def count(calls: Sequence[Call]) -> dict[str, float]:
    """Figures of one arm's calls."""
    found: dict[str, float] = Counter()
    for call in calls:
        found[f"{call.kind}_replies"] += call.count
        found[f"{call.kind}_states"] += 1
        found["own_sampled_tokens"] += call.sampled
        found["sampled_tokens"] += call.paper_sampled
    found["requests"] = sum(call.count for call in calls)
    found["requests_with_n"] = len(calls)
    by_server: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_server["frozen" if call.kind in ("continuations", "forced") else "policy"].append(call)
    for routing in ("none", "any", "case"):
        found[f"prompt_tokens_{routing}"] = sum(read_tokens(own, routing) for own in by_server.values())
    return found


class Simulation:
    """One batch of workups by a policy, and the calls of any algorithm that assigns credit to them."""

    def __init__(self, settings: Settings, cases: Path, folder: Path, batches: int):
        self.settings, self.run = settings, TrainingRun(settings, iterate_records(cases), folder, 0)
        self.model = open_model(ModelSpec.of_folder(folder, settings.policy))
        self.batches = batches

    def groups(self, free_text: bool) -> tuple[list[Group], Logged]:
        """The groups of the batches, and the log of their replies."""
        acting = Logged(self.run.agent(self.model), "rollouts", free_text)

        async def episodes() -> list[Group]:
            size = range(self.settings.training.group_size)

            async def group(step: int, place: int) -> Group:
                case = self.run.train[place]
                seeds = [self.run.episode_seed(case, step, i) for i in size]
                return await asyncio.gather(*(run_episode(self.run.environment, acting, case, s) for s in seeds))

            return await asyncio.gather(*(group(s, p) for s in range(self.batches) for p in self.run.batch(s)))

        return asyncio.run(episodes()), acting

    def credit(
        self, settings: Settings, groups: Sequence[Group], free_text: bool
    ) -> tuple[list[Call], dict[str, float]]:
        """The calls for the credit of these groups under other settings, and what the algorithm logs."""
        actor, frozen = (Logged(self.run.agent(self.model), kind, free_text) for kind in ("probes", "continuations"))
        kind = algorithm_class(settings.training.algorithm)
        algorithm = kind(Context(settings, self.run.environment, actor, lambda: frozen, 0))
        scored = asyncio.run(score_groups(algorithm, groups, 0))
        return actor.calls + frozen.calls, algorithm.finish(scored)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/step_requests.json"))
    parser.add_argument("--cases", type=Path, default=Path("results/cases/mimic_iv.jsonl"))
    parser.add_argument("--policy", type=Path, default=Path("results/policies/warm_start"))
    parser.add_argument("--configfile", type=Path, nargs="*", default=[], help="overlays over config.yaml")
    parser.add_argument("--batches", type=int, default=2, help="batches of 16 cases")
    parser.add_argument("--words", choices=("own", "free_text", "both"), default="both")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    base = resolve_variant(load_settings("config.yaml", *arguments.configfile), "cdpr")
    base = parse_settings(merge(base.model_dump(), {"credit": {"max_states": None}}))
    simulation, report = Simulation(base, arguments.cases, arguments.policy, arguments.batches), {}
    for free_text in {"own": (False,), "free_text": (True,), "both": (False, True)}[arguments.words]:
        groups, acting = simulation.groups(free_text)
        rollouts = count(acting.calls)
        style = "free_text" if free_text else "few_words"
        for name, change in {"grpo": None, **ARMS}.items():
            figures, metrics = dict(rollouts), {}
            if change is not None:
                settings = parse_settings(merge(base.model_dump(), {"credit": change}))
                calls, metrics = simulation.credit(settings, groups, free_text)
                figures = count(acting.calls + calls)
            row = {key: value / arguments.batches for key, value in figures.items()}
            row |= {key: metrics[key] for key in ("credit/selected_share",) if key in metrics}
            print(
                f"{style:10} {name:28}",
                "  ".join(f"{key} {value:,.6g}" for key, value in sorted(row.items())),
                flush=True,
            )
            report |= {f"{style}, {name}, {key}": round(value, 4) for key, value in sorted(row.items())}
    save(arguments.out, report | {"batches": arguments.batches, "torch": torch.__version__})


if __name__ == "__main__":
    main()
