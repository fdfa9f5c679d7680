"""Reads whether a text affirms or denies the diagnosis that it names, and whether a request declines an examination.

A text is cut into clauses, and each word of a clause has a class (``denial.yaml``): negation, doubt, medical word, ...
A clause that denies without a subject of its own ("ruled out by CT", "not confirmed") denies the diagnosis before it.
One with another subject ("without perforation", "sepsis excluded") is a detail. What the classes leave open is a doubt:
then the tables of names do not find the diagnosis right.
"""

import functools
import re
from typing import Literal

from ..cases.vocabulary import diagnoses, normalise
from ..files import parse_yaml, shipped_text

Stance = Literal["affirmed", "denied", "doubtful"]
Clause = Literal["plain", "denial", "other", "doubt", "empty"]
"""What a clause does: it names a diagnosis (``plain``), denies the one before it, or without one the next
(``denial``), denies another subject (``other``), leaves it open (``doubt``), or names nothing (``empty``)."""

# The letter of each class of words, by which :func:`_classify_clause` spells a clause.
_LETTER = {"negators": "n", "ruling_out": "r", "set_aside": "s", "past": "h", "doubts": "d", "support": "p",
           "remarks": "c", "generic": "g", "medical": "m"}  # fmt: skip


# Read and compiled at first use: that takes a tenth of a second, and most jobs judge no text.


@functools.cache
def _word_classes() -> dict[str, list[str]]:
    """Read the classes of words in ``denial.yaml``: lists of regular expressions by the name of the class."""
    return parse_yaml(shipped_text(__package__, "denial.yaml"))


def _class_regex(name: str) -> str:
    """Write a regular expression that matches any word of the class ``name``. Words in Latin letters match as whole
    words only."""
    words = _word_classes()[name]
    latin = [text for text in words if re.search("[a-z]{2}", text) and not re.search("[一-鿿]", text)]
    others = [text for text in words if text not in latin]
    return "|".join([rf"(?<![^\W_])(?:{'|'.join(latin)})(?![^\W_])", *others])


@functools.cache
def _pattern(*classes: str) -> re.Pattern[str]:
    """Compile a pattern that matches any word of these classes."""
    return re.compile("|".join(map(_class_regex, classes)), re.IGNORECASE)


@functools.cache
def _word_pattern() -> re.Pattern[str]:
    """Compile a pattern that matches any word. The name of the matched group is the class of the word, ``other`` for a
    word without a class."""
    classes = "|".join(f"(?P<{name}>{_class_regex(name)})" for name in _LETTER)
    return re.compile(classes + r"|(?P<other>[一-鿿]|[^\W一-鿿]+)", re.IGNORECASE)


_DENYING = ("negators", "ruling_out", "set_aside", "past", "doubts", "remarks")
_FULL_WIDTH = str.maketrans("，；：（）。？！、【】", ",;:().?!,[]")
_CROSSED_OUT = re.compile(r"~~[^~]*~~")
_CROSS = re.compile(r"\(\s*[-−–✗✘×]\s*\)|[❌✗✘☒≠¬]|(?<!\d)0\s?%|^\s*!\s*(?=\w)")
_CLAUSE = re.compile(
    r"\s*(?:[,()\[\]:;|\n]|(?<=\w\w\w)/(?=\w\w\w)|[.!](?=\s|$)|\s[-–—]+\s|—|(?=\?))\s*"
    r"|(?<!\bnot)(?<!\bno)\s+(?=(?:and|or|vs\.?|versus|with|without|due to|not|no|but|cannot|if|unless|rather|sans|avec"
    r"|ohne|mit|und|sin|con|y|et|si|pas|nicht|who|which)\s)|(?<![无未不没有])(?=(?:但|而是|伴|合并|并发|继发|无|未见|未合并|没有|不伴))",
    re.IGNORECASE,
)
# Words that introduce the diagnosis which replaces a denied one.
_REPLACEMENT = re.compile(
    r"^(?:(?:but|now|instead|rather|actually|finally|it is|this is|the diagnosis is|jetzt|sondern|mais|sino|ahora)\s+)+"
    r"|^(?:但|现|而)?(?:在|为|是)",
    re.IGNORECASE,
)
_NOT_ONLY = re.compile(r"(?i)^not only (.+?),? but(?: also)? (.+)$|^不仅(?:是)?(.+?)[,]?(?:还有|而且|也)(.+)$")
_PREPOSITION_OF = re.compile(r"\b(?:of|for|von|für|de|del|d)\b", re.IGNORECASE)
_PREPOSITION_BY = re.compile(r"\b(?:by|on|given|via|durch|par|por)\b|被", re.IGNORECASE)


def normalise_punctuation(text: str) -> str:
    """Write full-width punctuation in ASCII, spaces as single ones, and "not only a but b" as "a, b"."""
    text = " ".join(text.translate(_FULL_WIDTH).split())
    both = _NOT_ONLY.match(text)
    return ", ".join(filter(None, both.groups())) if both else text


@functools.lru_cache(maxsize=1 << 14)
def read_stance(text: str) -> tuple[Stance, str]:
    """Read whether a text affirms a diagnosis, denies it or leaves it open; returns this stance and the affirmed name,
    the first that the text does not deny. "Pneumonia, not pulmonary embolism" gives ``("affirmed", "Pneumonia")``.

    The name is empty where the text denies every diagnosis. It is also empty for a text without any word of denial or
    doubt, which is affirmed as a whole.
    """
    plain = _CROSSED_OUT.sub(" ", text)
    plain = _pattern("neutral").sub(" ", plain)
    plain = _pattern("setting_aside").sub(", not ", plain)
    if _CROSS.search(plain) or not plain.strip(" ,;.:"):
        return "denied", ""
    if plain == text and not _pattern(*_DENYING).search(plain):
        return "affirmed", ""
    name = revoked = ""  # the affirmed diagnosis so far; one that a later clause denied ("pneumonia, ruled out")
    denied = doubtful = False  # whether a diagnosis was denied, or left open
    denies_next = False  # whether the next name is denied ("excluded: pneumonia")
    for clause in filter(None, map(str.strip, _CLAUSE.split(plain))):
        if denied and not name:
            clause = _REPLACEMENT.sub("", clause)
        kind = _classify_clause(clause, name)
        # A name behind a revoked diagnosis may be the true diagnosis, or the reason of the denial.
        doubtful |= kind == "doubt" or (kind == "plain" and revoked != "")
        denied |= kind in ("denial", "other") and not name
        if kind == "plain" and denies_next:
            denies_next = False
        elif kind == "plain" and not name:
            name = clause
        elif kind == "denial" and not name:
            denies_next = True
        elif kind == "denial":
            name, revoked = "", name
    if doubtful:
        return "doubtful", name
    return ("affirmed" if name else "denied"), name


def _classify_clause(clause: str, head: str) -> Clause:
    """Classify a clause (see :data:`Clause`) by the classes of its words; ``head`` is the diagnosis before it (empty:
    there is none).

    The local variable ``classes`` spells the clause with one letter per word: n negation, r ruling out, s setting
    aside, h past, d doubt, p support, c remark, g generic word, m medical word, x any other word. "No evidence of
    pneumonia" is "npgm".
    """
    classes, subject = "", []
    for word in _word_pattern().finditer(clause):
        letter = _LETTER.get(str(word.lastgroup), "x")
        classes += letter
        if letter in "xm":
            subject.append(word[0])
    named = bool(subject)
    if "d" in classes or re.search("n.*[rs]|[rs].*n", classes):  # a doubt, or a double negation
        return "doubt"
    if not re.search("[nrsh]", classes):  # nothing is denied
        if head and "c" in classes:
            return "doubt"
        return "plain" if named else "empty"
    if not named:
        return "denial" if head or "p" not in classes else "empty"
    if not head:
        return "doubt" if "h" in classes or re.search("s.*[xm]", classes) else "other"
    # "Not supported by X" speaks of the diagnosis, "no evidence of X" of X.
    unsupported = re.search("^[gp]*n[g]*p[gp]*[xm]", classes) and not _PREPOSITION_OF.search(clause)
    refuted_by = re.search("^g*[rs]g*[xm]", classes) and _PREPOSITION_BY.search(clause)
    names_head = set(map(normalise, subject)) <= set(normalise(head).split())
    if names_head or refuted_by:
        return "denial"
    if unsupported:
        return "doubt"
    is_other_diagnosis = "m" in classes or diagnoses().find(" ".join(subject)) is not None
    return "other" if is_other_diagnosis or ("h" in classes and not re.search("[nrs]", classes)) else "doubt"


@functools.lru_cache(maxsize=1 << 14)
def declines_examination(request: str) -> bool:
    """Whether a request says that its examination shall not be done: "no CT needed", "CT is not indicated"."""
    plain = " ".join(request.translate(_FULL_WIDTH).split())
    order = " ".join(_pattern("purpose").sub(" ", plain).split()).strip(" ,;:.")
    return _pattern("refusing").match(order) is not None or _pattern("not_ordered").search(order) is not None
