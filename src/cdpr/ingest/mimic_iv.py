"""MIMIC-IV: discharge summaries and event tables -> case records.

Reads ``hosp/{patients,admissions,labevents,d_labitems,microbiologyevents}`` and
``note/{discharge,radiology,radiology_detail}`` below one folder, as published (``.csv.gz`` or ``.csv``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..cases import CaseRecord
from ..settings.schema import Data, MimicSource
from .funnel import Funnel, IngestError
from .leaks import diagnosis_in_summary
from .mimic_events import add_event_tables, laboratory, microbiology, radiology, results_of
from .notes import DischargeNote, parse_discharge_note
from .summary import build_summary, patient_information
from .tables import Tables, line_of

_STAY = """
    SELECT n.note_id, n.text, a.hadm_id, a.subject_id, try_cast(a.admittime AS TIMESTAMP),
           p.gender, p.anchor_age, p.anchor_year
    FROM discharge n
    LEFT JOIN admissions a ON a.hadm_id = n.hadm_id AND a.subject_id = n.subject_id
    LEFT JOIN patients p ON p.subject_id = a.subject_id
    ORDER BY n.note_id, n.hadm_id, n.text
"""


def read_mimic_iv(source: MimicSource, data: Data, path: str | Path) -> tuple[list[CaseRecord], Funnel]:
    """Records of all usable discharge summaries, ordered by note, all in split ``test`` until they are split.

    Raises IngestError for a missing table or column, a damaged file, or an unreadable age or admission time.
    """
    funnel = Funnel("mimic_iv")
    with Tables(Path(path)) as tables:
        tables.add("note/discharge", ["note_id", "subject_id", "hadm_id", "text"])
        admissions = tables.add("hosp/admissions", ["subject_id", "hadm_id", "admittime"])
        patients = tables.add("hosp/patients", ["subject_id", "gender", "anchor_age", "anchor_year"])
        add_event_tables(tables)
        _check(tables, admissions, "admissions", "hadm_id", "admittime", "TIMESTAMP", "a time like 2150-01-31 08:00:00")
        for column in ("anchor_age", "anchor_year"):
            _check(tables, patients, "patients", "subject_id", column, "INTEGER", "a whole number")
        stays = list(_stays(tables, funnel))
        _windows(tables, stays, source)
        sources = [laboratory(tables, funnel), microbiology(tables, funnel), radiology(tables, funnel)]
    records = []
    for stay in stays:
        results = dict(stay.note.physical)
        for key, text in results_of(stay.hadm_id, sources):
            results.setdefault(key, text)
        if len(results) == len(stay.note.physical):
            funnel.drop("no examination in the time window", stay.note_id)
            continue
        records.append(stay.record(results, source.credentialed))
    return records, funnel


class _Stay:
    """One admission with its parsed note."""

    def __init__(self, row: tuple, note: DischargeNote):
        self.note_id, _, self.hadm_id, self.subject_id, self.admit, gender, age, year = row
        self.note = note
        # The anchor age holds in the anchor year; dates are shifted, intervals are not.
        years = int(age) + self.admit.year - int(year) if age and year else None
        history = {"Patient Information": patient_information(years, gender or "")} | note.history
        self.summary = build_summary(history)

    def record(self, results: dict[str, str], credentialed: bool) -> CaseRecord:
        return CaseRecord(
            note_id=self.note_id,
            case_summary=self.summary,
            key_pertinent_results_dict=results,
            final_diagnosis=self.note.final_diagnosis,
            diagnosis_results=self.note.primary_diagnosis,
            dataset="mimic_iv",
            split="test",
            subject_key=self.subject_id,
            credentialed=credentialed,
        )


def _stays(tables: Tables, funnel: Funnel) -> Iterator[_Stay]:
    """Admissions whose notes can become cases; the others are counted by rule."""
    seen_notes: set[str] = set()
    seen_stays: set[str] = set()
    for row in tables.rows(_STAY):
        note_id, text, hadm_id = row[:3]
        funnel.read += 1
        if not note_id or note_id in seen_notes:
            funnel.drop("note_id missing or repeated", note_id or "(none)")
            continue
        seen_notes.add(note_id)
        if hadm_id is None:
            funnel.drop("note of no known admission", note_id)
            continue
        if row[4] is None:
            funnel.drop("admission without a time", note_id)
            continue
        note = parse_discharge_note(text or "")
        rule = _why_not(note)
        if rule is None and hadm_id in seen_stays:
            rule = "another note of the same admission"
        stay = _Stay(row, note) if rule is None else None
        if stay is not None and diagnosis_in_summary(stay.summary, note.primary_diagnosis):
            rule = "diagnosis stated in the summary"
        if rule is not None:
            funnel.drop(rule, note_id)
            continue
        seen_stays.add(hadm_id)
        yield stay


def _why_not(note: DischargeNote) -> str | None:
    if not note.primary_diagnosis:
        return "no discharge diagnosis"
    if not note.physical:
        return "no physical examination"
    if not {"Chief Complaint", "History of Present Illness"} & set(note.history):
        return "no complaint and no present illness"
    return None


def _windows(tables: Tables, stays: list[_Stay], source: MimicSource) -> None:
    """Table ``cases``: the admissions kept, with the time window of their events and the time in which no other
    admission of the patient is nearer (seconds since 1970)."""
    tables.run("CREATE TABLE stays (hadm_id VARCHAR)")
    if stays:
        import pandas

        tables.connection.register("kept", pandas.DataFrame({"hadm_id": [stay.hadm_id for stay in stays]}))
        tables.run("INSERT INTO stays SELECT hadm_id FROM kept")
    tables.run(
        """
        CREATE TABLE cases AS
        WITH times AS (
            SELECT hadm_id, subject_id, min(epoch(try_cast(admittime AS TIMESTAMP))) AS admit
            FROM admissions GROUP BY ALL HAVING admit IS NOT NULL),
        neighbours AS (
            SELECT *, (admit + lag(admit) OVER patient) / 2 AS since, (admit + lead(admit) OVER patient) / 2 AS until
            FROM times WINDOW patient AS (PARTITION BY subject_id ORDER BY admit, hadm_id))
        SELECT hadm_id, subject_id, admit - ? AS start, admit + ? AS stop,
               coalesce(since, '-inf'::DOUBLE) AS nearest_from, coalesce(until, 'inf'::DOUBLE) AS nearest_until
        FROM neighbours WHERE hadm_id IN (SELECT hadm_id FROM stays)
        """,
        [source.hours_before_admission * 3600, source.hours_after_admission * 3600],
    )


def _check(tables: Tables, path: Path, table: str, key: str, column: str, kind: str, expected: str) -> None:
    """Raise IngestError for the first row, in the order of its key, whose column cannot be read."""
    bad = next(
        tables.rows(f"SELECT {key}, {column} FROM {table} WHERE try_cast({column} AS {kind}) IS NULL "
                    f"AND {column} IS NOT NULL ORDER BY 1, 2 LIMIT 1"), None,
    )  # fmt: skip
    if bad is not None:
        raise IngestError(
            path, f"{bad[1]!r} in the row of {key} {bad[0]} is not {expected}", "repair the row or remove it",
            line=line_of(path, column, bad[1]), field=column,
        )  # fmt: skip
