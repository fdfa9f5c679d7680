"""One policy update over a batch of trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...environment import Trajectory, Turn
from ...settings.schema import Training
from .model import Piece, piecewise_logprobs, token_logprobs

_ROW = 2048  # tokens up to which a row with a dense mask costs less than computing a shared prompt for each sample


def clipped_surrogate(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, clip_ratio: float, dual_clip: float
) -> torch.Tensor:
    """Loss of each token (paper, section "Policy Update"): -min(rho A, clip(rho, 1-eps, 1+eps) A), bounded by
    -dual_clip A where A < 0. Tensors have the same shape; the log-ratio is clamped to +-20, as in verl."""
    ratio = torch.exp((logprobs - old_logprobs).clamp(-20, 20))
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_ratio, 1 + clip_ratio))
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * dual_clip), loss)


@dataclass(frozen=True)
class Sample:
    """A trajectory as tokens: ``ids`` (T,) and the positions of the generated ones in it; then its branches, further
    replies in place of what was taken at a state. ``old_logprobs``, ``advantages`` and ``weights`` (in the loss) have
    one entry for each generated token, those of the branches after the trajectory's own."""

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
    def of(
        cls,
        trajectory: Trajectory,
        advantages: Sequence[float],
        weights: Sequence[float] | None = None,
        alternatives: Sequence[tuple[Turn, float, float]] = (),
    ) -> Sample:
        """The very tokens that were sampled, with one advantage and weight per decision; prompts and observations
        carry no loss. ``alternatives`` are replies drawn at the trajectory's states, with advantage and weight."""
        turns = [step.turn for step in trajectory.steps]
        taken = zip(turns, advantages, weights or [1.0] * len(advantages), strict=True)
        every, last = [*taken, *alternatives], turns[-1]
        return cls(
            last.prompt_ids + last.token_ids,
            tuple(position for turn in turns for position in _places(turn)),
            tuple(x for turn, _, _ in every for x in turn.logprobs),
            tuple(a for turn, a, _ in every for _ in turn.token_ids),
            tuple(w for turn, _, w in every for _ in turn.token_ids),
            tuple(Piece(len(turn.prompt_ids), turn.token_ids, _places(turn)) for turn, _, _ in alternatives),
        )


def _places(turn: Turn) -> range:
    """The positions of a reply, behind its prompt."""
    return range(len(turn.prompt_ids), len(turn.prompt_ids) + len(turn.token_ids))


class PolicyUpdate:
    """AdamW on the clipped surrogate; loss aggregated over the mini-batch, gradients accumulated over
    micro-batches of similar length. Samples of a group share their prompt, which is computed once for all of them."""

    def __init__(self, model: torch.nn.Module, settings: Training):
        self.model = model
        self.settings = settings
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )

    def step(self, groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
        """Update on the batch (inner epochs, mini-batches); returns means of loss, ratio and gradient norm."""
        self.model.train()
        totals: dict[str, float] = {}
        updates = 0
        for _ in range(self.settings.inner_epochs):
            for start in range(0, len(groups), self.settings.mini_batch_prompts):
                chosen = groups[start : start + self.settings.mini_batch_prompts]
                for name, value in self._mini_batch(chosen).items():
                    totals[name] = totals.get(name, 0.0) + value
                updates += 1
        self.model.eval()
        return {name: value / updates for name, value in totals.items()}

    def _mini_batch(self, groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
        samples = [sample for group in groups for sample in group]
        tokens = sum(len(s.old_logprobs) for s in samples)
        weight = sum(w for s in samples for w in s.weights)
        scale = weight if self.settings.loss_aggregation == "token_mean" else len(samples)
        loss_sum = clipped = drift = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for rows in micro_batches(groups, self.settings.micro_batch):
            loss, ratio = self._micro_batch(rows)
            (loss.sum() / max(1, scale)).backward()
            loss_sum += float(loss.detach().sum())
            clipped += float(((ratio - 1).abs() > self.settings.clip_ratio).sum())
            drift = max(drift, float((ratio - 1).abs().max())) if ratio.numel() else drift
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise FloatingPointError("the gradient is not finite; the step was stopped before the weights changed")
        self.optimizer.step()
        return {
            "policy/loss": loss_sum / max(1, scale),
            "policy/clipped_share": clipped / max(1, tokens),
            "policy/max_ratio_drift": drift,
            "policy/grad_norm": float(norm),
            "policy/trained_tokens": float(tokens),
        }

    def _micro_batch(self, rows: Sequence[Sequence[Sample]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token losses and probability ratios, flat over the generated tokens of these samples."""
        device = next(self.model.parameters()).device
        samples = [sample for row in rows for sample in row]
        if any(len(row) > 1 or row[0].branches for row in rows):
            logprobs = piecewise_logprobs(self.model, [pieces(row) for row in rows], self.settings.temperature)
        else:
            ids, positions = [s.ids for s in samples], [s.positions for s in samples]
            logprobs = token_logprobs(self.model, ids, positions, self.settings.temperature)
        old = torch.tensor([x for s in samples for x in s.old_logprobs], device=device)
        advantages = torch.tensor([x for s in samples for x in s.advantages], device=device)
        weights = torch.tensor([x for s in samples for x in s.weights], device=device)
        loss = clipped_surrogate(logprobs, old, advantages, self.settings.clip_ratio, self.settings.dual_clip)
        return loss * weights, torch.exp((logprobs - old).detach())


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
    """A row for :func:`piecewise_logprobs`: a sample with its branches, or samples that share a prompt."""
    first, *others = row
    starts = [_shared(first, other) for other in others]
    shared = [Piece(at, other.ids[at:], other.positions) for at, other in zip(starts, others, strict=True)]
    return [Piece(0, first.ids, first.positions), *first.branches, *shared]


def _row_length(row: Sequence[Sample]) -> int:
    return row[0].length + sum(other.length - _shared(row[0], other) for other in row[1:])


def _shared(first: Sample, other: Sample) -> int:
    """Tokens that a sample has in common with the first of its row, before it says anything itself."""
    most = min(len(first.ids), other.positions[0] if other.positions else len(other.ids))
    if first.ids[:most] == other.ids[:most]:
        return most
    return next(k for k in range(most) if first.ids[k] != other.ids[k])
