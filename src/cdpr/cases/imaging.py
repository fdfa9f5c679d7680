"""Reads names of imaging examinations in any word order: ``CT HEAD W/ & W/O CONTRAST``, ``X-ray of the left knee``."""

import functools
import itertools
from collections.abc import Collection, Iterator

from ..files import parse_yaml, shipped_text
from .chinese import in_english
from .patterns import any_of, compiled, fill, rewrite
from .vocabulary import likely_words, normalise

_TABLE = fill(parse_yaml(shipped_text(__package__, "data", "imaging.yaml")))
# Pairs (expression, word): an expression for the spellings of a word, and the word that replaces them.
_PHRASES = [(rf"\b({phrase})\b", word) for word, phrase in _TABLE["phrases"].items()]
_ANY_PHRASE = any_of(_PHRASES)
_MODALITIES, _VIEWS = frozenset(_TABLE["modalities"]), frozenset(_TABLE["views"])
_NOISE = _VIEWS.union(_TABLE["noise"])  # views, sides, fillers: they do not change the billing code
_WORDS: dict[str, str] = _TABLE["words"]  # by a word: the one that replaces it
_WITHIN: dict[str, dict[str, str]] = _TABLE["within"]  # by modality: parts of the body, each with its larger region
_TECHNIQUES = frozenset(_TABLE["techniques"])  # such as perfusion: they make it another study of the region
# What shows that a modality is meant: its spelt-out name, or words that confirm an abbreviation.
_SPELT_OUT, _CONFIRMING_WORDS = _TABLE["spelt_out"], frozenset(_TABLE["more"])
# Words of studies as price lists shorten them, and words that they add without meaning; letters that two words share.
_SHORT: dict[str, str] = _TABLE["shortened"]
_OFTEN_SHORT = frozenset(_SHORT).union(*map(str.split, _SHORT.values()))
_LETTERS = 6
MOST_WORDINGS = 64  # of a name whose words may abbreviate several others
_SECTIONS, _VESSELS = frozenset({"ct", "mri"}), frozenset({"duplex", "vein", "artery"})
_UNSAID = frozenset(word[:_LETTERS] for word in _TABLE["unsaid"])
# Sets of words that may be left out, the smallest first: sides, and rooms of the department.
_MAY_BE_LEFT_OUT = [frozenset(word[:_LETTERS] for word in words) for words in _TABLE["may_be_left_out"]]
_REGIONS = frozenset(_TABLE["regions"]).union(*(part.split() for within in _WITHIN.values() for part in within))


@functools.lru_cache(maxsize=1 << 14)
def imaging_words(name: str) -> tuple[frozenset[str], str] | None:
    """Return (words of region and modality, contrast) of the name of an imaging examination; None for any other name,
    and for a modality alone ("CT").

    ``imaging_words("CT of the left knee w/o contrast")`` is ``({"ct", "knee"}, "without")``; contrast is empty where
    the name does not say. Side and views are left out, because they do not change the billing code. A name with views
    but without a modality is an X-ray, one with Doppler an ultrasound.
    """
    text, contrast = _translate_phrases(name), ""
    for kind, pattern in _TABLE["contrast"]:
        if compiled(pattern).search(text):
            text = compiled(pattern).sub(" ", text)
            contrast = contrast or kind
    tokens = text.replace("+", " ").split()
    words = frozenset(_WORDS.get(token, token) for token in tokens if token not in _NOISE)
    if not words & _MODALITIES and not set(tokens).intersection(_TABLE["unfilmed"]):
        words |= {"xray"} if _VIEWS.intersection(tokens) else {"ultrasound"} if "doppler" in words else set()
    return (words, contrast) if words & _MODALITIES and words - _MODALITIES else None


@functools.lru_cache(maxsize=1 << 14)
def study_tokens(name: str) -> tuple[str, ...]:
    """Return the words of a name, each word that price lists often shorten as the words that it stands for."""
    words = rewrite(f" {normalise(name)} ", _TABLE["listed"]).split()
    return tuple(word for token in words for word in _SHORT.get(token, token).split())


@functools.lru_cache(maxsize=1 << 14)
def study_words(tokens: Collection[str]) -> frozenset[str]:
    """Return the words by which a price list names a study: the ``tokens`` of its name without those that say nothing,
    and each cut to six letters, because such lists cut words where they please.

    The words of "ANGIO VISCERAL SELECT" and "Selective Visceral Angiography" are the same.
    """
    words = frozenset(token[:_LETTERS] for token in tokens) - _UNSAID
    # Only of CT and MRI it says something that a study is "with", or "with and without"; vessels are mostly seen by
    # ultrasound.
    if "with" in words and not words & _SECTIONS:
        words -= {"with", "withou"}
    return words - {"ultras"} if words & _VESSELS else words


def may_be_listed_study(name: str) -> bool:
    """Whether a name has a word that price lists shorten, a short form, or a word that only studies have. Others are
    not looked up by shortened words; a job that names no study is spared the index."""
    plain = normalise(name)
    return not _OFTEN_SHORT.isdisjoint(plain.split()) or compiled(_TABLE["of_studies"]).search(plain) is not None


def study_wordings(name: str, known: frozenset[str], is_single: bool) -> Iterator[set[frozenset[str]]]:
    """Yield the sets of words under which a price list may have the study ``name``, the closest first: its words, these
    completed by the words of studies, ``known``, that they may abbreviate, and those that are known; each also without
    the words that may be left out. Sets that are equally close are yielded together. Unknown words are only left out
    beside three known ones, and where the name ``is_single``, one of no several examinations."""
    tokens = study_tokens(name)
    listed = _UNSAID.union(word[:_LETTERS] for word in known)
    choices = [[t] if t[:_LETTERS] in listed else likely_words(t, known) or [t] for t in tokens]
    completed = {study_words(chosen) for chosen in itertools.islice(itertools.product(*choices), MOST_WORDINGS)}
    wordings = [{study_words(tokens)}, completed]
    if is_single:
        wordings += [{words & listed for words in alike if _is_clear(words, listed)} for alike in reversed(wordings)]
    for alike in wordings:
        yield from ({words - left_out for words in alike} for left_out in _MAY_BE_LEFT_OUT)


def _is_clear(words: frozenset[str], listed: frozenset[str]) -> bool:
    """Whether the words of a study may do without those that are not listed: three are, and no number is left out."""
    return len(words & listed) > 2 and not any(map(str.isdigit, words - listed))


def view_count(name: str) -> str:
    """Return the number of views that the name of an X-ray states, as the vocabulary writes it ("2 Views"); empty where
    it states none."""
    return next((phrase for phrase, pattern in _TABLE["view_counts"] if compiled(pattern).search(normalise(name))), "")


@functools.lru_cache(maxsize=1 << 15)
def modality(name: str) -> str | None:
    """Return the imaging modality that a name contains (``ct``, ``mri``, ...), with or without a region. Of several it
    is the one that the table of modalities lists first; None for a name that is no imaging. A modality that is spelt
    out always counts. An abbreviation counts only alone, or beside a region, a technique or a word that confirms it
    ("contrast", "protocol"), so "Metoprolol XR" is no X-ray."""
    words = {_WORDS.get(token, token) for token in _translate_phrases(name).replace("+", " ").split()}
    found = next((known for known in _TABLE["modalities"] if known in words), None)
    is_spelt_out = compiled(_SPELT_OUT).search(normalise(in_english(name)))
    is_alone = not words - _MODALITIES - _NOISE
    return found if is_spelt_out or is_alone or words & (_REGIONS | _TECHNIQUES | _CONFIRMING_WORDS) else None


def regions(words: frozenset[str]) -> list[frozenset[str]]:
    """Divide the ``words`` of an imaging name by body region. Returns one set for each region: the modality and the
    words of the region as the vocabulary (the list of known examinations) has them. Other words are left out.

    A small region is replaced by the larger one under which this list has the modality, such as the wrist by the upper
    extremity: ``{"ct", "wrist", "tumor"}`` gives ``[{"ct", "upper", "extremity"}]``. The list is empty where no region
    is known, or where a technique (perfusion, ...) makes it a different study.
    """
    if words & _TECHNIQUES:
        return []
    modalities = words & _MODALITIES
    known = (words - modalities) & _REGIONS
    if len(known) > 1:
        known -= {"softtissue"}  # "soft tissue of the neck" is the neck
    unused, found = known, []  # words of no region yet, and the regions
    for part, whole in _WITHIN.get(min(modalities), {}).items():
        # In "cervical and thoracic spine" both parts share "spine", so not all words of a part have to be unused.
        if known.issuperset(part.split()) and unused.intersection(part.split()):
            unused = unused.difference(part.split())
            found.append(modalities.union(whole.split()))
    # A qualifier ("upper") is no region by itself.
    found += [modalities | {region} for region in sorted(unused.difference(_TABLE["qualifiers"]))]
    return list(dict.fromkeys(found))


def _translate_phrases(name: str) -> str:
    """Return the name in English and lower case, with its phrases replaced by the words that this module knows."""
    plain = normalise(in_english(name))
    return rewrite(plain, _PHRASES) if compiled(_ANY_PHRASE).search(plain) else plain
