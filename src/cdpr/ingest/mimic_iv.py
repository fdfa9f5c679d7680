"""Imports MIMIC-IV: discharge summaries and event tables.

Reads ``hosp/{patients,admissions,labevents,d_labitems,microbiologyevents}`` and
``note/{discharge,radiology,radiology_detail}`` below one folder, as published (``.csv.gz``, ``.csv`` or ``.parquet``).

DuckDB first links all events to admissions, on disk. Then notes are read in chunks, each with its events, so that only
the finished records are in memory as a whole.

An event belongs to an admission if it has its ``hadm_id``, or if it has none, is of the same patient, and no other
admission is nearer. In both cases it must be in the time window. Of each laboratory item, culture and report the
first is used.
"""

import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from tqdm import tqdm

from ..cases import Analyte, CaseRecord, format_analytes
from ..settings.datasets import MimicSource
from .attrition import Attrition
from .draft import CUT, Draft, Import, patient_information
from .mimic_tables import OLDEST, QUERIES, Tables, statement
from .names import ANY_LABEL, exam_key, panels
from .notes import examination_heading, outline, parse_discharge_note, report_text
from .texts import one_line, phrases, says_something

_log = logging.getLogger(__name__)
_WORDS = phrases("mimic_iv")
_ADDENDUM = re.compile(_WORDS["addendum"], re.IGNORECASE)
CHUNK = 500  # notes that are read at a time
Row = Any  # a named tuple with the columns of a query of mimic_queries.yaml
# Rows from which results are made, by the query that reads them (``laboratory_of``, ``microbiology_of``,
# ``radiology_of``) and by ``hadm_id``.
Events = dict[str, dict[str, list[Row]]]
_NamedResult = tuple[list[str], str, int]  # names of the examinations in the source, text, number of rows behind it
_EVENT_QUERIES = ("laboratory_of", "microbiology_of", "radiology_of")


def read_mimic_iv(source: MimicSource, work: Import) -> Iterator[CaseRecord]:
    """Read the folder of MIMIC-IV. Yields the records of all usable discharge summaries. Raises IngestError for a
    missing table or column, a damaged file, or where more than 1% of the ages or admission times are unreadable."""
    with Tables(work.path, work.state / "tables", work.attrition) as tables:
        for name, columns in QUERIES["columns"].items():
            tables.add(name, columns)
        tables.check_sums()
        tables.count_rows()
        tables.check_times("hosp/admissions", "admittime", tables.query("admission_times")[0])
        for name in ("stays", "persons"):  # one row for each admission and each patient
            tables.query(name)
        for check in QUERIES["row_checks"]:
            tables.check_rows(**check)
        _log.info("numbering notes and admissions in %s", work.path)
        tables.query("note_ids")
        tables.query("first_notes")
        tables.query("cases", [source.hours_before_admission * 3600, source.hours_after_admission * 3600])
        _log.info("linking laboratory, microbiology and radiology rows to admissions")
        link_events(tables, work.attrition, held=source.held_specimens == "keep")
        tables.check_references()
        yield from _read_notes(tables, work)
    work.attrition.count_left_out()


def _read_notes(tables: Tables, work: Import) -> Iterator[CaseRecord]:
    """Read all notes in chunks, each with its events, and display the progress. Yields the records of usable cases."""
    number = int(work.attrition.tables["note/discharge"])
    notes = tables.rows(statement("notes"))
    # On a terminal a bar; in a log a line every 30 s; nothing for few notes.
    options: dict[str, Any] = {"mininterval": 0.1 if sys.stderr.isatty() else 30, "disable": number <= 2 * CHUNK}
    with tqdm(desc="reading notes", total=number, unit=" notes", ncols=90, smoothing=0, **options) as bar:
        while chunk := list(islice(notes, CHUNK)):
            bar.update(len(chunk))
            events = events_of(tables, chunk)
            for note in chunk:
                if work.is_repeated(note.note_id) and not note.rejected:  # before its results are read and counted
                    note = note._replace(rejected="same case twice")
                if record := work.record(_make_draft(note, events, work.attrition)):
                    yield record


def _make_draft(note: Row, events: Events, attrition: Attrition) -> Draft:
    """Make the draft of a case from a discharge summary and the results of its admission. ``note`` is a row of the
    query ``notes``; ``note.rejected`` is the rule that drops the case, or None. The results of a dropped case are not
    read."""
    parsed = parse_discharge_note(note.text)
    attrition.count(CUT, parsed.cut)
    is_impossible = note.years is not None and not 0 <= note.years <= OLDEST
    years = None if is_impossible else note.years
    attrition.count("admissions at an impossible age, left out of the summary", is_impossible)
    attrition.count("admissions at an unknown age", note.years is None and not note.rejected)
    is_sexless = not note.rejected and not patient_information(None, note.gender)
    attrition.count("admissions without a sex that is known, left out of the summary", is_sexless)
    results = {} if note.rejected else results_of(note.hadm_id or "", events, attrition)
    is_complete = parsed.physical and parsed.primary_diagnosis and (results or note.rejected)
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
        where="" if is_complete else _describe(note, events),
    )


def _describe(note: Row, events: Events) -> str:
    """Describe a note without a word of the patient: its headings, and the numbers of rows in its time window. A
    warning about a rule that drops many cases quotes it as an example."""
    laboratory, microbiology, radiology = (len(events[query].get(note.hadm_id or "", ())) for query in _EVENT_QUERIES)
    counts = f"{laboratory} laboratory results, {microbiology} rows of microbiology, {radiology} reports"
    return f"headings {outline(note.text)}; in the window {counts}"


# Events: laboratory, microbiology, radiology.


def link_events(tables: Tables, attrition: Attrition, held: bool) -> None:
    """Link the rows of the tables of events (``events`` of ``mimic_queries.yaml``) to admissions, and count every row.

    Creates the tables ``lab``, with the first result of each laboratory item of an admission, ``items``, with the
    examination of each item, ``micro`` and ``report``. Items that only say that a specimen was kept, not examined, are
    left out unless ``held``. A report also has the names of its examinations from the detail table, and the report to
    which an addendum belongs. Raises IngestError where most times, or the ``hadm_id`` of rows, cannot be used.
    """
    exams, labels, fluids = zip(*panels(), strict=True)
    tables.query("panels", [list(exams), list(labels), list(fluids), len(panels())])
    tables.query("report_names")
    for events in QUERIES["events"]:
        tables.query(events["linked"], linked=statement("linked", table=events["table"], date=events["date"]))
    tables.query("items", held=held, any_label=ANY_LABEL)
    for events in QUERIES["events"]:
        name, what = events["file"], events["what"]
        # The query gives pairs (how the description of an event goes on after ``what``, number of rows): ("", 900) for
        # all rows, then (" without a result", 20), ...
        rows_by_ending = {ending: int(rows) for ending, rows in tables.query(events["counted_by"], **events)}
        tables.check_strays(name, rows_by_ending[""], rows_by_ending[" of no known admission"])
        tables.check_times(name, "charttime", tables.query(events["timed_by"], **events)[0])
        attrition.tables[name] = what
        for ending, rows in rows_by_ending.items():
            attrition.count(what + ending, rows)
    [(nameless,)] = tables.query("nameless_items")
    attrition.count("laboratory items without a name, called by their number", nameless)


def events_of(tables: Tables, notes: Sequence[Row]) -> Events:
    """Read the linked rows of the admissions of some notes; within an admission they are in the order in which results
    are written."""
    stays = {note.hadm_id: note.subject_id for note in notes if note.subject_id and note.hadm_id}
    # The first and last patient only make the query fast: tables are sorted by patient.
    first, last = min(stays.values(), default=""), max(stays.values(), default="")
    events: Events = {}
    for query in _EVENT_QUERIES:
        rows = tables.rows(statement(query), [first, last, list(stays)])
        # Rows of one admission follow one another.
        events[query] = {case: list(group) for case, group in groupby(rows, key=attrgetter("case_id"))}
    return events


def results_of(case: str, events: Events, attrition: Attrition) -> dict[str, str]:
    """Return the results of the admission ``case`` (its ``hadm_id``) as texts by examination: of the laboratory, then
    cultures, then radiology. Laboratory results whose names mean one examination are written together. Of several
    cultures or reports with one name the first is used, and the others are counted."""
    analytes: dict[str, list[Analyte]] = {}
    for row in events["laboratory_of"].get(case, ()):
        analytes.setdefault(exam_key(row.exam), []).append(Analyte(*row[2:]))
    results = {key: format_analytes(measured) for key, measured in analytes.items()}
    cultures = _microbiology_results(events["microbiology_of"].get(case, ()), attrition)
    reports = _radiology_results(events["radiology_of"].get(case, ()), attrition)
    for what, named_results in (("microbiology rows", cultures), ("radiology reports", reports)):
        for names, text, rows in named_results:
            new = {key: text for key in map(exam_key, names) if key not in results}
            attrition.count(f"{what} used" if new else f"{what} repeated later", rows)
            results |= new
    return results


def _microbiology_results(rows: Iterable[Row], attrition: Attrition) -> Iterator[_NamedResult]:
    """Yield the result of each culture or other microbiological test, as :data:`_NamedResult`. Rows of one time, test
    and specimen are one test, so that the bottles of one blood draw are one culture. Cancelled tests are left out and
    counted."""
    for (time, test, _), group in groupby(rows, key=attrgetter("time", "test_name", "spec_type_desc")):
        test_rows = list(group)
        if time is None or test is None:
            missing = "readable time" if time is None else "test name"
            attrition.count(f"microbiology rows without a {missing}", len(test_rows))
            continue
        done = [row for row in test_rows if not row.cancelled]
        attrition.count("microbiology rows of cancelled tests", len(test_rows) - len(done))
        if text := _culture_text(done):
            yield [test_rows[0].name], text, len(done)
        elif done:
            attrition.count("microbiology rows without a result", len(done))


def _culture_text(rows: Sequence[Row]) -> str:
    """Write the result of one microbiological test: its organisms, each with quantity and interpretations of
    antibiotics, and its comments. Empty where the rows have none of these."""
    parts = []
    for organism in dict.fromkeys(row.org_name for row in rows if row.org_name):  # each once
        isolates = [row for row in rows if row.org_name == organism]
        parts.append(f"Organism: {organism}")
        parts += dict.fromkeys(f"Quantity: {row.quantity}" for row in isolates if row.quantity)
        if tested := [f"{row.ab_name} {row.interpretation}" for row in isolates if row.ab_name and row.interpretation]:
            parts.append("Interpretation: " + ", ".join(dict.fromkeys(tested)))
    if comments := [one_line(row.comments) for row in rows if row.comments and says_something(row.comments)]:
        parts.append(("Comments: " if parts else "") + " ".join(dict.fromkeys(comments)))
    return "; ".join(parts)


def _radiology_results(rows: Sequence[Row], attrition: Attrition) -> Iterator[_NamedResult]:
    """Yield each radiology report with its addenda, as :data:`_NamedResult`. The names of a report are those in the
    detail table, else its own heading. An addendum has the ``note_id`` of its report as ``parent``; alone it is no
    result. Reports without a name, time or result are counted."""
    for row in rows:
        if row.parent is not None:
            attrition.count("radiology reports that are addenda")
            continue
        text = row.text or ""
        names, report = row.names or [examination_heading(text) or ""], report_text(text)
        has = {"readable time": row.time is not None, "name": bool(names[0]), "result": bool(report)}
        if missing := [part for part, is_there in has.items() if not is_there]:
            attrition.count(f"radiology reports without a {missing[0]}")
            continue
        addenda = filter(None, map(report_text, row.addenda or ()))
        yield names, " ".join([report, *(f"Addendum: {_ADDENDUM.sub('', one, count=1)}" for one in addenda)]), 1
