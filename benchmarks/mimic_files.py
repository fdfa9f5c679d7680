"""Files in MIMIC-IV's published schema, of any size and in the proportions of the whole: food for benchmarks/ingest.py.

Only sizes, orders, gaps and formats resemble the real tables; all content is drawn at random and all text is salad from
a short word list, about as compressible as clinical prose. Tables come out of DuckDB, notes out of Python. The same
number of rows and seed give the same rows.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from cdpr.hospital.write_mimic import COLUMNS
from cdpr.ingest.names import panels

# Rows of the whole data set (MIMIC-IV 2.2 and its notes).
FULL = {
    "hosp/labevents": 118_000_000,
    "hosp/patients": 299_712,
    "hosp/microbiologyevents": 3_200_000,
    "note/discharge": 331_794,
    "note/radiology": 2_321_355,
}
ADMITTED = 0.6  # of the patients; the others only have a line in the table of patients
MORE_STAYS = 1.84  # scale of the exponential number of further admissions: 2.4 admissions per admitted patient

# Share of a stay's events that come before (months back), in the 24 hours before, during and after it. Of those in the
# 24 hours most are written before there is a hadm_id, as in the public demo; before and after there is none.
LABS = (0.11, 0.19, 0.91)
CULTURES = (0.18, 0.28, 0.93)
REPORTS = (0.25, 0.45, 0.93)
UNNAMED = 0.8

WORDS = """
a about active additional after again also although and another any appeared appropriate around arrived as asked at
aware away back bedside been before began being below better between both brief brought but by call came care carefully
changed clear clinic comfortable complained concern consulted continued could daily daughter day days decision decreased
denied described despite developed did discussed does done dose down during each earlier early eating either ended
evening every except exertion fall family feeling felt few first followed food for found from further gave general given
goal good gradual had has have he her here him his history home hour hours however if improved in increased initially
instead intermittent into is it its keep known largely last later left less likely limited little long low made main
many mild minimal moderate monitored more morning most mostly much near needed never new next night no none normal not
noted nothing now number nurse of off offered often old on once one only onset or oral other our out outpatient outside
over overnight own pain patient per persistent plan possible present previous prior recent recently reduced regular
remained repeat reported rest resolved returned right room same saw scheduled second seen several severe she short
showed side sign similar since slightly slowly small so some soon stable started state stay still stopped stronger such
symptoms taken team than that the their them then there these they this those though three through time to today
together told tolerated took toward transferred treated tried two under unable unchanged unclear until up upon used
usual very via visit walked was weak week weeks well were when where which while who with within without worse would
yesterday yet
"""
SYSTEMS = "GENERAL HEENT NECK CARDIAC LUNGS ABDOMEN EXTREMITIES SKIN NEURO PSYCH"
DISEASES = (
    "Acute pancreatitis", "Community acquired pneumonia", "Acute appendicitis", "Upper gastrointestinal bleed",
    "Pulmonary embolism", "Cellulitis of the left leg", "Acute cholecystitis", "Diverticulitis", "Hyponatremia",
    "Acute kidney injury", "Atrial fibrillation with rapid ventricular response", "Syncope", "Urinary tract infection",
    "Congestive heart failure exacerbation", "Small bowel obstruction", "Diabetic ketoacidosis", "Ischemic stroke",
    "Non-ST elevation myocardial infarction", "Sepsis due to pyelonephritis", "Hip fracture",
)  # fmt: skip
STUDIES = (
    "CHEST (PORTABLE AP)", "CHEST (PA AND LAT)", "CT HEAD W/O CONTRAST", "CT ABD AND PELVIS WITH CONTRAST",
    "LIVER OR GALLBLADDER US", "RENAL US", "CTA CHEST", "MR HEAD W/O CONTRAST", "UNILAT LOWER EXT VEINS",
    "ABDOMEN (SUPINE AND ERECT)", "CT C-SPINE W/O CONTRAST", "HIP UNILAT MIN 2 VIEWS",
)  # fmt: skip
DRUGS = ("Acetaminophen", "Amlodipine", "Aspirin", "Furosemide", "Gabapentin", "Metformin", "Omeprazole", "Sertraline")
ANALYTES = "WBC RBC Hgb Hct MCV Plt Glucose UreaN Creat Na K Cl HCO3 AnGap Calcium Mg"
TESTS = (
    "URINE CULTURE", "Blood Culture, Routine", "MRSA SCREEN", "GRAM STAIN", "C. difficile PCR", "RESPIRATORY CULTURE",
    "FLUID CULTURE",
)  # fmt: skip


def write_files(folder: Path, lab_rows: int, seed: int = 0) -> dict[str, int]:
    """Write ``hosp/*.csv.gz`` and ``note/*.csv.gz`` around this many rows of labevents; rows of each table."""
    counts = {name: round(rows * lab_rows / FULL["hosp/labevents"]) for name, rows in FULL.items()}
    for room in ("hosp", "note"):
        (folder / room).mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as tables:
        tables.execute("SET memory_limit = '4GB'; SET enable_progress_bar = false")
        _macros(tables, seed)
        _people(tables, counts)
        queries = {
            "hosp/patients": "SELECT * FROM people ORDER BY subject_id",
            "hosp/admissions": "SELECT * FROM stays ORDER BY stay",
            "hosp/d_labitems": "SELECT * FROM items ORDER BY itemid",
            "hosp/labevents": _laboratory(counts["hosp/labevents"]),
            "hosp/microbiologyevents": _microbiology(counts["hosp/microbiologyevents"]),
        }
        written = {name: _copy(tables, folder, name, query) for name, query in queries.items()}
        text = Text(seed)
        return written | _write_discharge(tables, folder, text) | _write_radiology(tables, folder, counts, text)


def _macros(tables: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Chance in [0, 1) of a row by number and purpose; minutes from admission of an event at a fraction of its stay's
    events; whether it names the admission."""
    tables.execute(f"""
        CREATE MACRO chance(k, why) AS (hash(k * 1000 + why + {seed} * 100) >> 11) / 9007199254740992.0;
        CREATE MACRO minutes(f, a, b, c, stay) AS (CASE
            WHEN f < a THEN -1440 * (1 + 90 * (1 - f / a))
            WHEN f < b THEN -1440 * (1 - (f - a) / (b - a))
            WHEN f < c THEN stay * (f - b) / (c - b)
            ELSE stay + 1440 * 40 * (f - c) / (1 - c) END)::INTEGER;
        CREATE MACRO names(f, a, b, c, k) AS f >= a AND f < c AND (f >= b OR chance(k, 90) >= {UNNAMED});
    """)


def _people(tables: duckdb.DuckDBPyConnection, counts: dict[str, int]) -> None:
    """Tables ``people``, ``stays`` (numbered by patient and time) and ``items``."""
    tables.execute(f"""
        CREATE TABLE people AS
        SELECT 10000000 + p * 29 + floor(chance(p, 1) * 29)::INTEGER AS subject_id, p AS person,
               CASE WHEN chance(p, 2) < 0.53 THEN 'F' ELSE 'M' END AS gender,
               18 + floor(chance(p, 3) * 74)::INTEGER AS anchor_age,
               2110 + floor(chance(p, 4) * 70)::INTEGER AS anchor_year, '2014 - 2016' AS anchor_year_group,
               -- A table of this size has at least one stay.
               CASE WHEN p = 0 OR chance(p, 5) < {ADMITTED}
                    THEN 1 + floor(-ln(1 - chance(p, 6)) * {MORE_STAYS})::INTEGER ELSE 0 END AS stays
        FROM range({max(counts["hosp/patients"], 1)}) r(p);
        CREATE TABLE stays AS
        WITH visits AS (
            SELECT *, row_number() OVER (ORDER BY subject_id, visit) - 1 AS stay
            FROM (SELECT *, unnest(range(stays)) AS visit FROM people)),
        timed AS (
            SELECT *, 600 + floor(chance(stay, 8) * 28000)::INTEGER AS length,
                   make_timestamp(anchor_year, 2, 1, 0, 0, 0)
                   + to_minutes((visit * 200 + floor(chance(stay, 7) * 40))::INTEGER * 1440
                                + floor(chance(stay, 9) * 1440)::INTEGER) AS admittime
            FROM visits)
        SELECT *, 20000000 + stay * 7654321 % 9999991 AS hadm_id, admittime + to_minutes(length) AS dischtime,
               admittime - INTERVAL 5 HOUR AS edregtime, admittime AS edouttime, 'EW EMER.' AS admission_type,
               'EMERGENCY ROOM' AS admission_location, 'HOME' AS discharge_location, 'Other' AS insurance,
               'ENGLISH' AS language, 'UNKNOWN' AS race, 0 AS hospital_expire_flag,
               row_number() OVER (ORDER BY chance(stay, 10), stay) <= {counts["note/discharge"]} AS noted
        FROM timed;
        CREATE TABLE items (itemid INTEGER, label VARCHAR, fluid VARCHAR, category VARCHAR)
    """)
    labels = dict.fromkeys((label, fluid) for _, label, fluid in panels() if label != "*")
    known = [(50800 + n, label, fluid, "Chemistry") for n, (label, fluid) in enumerate(labels)]
    rare = [(52000 + n, f"Rare Assay {n}", "Blood", "Chemistry") for n in range(1622 - len(known))]
    tables.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", known + rare)
    (stays,) = tables.execute("SELECT count(*) FROM stays").fetchone()
    tables.execute(f"CREATE MACRO known_items() AS {len(known)}; CREATE MACRO all_stays() AS {stays}")


def _events(rows: int, shape: tuple[float, float, float], group: int) -> str:
    """Rows numbered ``i`` over the stays in their order; every ``group`` rows are one specimen ``s``, drawn at once."""
    a, b, c = shape
    specimens = -(-rows // group)
    return f"""
        SELECT i, s, i % {group} AS place, x.subject_id,
               CASE WHEN names(f, {a}, {b}, {c}, s) THEN x.hadm_id END AS hadm_id,
               x.admittime + to_minutes(minutes(f, {a}, {b}, {c}, x.length)) AS charttime
        FROM (SELECT i, i // {group} AS s, (s + chance(s, 91)) / {specimens} * all_stays() AS through,
                     floor(through)::BIGINT AS stay, through - floor(through) AS f
              FROM range({rows}) r(i)) e
        JOIN stays x USING (stay)"""


def _laboratory(rows: int) -> str:
    return f"""
        SELECT i + 1 AS labevent_id, e.subject_id, e.hadm_id, 1000000 + s AS specimen_id,
               CASE WHEN chance(i, 20) < 0.97
                    THEN 50800 + (floor(chance(s, 21) * known_items())::INTEGER + place) % known_items()
                    ELSE 52000 + floor(chance(i, 22) * 1200)::INTEGER END AS itemid,
               CASE WHEN chance(s, 23) < 0.4 THEN 'P' || (10000 + s % 89999) END AS order_provider_id,
               e.charttime, e.charttime + INTERVAL 70 MINUTE AS storetime,
               (floor(chance(i, 24) * 1500) / 10)::DECIMAL(6, 1) AS result, chance(i, 25) AS soiled,
               CASE WHEN soiled < 0.089 THEN NULL WHEN soiled < 0.152 THEN '___' ELSE result::VARCHAR END AS value,
               CASE WHEN soiled >= 0.116 THEN result END AS valuenum,
               ['mg/dL', 'mEq/L', '%', 'K/uL', 'IU/L', 'g/dL'][1 + s % 6] AS valueuom,
               CASE WHEN s % 6 > 0 THEN 10 + s % 30 END AS ref_range_lower,
               CASE WHEN s % 6 > 0 THEN 60 + s % 60 END AS ref_range_upper,
               CASE WHEN result NOT BETWEEN 10 + s % 30 AND 60 + s % 60 THEN 'abnormal' END AS flag,
               CASE WHEN s % 3 = 0 THEN 'STAT' ELSE 'ROUTINE' END AS priority,
               CASE WHEN soiled < 0.07 OR soiled > 0.92
                    THEN 'About ' || result || ', by the usual method of ___.  ' END AS comments
        FROM ({_events(rows, LABS, 12)}) e"""


def _microbiology(rows: int) -> str:
    return f"""
        SELECT i + 1 AS microevent_id, e.subject_id, e.hadm_id, 1000000 + s AS micro_specimen_id,
               s % {len(TESTS)} AS test,
               date_trunc('day', e.charttime) AS chartdate,
               CASE WHEN chance(s, 30) >= 0.2 THEN e.charttime END AS charttime, chance(s, 31) < 0.4 AS grown,
               70000 + test AS spec_itemid, 'SPECIMEN' AS spec_type_desc, 1 AS test_seq,
               chartdate + INTERVAL 2 DAY AS storedate, e.charttime + INTERVAL 2 DAY AS storetime,
               90000 + (test + CASE WHEN grown THEN 0 ELSE place END) % {len(TESTS)} AS test_itemid,
               {list(TESTS)}[test_itemid - 89999] AS test_name,
               CASE WHEN chance(s, 32) < 0.02 THEN 'CANCELLED' WHEN grown THEN 'ESCHERICHIA COLI' END AS org_name,
               CASE WHEN grown THEN 1 END AS isolate_num,
               CASE WHEN grown THEN ['GENTAMICIN', 'CEFTRIAXONE', 'CIPROFLOXACIN'][1 + place] END AS ab_name,
               CASE WHEN grown THEN CASE WHEN chance(i, 33) < 0.85 THEN 'S' ELSE 'R' END END AS interpretation,
               CASE WHEN NOT grown THEN 'Nothing grew within two days.  ' END AS comments
        FROM ({_events(rows, CULTURES, 3)}) e"""


def _copy(tables: duckdb.DuckDBPyConnection, folder: Path, name: str, query: str) -> int:
    """Write a query as the table of this name: columns in the published order, those it lacks empty."""
    there = tables.sql(query).columns
    columns = ", ".join(f"q.{c}" if c in there else f"NULL AS {c}" for c in COLUMNS[name])
    path = folder / f"{name}.csv.gz"
    (rows,) = tables.execute(
        f"COPY (SELECT {columns} FROM ({query}) q) TO '{path}' (FORMAT csv, HEADER, COMPRESSION gzip)"
    ).fetchone()
    return rows


def _write_discharge(tables: duckdb.DuckDBPyConnection, folder: Path, text: Text) -> dict[str, int]:
    heads = _rows(tables, "SELECT subject_id, hadm_id, dischtime, visit + 2 FROM stays WHERE noted ORDER BY stay")
    count = 0
    with _writer(folder, "note/discharge") as notes:
        for subject, hadm, time, number in heads:
            notes.writerow((f"{subject}-DS-{number}", subject, hadm, "DS", number, time, time, text.discharge()))
            count += 1
    return {"note/discharge": count}


def _write_radiology(
    tables: duckdb.DuckDBPyConnection, folder: Path, counts: dict[str, int], text: Text
) -> dict[str, int]:
    events = _events(counts["note/radiology"], REPORTS, 1)
    heads = _rows(tables, f"SELECT subject_id, hadm_id, charttime, i FROM ({events}) ORDER BY i")
    reports = detail_rows = 0
    with _writer(folder, "note/radiology") as notes, _writer(folder, "note/radiology_detail") as details:
        for subject, hadm, time, number in heads:
            note, study = f"{subject}-RR-{number}", STUDIES[text.below(len(STUDIES))]
            notes.writerow((note, subject, hadm, "RR", number, time, time, text.report(study)))
            fields = [("exam_code", "X1"), ("exam_name", study), ("cpt_code", "70000")][: 2 + (number % 5 < 3)]
            details.writerows((note, subject, field, value, 1) for field, value in fields)
            reports += 1
            detail_rows += len(fields)
    return {"note/radiology": reports, "note/radiology_detail": detail_rows}


def _rows(tables: duckdb.DuckDBPyConnection, query: str) -> Iterator[tuple[Any, ...]]:
    cursor = tables.execute(query)
    while rows := cursor.fetchmany(10_000):
        yield from rows


@contextmanager
def _writer(folder: Path, name: str) -> Iterator[Any]:
    """Writer of a compressed table whose header is written; the bytes depend on the rows alone."""
    with (
        (folder / f"{name}.csv.gz").open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=4, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as out,
    ):
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS[name])
        yield writer


class Text:
    """Notes with the headings, lengths and line breaks of real ones: about 10,500 characters a discharge summary, 1,500
    a report. Two in five summaries state the diagnosis in the history, some lack the examination or the diagnosis."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        # Lines from a pool repeat, but so far apart that gzip does not see it.
        self.prose = self._pool(40_000, WORDS.split(), 13)
        self.labs = self._pool(
            8_000, [f"{name}-{value / 10}" for name in ANALYTES.split() for value in range(7, 1500, 30)], 8
        )
        self.drugs = self._pool(8_000, [f"{drug} {dose} mg PO" for drug in DRUGS for dose in (5, 20, 40, 250)], 1)

    def _pool(self, size: int, words: list[str], length: int) -> list[str]:
        picks = self.random.integers(len(words), size=(size, length)).tolist()
        return [" ".join(map(words.__getitem__, row)) for row in picks]

    def below(self, n: int) -> int:
        return int(self.random.random() * n)

    def lines(self, pool: list[str], characters: float, before: str = "") -> str:
        """Lines of a pool, together about this long."""
        each = len(pool[0]) + len(before)
        picks = self.random.integers(len(pool), size=max(1, round(characters / each))).tolist()
        return "\n".join([before + pool[n] for n in picks])

    def discharge(self) -> str:
        """A discharge summary."""
        longer = float(self.random.lognormal(-0.1, 0.45))
        disease, draw = DISEASES[self.below(len(DISEASES))], self.random.random()
        history = self.lines(self.prose, 450 * longer) + (f"\n{disease}" if draw < 0.4 else "")
        sections = [
            " \nName:  ___                     Unit No:   ___",
            "Admission Date:  ___              Discharge Date:   ___",
            "Date of Birth:  ___             Sex:   F\n \nService: MEDICINE",
            f"Allergies: \n{DRUGS[self.below(len(DRUGS))]}",
            "Attending: ___.",
            f"Chief Complaint:\n{self.lines(self.prose, 40)[:40]}",
            "Major Surgical or Invasive Procedure:\nNone",
            f"History of Present Illness:\n{self.lines(self.prose, 1500 * longer)}",
            f"Past Medical History:\n{history}",
            "Social History:\n___",
            f"Family History:\n{self.lines(self.prose, 130)}",
            f"Physical Exam:\n{self._examination()}\n \nDISCHARGE PHYSICAL EXAM:\n{self._examination()}",
            f"Pertinent Results:\nADMISSION LABS\n{self.lines(self.labs, 1300 * longer, '___ 06:10AM BLOOD ')}\n \n"
            f"IMAGING\n{self.lines(self.prose, 700 * longer)}",
            f"Brief Hospital Course:\n{self.lines(self.prose, 2000 * longer)}",
            f"Medications on Admission:\n{self.lines(self.drugs, 450, '- ')}",
            f"Discharge Medications:\n{self.lines(self.drugs, 650, '- ')}",
            "Discharge Disposition:\nHome With Service\n \nFacility:\n___",
            f"Discharge Diagnosis:\nPRIMARY DIAGNOSIS:\n{disease}\n \nSECONDARY DIAGNOSES:\nAnemia",
            "Discharge Condition:\nMental Status: Clear and coherent.\nActivity Status: Ambulatory - Independent.",
            f"Discharge Instructions:\nDear ___,\n{self.lines(self.prose, 700)}",
            "Followup Instructions:\n___",
        ]
        absent = "Physical Exam:" if draw > 0.92 else "Discharge Diagnosis:" if draw > 0.89 else None
        return "\n \n".join(s for s in sections if absent is None or not s.startswith(absent)) + "\n"

    def _examination(self) -> str:
        vitals = f"VS: T 98.{self.below(10)} BP 1{10 + self.below(60)}/{60 + self.below(30)} HR {60 + self.below(50)}"
        return "\n".join([vitals, *(self.lines(self.prose, 70, f"{system}: ") for system in SYSTEMS.split())])

    def report(self, study: str) -> str:
        """A radiology report."""
        longer = float(self.random.lognormal(-0.1, 0.45))
        return (
            f"EXAMINATION:  {study}\n \nINDICATION:  ___ year old with {self.lines(self.prose, 100)}\n \n"
            f"TECHNIQUE:  {self.lines(self.prose, 150 * longer)}\n \nCOMPARISON:  None.\n \n"
            f"FINDINGS: \n \n{self.lines(self.prose, 880 * longer)}\n \n"
            f"IMPRESSION: \n \n{self.lines(self.prose, 280 * longer)}"
        )
