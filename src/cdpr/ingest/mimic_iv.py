"""MIMIC-IV: discharge summaries and event tables -> case records.

Reads ``hosp/{patients,admissions,labevents,d_labitems,microbiologyevents}`` and
``note/{discharge,radiology,radiology_detail}`` below one folder, as published (``.csv.gz``, ``.csv`` or ``.parquet``).

The table engine links events to admissions once, out of core; then notes are streamed in chunks, each with its events.
Nothing but the finished records is ever held whole.
"""

import logging
import sys
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tqdm import tqdm

from ..cases import CaseRecord
from ..settings.datasets import MimicSource
from .attrition import Attrition
from .draft import CUT, Draft, Import
from .mimic_events import Events, events_of, link_laboratory, link_microbiology, link_radiology, results_of
from .mimic_tables import OLDEST, QUERIES, Tables, statement
from .notes import outline, parse_discharge_note
from .summary import patient_information

_log = logging.getLogger(__name__)
CHUNK = 500  # notes


class Note(NamedTuple):
    """A discharge summary with its admission; ``rejected`` says why it makes no case. ``years``: the age at admission,
    by the age in the anchor year; dates are shifted, intervals are not."""

    note_id: str
    subject_id: str
    hadm_id: str | None
    rejected: str | None
    years: int | None
    gender: str
    text: str


def read_mimic_iv(source: MimicSource, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable discharge summaries. Raises IngestError for a missing table or column, a damaged file, or
    an unreadable age or admission time."""
    with Tables(work.path, work.state / "tables", work.attrition) as tables:
        _open(tables)
        _log.info("numbering notes and admissions in %s", work.path)
        tables.query("note_ids")
        tables.query("first_notes")
        tables.query("cases", [source.hours_before_admission * 3600, source.hours_after_admission * 3600])
        _log.info("linking laboratory, microbiology and radiology rows to admissions")
        link_laboratory(tables, work.attrition, held=source.held_specimens == "keep")
        link_microbiology(tables, work.attrition)
        link_radiology(tables, work.attrition)
        tables.check_references()
        yield from _read_notes(tables, work)
    work.attrition.count_left_out()


def _open(tables: Tables) -> None:
    """Views of the tables, and of what they hold one row for each patient and admission."""
    for name, columns in QUERIES["columns"].items():
        tables.add(name, columns)
    tables.check_sums()
    tables.count_rows()
    tables.check_times("hosp/admissions", "admittime", tables.query("admission_times")[0])
    problem = "is not a time like 2150-01-31 08:00:00"
    tables.check_rows("admissions", "hadm_id", "admittime", "moment(admittime) IS NOT NULL", problem)
    for column in ("anchor_age", "anchor_year"):
        number = f"regexp_full_match({column}, '[0-9]{{1,4}}')"
        tables.check_rows("patients", "subject_id", column, number, "is not a whole number")
    for name, table, key in (("admissions", "stays", "hadm_id"), ("patients", "persons", "subject_id")):
        tables.query(table)
        once = f"{key} NOT IN (SELECT {key} FROM {table} GROUP BY {key} HAVING count(*) > 1)"
        tables.check_rows(name, key, key, once, "stands in several rows that disagree")


def _read_notes(tables: Tables, work: Import) -> Iterator[CaseRecord]:
    """The records of all notes, in chunks, each with its events."""
    number = int(work.attrition.tables["note/discharge"])
    notes = map(Note._make, tables.rows(statement("notes")))
    # On a terminal a bar; in a log a line every 30 s; nothing for few notes.
    with tqdm(total=number, unit=" notes", desc="reading notes", ncols=90, smoothing=0, disable=number <= 2 * CHUNK,
              mininterval=0.1 if sys.stderr.isatty() else 30) as progress:  # fmt: skip
        while chunk := list(islice(notes, CHUNK)):
            events = events_of(tables, chunk)
            yield from filter(None, (work.record(_draft(note, events, work.attrition)) for note in chunk))
            progress.update(len(chunk))


def _draft(note: Note, events: Events, attrition: Attrition) -> Draft:
    parsed = parse_discharge_note(note.text)
    if parsed.cut:
        attrition.count(CUT)
    years = note.years
    if years is not None and not 0 <= years <= OLDEST:
        attrition.count("admissions at an impossible age, left out of the summary")
        years = None
    elif years is None and not note.rejected:
        attrition.count("admissions at an unknown age")
    if not note.rejected and not patient_information(None, note.gender):
        attrition.count("admissions without a sex that is known, left out of the summary")
    case = note.hadm_id or ""
    results = {} if note.rejected else results_of(case, events, attrition)
    where = ""
    if not (parsed.physical and parsed.primary_diagnosis and (results or note.rejected)):
        counts = "{} laboratory results, {} rows of microbiology, {} reports".format(
            *(len(r.get(case, ())) for r in events)
        )
        where = f"headings {outline(note.text)}; in the window {counts}"
    return Draft(
        note_id=note.note_id,
        subject_key=note.subject_id,
        history={"Patient Information": patient_information(years, note.gender)} | parsed.history,
        physical=parsed.physical,
        results=results,
        diagnosis=parsed.primary_diagnosis,
        final_diagnosis=parsed.final_diagnosis,
        rejected=note.rejected,
        needs_physical=True,
        where=where,
    )
