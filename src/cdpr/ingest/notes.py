"""Discharge summaries in the layout of MIMIC-IV-Note: what was known at presentation, and the diagnosis.

Hospital course, medications, pertinent results and everything about the discharge are never taken over: they
were written in the knowledge of the diagnosis.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .physical import physical_results
from .summary import one_line, says_something

# Headings that begin a line; first come, first served. None marks a section that only ends the one before.
_HEADINGS: tuple[tuple[str, str | None], ...] = (
    (r"allerg(?:y|ies)", "Allergy History"),
    (r"attending", None),
    (r"chief complaint", "Chief Complaint"),
    (r"major surgical or invasive procedures?", None),
    (r"history of (?:the )?present(?:ing)? illness|hpi", "History of Present Illness"),
    (r"past medical history|past medical/surgical history|pmhx?|past history", "Past Medical History"),
    (r"social history|personal history", "Personal History"),
    (r"family (?:medical )?history", "Family History"),
    (r"(?:admission |initial )?physical exam(?:ination)?(?: on admission| at admission)?|pe on admission", "physical"),
    (r"pertinent results|(?:admission )?labs|laboratory data|imaging|studies", None),
    (r"(?:brief |summary of )?hospital course", None),
    (r"(?:preadmission )?medications? on admission|home medications?", None),
    (r"discharge medications?", None),
    (r"discharge disposition", None),
    (r"facility", None),
    (r"(?:primary |final )?discharge diagnos[ie]s", "diagnosis"),
    (r"discharge condition", None),
    (r"discharge instructions?", None),
    (r"follow-?\s?up instructions?", None),
)
_HEADING = re.compile(
    r"^[^\S\n]*(?:" + "|".join(f"(?P<s{i}>{pattern})" for i, (pattern, _) in enumerate(_HEADINGS)) + r")[^\S\n]*:",
    re.IGNORECASE | re.MULTILINE,
)
_BULLET = re.compile(r"^\s*(?:[-*#•]+\)?|\(?\d{1,2}[.)]|[A-Z][.)](?=\s))\s*")
_RANK = re.compile(
    r"^(?:primary|principal|main|final|active|acute)?\s*(?:discharge\s+)?(?:diagnos[ie]s|problems?|issues?)?\s*[:\-]+\s*",
    re.IGNORECASE,
)
_RANK_ALONE = re.compile(
    r"^(?:primary|principal|main|final|active|acute)?\s*(?:discharge\s+)?(?:diagnos[ie]s|primary|principal)\s*:?$", re.I
)
_SECONDARY = re.compile(r"^(?:secondary|other|chronic|past)\b.{0,25}(?:diagnos[ie]s|problems?|issues?)?\s*:", re.I)


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
    sections = _sections(text)
    diagnosis = sections.pop("diagnosis", "")
    physical = sections.pop("physical", "")
    return DischargeNote(
        history={name: one_line(body) for name, body in sections.items() if says_something(body)},
        physical=physical_results(physical),
        final_diagnosis="; ".join(line for raw in diagnosis.splitlines() if says_something(line := one_line(raw))),
        primary_diagnosis=primary_diagnosis(diagnosis),
    )


def _sections(text: str) -> dict[str, str]:
    """Text by section: the first occurrence of each heading opens it, but the last discharge diagnosis counts."""
    last_diagnosis = None
    openings: dict[str, re.Match[str]] = {}
    for match in _HEADING.finditer(text):
        name = _HEADINGS[int(match.lastgroup[1:])][1] or f"end {match.lastgroup}"
        if name == "diagnosis":
            last_diagnosis = match
        openings.setdefault(name, match)
    if last_diagnosis is not None:
        openings["diagnosis"] = last_diagnosis
    ordered = sorted(openings.items(), key=lambda item: item[1].start())
    ends = [match.start() for _, match in ordered[1:]] + [len(text)]
    return {
        name: text[match.end() : end].strip()
        for (name, match), end in zip(ordered, ends, strict=False)
        if not name.startswith("end ")
    }


def primary_diagnosis(section: str) -> str:
    """The first primary line of a discharge diagnosis, without bullets, ranks and closing punctuation."""
    for raw in section.splitlines():
        line = _BULLET.sub("", one_line(raw))
        if not says_something(line) or _RANK_ALONE.match(line):
            continue
        if _SECONDARY.match(line):
            return ""
        line = _BULLET.sub("", _RANK.sub("", line, count=1)).strip(" .,;:-*")
        if says_something(line):
            return line
    return ""
