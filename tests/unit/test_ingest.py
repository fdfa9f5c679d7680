"""MIMIC-IV importer: what is read, what is dropped and counted, the splits, and errors of damaged files."""

import csv
import gzip
import io
import random
from collections import Counter
from pathlib import Path

import pytest

from cdpr.cases import is_physical, parse_analytes
from cdpr.ingest import IngestError, ingest
from cdpr.ingest.leaks import diagnosis_in_summary
from cdpr.ingest.mimic_iv import read_mimic_iv
from cdpr.ingest.notes import parse_discharge_note, primary_diagnosis
from cdpr.ingest.radiology import report_text
from cdpr.settings import parse_settings
from cdpr.settings.schema import Data, MimicSource

DEMO = Path(__file__).parents[3] / "shared" / "data" / "mimic_iv_demo_2.2"

NOTE = """
Name:  ___                     Unit No:   ___

Allergies:
Penicillins

Chief Complaint:
{complaint}

History of Present Illness:
___ year old woman, two days unwell.

Past Medical History:
Hypertension

Social History:
___
Family History:
Noncontributory

Physical Exam:
ADMISSION PHYSICAL EXAM:
VS: T 101.2, HR 104, BP 110/70
GENERAL: uncomfortable
LUNGS: crackles at the
left base
PSYCH: calm

DISCHARGE PHYSICAL EXAM:
LUNGS: clear

Pertinent Results:
___ 06:10AM BLOOD WBC-15.0

Brief Hospital Course:
Treated for {diagnosis}.

Discharge Diagnosis:
PRIMARY DIAGNOSIS:
1. {diagnosis}.

SECONDARY DIAGNOSIS:
Hypertension

Discharge Condition:
Good
"""
LAB = ("labevent_id subject_id hadm_id specimen_id itemid order_provider_id charttime storetime value valuenum "
       "valueuom ref_range_lower ref_range_upper flag priority comments")  # fmt: skip
MICRO = ("microevent_id subject_id hadm_id micro_specimen_id order_provider_id chartdate charttime spec_itemid "
         "spec_type_desc test_seq storedate storetime test_itemid test_name org_itemid org_name isolate_num quantity "
         "ab_itemid ab_name dilution_text dilution_comparison dilution_value interpretation comments")  # fmt: skip
NOTES = "note_id subject_id hadm_id note_type note_seq charttime storetime text"
DETAIL = "note_id subject_id field_name field_value field_ordinal"


def write_table(path: Path, columns: str, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, columns.split(), restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def lab(number, hadm, item, time, value="", comments="", subject="1"):
    return {"labevent_id": number, "subject_id": subject, "hadm_id": hadm, "itemid": item, "charttime": time,
            "value": value, "valuenum": value if value.replace(".", "").isdigit() else "", "valueuom": "K/uL",
            "ref_range_lower": "4", "ref_range_upper": "11", "comments": comments}  # fmt: skip


def mimic_tables() -> dict[str, tuple[str, list[dict]]]:
    """Two patients of which the first comes twice; times tell which events belong to which stay."""
    stays = [("1", "11", "2150-03-02 08:00:00"), ("1", "12", "2150-03-03 20:00:00"), ("2", "21", "2160-01-01 08:00:00")]
    notes = [("1-DS-1", "1", "11", "Fever", "Pneumonia"), ("1-DS-2", "1", "12", "Cough", "Sepsis due to pneumonia"),
             ("2-DS-1", "2", "21", "Worse cellulitis of the leg", "Cellulitis"),
             ("9-DS-1", "9", "91", "Fever", "Flu")]  # fmt: skip
    culture = {"subject_id": "1", "hadm_id": "", "micro_specimen_id": "5", "chartdate": "2150-03-02 00:00:00",
               "test_name": "Blood Culture, Routine", "test_seq": "1", "org_name": "ESCHERICHIA COLI",
               "isolate_num": "1"}  # fmt: skip
    return {
        "hosp/patients": ("subject_id gender anchor_age anchor_year", [
            {"subject_id": "1", "gender": "F", "anchor_age": "50", "anchor_year": "2148"},
            {"subject_id": "2", "gender": "M", "anchor_age": "60", "anchor_year": "2160"}]),
        "hosp/admissions": ("subject_id hadm_id admittime", [
            {"subject_id": s, "hadm_id": h, "admittime": t} for s, h, t in stays]),
        "hosp/d_labitems": ("itemid label fluid category", [
            {"itemid": "51301", "label": "White Blood Cells", "fluid": "Blood"},
            {"itemid": "51756", "label": "White Blood Cells", "fluid": "Blood"},
            {"itemid": "51222", "label": "Hemoglobin", "fluid": "Blood"},
            {"itemid": "51478", "label": "Glucose", "fluid": "Urine"},
            {"itemid": "50999", "label": "Zonulin", "fluid": "Stool"}]),
        "hosp/labevents": (LAB, [
            lab(1, "11", "51301", "2150-03-02 05:00:00", "15.0"),
            lab(2, "", "51756", "2150-03-02 09:00:00", "12.0"),  # a later one of the same label
            lab(3, "", "51222", "2150-03-02 05:00:00", "___", "12.5."),
            lab(4, "11", "51222", "2150-03-02 04:00:00", "___"),  # lost
            lab(5, "", "51478", "2150-03-03 10:00:00", "", "NEG."),  # nearer to the second stay
            lab(6, "11", "50999", "2150-03-02 06:00:00", "3"),
            lab(7, "11", "51301", "2150-02-25 06:00:00", "99"),  # before the window
            lab(8, "", "51301", "2150-03-04 01:00:00", "9.0"),
            lab(9, "21", "51301", "2160-01-01 09:00:00", "9.0", subject="2")]),
        "hosp/microbiologyevents": (MICRO, [
            culture | {"microevent_id": "1", "ab_name": "CEFTRIAXONE", "interpretation": "S"},
            culture | {"microevent_id": "2", "ab_name": "AMPICILLIN", "interpretation": "R"},
            culture | {"microevent_id": "3", "micro_specimen_id": "6", "test_name": "URINE CULTURE", "hadm_id": "12",
                       "charttime": "2150-03-03 21:00:00", "org_name": "CANCELLED"}]),
        "note/discharge": (NOTES, [
            {"note_id": n, "subject_id": s, "hadm_id": h, "text": NOTE.format(complaint=c, diagnosis=d)}
            for n, s, h, c, d in notes]),
        "note/radiology": (NOTES, [
            {"note_id": "1-RR-1", "subject_id": "1", "hadm_id": "", "charttime": "2150-03-02 07:00:00",
             "text": "EXAMINATION:  CHEST (PA & LAT)\n\nINDICATION:  ___ with pneumonia?\n\nFINDINGS:\n\nLobar opacity."
                     "\n\nIMPRESSION:\n\nAs above."}]),
        "note/radiology_detail": (DETAIL, [
            {"note_id": "1-RR-1", "field_name": "exam_code", "field_value": "C1", "field_ordinal": "1"},
            {"note_id": "1-RR-1", "field_name": "exam_name", "field_value": "CHEST (PA & LAT)", "field_ordinal": "2"}]),
    }  # fmt: skip


def write_mimic(folder: Path, shuffle: int | None = None) -> Path:
    for name, (columns, rows) in mimic_tables().items():
        if shuffle is not None:
            rows = random.Random(shuffle).sample(rows, len(rows))
            columns = " ".join(random.Random(shuffle).sample(columns.split(), len(columns.split())))
        write_table(folder / f"{name}.csv.gz", columns, rows)
    return folder


def settings(**data):
    return parse_settings({"data": {"train_cases": 1, "validation_cases": 0, "test_cases": 1, **data}})


def test_mimic_notes_and_events_become_records(tmp_path):
    records, funnel = read_mimic_iv(MimicSource(credentialed=True), Data(), write_mimic(tmp_path))
    assert funnel.dropped == {"diagnosis stated in the summary": ["2-DS-1"], "note of no known admission": ["9-DS-1"]}
    first, second = records
    assert first.case_summary.splitlines()[:3] == [
        "- Patient Information: 52 year old female",
        "- Chief Complaint: Fever",
        "- History of Present Illness: ___ year old woman, two days unwell.",
    ]
    assert "Personal History" not in first.case_summary and "Treated for" not in str(first.model_dump())
    results = first.key_pertinent_results_dict
    assert results == {
        "Vital Signs (Physical Examination)": "T 101.2, HR 104, BP 110/70",
        "General Appearance (Physical Examination)": "uncomfortable",
        "Respiratory (Physical Examination)": "crackles at the left base",
        "PSYCH (Physical Examination)": "calm",
        "Complete Blood Count": "White Blood Cells: Value: 15.0; Units: K/uL; Reference Range: 4.0--11.0; "
        "Hemoglobin: Units: K/uL; Reference Range: 4.0--11.0; Comments: 12.5.",
        "Zonulin (Stool)": "Zonulin: Value: 3; Units: K/uL; Reference Range: 4.0--11.0",
        "Blood Culture": "Organism: ESCHERICHIA COLI; Interpretation: AMPICILLIN R, CEFTRIAXONE S",
        "Chest X-ray": "Lobar opacity.",
    }
    assert (first.diagnosis_results, second.diagnosis_results) == ("Pneumonia", "Sepsis due to pneumonia")
    assert "Hypertension" in first.final_diagnosis and first.credentialed
    assert {k for k in second.key_pertinent_results_dict if not is_physical(k)} == {
        "Urine Analysis", "Complete Blood Count"}  # fmt: skip
    assert funnel.events["microbiology tests cancelled"] == 1
    assert funnel.events["laboratory rows without a result"] == 1


def test_order_of_rows_and_columns_does_not_matter(tmp_path):
    real = settings(mimic_iv={"path": "real"})
    told = [ingest("mimic_iv", real, write_mimic(tmp_path / str(seed), seed)) for seed in (1, 2)]
    assert told[0][0] == told[1][0]
    assert told[0][1].report() == told[1][1].report()


def test_splits_share_no_patient_and_the_test_set_does_not_depend_on_the_training_size(tmp_path):
    rows = mimic_tables()
    for name in ("hosp/patients", "hosp/admissions", "hosp/labevents", "note/discharge"):
        columns, old = rows[name]
        rows[name] = columns, [
            {k: f"{v[:-1]}{p:02d}{v[-1]}" if k == "hadm_id" and v else f"{p:02d}{v}" if k.endswith("_id") and v else v
             for k, v in {k: str(v) for k, v in row.items()}.items()}
            for p in range(20) for row in old if row.get("subject_id") == "1"]  # fmt: skip
    for name, (columns, table) in rows.items():
        write_table(tmp_path / f"{name}.csv.gz", columns, table)
    small, _ = ingest("mimic_iv", settings(train_cases=4, validation_cases=2, test_cases=10), tmp_path)
    large, funnel = ingest("mimic_iv", settings(train_cases=20, validation_cases=6, test_cases=10), tmp_path)
    for records in (small, large):
        sides = {(r.subject_key, r.split) for r in records}
        assert len(sides) == len({subject for subject, _ in sides}) > 3
    test = [[r.note_id for r in records if r.split == "test"] for records in (small, large)]
    assert test[0] == test[1] and len(test[0]) == 10
    assert funnel.splits == {"train": 20, "validation": 6, "test": 10}
    with pytest.raises(IngestError, match=r"40 usable cases .* raise hospital\.mimic_patients"):
        ingest("mimic_iv", settings(train_cases=100), tmp_path)
    fewer, funnel = ingest("mimic_iv", settings(mimic_iv={"path": "real"}, train_cases=150, test_cases=50), tmp_path)
    assert len(fewer) == 40 and funnel.splits["test"] == 10 and "40 usable cases" in funnel.warnings[0]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def replaced(old: str, new: str):
    def change(path: Path) -> None:
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(old.encode(), new.encode("latin-1"))))

    return change


@pytest.mark.parametrize(
    ("table", "damage", "line", "field", "said"),
    [
        ("hosp/labevents", Path.unlink, None, None, "no such table"),
        ("hosp/labevents", replaced("comments", "remarks"), 1, "comments", "no such column"),
        ("hosp/labevents", cut, None, None, "cut short"),
        ("hosp/labevents", replaced("12.5.", "12,5."), 4, None, "row cannot be read"),
        ("note/radiology", replaced("Lobar", "\xe9"), 2, None, "row cannot be read"),
        ("hosp/patients", replaced(",60,", ",sixty,"), 3, "anchor_age", "'sixty' .* whole number"),
        ("hosp/admissions", replaced("2160-01-01 08", "2160-13-01 08"), 4, "admittime", "is not a time"),
        ("hosp/admissions", replaced("subject_id,", "hadm_id,"), 1, None, "column names repeat"),
    ],
)
def test_damaged_tables_are_errors_with_file_line_and_field(tmp_path, table, damage, line, field, said):
    path = write_mimic(tmp_path) / f"{table}.csv.gz"
    damage(path)
    with pytest.raises(IngestError, match=said) as error:
        ingest("mimic_iv", settings(), tmp_path)
    assert (error.value.path, error.value.line, error.value.field) == (path, line, field)
    assert error.value.remedy


@pytest.mark.parametrize(
    ("section", "diagnosis"),
    [
        ("Acute appendicitis", "Acute appendicitis"),
        ("Primary: \n- Acute pancreatitis, gallstone\n\nSecondary:\n- Hypertension", "Acute pancreatitis, gallstone"),
        ("PRIMARY DIAGNOSES:\n#) Sepsis\n#) Pneumonia", "Sepsis"),
        ("Primary diagnosis: Cellulitis.", "Cellulitis"),
        ("___\n1. COPD exacerbation", "COPD exacerbation"),
        ("SECONDARY DIAGNOSES:\nHypertension", ""),
        ("", ""),
    ],
)
def test_the_first_primary_line_is_the_diagnosis(section, diagnosis):
    assert primary_diagnosis(section) == diagnosis


def test_note_parser_survives_anything_and_reads_several_systems_in_one_line():
    assert parse_discharge_note("").physical == {}
    assert parse_discharge_note("Physical Exam:\n" * 3 + "\x00___\n:::").primary_diagnosis == ""
    note = parse_discharge_note("Physical Exam:\nT 98.1 BP 120/80\nCV: RRR. LUNGS: CTAB, no wheeze. ABD: soft\n")
    assert note.physical == {
        "Vital Signs (Physical Examination)": "T 98.1 BP 120/80",
        "Cardiovascular (Physical Examination)": "RRR.",
        "Respiratory (Physical Examination)": "CTAB, no wheeze.",
        "Abdomen (Physical Examination)": "soft",
    }
    assert report_text("HISTORY: sepsis\n\nFree text before.\nIMPRESSION: Clear lungs.") == "Impression: Clear lungs."


@pytest.mark.parametrize(
    ("summary", "diagnosis", "leaks"),
    [
        ("- Chief Complaint: leg cellulitis", "Cellulitis", True),
        ("- Past Medical History: CHF", "Heart failure with reduced ejection fraction", True),
        ("- Chief Complaint: pe of the eye", "Pulmonary embolism", False),
        ("- Past Medical History: prior PE", "Pulmonary embolism", True),
        ("- Chief Complaint: fever", "Acute appendicitis", False),
    ],
)
def test_leak_guard(summary, diagnosis, leaks):
    assert bool(diagnosis_in_summary(summary, diagnosis)) == leaks


@pytest.mark.skipif(not DEMO.exists(), reason="the MIMIC-IV demo tables are not beside the repository (../shared/data)")
def test_real_demo_tables_are_read_with_notes_written_here(tmp_path):
    (tmp_path / "hosp").symlink_to(DEMO / "hosp")
    with gzip.open(DEMO / "hosp" / "admissions.csv.gz", "rt") as lines:
        admissions = list(csv.DictReader(lines))[:40]
    text = NOTE.format(complaint="Fever", diagnosis="Sinusitis")
    write_table(tmp_path / "note/discharge.csv.gz", NOTES, [
        {"note_id": f"{a['subject_id']}-DS-{a['hadm_id']}", "subject_id": a["subject_id"], "hadm_id": a["hadm_id"],
         "text": text} for a in admissions])  # fmt: skip
    write_table(tmp_path / "note/radiology.csv.gz", NOTES, [])
    write_table(tmp_path / "note/radiology_detail.csv.gz", DETAIL, [])
    records, funnel = read_mimic_iv(MimicSource(), Data(), tmp_path)
    assert funnel.read == 40 == len(records) + sum(map(len, funnel.dropped.values()))
    assert len(records) >= 35
    found = Counter(key for r in records for key in r.key_pertinent_results_dict)
    assert min(found["Complete Blood Count"], found["Kidney Function Tests"], found["Urine Analysis"]) > 10
    for record in records:
        blood = parse_analytes(record.key_pertinent_results_dict.get("Complete Blood Count", ""))
        assert len({a.label for a in blood}) == len(blood)
        assert "Value: ___" not in str(record.key_pertinent_results_dict)
