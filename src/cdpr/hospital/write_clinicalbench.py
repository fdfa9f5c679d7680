"""Patients as a ClinicalBench-format file: a JSON list of cases with 14 keys.

Laboratory values are in SI units under long names, panels and imaging have other names than in-domain,
and ``clinical_case_summary`` holds the physical examination and all auxiliary results, as in the original.
"""

import json
from pathlib import Path

from ..cases import SECTIONS, Analyte, diagnoses, format_analytes
from ..files import write_text
from .model import Examination, Hospital, Site, read_data
from .sample import Patient, physical_text, sample_patient, write_analytes, write_presentation, write_report

_DATA = read_data("clinicalbench")
_ABSENT = "Not available."
_EVERY = 10  # one case in so many has the benchmark's names


def write_clinicalbench(hospital: Hospital, dataset: str, out_dir: Path, cases: int, seed: int) -> None:
    """Write ``clinicalbench.json`` below ``out_dir``, or ``textbook.json``: cases in the styles of all hospitals."""
    site = hospital.site(dataset)
    records = []
    for index in range(cases):
        benchmark_names = dataset == "clinicalbench" and index % _EVERY == _EVERY - 1
        record = _case(hospital, site, sample_patient(hospital, site, seed, index), benchmark_names)
        records.append(json.dumps(record, ensure_ascii=False))
    write_text(out_dir / f"{dataset}.json", "[\n" + ",\n".join(records) + "\n]\n")


def _case(hospital: Hospital, site: Site, patient: Patient, benchmark_names: bool) -> dict:
    site = site.style(patient.generator(905))
    laboratory, imaging = _results(hospital, site, patient, benchmark_names)
    disease = hospital.diseases[patient.disease].name
    term = diagnoses().find(disease)
    return {
        "id": patient.index + 1,
        "clinical_case_uid": f"CB{patient.index + 1:06d}",
        "language": "en",
        "clinical_department": _DATA["departments"].get(term.kind, "Internal Medicine"),
        "principal_diagnosis": term.aliases[0] if patient.generator(903).random() < 0.3 else disease,
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


def _results(hospital: Hospital, site: Site, patient: Patient, benchmark_names: bool) -> tuple[dict, dict]:
    laboratory: dict[str, dict] = {}
    imaging: dict[str, dict] = {}
    for exam in hospital.available(patient):
        title = site.exam_name(exam)
        if benchmark_names:
            title = _DATA["names"].get(exam.name, title.lower().replace(" ", "_"))
        if exam.kind == "laboratory":
            analytes = write_analytes(exam, site, patient)
            abnormal = "; ".join(f"{a.label} {a.value}" for a in analytes if a.flag)
            laboratory[title] = {"result": print_analytes(site, analytes), "abnormal": abnormal or "None"}
        elif exam.kind == "microbiology":
            laboratory[title] = {"result": write_report(exam, site, patient), "abnormal": "None"}
        elif exam.kind != "physical":
            imaging[title] = {"findings": write_report(exam, site, patient), "impression": "See findings."}
    return laboratory, imaging


def print_analytes(site: Site, analytes: list[Analyte]) -> str:
    """Numbers in the site's layout: a list, or field by field, the text that its own files become at ingestion."""
    return "; ".join(map(print_analyte, analytes)) if site.layout == "list" else format_analytes(analytes)


def print_analyte(analyte: Analyte) -> str:
    """``Serum sodium 128 mmol/L (135-145)``."""
    unit = f" {analyte.units}" if analyte.units else ""
    bounds = f" ({analyte.low:g}-{analyte.high:g})" if analyte.low is not None else ""
    return f"{analyte.label} {analyte.value}{unit}{bounds}"


def _summary(hospital: Hospital, site: Site, patient: Patient, laboratory: dict, imaging: dict) -> str:
    history = write_presentation(hospital, site, patient)
    systems = (exam for exam in hospital.available(patient) if exam.kind == "physical")
    physical = "\n".join(f"{exam.name}: {_physical(exam, site, patient)}" for exam in systems)
    auxiliary = " ".join(
        [f"{name}: {entry['result'].rstrip('.')}." for name, entry in laboratory.items()]
        + [f"{name}: {entry['findings']}" for name, entry in imaging.items()]
    )
    sex = "female" if patient.female else "male"
    person = f"{sex.title()}, {patient.age} years old." if site.layout == "list" else f"{patient.age} year old {sex}"
    lines = [
        f"Patient Basic Information: {person}",
        *(f"{name}: {history[name]}" for name in SECTIONS[1:]),
        f"Physical Examination:\n{physical}",
        f"Auxiliary Examination: {auxiliary}",
    ]
    return "\n".join(lines)


def _physical(exam: Examination, site: Site, patient: Patient) -> str:
    """One system as in a note; a hospital of tables has vital signs among its measured quantities."""
    if site.layout == "table" and exam.findings[0].measure is not None:
        return print_analytes(site, write_analytes(exam, site, patient))
    return physical_text(exam, site, patient).rstrip(".") + "."
