"""The trained model: loading, saving, log-probabilities."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

Log = Callable[[dict], None]
"""Receives one row of metrics."""


def load_model(folder: Path) -> torch.nn.Module:
    """A transformers causal language model in single precision."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


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
    logits = model.lm_head(hidden[rows, columns - 1]).float() / temperature
    target = batch[rows, columns].to(device)
    return torch.log_softmax(logits, dim=-1).gather(1, target[:, None]).squeeze(1)
