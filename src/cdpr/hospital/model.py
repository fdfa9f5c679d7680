"""The model of the synthetic hospital: diseases, findings and their disease-conditional probabilities, read from
``data/*.yaml``.

The shipped files are checked by ``tests/unit/test_hospital.py``, not on every load.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from ..files import parse_yaml, shipped_text
from ..settings import IN_DOMAIN


class Disease(NamedTuple):
    """A disease of the model, with its ``code``. ``weight`` is its relative frequency, ``age`` the mean and standard
    deviation of its patients' age in years, ``female`` the share of women among them."""

    code: str
    name: str
    weight: float
    age: tuple[float, float]
    female: float


class Measure(NamedTuple):
    """How a laboratory quantity is named and printed.

    ``labels`` are its names in the three hospitals (:attr:`Site.column`). ``range`` is the reference range in
    ``units``. ``si`` is its SI unit and the factor from ``units`` to that unit. ``decimals`` is how many digits are
    printed after the decimal point. ``itemid`` and ``fluid`` are its number and specimen in MIMIC-IV's table
    ``d_labitems``.
    """

    labels: tuple[str, str, str]
    itemid: int = 0
    fluid: str = "Blood"
    units: str = ""
    range: tuple[float, float] | None = None
    si: tuple[str, float] = ("", 1.0)
    decimals: int = 0


@dataclass(frozen=True, eq=False)
class Finding:
    """A variable of a patient that has one of a few ``states``, such as a symptom (absent, present) or a laboratory
    value (low, normal, high). Given the disease it is independent of all other findings.

    ``table[d, s]`` is P(state s | disease d), shape [diseases, states]. A text shows state s as a number drawn from
    ``intervals[s]``, or as the phrase ``wording[s]``; the other of the two is None. A wording may be a tuple with one
    phrase for each hospital (:attr:`Site.column` chooses). ``measure`` is set for a laboratory quantity. ``organisms``
    has, by the index of a state, the organism that a culture grows in it, in columns of MIMIC-IV. ``mention`` and
    ``line`` are for a symptom: the probability that the history of a patient mentions it, and the heading of the line
    that does.
    """

    name: str
    states: tuple[str, ...]
    table: np.ndarray
    measure: Measure | None = None
    intervals: tuple[tuple[float, float], ...] | None = None
    wording: tuple[str | tuple[str, ...], ...] | None = None
    organisms: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    mention: float = 1.0
    line: str = ""

    @property
    def quantity(self) -> Measure:
        """The ``measure`` of a laboratory quantity. Raises ValueError for a finding in words, which has none."""
        if self.measure is None:
            raise ValueError(f"{self.name}: no laboratory quantity; give it an `analyte` in the hospital's data")
        return self.measure

    @property
    def informative(self) -> bool:
        """Whether the probabilities of the finding's states differ between any two diseases."""
        return bool(np.ptp(self.table, axis=0).max() > 0)  # ptp: the largest value minus the smallest

    @functools.cached_property
    def cumulative(self) -> list[list[float]]:
        """P(state <= s | disease d) as nested lists [diseases][states]. They are lists because bisection in lists is
        faster than in arrays."""
        return np.cumsum(self.table, axis=1).tolist()


@dataclass(frozen=True, eq=False)
class Examination:
    """An examination that can be requested, with the ``findings`` that it shows. ``kind`` is ``laboratory``,
    ``microbiology``, ``imaging``, ``procedure`` or ``physical``.

    ``available`` is the probability that a record of the in-domain hospital has a result. ``usd`` is its price in US
    dollars. ``elsewhere`` has its names in the two other hospitals, ``report`` its name in a radiology note,
    ``heading`` its name in a physical examination. ``specimen`` describes a culture in columns of MIMIC-IV: item number
    and name of the specimen, item number and name of the test; it is empty for other examinations.
    """

    name: str
    kind: str
    available: float
    findings: tuple[Finding, ...]
    usd: float = 0.0
    elsewhere: tuple[str, ...] = ()
    report: str = ""
    heading: str = ""
    specimen: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Site:
    """One hospital: which patients it has, and how it writes.

    ``weights`` are P(disease), shape [diseases]; ``availability`` is P(a record has the examination), shape
    [examinations]. ``number`` is part of its patients' random seeds, so that no two sites have the same patients.

    How it writes: ``column`` is the index of its words among those of the three hospitals (:attr:`Measure.labels`,
    :attr:`Finding.wording`; an :class:`Examination` has its own name for the first). ``si``: it reports in SI units.
    ``layout``: it writes laboratory values field by field and vital signs as a sentence (``note``), laboratory values
    as a list (``list``), or both field by field (``table``). A site with ``styles`` imitates other hospitals: it writes
    each case in one of these styles.
    """

    name: str
    number: int
    weights: np.ndarray
    availability: np.ndarray
    column: int = 0
    si: bool = False
    layout: str = "note"
    styles: tuple[Self, ...] = ()

    def style(self, rng: np.random.Generator) -> Self:
        """Draw the style in which one case is written: one of ``styles`` at random, or the site itself if it has
        none."""
        return self.styles[int(rng.integers(len(self.styles)))] if self.styles else self

    def exam_name(self, exam: Examination) -> str:
        """The name of an examination in this hospital; the examination's own name where ``elsewhere`` gives none."""
        return exam.elsewhere[self.column - 1] if self.column and exam.elsewhere else exam.name

    def label(self, measure: Measure) -> str:
        """The name that this hospital prints for a laboratory quantity."""
        return measure.labels[self.column]

    def phrase(self, finding: Finding, state: int) -> str:
        """The words of this hospital for a state of a finding, given by its index. They are empty for a state that
        texts leave out, such as an absent symptom."""
        words = (finding.wording or ())[state]
        return words if isinstance(words, str) else words[self.column]

    def every_phrase(self, finding: Finding, state: int) -> tuple[str, ...]:
        """All phrases for a state of a finding (given by its index) that texts of this site may have: one for each of
        its styles, or its own."""
        return tuple(dict.fromkeys(style.phrase(finding, state) for style in self.styles or (self,)))


@dataclass(frozen=True, eq=False)
class Hospital:
    """The whole model: diseases, the findings of the case summary (``presentation``), and examinations and sites by
    name. Arrays over diseases have the order of ``diseases``, arrays over examinations that of ``examinations``."""

    diseases: tuple[Disease, ...]
    presentation: tuple[Finding, ...]
    examinations: dict[str, Examination]
    sites: dict[str, Site]

    def available(self, patient: Any) -> list[Examination]:
        """The examinations that are in the record of a ``patient`` (:class:`~.sample.Patient`), in the order of the
        model."""
        return [exam for name, exam in self.examinations.items() if name in patient.available]

    def site(self, dataset: str) -> Site:
        """The site whose patients the data set ``dataset`` has. An unknown name gives the site of the in-domain data
        set."""
        return self.sites.get(dataset, self.sites[IN_DOMAIN])


def read_data(name: str) -> dict:
    """Read the shipped file ``data/NAME.yaml`` of this package."""
    return parse_yaml(shipped_text(__package__, "data", f"{name}.yaml"))


@functools.cache
def load_hospital() -> Hospital:
    """Read the shipped model of the hospital, once per process."""
    exams = read_data("laboratory") | read_data("imaging") | read_data("physical")
    return build_hospital(read_data("diseases")["diseases"], read_data("presentation"), exams, read_data("sites"))


def build_hospital(disease_entries: Mapping, presentation: Mapping, exam_entries: Mapping, sites: Mapping) -> Hospital:
    """Build the model from the contents of its YAML files: ``diseases``, ``presentation``, the three files of
    examinations joined, and ``sites``."""
    diseases = tuple(Disease(code=code, **entry) for code, entry in disease_entries.items())
    codes = [disease.code for disease in diseases]
    exams: dict[str, Examination] = {}
    for name, entry in exam_entries.items():
        fields = entry | {"findings": _build_findings(entry["findings"], codes)}
        exams[name] = Examination(name=name, **fields)
    built: dict[str, Site] = {}
    for name, entry in sites.items():
        built[name] = _build_site(name, entry, diseases, exams, built)
    return Hospital(diseases, _build_findings(presentation, codes), exams, built)


def _build_findings(entries: Mapping, codes: Sequence[str]) -> tuple[Finding, ...]:
    """Build the findings of an examination or of the presentation. ``entries`` are their entries in a YAML file, by
    name; ``codes`` are the codes of all diseases, in order."""
    return tuple(_build_finding(name, entry, codes) for name, entry in entries.items())


def _build_finding(name: str, entry: Mapping, codes: Sequence[str]) -> Finding:
    """Build the finding ``name`` from its entry in a YAML file; ``codes`` are the codes of all diseases, in order.

    The states are the keys of ``default``, their usual probabilities. ``intervals`` or ``wording`` says how each state
    is printed: as a number between two ends, or as a phrase (or one phrase for each hospital).
    """
    states = tuple(entry["default"])
    forms: dict[str, Any] = {
        key: tuple(entry[key][state] for state in states) for key in ("intervals", "wording") if key in entry
    }
    organisms = {states.index(state): organism for state, organism in entry.get("organism", {}).items()}
    others = {key: entry[key] for key in ("mention", "line") if key in entry}
    measure = Measure(**entry["analyte"]) if "analyte" in entry else None
    return Finding(name, states, _build_table(entry, states, codes), measure, organisms=organisms, **forms, **others)


def _build_table(entry: Mapping, states: Sequence[str], codes: Sequence[str]) -> np.ndarray:
    """Build P(state | disease) of a finding from its entry, shape [diseases, states], read-only.

    A disease has the distribution ``default`` of the entry, unless a key of ``given`` lists its code ("AMI, SAH"); then
    it has the distribution of that key, in a short form (:func:`distribution`).
    """
    default = distribution(entry["default"], states)
    table = np.tile(default, (len(codes), 1))
    for group, short_form in (entry.get("given") or {}).items():
        for code in group.split(", "):
            table[codes.index(code)] = distribution(short_form, states, default)
    table.setflags(write=False)
    return table


def distribution(short_form: Any, states: Sequence[str], base: np.ndarray | None = None) -> np.ndarray:
    """Compute the probabilities of the ``states`` from a short form, shape [states].

    The short form is one number, the probability of the second of two states, or a dictionary with the probabilities of
    some states. The rest of the probability is spread over the other states in proportion to ``base``, shape [states].
    For example ``{"high": 0.4}`` of the states low, normal, high with the base [0.1, 0.8, 0.1] gives [0.067, 0.533,
    0.4]. Without a base the other states have the probability 0, and those named are scaled to the sum 1.
    """
    if isinstance(short_form, (int, float)):
        short_form = {states[1]: short_form}
    probabilities = np.array([float(short_form.get(state, 0.0)) for state in states])
    unnamed = np.array([state not in short_form for state in states])
    rest = 1.0 - probabilities.sum()
    if unnamed.any() and base is not None and rest > 0:
        probabilities[unnamed] = rest * base[unnamed] / base[unnamed].sum()
    return probabilities / probabilities.sum()


def _build_site(
    name: str, entry: Mapping, diseases: Sequence[Disease], exams: Mapping[str, Examination], others: Mapping[str, Site]
) -> Site:
    """Build the site ``name`` from its ``entry`` in ``sites.yaml``. Most keys of the entry are fields of
    :class:`Site`; three are not.

    ``mix`` has factors for the frequencies of diseases, by code. ``availability`` has factors for the odds that a
    record has an examination, by the kind or the name of the examination. ``written_as`` lists sites that were built
    before (``others``), whose way of writing this one imitates.
    """
    fields = dict(entry)
    mix, factors, imitated = fields.pop("mix", {}), fields.pop("availability", {}), fields.pop("written_as", ())
    weights = np.array([disease.weight * mix.get(disease.code, 1.0) for disease in diseases])
    availability = np.ones(len(exams))
    for index, exam in enumerate(exams.values()):
        if exam.available < 1:  # an examination that is always on record has no finite odds, and stays so
            odds = exam.available / (1 - exam.available) * factors.get(exam.kind, 1.0) * factors.get(exam.name, 1.0)
            availability[index] = odds / (1 + odds)
    plain = Site(name=name, weights=weights / weights.sum(), availability=availability, **fields)
    # Words and layout of the other site, units of this one.
    styles = tuple(replace(plain, column=others[name].column, layout=others[name].layout) for name in imitated)
    return replace(plain, styles=styles)
