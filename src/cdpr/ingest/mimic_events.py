"""Examinations of admissions from MIMIC-IV's event tables: laboratory, microbiology, radiology.

An event belongs to an admission when it carries its ``hadm_id`` or, lacking one, is of the same patient and no other
admission is nearer; and in either case lies in the time window. Of each analyte, culture and report the first counts.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from ..cases import Analyte, format_analytes
from .attrition import Attrition
from .mimic_tables import Tables, check_strays, check_times
from .names import ANY_LABEL, exam_key, panels
from .notes import examination_heading, report_text
from .texts import one_line, says_something

# Every row of an event table, with the admission in whose window it lies, or none. Rows that name an admission but no
# readable time come along, to be counted.
_LINKED = """
    SELECT e.*, c.hadm_id AS case_id, e.hadm_id IS NOT NULL AND e.hadm_id NOT IN (SELECT hadm_id FROM stays) AS stray
    FROM (SELECT *, epoch({time}) AS time, CASE WHEN moment(charttime) IS NULL THEN charttime END AS odd
          FROM {table}) e
    LEFT JOIN cases c ON e.subject_id = c.subject_id
      AND (e.hadm_id = c.hadm_id OR (e.hadm_id IS NULL AND e.time >= c.nearest_from AND e.time < c.nearest_until))
      AND (e.time IS NULL OR (e.time >= {start} AND e.time <= c.stop))
"""
_BLANK = "({0} IS NULL OR regexp_matches({0}, '^[_ .]*$'))"
# Tubes without an order, and indices of the sample itself (haemolysis, icterus, lipaemia).
_HELD = r"(?i)\b(hold|held)\b|^uhold$|^[HIL]$|^[A-Z]{1,2}TX\d+$"
# Tests that are done on any specimen, and what stands in place of a result when one was not done.
_ANY_SPECIMEN = {
    "GRAM STAIN", "FLUID CULTURE", "ANAEROBIC CULTURE", "FUNGAL CULTURE", "ACID FAST CULTURE", "ACID FAST SMEAR",
    "VIRAL CULTURE", "POTASSIUM HYDROXIDE PREPARATION",
}  # fmt: skip
_CANCELLED = re.compile(r"\s*(test )?cancelled\b", re.IGNORECASE)
_ADDENDUM = re.compile(r"addendum:?\s*", re.IGNORECASE)
_MINE = "subject_id BETWEEN ? AND ? AND case_id IN (SELECT unnest(?))"
# How the times of a table are written.
_TIMES = """count(charttime) AS filled, count(odd) AS unread, any_value(odd) AS sample,
            count(*) FILTER (odd IS NULL AND charttime IS NOT NULL AND time % 86400 = 0) AS midnight,
            bit_or(1 << floor(time % 86400 / 3600)::INTEGER) FILTER (odd IS NULL AND time >= 0) AS hours"""
# Rows behind the examinations of some admissions, by admission: laboratory, microbiology, radiology.
Events = tuple[dict[str, list[tuple]], ...]


def link_laboratory(tables: Tables, attrition: Attrition, held: bool) -> None:
    """Table ``lab``: of each item of an admission the first row with a result; ``items``: the examination of each item
    number. Without ``held`` specimens that nobody examined are left out. Every row is counted: in a window or not, with
    a time and a result or not."""
    no_result = f"({_BLANK.format('value')} AND valuenum IS NULL AND {_BLANK.format('comments')})"
    tables.run(f"""
        CREATE TABLE lab AS
        SELECT CASE WHEN case_id IS NOT NULL THEN subject_id END AS subject_id, case_id,
               CASE WHEN case_id IS NOT NULL THEN itemid END AS item,
               count(*) AS rows, count(*) FILTER (stray) AS stray, count(*) FILTER (time IS NULL) AS untimed,
               max(try_cast(subject_id AS BIGINT)) AS last, {_TIMES},
               count(*) FILTER (time IS NOT NULL AND {no_result}) AS empty,
               min(row(time, try_cast(labevent_id AS BIGINT), labevent_id, value, comments, valuenum, valueuom,
                       ref_range_lower, ref_range_upper, flag))
                   FILTER (time IS NOT NULL AND NOT {no_result} AND case_id IS NOT NULL) AS first
        FROM ({_LINKED.format(table="labevents", time="moment(charttime)", start="c.start")})
        GROUP BY ALL ORDER BY 1, 2
    """)
    numbers = "coalesce(sum(filled), 0), coalesce(sum(unread), 0)"
    times = f"{numbers}, any_value(sample), coalesce(sum(midnight), 0), bit_or(hours)"
    check_times(tables, "hosp/labevents", "charttime", next(tables.rows(f"SELECT {times} FROM lab")), attrition)
    tables.run(
        """
        CREATE TABLE panels AS
        SELECT exam, label, fluid, min(place) OVER (PARTITION BY exam) AS exam_place, place
        FROM (SELECT unnest(?) AS exam, unnest(?) AS label, unnest(?) AS fluid, unnest(range(?)) AS place)
        """,
        [*map(list, zip(*panels(), strict=True)), len(panels())],
    )
    tables.run(f"""
        CREATE TABLE items AS
        WITH labelled AS (
            SELECT u.item, coalesce(d.label, 'Item ' || u.item) AS name, coalesce(d.fluid, 'Blood') AS fluid
            FROM (SELECT DISTINCT item FROM lab WHERE item IS NOT NULL) u LEFT JOIN d_labitems d ON d.itemid = u.item
            QUALIFY row_number() OVER (PARTITION BY u.item ORDER BY d.label, d.fluid) = 1)
        SELECT l.item, l.name,
               coalesce(p.exam, a.exam, CASE WHEN l.fluid = 'Blood' THEN name ELSE name || ' (' || l.fluid || ')' END)
                   AS exam,
               coalesce(p.exam_place, a.exam_place, 1000000) AS exam_place,
               coalesce(p.place, a.place, 1000000) AS place,
               {held} OR NOT regexp_matches(l.name, '{_HELD}') AS examined
        FROM labelled l
        LEFT JOIN panels p ON p.label = l.name AND p.fluid = l.fluid
        LEFT JOIN panels a ON a.label = '{ANY_LABEL}' AND a.fluid = l.fluid
    """)
    counts = tables.rows("""
        SELECT sum(rows), sum(stray), sum(rows) FILTER (case_id IS NULL), sum(untimed) FILTER (case_id IS NOT NULL),
               sum(empty) FILTER (case_id IS NOT NULL),
               count(DISTINCT (case_id, exam, name)) FILTER (first IS NOT NULL AND examined),
               sum(rows - untimed - empty) FILTER (NOT examined),
               count(DISTINCT item) FILTER (first IS NOT NULL AND name = 'Item ' || item)
        FROM lab LEFT JOIN items USING (item)
    """)
    attrition.tables["hosp/labevents"] = "laboratory rows"
    total, stray, outside, untimed, empty, used, unexamined, nameless = (number or 0 for number in next(counts))
    check_strays(tables, "hosp/labevents", total, stray, attrition)
    for what, rows in (
        ("", total),
        (" of no known admission", stray),
        (" in no case's window", outside - stray),
        (" without a readable time", untimed),
        (" without a result", empty),
        (" repeated later", total - outside - untimed - empty - used - unexamined),
        (" of held specimens", unexamined),
        (" used", used),
    ):
        attrition.count(f"laboratory rows{what}", rows)
    if nameless:
        attrition.count("laboratory items without a name, called by their number", nameless)


def link_microbiology(tables: Tables, attrition: Attrition) -> None:
    """Table ``micro``: where only the date is known, the event counts when that day touches the window."""
    linked = _LINKED.format(
        table="microbiologyevents",
        time="coalesce(moment(charttime), moment(chartdate))",
        start="CASE WHEN e.charttime IS NULL THEN floor(c.start / 86400) * 86400 ELSE c.start END",
    )
    tables.run(f"CREATE TABLE micro AS SELECT *, try_cast(subject_id AS BIGINT) AS last FROM ({linked}) ORDER BY last")
    _account(tables, "hosp/microbiologyevents", "micro", "microbiology rows", attrition)


def link_radiology(tables: Tables, attrition: Attrition) -> None:
    """Table ``report``: reports with their names in the detail table, and the report that an addendum belongs to."""
    tables.run("""
        CREATE TABLE report_names AS
        SELECT note_id, list(field_value ORDER BY try_cast(field_ordinal AS INTEGER), field_value)
                   FILTER (field_name = 'exam_name' AND field_value IS NOT NULL) AS names,
               min(field_value) FILTER (field_name = 'parent_note_id') AS parent
        FROM radiology_detail WHERE field_name IN ('exam_name', 'parent_note_id') GROUP BY note_id
    """)
    linked = _LINKED.format(table="radiology", time="moment(charttime)", start="c.start")
    tables.run(f"""
        CREATE TABLE report AS
        SELECT CASE WHEN case_id IS NOT NULL THEN l.subject_id END AS subject_id,
               try_cast(l.subject_id AS BIGINT) AS last, charttime, odd, l.case_id, l.stray, l.time, l.note_id, n.names,
               n.parent, CASE WHEN case_id IS NOT NULL THEN l.text END AS text
        FROM ({linked}) l LEFT JOIN report_names n USING (note_id) ORDER BY 1
    """)
    _account(tables, "note/radiology", "report", "radiology reports", attrition)


def _account(tables: Tables, name: str, linked: str, what: str, attrition: Attrition) -> None:
    """Judge the times of a table by its linked rows, and count these."""
    query = f"SELECT count(*), count(*) FILTER (stray), count(*) FILTER (case_id IS NULL), {_TIMES} FROM {linked}"
    total, stray, outside, *times = next(tables.rows(query))
    check_strays(tables, name, total, stray, attrition)
    check_times(tables, name, "charttime", times, attrition)
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
    number, comments = _BLANK.format("f.value"), _BLANK.format("f.comments")
    laboratory = f"""
        WITH firsts AS (
            SELECT case_id, exam, name, exam_place, place, struct_pack(time := first[1], number := first[2],
                   id := first[3], value := first[4], comments := first[5], valuenum := first[6], unit := first[7],
                   low := first[8], high := first[9], flag := first[10]) AS f
            FROM lab JOIN items USING (item) WHERE first IS NOT NULL AND examined AND {_MINE}
            QUALIFY row_number() OVER (PARTITION BY case_id, exam, name ORDER BY first) = 1)
        SELECT case_id, exam, name, CASE WHEN {number} THEN f.valuenum ELSE f.value END, f.unit,
               try_cast(f.low AS DOUBLE), try_cast(f.high AS DOUBLE), f.flag,
               CASE WHEN {comments} THEN NULL ELSE f.comments END
        FROM firsts ORDER BY case_id, exam_place, exam, place, name
    """
    microbiology = f"""
        SELECT case_id, time, test_name, spec_type_desc, org_name, quantity, ab_name, interpretation, comments
        FROM micro WHERE {_MINE}
        ORDER BY case_id, time, test_name, spec_type_desc, try_cast(test_seq AS INTEGER), org_name,
                 try_cast(isolate_num AS INTEGER), ab_name, interpretation, comments
    """
    radiology = f"""
        SELECT case_id, time, note_id, names, parent, text FROM report WHERE {_MINE}
        ORDER BY case_id, time, note_id, names, text
    """
    return tuple(_by_case(tables.rows(sql, mine)) for sql in (laboratory, microbiology, radiology))


def _by_case(rows: Iterable[tuple]) -> dict[str, list[tuple]]:
    return {case: [row[1:] for row in group] for case, group in groupby(rows, key=itemgetter(0))}


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
        events = [row for row in rows if not any(_CANCELLED.match(text or "") for text in (row[0], row[4]))]
        if len(events) < len(rows):
            attrition.count("microbiology rows of cancelled tests", len(rows) - len(events))
        if text := _culture(events):
            yield [_with_specimen(name, specimen)], text, len(events)
        elif events:
            attrition.count("microbiology rows without a result", len(events))


def _with_specimen(test: str, specimen: str | None) -> str:
    """The test's name, with its specimen where the name does not tell: a Gram stain of sputum is not one of liquor."""
    first = one_line((specimen or "").partition(";")[0])
    words = set(re.findall(r"[A-Z]{3,}", first.upper()))
    if not words or words & set(re.findall(r"[A-Z]{3,}", test.upper())) or test.upper() not in _ANY_SPECIMEN:
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
