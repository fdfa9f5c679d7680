"""Estimates, before a training with verl starts, how long it takes and what its judge costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from ...settings import Settings, judging_models
from ...settings.algorithms import algorithm_class, algorithm_options
from ..training_run import uses_frozen_policy
from .memory import GB, MemoryPlan, memory_plan


class Card(NamedTuple):
    """A GPU: its memory in GB, its speed in dense bfloat16 TFLOP/s, and the bandwidth of its memory in GB/s."""

    name: str
    memory: float
    tflops: float
    bandwidth: float


_CARDS = [Card("RTX 4090", 24, 165, 1008), Card("A100", 40, 312, 1555), Card("H100", 80, 989, 3350),
          Card("H20", 96, 148, 4000), Card("H200", 141, 989, 4800)]  # fmt: skip
_BANDWIDTH_SHARE, _ARITHMETIC_SHARE = 0.5, 0.35  # of their peaks, that servers and updates reach
_FORWARD, _UPDATE = 2, 8  # operations per weight and token: log-probabilities; forward twice and backward once
_QUESTION, _ANSWER = 400, 3  # tokens of a question to the judge and of its answer
_REQUEST = 0.003  # seconds of one core for a request (docs/benchmarks/token_requests.json)
_AMOUNTS = {"generated tokens": "tokens", "prompt tokens": "prompt", "requests": "requests"}


@dataclass(frozen=True)
class Behaviour:
    """The assumed behaviour of a policy, on which the work of a step depends. Lengths are in tokens.

    ``turns``: decisions of an episode, three examinations and a diagnosis (paper, Table 1: AEN about 3); ``opening``:
    length of the first prompt; ``reply`` and ``result``: lengths of a reply and of an observation; ``name``: length of
    a diagnosis without other words. The rest was measured by benchmarks/step_requests.py with the paper's settings.
    ``repeated``: share of decisions at a state that another trajectory of the group also visits; ``selected``: share of
    states that CDPR selects; ``examinations``: number of examinations among the candidate actions of a selected state;
    ``drawn``: share of their continuations that the group's own trajectories do not provide; ``goes_on``: probability
    that a continuation has another turn after a decision; ``visits``: number of trajectories that share a selected
    state.
    """

    turns: float = 4
    opening: float = 1200
    reply: float = 150
    result: float = 150
    name: float = 12
    repeated: float = 0.35
    selected: float = 0.98
    examinations: float = 3.5
    drawn: float = 0.78
    goes_on: float = 0.55
    visits: float = 2.5

    @classmethod
    def within(cls, settings: Settings) -> Self:
        """Return the default behaviour, with its turns and lengths cut to the limits of ``settings``."""
        policy, usual = settings.policy, cls()
        return replace(
            usual,
            turns=min(usual.turns, settings.environment.max_turns),
            opening=min(usual.opening, policy.max_prompt_tokens),
            reply=min(usual.reply, policy.max_turn_tokens),
        )

    @property
    def episode(self) -> float:
        """The number of tokens of a whole episode."""
        return self.opening + self.turns * self.reply + (self.turns - 1) * self.result

    @property
    def scored_prompt(self) -> float:
        """The mean number of tokens of a prompt at which a given reply is scored. vLLM computes all of them: its prefix
        cache keeps no log-probabilities."""
        return self.opening + (self.turns - 1) / 2 * (self.reply + self.result)


@dataclass(frozen=True)
class ServerWork:
    """The work of the rollout servers in one phase of a step: ``sequences`` generated at the same time, generated
    ``tokens``, ``prompt`` tokens that are not cached, ``requests``, and ``diagnoses`` for the judge."""

    sequences: float
    tokens: float
    prompt: float
    requests: float
    diagnoses: float = 0.0


@dataclass(frozen=True)
class StepEstimate:
    """The estimate of a training step: ``seconds`` and ``work`` of the servers, by phase. It assumes that equal states
    of a group are merged, that servers cache prompts, and that no continuation comes from the rollout cache of earlier
    steps."""

    seconds: dict[str, float]
    work: dict[str, ServerWork]

    @property
    def total(self) -> float:
        """The seconds of the whole step; its phases run one after another."""
        return sum(self.seconds.values())

    def sum_of(self, name: str) -> float:
        """The sum over all phases of a field of :class:`ServerWork`, such as ``tokens``."""
        return sum(getattr(work, name) for work in self.work.values())


def estimate_step(settings: Settings) -> StepEstimate:
    """Estimate the time and the work of a training step under these settings. Raises SettingsError where the model has
    no ``config.json``.

    Decoding is limited by memory bandwidth, because every token reads the weights and the keys and values of its
    sequence; prompts and updates are limited by arithmetic. Both reach a share of the numbers in a GPU's data sheet.
    """
    training, memory, behaviour = settings.training, memory_plan(settings), Behaviour.within(settings)
    work = step_work(settings, behaviour)
    seconds = {phase: _serving_seconds(settings, memory, behaviour, phase, load) for phase, load in work.items()}
    tokens = training.prompts_per_batch * training.group_size * behaviour.episode
    updates = training.inner_epochs + hasattr(algorithm_options(settings), "examinations")  # of the reader
    operations = (_FORWARD + _UPDATE * updates) * memory.model.parameters * tokens
    seconds["update"] = operations / (memory.gpus * nearest_card(settings).tflops * 1e12 * _ARITHMETIC_SHARE)
    return StepEstimate(seconds, work)


def step_work(settings: Settings, behaviour: Behaviour) -> dict[str, ServerWork]:
    """Estimate the work of the servers in a step, by phase: rollouts, then the continuations or scored replies from
    which the algorithm computes credit."""
    training, turns = settings.training, behaviour.turns
    trajectories = training.prompts_per_batch * training.group_size
    decisions = trajectories * turns
    prompts = training.prompts_per_batch * behaviour.opening + trajectories * (turns - 1) * behaviour.result
    work = {"rollouts": ServerWork(trajectories, decisions * behaviour.reply, prompts, decisions, trajectories)}
    if "credit" in algorithm_class(training.algorithm).reads:
        work |= _credit_work(settings, behaviour, trajectories)
    elif per_state := getattr(algorithm_options(settings), "continuations", 0):  # whole ones, by the policy itself
        count = decisions * per_state
        replies = count * (turns + 1) / 2
        prompts = (replies - count) * behaviour.result
        work["whole continuations"] = ServerWork(count, replies * behaviour.reply, prompts, replies, count)
    if scored := decisions * _scored_replies(settings):
        work["scoring"] = ServerWork(0, 0, scored * behaviour.scored_prompt, scored)
    return work


def _scored_replies(settings: Settings) -> int:
    """Count the given replies that are scored at every state: two names of the true disease, and with the option
    ``reading`` one to train on. With a reader: its belief now and after M results, the initial policy's requests, and M
    + 1 replies to train on. 0 for an algorithm that scores none, and for CDPR, whose credit is estimated apart."""
    algorithm, options = algorithm_class(settings.training.algorithm), algorithm_options(settings)
    if hasattr(options, "examinations"):
        return 2 * options.examinations + 3
    if "credit" in algorithm.reads or not algorithm.scoring_policies(settings):
        return 0
    return 2 + (getattr(options, "reading", "none") != "none")


def _credit_work(settings: Settings, behaviour: Behaviour, trajectories: float) -> dict[str, ServerWork]:
    """Estimate the work of CDPR's credit by phase: probes (sampled next actions), continuations after candidate
    actions, and what ends these: a forced diagnosis, or the scored probability of the true disease."""
    credit, n = settings.credit, settings.training.group_size
    decisions = trajectories * behaviour.turns
    merges = credit.merge != "none"
    # Of n trajectories the first repeats nothing; the assumed behaviour is that of groups of four.
    states = decisions * (1 - behaviour.repeated * 4 / 3 * (n - 1) / n if merges else 1)
    probes = max(0, states * credit.samples - (decisions if credit.own_actions == "counted" else 0))
    # verl's servers give one reply a request.
    work = {"probes": ServerWork(probes, probes * behaviour.reply, 0, probes)}
    selected = states * (1 if credit.select_all else behaviour.selected)
    if credit.max_states:
        visits = 1 + (behaviour.visits - 1) * (n - 1) / 3 if merges else 1
        selected = min(selected, trajectories * credit.max_states / visits)
    children = selected * min(behaviour.examinations, credit.candidates + 1)  # states after a candidate
    continuations = children * credit.continuations * (behaviour.drawn if credit.cache.scope != "off" else 1)
    replies = continuations * sum(behaviour.goes_on**h for h in range(credit.horizon))
    forced = continuations * behaviour.goes_on**credit.horizon  # continuations that have to be ended by a diagnosis
    # The frozen server took no part in the episodes: it reads the openings, and every evaluated reply with its result.
    prompt = trajectories / n * behaviour.opening + children * (behaviour.reply + behaviour.result)
    requests = children
    if credit.horizon:
        later = replies - continuations  # in words of their own; the first replies of a state are one request
        prompt += (later + forced) * behaviour.result
        ended = continuations - forced
        work["continuations"] = ServerWork(continuations, replies * behaviour.reply, prompt, children + later, ended)
        prompt, requests = 0, forced
    if credit.verdicts == "scored":
        ends = continuations if credit.horizon else children
        work["scoring"] = ServerWork(0, 0, ends * behaviour.scored_prompt, ends)
    else:
        work["forced diagnoses"] = ServerWork(forced, forced * behaviour.name, prompt, requests, forced)
    return work


def nearest_card(settings: Settings) -> Card:
    """Return the GPU model in :data:`_CARDS` whose memory is nearest to ``training.verl.gpu_memory_gb``."""
    return min(_CARDS, key=lambda card: abs(card.memory - settings.training.verl.gpu_memory_gb))


def _serving_seconds(
    settings: Settings, memory: MemoryPlan, behaviour: Behaviour, phase: str, work: ServerWork
) -> float:
    """Estimate the seconds that the servers of a phase need for its ``work``.

    A server generates as many sequences at the same time as its memory holds, with the first prompt of a case stored
    once. A decoding step adds a token to each sequence. It takes the longer of two times: to read weights, keys and
    values (memory bandwidth), or to compute (arithmetic)."""
    frozen = uses_frozen_policy(settings) and phase in ("continuations", "forced diagnoses", "scoring")
    server, card = memory.servers[-1 if frozen else 0], nearest_card(settings)
    opening_tokens = settings.training.prompts_per_batch / server.count * behaviour.opening
    fitting = (server.tokens - opening_tokens) / (behaviour.episode - behaviour.opening)  # sequences
    batch = max(1.0, min(work.sequences / server.count, server.at_once, fitting))
    length = (behaviour.opening + behaviour.episode) / 2  # of an open sequence, on average
    bytes_read = server.weights * GB + batch * length * memory.model.cache_bytes(server.gpus)
    compute = (
        _FORWARD * memory.model.parameters / (server.gpus * card.tflops * 1e12 * _ARITHMETIC_SHARE)
    )  # seconds a token
    step = max(bytes_read / (server.gpus * card.bandwidth * GB * _BANDWIDTH_SHARE), compute * batch)
    return (work.tokens / batch * step + work.prompt * compute) / server.count


def steps_of(settings: Settings) -> int:
    """Return the number of iterations of a training: ``training.steps``, or where that is not set ``training.epochs``
    epochs of ``data.train_cases`` cases."""
    training = settings.training
    return training.steps or training.epochs * (settings.data.train_cases // training.prompts_per_batch)


def _gpus(settings: Settings) -> int:
    """Count the GPUs of a run on all machines, with the GPU of a frozen server."""
    return settings.training.verl.nodes * settings.training.verl.gpus_of_node


def comparison_lines(columns: Mapping[str, Settings]) -> list[str]:
    """Write a table, as lines, that compares the time of a step and of the whole run under several settings.
    ``columns`` has the settings by the name of their column, GRPO's first."""
    import pandas as pd

    steps = {name: estimate_step(settings) for name, settings in columns.items()}
    grpo, *_ = steps.values()
    phases = dict.fromkeys(phase for step in steps.values() for phase in step.seconds)
    rows = {}
    for name, step in steps.items():
        hours = step.total * steps_of(columns[name]) / 3600
        rows[name] = {f"{phase}, s": step.seconds.get(phase) for phase in phases} | {
            "a step, s": step.total,
            "a step, times GRPO": step.total / grpo.total,
            **{f"{what}, thousands": step.sum_of(amount) / 1000 for what, amount in _AMOUNTS.items()},
            "time of one core for requests, s": step.sum_of("requests") * _REQUEST,
            "the run, days": hours / 24,
            "the run, GPU-hours": hours * _gpus(columns[name]),
        }
    return pd.DataFrame(rows).to_string(float_format="{:,.1f}".format, na_rep="").splitlines()


def duration_lines(settings: Settings) -> list[str]:
    """Write the lines of ``cdpr plan_training`` about the time of a run and the cost of its judge."""
    step, steps, gpus = estimate_step(settings), steps_of(settings), _gpus(settings)
    card, save_every = nearest_card(settings), settings.training.save_every
    hours, lost = step.total * steps / 3600, step.total * save_every / 3600
    return [
        f"{card.name}: {card.tflops} TFLOP/s, {card.bandwidth} GB/s; no continuation is cached from earlier steps",
        f"the run: {steps:,} steps, about {hours / 24:.1f} days on {gpus} GPU(s) = {hours * gpus:,.0f} GPU-hours",
        f"a checkpoint every {save_every} steps: a job that is killed loses at most {lost:.1f} hours",
        _judge_line(settings, step.sum_of("diagnoses"), steps),
    ]


def target_line(runs: Sequence[Settings]) -> str:
    """Write the line of ``cdpr plan_training`` about the total time of several trainings: ``runs`` are the settings of
    all trainings of the target ``reproduce_paper``."""
    seconds = [estimate_step(run).total * steps_of(run) for run in runs]
    hours = sum(time * _gpus(run) for time, run in zip(seconds, runs, strict=True)) / 3600
    days = f"about {sum(seconds) / 86400:,.0f} days if they run one after another"
    return f"reproduce_paper: {len(runs)} trainings, {days} = {hours:,.0f} GPU-hours in total"


def _judge_line(settings: Settings, diagnoses: float, steps: int) -> str:
    """Write the line of ``cdpr plan_training`` about the judge: its model, its ``diagnoses`` per step, and what they
    cost in a step and in the whole run of ``steps`` steps. The cost is left out where the model has no price."""
    model = judging_models(settings).get("judge.model")
    if model is None:
        return "judge: tables of names alone, which know the synthetic hospital; set judge.model for other cases"
    line = f"judge {model.label or model.id or model.where}: about {diagnoses:,.0f} diagnoses a step"
    if model.prices is None:
        return line
    usd = diagnoses * model.prices.usd(_QUESTION, _ANSWER)
    return f"{line}; {usd:.2f} USD a step, {usd * steps:,.0f} USD a run, no verdict reused"
