"""Names of imaging examinations in any word order: ``CT HEAD W/ & W/O CONTRAST``, ``X-ray of the left knee``."""

import re
from importlib import resources

import yaml

from .vocabulary import normalise

# What a name says of contrast, on normalised text ("W/O" is "w o"); "w&w/o" comes first, for it holds the others.
_WITH, _WITHOUT, _AGENT = r"w(ith)?", r"(w ?o|without)", r"( i ?v)? ?(contrast|gad(olinium)?|c)\b"
_CONTRAST = (
    ("with and without", re.compile(rf"\b({_WITH}( and)? {_WITHOUT}|{_WITHOUT}( and)? {_WITH})\b({_AGENT})?")),
    ("without", re.compile(rf"\b({_WITHOUT}|non|no){_AGENT}|\bnoncontrast\b")),
    ("with", re.compile(rf"\b{_WITH}{_AGENT}|\b(contrast enhanced|post contrast)\b")),
)
_TABLE = yaml.safe_load(resources.files(__package__).joinpath("data", "imaging.yaml").read_text(encoding="utf-8"))
_PHRASES = {word: re.compile(rf"\b({said})\b") for word, said in _TABLE["phrases"].items()}
_MODALITIES, _VIEWS = frozenset(_TABLE["modalities"]), frozenset(_TABLE["views"])
_NOISE = _VIEWS.union(_TABLE["noise"])


def imaging_words(name: str) -> tuple[frozenset[str], str] | None:
    """(region and modality as a set of words, contrast) of an imaging name; None for any other name.

    Side and views are left out: they do not change the code. A name with views but without a modality is an X-ray.
    """
    text, contrast = normalise(name), ""
    for said, pattern in _CONTRAST:
        if pattern.search(text):
            text, contrast = pattern.sub(" ", text), said
            break
    for word, pattern in _PHRASES.items():
        text = pattern.sub(word, text)
    tokens = text.split()
    words = frozenset(_TABLE["words"].get(token, token) for token in tokens if token not in _NOISE)
    if not words & _MODALITIES and _VIEWS.intersection(tokens):
        words |= {"xray"}
    return (words, contrast) if words & _MODALITIES and words - _MODALITIES else None
