"""The unified case record: validation, JSONL files, patient-level splits, names of things."""

from .imaging import imaging_words, modality
from .naming import (
    PHYSICAL,
    VITAL_SIGNS,
    MatchKind,
    Meaning,
    class_of,
    meaning,
    names_no_place,
    no_examination,
    quantity_words,
    whole_kind,
)
from .record import (
    PHYSICAL_SUFFIX,
    SECTIONS,
    CaseRecord,
    RecordError,
    is_physical,
    iterate_records,
    split_by_subject,
    write_records,
)
from .results import Analyte, format_analytes, parse_analytes
from .vocabulary import Term, Vocabulary, diagnoses, examinations, leading_disease, normalise

__all__ = [
    "PHYSICAL",
    "PHYSICAL_SUFFIX",
    "SECTIONS",
    "VITAL_SIGNS",
    "Analyte",
    "CaseRecord",
    "MatchKind",
    "Meaning",
    "RecordError",
    "Term",
    "Vocabulary",
    "class_of",
    "diagnoses",
    "examinations",
    "format_analytes",
    "imaging_words",
    "is_physical",
    "iterate_records",
    "leading_disease",
    "meaning",
    "modality",
    "names_no_place",
    "no_examination",
    "normalise",
    "parse_analytes",
    "quantity_words",
    "split_by_subject",
    "whole_kind",
    "write_records",
]
