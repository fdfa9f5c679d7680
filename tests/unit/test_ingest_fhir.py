"""Exports in FHIR R4: bundles and NDJSON files, written here, in the hospital's own words."""

import base64
import gzip
import json
from pathlib import Path

import pytest

from cdpr.cases import parse_analytes
from cdpr.ingest import IngestError, ingest
from cdpr.settings import parse_settings

FREE = {"path": "mine", "credentialed": False}
NOTE = """Chief Complaint: Belly pain
History of Present Illness:
Two days of pain around the navel, moving to the right. No fever.
Physical Exam:
Abdomen: Tender in the right lower quadrant.
Brief Hospital Course:
Appendicitis was seen on the ultrasound and operated on.
Discharge Diagnosis:
Acute appendicitis"""
HTML = "<div><b>History of Present Illness:</b><p>Pain since <i>noon</i>.</p><p>No fever.</p></div>"


def concept(text: str, code: str = "", system: str = "http://loinc.org") -> dict:
    return {"text": text, **({"coding": [{"system": system, "code": code}]} if code else {})}


def attachment(text: str, kind: str = "text/plain; charset=utf-8") -> dict:
    return {"contentType": kind, "data": base64.b64encode(text.encode()).decode()}


def observation(name: str, value, category: str = "laboratory", **more) -> dict:
    if isinstance(value, (int, float)):
        said = {"valueQuantity": {"value": value, "unit": more.pop("unit", "mmol/L")}}
    else:
        said = {"valueString": value} if value is not None else {}
    return {"resourceType": "Observation", "status": "final", "code": concept(name),
            "category": [{"coding": [{"code": category}]}], "subject": {"reference": "Patient/p"},
            "encounter": {"reference": "Encounter/e"}, "effectiveDateTime": "2024-03-02T10:00:00Z", **said,
            **more}  # fmt: skip


def condition(name: str, number: str, category: str = "encounter-diagnosis", **more) -> dict:
    return {"resourceType": "Condition", "id": number, "code": concept(name), "subject": {"reference": "Patient/p"},
            "category": [{"coding": [{"code": category}]}], **more}  # fmt: skip


def basis(**encounter) -> list[dict]:
    """A patient with one encounter, diagnosed and with a note."""
    return [
        {"resourceType": "Patient", "id": "p", "birthDate": "1980-03-03", "gender": "female"},
        {"resourceType": "Encounter", "id": "e", "status": "finished", "subject": {"reference": "Patient/p"},
         "period": {"start": "2024-03-02T08:00:00Z", "end": "2024-03-05"},
         "diagnosis": [
             {"condition": {"reference": "Condition/c2"}, "use": concept("", "CM"), "rank": 1},
             {"condition": {"reference": "Condition/c1"}, "use": concept("", "DD"), "rank": 1}], **encounter},
        condition("Acute appendicitis", "c1"), condition("Hypothyroidism", "c2"),
        {"resourceType": "DocumentReference", "status": "current", "subject": {"reference": "Patient/p"},
         "context": {"encounter": [{"reference": "Encounter/e"}]}, "content": [{"attachment": attachment(NOTE)}]},
    ]  # fmt: skip


def write(folder: Path, resources: list[dict]) -> Path:
    """A bundle."""
    folder.mkdir(parents=True, exist_ok=True)
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": one} for one in resources]}
    (folder / "bundle.json").write_text(json.dumps(bundle))
    return folder


def read(path: Path, leaks: dict | None = None, **source):
    return ingest("fhir", parse_settings({"data": {"fhir": FREE | source, "leaks": leaks or {}}}), path)


def only(path: Path, **source):
    (record,), attrition = read(path, **source)
    return record, attrition


def test_an_encounter_becomes_a_case(tmp_path):
    """Panels, units, ranges, flags, components, reports, specimens; the diagnosis by role; the note by its headings."""
    listed = [observation("Haemoglobin", 7.2, unit="g/dL", id="o1", referenceRange=[{"low": {"value": 12}, "high": {
        "value": 16.5}}], interpretation=[concept("", "L")]), observation("Sodium", 140, id="o2")]  # fmt: skip
    report = {"resourceType": "DiagnosticReport", "status": "final", "encounter": {"reference": "Encounter/e"}}
    ultrasound = report | {
        "code": concept("Abdominal ultrasound"), "category": [concept("", "RAD")],
        "presentedForm": [attachment("INDICATION: pain?\nFINDINGS: Thick wall.\nIMPRESSION: Inflamed appendix.")],
    }  # fmt: skip
    panel = report | {"code": concept("Ward panel"), "category": [concept("", "LAB")],
                      "result": [{"reference": "Observation/o1"}, {"reference": "Observation/o9"}]}  # fmt: skip
    others = [
        observation("Sodium [Moles/volume] in Serum or Plasma by Automated", 141),  # a repeated quantity
        observation("Glucose [Presence] in Urine by Test strip", "negative"),
        observation("Blood pressure", None, "vital-signs", component=[
            {"code": concept("Systolic"), "valueQuantity": {"value": 120, "unit": "mmHg"}},
            {"code": concept("Diastolic"), "valueQuantity": {"value": 80, "unit": "mmHg"}}]),
        observation("Tobacco", "never smoked", "social-history"), observation("Mood", "3", "survey"),
        observation("Lipase", 30, status="entered-in-error"), observation("Lactate", None),
        {"resourceType": "Procedure", "status": "completed", "encounter": {"reference": "Encounter/e"},
         "code": concept("Colonoscopy"), "outcome": concept("Normal mucosa to the caecum")},
        {"resourceType": "Procedure", "status": "completed", "encounter": {"reference": "Encounter/e"},
         "code": concept("Appendectomy")},
        {"resourceType": "Medication", "id": "m"},
    ]  # fmt: skip
    record, attrition = only(write(tmp_path, [*basis(), *listed, panel, ultrasound, *others]))
    results = record.key_pertinent_results_dict
    assert list(results) == ["Abdomen (Physical Examination)", "Vital Signs (Physical Examination)", "Ward panel",
                             "Comprehensive Metabolic Panel", "Urine Analysis", "Abdominal Ultrasound",
                             "Colonoscopy"]  # fmt: skip
    assert results["Ward panel"] == ("Haemoglobin: Value: 7.2; Units: g/dL; Reference Range: 12.0--16.5; "
                                     "Flag: abnormal")  # fmt: skip
    assert parse_analytes(results["Ward panel"])[0].level == "low"
    assert results["Comprehensive Metabolic Panel"] == "Sodium: Value: 140; Units: mmol/L"
    assert results["Urine Analysis"] == "Glucose: Value: negative"
    assert results["Vital Signs (Physical Examination)"] == (
        "Systolic: Value: 120; Units: mmHg; Diastolic: Value: 80; Units: mmHg")  # fmt: skip
    assert results["Abdominal Ultrasound"] == "Thick wall. Impression: Inflamed appendix."
    assert results["Colonoscopy"] == "Normal mucosa to the caecum"
    assert record.case_summary.splitlines() == [
        "- Patient Information: 43 year old female", "- Chief Complaint: Belly pain",
        "- History of Present Illness: Two days of pain around the navel, moving to the right. No fever.",
        "- Personal History: Tobacco: never smoked"]  # fmt: skip
    assert (record.note_id[-2:], record.diagnosis_results, record.split) == ("-e", "Acute appendicitis", "test")
    assert attrition.events == {
        "observations": 9, "reports": 2, "procedures": 2, "procedures without a result": 1, "repeated items": 1,
        "observations that are withdrawn or not there yet": 1, "observations that are no examination": 1,
        "observations without a result": 1, "references that lead nowhere": 1,
        "resources that are not read: Medication": 1}  # fmt: skip


def test_a_bulk_export_and_a_bundle_of_addresses_are_the_same_cases(tmp_path):
    """NDJSON files, compressed, in any order; a bundle whose references are addresses; contained observations."""
    contained = {"resourceType": "DiagnosticReport", "status": "final", "encounter": {"reference": "Encounter/e"},
                 "code": concept("Basic metabolic panel - Blood"), "result": [{"reference": "#k"}],
                 "contained": [{"resourceType": "Observation", "id": "k", "status": "final",
                                "code": concept("Potassium"), "valueQuantity": {"value": 4.1}}]}  # fmt: skip
    resources = [*basis(), observation("Lipase", 30), contained]
    bulk = tmp_path / "bulk"
    bulk.mkdir()
    for number, one in enumerate(reversed(resources)):
        file = bulk / f"{number}.{one['resourceType']}.ndjson.gz"
        file.write_bytes(gzip.compress((json.dumps(one) + "\n").encode()))
    text = json.dumps({"resourceType": "Bundle", "entry": [
        {"fullUrl": f"urn:uuid:{one['resourceType']}-{one.get('id', n)}", "resource": one}
        for n, one in enumerate(resources)]})  # fmt: skip
    for kind, number in (("Patient", "p"), ("Encounter", "e"), ("Condition", "c1"), ("Condition", "c2")):
        text = text.replace(f'"{kind}/{number}"', f'"urn:uuid:{kind}-{number}"')
    (tmp_path / "bundle.json").write_text(text)
    (tmp_path / "lines.jsonl").write_text(text + "\n")
    first = only(bulk)[0]
    assert first.note_id == "e" and list(first.key_pertinent_results_dict) == [
        "Abdomen (Physical Examination)", "Lipase", "Basic Metabolic Panel"]  # fmt: skip
    for path in (tmp_path / "bundle.json", tmp_path / "lines.jsonl"):
        other = only(path)[0]
        assert other.note_id != "e" and other.note_id.endswith("-e")
        assert other.model_copy(update={"note_id": "e", "subject_key": "p"}) == first


def test_where_the_history_is_told(tmp_path):
    """Compositions, questionnaires, impressions, HTML, notes as reports, problems known before; the first tells."""
    about = {"status": "final", "encounter": {"reference": "Encounter/e"}, "subject": {"reference": "Patient/p"}}
    patient, encounter, *conditions, _ = basis(reasonCode=[concept("Abdominal pain")])

    def history(*told, **changes) -> list[str]:
        record, _ = only(write(tmp_path, [patient, encounter | changes, *conditions, observation("Lipase", 30), *told]))
        return record.case_summary.splitlines()[1:]

    composition = {"resourceType": "Composition", **about, "section": [
        {"title": "Presenting problem", "code": concept("", "10164-2"), "text": {"div": HTML}},
        {"title": "Background", "section": [{"title": "Past Medical History", "text": {"div": "<p>Asthma</p>"}}]},
        {"title": "Assessment", "text": {"div": "<p>Appendicitis</p>"}}]}  # fmt: skip
    assert history(composition) == ["- Chief Complaint: Abdominal pain",
        "- History of Present Illness: Pain since noon. No fever.", "- Past Medical History: Asthma"]  # fmt: skip
    answers = {"resourceType": "QuestionnaireResponse", **about, "status": "completed", "item": [
        {"text": "Chief complaint?", "answer": [{"valueString": "Sore belly"}]},
        {"text": "Smoker", "answer": [{"valueCoding": {"display": "no"}}]}]}  # fmt: skip
    assert history(answers) == ["- Chief Complaint: Sore belly"]
    impression = {"resourceType": "ClinicalImpression", **about, "description": "Pain for two days",
                  "summary": "Appendicitis"}  # fmt: skip
    assert history(impression)[1:] == ["- History of Present Illness: Pain for two days"]
    note = {"resourceType": "DiagnosticReport", **about, "code": concept("H&P", "34117-2"), "presentedForm": [
        attachment(HTML, "text/html"), {"contentType": "application/pdf", "data": "JVBERg=="}]}  # fmt: skip
    assert history(note)[1:] == ["- History of Present Illness: Pain since noon. No fever."]
    elsewhere = {"resourceType": "DocumentReference", "status": "current", "subject": {"reference": "Patient/p"},
                 "content": [{"attachment": {"contentType": "text/plain", "url": "Binary/b"}}]}  # fmt: skip
    binary = {"resourceType": "Binary", "id": "b", **attachment("Chief Complaint: Cramps")}
    assert history(elsewhere, binary) == ["- Chief Complaint: Cramps"]
    known = [condition("Gout", "k1", "problem-list-item", onsetDateTime="2011"),
             condition("Ileus", "k2", "problem-list-item", onsetDateTime="2024-03-04"),
             {"resourceType": "AllergyIntolerance", "patient": about["subject"], "code": concept("Penicillin")},
             {"resourceType": "FamilyMemberHistory", "patient": about["subject"], "status": "completed",
              "relationship": concept("Mother"), "condition": [{"code": concept("Migraine")}]}]  # fmt: skip
    assert history(*known)[1:] == ["- Past Medical History: Gout", "- Family History: Mother: Migraine",
                                   "- Allergy History: Penicillin"]  # fmt: skip


def test_which_diagnosis_is_primary_and_which_case_is_dropped(tmp_path):
    patient, encounter, _, other, note = basis()
    lipase = observation("Lipase", 30)

    def kept(*told) -> tuple[list[str], dict[str, int]]:
        try:
            records, attrition = read(write(tmp_path, [patient, note, lipase, *told]))
        except IngestError as error:
            return [], str(error)
        return [record.diagnosis_results for record in records], attrition.events

    bare = {name: value for name, value in encounter.items() if name != "diagnosis"}
    of = {"encounter": {"reference": "Encounter/e"}}
    found, events = kept(bare, condition("Gastritis", "a", **of), condition("Ulcer", "b", **of))
    told = "encounters with several diagnoses of the same rank, of which the first was taken"
    assert found == ["Gastritis"] and events[told] == 1
    refuted = {"verificationStatus": concept("", "refuted")}
    assert kept(bare, condition("Gastritis", "a", **of, **refuted), condition("Ulcer", "b", **of))[0] == ["Ulcer"]
    assert "1 (no diagnosis)" in kept(encounter, other)[1], "a comorbidity is none"
    assert "no usable case among 1" in kept(encounter | {"status": "cancelled"}, other)[1], "the patient's own is left"
    complaint = condition("Belly pain", "c1")
    assert "1 (diagnosis stated in the summary)" in kept(encounter, complaint, other)[1], "leaks take the common path"
    assert kept(encounter, condition("Ulcer", "c1"), other)[0] == ["Ulcer"]


def test_conclusions_and_names_of_the_diagnosis_take_the_common_path_of_leaks(tmp_path):
    report = {"resourceType": "DiagnosticReport", "status": "final", "encounter": {"reference": "Encounter/e"},
              "code": concept("X-ray of the left hand"), "presentedForm": [attachment("Soft tissue intact.")],
              "conclusion": "No fracture."}  # fmt: skip
    named = observation("Lipase", "compatible with acute appendicitis")
    folder = write(tmp_path, [*basis(), report, named])
    (record,), _ = read(folder)
    assert record.key_pertinent_results_dict["Hand X-ray"] == (
        "X-ray of the left hand: Soft tissue intact. Impression: No fracture.")  # fmt: skip
    (record,), attrition = read(folder, {"impression": "drop", "diagnosis_in_results": "drop"})
    assert record.key_pertinent_results_dict["Hand X-ray"] == "X-ray of the left hand: Soft tissue intact."
    assert "Lipase" not in record.key_pertinent_results_dict
    assert {(leak.leak, leak.action) for leak in attrition.leaks()} == {
        ("impression of a report", "removed"), ("diagnosis named by a result", "removed")}  # fmt: skip


def test_the_plan_behind_an_examination_is_not_read_and_is_counted(tmp_path):
    """Also below a complaint, and where the section of a composition goes on."""
    note = "Chief Complaint: Belly pain\nPlan: operate\nPhysical Exam:\nAbdomen: Tender.\nWorking theory: Appendicitis"
    section = {"title": "x", "code": concept("", "29545-1"), "text": {"div": "<p>Neck: supple.</p><p>Work-up: CT</p>"}}
    about = {"status": "final", "subject": {"reference": "Patient/p"}, "encounter": {"reference": "Encounter/e"}}
    told = [{"resourceType": "Composition", **about, "section": [section]}, observation("Lipase", 30)]
    reads = basis()[-1] | {"content": [{"attachment": attachment(note)}]}
    record, attrition = only(write(tmp_path, [*basis()[:-1], reads, *told]))
    assert record.key_pertinent_results_dict == {
        "Neck (Physical Examination)": "supple.", "Abdomen (Physical Examination)": "Tender.",
        "Lipase": "Lipase: Value: 30; Units: mmol/L"}  # fmt: skip
    assert "operate" not in record.case_summary
    assert attrition.events["physical examinations that end at a heading of something else"] == 2


def test_equal_numbers_in_two_bundles_are_two_patients(tmp_path):
    write(tmp_path / "b", [*basis(), observation("Amylase", 9)])
    write(tmp_path, [*basis(), observation("Lipase", 30)]).joinpath("bundle.json").rename(tmp_path / "Jane_Doe.json")
    (tmp_path / "b" / "bundle.json").rename(tmp_path / "John_Doe.json")
    records, _ = read(tmp_path)
    assert len({record.note_id for record in records}) == len({record.subject_key for record in records}) == 2
    assert {key for record in records for key in record.key_pertinent_results_dict} >= {"Lipase", "Amylase"}
    assert not any("Doe" in record.model_dump_json() for record in records), "a file may bear the patient's name"


def test_bundles_in_one_list_are_bundles_of_their_own(tmp_path):
    bundles = []
    for name in ("Lipase", "Amylase"):
        bundles.append(
            json.loads((write(tmp_path / name, [*basis(), observation(name, 30)]) / "bundle.json").read_text())
        )
    (tmp_path / "all.json").write_text(json.dumps(bundles))
    records, _ = read(tmp_path / "all.json")
    assert len({record.note_id for record in records}) == 2
    assert sorted("Lipase" in record.key_pertinent_results_dict for record in records) == [False, True]


def test_the_pages_of_an_export_belong_together(tmp_path):
    """Each page is a bundle, which refers to resources of others; a system may not know the state of a result."""
    whole, _ = only(write(tmp_path / "whole", [*basis(), observation("Lipase", 30)]))
    for number, resource in enumerate([*basis(), observation("Lipase", 30, status="unknown")]):
        write(tmp_path / f"{number}", [resource])
        (tmp_path / f"{number}" / "bundle.json").rename(tmp_path / f"page{number}.json")
    record, attrition = only(tmp_path)
    assert record.key_pertinent_results_dict == whole.key_pertinent_results_dict
    assert (record.diagnosis_results, record.case_summary) == (whole.diagnosis_results, whole.case_summary)
    assert attrition.events["results and notes of no encounter"] == 0
    # Where two other bundles have a patient of this number, none is meant.
    write(tmp_path / "again", [basis()[0] | {"gender": "male"}])
    (tmp_path / "again" / "bundle.json").rename(tmp_path / "page9.json")
    assert "female" not in only(tmp_path)[0].case_summary


@pytest.mark.parametrize("binary", [{"data": "UERG" * 300_000}, {"content": "UERG" * 300_000}])
def test_a_large_file_in_an_export_is_left_out_and_counted(tmp_path, binary):
    """Its base64 is no text of the case. STU3 called it "content"."""
    scan = {"resourceType": "DocumentReference", "status": "current", "subject": {"reference": "Patient/p"},
            "content": [{"attachment": {"contentType": "application/pdf", "url": "Binary/b"}}]}  # fmt: skip
    file = {"resourceType": "Binary", "id": "b", "contentType": "application/pdf", **binary}
    _, attrition = only(write(tmp_path, [*basis(), observation("Lipase", 30), scan, file]))
    assert attrition.events["attachments that are no text or lie elsewhere"] == 1


def test_a_vital_sign_and_a_known_examination_are_found_whatever_their_category(tmp_path):
    told = [observation("Temperature", 38.5, "survey", unit="Cel"), observation("Pulse", 90, "", unit="/min"),
            observation("Audiometry", "normal", "survey"), observation("Treatment plan", "rest", "survey"),
            observation("Skin", "warm", "exam"), observation("Lipase", 30, "exam")]  # fmt: skip
    record, attrition = only(write(tmp_path, [*basis(), *told]))
    results = record.key_pertinent_results_dict
    physical = {f"{name} (Physical Examination)" for name in ("Abdomen", "Skin", "Vital Signs")}
    assert set(results) == physical | {"Audiometry", "Lipase"}
    vital_signs = results["Vital Signs (Physical Examination)"]
    assert "38.5" in vital_signs and "90" in vital_signs
    assert attrition.events["observations that are no examination"] == 1


def test_results_belong_to_the_encounter_in_whose_time_they_fall(tmp_path):
    second = {"resourceType": "Encounter", "id": "f", "status": "finished", "subject": {"reference": "Patient/p"},
              "period": {"start": "2024-06-01", "end": "2024-06-02"},
              "diagnosis": [{"condition": {"reference": "Condition/c2"}}],
              "reasonCode": [concept("Tiredness")]}  # fmt: skip

    def at(name: str, time: str) -> dict:
        return {k: v for k, v in observation(name, 3, effectiveDateTime=time).items() if k != "encounter"}

    told = [at("Lipase", "2024-03-02T09:00:00+00:00"), at("Amylase", "2024-03-04"), at("TSH", "2024-06-01T12:00:00Z"),
            at("Lactate", "2023-01-01")]  # fmt: skip
    folder = write(tmp_path, [*basis(), second, *told])
    (first, other), attrition = read(folder)
    labs = [[k for k in record.key_pertinent_results_dict if "Physical" not in k] for record in (first, other)]
    assert labs == [["Lipase", "Amylase"], ["TSH"]]
    assert attrition.events["results and notes of no encounter"] == 1
    (first, _), attrition = read(folder, hours_after_start=24)
    assert [k for k in first.key_pertinent_results_dict if "Physical" not in k] == ["Lipase"]
    assert attrition.events["results after the initial workup"] == 1


@pytest.mark.parametrize("end", ["9999-12-31", "9999-12", "9999", "9999-12-31T23:59:59Z"])
def test_an_encounter_with_an_open_end_is_read(tmp_path, end):
    earlier = {"resourceType": "Encounter", "id": "f", "status": "finished", "subject": {"reference": "Patient/p"},
               "period": {"start": "2023-06-01", "end": "2023-06-02"},
               "diagnosis": [{"condition": {"reference": "Condition/c2"}}],
               "reasonCode": [concept("Tiredness")]}  # fmt: skip
    result = observation("Lipase", 3, effectiveDateTime="2024-03-04")
    del result["encounter"]  # so it belongs to the encounter of its time
    encounters = basis(period={"start": "2024-03-02T08:00:00Z", "end": end})
    records, _ = read(write(tmp_path, [*encounters, earlier, result]))
    assert ["Lipase" in record.key_pertinent_results_dict for record in records].count(True) == 1


def test_parts_of_an_encounter_are_its_own(tmp_path):
    """The emergency stay, and the triage within it: their results and reasons; in a ring none is a part."""
    patient, stay, *others = basis()

    def part(number: str, whole: str, **more) -> dict:
        return {"resourceType": "Encounter", "id": number, "status": "finished", "subject": stay["subject"],
                "partOf": {"reference": f"Encounter/{whole}"}, "period": {"start": "2024-03-01T20:00:00Z"},
                **more}  # fmt: skip

    def of(number: str, name: str) -> dict:
        return observation(
            name, 3, encounter={"reference": f"Encounter/{number}"}, effectiveDateTime="2024-03-01T21:00Z"
        )

    parts = [part("ed", "e", reasonCode=[concept("Cramps")]), part("tri", "ed")]
    told = [patient, *parts, stay, *others[:-1], of("e", "Lipase"), of("ed", "Amylase"), of("tri", "Ferritin")]
    record, attrition = only(write(tmp_path, told), hours_after_start=2)
    assert list(record.key_pertinent_results_dict) == ["Lipase", "Amylase", "Iron Studies"]
    assert "Chief Complaint: Cramps" in record.case_summary
    assert attrition.read == 1 and attrition.events["encounters that are part of another"] == 2
    for whole in ("tri", "gone"):
        ring = [patient, part("ed", whole), part("tri", "ed"), stay | {"reasonCode": [concept("Cramps")]}, *others]
        assert read(write(tmp_path, [*ring, of("e", "Lipase")]))[1].read == (2 if whole == "gone" else 3)


def test_what_lasts_is_told_in_every_encounter_and_the_rest_is_counted(tmp_path):
    """Undated allergies, relatives and problems of a patient who came twice."""
    patient, first, *others = basis(reasonCode=[concept("Cramps")])
    second = first | {"id": "f", "period": {"start": "2024-06-01", "end": "2024-06-02"}}
    who = {"reference": "Patient/p"}
    lasting = [
        condition("Gout", "k1", "problem-list-item"),
        condition("Scurvy", "k2", "problem-list-item", onsetDateTime="2024-05"),
        {"resourceType": "AllergyIntolerance", "patient": who, "code": concept("Penicillin")},
        {"resourceType": "FamilyMemberHistory", "patient": who, "relationship": concept("Mother"),
         "condition": [{"code": concept("Migraine")}]}]  # fmt: skip
    labs = [observation("Lipase", 3), observation("Lipase", 3, encounter={"reference": "Encounter/f"})]
    nobody = {"resourceType": "AllergyIntolerance", "patient": {"reference": "Patient/gone"}, "code": concept("Zinc")}
    records, attrition = read(write(tmp_path, [patient, first, second, *others[:-1], *labs, *lasting, nobody,
                                               condition("Measles", "k3")]))  # fmt: skip
    background = [record.case_summary.partition("Cramps\n")[2].splitlines() for record in records]
    same = ["- Family History: Mother: Migraine", "- Allergy History: Penicillin"]
    assert background == [["- Past Medical History: Gout", *same], ["- Past Medical History: Gout; Scurvy", *same]]
    assert attrition.events["results and notes of no encounter"] == 2, "the other's allergy, and the measles"


def test_a_public_style_bundle_gives_cases_and_each_order_is_one(tmp_path):
    """Conditions without a category, notes in Markdown, certificates of death, pages; PT with INR, antibiograms."""
    patient, encounter, *_ = basis()
    bare = {name: value for name, value in encounter.items() if name != "diagnosis"}
    own = {"encounter": {"reference": "Encounter/e"}}
    diagnosed = {k: v for k, v in condition("Acute appendicitis", "c1", **own).items() if k != "category"}
    unnamed = {k: v for k, v in condition("Influenza", "c0").items() if k != "category"}
    note = {"resourceType": "DocumentReference", "status": "current", "context": {"encounter": [own["encounter"]]},
            "content": [{"attachment": attachment("\n# Chief Complaint\n- Cramps\n\n# Allergies\nNone known.\n\n"
                                                  "# Medications\nzinc\n\n# Assessment and Plan\nappendicitis")}
                        ]}  # fmt: skip
    sample = {"specimen": {"reference": "Specimen/s"}}
    results = [
        observation("Cause of Death [US Standard Certificate of Death]", "appendicitis", "exam"),
        observation("PT and INR", None, component=[
            {"code": concept(name), "valueQuantity": {"value": 1}} for name in ("PT", "INR")]),
        observation("Urine Culture", "E. coli", **sample),
        observation("cefTRIAXone [Susceptibility]", "S", **sample),
        observation("Ampicillin [Susceptibility] by MIC", "R")]  # fmt: skip
    path = write(tmp_path, [patient, bare, unnamed, diagnosed, note, *results])
    record, attrition = only(path)
    assert record.diagnosis_results == "Acute appendicitis" and "Cramps" in record.case_summary
    assert "zinc" not in record.case_summary and "appendicitis" not in str(record.key_pertinent_results_dict)
    assert {name: text.count("Value:") for name, text in record.key_pertinent_results_dict.items()} == {
        "Coagulation Profile": 2, "Urine Culture": 2, "Antibiotic Susceptibility": 1}  # fmt: skip
    assert attrition.events["observations that are no examination"] == 1 and not attrition.warnings
    bundle = json.loads((path / "bundle.json").read_text())
    pages = [{"relation": "self", "url": "x?1"}, {"relation": "next", "url": "x?2"}]
    (path / "bundle.json").write_text(json.dumps(bundle | {"link": pages}))
    assert any("1 bundles are one page" in warning for warning in only(path)[1].warnings)
    (path / "b.json").write_text(json.dumps({"resourceType": "Bundle", "link": [pages[1] | {"relation": "self"}]}))
    assert not only(path)[1].warnings


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"valueQuantity": {"value": "high SECRET"}}, "entry[5].resource.valueQuantity.value", "expected a number"),
        ({"code": "SECRET"}, "entry[5].resource.code", "expected an object"),
        ({"component": ["SECRET"]}, "entry[5].resource.component[0]", "expected an object"),
        ({"effectiveDateTime": "SECRET"}, "entry[5].resource.effectiveDateTime", "is no date or time"),
        ({"resourceType": 7}, "entry[5].resource.resourceType", "expected text"),
        ({"resourceType": "SECRET!"}, "entry[5].resource.resourceType", "is no kind of resource"),
        ({"id": "c1", "resourceType": "Condition"}, "entry[5].resource.id", "occurs twice with different contents"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place_and_without_text(tmp_path, change, field, problem):
    write(tmp_path, [*basis(), observation("Lipase", 30) | change])
    with pytest.raises(IngestError, match=problem) as error:
        read(tmp_path, credentialed=True)
    assert error.value.field == field and "bundle.json" in str(error.value) and "SECRET" not in str(error.value)


def test_a_file_that_is_no_export(tmp_path):
    with pytest.raises(IngestError, match=r"no file \*\.json, "):
        read(tmp_path)
    file = tmp_path / "Patient.ndjson"
    file.write_text(json.dumps(basis()[0]) + "\n[1]\n")
    with pytest.raises(IngestError, match=r"Patient\.ndjson:2: expected an object"):
        read(file)
    file.write_text(json.dumps(basis()[0]) + '\n{"resourceType"')
    with pytest.raises(IngestError, match=r"Patient\.ndjson:2: not JSON"):
        read(file)
    note = basis()[-1] | {"content": [{"attachment": {"contentType": "text/plain", "data": "SECRET!"}}]}
    with pytest.raises(IngestError, match=r"attachment\.data': no base64"):
        read(write(tmp_path / "b", [*basis()[:-1], note]))


def test_references_by_an_identifier_are_found_unless_several_have_it(tmp_path):
    """As identifiers, with or without a type, and as searches; an account that two encounters share is neither's."""
    number, account = {"system": "urn:oid:1.2", "value": "77"}, {"value": "77"}
    patient, stay, *others, note = basis(identifier=[{"system": "https://h.org/visit", "value": "V9"}, account])
    search = {"reference": "Encounter?identifier=https://h.org/visit|V9"}
    told = [
        patient | {"identifier": [number]},
        stay | {"subject": {"identifier": number}},
        *others,
        note | {"subject": {"type": "Patient", "identifier": number}, "context": {"encounter": [search]}},
        observation("Lipase", 30, encounter=search),
        observation("Amylase", 9, encounter={"identifier": account}),
        observation("TSH", 3, encounter={"display": "a stay"}),
    ]
    record, attrition = only(write(tmp_path, told))
    assert "43 year old female" in record.case_summary and {"Lipase", "Amylase"} <= {*record.key_pertinent_results_dict}
    assert attrition.events["results and notes of no encounter"] == 1
    _, attrition = read(write(tmp_path, [*told, stay | {"id": "f", "identifier": [account], "status": "cancelled"}]))
    assert attrition.events["results and notes of no encounter"] == 2


def test_the_zone_and_the_last_beginning_decide_in_whose_time_a_result_falls(tmp_path):
    """A day is the patient's day; a stay without an end goes on until the next one."""
    patient, stay, *others = basis(period={"start": "2024-03-02", "end": "2024-03-03"})
    earlier = {
        "resourceType": "Encounter",
        "id": "f",
        "status": "finished",
        "subject": {"reference": "Patient/p"},
        "period": {"start": "2019-06-01T08:00:00Z"},
    }
    times = {
        "Lipase": "2024-03-03T23:30:00-07:00",
        "Amylase": "2024-03-02T01:00:00+10:00",
        "Ferritin": "2024-03-04T00:30:00+02:00",
    }
    told = [observation(name, 3, effectiveDateTime=time) for name, time in times.items()]
    for one in told:
        del one["encounter"]
    records, _ = read(write(tmp_path, [earlier, patient, stay, *others, *told]))
    assert [{*times} & {*record.key_pertinent_results_dict} for record in records] == [{"Lipase", "Amylase"}]


def test_of_versions_of_a_result_the_corrected_and_the_final_one_count(tmp_path):
    told = [
        observation("Potassium", 7.9),
        observation("Potassium", 4.1, status="corrected"),
        observation("Blood culture", "No growth to date", status="preliminary"),
        observation("Blood culture", "Escherichia coli"),
    ]
    record, attrition = only(write(tmp_path, [*basis(), *told]))
    assert [text for name, text in record.key_pertinent_results_dict.items() if "Physical" not in name] == [
        "Potassium: Value: 4.1; Units: mmol/L",
        "Blood culture: Value: Escherichia coli",
    ]
    assert attrition.events["repeated items"] == 2


def test_words_of_an_interpretation_are_read_like_its_codes(tmp_path):
    local = {"coding": [{"code": "1", "display": "Positive"}]}
    told = [
        observation("Sodium", 128, interpretation=[{"text": "Low"}]),
        observation("Influenza PCR", None, interpretation=[local]),
    ]
    results = only(write(tmp_path, [*basis(), *told]))[0].key_pertinent_results_dict
    assert results["Comprehensive Metabolic Panel"].endswith("Flag: abnormal")
    assert [text for text in results.values() if text.endswith("Value: positive")]


@pytest.mark.parametrize(
    ("primary", "other"),
    [("hospital-main-diagnosis", "secondary-DX"), ("F", "A"), ("discharge", "admitting"), ("DD", "7"), ("7", "CM")],
)
def test_roles_of_other_code_systems_and_unknown_ones(tmp_path, primary, other):
    """German, of HL7 version 2, FHIR's examples; an unknown role is tried last."""
    named = [
        {"condition": {"reference": f"Condition/{number}"}, "use": concept("", role)}
        for number, role in (("c2", other), ("c1", primary))
    ]
    record, attrition = only(write(tmp_path, [*basis(diagnosis=named), observation("Lipase", 30)]))
    assert record.diagnosis_results == "Acute appendicitis"
    assert attrition.events["diagnoses of encounters in an unknown role"] == ("7" in (primary, other))


def test_what_was_entered_in_error_or_refuted_is_not_told(tmp_path):
    wrong, who = {"status": "entered-in-error"}, {"patient": {"reference": "Patient/p"}}
    about = {"encounter": {"reference": "Encounter/e"}, "subject": {"reference": "Patient/p"}}
    told = [
        {
            "resourceType": "AllergyIntolerance",
            **who,
            "code": concept("Latex"),
            "verificationStatus": concept("", "refuted"),
        },
        {"resourceType": "FamilyMemberHistory", **who, **wrong, "condition": [{"code": concept("Migraine")}]},
        condition("Gout", "g", "problem-list-item", verificationStatus=concept("", "entered-in-error")),
        {"resourceType": "Composition", **about, **wrong, "section": [{"title": "Allergies", "text": {"div": HTML}}]},
        {
            "resourceType": "QuestionnaireResponse",
            **about,
            **wrong,
            "item": [{"text": "Past Medical History", "answer": [{"valueString": "Lupus"}]}],
        },
    ]
    record, attrition = only(write(tmp_path, [*basis(), observation("Lipase", 30), *told]))
    assert [line.partition(":")[0] for line in record.case_summary.splitlines()] == [
        "- Patient Information",
        "- Chief Complaint",
        "- History of Present Illness",
    ]
    assert attrition.events["notes that are superseded or withdrawn"] == 5


@pytest.mark.parametrize("code", ["replaces", {"coding": [{"code": "replaces"}]}])
def test_a_note_that_another_one_replaces_is_not_read_though_it_is_current(tmp_path, code):
    patient, stay, *conditions, note = basis()
    new = note | {"content": [{"attachment": attachment(NOTE.replace("Two days", "Three days"))}],
                  "relatesTo": [{"code": code, "target": {"reference": "DocumentReference/old"}}]}  # fmt: skip
    record, attrition = only(write(tmp_path, [patient, stay, *conditions, note | {"id": "old"}, new,
                                              observation("Lipase", 30)]))  # fmt: skip
    assert "Three days" in record.case_summary and "Two days" not in record.case_summary
    assert attrition.events["notes that are superseded or withdrawn"] == 1
    new["relatesTo"][0]["code"] = "appends"
    record, _ = only(write(tmp_path, [patient, stay, *conditions, note | {"id": "old"}, new, observation("ALT", 3)]))
    assert "Two days" in record.case_summary
    new |= {
        "status": "entered-in-error",
        "relatesTo": [{"code": code, "target": {"reference": "DocumentReference/old"}}],
    }
    record, _ = only(write(tmp_path, [patient, stay, *conditions, note | {"id": "old"}, new, observation("ALT", 4)]))
    assert "Two days" in record.case_summary


@pytest.mark.parametrize(("system", "diagnosis"), [("http://fhir.de/CodeSystem/bfarm/icd-10-gm", "Gout"), ("", None)])
def test_the_role_cc_is_the_main_diagnosis_in_germany_and_a_complaint_elsewhere(tmp_path, system, diagnosis):
    patient, _, _, other, note = basis()
    named = [
        {"condition": {"reference": f"Condition/{n}"}, "use": concept("", role)}
        for n, role in (("c2", "CM"), ("c1", "CC"))
    ]
    stay = basis(diagnosis=named)[1]
    gout = condition("Gout", "c1", code=concept("Gout", "M10.9", system))
    resources = [patient, stay, other, gout, note, observation("Lipase", 30)]
    if diagnosis:
        assert only(write(tmp_path, resources))[0].diagnosis_results == diagnosis
    else:
        with pytest.raises(IngestError, match=r"1 \(no diagnosis\)"):
            only(write(tmp_path, resources))


@pytest.mark.parametrize(
    ("holder", "target", "kind"), [("q", "p", "replaces"), ("p", "q", "replaced-by"), ("p", "q", "seealso")]
)
def test_a_patient_merged_into_another_is_one_with_it(tmp_path, holder, target, kind):
    patient, *others = basis()
    record = patient | {"id": "q"}
    patients = {one["id"]: one for one in (patient, record)}
    patients[holder]["link"] = [{"other": {"reference": f"Patient/{target}"}, "type": kind}]
    later = basis()[1] | {
        "id": "e2",
        "subject": {"reference": "Patient/q"},
        "reasonCode": [concept("Cough")],
        "period": {"start": "2025-01-01", "end": "2025-01-02"},
    }
    finding = observation("Lipase", 30, subject={"reference": "Patient/q"}, encounter={"reference": "Encounter/e2"})
    records, attrition = read(write(tmp_path, [*patients.values(), *others, later, observation("Lipase", 9), finding]))
    is_merged = kind != "seealso"
    assert len(records) == 2
    assert len({record.subject_key[-1] for record in records}) == 2 - is_merged and records[0].subject_key[-1] in "pq"
    assert attrition.events["patients that were merged into another"] == is_merged


@pytest.mark.parametrize("order", ["pqr", "rqp", "qrp"])
@pytest.mark.parametrize(
    ("links", "patients"),
    [
        ({"q": ("r", "replaced-by"), "r": ("p", "replaced-by")}, "p"),
        ({"p": ("r", "replaces"), "r": ("q", "replaces")}, "p"),
        ({"q": ("r", "replaced-by"), "r": ("q", "replaced-by")}, "pqr"),
    ],
)
def test_a_chain_of_merged_patients_is_followed_to_its_end_and_a_ring_is_counted(tmp_path, order, links, patients):
    patient, stay, *others = basis(reasonCode=[concept("Cough")])
    named = {
        name: [{"other": {"reference": f"Patient/{other}"}, "type": kind}] for name, (other, kind) in links.items()
    }
    records = [patient | {"id": name, "link": named.get(name, [])} for name in order]
    stays = [stay | {"id": f"e{name}", "subject": {"reference": f"Patient/{name}"}} for name in "qr"]
    found = [observation("Lipase", 9, encounter={"reference": f"Encounter/{one['id']}"}) for one in (stay, *stays)]
    cases, attrition = read(write(tmp_path, [*records, stay, *stays, *others, *found]))
    assert {case.subject_key[-1] for case in cases} == set(patients) and len(cases) == 3
    assert attrition.events["patients that were merged into another"] == 3 - len(patients)
    ring = attrition.events["patients merged into one another in a ring, kept apart"]
    assert ring == (2 if len(patients) == 3 else 0)


def test_xml_is_named_for_what_it_is(tmp_path):
    for text, said in (
        (
            '<?xml version="1.0"?>\n<ClinicalDocument xmlns="urn:hl7-org:v3"/>',
            "not JSON but XML, such as C-CDA, which is not read: <ClinicalDocument>",
        ),
        ("<!-- x --><Bundle/>", "which is not read: <Bundle>"),
    ):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(IngestError, match=said):
            read(tmp_path)


def test_joined_files_test_patients_and_conditions_by_the_day_they_were_recorded(tmp_path):
    """A mark of UTF-8 where the second file began. An old onset is no reason against the encounter of the record."""
    patient, stay, _, _, note = basis()
    del stay["diagnosis"]
    stay2 = stay | {"id": "f", "period": {"start": "2023-01-01", "end": "2023-01-02"}}
    told = condition("Acute appendicitis", "c1", onsetDateTime="2024-02-20", recordedDate="2024-03-02T12:00:00Z")
    lines = [patient | {"meta": {"security": [{"code": "HTEST"}]}}, stay, stay2, told, note, observation("Lipase", 30)]
    (tmp_path / "all.ndjson").write_text("\n\ufeff".join(map(json.dumps, lines)) + "\n\ufeff\n", encoding="utf-8")
    record, attrition = only(tmp_path / "all.ndjson")
    assert record.diagnosis_results == "Acute appendicitis"
    assert attrition.events["resources marked as test data"] == 1


def test_of_versions_of_a_resource_the_last_one_counts(tmp_path):
    """In a history or in the parts of an export; equal times, or none, are an error."""

    def part(value: float, **meta) -> str:
        return json.dumps(observation("Potassium", value, id="k", meta=meta))

    for resource in basis():
        (tmp_path / f"{resource['resourceType']}{resource.get('id')}.ndjson").write_text(json.dumps(resource))
    earlier, later = part(7.9, lastUpdated="2024-03-03T10:00:00Z"), part(4.1, lastUpdated="2024-03-03T12:00:00+01:00")
    for versions in ((earlier, later), (later, earlier)):
        (tmp_path / "Observation.ndjson").write_text("\n".join(versions))
        record, attrition = only(tmp_path)
        assert "Potassium: Value: 4.1; Units: mmol/L" in record.key_pertinent_results_dict.values()
        assert attrition.events["resources that stand twice"] == 1
    (tmp_path / "Observation.ndjson").write_text(part(7.9) + "\n" + later)
    with pytest.raises(IngestError, match="occurs twice with different contents"):
        read(tmp_path)


def test_numbers_in_all_spellings_units_that_say_nothing_and_answers_by_code(tmp_path):
    def measured(name: str, **quantity) -> dict:
        return observation(name, None, valueQuantity=quantity)

    told = [
        measured("Free T4", value=5e-12, unit="mol/L"),
        measured("Lipase", value="41.50", unit="U/L"),
        measured("Gleason score", value=7, unit="{score}"),
        measured("Ferritin", value=9, unit="N/A", code="ug/L"),
        observation("HIV test", None, valueCodeableConcept={"coding": [{"code": "260385009"}]}),
    ]
    values = "; ".join(only(write(tmp_path, [*basis(), *told]))[0].key_pertinent_results_dict.values())
    for text in (
        "T4: Value: 0.000000000005; Units: mol/L",
        "Lipase: Value: 41.50; Units: U/L",
        "Gleason score: Value: 7;",
        "Ferritin: Value: 9; Units: ug/L",
        "HIV test: Value: Negative",
    ):
        assert text in values + ";", text


def test_a_susceptibility_belongs_to_the_culture_of_its_specimen(tmp_path):
    """However they refer to it; specimens within two resources are two, although they have one number."""

    def on(name: str, value: str, reference: str, *contained: dict) -> dict:
        return observation(name, value, specimen={"reference": reference}, contained=contained)

    inner = [{"resourceType": "Specimen", "id": "s", "type": concept(kind)} for kind in ("Urine", "Blood")]
    told = [
        inner[0],
        on("Urine Culture", "E. coli", "https://x.org/fhir/Specimen/s"),
        on("Ceftriaxone [Susceptibility]", "S", "Specimen/s"),
        on("Ampicillin [Susceptibility]", "R", "#s", inner[0]),
        on("Blood Culture", "none", "#s", inner[1]),
    ]
    results = only(write(tmp_path, [*basis(), *json.loads(json.dumps(told))]))[0].key_pertinent_results_dict
    assert {name for name, text in results.items() if "Ceftriaxone" in text} == {"Urine Culture"}
    assert {name for name, text in results.items() if "Ampicillin" in text} == {"Antibiotic Susceptibility"}


def test_an_export_in_one_folder_a_type_and_what_is_left_out(tmp_path):
    for resource in [*basis(), observation("Lipase", 30)]:
        folder = tmp_path / resource["resourceType"]
        folder.mkdir(exist_ok=True)
        with (folder / "part-0.ndjson").open("a") as file:
            file.write(json.dumps(resource) + "\n")
    (tmp_path / "Observation.xml").write_text("<Observation/>")
    left_out = "files of another kind or in folders below the export, left out"
    record, attrition = only(tmp_path)
    assert "Lipase" in record.key_pertinent_results_dict and attrition.events[left_out] == 1
    write(tmp_path, [*basis(), observation("TSH", 3)])
    record, attrition = only(tmp_path)
    assert "Lipase" not in record.key_pertinent_results_dict and attrition.events[left_out] == 6


def test_what_was_deleted_is_left_out_and_a_reason_may_be_a_condition(tmp_path):
    """In a history the deletion is an entry without a resource; the diagnosis itself is no complaint."""
    patient, stay, *others, note = basis(reasonReference=[{"reference": f"Condition/{name}"} for name in ("r", "c1")])
    examined = note | {"content": [{"attachment": attachment("Physical Exam:\nAbdomen: Tender.")}]}
    told = [observation("Lipase", 30), observation("TSH", 3, id="gone"), condition("Cramps", "r", "problem-list-item")]
    folder = write(tmp_path, [patient, stay, *others, examined, *told])
    deleted = {"resourceType": "Bundle", "entry": [{"request": {"method": "DELETE", "url": "Observation/gone"}}]}
    (folder / "deleted.ndjson").write_text(json.dumps(deleted))
    record, attrition = only(folder)
    assert "TSH" not in str(record.key_pertinent_results_dict) and "Lipase" in record.key_pertinent_results_dict
    assert "- Chief Complaint: Cramps" in record.case_summary.splitlines()
    assert attrition.events["resources that were deleted"] == 1


def test_a_diagnosis_on_the_problem_list_is_that_of_the_encounter_of_its_time(tmp_path):
    patient, stay, _, _, note = basis(reasonCode=[concept("Cramps")])
    del stay["diagnosis"]
    later = stay | {"id": "f", "period": {"start": "2024-06-01", "end": "2024-06-02"}}
    told = condition("Gastritis", "g", recordedDate="2024-06-01")
    told["category"].append({"coding": [{"code": "problem-list-item"}]})
    labs = [observation("Lipase", 3), observation("TSH", 3, encounter={"reference": "Encounter/f"})]
    record, _ = only(write(tmp_path, [patient, stay, later, note, told, *labs]))
    assert (record.note_id[-2:], record.diagnosis_results) == ("-f", "Gastritis")
