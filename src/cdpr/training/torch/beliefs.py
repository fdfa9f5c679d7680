"""Beliefs of a language model over a closed list of diagnoses, at the states of an episode and behind each of their
examinations: forward passes alone, no token is drawn."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch

from ...seeding import derive_seed
from ..training_run import MAX_GRAD_NORM
from .muon import Muon, matrices_and_rest, rise_and_fall
from .update import AdamW, Piece, token_logits

_BRANCHES = 512  # of one forward pass
_SCALE = 0.3  # of a new reader's logits: about the one that fits the tiny policy's warm start, which is too sure
_HIDDEN = 256  # units of the critic's hidden layers
_RISE = 5  # iterations in which the learning rate rises
_MATRICES = 5.0  # Muon's learning rate for a learning rate of AdamW of 1
_REMEMBERED, _BATCH, _STEPS = 8192, 256, 8  # states that the critic remembers, learns from in a step, and its steps
Branch = tuple[int, int, Sequence[int]]
"""Tokens that continue a context: its number, the length of the part that is continued, the tokens."""


def distinct_names(names: Iterable[str], first_token: Callable[[str], int]) -> dict[int, str]:
    """Index names by their first token, in the order of their frequency; of names with one first token the most
    frequent, because the distribution of the next token cannot tell them apart."""
    by_token: dict[int, str] = {}
    for name, _ in sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])):
        by_token.setdefault(first_token(name), name)
    return by_token


@torch.no_grad()
def branch_logits(model: Any, contexts: Sequence[Sequence[int]], branches: Sequence[Branch]) -> torch.Tensor:
    """Compute the logits behind the last token of each branch, float32 [branches, vocabulary]. Each context passes
    through the model once, whatever the number of its branches."""
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
    """Pad rows of tokens at their ends; returns them, and where they have tokens."""
    width = max(map(len, rows))
    ids, is_token = np.zeros((len(rows), width), dtype=np.int64), np.zeros((len(rows), width), dtype=bool)
    for number, row in enumerate(rows):
        ids[number, : len(row)], is_token[number, : len(row)] = row, True
    return torch.from_numpy(ids).to(device), torch.from_numpy(is_token).to(device)


def logits_behind(model: Any, contexts: Sequence[Sequence[int]], branches: Sequence[Branch]) -> torch.Tensor:
    """Compute the logits behind the last token of each branch, float32 [branches, vocabulary], differentiable. The
    branches are short and ordered by the number of their context (:func:`branch_logits`: many, in any order)."""
    rows: list[list[Piece]] = [[Piece(0, ids, ())] for ids in contexts]
    for number, start, ids in branches:  # the scored token is arbitrary: its logits are those before it
        rows[number].append(Piece(start, (*ids, 0), (start + len(ids),)))
    return token_logits(model, rows)[0]


def rate_share(step: int, steps: int) -> float:
    """Compute the share of the peak learning rate in an iteration of reader and critic."""
    return rise_and_fall(step, steps, _RISE)


class Reader(torch.nn.Module):
    """A language model that reads states, with its optimisers and a learned scale of its logits. Its belief b over D
    diagnoses is the distribution of the first token of their names. With ``trains_model`` off it learns the scale
    alone."""

    def __init__(self, model: Any, diagnoses: Sequence[int], rate: float, trains_model: bool):
        super().__init__()
        self.model, self.diagnoses, self.rate = model, torch.tensor(diagnoses), rate
        self.log_scale = torch.nn.Parameter(torch.tensor(_SCALE).log())
        self.to(next(model.parameters()).device)
        model.requires_grad_(trains_model)
        matrices, rest = matrices_and_rest(model) if trains_model else ([], [])
        self.muon = Muon(matrices, lr=rate, weight_decay=0.01) if matrices else None
        self.adam = AdamW([self.log_scale, *rest], rate)

    def log_beliefs(self, logits: torch.Tensor) -> torch.Tensor:
        """Compute log b [N, D] from the logits [N, vocabulary] where a diagnosis must follow."""
        return torch.log_softmax(self.log_scale.exp() * logits[:, self.diagnoses], dim=-1)

    def learn(self, log_beliefs: torch.Tensor, truths: torch.Tensor, share: float) -> float:
        """Take one step on the cross-entropy of the true diagnoses [N] at ``share`` of the learning rate; returns the
        loss. Raises FloatingPointError for a gradient that is not finite; the weights are then those before."""
        loss = torch.nn.functional.cross_entropy(log_beliefs, truths)
        self.zero_grad(set_to_none=True)
        loss.backward()
        if not torch.isfinite(torch.nn.utils.clip_grad_norm_(self.parameters(), MAX_GRAD_NORM)):
            raise FloatingPointError("the gradient of the reader is not finite; the step was stopped")
        self.adam.learning_rate = self.rate * share
        self.adam.step()
        if self.muon:
            self.muon.param_groups[0]["lr"] = _MATRICES * self.rate * share
            self.muon.step()
        return float(loss.detach())

    def checkpoint(self) -> dict[str, Any]:
        """Return weights and optimisers."""
        return {"weights": self.state_dict(), "adam": self.adam.state_dict(),
                "muon": self.muon and self.muon.state_dict()}  # fmt: skip

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what :meth:`checkpoint` returned."""
        self.load_state_dict(saved["weights"])
        self.adam.load_state_dict(saved["adam"])
        if self.muon:
            self.muon.load_state_dict(saved["muon"])


class Critic(torch.nn.Module):
    """A network that predicts the value of each of E examinations from log b [N, D] and the earlier requests [N, E]. It
    learns from the last states that it was given."""

    def __init__(self, diagnoses: int, examinations: int, rate: float, seed: int, device: torch.device):
        super().__init__()
        self.rate = rate
        with torch.random.fork_rng(devices=[]):  # the caller's random state is left as it was
            torch.manual_seed(derive_seed(seed, "critic") % 2**63)
            first, second = torch.nn.Linear(diagnoses + examinations, _HIDDEN), torch.nn.Linear(_HIDDEN, _HIDDEN)
            last = torch.nn.Linear(_HIDDEN, examinations)
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
        self.network = torch.nn.Sequential(first, torch.nn.SiLU(), second, torch.nn.SiLU(), last).to(device)
        self.adam = AdamW(self.network.parameters(), rate)
        self.inputs = torch.empty(0, diagnoses + examinations, device=device)
        self.gains = torch.empty(0, examinations, device=device)  # missing: NaN

    def forward(self, log_beliefs: torch.Tensor, requested: torch.Tensor) -> torch.Tensor:
        """Predict the values [N, E], in units of a right diagnosis."""
        with torch.no_grad():
            return self.network(_features(log_beliefs, requested))

    def learn(self, log_beliefs: torch.Tensor, requested: torch.Tensor, gains: torch.Tensor, share: float,
              generator: torch.Generator) -> float:  # fmt: skip
        """Remember the states with their ``gains`` [N, E], NaN where an examination was not valued, and take some steps
        on random batches of the last :data:`_REMEMBERED` states; returns the mean loss, 0 where no state that was drawn
        has a value."""
        self.inputs = torch.cat([self.inputs, _features(log_beliefs, requested)])[-_REMEMBERED:]
        self.gains = torch.cat([self.gains, gains])[-_REMEMBERED:]
        self.adam.learning_rate, losses = self.rate * share, []
        for _ in range(_STEPS):
            rows = torch.randint(len(self.inputs), (_BATCH,), generator=generator).to(gains.device)
            known = ~self.gains[rows].isnan()
            if not known.any():
                continue
            loss = torch.nn.functional.huber_loss(self.network(self.inputs[rows])[known], self.gains[rows][known])
            self.zero_grad(set_to_none=True)
            loss.backward()
            self.adam.step()
            losses.append(float(loss.detach()))
        return fmean(losses) if losses else 0.0

    def checkpoint(self) -> dict[str, Any]:
        """Return weights, optimiser and remembered states."""
        return {
            "weights": self.state_dict(),
            "adam": self.adam.state_dict(),
            "inputs": self.inputs,
            "gains": self.gains,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what :meth:`checkpoint` returned."""
        self.load_state_dict(saved["weights"])
        self.adam.load_state_dict(saved["adam"])
        self.inputs, self.gains = (saved[name].to(self.inputs.device) for name in ("inputs", "gains"))


def _features(log_beliefs: torch.Tensor, requested: torch.Tensor) -> torch.Tensor:
    """Compute the inputs of the critic's network [N, D + E]."""
    return torch.cat([log_beliefs.detach().clamp_min(-8) / 4 + 1, requested.float()], dim=-1)
