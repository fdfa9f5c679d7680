"""What a free name of an examination means: which examinations of the vocabulary, which quantity of one, or at least
which class.

A name is read as the vocabulary lists it, else by its parts: imaging as modality x region x contrast, all else as
specimen x what is examined, whatever their order, number and fillers. ``data/naming.yaml`` holds the words.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from rapidfuzz import process
from rapidfuzz.distance import OSA

from ..files import parse_yaml, shipped_text
from .chinese import in_english
from .imaging import imaging_words, modality, regions
from .patterns import compile_patterns, compile_rewriting, fill, rewrite
from .standard_names import clinical_names, reporting_names
from .vocabulary import Term, examinations, normalise

MatchKind = Literal["name", "alias", "analyte"]
_Named = tuple[str, Term, MatchKind]

_TABLE = fill(parse_yaml(shipped_text(__package__, "data", "naming.yaml")))
_PATTERN = compile_patterns(_TABLE["patterns"])
_SYNONYMS: dict[str, str] = _TABLE["synonyms"]
_CLASSES, _WHOLES = ({name: re.compile(text) for name, text in _TABLE[key].items()} for key in ("classes", "wholes"))
# Classes of what belongs to the physical examination, and is free.
PHYSICAL = VITAL_SIGNS, BEDSIDE = "vital signs", "bedside"
# Words that name a test only beside one that says so are generic: "cardiac markers", not "cardiac evaluation".
_FILLERS, BLOOD, _FLUIDS, _HEADS, _ANTIBODY, _TECHNIQUES, _GENERIC = (
    frozenset(_TABLE[name]) for name in ("fillers", "blood", "fluids", "heads", "antibody", "techniques", "generic")
)
_SPELT, _REWRITTEN = compile_rewriting(_TABLE["spellings"]), compile_rewriting(_TABLE["rewritten"])
_AXES = {axis: re.compile(pattern) for axis, pattern in _TABLE["axes"].items()}
_SPECIMENS, _ANY_SPECIMEN = frozenset(_TABLE["specimen_axes"]), frozenset(_TABLE["any_specimen_classes"])
_SIGNS = str.maketrans(_TABLE["signs"])
_ORGANISM, _UNLISTED = re.compile(_TABLE["organism"]), compile_rewriting(_TABLE["unlisted"])
_SAMPLED = re.compile(_TABLE["sampled"].replace(" )", ")"))  # a word for what is examined
_WORD = re.compile("[a-z]{3,}")
_TARGETS = frozenset({"antibody", "antigen"})  # what is looked for, without the microbe whose it is
_COMPLETED, _CORRECTED = 4, 7  # letters from which a word is completed, and one letter of it corrected
_LONGEST = 200  # characters; what is longer is no name
_JOINED = 5  # examinations in one name at most


@dataclass(frozen=True)
class Meaning:
    """What a name means.

    ``terms`` are the examinations, several for a name that joins them (``Hip and knee X-ray``); ``how`` tells whether
    the name is one's own, another spelling, or a quantity that it reports. ``kind`` is the class of what has no term:
    a modality (``ct``), ``biopsy``, ..., or one of :data:`PHYSICAL`. ``whole`` says that no word of the name was left
    over.
    """

    terms: tuple[Term, ...] = ()
    how: MatchKind = "name"
    kind: str = ""
    whole: bool = True

    @property
    def term(self) -> Term | None:
        """The one examination that is meant; None for none and for several."""
        return self.terms[0] if len(self.terms) == 1 else None


# The readers of a name, from the one that knows most to the one that guesses most.


@functools.lru_cache(maxsize=1 << 15)
def meaning(name: str) -> Meaning:
    """What a name of an examination means; an empty meaning for what is not understood, and for an item of the
    physical examination that the vocabulary lists.

    ``meaning("Serum Na+")`` is the Basic Metabolic Panel, which reports it (``how="analyte"``).
    """
    result = _read(name)
    if not result.terms or _known_words().issuperset(_WORD.findall(name.casefold())):
        return result
    return replace(result, whole=False)  # a rule left a word out


def _read(name: str) -> Meaning:
    """The meaning of a name by the first reader that understands it; its ``whole`` is that of the rewritten name."""
    if len(name) > _LONGEST:
        return Meaning()
    name = _in_words_of_the_vocabulary(name)
    if (listed := _listed(name)) is not None:
        return listed
    is_remark = no_examination(name)
    if not is_remark and (kind := _physical_kind(name)):
        return Meaning(kind=kind, whole=False)
    if clinical_names(name):
        return _read_standard_name(name)
    if (found := _imaging(name) or _joined_listed(name)) or is_remark:
        return found or Meaning()
    sure = _without_aside(name) or _without_fillers(name) or _if_axes_agree(name, _by_words(name)) or _joined(name)
    likely = sure or _regions(name) or _by_head(name) or _of_any_specimen(name) or _by_target(name)
    return likely or _respelt(name) or _by_kind(name) or Meaning(kind=_class(name), whole=False)


def _in_words_of_the_vocabulary(name: str) -> str:
    """The name without signs, dots and codes, in English, and rewritten by the rules for its parts (``rewritten``);
    a name that the vocabulary lists, or a standard name, is not rewritten."""
    name = _PATTERN.piped.sub(r"\1\3 (\2\4)", _PATTERN.result.sub("", name))
    name = _PATTERN.initials.sub(lambda letters: re.sub("[. ]", "", letters[0]), name)
    name = _PATTERN.charge.sub(r"\1", name.translate(_SIGNS))
    if not _by_name(name):  # "Hemoglobin (S)" is no hemoglobin of serum
        name = _PATTERN.letter.sub(lambda specimen: _TABLE["specimen_letters"][specimen[1]], name)
    if examinations().knows(name) or clinical_names(name):
        return name
    name = name if _listed(name) else in_english(name)
    # A rule for a whole name would swallow the second of two examinations: their parts are rewritten one by one.
    parts = list(map(_rewritten, joined_parts(name)))
    return name if len(parts) > 1 and all(map(_stands_alone, parts)) else _rewritten(name)


def _stands_alone(part: str) -> bool:
    """Whether a part of a name is an examination by itself: "quant PCR", "tissue" and the cells in which an enzyme is
    measured only say more of another one."""
    says_more = words_of(part) <= _TECHNIQUES | _TARGETS | {"pcr", "microscopy", "rbc", "wbc", "leukocyte"}
    return not says_more and not is_specimen(part) and bool(_by_name(part) or _imaging(part))


def _rewritten(name: str) -> str:
    """The name after the rules ``rewritten``: "c diff toxin" as "c difficile test"; as it is where none fits."""
    plain = normalise(name)
    return name if (rewritten := rewrite(plain, _REWRITTEN)) == plain else rewritten


def _listed(name: str) -> Meaning | None:
    """The examination that the vocabulary lists under this name, with a side or without; not a physical one."""
    for spelling in dict.fromkeys((name, _PATTERN.side.sub(" ", name), _alike(name))):
        plain = normalise(spelling)
        term = examinations().spellings.get(plain)
        if term is not None and term.kind != "physical":
            return Meaning((term,), "name" if normalise(term.name) == plain else "alias")
        if plain in examinations().parts:
            return Meaning((examinations().parts[plain],), "analyte")
    return None


def _physical_kind(name: str) -> str:
    """The kind of physical examination that a name means; empty for any other name."""
    patterns = {VITAL_SIGNS: _PATTERN.vital_signs, BEDSIDE: _PATTERN.bedside}
    return next((kind for kind, pattern in patterns.items() if pattern.fullmatch(normalise(name))), "")


def _read_standard_name(name: str) -> Meaning:
    """The meaning of a standard name (LOINC): its own examination, else the one that reports it as a quantity, else
    that of the name as laboratories shorten it, else its class."""
    names = clinical_names(name)
    if own := next(filter(None, map(_by_name, names)), None):
        return own
    if reporting := next(filter(None, map(_by_name, reporting_names(name))), None):
        return replace(reporting, how="analyte")
    shortened = _rewritten(name)
    unlisted = Meaning(kind=_class(names[0]) or "laboratory test", whole=False)
    return unlisted if shortened == name else _read(shortened)


def _by_name(name: str) -> Meaning | None:
    """The meaning of a name that is listed, or that has the words of a listed one in another order."""
    return _listed(name) or _by_words(name)


# Imaging.


def _imaging(name: str) -> Meaning | None:
    """The study that has the region, modality and contrast of a name; None for what is no imaging, or no such study."""
    key = imaging_words(name)
    if key is None or _HEADS.intersection(key[0]) or _CLASSES["biopsy"].search(_alike(name)):
        return None
    are_two = " + " in name and all(map(imaging_words, name.split(" + ")))
    # Colour is a mode of the ultrasound, where the vessels of a place have no study of their own.
    study = _study(*key) or _study(key[0] - {"doppler"}, key[1])
    return Meaning((study,), "alias") if study and not are_two else None


def _regions(name: str) -> Meaning | None:
    """The imaging studies of the regions in a name that has other words too; None unless each region has one.

    "CT of the chest and neck for staging" is the CT of the chest and that of the neck.
    """
    key = imaging_words(name)
    if key is None or _CLASSES["biopsy"].search(_alike(name)):
        return None
    studies = [_study(region, key[1]) for region in regions(key[0])]
    terms = tuple(dict.fromkeys(filter(None, studies)))
    return _if_axes_agree(name, Meaning(terms, "alias", whole=False)) if terms and None not in studies else None


def _study(words: frozenset[str], contrast: str) -> Term | None:
    """The study with these words and this contrast; where contrast makes no difference, the one that names none."""
    study, general = _studies().get((words, contrast)), _studies().get((words, ""))
    if study is None and general is not None:
        study = examinations().find(f"{general.name} {contrast} Contrast") or general
    return study


@functools.cache
def _studies() -> dict[tuple[frozenset[str], str], Term]:
    """All imaging studies by (words, contrast); an alias has no contrast unless it is the name itself."""
    studies: dict[tuple[frozenset[str], str], Term] = {}
    names, aliases, _ = _names_by_rank()
    for name, term, _ in names + aliases:
        key = imaging_words(name)
        if key is not None and not (key[1] and name != term.name):
            studies.setdefault(key, term)
    return studies


def _names_by_rank() -> tuple[list[_Named], list[_Named], list[_Named]]:
    """Names, aliases and parts of the examinations other than physical, in this order."""
    terms = [term for term in examinations().terms.values() if term.kind != "physical"]
    aliases: list[_Named] = [(alias, term, "alias") for term in terms for alias in term.aliases]
    parts: list[_Named] = [(part, term, "analyte") for term in terms for part in term.parts]
    return [(term.name, term, "alias") for term in terms], aliases, parts


# Examinations by their words.


def words_of(name: str) -> frozenset[str]:
    """The words that distinguish an examination from others: no fillers, one spelling of each, in the singular.

    ``words_of("Levels of ANA antibodies")`` is ``{"ana", "antibody"}``.
    """
    tokens = (_SYNONYMS.get(token, token) for token in _alike(name).replace("+", " ").split())
    words = frozenset(_singular(token) for token in tokens if token not in _FILLERS)
    # "Anti-CCP", "CCP antibodies", "CCP IgG": what is looked for is the antibody. In a fluid it is another quantity.
    target = words - _ANTIBODY
    has_target = any(len(word) > 1 for word in target - BLOOD) and not target & (_FLUIDS | {"csf"})
    return target | {"antibody"} if has_target and words & _ANTIBODY else words


@functools.lru_cache(maxsize=1 << 14)
def _alike(name: str) -> str:
    """The normalised name in American spelling, with one ending for what is done and what it gives."""
    return rewrite(normalise(_PATTERN.possessive.sub("", name)), _SPELT)


def _singular(word: str) -> str:
    """The word without the s of its plural, or the word that it is a synonym of."""
    return _SYNONYMS.get(word[:-1], word[:-1]) if re.fullmatch(r"\w{3,}[^\Wsui]s", word) else word


@functools.cache
def _index() -> dict[frozenset[str], tuple[Term, MatchKind] | None]:
    """Examinations by the set of words of a name; None where two examinations share it. A name wins over an alias, an
    alias over a part; within each, the full words win over the words without "blood"."""
    index: dict[frozenset[str], tuple[Term, MatchKind] | None] = {}
    for rank, left_out in itertools.product(_names_by_rank(), (frozenset[str](), BLOOD)):
        found: dict[frozenset[str], dict[str, tuple[Term, MatchKind]]] = {}
        for name, term, how in rank:
            found.setdefault(words_of(name) - left_out, {}).setdefault(term.name, (term, how))
        unambiguous = {words: next(iter(terms.values())) if len(terms) == 1 else None for words, terms in found.items()}
        index = {words: entry for words, entry in unambiguous.items() if _are_telling(words)} | index
    return index


def _are_telling(words: frozenset[str]) -> bool:
    """Whether any word says what is examined: not only "culture", "blood" or single letters."""
    return any(len(word) > 1 for word in words - _HEADS - BLOOD)


def _without_fillers(name: str) -> Meaning | None:
    """The examination that is listed under the name without its fillers, in its order ("Haemoglobin estimation")."""
    tokens = [token for token in _alike(name).split() if token not in _FILLERS]
    is_generic = words_of(name) <= _GENERIC and not _PATTERN.says_test.search(_alike(name))
    return None if is_generic else _if_axes_agree(name, _listed(" ".join(tokens)))


def _by_words(name: str) -> Meaning | None:
    """The examination with the words of a name in any order, with or without the word for blood."""
    words = words_of(name)
    fluids = _FLUIDS | {"csf"}
    fluid = words - fluids | {"body", "fluid"} if words & fluids else words
    # "Blood and urine cultures" are not those of urine.
    bloodless = words if words & _HEADS and _PATTERN.specimen.search(_alike(name)) else words - BLOOD
    wordings = (words, bloodless, fluid, words - {"virus"})
    entry = next(filter(None, (_indexed(wording, name) for wording in wordings)), None)
    return Meaning((entry[0],), entry[1]) if entry else None


def _indexed(words: frozenset[str], name: str) -> tuple[Term, MatchKind] | None:
    """The examination in the index that has these words of a name; generic words count only where the name says that
    they are a test ("liver function", not "liver")."""
    says_test = not words <= _GENERIC or _PATTERN.says_test.search(_alike(name))
    return _index().get(words) if says_test and _are_telling(words) else None


# What a name says of specimen, method and form has to agree with the examination.


def _if_axes_agree(name: str, found: Meaning | None) -> Meaning | None:
    """The meaning ``found``, if its examination has every specimen, method and form that the name states; else None.

    A meaning of several examinations is not checked.
    """
    if found is None or found.term is None:
        return found
    stated = _axes(_alike(name))
    if _has_any_specimen(found.term):
        stated -= _SPECIMENS
    return found if stated <= _axes_of(found.term) else None


def _axes(text: str) -> set[str]:
    """The specimens, methods and forms (keys of ``axes``) that a normalised text names."""
    return {axis for axis, pattern in _AXES.items() if pattern.search(text)}


@functools.lru_cache(maxsize=1 << 12)
def _axes_of(term: Term) -> frozenset[str]:
    """The specimens, methods and forms in any name of an examination; blood too where its name has no specimen, and
    CSF, which is a body fluid where it has no code of its own."""
    known = _axes(_all_names(term))
    implied = set() if _PATTERN.specimen.search(_alike(term.name)) else {"blood"}
    return frozenset(known | implied | ({"csf"} if "fluid" in known else set()))


def _all_names(term: Term) -> str:
    """All names of an examination, of its parts and of what it holds, in one text."""
    return " / ".join(map(_alike, (term.name, *term.aliases, *term.parts, *term.holds)))


def _has_any_specimen(term: Term) -> bool:
    """Whether the code is the same whatever specimen is examined: a microbe, a cell, a gene is the same everywhere."""
    alike = term.kind == "microbiology" or class_of(term) in _ANY_SPECIMEN
    return alike and not _axes(_alike(term.name)) & _SPECIMENS


# Names with brackets.


def _without_aside(name: str) -> Meaning | None:
    """The meaning of a name with brackets: they are its specimen or form ("Glucose (urine)"), a remark, or what the
    name abbreviates. A letter or two behind a word are part of it ("Lp(a)")."""
    aside = _PATTERN.aside.search(name)
    if aside is None and (within := _PATTERN.within.search(name)):
        # "Edrophonium (Tensilon) test": words in brackets within a name spell it out, as those at its end do.
        before, after = name[: within.start()], name[within.end() :]
        is_joined = _PATTERN.joint.match(after)  # "Electromyogram (EMG) and nerve conduction": only the first of two
        return _joined(f"{before} {after}") if is_joined else _without_aside(f"{before} {after} ({within[1]})")
    if aside is None:
        return None
    bare, remark = name[: aside.start()], aside[1]
    # "Coombs test (direct and indirect)" are two.
    joined = [_by_name(f"{part} {bare}") for part in joined_parts(remark)]
    terms = dict.fromkeys(one.term for one in joined if one and one.term)
    if len(terms) == len(joined) > 1:
        return Meaning(tuple(term for term in terms if term), "alias", whole=False)
    if _PATTERN.any_specimen.search(bare):  # its specimen may have a culture of its own; a puncture is none
        known = map(_by_name, (f"{remark} {bare}", f"{bare} {remark}", bare))
        found = next((one for one in known if one and one.term and _class(bare) == class_of(one.term)), None)
    else:
        is_name = not names_specimen(remark) and _are_telling(words_of(remark) - _ANTIBODY)
        wordings = [f"{remark} {bare}", f"{bare} {remark}", bare] + [remark] * is_name
        agreeing = (_if_axes_agree(name, _by_name(wording) or _imaging(wording)) for wording in wordings)
        found = next(filter(None, agreeing), None) or _joined(remark)  # "Anemia labs (iron, ferritin)"
        # "Estrogen (Estradiol)": the brackets say which.
        own = None if words_of(remark) <= _GENERIC | _ANTIBODY else _listed(remark)
        if own and own.term and found and found.term and class_of(own.term) == class_of(found.term):
            found = found if own.how == "analyte" else own
    return found and replace(found, whole=False)


# Several examinations in one name.


def joined_parts(name: str) -> list[str]:
    """What a name joins: "CT + echocardiogram" a CT and an echocardiogram."""
    return list(filter(str.strip, _PATTERN.joint.split(name)))


def _joined_listed(name: str) -> Meaning | None:
    """The examinations that a name joins by a plus, or that are listed one by one ("CSF analysis and cytology"): all
    words together may be those of another examination. None for names of one examination."""
    if " + " not in name and not all(map(_listed, joined_parts(name))):
        return None
    both, one = _joined(name), _by_words(name)
    # "Complement C3 and C4" is listed as one examination, which is neither of the two.
    are_two = both and not both.kind and len(both.terms) > 1 and (one is None or one.term in both.terms)
    return both if are_two else None


def _joined(name: str) -> Meaning | None:
    """Several examinations in one name: "CRP and ESR", "EMG/NCS". Each has to be known by itself, with the specimen
    before the first ("urine culture and sodium") or with the last word ("hip and knee X-ray"), or its class."""
    first, *others = joined_parts(name) or [""]
    # "HBsAg and antibody": a bare word means the first part's own, as does a mode of it.
    is_bare = lambda part: set() < words_of(part) <= _TARGETS or _PATTERN.mode.fullmatch(normalise(part))  # noqa: E731
    parts = [first, *itertools.filterfalse(is_bare, others)]
    if others and len(parts) == 1:
        return _read(first)
    # "Glucose, CSF" is no glucose beside a puncture.
    last = _PATTERN.aside.sub("", parts[-1])
    ends_in_specimen = "," in name and (is_specimen(last) or words_of(last) <= BLOOD)
    # "CMV (IgM & IgG)" joins what is within the brackets.
    aside = _PATTERN.aside.search(name)
    if ends_in_specimen or not 2 <= len(parts) <= _JOINED or (aside and _PATTERN.joint.search(aside[1])):
        return None
    head = next((word for word in reversed(parts[-1].split()) if word.casefold() not in _FILLERS), "")
    meanings = [_one_of_joined(part, first, head) or Meaning(kind=_class(part)) for part in parts]
    terms = [term for one in meanings for term in one.terms]
    kinds = {one.kind for one in meanings} - {""}
    if not terms or len(kinds) > 1 or Meaning() in meanings:
        return None
    # Whoever takes a biopsy by endoscope has looked.
    held = {name for term in terms for name in term.holds}
    terms = [term for term in dict.fromkeys(terms) if term.name not in held]
    return Meaning(tuple(terms), "alias", "".join(kinds), whole=False)


def _one_of_joined(part: str, first: str, head: str) -> Meaning | None:
    """The meaning of one part of a name that joins several, whose ``first`` part and last word (``head``) may belong
    to all of them."""
    part = part if _listed(part) else _rewritten(part)
    with_head = f"{part} {head}"
    wordings = [part]
    if words_of(part) <= BLOOD or is_specimen(part):
        wordings.insert(0, with_head)
    lead = _PATTERN.lead.match(normalise(first)) if "stain" not in words_of(part) else None
    if lead and not _axes(_alike(part)) & _SPECIMENS:
        wordings.insert(0, _rewritten(f"{lead[0]} {part}"))
    found = next(filter(None, map(_by_name, wordings)), None)
    return found or _imaging(part) or _regions(part) or _by_words(with_head)


# What is left: fewer words, other words, a kind.


def _by_head(name: str) -> Meaning | None:
    """A biopsy, culture, ... of a place that the vocabulary lists under fewer words: of these the one with most."""
    words = words_of(name)
    heads = words & (_HEADS | {"antibody"} if _ORGANISM.search(_alike(name)) else _HEADS)
    unsure = _GENERIC if heads & {"antigen", "antibody"} else frozenset()  # of another virus it is another test
    fitting = {
        known: entry[0]
        for known, entry in _index().items()
        if entry is not None and known <= words and known & heads and known - heads - _TECHNIQUES - unsure
    }
    # A biopsy by endoscope is a biopsy.
    best = max([known for known in fitting if "biopsy" in known] or fitting, key=len, default=None)
    return _if_axes_agree(name, Meaning((fitting[best],), "alias", whole=False)) if best else None


def _of_any_specimen(name: str) -> Meaning | None:
    """The culture, stain, antibody, ... that a name means beside a specimen, where all specimens have one code."""
    words = words_of(name)
    rest = frozenset(word for word in words - {"body"} if not names_specimen(word) and not _SAMPLED.fullmatch(word))
    entry = _indexed(rest, name) if rest < words and not rest <= _ANTIBODY else None
    if entry and entry[1] != "analyte" and _has_any_specimen(entry[0]):
        return Meaning((entry[0],), "alias", whole=False)
    # A culture from a place that no culture is called by is that of "any other source".
    called = frozenset[str]().union(*(known for known in _index() if "culture" in known)) - {"culture"}
    is_other_culture = normalise(name).endswith((" culture", " cultures")) and words.isdisjoint(called)
    return Meaning((examinations().terms["Bacterial Culture"],), "alias", whole=False) if is_other_culture else None


def _by_target(name: str) -> Meaning | None:
    """The one examination that looks for what the name says ("Rubella": its antibody, "HFE": the gene), or what is left
    of the name without its purpose ("Amniocentesis for Rh sensitization")."""
    words, plain = words_of(name), _alike(name)
    targets = ("antibody", "virus antibody", "antigen", "gene")[: 2 if "titer" in plain else None]
    if _are_telling(words) and not words <= _GENERIC:
        senses = filter(None, (_if_axes_agree(name, _by_words(f"{name} {target}")) for target in targets))
        fitting = {sense.terms for sense in senses if plain.startswith("anti") or _is_looked_for(sense.terms[0])}
        if len(fitting) == 1:
            return Meaning(fitting.pop(), "alias", whole=False)
    if "titer" in plain and _ORGANISM.search(plain) and "antibody" not in words:
        return _by_head(f"{name} antibody")
    without_purpose = _PATTERN.purpose.sub("", name)
    return None if is_specimen(without_purpose) else _if_axes_agree(name, _by_name(without_purpose))


def _is_looked_for(term: Term) -> bool:
    """Whether an examination looks for an organism or a gene, which gives it its name."""
    return _ORGANISM.search(_all_names(term)) is not None or class_of(term) == "genetic test"


def _respelt(name: str) -> Meaning | None:
    """The meaning of the name with its unknown words completed or corrected; None where nothing is to be changed."""
    respelt = _WORD.sub(lambda word: _nearest_word(word[0]), name.casefold())
    return _read(respelt) if respelt != name.casefold() else None


@functools.lru_cache(maxsize=1 << 12)
def _nearest_word(word: str) -> str:
    """The only word of the vocabulary that ``word`` begins, or that differs from it by one letter; else ``word``."""
    words = _listed_words()
    if word in _known_words() or len(word) < _COMPLETED:
        return word
    near = [known for known in words if known.startswith(word)]
    if len(word) >= _CORRECTED:
        near += [known for known, *_ in process.extract(word, words, scorer=OSA.distance, score_cutoff=1, limit=None)]
    return min(near) if len({_singular(known) for known in near}) == 1 else word


@functools.cache
def _known_words() -> frozenset[str]:
    """The words of the vocabulary, and of the rules by which names are read, some of which are cut ("gastro")."""
    tables = (shipped_text(__package__, "data", f"{name}.yaml") for name in ("naming", "standard_names", "imaging"))
    return _listed_words().union(_WORD.findall(" ".join(tables).casefold()))


@functools.cache
def _listed_words() -> frozenset[str]:
    """The words of the vocabulary alone."""
    return frozenset(_WORD.findall(" ".join([*examinations().spellings, *examinations().parts]).casefold()))


def _by_kind(name: str) -> Meaning | None:
    """The examination whose code bills all of a kind that have none of their own (``unlisted``): "Foovirus antibody".
    Each is another quantity, so that none answers for another."""
    plain = _alike(name)
    term = next((examination for pattern, examination in _UNLISTED if pattern.match(plain)), None)
    return Meaning((examinations().terms[term],), "analyte", whole=False) if term else None


# Classes, and what is no examination.


def class_of(term: Term) -> str:
    """The class of an examination of the vocabulary, for the rate of its class."""
    return _class(term.name) or {"laboratory": "laboratory test", "microbiology": "culture"}.get(term.kind, term.kind)


def _class(name: str) -> str:
    """The class of a name without a term: a modality, ``biopsy``, ``culture``, ...; empty for none."""
    plain = _alike(name)
    if (kind := whole_kind(name)) is not None:
        return "laboratory test" if kind == "laboratory" else kind
    # A biopsy that is guided by a modality is a biopsy.
    if not _CLASSES["biopsy"].search(plain) and (how := modality(name)) is not None:
        return how
    return next((kind for kind, pattern in _CLASSES.items() if pattern.search(plain)), "")


@functools.lru_cache(maxsize=1 << 15)
def whole_kind(name: str) -> str | None:
    """The kind of examinations that a name asks for as a whole: ``laboratory`` for "Laboratory Tests", ``imaging`` for
    "Imaging". None for any narrower name, and for a panel of the vocabulary that reads like one ("Routine Blood
    Test")."""
    if (listed := examinations().find(name)) and listed.parts:
        return None
    return next((kind for kind, pattern in _WHOLES.items() if pattern.fullmatch(normalise(name))), None)


def no_examination(name: str) -> bool:
    """Whether a name is that of a remark, an intervention, a history, ...: of nothing that is examined."""
    is_known = examinations().knows(name) or modality(name) is not None
    return not is_known and (not normalise(name) or _PATTERN.no_examination.fullmatch(normalise(name)) is not None)


@functools.lru_cache(maxsize=1 << 15)
def names_no_place(name: str) -> bool:
    """Whether a name says how something is examined but not what: "CT", "X-rays", "Biopsy"."""
    words = words_of(name)
    bare = imaging_words(name) is None if modality(name) else bool(words) and words <= _HEADS
    return bare and not meaning(name).terms and bool(meaning(name).kind)


# Parts of a name that others compare.


def plainer_names(name: str) -> Iterator[str]:
    """A name, then the same without its side, without a final remark in brackets, and without both. A remark that names
    the specimen stays, because it makes another examination: "Glucose (urine)" is not blood glucose."""
    aside = _PATTERN.aside.search(name)
    is_remark = aside is not None and not names_specimen(aside[1])
    for spelling in (name, name[: aside.start()] if is_remark else name):
        yield from (spelling, _PATTERN.side.sub(" ", spelling))


def names_specimen(words: str) -> bool:
    """Whether a specimen is among some words."""
    return _PATTERN.specimen.search(normalise(words)) is not None


def is_specimen(words: str) -> bool:
    """Whether words only say of what specimen something is."""
    return all(map(names_specimen, normalise(words).split()))


def quantity_words(name: str) -> frozenset[str]:
    """The words of a quantity, which is the same in serum, plasma and blood."""
    return words_of((clinical_names(name) or (name,))[0]) - BLOOD
