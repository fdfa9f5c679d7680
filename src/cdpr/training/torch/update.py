"""The parts of a policy update: training samples, loss, optimiser, micro-batches, log-probabilities of tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch.optim.adamw import adamw

from ...environment import Trajectory, Turn
from ..algorithm import Group, GroupAdvantages, PerToken, by_token
from ..training_run import CLIP_RATIO, DUAL_CLIP, WEIGHT_DECAY
from .weights import padded_width

_SHARED = 256  # common first tokens of all rows from which one pass for all of them is faster
_ROW = 2048  # tokens of a row up to which a dense mask is cheaper than computing a shared prompt for each sample


def clipped_surrogate(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, clip_ratio: float = CLIP_RATIO
) -> torch.Tensor:
    """Compute the loss of each token, -min(rho A, clip(rho, 1-eps, 1+eps) A), at most -DUAL_CLIP A where A < 0 (paper,
    section "Policy Update"). All tensors have the same shape. The log-ratio is clamped to +-20, as in verl."""
    ratio = torch.exp((logprobs - old_logprobs).clamp(-20, 20))
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_ratio, 1 + clip_ratio))
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * DUAL_CLIP), loss)


@dataclass(frozen=True)
class Piece:
    """A part of a row of tokens: ``ids`` at the positions from ``start`` on; those at the positions ``scored`` have a
    loss. The first piece of a row starts at 0. Every other piece continues the first one from its ``start``."""

    start: int
    ids: Sequence[int]
    scored: Sequence[int]


@dataclass(frozen=True)
class Sample:
    """A trajectory as training data: its tokens ``ids`` (T,), the ``positions`` of the generated ones, and
    ``branches``, other replies at its states. ``old_logprobs``, ``advantages`` and ``weights`` in the loss have one
    entry for each generated token: first those of the trajectory, then those of the branches."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    old_logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    weights: tuple[float, ...]
    branches: tuple[Piece, ...] = ()

    @property
    def length(self) -> int:
        """The number of tokens of the trajectory and its branches."""
        return len(self.ids) + sum(len(branch.ids) for branch in self.branches)

    @classmethod
    def from_trajectory(cls, trajectory: Trajectory, scored: GroupAdvantages, i: int) -> Self:
        """Make the sample of ``trajectory``, number ``i`` of the group with the advantages ``scored``, in the tokens
        that were sampled. Prompts and observations have no loss."""
        turns = [step.turn for step in trajectory.steps]
        branches = [branch for branch in scored.alternatives if branch.i == i]
        parts: list[tuple[Sequence[Turn], Sequence[PerToken], Sequence[PerToken]]]
        parts = [(turns, scored.decisions[i], scored.weights[i])]
        parts += [(branch.turns, branch.advantages, branch.weights) for branch in branches]
        return cls(
            _ids(turns),
            _positions(turns),
            tuple(x for turns, _, _ in parts for turn in turns for x in turn.logprobs),
            tuple(a for turns, advantages, _ in parts for row in by_token(turns, advantages) for a in row),
            tuple(w for turns, _, weights in parts for row in by_token(turns, weights) for w in row),
            tuple(_branch_piece(branch.turns) for branch in branches),
        )


def _ids(turns: Sequence[Turn]) -> tuple[int, ...]:
    """The tokens of an episode with these turns: prompt, replies, and the observations between them."""
    return turns[-1].prompt_ids + turns[-1].token_ids


def _branch_piece(turns: Sequence[Turn]) -> Piece:
    """Make the piece of replies that branch off from a trajectory: all tokens behind their first prompt."""
    start = len(turns[0].prompt_ids)
    return Piece(start, _ids(turns)[start:], _positions(turns))


def _positions(turns: Sequence[Turn]) -> tuple[int, ...]:
    """The positions of the generated tokens in an episode with these turns."""
    return tuple(len(turn.prompt_ids) + k for turn in turns for k in range(len(turn.token_ids)))


def samples_of(groups: Sequence[Group], scored: Sequence[GroupAdvantages]) -> list[list[Sample]]:
    """Make the training samples of a batch of groups with their advantages; returns a list [group][trajectory]."""
    return [
        [Sample.from_trajectory(trajectory, credit, i) for i, trajectory in enumerate(group)]
        for group, credit in zip(groups, scored, strict=True)
    ]


class AdamW:
    """The optimiser ``torch.optim.AdamW`` with its defaults, by torch's functional form: torch's class imports a
    compiler, which takes longer than a short training."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], learning_rate: float):
        self._parameters, self.learning_rate = list(parameters), learning_rate
        self.state: dict[int, dict[str, torch.Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        trained = {n: p for n, p in enumerate(self._parameters) if p.grad is not None}
        gradients = [p.grad for p in trained.values() if p.grad is not None]
        for n in trained.keys() - self.state.keys():
            zero, step = torch.zeros_like(trained[n]), torch.zeros((), device=trained[n].device)
            self.state[n] = {"mean": zero, "square": zero.clone(), "step": step}
        means, squares, steps = ([self.state[n][name] for n in trained] for name in ("mean", "square", "step"))
        options: dict[str, Any] = {"lr": self.learning_rate, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
        options |= {"weight_decay": WEIGHT_DECAY, "amsgrad": False, "maximize": False, "fused": True}
        adamw(list(trained.values()), gradients, means, squares, [], steps, **options)

    def state_dict(self) -> dict[int, dict[str, torch.Tensor]]:
        """Step and moving averages of each parameter, by its number."""
        return self.state

    def load_state_dict(self, state: dict[int, dict[str, torch.Tensor]]) -> None:
        """Restore what :meth:`state_dict` returned, on the devices of the parameters."""
        self.state = {
            n: {name: tensor.to(self._parameters[n].device) for name, tensor in tensors.items()}
            for n, tensors in state.items()
        }


def micro_batches(groups: Sequence[Sequence[Sample]], size: int) -> list[list[Sequence[Sample]]]:
    """Divide the samples of a batch into micro-batches of rows of similar length, each with at most about ``size``
    samples. A row has the samples of a group where these share their prompt and fit in :data:`_ROW` tokens, else a
    single one."""
    rows: list[Sequence[Sample]] = []
    for group in groups:
        for start in range(0, len(group), size):
            part = group[start : start + size]
            fits_in_row = len(part) > 1 and not any(s.branches for s in part) and _row_length(part) <= _ROW
            rows += [part] if fits_in_row else [[sample] for sample in part]
    rows.sort(key=_row_length)
    batches: list[list[Sequence[Sample]]] = [[]]
    for row in rows:
        if batches[-1] and sum(map(len, batches[-1])) + len(row) > size:
            batches.append([])
        batches[-1].append(row)
    return batches


def pieces(row: Sequence[Sample]) -> list[Piece]:
    """Make the pieces of a row for :func:`token_logprobs`, from a sample with its branches, or samples that share a
    prompt."""
    first, *others = row
    starts = [_shared_tokens(first, other) for other in others]
    shared = [Piece(at, other.ids[at:], other.positions) for at, other in zip(starts, others, strict=True)]
    return [Piece(0, first.ids, first.positions), *first.branches, *shared]


def _row_length(row: Sequence[Sample]) -> int:
    """The number of tokens of a row; those that its samples share count once."""
    return row[0].length + sum(other.length - _shared_tokens(row[0], other) for other in row[1:])


def _shared_tokens(first: Sample, other: Sample) -> int:
    """The number of tokens with which two samples of a row begin alike, up to the first reply of ``other``."""
    most = min(len(first.ids), other.positions[0] if other.positions else len(other.ids))
    if first.ids[:most] == other.ids[:most]:
        return most
    return next(k for k in range(most) if first.ids[k] != other.ids[k])


# Log-probabilities


def token_logprobs(model: Any, rows: Sequence[Sequence[Piece]], temperature: float = 1.0) -> torch.Tensor:
    """Compute the log-probability of every scored token given the tokens before it, float32 ``[scored tokens]`` in the
    order of row, piece and position; differentiable. ``rows`` are those of :func:`token_logits`."""
    logits, tokens = token_logits(model, rows)
    return torch.log_softmax(logits / temperature, dim=-1).gather(1, tokens[:, None]).squeeze(1)


def token_logits(model: Any, rows: Sequence[Sequence[Piece]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the logits from which every scored token is predicted, float32 ``[scored tokens, vocabulary]`` in the
    order of row, piece and position, differentiable; returns them and the scored tokens (int64).

    The pieces of a row are concatenated. Each attends to itself and to the tokens that it continues, so that a common
    beginning is computed once. The last token of a later piece does not pass through the model, since nothing follows
    it. Logits are computed only for scored tokens. A long beginning of all rows, such as a system prompt, passes
    through the model once; its gradient is that of all rows.

    Rows of several pieces need a dense mask (rows, width, width), so they can have a few thousand tokens at most.
    """
    device = next(model.parameters()).device
    first, begin = rows[0][0].ids, _common_beginning(rows)
    rows = [[Piece(begin, row[0].ids[begin:], row[0].scored), *row[1:]] for row in rows]
    inputs = [[row[0].ids, *(piece.ids[:-1] for piece in row[1:])] for row in rows]
    width = padded_width(model, max(sum(map(len, row)) for row in inputs))
    # Filled as numpy arrays: many small pieces, and a small write to a tensor costs ten times as much.
    batch, position = np.zeros((2, len(rows), width), dtype=np.int64)
    is_token = np.zeros((len(rows), width), dtype=bool)
    is_dense = any(len(row) > 1 for row in rows)
    attends = np.tile(np.eye(width, dtype=bool), (len(rows), 1, 1)) if is_dense else is_token  # padding: to itself
    causal = np.tri(width, dtype=bool) if is_dense else is_token
    scored: list[tuple[int, int, int]] = []  # row, index of the token before, token
    for number, row in enumerate(rows):
        at = 0
        for piece, ids in zip(row, inputs[number], strict=True):
            end = at + len(ids)
            batch[number, at:end] = ids
            position[number, at:end] = np.arange(piece.start, piece.start + len(ids))
            is_token[number, at:end] = True
            if is_dense:
                attends[number, at:end, : piece.start - begin] = True
                attends[number, at:end, at:end] = causal[: end - at, : end - at]
            for p in piece.scored:  # the token before the first one of a piece is in the first piece
                source = p - 1 - begin if p == piece.start else at + p - 1 - piece.start
                scored.append((number, source, piece.ids[p - piece.start]))
            at = end
    cache = None  # keys and values of the common beginning
    if begin:
        beginning = torch.tensor([first[:begin]], device=device)
        cache = model.model(input_ids=beginning, use_cache=True).past_key_values
        cache.batch_repeat_interleave(len(rows))
    mask = torch.nn.functional.pad(torch.from_numpy(attends[:, None] if is_dense else is_token), (begin, 0), value=True)
    hidden = model.model(
        input_ids=torch.from_numpy(batch).to(device),
        attention_mask=mask.to(device),
        position_ids=torch.from_numpy(position).to(device),
        past_key_values=cache,
        use_cache=cache is not None,
    ).last_hidden_state
    numbers, sources, targets = torch.tensor(scored, dtype=torch.long, device=device).reshape(-1, 3).unbind(1)
    return model.lm_head(hidden[numbers, sources]).float(), targets


def _common_beginning(rows: Sequence[Sequence[Piece]]) -> int:
    """The number of tokens with which all rows begin alike, before the first scored one; 0 where computing these once,
    in a pass of their own, would not be faster."""
    first, *others = (row[0].ids for row in rows)
    most = min(min((len(row[0].ids), *row[0].scored, *(piece.start for piece in row[1:]))) for row in rows) - 1
    for other in others:
        most = next((k for k in range(most) if first[k] != other[k]), most)
    return most if others and most >= _SHARED else 0
