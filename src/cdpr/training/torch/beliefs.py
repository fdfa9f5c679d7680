"""The two models of the training algorithm ``record_critic``. A reader turns a state into a belief, a distribution over
a closed list of diagnoses. A critic predicts the value of each examination. Both take forward passes only; no token is
sampled."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from ...seeding import derive_seed
from ..training_run import MAX_GRAD_NORM
from .optimisers import AdamW, MuonAndAdamW
from .update import Segment, token_logits

_BRANCHES = 512  # branches in one forward pass, at most
_SCALE = 0.3  # by which a reader's logits are multiplied at first: the warm-started tiny policy is too sure
_MUON_RATIO = 5.0  # the reader's learning rate of Muon (hidden matrices) as a multiple of that of AdamW
# The critic: units of its hidden layers, states that it remembers, states in a batch, optimiser steps per iteration.
_UNITS, _MEMORY_SIZE, _BATCH, _STEPS = 256, 8192, 256, 8


class Branch(NamedTuple):
    """Tokens ``ids`` that continue the first ``start`` tokens of a context, in place of the context's own next tokens.
    A context is a sequence of tokens; ``context`` is its number in a list of contexts."""

    context: int
    start: int
    ids: Sequence[int]


def index_by_first_token(names: Iterable[str], first_token: Callable[[str], int]) -> dict[int, str]:
    """Map the first token of each name to the name, the most frequent name first. ``names`` can have a name many times;
    ``first_token(name)`` returns the first token of a name. Of several names with the same first token only the most
    frequent is kept, because the distribution of the next token cannot distinguish them; the others have no entry."""
    counts = Counter(names)
    name_of_token: dict[int, str] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):  # equally frequent names in alphabetical order
        name_of_token.setdefault(first_token(name), name)
    return name_of_token


@torch.no_grad()
def branch_logits(model: Any, contexts: Sequence[Sequence[int]], branches: Sequence[Branch]) -> torch.Tensor:
    """Compute the logits of the token after each branch, float32 [branches, vocabulary], without gradients. ``model``
    is a causal language model, ``contexts`` are sequences of tokens. Each context passes through the model once,
    whatever the number of its branches."""
    device = next(model.parameters()).device
    # The contexts: their keys and values are cached.
    ids, is_token = _pad(contexts, device)
    cache = model.model(input_ids=ids, attention_mask=is_token, use_cache=True).past_key_values
    # The branches, in batches of similar length, which saves padding.
    logits = torch.empty(len(branches), model.lm_head.weight.shape[0], device=device)
    by_length = sorted(range(len(branches)), key=lambda number: len(branches[number].ids))
    for first in range(0, len(by_length), _BRANCHES):
        numbers = by_length[first : first + _BRANCHES]
        batch = [branches[number] for number in numbers]
        ids, is_token = _pad([branch.ids for branch in batch], device)
        start = torch.tensor([branch.start for branch in batch], device=device)
        # The numbers of cached tokens and of new ones in each row, both with padding.
        past, width = max(branch.start for branch in batch), ids.shape[1]
        # A token of a branch attends to the tokens of its context before ``start``, and to those of the branch so far.
        attends = torch.ones(len(batch), 1, width, past + width, dtype=torch.bool, device=device)
        attends[..., :past] = (torch.arange(past, device=device) < start[:, None])[:, None, None]
        attends[..., past:] = attends[..., past:].tril()
        positions = start[:, None] + torch.arange(width, device=device)
        inputs = {"input_ids": ids, "attention_mask": attends, "position_ids": positions}
        cached_contexts = cache.select([branch.context for branch in batch], past)
        hidden = model.model(**inputs, past_key_values=cached_contexts, use_cache=True).last_hidden_state
        last_token = is_token.sum(1) - 1
        logits[numbers] = model.lm_head(hidden[torch.arange(len(batch)), last_token]).float()
    return logits


def _pad(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows of tokens with 0 at their ends to equal length. Returns the rows (int64), and a mask of the same shape
    that is True where a row has a token."""
    width = max(map(len, rows))
    ids, is_token = np.zeros((len(rows), width), dtype=np.int64), np.zeros((len(rows), width), dtype=bool)
    for number, row in enumerate(rows):
        ids[number, : len(row)], is_token[number, : len(row)] = row, True
    return torch.from_numpy(ids).to(device), torch.from_numpy(is_token).to(device)


def trainable_branch_logits(model: Any, contexts: Sequence[Sequence[int]], branches: Sequence[Branch]) -> torch.Tensor:
    """Compute the logits of the token after each branch, float32 [branches, vocabulary], with gradients; unlike
    :func:`branch_logits` this does not cache. ``branches`` must be in the order of their contexts. They should be
    short, because a context and all its branches pass through the model as one row."""
    rows: list[list[Segment]] = [[Segment(0, ids, ())] for ids in contexts]
    for branch in branches:
        # `token_logits` computes the logits by which a given token is predicted. Which one does not matter, so it is 0.
        end = branch.start + len(branch.ids)
        rows[branch.context].append(Segment(branch.start, (*branch.ids, 0), scored=(end,)))
    return token_logits(model, rows)[0]  # the other result has the tokens themselves


class Reader(torch.nn.Module):
    """A language model that reads states, with its optimiser and a learned scale of its logits.

    Its belief b over D diagnoses is the distribution of the next token where a diagnosis must follow, restricted to the
    first tokens of the names of diagnoses; ``diagnoses`` are these tokens. ``rate`` is the peak learning rate. If
    ``trains_model`` is False, only the scale is learned.
    """

    def __init__(self, model: Any, diagnoses: Sequence[int], rate: float, trains_model: bool):
        """Keep the model and the tokens of diagnoses, and create the scale of the logits and the optimiser."""
        super().__init__()
        self.model, self.diagnoses = model, torch.tensor(diagnoses)
        self.log_scale = torch.nn.Parameter(torch.tensor(_SCALE).log())
        self.to(next(model.parameters()).device)
        model.requires_grad_(trains_model)
        self.optimiser = MuonAndAdamW(model if trains_model else None, _MUON_RATIO * rate, rate, [self.log_scale])

    def log_beliefs(self, logits: torch.Tensor) -> torch.Tensor:
        """Compute the log-probability of each diagnosis, [N, D], from the logits [N, vocabulary] of the token in which
        the name of a diagnosis begins."""
        return torch.log_softmax(self.log_scale.exp() * logits[:, self.diagnoses], dim=-1)

    def learn(self, log_beliefs: torch.Tensor, truths: torch.Tensor, rate_share: float) -> float:
        """Take one optimiser step on the cross-entropy of ``log_beliefs`` [N, D] with ``truths`` [N], the indices of
        the true diagnoses. ``rate_share`` is the share of the peak learning rate. Returns the loss. Raises
        FloatingPointError for a gradient that is not finite, and leaves the weights unchanged then."""
        loss = torch.nn.functional.cross_entropy(log_beliefs, truths)
        self.zero_grad(set_to_none=True)
        loss.backward()
        if not torch.isfinite(torch.nn.utils.clip_grad_norm_(self.parameters(), MAX_GRAD_NORM)):
            raise FloatingPointError("the gradient of the reader is not finite; the step was stopped")
        self.optimiser.step(rate_share)
        return float(loss.detach())


class Critic(torch.nn.Module):
    """A network that predicts the value of each of E examinations at a state. Its inputs, for N states, are the
    reader's log-probabilities of D diagnoses, [N, D], and which examinations were requested, [N, E]. It keeps the last
    :data:`_MEMORY_SIZE` states from which it has learned, and learns from random batches of these. ``rate`` is its peak
    learning rate, ``seed`` fixes its first weights."""

    def __init__(self, diagnoses: int, examinations: int, rate: float, seed: int, device: torch.device):
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
        self.adam = AdamW(self.network.parameters(), rate)
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
