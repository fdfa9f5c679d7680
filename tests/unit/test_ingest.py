"""MIMIC-IV importer: what becomes a record, what is dropped and counted, the splits."""

import csv
import gzip
from collections import Counter
from pathlib import Path

import pytest
from mimic_tables import DETAIL, NOTE, NOTES, many, mimic_tables, settings, write_mimic, write_table

from cdpr.cases import is_physical, parse_analytes
from cdpr.ingest import IngestError, ingest

DEMO = Path(__file__).parents[3] / "shared" / "data" / "mimic_iv_demo_2.2"


def test_mimic_notes_and_events_become_records(tmp_path):
    real = {"path": "real", "hours_after_admission": 24, "credentialed": True}
    records, attrition = ingest("mimic_iv", settings(mimic_iv=real), write_mimic(tmp_path))
    assert attrition.dropped == {
        "note of no known admission": ["9-DS-1"],
        "diagnosis stated in the summary": ["2-DS-1"],
    }
    assert attrition.read == 4
    assert "       3 left,        1 dropped: note of no known" in attrition.text()
    assert "       2 left,        1 dropped: diagnosis stated" in attrition.text()
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
    assert attrition.events == {
        "laboratory rows": 9, "laboratory rows in no case's window": 1, "laboratory rows without a result": 1,
        "laboratory rows repeated later": 1, "laboratory rows used": 6,
        "microbiology rows": 3, "microbiology rows of cancelled tests": 1, "microbiology rows used": 2,
        "radiology reports": 1, "radiology reports used": 1}  # fmt: skip


@pytest.mark.parametrize(("cases", "test"), [(37, 7), (38, 8)])
def test_too_few_cases_are_split_in_the_proportion_that_was_set(tmp_path, cases, test):
    """Each of another patient, where 100 are asked for: 7.4 and 3.7 are nearest to 7 and 4, 7.6 and 3.8 to 8 and 4."""
    for name, (columns, rows) in many(cases).items():
        rows = rows[::2] if name == "note/discharge" else rows
        write_table(tmp_path / f"{name}.csv.gz", columns, rows)
    sizes = {"train_cases": 70, "validation_cases": 10, "test_cases": 20}
    records, attrition = ingest(
        "mimic_iv", settings(mimic_iv={"path": "real", "credentialed": False}, **sizes), tmp_path
    )
    assert Counter(record.split for record in records) == {"train": 26, "validation": 4, "test": test}
    assert f"{cases} usable cases where 100 are asked for: split in proportion" in attrition.warnings[0]


def test_order_of_rows_and_columns_does_not_matter(tmp_path):
    told = [ingest("mimic_iv", settings(), write_mimic(tmp_path / str(seed), seed)) for seed in (1, 2)]
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
    large, attrition = ingest("mimic_iv", settings(train_cases=20, validation_cases=6, test_cases=10), tmp_path)
    for records in (small, large):
        sides = {(r.subject_key, r.split) for r in records}
        assert len(sides) == len({subject for subject, _ in sides}) > 3
    test = [[r.note_id for r in records if r.split == "test"] for records in (small, large)]
    assert test[0] == test[1] and len(test[0]) == 10
    assert attrition.splits == {"train": 20, "validation": 6, "test": 10}
    with pytest.raises(IngestError, match=r"40 usable cases .* raise hospital\.mimic_patients"):
        ingest("mimic_iv", settings(mimic_iv={}, train_cases=100), tmp_path)
    fewer, attrition = ingest("mimic_iv", settings(train_cases=150, test_cases=50), tmp_path)
    assert len(fewer) == 40 and attrition.splits["test"] == 10 and "40 usable cases" in attrition.warnings[-1]


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """The real demo tables with a note of ours for every admission, and a report for every third."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "hosp").symlink_to(DEMO / "hosp")
    with gzip.open(DEMO / "hosp" / "admissions.csv.gz", "rt") as lines:
        admissions = list(csv.DictReader(lines))
    text = NOTE.format(complaint="Fever", diagnosis="Sinusitis")
    write_table(folder / "note/discharge.csv.gz", NOTES, [
        {"note_id": f"{a['subject_id']}-DS-{a['hadm_id']}", "subject_id": a["subject_id"], "hadm_id": a["hadm_id"],
         "text": text} for a in admissions])  # fmt: skip
    write_table(folder / "note/radiology.csv.gz", NOTES, [
        {"note_id": f"{a['subject_id']}-RR-{a['hadm_id']}", "subject_id": a["subject_id"], "hadm_id": "",
         "charttime": a["admittime"], "text": "EXAMINATION: CHEST\n\nFINDINGS: Clear."}
        for a in admissions[::3]])  # fmt: skip
    write_table(folder / "note/radiology_detail.csv.gz", DETAIL, [])
    return folder


@pytest.mark.skipif(not DEMO.exists(), reason="the MIMIC-IV demo tables are not beside the repository (../shared/data)")
@pytest.mark.parametrize("after", [0, 24])
def test_every_row_of_the_real_demo_tables_is_accounted_for(demo, after):
    wanted = {"path": "real", "hours_after_admission": after}
    records, attrition = ingest("mimic_iv", settings(mimic_iv=wanted, train_cases=200, test_cases=75), demo)
    assert attrition.read == 275 == len(records) + sum(map(len, attrition.dropped.values()))
    assert len(records) >= (200 if after else 100)
    # Nothing is told of tables that are whole, but of a rule that drops many.
    large = "WARNING: the rule 'no examination' drops {} of 275 cases"
    dropped = len(attrition.dropped.get("no examination", ()))
    told = [warning.partition(" (")[0] for warning in attrition.warnings if "WARNING" in warning]
    assert told == ["WARNING: note/radiology_detail has a header and no row",
                    *([large.format(dropped)] if dropped > 27 else [])]  # fmt: skip
    for what, rows in (("laboratory rows", 107_727), ("microbiology rows", 2_899), ("radiology reports", 92)):
        assert attrition.events[what] == rows == sum(n for k, n in attrition.events.items() if k.startswith(f"{what} "))
    found = Counter(key for r in records for key in r.key_pertinent_results_dict)
    assert min(found["Complete Blood Count"], found["Kidney Function Tests"], found["Urine Analysis"]) > 10
    for record in records:
        blood = parse_analytes(record.key_pertinent_results_dict.get("Complete Blood Count", ""))
        assert len({a.label for a in blood}) == len(blood)
        assert "Value: ___" not in str(record.key_pertinent_results_dict)
