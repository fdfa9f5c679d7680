"""Discharge summaries in the layout of MIMIC-IV-Note: what was known at presentation, and the diagnosis.

Hospital course, medications, pertinent results and everything about the discharge are never taken over: they
were written in the knowledge of the diagnosis.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import zip_longest

from .physical import physical_results
from .summary import one_line, says_something

# Headings that begin a line; first come, first served. None marks a section that only ends the one before.
_HEADINGS: tuple[tuple[str, str | None], ...] = (
    (r"allerg(?:y|ies)", "Allergy History"),
    (r"attending", None),
    (r"chief complaint", "Chief Complaint"),
    (r"major surgical or invasive procedures?", None),
    (r"(?:history of (?:the )?)?present(?:ing)? illness|hpi", "History of Present Illness"),
    (r"past medical(?:(?: and |/| & )surgical)? history|pmhx?(?:/psh)?|past history", "Past Medical History"),
    (r"past surgical history|pshx?", "Past Medical History"),
    (r"social history|personal history", "Personal History"),
    (r"family (?:medical )?history", "Family History"),
    (
        r"(?:(?:admission|initial) )?(?:physical exam(?:ination)?|exam|pe)"
        r"(?: (?:on|at|upon) (?:admission|presentation))?",
        "physical",
    ),
    (r"pertinent results|(?:admission )?labs|laboratory data|imaging|studies", None),
    (r"(?:brief |summary of )?hospital course", None),
    (r"(?:preadmission )?medications? on admission|home medications?", None),
    (r"discharge medications?", None),
    (r"discharge disposition", None),
    (r"facility", None),
    (r"(?:primary |final )?discharge diagnos[ie]s|final diagnos[ie]s", "diagnosis"),
    (r"discharge condition", None),
    (r"discharge instructions?", None),
    (r"follow-?\s?up instructions?", None),
)
_HEADING = re.compile(
    r"^[^\S\n]*(?:" + "|".join(f"(?P<s{i}>{pattern})" for i, (pattern, _) in enumerate(_HEADINGS)) + r")[^\S\n]*:",
    re.IGNORECASE | re.MULTILINE,
)
_BULLET = re.compile(r"^\s*(?:[-*#•]+\)?|\(?\d{1,2}[.)]|[A-Z][.)](?=\s))\s*")
# Of several diagnoses in one line the first; what was done about it is no part of it.
_FIRST = re.compile(r".*?(?=;|\s#?2[.)]\s|\bsecondary\b|\bs/p\b|\bstatus[- ]post\b|$)", re.IGNORECASE)
_RANK = re.compile(
    r"^(?:primary|principal|main|final|active|acute)?\s*(?:discharge\s+)?(?:diagnos[ie]s|problems?|issues?)?\s*[:\-]+\s*",
    re.IGNORECASE,
)
_RANK_ALONE = re.compile(
    r"^(?:primary|principal|main|final|active|acute)?\s*(?:discharge\s+)?(?:diagnos[ie]s|primary|principal)\s*:?$", re.I
)
SECONDARY = re.compile(r"^(?:secondary|other|chronic|past)\b.{0,25}(?:diagnos[ie]s|problems?|issues?)?\s*:", re.I)


@dataclass(frozen=True)
class DischargeNote:
    """``history`` by the names of the case summary, ``physical`` results by key, the whole discharge diagnosis
    in one line and the first primary one."""

    history: dict[str, str] = field(default_factory=dict)
    physical: dict[str, str] = field(default_factory=dict)
    final_diagnosis: str = ""
    primary_diagnosis: str = ""


def parse_discharge_note(text: str) -> DischargeNote:
    """Sections of a note; never raises: what is not found is empty."""
    sections = note_sections(text)
    diagnosis = sections.pop("diagnosis", "")
    physical = sections.pop("physical", "")
    return DischargeNote(
        history={name: one_line(body) for name, body in sections.items() if says_something(body)},
        physical=physical_results(physical),
        final_diagnosis="; ".join(line for raw in diagnosis.splitlines() if says_something(line := one_line(raw))),
        primary_diagnosis=primary_diagnosis(diagnosis),
    )


def note_sections(text: str) -> dict[str, str]:
    """Text by section. Any other heading ends the section before it; of a heading that comes again later the first
    counts, but of the discharge diagnosis the last that says something."""
    openings: list[re.Match[str]] = []
    for match in _HEADING.finditer(text):
        if not openings or _kind(match) is None or match.lastgroup != openings[-1].lastgroup:
            openings.append(match)
    found: dict[str, str] = {}
    seen: set[str] = set()
    for match, following in zip_longest(openings, openings[1:]):
        name, body = _kind(match), text[match.end() : following.start() if following else len(text)].strip()
        if name == "diagnosis":
            found[name] = body if says_something(body) else found.get(name, "")
        elif name is not None and match.lastgroup not in seen:
            found[name] = f"{found[name]}\n{body}" if name in found else body  # medical history, then surgical
        seen.add(match.lastgroup)
    return found


def _kind(heading: re.Match[str]) -> str | None:
    return _HEADINGS[int(heading.lastgroup[1:])][1]


def primary_diagnosis(section: str) -> str:
    """The first primary line of a discharge diagnosis, without bullets, ranks and closing punctuation."""
    for raw in section.splitlines():
        line = _BULLET.sub("", one_line(raw))
        if not says_something(line) or _RANK_ALONE.match(line):
            continue
        if SECONDARY.match(line):
            return ""
        line = _BULLET.sub("", _RANK.sub("", line, count=1)).strip(" .,;:-*")
        if says_something(line):
            return _FIRST.match(line)[0].strip(" .,;:-*") or line
    return ""
