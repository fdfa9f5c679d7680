"""What an importer reports: the error that stops it, and the funnel of what it kept and dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class IngestError(ValueError):
    """Raw data that cannot be trusted. The message names file, line and field, and what to do."""

    def __init__(
        self, path: str | Path, problem: str, remedy: str, *, line: int | None = None, field: str | None = None
    ):
        self.path, self.line, self.field, self.problem, self.remedy = Path(path), line, field, problem, remedy
        place = f"{path}:{line}" if line is not None else f"{path}"
        named = f"field {field!r}: " if field is not None else ""
        super().__init__(f"{place}: {named}{problem}; {remedy}")


@dataclass
class Funnel:
    """Counts of one import: cases read, kept and dropped per rule, with the identifiers of the dropped.

    ``events`` counts what happened to the rows behind the examinations; ``warnings`` are sentences for the user.
    """

    dataset: str
    read: int = 0
    kept: int = 0
    dropped: dict[str, list[str]] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def drop(self, rule: str, case_id: str) -> None:
        """Count one case as dropped by a rule."""
        self.dropped.setdefault(rule, []).append(case_id)

    def count(self, what: str, number: int = 1) -> None:
        """Add to an event count."""
        self.events[what] = self.events.get(what, 0) + number

    def report(self) -> dict[str, Any]:
        """The funnel as JSON, in a fixed order."""
        return {
            "dataset": self.dataset,
            "read": self.read,
            "kept": self.kept,
            "dropped": {rule: {"count": len(ids), "ids": sorted(ids)} for rule, ids in sorted(self.dropped.items())},
            "events": dict(sorted(self.events.items())),
            "splits": self.splits,
            "warnings": self.warnings,
        }
