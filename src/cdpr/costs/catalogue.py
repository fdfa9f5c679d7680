"""The price catalogue: examination -> code -> rate, with source, year and confidence of every row.

Tables of a catalogue's folder: ``catalogue.csv`` prices examinations under their general names (``+`` in a code adds
the rates of several, ``-26`` names a modifier); ``billing_groups.csv`` names single analytes that are billed as part
of a panel; ``spellings.csv`` holds further names; ``paper_prices.csv`` the prices printed in the paper's sample record
(appendix, "Unified data format").
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Literal

from ..cases import PHYSICAL_SUFFIX, examinations, imaging_words, is_physical, normalise
from ..settings.schema import Costs
from .tables import CatalogueError, amount, read_table

Match = Literal["name", "alias", "analyte", "override", "fallback", "physical"]
CONFIDENCES = ("exact", "representative", "proxy")
TABLES = ("catalogue.csv", "billing_groups.csv", "spellings.csv", "paper_prices.csv")
COLUMNS = (
    "examination", "hcpcs", "rate_usd", "source", "year", "locality", "billing_group", "confidence",
)  # fmt: skip
_ASIDE = re.compile(r"\s*[(\[]([^()\[\]]*)[)\]]\s*$")
_SIDE = re.compile(r"\b(left|right|bilateral)\b", re.IGNORECASE)
# A remark that names the specimen makes it another examination: glucose in urine is not blood glucose.
_SPECIMENS = ("urine", "stool", "csf", "cerebrospinal", "ascites", "pleural", "joint", "fluid", "marrow", "saliva")
# Cultures and stains are one code, whatever is cultured or stained.
_ANY_SPECIMEN = re.compile(r"\b(culture|smear|stain|preparation)\s*$", re.IGNORECASE)
_URINE_PANEL = "UA_PANEL"


@dataclass(frozen=True)
class Price:
    """What one examination is priced by: US dollars before the rule of its billing group, and where they come from.

    ``how`` tells how the name was found: under its own name, another spelling, as an analyte of a panel, in the
    user's overrides, or not at all. ``confidence`` is that of the code: ``exact``, ``representative`` or ``proxy``.
    """

    examination: str
    hcpcs: str
    usd: float
    source: str
    year: str
    group: str | None
    how: Match
    locality: str = ""
    confidence: str = ""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Lookup from any spelling of an examination to its :class:`Price`.

    ``prices`` and ``paper`` by general name; ``analytes`` and ``spellings`` from another name to a general one;
    ``overrides`` by normalised name (see :mod:`.overrides`).
    """

    prices: Mapping[str, Price]
    analytes: Mapping[str, str]
    paper: Mapping[str, float]
    spellings: Mapping[str, str]
    overrides: Mapping[str, Price] = field(default_factory=dict)

    @functools.cached_property
    def _known(self) -> dict[str, Price]:
        found: dict[str, Price] = {}
        own = {name: name for name in self.prices}
        for how, names in ("analyte", self.analytes), ("alias", self.spellings), ("name", own):
            found |= {normalise(name): replace(self.prices[general], how=how) for name, general in names.items()}
        return found

    @functools.cached_property
    def _by_words(self) -> dict[tuple[frozenset[str], str], Price]:
        """Imaging rows by their words; the catalogue's own names come before other spellings."""
        terms, found = examinations().terms, {}
        names = [(name, name) for name in self.prices] + list(self.spellings.items())
        names += [(alias, name) for name in self.prices if name in terms for alias in terms[name].aliases]
        for name, general in names:
            key = imaging_words(name)
            if key is not None and not (key[1] and name not in self.prices):
                found.setdefault(key, self.prices[general])
        return found

    @functools.cached_property
    def _remembered(self) -> Callable[[str], Price | None]:
        return functools.lru_cache(maxsize=1 << 16)(self._find)

    def find(self, exam_key: str) -> Price | None:
        """The price of an examination by name, spelling or membership; None when nothing maps.

        A trailing remark in brackets is ignored when the whole name is unknown, unless it names a specimen. The side
        of the body does not matter, nor does the word order of imaging names. The user's overrides come first: that
        of the name, else that of what the name is priced by.
        """
        return self._remembered(exam_key)

    def _find(self, exam_key: str) -> Price | None:
        found = self._as_spelt(exam_key)
        aside = _ASIDE.search(exam_key)
        if found is None and aside is not None:
            found = self._without_aside(exam_key[: aside.start()], aside[1].casefold())
        own = next((self.overrides[name] for name in _plainer(exam_key) if name in self.overrides), None)
        return own or (found and self._with_own_price(found))

    def _with_own_price(self, found: Price) -> Price:
        own = self.overrides.get(normalise(found.examination), found)
        # Analytes of a panel stay one order, whether or not the panel was taken out of its group.
        return replace(own, group=own.group or found.group) if found.how == "analyte" else own

    def knows(self, exam_key: str) -> bool:
        """Whether every word of a name is one of the vocabulary's or the catalogue's: it holds no remark of its own."""
        if is_physical(exam_key):
            term = examinations().find(exam_key.removesuffix(PHYSICAL_SUFFIX))
            return term is not None and term.kind == "physical"
        return examinations().find(exam_key) is not None or self._as_spelt(exam_key) is not None

    def _as_spelt(self, name: str) -> Price | None:
        return self._look_up(name) or self._look_up(_SIDE.sub(" ", name)) or self._imaging(name)

    def _look_up(self, name: str) -> Price | None:
        plain = normalise(name)
        term = examinations().find(plain)
        if term is not None and term.name in self.prices:
            return replace(self.prices[term.name], how="name" if normalise(term.name) == plain else "alias")
        return self._known.get(plain)

    def _without_aside(self, name: str, remark: str) -> Price | None:
        if not _names_specimen(remark) or _ANY_SPECIMEN.search(name):
            return self._look_up(name) or self._imaging(name)
        if "urine" not in remark:
            return None
        found = self._look_up(f"Urine {name}") or self._look_up(name)
        return found if found is not None and found.group == _URINE_PANEL else None

    def _imaging(self, name: str) -> Price | None:
        key = imaging_words(name)
        if key is None:
            return None
        words, contrast = key
        found, general = self._by_words.get(key), self._by_words.get((words, ""))
        if found is None and general is not None:
            found = self.prices.get(f"{general.examination} {contrast} Contrast", general)
        return replace(found, how="alias") if found is not None else None


def _plainer(name: str) -> Iterator[str]:
    """A name as overrides have it: as it is, without a side, without a trailing remark (but that of a specimen)."""
    aside = _ASIDE.search(name)
    names = [name]
    if aside is not None and not _names_specimen(aside[1].casefold()):
        names.append(name[: aside.start()])
    for spelling in names:
        for plain in (spelling, _SIDE.sub(" ", spelling)):
            yield normalise(general_name(plain))


def general_name(name: str) -> str:
    """The vocabulary's name for a spelling, or the spelling itself where it has none."""
    term = examinations().find(name)
    return name if term is None else term.name


def _names_specimen(remark: str) -> bool:
    return any(specimen in remark for specimen in _SPECIMENS)


def price_of(exam_key: str, settings: Costs, catalogue: Catalogue) -> Price:
    """The price of one examination, US dollars.

    Free for the physical examination; else the user's override, the paper's own price (when ``price_map`` asks for
    them), the catalogue's, the fallback, whichever comes first.
    """
    if is_physical(exam_key):
        return Price("", "", 0.0, "free of charge", "", None, "physical")
    found = catalogue.find(exam_key)
    if found is None:
        return Price("", "", settings.fallback_usd, "fallback", "", None, "fallback")
    own = settings.price_map == "paper_prices" and found.how != "override"
    if own and found.examination in catalogue.paper:
        return replace(found, hcpcs="", usd=catalogue.paper[found.examination], source="paper", year="", locality="")
    return found


def load_catalogue(folder: str | Path | None = None) -> Catalogue:
    """The tables of a folder (default: those that are shipped). Raises CatalogueError."""
    return _shipped() if folder is None else _read(Path(folder))


@functools.cache
def _shipped() -> Catalogue:
    return _read(shipped_folder())


def shipped_folder() -> Path:
    """Where the shipped tables lie."""
    return Path(str(resources.files(__package__)))


def _read(folder: Path) -> Catalogue:
    prices: dict[str, Price] = {}
    for where, row in read_table(folder / "catalogue.csv", COLUMNS):
        name, usd = row["examination"], amount(where, "rate_usd", row["rate_usd"])
        if name in prices:
            raise CatalogueError(f"{where}: field 'examination': {name!r} stands twice")
        if row["confidence"] not in CONFIDENCES:
            raise CatalogueError(f"{where}: field 'confidence': expected one of {', '.join(CONFIDENCES)}")
        prices[name] = Price(
            name, row["hcpcs"], usd, row["source"], row["year"], row["billing_group"] or None, "name", row["locality"],
            row["confidence"],
        )  # fmt: skip
    analytes = {}
    for where, row in _naming(folder / "billing_groups.csv", "parent", prices, "member", "billing_group"):
        parent = prices[row["parent"]]
        if parent.group != row["billing_group"]:
            raise CatalogueError(f"{where}: field 'billing_group': {parent.examination} is in {parent.group}")
        analytes[row["member"]] = parent.examination
    spellings = _naming(folder / "spellings.csv", "examination", prices, "spelling")
    paper = _naming(folder / "paper_prices.csv", "examination", prices, "price_usd")
    return Catalogue(
        prices, analytes, {row["examination"]: amount(where, "price_usd", row["price_usd"]) for where, row in paper},
        {row["spelling"]: row["examination"] for _, row in spellings},
    )  # fmt: skip


def _naming(path: Path, column: str, prices: Mapping[str, Price], *others: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Rows of a table whose ``column`` names an examination of the catalogue."""
    for where, row in read_table(path, (*others, column)):
        if row[column] not in prices:
            raise CatalogueError(f"{where}: field {column!r}: {row[column]!r} is not in catalogue.csv")
        yield where, row
