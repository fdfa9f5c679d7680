"""MIMIC-IV: discharge summaries and event tables -> case records.

Reads ``hosp/{patients,admissions,labevents,d_labitems,microbiologyevents}`` and
``note/{discharge,radiology,radiology_detail}`` below one folder, as published (``.csv.gz``, ``.csv`` or ``.parquet``).

The table engine links events to admissions once, out of core; then notes are streamed in chunks, each with its events.
Nothing but the finished records is ever held whole.

An event belongs to an admission when it carries its ``hadm_id`` or, lacking one, is of the same patient and no other
admission is nearer; and in either case lies in the time window. Of each analyte, culture and report the first counts.
"""

import logging
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

from tqdm import tqdm

from ..cases import Analyte, CaseRecord, format_analytes
from ..settings.datasets import MimicSource
from .attrition import Attrition
from .draft import CUT, Draft, Import
from .mimic_tables import OLDEST, QUERIES, Tables, statement
from .names import ANY_LABEL, exam_key, panels
from .notes import examination_heading, outline, parse_discharge_note, report_text
from .summary import patient_information
from .texts import is_absent, one_line, phrases, says_something

_log = logging.getLogger(__name__)
_WORDS = phrases("mimic_iv")
_CANCELLED, _ADDENDUM = (re.compile(_WORDS[name], re.IGNORECASE) for name in ("cancelled", "addendum"))
CHUNK = 500  # notes
# Rows behind the examinations of some admissions, by admission: laboratory, microbiology, radiology.
Events = tuple[dict[str, list[tuple]], ...]


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
    """Read all notes in chunks, each with its events, and show the progress. Yields the records of usable cases."""
    number = int(work.attrition.tables["note/discharge"])
    notes = map(Note._make, tables.rows(statement("notes")))
    # On a terminal a bar; in a log a line every 30 s; nothing for few notes.
    options: dict[str, Any] = {"mininterval": 0.1 if sys.stderr.isatty() else 30, "disable": number <= 2 * CHUNK}
    with tqdm(desc="reading notes", total=number, unit=" notes", ncols=90, smoothing=0, **options) as bar:
        while chunk := list(islice(notes, CHUNK)):
            bar.update(len(chunk))
            events = events_of(tables, chunk)
            yield from filter(None, (work.record(_draft(note, events, work.attrition)) for note in chunk))


def _draft(note: Note, events: Events, attrition: Attrition) -> Draft:
    """The draft of one discharge summary with the results of its admission."""
    parsed = parse_discharge_note(note.text)
    attrition.count(CUT, parsed.cut)
    years = note.years if note.years is not None and 0 <= note.years <= OLDEST else None
    attrition.count("admissions at an impossible age, left out of the summary", note.years is not years)
    attrition.count("admissions at an unknown age", note.years is None and not note.rejected)
    sexless = not note.rejected and not patient_information(None, note.gender)
    attrition.count("admissions without a sex that is known, left out of the summary", sexless)
    case = note.hadm_id or ""
    results = {} if note.rejected else results_of(case, events, attrition)
    where = ""
    if not (parsed.physical and parsed.primary_diagnosis and (results or note.rejected)):
        laboratory, microbiology, radiology = (len(rows.get(case, ())) for rows in events)
        counts = f"{laboratory} laboratory results, {microbiology} rows of microbiology, {radiology} reports"
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


# Events: laboratory, microbiology, radiology.


def link_laboratory(tables: Tables, attrition: Attrition, held: bool) -> None:
    """Table ``lab``: of each item of an admission the first row with a result; ``items``: the examination of each item
    number. Without ``held`` specimens that nobody examined are left out. Every row is counted: in a window or not, with
    a time and a result or not."""
    linked = statement("linked", table="labevents", time="moment(charttime)", start="c.start")
    tables.query("lab", linked=linked)
    tables.check_times("hosp/labevents", "charttime", tables.query("lab_times")[0])
    tables.query("panels", [*map(list, zip(*panels(), strict=True)), len(panels())])
    tables.query("items", held=held, any_label=ANY_LABEL)
    attrition.tables["hosp/labevents"] = "laboratory rows"
    counts = dict(tables.query("lab_counts"))
    tables.check_strays("hosp/labevents", counts[""], counts[" of no known admission"])
    for what, rows in counts.items():
        attrition.count(f"laboratory rows{what}", int(rows))
    [(nameless,)] = tables.query("nameless_items")
    attrition.count("laboratory items without a name, called by their number", nameless)


def link_microbiology(tables: Tables, attrition: Attrition) -> None:
    """Table ``micro``: where only the date is known, the event counts when that day touches the window."""
    start = "CASE WHEN e.charttime IS NULL THEN floor(c.start / 86400) * 86400 ELSE c.start END"
    time = "coalesce(moment(charttime), moment(chartdate))"
    tables.query("micro", linked=statement("linked", table="microbiologyevents", time=time, start=start))
    _check_and_count(tables, "hosp/microbiologyevents", "micro", "microbiology rows", attrition)


def link_radiology(tables: Tables, attrition: Attrition) -> None:
    """Table ``report``: reports with their names in the detail table, and the report that an addendum belongs to."""
    tables.query("report_names")
    linked = statement("linked", table="radiology", time="moment(charttime)", start="c.start")
    tables.query("report", linked=linked)
    _check_and_count(tables, "note/radiology", "report", "radiology reports", attrition)


def _check_and_count(tables: Tables, name: str, linked: str, what: str, attrition: Attrition) -> None:
    """Check the patients and times of the rows of the file ``name``, and count them as ``what``. ``linked`` is the
    table of these rows with their admissions. Raises IngestError as ``check_strays`` and ``check_times`` of Tables."""
    [(total, stray, outside, *times)] = tables.query("account", linked=linked)
    tables.check_strays(name, total, stray)
    tables.check_times(name, "charttime", times)
    attrition.tables[name] = what
    attrition.count(what, total)
    attrition.count(f"{what} of no known admission", stray)
    attrition.count(f"{what} in no case's window", outside - stray)


def events_of(tables: Tables, notes: Sequence[Any]) -> Events:
    """Rows of the admissions of some notes, in the order in which their results are to be read."""
    known = [(note.subject_id, note.hadm_id) for note in notes if note.subject_id and note.hadm_id]
    if not known:
        return ({}, {}, {})
    subjects, stays = zip(*known, strict=True)
    mine = [min(subjects), max(subjects), list(stays)]
    names = ("laboratory_of", "microbiology_of", "radiology_of")
    # Rows of one admission follow one another.
    by_case = (groupby(tables.rows(statement(name), mine), key=itemgetter(0)) for name in names)
    return tuple({case: [row[1:] for row in rows] for case, rows in groups} for groups in by_case)


def results_of(case: str, events: Events, attrition: Attrition) -> dict[str, str]:
    """All examinations of an admission: laboratory, microbiology, radiology; the first of each name counts."""
    laboratory, microbiology, radiology = (rows.get(case, ()) for rows in events)
    results = {
        exam_key(exam): format_analytes(_analyte(*analyte) for _, *analyte in analytes)
        for exam, analytes in groupby(laboratory, key=itemgetter(0))
    }
    for what, events_of_kind in (
        ("microbiology rows", _microbiology(microbiology, attrition)),
        ("radiology reports", _radiology(radiology, attrition)),
    ):
        for names, text, rows in events_of_kind:
            new = dict.fromkeys((key for name in names if (key := exam_key(name)) not in results), text)
            attrition.count(f"{what} used" if new else f"{what} repeated later", rows)
            results |= new
    return results


def _analyte(label, value, units, low, high, flag, comments) -> Analyte:
    """Make an analyte of a laboratory row; blanks of de-identification are left out of its comment."""
    comments = one_line(comments.replace("___", "")) if comments else None
    value = one_line(value) if value else None
    return Analyte(label, value, units, low, high, flag, comments)


def _microbiology(rows: Iterable[tuple], attrition: Attrition) -> Iterator[tuple[list[str], str, int]]:
    """Name, text and number of rows of cultures and other tests: organisms with their interpretations, else the
    comment; cancelled tests left out. Bottles of one draw are one test."""
    for (when, name, specimen), group in groupby(rows, key=lambda row: row[:3]):
        rows = [row[3:] for row in group]
        if when is None or name is None:
            missing = "readable time" if when is None else "test name"
            attrition.count(f"microbiology rows without a {missing}", len(rows))
            continue
        events = [row for row in rows if not any(text and _is_cancelled(text) for text in (row[0], row[4]))]
        attrition.count("microbiology rows of cancelled tests", len(rows) - len(events))
        if text := _culture(events):
            yield [_with_specimen(name, specimen)], text, len(events)
        elif events:
            attrition.count("microbiology rows without a result", len(events))


def _is_cancelled(text: str) -> bool:
    """Whether a text says that a test was cancelled, or has no result."""
    return says_something(text) and (is_absent(text) or _CANCELLED.match(text) is not None)


def _with_specimen(test: str, specimen: str | None) -> str:
    """The test's name, with its specimen where the name does not tell: a Gram stain of sputum is not one of liquor."""
    first = one_line((specimen or "").partition(";")[0])
    words = set(re.findall(r"[A-Z]{3,}", first.upper()))
    if not words or words & set(re.findall(r"[A-Z]{3,}", test.upper())) or test.upper() not in _WORDS["any_specimen"]:
        return test
    return f"{test} ({first if len(first) <= len('CSF') else first.capitalize()})"


def _culture(events: list[tuple]) -> str:
    """Text of one test from its rows (organism, quantity, antibiotic, interpretation, comments)."""
    parts = []
    for organism in _distinct(row[0] for row in events):
        mine = [row for row in events if row[0] == organism]
        parts.append(f"Organism: {organism}")
        parts += [f"Quantity: {quantity}" for quantity in _distinct(row[1] for row in mine)]
        tested = _distinct(f"{row[2]} {row[3]}" for row in mine if row[2] and row[3])
        if tested:
            parts.append("Interpretation: " + ", ".join(tested))
    comments = _distinct(one_line(row[4]) for row in events if row[4] and says_something(row[4]))
    if comments:
        parts.append(("Comments: " if parts else "") + " ".join(comments))
    return "; ".join(parts)


def _distinct(items: Iterable[str | None]) -> list[str]:
    """Each item once, without empty ones, in the order in which they came."""
    return list(dict.fromkeys(item for item in items if item))


def _radiology(rows: Sequence[tuple], attrition: Attrition) -> Iterator[tuple[list[str], str, int]]:
    """Reports by the names of the detail table, else by their own heading; addenda follow their reports."""
    addenda = defaultdict(list)
    for _, _, _, parent, text in rows:
        if parent is not None and (report := report_text(text or "")):
            addenda[parent].append(f"Addendum: {_ADDENDUM.sub('', report, count=1)}")
    for when, number, names, parent, text in rows:
        text = text or ""
        if parent is not None:
            attrition.count("radiology reports that are addenda")
            continue
        names, report = names or [examination_heading(text)], report_text(text)
        if when is None or not names[0] or not report:
            missing = "readable time" if when is None else "result" if names[0] else "name"
            attrition.count(f"radiology reports without a {missing}")
            continue
        yield names, " ".join([report, *addenda.pop(number, ())]), 1
