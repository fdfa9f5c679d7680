"""MIMIC-IV: discharge summaries and event tables -> case records.

Reads ``hosp/{patients,admissions,labevents,d_labitems,microbiologyevents}`` and
``note/{discharge,radiology,radiology_detail}`` below one folder, as published (``.csv.gz``, ``.csv`` or ``.parquet``).

The table engine links events to admissions once, out of core; then notes are streamed in chunks, each with its events,
and read by worker processes. Nothing but the finished records is ever held whole.
"""

import logging
import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
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
from .texts import patient_information

_log = logging.getLogger(__name__)
THREADS = 2  # of the table engine, and as many processes read notes: all of MIMIC-IV takes 12 minutes
CHUNK = 500  # notes; also the smallest import for which worker processes pay


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


Chunk = tuple[list[Note], Events, Import]
Reading = tuple[list[CaseRecord], Attrition]


def read_mimic_iv(source: MimicSource, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable discharge summaries, read by ``THREADS`` processes. Raises IngestError for a missing table
    or column, a damaged file, or an unreadable age or admission time."""
    with Tables(work.path, work.state / "tables", work.attrition, THREADS) as tables:
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
        for records, attrition_of_chunk in _read_chunks(tables, work, THREADS):
            work.attrition.add(attrition_of_chunk)
            yield from records
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


def _read_chunks(tables: Tables, work: Import, processes: int) -> Iterator[Reading]:
    """What each chunk of notes gives, in worker processes where there are many."""
    notes, dataset = int(work.attrition.tables["note/discharge"]), work.attrition.dataset
    stream = map(Note._make, tables.rows(statement("notes")))
    chunks = (
        (chunk, events_of(tables, chunk), replace(work, attrition=Attrition(dataset)))
        for chunk in iter(lambda: list(islice(stream, CHUNK)), [])
    )
    parallel = processes > 1 and notes > 2 * CHUNK
    done = _in_processes(chunks, processes) if parallel else (_read_chunk(*chunk) for chunk in chunks)
    # On a terminal a bar; in a log a line every 30 s; nothing for few notes.
    with tqdm(total=notes, unit=" notes", desc="reading notes", ncols=90, smoothing=0, disable=notes <= 2 * CHUNK,
              mininterval=0.1 if sys.stderr.isatty() else 30) as progress:  # fmt: skip
        for records, attrition_of_chunk in done:
            progress.update(attrition_of_chunk.read)
            yield records, attrition_of_chunk


def _read_chunk(notes: list[Note], events: Events, work: Import) -> Reading:
    drafts = (_draft(note, events, work.attrition) for note in notes)
    return list(filter(None, map(work.record, drafts))), work.attrition


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


def _in_processes(chunks: Iterable[Chunk], processes: int) -> Iterator[Reading]:
    """What each chunk gives, in their order; at most twice as many chunks as processes wait in memory."""
    # Not forked: the threads of a table engine would not come along.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=end_with_parent) as pool:
        waiting: deque[Future[Reading]] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(_read_chunk, *chunk))
            if len(waiting) >= 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def end_with_parent() -> None:
    """End this process as soon as its parent has ended, even killed; it would keep the parent's log open for ever."""

    def wait() -> None:
        if parent := multiprocessing.parent_process():
            multiprocessing.connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
