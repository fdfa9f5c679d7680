"""Records on disk, splits by patient, laboratory text."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdpr.cases import (
    Analyte,
    RecordError,
    format_analytes,
    iterate_records,
    parse_analytes,
    write_records,
)
from cdpr.cases.record import CaseRecord, split_by_subject

word = st.from_regex(r"[A-Z][A-Za-z]{0,8}( [A-Z][a-z]{1,5})?", fullmatch=True)
number = st.integers(0, 5000).map(lambda n: n / 10)


def test_records_survive_the_disk(case, tmp_path):
    other = case.model_copy(update={"note_id": "T-2", "case_summary": "- Chief Complaint: 胸痛\n"})
    path = tmp_path / "cases.jsonl"
    assert write_records(path, [case, other]) == 2
    assert list(iterate_records(path)) == [case, other]


def test_one_split_is_read_as_all_would_be_whatever_the_texts_say(case, tmp_path):
    texts = ["plain", 'said "split": "train" in a text', '"split":"validation"']
    records = [case.model_copy(update={"note_id": f"T-{split}-{k}", "split": split, "case_summary": text})
               for k, text in enumerate(texts) for split in ("train", "validation", "test")]  # fmt: skip
    write_records(path := tmp_path / "cases.jsonl", records)
    for split in ("train", "validation", "test"):
        assert list(iterate_records(path, split)) == [record for record in records if record.split == split]
    unordered = [dict(reversed(record.model_dump().items())) for record in records]  # the split comes first
    path.write_text("".join(json.dumps(record) + "\n" for record in unordered))
    assert list(iterate_records(path, "test")) == [record for record in records if record.split == "test"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"splti": "train"}, r":2: field 'record': Extra inputs"),
        ({"split": "dev"}, r":2: field 'split'"),
        ({"note_id": "T-1"}, r":2: its note_id is also in line 1"),
        ({"exam_cost_map": {"Lipase": -1}}, r":2: field 'exam_cost_map': .* 0"),
        ({"exam_cost_map": {"Lipase": 1.0}}, r":2: field 'record'.*differ"),
    ],
)
def test_a_bad_record_is_named_by_file_line_and_field(case, tmp_path, change, message):
    path = tmp_path / "cases.jsonl"
    lines = [case.model_dump(), {**case.model_dump(), "note_id": "T-2", **change}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RecordError, match=r"cases\.jsonl" + message):
        list(iterate_records(path))


def test_damaged_files_are_named(case, tmp_path):
    path = tmp_path / "cases.jsonl"
    write_records(path, [case])
    path.write_text(path.read_text()[:-40])
    with pytest.raises(RecordError, match=r"cases\.jsonl:1: not JSON"):
        list(iterate_records(path))
    path.write_bytes(b"\xff\xfe{}\n")
    with pytest.raises(RecordError, match=r"cases\.jsonl:1: not UTF-8"):
        list(iterate_records(path))


def test_a_failed_write_leaves_what_was_there(case, tmp_path):
    path = tmp_path / "cases.jsonl"
    write_records(path, [case])

    def broken():
        yield case
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError):
        write_records(path, broken())
    assert list(iterate_records(path)) == [case] and list(tmp_path.iterdir()) == [path]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=80), st.integers(0, 3))
def test_no_patient_stands_on_two_sides_and_order_does_not_matter(numbers, seed):
    subjects = [f"p{n}" for n in numbers]
    sizes = {"test": 5, "validation": 3, "train": 20}
    assigned = split_by_subject(subjects, sizes, seed)
    shuffled = random.Random(seed).sample(subjects, len(subjects))
    assert split_by_subject(shuffled, sizes, seed) == assigned


def test_splits_have_their_sizes_in_cases():
    sizes = {"test": 5, "validation": 3, "train": 20}
    alone = split_by_subject([f"p{n}" for n in range(30)], sizes, 0)
    assert {side: list(alone.values()).count(side) for side in sizes} == sizes
    twice = split_by_subject([f"p{n // 2}" for n in range(80)], sizes, 0)
    assert [2 * list(twice.values()).count(side) for side in sizes] == [6, 4, 20]


@given(
    st.lists(st.builds(Analyte, word, number.map(str), st.sampled_from(["mg/dL", None]), number, number), max_size=5)
)
def test_laboratory_text_is_read_back(analytes):
    assert parse_analytes(format_analytes(analytes)) == analytes


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("12.5", 12.5), ("-3", -3), (">5.0", 5), ("≤ 0.5 mg/dL", 0.5), ("13.5 H", 13.5), ("2E5", 2e5), ("15%", 15),
        ("4.5 x10⁹/L", 4.5), ("10⁵", None), ("3.2 x 10^5", None), ("2 x 10 CFU", None), ("1:160", None),
        ("3-5", None), ("120/80", None), ("2+", None), ("5½", None), ("1,200", None), ("1 in 40", None),
        ("Type 2", None), ("Hazy", None),
    ],
)  # fmt: skip
def test_a_value_is_the_number_that_it_says_or_none(value, number):
    assert Analyte("A", value).number == number
    assert Analyte("A", comments=f"{value}. Verified.").number == number


def test_levels():
    assert Analyte("A", "1:160", low=0, high=80).level is None
    assert Analyte("A", "10⁵", low=100, high=1000).level is None
    assert Analyte("A", "1.0", low=2, high=3).level == "low"
    assert Analyte("A", ">5.0", low=2, high=3).level == "high"
    assert Analyte("A", None, low=2, high=3, comments="2.5.").level == "normal"
    assert Analyte("A", "NEG").level == "normal"
    assert Analyte("A", "POS", flag="abnormal").level == "abnormal"
    assert Analyte("A", "Hazy").level is None


@pytest.mark.parametrize("field", list(CaseRecord.model_fields))
def test_an_error_about_a_damaged_record_names_line_and_field_and_quotes_nothing(case, tmp_path, field):
    """Identifiers and names of examinations stay in the file: it may be credentialed."""
    content = case.model_dump() | {"credentialed": True, "note_id": "zqnumber", "subject_key": "zqpatient"}
    content["key_pertinent_results_dict"] = {"zqexam": "zqresult"}
    content["exam_cost_map"], content["exam_billing_group"] = {"zqexam": 1.0}, {}
    path = tmp_path / "cases.jsonl"
    nested = {"zqexam": ["zqwrong"], "zqother": "zqwrong"}
    damaged = [content | {field: value} for value in (["zqwrong"], nested, "zq wrong", None)]
    damaged += [content | {"zqfield": 1}, content | {"exam_cost_map": {"zqother": 1.0}}]
    for one in damaged:
        path.write_text(json.dumps(one) + "\n")
        try:
            [*iterate_records(path)]
        except RecordError as error:
            assert str(error).startswith(f"{path}:1: field ") and "zq" not in str(error).replace(str(path), "")
    path.write_text(2 * (json.dumps(content) + "\n"))
    with pytest.raises(RecordError, match=r":2: its note_id is also in line 1$"):
        [*iterate_records(path)]
