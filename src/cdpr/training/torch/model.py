"""The trained model: loading, saving, log-probabilities; and interruptible work on disk."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...files import replacing
from .linear import padded_width, use_onednn

_SHARED = 256  # tokens that all rows begin with, from which on passing them once pays


@contextmanager
def _without(package: str) -> Iterator[None]:
    """Import other packages as if this optional one were not installed; one that is imported already stays."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


with _without("sklearn"):  # 2 s that only assisted generation needs
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging


def load_model(folder: Path, device: str = "cpu") -> torch.nn.Module:
    """A transformers causal language model in single precision."""
    logging.disable_progress_bar()
    return use_onednn(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device))


def save_policy(model, init_policy: Path, out_dir: Path) -> None:
    """Weights of the model with the tokenizer files of the policy it came from; atomic."""
    with replacing_folder(out_dir) as partial:
        model.save_pretrained(partial)
        copy_tokenizer(init_policy, partial)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """An empty folder beside ``folder`` that takes its place when the block ends well and is removed when it does
    not."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write atomically; a kill during the write leaves the previous checkpoint."""
    with replacing(path) as partial:
        torch.save(dict(state), partial)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """What was saved, in this program's own file; None when there is nothing."""
    return torch.load(path, map_location="cpu", weights_only=False) if path.exists() else None


def copy_tokenizer(policy: Path, folder: Path) -> None:
    """The tokenizer files of a policy, beside other weights."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (policy / name).exists():
            shutil.copyfile(policy / name, folder / name)


def token_logprobs(
    model: torch.nn.Module, ids: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], temperature: float = 1.0
) -> torch.Tensor:
    """log pi(ids[p] | ids[:p]) for every listed position, flat in the order given; differentiable.

    The vocabulary projection runs only where a loss stands.
    """
    device = next(model.parameters()).device
    width = padded_width(model, max(map(len, ids)))
    batch = torch.zeros(len(ids), width, dtype=torch.long)
    mask = torch.zeros(len(ids), width, dtype=torch.long)
    for row, sequence in enumerate(ids):
        batch[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
    rows = torch.tensor([row for row, wanted in enumerate(positions) for _ in wanted], dtype=torch.long)
    columns = torch.tensor([p for wanted in positions for p in wanted], dtype=torch.long)
    hidden = model.model(input_ids=batch.to(device), attention_mask=mask.to(device), use_cache=False).last_hidden_state
    return _chosen_logprobs(model, hidden[rows, columns - 1], batch[rows, columns], temperature)


@dataclass(frozen=True)
class Piece:
    """Tokens ``ids`` at the positions from ``start`` on. In a row of pieces the first starts at 0; every other one
    follows the first one's tokens before its ``start``. Those at the positions ``wanted`` are scored."""

    start: int
    ids: Sequence[int]
    wanted: Sequence[int]


def piecewise_logprobs(
    model: torch.nn.Module, rows: Sequence[Sequence[Piece]], temperature: float = 1.0
) -> torch.Tensor:
    """As :func:`token_logprobs` for sequences that share a beginning, which is computed once: the pieces of a row stand
    one behind the other, and each sees what it follows and itself only. Flat by row, piece and position. Nothing
    follows the last token of a later piece, so it is scored without passing through the model.

    A long beginning of all rows, such as a system prompt, passes through the model once too; its gradient is that of
    all rows. The mask is dense, (rows, width, width): for rows of at most a few thousand tokens.
    """
    device = next(model.parameters()).device
    first, begin = rows[0][0].ids, _common_beginning(rows)
    rows = [[Piece(begin, row[0].ids[begin:], row[0].wanted), *row[1:]] for row in rows]
    passed = [[row[0].ids, *(piece.ids[:-1] for piece in row[1:])] for row in rows]
    width = padded_width(model, max(sum(map(len, row)) for row in passed))
    # Filled as numpy arrays: many small pieces, and a small write to a tensor costs ten times as much.
    batch, place = np.zeros((2, len(rows), width), dtype=np.int64)
    sees = np.tile(np.eye(width, dtype=bool), (len(rows), 1, 1))  # padding sees itself: no empty softmax
    before = np.tri(width, dtype=bool)
    sources, targets, numbers = [], [], []
    for number, row in enumerate(rows):
        at = 0
        for piece, ids in zip(row, passed[number], strict=True):
            end = at + len(ids)
            batch[number, at:end] = ids
            place[number, at:end] = np.arange(piece.start, piece.start + len(ids))
            sees[number, at:end, : piece.start - begin] = True
            sees[number, at:end, at:end] = before[: end - at, : end - at]
            # What comes before the first token of a piece stands in the first piece.
            sources += [p - 1 - begin if p == piece.start else at + p - 1 - piece.start for p in piece.wanted]
            targets += [piece.ids[p - piece.start] for p in piece.wanted]
            numbers += [number] * len(piece.wanted)
            at = end
    before_rows = None
    if begin:
        beginning = torch.tensor([first[:begin]], device=device)
        before_rows = model.model(input_ids=beginning, use_cache=True).past_key_values
        before_rows.batch_repeat_interleave(len(rows))
    mask = torch.nn.functional.pad(torch.from_numpy(sees[:, None]), (begin, 0), value=True)
    hidden = model.model(
        input_ids=torch.from_numpy(batch).to(device), attention_mask=mask.to(device),
        position_ids=torch.from_numpy(place).to(device), past_key_values=before_rows, use_cache=before_rows is not None,
    ).last_hidden_state  # fmt: skip
    chosen = hidden[torch.tensor(numbers, dtype=torch.long), torch.tensor(sources, dtype=torch.long)]
    return _chosen_logprobs(model, chosen, torch.tensor(targets, dtype=torch.long), temperature)


def _common_beginning(rows: Sequence[Sequence[Piece]]) -> int:
    """How many tokens all rows begin with before the first scored one; 0 where passing them once does not pay."""
    first, *others = (row[0].ids for row in rows)
    most = min(min((len(row[0].ids), *row[0].wanted, *(piece.start for piece in row[1:]))) for row in rows) - 1
    for other in others:
        most = next((k for k in range(most) if first[k] != other[k]), most)
    return most if others and most >= _SHARED else 0


def _chosen_logprobs(
    model: torch.nn.Module, hidden: torch.Tensor, targets: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Log-probabilities (N,) of the tokens ``targets`` (N,) behind the hidden states (N, width)."""
    logits = model.lm_head(hidden).float() / temperature
    return torch.log_softmax(logits, dim=-1).gather(1, targets.to(logits.device)[:, None]).squeeze(1)
