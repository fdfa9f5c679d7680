"""Estimates, before a training with verl starts, how long it takes, from the work of a step (``duration.yaml``)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...settings import Settings
from ...settings.algorithms import algorithm_class, algorithm_options
from ..training_run import uses_frozen_policy
from .memory import GB, MemoryPlan, memory_plan
from .tables import add_quantities, evaluate, read_table


# Shares of a GPU's peak bandwidth and peak arithmetic that servers and updates reach.
_BANDWIDTH_SHARE, _ARITHMETIC_SHARE = 0.5, 0.35
# Arithmetic operations per weight and token: 2 in a forward pass, 8 in an update, which takes two forward passes (one
# is repeated for gradient checkpointing) and a backward pass of 4.
_FORWARD, _UPDATE = 2, 8

Behaviour = Mapping[str, float]  # of a policy: ``behaviour`` of ``duration.yaml``, by name


def behaviour_within(settings: Settings) -> Behaviour:
    """Return the assumed behaviour of a policy, with its turns and lengths cut to the limits of ``settings``."""
    policy, usual = settings.policy, read_table("duration")["behaviour"]
    limits = {"turns": settings.environment.max_turns, "opening": policy.max_prompt_tokens}
    limits["reply"] = policy.max_turn_tokens
    return usual | {name: min(usual[name], limit) for name, limit in limits.items()}


class ServerWork(NamedTuple):
    """The work of the rollout servers in one phase of a step: the number of ``sequences`` that are generated at the
    same time, of generated ``tokens``, of ``prompt`` tokens that are not cached, of ``requests``, and of ``diagnoses``
    that the judge gets."""

    sequences: float = 0.0
    tokens: float = 0.0
    prompt: float = 0.0
    requests: float = 0.0
    diagnoses: float = 0.0


class StepEstimate(NamedTuple):
    """The estimate of a training step: ``seconds`` by phase, and ``work`` of the servers by phase, which has no entry
    for the update. It assumes that servers cache prompts, and that no continuation comes from the rollout cache of
    earlier steps. ``steps`` is the number of steps of the whole run, ``gpus`` that of its GPUs on all machines, with
    the GPU of a frozen server if it has one of its own."""

    seconds: dict[str, float]
    work: dict[str, ServerWork]
    steps: int
    gpus: int

    @property
    def total(self) -> float:
        """The seconds of the whole step; its phases run one after another."""
        return sum(self.seconds.values())

    @property
    def hours(self) -> float:
        """The hours of the whole run."""
        return self.total * self.steps / 3600

    @property
    def gpu_hours(self) -> float:
        """The hours of the whole run, times its GPUs."""
        return self.hours * self.gpus

    def sum_of(self, name: str) -> float:
        """The sum over all phases of a field of :class:`ServerWork`, such as ``tokens``."""
        return sum(getattr(work, name) for work in self.work.values())


def estimate_step(settings: Settings) -> StepEstimate:
    """Estimate the time and the work of a training step under these settings. Raises SettingsError where the model's
    ``config.json`` is missing or of another kind of model (:func:`~.memory.model_size`).

    Decoding is limited by memory bandwidth, because every token reads the weights and the keys and values of its
    sequence; prompts and updates are limited by arithmetic. Both reach a share of the numbers in a GPU's data sheet.
    """
    training, verl, memory = settings.training, settings.training.verl, memory_plan(settings)
    values = step_values(settings, behaviour_within(settings))
    work = step_work(values)
    seconds = {phase: _serving_seconds(settings, memory, values, phase, load) for phase, load in work.items()}
    # The update: log-probabilities of all tokens under the old policy, then one pass per inner epoch.
    tokens = values["trajectories"] * values["episode"]
    updates = training.inner_epochs + values["trains_reader"]  # the reader is updated once
    operations = (_FORWARD + _UPDATE * updates) * memory.model.parameters * tokens
    seconds["update"] = operations / (memory.gpus * nearest_card(settings)["tflops"] * 1e12 * _ARITHMETIC_SHARE)
    return StepEstimate(seconds, work, steps_of(settings), verl.nodes * verl.gpus_of_node)


def step_values(settings: Settings, behaviour: Behaviour) -> dict[str, Any]:
    """Compute the quantities of ``duration.yaml`` for a policy with this ``behaviour``; returns them by name, with the
    values from which they were computed."""
    algorithm, options = algorithm_class(settings.training.algorithm), algorithm_options(settings)
    values = {
        "training": settings.training,
        "credit": settings.credit,
        "options": options,
        "uses_credit": "credit" in algorithm.reads,  # it is CDPR
        # Only ``record_critic`` trains a second model, a reader, and only its options have ``examinations``.
        "trains_reader": hasattr(options, "examinations"),
        "scores": algorithm.scoring_policies(settings),
        **behaviour,
    }
    return add_quantities(read_table("duration")["quantities"], values)


def step_work(values: Mapping[str, Any]) -> dict[str, ServerWork]:
    """Estimate the work of the servers in a step, by phase: rollouts, then the continuations or scored replies from
    which the algorithm computes credit. ``values`` are those of :func:`step_values`."""
    work = {}
    for phase, row in read_table("duration")["work"].items():
        if evaluate(row["if"], values):
            amounts = {name: evaluate(row[name], values) for name in ServerWork._fields if name in row}
            work[phase] = ServerWork(**amounts)
    return work


def nearest_card(settings: Settings) -> dict[str, Any]:
    """Return the GPU in ``duration.yaml`` whose memory is nearest to ``training.verl.gpu_memory_gb``: its ``name``, its
    ``memory`` in GB, its speed in dense bfloat16 TFLOP/s, ``tflops``, and its memory's ``bandwidth`` in GB/s."""
    cards = read_table("duration")["cards"]
    return min(cards, key=lambda card: abs(card["memory"] - settings.training.verl.gpu_memory_gb))


def _serving_seconds(
    settings: Settings, memory: MemoryPlan, values: Mapping[str, float], phase: str, work: ServerWork
) -> float:
    """Estimate the seconds that the servers of a phase need for its ``work``. ``values`` are those of
    :func:`step_values`.

    A server generates as many sequences at the same time as its memory holds, with the first prompt of a case stored
    once. A decoding step adds a token to each sequence. It takes the longer of two times: to read weights, keys and
    values (memory bandwidth), or to compute (arithmetic)."""
    by_frozen_policy = uses_frozen_policy(settings) and phase in ("continuations", "forced diagnoses", "scoring")
    # The servers of the policy come first in the plan, those of the frozen policy last.
    server, card = memory.servers[-1 if by_frozen_policy else 0], nearest_card(settings)
    # Sequences at the same time on one server: as many as there are, as are allowed, and as fit.
    opening, episode = values["opening"], values["episode"]
    opening_tokens = settings.training.prompts_per_batch / server.count * opening
    fitting = (server.tokens - opening_tokens) / (episode - opening)
    batch = max(1.0, min(work.sequences / server.count, server.at_once, fitting))
    # Seconds to compute a token, and seconds of a decoding step.
    flops = server.gpus * card["tflops"] * 1e12 * _ARITHMETIC_SHARE  # operations a second
    token_seconds = _FORWARD * memory.model.parameters / flops
    mean_length = (opening + episode) / 2  # of an unfinished sequence
    bytes_read = server.weights * GB + batch * mean_length * memory.model.cache_bytes(server.gpus)
    step_seconds = max(bytes_read / (server.gpus * card["bandwidth"] * GB * _BANDWIDTH_SHARE), token_seconds * batch)
    return (work.tokens / batch * step_seconds + work.prompt * token_seconds) / server.count


def steps_of(settings: Settings) -> int:
    """Return the number of iterations of a training: ``training.steps``, or where that is not set ``training.epochs``
    epochs of ``data.train_cases`` cases, in whole batches."""
    training = settings.training
    return training.steps or training.epochs * (settings.data.train_cases // training.prompts_per_batch)
