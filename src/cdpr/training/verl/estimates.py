"""Estimates of a run before anything starts: memory of each GPU, time, and the price of the judge.

Memory: upper bounds from the model's configuration, and a flat allowance for libraries. What does not fit is refused.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field, ValidationError

from ...agents.policy import longest_sequence
from ...settings import Settings, SettingsError, judging_models
from ...settings.algorithms import algorithm_class, algorithm_options
from ...settings.variants import seen_by_algorithm

GB = 1e9
ALLOWANCE = 3.0  # GB for the trainer's CUDA context, communication buffers and fragmentation
_ASLEEP = 1.5  # GB that a sleeping rollout server keeps: its CUDA context and graphs
OWN_SERVER = 0.85  # share of memory of a frozen server that has a GPU of its own
_MOST_SEQUENCES = 256  # in a rollout server at the same time (verl's rollout.max_num_seqs)
_CHUNK = 1024  # tokens whose logits are in memory at the same time
# By memory in GB: the card, its dense bfloat16 TFLOP/s and its GB/s.
_CARDS = {24: ("RTX 4090", 165, 1008), 40: ("A100", 312, 1555), 80: ("H100", 989, 3350), 96: ("H20", 148, 4000),
          141: ("H200", 989, 4800)}  # fmt: skip
_SERVING, _TRAINING = 0.5, 0.35  # shares of peak bandwidth and of peak arithmetic that servers and updates reach
_FORWARD, _UPDATE = 2, 8  # operations per weight and token: log-probabilities; forward twice and backward once
_JUDGEMENT = 400, 3  # tokens of a question to the judge and of its answer
_REQUEST = 0.003  # seconds of one core for a request (docs/benchmarks/token_requests.json)
_AMOUNTS = {"generated tokens": "tokens", "prompt tokens": "prompt", "requests": "requests"}


class ModelSize(BaseModel):
    """A decoder of the usual kind, by its ``config.json``: grouped-query attention and gated feed-forward layers."""

    hidden: int = Field(alias="hidden_size")
    layers: int = Field(alias="num_hidden_layers")
    heads: int = Field(alias="num_attention_heads")
    kv_heads: int = Field(alias="num_key_value_heads", default_factory=lambda known: known["heads"])
    head_dim: int = Field(default_factory=lambda known: known["hidden"] // known["heads"])
    intermediate: int = Field(alias="intermediate_size")
    vocab: int = Field(alias="vocab_size")
    tied: bool = Field(alias="tie_word_embeddings", default=False)
    positions: int = Field(alias="max_position_embeddings")

    @property
    def linear(self) -> int:
        """Weights of the matrices of one block."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """Weights of the whole model, norms left out."""
        return self.layers * self.linear + self.hidden * self.vocab * (1 if self.tied else 2)

    def adapters(self, rank: int) -> int:
        """Weights of LoRA adapters of this rank on every matrix of every block."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        ends = 2 * (self.hidden + q) + 2 * (self.hidden + kv) + 3 * (self.hidden + self.intermediate)
        return self.layers * rank * ends

    def cache_bytes(self, gpus: int) -> int:
        """Bytes of one token's keys and values in bfloat16 over all GPUs of a server: each holds at least one head."""
        return 2 * 2 * self.layers * max(self.kv_heads, gpus) * self.head_dim


def model_size(settings: Settings) -> ModelSize:
    """The model of ``policy.model``, from its ``config.json``. Raises SettingsError where that is missing or of another
    kind."""
    path = Path(settings.policy.model) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return ModelSize.model_validate({name: value for name, value in config.items() if value is not None})
    except (OSError, ValueError, AttributeError) as error:
        why = "{loc[0]}: {msg}".format(**error.errors()[0]) if isinstance(error, ValidationError) else error
        raise SettingsError(
            f"{path}: no configuration of a decoder that can be planned ({why}); get this file of the model (hf "
            f"download OWNER/NAME config.json --local-dir {path.parent}), or name its folder in policy.model"
        ) from error


# Memory


@dataclass(frozen=True)
class ServerMemory:
    """One of ``count`` servers over ``gpus`` GPUs: its memory and its weights in GB over all of them, the tokens whose
    keys and values fit beside the weights, and the most sequences at the same time."""

    name: str
    count: int
    gpus: int
    memory: float
    weights: float
    tokens: int
    at_once: int


@dataclass(frozen=True)
class MemoryPlan:
    """``phases``: memory of one training GPU in each phase of a step by part, in GB; ``servers``: the policy's, then
    the frozen one if its memory is known; ``longest``: tokens of the longest sequence."""

    model: ModelSize
    gpus: int
    gpu_memory: float
    longest: int
    phases: dict[str, dict[str, float]]
    servers: list[ServerMemory]

    def lines(self) -> list[str]:
        """The plan in words."""
        out = [f"model: {self.model.parameters / 1e9:.2f} billion weights on {self.gpus} training GPU(s)"]
        for phase, parts in self.phases.items():
            inside = ", ".join(f"{name} {size:.1f}" for name, size in parts.items() if size)
            out.append(f"{phase}: {sum(parts.values()):.1f} of {self.gpu_memory:g} GB a GPU ({inside})")
        for server in self.servers:
            out.append(
                f"{server.name}: {server.count} server(s) with {server.gpus} GPU(s) each, {server.memory:.1f} GB each; "
                f"weights {server.weights:.1f} GB, cache {server.tokens:,} tokens = "
                f"{server.tokens // self.longest} sequences of {self.longest:,}, up to {server.at_once} at once"
            )
        return out

    def check(self) -> None:
        """Raises SettingsError naming the part that does not fit and the setting to change."""
        for phase, parts in self.phases.items():
            if sum(parts.values()) > self.gpu_memory:
                largest = max(parts, key=lambda name: parts[name])
                raise SettingsError(
                    f"training.verl: {phase} needs {sum(parts.values()):.1f} GB of a GPU's {self.gpu_memory:g}, most "
                    f"of it {largest} ({parts[largest]:.1f} GB); {_REMEDIES[largest]}"
                )
        for server in self.servers:
            if server.tokens < self.longest:
                raise SettingsError(
                    f"training.verl: the {server.name} has {server.memory:.1f} GB, {server.weights:.1f} of it weights: "
                    f"its cache holds {max(0, server.tokens):,} tokens, fewer than one sequence of {self.longest:,}; "
                    "give it a larger share or more GPUs, or shorten policy.max_response_tokens"
                )
        if self.longest > self.model.positions:
            raise SettingsError(
                f"policy: prompts and replies reach {self.longest:,} tokens, the model {self.model.positions:,}; "
                "lower policy.max_response_tokens"
            )


_REMEDIES = {
    **dict.fromkeys(("weights", "gradients"), "use more GPUs, or training.verl.lora_rank"),
    "optimiser": "use more GPUs, training.verl.offload: true, or training.verl.lora_rank",
    "working weights": "use more GPUs or a smaller model",
    **dict.fromkeys(("activations", "logits"), "lower training.micro_batch"),
    "rollout server": "lower training.verl.rollout_memory, or set training.verl.offload: true",
    "frozen server": "lower training.verl.frozen.memory, or run that server elsewhere (frozen.memory: 0)",
    "allowance": "use GPUs with more memory",
}


def memory_plan(settings: Settings) -> MemoryPlan:
    """The plan of a run under these settings. Raises SettingsError for a model without a configuration."""
    verl, model, longest = settings.training.verl, model_size(settings), longest_sequence(settings)
    gpus, servers = verl.nodes * verl.gpus_per_node, _servers(settings, model)
    trained = model.adapters(verl.lora_rank) if verl.lora_rank else model.parameters
    held = model.parameters + (trained if verl.lora_rank else 0)
    resident = {"weights": 4 * held / gpus / GB, "optimiser": 8 * trained / gpus / GB}
    beside = needs_frozen(settings) and (verl.frozen.url or verl.frozen.beside)
    frozen = verl.frozen.memory * verl.gpu_memory_gb if beside else 0.0
    always = {"frozen server": frozen, "allowance": ALLOWANCE}
    logits = model.vocab * 10 / GB  # of one token, with what is computed from them
    scores = algorithm_class(settings.training.algorithm).scores_by(settings)
    rollout = {name: 0.0 if verl.offload else size for name, size in resident.items()}
    rollout |= {"rollout server": verl.rollout_memory * verl.gpu_memory_gb} | always
    rollout["logits"] = _CHUNK * logits if scores else 0.0  # vLLM takes no memory for those of a prompt beforehand
    # A transfer of the weights: those of the server, and all of them once more, in float32, where FSDP gathers them.
    whole = 4 * model.parameters / GB if gpus == 1 or verl.lora_rank else 0.0
    woken = _ASLEEP + servers[0].weights / servers[0].gpus
    transfer = resident | {"working weights": whole, "rollout server": woken} | always
    transfer["optimiser"] = rollout["optimiser"]
    # A forward and backward pass of one micro-batch of the longest trajectories, with gradient checkpointing.
    tokens = micro_batch(settings) * longest
    block = tokens * (34 * model.hidden + 6 * model.intermediate)  # bytes of one block's activations in bfloat16
    inputs = tokens * 2 * model.hidden * model.layers  # of every block, as checkpointing needs them
    update = resident | {
        # Those of the embedding and of the projection on the vocabulary in bfloat16, and their sum in float32.
        "gradients": (4 * trained / gpus + (0 if verl.lora_rank else 8 * model.hidden * model.vocab)) / GB,
        "working weights": 4 * (model.linear + model.hidden * model.vocab) / GB,  # two blocks, both ends in bfloat16
        "activations": (inputs + block) / GB,
        "logits": min(tokens, _CHUNK) * logits,
        "rollout server": _ASLEEP,
    }
    phases = {"rollouts": rollout, "update": update | always, "weights to the server": transfer}
    return MemoryPlan(model, gpus, verl.gpu_memory_gb, longest, phases, servers)


def micro_batch(settings: Settings) -> int:
    """Trajectories in one pass of a GPU: the most up to `training.micro_batch` (paper, appendix, Training details: "a
    per-GPU PPO micro-batch of 8") that divide a GPU's share of a batch and of a mini-batch, because verl needs equal
    parts. The loss does not depend on it."""
    plan, gpus = settings.training, settings.training.verl.nodes * settings.training.verl.gpus_per_node
    share = math.gcd(
        *(prompts * plan.group_size // gpus for prompts in (plan.prompts_per_batch, plan.mini_batch_prompts))
    )
    return max(size for size in range(1, min(plan.micro_batch, share) + 1) if share % size == 0)


def _servers(settings: Settings, model: ModelSize) -> list[ServerMemory]:
    """The policy's servers, and the frozen one where the algorithm needs it and its memory is known."""
    verl, frozen = settings.training.verl, settings.training.verl.frozen

    def server(name: str, count: int, gpus: int, share: float, bytes_per_weight: int, at_once: int) -> ServerMemory:
        memory, weights = share * verl.gpu_memory_gb * gpus, bytes_per_weight * model.parameters / GB
        free = memory - weights - ALLOWANCE * gpus / 2
        return ServerMemory(name, count, gpus, memory, weights, int(free * GB / model.cache_bytes(gpus)), at_once)

    gpus, size = verl.nodes * verl.gpus_per_node, verl.tensor_parallel
    bytes_per_weight = 1 if verl.quantization == "fp8" else 2
    servers = [server("rollout server", gpus // size, size, verl.rollout_memory, bytes_per_weight, _MOST_SEQUENCES)]
    if needs_frozen(settings) and frozen.url is None and not frozen.beside:
        servers.append(server("frozen server", 1, 1, OWN_SERVER, 2, _MOST_SEQUENCES))
    elif needs_frozen(settings) and frozen.memory:
        count = verl.gpus_per_node if frozen.beside else gpus
        servers.append(server("frozen server", count, 1, frozen.memory, 2, -(-frozen.at_once // count)))
    return servers


def cpus_of_ray(settings: Settings) -> int:
    """CPUs that the run's actors take in Ray, which waits for ever where there are fewer: two for TransferQueue, three
    beside every training GPU, two beside that of a frozen server that verl starts."""
    verl = settings.training.verl
    elsewhere = needs_frozen(settings) and verl.frozen.url is None and not verl.frozen.beside
    return 2 + 3 * verl.nodes * verl.gpus_per_node + 2 * elsewhere


def needs_frozen(settings: Settings) -> bool:
    """Whether continuations come from the frozen initial policy."""
    return algorithm_class(settings.training.algorithm).needs_frozen(seen_by_algorithm(settings))


# Time


@dataclass(frozen=True)
class Habits:
    """What a policy does, as far as the work of a step depends on it. Lengths are in tokens.

    ``turns``: decisions of a workup, three examinations and a diagnosis (paper, Table 1: AEN about 3); ``opening``: its
    first prompt; ``name``: a diagnosis alone. The rest is measured by benchmarks/step_requests.py with the paper's
    settings: ``repeated``, the share of decisions at a state that is another trajectory's too; ``selected``, of states
    that are evaluated; ``examinations`` evaluated at one of them; ``drawn``, the share of their continuations that no
    trajectory of the group gives; ``goes_on``, the probability that a continuation continues after a decision;
    ``visits``, the trajectories that spend their budget of states at the same one.
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
        """The usual ones, within the limits of these settings."""
        policy, usual = settings.policy, cls()
        return replace(
            usual,
            turns=min(usual.turns, settings.environment.max_turns),
            opening=min(usual.opening, policy.max_prompt_tokens),
            reply=min(usual.reply, policy.max_turn_tokens),
        )

    @property
    def workup(self) -> float:
        """Tokens of a whole workup."""
        return self.opening + self.turns * self.reply + (self.turns - 1) * self.result

    @property
    def scored_prompt(self) -> float:
        """Tokens of a prompt whose given continuation is scored. vLLM reads all of them: its cache keeps no
        log-probabilities."""
        return self.opening + (self.turns - 1) / 2 * (self.reply + self.result)


@dataclass(frozen=True)
class Work:
    """What a phase asks its servers: ``sequences`` beside each other, ``tokens`` generated in all of them, ``prompt``
    tokens that no server has read before; ``requests``, and ``diagnoses`` that are judged."""

    sequences: float
    tokens: float
    prompt: float
    requests: float
    diagnoses: float = 0.0


@dataclass(frozen=True)
class StepEstimate:
    """One step of usual workups: ``seconds`` and ``work`` by phase. States of a group that agree are one, and a server
    keeps the prompts that it has read; no continuation comes from the cache of earlier steps."""

    seconds: dict[str, float]
    work: dict[str, Work]

    @property
    def total(self) -> float:
        """Seconds of the whole step, phases one after another."""
        return sum(self.seconds.values())

    def sum_of(self, name: str) -> float:
        """``tokens``, ``prompt`` tokens, ``requests`` or ``diagnoses`` of all phases."""
        return sum(getattr(work, name) for work in self.work.values())


def estimate_step(settings: Settings) -> StepEstimate:
    """Decoding is bound by memory bandwidth, because the weights and the open sequences' keys and values are read for
    every token; prompts and updates are bound by arithmetic. All reach only a share of a GPU's data sheet. Raises
    SettingsError for a model without a configuration."""
    plan, memory, habits = settings.training, memory_plan(settings), Habits.within(settings)
    work = step_work(settings, habits)
    seconds = {phase: _serving_seconds(settings, memory, habits, phase, own) for phase, own in work.items()}
    tokens = plan.prompts_per_batch * plan.group_size * habits.workup
    operations = (_FORWARD + _UPDATE * plan.inner_epochs) * memory.model.parameters * tokens
    seconds["update"] = operations / (memory.gpus * _card(settings)[1] * 1e12 * _TRAINING)
    return StepEstimate(seconds, work)


def step_work(settings: Settings, habits: Habits) -> dict[str, Work]:
    """The work of servers in a step, by phase."""
    plan, turns = settings.training, habits.turns
    trajectories = plan.prompts_per_batch * plan.group_size
    prompts = plan.prompts_per_batch * habits.opening + trajectories * (turns - 1) * habits.result
    decisions = trajectories * turns
    work = {"rollouts": Work(trajectories, decisions * habits.reply, prompts, decisions, trajectories)}
    if "credit" in algorithm_class(plan.algorithm).reads:
        work |= _credit_work(settings, habits, trajectories)
    elif whole := getattr(algorithm_options(settings), "continuations", 0):  # of every state, by the policy itself
        count, replies = decisions * whole, decisions * whole * (turns + 1) / 2
        prompts = (replies - count) * habits.result
        work["whole continuations"] = Work(count, replies * habits.reply, prompts, replies, count)
    if scored := decisions * _scorings(settings):
        work["scoring"] = Work(0, 0, scored * habits.scored_prompt, scored)
    return work


def _scorings(settings: Settings) -> int:
    """Given replies whose probability is read at every state: two names of the disease, and one that is trained on."""
    kind, options = algorithm_class(settings.training.algorithm), algorithm_options(settings)
    if "credit" in kind.reads or not kind.scores_by(settings):
        return 0
    return 2 + (getattr(options, "reading", "none") != "none")


def _credit_work(settings: Settings, habits: Habits, trajectories: float) -> dict[str, Work]:
    """Probes by the policy; continuations of candidates and of the actions taken, and the diagnoses that end them."""
    credit, n = settings.credit, settings.training.group_size
    decisions = trajectories * habits.turns
    # Of n trajectories the first repeats nothing; habits are those of groups of four.
    states = decisions * (1 - (habits.repeated * 4 / 3 * (n - 1) / n if credit.merge != "none" else 0))
    probes = max(0, states * credit.samples - (decisions if credit.own_actions == "counted" else 0))
    selected = states * (1 if credit.select_all else habits.selected)
    if credit.max_states:
        visits = 1 + (habits.visits - 1) * (n - 1) / 3 if credit.merge != "none" else 1
        selected = min(selected, trajectories * credit.max_states / visits)
    children = selected * min(habits.examinations, credit.candidates + 1)
    continuations = children * credit.continuations * (habits.drawn if credit.cache.scope != "off" else 1)
    replies = continuations * sum(habits.goes_on**h for h in range(credit.horizon))
    forced = continuations * habits.goes_on**credit.horizon
    # The frozen server took no part in the workups: it reads the openings, and every evaluated reply with its result.
    read = trajectories / n * habits.opening + children * (habits.reply + habits.result)
    work = {"probes": Work(probes, probes * habits.reply, 0, probes)}  # verl's servers give one reply a request
    ends = children
    if credit.horizon:
        later = replies - continuations  # in words of their own; the first replies of a state are one request
        read += (later + forced) * habits.result
        ended = continuations - forced
        work["continuations"] = Work(continuations, replies * habits.reply, read, children + later, ended)
        read, ends = 0, forced
    if credit.verdicts == "scored":  # of every end
        ends = continuations if credit.horizon else children
        work["scoring"] = Work(0, 0, ends * habits.scored_prompt, ends)
    else:
        work["forced diagnoses"] = Work(forced, forced * habits.name, read, ends, forced)
    return work


def _card(settings: Settings) -> tuple[str, float, float]:
    """Name, TFLOP/s and GB/s of the card whose memory is nearest to ``training.verl.gpu_memory_gb``."""
    return _CARDS[min(_CARDS, key=lambda memory: abs(memory - settings.training.verl.gpu_memory_gb))]


def _serving_seconds(settings: Settings, memory: MemoryPlan, habits: Habits, phase: str, work: Work) -> float:
    """Seconds in which all servers of a phase generate its tokens, beside each other as many sequences as the memory
    holds, and read its prompts. The opening of a case is in a server's memory once."""
    frozen = needs_frozen(settings) and phase in ("continuations", "forced diagnoses", "scoring")
    server, (_, tflops, bandwidth) = memory.servers[-1 if frozen else 0], _card(settings)
    openings = settings.training.prompts_per_batch / server.count * habits.opening
    room = (server.tokens - openings) / (habits.workup - habits.opening)
    batch = max(1.0, min(work.sequences / server.count, server.at_once, room))
    length = (habits.opening + habits.workup) / 2  # of an open sequence, on average
    bytes_read = server.weights * GB + batch * length * memory.model.cache_bytes(server.gpus)
    arithmetic = _FORWARD * memory.model.parameters / (server.gpus * tflops * 1e12 * _TRAINING)  # seconds a token
    token = max(bytes_read / (server.gpus * bandwidth * GB * _SERVING), arithmetic * batch)
    return (work.tokens / batch * token + work.prompt * arithmetic) / server.count


def steps_of(settings: Settings) -> int:
    """Iterations of a run whose training split holds ``data.train_cases`` cases."""
    plan = settings.training
    return plan.steps or plan.epochs * (settings.data.train_cases // plan.prompts_per_batch)


def _gpus(settings: Settings) -> int:
    return settings.training.verl.nodes * settings.training.verl.gpus_of_node


def comparison_lines(columns: Mapping[str, Settings]) -> list[str]:
    """A table of a step and of the run under several settings, the first being GRPO's."""
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
    """Lines of ``cdpr plan_training`` on a run's time and its judge."""
    step, steps, gpus = estimate_step(settings), steps_of(settings), _gpus(settings)
    (card, tflops, bandwidth), save_every = _card(settings), settings.training.save_every
    hours, lost = step.total * steps / 3600, step.total * save_every / 3600
    return [
        f"{card}: {tflops} TFLOP/s, {bandwidth} GB/s; no continuation comes from the cache of earlier steps",
        f"the run: {steps:,} steps, about {hours / 24:.1f} days on {gpus} GPU(s) = {hours * gpus:,.0f} GPU-hours",
        f"a checkpoint every {save_every} steps: a job that is killed loses at most {lost:.1f} hours",
        _judge_line(settings, step.sum_of("diagnoses"), steps),
    ]


def target_line(runs: Sequence[Settings]) -> str:
    """Time of all trainings of a target, one after another."""
    seconds = [estimate_step(run).total * steps_of(run) for run in runs]
    hours = sum(time * _gpus(run) for time, run in zip(seconds, runs, strict=True)) / 3600
    days = f"about {sum(seconds) / 86400:,.0f} days if they run one after another"
    return f"reproduce_paper: {len(runs)} trainings, {days} = {hours:,.0f} GPU-hours in total"


def _judge_line(settings: Settings, diagnoses: float, steps: int) -> str:
    model = judging_models(settings).get("judge.model")
    if model is None:
        return "judge: tables of names alone, which know the synthetic hospital; set judge.model for other cases"
    line = f"judge {model.label or model.id or model.where}: about {diagnoses:,.0f} diagnoses a step"
    if model.prices is None:
        return line
    usd = diagnoses * model.prices.usd(*_JUDGEMENT)
    return f"{line}; {usd:.2f} USD a step, {usd * steps:,.0f} USD a run, no verdict reused"
