"""Case records (validation, JSONL files, splits by patient), and the meaning of names of examinations and diagnoses."""

# ruff: noqa: F401

from .imaging import imaging_words, modality
from .naming import PHYSICAL, VITAL_SIGNS, Meaning, class_of, meaning, names_no_place, no_examination, whole_kind
from .patterns import Patterns, fill
from .record import PHYSICAL_SUFFIX, SECTIONS, CaseRecord, RecordError, is_physical, iterate_records, write_records
from .results import Analyte, format_analytes, parse_analytes
from .vocabulary import Term, Vocabulary, diagnoses, examinations, leading_disease, normalise, singular
