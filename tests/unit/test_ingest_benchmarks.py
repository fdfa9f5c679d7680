"""Importers of the benchmarks: ClinicalBench, the private format, AgentClinic."""

import csv
import gzip
import io
import json
import random
import re
import zipfile
from pathlib import Path

import pytest

from cdpr.cases import is_physical, parse_analytes
from cdpr.costs import load_catalogue
from cdpr.files import TableError
from cdpr.ingest import IngestError, ingest
from cdpr.ingest.attrition import Attrition, Leak
from cdpr.ingest.check import check, doubtful_cells, write_template
from cdpr.ingest.clinicalbench import NOTICE, read_clinicalbench, repair_backslashes
from cdpr.ingest.draft import NO_EXAMINATION, Import
from cdpr.ingest.flat_files import open_content
from cdpr.ingest.leaks import STRICT
from cdpr.ingest.private import FORMAT
from cdpr.ingest.texts import LONGEST_NAME, LONGEST_TEXT, is_absent, visible
from cdpr.report.data_card import kind_of
from cdpr.settings import Settings, parse_settings

AGENTCLINIC = Path(__file__).parents[3] / "shared" / "data" / "agentclinic" / "agentclinic_medqa.jsonl"
FREE = parse_settings({"data": {"private": {"credentialed": False}}})
CREDENTIALED = parse_settings({"data": {"private": {"credentialed": True}}})
ClinicalBench = type(Settings().data.clinicalbench)
# Line ends, quotes, paths, control characters, a text that runs backwards, half a character, a composed letter.
HOSTILE = "a\n\"b' ../../c\\d,;\x00\x1b[31m\u202egnp.exe\u200b\ud800 e\u0301"


def orderable(record) -> dict[str, str]:
    """The results of a case without those of its physical examination."""
    return {key: text for key, text in record.key_pertinent_results_dict.items() if not is_physical(key)}


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


def ingest_json(folder: Path, cases, **source):
    (folder / "cases.json").write_text(json.dumps(cases))
    return ingest("clinicalbench", parse_settings({"data": {"clinicalbench": {"language": "both", **source}}}), folder)


def test_clinicalbench_is_repaired_cut_and_reshaped(tmp_path):
    file = tmp_path / "sample.json"
    file.write_text(json.dumps(bench()).replace("#2", r"\#2").replace("15", r"15\%"))
    (record,), attrition = ingest("clinicalbench", Settings(), tmp_path)
    assert record.case_summary.splitlines() == [
        "- Patient Information: Female, 40 years.", "- Chief Complaint: Belly pain #2.",
        "- History of Present Illness: Since noon."]  # fmt: skip
    assert record.key_pertinent_results_dict == {
        "Abdomen (Physical Examination)": "Tender.", "Skin (Physical Examination)": "Warm.",
        "Routine blood test": "WBC 15%",
        "Plain computed tomography scan + Echocardiogram": "Swollen pancreas."}  # fmt: skip
    assert attrition.warnings == []


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"50\%", "50%"), (r"case \#2", "case #2"), (r"A\&E", "A&E"), (r"T\_max", "T_max"), (r"\$12", "$12"),
        (r"\%\%", "%%"), (r"\\%", r"\%"), (r"\\\%", r"\%"), (r"C:\windows", r"C:\windows"), (r"\alpha", r"\alpha"),
        (r"x\u00e9\u0025", "xé%"), (r"\user", r"\user"), (r"a\tb\n\"\/", 'a\tb\n"/'), (r"\(1\)", r"\(1\)"),
        (r"\\", "\\"), ("平扫50\\%。", "平扫50%。"),
    ],
)  # fmt: skip
def test_backslashes_are_repaired_as_a_reader_expects(written, read):
    text = repair_backslashes(f'{{"a": "{written}"}}')
    assert json.loads(text) == {"a": read}
    assert repair_backslashes(text) == text


def test_clinicalbench_cases_that_lack_something_are_listed_whatever_their_order(tmp_path):
    cases = [bench(id=2, laboratory_examination="WBC 9", imageological_examination="Not available."),
             bench(id=1, clinical_case_summary="nothing headed"), bench(id=3, principal_diagnosis=None),
             bench(id=2, laboratory_examination="WBC 9", imageological_examination="Not available.")]  # fmt: skip
    for order in (cases, cases[::-1]):
        (record,), attrition = ingest_json(tmp_path, order, path="mine")
        assert record.key_pertinent_results_dict["Laboratory Tests"] == "WBC 9"
        assert attrition.dropped == {
            "same case twice": ["clinicalbench-en-2"],
            "no headed sections in the case summary": ["clinicalbench-en-1"],
            "no diagnosis": ["clinicalbench-en-3"]}  # fmt: skip
        assert NOTICE in attrition.report().warnings


def test_clinicalbench_keeps_every_result_and_ends_it_with_the_impression(tmp_path):
    case = bench(laboratory_examination={"blood": {"result": "Na 140"}, "blood ": "K 4",
                                         "x (Physical Examination)": {"value": 3, "unit": "g"}, "y": {"result": "无"}},
                 imageological_examination={"ct": {"impression": "Stone.", "findings": "Bright spot."},
                                            "mri": {"impression": "Cyst."}},
                 pathological_examination={"biopsy": "Fat."})  # fmt: skip
    (record,), attrition = ingest_json(tmp_path, [case])
    results = orderable(record)
    assert results == {"Blood": "Na 140 K 4", "X": "value: 3 unit: g", "Ct": "Bright spot. Impression: Stone.",
                       "Mri": "Impression: Cyst.", "Biopsy": "Fat."}  # fmt: skip
    assert attrition.events == {"laboratory_examination entries without a result": 1}
    (tmp_path / "cases.json").write_text(json.dumps([case]))
    without = parse_settings({"data": {"leaks": {"impression": "drop"}}})
    (record,), attrition = ingest("clinicalbench", without, tmp_path)
    assert record.key_pertinent_results_dict["Ct"] == "Bright spot." and "Mri" not in record.key_pertinent_results_dict
    assert attrition.leaks() == (Leak(leak="impression of a report", action="removed", cases=1),)


def test_chinese_clinicalbench_is_cut_at_its_own_headings(tmp_path):
    summary = "患者基本信息：女，40岁。\n主诉：腹痛。\n病史：中午起。\n体格检查：腹部压痛。\n辅助检查：脂肪酶升高。"
    case = bench(language="zh", clinical_case_summary=summary, principal_diagnosis="急性胰腺炎",
                 imageological_examination={"CT": {"findings": "胰腺肿大", "impression": "胰腺炎"}},
                 pathological_examination="暂无。")  # fmt: skip
    other = bench(language=None, clinical_case_summary=summary, id=8)
    records, _ = ingest_json(tmp_path, [case, bench(), other])
    zh = next(r for r in records if r.note_id == "clinicalbench-zh-7")
    assert [r.language for r in records] == ["en", "zh", "zh"] and "脂肪酶" not in str(zh.model_dump())
    assert len({r.subject_key for r in records}) == 1
    assert zh.key_pertinent_results_dict == {
        "General Appearance (Physical Examination)": "腹部压痛。", "Routine blood test": "WBC 15",
        "CT": "胰腺肿大 印象：胰腺炎"}  # fmt: skip
    for language, kept in (("en", 1), ("zh", 2), ("both", 3)):
        attrition = Attrition("clinicalbench")
        work = Import(False, STRICT, attrition, tmp_path)
        assert len(list(read_clinicalbench(ClinicalBench(language=language), work))) == kept
        assert attrition.read == kept and attrition.events.total() == 3 - kept
        assert len(attrition.incidents) == (language != "en")  # the impression


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ([5], "[0]"),
        ([bench(), bench(id=None), bench(id="")], "[1].id"),
        ([bench(id=True)], "[0].id"),
        ([bench(id=HOSTILE * 20)], "[0].id"),
        ([bench(clinical_case_summary=["x"])], "[0].clinical_case_summary"),
        ([bench(principal_diagnosis=3, id=8)], "[0].principal_diagnosis"),
        ([bench(laboratory_examination=["a"])], "[0].laboratory_examination"),
        ([bench(pathological_examination="x" * (LONGEST_TEXT + 1))], "[0].'pathological_examination'"),
    ],
)
def test_broken_clinicalbench_names_case_and_field(tmp_path, broken, field):
    with pytest.raises(IngestError) as error:
        ingest_json(tmp_path, broken)
    assert error.value.field == field and len(str(error.value)) < 500


def test_odd_cases_of_clinicalbench_are_dropped_with_their_place_and_end_nothing(tmp_path):
    """Of two cases with one number the first counts."""
    odd = ["a case", bench(id=None), bench(id=8, laboratory_examination=["a"]), bench(id=9, principal_diagnosis=3),
           bench(id=5), bench(id=5, principal_diagnosis="Stroke")]  # fmt: skip
    file = tmp_path / "cases.json"
    text = json.dumps([bench(), *odd, bench(id=3), bench(id=4), bench(id=6), bench(id=10)], indent=1)
    file.write_text(text.replace('"id": 10', '"id": NaN'))
    records, attrition = ingest("clinicalbench", Settings(), tmp_path)
    assert [r.note_id[-1] for r in records] == ["3", "4", "5", "6", "7"] and attrition.read == 11
    assert {rule: len(ids) for rule, ids in attrition.dropped.items()} == {
        "case that cannot be read": 5, "note_id missing or repeated": 1}  # fmt: skip
    assert "(1) cases.json: field '[1]': expected an object, found str" in attrition.warnings[0]
    assert "cases.json: field '[10]': NaN is no number" in str(attrition.rows())


@pytest.mark.parametrize(
    ("stated", "kept", "counted"),
    [("fr", "", "fr"), ("ja-JP", "", "ja-jp"), ("français", "", "unknown"), ("en-US", "en", ""), ("zh_Hans", "zh", ""),
     ("简体中文", "zh", ""), ("null", "en", ""), (None, "en", "")],
)  # fmt: skip
def test_a_language_that_is_neither_english_nor_chinese_is_counted(tmp_path, stated, kept, counted):
    records, attrition = ingest_json(tmp_path, [bench(id=1), bench(language=stated)])
    assert [r.language for r in records if r.note_id[-1] == "7"] == [kept] * bool(kept)
    assert attrition.events == ({f"cases in another language ({counted})": 1} if counted else {})
    if counted:
        with pytest.raises(IngestError, match="no case in the language en; set data"):
            ingest_json(tmp_path, [bench(language=stated)], language="en")


PRIVATE = {
    "cases.csv": "case_id,patient_id,age,sex,chief_complaint,present_illness,past_history,personal_history,"
    "family_history,allergy_history,discharge_diagnosis\nK2,P2,50,M,cough,,,,,,Pneumonia\nK1,P1,40,f,rash,,,,,,Cellulitis\n",
    "results.csv": "case_id,sequence,category,examination,item,value,unit,reference_low,reference_high,flag,report\n"
    "K1,2,lab,FBC,Hb,90,g/L,120,160,L,\nK1,1,lab,FBC,WBC,15,10^9/L,4,10,H,\nK1,10,lab,fbc,WBC,9,10^9/L,4,10,,\n"
    "K1,3,physical,Skin,,,,,,,\"warm, red\"\nK2,1,imaging,Chest Film,,,,,,,clear\nK2,2,lab,CRP,CRP,,,,,,\n"
    "K9,1,lab,CRP,CRP,5,,,,,\n",
}  # fmt: skip


def write_private(folder: Path, **changes: tuple[str, str]) -> Path:
    for name, text in PRIVATE.items():
        (folder / name).write_text(text.replace(*changes.get(name.split(".")[0], ("", ""))), encoding="utf-8")
    return folder


def table(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(PRIVATE[name])))


def test_private_files_become_records(tmp_path):
    records, attrition = ingest("private", Settings(), write_private(tmp_path))
    assert [r.note_id for r in records] == ["K1", "K2"]
    results = records[0].key_pertinent_results_dict
    assert list(results) == ["FBC", "Skin (Physical Examination)"]
    assert [(a.label, a.number, a.level, a.flag) for a in parse_analytes(results["FBC"])] == [
        ("WBC", 15, "high", "abnormal"), ("Hb", 90, "low", "abnormal")]  # fmt: skip
    assert attrition.events == {"result rows": 7, "result rows without a result": 1, "repeated items": 1,
                             "result rows of unknown cases": 1}  # fmt: skip


def test_any_order_of_rows_and_columns_gives_the_same_private_records(tmp_path):
    records, _ = ingest("private", Settings(), write_private(tmp_path))
    rng = random.Random(0)
    for _ in range(10):
        for name in PRIVATE:
            rows = table(name)
            columns = rng.sample([*rows[0], "bed"], len(rows[0]) + 1)
            out = io.StringIO()
            writer = csv.DictWriter(out, [c.upper() for c in columns], restval="7")
            writer.writeheader()
            writer.writerows({c.upper(): row[c] for c in columns if c in row} for row in rng.sample(rows, len(rows)))
            (tmp_path / name).write_text("\ufeff" + out.getvalue(), encoding="utf-8")
        assert ingest("private", Settings(), tmp_path)[0] == records


def test_the_tables_of_the_private_format_agree():
    """The same list stands in prose, in a pattern and as columns of private_format.yaml."""
    rules, categories = FORMAT["rules"], FORMAT["rules"]["category"]["fits"].split("|")
    assert rules["sex"]["fits"].split("|") == list(FORMAT["sexes"])
    assert set(FORMAT["history"]) < set(FORMAT["case_columns"])
    assert set(FORMAT["filled"]) <= {*FORMAT["case_columns"], *FORMAT["result_columns"]} >= set(rules)
    for text in (FORMAT["summary"], rules["category"]["remedy"], rules["category"]["empty"]):
        assert f"one of {', '.join(categories)}" in text
    for rule in ("case_id", "patient_id", "examination"):
        assert f",{LONGEST_NAME}}}" in rules[rule]["fits"]
    for name, rule in rules.items():  # no remedy advises what another one refuses
        assert not rule.get("empty") or "leave it empty" not in rule["remedy"], name


def test_an_object_over_several_lines_is_told_what_json_lines_are(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"case_id": "K-1" "age": 40}\n')
    with pytest.raises(IngestError) as error:
        ingest("agentclinic", Settings(), tmp_path)
    assert error.value.remedy.endswith("(JSON Lines: one object a line)")
    assert "a comma" in str(error.value.without_text())


@pytest.mark.parametrize(
    ("file", "change", "line", "field"),
    [
        ("cases", ("50,M", "fifty,M"), 2, "age"),
        ("cases", ("50,M", "-5,M"), 2, "age"),
        ("cases", ("50,M", "1850,M"), 2, "age"),
        ("cases", ("40,f", "1984-02-30,f"), 3, "age"),
        ("cases", ("40,f", "40,x"), 3, "sex"),
        ("cases", ("K1,P1", "K2,P1"), 3, "case_id"),
        ("cases", ("K1,P1", "K\u200b2,P1"), 3, "case_id"),
        ("cases", ("K1,P1", '"K\n1",P1'), 3, "case_id"),
        ("cases", ("K1,P1", "K1," + "P" * 200), 3, "patient_id"),
        ("cases", ("allergy_history", "allergies"), 1, "allergy_history"),
        ("cases", ("patient_id", "case_id"), 1, "patient_id"),
        ("cases", ("Cellulitis", "Cellulitis,acute"), 3, None),
        ("cases", ("K1,P1", '"K1,P1'), 3, None),
        ("cases", (",", ";"), 1, None),
        ("cases", (",", "\t"), 1, None),
        ("results", (",", "\t"), 1, None),
        ("cases", ("case_id,", "sep=,\ncase_id,"), 1, None),
        ("results", ("case_id,", "SEP=;\ncase_id,"), 1, None),
        ("cases", ("K1,P1,40,f,rash,,,,,,Cellulitis", PRIVATE["cases.csv"].splitlines()[0]), 3, None),
        ("cases", ("Cellulitis", "x" * (LONGEST_TEXT + 1)), 3, None),
        ("results", ("2,lab,FBC", "2,blood,FBC"), 2, "category"),
        ("results", ("120,160", "low,160"), 2, "reference_low"),
        ("results", ("120,160", '"1,2",160'), 2, "reference_low"),
        ("results", ("120,160", "200,160"), 2, "reference_low"),
        ("results", ("K1,1,", "K1,first,"), 3, "sequence"),
        ("results", ("K1,1,", "K1,nan,"), 3, "sequence"),
        ("results", (",H,", ",up,"), 3, "flag"),
        ("results", ("imaging,Chest Film", "imaging,"), 6, "examination"),
        ("results", ("Chest Film", "x" * 200), 6, "examination"),
        ("results", ("Chest Film", "Chest (Physical Examination)"), 6, "examination"),
        ("results", ("K2,2", ",2"), 7, "case_id"),
    ],
)
def test_private_errors_name_file_line_and_field(tmp_path, file, change, line, field):
    write_private(tmp_path, **{file: change})
    with pytest.raises(IngestError) as error:
        ingest("private", Settings(), tmp_path)
    assert (error.value.path.name, error.value.line, error.value.field) == (f"{file}.csv", line, field)
    assert len(str(error.value)) < 500
    report = check(FREE, tmp_path)
    assert not report.ok and str(error.value) in map(str, report.problems)


@pytest.mark.parametrize(
    ("name", "content", "line", "said"),
    [
        ("cases.csv", PRIVATE["cases.csv"].replace(",", "\t").encode(), 1, "separated by tabs; save"),
        ("results.csv", PRIVATE["results.csv"].replace(",", ";").encode(), 1, "separated by semicolons; save"),
        ("results.csv", b"sep=,\r\n" + PRIVATE["results.csv"].encode(), 1, "sep= that Excel writes .*; remove"),
        ("results.csv", b"\n\nsep=;\n" + PRIVATE["results.csv"].encode(), 3, "the line sep= that Excel writes"),
        (
            "cases.csv",
            PRIVATE["cases.csv"].encode("utf-16"),
            None,
            "UTF-16, whatever its name says; .*not Unicode Text",
        ),
        (
            "results.csv",
            b"\xfe\xff" + PRIVATE["results.csv"].encode("utf-16-be"),
            None,
            "UTF-16, whatever its name says",
        ),
        (
            "results.csv.gz",
            gzip.compress(PRIVATE["results.csv"].encode("utf-16"), mtime=0),
            None,
            "UTF-16, whatever its name says",
        ),
        ("cases.csv", PRIVATE["cases.csv"].replace("rash", "éruption").encode("latin-1"), 3, "not UTF-8"),
        ("cases.csv", b"", 1, "the file is empty; begin it with the names of the columns"),
        ("cases.csv", "\ufeff\u200b,\n ,\n".encode(), 1, "the file is empty"),
        ("cases.csv", None, None, "no such file"),
        ("results.csv.gz", b"\x1f\x8b\x08no gzip", None, "cut short or damaged"),
        ("results.csv.gz", gzip.compress(PRIVATE["results.csv"].encode(), mtime=0)[:90], None, "cut short or damaged"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_problem_and_nothing_else(tmp_path, name, content, line, said):
    write_private(tmp_path, cases=("", ""))
    (tmp_path / name.removesuffix(".gz")).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    report = check(FREE, tmp_path)
    (problem,) = report.problems
    assert (problem.path.name, problem.line) == (name, line)
    assert re.search(said, str(problem)), problem
    hidden = "what the cases file hides is not unknown"
    assert "not listed" not in report.text() and not report.export.unlisted(), hidden


@pytest.mark.parametrize(("times", "kind"), [(4, "text"), (5, "zip")])
def test_an_archive_within_archives_is_unpacked_four_times(tmp_path, times, kind):
    """Otherwise an archive that contains itself would be unpacked without end."""
    content = b"text"
    for _ in range(times):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("inner", content)
        content = archive.getvalue()
    path = tmp_path / "cases.csv"
    path.write_bytes(content)
    found, packings, stream = open_content(path)
    stream.close()
    assert (found, packings) == (kind, ["zip"] * 4)


@pytest.mark.parametrize("column", ["case_id", "discharge_diagnosis", "age", "family_history"])
def test_the_remedy_of_a_missing_column_is_true(tmp_path, column):
    names = [name for name in table("cases.csv")[0] if name != column]
    (write_private(tmp_path) / "cases.csv").write_text(",".join(names) + "\n")
    (problem,) = check(FREE, tmp_path).problems
    assert (problem.field, problem.line) == (column, 1)
    assert problem.remedy == "add this column" + ("; it may be empty" if column in ("age", "family_history") else "")


def test_a_file_that_stands_there_twice_is_an_error(tmp_path):
    for name in PRIVATE:
        write_private(tmp_path)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(PRIVATE[name].encode()))
        with pytest.raises(IngestError, match=f"holds {name} and {name}.gz; keep the one that is right"):
            ingest("private", Settings(), tmp_path)
        assert not check(FREE, tmp_path).ok
        (tmp_path / f"{name}.gz").unlink()


@pytest.mark.parametrize(
    ("file", "change", "line", "field", "remedy"),
    [
        ("results", ("Hb,90,g/L", "Hb,131 g/L,"), 2, "value", "write the unit into the column unit"),
        ("results", ("Hb,90,g/L", "Hb,>98%,"), 2, "value", "write the unit into the column unit"),
        ("results", ("Hb,90,g/L", "Hb,5.6mmol/L,"), 2, "value", "write the unit into the column unit"),
        ("results", ("Hb,90,", "Hb,#DIV/0!,"), 2, "value", "correct it or leave it empty"),
        ("results", ("clear", "#VALUE!"), 6, "report", "correct it or leave it empty"),
        ("cases", ("cough", "#REF!"), 2, "chief_complaint", "correct it or leave it empty"),
        ("cases", ("Pneumonia", "#####"), 2, "discharge_diagnosis", "correct it or leave it empty"),
        ("cases", ("Pneumonia", "J18.9"), 2, "discharge_diagnosis", "write the name of the disease"),
        ("cases", ("Pneumonia", "i21"), 2, "discharge_diagnosis", "write the name of the disease"),
        ("cases", ("Pneumonia", "410.71"), 2, "discharge_diagnosis", "write the name of the disease"),
        ("cases", ("Pneumonia", "1. Pneumonia 2. COPD"), 2, "discharge_diagnosis", "keep the primary diagnosis alone"),
        ("cases", ("Pneumonia", '"1) Flu\n2) COPD"'), 2, "discharge_diagnosis", "keep the primary diagnosis alone"),
        ("cases", ("Pneumonia", "1.肺炎2.高血压"), 2, "discharge_diagnosis", "keep the primary diagnosis alone"),
        ("results", ("Hb,90,", "Hb,1.2E+02,"), None, None, None),
        ("results", ("Hb,90,g/L", "Hb,1e2,"), None, None, None),
        ("results", ("Hb,90,g/L", "Hb,2+,"), None, None, None),
        ("results", ("Hb,90,g/L", "Hb,2h,after a meal"), None, None, None),
        ("results", ("Hb,90,g/L", "Hb,1:80,"), None, None, None),
        ("results", ("Hb,90,g/L", "Hb,<0.5,"), None, None, None),
        ("results", ("Hb,90,g/L", "Hb,Negative,"), None, None, None),
        ("cases", ("Pneumonia", "Type 2 diabetes mellitus"), None, None, None),
        ("cases", ("Pneumonia", "1.5 cm nodule of the thyroid"), None, None, None),
        ("cases", ("Pneumonia", "COVID-19"), None, None, None),
        ("cases", ("Pneumonia", "Hepatitis B"), None, None, None),
    ],
)
def test_what_reads_like_a_slip_is_shown_but_not_refused(tmp_path, file, change, line, field, remedy):
    report = check(FREE, write_private(tmp_path, **{file: change}))
    assert report.ok, report.text()
    doubts = [(p.path.name, p.line, p.field, p.remedy) for p in doubtful_cells(report.export)]
    assert doubts == ([(f"{file}.csv", line, field, remedy)] if field else [])
    assert ("worth a look" in report.text()) == bool(field)
    quiet = check(CREDENTIALED, tmp_path).text().replace(str(tmp_path), "")
    assert all(value not in quiet for value in ("131", "J18", "COPD", "肺炎", "#REF"))


def test_a_power_of_ten_is_a_number(tmp_path):
    write_private(tmp_path, results=("Hb,90,g/L,120,160", "Hb,1.2E+02,g/L,1.1e2,1.6E+02"))
    (record, _), _ = ingest("private", Settings(), tmp_path)
    hb = parse_analytes(record.key_pertinent_results_dict["FBC"])[1]
    assert (hb.label, hb.value, hb.number, hb.low, hb.high) == ("Hb", "120", 120, 110, 160)


def test_every_row_of_a_case_that_is_not_listed_is_told_and_counted(tmp_path):
    more = "".join(f"K9,{n},lab,CRP,CRP,{n},,,,,\n" for n in range(2, 20))
    write_private(tmp_path)
    with (tmp_path / "results.csv").open("a") as out:
        out.write(more)
    report = check(FREE, tmp_path)
    assert len(report.export.unlisted()) == report.attrition.events["result rows of unknown cases"] == 19
    (tmp_path / "cases.csv").write_text(PRIVATE["cases.csv"].replace("K1,P1,", "K1,"))
    report = check(FREE, tmp_path)
    assert not report.export.unlisted() and "result rows of unknown cases" not in report.attrition.events


def test_check_prices_as_map_costs_does(tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("examination,price_usd\nChest Fulm,12\n")
    write_private(tmp_path, results=("Chest Film", "Chest Fulm"))
    chosen = parse_settings(
        {"data": {"price_overrides": str(own), "private": {"credentialed": False}}, "costs": {"fallback_usd": 6}}
    )
    text = check(chosen, tmp_path).text()
    assert "2 of 2 names have one of their own" in text and "1 name, from data.price_overrides" in text
    assert "fallback" not in text
    text = check(FREE, write_private(tmp_path, results=("Chest Film", "经络辨识"))).text()
    assert "'经络辨识' (1 case): 5.00 USD\n" in f"{text}\n" and "nearest" not in text
    text = check(FREE, write_private(tmp_path, results=("Chest Film", "Ward Panel Q7"))).text()
    rate = load_catalogue().class_rates["laboratory test"].usd
    assert f"'Ward Panel Q7' (1 case): {rate:.2f} USD\n" in f"{text}\n"
    own.write_text("examination,price_usd\nChest Fulm,much\n")
    with pytest.raises(TableError, match=r"own\.csv:2: field 'price_usd'"):
        check(chosen, tmp_path)


def test_objects_that_cannot_be_read_say_why(tmp_path):
    for text, message in (('{"case_id": "K1", "case_id": "K2"}', "occurs twice"), ('{"age": NaN}', "NaN is no number"),
                          ("[" * 10**5, "nested too deeply"), ('{"case_id": "K1"', "not JSON"),
                          ("7", "expected an object"),
                          ('{"OSCE_Examination": [7]}', "expected an object")):  # fmt: skip
        (tmp_path / "a.jsonl").write_text(text)
        with pytest.raises(IngestError, match=message):
            ingest("agentclinic", Settings(), tmp_path)


def test_hostile_texts_stay_on_their_line_and_in_their_place(tmp_path):
    write_private(tmp_path)
    rows = table("results.csv")
    rows[4]["examination"] = rows[0]["item"] = rows[0]["value"] = HOSTILE.replace("\ud800", "")
    with (tmp_path / "results.csv").open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    records, _ = ingest("private", Settings(), tmp_path)
    shown = json.dumps([r.key_pertinent_results_dict for r in records], ensure_ascii=False)
    assert not any(mark in shown for mark in ("\\n", "\\u0000", "\\u001b", "\u202e", "\u200b", "e\u0301"))
    assert "é" in shown and len(parse_analytes(records[0].key_pertinent_results_dict["FBC"])) == 2
    case = bench(laboratory_examination={HOSTILE: "1", "x" * 500: "2", "": "3"}, id=HOSTILE)
    (record,), _ = ingest_json(tmp_path, [case])
    keys = list(orderable(record))
    assert len(keys) == 4 and all(0 < len(key) <= LONGEST_NAME and key == " ".join(key.split()) for key in keys)
    assert json.dumps(record.model_dump(), ensure_ascii=False).encode("utf-8")


def test_check_collects_every_problem_and_withholds_values(tmp_path):
    write_private(tmp_path, cases=("K1,P1,40", "K1,P1,SECRET"), results=("lab,FBC", "SECRET'\"x,FBC"))
    report = check(FREE, tmp_path)
    assert [(p.path.name, p.line, p.field) for p in report.problems] == [
        ("results.csv", 2, "category"), ("results.csv", 3, "category"), ("cases.csv", 3, "age")]  # fmt: skip
    text = report.text()
    assert "results.csv, category: use one of lab" in text and "(2 times)" in text and text.count("SECRET") == 3
    assert "kept 2 of 2 cases" in text
    quiet = check(CREDENTIALED, tmp_path)
    assert "SECRET" not in quiet.text() and "SECRET" in quiet.text(show_values=True)
    assert "SECRET" not in check(Settings(), tmp_path).text(), "free is what the settings call so"
    with pytest.raises(IngestError) as error:
        ingest("private", CREDENTIALED, tmp_path)
    assert "SECRET" not in str(error.value) and "(withheld)" in str(error.value)


def test_check_tells_what_would_be_ingested(tmp_path):
    text = check(FREE, write_private(tmp_path, results=("Chest Film", "Chest Fulm"))).text()
    assert "can be ingested" in text and "results of cases that are not listed, left out: results.csv, lines 8" in text
    assert "'Chest Fulm' (1 case): 5.00 USD; nearest known name: Chest X-ray" in text and "1 of 2 names" in text
    assert "Chest Fulm" not in check(CREDENTIALED, tmp_path).text()
    assert not check(FREE, tmp_path / "nowhere").ok


def test_the_template_passes_the_check_and_overwrites_nothing(tmp_path):
    write_template(tmp_path / "new")
    report = check(FREE, tmp_path / "new")
    assert report.ok and len(report.cases) == 2 and "fallback" not in report.text(), report.text()
    with pytest.raises(IngestError, match="stands there already"):
        write_template(tmp_path / "new")


def osce(**changes) -> dict:
    return {"OSCE_Examination": {
        "Patient_Actor": {"Demographics": "30-year-old man", "History": "Unwell",
                          "Symptoms": {"Primary_Symptom": "Cough", "Secondary_Symptoms": ["Fever", "Chills"]},
                          "Past_Medical_History": ["Asthma"], "Social_History": "Not provided."},
        "Physical_Examination_Findings": {"Vital_Signs": {"Temperature": "39", "Pulse": "100"},
                                          "Chest_Examination": "dull"},
        "Test_Results": {"Imaging": {"Chest_X-ray": {"Findings": "Opacity."}, "Chest_X-Ray": {"Findings": "Effusion."},
                                     "X-ray_of_the_Left_Hand": "Normal", "MRI_Left_Knee": {"Optional": "Consider."}},
                         "Blood_Tests": {"Complete_Blood_Count": {"WBC": "15", "Differential_Count": {"Bands": "9%"}},
                                         "Hb": "9", "CRP": "High", "Na": "140", "Cr": "1", "Ferritin": "Pending"},
                         "Urine_Tests": {"Glucose": "None"}, "Vital_Signs_at_Presentation": {"Pulse": "100"},
                         "Biopsy": {}},
        "Correct_Diagnosis": "Pneumonia", **changes}}  # fmt: skip


def ingest_osce(folder: Path, tests: dict):
    """The record of a case with these tests, and what its import counted."""
    (folder / "cases.jsonl").write_text(json.dumps(osce(Test_Results=tests)))
    (record,), attrition = ingest("agentclinic", Settings(), folder)
    return record, attrition


def test_agentclinic_names_are_flattened_gathered_and_brought_to_the_vocabulary(tmp_path):
    file = tmp_path / "cases.jsonl"
    cases = (osce(), osce(), osce(Correct_Diagnosis="Cough"), osce(Correct_Diagnosis=None))
    file.write_text("\n".join(map(json.dumps, cases)))
    (record,), attrition = ingest("agentclinic", Settings(), tmp_path)
    assert record.key_pertinent_results_dict == {
        "Vital Signs (Physical Examination)": "Temperature: 39; Pulse: 100; Vital Signs at Presentation: Pulse: 100",
        "Respiratory (Physical Examination)": "dull", "Chest X-ray": "Opacity.; Effusion.",
        "Hand X-ray": "X-ray of the Left Hand: Normal",
        "Complete Blood Count": "WBC: 15; Hb: 9", "White Blood Cell Differential": "Bands: 9%",
        "C-Reactive Protein": "CRP: High", "Comprehensive Metabolic Panel": "Na: 140",
        "Kidney Function Tests": "Cr: 1", "Urine Analysis": "Glucose: None"}  # fmt: skip
    assert "- History of Present Illness: Unwell. Secondary Symptoms: Fever, Chills." in record.case_summary
    assert "Personal History" not in record.case_summary
    assert {rule: len(ids) for rule, ids in attrition.dropped.items()} == {
        "same case twice": 1, "no diagnosis": 1, "diagnosis stated in the summary": 1}  # fmt: skip
    assert attrition.events == {"results": 4 * 14, "entries without a result": 4 * 2}
    for broken, field in (
        (osce(Test_Results=None), "OSCE_Examination.Test_Results"),
        ({}, "OSCE_Examination"),
        ([], None),
    ):
        file.write_text(json.dumps(osce()) + "\n" + json.dumps(broken))
        records, attrition = ingest("agentclinic", Settings(), file)
        assert len(records) == 1 and attrition.dropped == {"case that cannot be read": ["cases.jsonl, case 2"]}
        assert f"cases.jsonl:2: {f'field {field!r}: ' if field else ''}expected an object" in attrition.warnings[0]
        file.write_text("\n".join(map(json.dumps, (osce(), broken, broken))))
        with pytest.raises(IngestError) as error:  # most of the file is something else
            ingest("agentclinic", Settings(), file)
        assert (error.value.line, error.value.field) == (2, field)
    file.write_text(json.dumps(osce()) + '\n{"OSCE')
    records, attrition = ingest("agentclinic", Settings(), file)
    assert len(records) == 1 and "cases.jsonl:2: not JSON at column 2" in attrition.warnings[0]


def test_a_history_in_other_spellings_is_read_and_the_rest_counted(tmp_path):
    told = {"History": "Unwell", "past medical history": "Asthma", "Family-History": "Gout", "Shoe_Size": "42"}
    (tmp_path / "a.jsonl").write_text(
        json.dumps(osce(Patient_Actor=told, Test_Results={"CT_Head": ["Pending", "No bleed"]}))
    )
    (record,), attrition = ingest("agentclinic", Settings(), tmp_path)
    assert "Past Medical History: Asthma" in record.case_summary and "Family History: Gout" in record.case_summary
    assert record.key_pertinent_results_dict["CT Head"] == "No bleed"
    assert attrition.events["fields that the format does not know"] == 1


def test_what_tells_of_no_result_is_told_from_results():
    absent = ("", "Not available.", "N/A", "N/A for the newborn.", "Pending", "Data not provided", "暂无。", "未查")
    results = ("None", "Negative", "Not detected", "Na 140", "No growth", "Not specified, but probably high", "无异常")
    assert all(map(is_absent, absent)) and not any(map(is_absent, results))


@pytest.mark.skipif(
    not AGENTCLINIC.exists(), reason="AgentClinic's cases are not beside the repository (../shared/data)"
)
def test_all_real_agentclinic_cases_are_accounted_for():
    records, attrition = ingest("agentclinic", Settings(), AGENTCLINIC)
    assert attrition.read == 107 == len(records) + sum(map(len, attrition.dropped.values()))
    assert len(records) >= 100
    assert all(r.case_summary.startswith("- Patient Information: ") for r in records)

    def leaves(node) -> int:
        return sum(map(leaves, node.values())) if isinstance(node, dict) else 1

    cases = [json.loads(line)["OSCE_Examination"] for line in AGENTCLINIC.read_text().splitlines()]
    there = sum(leaves(c["Test_Results"]) + leaves(c["Physical_Examination_Findings"]) for c in cases)
    assert attrition.events["results"] + attrition.events["entries without a result"] == there
    keys = [key for record in records for key in orderable(record)]
    assert sum(load_catalogue().find(key) is not None for key in keys) / len(keys) > 0.85


def test_clinicalbench_headings_behind_a_bracket_are_cut(tmp_path):
    summary = (
        "【患者基本信息】女，40岁。【主诉】腹痛（三天）【病史】中午起（加重）（二）体格检查：腹部压痛。"
        "墨菲征（+）辅助检查：脂肪酶升高。"
    )
    records, _ = ingest_json(tmp_path, [bench(language="zh", clinical_case_summary=summary)])
    told = str(records[0].model_dump(include={"case_summary", "key_pertinent_results_dict"}))
    assert "脂肪酶" not in told and "压痛" not in records[0].case_summary
    assert records[0].key_pertinent_results_dict["General Appearance (Physical Examination)"].startswith("腹部压痛")


def test_an_imaging_block_that_is_a_text_is_told_apart_and_counted(tmp_path):
    told = "Of yesterday. Chest CT: A cyst. Seen before. Abdominal ultrasound: Normal."
    (record,), attrition = ingest_json(tmp_path, [bench(imageological_examination=told)])
    results = orderable(record)
    assert results == {"Routine blood test": "WBC 15", "Imaging": "Of yesterday.", "Chest CT": "A cyst. Seen before.",
                       "Abdominal ultrasound": "Normal."}  # fmt: skip
    assert attrition.events == {"imageological_examination given as text": 1}
    assert kind_of("Imaging") == kind_of("Chest CT") == "imaging" and kind_of("Laboratory Tests") == "laboratory"


def test_remarks_and_treatments_among_the_results_are_no_examinations(tmp_path):
    laboratory = {"lipase": {"result": "900"}, "remarks": "Fasting.", "treatment": "Fluids.", "reference_range": "0-60"}
    (record,), attrition = ingest_json(tmp_path, [bench(laboratory_examination=laboratory)])
    assert set(orderable(record)) == {"Lipase", "Plain computed tomography scan + Echocardiogram"}
    assert attrition.events == {NO_EXAMINATION: 3}


def test_agentclinic_headings_that_name_a_modality_are_read_with_what_stands_below(tmp_path):
    tests = {"X-rays": {"Knee": {"Findings": "Normal."}, "Left_Hip": "Arthrosis."}, "CT": "A cyst.",
             "Biopsy": {"Cervical_Lymph_Node": {"Findings": "CD20."}, "Site": "neck"},
             "Blood_Pressure_Differential": "20 mmHg", "Treatment": "Rest."}  # fmt: skip
    record, attrition = ingest_osce(tmp_path, tests)
    assert set(orderable(record)) == {"Knee X-ray", "Hip X-ray", "CT", "Lymph Node Biopsy", "Biopsy"}
    assert "20 mmHg" in record.key_pertinent_results_dict["Vital Signs (Physical Examination)"]
    assert attrition.events[NO_EXAMINATION] == 1


def test_agentclinic_names_say_with_their_heading_which_examination_they_are(tmp_path):
    tests = {"Stool": {"Occult_Blood_Test": "Positive"}, "Skin_Scraping": {"Culture": "A dermatophyte."},
             "Skin_Biopsy": {"Histopathology": {"Findings": "Blisters."}}, "Blood_Works": {"FSH": "30", "Cr": "1"},
             "Serum_Levels": {"Varicella": "None"}, "Routine_Blood_Tests": {"ESR": "10"},
             "Biopsy_Left_Femur": "Necrosis.", "CBC_Normal_Range": "Yes",
             "X_Rays": {"Hip_and_Knee_X_Rays": {"Findings": "Normal."}},
             "Electromyography": {"Findings": "Normal."}}  # fmt: skip
    record, _ = ingest_osce(tmp_path, tests)
    results = orderable(record)
    assert set(results) == {
        "Fecal Occult Blood Test", "Fungal Culture", "Skin Biopsy", "Follicle Stimulating Hormone", "Bone Biopsy",
        "Kidney Function Tests", "Varicella-Zoster Antibody", "Erythrocyte Sedimentation Rate", "Complete Blood Count",
        "Electromyography", "Hip and Knee X-ray"}  # fmt: skip
    assert "Left Femur" in results["Bone Biopsy"] and results["Skin Biopsy"].endswith("Blisters.")


@pytest.mark.parametrize(
    ("name", "result", "examination"),
    [
        ("Doppler_Ultrasound_Lower_Limb", "Monophasic flow in the popliteal artery.", "Arterial Duplex Ultrasound"),
        ("Doppler_Leg", {"Arterial_Flow": "Reduced"}, "Arterial Duplex Ultrasound"),
        ("Doppler_Ultrasound_Lower_Limb", "No thrombus; arteries patent.", "Venous Duplex Ultrasound"),
        ("Venous_Doppler", "The popliteal artery is patent.", "Venous Duplex Ultrasound"),
    ],
)
def test_a_doppler_of_a_limb_is_of_the_vessels_that_its_results_tell_of(tmp_path, name, result, examination):
    record, _ = ingest_osce(tmp_path, {name: result})
    assert list(orderable(record)) == [examination]


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("Plain text, 38.2 °C", "Plain text, 38.2 °C"),
        ("a\x00b\x1bc\x7fd", "abcd"),  # ASCII, and not to be seen
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Me\u0301nie\u0300re", "Ménière"),
        ("\u200b\ufeffzero\u202ewidth", "zerowidth"),
        ("half \ud83d of a character", "half \ufffd of a character"),
    ],
)
def test_a_text_is_what_a_reader_sees(written, seen):
    assert visible(written) == seen
