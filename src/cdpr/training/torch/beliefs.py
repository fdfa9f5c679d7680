"""Beliefs of a language model over a closed list of diagnoses, at the states of an episode and behind each of their
examinations: forward passes alone, no token is drawn."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from ...seeding import derive_seed
from .muon import Muon, matrices_and_rest
from .update import AdamW, Piece, token_logits

_BRANCHES = 512  # of one forward pass
_SCALE = 0.3  # of a new reader's logits: about the one that fits the tiny policy's warm start, which is too sure
_HIDDEN = 256  # units of the critic's hidden layers
_RISE = 5  # iterations in which the learning rate rises
_MATRICES = 5.0  # Muon's learning rate for a learning rate of AdamW of 1
Branch = tuple[int, int, Sequence[int]]
"""Tokens that continue a context: its number, the length of the part that is continued, the tokens."""


def distinct_names(names: Iterable[str], first_token) -> dict[int, str]:
    """The names in the order of their frequency, by their first token; of names with one first token the most frequent,
    because the distribution of the next token cannot tell them apart."""
    by_token: dict[int, str] = {}
    for name, _ in sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])):
        by_token.setdefault(first_token(name), name)
    return by_token


@torch.no_grad()
def branch_logits(model: Any, contexts: Sequence[Sequence[int]], branches: Sequence[Branch]) -> torch.Tensor:
    """The logits behind the last token of each branch, float32 [branches, vocabulary]. Each context passes through the
    model once, whatever the number of its branches."""
    ids, is_token = _padded(contexts, device := next(model.parameters()).device)
    cache = model.model(input_ids=ids, attention_mask=is_token, use_cache=True).past_key_values
    order = sorted(range(len(branches)), key=lambda n: len(branches[n][2]))
    logits = torch.empty(len(branches), model.lm_head.weight.shape[0], device=device)
    for first in range(0, len(order), _BRANCHES):
        chunk = order[first : first + _BRANCHES]
        owners, starts, rows = zip(*(branches[n] for n in chunk), strict=True)
        start, past = torch.tensor(starts, device=device), max(starts)
        ids, is_token = _padded(rows, device)
        width = ids.shape[1]
        attends = torch.ones(len(chunk), 1, width, past + width, dtype=torch.bool, device=device)
        attends[..., :past] = (torch.arange(past, device=device) < start[:, None])[:, None, None]
        attends[..., past:] = attends[..., past:].tril()
        hidden = model.model(
            input_ids=ids,
            attention_mask=attends,
            position_ids=start[:, None] + torch.arange(width, device=device),
            past_key_values=cache.select(list(owners), past),
            use_cache=True,
        ).last_hidden_state
        logits[chunk] = model.lm_head(hidden[torch.arange(len(chunk)), is_token.sum(1) - 1]).float()
    return logits


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of tokens with padding at their ends, and where they have tokens."""
    width = max(map(len, rows))
    ids, is_token = np.zeros((len(rows), width), dtype=np.int64), np.zeros((len(rows), width), dtype=bool)
    for number, row in enumerate(rows):
        ids[number, : len(row)], is_token[number, : len(row)] = row, True
    return torch.from_numpy(ids).to(device), torch.from_numpy(is_token).to(device)


def logits_behind(model: Any, contexts: Sequence[Sequence[int]], branches: Sequence[Branch]) -> torch.Tensor:
    """As :func:`branch_logits` for one short branch at each state, differentiable."""
    rows: list[list[Piece]] = [[Piece(0, ids, ())] for ids in contexts]
    for number, start, ids in branches:  # the scored token is arbitrary: its logits are those before it
        rows[number].append(Piece(start, (*ids, 0), (start + len(ids),)))
    return token_logits(model, rows)[0]


class ReaderAndCritic(torch.nn.Module):
    """A reader of states and a critic of examinations, with their optimisers.

    The reader is a language model with a learned scale of its logits; its belief b over D diagnoses is the distribution
    of the first token of their names. The critic computes the value of each of E examinations, float32 [states, E],
    from log b and the examinations that were requested before. ``trains_model`` off trains the scale alone.
    """

    def __init__(
        self, model: Any, diagnoses: Sequence[int], examinations: int, rate: float, trains_model: bool, seed: int
    ):
        super().__init__()
        self.model, self.diagnoses, self.rate = model, torch.tensor(diagnoses), rate
        self.log_scale = torch.nn.Parameter(torch.tensor(_SCALE).log())
        with torch.random.fork_rng(devices=[]):  # the caller's random state is left as it was
            torch.manual_seed(derive_seed(seed, "critic") % 2**63)
            first, second = torch.nn.Linear(len(diagnoses) + examinations, _HIDDEN), torch.nn.Linear(_HIDDEN, _HIDDEN)
            last = torch.nn.Linear(_HIDDEN, examinations)
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
        self.critic = torch.nn.Sequential(first, torch.nn.SiLU(), second, torch.nn.SiLU(), last)
        self.to(next(model.parameters()).device)
        matrices, rest = matrices_and_rest(model) if trains_model else ([], [])
        self.muon = Muon(matrices, lr=rate, weight_decay=0.01) if matrices else None
        self.adam = AdamW([self.log_scale, *rest, *self.critic.parameters()], rate)

    def log_beliefs(self, logits: torch.Tensor) -> torch.Tensor:
        """log b [N, D] from the logits [N, vocabulary] where a diagnosis must follow."""
        return torch.log_softmax(self.log_scale.exp() * logits[:, self.diagnoses], dim=-1)

    def values(self, log_beliefs: torch.Tensor, requested: torch.Tensor) -> torch.Tensor:
        """The critic's value of each examination [N, E], in units of a right diagnosis. The beliefs get no gradient."""
        return self.critic(torch.cat([log_beliefs.detach().clamp_min(-8) / 4 + 1, requested.float()], dim=-1))

    def learn(self, loss: torch.Tensor, progress: float, step: int) -> None:
        """One step of both optimisers, whose learning rate rises in the first iterations and then falls as a cosine.
        ``progress`` is the share of the run that is done. Raises FloatingPointError for a gradient that is not finite;
        the weights are then those before."""
        self.zero_grad(set_to_none=True)
        loss.backward()
        norms = [
            torch.nn.utils.clip_grad_norm_(part.parameters(), most)
            for part, most in ((self.model, 1.0), (self.critic, 5.0))
        ]
        if not torch.isfinite(torch.stack(norms)).all():
            raise FloatingPointError("the gradient of the reader or critic is not finite; the step was stopped")
        share = min((step + 1) / _RISE, 0.5 * (1 + math.cos(math.pi * progress)))
        self.adam.learning_rate = self.rate * share
        self.adam.step()
        if self.muon:
            self.muon.param_groups[0]["lr"] = _MATRICES * self.rate * share
            self.muon.step()

    def checkpoint(self) -> dict[str, Any]:
        """Weights and optimisers."""
        return {
            "weights": self.state_dict(),
            "adam": self.adam.state_dict(),
            "muon": self.muon and self.muon.state_dict(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what :meth:`checkpoint` returned."""
        self.load_state_dict(saved["weights"])
        self.adam.load_state_dict(saved["adam"])
        if self.muon:
            self.muon.load_state_dict(saved["muon"])
