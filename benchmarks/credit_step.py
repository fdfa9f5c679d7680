"""What credit assignment costs: a GRPO step, a CDPR step, one with scored verdicts and no further decision, and a
literal CDPR step, side by side in one process.

Literal means to the letter of the paper and nothing shared: every trajectory's states are evaluated separately, n_s
actions are drawn besides the one taken, no continuation is ever reused. The arms take turns, step by step, on the same
cases from the same policy. Then the bookkeeping alone (environment, tree, pools, values), with a policy that answers at
once, for growing batches.

Needs the demo's cases and warm start: `snakemake --cores all results/policies/warm_start`. With `--model FOLDER` a real
model steps on the same cases with the paper's full prompt, on a GPU if there is one; its literal arm is left out.
Writes flat keys to results/benchmarks/credit_step.json.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import resource
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from _figures import save

from cdpr.cases import CaseRecord, iterate_records
from cdpr.credit.process_reward import ProcessReward
from cdpr.environment import DiagnosticEnvironment, Policy, State, Turn, run_episode
from cdpr.seeding import derive_seed
from cdpr.settings import Settings, load_settings, parse_settings, resolve_variant
from cdpr.settings.load import merge
from cdpr.training.torch.loop import iterate
from cdpr.training.torch.trainer import Trainer
from cdpr.training.training_run import TrainingRun

LITERAL = {"credit": {"merge": "none", "own_actions": "apart", "max_states": None, "cache": {"scope": "off"}}}
UNBUDGETED = {"credit": {"max_states": None}}
SCORED = {"credit": {"verdicts": "scored", "horizon": 0, "continuations": 1}}
BATCHES = (16, 64, 256, 1024)


def arms(settings: Settings) -> dict[str, Settings]:
    """The settings of each arm."""
    cdpr = resolve_variant(settings, "cdpr")
    scored = parse_settings(merge(cdpr.model_dump(), SCORED))
    by_name = {"grpo": resolve_variant(settings, "grpo"), "cdpr": cdpr, "cdpr_scored": scored}
    if cdpr.credit.max_states is not None:
        by_name["cdpr_unbudgeted"] = parse_settings(merge(cdpr.model_dump(), UNBUDGETED))
    return by_name | {"literal": parse_settings(merge(cdpr.model_dump(), LITERAL))}


def steps(arms: dict[str, Settings], cases: Path, policy: Path, count: int) -> dict[str, float]:
    """Mean seconds, tokens and rounds of a step of each arm, after one step that does not count."""
    trainers = {name: Trainer(TrainingRun(s, iterate_records(cases), policy, 0)) for name, s in arms.items()}
    gc.freeze()
    gc.disable()
    totals: dict[str, float] = {}
    for step in range(count + 1):
        for name, trainer in trainers.items():
            before = _work(trainer)
            start = time.perf_counter()
            iterate(trainer)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            gc.collect()
            if not step:
                continue
            after = _work(trainer)
            measured = {"seconds": seconds} | {kind: after[kind] - before[kind] for kind in after}
            for kind, value in measured.items():
                totals[f"{name}_{kind}"] = totals.get(f"{name}_{kind}", 0.0) + value / count
    gc.enable()
    return totals


def _work(trainer: Trainer) -> dict[str, int]:
    """Tokens and rounds of all samplers of a trainer so far."""
    kinds = ("generated_tokens", "scored_tokens", "prefilled_tokens", "decoded_tokens", "rounds")
    return {kind: sum(sampler.counters[kind] for sampler in trainer.samplers) for kind in kinds}


class AtOnce(Policy):
    """A policy that answers from a list: what is left is the bookkeeping."""

    def options(self, case: CaseRecord) -> list[str]:
        requests = [f"REQUEST_TEST: {exam}" for exam in itertools.islice(case.key_pertinent_results_dict, 6)]
        return [*requests, *["FINAL_DIAGNOSIS: Sepsis", f"FINAL_DIAGNOSIS: {case.diagnosis_results}"] * 2]

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        return (await self.sample(state, (0,), forced, seed))[0]

    async def sample(self, state: State, numbers: Sequence[int], forced: bool, seed: int) -> list[Turn]:
        options = self.options(state.case)[-2 if forced else 0 :]
        return [Turn(options[((seed >> 8) ^ (k * 2654435761)) % len(options)]) for k in numbers]


def bookkeeping(settings: Settings, cases: Path) -> dict[str, float]:
    """Microseconds per trajectory of rollouts and credit without a model (best of three, so without the first look at
    every case's examinations), and how the cache stays bounded."""
    some = list(itertools.islice(iterate_records(cases), 256))
    found: dict[str, float] = {}
    for size in BATCHES:
        batch = [some[k % len(some)].model_copy(update={"note_id": f"{k}"}) for k in range(size)]
        environment, policy, group_size = (
            DiagnosticEnvironment(settings.environment),
            AtOnce(),
            settings.training.group_size,
        )
        gc.collect()
        gc.freeze()
        gc.disable()
        best = float("inf")
        for _ in range(3):
            process = ProcessReward(environment, policy, AtOnce(), settings.credit, settings.utility, 0)
            start = time.perf_counter()
            groups = asyncio.run(_roll_out(environment, policy, batch, group_size))
            asyncio.run(process.score(groups, 0))
            best = min(best, time.perf_counter() - start)
            gc.collect()
        found[f"bookkeeping_us_per_trajectory_{size}"] = best / (size * group_size) * 1e6
        found[f"cache_entries_{size}"] = len(process.cache)
        gc.enable()
    peaks = [found[f"bookkeeping_us_per_trajectory_{size}"] for size in BATCHES]
    return found | {"bookkeeping_growth": peaks[-1] / peaks[0], "cache_capacity": settings.credit.cache.capacity}


async def _roll_out(environment, policy, cases, n: int):
    flat = await asyncio.gather(
        *(run_episode(environment, policy, c, derive_seed(c.note_id, i)) for c in cases for i in range(n))
    )
    return [list(flat[k : k + n]) for k in range(0, len(flat), n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/credit_step.json"))
    parser.add_argument("--cases", type=Path, default=Path("results/cases/mimic_iv.jsonl"))
    parser.add_argument("--policy", type=Path, default=Path("results/policies/warm_start"))
    parser.add_argument("--model", type=Path, help="Hugging Face folder of a real model; replaces --policy")
    parser.add_argument("--prompts", type=int, help="cases of a step (default: as configured)")
    parser.add_argument("--turn-tokens", type=int, default=128, help="tokens of a real model's turn")
    parser.add_argument("--steps", type=int, default=24, help="counted steps of each arm")
    parser.add_argument("--threads", type=int, default=1, help="of torch; the pipeline trains two runs side by side")
    arguments = parser.parse_args()
    if not arguments.policy.exists() or not arguments.cases.exists():
        parser.error(f"{arguments.policy} is missing; make it with: snakemake --cores all {arguments.policy}")
    torch.set_num_threads(arguments.threads)
    settings = load_settings(Path("config.yaml"))
    if arguments.prompts:
        sizes = {"prompts_per_batch": arguments.prompts, "mini_batch_prompts": arguments.prompts}
        settings = parse_settings(merge(settings.model_dump(), {"training": sizes}))
    if arguments.model:
        return with_real_model(settings, arguments)
    report = bookkeeping(resolve_variant(settings, "cdpr"), arguments.cases)
    report |= steps(arms(settings), arguments.cases, arguments.policy, arguments.steps)
    group = settings.training.prompts_per_batch * settings.training.group_size
    alone = report[f"bookkeeping_us_per_trajectory_{BATCHES[0]}"] * group / 1e6
    report |= {
        "cdpr_over_grpo_seconds": report["cdpr_seconds"] / report["grpo_seconds"],
        "cdpr_scored_over_grpo_seconds": report["cdpr_scored_seconds"] / report["grpo_seconds"],
        "cdpr_over_literal_seconds": report["cdpr_seconds"] / report["literal_seconds"],
        "cdpr_over_literal_tokens": report["cdpr_generated_tokens"] / report["literal_generated_tokens"],
        "cdpr_over_literal_decoded": report["cdpr_decoded_tokens"] / report["literal_decoded_tokens"],
        "bookkeeping_share": alone / report["cdpr_seconds"],
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    write(report, arguments)


def with_real_model(settings: Settings, arguments: argparse.Namespace) -> None:
    """A GRPO and a CDPR step of a real model: seconds, tokens a second, memory."""
    real = {
        "policy": {"model": str(arguments.model), "max_turn_tokens": arguments.turn_tokens},
        "environment": {"prompt": {"style": "full"}},
        "training": {"micro_batch": 2},
    }
    chosen = {name: parse_settings(merge(resolve_variant(settings, name).model_dump(), real))
              for name in ("grpo", "cdpr")}  # fmt: skip
    report = steps(chosen, arguments.cases, arguments.model, arguments.steps)
    for name in chosen:
        report[f"{name}_tokens_per_second"] = report[f"{name}_generated_tokens"] / report[f"{name}_seconds"]
    report["cdpr_over_grpo_seconds"] = report["cdpr_seconds"] / report["grpo_seconds"]
    report["peak_memory_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if torch.cuda.is_available():
        report["peak_gpu_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    write(report, arguments)


def write(report: dict[str, float], arguments: argparse.Namespace) -> None:
    """Figures with what they were measured on."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() and arguments.model else "cpu"
    on = {"steps": arguments.steps, "threads": arguments.threads, "device": device, "torch": torch.__version__}
    save(arguments.out, report | on)


if __name__ == "__main__":
    main()
