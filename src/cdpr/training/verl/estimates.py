"""Estimates of a run before anything starts: memory of each GPU, time, and the price of the judge.

Memory: upper bounds from the model's configuration, and a flat allowance for libraries. A plan that does not fit is
refused with the setting to change. Time: decoding is bound by memory bandwidth, because the weights and the open
sequences' keys and values are read for every token; updates are bound by arithmetic. Both reach only a share of the
figures in a GPU's data sheet.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...agents.policy import longest_sequence
from ...settings import Settings, SettingsError, judging_models
from ...settings.algorithms import algorithm_class

GB = 1e9
ALLOWANCE = 3.0  # GB for CUDA contexts, communication buffers and fragmentation
OWN_SERVER = 0.85  # share of memory of a frozen server that has a GPU of its own
_MOST_SEQUENCES = 256  # in a rollout server at the same time (verl's rollout.max_num_seqs)
_CHUNK = 1024  # tokens whose logits are in memory at the same time
# By memory in GB: the card, its dense bfloat16 TFLOP/s and its GB/s.
_CARDS = {24: ("RTX 4090", 165, 1008), 40: ("A100", 312, 1555), 80: ("H100", 989, 3350), 96: ("H20", 148, 4000),
          141: ("H200", 989, 4800)}  # fmt: skip
_SERVING, _TRAINING = 0.5, 0.35  # shares of peak bandwidth and of peak arithmetic that servers and updates reach
_FORWARD, _UPDATE = 2, 8  # operations per weight and token: log-probabilities; forward twice and backward once
_JUDGEMENT = 400, 3  # tokens of a question to the judge and of its answer
_SELECTED, _RESULT = 0.5, 150  # share of states that are evaluated; tokens of a result


@dataclass(frozen=True)
class ModelSize:
    """A decoder of the usual kind: grouped-query attention and a gated feed-forward layer in every block."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    positions: int

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

    def cache_bytes(self, servers_gpus: int = 1) -> int:
        """Bytes of one token's keys and values in bfloat16 over all GPUs of a server: each GPU holds at least one
        head."""
        return 2 * 2 * self.layers * max(self.kv_heads, servers_gpus) * self.head_dim


def model_size(settings: Settings) -> ModelSize:
    """Sizes of the acting model from its ``config.json`` alone. Raises SettingsError where that is missing or of
    another kind."""
    if settings.policy.model == "tiny":
        tiny, room = settings.policy.tiny, settings.policy.max_prompt_tokens + settings.policy.max_response_tokens
        head_dim = tiny.hidden_size // tiny.heads
        sizes = tiny.hidden_size, tiny.layers, tiny.heads, tiny.kv_heads, head_dim, tiny.intermediate_size
        return ModelSize(*sizes, tiny.vocab_size, True, room)
    path = Path(settings.policy.model) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        heads = config["num_attention_heads"]
        return ModelSize(
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads", heads),
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=config["intermediate_size"],
            vocab=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings", False)),
            positions=config["max_position_embeddings"],
        )
    except OSError as error:
        raise SettingsError(
            f"{path}: {error.strerror}; policy.model must name a Hugging Face folder (config.json is enough to plan)"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path}: no configuration of a decoder that can be planned ({error!r})") from error


@dataclass(frozen=True)
class ServerMemory:
    """Memory of one of ``count`` servers and of its weights, in GB over all its GPUs; ``at_once``: most sequences at
    the same time."""

    name: str
    count: int
    gpus: int
    memory: float
    weights: float
    model: ModelSize
    at_once: int

    @property
    def tokens(self) -> int:
        """Tokens whose keys and values fit beside the weights."""
        free = self.memory - self.weights - ALLOWANCE * self.gpus / 2
        return int(free * GB / self.model.cache_bytes(self.gpus))

    def line(self, longest: int) -> str:
        """The server in words; ``longest``: tokens of the longest sequence."""
        return (
            f"{self.name}: {self.count} of {self.gpus} GPU(s), {self.memory:.1f} GB each; weights {self.weights:.1f} "
            f"GB, cache {self.tokens:,} tokens = {self.tokens // longest} sequences of {longest:,}, "
            f"up to {self.at_once} at once"
        )


@dataclass(frozen=True)
class MemoryPlan:
    """``phases``: memory of one training GPU in each phase of a step by part, in GB; ``servers``: the policy's, then
    the frozen one if its memory is known."""

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
        return out + [server.line(self.longest) for server in self.servers]

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
    verl, model = settings.training.verl, model_size(settings)
    gpus = verl.nodes * verl.gpus_per_node
    trained = model.adapters(verl.lora_rank) if verl.lora_rank else model.parameters
    held = model.parameters + (trained if verl.lora_rank else 0)
    resident = {"weights": 4 * held / gpus / GB, "optimiser": 8 * trained / gpus / GB}
    frozen = verl.frozen.memory * verl.gpu_memory_gb if verl.frozen.url or verl.frozen.beside else 0.0
    always = {"frozen server": frozen, "allowance": ALLOWANCE}
    rollout = {name: 0.0 if verl.offload else size for name, size in resident.items()}
    rollout |= {"rollout server": verl.rollout_memory * verl.gpu_memory_gb} | always
    update = resident | {"gradients": 4 * trained / gpus / GB} | _passing(settings, model) | always
    servers = [server for server in (_rollouts(settings, model), _frozen(settings, model)) if server]
    phases = {"rollouts": rollout, "update": update}
    return MemoryPlan(model, gpus, verl.gpu_memory_gb, longest_sequence(settings), phases, servers)


def micro_batch(settings: Settings) -> int:
    """Trajectories in one pass of a GPU: the most up to `training.micro_batch` (paper, appendix, Training details: "a
    per-GPU PPO micro-batch of 8") that divide a GPU's share of a batch and of a mini-batch, because verl needs equal
    parts. The loss does not depend on it."""
    plan, gpus = settings.training, settings.training.verl.nodes * settings.training.verl.gpus_per_node
    share = math.gcd(
        *(prompts * plan.group_size // gpus for prompts in (plan.prompts_per_batch, plan.mini_batch_prompts))
    )
    return max(size for size in range(1, min(plan.micro_batch, share) + 1) if share % size == 0)


def _passing(settings: Settings, model: ModelSize) -> dict[str, float]:
    """Memory of a forward and backward pass of one micro-batch of the longest trajectories by part, in GB."""
    tokens = micro_batch(settings) * longest_sequence(settings)
    block = tokens * (34 * model.hidden + 6 * model.intermediate)  # bytes of one block's activations in bfloat16
    inputs = tokens * 2 * model.hidden * model.layers  # the inputs of every block, as checkpointing needs them
    logits = min(tokens, _CHUNK) * model.vocab * 10
    gathered = 2 * (2 * model.linear + 2 * model.hidden * model.vocab)  # two blocks and both ends, in bfloat16
    return {"working weights": gathered / GB, "activations": (inputs + block) / GB, "logits": logits / GB}


def _rollouts(settings: Settings, model: ModelSize) -> ServerMemory:
    verl = settings.training.verl
    count = verl.nodes * verl.gpus_per_node // verl.tensor_parallel
    memory = verl.rollout_memory * verl.gpu_memory_gb * verl.tensor_parallel
    weights = model.parameters * (1 if verl.quantization == "fp8" else 2) / GB
    return ServerMemory("rollout server", count, verl.tensor_parallel, memory, weights, model, _MOST_SEQUENCES)


def _frozen(settings: Settings, model: ModelSize) -> ServerMemory | None:
    """None where its memory is unknown, or the algorithm needs none."""
    verl, frozen = settings.training.verl, settings.training.verl.frozen
    if not needs_frozen(settings) or (frozen.url and not frozen.memory):
        return None
    weights = 2 * model.parameters / GB
    if frozen.url is None and not frozen.beside:
        return ServerMemory("frozen server", 1, 1, OWN_SERVER * verl.gpu_memory_gb, weights, model, _MOST_SEQUENCES)
    count = verl.gpus_per_node * (1 if frozen.beside else verl.nodes)
    share = -(-frozen.at_once // count)
    return ServerMemory("frozen server", count, 1, frozen.memory * verl.gpu_memory_gb, weights, model, share)


def needs_frozen(settings: Settings) -> bool:
    """Whether continuations come from the frozen initial policy."""
    return algorithm_class(settings.training.algorithm).needs_frozen(settings)


@dataclass(frozen=True)
class UsualWorkup:
    """Decisions of a workup, tokens of its first prompt and of a reply."""

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


def usual_workup(settings: Settings) -> UsualWorkup:
    """Three examinations and a diagnosis (paper, Table 1: AEN about 3), replies and results of 150 tokens."""
    policy, turns = settings.policy, min(4.0, settings.environment.max_turns)
    return UsualWorkup(turns, min(1200, policy.max_prompt_tokens), min(150, policy.max_turn_tokens))


def estimate_step(settings: Settings) -> StepEstimate:
    """A step of usual workups without any reuse. Raises SettingsError for a model without a configuration."""
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


def _serving_seconds(server: ServerMemory, settings: Settings, replies: float, workup: UsualWorkup) -> float:
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
    """GPUs of a run, that of a frozen server of its own included."""
    verl = settings.training.verl
    return verl.nodes * (verl.gpus_per_node + (0 if verl.frozen.url or verl.frozen.beside else 1))


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
