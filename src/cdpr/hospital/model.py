"""The hospital's model: diseases, findings and their disease-conditional probabilities, read from ``data/*.yaml``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import numpy as np

from ..cases import diagnoses, examinations
from ..settings.datasets import IN_DOMAIN

KINDS = ("laboratory", "microbiology", "imaging", "procedure", "physical")
_LAYOUTS = ("note", "list", "table")


class HospitalError(ValueError):
    """A model file that cannot be used; the message names the entry and what is wrong with it."""


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
    itemid: int | None = None
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
    a symptom is spoken of at all.
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
    """One hospital: its disease mix, what it offers, and how it writes. ``styles`` are those of a site that writes now
    like one hospital, now like another, and has no style of its own."""

    name: str
    number: int
    weights: np.ndarray
    availability: np.ndarray
    column: int = 0
    labels: str = "label"
    names: int | None = None
    si: bool = False
    layout: str = "note"
    styles: tuple[Site, ...] = ()

    def style(self, rng: np.random.Generator) -> Site:
        """This site with the style of one of its texts."""
        return self.styles[int(rng.integers(len(self.styles)))] if self.styles else self

    def exam_name(self, exam: Examination) -> str:
        """What this hospital calls an examination."""
        return exam.name if self.names is None or not exam.elsewhere else exam.elsewhere[self.names]

    def label(self, measure: Measure) -> str:
        """What this hospital calls a laboratory quantity."""
        return getattr(measure, self.labels)

    def every_label(self, measure: Measure) -> tuple[str, ...]:
        """All that a laboratory quantity may be called here, the longest first: one name may begin another."""
        return tuple(sorted({style.label(measure) for style in self.styles or (self,)}, key=len, reverse=True))

    def phrase(self, finding: Finding, state: int) -> str:
        """How this hospital words a state; empty for one that it does not speak of."""
        written = finding.wording[state]
        return written if isinstance(written, str) else written[self.column]

    def every_phrase(self, finding: Finding, state: int) -> tuple[str, ...]:
        """All that a state may be called here."""
        return tuple(dict.fromkeys(style.phrase(finding, state) for style in self.styles or (self,)))


@dataclass(frozen=True, eq=False)
class Hospital:
    """The whole model. Arrays over diseases follow the order of ``diseases``."""

    diseases: tuple[Disease, ...]
    presentation: tuple[Finding, ...]
    examinations: dict[str, Examination]
    sites: dict[str, Site]

    def site(self, dataset: str) -> Site:
        """The hospital behind a data set; cases from elsewhere are read like in-domain ones."""
        return self.sites.get(dataset, self.sites[IN_DOMAIN])


@functools.cache
def load_hospital() -> Hospital:
    """The shipped model. Raises :class:`HospitalError`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def read(name: str) -> dict:
        return yaml.load(resources.files(__package__).joinpath("data", name).read_text(encoding="utf-8"), loader)

    exams: dict[str, Any] = {}
    for name in ("laboratory.yaml", "laboratory_2.yaml", "imaging.yaml", "physical.yaml"):
        exams |= read(name)
    return build_hospital(read("diseases.yaml")["diseases"], read("presentation.yaml"), exams, read("sites.yaml"))


def build_hospital(diseases_: Mapping, presentation: Mapping, exams: Mapping, sites: Mapping) -> Hospital:
    """A validated model from plain dictionaries laid out as the YAML files. Raises :class:`HospitalError`."""
    known = tuple(Disease(code=code, **_fields(entry)) for code, entry in diseases_.items())
    for disease in known:
        _demand(diagnoses().find(disease.name), disease.code, f"{disease.name!r} is not in cases/data/diagnoses.csv")
        _demand(disease.weight > 0, disease.code, "weight must be positive")
    codes = [d.code for d in known]
    told = tuple(_finding(name, entry, codes, name) for name, entry in presentation.items())
    offered = {name: _examination(name, entry, codes) for name, entry in exams.items()}
    owners: dict[tuple[str, str], str] = {}
    for exam in offered.values():
        for finding in exam.findings:
            if finding.measure is not None and exam.kind == "laboratory":
                key = (finding.measure.label, finding.measure.fluid)
                owner = owners.setdefault(key, exam.name)
                _demand(owner == exam.name, exam.name, f"analyte {key} belongs to {owner!r} already")
    written: dict[str, Site] = {}
    for name, entry in sites.items():
        written[name] = _site(name, entry, known, offered, written)
    hospital = Hospital(known, told, offered, written)
    for site in hospital.sites.values():
        _check_wording(hospital, site)
    return hospital


def _demand(condition: object, where: str, problem: str) -> None:
    if not condition:
        raise HospitalError(f"hospital model, {where}: {problem}")


def _fields(entry: Mapping) -> dict[str, Any]:
    """An entry as the fields of its dataclass, lists as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}


def _examination(name: str, entry: Mapping, codes: Sequence[str]) -> Examination:
    kind = entry.get("kind")
    _demand(kind in KINDS, name, f"kind {kind!r} is none of {', '.join(KINDS)}")
    for spelling in filter(None, (name, *entry.get("elsewhere", ()), entry.get("report"))):
        term = examinations().find(spelling)
        _demand(term, name, f"{spelling!r} is not in cases/data/examinations.csv")
        _demand(term.name == name, name, f"{spelling!r} names {term.name!r} in cases/data/examinations.csv")
    _demand(0 < entry["available"] <= 1, name, "available must be a probability above 0")
    findings = tuple(_finding(f, e, codes, name) for f, e in entry["findings"].items())
    _demand(1 <= len(findings) <= 4, name, f"has {len(findings)} findings; expected 1 to 4")
    return Examination(**_fields(entry) | {"name": name, "findings": findings})


def _finding(name: str, entry: Mapping, codes: Sequence[str], where: str) -> Finding:
    where = f"{where} / {name}"
    described = entry.get("states", entry.get("default"))
    states = tuple(described)
    table = np.tile(distribution(entry["default"], states, None, f"{where} default"), (len(codes), 1))
    base, seen = table[0].copy(), set()
    for group, given in (entry.get("given") or {}).items():
        for code in group.split(", "):
            _demand(code in codes, where, f"unknown disease code {code!r} under given")
            _demand(code not in seen, where, f"{code} stands twice under given")
            seen.add(code)
            table[codes.index(code)] = distribution(given, states, base, f"{where} given {code}")
    table.setflags(write=False)
    measure = _measure(entry["analyte"], where) if "analyte" in entry else None
    intervals, wording = None, entry.get("wording")
    if measure is not None:
        _demand(wording is None, where, "a laboratory quantity is printed as its states say, without a wording")
        values = [tuple(described[s]) for s in states]
        if all(isinstance(v, (int, float)) for pair in values for v in pair):
            intervals = tuple((float(lo), float(hi)) for lo, hi in values)
            rising = all(lo <= hi for lo, hi in intervals)
            rising = rising and all(a[1] < b[0] for a, b in itertools.pairwise(intervals))
            _demand(rising, where, "intervals must be disjoint and in rising order")
        else:
            _demand(all(len(v) == 3 for v in values), where, "each printed value needs three forms, one a site")
            wording = {state: tuple(map(str, forms)) for state, forms in zip(states, values, strict=True)}
    else:
        _demand(wording is not None and set(wording) == set(states), where, "wording must cover exactly the states")
        for state in states:
            _demand(isinstance(wording[state], str), where, f"{state!r} must be worded in one phrase")
    organisms = {states.index(s): (int(o[0]), o[1]) for s, o in (entry.get("organism") or {}).items()}
    return Finding(
        name, states, table, measure, intervals, wording and tuple(wording[s] for s in states), organisms or None,
        float(entry.get("mention", 1.0)), entry.get("line", ""),
    )  # fmt: skip


def distribution(given: Any, states: Sequence[str], base: np.ndarray | None, where: str) -> np.ndarray:
    """Probabilities of the states from their short form: a number (of the second of two states), or a
    dictionary, whose remaining mass spreads over the unnamed states in proportion to ``base``."""
    if isinstance(given, (int, float)):
        _demand(len(states) == 2, where, "a single number needs exactly two states")
        given = {states[1]: given}
    unknown = [s for s in given if s not in states]
    _demand(not unknown, where, f"unknown state {unknown[0] if unknown else ''!r}; states are {list(states)}")
    p = np.array([float(given.get(s, 0.0)) for s in states])
    _demand((p >= 0).all(), where, "negative probability")
    missing = np.array([s not in given for s in states])
    rest = 1.0 - p.sum()
    if missing.any() and base is not None and rest > 0:
        p[missing] = rest * base[missing] / base[missing].sum()
    _demand(abs(p.sum() - 1.0) < 1e-6, where, f"probabilities sum to {p.sum():.6g}, not 1")
    return p / p.sum()


def _measure(entry: Mapping, where: str) -> Measure:
    unknown = set(entry) - set(Measure.__dataclass_fields__)
    _demand(not unknown, where, f"unknown analyte field {sorted(unknown)}")
    return Measure(**_fields(entry))


def _site(
    name: str, entry: Mapping, known: Sequence[Disease], exams: Mapping[str, Examination], others: Mapping[str, Site]
) -> Site:
    fields = _fields(entry)
    mix, odds, styles = fields.pop("mix", {}), fields.pop("availability", {}), fields.pop("written_as", ())
    codes = [d.code for d in known]
    _demand(set(mix) <= set(codes), f"site {name}", f"unknown disease in mix: {sorted(set(mix) - set(codes))}")
    stray = set(odds) - set(exams) - set(KINDS)
    _demand(not stray, f"site {name}", f"unknown examination in availability: {sorted(stray)}")
    weights = np.array([d.weight * mix.get(d.code, 1.0) for d in known])
    offered = []
    for exam in exams.values():
        if exam.available >= 1:
            offered.append(1.0)
            continue
        ratio = exam.available / (1 - exam.available) * odds.get(exam.kind, 1.0) * odds.get(exam.name, 1.0)
        offered.append(ratio / (1 + ratio))
    layout = fields.get("layout", Site.layout)
    _demand(layout in _LAYOUTS, f"site {name}", f"layout {layout!r} is none of {', '.join(_LAYOUTS)}")
    plain = Site(name=name, weights=weights / weights.sum(), availability=np.array(offered), **fields)
    _demand(set(styles) <= set(others), f"site {name}", f"written_as names no site above: {[*styles]}")
    return replace(plain, styles=tuple(_in_style(plain, others[style]) for style in styles))


def _in_style(site: Site, other: Site) -> Site:
    """A site that writes as another does, in its own units."""
    style = {name: getattr(other, name) for name in ("column", "labels", "names", "layout")}
    return replace(site, **style)


def _check_wording(hospital: Hospital, site: Site) -> None:
    """Every phrase must tell its state: no two states of one text may share a phrase."""
    lines: dict[str, list[Finding]] = {}
    for finding in hospital.presentation:
        lines.setdefault(finding.line, []).append(finding)
    texts = {**lines, **{e.name: [f for f in e.findings if f.measure is None] for e in hospital.examinations.values()}}
    for where, findings in texts.items():
        meaning: dict[str, tuple[str, str]] = {}
        for finding in findings:
            for index, state in enumerate(finding.states):
                for phrase in filter(None, site.every_phrase(finding, index)):
                    said = meaning.setdefault(phrase.casefold(), (finding.name, state))
                    _demand(
                        said == (finding.name, state),
                        f"{where} at {site.name}",
                        f"{phrase!r} says both {said} and {(finding.name, state)}",
                    )
