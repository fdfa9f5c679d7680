"""The case record (paper, appendix "Unified data format") that all packages read: its fields, JSONL files, and
splits."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from ..files import parse_yaml, read_json_lines, replacing, shipped_text

PHYSICAL_SUFFIX = " (Physical Examination)"
SECTIONS: tuple[str, ...] = tuple(parse_yaml(shipped_text(__package__, "data", "sections.yaml")))  # of a case summary


def is_physical(exam_key: str) -> bool:
    """Whether an examination is an item of the physical examination, which is free of charge: its key ends with
    ``(Physical Examination)``."""
    return exam_key.endswith(PHYSICAL_SUFFIX)


class CaseRecord(BaseModel, frozen=True, extra="forbid"):
    """One patient case: what is known at first (``case_summary``), the result of each examination by its key, and the
    true diagnosis: ``diagnosis_results`` is the primary one, ``final_diagnosis`` the source's whole text, which may
    list more. ``subject_key`` names the patient. ``credentialed``: the texts must not leave the machine.

    The fields from ``note_id`` to ``exam_cost_map`` have the paper's names (appendix, sample record). Prices are empty
    until the case is priced: ``exam_cost_map`` gives US dollars per examination key. Examinations with the same
    ``exam_billing_group`` are charged once per case together.
    """

    schema_version: Literal[1] = 1
    note_id: str = Field(min_length=1)
    case_summary: str = Field(min_length=1)
    key_pertinent_results_dict: dict[str, str]
    final_diagnosis: str
    diagnosis_results: str = Field(min_length=1)
    exam_cost_map: dict[str, Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]] = Field(default_factory=dict)
    exam_billing_group: dict[str, str] = Field(default_factory=dict)

    dataset: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    split: Literal["train", "validation", "test"]
    language: Literal["en", "zh"] = "en"
    subject_key: str = Field(min_length=1)
    credentialed: bool

    @property
    def name_in_errors(self) -> str:
        """The name of the case in error messages: "case" and its ``note_id``, or "a credentialed case" where not even
        that may be printed."""
        return "a credentialed case" if self.credentialed else f"case {self.note_id}"

    @model_validator(mode="after")
    def _prices_cover_the_results(self) -> Self:
        """Raise ValueError where the case has prices, but not for exactly the examinations that have results."""
        in_one_only = set(self.exam_cost_map) ^ set(self.key_pertinent_results_dict)
        if self.exam_cost_map and in_one_only:
            raise ValueError(f"exam_cost_map and key_pertinent_results_dict differ in {len(in_one_only)} names")
        return self


class RecordError(ValueError):
    """A file of case records that cannot be used. The message names the file, the line and the field, and quotes
    nothing of the file, because it may be clinical text under a data use agreement."""


def write_records(path: str | Path, records: Iterable[CaseRecord]) -> int:
    """Write records to the file ``path``, one JSON object a line, whole or not at all. Returns their number. Raises
    OSError where the file cannot be written."""
    count = 0
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as out:
        for record in records:
            out.write(json.dumps(record.model_dump(), ensure_ascii=False) + "\n")
            count += 1
    return count


def iterate_records(path: str | Path, split: str | None = None) -> Iterator[CaseRecord]:
    """Yield the records in a file (one JSON object a line), one by one: those of one ``split``, or all for None. Raises
    :class:`RecordError` at the first line that is no record or repeats a ``note_id``."""
    first_lines: dict[str, int] = {}
    for number, record in read_json_lines(path, CaseRecord, RecordError, ""):
        if record.note_id in first_lines:
            raise RecordError(f"{path}:{number}: its note_id is also in line {first_lines[record.note_id]}")
        first_lines[record.note_id] = number
        if split in (None, record.split):
            yield record


def split_by_subject(subjects: Sequence[str], sizes: Mapping[str, int], seed: int) -> dict[str, str]:
    """Assign each distinct subject (patient) to a split; returns split names by subject. ``subjects`` has one entry per
    case, ``sizes`` the wanted number of *cases* of each split.

    Subjects are ordered by a hash of ``seed`` and their key, so the assignment does not depend on the order of the
    input. A patient with several cases takes all of them along, so a split may exceed its size by the cases of its last
    patient. Subjects beyond the sizes get no split.
    """
    cases = Counter(subjects)
    order = iter(sorted(cases, key=lambda subject: hashlib.sha256(f"{seed}:{subject}".encode()).digest()))
    assigned: dict[str, str] = {}
    for name, size in sizes.items():
        filled = 0
        while filled < size and (subject := next(order, None)) is not None:
            assigned[subject] = name
            filled += cases[subject]
    return assigned
