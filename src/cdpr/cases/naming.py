"""What a free name of an examination means: which examinations of the vocabulary, which quantity of one, or at least
which class.

A name is read as the vocabulary lists it, else by its parts: imaging as modality x region x contrast, all else as
specimen x what is examined, whatever their order, number and fillers. ``data/naming.yaml`` holds the words.
"""

import functools
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
_WORD = re.compile("[a-z]{3,}")
_COMPLETED, _CORRECTED = 4, 7  # letters from which a word is completed, and one letter of it corrected
_LONGEST = 200  # characters; what is longer is no name


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


@functools.lru_cache(maxsize=1 << 15)
def meaning(name: str) -> Meaning:
    """What a name of an examination other than physical means; an empty meaning for what is not understood."""
    result = _meaning(name)
    if not result.terms or _known_words().issuperset(_WORD.findall(name.casefold())):
        return result
    return replace(result, whole=False)  # a rule left a word out


@functools.cache
def _known_words() -> frozenset[str]:
    """The words of the vocabulary, and of the rules by which names are read."""
    tables = (shipped_text(__package__, "data", f"{name}.yaml") for name in ("naming", "standard_names", "imaging"))
    return _listed_words().union(_WORD.findall(" ".join(tables).casefold()))


@functools.cache
def _listed_words() -> frozenset[str]:
    """The words of the vocabulary alone: those of the rules are cut."""
    return frozenset(_WORD.findall(" ".join([*examinations().spellings, *examinations().parts]).casefold()))


def _meaning(name: str) -> Meaning:
    """What a name means, read in this order: as it is listed, as a standard name, as imaging, by its words, by its
    parts."""
    if len(name) > _LONGEST:
        return Meaning()
    name = _PATTERN.piped.sub(r"\1\3 (\2\4)", _PATTERN.result.sub("", name))
    name = _PATTERN.initials.sub(lambda letters: re.sub("[. ]", "", letters[0]), name)
    name = _PATTERN.charge.sub(r"\1", name.translate(_SIGNS))
    if not examinations().knows(name) and not clinical_names(name):
        name = _rewritten(name if _listed(name) else in_english(name))
    listed, remark, plain = _listed(name), no_examination(name), normalise(name)
    if listed is None and not remark and (_PATTERN.vital_signs.fullmatch(plain) or _PATTERN.bedside.fullmatch(plain)):
        return Meaning(kind=VITAL_SIGNS if _PATTERN.vital_signs.fullmatch(plain) else BEDSIDE, whole=False)
    if listed is None and (standard := clinical_names(name)):
        kind = _class(standard[0]) or "laboratory test"
        own = next(filter(None, map(_by_name, standard)), None)
        panel = next(filter(None, map(_by_name, reporting_names(name))), None)
        found = own or (replace(panel, how="analyte") if panel else Meaning(kind=kind, whole=False))
        return found if found.terms or (other := _rewritten(name)) == name else _meaning(other)
    # "Total PSA + free PSA" are two, though the words of both are those of one.
    whole = listed or _imaging(name)
    if whole is None and " + " in name and (both := _joined(name)) is not None and not both.kind:
        whole = both
    if whole is not None or remark:
        return whole or Meaning()
    if (whole := _without_aside(name) or _agreeing(name, _by_words(name))) is not None:
        return whole
    loose = _joined(name) or _agreeing(name, _regions(name)) or _agreeing(name, _headed(name)) or _of_any_specimen(name)
    if (loose := loose or _by_target(name)) is None:
        respelt = _WORD.sub(lambda word: _nearest_word(word[0]), name.casefold())
        loose = _meaning(respelt) if respelt != name.casefold() else None
    return loose or _unlisted(name) or Meaning(kind=_class(name), whole=False)


def _rewritten(name: str) -> str:
    """The name in the words of the vocabulary, by the rules for its parts; as it is where none fits."""
    plain = rewrite(before := normalise(name), _REWRITTEN)
    return name if plain == before else plain


def _agreeing(name: str, found: Meaning | None) -> Meaning | None:
    """The meaning, where its one examination knows every specimen, method and form in the name."""
    if found is None or found.term is None:
        return found
    axes = _axes(_alike(name))
    if _has_any_specimen(found.term):
        axes -= _SPECIMENS
    return found if axes <= _axes_of(found.term) else None


@functools.lru_cache(maxsize=1 << 12)
def _axes_of(term: Term) -> frozenset[str]:
    """The specimens, methods and forms that an examination knows by any of its names; blood where it names no
    specimen."""
    known = _axes(_known_as(term))
    elsewhere = _PATTERN.specimen.search(_alike(term.name))  # what is not said to be of another specimen is of blood
    return frozenset(known if elsewhere else known | {"blood"})


def _known_as(term: Term) -> str:
    """All names of an examination, of its parts and of what it holds, in one text."""
    return " / ".join(map(_alike, (term.name, *term.aliases, *term.parts, *term.holds)))


def _has_any_specimen(term: Term) -> bool:
    """Whether the code is the same whatever specimen is examined: a microbe, a cell, a gene is the same everywhere."""
    alike = term.kind == "microbiology" or class_of(term) in _ANY_SPECIMEN
    return alike and not _axes(_alike(term.name)) & _SPECIMENS


def _axes(text: str) -> set[str]:
    """The specimens, methods and forms (keys of ``axes``) that a normalised text names."""
    return {axis for axis, pattern in _AXES.items() if pattern.search(text)}


def no_examination(name: str) -> bool:
    """Whether a name is that of a remark, an intervention, a history, ...: of nothing that is examined."""
    is_known = examinations().knows(name) or modality(name) is not None
    return not is_known and (_PATTERN.no_examination.fullmatch(normalise(name)) is not None or not normalise(name))


@functools.lru_cache(maxsize=1 << 15)
def whole_kind(name: str) -> str | None:
    """The kind of examinations that a name gathers (``Laboratory Tests``, ``Imaging``); None for any other name, and
    for one that the vocabulary lists as a panel (``Routine Blood Test``)."""
    if (listed := examinations().find(name)) and listed.parts:
        return None
    return next((kind for kind, pattern in _WHOLES.items() if pattern.fullmatch(normalise(name))), None)


@functools.lru_cache(maxsize=1 << 15)
def names_no_place(name: str) -> bool:
    """Whether a name says how something is examined but not what: "CT", "X-rays", "Biopsy"."""
    words = words_of(name)
    bare = imaging_words(name) is None if modality(name) else bool(words) and words <= _HEADS
    return bare and not meaning(name).terms and bool(meaning(name).kind)


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


def _listed(name: str) -> Meaning | None:
    """As the vocabulary has it, with a side or without; a physical examination is none."""
    for spelling in dict.fromkeys((name, _PATTERN.side.sub(" ", name), _alike(name))):
        plain = normalise(spelling)
        term = examinations().spellings.get(plain)
        if term is not None and term.kind != "physical":
            return Meaning((term,), "name" if normalise(term.name) == plain else "alias")
        if plain in examinations().parts:
            return Meaning((examinations().parts[plain],), "analyte")
    return None


def _by_name(name: str) -> Meaning | None:
    """The meaning of a name that is listed, or that has the words of a listed one in another order."""
    return _listed(name) or _by_words(name)


def _imaging(name: str) -> Meaning | None:
    """The study whose region, modality and contrast a name has; None for any other name."""
    key = imaging_words(name)
    if key is None or _HEADS.intersection(key[0]) or _CLASSES["biopsy"].search(_alike(name)):
        return None
    # Colour is a mode of the ultrasound, where the vessels of a place have no study of their own.
    term = _study(*key) or _study(key[0] - {"doppler"}, key[1])
    return Meaning((term,), "alias") if term else None


def _regions(name: str) -> Meaning | None:
    """Imaging by the regions that its name has beside other words; each of them has to be listed."""
    key = imaging_words(name)
    if key is None or _CLASSES["biopsy"].search(_alike(name)):
        return None
    studies = [_study(region, key[1]) for region in regions(key[0])]
    terms = tuple(dict.fromkeys(filter(None, studies)))
    return Meaning(terms, "alias", whole=False) if terms and None not in studies else None


def _study(words: frozenset[str], contrast: str) -> Term | None:
    """The term of these words; without one for its contrast the general one."""
    study, general = _studies().get((words, contrast)), _studies().get((words, ""))
    if study is None and general is not None:
        study = examinations().find(f"{general.name} {contrast} Contrast") or general
    return study


@functools.cache
def _studies() -> dict[tuple[frozenset[str], str], Term]:
    """Imaging by its words; names come before aliases, and an alias says of contrast what its name does."""
    studies: dict[tuple[frozenset[str], str], Term] = {}
    names, aliases, _ = _ranks()
    for name, term, _ in names + aliases:
        key = imaging_words(name)
        if key is not None and not (key[1] and name != term.name):
            studies.setdefault(key, term)
    return studies


def _ranks() -> tuple[list[_Named], list[_Named], list[_Named]]:
    """Names, aliases and parts of the examinations other than physical."""
    terms = [term for term in examinations().terms.values() if term.kind != "physical"]
    aliases: list[_Named] = [(alias, term, "alias") for term in terms for alias in term.aliases]
    parts: list[_Named] = [(part, term, "analyte") for term in terms for part in term.parts]
    return [(term.name, term, "alias") for term in terms], aliases, parts


def _without_aside(name: str) -> Meaning | None:
    """The name with a remark in brackets before it, as its specimen or form, without the remark, or what the brackets
    spell out; a letter or two behind a word are part of it ("Lp(a)")."""
    aside = _PATTERN.aside.search(name)
    if aside is None and (within := _PATTERN.within.search(name)):
        # "Edrophonium (Tensilon) test": words in brackets within a name spell it out, as those at its end do.
        before, after = name[: within.start()], name[within.end() :]
        is_joined = _PATTERN.joint.match(after)  # "Electromyogram (EMG) and nerve conduction": only the first of two
        return _joined(f"{before} {after}") if is_joined else _without_aside(f"{before} {after} ({within[1]})")
    if aside is None:
        return None
    bare, remark = name[: aside.start()], aside[1]
    wordings = [f"{remark} {bare}", f"{bare} {remark}"]
    if _PATTERN.any_specimen.search(bare):  # its specimen may have a culture of its own; a puncture is none
        known = filter(None, map(_by_name, (*wordings, bare)))
        result = next((one for one in known if one.term and _class(bare) == class_of(one.term)), None)
    else:
        telling = not names_specimen(remark) and _telling(words_of(remark) - _ANTIBODY)
        wordings += [bare] + [remark] * (telling or _abbreviates(bare, remark))
        agreeing = (_agreeing(name, _by_name(wording) or _imaging(wording)) for wording in wordings)
        result = next(filter(None, agreeing), None)
        # "Estrogen (Estradiol)": the brackets say which.
        own = None if words_of(remark) <= _GENERIC | _ANTIBODY else _listed(remark)
        if own and own.term and result and result.term and class_of(own.term) == class_of(result.term):
            result = result if own.how == "analyte" else own
    return result and replace(result, whole=False)


def _abbreviates(name: str, remark: str) -> bool:
    """Whether one of a name and the remark behind it abbreviates the other; a specimen, or the class of an antibody, is
    no name."""
    is_name = not names_specimen(remark) and not words_of(remark) <= _ANTIBODY
    return is_name and bool(_PATTERN.short.match(name.strip()) or _PATTERN.short.match(remark))


def words_of(name: str) -> frozenset[str]:
    """The words that tell an examination from others: no fillers, one spelling of each, in the singular."""
    tokens = (_SYNONYMS.get(token, token) for token in _alike(name).replace("+", " ").split())
    words = frozenset(_singular(token) for token in tokens if token not in _FILLERS)
    # "Anti-CCP", "CCP antibodies", "CCP IgG": what is looked for is the antibody. In a fluid it is another quantity.
    against = words - _ANTIBODY
    telling = any(len(word) > 1 for word in against - BLOOD) and not against & (_FLUIDS | {"csf"})
    return against | {"antibody"} if telling and words & _ANTIBODY else words


@functools.lru_cache(maxsize=1 << 14)
def _alike(name: str) -> str:
    """The normalised name in American spelling, with one ending for what is done and what it gives."""
    return rewrite(normalise(_PATTERN.possessive.sub("", name)), _SPELT)


def _singular(word: str) -> str:
    """The word without the s of its plural, in the one spelling that stands for its synonyms."""
    return _SYNONYMS.get(word[:-1], word[:-1]) if re.fullmatch(r"\w{3,}[^\Wsui]s", word) else word


@functools.cache
def _index() -> dict[frozenset[str], tuple[Term, MatchKind] | None]:
    """Examinations by the words of their names; None where two have the same words. Names come before aliases, these
    before parts, and all of them before what is left without the word for blood."""
    index: dict[frozenset[str], tuple[Term, MatchKind] | None] = {}
    for rank in _ranks():
        for without in (frozenset[str](), BLOOD):
            new: dict[frozenset[str], tuple[Term, MatchKind] | None] = {}
            for name, term, how in rank:
                words = words_of(name)
                if (words & without or not without) and _telling(words - without):
                    before = new.setdefault(words - without, (term, how))
                    if before is not None and before[0] is not term:
                        new[words - without] = None
            index = new | index
    return index


def _telling(words: frozenset[str]) -> bool:
    """Whether any word says what is examined: not only "culture", "blood" or single letters."""
    return any(len(word) > 1 for word in words - _HEADS - BLOOD)


def _by_words(name: str) -> Meaning | None:
    """By the words in any order, with and without the word for blood."""
    words = words_of(name)
    fluid = words - _FLUIDS | {"body", "fluid"} if words & _FLUIDS else words
    # "Blood and urine cultures" are not those of urine.
    bloodless = words if words & _HEADS and _PATTERN.specimen.search(_alike(name)) else words - BLOOD
    wordings = (words, bloodless, fluid, words - {"virus"})
    entry = next(filter(None, (_entry(wording, name) for wording in wordings)), None)
    return Meaning((entry[0],), entry[1]) if entry else None


def _entry(words: frozenset[str], name: str) -> tuple[Term, MatchKind] | None:
    """The examination that these words of a name tell."""
    known = _telling(words) and (not words <= _GENERIC or _PATTERN.says_test.search(_alike(name)))
    return _index().get(words) if known else None


def _of_any_specimen(name: str) -> Meaning | None:
    """The culture, stain, antibody, ... that a name means beside a specimen, where all specimens have one code."""
    words = words_of(name)
    rest = frozenset(word for word in words - {"body"} if not names_specimen(word))
    entry = _entry(rest, name) if rest < words and not rest <= _ANTIBODY else None
    if entry and entry[1] != "analyte" and _has_any_specimen(entry[0]):
        return Meaning((entry[0],), "alias", whole=False)
    # A culture from a place that no culture is called by is that of "any other source".
    called = frozenset[str]().union(*(known for known in _index() if "culture" in known)) - {"culture"}
    other = normalise(name).endswith((" culture", " cultures")) and words.isdisjoint(called)
    return Meaning((examinations().terms["Bacterial Culture"],), "alias", whole=False) if other else None


def _by_target(name: str) -> Meaning | None:
    """The one examination that looks for what the name says ("Rubella": its antibody, "HFE": the gene), or what is left
    of the name without its purpose ("Amniocentesis for Rh sensitization")."""
    words, plain = words_of(name), _alike(name)
    targets = ("antibody", "virus antibody", "antigen", "gene")[: 2 if "titer" in plain else None]
    if _telling(words) and not words <= _GENERIC:
        senses = filter(None, (_agreeing(name, _by_words(f"{name} {target}")) for target in targets))
        fitting = {sense.terms for sense in senses if plain.startswith("anti") or _is_looked_for(sense.terms[0])}
        if len(fitting) == 1:
            return Meaning(fitting.pop(), "alias", whole=False)
    if "titer" in plain and _ORGANISM.search(plain) and "antibody" not in words:
        return _agreeing(name, _headed(f"{name} antibody"))
    return _agreeing(name, _listed(_PATTERN.purpose.sub("", name)))


def _is_looked_for(term: Term) -> bool:
    """Whether an examination looks for an organism or a gene, which gives it its name."""
    return _ORGANISM.search(_known_as(term)) is not None or class_of(term) == "genetic test"


def _unlisted(name: str) -> Meaning | None:
    """The examination by which a kind's members without a code of their own are billed; each is another quantity."""
    plain = _alike(name)
    term = next((examination for pattern, examination in _UNLISTED if pattern.match(plain)), None)
    return Meaning((examinations().terms[term],), "analyte", whole=False) if term else None


@functools.lru_cache(maxsize=1 << 12)
def _nearest_word(word: str) -> str:
    """The only known word that a word begins, or that differs from it by one letter; else the word itself."""
    words = _listed_words()
    if word in words or len(word) < _COMPLETED:
        return word
    near = [known for known in words if known.startswith(word)]
    if len(word) >= _CORRECTED:
        near += [known for known, *_ in process.extract(word, words, scorer=OSA.distance, score_cutoff=1, limit=None)]
    return min(near) if len({_singular(known) for known in near}) == 1 else word


def joined_parts(name: str) -> list[str]:
    """What a name joins: "CT + echocardiogram" a CT and an echocardiogram."""
    return list(filter(str.strip, _PATTERN.joint.split(name)))


def _joined(name: str) -> Meaning | None:
    """Several examinations in one name: "CRP and ESR", "EMG/NCS"; each part has to be known by itself, or with what the
    last one says of its head ("hip and knee X-ray"), or at least its class."""
    parts = joined_parts(name)
    # "Glucose, CSF" is no glucose beside a puncture.
    last = _PATTERN.aside.sub("", parts[-1]) if parts else ""
    apart = "," in name and (is_specimen(last) or words_of(last) <= BLOOD)
    # "CMV (IgM & IgG)" joins what is within the brackets.
    aside = _PATTERN.aside.search(name)
    if apart or not 2 <= len(parts) <= 5 or (aside and _PATTERN.joint.search(aside[1])):
        return None
    head = parts[-1].split()[-1]
    terms: list[Term] = []
    kinds: set[str] = set()
    for part in parts:
        whole = f"{part} {head}"
        result = _by_name(whole) if words_of(part) <= BLOOD or is_specimen(part) else None
        result = result or _by_name(part) or _imaging(part) or _regions(part) or _by_words(whole)
        if result is None and (kind := _class(part)):
            kinds.add(kind)
        elif result is None:
            return None
        else:
            terms += result.terms
    if not terms or len(kinds) > 1:
        return None
    # Whoever takes a biopsy by endoscope has looked.
    held = {name for term in terms for name in term.holds}
    terms = [term for term in dict.fromkeys(terms) if term.name not in held]
    return Meaning(tuple(terms), "alias", "".join(kinds), whole=False)


def _headed(name: str) -> Meaning | None:
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
    return Meaning((fitting[best],), "alias", whole=False) if best else None
