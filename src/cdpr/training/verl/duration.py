"""How long a run takes and what its judge costs: rough estimates from tokens and the speed of GPUs, made beforehand.

Decoding is bound by memory bandwidth (the weights and the open sequences' keys and values are read for every token),
updates by arithmetic. Both reach only a share of what the GPU's data sheet promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...settings import Settings, judging_models
from ...settings.algorithms import algorithm_class
from .memory import GB, MemoryPlan, ServerMemory, memory_plan

# Memory in GB: dense bfloat16 TFLOP/s and GB/s of the data sheet.
_CARDS = {
    24: ("RTX 4090", 165, 1008),
    40: ("A100", 312, 1555),
    80: ("H100", 989, 3350),
    96: ("H20", 148, 4000),
    141: ("H200", 989, 4800),
}
_SERVING, _TRAINING = 0.5, 0.35  # shares of peak bandwidth and of peak arithmetic that servers and updates reach
_FORWARD, _UPDATE = 2, 8  # operations per weight and token: log-probabilities; forward twice and backward once
_JUDGEMENT = 400, 3  # tokens of a question to the judge and of its answer


@dataclass(frozen=True)
class Workup:
    """A workup: decisions, tokens of its first prompt, of a reply and of a result, share of its states evaluated."""

    turns: float
    opening: float
    reply: float
    result: float
    selected: float

    @property
    def tokens(self) -> float:
        """Of the whole sequence."""
        return self.opening + self.turns * self.reply + (self.turns - 1) * self.result


@dataclass(frozen=True)
class StepEstimate:
    """One step: ``seconds`` and generated ``tokens`` by phase, and ``diagnoses`` to be judged."""

    seconds: dict[str, float]
    tokens: dict[str, float]
    diagnoses: float

    @property
    def total(self) -> float:
        """Seconds of the whole step, phases one after another."""
        return sum(self.seconds.values())


def card(settings: Settings) -> tuple[str, float, float]:
    """Name, TFLOP/s and GB/s of the card whose memory is nearest to ``training.verl.gpu_memory_gb``."""
    return _CARDS[min(_CARDS, key=lambda memory: abs(memory - settings.training.verl.gpu_memory_gb))]


def usual_workup(settings: Settings) -> Workup:
    """Three examinations and a diagnosis (paper, Table 1: AEN about 3), replies and results of 150 tokens."""
    policy = settings.policy
    turns = min(4.0, settings.environment.max_turns)
    return Workup(turns, min(1200, policy.max_prompt_tokens), min(150, policy.max_turn_tokens), 150, 0.5)


def longest_workup(settings: Settings) -> Workup:
    """Every turn used, every reply as long as it may be, every state evaluated."""
    policy, turns = settings.policy, settings.environment.max_turns
    results = max(0.0, policy.max_response_tokens / turns - policy.max_turn_tokens)
    return Workup(turns, policy.max_prompt_tokens, policy.max_turn_tokens, results, 1.0)


def estimate_step(settings: Settings, workup: Workup, memory: MemoryPlan | None = None) -> StepEstimate:
    """Seconds, tokens and diagnoses of a step whose workups are all like ``workup``. Raises SettingsError for a model
    without a configuration."""
    plan, memory, (_, tflops, _) = settings.training, memory or memory_plan(settings), card(settings)
    policy_server, *frozen_server = memory.servers
    trajectories = plan.prompts_per_batch * plan.group_size
    rollouts = trajectories * workup.turns
    seconds = {"rollouts": _serving_seconds(policy_server, settings, rollouts, workup)}
    tokens, diagnoses = {"rollouts": rollouts * workup.reply}, float(trajectories)
    for work in algorithm_class(plan.algorithm).credit_work(settings, workup.turns, workup.selected):
        server = frozen_server[0] if work.frozen and frozen_server else policy_server
        seconds[work.kind] = _serving_seconds(server, settings, work.replies, workup)
        tokens[work.kind] = work.replies * workup.reply
        diagnoses += work.diagnoses
    operations = (_FORWARD + _UPDATE * plan.inner_epochs) * memory.model.parameters * trajectories * workup.tokens
    seconds["update"] = operations / (memory.gpus * tflops * 1e12 * _TRAINING)
    return StepEstimate(seconds, tokens, diagnoses)


def _serving_seconds(server: ServerMemory, settings: Settings, replies: float, workup: Workup) -> float:
    """Seconds in which all servers of a kind give so many replies."""
    model, (_, tflops, bandwidth) = server.model, card(settings)
    batch = max(1.0, min(replies / server.count, server.at_once, server.tokens / workup.tokens))
    read = server.weights * GB + batch * workup.tokens * model.cache_bytes(server.gpus)
    by_memory = read / (server.gpus * bandwidth * GB * _SERVING)
    by_arithmetic = _FORWARD * model.parameters * batch / (server.gpus * tflops * 1e12 * _TRAINING)
    decoding = replies * workup.reply / server.count / batch * max(by_memory, by_arithmetic)
    reading = _FORWARD * model.parameters * replies * workup.result / server.count
    return decoding + reading / (server.gpus * tflops * 1e12 * _TRAINING)


def steps_of(settings: Settings) -> int:
    """Iterations of a run whose training split holds ``data.train_cases`` cases."""
    plan = settings.training
    return plan.steps or plan.epochs * ((plan.cases or settings.data.train_cases) // plan.prompts_per_batch)


def duration_lines(settings: Settings) -> list[str]:
    """What ``cdpr plan_training`` says of a run's time and of its judge."""
    usual, most = (estimate_step(settings, shape(settings)) for shape in (usual_workup, longest_workup))
    steps, gpus, (name, tflops, bandwidth) = steps_of(settings), _gpus(settings), card(settings)
    run = usual.total * steps
    phases = ", ".join(f"{phase} {seconds:.0f}" for phase, seconds in usual.seconds.items())
    save = usual.total * settings.training.save_every / 3600
    return [
        f"a step: about {usual.total:.0f} s ({phases}), at most {most.total:.0f} s; nothing shared, "
        f"{name}: {tflops:g} TFLOP/s and {bandwidth:g} GB/s a GPU",
        f"it generates about {sum(usual.tokens.values()):,.0f} tokens, at most {sum(most.tokens.values()):,.0f}",
        f"the run: {steps:,} steps, about {run / 86400:.1f} days on {gpus} GPU(s) = {run / 3600 * gpus:,.0f} GPU-hours",
        f"a checkpoint every {settings.training.save_every} steps: a job that is killed loses at most {save:.1f} hours",
        *_judge_lines(settings, usual.diagnoses, most.diagnoses, steps),
    ]


def target_line(runs: Sequence[Settings]) -> str:
    """Time of all trainings of a target, one after another."""
    seconds = [estimate_step(run, usual_workup(run)).total * steps_of(run) for run in runs]
    hours = sum(time * _gpus(run) for time, run in zip(seconds, runs, strict=True)) / 3600
    duration = f"about {sum(seconds) / 86400:.0f} days = {hours:,.0f} GPU-hours"
    return f"all {len(runs)} trainings of reproduce_paper, one after another: {duration}"


def _gpus(settings: Settings) -> int:
    """GPUs of a run, those of a frozen server of its own included."""
    verl = settings.training.verl
    return verl.nodes * (verl.gpus_per_node + (0 if verl.frozen.url or verl.frozen.beside else verl.frozen.gpus))


def _judge_lines(settings: Settings, usual: float, most: float, steps: int) -> list[str]:
    model = judging_models(settings).get("judge.model")
    if model is None:
        return [
            "judge: tables of names alone, which know the diagnoses of the synthetic hospital; set judge.model for "
            "other cases"
        ]
    line = f"judge {model.label or model.id or model.where}: about {usual:,.0f} diagnoses a step, at most {most:,.0f}"
    if model.prices is None:
        return [line]
    usd = model.prices.usd(*_JUDGEMENT)
    return [f"{line}; {usual * usd:.2f} USD a step, {usual * usd * steps:,.0f} USD a run, no verdict reused"]
