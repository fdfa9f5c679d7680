"""What becomes of the cases of a data set: read, dropped by which rule, kept, and the leaks found in them."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

# Every reason to leave a case out, in the order in which they are tried.
RULES = (
    "note_id missing or repeated",
    "same case twice",
    "note of no known admission",
    "admission without a time",
    "another note of the same admission",
    "question about something else than the diagnosis",
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


@dataclass(frozen=True)
class Incident:
    """One case dropped (``what`` is the rule) or one leak in it: what was done, where, under which name."""

    case: str
    what: str
    action: str
    place: str = ""
    name: str = ""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Record):
    """How many cases a rule dropped, and how many were left after it."""

    rule: str
    dropped: int
    left: int


class Leak(_Record):
    """In how many cases a leak was found, and what was done about it: ``masked``, ``removed`` or ``kept``."""

    leak: str
    action: str
    cases: int


class AttritionReport(_Record):
    """The numbers of an :class:`Attrition`, as stages write and read them: ``*.report.json``.

    Raises ValueError for steps that do not lead from the cases read to those kept.
    """

    dataset: str
    read: int
    kept: int
    funnel: tuple[Step, ...]
    leaks: tuple[Leak, ...]
    events: dict[str, int]
    splits: dict[str, int]
    warnings: tuple[str, ...]

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        left = self.read
        for step in self.funnel:
            left -= step.dropped
            if step.left != left:
                raise ValueError(f"rule {step.rule!r} leaves {step.left} cases where {left} remain")
        if left != self.kept:
            raise ValueError(f"{self.read} cases read less those dropped are {left}, not {self.kept}")
        return self

    def text(self) -> str:
        """The report as JSON."""
        return self.model_dump_json(indent=2) + "\n"


@dataclass
class Attrition:
    """What an import counts.

    ``incidents`` are all dropped cases and all leaks, with identifiers and words of the cases: they belong beside the
    records. ``events`` counts what happened to the rows behind the examinations; ``warnings`` are sentences for the
    user. ``rows_read`` are the rows of tables that no event counts, ``tables`` is a line on each table. What
    :meth:`report` returns holds numbers only.
    """

    dataset: str
    read: int = 0
    kept: int = 0
    incidents: list[Incident] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    splits: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    rows_read: dict[str, int] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)

    def drop(self, rule: str, case: str, place: str = "", name: str = "") -> None:
        """Count one case as dropped by one of :data:`RULES`; anything else raises ValueError."""
        if rule not in RULES:
            raise ValueError(f"{rule!r} is not in RULES")
        self.incidents.append(Incident(case, rule, "dropped", place, name))

    def leak(self, what: str, action: str, case: str, place: str, name: str = "") -> None:
        """Note a leak that did not cost the case: ``masked``, ``removed`` or ``kept``."""
        self.incidents.append(Incident(case, what, action, place, name))

    def warn(self, what: str) -> None:
        """A warning that nobody shall overlook: part of the data may be lost."""
        self.warnings.append(f"WARNING: {what}")

    def count(self, what: str, number: int = 1) -> None:
        """Add to an event count."""
        self.events[what] += number

    def add(self, other: Self) -> None:
        """Take over what another process counted."""
        self.read += other.read
        self.incidents += other.incidents
        self.events += other.events

    @property
    def dropped(self) -> dict[str, list[str]]:
        """Identifiers of the dropped cases by rule, in the order of the rules."""
        cases_of_rule = {rule: sorted(i.case for i in self.incidents if i.what == rule) for rule in RULES}
        return {rule: cases for rule, cases in cases_of_rule.items() if cases}

    def steps(self) -> list[Step]:
        """What each rule dropped, in the order of the rules."""
        left, steps = self.read, []
        for rule, cases in self.dropped.items():
            left -= len(cases)
            steps.append(Step(rule=rule, dropped=len(cases), left=left))
        return steps

    def leaks(self) -> list[Leak]:
        """Leaks that did not cost their case, sorted."""
        cases_of_leak: dict[tuple[str, str], set[str]] = defaultdict(set)
        for incident in self.incidents:
            if incident.what not in RULES:
                cases_of_leak[incident.what, incident.action].add(incident.case)
        return [
            Leak(leak=what, action=action, cases=len(cases)) for (what, action), cases in sorted(cases_of_leak.items())
        ]

    def report(self) -> AttritionReport:
        """The numbers, in a fixed order. Raises ValueError when ``kept`` is not what the rules leave."""
        return AttritionReport(
            dataset=self.dataset, read=self.read, kept=self.kept, funnel=tuple(self.steps()),
            leaks=tuple(self.leaks()), events=dict(sorted(self.events.items())), splits=self.splits,
            warnings=tuple(self.warnings),
        )  # fmt: skip

    def rows(self) -> list[dict[str, str]]:
        """Every incident as a table row, sorted; notes without an identifier look alike and are listed one by one."""
        return [vars(i) for i in sorted(self.incidents, key=lambda i: (i.case, i.what, i.place, i.name, i.action))]
