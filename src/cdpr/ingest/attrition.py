"""Counts of an import: cases that were read, dropped by each rule and kept, and leaks of the diagnosis that were
found."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from pydantic import BaseModel, model_validator

from .. import ingest as package
from ..escape import environment
from ..files import write_text
from ..job import Job
from .texts import phrases, quoted

# Every reason to leave a case out, in the order in which they are tried.
RULES: tuple[str, ...] = tuple(phrases("attrition")["rules"])
UNREADABLE = RULES[0]
_FREQUENT = 0.1  # a rule that drops a larger share of the cases gets a warning; so does every unreadable case
_EXAMPLES = 3  # most cases that one warning shows
_LISTED = 20  # most dropped cases that are listed for one rule


class Incident(NamedTuple):
    """A case that was dropped, or a leak in a case.

    ``case`` is the identifier of the case, ``what`` the rule that dropped it or the kind of leak. ``action`` says what
    was done: ``dropped``, ``masked``, ``removed`` or ``kept``. ``place`` is the section or examination, ``name`` the
    words of the text that name the diagnosis.
    """

    case: str
    what: str
    action: str
    place: str = ""
    name: str = ""


class Leak(BaseModel, frozen=True, extra="forbid"):
    """In how many cases a kind of leak was found, and what was done about it: ``masked``, ``removed`` or ``kept``."""

    leak: str
    action: str
    cases: int


class AttritionReport(BaseModel, frozen=True, extra="forbid"):
    """The counts of an import (:class:`Attrition`) without identifiers and words of cases; they are written to and read
    from ``*.report.json``. ``dropped`` has the number of cases that each rule dropped, in the order of :data:`RULES`.

    Raises ValueError where the cases read, minus those that the rules dropped, are not the cases kept.
    """

    dataset: str
    read: int
    kept: int
    dropped: dict[str, int]
    leaks: tuple[Leak, ...]
    events: dict[str, int]
    splits: dict[str, int]
    warnings: tuple[str, ...]

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        """Raise ValueError where the cases read, minus those dropped by each rule, are not the cases kept."""
        if (left := self.read - sum(self.dropped.values())) != self.kept:
            raise ValueError(f"{self.read} cases read less those dropped are {left}, not {self.kept}")
        return self


@dataclass
class Attrition:
    """The counts that an import makes while it reads a data set.

    ``read`` and ``kept`` are numbers of cases, ``splits`` the kept cases by split. ``incidents`` are all dropped cases
    and all leaks; they have identifiers and words of the cases, and are as confidential as these. ``events`` counts
    what happened to rows and texts, by a description ("laboratory rows without a result"). ``warnings`` are sentences
    for the user. ``tables`` has an entry for each table of the source: its number of rows, or for a table whose rows
    are counted in ``events`` the words with which their descriptions begin ("laboratory rows").
    The result of :meth:`report` has no identifiers and no words of the cases.
    """

    dataset: str
    read: int = 0
    kept: int = 0
    incidents: list[Incident] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    splits: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    tables: dict[str, int | str] = field(default_factory=dict)

    def drop(self, rule: str, case: str, place: str = "", name: str = "") -> None:
        """Record that the case with the identifier ``case`` was dropped by ``rule``. ``place`` says where in its data
        the reason is, ``name`` which words gave it. Raises ValueError for a rule that is not one of :data:`RULES`."""
        if rule not in RULES:
            raise ValueError(f"{rule!r} is not in RULES")
        self.incidents.append(Incident(case, rule, "dropped", place, name))

    def leak(self, what: str, action: str, case: str, place: str, name: str = "") -> None:
        """Record a leak of the kind ``what`` that was ``masked``, ``removed`` or ``kept`` (``action``) without dropping
        the case. ``place`` is the section or examination in which it was found, ``name`` the words that name the
        diagnosis (empty where none do)."""
        self.incidents.append(Incident(case, what, action, place, name))

    def warn(self, what: str) -> None:
        """Add a warning that a part of the data may be lost, with the words ``what``; the report will have it."""
        self.warnings.append(f"WARNING: {what}")

    def count(self, event: str, number: int = 1) -> None:
        """Add ``number`` to the count of an event, given by its description; 0 and False add nothing."""
        if number:
            self.events[event] += number

    def counts_after(self, prefix: str) -> Counter[str]:
        """Return the counts of the events whose descriptions consist of ``prefix`` and further words, by these words.
        With the prefix "laboratory rows" the key "used" has the count of the event "laboratory rows used"."""
        counts = {event: n for event, n in self.events.items() if event.startswith(f"{prefix} ")}
        return Counter({event.removeprefix(f"{prefix} "): n for event, n in counts.items()})

    @property
    def dropped(self) -> dict[str, list[str]]:
        """The identifiers of the dropped cases by rule, in the order of :data:`RULES`. Rules that dropped none are left
        out."""
        by_rule = {rule: sorted(i.case for i in self.incidents if i.what == rule) for rule in RULES}
        return {rule: cases for rule, cases in by_rule.items() if cases}

    def warn_of_frequent_rules(self) -> None:
        """Warn of each rule that drops more than a tenth of the cases, and of cases that cannot be read, with examples.
        There is no warning of the last rule, which drops cases beyond the number that the user wants."""
        for rule, cases in self.dropped.items():
            if rule == UNREADABLE or (len(cases) > _FREQUENT * self.read and rule != RULES[-1]):
                # A case is shown by its place in the data ("line 7"), which has no words of a patient.
                places = list(dict.fromkeys(i.place for i in self.incidents if i.what == rule and i.place))
                examples = "; ".join(f"({number}) {place}" for number, place in enumerate(places[:_EXAMPLES], 1))
                share = f"{len(cases):,} of {self.read:,} cases ({len(cases) / self.read:.0%})"
                self.warn(f"the rule {rule!r} drops {share}" + (f", for example {examples}" if examples else ""))

    def leaks(self) -> tuple[Leak, ...]:
        """Count the cases with each kind of leak that did not drop the case; sorted by kind and by what was done."""
        leaks = {(i.what, i.action, i.case) for i in self.incidents if i.what not in RULES}  # once per case
        cases = Counter((what, action) for what, action, _ in leaks)
        return tuple(Leak(leak=what, action=action, cases=cases[what, action]) for what, action in sorted(cases))

    def report(self) -> AttritionReport:
        """Return the counts as a report. Raises ValueError where ``kept`` is not the number of cases that the rules
        leave."""
        counts = {name: vars(self)[name] for name in ("dataset", "read", "kept", "splits", "warnings")}
        dropped = {rule: len(cases) for rule, cases in self.dropped.items()}
        return AttritionReport(**counts, events=dict(sorted(self.events.items())), dropped=dropped, leaks=self.leaks())

    def conclude(self, job: Job) -> None:
        """Write the report to the file ``job.out["report"]``, add the numbers of cases read and kept to the metrics of
        the job, and print all counts. Raises ValueError as :meth:`report`."""
        write_text(job.out["report"], self.report().model_dump_json(indent=2) + "\n")
        job.metrics.update(read=self.read, kept=self.kept)
        print(self.text())

    def text(self, identifiers: bool = False) -> str:
        """Write the counts for a terminal: cases, rules, leaks, tables, warnings. A table has a line with how many of
        its rows were read and used, and why the others were not. With ``identifiers`` each rule lists the first cases
        that it dropped."""
        listed = {rule: ", ".join(map(quoted, cases[:_LISTED])) for rule, cases in self.dropped.items() if identifiers}
        text = environment(package).get_template("attrition.txt").render(counts=self, listed=listed, most=_LISTED)
        return text.removesuffix("\n")

    def count_left_out(self) -> None:
        """Count the rows of cases whose note was left out, for each table whose rows are counted in ``events``. These
        rows have no count of their own yet: they are the rows read, less the counts of all other events."""
        for entry in self.tables.values():
            if isinstance(entry, str):  # "laboratory rows": by itself the event that counts all rows
                left_out = self.events[entry] - self.counts_after(entry).total()
                self.count(f"{entry} of cases whose note was left out", left_out)

    def rows(self) -> list[dict[str, str]]:
        """Return all incidents as rows of a table, sorted by case. Cases without an identifier may give equal rows; all
        are kept."""
        return [i._asdict() for i in sorted(self.incidents, key=lambda i: (i.case, i.what, i.place, i.name, i.action))]
