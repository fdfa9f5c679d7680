"""Importers of the benchmarks: ClinicalBench, the private format, AgentClinic."""

import json
from pathlib import Path

import pytest

from cdpr.cases import parse_analytes
from cdpr.ingest import IngestError, ingest
from cdpr.ingest.clinicalbench import repair_backslashes
from cdpr.settings import Settings

AGENTCLINIC = Path(__file__).parents[3] / "shared" / "data" / "agentclinic" / "agentclinic_medqa.jsonl"


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
    (record,), funnel = ingest("clinicalbench", Settings(), tmp_path)
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
        (record,), funnel = ingest("clinicalbench", Settings(), tmp_path)
        assert record.key_pertinent_results_dict["Laboratory Tests"] == "WBC 9"
        assert {rule: ids for rule, ids in funnel.dropped.items()} == {
            "no headed sections in the case summary": ["1"], "no diagnosis": ["3"]}  # fmt: skip


def test_chinese_clinicalbench_is_cut_at_its_own_headings(tmp_path):
    summary = "患者基本信息：女，40岁。\n主诉：腹痛。\n病史：中午起。\n体格检查：腹部压痛。\n辅助检查：脂肪酶升高。"
    case = bench(language="zh", clinical_case_summary=summary, principal_diagnosis="急性胰腺炎",
                 pathological_examination="暂无。")  # fmt: skip
    (tmp_path / "zh.json").write_text(json.dumps(case, ensure_ascii=False), encoding="utf-8")
    (record,), _ = ingest("clinicalbench", Settings(), tmp_path)
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
    records, funnel = ingest("private", Settings(), write_private(tmp_path))
    assert [r.note_id for r in records] == ["K1", "K2"]
    results = records[0].key_pertinent_results_dict
    assert list(results) == ["FBC", "Skin (Physical Examination)"]
    assert [(a.label, a.number, a.level, a.flag) for a in parse_analytes(results["FBC"])] == [
        ("WBC", 15, "high", "abnormal"), ("Hb", 90, "low", "abnormal")]  # fmt: skip
    assert funnel.events == {"result rows": 7, "result rows without a result": 1, "repeated items": 1,
                             "results of unknown cases": 1}  # fmt: skip
    lines = PRIVATE["results.csv"].splitlines()
    (tmp_path / "results.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    assert ingest("private", Settings(), tmp_path)[0] == records


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
        ingest("private", Settings(), tmp_path)
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
    (record,), funnel = ingest("agentclinic", Settings(), tmp_path)
    assert record.key_pertinent_results_dict == {
        "Vital Signs (Physical Examination)": "Temperature: 39; Pulse: 100",
        "Respiratory (Physical Examination)": "dull",
        "Chest X-ray": "Opacity.", "Complete Blood Count": "WBC: 15", "CRP": "High"}  # fmt: skip
    assert {rule: len(ids) for rule, ids in funnel.dropped.items()} == {
        "same case twice": 1, "diagnosis stated in the summary": 1}  # fmt: skip
    for broken, field in ((osce(Test_Results=None), "OSCE_Examination.Test_Results"), ([], "OSCE_Examination")):
        file.write_text(json.dumps(osce()) + "\n" + json.dumps(broken))
        with pytest.raises(IngestError) as error:
            ingest("agentclinic", Settings(), file)
        assert (error.value.line, error.value.field) == (2, field)
    file.write_text(json.dumps(osce()) + '\n{"OSCE')
    with pytest.raises(IngestError, match=r"cases\.jsonl:2: not JSON"):
        ingest("agentclinic", Settings(), file)


@pytest.mark.skipif(
    not AGENTCLINIC.exists(), reason="AgentClinic's cases are not beside the repository (../shared/data)"
)
def test_all_real_agentclinic_cases_are_accounted_for():
    records, funnel = ingest("agentclinic", Settings(), AGENTCLINIC)
    assert funnel.read == 107 == len(records) + sum(map(len, funnel.dropped.values()))
    assert len(records) >= 100
    assert all(r.case_summary.startswith("- Patient Information: ") for r in records)

    def leaves(node) -> int:
        return sum(map(leaves, node.values())) if isinstance(node, dict) else 1

    cases = [json.loads(line)["OSCE_Examination"] for line in AGENTCLINIC.read_text().splitlines()]
    there = sum(leaves(c["Test_Results"]) + leaves(c["Physical_Examination_Findings"]) for c in cases)
    assert funnel.events["results"] == there
