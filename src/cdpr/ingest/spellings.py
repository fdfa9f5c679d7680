"""The many ways in which free text names one examination: order of words, sides and places, long forms, fillers."""

import functools
import re

from ..cases import VITAL_SIGNS, Term, examinations, meaning, normalise

_XRAY = re.compile(r"\bx[\s-]?rays?\b", re.IGNORECASE)
_SIDE = re.compile(r"\b(?:left|right|bilateral)\s+", re.IGNORECASE)
_TRAILING = re.compile(r"\s+(?:levels?|tests?|testing|results?|reports?|stud(?:y|ies)|screen(?:ing)?)$", re.IGNORECASE)
_AT = re.compile(r"\s+(?:of|at|in|on)\s+|\s+(?=(?:left|right|bilateral)\s)", re.IGNORECASE)
_LONG = ((re.compile(r"\bcomputed tomography\b", re.IGNORECASE), "CT"),
         (re.compile(r"\bmagnetic resonance imaging\b", re.IGNORECASE), "MRI"),
         (re.compile(r"\b(?:plain )?radiographs?\b", re.IGNORECASE), "X-ray"))  # fmt: skip
_PART_FIRST = re.compile(r"(X-ray|(?:Doppler )?Ultrasound)\s+(?:of\s+)?(?:the\s+)?(.+)", re.IGNORECASE)
_PART_LAST = re.compile(r"(MRI|CT)(?:\s+scan)?\s+(?:of\s+)?(?:the\s+)?(.+)", re.IGNORECASE)


def term_of(name: str) -> Term | None:
    """The examination that a name means, if it is one; of the physical ones only vital signs."""
    known = examinations().find(name)
    if known is not None:
        return known if known.kind != "physical" or known.name == "Vital Signs" else None
    said = meaning(name)
    if said.kind == VITAL_SIGNS:
        return examinations().terms["Vital Signs"]
    return said.term if said.how != "analyte" else None


@functools.lru_cache(maxsize=4096)
def spellings(name: str) -> tuple[str, ...]:
    """A name as it is, in the usual order of words without a side, and in shorter forms."""
    usual = _XRAY.sub("X-ray", name)
    for pattern, short in _LONG:
        usual = pattern.sub(short, usual)
    usual = _SIDE.sub("", usual)
    if placed := _PART_FIRST.fullmatch(usual):
        usual = f"{placed[2]} {placed[1]}"
    elif placed := _PART_LAST.fullmatch(usual):
        usual = f"{placed[1]} {placed[2]}"
    head = _AT.split(name, maxsplit=1)[0]
    return name, usual[:1].upper() + usual[1:], _TRAILING.sub("", usual), _TRAILING.sub("", head)


def covers(key: str, name: str) -> bool:
    """Whether a key says all that a name does, whatever the order and number of its words."""
    return _words(key) >= _words(name)


def _words(name: str) -> set[str]:
    words = set(normalise(_XRAY.sub("X-ray", name)).split()) - {"of", "the", "scan"}
    return {word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words}
