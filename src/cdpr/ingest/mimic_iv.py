"""MIMIC-IV: discharge summaries and event tables -> case records.

Reads ``hosp/{patients,admissions,labevents,d_labitems,microbiologyevents}`` and
``note/{discharge,radiology,radiology_detail}`` below one folder, as published (``.csv.gz``, ``.csv`` or ``.parquet``).

The table engine links events to admissions once, out of core; then notes are streamed in chunks, each with its events,
and read by worker processes. Nothing but the finished records is ever held whole.
"""

import importlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tqdm import tqdm

from ..cases import CaseRecord
from ..settings.datasets import MimicSource
from .attrition import Attrition
from .draft import Draft, Import, Selection
from .error import IngestError
from .flat_files import quoted
from .mimic_checks import check_references, check_sums, check_times, count_left_out, count_rows, shape, told_by_table
from .mimic_events import Events, events_of, link_events, open_event_tables, results_of
from .notes import DischargeNote, parse_discharge_note
from .summary import patient_information
from .tables import LONGEST_NOTE, Tables, line_of

Improve = Callable[[Sequence[tuple[DischargeNote, str]]], list[DischargeNote]]

_log = logging.getLogger(__name__)
THREADS = 2  # of the table engine, and as many processes read notes: all of MIMIC-IV takes 12 minutes
CHUNK = 500  # notes; also the smallest import for which worker processes pay
_OLDEST = 130  # years
_NOTES = """
    SELECT n.note_id, n.subject_id, n.hadm_id, try_cast(a.admittime AS TIMESTAMP), p.gender, p.anchor_age,
           p.anchor_year, n.text, f.note_id = n.note_id
    FROM discharge n
    LEFT JOIN stays a ON a.hadm_id = n.hadm_id AND a.subject_id = n.subject_id
    LEFT JOIN persons p ON p.subject_id = a.subject_id
    LEFT JOIN first_notes f ON f.hadm_id = a.hadm_id
"""


class Note(NamedTuple):
    """A discharge summary with its admission; ``first`` says whether it is the one that counts for it."""

    note_id: str | None
    subject_id: str | None
    hadm_id: str | None
    admit: object
    gender: str | None
    age: str | None
    year: str | None
    text: str | None
    first: bool | None


def read_mimic_iv(source: MimicSource, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable discharge summaries, read by ``THREADS`` processes; by this one alone where a
    language model helps with notes in free form.

    Raises IngestError for a missing table or column, a damaged file, or an unreadable age or admission time; and what
    :class:`cdpr.ingest.structurer.NoteStructurer` raises, before any note is read.
    """
    structurer = _structurer(source, work)
    with Tables(work.path, work.state / "tables", THREADS) as tables:
        _open(tables, work.attrition)
        _log.info("numbering notes and admissions in %s", work.path)
        _index_notes(tables)
        _find_windows(tables, source)
        link_events(tables, work.attrition, held=source.held_specimens == "keep")
        check_references(tables, work.attrition)
        improve = structurer.improve_all if structurer else None
        for records, attrition_of_chunk in _read_chunks(tables, work.selection, THREADS, improve):
            work.attrition.add(attrition_of_chunk)
            yield from records
    count_left_out(work.attrition)
    work.attrition.tables += told_by_table(work.attrition.events, work.attrition.rows_read)
    if structurer:
        work.attrition.events += structurer.counters
        work.tags.update(structurer.tags())


def _structurer(source: MimicSource, work: Import) -> Any:
    """The help that the settings ask for, or None. Imported by name: without it, ingestion does not depend on it."""
    if source.structurer.model is None:
        return None
    module = importlib.import_module("cdpr.ingest.structurer")
    dataset = work.selection.dataset
    return module.NoteStructurer(source.structurer, work.governance, source.credentialed, work.state, dataset)


def _open(tables: Tables, attrition: Attrition) -> None:
    tables.add("note/discharge", ["note_id", "subject_id", "hadm_id", "text"], LONGEST_NOTE)
    admissions = tables.add("hosp/admissions", ["subject_id", "hadm_id", "admittime"])
    patients = tables.add("hosp/patients", ["subject_id", "gender", "anchor_age", "anchor_year"])
    open_event_tables(tables)
    if listed := check_sums(tables):
        _log.info("%d tables are the bytes that their publisher lists", listed)
    count_rows(tables, attrition)
    time = "try_cast(admittime AS TIMESTAMP)"
    check_times(tables, "hosp/admissions", "admittime", next(tables.rows(f"""
        SELECT count(admittime), count(admittime) FILTER ({time} IS NULL),
               any_value(admittime) FILTER ({time} IS NULL), count(*) FILTER (epoch({time}) % 86400 = 0)
        FROM admissions""")), attrition)  # fmt: skip
    _check(tables, admissions, "admissions", "hadm_id", "admittime", f"{time} IS NOT NULL",
           "is not a time like 2150-01-31 08:00:00")  # fmt: skip
    for column in ("anchor_age", "anchor_year"):
        number = f"regexp_full_match({column}, '[0-9]{{1,4}}')"
        _check(tables, patients, "patients", "subject_id", column, number, "is not a whole number")
    tables.run("CREATE TABLE stays AS SELECT DISTINCT * FROM admissions WHERE hadm_id IS NOT NULL")
    tables.run("CREATE TABLE persons AS SELECT DISTINCT * FROM patients WHERE subject_id IS NOT NULL")
    for path, table, key in ((admissions, "stays", "hadm_id"), (patients, "persons", "subject_id")):
        once = f"{key} NOT IN (SELECT {key} FROM {table} GROUP BY {key} HAVING count(*) > 1)"
        _check(tables, path, table, key, key, once, "stands in several rows that disagree")


def _index_notes(tables: Tables) -> None:
    """Tables ``note_ids`` and ``first_notes``: of each admission the first note, addenda (``-AD-``) last."""
    tables.run("CREATE TABLE note_ids AS SELECT note_id, subject_id, hadm_id FROM discharge")
    tables.run("""
        CREATE TABLE first_notes AS
        SELECT hadm_id, arg_min(note_id, (note_id LIKE '%-AD-%', number, note_id)) AS note_id
        FROM (SELECT *, try_cast(regexp_extract(note_id, '[0-9]+$') AS INTEGER) AS number FROM note_ids)
        JOIN stays USING (subject_id, hadm_id) WHERE note_id IS NOT NULL GROUP BY hadm_id
    """)


def _find_windows(tables: Tables, source: MimicSource) -> None:
    """Table ``cases``: admissions with a note, the time window of their events and the time in which no other
    admission of the patient is nearer (seconds since 1970)."""
    tables.run(
        """
        CREATE TABLE cases AS
        WITH times AS (
            SELECT hadm_id, subject_id, min(epoch(try_cast(admittime AS TIMESTAMP))) AS admit
            FROM stays GROUP BY ALL HAVING admit IS NOT NULL),
        neighbours AS (
            SELECT *, (admit + lag(admit) OVER patient) / 2 AS since, (admit + lead(admit) OVER patient) / 2 AS until
            FROM times WINDOW patient AS (PARTITION BY subject_id ORDER BY admit, hadm_id))
        SELECT hadm_id, subject_id, admit - ? AS start, admit + ? AS stop,
               coalesce(since, '-inf'::DOUBLE) AS nearest_from, coalesce(until, 'inf'::DOUBLE) AS nearest_until
        FROM neighbours WHERE hadm_id IN (SELECT hadm_id FROM first_notes)
        """,
        [source.hours_before_admission * 3600, source.hours_after_admission * 3600],
    )


def _read_chunks(
    tables: Tables, selection: Selection, processes: int, improve: Improve | None
) -> Iterator[tuple[list[CaseRecord], Attrition]]:
    """What each chunk of notes gives, in worker processes where there are many."""
    (notes,) = next(tables.rows("SELECT count(*) FROM note_ids"))
    stream = _notes(tables)
    chunks = (
        (chunk, events_of(tables, [(note.subject_id, note.hadm_id) for note in chunk]), selection)
        for chunk in iter(lambda: list(islice(stream, CHUNK)), [])
    )
    if processes > 1 and notes > 2 * CHUNK and improve is None:
        done = in_processes(_read_chunk, chunks, processes)
    else:
        done = (_read_chunk(*chunk, improve) for chunk in chunks)
    with _progress(notes) as progress:
        for records, attrition_of_chunk in done:
            progress.update(attrition_of_chunk.read)
            yield records, attrition_of_chunk


def _notes(tables: Tables) -> Iterator[Note]:
    """All notes in the order of the file; those whose number stands more than once come last, sorted."""
    repeated = {n for (n,) in tables.rows("SELECT note_id FROM note_ids GROUP BY note_id HAVING count(*) > 1")}
    held = []
    for row in tables.rows(_NOTES):
        if row[0] is None or row[0] in repeated:
            held.append(row)
        else:
            yield Note(*row)
    admissions: set[str | None] = {None}
    for row in sorted(held, key=lambda row: tuple(map(str, row))):
        yield Note(*row)._replace(note_id=None) if row[0] in admissions else Note(*row)
        admissions.add(row[0])


def _read_chunk(
    notes: Sequence[Note], events: Events, selection: Selection, improve: Improve | None = None
) -> tuple[list[CaseRecord], Attrition]:
    attrition = Attrition(selection.dataset)
    parsed = [parse_discharge_note(note.text or "") for note in notes]
    if improve is not None:
        parsed = improve([(sections, note.text or "") for sections, note in zip(parsed, notes, strict=True)])
    records = (
        selection.record(_draft(*pair, events, attrition), attrition) for pair in zip(notes, parsed, strict=True)
    )
    return [record for record in records if record is not None], attrition


def _draft(note: Note, parsed: DischargeNote, events: Events, attrition: Attrition) -> Draft:
    # The anchor age holds in the anchor year; dates are shifted, intervals are not.
    years = int(note.age) + note.admit.year - int(note.year) if note.admit and note.age and note.year else None
    if years is not None and not 0 <= years <= _OLDEST:
        attrition.count("admissions at an impossible age, left out of the summary")
        years = None
    rejected = _why_not(note)
    return Draft(
        note_id=note.note_id or "(none or repeated)",
        subject_key=note.subject_id or "",
        history={"Patient Information": patient_information(years, note.gender or "")} | parsed.history,
        physical=parsed.physical,
        results={} if rejected else results_of(note.hadm_id, events, attrition),
        diagnosis=parsed.primary_diagnosis,
        final_diagnosis=parsed.final_diagnosis,
        rejected=rejected,
        needs_physical=True,
    )


def _why_not(note: Note) -> str | None:
    if note.note_id is None:
        return "note_id missing or repeated"
    if note.first is None:
        return "note of no known admission"
    if note.admit is None:
        return "admission without a time"
    return None if note.first else "another note of the same admission"


def _progress(total: int) -> tqdm:
    """A progress bar on a terminal; in a log a line every 30 s; nothing for few notes."""
    watched = sys.stderr.isatty()
    return tqdm(total=total, unit=" notes", desc="reading notes", ncols=90, smoothing=0, disable=total <= 2 * CHUNK,
                mininterval=0.1 if watched else 30)  # fmt: skip


def _check(tables: Tables, path: Path, table: str, key: str, column: str, fits: str, problem: str) -> None:
    """Raise IngestError for the first row, in the order of its key, whose column does not fit the condition."""
    bad = next(
        tables.rows(f"SELECT {key}, {column} FROM {table} WHERE {column} IS NOT NULL AND NOT ({fits}) "
                    "ORDER BY 1, 2 LIMIT 1"), None,
    )  # fmt: skip
    if bad is not None:
        row = "" if key == column else f" in the row of {key} {quoted(bad[0] or '')}"
        line = line_of(path, column, bad[1])
        message = f"{quoted(bad[1])}{row} {problem}" + (f", but {shape(bad[1])}" if column == "admittime" else "")
        raise IngestError(path, message, "repair the row or remove it", line=line, field=column)


T = TypeVar("T")


def in_processes(function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], processes: int) -> Iterator[T]:
    """``function(*task)`` of every task, in their order; at most twice as many tasks as processes wait in memory."""
    # Not forked: the threads of a table engine would not come along.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=end_with_parent) as pool:
        waiting: deque[Future[T]] = deque()
        for task in tasks:
            waiting.append(pool.submit(function, *task))
            if len(waiting) >= 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def end_with_parent() -> None:
    """End this process as soon as its parent has ended, even killed; it would keep the parent's log open for ever."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
