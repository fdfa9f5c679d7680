"""The trained model on disk: loading, saving, checkpoints."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ...files import replacing
from .update import use_onednn


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
    """A checkpoint of this program; None where there is none."""
    return torch.load(path, map_location="cpu", weights_only=False) if path.exists() else None


def copy_tokenizer(policy: Path, folder: Path) -> None:
    """The tokenizer files of a policy, beside other weights."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (policy / name).exists():
            shutil.copyfile(policy / name, folder / name)
