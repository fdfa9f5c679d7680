"""Finds out what a free-text name of an examination means: which examinations of the vocabulary (the list of known
ones), which quantity of one of them, or at least which class, such as biopsy.

A name is looked up in the vocabulary, else read by its parts. Imaging is read as modality, region and contrast, all
else as specimen and what is examined, whatever the order and number of its words. ``data/naming.yaml`` has the words.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ..files import parse_yaml, shipped_table, shipped_text
from .chinese import in_english
from .imaging import (
    MOST_WORDINGS,
    imaging_words,
    may_be_listed_study,
    modality,
    regions,
    study_tokens,
    study_wordings,
    study_words,
    view_count,
)
from .patterns import Patterns, any_of, compiled, fill, rewrite
from .standard_names import translate
from .vocabulary import Term, examinations, likely_words, normalise, quantities, singular

MatchKind = Literal["name", "alias", "analyte"]
_TABLE = fill(parse_yaml(shipped_text(__package__, "data", "naming.yaml")))
_PATTERN = Patterns(_TABLE["patterns"])
_SYNONYMS: dict[str, str] = _TABLE["synonyms"]
_ABBREVIATIONS: dict[str, str] = _TABLE["abbreviations"]
# Regular expressions by what they find: _CLASSES a class of examinations ("culture"), _WHOLES a whole kind
# ("laboratory"), _AXES what makes a name that of another examination: its specimen ("urine"), its method ("pcr",
# "transvaginal"), or the form in which a substance is measured ("free", "ionized"). GUESSED are the classes that one
# word says, and "" for none.
_CLASSES, _WHOLES, _AXES, GUESSED = (_TABLE[name] for name in ("classes", "wholes", "axes", "guessed"))
# Classes of what belongs to the physical examination, and is free.
PHYSICAL = VITAL_SIGNS, BEDSIDE = "vital signs", "bedside"
STUDIES = frozenset({"imaging", "procedure"})  # kinds of examinations that price lists name by shortened words
# Words by their role in a name. _FILLERS say nothing of what is examined ("level"), BLOOD only what is examined anyway
# ("serum"). _FLUIDS are kinds of body fluid ("pleural"). _PROCEDURES say what is done ("biopsy", "culture"), not where,
# _TECHNIQUES how tissue is taken ("needle"), and _ANTIBODY that an antibody is looked for ("igg"). _GENERIC words name
# a test only beside a word that says so: "cardiac markers", not "cardiac evaluation".
_FILLERS, BLOOD, _FLUIDS, _PROCEDURES, _ANTIBODY, _TECHNIQUES, _GENERIC = (
    frozenset(_TABLE[name]) for name in ("fillers", "blood", "fluids", "heads", "antibody", "techniques", "generic")
)
_UNLISTED_KINDS = _TABLE["unlisted"]  # rules for :func:`_match_kind`
_SPELLINGS = tuple(_TABLE["spellings"].items())  # rules for spellings, such as British as American
_ANY_SPELLING = any_of(_SPELLINGS)
# The axes that are specimens, and the classes with one billing code for all specimens.
_SPECIMENS, _ANY_SPECIMEN_CLASSES = frozenset(_TABLE["specimen_axes"]), frozenset(_TABLE["any_specimen_classes"])
_SIGNS = str.maketrans(_TABLE["signs"])  # "<" to "under", Greek letters to their names, ...
_ORGANISM = _TABLE["organism"]  # a regular expression for names of viruses, fungi, parasites and bacteria
_WORD, _WORDS = re.compile("[a-z]{3,}"), re.compile("([a-z]{3,})")
_TARGETS = frozenset({"antibody", "antigen"})  # what is looked for, without the name of a microbe
_LONGEST_NAME, _MOST_JOINED = 200, 5  # most characters of a name, and most examinations that it joins


@dataclass(frozen=True)
class Meaning:
    """What a name of an examination means.

    ``terms`` are the examinations, several for a name that joins them (``Hip and knee X-ray``). ``how`` says how the
    name matched: it is the examination's own ``name``, an ``alias``, or an ``analyte``, a quantity that the examination
    reports. ``kind`` is the class of a name, or of a part of a joined name, that has no examination of its own: a
    modality (``ct``), ``biopsy``, ...; or one of :data:`PHYSICAL` for a vital sign or an examination at the bedside
    (``Abdominal exam``). It is empty where no class is known or needed. ``whole`` is True if every word of the name was
    understood. ``quantities`` are names of quantities, one for each of the ``terms``: the quantity of this examination
    that is meant, an empty text where the whole examination is. Without any, all are meant as a whole.
    """

    terms: tuple[Term, ...] = ()
    how: MatchKind = "name"
    kind: str = ""
    whole: bool = True
    quantities: tuple[str, ...] = ()

    @property
    def term(self) -> Term | None:
        """The examination that is meant; None where no examination or several are meant."""
        return self.terms[0] if len(self.terms) == 1 else None


# The readers of a name, from the one that knows most to the one that guesses most.


@functools.lru_cache(maxsize=1 << 15)
def meaning(name: str) -> Meaning:
    """Find out what the name of an examination means. Returns a :class:`Meaning` without terms and kind for a name that
    is not understood, and for one that only names a system of the body ("Abdomen"). ``whole`` is False for a
    guess, and where the name has a word of three or more letters that the vocabulary does not know.

    ``meaning("Serum Na+")`` is the Basic Metabolic Panel, which reports sodium (``how="analyte"``).
    """
    result = _read(name)
    # The rule that read the name may have passed over an unknown word.
    is_known = not result.terms or _known_words().issuperset(_WORD.findall(name.casefold()))
    return result if is_known else replace(result, whole=False)


def _read(name: str) -> Meaning:
    """Read a name by the first rule that understands it, from exact lookup to guesses by single words. Where none does,
    the meaning has only a class (``kind``), if any; that of a remark, or of a text that is too long for a name, is
    empty. ``whole`` may be True although a rule left out words of the name; :func:`meaning` corrects it."""
    if len(name) > _LONGEST_NAME or _PATTERN.unseen.search(normalise(name)):
        return Meaning()
    is_study = may_be_listed_study(name) and not examinations().knows(name)
    if is_study and (study := _read_choice(name) or _find_listed_study(name)):
        return study
    spelt, name = name, _use_words_of_vocabulary(name)
    if (listed := _look_up(name)) is not None:
        return listed
    is_remark = no_examination(name)
    if not is_remark and (kind := _physical_kind(name)):
        return Meaning(kind=kind, whole=False)
    if translate(name).clinical:  # a LOINC name
        return _read_standard_name(name)
    if (found := _read_choice(name) or _find_imaging(name) or _read_joined_known(name)) or is_remark:
        return found or Meaning()
    # From what is certain to guesses.
    sure = _read_brackets(name) or _drop_fillers(name) or _check_axes(name, _match_words(name)) or _read_simpler(spelt)
    sure = sure or _read_joined(name)
    likely = sure or _find_regions(name) or _match_procedure(name) or _match_any_specimen(name) or _match_target(name)
    return likely or _correct_words(name) or _match_kind(name) or Meaning(kind=_class_in(name), whole=False)


def _use_words_of_vocabulary(name: str) -> str:
    """Return the name in the words of the vocabulary: without signs, dots and codes, and changed by the rules of
    ``naming.yaml``. A LOINC name, and a name that the vocabulary has in this very spelling, are not changed further.

    All other names are translated from Chinese, and changed by the rules ``together``, which join what is one
    examination. A name of one examination is then changed by the rules ``rewritten``. These would swallow the second of
    two examinations, so a name that joins several is left as it is; :func:`_read_part` rewrites each part by
    itself."""
    # Four tests ask whether a name is known: `knows` only as it is spelt; `_look_up` also without a side;
    # `_read_by_name` also with its words in another order; `translate` whether it is LOINC's.
    name = _PATTERN.result.sub(" ", name).strip()
    name = _PATTERN.piped.sub(r"\1\3 (\2\4)", name)  # "Sodium - serum": "Sodium (serum)"
    name = _PATTERN.initials.sub(lambda match: re.sub("[. ]", "", match[0]), name)  # "C.B.C.": "CBC"
    name = _PATTERN.charge.sub(r"\1", name.translate(_SIGNS))  # "Na+": "Na"
    # "Sodium, U": "Sodium (urine)". Known names are left alone: in "Hemoglobin (S)" the letter is no specimen.
    if not _read_by_name(name):
        name = _PATTERN.letter.sub(lambda match: _TABLE["specimen_letters"][match[1]], name)
        # "UrineCulture" is two words.
        name = _PATTERN.letters.sub(lambda m: _ABBREVIATIONS.get(m[0].casefold(), m[0]), _PATTERN.run_on.sub(" ", name))
    if examinations().knows(name) or translate(name).clinical:
        return name
    name = name if _look_up(name) else in_english(name)
    name = _rewrite_name(name, "together")
    parts = joined_parts(name)
    are_several = len(parts) > 1 and all(map(_stands_alone, map(_rewrite_name, parts)))
    return name if are_several else _rewrite_name(name)


def _stands_alone(part: str) -> bool:
    """Whether one part of a joined name is an examination by itself. Techniques ("quant PCR"), specimens ("tissue") and
    kinds of cells only describe another part."""
    describing = _TECHNIQUES | _TARGETS | _ANTIBODY | {"pcr", "microscopy", "rbc", "wbc", "leukocyte"}
    return not (words_of(part) <= describing or is_specimen(part)) and bool(_read_by_name(part) or _find_imaging(part))


@functools.lru_cache(maxsize=1 << 12)
def _rewrite_name(name: str, rules: str = "rewritten") -> str:
    """Return the name after rewriting ``rules`` of ``naming.yaml``: "c diff toxin" becomes "c difficile test". A name
    to which no rule applies is returned unchanged, with its capitals."""
    plain = normalise(name)
    return name if (rewritten := rewrite(plain, _TABLE[rules])) == plain else rewritten


def _look_up(name: str) -> Meaning | None:
    """Look a name up in the list of known examinations: as it is, and without a side ("left"). Returns the examination,
    or for the name of a quantity the examination that reports it; None for an unknown name and for a physical
    examination."""
    for spelling in (name, _PATTERN.side.sub(" ", name)):
        plain = normalise(spelling)
        if (term := examinations().spellings.get(plain)) and term.kind != "physical":
            return Meaning((term,), "name" if normalise(term.name) == plain else "alias")
        if plain in examinations().parts:
            return _mean_quantity(plain)
    return None


def _mean_quantity(part: str) -> Meaning:
    """Return the meaning of the name of a quantity: the examination that reports it."""
    return Meaning((examinations().parts[normalise(part)],), "analyte", quantities=(quantities()[normalise(part)],))


def _physical_kind(name: str) -> str:
    """Return which kind of physical examination a name means, ``vital signs`` or ``bedside``; empty for any other
    name."""
    return next((kind for kind in PHYSICAL if compiled(_TABLE["patterns"][kind]).fullmatch(normalise(name))), "")


def _read_standard_name(name: str) -> Meaning:
    """Read a LOINC name. Returns the examination that one of its clinical names means, else one that reports it as a
    quantity, else the meaning of the closest clinical name after the rewriting rules of ``naming.yaml``, read as any
    other name is, else only its class."""
    clinical, reporting = translate(name)  # names, the closest first
    if own := next(filter(None, map(_read_by_name, clinical)), None):
        return own
    if panel := next(filter(None, map(_read_by_name, reporting)), None):
        return replace(panel, how="analyte")
    found = _read(_rewrite_name(clinical[0]))
    return found if found.terms else Meaning(kind=_class_in(clinical[0]) or "laboratory test", whole=False)


def _read_by_name(name: str) -> Meaning | None:
    """Read the name of a known examination: as it is spelt, or with its words in another order. None for any other
    name."""
    return _look_up(name) or _match_words(name)


# Imaging.


def _find_imaging(name: str) -> Meaning | None:
    """Find the imaging study with the region, modality and contrast that a name states. None for a name that is no
    imaging, for a biopsy or another procedure, for two studies joined by a plus, and where no such study is known."""
    words, contrast = imaging_words(name) or (frozenset[str](), "")
    if not words or words & _PROCEDURES or compiled(_CLASSES["biopsy"]).search(_respell(name)):
        return None
    are_two = " + " in name and all(map(imaging_words, name.split(" + ")))
    study = _find_study(words, contrast, name)
    return Meaning((study,), "alias") if study and not are_two else None


def _find_listed_study(name: str) -> Meaning | None:
    """Find the study that a price list names by shortened words in any order ("US GUIDE PERCUT BX"); None for any other
    name, and for one that means several studies or joins several examinations."""
    parts = [len(part) > 2 and _look_up(part) for part in joined_parts(name)]
    if len(parts) > 1 and (all(parts) or any(part and part.terms[0].kind not in STUDIES for part in parts)):
        return None
    index, known = _index_listed_studies()
    wordings = study_wordings(_PATTERN.result.sub("", name.translate(_SIGNS)), known, len(parts) == 1)
    found = next(filter(None, ({index[words] for words in alike if words in index} for alike in wordings)), {None})
    study = found.pop() if len(found) == 1 else None
    return Meaning((study,), "alias") if study else None


@functools.cache
def _index_listed_studies() -> tuple[dict[frozenset[str], Term | None], frozenset[str]]:
    """Index the studies and procedures by the words of their names, of the wordings of ``data/studies.csv``, and of
    their aliases; a name wins over a wording, a wording over an alias. None where two studies share their words.
    Returns the index and all words of these names."""
    terms = examinations().terms
    studies = [term for term in terms.values() if term.kind in STUDIES and not _PATTERN.of_tissue.search(term.name)]
    listed = shipped_table(__package__, "data", "studies.csv")
    aliases = [(alias, term) for term in studies for alias in term.aliases]
    wordings = [(wording, terms[row["examination"]]) for row in listed for wording in row["wordings"].split("|")]
    index: dict[frozenset[str], Term | None] = {}
    ranks = aliases, wordings, [(term.name, term) for term in studies]
    for rank in ranks:
        found: dict[frozenset[str], set[Term]] = {}
        for name, term in rank:
            found.setdefault(study_words(study_tokens(name)), set()).add(term)
        # A single word is too little: "angiography".
        index |= {words: next(iter(of)) if len(of) == 1 else None for words, of in found.items() if len(words) > 1}
    names = itertools.chain(*([name for name, _ in rank] for rank in ranks))
    return index, frozenset(itertools.chain(*map(study_tokens, names)))


def _find_regions(name: str) -> Meaning | None:
    """Find the imaging studies of all body regions in a name that may have other words too; None unless there is a
    known study of each region.

    "CT of the chest and neck for staging" means the CT of the chest and the CT of the neck.
    """
    words, contrast = imaging_words(name) or (frozenset[str](), "")
    if not words or compiled(_CLASSES["biopsy"]).search(_respell(name)):
        return None
    studies = [_find_study(region, contrast, name) for region in regions(words)]
    terms = tuple(dict.fromkeys(filter(None, studies)))
    return _check_axes(name, Meaning(terms, "alias", whole=False)) if terms and None not in studies else None


def _find_study(words: frozenset[str], contrast: str, name: str) -> Term | None:
    """Find the imaging study with these words of region and modality, this ``contrast`` (``with``, ``without``, ...;
    empty: not stated) and the number of views in ``name``. If no study has that contrast, or that number of views, a
    study that does not state it is returned; None if there is none of these."""
    study, general = _index_studies().get((words, contrast)), _index_studies().get((words, ""))
    if study is None and general is not None:
        # Aliases that state a contrast are not in the index, but are known as they are spelt: "CT Chest with Contrast".
        states_other = contrast and (imaging_words(general.name) or ("", ""))[1] not in ("", contrast)
        study = examinations().find(f"{general.name} {contrast} Contrast") or (None if states_other else general)
    return study and (examinations().find(f"{study.name} {view_count(name)}") or study)


@functools.cache
def _index_studies() -> dict[tuple[frozenset[str], str], Term]:
    """Index all known imaging studies by (words of region and modality, contrast). An alias that states a contrast is
    left out; of several names with one key the first is kept."""
    studies: dict[tuple[frozenset[str], str], Term] = {}
    names, aliases, _ = _names_by_rank()
    # Laboratory tests are left out, also one whose name looks like imaging ("NMR LipoProfile").
    for name, term in [(name, term) for name, sense in names + aliases for term in sense.terms if term.kind in STUDIES]:
        words, contrast = imaging_words(name) or (frozenset[str](), "")
        if words and (name == term.name or not contrast):
            studies.setdefault((words, contrast), term)
    return studies


def _names_by_rank() -> list[list[tuple[str, Meaning]]]:
    """List all names, then all aliases, then all parts (reported quantities) of the examinations that are not physical.
    Each entry is (text, its meaning). A name counts as an alias, because it is matched by its words, not as it is
    spelt."""
    # IgM antibodies with a code of their own are left out: only their exact names mean them.
    terms = [term for term in examinations().terms.values() if term.kind != "physical" and "IgM" not in term.name]
    names = [(term.name, Meaning((term,), "alias")) for term in terms]
    aliases = [(alias, Meaning((term,), "alias")) for term in terms for alias in term.aliases]
    return [names, aliases, [(part, _mean_quantity(part)) for term in terms for part in term.parts]]


# Examinations by their words.


@functools.lru_cache(maxsize=1 << 14)
def words_of(name: str) -> frozenset[str]:
    """Return the set of words that distinguish an examination from others: without fillers such as "level", in one
    spelling, in the singular.

    ``words_of("Levels of ANA antibodies")`` is ``{"ana", "antibody"}``.
    """
    words = frozenset(map(_plain_word, _respell(name).replace("+", " ").split())) - {""}
    # "Anti-CCP", "CCP antibodies" and "CCP IgG" are all the antibody.
    target = words - _ANTIBODY
    has_target = any(len(word) > 1 for word in target - BLOOD)
    return target | {"antibody"} if has_target and words & _ANTIBODY else words


@functools.lru_cache(maxsize=1 << 14)
def _plain_word(token: str) -> str:
    """Return the word, in the singular, by which this one is compared; empty for a filler."""
    token = _SYNONYMS.get(token, token)
    return "" if token in _FILLERS else _SYNONYMS.get(singular(token), singular(token))


@functools.lru_cache(maxsize=1 << 14)
def _respell(name: str) -> str:
    """Return the normalised name in American spelling, and with one form for words of one meaning ("angiogram",
    "angiography")."""
    plain = normalise(_PATTERN.possessive.sub("", name))
    return rewrite(plain, _SPELLINGS) if compiled(_ANY_SPELLING).search(plain) else plain


@functools.cache
def _index_by_words() -> dict[frozenset[str], Meaning | None]:
    """Index the meanings of all known names by the set of their words; None where names of two examinations share a
    set. Of two quantities of one examination with the same words the first is meant. A name wins over an alias, an
    alias over a part; for each of these, all words of a name win over its words without "blood"."""
    index: dict[frozenset[str], Meaning | None] = {}
    # From names to parts; entries of an earlier round are not replaced.
    for rank, left_out in itertools.product(_names_by_rank(), (frozenset[str](), BLOOD)):
        found: dict[frozenset[str], dict[tuple[Term, ...], Meaning]] = {}
        for name, sense in rank:
            found.setdefault(words_of(name) - left_out, {}).setdefault(sense.terms, sense)
        unambiguous = {words: next(iter(terms.values())) if len(terms) == 1 else None for words, terms in found.items()}
        index = {words: entry for words, entry in unambiguous.items() if _are_telling(words)} | index
    return index


def _are_telling(words: frozenset[str]) -> bool:
    """Whether any of the words says what is examined. Procedures ("culture"), words for blood, and single letters do
    not."""
    return any(len(word) > 1 for word in words - _PROCEDURES - BLOOD)


def _drop_fillers(name: str) -> Meaning | None:
    """Find the known examination whose name is this one without its fillers ("estimation" in "Haemoglobin estimation");
    the other words keep their order. None for words like "liver" that are no test without one such as "function"."""
    kept = " ".join(token for token in _respell(name).split() if token not in _FILLERS)
    is_generic = words_of(name) <= _GENERIC and not _PATTERN.says_test.search(_respell(name))
    return None if is_generic else _check_axes(name, _look_up(kept))


def _match_words(name: str) -> Meaning | None:
    """Find the examination with the words of a name in any order. Words for blood and "virus" may be left out, and a
    kind of body fluid ("pleural") may replace "body fluid". None where there is no such examination."""
    words = words_of(name)
    of_any_fluid = (words - _FLUIDS) | {"body", "fluid"} if words & _FLUIDS else words
    # Beside a procedure and a specimen, words for blood are kept: "Blood and urine cultures" are not those of urine.
    bloodless = words if words & _PROCEDURES and _PATTERN.specimen.search(_respell(name)) else words - BLOOD
    wordings = (words, bloodless, of_any_fluid, words - {"virus"})
    return next(filter(None, (_look_up_words(wording, name) for wording in wordings)), None)


def _look_up_words(words: frozenset[str], name: str) -> Meaning | None:
    """Return the meaning of the name that has exactly these ``words``; None where there is none. Generic words count
    only where ``name`` says that they are a test ("liver function", not "liver")."""
    says_test = not words <= _GENERIC or _PATTERN.says_test.search(_respell(name))
    return _index_by_words().get(words) if says_test and _are_telling(words) else None


# What a name says of specimen, method and form has to agree with the examination.


def _check_axes(name: str, found: Meaning | None) -> Meaning | None:
    """Return the meaning ``found`` if its examination has every specimen, method and form that the name states; else
    None. A meaning without exactly one examination is returned unchecked."""
    if found is None or found.term is None:
        return found
    # Where all specimens have one billing code, the name can state any of them.
    allowed = _axes_of_term(found.term) | (_SPECIMENS if _has_any_specimen(found.term) else set())
    return found if _axes_in(_respell(name)) <= allowed else None


def _axes_in(text: str) -> set[str]:
    """Return the specimens, methods and forms of a substance that a normalised text states, as keys of :data:`_AXES`:
    {"urine", "free"} for "urine free cortisol"."""
    return {axis for axis, pattern in _AXES.items() if compiled(pattern).search(text)}


@functools.lru_cache(maxsize=1 << 12)
def _axes_of_term(term: Term) -> frozenset[str]:
    """Return the specimens, methods and forms in all names of an examination. Blood is added where its own name has no
    specimen, and CSF where it is done on body fluids."""
    known = _axes_in(_join_names(term))
    implied = set() if _PATTERN.specimen.search(_respell(term.name)) else {"blood"}
    return frozenset(known | implied | ({"csf"} if "fluid" in known else set()))


def _join_names(term: Term) -> str:
    """Join all names of an examination, of its parts and of the examinations that it contains to one text."""
    return " / ".join(map(_respell, (term.name, *term.aliases, *term.parts, *term.holds)))


def _has_any_specimen(term: Term) -> bool:
    """Whether an examination has one billing code for all specimens: it looks for a microbe, a cell or a gene, which is
    the same in each, and its name states no specimen."""
    alike = term.kind == "microbiology" or class_of(term) in _ANY_SPECIMEN_CLASSES
    return alike and not _axes_in(_respell(term.name)) & _SPECIMENS


# Names with brackets.


def _read_brackets(name: str) -> Meaning | None:
    """Read a name with brackets at its end ("Glucose (urine)") or within ("Edrophonium (Tensilon) test"). None for a
    name without brackets, and where nothing fits; in "Lp(a)" they are part of the word."""
    if aside := _PATTERN.aside.search(name):
        bare, remark = name[: aside.start()], aside[1]
        found = _read_listed(bare, remark) or _read_remark(name, bare, remark)
        return found and replace(found, whole=False)
    if not (within := _PATTERN.within.search(name)):
        return None
    # With the brackets at the end.
    return _read_brackets(f"{name[: within.start()]} {name[within.end() :]} ({within[1]})")


def _read_listed(bare: str, remark: str) -> Meaning | None:
    """Read a name whose brackets list examinations ("Inflammatory markers (CRP, ESR)") that the name before
    them does not say. None for any other name."""
    own, specimen = _look_up(bare), _PATTERN.lead.match(normalise(bare))
    if modality(bare) or (own and own.term and own.term.kind in STUDIES and not specimen):
        return None
    listed = _read_joined_known(f"{specimen[0]} {remark}" if specimen else remark)
    return listed if listed and (own is None or specimen or listed.terms != own.terms) else None


def _read_remark(name: str, bare: str, remark: str) -> Meaning | None:
    """Read a ``name`` that consists of the words ``bare`` and, in brackets, ``remark``. This may be the specimen or
    form of the examination ("Glucose (urine)"), what the name abbreviates, or a remark. None where nothing fits."""
    is_name = not names_specimen(remark) and _are_telling(words_of(remark) - _ANTIBODY)
    wordings = (f"{remark} {bare}", f"{bare} {remark}", bare, _rewrite_name(bare), *([remark] if is_name else ()))
    agreeing = (_check_axes(name, _read_by_name(wording) or _find_imaging(wording)) for wording in wordings)
    found = next(filter(None, agreeing), None)
    # In "Estrogen (Estradiol)" the brackets say which estrogen is meant.
    own = _look_up(remark) if words_of(remark) - _GENERIC - _ANTIBODY else None
    is_alike = own and own.term and found and found.term and class_of(own.term) == class_of(found.term)
    return own if own and is_alike and own.how != "analyte" else found


# Several examinations in one name.


@functools.lru_cache(maxsize=1 << 14)
def joined_parts(name: str) -> tuple[str, ...]:
    """Split a name that joins several examinations: "CT + echocardiogram" gives ("CT", "echocardiogram"). Any other
    name is the only part. A mode such as "color Doppler" is no part."""
    parts = filter(str.strip, _PATTERN.joint.split(name))
    return tuple(part for part in parts if not _PATTERN.mode.fullmatch(normalise(part)))


def _read_joined_known(name: str) -> Meaning | None:
    """Read a name that joins several examinations by a plus, or by another word if each part is the name of a known
    examination ("CSF analysis and cytology"). This has to come before the name is read by all its words, which may be
    those of another examination. None for any other name, and for the name of a single known examination."""
    # "CBC (urgent) and ESR"; in "LDH (pleural fluid) and protein" the brackets say more.
    bare = _PATTERN.bracketed.sub("", name)
    name = name if names_specimen(name) or _read_by_name(_rewrite_name(bare)) else bare
    is_joined = " + " in name or all(map(_look_up, joined_parts(name)))
    found = _read_joined(name) if is_joined else None
    return found if found and not found.kind and len(found.terms) > 1 else None


def _read_choice(name: str) -> Meaning | None:
    """Read a name that leaves a choice. What both choices mean is meant ("serum or plasma glucose"); where they differ
    ("CT or MRI of the head"), it is only a class. None for any other name, and where one choice is not understood."""
    if (match := _PATTERN.choice.match(name)) is None:
        return None
    before, one, other, after = match.groups()
    # Either half of the name, else the name without one of the two words.
    for pair in ((before + one, other + after), (before + one + after, before + other + after)):
        first, second = map(_read, pair)
        if first.terms and second.terms:
            is_same = first.terms == second.terms
            return replace(first, whole=False) if is_same else Meaning(kind=_class_in(name), whole=False)
    return None


def _read_joined(name: str) -> Meaning | None:
    """Read a name that joins several examinations: "CRP and ESR", "EMG/NCS". Each part must be understood, alone, with
    the specimen of the first part ("urine culture and sodium"), with the last word ("hip and knee X-ray"), or by its
    class. None for any other name."""
    parts = joined_parts(name)
    last = _PATTERN.aside.sub("", (parts or [name])[-1])
    # "Glucose, CSF" is one examination, not glucose and a puncture.
    is_specified = "," in name and (is_specimen(last) or words_of(last) <= BLOOD)
    if is_specified or not 2 <= len(parts) <= _MOST_JOINED:
        return None
    # The last word that is no filler: in "hip and knee X-ray" it belongs to both parts.
    head = next((word for word in reversed(parts[-1].split()) if word.casefold() not in _FILLERS), "")
    meanings = [_read_part(part, parts[0], head) or Meaning(kind=_class_in(part)) for part in parts]
    terms: dict[Term, set[str]] = {}  # by examination: its quantities that the name lists, "" for the whole
    for one in meanings:
        for term, quantity in zip(one.terms, one.quantities or [""] * len(one.terms), strict=True):
            terms.setdefault(term, set()).add(quantity)
    kinds = {one.kind for one in meanings} - {""}
    if not terms or len(kinds) > 1 or Meaning() in meanings:  # an empty meaning: a part that is not understood
        return None
    # An examination that another one contains is left out: an endoscopic biopsy contains the endoscopy.
    held = {name for term in terms for name in term.holds}
    terms = {term: listed for term, listed in terms.items() if term.name not in held}
    # Several quantities of one examination are the whole of it.
    single = tuple("".join(listed) if len(listed) == 1 else "" for listed in terms.values())
    return Meaning(tuple(terms), "alias", "".join(kinds), False, single)  # of kinds there is at most one


def _read_part(part: str, first: str, head: str) -> Meaning | None:
    """Read one ``part`` of a name that joins several. The specimen in the ``first`` part and the last word of the name,
    ``head``, may belong to every part. None where the part is not understood."""
    part = part if _look_up(part) else _rewrite_name(part)
    with_head = f"{part} {head}"
    # A specimen alone is read with the last word first: "urine" of "blood and urine culture".
    wordings = [with_head, part] if words_of(part) <= BLOOD or is_specimen(part) else [part]
    specimen = _PATTERN.lead.match(normalise(first)) if "stain" not in words_of(part) else None
    if specimen and not _axes_in(_respell(part)) & _SPECIMENS:
        wordings.insert(0, _rewrite_name(f"{specimen[0]} {part}"))
    found = next(filter(None, map(_read_by_name, wordings)), None)
    return found or _find_imaging(part) or _find_regions(part) or _match_words(with_head)


# Guesses: by some of the words, by other words, by a kind.


def _match_procedure(name: str) -> Meaning | None:
    """Read a biopsy, culture or other procedure whose known name has fewer words than this one. Of several such
    examinations the one with most words is meant; None without any."""
    words = words_of(name)
    # The procedures in the name; in one with an organism an antibody counts among them.
    heads = words & (_PROCEDURES | {"antibody"} if compiled(_ORGANISM).search(_respell(name)) else _PROCEDURES)
    # Beside an antibody or antigen a generic word ("viral") does not suffice: that of another virus is another test.
    unsure = _GENERIC if heads & {"antigen", "antibody"} else frozenset()
    # Examinations all of whose words, with a procedure among them, are in the name; by these words.
    fitting = {
        known: sense
        for known, sense in (_index_by_words() if heads else {}).items()
        if sense is not None and known <= words and known & heads and known - heads - _TECHNIQUES - unsure
    }
    # A biopsy by endoscope is a biopsy, not an endoscopy.
    best = max([known for known in fitting if "biopsy" in known] or fitting, key=len, default=None)
    return _check_axes(name, replace(fitting[best], how="alias", whole=False)) if best else None


def _match_any_specimen(name: str) -> Meaning | None:
    """Read a culture, stain, antibody, ... with a specimen in its name, where all specimens have one billing code. None
    for any other name."""
    words = words_of(name)
    # The words of the name without its specimen, and without the "body" of "body fluid".
    named = {word for word in words if names_specimen(word) or _PATTERN.source.fullmatch(word)}
    rest = words - named - {"body"}
    # A rest such as "IgM" is not looked up: alone it would be the antibody, but in a fluid it is a quantity.
    found = _look_up_words(words_of(" ".join(sorted(rest))), name) if rest < words and not rest <= _ANTIBODY else None
    if found and found.term and found.how != "analyte" and _has_any_specimen(found.term):
        return replace(found, whole=False)
    return None


def _match_target(name: str) -> Meaning | None:
    """Read a name that only says what is looked for ("Rubella": its antibody, "HFE": the gene), or that states a
    purpose ("Amniocentesis for Rh sensitization"). None where no examination fits, or several do."""
    words, plain = words_of(name), _respell(name)
    targets = "antibody", "virus antibody", "antigen", "gene"  # what may be looked for
    # The name with each of these added, where exactly one examination fits.
    if _are_telling(words) and not words <= _GENERIC:
        senses = filter(None, (_check_axes(name, _match_words(f"{name} {target}")) for target in targets))
        fitting = {one.terms for one in senses if plain.startswith("anti") or _is_looked_for(one.terms[0])}
        if len(fitting) == 1:
            return Meaning(fitting.pop(), "alias", whole=False)
    without_purpose = _PATTERN.purpose.sub("", name)
    return None if is_specimen(without_purpose) else _check_axes(name, _read_by_name(without_purpose))


def _is_looked_for(term: Term) -> bool:
    """Whether an examination is named by the organism or the gene for which it looks."""
    return compiled(_ORGANISM).search(_join_names(term)) is not None or class_of(term) == "genetic test"


def _read_simpler(name: str) -> Meaning | None:
    """Read a name without words for a method ("rapid test"), without a laboratory's mark in front or at the end, or
    with only one of a name and its abbreviation in brackets, whose letters have to be in the name in their order
    ("Cytomegalo virus (CMV)"). None where nothing can be left out, and where the rest is not understood."""
    bare = _PATTERN.method.sub(" ", name)
    unmarked = _PATTERN.mark.sub(lambda m: m[0] if m[m.lastindex or 1].lower() in _known_words() else " ", bare)
    wordings = [bare, unmarked]
    if (match := _PATTERN.explained.match(bare)) and compiled(".*".join(match[2].casefold())).search(bare.casefold()):
        wordings.append(f"{match[1]} {match[3]}")
        if match[1][0] == match[2][0]:  # the abbreviation of all the words, not of the last ones
            wordings.append(f"{match[2]} {match[3]}")
    senses = (_check_axes(_rewrite_name(name), _read(one)) for one in wordings if normalise(one) != normalise(name))
    found = next((sense for sense in senses if sense and sense.terms and not sense.kind), None)
    return found and replace(found, whole=False)


def _correct_words(name: str) -> Meaning | None:
    """Read the name with its unknown words completed or corrected. A word that may abbreviate several others is read as
    the one with which the name is that of a known examination; None where there is no such examination, or more than
    one, and where no word can be changed."""
    choices = map(_words_meant, _WORDS.split(name.casefold()))
    names = ["".join(chosen) for chosen in itertools.islice(itertools.product(*choices), MOST_WORDINGS)]
    if len(names) == 1:
        return _read(names[0]) if names[0] != name.casefold() else None
    # A single word is too little to tell which one is meant.
    senses = [_read_by_name(one) for one in names if len(words_of(one)) > 1 or _look_up(one)]
    found = {sense.terms: sense for sense in senses if sense}
    return replace(next(iter(found.values())), whole=False) if len(found) == 1 else None


@functools.lru_cache(maxsize=1 << 12)
def _words_meant(text: str) -> list[str]:
    """Return the words that a text may mean: itself, if it is known, is too short, or resembles none."""
    if text in _listed_words() or text in _FILLERS or not _PATTERN.abbreviated.fullmatch(text):
        return [text]
    return list({singular(word): word for word in likely_words(text, _listed_words())}.values()) or [text]


@functools.cache
def _known_words() -> frozenset[str]:
    """Return the words of the known examination names and of the tables by which names are read. The tables have
    beginnings of words too ("gastro")."""
    tables = (shipped_text(__package__, "data", f"{name}.yaml") for name in ("naming", "standard_names", "imaging"))
    return _listed_words().union(_WORD.findall(" ".join(tables).casefold()))


@functools.cache
def _listed_words() -> frozenset[str]:
    """Return all words of at least three letters in the names, aliases and parts of the known examinations."""
    return frozenset(_WORD.findall(" ".join([*examinations().spellings, *examinations().parts]).casefold()))


def _match_kind(name: str) -> Meaning | None:
    """Read a name of a kind whose members have no billing codes, such as "Foovirus antibody" (antibody to any virus):
    it means the examination whose code is used for all of them. None for any other name. The match is an ``analyte``,
    so that two names of one kind stay different quantities."""
    kind = next((known for pattern, known in _UNLISTED_KINDS if compiled(pattern).match(_respell(name))), None)
    return Meaning((examinations().terms[kind],), "analyte", whole=False) if kind else None


# Classes, and what is no examination.


def class_of(term: Term) -> str:
    """Return the class of an examination, such as ``culture`` or ``ct``. Other names of a class, which have no price of
    their own, get the median price of its examinations."""
    class_of_kind = {"laboratory": "laboratory test", "microbiology": "culture"}
    return _class_in(term.name) or class_of_kind.get(term.kind, term.kind)


def _class_in(name: str) -> str:
    """Return the class that a name states, even where no examination is known: a modality, ``biopsy``, ``culture``,
    ...; empty for none."""
    plain = _respell(name)
    if (kind := whole_kind(name)) is not None:
        return "laboratory test" if kind == "laboratory" else kind
    # A biopsy that is guided by a modality is a biopsy.
    if not compiled(_CLASSES["biopsy"]).search(plain) and (how := modality(name)) is not None:
        return how
    return next((kind for kind, pattern in _CLASSES.items() if compiled(pattern).search(plain)), "")


@functools.lru_cache(maxsize=1 << 15)
def whole_kind(name: str) -> str | None:
    """Return the kind of examinations that a name means as a whole: ``laboratory`` for "Laboratory Tests", ``imaging``
    for "Imaging". None for any narrower name, and for a known panel with such a name ("Routine Blood Test")."""
    if (listed := examinations().find(name)) and listed.parts:
        return None
    return next((kind for kind, pattern in _WHOLES.items() if compiled(pattern).fullmatch(normalise(name))), None)


@functools.lru_cache(maxsize=1 << 14)
def no_examination(name: str, is_unread: bool = False) -> bool:
    """Whether a name means something that is no examination: a remark, an intervention, a history, or nothing at all.
    If nothing else was understood of the name (``is_unread``), a word for a fee, a supply or a treatment ("rental") is
    enough, unless another word tells of an examination."""
    plain = normalise(_PATTERN.result.sub("", name))
    is_other = not plain or _PATTERN.no_examination.fullmatch(plain) or (is_unread and _PATTERN.service.search(plain))
    return bool(_PATTERN.unseen.search(plain) or (is_other and not (examinations().knows(name) or modality(name))))


@functools.lru_cache(maxsize=1 << 15)
def names_no_place(name: str) -> bool:
    """Whether a name says how something is examined but not which part of the body: "CT", "X-rays", "Biopsy"."""
    words = words_of(name)
    has_no_part = imaging_words(name) is None if modality(name) else bool(words) and words <= _PROCEDURES
    return has_no_part and not meaning(name).terms and bool(meaning(name).kind)


# Parts of a name that others compare.


def plainer_names(name: str) -> Iterator[str]:
    """Yield spellings of a name: as it is, without its side ("left"), without a final remark in brackets, and without
    both. A remark that names the specimen is kept, because it makes another examination: "Glucose (urine)" is not blood
    glucose."""
    aside = _PATTERN.aside.search(name)
    plainer = name[: aside.start()] if aside and not names_specimen(aside[1]) else name
    for spelling in (name, plainer):
        yield from (spelling, _PATTERN.side.sub(" ", spelling))


def names_specimen(words: str) -> bool:
    """Whether a text contains the name of a specimen ("urine", "sputum"). Words for blood do not count as one."""
    return _PATTERN.specimen.search(normalise(words)) is not None


def is_specimen(words: str) -> bool:
    """Whether all words of a text name specimens or how they are taken ("24 h urine"), so that it does not say what is
    examined."""
    return all(names_specimen(word) or _PATTERN.taken.fullmatch(word) for word in normalise(words).split())


def quantity_words(name: str) -> frozenset[str]:
    """Return the distinguishing words of a quantity, with the class of an antibody, and without words for blood: it is
    the same in serum, plasma and whole blood. Those of a known quantity are the words of its usual name, those of a
    LOINC name are translated first."""
    clinical_name, *_ = meaning(name).quantities or translate(name).clinical or (name,)
    return words_of(clinical_name) - BLOOD | {"iga", "igm"}.intersection(normalise(clinical_name).split())
