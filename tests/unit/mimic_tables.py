"""MIMIC-IV tables in miniature, for the tests of the importer: two patients, of whom the first comes twice."""

import csv
import gzip
import io
import random
from pathlib import Path

from cdpr.settings import parse_settings

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


def many(patients: int) -> dict[str, tuple[str, list[dict]]]:
    """The tables of as many patients, each like the first one above, under numbers that sort as they stand."""
    made = {}
    for name, (columns, rows) in mimic_tables().items():
        mine = [row for row in rows if row.get("subject_id", "1") == "1"]
        keys = ("subject_id", "hadm_id", "note_id", "labevent_id", "microevent_id", "micro_specimen_id")
        copies = [row | {key: f"{p + 100}{row[key]}" for key in keys if row.get(key)}
                  for p in range(patients) for row in mine]  # fmt: skip
        made[name] = columns, rows if name == "hosp/d_labitems" else copies
    return made


def write_mimic(folder: Path, shuffle: int | None = None) -> Path:
    for name, (columns, rows) in mimic_tables().items():
        if shuffle is not None:
            rows = random.Random(shuffle).sample(rows, len(rows))
            columns = " ".join(random.Random(shuffle).sample(columns.split(), len(columns.split())))
        write_table(folder / f"{name}.csv.gz", columns, rows)
    return folder


def settings(**data):
    """Two cases wanted, of real data with a window that reaches past admission."""
    real = {"path": "real", "hours_after_admission": 24}
    return parse_settings(
        {"data": {"train_cases": 1, "validation_cases": 0, "test_cases": 1, "mimic_iv": real, **data}}
    )
