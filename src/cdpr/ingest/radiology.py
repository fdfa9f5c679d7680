"""Radiology reports: the name of the examination and what was seen."""

import re

from .phrases import phrases
from .summary import one_line, only_refers, says_something, with_plain_ends

_HEADING = re.compile(r"^[^\S\n]*([A-Z][A-Z &/(),-]{2,60}?)[^\S\n]*:", re.MULTILINE)
_NO_RESULT = re.compile(phrases("radiology")["no_result"])
_UNNAMED = {"FINDINGS", "REPORT", "FINAL REPORT"}
_LAST = {"IMPRESSION", "IMPRESSIONS", "CONCLUSION", "CONCLUSIONS"}


def report_text(text: str) -> str:
    """Findings, any further section and last the impression of a report, in one line; the occasion is left out."""
    parts = []
    for heading, body in sorted(_sections(text), key=lambda section: section[0] in _LAST):
        if _NO_RESULT.fullmatch(heading) or not says_something(body) or only_refers(body):
            continue
        body = one_line(body)
        parts.append(body if not heading or heading in _UNNAMED else f"{heading.capitalize()}: {body}")
    return " ".join(parts)


def examination_heading(text: str) -> str | None:
    """The name under EXAMINATION (EXAM, STUDY), for reports without an entry in the detail table."""
    for heading, body in _sections(text):
        if heading in ("EXAMINATION", "EXAM", "STUDY") and says_something(body):
            return one_line(body.strip().splitlines()[0])
    return None


def _sections(text: str) -> list[tuple[str, str]]:
    text = with_plain_ends(text)
    matches = list(_HEADING.finditer(text))
    starts = [("", 0)] + [(m[1].strip(), m.end()) for m in matches]
    ends = [m.start() for m in matches] + [len(text)]
    return [(heading, text[start:end].strip()) for (heading, start), end in zip(starts, ends, strict=True)]
