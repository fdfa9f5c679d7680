"""Reads whether a text affirms or denies the diagnosis that it names, and whether a request declines an examination.

A text is cut into clauses. The words of a clause have classes: negation, doubt, medical word, ... (``denial.yaml``). A
clause that denies without a subject of its own ("ruled out by CT", "not confirmed") denies the diagnosis before it. A
clause that denies another subject ("without perforation", "sepsis excluded") is a detail. Where the classes do not
decide, the text is doubtful, and the judge by tables of names does not count its diagnosis as right.
"""

import functools
import re
from typing import Literal

from ..cases import Patterns, diagnoses, fill, normalise
from ..files import parse_yaml, shipped_text

Stance = Literal["affirmed", "denied", "doubtful"]
Clause = Literal["plain", "denial", "other", "doubt", "empty"]
"""What a clause does. ``plain``: it names a diagnosis. ``denial``: it denies the diagnosis before it or, where there is
none before it, the one after it. ``other``: it denies something else. ``doubt``: it leaves a diagnosis open. ``empty``:
it says nothing about a diagnosis."""

_FULL_WIDTH = str.maketrans("，；：（）。？！、【】", ",;:().?!,[]")
_EXPRESSIONS = fill(parse_yaml(shipped_text(__package__, "denial.yaml")))
_PATTERNS = Patterns({name: f"(?i){expression}" for name, expression in _EXPRESSIONS.items()})


def normalise_punctuation(text: str) -> str:
    """Return a text with full-width punctuation in ASCII and single spaces. A text of the form "not only a but b"
    becomes "a, b"."""
    plain = " ".join(text.translate(_FULL_WIDTH).split())
    both = _PATTERNS.not_only.match(plain)
    return ", ".join(filter(None, both.groups())) if both else plain


@functools.lru_cache(maxsize=1 << 14)
def read_stance(text: str) -> tuple[Stance, str]:
    """Read whether a text affirms a diagnosis, denies it or leaves it open. Returns this stance and the first diagnosis
    that the text names and does not deny: "Pneumonia, not pulmonary embolism" gives ``("affirmed", "Pneumonia")``.

    The name is empty where the text denies every diagnosis: "pneumonia, ruled out" gives ``("denied", "")``. It is also
    empty for a text without any word of denial or doubt: that is affirmed as a whole, and gives ``("affirmed", "")``.
    """
    # Leave out crossed-out words and words that deny nothing; write "instead of X" as "not X".
    plain = _PATTERNS.crossed_out.sub(" ", text)
    plain = _PATTERNS.neutral.sub(" ", plain)
    plain = _PATTERNS.setting_aside.sub(", not ", plain)
    if _PATTERNS.cross.search(plain) or not plain.strip(" ,;.:"):
        return "denied", ""
    if plain == text and not _PATTERNS.denying.search(plain):
        return "affirmed", ""
    # Read clause by clause. ``name`` is the diagnosis affirmed so far, ``revoked`` one that a later clause denied
    # ("pneumonia, ruled out").
    name = revoked = ""
    denied = doubtful = False  # whether a diagnosis was denied before any was affirmed; whether one was left open
    denies_next = False  # whether the next name is denied ("excluded: pneumonia")
    for clause in filter(None, map(str.strip, _PATTERNS.clause.split(plain))):
        if denied and not name:  # "but pneumonia" after "not sepsis"
            clause = _PATTERNS.replacement.sub("", clause)
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
    for word in _PATTERNS.word.finditer(clause):
        classes += str(word.lastgroup)
        if word.lastgroup in ("x", "m"):
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
    unsupported = re.search("^[gp]*n[g]*p[gp]*[xm]", classes) and not _PATTERNS.about.search(clause)
    # "Ruled out by X" denies the earlier diagnosis, and so does a clause that repeats its words.
    refuted_by = re.search("^g*[rs]g*[xm]", classes) and _PATTERNS.by.search(clause)
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
    order = " ".join(_PATTERNS.purpose.sub(" ", plain).split()).strip(" ,;:.")
    return _PATTERNS.refusing.match(order) is not None or _PATTERNS.not_ordered.search(order) is not None
