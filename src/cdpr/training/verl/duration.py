"""Rough estimates of a run's time and of the price of its judge, from tokens and the data sheets of GPUs.

Decoding is bound by memory bandwidth: the weights and the open sequences' keys and values are read for every token.
Updates are bound by arithmetic. Both reach only a share of the figures of the data sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...settings import Settings, judging_models
from ...settings.algorithms import algorithm_class
from .memory import GB, ServerMemory, memory_plan

# By memory in GB: the card, its dense bfloat16 TFLOP/s and its GB/s.
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
_SELECTED, _RESULT = 0.5, 150  # share of states that are evaluated; tokens of a result


@dataclass(frozen=True)
class Workup:
    """A usual workup: decisions, tokens of its first prompt and of a reply."""

    turns: float
    opening: float
    reply: float

    @property
    def tokens(self) -> float:
        """Tokens of the whole sequence."""
        return self.opening + self.turns * self.reply + (self.turns - 1) * _RESULT


@dataclass(frozen=True)
class StepEstimate:
    """One step: ``seconds`` by phase, generated ``tokens``, and ``diagnoses`` to be judged."""

    seconds: dict[str, float]
    tokens: float
    diagnoses: float

    @property
    def total(self) -> float:
        """Seconds of the whole step, phases one after another."""
        return sum(self.seconds.values())


def usual_workup(settings: Settings) -> Workup:
    """Three examinations and a diagnosis (paper, Table 1: AEN about 3), replies and results of 150 tokens."""
    policy, turns = settings.policy, min(4.0, settings.environment.max_turns)
    return Workup(turns, min(1200, policy.max_prompt_tokens), min(150, policy.max_turn_tokens))


def estimate_step(settings: Settings) -> StepEstimate:
    """Estimate of a step of usual workups, nothing shared. Raises SettingsError for a model without a configuration."""
    plan, memory, workup = settings.training, memory_plan(settings), usual_workup(settings)
    policy_server, *frozen_server = memory.servers
    trajectories = plan.prompts_per_batch * plan.group_size
    replies, diagnoses = trajectories * workup.turns, float(trajectories)
    seconds = {"rollouts": _serving_seconds(policy_server, settings, replies, workup)}
    for work in algorithm_class(plan.algorithm).credit_work(settings, workup.turns, _SELECTED):
        server = frozen_server[0] if work.frozen and frozen_server else policy_server
        seconds[work.kind] = _serving_seconds(server, settings, work.replies, workup)
        replies += work.replies
        diagnoses += work.diagnoses
    operations = (_FORWARD + _UPDATE * plan.inner_epochs) * memory.model.parameters * trajectories * workup.tokens
    seconds["update"] = operations / _arithmetic(settings, memory.gpus)
    return StepEstimate(seconds, replies * workup.reply, diagnoses)


def _card(settings: Settings) -> tuple[str, float, float]:
    """Name, TFLOP/s and GB/s of the card whose memory is nearest to ``training.verl.gpu_memory_gb``."""
    return _CARDS[min(_CARDS, key=lambda memory: abs(memory - settings.training.verl.gpu_memory_gb))]


def _arithmetic(settings: Settings, gpus: int) -> float:
    """Operations a second of so many GPUs."""
    return gpus * _card(settings)[1] * 1e12 * _TRAINING


def _serving_seconds(server: ServerMemory, settings: Settings, replies: float, workup: Workup) -> float:
    """Seconds in which all servers of a kind give so many replies."""
    model, bandwidth, arithmetic = server.model, _card(settings)[2], _arithmetic(settings, server.gpus)
    batch = max(1.0, min(replies / server.count, server.at_once, server.tokens / workup.tokens))
    read = server.weights * GB + batch * workup.tokens * model.cache_bytes(server.gpus)
    by_memory = read / (server.gpus * bandwidth * GB * _SERVING)
    by_arithmetic = _FORWARD * model.parameters * batch / arithmetic
    decoding = replies * workup.reply / server.count / batch * max(by_memory, by_arithmetic)
    return decoding + _FORWARD * model.parameters * replies * _RESULT / server.count / arithmetic


def steps_of(settings: Settings) -> int:
    """Iterations of a run whose training split holds ``data.train_cases`` cases."""
    plan = settings.training
    return plan.steps or plan.epochs * (settings.data.train_cases // plan.prompts_per_batch)


def _gpus(settings: Settings) -> int:
    """GPUs of a run, those of a frozen server of its own included."""
    verl = settings.training.verl
    return verl.nodes * (verl.gpus_per_node + (0 if verl.frozen.url or verl.frozen.beside else verl.frozen.gpus))


def duration_lines(settings: Settings) -> list[str]:
    """Lines of ``cdpr plan_training`` on a run's time and its judge."""
    step, steps, gpus = estimate_step(settings), steps_of(settings), _gpus(settings)
    card, tflops, bandwidth = _card(settings)
    run, save_every = step.total * steps, settings.training.save_every
    phases = ", ".join(f"{name} {seconds:.0f}" for name, seconds in step.seconds.items())
    return [
        f"a step: about {step.total:.0f} s ({phases}); nothing shared, {card}: {tflops} TFLOP/s, {bandwidth} GB/s",
        f"it generates about {step.tokens:,.0f} tokens",
        f"the run: {steps:,} steps, about {run / 86400:.1f} days on {gpus} GPU(s) = {run / 3600 * gpus:,.0f} GPU-hours",
        f"a checkpoint every {save_every} steps: a job that is killed loses at most "
        f"{step.total * save_every / 3600:.1f} hours",
        _judge_line(settings, step.diagnoses, steps),
    ]


def target_line(runs: Sequence[Settings]) -> str:
    """Time of all trainings of a target, one after another."""
    seconds = [estimate_step(run).total * steps_of(run) for run in runs]
    hours = sum(time * _gpus(run) for time, run in zip(seconds, runs, strict=True)) / 3600
    duration = f"about {sum(seconds) / 86400:.0f} days = {hours:,.0f} GPU-hours"
    return f"all {len(runs)} trainings of reproduce_paper, one after another: {duration}"


def _judge_line(settings: Settings, diagnoses: float, steps: int) -> str:
    model = judging_models(settings).get("judge.model")
    if model is None:
        return "judge: tables of names alone, which know the synthetic hospital; set judge.model for other cases"
    line = f"judge {model.label or model.id or model.where}: about {diagnoses:,.0f} diagnoses a step"
    if model.prices is None:
        return line
    usd = diagnoses * model.prices.usd(*_JUDGEMENT)
    return f"{line}; {usd:.2f} USD a step, {usd * steps:,.0f} USD a run, no verdict reused"
