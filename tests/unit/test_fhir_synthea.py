"""Twelve bundles in the layout of Synthea's R4 export, invented here by a seed: each has to give its cases.

Synthea sends a patient's life as one transaction: everything has a ``urn:uuid`` address, no encounter has a diagnosis
or is part of another, conditions name their encounter and have no category, allergies name no encounter, and the note
of a visit occurs twice, as a report and as a document.
"""

import base64
import json
import random
import uuid
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cdpr.cases import is_physical, parse_analytes
from cdpr.ingest import ingest
from cdpr.settings import parse_settings

LOINC = "http://loinc.org"
PANELS = {
    ("51990-0", "Basic metabolic panel - Blood"): [
        ("2339-0", "Glucose [Mass/volume] in Blood", 70, 110, "mg/dL"),
        ("2947-0", "Sodium [Moles/volume] in Blood", 136, 144, "mmol/L"),
        ("6298-4", "Potassium [Moles/volume] in Blood", 3.7, 5.2, "mmol/L")],
    ("58410-2", "CBC panel - Blood by Automated count"): [
        ("6690-2", "Leukocytes [#/volume] in Blood by Automated count", 4, 11, "10*3/uL"),
        ("718-7", "Hemoglobin [Mass/volume] in Blood", 12, 17, "g/dL")],
    ("57698-3", "Lipid panel with direct LDL - Serum or Plasma"): [
        ("2093-3", "Cholesterol [Mass/volume] in Serum or Plasma", 150, 240, "mg/dL"),
        ("2571-8", "Triglycerides [Mass/volume] in Serum or Plasma", 90, 190, "mg/dL")],
}  # fmt: skip
KEYS = {"51990-0": "Basic Metabolic Panel", "58410-2": "Complete Blood Count", "57698-3": "Lipid Panel"}
ILLNESSES = [("Viral sinusitis (disorder)", "Runny nose"), ("Acute bronchitis (disorder)", "Cough"),
             ("Sprain of ankle", "Ankle pain"), ("Gout", "Toe pain"), ("Anemia (disorder)", "Tiredness")]  # fmt: skip


class Life:
    """A bundle while it is written; ``expected`` holds diagnosis and examinations of each case that it has to give."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.entries: list[dict] = []
        self.expected: dict[str, set[str]] = {}
        self.patient = self.add("Patient", gender=self.random.choice(["male", "female"]), multipleBirthBoolean=False,
                                birthDate=f"{self.random.randint(1940, 2000)}-05-17",
                                extension=[{"url": "http://example.org/name", "valueString": "None"}])  # fmt: skip
        self.allergic = self.random.random() < 0.5
        if self.allergic:
            self.add("AllergyIntolerance", patient=self.patient, type="allergy", criticality="low",
                     verificationStatus=coded("confirmed", ""), code=coded("1", "Mould (substance)"))  # fmt: skip
        visit = datetime(2015, 3, 1, 9, 30)
        for _ in range(self.random.randint(2, 5)):
            visit += timedelta(days=self.random.randint(30, 400))
            self.visit(visit, sick=self.random.random() < 0.7)
        self.visit(visit + timedelta(days=40), sick=True)

    def add(self, kind: str, **content) -> dict[str, str]:
        """Add a resource; returns the reference to it."""
        number = str(uuid.UUID(int=self.random.getrandbits(128)))
        resource = {"resourceType": kind, "id": number, **content}
        self.entries.append({"fullUrl": f"urn:uuid:{number}", "resource": resource,
                             "request": {"method": "POST", "url": kind}})  # fmt: skip
        return {"reference": f"urn:uuid:{number}"}

    def visit(self, start: datetime, sick: bool) -> None:
        when = f"{start.isoformat()}-05:00"
        end = f"{(start + timedelta(minutes=30)).isoformat()}-05:00"
        encounter = self.add("Encounter", status="finished", subject=self.patient, period={"start": when, "end": end},
                             type=[coded("185345009", "Encounter for symptom")],
                             serviceProvider={"reference": "Organization?identifier=x|1"})  # fmt: skip
        own = {"subject": self.patient, "encounter": encounter}
        illness, complaint = self.random.choice(ILLNESSES) if sick else ("", "")
        if sick:
            self.add("Condition", **own, clinicalStatus=coded("active", ""), verificationStatus=coded("confirmed", ""),
                     code=coded("2", illness), onsetDateTime=when, recordedDate=when)  # fmt: skip
        pressure = [{"code": coded(code, name, LOINC), "valueQuantity": {"value": value, "unit": "mm[Hg]"}}
                    for code, name, value in (("8480-6", "Systolic", 121), ("8462-4", "Diastolic", 79))]  # fmt: skip
        self.observe(own, when, "vital-signs", "85354-9", "Blood pressure panel", component=pressure)
        self.observe(own, when, "social-history", "72166-2", "Tobacco smoking status",
                     valueCodeableConcept=coded("3", "Never smoked tobacco (finding)"))  # fmt: skip
        self.observe(own, when, "survey", "76504-0", "Total score", valueQuantity={"value": 3, "unit": "{score}"})
        panels = self.random.sample(sorted(PANELS), self.random.randint(1, 3))
        for code, name in panels:
            parts = [
                self.observe(own, when, "laboratory", part, title, valueQuantity={
                    "value": round(self.random.uniform(low, high), 1), "unit": unit, "code": unit})
                for part, title, low, high, unit in PANELS[code, name]]  # fmt: skip
            self.add("DiagnosticReport", status="final", **own, category=[coded("LAB", "Laboratory")],
                     code=coded(code, name, LOINC), effectiveDateTime=when, issued=when, result=parts)  # fmt: skip
        note = (
            f"\n{start.date()}\n\n# Chief Complaint\n{f'- {complaint}' if sick else 'No complaints.'}\n\n"
            "# History of Present Illness\nInvented person, unwell for days.\n\n# Medications\nzinc\n\n"
            f"# Assessment and Plan\nPatient has {illness}.\n\n## Plan\nrest"
        )
        form = {"contentType": "text/plain; charset=utf-8", "data": base64.b64encode(note.encode()).decode()}
        kind = coded("34117-2", "History and physical note", LOINC)
        self.add("DiagnosticReport", status="final", **own, category=[kind], code=kind, effectiveDateTime=when,
                 presentedForm=[form])  # fmt: skip
        self.add("DocumentReference", status="current", subject=self.patient, content=[{"attachment": form}],
                 context={"encounter": [encounter]}, date=when)  # fmt: skip
        self.add("Procedure", status="completed", **own, code=coded("4", "Documentation of medications"),
                 performedPeriod={"start": when, "end": end})  # fmt: skip
        self.add("Claim", status="active", patient=self.patient)
        if sick:
            self.expected[encounter["reference"][-36:]] = {illness, *(KEYS[code] for code, _ in panels)}

    def observe(self, own: dict, when: str, category: str, code: str, name: str, **value) -> dict[str, str]:
        return self.add("Observation", status="final", **own, category=[coded(category, category)],
                        code=coded(code, name, LOINC), effectiveDateTime=when, issued=when, **value)  # fmt: skip


def coded(code: str, text: str, system: str = "http://snomed.info/sct") -> dict:
    return {"coding": [{"system": system, "code": code, "display": text}], **({"text": text} if text else {})}


@pytest.mark.parametrize("seed", range(12))
def test_a_bundle_gives_a_case_for_each_visit_with_an_illness(tmp_path: Path, seed: int):
    life = Life(seed)
    (tmp_path / "one.json").write_text(
        json.dumps({"resourceType": "Bundle", "type": "transaction", "entry": life.entries})
    )
    free = parse_settings({"data": {"fhir": {"path": "mine", "credentialed": False}}})
    records, attrition = ingest("fhir", free, tmp_path)
    cases = {}
    for record in records:
        results = record.key_pertinent_results_dict
        cases[record.note_id[-36:]] = {record.diagnosis_results, *(key for key in results if not is_physical(key))}
        assert "unwell for days" in record.case_summary and "Never smoked" in record.case_summary
        assert ("Mould" in record.case_summary) == life.allergic
        assert "zinc" not in record.case_summary and "rest" not in str(results) and "Total score" not in str(results)
        assert "Systolic" in results["Vital Signs (Physical Examination)"]
        if "Basic Metabolic Panel" in results:
            labels = [one.label for one in parse_analytes(results["Basic Metabolic Panel"])]
            assert labels == ["Glucose", "Sodium", "Potassium"]
    visits = sum(entry["resource"]["resourceType"] == "Encounter" for entry in life.entries)
    assert cases == life.expected and attrition.kept == len(cases) and attrition.read == visits
    assert len(attrition.dropped.get("no diagnosis", ())) == visits - len(cases)
