"""MIMIC-IV tables that other tools wrote, cut or mixed up: read as they were meant, or told; never lost in silence."""

import gzip
import hashlib
from datetime import datetime
from pathlib import Path

import pytest
from mimic_tables import many, mimic_tables, settings, write_mimic, write_table

from cdpr.ingest import IngestError, ingest
from cdpr.ingest.mimic_tables import shape


def write(folder: Path, tables) -> Path:
    for name, (columns, rows) in tables.items():
        write_table(folder / f"{name}.csv.gz", columns, rows)
    return folder


def read(folder: Path, **source):
    real = {"path": "real", "hours_after_admission": 24, **source}
    return ingest("mimic_iv", settings(train_cases=90, test_cases=90, mimic_iv=real), folder)


def text_of(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def put(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize("word", ["NULL", "\\N", "nan", "None", "<NA>"])
def test_words_that_say_missing_are_missing(tmp_path, word):
    plain, told = read(write_mimic(tmp_path / "plain"))
    tables = mimic_tables()
    for name, (columns, rows) in tables.items():
        tables[name] = columns, [{c: row.get(c) or word for c in columns.split()} for row in rows]
    records, attrition = read(write(tmp_path / "words", tables))
    assert (records, attrition.report()) == (plain, told.report())


def test_a_result_that_reads_none_is_a_result(tmp_path):
    tables = mimic_tables()
    tables["hosp/labevents"][1][4]["value"] = "NONE"
    records, _ = read(write(tmp_path, tables))
    assert "Value: NONE" in records[1].key_pertinent_results_dict["Urine Analysis"]


@pytest.mark.parametrize(
    ("ends", "before"), [("\r", ""), ("\r\n", ""), ("\n", "\n\n"), ("\n", ",,,\n"), ("\n", "\ufeff")]
)
def test_line_ends_and_blank_first_lines_change_nothing(tmp_path, ends, before):
    plain, told = read(write_mimic(tmp_path / "plain"))
    write_mimic(tmp_path / "other")
    for name in mimic_tables():
        path = tmp_path / "other" / f"{name}.csv.gz"
        put(path, before + text_of(path).replace("\n", ends))
    records, attrition = read(tmp_path / "other")
    assert (records, attrition.report()) == (plain, told.report())


@pytest.mark.parametrize(
    ("table", "form", "seen"),
    [
        ("hosp/labevents", lambda t: f"{t[8:10]}.{t[5:7]}.{t[:4]} {t[11:16]}", "99.99.9999 99:99"),
        ("hosp/labevents", lambda t: f"{t[5:7]}/{t[8:10]}/{t[:4]} {t[11:]} AM", "99/99/9999 99:99:99 AA"),
        ("note/radiology", lambda t: f"{t[5:7]}/{t[8:10]}/{t[:4]}", "99/99/9999"),
        ("hosp/admissions", lambda t: f"{t[8:10]}/{t[5:7]}/{t[:4]} {t[11:]}", "99/99/9999 99:99:99"),
    ],
)
def test_times_in_another_order_are_refused_by_their_form_alone(tmp_path, table, form, seen):
    tables = many(12)
    columns, rows = tables[table]
    column = "admittime" if table == "hosp/admissions" else "charttime"
    tables[table] = columns, [row | {column: form(row[column])} for row in rows]
    with pytest.raises(IngestError, match="times cannot be read; they look like") as error:
        read(write(tmp_path, tables))
    assert error.value.field == column and f"like {seen};" in str(error.value)


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d %I:%M:%S %p", "%Y-%m-%dT%I:%M %p", "%Y-%m-%d %I:%M:%S.000%p", "%Y-%m-%d %I:%M:%S half %p"]
)
def test_a_clock_of_twelve_hours_is_read_or_refused(tmp_path, form):
    """08:00:00 PM is 20:00:00; where the half of the day cannot be read, or is not there, the table is refused."""
    tables = mimic_tables()
    tables["hosp/labevents"][1][2]["charttime"] = "2150-03-02 12:30:00"  # twelve is the zero of such a clock
    tables["hosp/labevents"][1][3]["charttime"] = "2150-03-03 00:30:00"
    plain, told = read(write(tmp_path / "plain", tables))

    def changed(tables, form: str):
        for name, column in (
            ("admissions", "admittime"),
            ("labevents", "charttime"),
            ("microbiologyevents", "charttime"),
        ):
            for row in tables[f"hosp/{name}"][1]:
                row[column] = row.get(column) and datetime.fromisoformat(row[column]).strftime(form)
        return tables

    path = write(tmp_path / "other", changed(tables, form.replace("%p", "P.M.") if "half" in form else form))
    if "half" in form:
        with pytest.raises(IngestError, match=r"admissions.*3 of 3 times cannot be read; they look like 9999-99-99"):
            read(path)
    else:
        records, attrition = read(path)
        assert (records, attrition.report()) == (plain, told.report())
    tables = many(24)
    for number, row in enumerate(tables["hosp/labevents"][1]):
        row["charttime"] = f"{row['charttime'][:11]}{number % 24:02}:30:00"
    read(write(tmp_path / "day", tables))
    with pytest.raises(IngestError, match=r"labevents.*192 times, all from 1:00 to 12:59: a 12-hour clock without"):
        read(write(tmp_path / "half", changed(tables, "%Y-%m-%d %I:%M:%S")))


@pytest.mark.parametrize("table", ["hosp/labevents", "hosp/admissions"])
def test_dates_without_a_time_of_day_are_refused(tmp_path, table):
    tables = many(12)
    column = "admittime" if table == "hosp/admissions" else "charttime"
    columns, rows = tables[table]
    tables[table] = columns, [row | {column: row[column][:10]} for row in rows]
    with pytest.raises(IngestError, match=f"{table}.*have no time of day"):
        read(write(tmp_path, tables))


def test_a_few_times_that_cannot_be_read_are_told_with_their_form(tmp_path):
    tables = many(12)
    for row in tables["hosp/labevents"][1][::6]:
        row["charttime"] = "Dr. O'Neill 7"
    _, attrition = read(write(tmp_path, tables))
    assert any("hosp/labevents, charttime: 16 of 96 times cannot be read" in w for w in attrition.warnings)
    assert "Neill" not in str(attrition.warnings) and shape("Dr. O'Neill 7") == "AA. A?AAAAA 9"


def test_a_header_alone_is_told(tmp_path):
    tables = many(3)
    for name in ("note/discharge", "hosp/patients"):
        with pytest.raises(IngestError, match=f"{name}.*a header and no row"):
            read(write(tmp_path / "gone", tables | {name: (tables[name][0], [])}))
    _, attrition = read(write(tmp_path / "empty", tables | {"hosp/d_labitems": (tables["hosp/d_labitems"][0], [])}))
    assert "WARNING: hosp/d_labitems has a header and no row" in attrition.warnings


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("hosp/labevents", "hosp/labevents ends before the last 24 of 48 cases"),
        ("hosp/microbiologyevents", "hosp/microbiologyevents ends before the last 24 of 48 cases"),
        ("note/radiology", "note/radiology ends before the last 24 of 48 cases"),
        ("note/discharge", "note/discharge ends before the last 24 of 48 admissions"),
        ("hosp/patients", "hosp/patients lacks 12 of the 24 patients that hosp/admissions names"),
        ("hosp/admissions", "hosp/admissions lacks 24 of the 48 admissions that note/discharge names"),
    ],
)
def test_a_table_that_was_cut_at_the_end_of_a_line_is_noticed(tmp_path, table, said):
    tables = many(24)
    records, attrition = read(write(tmp_path / "whole", tables))
    assert len(records) == 48 and not [w for w in attrition.warnings if w.startswith("WARNING")]
    columns, rows = tables[table]
    path = write(tmp_path / "cut", tables | {table: (columns, rows[: len(rows) // 2])}) / f"{table}.csv.gz"
    _, attrition = read(tmp_path / "cut")
    assert any(said in warning for warning in attrition.warnings), attrition.warnings
    # With the publisher's checksums beside it, it is refused.
    whole = hashlib.sha256((tmp_path / "whole" / f"{table}.csv.gz").read_bytes()).hexdigest()
    (tmp_path / "cut" / "SHA256SUMS.txt").write_text(f"{'0' * 64}  hosp/unread.csv.gz\n{whole} {table}.csv.gz\n")
    with pytest.raises(IngestError, match=r"not the bytes that SHA256SUMS\.txt lists") as error:
        read(tmp_path / "cut")
    assert error.value.path == path
    path.write_bytes((tmp_path / "whole" / f"{table}.csv.gz").read_bytes())
    assert len(read(tmp_path / "cut")[0]) == 48


def test_items_without_a_name_and_cases_without_a_result_are_told(tmp_path):
    tables = many(24)
    columns, rows = tables["hosp/labevents"]
    tables["hosp/labevents"] = columns, [row | {"itemid": f"9{i % 40}"} for i, row in enumerate(rows)]
    _, attrition = read(write(tmp_path / "items", tables))
    assert any("d_labitems lacks 35 of the 35 items" in w for w in attrition.warnings)
    tables["hosp/labevents"] = columns, [row | {"charttime": "2180" + row["charttime"][4:]} for row in rows]
    _, attrition = read(write(tmp_path / "years", tables))
    assert any("only 0 of 48 cases have a laboratory result" in w for w in attrition.warnings)


@pytest.mark.parametrize("table", ["hosp/labevents", "hosp/microbiologyevents", "note/radiology"])
def test_events_of_no_known_admission_are_told_with_their_cause(tmp_path, table):
    """Numbers that nobody knows, that a spreadsheet rounded, that stand for none; a table with a header only."""
    tables = many(24)
    columns, rows = tables[table]
    what = {"hosp/labevents": "laboratory rows", "note/radiology": "radiology reports"}.get(table, "microbiology rows")

    def with_numbers(number: str, name: str):
        new = [row | {"hadm_id": number} for row in rows]
        return read(write(tmp_path / name, tables | {table: (columns, new)}))

    _, attrition = with_numbers("12,345", "unknown")
    assert attrition.events[f"{what} of no known admission"] == len(rows) == attrition.events[what]
    assert not attrition.events[f"{what} in no case's window"]
    told = f"WARNING: {table}: {len(rows)} of {len(rows)} rows name an admission that hosp/admissions lacks; these"
    assert f"{told} numbers look like 99,999" in attrition.warnings
    with pytest.raises(IngestError, match=rf"{len(rows)} numbers like 2\.1E\+07; export it again") as error:
        with_numbers("2.1E+07", "rounded")
    assert error.value.field == "hadm_id" and table in str(error.value.path)
    plain = with_numbers("", "plain")
    for number, word in enumerate(("NA", "null", "0", ".", "n/a")):
        assert [one.key_pertinent_results_dict for one in with_numbers(word, f"w{number}")[0]] == [
            one.key_pertinent_results_dict for one in plain[0]]  # fmt: skip
    _, attrition = read(write(tmp_path / "header", tables | {table: (columns, [])}))
    assert f"WARNING: {table} has a header and no row" in attrition.warnings


def test_what_a_summary_lacks_is_counted_and_no_control_character_is_told(tmp_path):
    """Sexes that are no M or F, an age of 300, NUL bytes in a value, a label, a report and a history."""
    for sex in ("1", "", "U"):
        tables = mimic_tables()
        for row in tables["hosp/patients"][1]:
            row |= {"gender": sex, "anchor_age": "300"}
        _, attrition = read(write(tmp_path / f"sex{sex}", tables))
        assert attrition.events["admissions without a sex that is known, left out of the summary"] == 3
        assert attrition.events["admissions at an impossible age, left out of the summary"] == 3
        assert "WARNING: hosp/patients: 2 of 2 have no sex (M or F); their summaries lack it" in attrition.warnings
        assert any("2 of 2 have no age up to 130" in warning for warning in attrition.warnings)
    tables = mimic_tables()
    tables["hosp/labevents"][1][0]["value"] = "1\x005.0"
    tables["hosp/d_labitems"][1][4]["label"] = "Zonu\x00lin"
    for name in ("note/radiology", "note/discharge"):
        tables[name] = tables[name][0], [row | {"text": row["text"].replace("e", "e\x00")} for row in tables[name][1]]
    records, attrition = read(write(tmp_path / "nul", tables))
    assert "Value: 15.0" in str(records) and "Zonulin (Stool)" in str(records)
    assert not any("\x00" in record.model_dump_json() or "\\u0000" in record.model_dump_json() for record in records)


def test_every_table_has_its_line(tmp_path):
    _, attrition = read(write_mimic(tmp_path))
    lines = map(str.strip, attrition.text().splitlines())
    assert [line for line in lines if " rows read" in line] == [
        "note/discharge: 4 rows read",
        "hosp/admissions: 3 rows read",
        "hosp/patients: 2 rows read",
        "hosp/d_labitems: 5 rows read",
        "note/radiology_detail: 2 rows read",
        "hosp/labevents: 9 rows read, 6 used; 1 in no case's window; 1 without a result; 1 repeated later",
        "hosp/microbiologyevents: 3 rows read, 2 used; 1 of cancelled tests",
        "note/radiology: 1 rows read, 1 used",
    ]


def test_a_small_table_without_rows_is_a_warning_and_one_that_every_case_needs_an_error(tmp_path):
    tables = mimic_tables()
    for name in ("hosp/d_labitems", "note/radiology_detail"):
        tables[name] = tables[name][0], []
    records, attrition = read(write(tmp_path / "small", tables))
    assert records and {
        f"WARNING: {n} has a header and no row" for n in ("hosp/d_labitems", "note/radiology_detail")
    } <= {*attrition.warnings}
    tables["hosp/patients"] = tables["hosp/patients"][0], []
    with pytest.raises(IngestError, match=r"patients\.csv\.gz: a header and no row; copy or download it again"):
        read(write(tmp_path / "needed", tables))


def test_a_table_that_stands_twice_is_an_error_that_names_both(tmp_path):
    path = write_mimic(tmp_path) / "hosp/labevents.csv.gz"
    path.with_suffix("").write_text(text_of(path))
    with pytest.raises(IngestError, match=r"holds labevents\.csv and labevents\.csv\.gz; keep the one"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda t: t.replace("2-DS-1,2,21,", "2-DS-1,SECRET,2,21,"), "9 fields where the header has 8"),
        (lambda t: t + '9-DS-9,9,91,,,,,"SECRET', "unexpected end of data"),
        (lambda t: t.replace("9-DS-1,", '"9"SECRET-DS-1,'), "expected after"),
    ],
)
def test_the_line_of_a_row_is_true_where_records_span_lines_and_nothing_is_quoted(tmp_path, damage, said):
    path = write_mimic(tmp_path) / "note/discharge.csv.gz"
    text = damage(text_of(path))
    put(path, text)
    with pytest.raises(IngestError, match=said) as error:
        read(tmp_path)
    assert "SECRET" in text.splitlines()[error.value.line - 1] and "SECRET" not in str(error.value)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (lambda names: f"{names},", "16 fields where the header has 17"),
        (lambda names: f",{names}", "16 fields where the header has 17"),
        (
            lambda _: "\x01\x07\x1b[2J'x,b",
            "field 'subject_id': no such column; use the table as its publisher wrote it",
        ),
    ],
)
def test_headers_without_names_or_sense_are_errors(tmp_path, head, said):
    path = write_mimic(tmp_path) / "hosp/labevents.csv.gz"
    names, rest = text_of(path).split("\n", 1)
    put(path, f"{head(names)}\n{rest}")
    with pytest.raises(IngestError) as error:
        read(tmp_path, credentialed=False)
    assert said in str(error.value) and str(error.value).isprintable()


def in_folders(path: Path, columns: str, rows: list[dict]) -> None:
    for number in range(2):
        write_table(path / f"stay={number}" / f"part-{number}.csv.gz", columns, rows[number::2])
    (path / "_SUCCESS").touch()


def in_numbered_files(path: Path, columns: str, rows: list[dict]) -> None:
    for number in range(2):
        write_table(path.with_name(f"{path.name}-{number:012}.csv.gz"), columns, rows[number::2])


def in_upper_case(path: Path, columns: str, rows: list[dict]) -> None:
    upper = [{name.upper(): value for name, value in row.items()} for row in rows]
    write_table(path.with_name(f"{path.name}.csv"), columns.upper(), upper)


def twice(path: Path, columns: str, rows: list[dict]) -> None:
    write_table(path.with_name(f"{path.name}.csv"), columns, [*rows, *rows])


def with_decimals(path: Path, columns: str, rows: list[dict]) -> None:
    numbers = ("subject_id", "hadm_id", "itemid", "anchor_age", "anchor_year", "test_seq")
    rows = [{k: f"{v}.00" if k in numbers and v else v for k, v in row.items()} for row in rows]
    write_table(path.with_name(f"{path.name}.csv"), columns, rows)


@pytest.mark.parametrize("form", [in_folders, in_numbered_files, in_upper_case, twice, with_decimals])
def test_tables_as_spark_bigquery_snowflake_and_others_write_them(tmp_path, form):
    plain, told = read(write_mimic(tmp_path / "plain"))
    for name, (columns, rows) in mimic_tables().items():
        form(tmp_path / "other" / name, columns, rows)
    records, attrition = read(tmp_path / "other")
    assert records == plain and (form is twice or attrition.report() == told.report())
    assert len(attrition.dropped.get("same case twice", ())) == (3 if form is twice else 0)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_table_with_other_marks_between_its_fields_is_called_so(tmp_path, mark):
    path = write_mimic(tmp_path) / "hosp/admissions.csv.gz"
    put(path, text_of(path).replace(",", mark))
    with pytest.raises(IngestError, match="put commas between the fields"):
        read(tmp_path)


def test_one_bad_row_of_many_is_told_and_does_not_end_the_import(tmp_path):
    tables = many(110)
    tables["hosp/patients"][1][3]["anchor_age"] = ">89"
    tables["hosp/admissions"][1][9]["admittime"] = "2150-13-45 08:00:00"
    records, attrition = read(write(tmp_path, tables))
    assert attrition.dropped["admission without a time"] and attrition.events["admissions at an unknown age"] == 2
    assert "WARNING: hosp/patients: 1 times anchor_age is not a whole number, like ?99" in attrition.warnings
    assert attrition.read - len(records) == 1 + len(attrition.dropped.get("beyond the number of cases asked for", ()))


def test_numbers_flags_and_ranges_that_are_none(tmp_path):
    """An infinite number is no result, a range from 11 to 4 none, and a flag may be a truth value."""
    tables = mimic_tables()
    first, later = tables["hosp/labevents"][1][:2]
    first |= {"value": "", "valuenum": "inf"}
    later |= {"ref_range_lower": "11", "ref_range_upper": "4", "flag": "True"}
    tables["hosp/labevents"][1][2] |= {"flag": "False", "ref_range_upper": "inf"}
    records, _ = read(write(tmp_path, tables))
    assert records[0].key_pertinent_results_dict["Complete Blood Count"] == (
        "White Blood Cells: Value: 12.0; Units: K/uL; Flag: abnormal; Hemoglobin: Units: K/uL; Comments: 12.5."
    )


def test_of_several_notes_one_without_a_diagnosis_does_not_count(tmp_path):
    plain, _ = read(write_mimic(tmp_path / "plain"))
    tables = mimic_tables()
    notes = tables["note/discharge"][1]
    notes.append(notes[0] | {"note_id": "1-DS-0", "text": "Name: ___\nSee the other note."})
    records, attrition = read(write(tmp_path / "other", tables))
    assert records == plain and attrition.dropped["another note of the same admission"] == ["1-DS-0"]
