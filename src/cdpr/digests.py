"""Digests of files that are remembered, so that large ones are read once."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

from .files import path_digest

T = TypeVar("T")


class DigestCache:
    """Digests of files, kept in a file of their own (None: in memory) and recomputed only when size or modification
    time changed. An object looks at what it is asked for :meth:`once` a single time: it serves one planning.

    A ``touch`` costs one more reading of the file and leaves its digest, hence every key, as it was.
    """

    def __init__(self, path: str | Path | None):
        self._path = Path(path) if path else None
        self._known: dict[str, list] = {}
        self._changed = False
        self._looked: dict[Hashable, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            self._known = json.loads(self._path.read_text(encoding="utf-8")) if self._path else {}

    def digest(self, path: str | Path) -> str:
        """Digest of a file or folder; ``"absent"`` where nothing stands."""
        path = Path(path)
        if not path.exists():
            return "absent"
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        stamp = [[str(f.relative_to(path)), f.stat().st_size, f.stat().st_mtime_ns] for f in files]
        value = self.remember(str(path.resolve()), stamp, lambda: path_digest(path))
        self.save()
        return value

    def remember(self, name: str, stamp: list, compute: Callable[[], Any]) -> Any:
        """What was computed under this stamp (both JSON), or is now."""
        known = self._known.get(name)
        if not known or known[0] != stamp:
            self._known[name] = known = [stamp, compute()]
            self._changed = True
        return known[1]

    def once(self, name: Hashable, compute: Callable[[], T]) -> T:
        """What is computed when it is asked for the first time."""
        if name not in self._looked:
            self._looked[name] = compute()
        return self._looked[name]

    def save(self) -> None:
        """Write what is new."""
        if self._path is None or not self._changed:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f"{self._path.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(self._known, sort_keys=True), encoding="utf-8")
        os.replace(partial, self._path)
        self._changed = False
