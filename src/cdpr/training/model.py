"""The trained model: loading, saving, log-probabilities."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

Log = Callable[[dict], None]
"""Receives one row of metrics."""


def load_model(folder: Path, device: str = "cpu") -> torch.nn.Module:
    """A transformers causal language model in single precision."""
    with _without("sklearn"):  # 2 s that only assisted generation needs
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)


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


def save_policy(model, init_policy: Path, out_dir: Path) -> None:
    """Weights of the model with the tokenizer files of the policy it came from; atomic."""
    partial = out_dir.with_name(out_dir.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (init_policy / name).exists():
            shutil.copyfile(init_policy / name, partial / name)
    shutil.rmtree(out_dir, ignore_errors=True)
    os.replace(partial, out_dir)


def token_logprobs(
    model: torch.nn.Module, ids: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], temperature: float = 1.0
) -> torch.Tensor:
    """log pi(ids[p] | ids[:p]) for every listed position, flat in the order given; differentiable.

    The vocabulary projection runs only where a loss stands.
    """
    device = next(model.parameters()).device
    width = max(map(len, ids))
    batch = torch.zeros(len(ids), width, dtype=torch.long)
    mask = torch.zeros(len(ids), width, dtype=torch.long)
    for row, sequence in enumerate(ids):
        batch[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
    rows = torch.tensor([row for row, wanted in enumerate(positions) for _ in wanted], dtype=torch.long)
    columns = torch.tensor([p for wanted in positions for p in wanted], dtype=torch.long)
    hidden = model.model(input_ids=batch.to(device), attention_mask=mask.to(device), use_cache=False).last_hidden_state
    return _chosen_logprobs(model, hidden[rows, columns - 1], batch[rows, columns], temperature)


def branched_logprobs(
    model: torch.nn.Module,
    ids: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    branches: Sequence[Sequence[tuple[int, Sequence[int]]]],
    temperature: float = 1.0,
) -> torch.Tensor:
    """As :func:`token_logprobs`, and for every branch (start, tokens) of a sequence log pi(tokens | ids[:start]),
    those of a sequence's branches after its own. Returns one number per position and branch token, differentiable.

    A sequence and its branches are one row: a branch's tokens stand behind it, take the positions from ``start`` on,
    and see what comes before ``start`` and themselves only. So the shared prefix is computed once.
    """
    device = next(model.parameters()).device
    width = max(len(row) + sum(len(b) for _, b in own) for row, own in zip(ids, branches, strict=True))
    batch = torch.zeros(len(ids), width, dtype=torch.long)
    place = torch.zeros(len(ids), width, dtype=torch.long)
    sees = torch.eye(width, dtype=torch.bool).repeat(len(ids), 1, 1)  # padding sees itself: no empty softmax
    rows, sources, targets = [], [], []
    for row, (sequence, wanted, own) in enumerate(zip(ids, positions, branches, strict=True)):
        end = len(sequence)
        batch[row, :end], place[row, :end] = torch.tensor(sequence), torch.arange(end)
        sees[row, :end, :end] = torch.ones(end, end, dtype=torch.bool).tril()
        sources += [p - 1 for p in wanted]
        targets += [sequence[p] for p in wanted]
        rows += [row] * len(wanted)
        for start, tokens in own:
            stop = end + len(tokens)
            batch[row, end:stop], place[row, end:stop] = torch.tensor(tokens), torch.arange(start, start + len(tokens))
            sees[row, end:stop, :start] = True
            sees[row, end:stop, end:stop] = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
            sources += [start - 1, *range(end, stop - 1)]
            targets += tokens
            rows += [row] * len(tokens)
            end = stop
    mask = sees[:, None].to(device)
    hidden = model.model(
        input_ids=batch.to(device), attention_mask=mask, position_ids=place.to(device), use_cache=False
    ).last_hidden_state
    return _chosen_logprobs(
        model, hidden[torch.tensor(rows), torch.tensor(sources)], torch.tensor(targets), temperature
    )


def _chosen_logprobs(
    model: torch.nn.Module, hidden: torch.Tensor, targets: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Log-probabilities (N,) of the tokens ``targets`` (N,) behind the hidden states (N, width)."""
    logits = model.lm_head(hidden).float() / temperature
    return torch.log_softmax(logits, dim=-1).gather(1, targets.to(logits.device)[:, None]).squeeze(1)
