"""Writes patients of the synthetic hospital as MIMIC-IV tables (hosp and note modules), with the defects of the real
tables. Every word of the notes is ours.

- A quarter of the rows lack ``hadm_id``, the number of the stay.
- Some results are in ``comments`` alone, or replaced by ``___``.
- Tests are repeated after recovery, later than the first day.
- Cultures may have a date without a time.
- One label may have several item numbers.
- Some patients come twice.
- Dates are shifted to 2110-2200.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template

from ..cases import Analyte
from ..files import write_csv
from .model import Examination, Hospital, Site, read_data
from .sample import Patient, physical_text, sample_patient, write_analytes, write_history, write_measure, write_report

_DATA = read_data("mimic_iv")
COLUMNS: dict[str, list[str]] = _DATA["columns"]
# Probabilities: that a patient comes twice, that a row lacks ``hadm_id``, that a laboratory examination is repeated,
# and that a value has the second item number of its label.
SECOND_ADMISSION, NO_ADMISSION_ID, REPEATED, _TWIN_SHARE = 0.12, 0.26, 0.35, 0.05
# Purposes of a patient's random number generators (:meth:`Patient.generator`): the person, the stay, the discharge
# note. The numbers only have to differ.
_PERSON_STREAM, _STAY_STREAM, _NOTE_STREAM = 900, 901, 902
# The real years behind the shifted dates, in groups of three, as the column ``anchor_year_group`` writes them.
_YEAR_GROUPS = ("2011 - 2013", "2014 - 2016", "2017 - 2019")
# As in the real dictionary, some quantities have a second item number with the same label; here by their first number.
TWINS: dict[int, int] = _DATA["twins"]

_NOTE = Template("\n \n".join(_DATA["discharge_note"]), undefined=StrictUndefined, keep_trailing_newline=True)

Tables = dict[str, list[dict]]  # rows by the name of their table


def write_mimic(hospital: Hospital, dataset: str, out_dir: Path, patients: int, seed: int) -> None:
    """Write ``patients`` patients of the data set ``dataset`` as MIMIC-IV's tables (``hosp/*.csv.gz``,
    ``note/*.csv.gz``) to ``out_dir``. Equal arguments give equal files."""
    site = hospital.site(dataset)
    tables: Tables = {name: [] for name in COLUMNS}
    tables["hosp/d_labitems"] = _laboratory_items(hospital)
    for index in range(patients):
        _add_person(tables, hospital, site, seed, index)
    # The rows of these two tables are numbered from 1, over all patients.
    for name, key in (("hosp/labevents", "labevent_id"), ("hosp/microbiologyevents", "microevent_id")):
        for number, row in enumerate(tables[name], 1):
            row[key] = number
    for name, columns in COLUMNS.items():
        write_csv(out_dir / f"{name}.csv.gz", columns, tables[name], for_people=False)


def _laboratory_items(hospital: Hospital) -> list[dict]:
    """Make the rows of ``d_labitems``, MIMIC-IV's dictionary of laboratory quantities, sorted by item number. Some
    quantities have a second number, and ``mimic_iv.yaml`` lists further items."""
    rows = {}
    laboratory = [exam for exam in hospital.examinations.values() if exam.kind == "laboratory"]
    for quantity in (finding.quantity for exam in laboratory for finding in exam.findings):
        # In the real dictionary the items of haematology begin at about this number.
        category = "Hematology" if quantity.fluid != "Blood" or quantity.itemid > 51100 else "Chemistry"
        row = {"label": quantity.labels[0], "fluid": quantity.fluid, "category": category}
        for itemid in (quantity.itemid, TWINS.get(quantity.itemid, quantity.itemid)):
            rows[itemid] = {"itemid": itemid} | row
    rows |= {row["itemid"]: row for row in _DATA["further_items"]}
    return [rows[itemid] for itemid in sorted(rows)]


def _add_person(tables: Tables, hospital: Hospital, site: Site, seed: int, index: int) -> None:
    """Draw patient ``index`` of the site, and add the rows of the one or two admissions to ``tables``."""
    first = sample_patient(hospital, site, seed, index)
    rng = first.generator(_PERSON_STREAM)
    # A number from 0 to 999,982 that looks random. 999,983 is prime, so that different patients have different numbers.
    scattered = (index * 7919 + 1361) % 999_983
    subject = 10_000_000 + scattered  # as in MIMIC-IV, eight digits, of which the first is 1
    # A minute in the first 200 days of a shifted year, 2110 to 2198.
    admit = datetime(int(rng.integers(2110, 2199)), 1, 1) + timedelta(minutes=int(rng.integers(60 * 24 * 200)))
    anchor = {"anchor_age": first.age, "anchor_year": admit.year, "anchor_year_group": _YEAR_GROUPS[index % 3]}
    tables["hosp/patients"].append({"subject_id": subject, "gender": "F" if first.female else "M"} | anchor)
    visits = [(first, admit)]
    if rng.random() < SECOND_ADMISSION:
        second = sample_patient(hospital, site, seed, index, admission=1, same=first)
        # 25 to 119 days after the first admission, and up to a day (1440 minutes) more.
        later = timedelta(days=int(rng.integers(25, 120)), minutes=int(rng.integers(1440)))
        visits.append((second, admit + later))
    for number, (patient, time) in enumerate(visits):
        hadm = 20_000_000 + scattered * 2 + number  # two numbers of stays for each patient; the first digit is 2
        _Admission(tables, hospital, site, patient, subject, hadm, time).write()


@dataclass
class _Admission:
    """A hospital stay of ``patient``, which begins at ``admit``. ``subject`` is MIMIC-IV's number of the patient,
    ``hadm`` that of the stay. ``reports`` counts the radiology notes written so far. :meth:`write` adds the rows of the
    stay to ``tables``."""

    tables: Tables
    hospital: Hospital
    site: Site
    patient: Patient
    subject: int
    hadm: int
    admit: datetime
    reports: int = 0

    def __post_init__(self) -> None:
        """Draw the time of discharge, 3.5 to 9 days after admission."""
        self.rng = self.patient.generator(_STAY_STREAM)
        self.leave = self.admit + timedelta(days=float(self.rng.uniform(3.5, 9)))

    def write(self) -> None:
        """Add all rows of the stay to the tables."""
        arrived = self.admit - timedelta(hours=float(self.rng.uniform(2, 9)))  # in the emergency department
        # ``admit`` has whole minutes, so it is printed in the same form as the others.
        times = {"admittime": self.admit, "edouttime": self.admit, "dischtime": self.leave, "edregtime": arrived}
        self._add_row("hosp/admissions", self.hadm, **times, **_DATA["admission"])
        labs: list[Analyte] = []
        for name, exam in self.hospital.examinations.items():
            is_available = name in self.patient.available
            if exam.kind == "microbiology":  # also without a result: the order may have been cancelled
                self._add_culture(exam, is_available)
            elif exam.kind == "laboratory" and is_available:
                labs += self._add_laboratory(exam)
            elif exam.kind != "physical" and is_available:
                self._add_radiology(exam)
        text = discharge_note(self.hospital, self.site, self.patient, labs)
        # The discharge note of a first stay has the number 2, that of a second stay 3. It is charted by its day.
        day = self.leave.replace(hour=0, minute=0, second=0)
        self._add_note("discharge", self.hadm, self.patient.admission + 2, day, self.leave, text)

    def _add_row(self, table: str, hadm: int | str, **fields: Any) -> None:
        """Add a row of this patient to a table. ``hadm`` is the number of the stay, or empty; ``fields`` are the other
        columns, in which times are datetimes or text."""
        times = {name: f"{value:%Y-%m-%d %H:%M:%S}" for name, value in fields.items() if isinstance(value, datetime)}
        self.tables[table].append({"subject_id": self.subject, "hadm_id": hadm} | fields | times)

    def _add_note(
        self, table: str, hadm: int | str, number: int, charted: datetime, stored: datetime, text: str
    ) -> str:
        """Add a note to the table ``discharge`` or ``radiology``; returns its id. ``number`` is its sequence number,
        ``charted`` and ``stored`` its times."""
        kind = "DS" if table == "discharge" else "RR"
        note = f"{self.subject}-{kind}-{number}"
        row = {"note_id": note, "note_type": kind, "note_seq": number, "charttime": charted}
        self._add_row(f"note/{table}", hadm, **row, storetime=stored, text=text)
        return note

    def _draw_hadm(self) -> int | str:
        """Return the number of the stay, or an empty text with the probability :data:`NO_ADMISSION_ID`. Each call draws
        another random number."""
        return "" if self.rng.random() < NO_ADMISSION_ID else self.hadm

    def _add_laboratory(self, exam: Examination) -> list[Analyte]:
        """Add the results of a laboratory examination at admission; returns these values. With the probability
        :data:`REPEATED` a repetition after recovery is added too, which shows the commonest state of each quantity."""
        analytes = write_analytes(exam, self.site, self.patient)
        drawn = self.admit + timedelta(hours=float(self.rng.uniform(-20, -0.5)))  # before admission
        self._add_specimen(exam, analytes, drawn)
        if self.rng.random() < REPEATED:
            # Repeats come after the first day and show recovery: an importer that reads them reads the future.
            commonest = [int(finding.table.mean(axis=0).argmax()) for finding in exam.findings]  # over all diseases
            states = zip(exam.findings, commonest, strict=True)
            recovered = [write_measure(finding, state, self.site, self.rng) for finding, state in states]
            self._add_specimen(exam, recovered, self.admit + timedelta(hours=float(self.rng.uniform(30, 80))))
        return analytes

    def _add_specimen(self, exam: Examination, analytes: list[Analyte], drawn: datetime) -> None:
        """Add a row of ``labevents`` for each value that was measured in one specimen, which was taken at the time
        ``drawn``."""
        specimen, hadm = int(self.rng.integers(10**6, 10**8)), self._draw_hadm()
        for finding, analyte in zip(exam.findings, analytes, strict=True):
            itemid = finding.quantity.itemid
            if itemid in TWINS and self.rng.random() < _TWIN_SHARE:
                itemid = TWINS[itemid]
            # The result is stored 70 minutes after the blood was taken.
            times = {"charttime": drawn, "storetime": drawn + timedelta(minutes=70)}
            number = analyte.value if finding.intervals else ""  # a value in words has no number
            value = {"value": analyte.value, "valuenum": number, "valueuom": analyte.units, "flag": analyte.flag}
            limits = {"ref_range_lower": analyte.low, "ref_range_upper": analyte.high}
            row = _damage(value | limits, float(self.rng.random()))
            self._add_row("hosp/labevents", hadm, specimen_id=specimen, itemid=itemid, priority="STAT", **times, **row)

    def _add_culture(self, exam: Examination, available: bool) -> None:
        """Add the rows of a culture to ``microbiologyevents``: one without growth, or one for each antibiotic that was
        tested on the organism. A culture that is not ``available`` in the record gets no row, or in 3% of cases the row
        of a cancelled order."""
        if not available and self.rng.random() > 0.03:
            return
        drawn = self.admit + timedelta(hours=float(self.rng.uniform(-11, -0.5)))
        hadm, stored = self._draw_hadm(), drawn + timedelta(days=2)
        row: dict[str, Any] = {**exam.specimen, "test_seq": 1, "storedate": stored, "storetime": stored}
        row["micro_specimen_id"] = int(self.rng.integers(10**6, 10**7))
        row["chartdate"] = drawn.strftime("%Y-%m-%d 00:00:00")
        # In a fifth of cases the time is missing, and only the date is known.
        row["charttime"] = "" if self.rng.random() < 0.2 else drawn.strftime("%Y-%m-%d %H:%M:00")
        [finding], [state] = exam.findings, self.patient.results[exam.name]  # a culture has a single finding
        organism = finding.organisms.get(state)  # the number and name of the organism that grew
        results: list[dict[str, Any]] = []
        if not available:
            results.append({"org_itemid": 90760, "org_name": "CANCELLED"})  # MIMIC-IV writes it as an organism
        elif organism is None:
            # Comments end with spaces, as in the real table.
            results.append({"comments": write_report(exam, self.site, self.patient) + "  "})
        else:
            for antibiotic in _DATA["antibiotics"][: int(self.rng.integers(1, 4))]:  # one to three
                interpretation = "S" if self.rng.random() < 0.85 else "R"  # sensitive or resistant
                results.append({**organism, "isolate_num": 1, **antibiotic, "interpretation": interpretation})
        for result in results:
            self._add_row("hosp/microbiologyevents", hadm, **row, **result)

    def _add_radiology(self, exam: Examination) -> None:
        """Add the note of an imaging examination or a procedure to ``radiology``, and two rows with the code and the
        name of the examination to ``radiology_detail``."""
        self.reports += 1
        # The notes of a patient are numbered over both stays. Those of a second stay begin at 41, because no stay has
        # as many as 40 reports.
        sequence = self.reports + 40 * self.patient.admission
        done = self.admit + timedelta(hours=float(self.rng.uniform(-12, -0.5)))
        letter, findings = "F" if self.patient.female else "M", write_report(exam, self.site, self.patient)
        text = _DATA["radiology_note"].format(exam=exam.report, letter=letter, findings=findings)
        hadm = self._draw_hadm()
        note = self._add_note("radiology", hadm, sequence, done, done + timedelta(hours=1), text)
        details = (("exam_code", f"X{exam.name[:2].upper()}"), ("exam_name", exam.report))
        for ordinal, (name, value) in enumerate(details, 1):
            row = {"note_id": note, "subject_id": self.subject, "field_name": name, "field_value": value}
            self.tables["note/radiology_detail"].append(row | {"field_ordinal": ordinal})


def _damage(row: dict, chance: float) -> dict:
    """Return a row of ``labevents``, in 8% of cases with a defect of the real table. ``chance`` is a uniform random
    number from 0 to 1, which chooses the defect."""
    if chance < 0.012:  # the value is lost
        return row | {"value": "___", "valuenum": "", "flag": ""}
    if chance < 0.08:  # the value is in the comments alone; its column is empty or has ``___``
        return row | {"value": "" if chance < 0.05 else "___", "valuenum": "", "comments": f"{row['value']}.  "}
    return row


# Notes in the layout of MIMIC-IV-Note: headings, blanks and repetitions.


def discharge_note(hospital: Hospital, site: Site, patient: Patient, labs: list[Analyte]) -> str:
    """Write the discharge summary of a patient, with the first eight of the laboratory values ``labs``. The hospital
    course and the last sections name the diagnosis, as they do in real notes. In 15% of notes the deidentification
    removed the social history. In 30% a second physical examination follows, at discharge, which is normal."""
    rng = patient.generator(_NOTE_STREAM)
    systems = (exam for exam in hospital.available(patient) if exam.kind == "physical")
    return _NOTE.render(
        patient=patient, disease=hospital.diseases[patient.disease].name, labs=labs[:8],
        history=write_history(hospital, site, patient), is_removed=rng.random() >= 0.85, is_repeated=rng.random() < 0.3,
        physical=[f"{exam.heading}: {physical_text(exam, site, patient)}" for exam in systems],
    )  # fmt: skip
