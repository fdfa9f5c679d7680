"""Writes and reads the case summary (paper, appendix "Unified data format"), which is one text of several sections."""

import re
from collections.abc import Mapping

from ..cases import SECTIONS
from ..cases.record import RecordError
from .texts import one_line, says_something

_BULLET = re.compile(rf"- ({'|'.join(SECTIONS)}): (.*)")  # "- Family History: ..."


def build_summary(sections: Mapping[str, str]) -> str:
    """Write a case summary from the texts of its ``sections``: lines ``- Section: text`` in the order of
    :data:`SECTIONS`. Sections that say nothing are left out."""
    texts = {name: one_line(sections.get(name, "")) for name in SECTIONS}
    return "\n".join(f"- {name}: {text}" for name, text in texts.items() if says_something(text))


def parse_summary(summary: str) -> dict[str, str]:
    """Read a case summary; returns the text of each section by name. It is the inverse of :func:`build_summary`.

    Raises RecordError for a line that is not ``- Section: text``, and for a section that occurs twice. The message does
    not quote the line, which may be confidential.
    """
    sections: dict[str, str] = {}
    for number, line in enumerate(summary.split("\n"), 1):
        match = _BULLET.fullmatch(line)
        if match is None or match[1] in sections:
            raise RecordError(f"field 'case_summary': line {number} is not '- Section: text', each section once; "
                              "ingest the data set again")  # fmt: skip
        sections[match[1]] = match[2]
    return sections


def patient_information(years: float | None, sex: str) -> str:
    """Write age and sex: ``58 year old male``, ``5 month old female``, ``12 day old``. An unknown age (None) or sex is
    left out. ``years`` may be a fraction in the first year of life; ``sex`` is M, F, male or female in upper or lower
    case."""
    word = {"M": "male", "F": "female", "MALE": "male", "FEMALE": "female"}.get(sex.strip().upper(), "")
    if years is None:
        return word
    age = f"{int(years)} year"
    if 0 < years < 1:  # in months, but in days before the third month
        age = f"{int(years * 12)} month" if years * 12 >= 2 else f"{round(years * 365.25)} day"
    return f"{age} old {word}".rstrip()


def has_illness(history: Mapping[str, str]) -> bool:
    """Whether a history (texts by section) has a chief complaint or a present illness."""
    return says_something(illness_text(history))


def illness_text(history: Mapping[str, str]) -> str:
    """Return the chief complaint and the present illness of a history (texts by section) as one text."""
    return history.get("Chief Complaint", "") + " " + history.get("History of Present Illness", "")
