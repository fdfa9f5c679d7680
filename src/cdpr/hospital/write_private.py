"""Patients as the private hospital's two tables, ``cases.csv`` and ``results.csv``.

The format is described in docs/reference/private-format.md: one row a case, and one row a measured
quantity or report. Names of examinations and quantities are this hospital's abbreviations.
"""

from pathlib import Path

from ..cases import SECTIONS, Analyte, diagnoses
from ..files import write_csv
from .model import Examination, Hospital, Site
from .sample import Patient, sample_patient, write_analytes, write_presentation, write_report

RESULT_COLUMNS = "case_id sequence category examination item value unit reference_low reference_high flag report"
_CATEGORIES = {"laboratory": "lab", "microbiology": "culture"}
_HISTORY = "chief_complaint present_illness past_history personal_history family_history allergy_history"


def write_private(hospital: Hospital, dataset: str, out_dir: Path, cases: int, seed: int) -> None:
    """Write ``cases.csv`` and ``results.csv`` below ``out_dir``."""
    site = hospital.site(dataset)
    people, results = [], []
    for index in range(cases):
        patient = sample_patient(hospital, site, seed, index)
        case = _case(hospital, site, patient)
        people.append(case)
        rows = [row for exam in hospital.available(patient) for row in _rows(exam, site, patient)]
        results += [{"case_id": case["case_id"], "sequence": n} | row for n, row in enumerate(rows, 1)]
    write_csv(out_dir / "cases.csv", list(people[0]), people)
    write_csv(out_dir / "results.csv", RESULT_COLUMNS.split(), results)


def _case(hospital: Hospital, site: Site, patient: Patient) -> dict:
    history = write_presentation(hospital, site, patient)
    disease = hospital.diseases[patient.disease].name
    alias = diagnoses().find(disease).aliases[0]
    return {
        "case_id": f"PH{patient.index + 1:05d}",
        "patient_id": f"P{patient.index + 1:05d}",
        "age": patient.age,
        "sex": "F" if patient.female else "M",
        **{column: history[line] for column, line in zip(_HISTORY.split(), SECTIONS[1:], strict=True)},
        "discharge_diagnosis": alias if patient.generator(904).random() < 0.4 else disease,
    }


def _rows(exam: Examination, site: Site, patient: Patient) -> list[dict]:
    row = {"category": _CATEGORIES.get(exam.kind, exam.kind), "examination": site.exam_name(exam)}
    if exam.findings[0].measure is None:
        return [row | {"report": write_report(exam, site, patient)}]
    return [row | _quantity(analyte) for analyte in write_analytes(exam, site, patient)]


def _quantity(analyte: Analyte) -> dict:
    flag = ""
    if analyte.flag is not None:
        flag = "A" if analyte.low is None else "L" if float(analyte.value) < analyte.low else "H"
    limits = {"reference_low": analyte.low, "reference_high": analyte.high}
    return {"item": analyte.label, "value": analyte.value, "unit": analyte.units, "flag": flag} | limits
