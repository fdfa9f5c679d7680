"""Names of examinations and diagnoses, with their aliases: the shared vocabulary of all rooms."""

import functools
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from ..files import shipped_table

# What follows adds complications or details to the disease named first.
_DETAIL = re.compile(
    r"\s*(?:[,;/(]|\bwith\b|\bdue to\b|\bsecondary to\b|\bcomplicated by\b|\band\b|\bor\b|\bversus\b|\bvs\b)",
    re.IGNORECASE,
)
_PUNCTUATION = re.compile(r"[^\w\s%+]", re.UNICODE)


@functools.lru_cache(maxsize=1 << 16)
def normalise(text: str) -> str:
    """Case-folded, accents and punctuation removed, spaces collapsed; for comparing names."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(c for c in decomposed if not unicodedata.combining(c))
    return " ".join(_PUNCTUATION.sub(" ", plain.replace("_", " ")).split())


def leading_disease(diagnosis: str) -> str:
    """The disease that a diagnosis names first, before its details, complications and alternatives."""
    return _DETAIL.split(diagnosis.strip(), maxsplit=1)[0]


@dataclass(frozen=True)
class Term:
    """A canonical name, its aliases, and a kind (``laboratory``, ``imaging``, ... or a body system); ``parts`` are the
    quantities that an examination reports and that are billed with it, ``holds`` other examinations that it
    contains."""

    name: str
    aliases: tuple[str, ...]
    kind: str
    parts: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()


class Vocabulary:
    """Lookup from any known spelling to the canonical :class:`Term`."""

    def __init__(self, terms: Iterable[Term]):
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
        """The term that this text names exactly, up to normalisation."""
        return self.spellings.get(normalise(text))

    def knows(self, text: str) -> bool:
        """Whether this is the name, another spelling or a part of a term, up to normalisation."""
        return normalise(text) in self.spellings or normalise(text) in self.parts

    def general_name(self, text: str) -> str:
        """The name of the examination other than physical that this text names, else the text itself."""
        term = self.find(text)
        return text if term is None or term.kind == "physical" else term.name


def _load(name: str) -> Vocabulary:
    """The vocabulary in a shipped table of ``cases/data``, one term a row."""
    rows, more = shipped_table("cdpr.cases", "data", name), ("parts", "holds")
    return Vocabulary(
        Term(row["name"], _split_cell(row["aliases"]), row["kind"], *(_split_cell(row.get(key, "")) for key in more))
        for row in rows
    )


def _split_cell(cell: str) -> tuple[str, ...]:
    """The entries of a cell, which are separated by ``|``."""
    return tuple(filter(None, cell.split("|")))


@functools.cache
def examinations() -> Vocabulary:
    """The shipped examination names (``data/examinations.csv``): of all that the catalogue prices, and of the physical
    examination."""
    return _load("examinations.csv")


@functools.cache
def diagnoses() -> Vocabulary:
    """The shipped diagnosis names (``data/diagnoses.csv``)."""
    return _load("diagnoses.csv")
