"""Turns the names that a source gives examinations into keys of case records, and collects the results of a case by
key."""

import functools

from ..cases import PHYSICAL_SUFFIX, VITAL_SIGNS, Analyte, Term, examinations, format_analytes, meaning, normalise
from ..cases.patterns import rewrite
from ..cases.vocabulary import singular
from ..files import shipped_table
from .texts import LONGEST_NAME, one_line, patterns, phrases, visible

_WORDS, _PATTERN = phrases("names"), patterns("names")
ANY_LABEL = "*"  # in panels.csv: any analyte of a fluid that no other row names


def exam_key(name: str) -> str:
    """Return the key of an examination in a case record: the canonical name of a known examination, or an unknown name
    itself on one line."""
    return examinations().general_name(one_line(name))


def clean_name(name: str) -> str:
    """Return a source's name of an examination on one line, cut to 120 characters (with "…" at the end). The suffix
    that marks a physical examination is removed: a source must not use it, because such items are free."""
    name = one_line(visible(name))
    while name.endswith(PHYSICAL_SUFFIX):
        name = name.removesuffix(PHYSICAL_SUFFIX).rstrip()
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def physical_key(name: str) -> str:
    """Return the key of an item of the physical examination: its name, or the canonical one for a synonym, with the
    suffix of such items. ``Pulm exam`` becomes ``Respiratory (Physical Examination)``."""
    name = one_line(name).removesuffix(PHYSICAL_SUFFIX)
    spellings = (name, _PATTERN.ending.sub("", name))  # "Pulm exam", then "Pulm"
    terms = filter(None, map(examinations().find, spellings))
    return next((term.name for term in terms if term.kind == "physical"), name) + PHYSICAL_SUFFIX


def add_text(texts: dict[str, str], key: str, text: str, separator: str = " ") -> None:
    """Add a text to ``texts`` under ``key``, in place: after the text that is there already, if any, and a
    ``separator``."""
    texts[key] = f"{texts[key]}{separator}{text}" if key in texts else text


def panel_of(analyte: str, fluid: str = "Blood") -> str | None:
    """Return the name of the examination that reports an ``analyte`` of a ``fluid`` (``Hb``: ``Complete Blood Count``),
    whatever the order of its words; None for an unknown analyte."""
    return _panels_by_analyte().get((fluid, _analyte_words(analyte)))


@functools.cache
def _panels_by_analyte() -> dict[tuple[str, frozenset[str]], str]:
    """Index the examinations of ``panels.csv`` by (fluid, words of an analyte's label). A label with brackets, "White
    Blood Cells (WBC)", is also indexed by the words before the brackets and by those in them."""
    analytes: dict[tuple[str, frozenset[str]], str] = {}
    for examination, label, fluid in panels():
        bracketed = _PATTERN.bracketed.fullmatch(label)
        for name in (label, *(bracketed.groups() if bracketed else ())):
            analytes.setdefault((fluid, _analyte_words(name)), examination)
    return analytes


def _analyte_words(name: str) -> frozenset[str]:
    """Return the words that distinguish an analyte from others: in the singular, without words like "serum" and
    "level", and with shorthand written out. "Na+" and "Serum sodium" are both {"sodium"}."""
    words = [singular(word.rstrip("+")) for word in normalise(name).split()]
    plain = " ".join(word for word in words if word not in _WORDS["filling"])
    return frozenset(_WORDS["short"].get(plain, plain).split())


@functools.cache
def panels() -> tuple[tuple[str, str, str], ...]:
    """Return the rows of ``panels.csv`` in the order of reports, as (examination, label of an analyte, fluid). The
    label ``*`` means every analyte of the fluid that no other row names."""
    rows = shipped_table("cdpr.ingest", "panels.csv")
    return tuple((row["examination"], label, row["fluid"]) for row in rows for label in row["labels"].split("|"))


def term_of(name: str) -> Term | None:
    """Return the known examination that a name means. None for a name that means no single examination or only a
    quantity of one, and for a physical examination other than vital signs."""
    known = examinations().find(name)
    if known is not None:
        return known if known.kind != "physical" or known.name == "Vital Signs" else None
    meant = meaning(name)
    if meant.kind == VITAL_SIGNS:
        return examinations().terms["Vital Signs"]
    return None if meant.how == "analyte" else meant.term  # "analyte": a quantity that an examination reports


def usual_name(name: str) -> str:
    """Return the name of an imaging study in the usual order of words, without a side. ``Radiograph of the left knee``
    becomes ``Knee X-ray``, ``computed tomography scan of the chest`` becomes ``CT chest``. Other names keep their
    words."""
    usual = rewrite(name, _WORDS["usual"])
    return usual[:1].upper() + usual[1:]


def covers(key: str, name: str) -> bool:
    """Whether ``key``, the key of an examination, says all that ``name`` says, so that the name need not be written
    beside it: "CT chest" covers "CT scan of the chest". It has all words of the name, in any order; "of", "the", "scan"
    and plurals do not count."""
    return _name_words(key) >= _name_words(name)


def _name_words(name: str) -> set[str]:
    """Return the words of a name in the singular, without "of", "the" and "scan"."""
    words = normalise(_PATTERN.xray.sub("X-ray", name)).split()
    return {singular(word) for word in words if word not in ("of", "the", "scan")}


class Workup:
    """Collects the results of one case: measured values and texts by examination.

    If a label occurs twice in an examination, the first value is kept; a text that occurs twice is kept once.
    """

    def __init__(self) -> None:
        """Create an empty collection: analytes by label and texts, for each examination key."""
        self._analytes: dict[str, dict[str, Analyte]] = {}
        self._texts: dict[str, dict[str, None]] = {}  # a dictionary without values: a set that keeps its order

    def add(self, key: str, result: Analyte | str) -> bool:
        """Add a measured value or a text to the examination ``key``. Returns False, and keeps the earlier one, if the
        label of the value or the text was added before."""
        analytes, texts = self._analytes.setdefault(key, {}), self._texts.setdefault(key, {})
        if isinstance(result, Analyte):
            return analytes.setdefault(result.label, result) is result
        is_new = result not in texts
        texts[result] = None
        return is_new

    def results(self) -> dict[str, str]:
        """Return one text for each examination: its measured values, then its texts. Examinations are in the order in
        which they were added; those without results are left out."""
        parts = {key: [format_analytes(values.values()), *self._texts[key]] for key, values in self._analytes.items()}
        return {key: "; ".join(filter(None, texts)) for key, texts in parts.items() if any(texts)}


def without_semicolons(text: str) -> str:
    """Return a text on one line with ``, `` for every ``; ``, which separates the fields of a laboratory result. A
    semicolon without a space after it stays: it separates nothing."""
    return one_line(text).replace("; ", ", ")
