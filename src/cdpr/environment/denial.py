"""Reads whether a text affirms or denies the diagnosis that it names, and whether a request declines an examination.

A text is cut into clauses. The words of a clause have classes, which ``denial.yaml`` lists: negation, doubt, medical
word, ... A clause that denies without a subject of its own ("ruled out by CT", "not confirmed") denies the diagnosis
before it. A clause that denies another subject ("without perforation", "sepsis excluded") is a detail. Where the
classes do not decide, the text is doubtful, and the judge by tables of names does not count its diagnosis as right.
"""

import functools
import re
from typing import Literal

from ..cases.vocabulary import diagnoses, normalise
from ..files import parse_yaml, shipped_text

Stance = Literal["affirmed", "denied", "doubtful"]
Clause = Literal["plain", "denial", "other", "doubt", "empty"]
"""What a clause does. ``plain``: it names a diagnosis. ``denial``: it denies the diagnosis before it or, where there is
none before it, the one after it. ``other``: it denies something else. ``doubt``: it leaves a diagnosis open. ``empty``:
it says nothing about a diagnosis."""

# The letter of each class of words, by which :func:`_classify_clause` spells a clause.
_LETTER = {"negators": "n", "ruling_out": "r", "set_aside": "s", "past": "h", "doubts": "d", "support": "p",
           "remarks": "c", "generic": "g", "medical": "m"}  # fmt: skip


# Read and compiled at first use: that takes a tenth of a second, and most jobs judge no text.


@functools.cache
def _word_classes() -> dict[str, list[str]]:
    """Read the classes of words in ``denial.yaml``: returns a list of regular expressions for each name of a class,
    such as ``negators``."""
    return parse_yaml(shipped_text(__package__, "denial.yaml"))


def _class_regex(name: str) -> str:
    """Write a regular expression that matches any word of the class ``name`` of ``denial.yaml``. Words in Latin letters
    match as whole words only. Chinese words match anywhere, because Chinese has no spaces."""
    words = _word_classes()[name]
    # The expressions of a class are in Latin letters, Chinese (from 一 to 鿿 are all Chinese characters), or signs.
    latin = [text for text in words if re.search("[a-z]{2}", text) and not re.search("[一-鿿]", text)]
    others = [text for text in words if text not in latin]
    whole_words = rf"(?<![^\W_])(?:{'|'.join(latin)})(?![^\W_])"  # no letter or digit before or after
    return "|".join([whole_words, *others])


@functools.cache
def _words_of(*classes: str) -> re.Pattern[str]:
    """Compile a pattern that matches any word of the given ``classes`` of ``denial.yaml``, in capital or small
    letters."""
    return re.compile("|".join(map(_class_regex, classes)), re.IGNORECASE)


@functools.cache
def _word_pattern() -> re.Pattern[str]:
    """Compile a pattern that matches any single word. The name of the group that matches is the class of the word
    (:data:`_LETTER`), or ``other`` for a word without a class. A Chinese character without a class is a word by
    itself."""
    classes = "|".join(f"(?P<{name}>{_class_regex(name)})" for name in _LETTER)
    return re.compile(classes + r"|(?P<other>[一-鿿]|[^\W一-鿿]+)", re.IGNORECASE)


# A text without a word of these classes denies nothing and doubts nothing.
_DENYING = ("negators", "ruling_out", "set_aside", "past", "doubts", "remarks")
_FULL_WIDTH = str.maketrans("，；：（）。？！、【】", ",;:().?!,[]")
# Words crossed out in Markdown; and a sign that denies a whole text, such as "(-)", a cross or "0%".
_CROSSED_OUT = re.compile(r"~~[^~]*~~")
_CROSS = re.compile(r"\(\s*[-−–✗✘×]\s*\)|[❌✗✘☒≠¬]|(?<!\d)0\s?%|^\s*!\s*(?=\w)")
# What separates clauses: a punctuation mark, or the space before a word that begins a clause, such as "and" or "not".
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
# "Not only a but b"; and the prepositions before what is denied ("of X") and before what denies it ("by CT").
_NOT_ONLY = re.compile(r"(?i)^not only (.+?),? but(?: also)? (.+)$|^不仅(?:是)?(.+?)[,]?(?:还有|而且|也)(.+)$")
_PREPOSITION_OF = re.compile(r"\b(?:of|for|von|für|de|del|d)\b", re.IGNORECASE)
_PREPOSITION_BY = re.compile(r"\b(?:by|on|given|via|durch|par|por)\b|被", re.IGNORECASE)


def normalise_punctuation(text: str) -> str:
    """Return a text with full-width punctuation in ASCII and single spaces. A text of the form "not only a but b"
    becomes "a, b"."""
    plain = " ".join(text.translate(_FULL_WIDTH).split())
    both = _NOT_ONLY.match(plain)
    return ", ".join(filter(None, both.groups())) if both else plain


@functools.lru_cache(maxsize=1 << 14)
def read_stance(text: str) -> tuple[Stance, str]:
    """Read whether a text affirms a diagnosis, denies it or leaves it open. Returns this stance and the first diagnosis
    that the text names and does not deny: "Pneumonia, not pulmonary embolism" gives ``("affirmed", "Pneumonia")``.

    The name is empty where the text denies every diagnosis: "pneumonia, ruled out" gives ``("denied", "")``. It is also
    empty for a text without any word of denial or doubt: that is affirmed as a whole, and gives ``("affirmed", "")``.
    """
    # Leave out crossed-out words and words that deny nothing; write "instead of X" as "not X".
    plain = _CROSSED_OUT.sub(" ", text)
    plain = _words_of("neutral").sub(" ", plain)
    plain = _words_of("setting_aside").sub(", not ", plain)
    if _CROSS.search(plain) or not plain.strip(" ,;.:"):
        return "denied", ""
    if plain == text and not _words_of(*_DENYING).search(plain):
        return "affirmed", ""
    # Read clause by clause. ``name`` is the diagnosis affirmed so far, ``revoked`` one that a later clause denied
    # ("pneumonia, ruled out").
    name = revoked = ""
    denied = doubtful = False  # whether a diagnosis was denied before any was affirmed; whether one was left open
    denies_next = False  # whether the next name is denied ("excluded: pneumonia")
    for clause in filter(None, map(str.strip, _CLAUSE.split(plain))):
        if denied and not name:  # "but pneumonia" after "not sepsis"
            clause = _REPLACEMENT.sub("", clause)
        kind = _classify_clause(clause, name)
        # A name after a revoked diagnosis may be the true diagnosis, or the reason of the denial.
        doubtful |= kind == "doubt" or (kind == "plain" and revoked != "")
        denied |= kind in ("denial", "other") and not name
        if kind == "plain" and denies_next:  # "pneumonia" after "excluded:"
            denies_next = False
        elif kind == "plain" and not name:  # the first diagnosis that is not denied
            name = clause
        elif kind == "denial" and not name:  # "excluded:"
            denies_next = True
        elif kind == "denial":  # "ruled out" after "pneumonia,"
            name, revoked = "", name
    if doubtful:
        return "doubtful", name
    return ("affirmed" if name else "denied"), name


def _classify_clause(clause: str, earlier: str) -> Clause:
    """Say what a clause does (:data:`Clause`), by the classes of its words. ``earlier`` is the diagnosis named before
    the clause, empty where there is none.

    The rules are patterns over the string ``classes``, which spells the clause with one letter per word: n negation, r
    ruling out, s setting aside, h past, d doubt, p support, c remark, g generic word, m medical word, x any other word.
    "No evidence of pneumonia" is "npgm". The words of the classes m and x are the ``subject``.
    """
    classes, subject = "", []
    for word in _word_pattern().finditer(clause):
        letter = _LETTER.get(str(word.lastgroup), "x")
        classes += letter
        if letter in "xm":
            subject.append(word[0])
    if "d" in classes or re.search("n.*[rs]|[rs].*n", classes):  # a doubt, or a double negation: "not excluded" (nr)
        return "doubt"
    if not re.search("[nrsh]", classes):  # nothing is denied
        if earlier and "c" in classes:  # a remark about the earlier diagnosis, of unknown sense: "was it right" (gcp)
            return "doubt"
        return "plain" if subject else "empty"
    if not subject:  # "ruled out" (r) denies; "no evidence" (np) says nothing without an earlier diagnosis
        return "denial" if earlier or "p" not in classes else "empty"
    # "No asthma" (nx) denies asthma. Of "history of asthma" (hx) and "less likely asthma" (sx) it may be the diagnosis.
    if not earlier:
        return "doubt" if "h" in classes or re.search("s.*[xm]", classes) else "other"
    # "Not supported by X" is about the earlier diagnosis, "no evidence of X" is about X.
    unsupported = re.search("^[gp]*n[g]*p[gp]*[xm]", classes) and not _PREPOSITION_OF.search(clause)
    # "Ruled out by X" denies the earlier diagnosis, and so does a clause that repeats its words.
    refuted_by = re.search("^g*[rs]g*[xm]", classes) and _PREPOSITION_BY.search(clause)
    repeats_earlier = set(map(normalise, subject)) <= set(normalise(earlier).split())
    if repeats_earlier or refuted_by:
        return "denial"
    if unsupported:
        return "doubt"
    # A denied complication, and the history of anything, leave the earlier diagnosis as it is.
    is_other_diagnosis = "m" in classes or diagnoses().find(" ".join(subject)) is not None
    is_history = "h" in classes and not re.search("[nrs]", classes)
    return "other" if is_other_diagnosis or is_history else "doubt"


@functools.lru_cache(maxsize=1 << 14)
def declines_examination(request: str) -> bool:
    """Whether a request says that its examination shall not be done: true of "no CT needed" and "CT is not indicated",
    false of "CT" and "CT to rule out embolism"."""
    plain = " ".join(request.translate(_FULL_WIDTH).split())
    # Without its purpose ("to rule out embolism"), whose negations are not about the examination.
    order = " ".join(_words_of("purpose").sub(" ", plain).split()).strip(" ,;:.")
    return _words_of("refusing").match(order) is not None or _words_of("not_ordered").search(order) is not None
