"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write by temporary file and rename; folders are made. Returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def write_text(path: str | Path, text: str) -> Path:
    """Write text as UTF-8; see :func:`write_bytes`."""
    return write_bytes(path, text.encode("utf-8"))


def with_suffix(stem: str | Path, suffix: str) -> Path:
    """``stem`` plus ``suffix``; dots in the stem stay."""
    stem = Path(stem)
    return stem.with_name(stem.name + suffix)
