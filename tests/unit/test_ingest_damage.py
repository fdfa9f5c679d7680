"""MIMIC-IV importer on bad input: a clear error, or a counted and listed rejection."""

import gzip
import io
from pathlib import Path

import pytest
from mimic_tables import mimic_tables, settings, write_mimic, write_table
from tqdm import tqdm

from cdpr.ingest import IngestError, ingest
from cdpr.ingest.mimic_iv import events_of


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
        ("hosp/labevents", replaced("12.5.", "12,5."), 4, None, "17 fields where the header has 16"),
        ("note/radiology", replaced("Lobar", "\xe9"), 2, None, "not UTF-8 in the row that begins here"),
        ("hosp/patients", replaced(",60,", ",sixty,"), 3, "anchor_age", "'sixty' .* whole number"),
        ("hosp/admissions", replaced("2160-01-01 08", "2160-13-01 08"), 4, "admittime", "is not a time"),
        ("hosp/admissions", replaced("subject_id,", "hadm_id,"), 1, "subject_id", "no such column"),
        ("hosp/admissions", replaced("admittime", "admittime,hadm_id"), 1, "'hadm_id'", "the column occurs twice"),
    ],
)
def test_damaged_tables_are_errors_with_file_line_and_field(tmp_path, table, damage, line, field, said):
    path = write_mimic(tmp_path) / f"{table}.csv.gz"
    damage(path)
    with pytest.raises(IngestError, match=said) as error:
        ingest("mimic_iv", settings(mimic_iv={"path": "real", "credentialed": False}), tmp_path)
    assert (error.value.path, error.value.line, error.value.field) == (path, line, field)
    assert error.value.remedy


@pytest.mark.parametrize("ending", ["csv.gz", "parquet"])
@pytest.mark.parametrize(
    ("table", "column", "bad", "said"),
    [
        ("hosp/admissions", "admittime", "2160-13-01 08:00:00", "2 of 3 times cannot be read"),
        ("hosp/labevents", "charttime", "noon", "cannot be read"),
        ("hosp/patients", "anchor_age", "sixty", "whole number"),
    ],
)
def test_an_error_within_a_table_in_parts_names_the_part(tmp_path, table, column, bad, said, ending):
    import duckdb

    write_mimic(tmp_path)
    (tmp_path / f"{table}.csv.gz").unlink()
    columns, rows = mimic_tables()[table]
    for number, part in enumerate((rows[:1], [row | {column: bad} for row in rows[1:]])):
        path = tmp_path / table / f"part-{number}.csv.gz"
        write_table(path, columns, part)
        if ending == "parquet":
            duckdb.sql(f"COPY (FROM read_csv('{path}', all_varchar=true)) TO '{path.parent}/part-{number}.parquet'")
            path.unlink()
    with pytest.raises(IngestError, match=said) as error:
        ingest("mimic_iv", settings(mimic_iv={"path": "real", "credentialed": False}), tmp_path)
    assert error.value.path.name == f"part-1.{ending}"
    assert error.value.line == (2 if ending == "csv.gz" and table == "hosp/patients" else None)


def test_damage_in_credentialed_tables_is_told_without_their_words(tmp_path):
    replaced(",60,", ",sixtyish,")(write_mimic(tmp_path) / "hosp/patients.csv.gz")
    for credentialed in (False, None, True):
        real = {"path": "real", "credentialed": credentialed}
        with pytest.raises(IngestError, match="whole number") as error:
            ingest("mimic_iv", settings(mimic_iv=real), tmp_path)
        assert ("sixtyish" in str(error.value)) == (credentialed is False) and error.value.line == 3


def test_parquet_tables_give_the_same_records(tmp_path):
    import duckdb

    plain, attrition = ingest("mimic_iv", settings(), write_mimic(tmp_path / "csv"))
    for name in mimic_tables():
        target = tmp_path / "parquet" / f"{name}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        source = f"read_csv('{tmp_path}/csv/{name}.csv.gz', all_varchar=true)"
        duckdb.sql(f"COPY (SELECT * FROM {source}) TO '{target}' (FORMAT parquet)")
    other, told = ingest("mimic_iv", settings(), tmp_path / "parquet")
    assert (other, told.report()) == (plain, attrition.report())


def test_the_size_of_a_chunk_of_notes_changes_nothing(tmp_path, monkeypatch):
    folder, told = write_mimic(tmp_path), []
    for notes in (1, 500):
        monkeypatch.setattr("cdpr.ingest.mimic_iv.CHUNK", notes)
        told.append(ingest("mimic_iv", settings(), folder))
    assert told[0][0] == told[1][0] and told[0][1].report() == told[1][1].report()


def test_the_bar_counts_the_notes_that_were_read_and_is_closed_after_an_error(tmp_path, monkeypatch):
    bars = []

    class Bar(tqdm):
        def __init__(self, **options):
            super().__init__(**options | {"disable": False, "file": io.StringIO(), "leave": True})
            bars.append(self)
            self.ends = 0

        def close(self):
            self.ends += not self.disable
            super().close()

    def broken(tables, notes):
        if bars[-1].n == 3:
            raise ValueError("broken")
        return events_of(tables, notes)

    monkeypatch.setattr("cdpr.ingest.mimic_iv.tqdm", Bar)
    monkeypatch.setattr("cdpr.ingest.mimic_iv.CHUNK", 1)
    folder = write_mimic(tmp_path)
    ingest("mimic_iv", settings(), folder)
    monkeypatch.setattr("cdpr.ingest.mimic_iv.events_of", broken)
    with pytest.raises(ValueError, match="broken"):
        ingest("mimic_iv", settings(), folder)
    assert [(bar.n, bar.total, bar.ends) for bar in bars] == [(4, 4, 1), (3, 4, 1)]


HOSTILE = [
    "a\x00b",
    "x" * 100_000,
    "'; DROP TABLE notes; --",
    "../../etc/passwd",
    'quote " and\nline',
    "\u202eabc",
    "=1+1",
    "NULL",
]


# Columns that are damaged alone, since what stands there may end the import, and those that are damaged together.
ALONE = [("hosp/labevents", "charttime"), ("note/discharge", "text"), ("note/discharge", "note_id")]
TOGETHER = [("hosp/labevents", "value"), ("hosp/labevents", "itemid"), ("hosp/d_labitems", "label"),
            ("hosp/microbiologyevents", "org_name"), ("hosp/microbiologyevents", "test_name"),
            ("note/radiology_detail", "field_value"), ("note/radiology", "text")]  # fmt: skip


@pytest.mark.parametrize("shift", range(len(HOSTILE)))
def test_hostile_values_are_records_or_listed_rejections(tmp_path, shift):
    """Whatever stands in a field of a table: every note ends as a record or in the list of what was dropped. Over all
    shifts every column holds every value."""
    turned = [*HOSTILE[shift:], *HOSTILE[:shift]]
    for damaged in (dict(zip(TOGETHER, turned, strict=False)), *({place: turned[0]} for place in ALONE)):
        for name, (columns, rows) in mimic_tables().items():
            values = {column: value for (table, column), value in damaged.items() if table == name}
            write_table(tmp_path / f"{name}.csv.gz", columns, [row | values for row in rows])
        try:
            records, attrition = ingest("mimic_iv", settings(train_cases=9, test_cases=9), tmp_path)
        except IngestError as error:
            at_times = ("hosp/labevents", "charttime") in damaged
            assert ("9 of 9 times cannot be read" if at_times else "no usable case among 4") in str(error), damaged
        else:
            assert attrition.read == 4 == len(records) + sum(map(len, attrition.dropped.values()))


def test_repeated_absurd_and_huge_notes_are_counted(tmp_path):
    tables = mimic_tables()
    columns, notes = tables["note/discharge"]
    huge = notes[0]["text"].replace("two days unwell", "unwell, " * 1_300_000)
    tables["note/discharge"] = columns, [notes[0], notes[1], notes[1] | {"text": "other"}, notes[3],
                                         notes[1] | {"note_id": "0-AD-1"}, notes[0] | {"note_id": ""}]  # fmt: skip
    tables["hosp/labevents"][1][0]["charttime"] = "2150-02-31 25:00:00"
    told = []
    for order in (1, -1):
        for name, (columns, rows) in tables.items():
            write_table(tmp_path / f"{name}.csv.gz", columns, rows[::order])
        told.append(ingest("mimic_iv", settings(train_cases=9, test_cases=9), tmp_path))
        tables["note/discharge"][1][0]["text"] = huge
    (records, attrition), (again, _) = told
    # A number that occurs twice names no note, and so the addendum is the only note of its admission.
    assert [r.note_id for r in records] == ["0-AD-1", "1-DS-1"] and records[:1] == again[:1]
    assert records[1] == again[1].model_copy(update={"case_summary": records[1].case_summary})
    assert len(again[1].case_summary) > 10_000_000
    assert {rule: len(ids) for rule, ids in attrition.dropped.items()} == {
        "note_id missing or repeated": 3, "note of no known admission": 1}  # fmt: skip
    assert attrition.events["laboratory rows without a readable time"] == 1
