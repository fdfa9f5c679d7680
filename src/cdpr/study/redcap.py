"""The form for REDCap: a data dictionary (18 fixed columns) and one import file per rater, a record a proposal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..files import write_csv
from .blinding import Page
from .presentation import Presentation
from .rubric import rubric

COLUMNS = (
    "Variable / Field Name", "Form Name", "Section Header", "Field Type", "Field Label",
    "Choices, Calculations, OR Slider Labels", "Field Note", "Text Validation Type OR Show Slider Number",
    "Text Validation Min", "Text Validation Max", "Identifier?",
    "Branching Logic (Show field only if...)", "Required Field?", "Custom Alignment",
    "Question Number (surveys only)", "Matrix Group Name", "Matrix Ranking?", "Field Annotation",
)  # fmt: skip
_FORM = "rating"
_CHOICES = " | ".join(f"{value}, {value}" for value in range(1, 6))


def write(folder: Path, study: str, forms: Mapping[str, Sequence[Page]], presentation: Presentation) -> None:
    """Write ``dictionary.csv`` and ``import_<rater>.csv``."""
    write_csv(folder / "dictionary.csv", COLUMNS, _fields())
    header = ("record_id", "study", "rater", "state", "proposal", "patient", "proposed")
    for rater, pages in forms.items():
        rows = [dict(zip(header, (card.code, study, rater, number, card.letter, presentation.patient(page),
                                presentation.proposal(card)), strict=True))
                for number, page in enumerate(pages, 1) for card in page.cards]  # fmt: skip
        write_csv(folder / f"import_{rater}.csv", header, rows)


def _fields() -> list[dict[str, str]]:
    def field(name: str, kind: str, label: str, **more: str) -> dict[str, str]:
        row = {column: value for column, value in zip(COLUMNS, (name, _FORM, "", kind, label), strict=False)}
        return row | {column.replace("_", " "): value for column, value in more.items()}

    shut = {"Field Annotation": "@READONLY"}
    fields = [field("record_id", "text", "Code of the proposal")]
    for name, label in (("study", "Study"), ("rater", "Rater"), ("state", "State"), ("proposal", "Proposal")):
        fields.append(field(name, "text", label) | shut)
    for name, label in (("patient", "What is known of the patient"), ("proposed", "What is proposed")):
        fields.append(field(name, "notes", label) | shut)
    for dimension in rubric():
        meaning = " ".join(f"{value}: {text}" for value, text in dimension.anchors.items())
        fields.append(field(dimension.name, "radio", f"{dimension.title}: {dimension.asks} {meaning}") | {
            "Choices, Calculations, OR Slider Labels": _CHOICES, "Required Field?": "y",
            "Matrix Group Name": "rating_matrix"})  # fmt: skip
    return [*fields, field("comment", "notes", "Comment (no names, no dates)")]
