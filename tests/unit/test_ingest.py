"""Importers: what is read, what is dropped and counted, and the errors of files that cannot be trusted."""

import csv
import gzip
import io
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from cdpr.cases import is_physical, parse_analytes
from cdpr.ingest import IngestError, ingest
from cdpr.ingest.clinicalbench import repair_backslashes
from cdpr.ingest.leaks import diagnosis_in_summary
from cdpr.ingest.mimic_iv import read_mimic_iv
from cdpr.ingest.notes import parse_discharge_note, primary_diagnosis
from cdpr.ingest.radiology import report_text
from cdpr.settings import parse_settings
from cdpr.settings.schema import Data, MimicSource

SHARED = Path(__file__).parents[3] / "shared" / "data"
AGENTCLINIC = SHARED / "agentclinic" / "agentclinic_medqa.jsonl"
DEMO = SHARED / "mimic_iv_demo_2.2"

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


def bench(**changes) -> dict:
    return {
        "id": 7, "clinical_case_uid": "u7", "language": "en", "principal_diagnosis": "Acute pancreatitis",
        "clinical_case_summary": "Patient Basic Information: Female, 40 years.\nChief Complaint: Belly pain #2.\n"
        "Medical History: Since noon.\nPhysical Examination: Abdomen: Tender. Skin: Warm.\n"
        "Auxiliary Examination: Lipase high.",
        "laboratory_examination": {"routine_blood_test": {"result": "WBC 15", "abnormal": "WBC 15"}},
        "imageological_examination": {"plain_computed_tomography_scan+echocardiogram": {
            "findings": "Swollen pancreas.", "impression": "See findings."}},
        "pathological_examination": "Not available.", **changes,
    }  # fmt: skip


def test_clinicalbench_is_repaired_cut_and_reshaped(tmp_path):
    file = tmp_path / "sample.json"
    file.write_text(json.dumps(bench()).replace("#2", r"\#2").replace("15", r"15\%"))
    (record,), funnel = ingest("clinicalbench", settings(), tmp_path)
    assert record.case_summary.splitlines() == [
        "- Patient Information: Female, 40 years.", r"- Chief Complaint: Belly pain \#2.",
        "- History of Present Illness: Since noon."]  # fmt: skip
    assert record.key_pertinent_results_dict == {
        "Abdomen (Physical Examination)": "Tender.", "Skin (Physical Examination)": "Warm.",
        "Routine blood test": r"WBC 15\%",
        "Plain computed tomography scan + Echocardiogram": "Swollen pancreas."}  # fmt: skip
    text = r'{"a": "\\# \n \u00e9 \" \/"}'
    assert repair_backslashes(text) == text
    cases = [bench(id=2, laboratory_examination="WBC 9", imageological_examination="Not available."),
             bench(id=1, clinical_case_summary="nothing headed"), bench(id=3, principal_diagnosis="")]  # fmt: skip
    for order in (cases, cases[::-1]):
        file.write_text(json.dumps(order))
        (record,), funnel = ingest("clinicalbench", settings(), tmp_path)
        assert record.key_pertinent_results_dict["Laboratory Tests"] == "WBC 9"
        assert {rule: ids for rule, ids in funnel.dropped.items()} == {
            "no headed sections in the case summary": ["1"], "no diagnosis": ["3"]}  # fmt: skip


def test_chinese_clinicalbench_is_cut_at_its_own_headings(tmp_path):
    summary = "患者基本信息：女，40岁。\n主诉：腹痛。\n病史：中午起。\n体格检查：腹部压痛。\n辅助检查：脂肪酶升高。"
    case = bench(language="zh", clinical_case_summary=summary, principal_diagnosis="急性胰腺炎",
                 pathological_examination="暂无。")  # fmt: skip
    (tmp_path / "zh.json").write_text(json.dumps(case, ensure_ascii=False), encoding="utf-8")
    (record,), _ = ingest("clinicalbench", settings(), tmp_path)
    assert record.language == "zh" and "脂肪酶" not in str(record.model_dump())
    assert record.key_pertinent_results_dict["General Appearance (Physical Examination)"] == "腹部压痛。"


PRIVATE = {
    "cases.csv": "case_id,patient_id,age,sex,chief_complaint,present_illness,past_history,personal_history,"
    "family_history,allergy_history,discharge_diagnosis\nK2,P2,50,M,cough,,,,,,Pneumonia\nK1,P1,40,f,rash,,,,,,Cellulitis\n",
    "results.csv": "case_id,sequence,category,examination,item,value,unit,reference_low,reference_high,flag,report\n"
    "K1,2,lab,FBC,Hb,90,g/L,120,160,L,\nK1,1,lab,FBC,WBC,15,10^9/L,4,10,H,\nK1,10,lab,FBC,WBC,9,10^9/L,4,10,,\n"
    "K1,3,physical,Skin,,,,,,,\"warm, red\"\nK2,1,imaging,Chest Film,,,,,,,clear\nK2,2,lab,CRP,CRP,,,,,,\n"
    "K9,1,lab,CRP,CRP,5,,,,,\n",
}  # fmt: skip


def write_private(folder: Path, **changes: tuple[str, str]) -> Path:
    for name, text in PRIVATE.items():
        (folder / name).write_text(text.replace(*changes.get(name.split(".")[0], ("", ""))))
    return folder


def test_private_files_become_records(tmp_path):
    records, funnel = ingest("private", settings(), write_private(tmp_path))
    assert [r.note_id for r in records] == ["K1", "K2"]
    results = records[0].key_pertinent_results_dict
    assert list(results) == ["FBC", "Skin (Physical Examination)"]
    assert [(a.label, a.number, a.level, a.flag) for a in parse_analytes(results["FBC"])] == [
        ("WBC", 15, "high", "abnormal"), ("Hb", 90, "low", "abnormal")]  # fmt: skip
    assert funnel.events == {"result rows": 7, "result rows without a result": 1, "repeated items": 1,
                             "results of unknown cases": 1}  # fmt: skip
    lines = PRIVATE["results.csv"].splitlines()
    (tmp_path / "results.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    assert ingest("private", settings(), tmp_path)[0] == records


@pytest.mark.parametrize(
    ("file", "change", "line", "field"),
    [
        ("cases", ("50,M", "fifty,M"), 2, "age"),
        ("cases", ("40,f", "40,x"), 3, "sex"),
        ("cases", ("K1,P1", "K2,P1"), 3, "case_id"),
        ("cases", ("allergy_history", "allergies"), 1, "allergy_history"),
        ("cases", ("Cellulitis", "Cellulitis,acute"), 3, None),
        ("results", ("2,lab,FBC", "2,blood,FBC"), 2, "category"),
        ("results", ("120,160", "low,160"), 2, "reference_low"),
        ("results", ("K1,1,", "K1,first,"), 3, "sequence"),
        ("results", (",H,", ",up,"), 3, "flag"),
        ("results", ("imaging,Chest Film", "imaging,"), 6, "examination"),
    ],
)
def test_private_errors_name_file_line_and_field(tmp_path, file, change, line, field):
    write_private(tmp_path, **{file: change})
    with pytest.raises(IngestError) as error:
        ingest("private", settings(), tmp_path)
    assert (error.value.path.name, error.value.line, error.value.field) == (f"{file}.csv", line, field)


def osce(**changes) -> dict:
    return {"OSCE_Examination": {
        "Patient_Actor": {"Demographics": "30-year-old man", "History": "Unwell.",
                          "Symptoms": {"Primary_Symptom": "Cough", "Secondary_Symptoms": ["Fever", "Chills"]},
                          "Past_Medical_History": ["Asthma"]},
        "Physical_Examination_Findings": {"Vital_Signs": {"Temperature": "39", "Pulse": "100"},
                                          "Chest_Examination": "dull"},
        "Test_Results": {"Imaging": {"Chest_X-ray": {"Findings": "Opacity."}},
                         "Blood_Tests": {"Complete_Blood_Count": {"WBC": "15"}, "CRP": "High"}, "Biopsy": {}},
        "Correct_Diagnosis": "Pneumonia", **changes}}  # fmt: skip


def test_agentclinic_names_are_flattened(tmp_path):
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(json.dumps(case) for case in (osce(), osce(), osce(Correct_Diagnosis="Cough"))))
    (record,), funnel = ingest("agentclinic", settings(), tmp_path)
    assert record.key_pertinent_results_dict == {
        "Vital Signs (Physical Examination)": "Temperature: 39; Pulse: 100",
        "Respiratory (Physical Examination)": "dull",
        "Chest X-ray": "Opacity.", "Complete Blood Count": "WBC: 15", "CRP": "High"}  # fmt: skip
    assert {rule: len(ids) for rule, ids in funnel.dropped.items()} == {
        "same case twice": 1, "diagnosis stated in the summary": 1}  # fmt: skip
    for broken, field in ((osce(Test_Results=None), "OSCE_Examination.Test_Results"), ([], "OSCE_Examination")):
        file.write_text(json.dumps(osce()) + "\n" + json.dumps(broken))
        with pytest.raises(IngestError) as error:
            ingest("agentclinic", settings(), file)
        assert (error.value.line, error.value.field) == (2, field)
    file.write_text(json.dumps(osce()) + '\n{"OSCE')
    with pytest.raises(IngestError, match=r"cases\.jsonl:2: not JSON"):
        ingest("agentclinic", settings(), file)


@pytest.mark.skipif(
    not AGENTCLINIC.exists(), reason="AgentClinic's cases are not beside the repository (../shared/data)"
)
def test_all_real_agentclinic_cases_are_accounted_for():
    records, funnel = ingest("agentclinic", settings(), AGENTCLINIC)
    assert funnel.read == 107 == len(records) + sum(map(len, funnel.dropped.values()))
    assert len(records) >= 100
    assert all(r.case_summary.startswith("- Patient Information: ") for r in records)

    def leaves(node) -> int:
        return sum(map(leaves, node.values())) if isinstance(node, dict) else 1

    cases = [json.loads(line)["OSCE_Examination"] for line in AGENTCLINIC.read_text().splitlines()]
    there = sum(leaves(c["Test_Results"]) + leaves(c["Physical_Examination_Findings"]) for c in cases)
    assert funnel.events["results"] == there


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
