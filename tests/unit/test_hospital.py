"""The synthetic hospital: a valid model, exact inference, faithful writing and reading."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from cdpr.agents.build import agent_class
from cdpr.agents.reference import Clinician, DiscountedInformation, ValueOfInformation
from cdpr.cases import PHYSICAL_SUFFIX, CaseRecord, diagnoses, examinations, format_analytes, parse_analytes
from cdpr.environment import State, parse_action
from cdpr.files import read_table
from cdpr.hospital.model import build_hospital, distribution, load_hospital
from cdpr.hospital.posterior import Diagnostician, Interpreter, nearest_interval
from cdpr.hospital.raw_files import WRITTEN, write_hospital
from cdpr.hospital.sample import (
    physical_text,
    sample_patient,
    write_analytes,
    write_history,
    write_report,
)
from cdpr.hospital.write_benchmarks import print_analyte
from cdpr.settings import parse_settings
from cdpr.settings.schema import HospitalSettings

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from calibrate_hospital import policies, work_up

PAPER_EXAMINATIONS = """Complete Blood Count, Comprehensive Metabolic Panel, Liver Function Test, Kidney Function
Tests, Urine Analysis, Coagulation Profile, Troponin, Lactate, Blood Culture, Urine Culture, Arterial Blood Gas, Lipase,
D-dimer, Thyroid Function Tests, Blood Glucose, HbA1c, Procalcitonin, BNP/NT-proBNP, Iron Studies, Vitamin B12/Folate,
Chest X-ray, CT Abdomen and Pelvis, CT Head, CT Chest, Abdominal Ultrasound, Echocardiography, ECG, MRI Brain,
Lumbar Puncture, Endoscopy""".replace("\n", " ").split(", ")
PAPER_DIAGNOSES = """Pneumonia, Urinary tract infection, Acute appendicitis, Cellulitis, Acute pancreatitis, Acute
cholecystitis, Heart failure, Subarachnoid hemorrhage, Acute kidney injury, Upper GI bleed, Sepsis, Pulmonary embolism,
Diabetic ketoacidosis, Acute myocardial infarction, Stroke, Bowel obstruction, Deep vein thrombosis"""
PAPER_DIAGNOSES = PAPER_DIAGNOSES.replace("\n", " ").split(", ")


def result_text(exam, site, patient) -> str:
    """A result as a case record of this site holds it."""
    if exam.findings[0].measure is None:
        return write_report(exam, site, patient)
    if exam.kind == "physical":
        return physical_text(exam, site, patient)
    analytes = write_analytes(exam, site, patient)
    if site.name == "clinicalbench":
        return "; ".join(map(print_analyte, analytes))
    return format_analytes(analytes)


def summary(hospital, site, patient) -> str:
    person = f"- Patient Information: {patient.age} year old {'female' if patient.female else 'male'}"
    history = write_history(hospital, site, patient)
    return "\n".join([person, *(f"- {line}: {text}" for line, text in history.items())])


def record(hospital, site, patient) -> CaseRecord:
    results = {
        name + (PHYSICAL_SUFFIX if exam.kind == "physical" else ""): result_text(exam, site, patient)
        for name, exam in hospital.examinations.items()
        if name in patient.available
    }
    truth = hospital.diseases[patient.disease].name
    return CaseRecord(note_id=f"{site.name}-{patient.index}", case_summary=summary(hospital, site, patient),
                      key_pertinent_results_dict=results, final_diagnosis=truth, diagnosis_results=truth,
                      dataset=site.name, split="test", subject_key=str(patient.index), credentialed=False)  # fmt: skip


def test_model_is_valid_and_covers_the_paper():
    hospital = load_hospital()
    assert len(hospital.diseases) >= 24 and {d.name for d in hospital.diseases} >= set(PAPER_DIAGNOSES)
    orderable = {n for n, e in hospital.examinations.items() if e.kind != "physical"}
    assert len(orderable) >= 45 and orderable >= set(PAPER_EXAMINATIONS)
    for finding in [*hospital.presentation, *(f for e in hospital.examinations.values() for f in e.findings)]:
        assert finding.table.shape == (len(hospital.diseases), len(finding.states))
        assert (finding.table >= 0).all() and np.allclose(finding.table.sum(axis=1), 1, atol=1e-12)
        # No result proves or excludes a disease outright: a model that says "never" cannot be argued with.
        if finding.informative:
            assert finding.table.min() > 0


def test_names_phrases_and_intervals_of_the_model_are_unambiguous():
    hospital, owners = load_hospital(), {}
    assert all(diagnoses().find(disease.name) and disease.weight > 0 for disease in hospital.diseases)
    for name, exam in hospital.examinations.items():
        assert {examinations().find(title).name for title in (name, *exam.elsewhere, exam.report) if title} == {name}
        assert 0 < exam.available <= 1 and 1 <= len(exam.findings) <= 4
        for finding in exam.findings:
            if finding.intervals is not None:
                bounds = [bound for interval in finding.intervals for bound in interval]
                assert bounds == sorted(bounds)
                assert all(low[1] < high[0] for low, high in itertools.pairwise(finding.intervals))
            elif finding.measure is not None:
                assert all(len(forms) == 3 for forms in finding.wording), "one form a site"
            if exam.kind == "laboratory":
                assert owners.setdefault((finding.measure.labels[0], finding.measure.fluid), name) == name
    lines = [[f for f in hospital.presentation if f.line == line] for line in {f.line for f in hospital.presentation}]
    worded = [[f for f in exam.findings if f.measure is None] for exam in hospital.examinations.values()]
    for site, findings in itertools.product(hospital.sites.values(), [*lines, *worded]):
        meaning = {}
        for finding in findings:
            for state in range(len(finding.states)):
                for phrase in filter(None, site.every_phrase(finding, state)):
                    assert meaning.setdefault(phrase.casefold(), (finding.name, state)) == (finding.name, state)


def test_short_forms_of_distributions():
    assert distribution(0.25, ["no", "yes"], np.array([0.9, 0.1])) == pytest.approx([0.75, 0.25])
    base = np.array([0.5, 0.3, 0.2])
    assert distribution({"low": 0.2}, ["low", "normal", "high"], base) == pytest.approx([0.2, 0.48, 0.32])


SMALL = (
    {
        "PAN": {"name": "Acute pancreatitis", "weight": 2, "age": [50, 20], "female": 0.4},
        "PER": {"name": "Acute pericarditis", "weight": 1, "age": [40, 15], "female": 0.3},
        "HF": {"name": "Heart failure", "weight": 3, "age": [70, 12], "female": 0.5},
    },
    {"rub": {"line": "Chief Complaint", "default": {"no": 0.9, "yes": 0.1}, "given": {"PER": 0.6},
             "wording": {"no": "well", "yes": "bad"}}},
    {"Lipase": {"kind": "laboratory", "available": 0.9, "elsewhere": ["Serum Lipase", "Lipase Level"], "findings": {
        "a": {"analyte": {"labels": ["A", "A", "A"], "range": [0, 10]},
              "intervals": {"normal": [0, 10], "high": [20, 30]}, "default": {"normal": 0.9, "high": 0.1},
              "given": {"PAN": 0.8}},
        "b": {"analyte": {"labels": ["B", "B", "B"], "range": [0, 10]},
              "intervals": {"normal": [0, 10], "high": [20, 30], "highest": [40, 50]},
              "default": {"normal": 0.7, "high": 0.2, "highest": 0.1}, "given": {"HF": {"highest": 0.5}}},
    }}},
    {"mimic_iv": {"number": 0, "mix": {"PER": 2.0}}},
)  # fmt: skip


def test_posterior_and_planning_equal_enumeration():
    hospital = build_hospital(*SMALL)
    doctor = Diagnostician(hospital)
    exam = hospital.examinations["Lipase"]
    weights = np.array([2.0, 2.0, 3.0])
    rub, (a, b) = hospital.presentation[0].table, (f.table for f in exam.findings)
    ages = np.arange(18, 90)
    density = np.exp(-0.5 * ((ages - np.array([[50], [40], [70]])) / np.array([[20], [15], [12]])) ** 2)
    density /= density.sum(axis=1, keepdims=True)
    women = np.array([0.4, 0.3, 0.5])
    joint = weights * density[:, 61 - 18] * women * rub[:, 1]
    prior = doctor.prior("- Patient Information: 61 year old female\n- Chief Complaint: bad")
    np.testing.assert_allclose(prior, joint / joint.sum(), rtol=1e-12)
    after = doctor.update(prior, "serum lipase", "A: Value: 24; B: Value: 45")
    joint = joint * a[:, 1] * b[:, 2]
    np.testing.assert_allclose(after, joint / joint.sum(), rtol=1e-12)
    expected = sum(
        max(prior[d] * a[d, i] * b[d, j] for d in range(3)) for i, j in itertools.product(range(2), range(3))
    )
    np.testing.assert_allclose(doctor.expected_best(prior), [expected], rtol=1e-12)
    assert doctor.update(prior, "Lipase", "A: Value: ___; B: Comments: haemolysed") is prior
    assert doctor.update(prior, "Unknown Scan", "A: Value: 24") is prior
    doctor._women = np.ones(3)  # a model without men
    np.testing.assert_allclose(doctor.posterior(61, False, {}), weights / weights.sum())


@pytest.mark.parametrize("dataset", WRITTEN)
def test_reading_inverts_writing(dataset):
    hospital = load_hospital()
    site = hospital.site(dataset)
    reader = Interpreter(hospital, site)
    for index in range(40):
        patient = sample_patient(hospital, site, 3, index)
        age, female, symptoms = reader.presentation(summary(hospital, site, patient))
        states = dict(zip((f.name for f in hospital.presentation), patient.symptoms, strict=True))
        assert (age, female) == (patient.age, patient.female)
        assert symptoms == {name: state for name, state in states.items() if state >= 0}
        for name, exam in hospital.examinations.items():
            text = result_text(exam, site, patient)
            truth = dict(zip((f.name for f in exam.findings), patient.results[name], strict=True))
            assert reader.examination(exam, text) == truth, (name, text)


def test_every_boundary_value_is_read_back():
    """Rounding and unit conversion never move a printed value into another state."""
    hospital = load_hospital()
    for site in hospital.sites.values():
        for exam in hospital.examinations.values():
            for finding in exam.findings:
                if finding.intervals is None:
                    continue
                factor = finding.measure.si[1] if site.si else 1.0
                digits = max(0, finding.measure.decimals - round(np.log10(factor)))
                for state, bounds in enumerate(finding.intervals):
                    for bound in bounds:
                        printed = float(f"{bound * factor:.{digits}f}")
                        assert nearest_interval(finding.intervals, printed / factor) == state, (finding.name, bound)


def test_microbiology_is_read_from_the_organism_alone():
    hospital = load_hospital()
    reader = Interpreter(hospital, hospital.site("mimic_iv"))
    culture = hospital.examinations["Urine Culture"]
    assert reader.examination(culture, "Organism: KLEBSIELLA PNEUMONIAE; Interpretation: CIPROFLOXACIN S") == {
        "urine growth": 2
    }
    assert reader.examination(culture, "Cancelled.") == {}


def test_posterior_is_calibrated():
    """Where the posterior says p, the leading disease is right in a share p of the cases."""
    hospital = load_hospital()
    doctor = Diagnostician(hospital)
    lambdas = {"test": 0.05, "cost": 0.02, "na": 0.1, "unit": 7.0}
    choose, turns = policies(doctor, lambdas, np.random.default_rng(0))["value_one_step"]
    said, right = [], []
    for index in range(1500):
        patient = sample_patient(hospital, doctor.site, 5, index)
        symptoms = {f.name: s for f, s in zip(hospital.presentation, patient.symptoms, strict=True) if s >= 0}
        seen = []
        done = work_up(doctor, patient, lambda p, asked, seen=seen: (seen.append(p), choose(p, asked))[1], turns)
        said += [doctor.posterior(patient.age, patient.female, symptoms).max(), seen[-1].max()]
        first = doctor.posterior(patient.age, patient.female, symptoms).argmax() == patient.disease
        right += [float(first), done.correct]
    said, right = np.array(said), np.array(right)
    bins = np.digitize(said, np.linspace(0.2, 1, 9)[1:-1])
    gap = sum(abs(said[bins == k].mean() - right[bins == k].mean()) * (bins == k).mean() for k in np.unique(bins))
    assert gap < 0.035


def test_patients_depend_on_seed_and_index_alone():
    hospital = load_hospital()
    site = hospital.site("mimic_iv")
    alone = sample_patient(hospital, site, 7, 11)
    after_others = [sample_patient(hospital, site, 7, i) for i in range(12)][11]
    assert vars(alone) == vars(after_others)
    assert vars(sample_patient(hospital, site, 8, 11)) != vars(alone)
    again = sample_patient(hospital, site, 7, 11, admission=1, same=alone)
    assert (again.age, again.female) == (alone.age, alone.female)


def test_same_seed_same_bytes(tmp_path):
    settings = HospitalSettings(mimic_patients=12, clinicalbench_cases=6, private_cases=6, textbook_cases=6)
    digests = []
    for name in ("one", "two"):
        write_hospital(settings, tmp_path / name)
        files = sorted(p for p in (tmp_path / name).rglob("*") if p.is_file())
        digests.append({p.relative_to(tmp_path / name): hashlib.sha256(p.read_bytes()).hexdigest() for p in files})
    assert digests[0] == digests[1] and len(digests[0]) == 12
    for table in ("radiology", "discharge"):
        ids = [row["note_id"] for _, row in read_table(tmp_path / f"one/mimic_iv/note/{table}.csv.gz", ["note_id"])]
        assert len(set(ids)) == len(ids) >= 12, "no number is given twice"


def test_sites_differ():
    hospital = load_hospital()
    home = hospital.site("mimic_iv")
    for name in ("clinicalbench", "private"):
        away = hospital.site(name)
        assert 0.5 * np.abs(home.weights - away.weights).sum() > 0.1
        assert np.abs(home.availability - away.availability).max() > 0.15
        patient = sample_patient(hospital, away, 3, 0)
        for exam in hospital.examinations.values():
            at_home, elsewhere = result_text(exam, home, patient), result_text(exam, away, patient)
            if exam.findings[0].measure is None:
                assert at_home == elsewhere, "clinicians everywhere use the same words"
            else:
                assert at_home != elsewhere
            if exam.kind == "laboratory" and parse_analytes(elsewhere):
                assert away.exam_name(exam) != exam.name


def test_discounted_information_weighs_every_charge_at_a_quarter():
    """It orders what value of information orders where all of the utility's charges are a quarter."""
    hospital, usual = load_hospital(), parse_settings({"utility": {"cost_unit_usd": 7}})
    charges = {name: getattr(usual.utility, name) / 4 for name in ("lambda_test", "lambda_cost", "lambda_na")}
    cheap = parse_settings({"utility": {"cost_unit_usd": 7, **charges}})
    agents = DiscountedInformation(usual), ValueOfInformation(cheap), ValueOfInformation(usual)
    site, others = hospital.site("mimic_iv"), 0
    for index in range(25):
        state = State(record(hospital, site, sample_patient(hospital, site, 3, index)))
        discounted, same, dear = (agent.choose(state, 0) for agent in agents)
        assert discounted == same
        others += discounted != dear
    assert others, "which is not what it orders at full charges"


def test_reference_agents_speak_the_grammar_and_depend_on_their_arguments():
    hospital = load_hospital()
    settings = parse_settings({})
    case = record(hospital, hospital.site("mimic_iv"), sample_patient(hospital, hospital.site("mimic_iv"), 3, 1))
    reference = [agent_class(entry) for entry in settings.agents.values() if entry.knows_hospital]
    assert len(reference) == 6
    for agent in [*reference, Clinician]:
        for seed in range(3):
            turns = [asyncio.run(agent(settings, "mimic_iv").act(State(case), f, seed))
                     for f in (False, False, True)]  # fmt: skip
            assert turns[0] == turns[1]
            assert type(parse_action(turns[0].text)).__name__ in ("RequestTest", "FinalDiagnosis")
            assert type(parse_action(turns[2].text)).__name__ == "FinalDiagnosis"
