"""MIMIC-IV importer: which event belongs to which admission, which note counts, and what becomes of odd tables."""

from pathlib import Path

import pandas as pd
import pytest
from mimic_tables import lab, mimic_tables, settings, write_mimic, write_table

from cdpr.cases import parse_analytes
from cdpr.ingest import IngestError, ingest

ADMIT = {"11": "2150-03-02 08:00:00", "12": "2150-03-03 20:00:00", "13": "2150-03-05 08:00:00"}


def ingested(folder: Path, changes: dict[str, list[dict]], **source):
    """Records by note and the attrition, of the tables with these rows instead of their own."""
    for name, (columns, rows) in mimic_tables().items():
        write_table(folder / f"{name}.csv.gz", columns, changes.get(name, rows))
    wanted = {"path": "real", "credentialed": False, "hours_before_admission": 24, "hours_after_admission": 0, **source}
    records, attrition = ingest("mimic_iv", settings(mimic_iv=wanted, train_cases=9, test_cases=9), folder)
    return {record.note_id: record for record in records}, attrition


def zonulin(record) -> str | None:
    return (record and record.key_pertinent_results_dict.get("Zonulin (Stool)", "").partition(";")[0]) or None


@pytest.mark.parametrize(
    ("hadm", "time", "owner"),
    [
        ("11", "2150-03-01 08:00:00", "11"),  # both edges count
        ("11", "2150-03-01 07:59:59", None),
        ("11", ADMIT["11"], "11"),
        ("11", "2150-03-02 08:00:01", None),
        ("", "2150-03-02 07:00:00", "11"),
        ("", "2150-03-03 01:59:59", None),  # nearer to the first stay, after its admission
        ("", "2150-03-03 02:00:00", "12"),  # half way between the two: the later one's
        ("11", "2150-03-03 10:00:00", None),  # of the first stay by its number, whatever is nearer
        ("12", "2150-03-03 10:00:00", "12"),
        ("", "2150-03-04 15:00:00", None),  # nearer to a stay that has no note: nobody's
        ("99", "2150-03-02 07:00:00", None),
    ],
)
def test_an_event_belongs_to_the_stay_that_it_names_or_that_is_nearest(tmp_path, hadm, time, owner):
    stays = [{"subject_id": "1", "hadm_id": stay, "admittime": at} for stay, at in ADMIT.items()]
    records, attrition = ingested(
        tmp_path, {"hosp/admissions": stays, "hosp/labevents": [lab(1, hadm, "50999", time, "3")]}
    )
    got = {stay: zonulin(records.get(note)) for stay, note in (("11", "1-DS-1"), ("12", "1-DS-2"))}
    assert got == {stay: "Zonulin: Value: 3" if stay == owner else None for stay in got}
    assert (
        attrition.events["laboratory rows"]
        == 1
        == sum(
            attrition.events[f"laboratory rows {part}"]
            for part in ("used", "in no case's window", "of no known admission")
        )
    )
    assert attrition.events["laboratory rows of no known admission"] == (hadm == "99")


def micro(hadm="11", specimen="SPUTUM", test="GRAM STAIN", time="2150-03-02 05:00:00", **columns):
    return {"subject_id": "1", "hadm_id": hadm, "chartdate": time[:10] + " 00:00:00", "charttime": time,
            "spec_type_desc": specimen, "test_name": test, "test_seq": "1", **columns}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "results", "counted"),
    [
        pytest.param([micro(time="2150-03-01", charttime="", comments="Cocci.")], {"GRAM STAIN (Sputum)": "Cocci."},
                     {"used": 1}, id="date of the day in which the window begins"),
        pytest.param([micro(time="2150-02-28", charttime="", comments="Cocci.")], {}, {"in no case's window": 1},
                     id="date of the day before"),
        pytest.param([micro(micro_specimen_id="5", comments="Cocci."), micro(micro_specimen_id="6", org_name="YEAST")],
                     {"GRAM STAIN (Sputum)": "Organism: YEAST; Comments: Cocci."}, {"used": 2},
                     id="two bottles of one draw"),
        pytest.param([micro(org_name="CANCELLED", comments="Not received."), micro(comments="Cocci.")],
                     {"GRAM STAIN (Sputum)": "Cocci."}, {"used": 1, "of cancelled tests": 1}, id="one cancelled"),
        pytest.param([micro(comments="Test cancelled by laboratory.")], {}, {"of cancelled tests": 1}, id="cancelled"),
        pytest.param([micro(comments="___")], {}, {"without a result": 1}, id="nothing told"),
        pytest.param([micro(test="URINE CULTURE", specimen="URINE", org_name="YEAST")],
                     {"Urine Culture": "Organism: YEAST"}, {"used": 1}, id="the name tells the specimen"),
        pytest.param([micro(specimen="CSF;SPINAL FLUID", comments="None."), micro(comments="Cocci.")],
                     {"GRAM STAIN (CSF)": "None.", "GRAM STAIN (Sputum)": "Cocci."}, {"used": 2},
                     id="the same test of two specimens"),
        pytest.param([micro(comments="Cocci.", time="2150-03-02 06:00:00"), micro(comments="Rods.")],
                     {"GRAM STAIN (Sputum)": "Rods."}, {"used": 1, "repeated later": 1}, id="the first counts"),
    ],
)  # fmt: skip
def test_microbiology_by_test_and_specimen(tmp_path, rows, results, counted):
    records, attrition = ingested(tmp_path, {"hosp/microbiologyevents": rows, "hosp/labevents": []})
    found = records["1-DS-1"].key_pertinent_results_dict
    assert {key: text for key, text in found.items() if "Culture" in key or "STAIN" in key} == results
    told = {
        k.removeprefix("microbiology rows "): n for k, n in attrition.events.items() if k.startswith("microbiology ")
    }
    assert told.pop("microbiology rows") == len(rows) and {k: n for k, n in told.items() if n} == counted


def report(number, text, time="2150-03-02 07:00:00"):
    return {"note_id": number, "subject_id": "1", "hadm_id": "11", "charttime": time, "text": text}


def detail(number, name, value, place="1"):
    return {"note_id": number, "subject_id": "1", "field_name": name, "field_value": value, "field_ordinal": place}


@pytest.mark.parametrize("word", ["None", "NONE", "NA", "n/a", "null", "nan", "#N/A", "-", "___", ""])
def test_a_name_that_says_none_names_no_examination(tmp_path, word):
    """An item is called by its number, a test without a name is left out, and both are counted; a specimen and an
    examination of a report are as if they were not there."""
    tables = mimic_tables()
    items = [row | {"label": word} if row["itemid"] == "50999" else row for row in tables["hosp/d_labitems"][1]]
    names = [row | {"field_value": word} for row in tables["note/radiology_detail"][1]]
    tests = [micro(test=word, comments="Cocci."), micro(specimen=word, comments="Cocci.")]
    changes = {"hosp/d_labitems": items, "note/radiology_detail": names, "hosp/microbiologyevents": tests}
    records, attrition = ingested(tmp_path, changes)
    keys = [key for key in records["1-DS-1"].key_pertinent_results_dict if not key.endswith("(Physical Examination)")]
    assert keys == ["Complete Blood Count", "Item 50999 (Stool)", "Gram Stain", "Chest X-ray"]
    assert attrition.events["laboratory items without a name, called by their number"] == 1
    assert attrition.events["microbiology rows without a test name"] == 1


def test_radiology_by_its_examination_names_with_addenda(tmp_path):
    records, attrition = ingested(tmp_path, {
        "note/radiology": [report("1-RR-1", "FINDINGS: Clear."), report("1-RR-2", "FINDINGS: Nodule.", "2150-03-09"),
                           report("1-RR-3", "EXAMINATION: KUB\n\nFINDINGS: Gas."), report("1-RR-4", "FINDINGS: Lost."),
                           report("1-RR-5", "EXAMINATION: KUB\n\nFINDINGS: More gas.", "2150-03-02 07:30:00"),
                           report("1-AR-1", "ADDENDUM: A nodule.")],
        "note/radiology_detail": [detail("1-RR-1", "exam_name", "ZZ", "2"), detail("1-RR-1", "exam_name", "YY"),
                                  detail("1-RR-1", "exam_name", "", "3"), detail("1-AR-1", "parent_note_id", "1-RR-1")],
    })  # fmt: skip
    found = records["1-DS-1"].key_pertinent_results_dict
    assert found["YY"] == found["ZZ"] == "Clear. Addendum: A nodule."
    assert [text for key, text in found.items() if "Gas" in text or "gas" in text] == ["Gas."]
    assert {k: n for k, n in attrition.events.items() if k.startswith("radiology")} == {
        "radiology reports": 6, "radiology reports in no case's window": 1, "radiology reports used": 2,
        "radiology reports repeated later": 1, "radiology reports without a name": 1,
        "radiology reports that are addenda": 1}  # fmt: skip


def test_laboratory_results_whose_names_mean_one_examination_are_both_kept(tmp_path):
    items = [
        {"itemid": "1", "label": "Lactate", "fluid": "Blood"},
        {"itemid": "2", "label": "Lactic Acid", "fluid": "Blood"},
    ]
    rows = [
        lab(1, "11", "1", "2150-03-02 05:00:00", "2.0"),
        lab(2, "11", "2", "2150-03-02 06:00:00", "9.0; haemolysed"),
    ]
    records, _ = ingested(tmp_path, {"hosp/d_labitems": items, "hosp/labevents": rows})
    results = records["1-DS-1"].key_pertinent_results_dict
    values = [(analyte.label, analyte.value) for analyte in parse_analytes(results["Lactate"])]
    assert values == [("Lactate", "2.0"), ("Lactic Acid", "9.0, haemolysed")]


@pytest.mark.parametrize("held", ["keep", "drop"])
def test_specimens_that_nobody_examined_are_left_out_on_demand(tmp_path, held):
    items = [("1", "Blue Top Hold"), ("2", "HELD"), ("3", "H"), ("4", "EDTX1"), ("5", "Held Lactate"), ("6", "Holdase"),
             ("7", "Haptoglobin"), ("8", "PTH")]  # fmt: skip
    records, attrition = ingested(tmp_path, {
        "hosp/d_labitems": [{"itemid": i, "label": label, "fluid": "Blood"} for i, label in items],
        "hosp/labevents": [lab(i, "11", i, ADMIT["11"], "1") for i, _ in items],
        "hosp/microbiologyevents": [], "note/radiology": [],
    }, held_specimens=held)  # fmt: skip
    found = {k for k in records["1-DS-1"].key_pertinent_results_dict if "Physical Examination" not in k}
    assert len(found) == (8 if held == "keep" else 3)
    assert attrition.events["laboratory rows of held specimens"] == (0 if held == "keep" else 5)


def test_the_first_note_by_number_counts_and_one_of_another_patient_does_not(tmp_path):
    notes = {row["note_id"]: row for row in mimic_tables()["note/discharge"][1]}
    mine, other = notes["1-DS-1"], notes["1-DS-2"]
    records, attrition = ingested(tmp_path, {"note/discharge": [
        mine | {"note_id": "1-DS-21"}, mine | {"note_id": "1-DS-9"}, mine | {"note_id": "1-AD-1"},
        other | {"note_id": "2-DS-1", "subject_id": "2"}, other]})  # fmt: skip
    assert set(records) == {"1-DS-9", "1-DS-2"}
    assert attrition.dropped == {"note of no known admission": ["2-DS-1"],
                              "another note of the same admission": ["1-AD-1", "1-DS-21"]}  # fmt: skip


def test_rows_that_stand_twice_count_once_unless_they_disagree(tmp_path):
    plain, _ = ingested(tmp_path, {})
    for name, key, column in (
        ("hosp/admissions", "hadm_id", "admittime"),
        ("hosp/patients", "subject_id", "anchor_age"),
    ):
        rows = mimic_tables()[name][1]
        again, _ = ingested(tmp_path, {name: [*rows, rows[0]]})
        assert again == plain
        with pytest.raises(IngestError, match=f"'{rows[0][key]}' stands in several rows that disagree") as error:
            ingested(tmp_path, {name: [*rows, rows[0] | {column: rows[-1][column]}]})
        assert (error.value.line, error.value.field) == (2, key) and error.value.path.stem == f"{name[5:]}.csv"


def test_an_impossible_age_is_counted_and_not_told(tmp_path):
    young = [{"subject_id": "1", "gender": "F", "anchor_age": "0", "anchor_year": "2151"}]
    records, attrition = ingested(tmp_path, {"hosp/patients": young})
    assert records["1-DS-1"].case_summary.startswith("- Patient Information: female\n")
    # both stays of the patient; of the second patient's, whose row is missing, no age is known at all
    assert attrition.events["admissions at an impossible age, left out of the summary"] == 2


def test_whole_numbers_that_pandas_wrote_as_floats_are_the_same_numbers(tmp_path):
    plain, attrition = ingest("mimic_iv", settings(), write_mimic(tmp_path / "csv"))
    for name in mimic_tables():
        target = tmp_path / "floats" / f"{name}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        frame = pd.read_csv(tmp_path / "csv" / f"{name}.csv.gz", dtype={"value": str, "comments": str, "text": str})
        for column in frame.columns.intersection(["subject_id", "hadm_id", "itemid", "test_seq", "anchor_age"]):
            frame[column] = frame[column].astype(float)
        frame.to_parquet(target)
    again, told = ingest("mimic_iv", settings(), tmp_path / "floats")
    assert (again, told.report()) == (plain, attrition.report())


def test_linked_tables_lie_where_they_are_told_to_and_do_not_stay(tmp_path):
    left = tmp_path / "state" / "tables" / "tables.duckdb"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"what a killed import left")
    ingest("mimic_iv", settings(), write_mimic(tmp_path / "raw"), state=left.parent.parent)
    assert not left.parent.exists() and left.parent.parent.exists()
