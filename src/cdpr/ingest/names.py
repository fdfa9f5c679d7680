"""Examination keys of records: the names that a source uses, their many spellings, which analytes make up which
examination; and the results by key while an importer collects them."""

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
    """The general name where the vocabulary knows the spelling, else the source's own, cleaned."""
    return examinations().general_name(one_line(name))


def examination_name(name: str) -> str:
    """A name on one line, without the mark of physical examinations, which are free; "…" ends what is cut."""
    name = one_line(visible(name))
    while name.endswith(PHYSICAL_SUFFIX):
        name = name.removesuffix(PHYSICAL_SUFFIX).rstrip()
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def physical_key(name: str) -> str:
    """Key of an item of the physical examination, with its suffix; synonyms share the general name."""
    name = one_line(name).removesuffix(PHYSICAL_SUFFIX)
    for spelling in (name, _PATTERN.ending.sub("", name)):
        term = examinations().find(spelling)
        if term is not None and term.kind == "physical":
            return term.name + PHYSICAL_SUFFIX
    return name + PHYSICAL_SUFFIX


def add_text(results: dict[str, str], key: str, text: str) -> None:
    """Add a result; texts under one key follow one another."""
    results[key] = f"{results[key]} {text}" if key in results else text


def examination_of(analyte: str, fluid: str = "Blood") -> str | None:
    """The examination that reports an analyte of a fluid, whatever the order and number of the words that name it."""
    return _analytes().get((fluid, _analyte_words(analyte)))


@functools.cache
def _analytes() -> dict[tuple[str, frozenset[str]], str]:
    """The examination that reports an analyte, by its fluid and the words of its label."""
    analytes: dict[tuple[str, frozenset[str]], str] = {}
    for examination, label, fluid in panels():
        aside = re.fullmatch(r"(.+?)\s*\(([^)]+)\)", label)
        for name in (label, *(aside.groups() if aside else ())):
            analytes.setdefault((fluid, _analyte_words(name)), examination)
    return analytes


def _analyte_words(name: str) -> frozenset[str]:
    """The words that tell one analyte from another: in the singular, without fillers, long forms shortened."""
    words = [word.rstrip("+") for word in normalise(name).split()]
    words = [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words]
    plain = " ".join(word for word in words if word not in _WORDS["filling"])
    return frozenset(_WORDS["short"].get(plain, plain).split())


@functools.cache
def panels() -> tuple[tuple[str, str, str], ...]:
    """Labels of ``panels.csv`` in report order: examination, label, fluid; label ``*`` takes what no other row of its
    fluid names."""
    rows = shipped_table("cdpr.ingest", "panels.csv")
    return tuple((r["examination"], label, r["fluid"]) for r in rows for label in r["labels"].split("|"))


def term_of(name: str) -> Term | None:
    """The examination that a name means, if it is one; of the physical ones only vital signs."""
    known = examinations().find(name)
    if known is not None:
        return known if known.kind != "physical" or known.name == "Vital Signs" else None
    named_term = meaning(name)
    if named_term.kind == VITAL_SIGNS:
        return examinations().terms["Vital Signs"]
    return named_term.term if named_term.how != "analyte" else None


def usual_name(name: str) -> str:
    """A name in the usual order of words, without a side."""
    usual = _PATTERN.side.sub("", rewrite(_PATTERN.xray.sub("X-ray", name), _LONG))
    if placed := _PATTERN.part_first.fullmatch(usual):
        usual = f"{placed[2]} {placed[1]}"
    elif placed := _PATTERN.part_last.fullmatch(usual):
        usual = f"{placed[1]} {placed[2]}"
    return usual[:1].upper() + usual[1:]


def covers(key: str, name: str) -> bool:
    """Whether a key says all that a name does, whatever the order and number of its words."""
    return _words(key) >= _words(name)


def _words(name: str) -> set[str]:
    """The words of a name in the singular, without "of", "the" and "scan"."""
    words = set(normalise(_PATTERN.xray.sub("X-ray", name)).split()) - {"of", "the", "scan"}
    return {word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words}


class Workup:
    """Measured quantities and texts by examination. Of a quantity that comes again the first counts; the texts of an
    examination follow its quantities, each once."""

    def __init__(self) -> None:
        self._analytes: dict[str, dict[str, Analyte]] = {}
        self._texts: dict[str, dict[str, None]] = {}

    def add(self, key: str, result: Analyte | str) -> bool:
        """Take up a result of an examination; whether it is a new one."""
        analytes, texts = self._analytes.setdefault(key, {}), self._texts.setdefault(key, {})
        if isinstance(result, Analyte):
            return analytes.setdefault(result.label, result) is result
        is_new = result not in texts
        texts[result] = None
        return is_new

    def results(self) -> dict[str, str]:
        """Map each examination to one text, its measured values and then its reports. Examinations without a text are
        left out; the others keep the order in which they were added."""
        texts = {
            key: "; ".join(filter(None, [format_analytes(analytes.values()), *self._texts[key]]))
            for key, analytes in self._analytes.items()
        }
        return {key: text for key, text in texts.items() if text}


def result_part(text: str) -> str:
    """A text that keeps to its place in the layout of a laboratory result, where "; " ends it."""
    return one_line(text).replace("; ", ", ")
