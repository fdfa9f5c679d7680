"""What one training step asks its servers for, counted from real episodes: requests, prompt tokens, sampled tokens.

A policy works up one batch of training cases, and the code of training assigns credit under several settings. Every
reply is logged with its state. From the log come the requests (one a reply, or one for all replies of a state), the
prompt tokens (without prefix cache; with one, where a case keeps to its server or every request goes to any), and the
sampled tokens, once in the policy's own tokens and once in those of the paper's prompt (`training.verl.plan`).
The figures that the planner takes from here are those of the arm `paper`.

With `--truth N` also the error of R_proc under each setting, against the true advantage from N whole continuations of
every state (`cdpr.evaluation.decision_credit`), with the initial policy acting and continuing. Two rules have no
setting:
`settled` draws two continuations of each candidate and the other two only where two left the sign of R_proc open.

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
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from _figures import save

from cdpr.cases import iterate_records
from cdpr.credit.process_reward import ProcessReward
from cdpr.credit.scores import CreditReport
from cdpr.environment import Policy, State, Turn, run_episode
from cdpr.evaluation.decision_credit import (
    CachedPolicy,
    credit_every_state,
    list_advantages,
    measure_errors,
    measure_truth,
    sample_groups,
)
from cdpr.llm import ModelSpec, open_model
from cdpr.seeding import derive_seed
from cdpr.settings import Settings, load_settings, parse_settings, resolve_variant
from cdpr.settings.algorithms import algorithm_class
from cdpr.settings.load import merge
from cdpr.settings.tables import read_table
from cdpr.training.algorithm import Context, Group, score_groups
from cdpr.training.training_run import TrainingRun
from cdpr.training.verl.plan import Behaviour, step_values, step_work

USUAL: dict[str, float] = read_table("cdpr.training.verl", "duration")["behaviour"]  # lengths with the paper's prompt
OPENING, REPLY, RESULT = (int(USUAL[name]) for name in ("opening", "reply", "result"))
REPLICAS = 8

PAPER = {"candidates": 4, "continuations": 4, "horizon": 3, "samples": 8, "max_states": None}
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
    """Replies of a server at a state, whose replies so far are ``words``; ``sampled``: their own tokens."""

    kind: str
    words: tuple[str, ...]
    texts: tuple[str, ...]
    sampled: int

    @property
    def count(self) -> int:
        """How many."""
        return len(self.texts)

    @property
    def paper_prompt(self) -> int:
        """Tokens of the prompt in the paper's style."""
        return OPENING + (len(self.words) - 1) * (REPLY + RESULT)

    @property
    def paper_sampled(self) -> int:
        """Tokens of the replies in the paper's style."""
        return self.count * {"forced": int(USUAL["name"]), "scored": 0}.get(self.kind, REPLY)


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
            thoughts = [derive_seed(seed, k, state.prompt_key) for k in numbers]
            turns = [
                replace(t, text=f"THINKING: {thought}\n{t.text}") for t, thought in zip(turns, thoughts, strict=True)
            ]
        sampled = sum(len(turn.token_ids) for turn in turns)
        kind = "forced" if forced and self.kind == "continuations" else self.kind
        self.calls.append(Call(kind, state.prompt_key, tuple(turn.text for turn in turns), sampled))
        return turns

    async def score_diagnoses(self, state: State, names: Sequence[str], forced: bool) -> list[Turn]:
        turns = await self.policy.score_diagnoses(state, names, forced)
        self.calls.append(Call("scored", state.prompt_key, tuple(names), 0))
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
                state = call.words[:depth]
                if state not in cache:
                    cache.add(state)  # a reply that this server drew is in its memory
                    total += OPENING if depth == 1 else RESULT if ("drawn", state) in cache else REPLY + RESULT
            cache.update(("drawn", (*call.words, text)) for text in call.texts)
            total += 1  # the last token is read again
    return total


def count(calls: Sequence[Call]) -> dict[str, float]:
    """Figures of one arm's calls."""
    counts: dict[str, float] = Counter()
    for call in calls:
        counts[f"{call.kind}_replies"] += call.count
        counts[f"{call.kind}_states"] += 1
        counts["own_sampled_tokens"] += call.sampled
        counts["sampled_tokens"] += call.paper_sampled
    counts["requests"] = sum(call.count for call in calls)
    counts["requests_with_n"] = len(calls)
    by_server: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_server["frozen" if call.kind in ("continuations", "forced") else "policy"].append(call)
    for routing in ("none", "any", "case"):
        counts[f"prompt_tokens_{routing}"] = sum(read_tokens(own, routing) for own in by_server.values())
    return counts


def settle(few: CreditReport, many: CreditReport, z: float) -> tuple[list[list[float | None]], float]:
    """R_proc from the continuations of ``few`` (two of each candidate) where it is ``z`` standard errors from zero, by
    the shares of right diagnoses, else from those of ``many``; and the share of decisions that needed these."""
    states = {visit: state for state in few.states for visit in state.visits}
    rows, open_signs = [list(row) for row in many.process], []
    for i, row in enumerate(few.process):
        for t, process in enumerate(row):
            if process is not None:
                candidates = [c for c in states[i, t].candidates if c.in_top_m and c.value is not None]
                variance = sum(c.correct * (1 - c.correct) for c in candidates) / max(1, len(candidates)) ** 2
                open_signs.append(abs(process) <= z * variance**0.5)
                rows[i][t] = many.process[i][t] if open_signs[-1] else process
    return rows, fmean(open_signs or [0.0])


class Simulation:
    """One batch of workups by a policy, and the calls of any algorithm that assigns credit to them."""

    def __init__(self, settings: Settings, cases: Path, folder: Path, batches: int):
        self.settings, self.run = settings, TrainingRun(settings, iterate_records(cases), folder, 0)
        self.model = open_model(ModelSpec.of_folder(folder, settings.policy))
        self.batches = batches

    def groups(self, free_text: bool) -> tuple[list[Group], Logged]:
        """The groups of the batches, and the log of their replies."""
        acting = Logged(self.run.make_agent(self.model), "rollouts", free_text)

        async def episodes() -> list[Group]:
            size = range(self.settings.training.group_size)

            async def group(step: int, place: int) -> Group:
                case = self.run.train[place]
                seeds = [self.run.episode_seed(case, step, i) for i in size]
                return await asyncio.gather(*(run_episode(self.run.environment, acting, case, s) for s in seeds))

            return await asyncio.gather(*(group(s, p) for s in range(self.batches) for p in self.run.batch_indices(s)))

        return asyncio.run(episodes()), acting

    def credit(
        self, settings: Settings, groups: Sequence[Group], free_text: bool
    ) -> tuple[list[Call], dict[str, float]]:
        """The calls for the credit of these groups under other settings, and what the algorithm logs."""
        actor, frozen = (
            Logged(self.run.make_agent(self.model), kind, free_text) for kind in ("probes", "continuations")
        )
        kind = algorithm_class(settings.training.algorithm)
        algorithm = kind(Context(settings, self.run.environment, actor, lambda: frozen, 0))
        scored = asyncio.run(score_groups(algorithm, groups, 0))
        return actor.calls + frozen.calls, algorithm.finish_batch(scored)

    async def errors(self, truth: int, cases: int, replicates: int) -> AsyncIterator[tuple[str, dict[str, float]]]:
        """Measures of R_proc of every arm, for all decisions of the first validation cases."""
        settings = parse_settings(merge(self.settings.model_dump(), {"analysis": {"truth": truth}}))
        policy, environment = self.run.make_agent(self.model), self.run.environment
        groups = await sample_groups(settings, environment, policy, self.run.validation[:cases])
        workups = await measure_truth(settings, environment, policy, groups)
        yield "truth", {"rms": float((workups.advantage**2).mean() ** 0.5), "decisions": len(workups)}

        async def estimate(change: dict, seed: int) -> list[CreditReport]:
            changed = parse_settings(merge(settings.model_dump(), {"credit": change}))
            actor, frozen = remembered, CachedPolicy(policy)
            credit = credit_every_state(changed.credit)
            return await ProcessReward(environment, actor, frozen, credit, changed.utility, seed).score(groups, 0)

        errors: dict[str, list] = defaultdict(list)
        drawn: dict[str, list[float]] = defaultdict(list)
        for replicate in range(replicates):
            seed, remembered = derive_seed(0, "replicate", replicate), CachedPolicy(policy)
            reports = {}
            for name, change in {**ARMS, "K 2": {"continuations": 2}}.items():
                if not {"max_states", "merge"} & change.keys():
                    reports[name] = await estimate(change, seed)
                    errors[name].append(list_advantages(workups, [report.process for report in reports[name]]))
                    drawn[name].append(sum(report.counts["fresh"] for report in reports[name]))
            for z in (0.0, 1.0, 2.0):
                rules = [settle(few, many, z) for few, many in zip(reports["K 2"], reports["paper"], strict=True)]
                errors[f"settled, z {z:g}"].append(list_advantages(workups, [rows for rows, _ in rules]))
                fresh = (
                    (few.counts["fresh"], many.counts["fresh"])
                    for few, many in zip(reports["K 2"], reports["paper"], strict=True)
                )
                counts = [a + share * (b - a) for (a, b), (_, share) in zip(fresh, rules, strict=True)]
                drawn[f"settled, z {z:g}"].append(sum(counts))
        for name, values in errors.items():
            row = measure_errors(np.array(values), workups)
            kept = ("rmse", "bias_rms", "rank_correlation", "right_signs")
            yield name, {key: row[key] for key in kept} | {"drawn": fmean(drawn[name])}


async def tabulated(rows: AsyncIterator[tuple[str, dict[str, float]]]) -> dict[str, float]:
    """Flat figures of the errors; each row is printed when it is there."""
    report = {}
    async for name, row in rows:
        print(f"error      {name:28}", "  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
        report |= {f"error, {name}, {key}": round(value, 4) for key, value in row.items()}
    return report


def measured_behaviour(rows: dict[str, dict[str, float]], trajectories: int) -> Behaviour:
    """The policy's behaviour that the planner needs, computed from the counts of the arms ``rows``; a batch has
    ``trajectories`` episodes."""
    grpo, paper, ends, budget = rows["grpo"], rows["paper"], rows["H 0, K 16"], rows["budget 2"]
    children, fresh = ends["forced_states"], paper["credit/fresh"]
    return USUAL | {
        "turns": grpo["rollouts_replies"] / trajectories,
        "repeated": 1 - paper["credit/states"] / rows["unshared"]["credit/states"],
        "selected": paper["credit/selected_share"],
        "examinations": children / (paper["credit/states"] * paper["credit/selected_share"]),
        "drawn": fresh / (PAPER["continuations"] * children),
        # A continuation has 1 + g + g^2 replies with a horizon of 3.
        "goes_on": (paper["continuations_replies"] / fresh - 0.75) ** 0.5 - 0.5,
        "visits": 2 * trajectories / (budget["credit/states"] * budget["credit/selected_share"]),
    }


def planned(settings: Settings, behaviour: Behaviour) -> dict[str, float]:
    """The planner's figures under the names of :func:`count`."""
    work = step_work(step_values(settings, behaviour))
    counts = {"requests_with_n": work.requests.sum(), "prompt_tokens_case": work.prompt.sum()}
    lengths = {"probes": behaviour["reply"], "continuations": behaviour["reply"], "forced diagnoses": behaviour["name"]}
    counts |= {
        f"{phase.split()[0]}_replies": work.tokens[phase] / lengths[phase] for phase in work.index if phase in lengths
    }
    return counts | {"sampled_tokens": work.tokens.sum()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/step_requests.json"))
    parser.add_argument("--cases", type=Path, default=Path("results/cases/mimic_iv.jsonl"))
    parser.add_argument("--policy", type=Path, default=Path("results/policies/warm_start"))
    parser.add_argument("--configfile", type=Path, nargs="*", default=[], help="overlays over config.yaml")
    parser.add_argument("--batches", type=int, default=2, help="batches of 16 cases")
    parser.add_argument("--truth", type=int, default=0, help="continuations of a state for its true value")
    parser.add_argument("--truth-cases", type=int, default=12)
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--words", choices=("own", "free_text", "both"), default="both")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    base = resolve_variant(load_settings("config.yaml", *arguments.configfile), "cdpr")
    base = parse_settings(merge(base.model_dump(), {"credit": PAPER}))
    simulation, report = Simulation(base, arguments.cases, arguments.policy, arguments.batches), {}
    for free_text in {"own": (False,), "free_text": (True,), "both": (False, True)}[arguments.words]:
        groups, acting = simulation.groups(free_text)
        style, rows, changed = "free_text" if free_text else "few_words", {}, {}
        for name, change in {"grpo": None, **ARMS}.items():
            calls, metrics = [], {}
            if change is not None:
                changed[name] = parse_settings(merge(base.model_dump(), {"credit": change}))
                calls, metrics = simulation.credit(changed[name], groups, free_text)
            sums = count(acting.calls + calls)
            sums |= {key: metrics[key] for key in ("credit/states", "credit/fresh") if metrics}
            rows[name] = {key: value / arguments.batches for key, value in sums.items()}
            rows[name] |= {key: metrics[key] for key in ("credit/selected_share",) if metrics}
            print(style, name, {key: round(value, 2) for key, value in rows[name].items()}, flush=True)
        size = base.training.prompts_per_batch * base.training.group_size
        behaviour = measured_behaviour(rows, size)
        print(style, behaviour)
        for name, settings in changed.items():
            plan = planned(settings, behaviour)
            rows[name] |= {f"planned_{key}": value for key, value in plan.items()}
            shares = {key: round(value / max(1, rows[name].get(key, 0)), 2) for key, value in plan.items()}
            print(style, name, "planned / counted", shares)
        for name, row in (rows | {"behaviour": behaviour}).items():
            report |= {f"{style}, {name}, {key}": round(value, 4) for key, value in sorted(row.items())}
    if arguments.truth:
        report |= asyncio.run(
            tabulated(simulation.errors(arguments.truth, arguments.truth_cases, arguments.replicates))
        )
    save(arguments.out, report | {"batches": arguments.batches, "torch": torch.__version__})


if __name__ == "__main__":
    main()
