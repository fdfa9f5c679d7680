"""A critic from complete records: the policy learns from the results of examinations that it did not request.

A record has the results of all its examinations, so the value of each of them is known at every visited state without
a sampled token. A *reader* (a copy of the initial policy) learns a calibrated belief b over the diagnoses from the true
ones. With b' its belief behind the result, and b~ proportional to b^power, an examination a has the value

    g(s, a) = sum_d b'(d) (b~'(d) - b~(d)) - cost / w

in this case: what naming by b~ gains, as the reader expects it, less the price. A *critic* G(s, a) of belief and
requests so far learns the mean of g over cases. The policy learns the distribution over examinations that is
proportional to pi_0^(prior / tau) exp(G / tau), to diagnose where its mean G is below a threshold, and to
name the reader's likeliest diagnosis. docs/beyond-the-paper.md proves what g estimates and names relatives.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from ...agents.policy import PolicyAgent
from ...credit.belief import true_names, verb_and_name_values
from ...environment import FinalDiagnosis, RequestTest, State, Trajectory, Turn
from ...environment.state import render_action
from ...seeding import derive_seed
from ...settings import SettingsError, check_required
from ...settings.section import Section, key
from ..algorithm import Algorithm, Alternative, Context, Group, GroupAdvantages, PerToken

if TYPE_CHECKING:
    import torch

_LEAST_SHARE = 0.01  # examinations with a smaller share of the target are left out of the loss


@dataclass(frozen=True)
class Visit:
    """A visited state: the number of its trajectory in the batch, its decision, and the length of its context in
    tokens. ``forced``: a diagnosis has to follow."""

    row: int
    turn: int
    state: State
    length: int
    forced: bool


@dataclass(frozen=True)
class Batch:
    """The S visited states of a batch, with D diagnoses and E examinations. ``contexts`` are the tokens of its
    trajectories; ``log_beliefs`` is log b [S, D]; ``log_prior`` [S, E] the initial policy's log-probability of each
    examination given a request, at least -10, and -1e4 for those ``requested`` (bool [S, E]) before."""

    contexts: Sequence[tuple[int, ...]]
    visits: Sequence[Visit]
    log_beliefs: "torch.Tensor"
    log_prior: "torch.Tensor"
    requested: "torch.Tensor"


class RecordCritic(Algorithm):
    """Cross-entropy of the policy against pi_0^(prior / tau) exp(G / tau) and the reader's diagnosis."""

    class Options(Section):
        examinations: PositiveInt = key(6, "Examinations whose results are read at every visited state.")
        power: PositiveFloat = key(2.0, "Power of the belief by which a diagnosis is named in the value.")
        temperature: PositiveFloat = key(0.003, "tau, in units of a right diagnosis.")
        prior: NonNegativeFloat = key(0.02)
        """Weight of the initial policy's log-probability of an examination, in units of a right diagnosis; the target
        is pi_0^(prior / tau) exp(G / tau)."""
        threshold: float = key(-0.015)
        """The policy learns to diagnose where the mean value of the target is below it, in units of a right
        diagnosis."""
        turn_price: NonNegativeFloat = key(0.018)
        """Price of a turn for an item of the physical examination where the utility does not count it as a test, in
        units of a right diagnosis."""
        start: int = key(10, "Iterations of reader and critic before choices are trained.", ge=0)
        critic: bool = key(True, "Off, a choice is trained on its values in this case, and the critic is not used.")
        reader: bool = key(True, "Off, only the temperature of the reader's belief is learned.")
        choice: bool = key(True, "Off, only the names of diagnoses are trained.")
        reading_weight: NonNegativeFloat = key(1.5, "Weight of a token of the name of a diagnosis.")
        learning_rate: PositiveFloat = key(1e-3, "Peak rate of reader and critic; that of matrices is 5 times as high.")

    reads = ("utility", "comparators")
    extra_samples = True
    # It trains a reader beside the tiny policy, in this process.
    requires: ClassVar = {
        "training.engine": "torch",
        "policy.model": "tiny",
        "environment.prompt.style": "compact",
        "training.temperature": 1.0,
    }

    def __init__(self, context: Context):
        super().__init__(context)
        check_required(type(self), self.settings)
        if context.load is None or not isinstance(context.policy, PolicyAgent):
            raise SettingsError(
                "training.algorithm: record_critic needs a model of its own: set training.engine: torch"
            )
        from ..torch.beliefs import Critic, Reader, distinct_names

        self.policy, self.prompts = context.policy, context.policy.prompts
        style, tokenizer = self.prompts.settings.style, self.prompts.tokenizer
        self.request_ids = tuple(tokenizer.encode(render_action(RequestTest(""), style).rstrip()))

        def reply(name: str) -> tuple[int, ...]:
            return (*tokenizer.encode(render_action(RequestTest(name), style)), tokenizer.end_of_turn)

        keys = (name for case in context.cases for name in case.key_pertinent_results_dict)
        requests = distinct_names(keys, lambda name: reply(name)[len(self.request_ids)])
        truths = (true_names(case)[0] for case in context.cases)
        diagnoses = distinct_names(truths, lambda name: tokenizer.encode(f" {name}")[0])
        self.request_tokens, self.diagnosis_tokens = list(requests), list(diagnoses)
        self.diagnoses = list(diagnoses.values())
        self.number = {name: number for number, name in enumerate(requests.values())}
        self.texts = [render_action(RequestTest(name), style) for name in self.number]
        self.replies = [reply(name) for name in self.number]
        self.initial: Any = context.load()
        rate, model = self.options.learning_rate, context.load()
        self.reader = Reader(model, list(diagnoses), rate, self.options.reader)
        self.critic = Critic(len(diagnoses), len(requests), rate, context.seed, next(model.parameters()).device)
        self.metrics: dict[str, float] = {}

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Return the training data of one group, as :meth:`score_batch` does."""
        return (await self.score_batch([group], iteration))[0]

    async def score_batch(self, groups: Sequence[Group], iteration: int) -> list[GroupAdvantages]:
        """Return, for each group, the replies that the policy shall learn; its own decisions have no weight. Then
        reader and critic learn from the same states."""
        import torch

        from ..torch.beliefs import rate_share

        batch = self._read([trajectory for group in groups for trajectory in group])
        seed = derive_seed(self.context.seed, "record_critic", iteration) % 2**63
        generator = torch.Generator().manual_seed(seed)
        values = self.critic(batch.log_beliefs, batch.requested) * self.options.critic
        pairs = self._pick(self._target(values, batch.log_prior), batch, generator)
        gains = torch.full_like(values, math.nan)
        gains[pairs.unbind(1)] = await self._gains(batch, pairs)
        if not self.options.critic:
            values = gains.nan_to_num(-1.0)
        target = self._target(values, batch.log_prior)
        value = (target * values).sum(1)
        continuing = torch.sigmoid((value - self.options.threshold) / self.options.temperature)
        chooses = self.options.choice and iteration >= self.options.start
        names, shares = batch.log_beliefs.argmax(1).tolist(), continuing.tolist()
        rows: Sequence[Sequence[float]] = target.tolist() if chooses else [()] * len(names)
        alternatives = await asyncio.gather(*(
            self._replies(visit, self.diagnoses[name], 1 - share if chooses else 0.0, [share * p for p in row])
            for visit, name, share, row in zip(batch.visits, names, shares, rows, strict=True)))  # fmt: skip
        share = rate_share(iteration, self.context.steps)
        self.metrics = {
            "credit/states": float(len(batch.visits)),
            "credit/examinations": float(len(pairs)),
            "credit/continuing": float(continuing.mean()),
            "credit/reading_loss": self.reader.learn(batch.log_beliefs, self._truths(batch), share),
            "credit/critic_loss": self.critic.learn(batch.log_beliefs, batch.requested, gains, share, generator),
        }
        return _by_group(groups, batch.visits, alternatives)

    def _read(self, trajectories: Sequence[Trajectory]) -> Batch:
        """Read every state of the trajectories: returns the reader's beliefs and the initial policy's choices there."""
        import torch

        from ..torch.beliefs import logits_behind

        visits = [visit for row, trajectory in enumerate(trajectories) for visit in self._visits(row, trajectory)]
        contexts = [self.prompts.context_ids(trajectory.states[-1]) for trajectory in trajectories]
        before = [(visit.row, visit.length, self.prompts.forced_prefix_ids) for visit in visits]
        log_beliefs = self.reader.log_beliefs(logits_behind(self.reader.model, contexts, before))
        with torch.no_grad():
            before = [(visit.row, visit.length, self.request_ids) for visit in visits]
            logits = logits_behind(self.initial, contexts, before)[:, self.request_tokens]
        requested = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
        for n, visit in enumerate(visits):
            for step in visit.state.history:
                name = step.observation.exam_key or getattr(step.action, "name", "")
                if name in self.number:
                    requested[n, self.number[name]] = True
        log_prior = torch.log_softmax(logits, dim=-1).clamp_min(-10).masked_fill(requested, -1e4)
        return Batch(contexts, visits, log_beliefs, log_prior, requested)

    def _visits(self, row: int, trajectory: Trajectory) -> list[Visit]:
        """List the visited states of a trajectory."""
        last = len(trajectory.steps) - 1
        return [
            Visit(row, t, state, len(self.prompts.context_ids(state)), trajectory.forced and t == last)
            for t, state in enumerate(trajectory.states)
        ]

    def _truths(self, batch: Batch) -> "torch.Tensor":
        """Return the number of the true diagnosis at every state, [S]."""
        import torch

        encode = self.prompts.tokenizer.encode
        tokens = [encode(f" {true_names(visit.state.case)[0]}")[0] for visit in batch.visits]
        return torch.tensor([self.diagnosis_tokens.index(token) for token in tokens], device=batch.log_beliefs.device)

    def _target(self, values: "torch.Tensor", log_prior: "torch.Tensor") -> "torch.Tensor":
        """Return the distribution over examinations that the policy learns, pi_0^(prior / tau) exp(values / tau),
        [S, E]."""
        return ((values + self.options.prior * log_prior) / self.options.temperature).softmax(1)

    def _pick(self, target: "torch.Tensor", batch: Batch, generator: "torch.Generator") -> "torch.Tensor":
        """Draw the pairs of a state and an examination to value, [P, 2]: without replacement, half by the target and
        half uniformly, from those that were not requested. None where a diagnosis has to follow."""
        import torch

        uniform = torch.rand(target.shape, generator=generator).to(target.device)
        odds = 0.5 * target + 0.5 / target.shape[1]
        keys = odds.log() - (-uniform.clamp(1e-9, 1 - 1e-6).log()).log()  # Gumbel's trick
        keys = keys.masked_fill(batch.requested, -math.inf)
        keys[[visit.forced for visit in batch.visits]] = -math.inf
        best = keys.topk(min(self.options.examinations, keys.shape[1]), dim=1)
        pairs = [(n, e) for n, row in enumerate(zip(*(part.tolist() for part in best), strict=True))
                 for value, e in zip(*row, strict=True) if value > -math.inf]  # fmt: skip
        return torch.tensor(pairs, dtype=torch.long, device=target.device).reshape(-1, 2)

    async def _gains(self, batch: Batch, pairs: "torch.Tensor") -> "torch.Tensor":
        """Compute g of each pair, [P], in units of a right diagnosis. An examination that the record lacks is charged
        and leaves the belief as it is."""
        import torch

        from ..torch.beliefs import branch_logits

        weight, environment = self.settings.comparators.correctness_weight, self.context.environment
        prices, branches, results = [], [], []
        for p, (n, e) in enumerate(pairs.tolist()):
            visit = batch.visits[n]
            context = batch.contexts[visit.row][: visit.length]
            turn = Turn(self.texts[e], context, self.replies[e])
            step = await environment.respond(visit.state, turn)
            prices.append(-self.return_of(0.0, step.effort) / weight)
            if step.effort.physical and not self.settings.environment.tests.count_physical:
                prices[-1] += self.options.turn_price
            if step.observation.kind == "result":
                ids = self.prompts.prompt_ids(visit.state.after(step), True)
                branches.append((visit.row, visit.length, ids[visit.length :]))
                results.append(p)
        gains = -torch.tensor(prices, device=batch.log_beliefs.device)
        if branches:
            with torch.no_grad():
                after = self.reader.log_beliefs(branch_logits(self.reader.model, batch.contexts, branches))
                now = batch.log_beliefs.detach()[pairs[results, 0]]
                gains[results] += net_gain(now, after, self.options.power)
        return gains

    async def _replies(self, visit: Visit, name: str, stop: float, shares: Sequence[float]) -> list[Alternative]:
        """Return the diagnosis ``name`` and the requests of the target as training data: the verb of the diagnosis has
        the weight ``stop``, a request its share."""
        requests = [] if visit.forced else [e for e, share in enumerate(shares) if share >= _LEAST_SHARE]
        texts = [render_action(FinalDiagnosis(name), self.prompts.settings.style), *(self.texts[e] for e in requests)]
        turns = await self.policy.score_replies(visit.state, texts, visit.forced)
        weights: list[PerToken] = [verb_and_name_values(self.policy, turns[0], stop, self.options.reading_weight)]
        weights += [shares[e] for e in requests]
        return [Alternative(0, (turn,), (1.0,), (weight,)) for turn, weight in zip(turns, weights, strict=True)]

    def finish(self, batch: Sequence[GroupAdvantages]) -> dict[str, float]:
        """Return the metrics of the batch that :meth:`score_batch` has scored."""
        return super().finish(batch) | self.metrics

    def state_dict(self) -> Any:
        """Return the state of reader and critic, with their optimisers."""
        return {"reader": self.reader.checkpoint(), "critic": self.critic.checkpoint()}

    def load_state_dict(self, state: Any) -> None:
        self.reader.restore(state["reader"])
        self.critic.restore(state["critic"])


def net_gain(before: "torch.Tensor", after: "torch.Tensor", power: float) -> "torch.Tensor":
    """Compute sum_d b'(d) (b~'(d) - b~(d)), [N], from log b and log b', each [N, D]; b~ is proportional to b^power."""
    return (after.exp() * ((power * after).softmax(1) - (power * before).softmax(1))).sum(1)


def _by_group(groups: Sequence[Group], visits: Sequence[Visit],
              alternatives: Sequence[Sequence[Alternative]]) -> list[GroupAdvantages]:  # fmt: skip
    """Collect the training data of each group from those of all visited states."""
    of_row: dict[int, list[Alternative]] = defaultdict(list)
    for visit, replies in zip(visits, alternatives, strict=True):
        of_row[visit.row] += replies
    scored, row = [], 0
    for group in groups:
        zeros = [[0.0] * len(trajectory.steps) for trajectory in group]
        others = [replace(other, i=i) for i in range(len(group)) for other in of_row[row + i]]
        scored.append(GroupAdvantages(decisions=zeros, weights=[row[:] for row in zeros], alternatives=others))
        row += len(group)
    return scored
