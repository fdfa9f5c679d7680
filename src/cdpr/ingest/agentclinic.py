"""AgentClinic's cases built from MedQA questions (one JSON object a line) -> case records.

Test results nest one to three levels deep under free names. A generic heading ("Blood_Tests", "Imaging") only
holds examinations; any other name is an examination, with everything below it as its result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..cases import CaseRecord, normalise
from ..settings.schema import AgentClinicSource, Data
from .flat_files import parse_json, read_utf8
from .funnel import Funnel, IngestError
from .leaks import why_unusable
from .names import add_text, physical_key
from .summary import build_summary, one_line, says_something

_CONTAINERS = {
    "additional tests", "assessment tools", "basic laboratory tests", "blood test", "blood tests", "blood work",
    "imaging", "imaging and other tests", "imaging results", "imaging studies", "investigations", "lab results",
    "lab tests", "lab work", "laboratory results", "laboratory studies", "laboratory tests", "labs", "other tests",
    "screening tests", "serum laboratory analysis", "serum laboratory values", "serum studies", "special test",
    "special tests", "urine tests", "x rays",
}  # fmt: skip
# Labels that say nothing beside the name of the examination.
_SILENT = {"finding", "findings", "result", "results", "level"}
_FIELDS = ("Patient_Actor", "Physical_Examination_Findings", "Test_Results", "Correct_Diagnosis")


def read_agentclinic(source: AgentClinicSource, data: Data, path: str | Path) -> tuple[list[CaseRecord], Funnel]:
    """Records of all usable cases of a ``.jsonl`` file (or the one such file of a folder), ordered by number.

    Cases have no number of their own: theirs is a digest of their content. Raises IngestError.
    """
    file, funnel = _file(Path(path)), Funnel("agentclinic")
    records: dict[str, CaseRecord] = {}
    for line, text in enumerate(read_utf8(file).split("\n"), 1):
        if not text.strip():
            continue
        funnel.read += 1
        case = _case(file, line, text)
        number = "agentclinic-" + hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()[:10]
        if number in records:
            funnel.drop("same case twice", number)
            continue
        record = _record(case, number, source.credentialed, funnel)
        if record is not None:
            records[number] = record
    return [records[number] for number in sorted(records)], funnel


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = sorted(path.glob("*.jsonl"))
    if len(files) != 1:
        raise IngestError(path, f"{len(files)} files *.jsonl in this folder", "give the path of one of them")
    return files[0]


def _case(path: Path, line: int, text: str) -> dict[str, Any]:
    case = parse_json(path, text, line)
    examination = case.get("OSCE_Examination") if isinstance(case, dict) else None
    if not isinstance(examination, dict):
        raise IngestError(path, "no object of this name", "use the data set as published",
                          line=line, field="OSCE_Examination")  # fmt: skip
    for name in _FIELDS:
        expected = str if name == "Correct_Diagnosis" else dict
        if not isinstance(examination.get(name), expected):
            problem = f"expected {'text' if expected is str else 'an object'}"
            raise IngestError(path, problem, "use the data set as published",
                              line=line, field=f"OSCE_Examination.{name}")  # fmt: skip
    return examination


def _record(case: Mapping[str, Any], number: str, credentialed: bool, funnel: Funnel) -> CaseRecord | None:
    results: dict[str, str] = {}
    for name, content in case["Physical_Examination_Findings"].items():
        _add(results, physical_key(readable(name)), content, funnel)
    for name, content in _examinations(case["Test_Results"]):
        _add(results, name, content, funnel)
    summary, diagnosis = _summary(case["Patient_Actor"]), one_line(case["Correct_Diagnosis"]).rstrip(".")
    rule = why_unusable(diagnosis, summary, results)
    if rule is not None:
        funnel.drop(rule, number)
        return None
    return CaseRecord(
        note_id=number,
        case_summary=summary,
        key_pertinent_results_dict=results,
        final_diagnosis=diagnosis,
        diagnosis_results=diagnosis,
        dataset="agentclinic",
        split="test",
        subject_key=number,
        credentialed=credentialed,
    )


def _summary(patient: Mapping[str, Any]) -> str:
    symptoms = patient.get("Symptoms")
    symptoms = symptoms if isinstance(symptoms, Mapping) else {"Primary_Symptom": symptoms}
    told = {name: content for name, content in symptoms.items() if name != "Primary_Symptom"}
    present = [patient.get("History"), told, patient.get("Review_of_Systems")]
    past = [patient.get(n) for n in ("Past_Medical_History", "Medications", "Current_Medications", "Drug_History")]
    return build_summary(
        {
            "Patient Information": _text(patient.get("Demographics")),
            "Chief Complaint": _text(symptoms.get("Primary_Symptom")),
            "History of Present Illness": " ".join(filter(None, map(_text, present))),
            "Past Medical History": " ".join(filter(None, map(_text, past))),
            "Personal History": _text(patient.get("Social_History")),
            "Family History": _text(patient.get("Family_History")),
            "Allergy History": _text(patient.get("Allergies") or patient.get("Allergy_History")),
        }
    )


def _examinations(tests: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Name and content of each examination; generic headings are opened."""
    for name, content in tests.items():
        if normalise(name) in _CONTAINERS and isinstance(content, Mapping) and _holds_names(content):
            yield from _examinations(content)
        else:
            yield readable(name), content


def _holds_names(content: Mapping[str, Any]) -> bool:
    return not all(normalise(name) in _SILENT for name in content)


def _add(results: dict[str, str], key: str, content: Any, funnel: Funnel) -> None:
    text = _text(content)
    if says_something(text):
        add_text(results, key, text)
        funnel.count("results", _leaves(content))
    else:
        funnel.count("entries without a result")


def _leaves(content: Any) -> int:
    return sum(map(_leaves, content.values())) if isinstance(content, Mapping) else 1


def _text(content: Any) -> str:
    """Any value as text: ``Label: value; ...`` for objects, ``a, b`` for lists."""
    if isinstance(content, Mapping):
        parts = []
        for name, inner in content.items():
            text = _text(inner)
            if text:
                parts.append(text if normalise(name) in _SILENT else f"{readable(name)}: {text}")
        return "; ".join(parts)
    if isinstance(content, (list, tuple)):
        return ", ".join(filter(None, map(_text, content)))
    return "" if content is None else one_line(str(content))


def readable(name: str) -> str:
    """``Chest_X-ray`` as ``Chest X-ray``."""
    return one_line(name.replace("_", " "))
