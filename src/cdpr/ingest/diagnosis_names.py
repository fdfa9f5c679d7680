"""Under which names a text gives a diagnosis away: of the patient or of a relative, and not where it is negated."""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..cases import Term, Vocabulary, diagnoses, leading_disease, normalise
from ..files import shipped_table
from .texts import CHINESE, one_line, patterns, phrases, says_something

BLANK = "___"
_SAID = phrases("diagnosis_names")
_PATTERN = patterns("diagnosis_names")
TEST = _PATTERN.test
_TISSUE, _LINKING = frozenset(_SAID["tissue"]), frozenset(_SAID["linking"])
_TOO_GENERAL = frozenset([*_SAID["too_general"], *_SAID["general"]])


@dataclass(frozen=True)
class Mention:
    """Words from ``start`` to ``end`` that name a diagnosis, and whether a relative has it."""

    start: int
    end: int
    words: str
    relative: bool


@functools.cache
def _known() -> dict[str, list[Term]]:
    """Diseases by spelling: of the shared vocabulary, and of a table of common abbreviations that it does not have."""
    rows = shipped_table("cdpr.ingest", "abbreviations.csv")
    short = Vocabulary(Term(r["name"], tuple(r["aliases"].split("|")), "") for r in rows)
    terms: dict[str, list[Term]] = {}
    for spelling, term in (*diagnoses().spellings.items(), *short.spellings.items()):
        terms.setdefault(_spelt(spelling), []).append(term)
    return terms


def _spelt(name: str) -> str:
    """The name as it is looked up: words that stand for one another are one word."""
    return " ".join(_alike(word)[0] for word in normalise(name).split())


def _alike(word: str) -> Sequence[str]:
    """Words that stand for this one within a name."""
    return next((group for group in _SAID["same"] if word.casefold() in group), (word,))


@functools.lru_cache(maxsize=4096)
def names_of(diagnosis: str) -> tuple[str, ...]:
    """The diagnosis, the first of a numbered list, its leading disease, these without qualifiers, whatever known
    disease they or their cause begin or end with, and every alias of all of these."""
    whole = one_line(diagnosis)
    first = next(filter(says_something, _PATTERN.number.split(whole)), whole).strip(" .,;")
    leading = leading_disease(first)
    plain = [_unqualified(name) for name in (first, leading)]
    names = dict.fromkeys((whole, first))
    names.update(dict.fromkeys(name for name in (leading, *plain) if name.casefold() not in _SAID["general"]))
    cause = _PATTERN.cause.search(first)
    for phrase in (leading, plain[-1], leading_disease(cause[1]) if cause else ""):
        names.update(dict.fromkeys(_known_parts(phrase)))
    for name in tuple(names):
        for term in _known().get(_spelt(name), ()):
            names.update(dict.fromkeys((term.name, *term.aliases)))
    return tuple(name for name in names if says_something(name))


def _unqualified(name: str) -> str:
    """The name without its qualifiers ("acute", "severe", ...) at the beginning and end."""
    while (shorter := _PATTERN.qualifier.sub("", name).strip(" ,.-")) != name:
        name = shorter
    return name


def _known_parts(phrase: str) -> Iterator[str]:
    """Beginnings and ends of a phrase that are diseases with a name of their own."""
    words = phrase.split()
    parts = {(0, end) for end in range(1, len(words) + 1)} | {(start, len(words)) for start in range(len(words))}
    for start, end in sorted(parts):
        part = " ".join(words[start:end])
        place = len(" ".join(words[:start])) + (start > 0)
        known = (len(part) > 3 or part.isupper()) and _spelt(part) in _known()
        if known and not _false_friend(phrase, place, place + len(part)):
            yield part


@functools.lru_cache(maxsize=4096)
def naming(diagnosis: str) -> re.Pattern[str]:
    """Any name of the diagnosis as whole words, longest first, in singular or plural, whatever stands between them.

    Abbreviations of up to four capitals match as written, so that "pe" in a sentence is not "PE".
    """
    names = sorted(names_of(diagnosis), key=lambda n: (-len(n), n))
    chinese = [_pattern(name) for name in names if CHINESE.search(name)]
    others = "|".join(_pattern(name) for name in names if not CHINESE.search(name))
    # The place is asked before the names.
    return re.compile("|".join([*([rf"(?<!\w)(?:{others})"] if others else []), *chinese]) or r"(?!)")


def _pattern(name: str) -> str:
    """A regular expression for one name: its words in any spelling, whatever stands between them."""
    words, between = _PATTERN.word.findall(name), r"[\W_]+"
    if CHINESE.search(name):
        return between.join(map(re.escape, words))
    if len(name) <= 4 and name.isupper():
        return rf"{between.join(map(re.escape, words))}s?(?!\w)"
    closing = r"\)?" if name[-1] == ")" else ""
    spelt = between.join((*map(_word, words[:-1]), _last(words[-1])))
    return rf"(?i:{spelt}(?!\w){closing})"


def _word(word: str) -> str:
    """A regular expression for one word, its synonyms, and a possessive ending."""
    bare = re.sub(r"['’]s$", "", word)
    spelt = "|".join(map(re.escape, _alike(bare)))
    return f"(?:{spelt})" + ("" if bare == word else "(?:['’]?s)?")


def _last(word: str) -> str:
    """A word in singular or plural, the Greek one too: keratosis, keratoses."""
    spelt = _word(_singular(word)) + "(?:e?s)?"
    return f"(?:{re.escape(word[:-2])}[ie]s|{spelt})" if _PATTERN.greek.search(word) else spelt


def _singular(word: str) -> str:
    """The word without the s of its plural."""
    return word[:-1] if re.fullmatch(r"\w{3,}[^\Wsui]s", word) else word


def mentions(text: str, diagnosis: str, loose: bool = False) -> list[Mention]:
    """Where a text names the diagnosis without negating it, in the order of the text; with ``loose`` also by its words
    in another order, without the general ones, or by their initials."""
    spans = exact = [match.span() for match in naming(diagnosis).finditer(text)]
    if loose:
        exact = [(a, b) for a, b in exact if " " in text[a:b] or not _PATTERN.test_alone.match(text, b)]
        spans = exact + [
            (start, end)
            for start, end in (match.span() for match in _loosely(diagnosis).finditer(text))
            if not any(start < other and first < end for first, other in exact)
            and not _names_another(text, start, end, diagnosis)
        ]
    return [
        Mention(start, end, text[start:end], _of_a_relative(text, start, end))
        for start, end in sorted(spans)
        if not _false_friend(text, start, end) and not _negated(text, start, end)
    ]


def _names_another(text: str, start: int, end: int, diagnosis: str) -> bool:
    """Whether a single word of the diagnosis belongs to another disease here, or to the name of a test."""
    if " " in text[start:end]:
        return False
    if TEST.match(text, end):
        return True
    kind = _PATTERN.kind.search(text, max(0, start - 40), start)
    known = kind is None or any(word in diagnosis.casefold() for word in _alike(kind[1].casefold()))
    return not known and not _PATTERN.sure.fullmatch(kind[1]) and not _PATTERN.qualifier.match(f"{kind[1]} x")


@functools.lru_cache(maxsize=4096)
def _loosely(diagnosis: str) -> re.Pattern[str]:
    """Shortened, reordered and abbreviated names: what is left without general words, alone or in any order with few
    words between, and initials in capitals."""
    patterns: list[str] = []
    whole = one_line(diagnosis)
    leading = leading_disease(whole)
    for name in dict.fromkeys((whole, leading, _unqualified(leading))):
        patterns += [rf"{re.escape(short)}(?!\w)" for short in _PATTERN.bracketed.findall(name)]
        bare = re.sub(r"\([^)]*\)", " ", name)
        words = [word for word in _PATTERN.word.findall(bare) if word.casefold() not in _LINKING]
        if 3 <= len(words) <= 5 and not CHINESE.search(name):  # two letters say too little
            patterns.append("".join(word[0].upper() for word in words) + r"(?!\w)")
        # "Gastric peptic ulcer" without one of its adjectives.
        if 3 <= len(words) <= 5 and name == _unqualified(name) and words[-1].casefold() not in _SAID["general"]:
            shorter = ((*words[:i], *words[i + 1 :]) for i in range(len(words) - 1))
            patterns += [rf"(?i:{'[ -]'.join(map(_inflected, part))})" for part in shorter]
        # What gives it away: no general word, no qualifier, none of a few letters.
        long = [word for word in words if len(word) > 4 and word.casefold() not in _TOO_GENERAL]
        telling = list(dict.fromkeys(re.sub(r"['’]s$", "", word) for word in long))
        between = r"(?:[^\w.;\n]+\w+){0,3}?[^\w.;\n]+"
        if 1 <= len(telling) <= 4:
            patterns += [f"(?i:{between.join(map(_inflected, order))})" for order in itertools.permutations(telling)]
        diseases = [word for word in telling if _PATTERN.disease.search(word) and word.casefold() not in _TISSUE]
        patterns += [f"(?i:{_inflected(word)})" for word in diseases]
    return re.compile(rf"(?<!\w)(?:{'|'.join(dict.fromkeys(patterns))})" if patterns else r"(?!)")


def _inflected(word: str) -> str:
    """A regular expression for a word in singular, plural or possessive."""
    spelt = f"{word[:-2]}[ie]s" if _PATTERN.greek.search(word) else rf"{re.escape(_singular(word))}(?:['’]?e?s)?"
    return rf"{spelt}(?!\w)"


def blanked(text: str, mentions_found: Iterable[Mention]) -> str:
    """The text with :data:`BLANK` in place of these mentions."""
    for mention in sorted(mentions_found, key=lambda m: -m.start):
        text = text[: mention.start] + BLANK + text[mention.end :]
    return text


def _false_friend(text: str, start: int, end: int) -> bool:
    """Whether the name is but a part of a phrase with another meaning."""
    phrases = (phrase.span() for phrase in _PATTERN.false_friend.finditer(text))
    return any(first <= start and end <= last and (first, last) != (start, end) for first, last in phrases)


def _negated(text: str, start: int, end: int) -> bool:
    """Whether a negation that reaches the name stands before it, or one right after it."""
    cues = list(_PATTERN.negation.finditer(text, max(0, start - 400), start))
    return bool((cues and _reaches(text, cues[-1], start)) or _PATTERN.negated_after.match(text, end))


def _reaches(text: str, cue: re.Match[str], start: int) -> bool:
    """Whether the clause of a negation goes on until ``start``. Beyond a comma it does in "denies a, b" and in "no a, b
    or c", but not in "no a, b"."""
    between = _PATTERN.carries.sub(" ", text[cue.start() : start])
    if _PATTERN.clause_end.search(between + text[start]):
        return False
    return "," not in between or bool(_PATTERN.denies.match(cue[0]) or _PATTERN.alternative.match(text, cue.end()))


def _of_a_relative(text: str, start: int, end: int) -> bool:
    """Whether a relative is the subject of the sentence up to the name, or has it by what follows."""
    if _PATTERN.in_relative.match(text, end):
        return True
    relatives = list(_PATTERN.someone.finditer(text, max(0, start - 200), start))
    if not relatives or _PATTERN.teller.search(text[: relatives[-1].start()]):
        return False
    return not _PATTERN.not_of_relative.search(text[relatives[-1].end() : start] + text[start])
