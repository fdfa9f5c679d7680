"""Judge and matcher by tables of names (paper, "Diagnosis Evaluation" and "Exam Key Matching"): they decide whether a
diagnosis is the true one, and which examination a request names."""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from rapidfuzz import fuzz, process

from ..cases import PHYSICAL_SUFFIX, Meaning, imaging_words, is_physical, meaning, modality, naming, whole_kind
from ..cases.standard_names import translate
from ..cases.vocabulary import Term, diagnoses, examinations, leading_disease, normalise
from .denial import Stance, declines_examination, normalise_punctuation, read_stance

# What separates alternatives; the "or" of "with or without" does not.
_ALTERNATIVE = re.compile(
    r"\s*(?:[;|\n]|\band/or\b|(?<!\bwith )\bor\b|\bversus\b|\bvs\b\.?|(?:^|(?<=\s))#?\(?\d{1,2}[.)](?=\s))\s*",
    re.IGNORECASE,
)
_COMMA_OR_AND = re.compile(r"\s*,\s*(?:and\s+)?")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a diagnosis: whether it is ``correct``. ``by`` says what judged it: the ``table`` of names, a
    ``model``, or ``invalid``: the table, because the model's answer was no verdict. ``several`` says that the text
    lists several diseases, of which the first was judged."""

    correct: bool
    by: Literal["table", "model", "invalid"]
    several: bool


class TableJudge:
    """Judges by tables of names whether a predicted diagnosis is the true one. Equal questions have equal answers.

    Subclasses can ask a model. ``counters`` lists the kinds of verdicts that the environment counts: none here, in a
    subclass ``judge_model`` and ``judge_invalid`` (:attr:`Verdict.by`), and ``judge_several``.
    """

    counters: ClassVar[tuple[str, ...]] = ()

    async def prepare(self, predicted: str, truth: str) -> None:
        """Wait for a model's answer where the verdict needs one; to be awaited before :meth:`verdict`. Tables need
        none, so nothing is done."""

    def verdict(self, predicted: str, truth: str) -> Verdict:
        """Judge whether ``predicted`` names the true disease ``truth``."""
        return table_verdict(predicted, truth)


@functools.lru_cache(maxsize=1 << 16)
def table_verdict(predicted: str, truth: str) -> Verdict:
    """Judge by the tables of names whether ``predicted`` affirms a name of the true disease ``truth``.

    Only the first disease of a list counts. Words after its name may add details (the paper's rule 3). A broader
    category is another disease, and therefore wrong (rule 4). Source: paper, "Diagnosis Evaluation".
    """
    diagnosis = read_diagnosis(predicted)
    has_same_name = not _canonical_names(diagnosis.name).isdisjoint(_canonical_names(truth))
    is_same_text = predicted.casefold().strip(" .") == truth.casefold().strip(" .")
    right = is_same_text or (diagnosis.stance == "affirmed" and has_same_name)
    return Verdict(right, "table", diagnosis.several)


class ParsedDiagnosis(NamedTuple):
    """What :func:`read_diagnosis` finds in a text of an agent: the ``name`` of the first diagnosis; whether ``several``
    alternatives are listed; and the ``stance``, whether the text affirms the name. ``question`` is the text that a
    judging model is asked about: the name, or the whole text if it has words of denial or doubt."""

    name: str
    several: bool
    stance: Stance
    question: str


@functools.lru_cache(maxsize=1 << 16)
def read_diagnosis(text: str) -> ParsedDiagnosis:
    """Read the diagnosis in a text of an agent: the first one that the text affirms, or else the first one. Of
    "Sepsis or pneumonia" it is "Sepsis", of "Not sepsis but pneumonia" it is "pneumonia"."""
    plain = normalise_punctuation(text)
    first, several = first_diagnosis(plain)
    stance, name = read_stance(plain)
    denies_nothing = stance == "affirmed" and not name
    return ParsedDiagnosis(name or first, several, stance, question=first if denies_nothing else text)


def first_diagnosis(diagnosis: str) -> tuple[str, bool]:
    """Split a text into alternative diagnoses; returns the first one, and whether there are several.

    Alternatives are a numbered list, "a or b", "a vs b", "a; b", or at least three known diseases separated by commas.
    (Two may be a disease and its complication.)
    """
    stripped = (alternative.strip(" ,.") for alternative in _ALTERNATIVE.split(diagnosis))
    alternatives = list(filter(None, stripped))
    if len(alternatives) > 1:
        return alternatives[0], True
    names = [name.strip(" .") for name in _COMMA_OR_AND.split(diagnosis.strip())]
    if len(names) > 2 and all(map(diagnoses().find, names)):
        return names[0], True
    return (alternatives[0] if alternatives else diagnosis), False


def _canonical_names(text: str) -> frozenset[str]:
    """The normalised names by which two diagnoses are compared: that of the whole text, and that of the disease which
    the text names first. The name of a known disease is its canonical one, that of another text its own words."""
    names = set()
    for spelling in (text, leading_disease(text)):
        term = diagnoses().find(spelling)
        names.add(normalise(term.name if term else spelling))
    return frozenset(names - {""})


Source = Literal["table", "model", "invalid"]
"""Source of a match: the tables, a model, or ``invalid`` where the model's answer was no examination."""


class TableMatcher:
    """Matches a request with the examinations of a record by tables of names. Equal requests have equal matches.
    Subclasses can ask a model. ``counters`` lists the sources (:data:`Source`) that the environment counts: none here,
    in a subclass ``matcher_model`` and ``matcher_invalid``.

    Tries in this order: exact spelling; the same examination in other words; an examination that reports the requested
    one or is a part of it; imaging of the same region; near-identical spelling; an entry for the whole kind
    ("Laboratory Tests"). Where the request or the record does not mention contrast, the study on record answers, with
    or without contrast. "No CT needed" names nothing.

    ``fuzzy_cutoff`` (0 to 100) is the least similarity at which a name counts as misspelled. Names with different
    digits never match, so that "B12" is not "B6".
    """

    counters: ClassVar[tuple[str, ...]] = ()

    def __init__(self, fuzzy_cutoff: float):
        """Cache the matches, because the same requests come in many episodes. ``fuzzy_cutoff`` (0 to 100) is the least
        similarity of a misspelled name."""
        self.fuzzy_cutoff = fuzzy_cutoff
        self._match = functools.lru_cache(maxsize=1 << 16)(self._find)

    async def prepare(self, requested: str, keys: Iterable[str]) -> None:
        """Wait for a model's answer where the match needs one; to be awaited before :meth:`match`. Tables need none, so
        nothing is done."""

    def match(self, requested: str, keys: Iterable[str]) -> tuple[tuple[str, ...], Source]:
        """Match a request with the ``keys`` of a record. Returns the keys that it names, and the source of the match,
        ``table``. There are several keys where the record has an examination under several spellings or in parts; they
        are in the order in which repeated requests get them. There are none where the record has no such
        examination."""
        return self._match(requested, tuple(keys)), "table"

    def _find(self, requested: str, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Find the keys that a request names. The rules are tried one after another, from exact spelling to an entry
        for the whole kind; the first that finds a key decides. Empty where none does."""
        by_spelling, plain = group_by_spelling(keys), normalise(requested)
        if plain in by_spelling:  # exact spelling
            return by_spelling[plain]
        if declines_examination(requested):  # "no CT needed"
            return ()
        # The physical examination, whole or one system of the body.
        request = meaning(requested)
        term = examinations().find("Vital Signs" if request.kind == naming.VITAL_SIGNS else requested)
        if whole_kind(requested) == "physical" or (term is not None and term.kind == "physical"):
            return _find_physical(term, keys, by_spelling)
        # The same examination in other words, one that reports or contains it, imaging of the same region.
        if same := _find_same_term(request, keys):
            return by_spelling[normalise(same)]
        if related := _find_related(requested, request, keys):
            return related
        if study := _find_study(requested, keys):
            return by_spelling[normalise(study)]
        # A misspelled name. (A standard name is not misspelled: "IgA [Mass/volume] in Serum" is not IgG.)
        may_be_misspelled = term is None and not translate(requested).clinical
        similar = self._fuzzy_match(plain, by_spelling) if may_be_misspelled and self.fuzzy_cutoff < 100 else ()
        return similar or _find_collective(requested, request, keys)

    def _fuzzy_match(self, requested: str, by_spelling: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Find the keys whose spelling is most similar to the request and has the same digits. Empty where the
        similarity is below ``fuzzy_cutoff``. ``by_spelling`` are the keys by their normalised spelling."""
        same_digits = [name for name in by_spelling if _extract_digits(name) == _extract_digits(requested)]
        best = process.extractOne(requested, same_digits, scorer=fuzz.ratio, score_cutoff=self.fuzzy_cutoff)
        return by_spelling[best[0]] if best else ()


def _find_same_term(request: Meaning, keys: tuple[str, ...]) -> str | None:
    """Find the key of the examination that a request means. Of several such keys the one with the canonical name is
    taken. A panel is found only by its canonical name, because a key with another name may be a part of the panel.
    Returns None where there is no such key."""
    if request.term is None or request.how == "analyte":  # several examinations, or a single quantity of one
        return None
    canonical = normalise(request.term.name)
    same = [key for key in keys if _find_examination(key) is request.term]
    named_canonically = next((key for key in same if normalise(key) == canonical), None)
    is_panel = bool(request.term.parts)
    return named_canonically if named_canonically or is_panel else next(iter(same), None)


def _find_study(requested: str, keys: tuple[str, ...]) -> str | None:
    """Find the key of an imaging study of the requested modality and region ("CT abdomen"). A key that says the same of
    contrast as the request is preferred. Else one is taken if the request or the key says nothing of contrast. Returns
    None where there is no such key."""
    # The words of modality and region (empty: no imaging), and what the text says about contrast (empty: nothing).
    words, contrast = imaging_words(requested) or (frozenset(), "")
    studies = {key: imaging_words(key) or (frozenset(), "") for key in keys} if words else {}
    # What each study of the same modality and region says about contrast.
    contrast_of = {key: other for key, (study_words, other) in studies.items() if study_words == words}
    equal = [key for key, other in contrast_of.items() if other == contrast]
    compatible = [key for key, other in contrast_of.items() if not (contrast and other)]
    return next(iter(equal or compatible), None)


def _find_physical(
    system: Term | None, keys: tuple[str, ...], by_spelling: dict[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Find the keys of the items of the physical examination that a request names.

    ``system`` is the requested system of the body ("Abdomen"); None means the whole examination, and gives all
    items. A system gives its own item; where the record has none, the items that describe the whole body.
    ``by_spelling`` are the keys by spelling (:func:`group_by_spelling`).
    """
    items = {key: key.removesuffix(PHYSICAL_SUFFIX) for key in keys if is_physical(key)}
    if system is None:
        return tuple(items)
    terms = {key: examinations().find(name) for key, name in items.items()}
    same = next((key for key, term in terms.items() if term is system), None)
    if same is not None:
        return by_spelling[normalise(same)]
    # Items without a system of their own describe the whole body. So does an item that is single, apart from the vital
    # signs, on a record without headings, although the vocabulary calls it the general appearance.
    is_single = sum(term is None or term.name != "Vital Signs" for term in terms.values()) == 1
    whole = (key for key, name in items.items() if whole_kind(name) == "physical")
    return tuple(key for key in whole if is_single or terms[key] is None)


def _find_related(requested: str, request: Meaning, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Find the keys whose examination answers a request, by the vocabulary's relations of panels, parts and quantities.
    ``request`` is the meaning of the text ``requested``.

    For a quantity ("potassium"): the keys of this quantity, else a panel that reports it, else a panel that holds such
    a panel, with a smaller one beside it. For an examination: the keys that name it, alone or among others, and those
    of its quantities; else the examinations that it holds and their quantities; else a panel that holds it. Empty where
    there is none.
    """
    if not request.terms:
        return ()
    meanings = {key: meaning(key) for key in keys if not is_physical(key)}
    first = request.terms[0]  # for a quantity the examination that reports it
    # The examinations that a key names, by key, without keys that name a single quantity; and the keys of panels that
    # hold the first examination.
    exams = {key: sense.terms for key, sense in meanings.items() if sense.how != "analyte"}
    larger_panels = tuple(key for key, terms in exams.items() if any(first.name in term.holds for term in terms))
    if request.how == "analyte":  # a quantity
        words = naming.quantity_words(requested)
        same = tuple(key for key in meanings if key not in exams and naming.quantity_words(key) == words)
        reporting = tuple(key for key, terms in exams.items() if first in terms)
        if same or reporting or not larger_panels:
            return same or reporting[:1]  # each of these reports the quantity, so one is enough
        # A laboratory may report a quantity with a smaller panel: potassium with the kidney function.
        # `parts` are the quantities that a panel reports, `holds` the names of the examinations that it is made of.
        smaller_panels = tuple(
            key for key, terms in exams.items() if any(term.parts and term.name in first.holds for term in terms)
        )
        return larger_panels[:1] + smaller_panels[:1]
    # An examination.
    same = tuple(key for key, sense in meanings.items() if set(request.terms) & set(sense.terms))
    part_names = {name for term in request.terms for name in term.holds}
    parts = tuple(key for key, sense in meanings.items() if any(term.name in part_names for term in sense.terms))
    return same or parts or larger_panels[:1]


def _find_collective(requested: str, request: Meaning, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Find the keys that stand for many examinations, the requested one among them: for its whole kind ("Laboratory
    Tests"), or for its class without a region of the body ("CT"). Empty where there is none."""
    # The kind of the requested examination, such as imaging. Biopsies count as pathology, cultures as laboratory.
    kind = request.terms[0].kind if request.terms else request.kind
    # A class is narrower: the modality of imaging ("ct"), "biopsy", ...
    classes = {naming.class_of(term) for term in request.terms} or {request.kind}
    if request.kind in ("biopsy", "pathology") or classes & {"biopsy", "pathology"}:
        kind = "pathology"
    elif modality(requested):
        kind = "imaging"
    if kind == "microbiology":
        kind = "laboratory"
    if not kind:
        return ()

    def is_collective(name: str) -> bool:
        """Whether a name on record stands for everything of the requested kind ("Imaging"), or for the requested
        modality without a region of the body ("CT")."""
        return whole_kind(name) == kind or (meaning(name).kind in classes and naming.names_no_place(name))

    # Each name on record, and its parts where it joins several names ("CT and MRI").
    names = {key: (key, *naming.joined_parts(key)) for key in keys if not is_physical(key)}
    return tuple(key for key, parts in names.items() if any(map(is_collective, parts)))


@functools.lru_cache(maxsize=1 << 14)
def _find_examination(key: str) -> Term | None:
    """Find the vocabulary's term of the examination that a key names; None for a quantity, a physical item or an
    unknown name."""
    sense = meaning(key)
    return sense.term if not is_physical(key) and sense.how != "analyte" else None


@functools.lru_cache(maxsize=1 << 14)
def _extract_digits(text: str) -> str:
    """Extract the digits of a text, in order: "12" of "Vitamin B12"."""
    return "".join(filter(str.isdigit, text))


@functools.lru_cache(maxsize=1 << 14)
def group_by_spelling(keys: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Group the keys of a record by their normalised spelling: ("CBC", "cbc") gives {"cbc": ("CBC", "cbc")}. An item of
    the physical examination is also listed without its suffix and with "exam" or "examination" in its place, unless
    another key has that name."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(normalise(key), []).append(key)
    for key in filter(is_physical, keys):
        bare = normalise(key.removesuffix(PHYSICAL_SUFFIX))
        for spelling in (bare, f"{bare} exam", f"{bare} examination"):
            groups.setdefault(spelling, [key])
    return {name: tuple(group) for name, group in groups.items()}
