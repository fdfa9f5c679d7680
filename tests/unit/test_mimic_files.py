"""The files behind the ingestion benchmark have the schema, proportions, gaps and lengths of the real ones."""

from __future__ import annotations

import csv
import gzip
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cdpr.hospital.write_mimic import COLUMNS
from cdpr.ingest.notes import parse_discharge_note

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from mimic_files import FULL, write_files

LABS = 30_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("mimic")


@pytest.fixture(scope="module")
def tables(folder) -> dict[str, list[dict[str, str]]]:
    counts = write_files(folder, LABS)
    read = {}
    for name, columns in COLUMNS.items():
        with gzip.open(folder / f"{name}.csv.gz", "rt", newline="") as lines:
            reader = csv.DictReader(lines)
            read[name] = list(reader)
            assert reader.fieldnames == columns
    assert {name: len(rows) for name, rows in read.items()} == counts
    return read


def share(flags) -> float:
    flags = list(flags)
    return sum(flags) / len(flags)


def test_proportions_are_those_of_the_whole(tables):
    assert len(tables["hosp/labevents"]) == LABS
    for name, rows in FULL.items():
        assert len(tables[name]) == round(rows * LABS / FULL["hosp/labevents"])
    assert len(tables["hosp/admissions"]) / len(tables["hosp/patients"]) == pytest.approx(431_231 / 299_712, rel=0.25)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "hosp/d_labitems"])
def test_rows_are_sorted_by_patient(tables, name):
    subjects = [int(row["subject_id"]) for row in tables[name]]
    assert subjects == sorted(subjects)
    assert set(subjects) <= {int(row["subject_id"]) for row in tables["hosp/patients"]}


def test_events_lie_where_the_real_ones_do(tables):
    labs = tables["hosp/labevents"]
    assert share(not row["hadm_id"] for row in labs) == pytest.approx(0.26, abs=0.02)
    assert share(row["value"] == "___" for row in labs) == pytest.approx(0.063, abs=0.01)
    admitted: dict[str, list[datetime]] = {}
    for row in tables["hosp/admissions"]:
        admitted.setdefault(row["subject_id"], []).append(datetime.fromisoformat(row["admittime"]))

    def before_admission(row) -> bool:
        drawn = datetime.fromisoformat(row["charttime"])
        return any(admit - timedelta(days=1) <= drawn <= admit for admit in admitted[row["subject_id"]])

    assert share(map(before_admission, labs)) == pytest.approx(0.08, abs=0.015)


def test_keys_are_unique_and_known(tables):
    stays = {(row["subject_id"], row["hadm_id"]) for row in tables["hosp/admissions"]}
    assert len({hadm for _, hadm in stays}) == len(tables["hosp/admissions"])
    for name in ("hosp/labevents", "hosp/microbiologyevents", "note/discharge", "note/radiology"):
        assert {(row["subject_id"], row["hadm_id"]) for row in tables[name] if row["hadm_id"]} <= stays
    for name in ("note/discharge", "note/radiology"):
        assert len({row["note_id"] for row in tables[name]}) == len(tables[name])
    reports = {row["note_id"] for row in tables["note/radiology"]}
    assert {row["note_id"] for row in tables["note/radiology_detail"]} == reports
    items = {row["itemid"] for row in tables["hosp/d_labitems"]}
    assert {row["itemid"] for row in tables["hosp/labevents"]} <= items


def test_notes_are_as_long_and_as_structured_as_real_ones(tables):
    for name, characters in (("note/discharge", 10_500), ("note/radiology", 1_500)):
        lengths = [len(row["text"]) for row in tables[name]]
        assert sum(lengths) / len(lengths) == pytest.approx(characters, rel=0.15)
    notes = [parse_discharge_note(row["text"]) for row in tables["note/discharge"]]
    assert all(
        {"Chief Complaint", "History of Present Illness", "Past Medical History"} <= set(n.history) for n in notes
    )
    assert 0.8 < share(len(note.physical) > 8 for note in notes) < 1
    assert share(bool(note.primary_diagnosis) for note in notes) > 0.9


def test_the_same_call_gives_the_same_bytes(tables, folder, tmp_path):
    write_files(tmp_path, LABS)
    for name in COLUMNS:
        assert (tmp_path / f"{name}.csv.gz").read_bytes() == (folder / f"{name}.csv.gz").read_bytes()
