"""Finds where a text names the diagnosis of a case, by any of its names, and so gives it away. A diagnosis that is
negated is not counted; one of a relative is marked."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..cases import Term, Vocabulary, diagnoses, leading_disease, normalise, singular
from ..files import shipped_table
from .texts import CHINESE, one_line, patterns, phrases, says_something, spans_between

BLANK = "___"  # replaces a masked name, as in notes that are de-identified
_WORDS, _PATTERN = phrases("leaks"), patterns("leaks")
_TOO_GENERAL = frozenset([*_WORDS["too_general"], *_WORDS["general"]])  # words that give no diagnosis away: "disease"
_NOTHING = r"(?!)"  # matches no text
_MARKED = re.compile("[\u00c0-\u024f\u1e00-\u1eff‘’ʼ´`′]")  # letters with accents, and marks used as apostrophes
# Between two words of a name: up to three other words of the same sentence.
_UP_TO_THREE_WORDS = r"(?:[^\w.;\n]+\w+){0,3}?[^\w.;\n]+"


class Mention(NamedTuple):
    """The place in a text, from ``start`` to ``end``, that names a diagnosis: its ``words``, and whether a ``relative``
    of the patient has the disease."""

    start: int
    end: int
    words: str
    relative: bool


@functools.cache
def _diseases_by_spelling() -> dict[str, list[Term]]:
    """Index the known diseases, those of ``cases/data/diagnoses.csv`` and of ``abbreviations.csv``, by the
    :func:`_lookup_form` of each of their spellings. An abbreviation may mean several diseases."""
    rows = shipped_table("cdpr.ingest", "abbreviations.csv")
    short = Vocabulary(Term(r["name"], tuple(r["aliases"].split("|")), "") for r in rows)
    terms: dict[str, list[Term]] = {}
    for term in (*diagnoses().terms.values(), *short.terms.values()):
        for form in {_lookup_form(name) for name in _with_eponyms(term.name, *term.aliases)}:
            terms.setdefault(form, []).append(term)
    return terms


def _with_eponyms(*names: str) -> list[str]:
    """Return names of diseases, and the people in them: "Graves'" of "Graves' disease"."""
    return [*names, *(person[1] for person in map(_PATTERN.eponym.match, names) if person)]


def _lookup_form(name: str) -> str:
    """Return the normalised name with each word replaced by the first of its synonyms, and without the s of a
    possessive: "Lung carcinoma" becomes "lung cancer", "Crohn's disease" "crohn disease"."""
    words = normalise(re.sub(r"'s\b", "", _without_accents(name))).split()
    return " ".join(_list_synonyms(word)[0] for word in words)


def _list_synonyms(word: str) -> Sequence[str]:
    """Return the words that mean the same as ``word`` within the name of a disease, with the word itself."""
    return next((group for group in _WORDS["same"] if word.casefold() in group), (word,))


@functools.lru_cache(maxsize=4096)
def names_of(diagnosis: str) -> tuple[str, ...]:
    """List all names of a diagnosis, without repetitions. Those of "1. Severe community acquired pneumonia with sepsis
    2. Fever" are, besides the text itself:

    - its first entry, without the number: "Severe community acquired pneumonia with sepsis";
    - the disease that the entry names first: "Severe community acquired pneumonia";
    - entry and disease without qualifiers: "community acquired pneumonia";
    - a known disease with which this disease begins or ends: "pneumonia";
    - a known disease with which the cause begins or ends, where the entry states a cause: "gout" for "... due to gout";
    - all aliases of the known diseases among these names: "CAP";
    - the adjectives of this disease: "diabetic" for "Type 2 diabetes";
    - a person whose name it has: "Sjögren's" of "Sjögren's syndrome".
    """
    whole = one_line(diagnosis)
    entry = next(filter(says_something, _PATTERN.number.split(whole)), whole).strip(" .,;")
    disease, cause = leading_disease(entry), _PATTERN.cause.search(entry)
    bare_disease = _without_qualifiers(disease)
    shorter = (disease, _without_qualifiers(entry), bare_disease)
    names = [whole, entry, *(name for name in shorter if name.casefold() not in _WORDS["general"])]
    for phrase in (disease, bare_disease, leading_disease(cause[1]) if cause else ""):
        names += _diseases_within(phrase)
    known = [term for name in dict.fromkeys(names) for term in _diseases_by_spelling().get(_lookup_form(name), ())]
    names += [alias for term in known for alias in (term.name, *term.aliases)]
    words = [word for word in _PATTERN.word.finditer(bare_disease) if not _is_false_friend(bare_disease, *word.span())]
    names += [adjective for word in words for adjective in _adjectives(word[0])]
    return tuple(filter(says_something, dict.fromkeys(_with_eponyms(*names))))


def _adjectives(disease: str) -> list[str]:
    """List the adjectives of a one-word disease: "diabetic" for "diabetes". Empty for a word that has none."""
    changes = (re.subn(f"(?i)(?:{end})$", adjective, disease) for end, adjective in _WORDS["adjectives"].items())
    return [adjective for adjective, changed in changes if changed]


def _without_qualifiers(name: str) -> str:
    """Return the name without qualifiers ("acute", "severe", ...) at its beginning and end."""
    while (shorter := _PATTERN.qualifier.sub("", name).strip(" ,.-")) != name:
        name = shorter
    return name


def _diseases_within(phrase: str) -> Iterator[str]:
    """Yield the known diseases with which a phrase begins or ends, in whole words. A name of up to three letters must
    be in capitals."""
    words = list(re.finditer(r"\S+", phrase))
    parts = [(a, b) for a in words for b in words if a.start() < b.end() and (a is words[0] or b is words[-1])]
    for start, end in ((first.start(), last.end()) for first, last in parts):
        part = phrase[start:end]
        is_known = (len(part) > 3 or part.isupper()) and _lookup_form(part) in _diseases_by_spelling()
        if is_known and not _is_false_friend(phrase, start, end):
            yield part


@functools.lru_cache(maxsize=4096)
def _exact_pattern(diagnosis: str) -> re.Pattern[str]:
    """Compile a regular expression that matches any name of a diagnosis as whole words, the longest first, in singular
    or plural, with any punctuation between the words. It matches nothing for a diagnosis without a name."""
    names = sorted(map(_without_accents, names_of(diagnosis)), key=lambda name: (-len(name), name))
    return re.compile("|".join(map(_name_pattern, names)) or _NOTHING)


def _without_accents(text: str) -> str:
    """Return the text without accents and with ``'`` for every apostrophe, each character in its place."""
    return _MARKED.sub(lambda mark: unicodedata.normalize("NFD", mark[0])[0] if mark[0].isalpha() else "'", text)


def _name_pattern(name: str) -> str:
    r"""Return a regular expression for one name of a diagnosis: its words in any spelling, with any punctuation between
    them. ``lung cancer`` gives ``(?<!\w)(?i:(?:lung)(?:'?s)?[\W_]+(?:cancer|carcinoma)(?:'?s)?(?:e?s)?(?!\w))``.

    An abbreviation of up to four capitals matches only in capitals, so that "pe" in a sentence is not "PE", and a
    person's short name with a capital and an s: "Graves", not "grave". A name begins where a word does, but a Chinese
    one anywhere: Chinese has no spaces between words.
    """
    words, between = _PATTERN.word.findall(name), r"[\W_]+"
    if CHINESE.search(name):
        return between.join(map(re.escape, words))
    if len(name) <= 4 and name.isupper():
        return rf"(?<!\w){between.join(map(re.escape, words))}s?(?!\w)"
    if person := _PATTERN.short_eponym.fullmatch(name):
        return rf"(?<!\w){person[1]}(?:'?s|s')(?!\w)"
    closing = r"\)?" if name[-1] == ")" else ""
    return rf"(?<!\w)(?i:{between.join(map(_word_pattern, words))}(?!\w){closing})"


def _word_pattern(word: str) -> str:
    """Return a regular expression for a word or any of its synonyms, in singular, plural or possessive:
    ``(?:cancer|carcinoma)(?:'?e?s)?`` for "cancer". "keratosis" has a Greek plural, "keratoses"."""
    bare = word.removesuffix("'s")
    # Also in British spelling: "oesophageal tumour".
    british = [re.sub("(?i)[ao]?e", "[ao]?e", re.escape(one)) for one in _list_synonyms(singular(bare))]
    spelt = "|".join(british).replace("mor", "mou?r")
    greek = f"{re.escape(bare[:-2])}[ie]s|" if _PATTERN.greek.search(bare) else ""
    return f"(?:{greek}(?:{spelt})(?:'?e?s)?)"


def mentions(text: str, diagnosis: str, loose: bool = False) -> list[Mention]:
    """Find the places where a text names the diagnosis without negating it, in the order of the text. With ``loose``,
    shortened, reordered and abbreviated names are found too."""
    plain = _without_accents(text)
    spans = [match.span() for match in _exact_pattern(diagnosis).finditer(plain)]
    if loose:
        # A single word is left out where the next words make it the name of a test ("hepatitis antibody").
        spans = [(a, b) for a, b in spans if " " in text[a:b] or not _PATTERN.test_alone.match(text, b)]
        others = [match.span() for match in _loose_pattern(diagnosis).finditer(plain)]
        apart = [(a, b) for a, b in others if all(b <= start or end <= a for start, end in spans)]
        spans += [(a, b) for a, b in apart if not _names_something_else(text, a, b, diagnosis)]
    affirmed = [(a, b) for a, b in sorted(spans) if not _is_false_friend(text, a, b) and not _is_negated(text, a, b)]
    return [Mention(start, end, text[start:end], _is_of_relative(text, start, end)) for start, end in affirmed]


def _names_something_else(text: str, start: int, end: int, diagnosis: str) -> bool:
    """Whether the name from ``start`` to ``end`` of the text is a single word that is part of another name: of another
    disease, by the adjective before it ("rheumatoid" before "arthritis"), or of a test, by the words after it
    ("antibody" after "hepatitis"). An adjective of the ``diagnosis`` itself makes no other name."""
    if " " in text[start:end]:
        return False
    if _PATTERN.test.match(text, end):
        return True
    before = _PATTERN.kind.search(text, max(0, start - 40), start)  # "rheumatoid"; 40: no adjective is longer
    if before is None or any(word in diagnosis.casefold() for word in _list_synonyms(before[1].casefold())):
        return False
    # "Chronic" and "typical" make no other disease. The expression for qualifiers needs a word after them, here "x".
    return not (_PATTERN.qualifier.match(f"{before[1]} x") or _PATTERN.sure.fullmatch(before[1]))


@functools.lru_cache(maxsize=4096)
def _loose_pattern(diagnosis: str) -> re.Pattern[str]:
    """Compile a regular expression that matches shortened, reordered and abbreviated names of a diagnosis, and single
    words that name a disease by themselves. Where there are none it matches nothing."""
    expressions: list[str] = []
    whole = one_line(_without_accents(diagnosis))
    leading = leading_disease(whole)
    for name in dict.fromkeys((whole, leading, _without_qualifiers(leading))):
        outside_brackets = re.sub(r"\([^)]*\)", " ", name)
        words = [word for word in _PATTERN.word.findall(outside_brackets) if word.casefold() not in _WORDS["linking"]]
        # "COPD" in "Chronic obstructive pulmonary disease (COPD)".
        expressions += [rf"{re.escape(short)}(?!\w)" for short in _PATTERN.bracketed.findall(name)]
        # "AMI" for "Acute myocardial infarction"; two letters have too many meanings.
        if 3 <= len(words) <= 5 and not CHINESE.search(name):
            expressions.append("".join(word[0].upper() for word in words) + r"(?!\w)")
        # "Peptic ulcer" and "gastric ulcer" for "Gastric peptic ulcer": without a word before the last one, unless
        # the last is a general one ("disease"). From a name with qualifiers only a qualifier might be left out.
        is_bare = name == _without_qualifiers(name)
        if 3 <= len(words) <= 5 and is_bare and words[-1].casefold() not in _WORDS["general"]:
            shortened = [[*words[:i], *words[i + 1 :]] for i in range(len(words) - 1)]
            expressions += [rf"(?i:{'[ -]'.join(map(_inflected_pattern, rest))})" for rest in shortened]
        # "Infarction of the myocardial wall" for "Acute myocardial infarction". Five words have too many orders.
        # Words that give the diagnosis away, neither general nor qualifiers: "Crohn" of "Severe Crohn's disease".
        telling = list(dict.fromkeys(word for word in words if len(word) > 4 and word.casefold() not in _TOO_GENERAL))
        orders = itertools.permutations(map(_inflected_pattern, telling)) if len(telling) <= 4 else ()
        expressions += [f"(?i:{_UP_TO_THREE_WORDS.join(order)})" for order in orders if order]
        # "Pancreatitis" for "Gallstone pancreatitis", but no change of a tissue ("fibrosis"), which many diseases have.
        diseases = [word for word in telling if word.casefold() not in _WORDS["tissue"]]
        expressions += [f"(?i:{_inflected_pattern(word)})" for word in diseases if _PATTERN.disease.search(word)]
    return re.compile(rf"(?<!\w)(?:{'|'.join(dict.fromkeys(expressions))})" if expressions else _NOTHING)


def _inflected_pattern(word: str) -> str:
    """Return a regular expression for a whole word in singular, plural or possessive: "ulcer", "ulcers", "Crohn's"."""
    return rf"{_word_pattern(word)}(?!\w)"


def mask(text: str, mentions_found: Iterable[Mention]) -> str:
    """Return the text with each of ``mentions_found``, places in this text, replaced by ``___`` (:data:`BLANK`)."""
    spans = sorted((mention.start, mention.end) for mention in mentions_found)
    return BLANK.join(text[start:end] for start, end in spans_between(text, spans))


def _is_false_friend(text: str, start: int, end: int) -> bool:
    """Whether the name from ``start`` to ``end`` of the text is only a part of a phrase with another meaning ("heat
    stroke")."""
    spans = (phrase.span() for phrase in _PATTERN.false_friend.finditer(text))
    # Where the phrase is exactly the name ("sickle cell anemia"), the diagnosis itself is meant.
    return any(first <= start and end <= last and (first, last) != (start, end) for first, last in spans)


def _is_negated(text: str, start: int, end: int) -> bool:
    """Whether the name from ``start`` to ``end`` of the text is negated: by a word before it in the same clause ("no
    gout"), or right after it ("gout was ruled out")."""
    negations = list(_PATTERN.negation.finditer(text, max(0, start - 400), start))  # 400: longer than a clause
    is_negated_before = bool(negations) and _reaches(text, negations[-1], start)
    is_prefixed = _PATTERN.prefix.search(text, max(0, start - 6), start)  # "non-diabetic"
    return bool(is_negated_before or is_prefixed or _PATTERN.negated_after.match(text, end))


def _reaches(text: str, cue: re.Match[str], start: int) -> bool:
    """Whether the negation ``cue`` still holds for the name at ``start``. It ends with its clause; after a comma it
    holds in "denies a, b" and in "no a, b or c", but not in "no a, b"."""
    # Without words that carry the negation on, such as "for" in "negative for", which otherwise end a clause.
    between = _PATTERN.carries.sub(" ", text[cue.start() : start])
    if _PATTERN.clause_end.search(between + text[start]):  # with the next letter: a capital may show the end
        return False
    return "," not in between or bool(_PATTERN.denies.match(cue[0]) or _PATTERN.alternative.match(text, cue.end()))


def _is_of_relative(text: str, start: int, end: int) -> bool:
    """Whether a relative has the disease that is named from ``start`` to ``end`` of the text: a relative is the subject
    of the sentence ("his father had gout"), or is named right after it ("gout in his father")."""
    if _PATTERN.in_relative.match(text, end):
        return True
    # "father", "family", ... within 200 characters, the length of a long sentence.
    relatives = list(_PATTERN.someone.finditer(text, max(0, start - 200), start))
    if not relatives or _PATTERN.teller.search(text[: relatives[-1].start()]):  # "according to his mother"
        return False
    # With the first letter of the name: a capital may show that a sentence ended before it.
    between = text[relatives[-1].end() : start] + text[start]
    return not _PATTERN.not_of_relative.search(between)
