"""Data cards, leak-controlled variants, and the table that sets benchmarks beside them."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from toy import CALL_COUNTS

from cdpr.cases import SECTIONS, CaseRecord, iterate_records, write_records
from cdpr.costs import charge
from cdpr.costs.price import COVERAGE_COLUMNS, POOLED, whole_record_usd
from cdpr.evaluation.metrics import EvaluationError
from cdpr.files import write_csv
from cdpr.ingest.attrition import RULES, Attrition
from cdpr.ingest.draft import build_summary, controlled, parse_summary, remove_leaks
from cdpr.job import Job
from cdpr.report import checks
from cdpr.report.data_card import (
    FEWEST_PATIENTS,
    CardError,
    frequent_diagnoses,
    kind_of,
    leak_rows,
    read_report,
    write_data_card,
)
from cdpr.report.methods import notices
from cdpr.settings import parse_settings

SENTINEL = "Quizzaciously"
SUMMARY = "- Patient Information: 30 year old male\n- Chief Complaint: Abdominal pain"


def changed(case: CaseRecord, **fields) -> CaseRecord:
    return CaseRecord.model_validate(case.model_dump() | fields)


def write_inputs(folder: Path, cases: list[CaseRecord], **report) -> Job:
    """The job of a data card over cases of the split ``test``."""
    write_records(folder / "cases.jsonl", cases)
    plain = Attrition("private", read=len(cases), kept=len(cases), splits={"test": len(cases)}).report()
    told = plain.model_dump() | report
    (folder / "report.json").write_text(json.dumps(told))
    rows = [{"exam_key": "Lipase", "cases": len(cases), "names": 1, "examination": "Lipase", "hcpcs": "83690",
             "price_usd": 6.89, "how": "name", "confidence": "exact"},
            {"exam_key": POOLED, "cases": 2, "names": 1, "price_usd": 5.0, "how": "fallback"}]  # fmt: skip
    write_csv(folder / "coverage.csv", COVERAGE_COLUMNS, rows)
    inputs = {name: folder / f"{name}.{kind}" for name, kind in
              (("cases", "jsonl"), ("report", "json"), ("coverage", "csv"))}  # fmt: skip
    out = {kind: folder / "out" / f"private.{kind}" for kind in ("md", "json")}
    return Job("data_card", "0" * 16, inputs, out, options={"dataset": "private"})


@pytest.fixture
def hospital(case) -> list[CaseRecord]:
    """Credentialed cases with a word in every place that no report may show; one diagnosis of five patients, one of
    four patients in six cases."""
    results = case.key_pertinent_results_dict | {f"{SENTINEL} scan": f"A {SENTINEL} sign."}
    prices = case.exam_cost_map | {f"{SENTINEL} scan": 5.0}
    patients = [*("abcde"), *("fghiii")]
    return [
        changed(
            case, note_id=f"{SENTINEL}-{number}", subject_key=f"{SENTINEL} {patient}", credentialed=True, split="test",
            case_summary=f"{SUMMARY} and {SENTINEL}", key_pertinent_results_dict=results, exam_cost_map=prices,
            diagnosis_results="Acute appendicitis" if number < 5 else f"{SENTINEL} syndrome",
        )
        for number, patient in enumerate(patients)
    ]  # fmt: skip


@given(st.lists(st.sampled_from(RULES), max_size=40), st.integers(0, 5))
def test_the_attrition_adds_up(tmp_path_factory, dropped, kept):
    attrition = Attrition("private", read=len(dropped) + kept, kept=kept)
    for number, rule in enumerate(dropped):
        attrition.drop(rule, f"case {number}")
    path = tmp_path_factory.mktemp("report") / "report.json"
    path.write_text(attrition.report().model_dump_json())
    told = read_report(path)
    assert told.read - sum(told.dropped.values()) == told.kept == kept
    found = {row["leak"]: row["found"] for row in leak_rows(told)}
    for rule in ("diagnosis established before", "diagnosis stated in the summary", "diagnosis of a relative"):
        assert found.get(rule, 0) == dropped.count(rule)
    path.write_text(json.dumps(told.model_dump() | {"kept": kept + 1}))
    with pytest.raises(CardError, match="cases read less those dropped"):
        read_report(path)


@given(st.lists(st.tuples(st.sampled_from(["", "A", "B"]), st.integers(1, 900)), min_size=1, max_size=8))
def test_a_whole_record_costs_what_ordering_all_of_it_costs(members):
    groups = {f"exam {i}": group for i, (group, _) in enumerate(members) if group}
    of_group = {"A": 7.5, "B": 20.25}
    prices = {f"exam {i}": of_group.get(group, price / 4) for i, (group, price) in enumerate(members)}
    record = CaseRecord(note_id="1", case_summary="-", key_pertinent_results_dict=dict.fromkeys(prices, "x"),
                        final_diagnosis="d", diagnosis_results="d", exam_cost_map=prices, exam_billing_group=groups,
                        dataset="private", split="test", subject_key="s", credentialed=False)  # fmt: skip
    keys = list(prices)
    assert whole_record_usd(record) == sum(charge(record, keys[:i], key) for i, key in enumerate(keys))


def test_a_card_of_credentialed_cases_shows_no_text_and_no_rare_name(tmp_path, hospital, capsys):
    job = write_inputs(tmp_path, hospital)
    write_data_card(parse_settings({"data": {"private": {"path": "/x", "credentialed": True}}}), job)
    card = json.loads(job.out["json"].read_text())
    shown = job.out["md"].read_text() + json.dumps(card) + capsys.readouterr().out + repr(job.metrics)
    assert SENTINEL not in shown and SENTINEL.lower() not in shown.lower()
    assert card["diagnoses"] == {
        "distinct": 2,
        "named": [{"diagnosis": "Acute appendicitis", "cases": 5}],
        "others": {"diagnoses": 1, "cases": 6},
    }
    assert card["splits"] == [{"split": "test", "patients": 9, "cases": 11}]
    assert [row["how"] for row in card["prices"]["by_how"]] == ["name", "fallback"]
    first = {name: path.read_bytes() for name, path in job.out.items()}
    write_data_card(parse_settings({"data": {"private": {"path": "/x", "credentialed": True}}}), job)
    assert {name: path.read_bytes() for name, path in job.out.items()} == first


_NAMES = ("Cellulitis", "Acute appendicitis", "Stroke", "A name of the source")


@given(
    st.dictionaries(st.sampled_from(_NAMES), st.lists(st.sampled_from("1234567"), min_size=1, max_size=12), min_size=1)
)
@example({"Stroke": list("111112"), "Cellulitis": list("12345"), "A name of the source": list("1234567")})
def test_names_of_few_patients_are_pooled_and_no_case_is_lost(diagnosed):
    rows = [(name, patient) for name, patients in diagnosed.items() for patient in patients]
    frame = pd.DataFrame(rows, columns=["diagnosis", "patient"])
    found = frequent_diagnoses(frame, pooled=True)
    enough = {name for name, patients in diagnosed.items() if len(set(patients)) >= FEWEST_PATIENTS}
    assert {row["diagnosis"] for row in found["named"]} == enough - {"A name of the source"}
    cases = sum(row["cases"] for row in found["named"]) + found["others"]["cases"]
    assert cases == sum(map(len, diagnosed.values()))
    assert len(frequent_diagnoses(frame, pooled=False)["named"]) == len(diagnosed)


def test_a_card_refuses_what_does_not_hold_together(tmp_path, hospital):
    settings = parse_settings({"data": {"private": {"path": "/x", "credentialed": True}}})
    with pytest.raises(CardError, match="1 patients are in more than one split"):
        torn = [changed(hospital[-1], split="train"), *hospital[:-1]]
        write_data_card(settings, write_inputs(tmp_path, torn, splits={"train": 1, "test": 10}))
    with pytest.raises(CardError, match="ingest and price the data set again"):
        write_data_card(settings, write_inputs(tmp_path, hospital, read=12, kept=12))
    with pytest.raises(CardError, match="field 'exam_cost_map' is empty"):
        write_data_card(settings, write_inputs(tmp_path, [changed(hospital[0], exam_cost_map={})]))


def test_kinds_come_from_the_vocabulary_or_the_code():
    assert kind_of("Abdominal (Physical Examination)") == "physical"
    assert kind_of("Complete Blood Count") == "laboratory"
    assert kind_of("Odd name", "Chest X-Ray") == "imaging"
    assert [kind_of("Odd name", "", code) for code in ("87086", "83690", "74177", "93000", "")] == [
        "microbiology", "laboratory", "imaging", "other", "other"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(SECTIONS), st.text(max_size=60)))
def test_a_summary_is_read_as_it_was_built(sections):
    summary = build_summary(sections)
    assert not summary or build_summary(parse_summary(summary)) == summary


def test_a_planted_leak_is_gone_from_the_variant_and_prices_still_fit(tmp_path, case):
    told = "- History of Present Illness: Pain since yesterday. Acute Appendicitis was suspected. CT was positive."
    results = case.key_pertinent_results_dict | {
        "CT Abdomen and Pelvis": "Fat stranding. Impression: acute appendicitis.",
        "Platelet Count": "Acute appendicitis.",
    }
    leaky = changed(case, split="test", case_summary=f"{SUMMARY}\n{told}", key_pertinent_results_dict=results)
    bare = changed(leaky, note_id="T-2", case_summary="- Chief Complaint: Acute appendicitis")
    unread = changed(leaky, note_id="T-3", split="train")
    nothing = changed(leaky, note_id="T-4", key_pertinent_results_dict={"Lipase": "Appendicitis."},
                      exam_cost_map={"Lipase": 6.89}, exam_billing_group={})  # fmt: skip
    write_records(tmp_path / "cases.jsonl", [leaky, bare, unread, nothing])
    out = {"controlled": tmp_path / "controlled.jsonl", "report": tmp_path / "report.json"}
    remove_leaks(parse_settings({}), Job("remove_leaks", "0" * 16, {"cases": tmp_path / "cases.jsonl"}, out,
                                              options={"dataset": "private"}))  # fmt: skip
    (kept,) = iterate_records(out["controlled"])
    text = f"{kept.case_summary} {kept.key_pertinent_results_dict}"
    assert "appendicitis" not in text.lower() and "CT was positive" not in text and "Pain since yesterday." in text
    assert kept.key_pertinent_results_dict["CT Abdomen and Pelvis"] == "Fat stranding."
    assert "Platelet Count" not in kept.key_pertinent_results_dict
    assert kept.exam_cost_map == {e: case.exam_cost_map[e] for e in kept.key_pertinent_results_dict}
    assert kept.exam_billing_group == {"Complete Blood Count": "CBC_PANEL"}
    assert whole_record_usd(kept) == whole_record_usd(leaky)
    told = json.loads(out["report"].read_text())
    assert (told["read"], told["kept"], told["splits"]) == (3, 1, {"test": 1})
    assert told["dropped"] == {"no complaint and no present illness": 1, "no examination": 1}


def test_controlling_twice_changes_nothing_more(case):
    once = controlled(changed(case, split="test"), Attrition("private"))
    assert controlled(once, Attrition("private")) == once


def test_benchmark_and_variant_are_compared_on_the_cases_in_both(tmp_path):
    settings = parse_settings({"seeds": [0], "evaluation": {"bootstrap": 50, "decodings": ["greedy"]}})

    def rows(dataset: str, right: dict[int, bool]) -> None:
        path = tmp_path / "evaluations" / "warm_start" / f"{dataset}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        counts = dict.fromkeys(
            ("turns", "n_issued", "n_available", "n_unavailable", "n_invalid", "n_repeated", "n_physical", "n_tests",
             "n_na"), 0)  # fmt: skip
        common = {
            "decoding": "greedy",
            "diagnosis": "a",
            "gold": "b",
            "cost_usd": 2.0,
            "utility": 0.0,
            "forced": False,
            **CALL_COUNTS,
        }
        lines = [{"note_id": f"c{n}", "correct": correct, **common, **counts} for n, correct in right.items()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    rows("private", {n: True for n in range(10)})
    rows("private_controlled", {n: n >= 4 for n in range(2, 10)})
    written = {f".{kind}": tmp_path / f"leak_control.{kind}" for kind in ("csv", "md", "tex")}
    job = Job("leak_control", "0" * 16, {"results": tmp_path}, {k.strip("."): path for k, path in written.items()})
    checks.sheet_leak_control(settings, job.inputs["results"]).write(job.out)
    with written[".csv"].open(newline="") as lines:
        table = {(row["method"], row["dataset"]): row for row in csv.DictReader(lines)}
    row = table["warm_start", "private"]
    assert (row["cases"], float(row["accuracy"]), float(row["accuracy_controlled"])) == ("8", 1.0, 0.75)
    assert " 0:2 " in written[".md"].read_text()  # of the eight cases that both hold, two changed
    assert float(row["accuracy_change"]) == -0.25 and float(row["accuracy_change_low"]) < -0.25
    assert table["warm_start", "mimic_iv"]["status"].startswith("missing: evaluations/warm_start/mimic_iv.jsonl")
    assert all(name in written[".tex"].read_text() for name in ("GRPO", "All-tests"))
    rows("private_controlled", {99: True})
    with pytest.raises(EvaluationError, match="1 cases of the leak-controlled variant are not in the benchmark"):
        checks.sheet_leak_control(settings, job.inputs["results"]).write(job.out)


def test_the_notice_stands_where_clinicalbench_itself_is_used():
    assert notices(parse_settings({})) == []
    (notice,) = notices(parse_settings({"data": {"clinicalbench": {"path": "/x"}}}))
    assert "Evaluated using ClinicalBench" in notice and "2406.13890" in notice
