"""The parts of a policy update: the clipped loss, training samples, micro-batches, and log-probabilities of tokens."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from ...environment import Trajectory, Turn
from ..algorithm import Group, GroupAdvantages
from ..training_run import CLIP_RATIO, DUAL_CLIP
from .weights import padded_width

# If all rows of a batch begin with the same tokens, at least this many, these tokens pass through the model once,
# before the rows. With fewer the second pass costs more than it saves.
_LEAST_SHARED = 256
# Samples with a common prompt are joined to one row of at most this many tokens. In longer rows the dense mask costs
# more than it costs to compute the prompt once for each sample.
_ROW_LIMIT = 2048


def clipped_surrogate(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, clip_ratio: float = CLIP_RATIO
) -> torch.Tensor:
    """Compute the loss of each token by PPO's clipped surrogate, -min(rho A, clip(rho, 1-eps, 1+eps) A); where A < 0 it
    is at most -DUAL_CLIP A (paper, section "Policy Update"). A are the ``advantages``; rho is the ratio
    exp(logprobs - old_logprobs), its logarithm clamped to +-20 as in verl; eps is ``clip_ratio``. All tensors have the
    same shape."""
    ratio = torch.exp((logprobs - old_logprobs).clamp(-20, 20))
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_ratio, 1 + clip_ratio))
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * DUAL_CLIP), loss)


class Segment(NamedTuple):
    """Consecutive tokens ``ids``, at the positions from ``start`` on. ``scored`` are the positions of the tokens that
    have a loss.

    A row is a list of segments that pass through the model as one sequence. Its first segment is at position 0. Each
    further one is a branch: it continues the first ``start`` tokens of the first segment in another way. So an episode
    is one segment, and other replies at its states are further ones."""

    start: int
    ids: Sequence[int]
    scored: Sequence[int]


class Sample(NamedTuple):
    """A trajectory as training data: its tokens ``ids``, the ``positions`` of the generated ones (those of replies),
    and ``branches``, other replies at its states. ``old_logprobs``, ``advantages`` and ``weights`` (in the loss) have
    one entry for each generated token: first those of the trajectory, then those of the branches."""

    ids: Sequence[int]
    positions: Sequence[int]
    old_logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    weights: tuple[float, ...]
    branches: tuple[Segment, ...] = ()

    @property
    def length(self) -> int:
        """The number of tokens of the trajectory and its branches."""
        return len(self.ids) + sum(len(branch.ids) for branch in self.branches)

    @classmethod
    def from_trajectory(cls, trajectory: Trajectory, scored: GroupAdvantages, i: int) -> Self:
        """Make the sample of ``trajectory``, which is number ``i`` of the group whose advantages are ``scored``. Only
        replies have a loss, not prompts and observations."""
        turns, advantages, weights = zip(*scored.token_rows(i, trajectory), strict=True)  # the trajectory's row first
        own, *others = turns
        _, ids, positions = _make_segment(own, 0)
        return cls(
            ids,
            positions,
            old_logprobs=tuple(logprob for row in turns for turn in row for logprob in turn.logprobs),
            advantages=tuple(advantage for row in advantages for of_turn in row for advantage in of_turn),
            weights=tuple(weight for row in weights for of_turn in row for weight in of_turn),
            branches=tuple(_make_segment(branch, len(branch[0].prompt_ids)) for branch in others),
        )


def _make_segment(turns: Sequence[Turn], start: int) -> Segment:
    """Make the segment of the tokens from position ``start`` on of an episode that ends with these turns. The last
    prompt holds everything before the last reply: the first prompt, the other replies, and the observations between
    them. The tokens of replies have a loss."""
    ids = turns[-1].prompt_ids + turns[-1].token_ids
    scored = tuple(len(turn.prompt_ids) + k for turn in turns for k in range(len(turn.token_ids)))
    return Segment(start, ids[start:], scored)


def make_samples(groups: Sequence[Group], scored: Sequence[GroupAdvantages]) -> list[list[Sample]]:
    """Make the training samples of a batch of groups; returns a list [group][trajectory]. ``scored`` has the advantages
    of each group."""
    return [
        [Sample.from_trajectory(trajectory, credit, i) for i, trajectory in enumerate(group)]
        for group, credit in zip(groups, scored, strict=True)
    ]


def micro_batches(groups: Sequence[Sequence[Sample]], size: int) -> list[list[Sequence[Sample]]]:
    """Divide the samples of a batch into micro-batches of at most ``size`` samples. A micro-batch is a list of rows of
    similar length; a row is a list of samples that pass through the model as one sequence.

    Samples of one group share a prompt. So up to ``size`` of them form one row, in which the prompt is computed once,
    if none has branches and together they have at most :data:`_ROW_LIMIT` tokens. Otherwise each is a row by itself."""
    rows: list[Sequence[Sample]] = []
    for group in groups:
        for start in range(0, len(group), size):
            samples = group[start : start + size]
            has_branches = any(sample.branches for sample in samples)
            fits_in_row = len(samples) > 1 and not has_branches and _row_length(samples) <= _ROW_LIMIT
            rows += [samples] if fits_in_row else [[sample] for sample in samples]
    rows.sort(key=_row_length)  # so that the rows of a micro-batch need little padding
    batches: list[list[Sequence[Sample]]] = [[]]
    for row in rows:
        if batches[-1] and sum(map(len, batches[-1])) + len(row) > size:
            batches.append([])
        batches[-1].append(row)
    return batches


def row_segments(row: Sequence[Sample]) -> list[Segment]:
    """Make the segments of one row for :func:`token_logprobs`. ``row`` is one sample with its branches, or several
    samples that share a prompt: the first one gives a segment with the prompt, the others branch off from it."""
    first, *others = row
    segments = [Segment(0, first.ids, first.positions), *first.branches]
    for sample in others:
        start = _shared_tokens(first, sample)
        segments.append(Segment(start, sample.ids[start:], sample.positions))
    return segments


def _row_length(row: Sequence[Sample]) -> int:
    """Count the tokens of a row of samples; tokens that a sample shares with the first one count once."""
    first, *others = row
    return first.length + sum(other.length - _shared_tokens(first, other) for other in others)


def _shared_tokens(first: Sample, other: Sample) -> int:
    """Count how many first tokens two samples of a row have in common, but none behind the prompt of ``other``: its
    replies have a loss, so they must be in a segment of their own."""
    end_of_prompt = other.positions[0] if other.positions else len(other.ids)
    return _common_prefix(first.ids, other.ids, min(len(first.ids), end_of_prompt))


def _common_prefix(first: Sequence[int], other: Sequence[int], limit: int) -> int:
    """Count how many first tokens two sequences have in common, at most ``limit``. Neither is shorter than
    ``limit``."""
    if first[:limit] == other[:limit]:
        return limit
    return next((k for k in range(limit) if first[k] != other[k]), limit)  # the first index at which they differ


# Log-probabilities


def token_logprobs(model: Any, rows: Sequence[Sequence[Segment]], temperature: float = 1.0) -> torch.Tensor:
    """Compute the log-probability of every scored token given the tokens before it, at this sampling ``temperature``.
    Returns float32 ``[scored tokens]`` in the order of row, segment and position, with gradients. ``rows`` are lists of
    segments, as for :func:`token_logits`."""
    return logprobs_and_entropies(model, rows, temperature, with_entropies=False)[0]


def logprobs_and_entropies(
    model: Any, rows: Sequence[Sequence[Segment]], temperature: float, with_entropies: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute the log-probability of every scored token, as :func:`token_logprobs`, and in nats the entropy of the
    distribution from which the token is sampled, in the same form. Unless ``with_entropies``, the entropies are not
    computed, and None."""
    logits, tokens = token_logits(model, rows)
    distributions = torch.log_softmax(logits / temperature, dim=-1)  # logarithms, [scored tokens, vocabulary]
    logprobs = distributions.gather(1, tokens[:, None]).squeeze(1)
    return logprobs, -(distributions.exp() * distributions).sum(dim=1) if with_entropies else None


def token_logits(model: Any, rows: Sequence[Sequence[Segment]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the logits from which every scored token is predicted, float32 ``[scored tokens, vocabulary]`` in the
    order of row, segment and position, with gradients. Returns them and the scored tokens themselves, int64 ``[scored
    tokens]``.

    ``rows`` has for each sequence of the batch its list of segments, which are concatenated. A token attends to the
    earlier tokens of its segment and to those that the segment continues, so a common beginning is computed once. The
    last token of a segment after the first does not pass through the model, since nothing follows it. Logits are
    computed only for scored tokens. A long beginning that all rows share, such as a system prompt, passes through the
    model once for all of them.

    Rows of several segments need a dense mask (rows, width, width), so they can have a few thousand tokens at most.
    """
    device = next(model.parameters()).device
    shared = _common_beginning(rows)  # number of first tokens
    inputs, scored = _pack(model, rows, shared)
    cache = None  # keys and values of the common beginning
    if shared:
        conversation = rows[0][0].ids  # of the first row; all rows begin alike
        beginning = torch.tensor([conversation[:shared]], device=device)
        cache = model.model(input_ids=beginning, use_cache=True).past_key_values
        cache.batch_repeat_interleave(len(rows))
    inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    hidden = model.model(**inputs, past_key_values=cache, use_cache=cache is not None).last_hidden_state
    row_numbers, columns_before, tokens = scored.to(device).unbind(1)
    return model.lm_head(hidden[row_numbers, columns_before]).float(), tokens


def _pack(model: Any, rows: Sequence[Sequence[Segment]], shared: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Make the input of the model: the segments of each row are written one behind the other, without the first
    ``shared`` tokens of the row, which are cached, and the rows are padded to equal width.

    Returns the arguments of the model, and for each scored token three numbers: its row, the column of the token before
    it, and the token itself (int64 [scored tokens, 3]). Where every row has one segment, the attention mask is True for
    tokens and False for padding, [rows, shared + width]. Otherwise it is dense, [rows, 1, width, shared + width]: True
    where a token attends to another."""
    rows = [[Segment(shared, first.ids[shared:], first.scored), *branches] for first, *branches in rows]
    # The tokens that pass through the model: all but the last one of each branch.
    row_ids = [[first.ids, *(branch.ids[:-1] for branch in branches)] for first, *branches in rows]
    width = padded_width(model, max(sum(map(len, ids)) for ids in row_ids))
    # Filled as numpy arrays: many small segments, and a small write to a tensor costs ten times as much.
    tokens, positions = np.zeros((2, len(rows), width), dtype=np.int64)
    is_token = np.zeros((len(rows), width), dtype=bool)
    is_dense = any(len(row) > 1 for row in rows)
    if is_dense:
        attends = np.tile(np.eye(width, dtype=bool), (len(rows), 1, 1))  # at first each column attends to itself alone
        triangle = np.tri(width, dtype=bool)  # each token attends to itself and to earlier ones
    scored: list[tuple[int, int, int]] = []
    # Fill one row after another, and each row segment by segment.
    for number, row in enumerate(rows):
        column = 0  # of the first token of a segment
        for segment, ids in zip(row, row_ids[number], strict=True):
            length, here = len(ids), slice(column, column + len(ids))  # the columns of the segment
            tokens[number, here] = ids
            positions[number, here] = np.arange(segment.start, segment.start + length)
            is_token[number, here] = True
            if is_dense:
                # A token attends to the tokens that its segment continues, and to earlier ones of the segment.
                attends[number, here, : segment.start - shared] = True
                attends[number, here, here] = triangle[:length, :length]
            for p in segment.scored:
                # The token before the first one of a segment is in the first segment of the row.
                before = p - 1 - shared if p == segment.start else column + p - 1 - segment.start
                scored.append((number, before, segment.ids[p - segment.start]))
            column += length
    mask = torch.from_numpy(attends[:, None] if is_dense else is_token)
    arguments = {"input_ids": torch.from_numpy(tokens), "position_ids": torch.from_numpy(positions)}
    # Every token also attends to the common beginning, which is cached.
    arguments["attention_mask"] = torch.nn.functional.pad(mask, (shared, 0), value=True)
    return arguments, torch.tensor(scored, dtype=torch.long).reshape(-1, 3)


def _common_beginning(rows: Sequence[Sequence[Segment]]) -> int:
    """Count the tokens with which all rows begin alike, and which can pass through the model once for all rows. Returns
    0 for a single row, and where they are too few to save time (:data:`_LEAST_SHARED`).

    The common beginning ends before the first scored token and before the first branch of any row. The token before
    these is left out too, because the hidden state from which a token is predicted must be computed with the row."""
    ends = []
    for first, *branches in rows:
        ends += [len(first.ids), *first.scored, *(branch.start for branch in branches)]
    length = min(ends) - 1
    conversation, *others = (first.ids for first, *_ in rows)
    for other in others:
        length = _common_prefix(conversation, other, length)
    return length if others and length >= _LEAST_SHARED else 0
