"""Examinations of admissions from MIMIC-IV's event tables: laboratory, microbiology, radiology.

An event belongs to an admission when it carries its ``hadm_id`` or, lacking one, is of the same patient; and in
either case lies in the time window around admission. Of each analyte, culture and report the first counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from ..cases import Analyte, format_analytes
from .funnel import Funnel
from .names import exam_key
from .panels import ANY_LABEL, panels
from .radiology import examination_heading, report_text
from .summary import one_line, says_something
from .tables import Tables

Results = dict[str, dict[str, str]]  # admission -> examination key -> result text

_LAB_COLUMNS = [
    "subject_id", "hadm_id", "itemid", "charttime", "labevent_id", "value", "valuenum", "valueuom",
    "ref_range_lower", "ref_range_upper", "flag", "comments",
]  # fmt: skip
_MICRO_COLUMNS = [
    "subject_id", "hadm_id", "charttime", "chartdate", "microevent_id", "micro_specimen_id", "test_seq", "test_name",
    "org_name", "isolate_num", "quantity", "ab_name", "interpretation", "comments",
]  # fmt: skip

# Rows of an event table within the window of the admission that they name, or else are nearest to; see `cases`.
# Rows that name an admission but no readable time come along, to be counted.
_LINKED = """
    SELECT e.*, c.hadm_id AS case_id
    FROM (SELECT *, epoch({time}) AS time FROM {table}) e JOIN cases c ON e.subject_id = c.subject_id
    WHERE (e.hadm_id = c.hadm_id OR (e.hadm_id IS NULL AND e.time >= c.nearest_from AND e.time < c.nearest_until))
      AND (e.time IS NULL OR (e.time >= {start} AND e.time <= c.stop))
"""
_BLANK = "({0} IS NULL OR regexp_matches({0}, '^[_ .]*$'))"


def add_event_tables(tables: Tables) -> None:
    """Open the event tables and check their columns. Raises IngestError."""
    tables.add("hosp/labevents", _LAB_COLUMNS)
    tables.add("hosp/d_labitems", ["itemid", "label", "fluid"])
    tables.add("hosp/microbiologyevents", _MICRO_COLUMNS)
    tables.add("note/radiology", ["note_id", "subject_id", "hadm_id", "charttime", "text"])
    tables.add("note/radiology_detail", ["note_id", "field_name", "field_value", "field_ordinal"])


def laboratory(tables: Tables, funnel: Funnel) -> Results:
    """Laboratory examinations, analytes grouped by ``panels.csv``; an unknown label is its own examination."""
    tables.run("CREATE TABLE panels (exam VARCHAR, label VARCHAR, fluid VARCHAR, exam_place INTEGER, place INTEGER)")
    tables.connection.executemany("INSERT INTO panels VALUES (?, ?, ?, ?, ?)", panels())
    time = "try_cast(charttime AS TIMESTAMP)"
    tables.run(f"CREATE TABLE lab AS {_LINKED.format(table='labevents', time=time, start='c.start')}")
    (untimed,) = next(tables.rows("SELECT count(*) FROM lab WHERE time IS NULL"))
    funnel.count("laboratory rows without a readable time", untimed)
    tables.run("DELETE FROM lab WHERE time IS NULL")
    number, comments = _BLANK.format("value"), _BLANK.format("comments")
    unusable = f"({number} AND valuenum IS NULL AND {comments})"
    linked, lost = next(tables.rows(f"SELECT count(*), count(*) FILTER ({unusable}) FROM lab"))
    funnel.count("laboratory rows in the window", linked)
    funnel.count("laboratory rows without a result", lost)
    rows = tables.rows(f"""
        WITH items AS (
            SELECT itemid, label, fluid FROM d_labitems
            QUALIFY row_number() OVER (PARTITION BY itemid ORDER BY label, fluid) = 1),
        labelled AS (
            SELECT l.*, coalesce(label, 'Item ' || itemid) AS name, coalesce(fluid, 'Blood') AS fluid
            FROM lab l LEFT JOIN items USING (itemid) WHERE NOT {unusable}),
        named AS (
            SELECT l.*, coalesce(p.exam, a.exam,
                       CASE WHEN l.fluid = 'Blood' THEN name ELSE name || ' (' || l.fluid || ')' END) AS exam,
                   coalesce(p.exam_place, a.exam_place, 1000000) AS exam_place,
                   coalesce(p.place, a.place, 1000000) AS place
            FROM labelled l
            LEFT JOIN panels p ON p.label = name AND p.fluid = l.fluid
            LEFT JOIN panels a ON a.label = '{ANY_LABEL}' AND a.fluid = l.fluid)
        SELECT case_id, exam, name, CASE WHEN {number} THEN valuenum ELSE value END, valueuom,
               try_cast(ref_range_lower AS DOUBLE), try_cast(ref_range_upper AS DOUBLE), flag,
               CASE WHEN {comments} THEN NULL ELSE comments END
        FROM named
        QUALIFY row_number() OVER (PARTITION BY case_id, exam, name
            ORDER BY time, try_cast(labevent_id AS BIGINT), labevent_id, value, comments) = 1
        ORDER BY case_id, exam_place, exam, place, name
    """)
    results: Results = {}
    for (case, exam), analytes in groupby(rows, key=lambda row: (row[0], row[1])):
        text = format_analytes(_analyte(row) for row in analytes)
        _first(results, case, exam_key(exam), text)
    return results


def _analyte(row: tuple) -> Analyte:
    label, value, units, low, high, flag, comments = row[2:]
    comments = one_line(comments.replace("___", "")) if comments else None
    value = one_line(value) if value else None
    return Analyte(label, value, units, low, high, flag, comments)


def microbiology(tables: Tables, funnel: Funnel) -> Results:
    """Cultures and other tests: organisms with their interpretations, else the comment; cancelled tests left out.

    Where only the date is known, the event counts when that day touches the window.
    """
    linked = _LINKED.format(
        table="microbiologyevents",
        time="coalesce(try_cast(charttime AS TIMESTAMP), try_cast(chartdate AS TIMESTAMP))",
        start="CASE WHEN e.charttime IS NULL THEN floor(c.start / 86400) * 86400 ELSE c.start END",
    )
    rows = tables.rows(f"""
        SELECT case_id, time, test_name, micro_specimen_id, org_name, quantity, ab_name, interpretation, comments
        FROM ({linked})
        ORDER BY case_id, time, test_name, micro_specimen_id, try_cast(test_seq AS INTEGER), org_name,
                 try_cast(isolate_num AS INTEGER), ab_name, interpretation, comments
    """)
    results: Results = {}
    for (case, time, name, _), group in groupby(rows, key=lambda row: row[:4]):
        events = [row[4:] for row in group]
        if time is None or name is None:
            missing = "readable time" if time is None else "test name"
            funnel.count(f"microbiology rows without a {missing}", len(events))
            continue
        funnel.count("microbiology rows in the window", len(events))
        if any((row[0] or "").upper() == "CANCELLED" for row in events):
            funnel.count("microbiology tests cancelled")
            continue
        text = _culture(events)
        if not text:
            funnel.count("microbiology tests without a result")
            continue
        _first(results, case, exam_key(name), text)
    return results


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


def radiology(tables: Tables, funnel: Funnel) -> Results:
    """Reports by the examination names of the detail table, else by their own heading."""
    linked = _LINKED.format(table="radiology", time="try_cast(charttime AS TIMESTAMP)", start="c.start")
    rows = tables.rows(f"""
        WITH linked AS ({linked})
        SELECT case_id, time, d.field_value, l.text
        FROM linked l LEFT JOIN radiology_detail d ON d.note_id = l.note_id AND d.field_name = 'exam_name'
        ORDER BY case_id, time, l.note_id, try_cast(d.field_ordinal AS INTEGER), d.field_value
    """)
    results: Results = {}
    for case, time, name, text in rows:
        if time is None:
            funnel.count("radiology reports without a readable time")
            continue
        funnel.count("radiology reports in the window")
        text = text or ""
        name, report = name or examination_heading(text), report_text(text)
        if not name or not report:
            funnel.count("radiology reports without a name" if report else "radiology reports without a result")
            continue
        _first(results, case, exam_key(name), report)
    return results


def _first(results: Results, case: str, key: str, text: str) -> None:
    results.setdefault(case, {}).setdefault(key, text)


def results_of(case: str, sources: Iterable[Results]) -> Iterator[tuple[str, str]]:
    """All examinations of a case, in the order of the sources."""
    for results in sources:
        yield from results.get(case, {}).items()
