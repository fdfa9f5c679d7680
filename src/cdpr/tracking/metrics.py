"""Metrics of a long stage, one JSON object a line, that survive being killed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Listener = Callable[[Mapping[str, Any]], None]


class MetricsLog:
    """Rows ``{"step": int, ...}`` in a file, ascending by step.

    A resumed stage calls :meth:`resume` with the step of its checkpoint: rows after it, and a last line cut short by
    a kill, go away before anything is appended. ``listener`` gets every appended row (live tracking).
    """

    def __init__(self, path: str | Path, listener: Listener | None = None):
        self.path = Path(path)
        self._listener = listener
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row, on disk when this returns. Raises ValueError without an integer ``step``."""
        if not isinstance(row.get("step"), int):
            raise ValueError(f"a row of {self.path} needs an integer 'step', got {row.get('step')!r}")
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(dict(row), sort_keys=False) + "\n")
        if self._listener is not None:
            self._listener(row)

    def resume(self, step: int) -> list[dict[str, Any]]:
        """Keep the rows up to and including ``step`` (0: none) and return them."""
        kept = [row for row in self.rows() if row["step"] <= step] if step > 0 else []
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        os.replace(partial, self.path)
        return kept

    def rows(self) -> list[dict[str, Any]]:
        """All whole rows; a last line that was cut short is left out."""
        return read_metrics(self.path)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Rows of a metrics file, an absent file having none. Raises ValueError for a broken line before the last."""
    path = Path(path)
    if not path.exists():
        return []
    rows = []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ValueError(f"{path}:{number}: not JSON ({error.msg}); delete the file to start it anew") from error
    return rows
