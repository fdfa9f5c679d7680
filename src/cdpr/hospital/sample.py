"""Draws patients from the model of the synthetic hospital, and writes the texts of their records."""

import bisect
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..cases import Analyte
from .model import Examination, Finding, Hospital, Site

AGES = np.arange(18, 90)  # in years; all patients are adults


@dataclass(frozen=True, eq=False)
class Patient:
    """One admission of a patient: the true disease, and the content of the record.

    ``index`` is the number of the person at the site, ``admission`` 0 for the first admission and 1 for a second.
    ``disease`` is an index of :attr:`Hospital.diseases`. ``symptoms`` has the index of one state per presentation
    finding (-1: not mentioned). ``results`` has by the name of each examination the states (indices) of its findings.
    ``available`` are the names of the examinations in the record. ``seed`` fixes every random number, so that the same
    patient always has the same record.
    """

    index: int
    admission: int
    disease: int
    age: int
    female: bool
    symptoms: tuple[int, ...]
    results: dict[str, tuple[int, ...]]
    available: frozenset[str]
    seed: tuple[int, ...]

    def generator(self, purpose: int) -> np.random.Generator:
        """Make a new random number generator for one ``purpose`` (any whole number from 0). Generators for different
        purposes are independent."""
        return np.random.default_rng([*self.seed, 1 + purpose])  # a seed that ends with 0 draws the patient itself


@functools.cache
def age_table(hospital: Hospital) -> np.ndarray:
    """Compute P(age | disease), shape [diseases, 72], for the ages from 18 to 89 in whole years. It is a truncated
    normal distribution."""
    mean, spread = np.array([d.age for d in hospital.diseases]).T[:, :, None]  # each [diseases, 1]
    density = np.exp(-0.5 * ((AGES[None, :] - mean) / spread) ** 2)
    table = density / density.sum(axis=1, keepdims=True)
    table.setflags(write=False)
    return table


def sample_patient(
    hospital: Hospital, site: Site, seed: int, index: int, admission: int = 0, same: Patient | None = None
) -> Patient:
    """Draw patient ``index`` of a site from the model. Equal arguments give the same patient.

    ``same`` is an earlier admission of the person, None for the first one. Another ``admission`` keeps its age and sex,
    and the disease is drawn from P(disease | age, sex). So every single admission follows the model.
    """
    key = (seed, site.number, index, admission)
    rng = np.random.default_rng([*key, 0])
    weights, ages = site.weights, age_table(hospital)
    if same is not None:
        women = np.array([d.female for d in hospital.diseases])
        # P(disease | age, sex) is in proportion to P(disease) P(age | disease) P(sex | disease).
        weights = weights * ages[:, same.age - AGES[0]] * (women if same.female else 1 - women)
    disease = _sample_index(rng, np.cumsum(weights / weights.sum()))
    age = same.age if same else int(AGES[_sample_index(rng, np.cumsum(ages[disease]))])
    female = same.female if same else bool(rng.random() < hospital.diseases[disease].female)
    symptoms = tuple(_sample_symptom(rng, finding, disease) for finding in hospital.presentation)
    results = {
        name: tuple(_sample_index(rng, finding.cumulative[disease]) for finding in exam.findings)
        for name, exam in hospital.examinations.items()
    }
    is_available = rng.random(len(results)) < site.availability
    available = frozenset(name for name, present in zip(results, is_available, strict=True) if present)
    return Patient(index, admission, disease, age, female, symptoms, results, available, key)


def _sample_index(rng: np.random.Generator, cumulative: Sequence[float] | np.ndarray) -> int:
    """Draw an index i with probability ``cumulative[i] - cumulative[i - 1]``, by inversion: it is the first index whose
    cumulative probability exceeds a uniform random number."""
    index = bisect.bisect_right(cumulative, rng.random())
    return min(index, len(cumulative) - 1)  # the last cumulative probability may be rounded below 1


def _sample_symptom(rng: np.random.Generator, finding: Finding, disease: int) -> int:
    """Sample the state (an index) of a presentation finding, given the index of the disease. Returns -1 where the
    history does not mention the finding."""
    mentioned = rng.random() < finding.mention
    state = _sample_index(rng, finding.cumulative[disease])  # always drawn, so that later draws do not depend on it
    return state if mentioned else -1


def write_measure(finding: Finding, state: int, site: Site, rng: np.random.Generator) -> Analyte:
    """Return a laboratory finding in the given ``state`` (an index) as the site reports it: with label, value, unit,
    reference range, and a flag if it is abnormal. The value is drawn by ``rng`` from the interval of the state. Where
    states have no intervals, it is the phrase of the state."""
    measure = finding.quantity
    if finding.intervals is None or measure.range is None:
        abnormal = "abnormal" if state > 0 else None  # the first state is the normal one
        return Analyte(site.label(measure), site.phrase(finding, state), flag=abnormal)
    low, high = finding.intervals[state]
    # In a wide interval (its ends differ by more than a factor of 6) the logarithm of the value is uniform.
    is_wide = low > 0 and high / low > 6
    value = float(np.exp(rng.uniform(np.log(low), np.log(high))) if is_wide else rng.uniform(low, high))
    value = round(min(max(value, low), high), measure.decimals)
    units, factor = measure.si if site.si else (measure.units, 1.0)
    decimals = max(0, measure.decimals - round(float(np.log10(factor))))  # the same precision in other units
    lowest, highest = (round(bound * factor, decimals) for bound in measure.range)
    flag = None if measure.range[0] <= value <= measure.range[1] else "abnormal"
    return Analyte(site.label(measure), f"{value * factor:.{decimals}f}", units or None, lowest, highest, flag)


def write_history(hospital: Hospital, site: Site, patient: Patient) -> dict[str, str]:
    """Write the history of a patient: the text of each line of the case summary by its heading. The first line, with
    age and sex, is not part of it."""
    lines: dict[str, list[str]] = {}
    for finding, state in zip(hospital.presentation, patient.symptoms, strict=True):
        phrases = lines.setdefault(finding.line, [])
        phrase = site.phrase(finding, state) if state >= 0 else ""
        if phrase:
            phrases.append(phrase)
    text = {line: ", ".join(phrases) for line, phrases in lines.items()}
    # A past history is never blank. It and the present illness are sentences, which end with a full stop.
    text["Past Medical History"] = text["Past Medical History"] or "None"
    for line in ("History of Present Illness", "Past Medical History"):
        text[line] = text[line].rstrip(".") + "."
    return text


def write_report(exam: Examination, site: Site, patient: Patient) -> str:
    """Write the report of an examination in words: one sentence per finding."""
    phrases = [site.phrase(f, s) for f, s in zip(exam.findings, patient.results[exam.name], strict=True)]
    return " ".join(phrase if phrase.endswith(".") else phrase + "." for phrase in phrases)


def write_analytes(exam: Examination, site: Site, patient: Patient) -> list[Analyte]:
    """Print the laboratory values of an examination, one for each finding. The patient's own random numbers draw them,
    so equal calls give equal values."""
    rng = patient.generator(1 + list(patient.results).index(exam.name))  # one generator for each examination: 1, 2, ...
    return [write_measure(f, s, site, rng) for f, s in zip(exam.findings, patient.results[exam.name], strict=True)]


def physical_text(exam: Examination, site: Site, patient: Patient) -> str:
    """Write the findings in one system of the body as a physical examination shows them after a heading: in sentences,
    or as numbers such as ``Temp 38.1, HR 104, O2 sat 97%``."""
    if exam.findings[0].measure is None:
        return write_report(exam, site, patient)
    numbers = write_analytes(exam, site, patient)
    return ", ".join(f"{a.label} {a.value}{'%' if a.units == '%' else ''}" for a in numbers)
