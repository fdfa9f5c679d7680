"""Names of imaging examinations in any word order: ``CT HEAD W/ & W/O CONTRAST``, ``X-ray of the left knee``."""

from __future__ import annotations

import re

from .vocabulary import normalise

# What a name says of contrast, on normalised text ("W/O" is "w o"); "w&w/o" comes first, for it holds the others.
_WITH, _WITHOUT, _AGENT = r"w(ith)?", r"(w ?o|without)", r"( i ?v)? ?(contrast|gad(olinium)?|c)\b"
_CONTRAST = (
    ("with and without", re.compile(rf"\b({_WITH}( and)? {_WITHOUT}|{_WITHOUT}( and)? {_WITH})\b({_AGENT})?")),
    ("without", re.compile(rf"\b({_WITHOUT}|non|no){_AGENT}|\bnoncontrast\b")),
    ("with", re.compile(rf"\b{_WITH}{_AGENT}|\b(contrast enhanced|post contrast)\b")),
)
_PHRASES = (
    (re.compile(r"\b(x ray|xr|radiographs?|radiography|plain films?|films?)\b"), "xray"),
    (re.compile(r"\bx rays\b|\bxrays\b"), "xray"),
    (re.compile(r"\b(u s|us|usg|sonogra(m|phy)|ultrasonography)\b"), "ultrasound"),
    (re.compile(r"\bcta\b"), "ct angiography"),
    (re.compile(r"\bmra\b"), "mri angiography"),
    (re.compile(r"\b(magnetic resonance( imaging)?|mr)\b"), "mri"),
    (re.compile(r"\b(computed tomography|cat)\b"), "ct"),
    (re.compile(r"\bc ?spine\b"), "cervical spine"),
    (re.compile(r"\bt ?spine\b"), "thoracic spine"),
    (re.compile(r"\bl ?s? ?spine\b"), "lumbar spine"),
    (re.compile(r"\btib fib\b"), "tibia fibula"),
    (re.compile(r"\bup ext(remity)?\b"), "upper extremity"),
    (re.compile(r"\b(low|lwr) ext(remity)?\b"), "lower extremity"),
)
_WORDS = {
    "abd": "abdomen", "abdominal": "abdomen", "pelvic": "pelvis", "brain": "head", "cranial": "head", "thorax": "chest",
    "ext": "extremity", "extremities": "extremity", "cardiac": "heart", "knees": "knee", "hips": "hip", "hands": "hand",
    "feet": "foot", "orbit": "orbits", "angiogram": "angiography", "lumbosacral": "lumbar", "facial": "sinus",
}  # fmt: skip
_VIEWS = frozenset(("ap", "pa", "lat", "lateral", "obl", "oblique", "mortise", "axillary", "view", "views", "frontal"))
_SIDES = frozenset(("left", "right", "lt", "rt"))
_NUMBERS = frozenset(("1", "2", "3", "4", "5", "min", "or", "more"))
_FILLERS = frozenset(
    ("a", "an", "the", "of", "and", "scan", "port", "portable", "non", "trauma", "nontrauma", "neutral", "recons")
)
_NOISE = _VIEWS | _SIDES | _NUMBERS | _FILLERS
_MODALITIES = frozenset(("ct", "mri", "xray", "ultrasound", "angiography"))


def imaging_words(name: str) -> tuple[frozenset[str], str] | None:
    """(region and modality as a set of words, contrast) of an imaging name; None for any other name.

    Side and views are left out: they do not change the code. A name with views but without a modality is an X-ray.
    """
    text, contrast = normalise(name), ""
    for said, pattern in _CONTRAST:
        if pattern.search(text):
            text, contrast = pattern.sub(" ", text), said
            break
    for pattern, word in _PHRASES:
        text = pattern.sub(word, text)
    tokens = text.split()
    words = frozenset(_WORDS.get(token, token) for token in tokens if token not in _NOISE)
    if not words & _MODALITIES and _VIEWS.intersection(tokens):
        words |= {"xray"}
    return (words, contrast) if words & _MODALITIES and words - _MODALITIES else None
