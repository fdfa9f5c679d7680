"""What an importer reports: the error that stops it, and the funnel of what it kept, changed and dropped."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Every reason to leave a case out, in the order in which they are tried.
RULES = (
    "note_id missing or repeated",
    "same case twice",
    "note of no known admission",
    "admission without a time",
    "another note of the same admission",
    "no headed sections in the case summary",
    "no diagnosis",
    "no physical examination",
    "no complaint and no present illness",
    "diagnosis established before",
    "diagnosis stated in the summary",
    "diagnosis of a relative",
    "no examination",
    "beyond the number of cases asked for",
)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")  # as repr writes them


class IngestError(ValueError):
    """Raw data that cannot be trusted. The message names file, line and field, and what to do."""

    def __init__(
        self, path: str | Path, problem: str, remedy: str, *, line: int | None = None, field: str | None = None
    ):
        self.path, self.line, self.field, self.problem, self.remedy = Path(path), line, field, problem, remedy
        place = f"{path}:{line}" if line is not None else f"{path}"
        named = f"field {field!r}: " if field is not None else ""
        super().__init__(f"{place}: {named}{problem}; {remedy}")

    def without_text(self) -> IngestError:
        """The same error without the values that it quotes, for cases that must not appear in a log."""
        problem = _QUOTED.sub("'(withheld)'", self.problem)
        return IngestError(self.path, problem, self.remedy, line=self.line, field=self.field)


@dataclass(frozen=True)
class Finding:
    """One case dropped (``what`` is the rule) or one leak in it: what was done, where, under which name."""

    case: str
    what: str
    action: str
    place: str = ""
    name: str = ""


@dataclass
class Funnel:
    """Counts of one import: cases read, kept and dropped, leaks found.

    ``findings`` lists every dropped case and every leak, with identifiers and words of the cases: it belongs beside
    the records. ``events`` counts what happened to the rows behind the examinations; ``warnings`` are sentences for
    the user. What :meth:`report` returns holds numbers only.
    """

    dataset: str
    read: int = 0
    kept: int = 0
    findings: list[Finding] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    splits: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def drop(self, rule: str, case: str, place: str = "", name: str = "") -> None:
        """Count one case as dropped by one of :data:`RULES`; anything else raises ValueError."""
        if rule not in RULES:
            raise ValueError(f"{rule!r} is not in RULES")
        self.findings.append(Finding(case, rule, "dropped", place, name))

    def leak(self, what: str, action: str, case: str, place: str, name: str = "") -> None:
        """Note a leak that did not cost the case: ``masked``, ``removed`` or ``kept``."""
        self.findings.append(Finding(case, what, action, place, name))

    def count(self, what: str, number: int = 1) -> None:
        """Add to an event count."""
        self.events[what] += number

    def add(self, other: Funnel) -> None:
        """Take over what another process found."""
        self.read += other.read
        self.findings += other.findings
        self.events += other.events

    @property
    def dropped(self) -> dict[str, list[str]]:
        """Identifiers of the dropped cases by rule, in the order of the rules."""
        found = {rule: sorted(f.case for f in self.findings if f.what == rule) for rule in RULES}
        return {rule: cases for rule, cases in found.items() if cases}

    def steps(self) -> list[tuple[str, int, int]]:
        """(rule, cases dropped, cases left), in the order of the rules."""
        left, steps = self.read, []
        for rule, cases in self.dropped.items():
            left -= len(cases)
            steps.append((rule, len(cases), left))
        return steps

    def report(self) -> dict[str, Any]:
        """Numbers as JSON, in a fixed order: the funnel, leaks as (leak, action) -> cases, events, splits."""
        leaks: dict[tuple[str, str], set[str]] = defaultdict(set)
        for finding in self.findings:
            if finding.what not in RULES:
                leaks[finding.what, finding.action].add(finding.case)
        return {
            "dataset": self.dataset,
            "read": self.read,
            "kept": self.kept,
            "funnel": [{"rule": rule, "dropped": lost, "left": left} for rule, lost, left in self.steps()],
            "leaks": [{"leak": what, "action": action, "cases": len(cases)}
                      for (what, action), cases in sorted(leaks.items())],
            "events": dict(sorted(self.events.items())),
            "splits": self.splits,
            "warnings": self.warnings,
        }  # fmt: skip

    def rows(self) -> list[dict[str, str]]:
        """Every finding as a table row, sorted; notes without an identifier look alike and are listed one by one."""
        return [vars(f) for f in sorted(self.findings, key=lambda f: (f.case, f.what, f.place, f.name, f.action))]
