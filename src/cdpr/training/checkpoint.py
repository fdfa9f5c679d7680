"""Checkpoints of the torch trainer: everything that the next step depends on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ..files import replacing

if TYPE_CHECKING:
    from .trainer import Trainer

_NAME = "checkpoint.pt"


def save_checkpoint(trainer: Trainer, folder: Path) -> None:
    """Write atomically; a kill during the write leaves the previous checkpoint."""
    content = {
        "step": trainer.step,
        "seconds": trainer.seconds,
        "tokens": trainer.tokens,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.update.optimizer.state_dict(),
        "snapshot": trainer.snapshot and trainer.snapshot.state_dict(),
        "algorithm": trainer.algorithm.state(),
    }
    with replacing(folder / _NAME) as partial:
        torch.save(content, partial)


def load_checkpoint(trainer: Trainer, folder: Path) -> bool:
    """Continue from a checkpoint; False when there is none."""
    path = folder / _NAME
    if not path.exists():
        return False
    # The file is this program's own, written under its own state folder.
    saved = torch.load(path, map_location="cpu", weights_only=False)
    trainer.step, trainer.seconds, trainer.tokens = saved["step"], saved["seconds"], saved["tokens"]
    trainer.model.load_state_dict(saved["model"])
    trainer.update.optimizer.load_state_dict(saved["optimizer"])
    if saved["snapshot"] is not None:
        trainer.snapshot.load_state_dict(saved["snapshot"])
    trainer.algorithm.restore(saved["algorithm"])
    return True
