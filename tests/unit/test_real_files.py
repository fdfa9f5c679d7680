"""Files as hospitals and tools write them: what is inside counts, not what its name says; nothing is lost or made up in
silence. All texts are invented here."""

import base64
import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path

import pytest
import yaml
from mimic_tables import NOTES, lab, mimic_tables, settings, write_mimic, write_table

from cdpr.cases import parse_analytes
from cdpr.ingest import IngestError, ingest
from cdpr.ingest.check import check, doubtful_cells, write_template
from cdpr.ingest.notes import parse_discharge_note
from cdpr.ingest.texts import is_absent, is_code, plain_text
from cdpr.pipeline import cli
from cdpr.settings import parse_settings

HERE = Path(__file__).parent
PHRASES = list(csv.DictReader((HERE / "no_results.csv").open(encoding="utf-8")))
LAYOUTS = yaml.safe_load((HERE / "note_layouts.yaml").read_text(encoding="utf-8"))
NOTE = """Chief Complaint:
belly pain

History of Present Illness:
58 yo with two days of pain.

{}

Brief Hospital Course:
Treated with FORBIDDEN drug.

Discharge Diagnosis:
Appendicitis
"""


@pytest.mark.parametrize("row", PHRASES, ids=lambda row: row["text"])
def test_a_text_that_tells_of_no_result_is_none(row):
    assert is_absent(row["text"]) == (row["result"] == "no")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_section_ends_at_the_next_heading_of_the_note(name):
    note = parse_discharge_note(NOTE.format(LAYOUTS[name]["text"]))
    told = " ".join(note.physical.values())
    assert all(words in told for words in LAYOUTS[name]["counts"]), note.physical
    assert "FORBIDDEN" not in str(note.physical) + str(note.history) and note.primary_diagnosis == "Appendicitis"


def test_codes_and_marked_texts():
    assert all(map(is_code, ("J18.9", "i21", "410.71", "ICD-10: K35.80", "195967001", "Z38.00")))
    assert not any(
        map(is_code, ("Gout", "CHF", "STEMI", "COVID-19", "H1N1 influenza", "T4 N2 cancer", "Type 2 diabetes"))
    )
    rtf = r"{\rtf1\ansi{\fonttbl{\f0 Arial;}}\f0\fs20 CHEST\par Opacity, T 38\'b0C\par}"
    assert plain_text(rtf) == "CHEST\nOpacity, T 38°C"
    assert plain_text("<p>Nodule &lt; 5 mm</p><p>stable</p>") == "Nodule < 5 mm\nstable"
    assert plain_text("a < 5 and b > 3") == "a < 5 and b > 3"


def zipped(content: bytes, name: str = "x.csv") -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(name, content)
    return target.getvalue()


PACKED = {
    "gzip": gzip.compress,
    "twice": lambda data: gzip.compress(gzip.compress(data)),
    "zip": zipped,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "plain": bytes,
    "gzip in zip": lambda data: zipped(gzip.compress(data)),
}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("packing", PACKED)
def test_a_file_is_what_its_first_bytes_say(tmp_path, packing, ending):
    write_template(tmp_path / "private")
    private = tmp_path / "private" / "results.csv"
    content = private.read_bytes()
    private.unlink()
    private.with_name(f"results{ending}").write_bytes(PACKED[packing](content))
    free = parse_settings({"data": {"private": {"credentialed": False}}})
    assert check(free, private.parent).ok
    whole = ingest("mimic_iv", settings(), write_mimic(tmp_path / "whole"))[0]
    mimic = write_mimic(tmp_path / "mimic")
    for name in ("hosp/labevents", "note/discharge"):
        table = gzip.decompress((mimic / f"{name}.csv.gz").read_bytes())
        (mimic / f"{name}.csv.gz").unlink()
        (mimic / f"{name}{ending}").write_bytes(PACKED[packing](table))
    assert ingest("mimic_iv", settings(), mimic)[0] == whole


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (zipped(b"", "xl/workbook.xml"), "an Excel workbook"),
        (b"PAR1....", "Parquet"),
        (b"%PDF-1.4", "PDF"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "an old Excel workbook"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
    ],
)
def test_what_is_no_text_is_named(tmp_path, content, said):
    write_template(tmp_path)
    (tmp_path / "results.csv").write_bytes(content)
    assert said in check(parse_settings({"data": {}}), tmp_path).text(True)


def parquet(folder: Path, name: str, query: str) -> None:
    """Replace a table by the Parquet file that a query over it gives."""
    import duckdb

    path = folder / f"{name}.csv.gz"
    duckdb.execute(
        f"COPY (SELECT {query} FROM read_csv('{path}', all_varchar=true)) TO '{folder / name}.parquet' (FORMAT parquet)"
    )
    path.unlink()


def test_parquet_with_bytes_is_read_and_zones_in_one_table_are_refused(tmp_path):
    whole = ingest("mimic_iv", settings(), write_mimic(tmp_path / "whole"))[0]
    folder = write_mimic(tmp_path / "bytes")
    parquet(folder, "note/discharge", "* REPLACE (encode(text) AS text, encode(note_id) AS note_id)")
    assert ingest("mimic_iv", settings(), folder)[0] == whole
    for name, column in (("hosp/admissions", "admittime"), ("hosp/labevents", "charttime")):
        folder = write_mimic(tmp_path / column)
        parquet(folder, name, f"* REPLACE ({column}::TIMESTAMPTZ AS {column})")
        with pytest.raises(IngestError, match=r"its times have a zone, those of .* have none"):
            ingest("mimic_iv", settings(), folder)


def test_a_cancelled_laboratory_test_gives_way_to_the_next_result(tmp_path):
    tables = mimic_tables()
    columns, _ = tables["hosp/labevents"]
    rows = [
        lab(1, "11", "51301", "2150-03-02 04:00:00", "", "ERROR"),
        lab(2, "11", "51301", "2150-03-02 05:00:00", "7.5"),
        lab(3, "11", "51222", "2150-03-02 05:00:00", "DISREGARD PREVIOUS RESULT."),
        lab(4, "11", "50999", "2150-03-02 05:00:00", "", "TEST CANCELLED, PATIENT CREDITED."),
    ]
    folder = write_mimic(tmp_path / "raw")
    write_table(folder / "hosp/labevents.csv.gz", columns, rows)
    records, attrition = ingest("mimic_iv", settings(), folder)
    (record,) = (one for one in records if one.note_id == "1-DS-1")
    count = parse_analytes(record.key_pertinent_results_dict["Complete Blood Count"])
    assert [(one.label, one.value) for one in count] == [("White Blood Cells", "7.5")]
    assert "Zonulin (Stool)" not in record.key_pertinent_results_dict
    assert attrition.events["laboratory rows without a result"] == 3


def test_a_rule_that_drops_many_says_where_without_a_word_of_a_case(tmp_path):
    folder = write_mimic(tmp_path / "raw")
    notes = [
        row | {"text": row["text"].replace("Physical Exam:", "Secret Findings of Smith:").replace("PHYSICAL EXAM", "X")}
        for row in mimic_tables()["note/discharge"][1]
    ]
    write_table(folder / "note/discharge.csv.gz", NOTES, notes)
    with pytest.raises(IngestError) as error:
        ingest("mimic_iv", settings(), folder)
    told = str(error.value)
    assert "the rule 'no physical examination' drops 3 of 4 cases (75%), for example (1) headings " in told
    assert "history of present illness" in told.casefold() and "Smith" not in told and "Secret" not in told


def test_cases_without_any_examination_say_what_is_in_their_window(tmp_path):
    folder = write_mimic(tmp_path / "raw")
    for name in ("hosp/labevents", "hosp/microbiologyevents", "note/radiology"):
        columns, _ = mimic_tables()[name]
        write_table(folder / f"{name}.csv.gz", columns, [])
    with pytest.raises(IngestError) as error:
        ingest("mimic_iv", settings(), folder)
    told = str(error.value)
    assert "the rule 'no examination' drops" in told and ", for example (1) headings " in told
    assert "in the window 0 laboratory results, 0 rows of microbiology, 0 reports" in told


def private(folder: Path, *rows: str, cases: tuple[str, ...] = ("K1,P1,40,F,Cough,,,,,,Pneumonia",), **chosen):
    """The check of an export with these rows of results and cases."""
    write_template(folder)
    for name, lines in (("results.csv", rows), ("cases.csv", cases)):
        header = (folder / name).read_text().splitlines()[0]
        (folder / name).write_text("\n".join([header, *lines]) + "\n")
    source = {"path": str(folder), "credentialed": False, **chosen}
    return check(parse_settings({"data": {"private": source}}), folder)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("3-May", "a date"),
        ("May-12", "a date"),
        ("2024/1/2", "a date"),
        ("5/12/2023", "a date"),
        ("3月5日", "a date"),
        ("1:40:00", "a time"),
        ("45352", "serial number"),
        ("#REF!", "error of a spreadsheet"),
        ("1.234.567", "locale"),
        ("cafÃ©", "wrong encoding"),
        ("锟斤拷", "wrong encoding"),
        ("5. Mrz", "a date"),
        ("#WERT!", "error of a spreadsheet"),
        ("=SUM(B2:B4)", "a formula"),
        ("13.5 H", "a flag"),
        ("10-févr", "a date"),
        ("2024年5月3日", "a date"),
        ("45413.0694", "serial number"),
        ("13.5 g/dL (low)", "hold the unit"),
        ("ÒõÐÔ", "wrong encoding"),
        ("R÷ntgen", "wrong encoding"),
        ("1\u202f234", "locale"),
    ],
)
def test_a_trace_of_a_spreadsheet_names_its_cell(tmp_path, value, problem):
    report = private(tmp_path, f"K1,1,lab,Urine,WBC,{value},,,,,", "K1,2,lab,CRP,CRP,5,mg/L,,,,")
    assert report.ok and problem in report.text() and "line 2" in report.text()
    source = {"path": str(tmp_path), "credentialed": False}
    warnings = ingest("private", parse_settings({"data": {"private": source}}), tmp_path)[1].warnings
    assert any("results.csv:2 (value)" in warning for warning in warnings)


@pytest.mark.parametrize(
    "value",
    [
        "3-5",
        '"=""3-5"""',
        "1:40",
        "5.2",
        "<0.5",
        "１３．９",
        "120/80",
        "2+",
        "Negative",
        "Decreased",
        "10⁵",
        "5½",
        "++",
    ],
)
def test_what_is_no_trace_passes(tmp_path, value):
    report = private(tmp_path, f"K1,1,lab,Urine,WBC,{value},/HPF,,,,")
    assert report.ok and "worth a look" not in report.text()
    shown = report.cases[0].key_pertinent_results_dict["Urine"]
    assert "=" not in shown and "１" not in shown
    assert value in shown or not set(value) & set("⁵½")


def test_a_decimal_comma_is_read_by_the_declared_locale_and_else_refused(tmp_path):
    rows = (
        'K1,1,lab,FBC,Hb,"13,9",g/dL,"13,5","17,5",,',
        'K1,2,lab,FBC,WBC,"1.250,5",/L,,,,',
        "K1,3,lab,FBC,Plt,1.250,/L,,,,",
        'K1,4,lab,FBC,MCV,"12 345,5",fL,,,,',
        "K1,5,lab,FBC,RDW,13.5,%,,,,",
    )
    refused = private(tmp_path / "a", *rows)
    assert not refused.ok and "has a comma that may be a decimal mark" in refused.text()
    (record,) = private(tmp_path / "b", *rows, decimal_mark="comma").cases
    found = parse_analytes(record.key_pertinent_results_dict["FBC"])
    numbers = [(13.9, 13.5), (1250.5, None), (1250, None), (12345.5, None), (13.5, None)]
    assert [(one.number, one.low) for one in found] == numbers
    within = 'K1,1,lab,Gas,Note,"pH 7,35 (3,5-5,0)",,,,,'
    assert "a decimal mark" in private(tmp_path / "d", within).text()
    (record,) = private(tmp_path / "e", within, decimal_mark="comma").cases
    assert record.key_pertinent_results_dict["Gas"].endswith("pH 7.35 (3.5-5.0)")
    (record,) = private(tmp_path / "c", 'K1,1,lab,FBC,Plt,"1,250",/L,,,,', decimal_mark="point").cases
    assert parse_analytes(record.key_pertinent_results_dict["FBC"])[0].number == 1250


def test_missing_words_and_rounded_numbers(tmp_path):
    cases = (
        "K1,P1,40,F,Cough,,NULL,,,,NULL",
        "K2,P2,40,F,NULL,nan,,,,,Gout",
        "K3,P3,40,F,Cough,,,,,,J18.9",
        "K4,4.40106E+17,40,F,Cough,,,,,,Gout",
        "K5,P5,40,F,Cough,,NULL,,,,Gout",
    )
    rows = [f"K{n},1,lab,FBC,NA,140,mmol/L,,,," for n in range(1, 6)] + ["K5,2,imaging,MRI,,,,,,,Cancelled by ward"]
    report = private(tmp_path, *rows, cases=cases)
    assert report.attrition.dropped == {
        "no diagnosis": ["K1"],
        "diagnosis given as a code": ["K3"],
        "no complaint and no present illness": ["K2"],
    }
    assert [problem.field for problem in report.problems] == ["patient_id"] and "rounded" in str(report.problems[0])
    shown = report.cases[-1]
    assert shown.note_id == "K5" and "NULL" not in shown.case_summary
    assert shown.key_pertinent_results_dict == {"FBC": "NA: Value: 140; Units: mmol/L"}


def test_a_result_of_an_unknown_case_is_told_with_the_case_that_it_resembles(tmp_path):
    rows = ("7,1,lab,FBC,Hb,13,g/dL,,,,", "007,2,lab,FBC,WBC,5,,,,,", "K9,1,lab,FBC,Hb,9,,,,,")
    report = private(tmp_path, *rows, cases=("007,P1,40,F,Cough,,,,,,Gout",))
    told = [str(doubt).split(": ", 1)[1] for doubt in doubtful_cells(report.export)]
    assert len(told) == 1 and "'7' differs only in zeros, marks" in told[0] and "'007' in cases.csv" in told[0]
    source = {"path": str(tmp_path), "credentialed": False}
    warnings = ingest("private", parse_settings({"data": {"private": source}}), tmp_path)[1].warnings
    assert "WARNING: 2 result rows name no case of cases.csv" in warnings


def test_every_organism_of_a_culture_counts_and_a_table_is_as_long_as_its_rows(tmp_path):
    rows = ("K1,1,culture,Urine,,E. coli,,,,,", 'K1,2,culture,Urine,,Klebsiella,,,,,"two\nlines_x000D_"')
    report = private(tmp_path, *rows)
    assert "Also: Klebsiella" in report.cases[0].key_pertinent_results_dict["Urine"]
    assert [end.value["rows"] for end in report.export.ends] == ["2", "3"]
    assert not report.attrition.events["repeated items"] and "x000D" not in str(report.export.results[1].value)


def test_marked_cells_are_read_as_their_text(tmp_path):
    rows = (
        "K1,1,lab,FBC,Hb,<b>13</b>,10<sup>9</sup>/L,,,,",
        "K1,2,lab,CRP,CRP,<p>pending</p>,,,,,",
        "K1,3,imaging,CT,,,,,,,<style>p {x: y}</style><p>&nbsp;</p>",
        r"K1,4,imaging,MRI,,,,,,,{\rtf1\ansi 10\super 9\nosupersub /L\~of the patient\rquote s}",
    )
    report = private(tmp_path, *rows, cases=("K1,P1,40,F,Cough,,,,,,<p>Gout</p>",))
    assert report.cases[0].diagnosis_results == "Gout"
    shown = {"FBC": "Hb: Value: 13; Units: 10^9/L", "MRI": "10^9/L of the patient’s"}
    assert report.cases[0].key_pertinent_results_dict == shown
    assert report.attrition.events["result rows without a result"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.encode("utf-16-le"), "UTF-16"),
        (lambda text: b"Export of ward 3,,,\n" + text.encode(), "one field only"),
        (lambda text: text.replace(",", "^").encode(), "one field only"),
        (lambda text: b'[{"case_id": "K-1", "age": 3}]', "no table"),
    ],
)
def test_a_file_that_is_no_table_is_one_problem(tmp_path, change, said):
    write_template(tmp_path)
    file = tmp_path / "cases.csv"
    file.write_bytes(change(file.read_text()))
    (problem,) = check(parse_settings({}), tmp_path).problems
    assert said in str(problem) and problem.remedy


# FHIR


def bundle(folder: Path, *resources: dict, born: str = "1980-05-01", sex: str = "female", **encounter) -> Path:
    basis = [
        {"resourceType": "Patient", "id": "p", "gender": sex, "birthDate": born},
        {
            "resourceType": "Encounter",
            "id": "e",
            "status": "finished",
            "subject": {"reference": "Patient/p"},
            "period": {"start": "2024-03-01T09:00:00Z", "end": "2024-03-02"},
            "reasonCode": [{"text": "Cough"}],
            **encounter,
        },
    ]
    folder.mkdir(parents=True, exist_ok=True)
    entries = [{"resource": one} for one in (*basis, *resources)]
    (folder / "b.json").write_text(json.dumps({"resourceType": "Bundle", "entry": entries}, indent=1))
    return folder


def own(kind: str, text: str = "", **more) -> dict:
    code = more.pop("code", {"text": text})
    return {
        "resourceType": kind,
        "status": "final",
        "code": code,
        "subject": {"reference": "Patient/p"},
        "encounter": {"reference": "Encounter/e"},
        **more,
    }


def quantity(name: str, value: float, **more) -> dict:
    return own("Observation", name, valueQuantity={"value": value, "unit": "x"}, **more)


def fhir(path: Path, **chosen):
    return ingest("fhir", parse_settings({"data": {"fhir": {"path": "x", "credentialed": False} | chosen}}), path)


def span(low: float, **about) -> dict:
    return {"low": {"value": low}, "high": {"value": low + 5}, **about}


def test_a_reference_range_is_the_one_of_this_person(tmp_path):
    man, woman = ({"appliesTo": [{"coding": [{"code": code}]}]} for code in ("male", "248152002"))
    pregnant = {"appliesTo": [{"text": "pregnant"}]}
    child = {"age": {"low": {"value": 0, "code": "a"}, "high": {"value": 12, "code": "a"}}}
    baby = {"age": {"high": {"value": 6, "code": "mo"}}}
    therapy = {"type": {"coding": [{"code": "therapeutic"}]}}
    spans = [
        span(90, **therapy),
        span(1, **man),
        span(2, **pregnant),
        span(3, **baby),
        span(4, **child),
        span(5, **woman),
        span(6),
    ]
    lipase = quantity("Lipase", 9, referenceRange=spans)
    gout = own("Condition", "Gout")
    for born, sex, low in (
        ("1980", "female", 5),
        ("1980", "male", 1),
        ("2024-01-20", "unknown", 3),
        ("2020", "unknown", 4),
        ("1980", "unknown", 6),
    ):
        (record,), _ = fhir(bundle(tmp_path / f"{born}{sex}", lipase, gout, born=born, sex=sex))
        assert parse_analytes(record.key_pertinent_results_dict["Lipase"])[0].low == low
    (record,), _ = fhir(bundle(tmp_path / "none", quantity("Lipase", 9, referenceRange=spans[1:3]), gout, sex="other"))
    assert "Reference" not in record.key_pertinent_results_dict["Lipase"]


@pytest.mark.parametrize(
    ("born", "age"),
    [("2024-02-20", "10 day old female"), ("2023-10-25", "4 month old female"), ("2022-03-01", "2 year old female")],
)
def test_ages_below_a_year_are_told_in_months_or_days(tmp_path, born, age):
    (record,), _ = fhir(bundle(tmp_path, quantity("Lipase", 9), own("Condition", "Gout"), born=born))
    assert record.case_summary.startswith(f"- Patient Information: {age}\n")


def test_disorders_come_first_and_a_persons_life_is_no_diagnosis(tmp_path):
    social = [
        "Full-time employment (finding)",
        "Received higher education (finding)",
        "Medication review due (situation)",
        "Stress (finding)",
        "Refugee (person)",
        "Has a criminal record (finding)",
        "High school diploma (finding)",
        "Screening for anxiety disorder",
    ]
    many = [own("Condition", text) for text in (*social, "Hypoxemia (finding)", "Viral sinusitis (disorder)")]
    (record,), attrition = fhir(bundle(tmp_path / "a", *many, quantity("Lipase", 9)))
    assert record.diagnosis_results == "Viral sinusitis (disorder)"
    assert attrition.events["conditions that are no illness: social findings, reasons for contact"] == len(social)
    (record,), _ = fhir(bundle(tmp_path / "b", *many[:-1], quantity("Lipase", 9)))
    assert record.diagnosis_results == "Hypoxemia (finding)"
    # Words of a person's life are also those of diseases.
    for number, illness in enumerate(("Posttraumatic stress disorder", "Occupational asthma", "Isolated proteinuria")):
        conditions = [own("Condition", text) for text in (*social, illness)]
        (record,), _ = fhir(bundle(tmp_path / f"illness {number}", *conditions, quantity("Lipase", 9)))
        assert record.diagnosis_results == illness
    routine = own("Condition", code={"coding": [{"code": "Z00.00", "display": "Routine visit"}]})
    with pytest.raises(IngestError, match=r"1 \(no diagnosis\)") as error:
        fhir(bundle(tmp_path / "c", *many[: len(social)], routine, quantity("Lipase", 9)))
    assert "for example (1) encounter of class none with Condition, Observation" in str(error.value)


def test_days_charsets_codes_withdrawn_notes_and_side_files(tmp_path):
    """Dates by day reach to its end; a declared charset; codes that others name, or LOINC; notes that are withdrawn."""
    text = "Chief Complaint: Fièvre\nHistory of Present Illness:\nThree days."

    def note(state: str) -> dict:
        data = base64.b64encode(text.encode("latin-1")).decode()
        form = {"contentType": "text/plain; charset=ISO-8859-1", "data": data}
        return {
            "resourceType": "DocumentReference",
            "status": state,
            "context": {"encounter": [{"reference": "Encounter/e"}]},
            "content": [{"attachment": form}],
        }

    coded = {"coding": [{"system": "x", "code": "77"}]}
    later = {name: value for name, value in quantity("Zonulin", 3).items() if name != "encounter"}
    second = {
        "resourceType": "Encounter",
        "id": "f",
        "status": "finished",
        "subject": {"reference": "Patient/p"},
        "period": {"start": "2024-06-01"},
    }
    folder = bundle(
        tmp_path,
        own("Condition", code={"coding": [{"code": "9", "display": "Gout"}]}),
        second,
        quantity("", 1, code=coded),
        quantity("", 4, code={"coding": [{"code": "718-7"}]}),
        own("Procedure", code={"coding": [{"code": "77", "display": "Zonulin assay"}]}),
        later | {"effectiveDateTime": "2024-03-02", "code": {"text": "Lipase"}},
        note("current"),
        note("superseded"),
        period={"start": "2024-03-01", "end": "2024-03-02"},
    )
    (folder / "log.ndjson").write_text('{"exportId": "x"}\n{"exportId": "y"}\n')
    (folder / "manifest.json").write_text(json.dumps({"output": [{"type": "Patient"}]}, indent=1))
    (record,), attrition = fhir(folder)
    assert "Fièvre" in record.case_summary
    assert {"Zonulin assay", "Complete Blood Count", "Lipase"} <= record.key_pertinent_results_dict.keys()
    assert attrition.events["notes that are superseded or withdrawn"] == 1
    assert attrition.events["files of the export without resources, left out"] == 2


def test_elements_of_stu3_are_read_and_named(tmp_path):
    about = {"subject": {"reference": "Patient/p"}, "context": {"reference": "Encounter/e"}}
    folder = bundle(
        tmp_path,
        {"resourceType": "Condition", "code": {"text": "Gout"}, "verificationStatus": "confirmed", **about},
        {
            "resourceType": "Observation",
            "status": "final",
            "code": {"text": "Lipase"},
            "valueQuantity": {"value": 3},
            "comment": "slightly haemolysed",
            **about,
        },
        reasonCode=None,
        reason=[{"text": "Toe pain"}],
    )
    (record,), attrition = fhir(folder)
    assert "Toe pain" in record.case_summary and record.diagnosis_results == "Gout"
    assert "slightly haemolysed" in record.key_pertinent_results_dict["Lipase"]
    assert any("3 resources have element names of FHIR STU3" in warning for warning in attrition.warnings)


def test_of_an_element_under_both_its_names_the_later_one_counts(tmp_path):
    gout, lipase = own("Condition", "Gout"), quantity("Lipase", 3)
    elements = {"reason": [{"text": "Toe pain"}], "reasonCode": [{"text": "Knee pain"}]}
    for first, last in (("reason", "reasonCode"), ("reasonCode", "reason")):
        # `bundle` has a reasonCode of its own: its place in the object is the first one's, unless it is left out.
        folder = bundle(tmp_path / first, gout, lipase)
        content = json.loads((folder / "b.json").read_text())
        encounter = content["entry"][1]["resource"]
        del encounter["reasonCode"]
        encounter.update({name: elements[name] for name in (first, last)})
        (folder / "b.json").write_text(json.dumps(content))
        (record,), _ = fhir(folder)
        assert f"- Chief Complaint: {elements[last][0]['text']}" in record.case_summary.splitlines()


def test_a_condition_that_began_in_an_encounter_is_its_diagnosis_where_that_is_chosen(tmp_path):
    gout = {
        name: value
        for name, value in own("Condition", "Gout (disorder)", onsetDateTime="2024-03-01").items()
        if name != "encounter"
    }
    kind = [{"text": "Emergency room admission"}]
    folder = bundle(
        tmp_path,
        gout | {"category": [{"coding": [{"code": "x"}]}]},
        quantity("Lipase", 9),
        type=kind,
        reasonCode=[{"text": "Gout (disorder)"}],
    )
    with pytest.raises(IngestError, match="no diagnosis"):
        fhir(folder)
    (record,), attrition = fhir(folder, diagnosis_by_onset=True)
    assert record.diagnosis_results == "Gout (disorder)" and "Emergency room admission" in record.case_summary
    assert attrition.events["reasons of an encounter that are its diagnosis, left out"] == 1


def test_a_data_set_without_a_path_is_a_clear_error(tmp_path, capsys):
    outputs = [f"{name}={tmp_path / name}" for name in ("records", "report", "findings")]
    command = ["ingest_dataset", "--dataset", "fhir", "--settings", "config.yaml", "--output", *outputs]
    assert cli.main(command) == 2
    assert "data.fhir.path: the data set has no files" in capsys.readouterr().err
