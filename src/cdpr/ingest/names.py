"""Names of examinations: from the many spellings of a source to the keys of a case record, and the results by key
while an importer collects them."""

import functools
import re

from ..cases import PHYSICAL_SUFFIX, VITAL_SIGNS, Analyte, Term, examinations, format_analytes, meaning, normalise
from ..cases.patterns import compile_rewriting, rewrite
from ..files import shipped_table
from .texts import LONGEST_NAME, one_line, patterns, phrases, visible

_WORDS = phrases("names")
ANY_LABEL = "*"
_PATTERN = patterns("names")
_LONG = compile_rewriting((long, short) for short, long in _WORDS["long"].items())


def exam_key(name: str) -> str:
    """The key of an examination in a case record: the vocabulary's name if it knows this one, else the name itself on
    one line."""
    return examinations().general_name(one_line(name))


def clean_name(name: str) -> str:
    """A source's name of an examination on one line, at most 120 characters ("…" ends a longer one). The suffix of
    physical examinations is removed, because their items are free."""
    name = one_line(visible(name))
    while name.endswith(PHYSICAL_SUFFIX):
        name = name.removesuffix(PHYSICAL_SUFFIX).rstrip()
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def physical_key(name: str) -> str:
    """The key of an item of the physical examination: its name, or the vocabulary's for a synonym, with the suffix of
    physical items (``Pulm exam`` becomes ``Lungs (Physical Examination)``)."""
    name = one_line(name).removesuffix(PHYSICAL_SUFFIX)
    for spelling in (name, _PATTERN.ending.sub("", name)):
        term = examinations().find(spelling)
        if term is not None and term.kind == "physical":
            return term.name + PHYSICAL_SUFFIX
    return name + PHYSICAL_SUFFIX


def add_text(results: dict[str, str], key: str, text: str) -> None:
    """Add a text to ``results``, in place; behind the text that its key already has, if any."""
    results[key] = f"{results[key]} {text}" if key in results else text


def panel_of(analyte: str, fluid: str = "Blood") -> str | None:
    """The name of the examination that reports an analyte of a fluid (``Hb``: ``Complete Blood Count``), whatever the
    order of its words; None for an unknown analyte."""
    return _panels_by_analyte().get((fluid, _analyte_words(analyte)))


@functools.cache
def _panels_by_analyte() -> dict[tuple[str, frozenset[str]], str]:
    """The examination that reports an analyte, by the fluid and the words of the analyte's label. A label with
    brackets, "White Blood Cells (WBC)", is also found by what is before and within them."""
    analytes: dict[tuple[str, frozenset[str]], str] = {}
    for examination, label, fluid in panels():
        bracketed = re.fullmatch(r"(.+?)\s*\(([^)]+)\)", label)
        for name in (label, *(bracketed.groups() if bracketed else ())):
            analytes.setdefault((fluid, _analyte_words(name)), examination)
    return analytes


def _analyte_words(name: str) -> frozenset[str]:
    """The words that distinguish an analyte from others: in the singular, without words like "serum" and "level", and
    with long forms in place of laboratory shorthand ("Na+" and "Serum sodium" are both {"sodium"})."""
    words = [_singular(word.rstrip("+")) for word in normalise(name).split()]
    plain = " ".join(word for word in words if word not in _WORDS["filling"])
    return frozenset(_WORDS["short"].get(plain, plain).split())


def _singular(word: str) -> str:
    """The word without the s of its plural, if it has more than three letters."""
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


@functools.cache
def panels() -> tuple[tuple[str, str, str], ...]:
    """The rows of ``panels.csv`` in the order of reports: examination, label of an analyte, fluid. The label ``*``
    applies to every analyte of the fluid that no other row names."""
    rows = shipped_table("cdpr.ingest", "panels.csv")
    return tuple((row["examination"], label, row["fluid"]) for row in rows for label in row["labels"].split("|"))


def term_of(name: str) -> Term | None:
    """The vocabulary's examination that a name means; None for a name that means no examination, or a physical one
    other than vital signs."""
    known = examinations().find(name)
    if known is not None:
        return known if known.kind != "physical" or known.name == "Vital Signs" else None
    named_term = meaning(name)
    if named_term.kind == VITAL_SIGNS:
        return examinations().terms["Vital Signs"]
    return named_term.term if named_term.how != "analyte" else None


def usual_name(name: str) -> str:
    """A name of an imaging study in the usual order of words, without a side: ``Radiograph of the left knee`` becomes
    ``Knee X-ray``, ``computed tomography scan of the chest`` becomes ``CT chest``. Other names stay."""
    usual = _PATTERN.side.sub("", rewrite(_PATTERN.xray.sub("X-ray", name), _LONG))
    if modality_first := _PATTERN.part_first.fullmatch(usual):
        usual = f"{modality_first[2]} {modality_first[1]}"
    elif scan := _PATTERN.part_last.fullmatch(usual):
        usual = f"{scan[1]} {scan[2]}"
    return usual[:1].upper() + usual[1:]


def covers(key: str, name: str) -> bool:
    """Whether a key has all words of a name, in any order; "of", "the", "scan" and plurals do not count."""
    return _name_words(key) >= _name_words(name)


def _name_words(name: str) -> set[str]:
    """The words of a name in the singular, without "of", "the" and "scan"."""
    words = set(normalise(_PATTERN.xray.sub("X-ray", name)).split()) - {"of", "the", "scan"}
    return set(map(_singular, words))


class Workup:
    """The results of one case while they are collected: measured values and texts by examination.

    Of a value that comes again under one label the first counts, and a text that comes again is ignored.
    """

    def __init__(self) -> None:
        self._analytes: dict[str, dict[str, Analyte]] = {}
        self._texts: dict[str, dict[str, None]] = {}

    def add(self, key: str, result: Analyte | str) -> bool:
        """Add a value or a text to the examination ``key``. Returns False for one that was there before."""
        analytes, texts = self._analytes.setdefault(key, {}), self._texts.setdefault(key, {})
        if isinstance(result, Analyte):
            return analytes.setdefault(result.label, result) is result
        is_new = result not in texts
        texts[result] = None
        return is_new

    def results(self) -> dict[str, str]:
        """Write one text for each examination: its measured values, then its texts. Examinations without any are left
        out; the others keep the order in which they were added."""
        results = {}
        for key, analytes in self._analytes.items():
            texts = [format_analytes(analytes.values()), *self._texts[key]]
            results[key] = "; ".join(filter(None, texts))
        return {key: text for key, text in results.items() if text}


def without_semicolons(text: str) -> str:
    """A text on one line with commas in place of semicolons, which separate the fields of a laboratory result."""
    return one_line(text).replace("; ", ", ")
