"""Patients as a ClinicalBench-format file: a JSON list of cases with 14 keys.

Laboratory values are in SI units under long names, panels and imaging bear other names than in-domain,
and ``clinical_case_summary`` holds the physical examination and all auxiliary results, as in the original.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..cases import SECTIONS, Analyte, diagnoses, format_analytes
from ..files import write_bytes
from .mimic_notes import physical_text
from .model import Examination, Hospital, Site
from .sample import Patient, sample_patient, write_analytes, write_presentation, write_report

_DEPARTMENTS = {
    "cardiovascular": "Cardiology",
    "respiratory": "Pulmonology",
    "gastrointestinal": "Gastroenterology",
    "renal": "Nephrology",
    "neurological": "Neurology",
    "endocrine": "Endocrinology",
}
_ABSENT = "Not available."
# Names of the published benchmark, where it has others than a hospital's; it writes all with underscores.
_PUBLISHED = {
    "Complete Blood Count": "routine_blood_test",
    "Urine Analysis": "routine_urine_test",
    "Liver Function Test": "liver_function_test",
    "Kidney Function Tests": "renal_function_test",
    "Coagulation Profile": "coagulation_function",
    "ECG": "electrocardiogram",
    "Echocardiography": "echocardiogram",
}
_EVERY = 10  # one case in so many bears the published names


def write_clinicalbench(hospital: Hospital, out_dir: str | Path, cases: int, seed: int) -> None:
    """Write ``clinicalbench.json`` below ``out_dir``."""
    _write(hospital, "clinicalbench", Path(out_dir), cases, seed)


def write_textbook(hospital: Hospital, out_dir: str | Path, cases: int, seed: int) -> None:
    """Write ``textbook.json`` below ``out_dir``, in the same format: cases as every hospital writes them."""
    _write(hospital, "textbook", Path(out_dir), cases, seed)


def _write(hospital: Hospital, dataset: str, out_dir: Path, cases: int, seed: int) -> None:
    site = hospital.site(dataset)
    patients = (sample_patient(hospital, site, seed, index) for index in range(cases))
    published = _EVERY if dataset == "clinicalbench" else 0
    written = [_case(hospital, site, p, bool(published) and p.index % published == published - 1) for p in patients]
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in written)
    write_bytes(out_dir / f"{dataset}.json", f"[\n{lines}\n]\n".encode())


def _case(hospital: Hospital, site: Site, patient: Patient, published: bool) -> dict:
    site = site.style(patient.generator(905))
    laboratory, imaging = _results(hospital, site, patient, published)
    disease = hospital.diseases[patient.disease].name
    term = diagnoses().find(disease)
    rng = patient.generator(903)
    spelling = term.aliases[0] if rng.random() < 0.3 else disease
    return {
        "id": patient.index + 1,
        "clinical_case_uid": f"CB{patient.index + 1:06d}",
        "language": "en",
        "clinical_department": _DEPARTMENTS.get(term.kind, "Internal Medicine"),
        "principal_diagnosis": spelling,
        "preliminary_diagnosis": f"Suspected {disease.lower()}",
        "diagnostic_basis": f"History and results are consistent with {disease.lower()}.",
        "differential_diagnosis": "Conditions with similar complaints were considered.",
        "treatment_plan": "Treatment by the department's routine.",
        "clinical_case_summary": _summary(hospital, site, patient, laboratory, imaging),
        "imageological_examination": imaging or _ABSENT,
        "laboratory_examination": laboratory or _ABSENT,
        "pathological_examination": _ABSENT,
        "therapeutic_principle": f"Treat {disease.lower()} and watch for complications.",
    }


def _results(hospital: Hospital, site: Site, patient: Patient, published: bool) -> tuple[dict, dict]:
    laboratory: dict[str, dict] = {}
    imaging: dict[str, dict] = {}
    for name, exam in hospital.examinations.items():
        if name not in patient.offered or exam.kind == "physical":
            continue
        called = site.exam_name(exam)
        if published:
            called = _PUBLISHED.get(name, called.lower().replace(" ", "_"))
        if exam.kind == "laboratory":
            analytes = write_analytes(exam, site, patient)
            odd = "; ".join(f"{a.label} {a.value}" for a in analytes if a.flag)
            laboratory[called] = {"result": print_analytes(site, analytes), "abnormal": odd or "None"}
        elif exam.kind == "microbiology":
            laboratory[called] = {"result": write_report(exam, site, patient), "abnormal": "None"}
        else:
            imaging[called] = {"findings": write_report(exam, site, patient), "impression": "See findings."}
    return laboratory, imaging


def print_analytes(site: Site, analytes: list[Analyte]) -> str:
    """Numbers in the site's layout: a list, or field by field, as its own files come to be read."""
    return "; ".join(map(print_analyte, analytes)) if site.layout == "list" else format_analytes(analytes)


def print_analyte(analyte: Analyte) -> str:
    """``Serum sodium 128 mmol/L (135-145)``."""
    unit = f" {analyte.units}" if analyte.units else ""
    bounds = f" ({analyte.low:g}-{analyte.high:g})" if analyte.low is not None else ""
    return f"{analyte.label} {analyte.value}{unit}{bounds}"


def _summary(hospital: Hospital, site: Site, patient: Patient, laboratory: dict, imaging: dict) -> str:
    told = write_presentation(hospital, site, patient)
    physical = "\n".join(
        f"{exam.name}: {_physical(exam, site, patient)}"
        for exam in hospital.examinations.values()
        if exam.kind == "physical" and exam.name in patient.offered
    )
    auxiliary = " ".join(
        [f"{name}: {entry['result'].rstrip('.')}." for name, entry in laboratory.items()]
        + [f"{name}: {entry['findings']}" for name, entry in imaging.items()]
    )
    sex = "female" if patient.female else "male"
    person = f"{sex.title()}, {patient.age} years old." if site.layout == "list" else f"{patient.age} year old {sex}"
    lines = [
        f"Patient Basic Information: {person}",
        *(f"{name}: {told[name]}" for name in SECTIONS[1:]),
        f"Physical Examination:\n{physical}",
        f"Auxiliary Examination: {auxiliary}",
    ]
    return "\n".join(lines)


def _physical(exam: Examination, site: Site, patient: Patient) -> str:
    """One system, as a note tells it; a hospital of tables has vital signs among its measured quantities."""
    if site.layout == "table" and exam.findings[0].measure is not None:
        return print_analytes(site, write_analytes(exam, site, patient))
    return physical_text(exam, site, patient).rstrip(".") + "."
