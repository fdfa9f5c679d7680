"""A critic from complete records: the policy learns from the results of examinations that it did not request.

The record of a case has the results of all its examinations, so at every visited state s the value of each examination
can be computed without sampling a token. Two models help, and both learn during the training:

A *reader*, a copy of the initial policy, learns from the true diagnoses a belief b(d), a calibrated distribution over
diagnoses d. Let b' be its belief after it has read the result of examination a. Diagnoses are assumed to be drawn from
a sharper distribution, b~ or b~', proportional to b^power. The value of a in this case is the gain in accuracy that the
reader expects, minus the price (w is the weight of a right diagnosis in the return):

    g(s, a) = sum_d b'(d) (b~'(d) - b~(d)) - cost / w

A *critic* G(s, a), a network that reads the belief and the requests so far, learns the mean of g over cases.

The policy learns three things: to choose examinations in proportion to pi_0^(prior / tau) exp(G / tau), where pi_0 is
the initial policy; to diagnose where the mean G of these choices is below 0; and to name the diagnosis that the reader
finds likeliest. docs/beyond-the-paper.md proves what g estimates, and names related methods.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from ...agents.policy import PolicyAgent
from ...credit.belief import true_names, values_by_token
from ...environment import FinalDiagnosis, RequestTest, State, Turn, render_action
from ...environment.state import render_differential
from ...seeding import derive_seed
from ...settings import Section, Settings, SettingsError, key
from ...settings.variants import check_required
from ..algorithm import Algorithm, Alternative, Context, Group, GroupAdvantages, PerToken

if TYPE_CHECKING:
    import torch

_LEAST_SHARE = 0.01  # a request that the policy shall make with a smaller probability is left out of the loss
_WARMUP = 5  # iterations in which the learning rate of reader and critic rises


class Visit(NamedTuple):
    """A state that trajectory number ``i`` of group number ``group`` visited. ``row`` is the number of this trajectory
    among all of the batch, ``length`` the number of tokens before the reply at the state. ``forced`` says that this
    reply had to be a diagnosis."""

    state: State
    group: int
    i: int
    row: int
    length: int
    forced: bool


class Batch(NamedTuple):
    """The S visited states of a batch (``visits``), for D diagnoses and E examinations.

    ``contexts`` has the tokens of each trajectory, without its last reply. ``log_beliefs`` [S, D] is the
    log-probability that the reader gives each diagnosis. ``first_lines`` [S] are the first lines of replies, which
    state this belief (:func:`~cdpr.environment.state.render_differential`). ``requested`` [S, E] is True for
    examinations that were requested before the state. ``log_prior`` [S, E] is the initial policy's log-probability of
    each examination, given that it requests one. It is at least -10, so that no examination is ruled out, but -1e4
    (nearly never) for those that were requested before."""

    contexts: Sequence[tuple[int, ...]]
    visits: Sequence[Visit]
    log_beliefs: "torch.Tensor"
    first_lines: Sequence[str]
    log_prior: "torch.Tensor"
    requested: "torch.Tensor"


class RecordCritic(Algorithm):
    """Trains the policy by cross-entropy on replies that this algorithm writes: at every visited state requests of
    examinations, in proportion to pi_0^(prior / tau) exp(G / tau), where pi_0 is the initial policy and G the critic's
    value of an examination; and the diagnosis that the reader finds likeliest."""

    class Options(Section):
        #: Most frequent diagnoses that the reader tells apart; all others are one entry, never named. Empty: all.
        diagnoses: PositiveInt | None = key(None)
        examinations: PositiveInt = key(6, "Examinations whose results are read at every visited state.")
        power: PositiveFloat = key(2.0, "Power of the belief by which a diagnosis is named in the value.")
        temperature: PositiveFloat = key(0.003, "tau, in units of a right diagnosis.")
        #: Weight of the initial policy's log-probability of an examination, in units of a right diagnosis; the target
        #: is pi_0^(prior / tau) exp(G / tau).
        prior: NonNegativeFloat = key(0.02)
        start: int = key(10, "Iterations of reader and critic before choices are trained.", ge=0)
        critic: bool = key(True, "Off, a choice is trained on its values in this case, and the critic is not used.")
        reader: bool = key(True, "Off, only the temperature of the reader's belief is learned.")
        choice: bool = key(True, "Off, only the names of diagnoses are trained.")
        reading_weight: NonNegativeFloat = key(1.5, "Weight of a token of the name of a diagnosis.")
        learning_rate: PositiveFloat = key(1e-3, "Peak rate of the reader; that of its matrices is 5 times as high.")
        critic_learning_rate: PositiveFloat = key(1e-3, "Peak rate of the critic.")

    reads = ("utility", "comparators")
    extra_samples = whole_batch = True
    requires: ClassVar = {"environment.prompt.style": "compact", "training.temperature": 1.0}

    def __init__(self, context: Context):
        """Create reader and critic in this process, and list the diagnoses and examinations of the training cases.
        Raises SettingsError for settings other than ``requires`` names, and for a context that no engine made."""
        super().__init__(context)
        check_required(self.settings)
        if context.load_initial_model is None or not isinstance(context.policy, PolicyAgent):
            raise SettingsError("training.algorithm: record_critic needs the initial model, which an engine loads")
        from ..torch.beliefs import Critic, NameList, Reader, by_frequency

        self.policy, self.prompts = context.policy, context.policy.prompts
        encode = self.prompts.tokenizer.encode
        end = self.prompts.tokenizer.end_of_turn
        # The E examinations that any case has. Lists over examinations have their order.
        self.request_prefix = tuple(encode(self._request_text("").rstrip()))  # the words before the name
        names = by_frequency(name for case in context.cases for name in case.key_pertinent_results_dict)
        self.request_texts = list(map(self._request_text, names))
        self.request_ids = [(*encode(text), end) for text in self.request_texts]
        self.examinations = NameList(names, [ids[len(self.request_prefix) :] for ids in self.request_ids])
        # The D diagnoses that any case has, by their canonical names, the first of the true names, as they follow
        # "FINAL_DIAGNOSIS:".
        known = by_frequency(true_names(case)[0] for case in context.cases)
        names = known[: self.options.diagnoses]
        self.diagnoses = NameList(names, [(*encode(f" {name}"), end) for name in names], names != known)
        # Three models: the initial policy as it is, the reader, which starts as a copy of it, and the critic.
        self.initial_model: Any = context.load_initial_model()
        rate, epsilon, model = (
            self.options.learning_rate,
            self.settings.training.adam_epsilon,
            context.load_initial_model(),
        )
        self.reader = Reader(model, self.diagnoses, rate, self.options.reader, epsilon)
        sizes, device = (self.diagnoses.size, self.examinations.size), next(model.parameters()).device
        self.critic = Critic(*sizes, self.options.critic_learning_rate, epsilon, context.seed, device)
        self.learners: list[Any] = [self.reader, self.reader.optimiser, self.critic, self.critic.adam]

    def _request_text(self, name: str) -> str:
        """Write the reply that requests the examination ``name``, in the style of the prompts."""
        return render_action(RequestTest(name), self.prompts.settings.style)

    @classmethod
    def scoring_policies(cls, settings: Settings) -> set[str]:
        """Return ``current``: the policy scores the replies that it shall learn."""
        return {"current"}

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Return the replies to learn for one group, as :meth:`score_batch` does for several."""
        return (await self.score_batch([group], iteration))[0]  # the only group

    async def score_batch(self, groups: Sequence[Group], iteration: int) -> list[GroupAdvantages]:
        """Return for each group the replies that the policy shall learn, as alternatives; the decisions of its own
        trajectories have weight 0, so they are not trained. Afterwards reader and critic take a learning step on the
        same states. The first group gets the counts of the whole batch.

        Arrays over the S visited states and the E examinations have the shape [S, E]."""
        import torch

        from ..torch.optimisers import warmup_and_cosine

        batch = self._read_states(groups)
        generator = torch.Generator().manual_seed(derive_seed(self.context.seed, "record_critic", iteration))
        # Value some examinations of each state by their results in the record: g, NaN for the others. The examinations
        # to value are drawn by the critic's values G, which are 0 where the option ``critic`` is off.
        values = self.critic(batch.log_beliefs, batch.requested) * self.options.critic
        pairs = self._draw_pairs(self._compute_target(values, batch.log_prior), batch, generator)
        gains = torch.full_like(values, math.nan)
        gains[pairs.unbind(1)] = await self._compute_gains(batch, pairs)
        if not self.options.critic:  # the policy learns from g itself; -1: examinations without g are never requested
            values = gains.nan_to_num(-1.0)
        # What the policy shall learn: a distribution over requests, and the probability of requesting at all.
        target = self._compute_target(values, batch.log_prior)
        mean_value = (target * values).sum(1)
        continuing = torch.sigmoid(mean_value / self.options.temperature)
        scored = await self._write_target_replies(groups, batch, target, continuing, iteration)
        # One learning step of reader and critic.
        rate_share = warmup_and_cosine(iteration, self.context.steps, _WARMUP)
        reading_loss = self.reader.learn(rate_share)
        critic_loss = self.critic.learn(batch.log_beliefs, batch.requested, gains, rate_share, generator)
        scored[0].counts = {  # of the whole batch: counts are summed over its groups
            "credit/states": float(len(batch.visits)),
            "credit/examinations": float(len(pairs)),
            "credit/continuing": float(continuing.mean()),
            "credit/reading_loss": reading_loss,
            "credit/critic_loss": critic_loss,
        }
        return scored

    def _read_states(self, groups: Sequence[Group]) -> Batch:
        """List the states that all trajectories visited, and read each by two models: the reader gives its belief over
        diagnoses, the initial policy its distribution over examinations. Each model reads a trajectory once, for all
        its states, and ``training.micro_batch`` trajectories in one pass."""
        import torch

        from ..torch.beliefs import Branch, in_parts, name_scores

        visits: list[Visit] = []
        contexts: list[tuple[int, ...]] = []
        # One visit for each state of each trajectory, and one context for each trajectory.
        for number, group in enumerate(groups):
            for i, trajectory in enumerate(group):
                for state in trajectory.states:
                    forced = trajectory.forced and state is trajectory.states[-1]
                    length = len(self.prompts.context_ids(state))
                    visits.append(Visit(state, number, i, len(contexts), length, forced))
                contexts.append(self.prompts.context_ids(trajectory.states[-1]))
        # The reader's belief: its distribution over the names of diagnoses after "FINAL_DIAGNOSIS:".
        size = self.settings.training.micro_batch
        before_diagnosis = [Branch(visit.row, visit.length, self.prompts.forced_prefix_ids) for visit in visits]
        any_other = len(self.diagnoses.names)  # the number of the entry for any other name
        truths = [self.diagnoses.number.get(true_names(visit.state.case)[0], any_other) for visit in visits]
        log_beliefs = self.reader.read(contexts, before_diagnosis, truths, size)
        # The initial policy's choice: its distribution over the names of examinations after the first line and
        # "REQUEST_TEST:".
        first_lines = self._write_first_lines(log_beliefs)
        before_exam = []
        for visit, line in zip(visits, first_lines, strict=True):
            ids = (*self.prompts.tokenizer.encode(line), *self.request_prefix)
            before_exam.append(Branch(visit.row, visit.length, ids))
        with torch.no_grad():
            parts = in_parts(contexts, before_exam, size)
            scores = torch.cat([name_scores(self.initial_model, *part, self.examinations) for part in parts])
        # Examinations that were requested before each state.
        requested = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        for n, visit in enumerate(visits):
            for step in visit.state.history:
                # The name on record; without a result, the name in the request. Other actions have the empty name.
                name = step.observation.exam_key or getattr(step.action, "name", "")
                if name in self.examinations.number:
                    requested[n, self.examinations.number[name]] = True
        # At least -10, so that no examination is ruled out; -1e4, nearly never, for those that were requested.
        log_prior = torch.log_softmax(scores, dim=-1).clamp_min(-10).masked_fill(requested, -1e4)
        return Batch(contexts, visits, log_beliefs, first_lines, log_prior, requested)

    def _write_first_lines(self, log_beliefs: "torch.Tensor") -> list[str]:
        """Write the first line of a reply at every state: the diagnoses that the reader finds likeliest, with their
        probabilities, as many as the prompt asks for. ``log_beliefs`` are the reader's, [S, D]."""
        listed = log_beliefs[:, : len(self.diagnoses.names)]
        shares, numbers = listed.exp().topk(self.prompts.settings.differential, dim=1)
        lines = []
        for numbers_here, shares_here in zip(numbers.tolist(), shares.tolist(), strict=True):
            names = [self.diagnoses.names[number] for number in numbers_here]
            lines.append(render_differential(zip(names, shares_here, strict=True)))
        return lines

    def _compute_target(self, values: "torch.Tensor", log_prior: "torch.Tensor") -> "torch.Tensor":
        """Compute the distribution over the E examinations that the policy shall learn at each of S states, [S, E]:
        pi_0^(prior / tau) exp(values / tau), normalised. ``values`` of the examinations, and ``log_prior``, log pi_0 of
        the initial policy, have the same shape. ``prior`` and ``tau`` are the options ``prior`` and
        ``temperature``."""
        return ((values + self.options.prior * log_prior) / self.options.temperature).softmax(1)

    def _draw_pairs(self, target: "torch.Tensor", batch: Batch, generator: "torch.Generator") -> "torch.Tensor":
        """Draw the examinations whose values are computed at every state. Returns P pairs of numbers, of a state and of
        an examination, [P, 2].

        At most ``options.examinations`` are drawn for a state, without replacement, from those that were not requested
        before. The weights are the mean of ``target`` [S, E], the distribution that the policy shall learn, and of a
        uniform distribution. None are drawn where the reply had to be a diagnosis."""
        import torch

        weights = 0.5 * target + 0.5 / target.shape[1]
        # Gumbel's trick: the largest of log-weights plus Gumbel noise are a sample without replacement. The noise is
        # -log(-log u) for uniform numbers u, which are kept off 0 and 1 so that it is finite.
        uniform = torch.rand(target.shape, generator=generator).to(target.device)
        noise = -(-uniform.clamp(1e-9, 1 - 1e-6).log()).log()
        keys = weights.log() + noise
        keys = keys.masked_fill(batch.requested, -math.inf)
        keys[[visit.forced for visit in batch.visits]] = -math.inf
        largest = keys.topk(min(self.options.examinations, keys.shape[1]), dim=1)
        is_drawn = largest.values > -math.inf  # fewer may be possible at a state
        states = torch.arange(len(keys), device=keys.device)[:, None].expand_as(largest.indices)
        return torch.stack([states[is_drawn], largest.indices[is_drawn]], dim=1)

    async def _compute_gains(self, batch: Batch, pairs: "torch.Tensor") -> "torch.Tensor":
        """Compute the value g of the examination in each of ``pairs`` [P, 2] (numbers of a state and an examination).
        Returns [P], in units of a right diagnosis: what the result is expected to add to the accuracy, minus the price.
        An examination that the record lacks adds nothing to the accuracy, but its request still has a price."""
        import torch

        from ..torch.beliefs import Branch, cached_name_scores

        weight, environment = self.settings.comparators.correctness_weight, self.context.environment
        prices: list[float] = []
        with_result: list[int] = []  # the numbers of the pairs whose examination has a result
        branches: list[Branch] = []  # what follows the state in these pairs: the request and its result, as tokens
        # Request the examination of each pair at its state.
        for pair, (n, exam) in enumerate(pairs.tolist()):
            visit, line = batch.visits[n], batch.first_lines[n]
            context = batch.contexts[visit.row][: visit.length]
            reply_ids = (*self.prompts.tokenizer.encode(line), *self.request_ids[exam])
            turn = Turn(line + self.request_texts[exam], context, reply_ids)
            step = await environment.respond(visit.state, turn)
            prices.append(-self.return_of(0.0, step.effort) / weight)
            if step.observation.kind == "result":
                prompt_ids = self.prompts.prompt_ids(visit.state.after(step), forced=True)
                branches.append(Branch(visit.row, visit.length, prompt_ids[visit.length :]))
                with_result.append(pair)
        gains = -torch.tensor(prices, device=batch.log_beliefs.device)
        # Add the gain in accuracy, from the reader's beliefs without and with the result.
        if branches:
            with torch.no_grad():
                scores = cached_name_scores(self.reader.model, batch.contexts, branches, self.diagnoses)
                after = self.reader.log_beliefs(scores)
                state_numbers, _ = pairs[with_result].unbind(1)
                before = batch.log_beliefs[state_numbers]
                gains[with_result] += net_gain(before, after, self.options.power, len(self.diagnoses.names))
        return gains

    async def _write_target_replies(
        self, groups: Sequence[Group], batch: Batch, target: "torch.Tensor", continuing: "torch.Tensor", iteration: int
    ) -> list[GroupAdvantages]:
        """Write the replies that the policy shall learn at each of the S states that the batch visits: the diagnosis
        that the reader finds likeliest, and requests of examinations.

        ``target`` [S, E] has the probability with which each of the E examinations shall be chosen, given that one is
        requested (:meth:`_compute_target`). ``continuing`` [S] is the probability with which the policy shall request
        an examination rather than diagnose. Before iteration ``options.start``, or without ``options.choice``, only the
        names of diagnoses are learned.

        Returns the advantages of each group. The replies are its ``alternatives``: replies to train on that are in no
        trajectory. The decisions of its trajectories have weight 0, so they are not trained."""
        trains_choice = self.options.choice and iteration >= self.options.start
        listed = batch.log_beliefs[:, : len(self.diagnoses.names)].max(1)
        names = [self.diagnoses.names[number] for number in listed.indices.tolist()]
        # Where the reader finds another diagnosis likelier than any of its list, no name is learned.
        is_likeliest = (listed.values >= batch.log_beliefs.max(1).values).tolist()
        # The replies at each state.
        calls = []
        for n, (visit, p_request) in enumerate(zip(batch.visits, continuing.tolist(), strict=True)):
            may_request = trains_choice and not visit.forced  # a forced reply is a diagnosis, without a first line
            stop_share = 1 - p_request if trains_choice else 0.0
            request_shares = [p_request * p for p in target[n].tolist()] if may_request else []
            first_line = "" if visit.forced else batch.first_lines[n]
            name_weight = self.options.reading_weight * is_likeliest[n]
            calls.append(self._write_replies_at(visit, first_line, names[n], name_weight, stop_share, request_shares))
        # Gather them by group. Weights of 0: what the group's trajectories did is not trained.
        scored = []
        for group in groups:
            decisions, weights = ([[0.0] * len(trajectory.steps) for trajectory in group] for _ in range(2))
            scored.append(GroupAdvantages(decisions=decisions, weights=weights, alternatives=[]))
        for visit, replies in zip(batch.visits, await asyncio.gather(*calls), strict=True):
            scored[visit.group].alternatives += replies
        return scored

    async def _write_replies_at(
        self, visit: Visit, first_line: str, name: str, name_weight: float, stop_share: float,
        request_shares: Sequence[float],
    ) -> list[Alternative]:  # fmt: skip
        """Write the replies to learn at a visited state: the diagnosis ``name``, and the request of each examination
        whose probability is at least :data:`_LEAST_SHARE`. All begin with ``first_line`` and have the advantage 1.

        ``stop_share`` is the probability with which the policy shall diagnose; it is the weight of each token before
        the disease's name. Each token of the name has the weight ``name_weight``. ``request_shares`` are the
        probabilities of the requests by number of the examination (empty: none is learned); each is the weight of all
        tokens of its request."""
        requests = [number for number, share in enumerate(request_shares) if share >= _LEAST_SHARE]
        diagnosis = render_action(FinalDiagnosis(name), self.prompts.settings.style)
        texts = [first_line + text for text in (diagnosis, *(self.request_texts[number] for number in requests))]
        turns = await self.policy.score_replies(visit.state, texts, visit.forced)
        # One weight for each turn: that of the diagnosis, then those of the requests.
        weights: list[PerToken] = [values_by_token(self.policy, turns[0], stop_share, name_weight)]
        weights += [request_shares[number] for number in requests]
        return [Alternative(visit.i, (turn,), (1.0,), (w,)) for turn, w in zip(turns, weights, strict=True)]

    def state_dict(self) -> Any:
        """Return the weights of reader and critic, the states of their optimisers, and the examples that the critic
        remembers."""
        states = [learner.state_dict() for learner in self.learners]
        return {"learners": states, "inputs": self.critic.inputs, "gains": self.critic.gains}

    def load_state_dict(self, state: Any) -> None:
        """Restore models, optimisers and the critic's examples from ``state``, a result of :meth:`state_dict`."""
        for learner, learner_state in zip(self.learners, state["learners"], strict=True):
            learner.load_state_dict(learner_state)
        device = self.critic.inputs.device
        self.critic.inputs, self.critic.gains = state["inputs"].to(device), state["gains"].to(device)


def net_gain(before: "torch.Tensor", after: "torch.Tensor", power: float, named: int) -> "torch.Tensor":
    """Compute the gain in accuracy that is expected of the result of an examination, for N examinations: sum_d b'(d)
    (b~'(d) - b~(d)), [N]. ``before`` and ``after`` are log b and log b' [N, D], the beliefs without and with the
    result. b~, proportional to b^power, is the distribution from which a diagnosis is drawn: one of the first ``named``
    of the list, which are all but the entry for any other name."""
    before, after = before[:, :named], after[:, :named]
    drawn_before, drawn_after = (power * before).softmax(1), (power * after).softmax(1)
    return (after.exp() * (drawn_after - drawn_before)).sum(1)
