"""Which of verl's checkpoints is whole, and which ones are removed.

verl removes the previous checkpoint before it names the next one the latest, so a kill in between leaves a name without
a checkpoint. Here verl removes none: a checkpoint is marked when all of it is written, and older ones go after that.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ...files import write_text

LATEST = "latest_checkpointed_iteration.txt"
"""The file in which verl looks up the step to go on from."""
_STEP, _MARK = "global_step_", "whole"


def folder_of(checkpoints: Path, step: int) -> Path:
    """Where verl keeps the checkpoint of a step."""
    return checkpoints / f"{_STEP}{step}"


def keep_only(checkpoints: Path, step: int) -> None:
    """Mark the checkpoint of ``step`` as whole and remove all others."""
    write_text(folder_of(checkpoints, step) / _MARK, "")
    _remove(checkpoints, folder_of(checkpoints, step))


def fall_back(checkpoints: Path) -> int | None:
    """Let verl go on from the newest whole checkpoint, whatever a killed run left; returns its step, None where there
    is none."""
    whole = [int(mark.parent.name.removeprefix(_STEP)) for mark in checkpoints.glob(f"{_STEP}*/{_MARK}")]
    if not whole:
        _remove(checkpoints)
        (checkpoints / LATEST).unlink(missing_ok=True)
        return None
    _remove(checkpoints, folder_of(checkpoints, max(whole)))
    write_text(checkpoints / LATEST, str(max(whole)))
    return max(whole)


def _remove(checkpoints: Path, kept: Path | None = None) -> None:
    for folder in checkpoints.glob(f"{_STEP}*"):
        if folder != kept:
            shutil.rmtree(folder)
