"""The unified case record: validation, JSONL files, patient-level splits, names of things."""

from .imaging import imaging_words
from .io import RecordError, iterate_records, write_records
from .record import PHYSICAL_SUFFIX, SECTIONS, CaseRecord, is_physical
from .results import Analyte, format_analytes, parse_analytes
from .split import split_by_subject
from .vocabulary import Term, Vocabulary, diagnoses, examinations, leading_disease, normalise

__all__ = [
    "PHYSICAL_SUFFIX", "SECTIONS", "Analyte", "CaseRecord", "RecordError", "Term", "Vocabulary", "diagnoses",
    "examinations", "format_analytes", "imaging_words", "is_physical", "iterate_records", "leading_disease",
    "normalise", "parse_analytes", "split_by_subject", "write_records",
]  # fmt: skip
