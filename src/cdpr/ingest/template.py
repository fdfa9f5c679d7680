"""An example of a private export with two invented cases, to be filled in (``cdpr check_export --template``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..files import write_csv
from .error import IngestError
from .private import CASE_COLUMNS, RESULT_COLUMNS

_CASES: tuple[dict[str, Any], ...] = (
    {
        "case_id": "K-1",
        "patient_id": "P-1",
        "age": 47,
        "sex": "F",
        "chief_complaint": "Fever and cough",
        "present_illness": "Two days of chills, short of breath on stairs.",
        "past_history": "Raised blood pressure.",
        "personal_history": "Does not smoke.",
        "allergy_history": "None known.",
        "discharge_diagnosis": "Pneumonia",
        "results": [
            {"category": "lab", "examination": "FBC", "item": "WBC", "value": 15.2, "unit": "10^9/L",
             "reference_low": 4.0, "reference_high": 10.0, "flag": "H"},
            {"category": "lab", "examination": "FBC", "item": "Hb", "value": 131, "unit": "g/L",
             "reference_low": 120, "reference_high": 160},
            {"category": "lab", "examination": "CRP", "item": "CRP", "value": "96", "unit": "mg/L",
             "reference_high": 5, "flag": "H"},
            {"category": "culture", "examination": "Blood Culture", "report": "No growth after five days."},
            {"category": "imaging", "examination": "Chest Film", "report": "Patchy opacity in the right lower lobe."},
            {"category": "physical", "examination": "Lungs", "report": "Crackles at the right base."},
        ],
    },
    {
        "case_id": "K-2",
        "patient_id": "P-2",
        "age": 31,
        "sex": "M",
        "chief_complaint": "Pain in the lower belly",
        "present_illness": "Since last night, moved from the navel to the right; no appetite.",
        "family_history": "Nothing of note.",
        "discharge_diagnosis": "Acute appendicitis",
        "results": [
            {"category": "lab", "examination": "FBC", "item": "WBC", "value": 13.8, "unit": "10^9/L",
             "reference_low": 4.0, "reference_high": 10.0, "flag": "H"},
            {"category": "lab", "examination": "Urine Dipstick", "item": "Leucocytes", "value": "negative"},
            {"category": "imaging", "examination": "Ultrasound Abdomen",
             "report": "Tubular structure of 9 mm in the right lower belly that does not compress."},
            {"category": "procedure", "examination": "ECG", "report": "Regular rhythm, rate 92."},
            {"category": "physical", "examination": "Abdomen", "report": "Tender in the right lower quadrant."},
        ],
    },
)  # fmt: skip


def write_template(folder: str | Path) -> list[Path]:
    """Write ``cases.csv``, ``results.csv`` and, as the other layout, ``jsonl/cases.jsonl``; returns their paths.

    Raises IngestError rather than overwrite a file.
    """
    folder = Path(folder)
    cases, results, objects = folder / "cases.csv", folder / "results.csv", folder / "jsonl" / "cases.jsonl"
    for path in (cases, results, folder / "cases.jsonl", objects):
        if path.exists():
            raise IngestError(path, "stands there already", "give a new folder")
    objects.parent.mkdir(parents=True, exist_ok=True)
    write_csv(cases, CASE_COLUMNS, [{name: case.get(name, "") for name in CASE_COLUMNS} for case in _CASES])
    rows = [
        {"case_id": case["case_id"], "sequence": number} | result
        for case in _CASES
        for number, result in enumerate(case["results"], 1)
    ]
    write_csv(results, RESULT_COLUMNS, rows)
    objects.write_text("".join(json.dumps(case, ensure_ascii=False) + "\n" for case in _CASES), encoding="utf-8")
    return [cases, results, objects]
