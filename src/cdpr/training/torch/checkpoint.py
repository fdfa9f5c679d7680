"""Interruptible work of this engine on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...files import replacing


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write atomically; a kill during the write leaves the previous checkpoint."""
    with replacing(path) as partial:
        torch.save(dict(state), partial)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """What was saved; None when there is nothing."""
    # The file is this program's own, written under its own state folder.
    return torch.load(path, map_location="cpu", weights_only=False) if path.exists() else None
