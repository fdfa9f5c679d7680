"""Estimates, before a training with verl starts, how long it takes."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from ...settings import Settings
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
# Shares of a GPU's peak bandwidth and peak arithmetic that servers and updates reach.
_BANDWIDTH_SHARE, _ARITHMETIC_SHARE = 0.5, 0.35
# Arithmetic operations per weight and token: 2 in a forward pass, 8 in an update, which takes two forward passes (one
# is repeated for gradient checkpointing) and a backward pass of 4.
_FORWARD, _UPDATE = 2, 8


@dataclass(frozen=True)
class Behaviour:
    """The assumed behaviour of a policy, on which the work of a training step depends.

    Episodes: ``turns`` is the number of decisions, three examinations and a diagnosis (paper, Table 1: AEN about 3).
    Lengths in tokens: ``opening`` of the first prompt, ``reply`` of a reply, ``result`` of an observation, ``name`` of
    a diagnosis without other words.

    Credit, measured by benchmarks/step_requests.py with the paper's settings, among groups of four trajectories:
    ``repeated`` is the share of decisions whose state was counted already for another trajectory of the group.
    ``visits`` is the mean number of trajectories that share a selected state. ``selected`` is the share of states that
    CDPR selects. ``examinations`` is the mean number of examinations among the candidate actions of such a state.
    ``drawn`` is the share of their continuations that must be drawn; the group's own trajectories provide the others.
    ``goes_on`` is the probability that a continuation has another turn after a decision.
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
        usual, policy = cls(), settings.policy
        turns, opening = min(usual.turns, settings.environment.max_turns), min(usual.opening, policy.max_prompt_tokens)
        return replace(usual, turns=turns, opening=opening, reply=min(usual.reply, policy.max_turn_tokens))

    @property
    def episode(self) -> float:
        """The number of tokens of a whole episode."""
        return self.opening + self.turns * self.reply + (self.turns - 1) * self.result

    @property
    def scored_prompt(self) -> float:
        """The mean length, in tokens, of the prompt at a state of an episode. To score a reply that was not sampled,
        such as the true diagnosis, vLLM computes the whole prompt: its prefix cache keeps no log-probabilities."""
        return self.opening + (self.turns - 1) / 2 * (self.reply + self.result)


class ServerWork(NamedTuple):
    """The work of the rollout servers in one phase of a step: the number of ``sequences`` that are generated at the
    same time, of generated ``tokens``, of ``prompt`` tokens that are not cached, of ``requests``, and of ``diagnoses``
    that the judge gets."""

    sequences: float
    tokens: float
    prompt: float
    requests: float
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
    training, memory, behaviour = settings.training, memory_plan(settings), Behaviour.within(settings)
    work = step_work(settings, behaviour)
    seconds = {phase: _serving_seconds(settings, memory, behaviour, phase, load) for phase, load in work.items()}
    # The update: log-probabilities of all tokens under the old policy, then one pass per inner epoch.
    tokens = training.prompts_per_batch * training.group_size * behaviour.episode
    updates = training.inner_epochs + _has_reader(settings)  # the reader is updated once
    operations = (_FORWARD + _UPDATE * updates) * memory.model.parameters * tokens
    seconds["update"] = operations / (memory.gpus * nearest_card(settings).tflops * 1e12 * _ARITHMETIC_SHARE)
    verl = training.verl
    return StepEstimate(seconds, work, steps_of(settings), verl.nodes * verl.gpus_of_node)


def _has_reader(settings: Settings) -> bool:
    """Whether the algorithm of these settings trains a second model, a reader. Only ``record_critic`` does, and only
    its options have the field ``examinations``."""
    return hasattr(algorithm_options(settings), "examinations")


def step_work(settings: Settings, behaviour: Behaviour) -> dict[str, ServerWork]:
    """Estimate the work of the servers in a step, by phase: rollouts, then the continuations or scored replies from
    which the algorithm computes credit."""
    training, turns = settings.training, behaviour.turns
    trajectories = training.prompts_per_batch * training.group_size
    decisions = trajectories * turns
    # Rollouts: an opening is cached for its group; every result is read once.
    prompt = training.prompts_per_batch * behaviour.opening + trajectories * (turns - 1) * behaviour.result
    tokens = decisions * behaviour.reply
    work = {"rollouts": ServerWork(trajectories, tokens, prompt, requests=decisions, diagnoses=trajectories)}
    if "credit" in algorithm_class(training.algorithm).reads:  # CDPR
        work |= _credit_work(settings, behaviour, trajectories)
    elif per_state := getattr(algorithm_options(settings), "continuations", 0):
        # Continuations of every state to the end of its episode, which is (turns + 1) / 2 replies away on average.
        count = decisions * per_state
        replies = count * (turns + 1) / 2
        prompt = (replies - count) * behaviour.result
        work["whole continuations"] = ServerWork(count, replies * behaviour.reply, prompt, replies, diagnoses=count)
    if scored := decisions * _scored_replies(settings):  # no sequence is generated, no token
        work["scoring"] = ServerWork(0, 0, prompt=scored * behaviour.scored_prompt, requests=scored)
    return work


def _scored_replies(settings: Settings) -> int:
    """Count the replies that the algorithm writes itself at every state, and whose probability the servers compute.
    Returns 0 for an algorithm that writes none, and for CDPR, whose work :func:`_credit_work` estimates."""
    algorithm, options = algorithm_class(settings.training.algorithm), algorithm_options(settings)
    if _has_reader(settings):
        # The reader's belief without and with each result; the initial policy's choice; the replies to train on, which
        # are a request of each examination and a diagnosis.
        results = options.examinations
        return (1 + results) + 1 + (results + 1)
    if "credit" in algorithm.reads or not algorithm.scoring_policies(settings):
        return 0
    trains_reading = getattr(options, "reading", "none") != "none"
    return 2 + trains_reading  # two names of the true disease, and one reply to train on


def _credit_work(settings: Settings, behaviour: Behaviour, trajectories: float) -> dict[str, ServerWork]:
    """Estimate the work of CDPR's credit by phase: probes (sampled next actions), continuations after candidate
    actions, and what ends these: a forced diagnosis, or the scored probability of the true disease. ``trajectories`` is
    the number of episodes in a step."""
    credit, n = settings.credit, settings.training.group_size
    decisions = trajectories * behaviour.turns
    # The numbers of different states, and of visits of each, were measured in groups of 4. Of n trajectories all but
    # the first can repeat a state: a share of (n - 1) / n, in the measurement 3 / 4. A state is visited by one
    # trajectory and by a share of the n - 1 others, in the measurement 3.
    states, visits = decisions, 1.0
    if credit.merge != "none":
        states = decisions * (1 - behaviour.repeated * 4 / 3 * (n - 1) / n)
        visits = 1 + (behaviour.visits - 1) * (n - 1) / 3
    # Probes: verl's servers give one reply for each request. Unless ``credit.own_actions`` says otherwise, the group's
    # own decisions count as samples too, which need no request.
    probes = max(0, states * credit.samples - (decisions if credit.own_actions == "counted" else 0))
    work = {"probes": ServerWork(probes, probes * behaviour.reply, prompt=0, requests=probes)}
    # Continuations start at the states after the candidate actions of the selected states: examinations among the most
    # probable actions and the one that was taken.
    selected = states * (1 if credit.select_all else behaviour.selected)
    if credit.max_states:  # of each trajectory; a state that several trajectories visit counts for all of them
        selected = min(selected, trajectories * credit.max_states / visits)
    next_states = selected * min(behaviour.examinations, credit.candidates + 1)
    continuations = next_states * credit.continuations * (behaviour.drawn if credit.cache.scope != "off" else 1)
    # Their replies within the horizon, and how many reach it, so that a diagnosis has to be forced.
    replies = continuations * sum(behaviour.goes_on**h for h in range(credit.horizon))
    forced = continuations * behaviour.goes_on**credit.horizon
    # The frozen server took no part in the episodes: it reads the openings, and every evaluated reply with its result.
    # What it has read once is cached, also for the forced diagnoses.
    prompt = trajectories / n * behaviour.opening + next_states * (behaviour.reply + behaviour.result)
    requests = next_states
    if credit.horizon:
        later = replies - continuations  # each is a request of its own; all first replies of a state are one request
        prompt += (later + forced) * behaviour.result
        requests += later
        work["continuations"] = ServerWork(
            continuations, replies * behaviour.reply, prompt, requests, diagnoses=continuations - forced
        )
        prompt, requests = 0, forced  # of the diagnoses that end the continuations: their prompts are cached
    if credit.verdicts == "scored":
        # With horizon 0 no reply is drawn, so all continuations from a state end in the same scored diagnosis.
        scored = continuations if credit.horizon else next_states
        work["scoring"] = ServerWork(0, 0, prompt=scored * behaviour.scored_prompt, requests=scored)
    else:
        work["forced diagnoses"] = ServerWork(forced, forced * behaviour.name, prompt, requests, diagnoses=forced)
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
    by_frozen_policy = uses_frozen_policy(settings) and phase in ("continuations", "forced diagnoses", "scoring")
    # The servers of the policy come first in the plan, those of the frozen policy last.
    server, card = memory.servers[-1 if by_frozen_policy else 0], nearest_card(settings)
    # Sequences at the same time on one server: as many as there are, as are allowed, and as fit.
    opening_tokens = settings.training.prompts_per_batch / server.count * behaviour.opening
    fitting = (server.tokens - opening_tokens) / (behaviour.episode - behaviour.opening)
    batch = max(1.0, min(work.sequences / server.count, server.at_once, fitting))
    # Seconds to compute a token, and seconds of a decoding step.
    flops = server.gpus * card.tflops * 1e12 * _ARITHMETIC_SHARE  # operations a second
    token_seconds = _FORWARD * memory.model.parameters / flops
    mean_length = (behaviour.opening + behaviour.episode) / 2  # of an unfinished sequence
    bytes_read = server.weights * GB + batch * mean_length * memory.model.cache_bytes(server.gpus)
    step_seconds = max(bytes_read / (server.gpus * card.bandwidth * GB * _BANDWIDTH_SHARE), token_seconds * batch)
    return (work.tokens / batch * step_seconds + work.prompt * token_seconds) / server.count


def steps_of(settings: Settings) -> int:
    """Return the number of iterations of a training: ``training.steps``, or where that is not set ``training.epochs``
    epochs of ``data.train_cases`` cases, in whole batches."""
    training = settings.training
    return training.steps or training.epochs * (settings.data.train_cases // training.prompts_per_batch)
