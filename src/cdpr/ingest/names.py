"""Examination keys of records: the names that a source uses, their many spellings, and which analytes make up which
examination."""

import functools
import re
from collections.abc import Iterable

from ..cases import PHYSICAL_SUFFIX, VITAL_SIGNS, Term, examinations, meaning, normalise
from ..files import shipped_table
from .phrases import phrases
from .summary import one_line

_WORDS = phrases("names")
ANY_LABEL = "*"


def exam_key(name: str) -> str:
    """The general name where the vocabulary knows the spelling, else the source's own, cleaned."""
    name = one_line(name)
    term = examinations().find(name)
    return term.name if term is not None and term.kind != "physical" else name


def physical_key(name: str) -> str:
    """Key of an item of the physical examination, with its suffix; synonyms share the general name."""
    name = one_line(name).removesuffix(PHYSICAL_SUFFIX)
    for spelling in (name, *_shortened(name)):
        term = examinations().find(spelling)
        if term is not None and term.kind == "physical":
            return term.name + PHYSICAL_SUFFIX
    return name + PHYSICAL_SUFFIX


def _shortened(name: str) -> Iterable[str]:
    for ending in (" Examination", " Exam", " System"):
        if name.casefold().endswith(ending.casefold()):
            yield name[: -len(ending)]


def add_text(results: dict[str, str], key: str, text: str) -> None:
    """Add a result; texts under one key follow one another."""
    results[key] = f"{results[key]} {text}" if key in results else text


def examination_of(analyte: str, fluid: str = "Blood") -> str | None:
    """The examination that reports an analyte of a fluid, whatever the order and number of the words that name it."""
    return _analytes().get((fluid, _analyte_words(analyte)))


@functools.cache
def _analytes() -> dict[tuple[str, frozenset[str]], str]:
    analytes: dict[tuple[str, frozenset[str]], str] = {}
    for examination, label, fluid, _, _ in panels():
        aside = re.fullmatch(r"(.+?)\s*\(([^)]+)\)", label)
        for name in (label, *(aside.groups() if aside else ())):
            analytes.setdefault((fluid, _analyte_words(name)), examination)
    return analytes


def _analyte_words(name: str) -> frozenset[str]:
    words = [word.rstrip("+") for word in normalise(name).split()]
    words = [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words]
    plain = " ".join(word for word in words if word not in _WORDS["filling"])
    return frozenset(_WORDS["short"].get(plain, plain).split())


@functools.cache
def panels() -> tuple[tuple[str, str, str, int, int], ...]:
    """Rows of ``panels.csv`` in report order: (examination, label, fluid, place of the examination, place of the
    label); label ``*`` takes what no other row of its fluid names.

    Raises ValueError when one analyte stands in two examinations.
    """
    owner: dict[tuple[str, str], str] = {}
    first: dict[str, int] = {}
    rows = []
    for place, row in enumerate(shipped_table("cdpr.ingest", "panels.csv")):
        examination, label, fluid = row["examination"], row["label"], row["fluid"]
        if owner.setdefault((label, fluid), examination) != examination:
            raise ValueError(f"panels.csv: {label!r} ({fluid}) stands in {owner[label, fluid]!r} and {examination!r}")
        rows.append((examination, label, fluid, first.setdefault(examination, place), place))
    return tuple(rows)


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
    named_term = meaning(name)
    if named_term.kind == VITAL_SIGNS:
        return examinations().terms["Vital Signs"]
    return named_term.term if named_term.how != "analyte" else None


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
