"""Patients as the private hospital's two tables, ``cases.csv`` and ``results.csv``.

The format is described in docs/reference/private-format.md: one row a case, and one row a measured
quantity or report. Names of examinations and quantities are this hospital's abbreviations, and sentences
are telegraphic.
"""

from __future__ import annotations

from pathlib import Path

from ..cases import diagnoses
from .files import write_csv
from .model import Examination, Hospital, Site
from .sample import Patient, sample_patient, write_analytes, write_presentation, write_report

CASE_COLUMNS = (
    "case_id patient_id age sex chief_complaint present_illness past_history personal_history family_history "
    "allergies final_diagnosis"
)
RESULT_COLUMNS = "case_id item category analyte value unit reference_low reference_high report"


def write_private(hospital: Hospital, out_dir: str | Path, cases: int, seed: int) -> None:
    """Write ``cases.csv`` and ``results.csv`` below ``out_dir``."""
    site = hospital.site("private")
    people, results = [], []
    for index in range(cases):
        patient = sample_patient(hospital, site, seed, index)
        people.append(_case(hospital, site, patient))
        rows = [
            row
            for exam in hospital.examinations.values()
            if exam.name in patient.offered
            for row in _rows(exam, site, patient)
        ]
        results += [{"case_id": _case_id(patient)} | row for row in rows]
    write_csv(Path(out_dir) / "cases.csv", CASE_COLUMNS.split(), people)
    write_csv(Path(out_dir) / "results.csv", RESULT_COLUMNS.split(), results)


def _case_id(patient: Patient) -> str:
    return f"PH{patient.index + 1:05d}"


def _case(hospital: Hospital, site: Site, patient: Patient) -> dict:
    told = write_presentation(hospital, site, patient)
    disease = hospital.diseases[patient.disease].name
    aliases = diagnoses().find(disease).aliases
    rng = patient.generator(904)
    spelling = aliases[0] if rng.random() < 0.4 else disease
    return {
        "case_id": _case_id(patient),
        "patient_id": f"P{patient.index + 1:05d}",
        "age": patient.age,
        "sex": "F" if patient.female else "M",
        "chief_complaint": told["Chief Complaint"],
        "present_illness": told["History of Present Illness"],
        "past_history": told["Past Medical History"],
        "personal_history": told["Personal History"],
        "family_history": told["Family History"],
        "allergies": told["Allergy History"],
        "final_diagnosis": spelling,
    }


def _rows(exam: Examination, site: Site, patient: Patient) -> list[dict]:
    row = {"item": site.exam_name(exam), "category": exam.kind}
    if exam.findings[0].measure is None:
        return [row | {"report": write_report(exam, site, patient)}]
    return [
        row
        | {
            "analyte": a.label,
            "value": a.value,
            "unit": a.units or "",
            "reference_low": "" if a.low is None else a.low,
            "reference_high": "" if a.high is None else a.high,
        }
        for a in write_analytes(exam, site, patient)
    ]
