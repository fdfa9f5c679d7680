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
    """One diagnosis; ``age`` is mean and standard deviation in years, ``female`` the share of women."""

    code: str
    name: str
    weight: float
    age: tuple[float, float]
    female: float


@dataclass(frozen=True)
class Measure:
    """How a laboratory quantity is named and printed. ``range`` is the reference range in ``units``;
    ``si`` the unit and factor of hospitals that report in SI units."""

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
    """A categorical variable that is independent of all others given the disease.

    ``table[d, s]`` is P(state s | disease d). A state is printed as a number drawn from ``intervals[s]``, or as the
    phrase ``wording[s]`` (a laboratory quantity: one for each ``column`` of the sites). ``mention`` is the chance that
    a history mentions the symptom at all.
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
        """The laboratory quantity. Raises ValueError for a finding in words."""
        if self.measure is None:
            raise ValueError(f"{self.name}: no laboratory quantity; give it an `analyte` in the hospital's data")
        return self.measure

    @property
    def informative(self) -> bool:
        """Whether any two diseases differ in it."""
        return bool(np.ptp(self.table, axis=0).max() > 0)

    @functools.cached_property
    def cumulative(self) -> list[list[float]]:
        """P(state up to s | disease d), lists [diseases][states], for quick draws."""
        return np.cumsum(self.table, axis=1).tolist()


@dataclass(frozen=True, eq=False)
class Examination:
    """One orderable examination; ``elsewhere`` holds its names in the two other hospitals."""

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
    """One hospital: its disease mix, P(examination available), and its style of writing.

    ``styles``: a site that imitates other hospitals takes one of their styles for each case, and has none itself.
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
        """The site in a style drawn for one case."""
        return self.styles[int(rng.integers(len(self.styles)))] if self.styles else self

    def exam_name(self, exam: Examination) -> str:
        """The hospital's name of an examination."""
        return exam.name if self.names is None or not exam.elsewhere else exam.elsewhere[self.names]

    def label(self, measure: Measure) -> str:
        """The hospital's name of a laboratory quantity."""
        return getattr(measure, self.labels)

    def phrase(self, finding: Finding, state: int) -> str:
        """The hospital's words for a state; empty for a state that texts leave out."""
        words = (finding.wording or ())[state]
        return words if isinstance(words, str) else words[self.column]

    def every_phrase(self, finding: Finding, state: int) -> tuple[str, ...]:
        """All wordings of a state in the site's texts."""
        return tuple(dict.fromkeys(style.phrase(finding, state) for style in self.styles or (self,)))


@dataclass(frozen=True, eq=False)
class Hospital:
    """The whole model. Arrays over diseases follow the order of ``diseases``."""

    diseases: tuple[Disease, ...]
    presentation: tuple[Finding, ...]
    examinations: dict[str, Examination]
    sites: dict[str, Site]

    def available(self, patient: Any) -> list[Examination]:
        """The examinations in the record of a :class:`~.sample.Patient`."""
        return [exam for name, exam in self.examinations.items() if name in patient.available]

    def site(self, dataset: str) -> Site:
        """The hospital behind a data set; cases from elsewhere are read like in-domain ones."""
        return self.sites.get(dataset, self.sites[IN_DOMAIN])


def read_data(name: str) -> dict:
    """One of the shipped files ``data/NAME.yaml``."""
    return parse_yaml(shipped_text(__package__, "data", f"{name}.yaml"))


@functools.cache
def load_hospital() -> Hospital:
    """The shipped model."""
    exams = read_data("laboratory") | read_data("imaging") | read_data("physical")
    return build_hospital(read_data("diseases")["diseases"], read_data("presentation"), exams, read_data("sites"))


def build_hospital(disease_entries: Mapping, presentation: Mapping, exam_entries: Mapping, sites: Mapping) -> Hospital:
    """The model from plain dictionaries laid out as the YAML files."""
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
    """An entry as the fields of its dataclass, lists as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}


def _findings(entries: Mapping, codes: Sequence[str]) -> tuple[Finding, ...]:
    return tuple(_finding(name, entry, codes) for name, entry in entries.items())


def _finding(name: str, entry: Mapping, codes: Sequence[str]) -> Finding:
    """A finding from its entry in a YAML file.

    Its states are those of ``states``, or else of ``default``. A disease has the distribution ``default`` unless its
    code is in a key of ``given`` ("AMI, SAH"). A laboratory quantity prints a state as ``states`` gives it: the ends of
    an interval, or a phrase for each column of the sites. Other findings print their ``wording``.
    """
    forms_of = entry.get("states", entry["default"])
    states = tuple(forms_of)
    table = np.tile(distribution(entry["default"], states), (len(codes), 1))
    default = table[0].copy()
    for group, short_form in (entry.get("given") or {}).items():
        for code in group.split(", "):
            table[codes.index(code)] = distribution(short_form, states, default)
    table.setflags(write=False)
    measure, intervals, wording = None, None, entry.get("wording")
    if "analyte" in entry:
        measure = Measure(**_fields(entry["analyte"]))
        printed = [tuple(forms_of[state]) for state in states]
        if all(isinstance(value, (int, float)) for values in printed for value in values):
            intervals = tuple((float(low), float(high)) for low, high in printed)
        else:
            wording = {state: tuple(map(str, forms)) for state, forms in zip(states, printed, strict=True)}
    organisms = {
        states.index(state): (int(itemid), name_of_it)
        for state, (itemid, name_of_it) in (entry.get("organism") or {}).items()
    }
    words = wording and tuple(wording[state] for state in states)
    mention, line = float(entry.get("mention", 1.0)), entry.get("line", "")
    return Finding(name, states, table, measure, intervals, words, organisms or None, mention, line)


def distribution(short_form: Any, states: Sequence[str], base: np.ndarray | None = None) -> np.ndarray:
    """Probabilities of the states from their short form: a number (of the second of two states), or a
    dictionary, whose remaining mass spreads over the other states in proportion to ``base``."""
    if isinstance(short_form, (int, float)):
        short_form = {states[1]: short_form}
    p = np.array([float(short_form.get(state, 0.0)) for state in states])
    missing = np.array([state not in short_form for state in states])
    rest = 1.0 - p.sum()
    if missing.any() and base is not None and rest > 0:
        p[missing] = rest * base[missing] / base[missing].sum()
    return p / p.sum()


def _site(
    name: str, entry: Mapping, diseases: Sequence[Disease], exams: Mapping[str, Examination], others: Mapping[str, Site]
) -> Site:
    """A hospital from its entry: its mix of diseases, the odds that an examination is available, its style."""
    fields = _fields(entry)
    mix, odds, styles = fields.pop("mix", {}), fields.pop("availability", {}), fields.pop("written_as", ())
    weights = np.array([disease.weight * mix.get(disease.code, 1.0) for disease in diseases])
    availability = [1.0] * len(exams)
    for place, exam in enumerate(exams.values()):
        if exam.available < 1:
            ratio = exam.available / (1 - exam.available) * odds.get(exam.kind, 1.0) * odds.get(exam.name, 1.0)
            availability[place] = ratio / (1 + ratio)
    plain = Site(name=name, weights=weights / weights.sum(), availability=np.array(availability), **fields)
    # In each style the words and the layout are another site's, the units its own.
    words = [{key: getattr(others[style], key) for key in ("column", "labels", "names", "layout")} for style in styles]
    return replace(plain, styles=tuple(replace(plain, **style) for style in words))
