"""What a policy update consists of: training examples, loss of a token, optimiser, micro-batches, log-probabilities."""

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

_SHARED = 256  # common first tokens of all rows from which on one pass for all pays
_ROW = 2048  # tokens up to which a row with a dense mask costs less than computing a shared prompt for each sample


def clipped_surrogate(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, clip_ratio: float = CLIP_RATIO
) -> torch.Tensor:
    """Loss of each token (paper, section "Policy Update"): -min(rho A, clip(rho, 1-eps, 1+eps) A), bounded by
    -DUAL_CLIP A where A < 0. Tensors have the same shape; the log-ratio is clamped to +-20, as in verl."""
    ratio = torch.exp((logprobs - old_logprobs).clamp(-20, 20))
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_ratio, 1 + clip_ratio))
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * DUAL_CLIP), loss)


@dataclass(frozen=True)
class Piece:
    """Tokens ``ids`` at the positions from ``start`` on. In a row of pieces the first starts at 0; every other one
    follows the first one's tokens before its ``start``. The tokens at the positions ``scored`` have a loss."""

    start: int
    ids: Sequence[int]
    scored: Sequence[int]


@dataclass(frozen=True)
class Sample:
    """A trajectory as tokens: ``ids`` (T,) and the positions of the generated ones in it; then its ``branches``, other
    replies at its states. ``old_logprobs``, ``advantages`` and ``weights`` (in the loss) have one entry for each
    generated token, those of the branches after the trajectory's own."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    old_logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    weights: tuple[float, ...]
    branches: tuple[Piece, ...] = ()

    @property
    def length(self) -> int:
        """Tokens that pass through the model."""
        return len(self.ids) + sum(len(branch.ids) for branch in self.branches)

    @classmethod
    def of(cls, trajectory: Trajectory, scored: GroupAdvantages, i: int) -> Self:
        """Trajectory ``i`` of a group as the very tokens that were sampled; prompts and observations carry no loss."""
        turns = [step.turn for step in trajectory.steps]
        others = [x for x in scored.alternatives if x.i == i]
        every: list[tuple[Sequence[Turn], Sequence[PerToken], Sequence[PerToken]]]
        every = [(turns, scored.decisions[i], scored.weights[i])]
        every += [(x.turns, x.advantages, x.weights) for x in others]
        return cls(
            _ids(turns),
            _positions(turns),
            tuple(x for turns, _, _ in every for turn in turns for x in turn.logprobs),
            tuple(a for turns, advantages, _ in every for row in by_token(turns, advantages) for a in row),
            tuple(w for turns, _, weights in every for row in by_token(turns, weights) for w in row),
            tuple(_branch(x.turns) for x in others),
        )


def _ids(turns: Sequence[Turn]) -> tuple[int, ...]:
    """Prompt, replies and what was observed between them."""
    return turns[-1].prompt_ids + turns[-1].token_ids


def _branch(turns: Sequence[Turn]) -> Piece:
    start = len(turns[0].prompt_ids)
    return Piece(start, _ids(turns)[start:], _positions(turns))


def _positions(turns: Sequence[Turn]) -> tuple[int, ...]:
    return tuple(len(turn.prompt_ids) + k for turn in turns for k in range(len(turn.token_ids)))


def samples_of(groups: Sequence[Group], scored: Sequence[GroupAdvantages]) -> list[list[Sample]]:
    """The trajectories of a batch with their advantages, and the alternatives evaluated beside them."""
    batch = zip(groups, scored, strict=True)
    return [[Sample.of(trajectory, credit, i) for i, trajectory in enumerate(group)] for group, credit in batch]


class AdamW:
    """``torch.optim.AdamW`` with its defaults, by torch's function: that class imports a compiler, which takes longer
    than a short training."""

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
        """Steps and averages by number of the parameter."""
        return self.state

    def load_state_dict(self, state: dict[int, dict[str, torch.Tensor]]) -> None:
        """The inverse of :meth:`state_dict`."""
        self.state = {
            n: {name: tensor.to(self._parameters[n].device) for name, tensor in of.items()} for n, of in state.items()
        }


def micro_batches(groups: Sequence[Sequence[Sample]], size: int) -> list[list[Sequence[Sample]]]:
    """Rows of samples, of similar length, at least one and about ``size`` samples together. A row is a group whose
    samples share their prompt and fit :data:`_ROW` tokens, otherwise a single sample."""
    rows: list[Sequence[Sample]] = []
    for group in groups:
        for start in range(0, len(group), size):
            part = group[start : start + size]
            together = len(part) > 1 and not any(s.branches for s in part) and _row_length(part) <= _ROW
            rows += [part] if together else [[sample] for sample in part]
    rows.sort(key=_row_length)
    batches: list[list[Sequence[Sample]]] = [[]]
    for row in rows:
        if batches[-1] and sum(map(len, batches[-1])) + len(row) > size:
            batches.append([])
        batches[-1].append(row)
    return batches


def pieces(row: Sequence[Sample]) -> list[Piece]:
    """A row for :func:`token_logprobs`: a sample with its branches, or samples that share a prompt."""
    first, *others = row
    starts = [_shared(first, other) for other in others]
    shared = [Piece(at, other.ids[at:], other.positions) for at, other in zip(starts, others, strict=True)]
    return [Piece(0, first.ids, first.positions), *first.branches, *shared]


def _row_length(row: Sequence[Sample]) -> int:
    return row[0].length + sum(other.length - _shared(row[0], other) for other in row[1:])


def _shared(first: Sample, other: Sample) -> int:
    """Number of first tokens that a sample shares with the first of its row, before its first reply."""
    most = min(len(first.ids), other.positions[0] if other.positions else len(other.ids))
    if first.ids[:most] == other.ids[:most]:
        return most
    return next(k for k in range(most) if first.ids[k] != other.ids[k])


# Log-probabilities


def token_logprobs(model: Any, rows: Sequence[Sequence[Piece]], temperature: float = 1.0) -> torch.Tensor:
    """log pi of every scored token given all that it follows, flat by row, piece and position; differentiable.

    The pieces of a row are concatenated, and each attends to the tokens that it follows and to itself only, so that a
    beginning that they share is computed once. Nothing follows the last token of a later piece, so it is scored without
    passing through the model; the projection on the vocabulary runs only for scored tokens. A long beginning of all
    rows, such as a system prompt, passes through the model once too; its gradient is that of all rows.

    Rows of several pieces need a dense mask, (rows, width, width): they are for a few thousand tokens at most.
    """
    device = next(model.parameters()).device
    first, begin = rows[0][0].ids, _common_beginning(rows)
    rows = [[Piece(begin, row[0].ids[begin:], row[0].scored), *row[1:]] for row in rows]
    inputs = [[row[0].ids, *(piece.ids[:-1] for piece in row[1:])] for row in rows]
    width = padded_width(model, max(sum(map(len, row)) for row in inputs))
    # Filled as numpy arrays: many small pieces, and a small write to a tensor costs ten times as much.
    batch, place = np.zeros((2, len(rows), width), dtype=np.int64)
    real = np.zeros((len(rows), width), dtype=bool)
    dense = any(len(row) > 1 for row in rows)
    sees = np.tile(np.eye(width, dtype=bool), (len(rows), 1, 1)) if dense else real  # padding sees itself
    before = np.tri(width, dtype=bool) if dense else real
    scored: list[tuple[int, int, int]] = []  # row, place of the token before, token
    for number, row in enumerate(rows):
        at = 0
        for piece, ids in zip(row, inputs[number], strict=True):
            end = at + len(ids)
            batch[number, at:end] = ids
            place[number, at:end] = np.arange(piece.start, piece.start + len(ids))
            real[number, at:end] = True
            if dense:
                sees[number, at:end, : piece.start - begin] = True
                sees[number, at:end, at:end] = before[: end - at, : end - at]
            for p in piece.scored:  # the token before the first one of a piece is in the first piece
                source = p - 1 - begin if p == piece.start else at + p - 1 - piece.start
                scored.append((number, source, piece.ids[p - piece.start]))
            at = end
    before_rows = None
    if begin:
        beginning = torch.tensor([first[:begin]], device=device)
        before_rows = model.model(input_ids=beginning, use_cache=True).past_key_values
        before_rows.batch_repeat_interleave(len(rows))
    mask = torch.nn.functional.pad(torch.from_numpy(sees[:, None] if dense else real), (begin, 0), value=True)
    hidden = model.model(
        input_ids=torch.from_numpy(batch).to(device),
        attention_mask=mask.to(device),
        position_ids=torch.from_numpy(place).to(device),
        past_key_values=before_rows,
        use_cache=before_rows is not None,
    ).last_hidden_state
    numbers, sources, targets = torch.tensor(scored, dtype=torch.long, device=device).reshape(-1, 3).unbind(1)
    logits = model.lm_head(hidden[numbers, sources]).float() / temperature
    return torch.log_softmax(logits, dim=-1).gather(1, targets[:, None]).squeeze(1)


def _common_beginning(rows: Sequence[Sequence[Piece]]) -> int:
    """Number of common first tokens of all rows before the first scored one; 0 where one pass for all does not pay."""
    first, *others = (row[0].ids for row in rows)
    most = min(min((len(row[0].ids), *row[0].scored, *(piece.start for piece in row[1:]))) for row in rows) - 1
    for other in others:
        most = next((k for k in range(most) if first[k] != other[k]), most)
    return most if others and most >= _SHARED else 0
