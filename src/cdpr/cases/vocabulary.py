"""The vocabulary: known names of examinations and diagnoses with their aliases, read from tables, and lookup in
them."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import OSA

from ..files import shipped_table
from .patterns import compiled

# Where the text of a diagnosis goes on, after the disease named first, with complications, details or alternatives.
_DETAIL = re.compile(
    r"\s*(?:[,;/(]|\bwith\b|\bdue to\b|\bsecondary to\b|\bcomplicated by\b|\band\b|\bor\b|\bversus\b|\bvs\b)",
    re.IGNORECASE,
)
_LEAST_COMPLETED, _LEAST_CORRECTED = 3, 7  # fewest letters of a word to complete, and to correct by one letter
_PUNCTUATION = re.compile(r"[^\w\s%+]", re.UNICODE)


@functools.lru_cache(maxsize=1 << 16)
def normalise(text: str) -> str:
    """Return a name for comparison: lower case, without accents and punctuation, with single spaces. "Na+ (Urine)"
    becomes "na+ urine"."""
    plain = text.casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    return " ".join(_PUNCTUATION.sub(" ", plain.replace("_", " ")).split())


@functools.lru_cache(maxsize=1 << 14)
def singular(word: str) -> str:
    """The word without the s of its plural; a word whose ending is no plural ("pus", "axis", "abscess") as it is."""
    return word[:-1] if re.fullmatch(r"\w{3,}[^\Wsui]s", word) else word


def likely_words(token: str, words: frozenset[str]) -> list[str]:
    """Return the ``words`` that ``token`` may abbreviate. These are longer, and have all of its letters in its order:
    those that begin with it ("measur"), else those with the same consonants ("vstblr": vestibular), else those not much
    longer whose consonants begin so ("myocrd": myocardial) or that end so ("breakpt": breakpoint). Where there is none,
    a long token may be misspelt: then those with the same consonants, else those that differ by one letter. A token of
    one or two letters has none."""
    if len(token) < _LEAST_COMPLETED:
        return []
    alike, consonants, in_order = _by_first_letter(words).get(token[0], []), _consonants(token), ".*".join(token)
    longer = [word for word in alike if len(word) > len(token) and compiled(in_order).match(word)]
    near = [word for word in longer if word.startswith(token)]
    if not near and len(consonants) > 2:
        same = [word for word in longer if _consonants(word) == consonants]
        begun = {word for word in longer if _consonants(word).startswith(consonants) and len(word) <= 3 * len(token)}
        ended = {word for word in longer if word[-1] == token[-1] and len(word) <= 2 * len(token)}
        near = same or [word for word in longer if word in begun | ended]
    if near or len(token) < _LEAST_CORRECTED:
        return near
    near = [word for word in alike if _consonants(word) == consonants]
    return near or [word for word, *_ in process.extract(token, words, scorer=OSA.distance, score_cutoff=1, limit=None)]


@functools.lru_cache(maxsize=1 << 14)
def _consonants(word: str) -> str:
    """Return a word without its vowels, but with its first letter."""
    return word[:1] + re.sub("[aeiouy]", "", word[1:])


@functools.cache
def _by_first_letter(words: frozenset[str]) -> dict[str, list[str]]:
    """Divide the words, in alphabetical order, by their first letter."""
    return {letter: list(group) for letter, group in itertools.groupby(sorted(words), lambda word: word[:1])}


def leading_disease(diagnosis: str) -> str:
    """Return the disease that a diagnosis names first, without details, complications and alternatives: "Pneumonia" of
    "Pneumonia with sepsis"."""
    return _DETAIL.split(diagnosis.strip(), maxsplit=1)[0]


class Term(NamedTuple):
    """A known examination or diagnosis: its canonical ``name``, its ``aliases``, and its ``kind`` (``laboratory``,
    ``imaging``, ... of an examination, the body system of a diagnosis). ``parts`` are the quantities that an
    examination reports, in all their spellings, ``holds`` other examinations that it contains."""

    name: str
    aliases: tuple[str, ...]
    kind: str
    parts: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()


class Vocabulary:
    """A list of known :class:`Term` objects, with lookup by any of their spellings. Raises ValueError where one
    spelling means two terms."""

    def __init__(self, terms: Iterable[Term]):
        """Index the terms by each normalised spelling and by each normalised part. Raises ValueError for a spelling of
        two terms, and for a part that is also a name or a part of another term."""
        self.terms = {term.name: term for term in terms}
        # Every normalised spelling and its term.
        self.spellings: dict[str, Term] = {}
        for term in self.terms.values():
            for spelling in (term.name, *term.aliases):
                known = self.spellings.setdefault(normalise(spelling), term)
                if known is not term:
                    raise ValueError(f"{spelling!r} names both {known.name!r} and {term.name!r}")
        # Every normalised part that is no name of its own, and the term that reports it.
        self.parts: dict[str, Term] = {}
        for term in self.terms.values():
            for part in map(normalise, term.parts):
                if part in self.spellings or self.parts.setdefault(part, term) is not term:
                    raise ValueError(f"{part!r} is a part of {term.name!r}, and more than that")

    def find(self, text: str) -> Term | None:
        """Return the term whose name or alias is ``text``, compared after :func:`normalise`; None for an unknown
        name."""
        return self.spellings.get(normalise(text))

    def knows(self, text: str) -> bool:
        """Whether ``text`` is the name, an alias or a part of a term, compared after :func:`normalise`."""
        return normalise(text) in self.spellings or normalise(text) in self.parts

    def general_name(self, text: str) -> str:
        """Return the canonical name of the examination that ``text`` names. An unknown name, and the name of a physical
        examination, is returned unchanged."""
        term = self.find(text)
        return text if term is None or term.kind == "physical" else term.name


def _load_vocabulary(name: str) -> Vocabulary:
    """Read a vocabulary (terms with their aliases) from the table ``name`` in ``cases/data``, which has one term a
    row. The table of diagnoses lacks the columns ``parts`` and ``holds``."""
    rows, lists = shipped_table("cdpr.cases", "data", name), ("parts", "holds")
    return Vocabulary(
        Term(row["name"], _split_cell(row["aliases"]), row["kind"], *(_split_cell(row.get(key, "")) for key in lists))
        for row in rows
    )


def _split_cell(cell: str) -> tuple[str, ...]:
    """Return the entries of a cell of a table, which are separated by ``|``, or by ``=`` where they are spellings of
    one quantity; empty for an empty cell."""
    return tuple(filter(None, re.split("[|=]", cell)))


@functools.cache
def examinations() -> Vocabulary:
    """Return the vocabulary of examinations (``data/examinations.csv``): all that have a price, and the items of the
    physical examination. It is read once."""
    return _load_vocabulary("examinations.csv")


@functools.cache
def quantities() -> dict[str, str]:
    """Return the names of the quantities that examinations report, by each of their normalised spellings. The name is
    the first of the spellings that the column ``parts`` of ``data/examinations.csv`` joins by ``=``."""
    cells = (row["parts"] for row in shipped_table("cdpr.cases", "data", "examinations.csv"))
    spellings = (quantity.split("=") for cell in cells for quantity in cell.split("|"))
    return {normalise(spelling): name for name, *others in spellings for spelling in (name, *others)}


@functools.cache
def diagnoses() -> Vocabulary:
    """Return the vocabulary of diagnoses (``data/diagnoses.csv``). It is read once."""
    return _load_vocabulary("diagnoses.csv")
