"""The case summary (paper, appendix "Unified data format"): its sections as text, and back."""

import re
from collections.abc import Mapping

from ..cases import SECTIONS
from ..cases.record import RecordError
from .texts import one_line, says_something

_BULLET = re.compile(rf"- ({'|'.join(SECTIONS)}): (.*)")


def build_summary(sections: Mapping[str, str]) -> str:
    """Bullet lines ``- Section: text`` in the order of :data:`SECTIONS`; sections that say nothing are left out."""
    texts = {name: one_line(sections.get(name, "")) for name in SECTIONS}
    return "\n".join(f"- {name}: {text}" for name, text in texts.items() if says_something(text))


def parse_summary(summary: str) -> dict[str, str]:
    """Text by section; the inverse of :func:`build_summary`.

    Raises RecordError for a line that is no ``- Section: text``; the message does not quote it.
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
    """``58 year old male``, ``5 month old female``, ``12 day old``; what is unknown is left out."""
    word = {"M": "male", "F": "female", "MALE": "male", "FEMALE": "female"}.get(sex.strip().upper(), "")
    number, unit = years, "year"
    if years is not None and 0 < years < 1:
        number, unit = (years * 12, "month") if years * 12 >= 2 else (round(years * 365.25), "day")
    return " ".join(part for part in (f"{int(number)} {unit} old" if number is not None else "", word) if part)


def tells_something(history: Mapping[str, str]) -> bool:
    """Whether there is a complaint or a present illness."""
    return says_something(illness(history))


def illness(history: Mapping[str, str]) -> str:
    """Complaint and present illness."""
    return history.get("Chief Complaint", "") + " " + history.get("History of Present Illness", "")
