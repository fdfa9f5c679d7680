"""Physical examinations: from a paragraph by systems to one result per system."""

from __future__ import annotations

import re

from ..cases import examinations
from .names import add_text, physical_key
from .summary import one_line, says_something

_HEADED = re.compile(r"^[\s*•-]*([A-Za-z][A-Za-z0-9 /&,.()+'-]{0,38}?)\s*(?::|\s-\s)\s*(.*)$")
_VITAL = re.compile(
    r"^(?:t|tm|tmax|tc|temp|temperature|bp|sbp|hr|p|pulse|heart rate|rr|respiratory rate|blood pressure|"
    r"o2|o2 ?sats?|sats?|spo2|sao2|oxygen saturation|wt|weight|ht|height|bmi|vss?|vitals?|vital signs)\.?$",
    re.IGNORECASE,
)
VITAL_NUMBERS = re.compile(r"\b\d{2,3}/\d{2,3}\b|\b(?:9\d|10[0-6])\.\d\b|\b3[5-9]\.\d\b")
_TITLE = re.compile(r"^(?:on |at |upon )?(?:admission|initial|presentation|arrival|admit)\b|\bexam(?:ination)?$", re.I)
AT_DISCHARGE = re.compile(r"^[^\S\n]*[*#=-]*\s*(?:(?:exam|pe|physical exam(?:ination)?)\s+)?(?:on |at |upon |day of )?"
                        r"(?:discharge\b|d/c\b)", re.IGNORECASE | re.MULTILINE)  # fmt: skip


_INLINE = re.compile(r"(?<=[.;。；])[^\S\n]+(?=([A-Za-z][A-Za-z /&-]{0,30}?)\s*:)")


def _one_system_a_line(text: str) -> str:
    """Paragraphs that name several systems, broken before each name that the vocabulary knows."""
    known = examinations()

    def break_before(match: re.Match[str]) -> str:
        term = known.find(match[1])
        return "\n" if term is not None and term.kind == "physical" else match[0]

    return _INLINE.sub(break_before, text)


def physical_results(text: str) -> dict[str, str]:
    """Results keyed ``NAME (Physical Examination)`` from lines ``NAME: findings``.

    Lines without a heading continue the one before; vital signs are gathered under one key; what stands
    before any heading is the general appearance. An examination "at discharge" and all after it is cut.
    """
    cut = AT_DISCHARGE.search(text)
    lines = _one_system_a_line(text[: cut.start()] if cut else text).splitlines()
    results: dict[str, str] = {}
    current: str | None = None
    for line in lines:
        headed = _HEADED.match(line)
        name, rest = (headed[1].strip(), headed[2]) if headed else ("", line)
        if name and _TITLE.search(name) and len(name.split()) > 1 and not rest.strip():
            current = None
            continue
        if name and _VITAL.match(name):
            current = physical_key("Vital Signs")
            rest = rest if re.match(r"(?i)^v", name) else line
        elif name and len(name.split()) <= 4:
            current = physical_key(name if name[0].isupper() else name.capitalize())
        elif name:
            rest = line
        if not says_something(rest):
            continue
        if current is None:
            current = physical_key("Vital Signs" if VITAL_NUMBERS.search(rest) else "General Appearance")
        add_text(results, current, one_line(rest).lstrip("-* "))
    return results
