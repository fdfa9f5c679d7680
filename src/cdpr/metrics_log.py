"""Writes and reads the metrics of a long stage in a file with one JSON object per line, which survives a kill."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .files import TableError, append_text, write_text


class MetricsLog:
    """A file of rows ``{"step": int, ...}`` in ascending order of steps. Calling the object appends a row.

    When a stage is resumed from a checkpoint, it computes the steps behind the checkpoint again. So its first row
    replaces the rows of this step and of all later ones, which the killed attempt had written.
    """

    def __init__(self, path: str | Path):
        """Name the file; nothing is read or written yet."""
        self.path = Path(path)
        self._next = -1  # the least step of the next row; -1 until this object has written one

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Append a row; it is on the disk when this returns. Raises ValueError for a row without an integer ``step``,
        and for one whose step is not above that of the row before. Raises ValueError also for the first row of a
        resumed stage where the file lacks the row of the step before it."""
        if not isinstance(step := row.get("step"), int) or step < self._next:
            raise ValueError(f"{self.path}: a row needs an integer 'step' of at least {self._next}, got {step!r}")
        if self._next < 0:
            rows = [row for row in read_metrics(self.path) if row["step"] < step]
            # The last step in the file. Without rows, the step before the first one, which is 0 or 1.
            last = rows[-1]["step"] if rows else min(step, 1) - 1
            if last < step - 1:
                gap = f"the rows of steps {last + 1} to {step - 1} are gone"
                remedy = f"remove {self.path.parent} to start again from the first step"
                raise ValueError(f"{self.path}: {gap}, but the checkpoint beside it goes on from there; {remedy}")
            write_text(self.path, _to_jsonl(rows))
        self._next = step + 1
        append_text(self.path, _to_jsonl([dict(row)]))


def split_times(rows: Iterable[Mapping[str, Any]], metrics: Path, timings: Path) -> None:
    """Write rows of metrics to two files: the times in each row (``seconds`` and names that begin with ``time/``) to
    ``timings``, everything else to ``metrics``. Both files have one JSON object per row, with its ``step``. So equal
    runs have equal files of metrics, although they take different times."""
    for path, has_times in ((metrics, False), (timings, True)):
        chosen = [{name: row[name] for name in row if name == "step" or _is_time(name) == has_times} for row in rows]
        write_text(path, _to_jsonl(chosen))


def read_history(metrics: str | Path, timings: str | Path | None) -> list[dict[str, Any]]:
    """Read the two files that :func:`split_times` wrote; returns their rows joined by step, without times where
    ``timings`` is None. Raises TableError for a line that is no row, also for an incomplete last line."""
    times = {row["step"]: row for row in read_metrics(Path(timings), whole=True)} if timings else {}
    return [row | times.get(row["step"], {}) for row in read_metrics(Path(metrics), whole=True)]


def _is_time(name: str) -> bool:
    """Whether the metric ``name`` is a time, which differs between equal runs."""
    return name == "seconds" or name.startswith("time/")


def _to_jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows as text, one JSON object per line."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def read_metrics(path: Path, whole: bool = False) -> list[dict[str, Any]]:
    """Read the rows of a metrics file, one JSON object per line; none where the file is missing. An incomplete last
    line, left by a kill, is ignored unless the file must be ``whole``. Raises TableError for any other line that is not
    a JSON object with an integer ``step``."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # RecursionError: thousands of opening brackets
            if not whole and number == len(lines) and not line.endswith(b"\n"):
                break
            problem = f"not JSON ({getattr(error, 'msg', error)})"
            raise TableError(f"{path}:{number}: {problem}; delete the file to start it anew") from error
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise TableError(f"{path}:{number}: no row with an integer 'step'; delete the file to start it anew")
        rows.append(row)
    return rows
