"""The two models of the training algorithm ``record_critic``. A reader turns a state into a belief, a distribution over
a list of diagnoses. A critic predicts the value of each examination. Both take forward passes only; no token is
sampled."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from ...seeding import derive_seed
from ..training_run import MAX_GRAD_NORM
from .optimisers import AdamW, MuonAndAdamW
from .update import Segment, token_logits

# One forward pass has at most so many branches, and so many bytes of keys and values of their contexts.
_BRANCHES, _CACHE_BYTES = 512, 1 << 30
_LEAST_REST = 1e-6  # probability of any name that is not in an open list, at least
_SCALE = 0.3  # by which a reader's scores of diagnoses are multiplied at first: the warm-started policy is too sure
_MUON_RATIO = 5.0  # the reader's learning rate of Muon (hidden matrices) as a multiple of that of AdamW
# The critic: units of its hidden layers, states that it remembers, states in a batch, optimiser steps per iteration.
_UNITS, _MEMORY_SIZE, _BATCH, _STEPS = 256, 8192, 256, 8


class Branch(NamedTuple):
    """Tokens ``ids`` that continue the first ``start`` tokens of a context, in place of the context's own next tokens.
    A context is a sequence of tokens; ``context`` is its number in a list of contexts."""

    context: int
    start: int
    ids: Sequence[int]


class NameList:
    """A list of names, between which a language model chooses token by token: up to the token with which no other name
    of the list continues, or in an open list up to the end. An open list has one more entry, for any other name; so N
    is the number of names or one more. ``stems`` are beginnings of names, after which the model is read; the empty one
    is the first.

    The score of a name is its log-probability, but for a number that all names at a state have in common. So the
    softmax over all scores is the model's distribution over the list."""

    def __init__(self, names: Sequence[str], ids: Sequence[Sequence[int]], is_open: bool = False):
        """Keep the ``names``. ``ids`` are the tokens of each with an end-of-turn token, so that no name is the
        beginning of another one."""
        self.names, self.number = names, {name: number for number, name in enumerate(names)}
        self.is_open, self.size = is_open, len(names) + is_open
        counts = Counter(tuple(row[:k]) for row in ids for k in range(1, len(row)))
        shared = sorted(stem for stem, count in counts.items() if count > 1 or is_open)
        self.stems: list[tuple[int, ...]] = [(), *shared]
        number_of_stem = {stem: number for number, stem in enumerate(self.stems)}
        self.first_tokens = [row[0] for row in ids]
        # Of each further token that tells a name from others: the number of the name, of the stem before it, and it.
        self.further = [
            (name, number_of_stem[stem], row[k])
            for name, row in enumerate(ids)
            for k in range(1, len(row))
            if (stem := tuple(row[:k])) in number_of_stem
        ]

    def scores(self, logits: torch.Tensor) -> torch.Tensor:
        """Compute the score of every name at P states, [P, N], from the ``logits`` of the token behind each stem, [P,
        stems, vocabulary]."""
        scores = logits[:, 0, self.first_tokens]
        if self.further:
            names, stems, tokens = torch.tensor(self.further, device=logits.device).unbind(1)
            scores = scores.index_add(1, names, logits.log_softmax(-1)[:, stems, tokens])
        if self.is_open:  # any other name has the rest of the probability
            scores = scores - logits[:, 0].logsumexp(-1, keepdim=True)
            rest = 1 - scores.exp().sum(1, keepdim=True)
            scores = torch.cat([scores, rest.clamp_min(_LEAST_REST).log()], dim=1)
        return scores


def by_frequency(names: Iterable[str]) -> list[str]:
    """List the distinct ``names``, the most frequent first, equally frequent ones in alphabetical order."""
    counts = Counter(names)
    return sorted(counts, key=lambda name: (-counts[name], name))


def in_parts(
    contexts: Sequence[Sequence[int]], branches: Sequence[Branch], size: int
) -> Iterator[tuple[Sequence[Sequence[int]], list[Branch]]]:
    """Divide ``contexts`` into parts of at most ``size``, each with its ``branches``."""
    for first in range(0, len(contexts), size):
        own = [b._replace(context=b.context - first) for b in branches if first <= b.context < first + size]
        yield contexts[first : first + size], own


def name_scores(
    model: Any, contexts: Sequence[Sequence[int]], branches: Sequence[Branch], names: NameList
) -> torch.Tensor:
    """Compute the score of every name behind each branch (:meth:`NameList.scores`), float32 [branches, N], with
    gradients. ``model`` is a causal language model, ``contexts`` are sequences of tokens, ``branches`` are in the order
    of their contexts. They should be short: a context and all its branches pass through the model as one row."""
    rows: list[list[Segment]] = [[Segment(0, ids, ())] for ids in contexts]
    for branch in branches:
        for stem in names.stems:
            # `token_logits` computes the logits by which a given token is predicted. Which does not matter, so it is 0.
            ids = (*branch.ids, *stem)
            end = branch.start + len(ids)
            rows[branch.context].append(Segment(branch.start, (*ids, 0), scored=(end,)))
    logits, _ = token_logits(model, rows)  # the other result has the tokens themselves
    return names.scores(logits.view(len(branches), len(names.stems), -1))


@torch.no_grad()
def cached_name_scores(
    model: Any, contexts: Sequence[Sequence[int]], branches: Sequence[Branch], names: NameList
) -> torch.Tensor:
    """Compute what :func:`name_scores` does, without gradients, for branches in any order, many or long ones: each
    context passes through the model once, and each branch once for all names."""
    device = next(model.parameters()).device
    # The contexts: their keys and values are cached.
    ids, is_token = _pad(contexts, device)
    cache = model.model(input_ids=ids, attention_mask=is_token, use_cache=True).past_key_values
    bytes_of_context = sum(states.nbytes for layer in _layers(cache) for states in layer) / len(contexts)
    size = min(_BRANCHES, max(1, int(_CACHE_BYTES / bytes_of_context)))
    # Behind a branch come the last tokens of all stems but the empty one. Each attends to the shorter ones within it.
    stems = names.stems[1:]
    last_ids = torch.tensor([stem[-1] for stem in stems], dtype=torch.int64, device=device)
    within = torch.tensor([[stem[: len(other)] == other for other in stems] for stem in stems], device=device)
    offsets = torch.tensor([len(stem) - 1 for stem in stems], dtype=torch.int64, device=device)
    # The branches, in batches of similar length, which saves padding.
    scores = torch.empty(len(branches), names.size, device=device)
    by_length = sorted(range(len(branches)), key=lambda number: len(branches[number].ids))
    for first in range(0, len(by_length), size):
        numbers = by_length[first : first + size]
        batch = [branches[number] for number in numbers]
        ids, is_token = _pad([branch.ids for branch in batch], device)
        start = torch.tensor([branch.start for branch in batch], device=device)
        # The numbers of cached tokens, with padding, of new ones in each row, and of both kinds of new columns.
        past, lengths, width = max(branch.start for branch in batch), is_token.sum(1), ids.shape[1]
        whole = width + len(stems)
        # A token of a branch attends to the tokens of its context before ``start``, and to those of the branch so far.
        attends = torch.ones(len(batch), 1, whole, past + whole, dtype=torch.bool, device=device)
        attends[..., :past] = (torch.arange(past, device=device) < start[:, None])[:, None, None]
        attends[..., past:] = attends[..., past:].tril()
        positions = start[:, None] + torch.arange(width, device=device)
        if stems:
            attends[..., width:, past : past + width] = is_token[:, None, None]
            attends[..., width:, past + width :] = within
            ids = torch.cat([ids, last_ids.expand(len(batch), -1)], dim=1)
            positions = torch.cat([positions, (start + lengths)[:, None] + offsets], dim=1)
        inputs = {"input_ids": ids, "attention_mask": attends, "position_ids": positions}
        cached_contexts = _select(cache, [branch.context for branch in batch], past)
        hidden = model.model(**inputs, past_key_values=cached_contexts, use_cache=True).last_hidden_state
        rows = torch.arange(len(batch), device=device)[:, None]
        columns = torch.cat([lengths[:, None] - 1, torch.arange(width, whole, device=device).expand(len(batch), -1)], 1)
        scores[numbers] = names.scores(model.lm_head(hidden[rows, columns]).float())
    return scores


def _pad(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows of tokens with 0 at their ends to equal length. Returns the rows (int64), and a mask of the same shape
    that is True where a row has a token."""
    width = max(map(len, rows))
    ids, is_token = np.zeros((len(rows), width), dtype=np.int64), np.zeros((len(rows), width), dtype=bool)
    for number, row in enumerate(rows):
        ids[number, : len(row)], is_token[number, : len(row)] = row, True
    return torch.from_numpy(ids).to(device), torch.from_numpy(is_token).to(device)


def _layers(cache: Any) -> list[list[torch.Tensor]]:
    """The keys and values of each layer of a cache, that of the tiny policy or one of transformers."""
    return [layer if isinstance(layer, list) else [layer.keys, layer.values] for layer in cache.layers]


def _select(cache: Any, sequences: list[int], length: int) -> Any:
    """Make a cache with the first ``length`` tokens of the given ``sequences`` of another (row numbers of the batch;
    one number can occur several times)."""
    return type(cache)([[states[sequences, :, :length] for states in layer] for layer in _layers(cache)])


class Reader(torch.nn.Module):
    """A language model that reads states, with its optimiser and a learned scale of its scores.

    Its belief b over the names of ``diagnoses`` is its distribution over this list where a diagnosis must follow.
    ``rate`` is the peak learning rate, ``epsilon`` that of Adam. If ``trains_model`` is False, only the scale is
    learned.
    """

    def __init__(self, model: Any, diagnoses: NameList, rate: float, trains_model: bool, epsilon: float):
        """Keep the model and the diagnoses, and create the scale of the scores and the optimiser."""
        super().__init__()
        self.model, self.diagnoses, self.loss = model, diagnoses, 0.0
        self.log_scale = torch.nn.Parameter(torch.tensor(_SCALE).log())
        self.to(next(model.parameters()).device)
        model.requires_grad_(trains_model)
        trained = model if trains_model else None
        self.optimiser = MuonAndAdamW(trained, _MUON_RATIO * rate, rate, [self.log_scale], epsilon)

    def log_beliefs(self, scores: torch.Tensor) -> torch.Tensor:
        """Compute the log-probability of each diagnosis from the scores of their names; both are [N, D]."""
        return torch.log_softmax(self.log_scale.exp() * scores, dim=-1)

    def read(
        self, contexts: Sequence[Sequence[int]], branches: Sequence[Branch], truths: Sequence[int], size: int
    ) -> torch.Tensor:
        """Compute the log-probability of each diagnosis behind each of N branches, [N, D], without gradients. The
        gradient for :meth:`learn` is computed in the same passes, each of at most ``size`` contexts: that of the mean
        cross-entropy with ``truths``, the numbers of the true diagnoses."""
        self.zero_grad(set_to_none=True)
        read: list[torch.Tensor] = []
        self.loss = 0.0
        for part, own in in_parts(contexts, branches, size):
            log_beliefs = self.log_beliefs(name_scores(self.model, part, own, self.diagnoses))
            done = sum(map(len, read))
            true = torch.tensor(truths[done : done + len(own)], device=log_beliefs.device)
            loss = torch.nn.functional.cross_entropy(log_beliefs, true, reduction="sum") / len(branches)
            loss.backward()
            self.loss += float(loss.detach())
            read.append(log_beliefs.detach())
        return torch.cat(read)

    def learn(self, rate_share: float) -> float:
        """Take one optimiser step with the gradient of the last :meth:`read`, at the share ``rate_share`` of the peak
        learning rate. Returns the loss. Raises FloatingPointError for a gradient that is not finite, and leaves the
        weights unchanged then."""
        if not torch.isfinite(torch.nn.utils.clip_grad_norm_(self.parameters(), MAX_GRAD_NORM)):
            raise FloatingPointError("the gradient of the reader is not finite; the step was stopped")
        self.optimiser.step(rate_share)
        return self.loss


class Critic(torch.nn.Module):
    """A network that predicts the value of each of E examinations at a state. Its inputs, for N states, are the
    reader's log-probabilities of D diagnoses, [N, D], and which examinations were requested, [N, E]. It keeps the last
    :data:`_MEMORY_SIZE` states from which it has learned, and learns from random batches of these. ``rate`` is its peak
    learning rate, ``epsilon`` that of Adam, ``seed`` fixes its first weights."""

    def __init__(self, diagnoses: int, examinations: int, rate: float, epsilon: float, seed: int, device: torch.device):
        """Create the network, which at first predicts 0 everywhere, its optimiser, and an empty memory of states."""
        super().__init__()
        self.rate = rate
        with torch.random.fork_rng(devices=[]):  # the caller's random state is left as it was
            torch.manual_seed(derive_seed(seed, "critic"))
            first, second = torch.nn.Linear(diagnoses + examinations, _UNITS), torch.nn.Linear(_UNITS, _UNITS)
            last = torch.nn.Linear(_UNITS, examinations)
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
        self.network = torch.nn.Sequential(first, torch.nn.SiLU(), second, torch.nn.SiLU(), last).to(device)
        self.adam = AdamW(self.network.parameters(), rate, epsilon)
        # The remembered states: their inputs, and the observed values of their examinations, NaN where unknown.
        self.inputs = torch.empty(0, diagnoses + examinations, device=device)
        self.gains = torch.empty(0, examinations, device=device)

    def forward(self, log_beliefs: torch.Tensor, requested: torch.Tensor) -> torch.Tensor:
        """Predict the value of each examination, [N, E], without gradients: the gain in accuracy that it brings,
        minus its price. ``log_beliefs`` [N, D] are log-probabilities of diagnoses; ``requested`` [N, E] is True for
        earlier requests."""
        with torch.no_grad():
            return self.network(_critic_inputs(log_beliefs, requested))

    def learn(
        self, log_beliefs: torch.Tensor, requested: torch.Tensor, gains: torch.Tensor, rate_share: float,
        generator: torch.Generator,
    ) -> float:  # fmt: skip
        """Remember N states (``log_beliefs`` [N, D], ``requested`` [N, E]) with the observed values ``gains`` [N, E] of
        their examinations, NaN where a value is not known. Then take up to :data:`_STEPS` optimiser steps on batches of
        the remembered states, drawn by ``generator``, at the share ``rate_share`` of the peak learning rate. Returns
        the mean loss; 0 where no drawn state has a value."""
        self.inputs = torch.cat([self.inputs, _critic_inputs(log_beliefs, requested)])[-_MEMORY_SIZE:]
        self.gains = torch.cat([self.gains, gains])[-_MEMORY_SIZE:]
        self.adam.learning_rate = self.rate * rate_share
        losses = []
        # Random batches; only examinations with a known value enter the loss.
        for _ in range(_STEPS):
            rows = torch.randint(len(self.inputs), (_BATCH,), generator=generator).to(gains.device)
            valued = ~self.gains[rows].isnan()  # [batch, E]
            if not valued.any():
                continue
            loss = torch.nn.functional.huber_loss(self.network(self.inputs[rows])[valued], self.gains[rows][valued])
            self.zero_grad(set_to_none=True)
            loss.backward()
            self.adam.step()
            losses.append(float(loss.detach()))
        return fmean(losses) if losses else 0.0


def _critic_inputs(log_beliefs: torch.Tensor, requested: torch.Tensor) -> torch.Tensor:
    """Make the inputs [N, D + E] of the critic's network: the log-probabilities of diagnoses [N, D], raised to at least
    -8 and mapped from -8..0 to -1..1, then ``requested`` [N, E], 1 for each examination that was requested, else 0."""
    return torch.cat([log_beliefs.detach().clamp_min(-8) / 4 + 1, requested.float()], dim=-1)
