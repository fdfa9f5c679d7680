"""The hospital's model: diseases, findings and their disease-conditional probabilities, read from ``data/*.yaml``.

The shipped files are checked by ``tests/unit/test_hospital.py``, not on every load.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ..files import parse_yaml, shipped_text
from ..settings.datasets import IN_DOMAIN


@dataclass(frozen=True)
class Disease:
    """A disease. ``weight`` is its relative frequency, ``age`` the mean and standard deviation of its patients' age in
    years, ``female`` the share of women among them."""

    code: str
    name: str
    weight: float
    age: tuple[float, float]
    female: float


@dataclass(frozen=True)
class Measure:
    """How a laboratory quantity is named and printed: ``label``, ``short`` and ``long`` are its names in the three
    hospitals. ``range`` is the reference range in ``units``; ``si`` the unit of hospitals that report in SI units, and
    the factor from ``units`` to it. ``itemid`` and ``fluid`` are those of MIMIC-IV."""

    label: str
    short: str
    long: str
    itemid: int = 0
    fluid: str = "Blood"
    units: str = ""
    range: tuple[float, float] | None = None
    si: tuple[str, float] = ("", 1.0)
    decimals: int = 0


@dataclass(frozen=True, eq=False)
class Finding:
    """A categorical variable of a patient, such as a symptom or a laboratory value. Given the disease it is independent
    of all other findings.

    ``table[d, s]`` is P(state s | disease d). A text shows state s as a number drawn from ``intervals[s]``, or by the
    phrase ``wording[s]`` (a tuple: one phrase for each ``column`` of the sites). ``measure`` is set for a laboratory
    quantity. ``organisms`` are number and name of the organism that a culture grows, by state. A symptom is mentioned
    with the probability ``mention`` in the ``line`` of the history with this heading.
    """

    name: str
    states: tuple[str, ...]
    table: np.ndarray
    measure: Measure | None = None
    intervals: tuple[tuple[float, float], ...] | None = None
    wording: tuple[str | tuple[str, ...], ...] | None = None
    organisms: Mapping[int, tuple[int, str]] | None = None
    mention: float = 1.0
    line: str = ""

    @property
    def quantity(self) -> Measure:
        """The measure of a laboratory quantity. Raises ValueError for a finding in words, which has none."""
        if self.measure is None:
            raise ValueError(f"{self.name}: no laboratory quantity; give it an `analyte` in the hospital's data")
        return self.measure

    @property
    def informative(self) -> bool:
        """Whether the finding depends on the disease at all."""
        return bool(np.ptp(self.table, axis=0).max() > 0)

    @functools.cached_property
    def cumulative(self) -> list[list[float]]:
        """The cumulative distribution P(state <= s | disease d), lists [diseases][states], to draw states quickly."""
        return np.cumsum(self.table, axis=1).tolist()


@dataclass(frozen=True, eq=False)
class Examination:
    """An examination that can be requested.

    ``available`` is the probability that a record of the in-domain hospital has it; ``usd`` its price; ``elsewhere``
    its names in the two other hospitals. ``report`` is its name in a radiology note, ``heading`` that in a physical
    examination; ``specimen`` has the item numbers and names of a culture in MIMIC-IV.
    """

    name: str
    kind: str
    available: float
    findings: tuple[Finding, ...]
    usd: float = 0.0
    elsewhere: tuple[str, ...] = ()
    report: str = ""
    heading: str = ""
    specimen: tuple[int, str, int, str] | None = None


@dataclass(frozen=True, eq=False)
class Site:
    """One hospital: ``weights`` are P(disease), ``availability`` is P(examination available); the other fields say how
    it writes: the ``column`` of its wording, which name of a quantity it prints (``labels``) and which of an
    examination (``names``, an index of :attr:`Examination.elsewhere`), whether it reports in SI units, and the
    ``layout`` of its files.

    ``styles``: a site that imitates other hospitals writes each case in one of these styles.
    """

    name: str
    number: int
    weights: np.ndarray
    availability: np.ndarray
    column: int = 0
    labels: str = "label"
    names: int | None = None
    si: bool = False
    layout: str = "note"
    styles: tuple[Self, ...] = ()

    def style(self, rng: np.random.Generator) -> Self:
        """Draw the style in which one case is written: one of ``styles``, or the site itself if it has none."""
        return self.styles[int(rng.integers(len(self.styles)))] if self.styles else self

    def exam_name(self, exam: Examination) -> str:
        """The name of an examination in this hospital."""
        return exam.name if self.names is None or not exam.elsewhere else exam.elsewhere[self.names]

    def label(self, measure: Measure) -> str:
        """The name of a laboratory quantity in this hospital."""
        return getattr(measure, self.labels)

    def phrase(self, finding: Finding, state: int) -> str:
        """The words of this hospital for a state of a finding; empty for a state that texts leave out."""
        words = (finding.wording or ())[state]
        return words if isinstance(words, str) else words[self.column]

    def every_phrase(self, finding: Finding, state: int) -> tuple[str, ...]:
        """All phrases for a state of a finding in the texts of the site, whatever the style of a case."""
        return tuple(dict.fromkeys(style.phrase(finding, state) for style in self.styles or (self,)))


@dataclass(frozen=True, eq=False)
class Hospital:
    """The whole model: diseases, findings of the presentation, examinations and sites by name. Arrays over diseases
    have the order of ``diseases``, arrays over examinations that of ``examinations``."""

    diseases: tuple[Disease, ...]
    presentation: tuple[Finding, ...]
    examinations: dict[str, Examination]
    sites: dict[str, Site]

    def available(self, patient: Any) -> list[Examination]:
        """The examinations in the record of a :class:`~.sample.Patient`."""
        return [exam for name, exam in self.examinations.items() if name in patient.available]

    def site(self, dataset: str) -> Site:
        """The site whose patients a data set has; that of the in-domain data set for any other name."""
        return self.sites.get(dataset, self.sites[IN_DOMAIN])


def read_data(name: str) -> dict:
    """Read one of the shipped files, ``data/NAME.yaml``."""
    return parse_yaml(shipped_text(__package__, "data", f"{name}.yaml"))


@functools.cache
def load_hospital() -> Hospital:
    """Read the shipped model of the hospital, once per process."""
    exams = read_data("laboratory") | read_data("imaging") | read_data("physical")
    return build_hospital(read_data("diseases")["diseases"], read_data("presentation"), exams, read_data("sites"))


def build_hospital(disease_entries: Mapping, presentation: Mapping, exam_entries: Mapping, sites: Mapping) -> Hospital:
    """Build the model from dictionaries with the content of the YAML files: ``diseases``, ``presentation``, the three
    files of examinations together, and ``sites``."""
    diseases = tuple(Disease(code=code, **_fields(entry)) for code, entry in disease_entries.items())
    codes = [disease.code for disease in diseases]
    exams: dict[str, Examination] = {}
    for name, entry in exam_entries.items():
        findings = _findings(entry["findings"], codes)
        exams[name] = Examination(**_fields(entry) | {"name": name, "findings": findings})
    built: dict[str, Site] = {}
    for name, entry in sites.items():
        built[name] = _site(name, entry, diseases, exams, built)
    return Hospital(diseases, _findings(presentation, codes), exams, built)


def _fields(entry: Mapping) -> dict[str, Any]:
    """The arguments of a dataclass from its entry in a YAML file: lists become tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}


def _findings(entries: Mapping, codes: Sequence[str]) -> tuple[Finding, ...]:
    """Build findings from their entries by name; ``codes`` are those of all diseases in order."""
    return tuple(_finding(name, entry, codes) for name, entry in entries.items())


def _finding(name: str, entry: Mapping, codes: Sequence[str]) -> Finding:
    """Build a finding from its entry in a YAML file; ``codes`` are those of all diseases in order.

    Its states are those of ``states``, or else of ``default``. A disease has the distribution ``default`` unless its
    code is in a key of ``given`` ("AMI, SAH"). A laboratory quantity prints a state as ``states`` gives it: the ends of
    an interval, or a phrase for each column of the sites. Other findings print their ``wording``.
    """
    printed_forms = entry.get("states", entry["default"])
    states = tuple(printed_forms)
    table = np.tile(distribution(entry["default"], states), (len(codes), 1))
    default = table[0].copy()
    for group, short_form in (entry.get("given") or {}).items():
        for code in group.split(", "):
            table[codes.index(code)] = distribution(short_form, states, default)
    table.setflags(write=False)
    measure, intervals, wording = None, None, entry.get("wording")
    if "analyte" in entry:
        measure = Measure(**_fields(entry["analyte"]))
        forms = {state: tuple(printed_forms[state]) for state in states}
        if all(isinstance(value, (int, float)) for values in forms.values() for value in values):
            intervals = tuple((float(low), float(high)) for low, high in forms.values())
        else:
            wording = {state: tuple(map(str, phrases)) for state, phrases in forms.items()}
    organisms = {states.index(state): (int(itemid), organism)
                 for state, (itemid, organism) in (entry.get("organism") or {}).items()}  # fmt: skip
    phrases = wording and tuple(wording[state] for state in states)
    mention, line = float(entry.get("mention", 1.0)), entry.get("line", "")
    return Finding(name, states, table, measure, intervals, phrases, organisms or None, mention, line)


def distribution(short_form: Any, states: Sequence[str], base: np.ndarray | None = None) -> np.ndarray:
    """Compute the probabilities of the ``states`` from their short form, shape [states].

    The short form is the probability of the second of two states, or a dictionary with the probabilities of some
    states. The rest of the mass is spread over the other states in proportion to ``base``, shape [states].
    """
    if isinstance(short_form, (int, float)):
        short_form = {states[1]: short_form}
    p = np.array([float(short_form.get(state, 0.0)) for state in states])
    unnamed = np.array([state not in short_form for state in states])
    rest = 1.0 - p.sum()
    if unnamed.any() and base is not None and rest > 0:
        p[unnamed] = rest * base[unnamed] / base[unnamed].sum()
    return p / p.sum()


def _site(
    name: str, entry: Mapping, diseases: Sequence[Disease], exams: Mapping[str, Examination], others: Mapping[str, Site]
) -> Site:
    """Build a site from its entry in ``sites.yaml``; ``others`` are the sites before it, whose styles it may take.

    ``mix`` multiplies the frequencies of diseases by code; ``availability`` multiplies the odds that an examination is
    available, by its kind and by its name.
    """
    fields = _fields(entry)
    mix, odds, styles = fields.pop("mix", {}), fields.pop("availability", {}), fields.pop("written_as", ())
    weights = np.array([disease.weight * mix.get(disease.code, 1.0) for disease in diseases])
    availability = [1.0] * len(exams)
    for index, exam in enumerate(exams.values()):
        if exam.available < 1:
            ratio = exam.available / (1 - exam.available) * odds.get(exam.kind, 1.0) * odds.get(exam.name, 1.0)
            availability[index] = ratio / (1 + ratio)
    plain = Site(name=name, weights=weights / weights.sum(), availability=np.array(availability), **fields)
    # In each style the words and the layout are another site's, the units its own.
    words = [{key: getattr(others[style], key) for key in ("column", "labels", "names", "layout")} for style in styles]
    return replace(plain, styles=tuple(replace(plain, **style) for style in words))
