"""Writes patients of the synthetic hospital in the formats of the benchmarks.

``clinicalbench.json`` is a JSON list of cases with 14 keys. Laboratory values are in SI units under long names, and
panels and imaging have other names than in-domain. As in the original, ``clinical_case_summary`` holds the physical
examination and all results.

``cases.csv`` and ``results.csv`` of the private hospital (docs/reference/private-format.md) have one row per case, and
one row per measured quantity or report, under this hospital's abbreviations.
"""

import json
from pathlib import Path

from jinja2 import StrictUndefined, Template

from ..cases import SECTIONS, Analyte, diagnoses, format_analytes, normalise
from ..files import write_csv, write_text
from .model import Examination, Hospital, Site, read_data
from .sample import Patient, physical_text, sample_patient, write_analytes, write_history, write_report

_DATA = read_data("clinicalbench")
_SUMMARY = Template(_DATA["summary"], undefined=StrictUndefined)
RESULT_COLUMNS = "case_id sequence category examination item value unit reference_low reference_high flag report"
# The private hospital's category for a kind of examinations; for any other kind it is the name of the kind.
_CATEGORIES = {"laboratory": "lab", "microbiology": "culture"}
# Columns of ``cases.csv`` for the sections of the case summary after the first one (``SECTIONS[1:]``), in their order.
_HISTORY = "chief_complaint present_illness past_history personal_history family_history allergy_history"
_BENCHMARK_NAMES_EVERY = 10  # every tenth case names its examinations as the real benchmark does
# Purposes of a patient's random number generators (:meth:`Patient.generator`): the style of the case, and the name of
# its diagnosis in the benchmark's and in the private format. The numbers only have to differ.
_STYLE_STREAM, _NAME_STREAM, _PRIVATE_NAME_STREAM = 905, 903, 904
# Shares of cases whose diagnosis is named by an alias, in these two formats.
_ALIAS_SHARE, _PRIVATE_ALIAS_SHARE = 0.3, 0.4


def write_clinicalbench(hospital: Hospital, dataset: str, out_dir: Path, cases: int, seed: int) -> None:
    """Write ``cases`` patients of the data set ``dataset`` in the format of ClinicalBench to ``OUT_DIR/DATASET.json``.
    The data set is ``clinicalbench``, or ``textbook``, whose cases are in the styles of all hospitals."""
    site = hospital.site(dataset)
    records = []
    for index in range(cases):
        benchmark_names = dataset == "clinicalbench" and index % _BENCHMARK_NAMES_EVERY == _BENCHMARK_NAMES_EVERY - 1
        record = _write_case(hospital, site, sample_patient(hospital, site, seed, index), benchmark_names)
        records.append(json.dumps(record, ensure_ascii=False))
    write_text(out_dir / f"{dataset}.json", "[\n" + ",\n".join(records) + "\n]\n")


def _write_case(hospital: Hospital, site: Site, patient: Patient, benchmark_names: bool) -> dict:
    """Return one patient as a case of ClinicalBench: a dictionary with its 14 keys. With ``benchmark_names`` the
    examinations have the names of the real ClinicalBench."""
    style = site.style(patient.generator(_STYLE_STREAM))
    laboratory, imaging = _write_results(hospital, style, patient, benchmark_names)
    disease = hospital.diseases[patient.disease].name
    term, number = diagnoses().spellings[normalise(disease)], patient.index + 1
    diagnosis = term.aliases[0] if patient.generator(_NAME_STREAM).random() < _ALIAS_SHARE else disease
    department = _DATA["departments"].get(term.kind, "Internal Medicine")
    fields = {"number": number, "department": department, "diagnosis": diagnosis, "disease": disease.lower()}
    case = {name: text.format(**fields) for name, text in _DATA["case"].items()}
    results = {"imageological_examination": imaging, "laboratory_examination": laboratory}
    case |= {name: block for name, block in results.items() if block}  # an empty one stays the text "Not available."
    # The summary has age and sex, history, physical examination and all results. The first section is the person.
    systems = [exam for exam in hospital.available(patient) if exam.kind == "physical"]
    summary = _SUMMARY.render(
        patient=patient, site=style, sections=SECTIONS[1:], history=write_history(hospital, style, patient),
        physical=[(exam, _write_system(exam, style, patient)) for exam in systems],
        laboratory=laboratory, imaging=imaging,
    )  # fmt: skip
    return case | {"id": number, "clinical_case_summary": summary}


def _write_results(hospital: Hospital, site: Site, patient: Patient, benchmark_names: bool) -> tuple[dict, dict]:
    """Write the results of a patient's examinations. Returns the blocks ``laboratory_examination`` and
    ``imageological_examination`` of a case, each a dictionary by the name of the examination. The physical examination
    is in neither."""
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
    """Return laboratory values as text in the site's layout: as a list such as ``Serum sodium 128 mmol/L (135-145)``,
    or field by field in the format of case records."""
    return "; ".join(map(print_analyte, analytes)) if site.layout == "list" else format_analytes(analytes)


def print_analyte(analyte: Analyte) -> str:
    """Return a laboratory value as text with its unit and reference range, if it has them: ``Serum sodium 128 mmol/L
    (135-145)``."""
    unit = f" {analyte.units}" if analyte.units else ""
    bounds = f" ({analyte.low:g}-{analyte.high:g})" if analyte.low is not None else ""
    return f"{analyte.label} {analyte.value}{unit}{bounds}"


def _write_system(exam: Examination, site: Site, patient: Patient) -> str:
    """Write the findings in one system of the body, which ``exam`` examines. A site with the layout ``table`` prints
    vital signs like laboratory values."""
    if site.layout == "table" and exam.findings[0].measure is not None:
        return print_analytes(site, write_analytes(exam, site, patient))
    return physical_text(exam, site, patient).rstrip(".") + "."


def write_private(hospital: Hospital, dataset: str, out_dir: Path, cases: int, seed: int) -> None:
    """Write ``cases`` patients of the data set ``dataset`` in the private hospital's format to ``out_dir``:
    ``cases.csv`` and ``results.csv``."""
    site = hospital.site(dataset)
    case_rows, result_rows = [], []
    for index in range(cases):
        patient = sample_patient(hospital, site, seed, index)
        case = _case_row(hospital, site, patient)
        case_rows.append(case)
        rows = [row for exam in hospital.available(patient) for row in _result_rows(exam, site, patient)]
        result_rows += [{"case_id": case["case_id"], "sequence": n} | row for n, row in enumerate(rows, 1)]
    write_csv(out_dir / "cases.csv", list(case_rows[0]), case_rows, for_people=False)
    write_csv(out_dir / "results.csv", RESULT_COLUMNS.split(), result_rows, for_people=False)


def _case_row(hospital: Hospital, site: Site, patient: Patient) -> dict:
    """Write a patient as a row of ``cases.csv``: a dictionary by column."""
    history = write_history(hospital, site, patient)
    diagnosis = hospital.diseases[patient.disease].name
    if patient.generator(_PRIVATE_NAME_STREAM).random() < _PRIVATE_ALIAS_SHARE:
        diagnosis = diagnoses().spellings[normalise(diagnosis)].aliases[0]
    return {
        "case_id": f"PH{patient.index + 1:05d}",
        "patient_id": f"P{patient.index + 1:05d}",
        "age": patient.age,
        "sex": "F" if patient.female else "M",
        **{column: history[line] for column, line in zip(_HISTORY.split(), SECTIONS[1:], strict=True)},
        "discharge_diagnosis": diagnosis,
    }


def _result_rows(exam: Examination, site: Site, patient: Patient) -> list[dict]:
    """Return the result of an examination as rows of ``results.csv``, dictionaries by column: one row for a report in
    words, or one per laboratory value."""
    row = {"category": _CATEGORIES.get(exam.kind, exam.kind), "examination": site.exam_name(exam)}
    if exam.findings[0].measure is None:
        return [row | {"report": write_report(exam, site, patient)}]
    return [row | _value_cells(analyte) for analyte in write_analytes(exam, site, patient)]


def _value_cells(analyte: Analyte) -> dict:
    """Return the cells of a row of ``results.csv`` that hold a laboratory value, by column. The flag of an abnormal
    value is H (high) or L (low), or A (abnormal) where it has no reference range."""
    flag = ""
    if analyte.flag is not None:
        is_low = analyte.low is not None and (analyte.number or 0.0) < analyte.low
        flag = "A" if analyte.low is None else ("L" if is_low else "H")
    limits = {"reference_low": analyte.low, "reference_high": analyte.high}
    return {"item": analyte.label, "value": analyte.value, "unit": analyte.units, "flag": flag} | limits
