"""The preflight: what there is to learn, what can be shown of it, and what is said of both."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toy import CALL_COUNTS

from cdpr.agents.reference import ReferenceAgent, ValueOfInformation, ZeroTest
from cdpr.cases import PHYSICAL_SUFFIX, CaseRecord, format_analytes, write_records
from cdpr.environment import DiagnosticEnvironment, run_episodes
from cdpr.evaluation.evaluate_agent import evaluation_row
from cdpr.evaluation.preflight import (
    accuracy_at_spend,
    check_headroom,
    exact_accuracy,
    judge_experiment,
    list_obstacles,
    measure_headroom,
    measure_resolution,
)
from cdpr.evaluation.row import EvaluationRow
from cdpr.evaluation.significance import crossed_bootstrap, percentile_interval, smallest_difference, standard_error
from cdpr.hospital.model import load_hospital
from cdpr.hospital.sample import physical_text, sample_patient, write_analytes, write_history, write_report
from cdpr.job import Job
from cdpr.llm.agent_model import Meter
from cdpr.report.checks import sheet_headroom
from cdpr.settings import parse_settings
from cdpr.settings.datasets import BENCHMARKS

SETTINGS = parse_settings({"seeds": [0, 1, 2]})
UNKNOWN = "only the synthetic hospital knows the exact posterior"


def a_case(index: int) -> CaseRecord:
    """A test case of the in-domain hospital, with its physical and laboratory examinations and imaging."""
    hospital = load_hospital()
    site, patient = hospital.site("mimic_iv"), sample_patient(hospital, hospital.site("mimic_iv"), 5, index)
    offered = [exam for exam in hospital.examinations.values() if exam.name in patient.available]
    results = {exam.name: write_report(exam, site, patient) for exam in offered if exam.kind == "imaging"}
    results |= {exam.name: format_analytes(write_analytes(exam, site, patient))
                for exam in offered if exam.kind == "laboratory"}  # fmt: skip
    disease = hospital.diseases[patient.disease].name
    results |= {exam.name + PHYSICAL_SUFFIX: physical_text(exam, site, patient)
                for exam in offered if exam.kind == "physical"}  # fmt: skip
    lines = [f"- {line}: {text}" for line, text in write_history(hospital, site, patient).items()]
    return CaseRecord(
        note_id=f"T-{index}", case_summary="\n".join(lines), final_diagnosis=disease,
        key_pertinent_results_dict=results, diagnosis_results=disease, exam_cost_map=dict.fromkeys(results, 9.0),
        exam_billing_group={}, dataset="mimic_iv", split="test", subject_key=f"p{index}", credentialed=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def cases() -> list[CaseRecord]:
    return [a_case(index) for index in range(40)]


@pytest.fixture(scope="module")
def references(cases) -> tuple[list[EvaluationRow], list[EvaluationRow]]:
    """Workups of value of information, and without examinations."""
    best, none = (workups(kind(SETTINGS), cases) for kind in (ValueOfInformation, ZeroTest))
    return best, none


def workups(agent: ReferenceAgent, cases: list[CaseRecord]) -> list[EvaluationRow]:
    done = asyncio.run(run_episodes(DiagnosticEnvironment(SETTINGS.environment), agent, cases, 0))
    return [evaluation_row(SETTINGS, agent, workup, "greedy", Meter()) for workup in done]


def rows(right: list[int], *, decoding: str = "greedy", cost: float = 0.0, tests: int = 0) -> list[EvaluationRow]:
    """A row per case: right or wrong, so many examinations at so much in all, a disease of its own."""
    return [
        EvaluationRow(
            note_id=f"T-{k}", decoding=decoding, correct=bool(one), diagnosis="", gold=f"disease {k}", turns=1 + tests,
            n_issued=tests, n_available=tests, n_unavailable=0, n_invalid=0, n_repeated=0, n_physical=0, n_tests=tests,
            n_na=0, cost_usd=cost, utility=one - 0.05 * tests - cost / 350, forced=False, **CALL_COUNTS,
        )
        for k, one in enumerate(right)
    ]  # fmt: skip


def frame(lines: list[EvaluationRow]) -> pd.DataFrame:
    """The rows as :func:`~cdpr.evaluation.metrics.read_evaluation` gives them."""
    return pd.DataFrame([line.model_dump() for line in lines])


# How small a difference can be shown


@pytest.mark.parametrize(
    ("cases", "seeds", "seed_sd"), [(1000, 2, 0.005), (200, 3, 0.03), (200, 5, 0.02), (100, 8, 0.0)]
)
def test_the_tables_interval_finds_the_smallest_difference_in_four_of_five_experiments(cases, seeds, seed_sd):
    """Whole experiments are drawn, answer by answer. One method is the better on half of the cases and the worse on the
    others, whatever the seed; training moves all cases of a seed together; the rest is chance."""
    rng, repeats, advantage = np.random.default_rng(1), 400, 0.2
    of_cases, of_chance = advantage**2, 0.5 - advantage**2 / 2
    v = of_cases + of_chance
    true = smallest_difference(cases, seeds, v, of_cases / v, seed_sd)
    side = rng.choice([-1, 1], size=(repeats, 1, cases)) * advantage / 2
    answers = []
    for sign in (1, -1):
        trained = sign * true / 2 + seed_sd * rng.standard_normal((repeats, seeds, 1))
        answers.append(rng.random((repeats, seeds, cases)) < 0.5 + sign * side + trained)
    differences = answers[0].astype(float) - answers[1]
    error = standard_error(cases, seeds, v, of_cases / v, seed_sd)
    assert differences.mean(axis=(1, 2)).std() == pytest.approx(error, rel=0.12)
    lows = [
        percentile_interval(crossed_bootstrap(one[:, :, None], 400, k)[:, 0])[0] for k, one in enumerate(differences)
    ]
    assert (np.array(lows) > 0).mean() == pytest.approx(0.8, abs=0.05)


def test_one_seed_can_show_nothing():
    assert smallest_difference(1000, 1, 0.2, 0.5, 0.0) is None
    greedy, sampled = rows([1, 1, 0, 0]), rows([1, 0, 1, 0], decoding="sampled")
    one_seed = measure_resolution([frame(greedy), frame(sampled)], 1)
    assert (one_seed["least_accuracy"], one_seed["least_utility"]) == (None, None)
    assert "every comparison stays open" in list_obstacles(measured() | one_seed)[0]


def test_no_experiment_without_cases_or_seeds():
    for cases, seeds, share in ((0, 1, 0.5), (1, 0, 0.5), (1, 1, 1.5)):
        with pytest.raises(ValueError, match=f"got {cases}, {seeds} and {share}"):
            standard_error(cases, seeds, 0.2, share, 0.01)


def test_variances_are_those_of_pairs_of_workups():
    greedy = rows([1, 1, 0, 0])
    sampled = rows([1, 0, 1, 0], decoding="sampled")[::-1]  # pairs are found by case, not by place
    greedy, sampled = frame(greedy), frame(sampled)
    found = measure_resolution([greedy, sampled], 3)
    assert (found["accuracy_variance"], found["seeds"]) == (pytest.approx(2 / 3), 3)
    assert measure_resolution([greedy], 3)["accuracy_variance"] == pytest.approx(2 / 3)
    assert measure_resolution([greedy, greedy], 3)["accuracy_variance"] == 0.0
    assert measure_resolution([greedy, sampled], 30)["least_accuracy"] < found["least_accuracy"]


# What there is to learn


def test_whoever_reads_by_the_posterior_makes_no_reading_errors(cases, references, tmp_path):
    write_records(tmp_path / "cases.jsonl", cases)
    best, none = references
    frames = [frame(best), frame(none)]
    exact = exact_accuracy(SETTINGS, "mimic_iv", tmp_path / "cases.jsonl", frames[0])
    assert exact == measure_headroom(*frames, SETTINGS.utility, exact, frames)["accuracy"]
    assert exact > exact_accuracy(SETTINGS, "mimic_iv", tmp_path / "cases.jsonl", frames[1]) + 0.1

    misread = frame([row.model_copy(update={"correct": False}) for row in best])
    found = measure_headroom(misread, frame(none), SETTINGS.utility, exact, frames)
    assert (found["reading"], found["choice"], found["gain"]) == (pytest.approx(exact), 0.0, pytest.approx(exact))


def test_value_of_information_spends_no_more_than_it_is_given():
    best, none = frame(rows([1] * 8 + [0] * 2, cost=20.0, tests=2)), frame(rows([1] * 2 + [0] * 8))
    more, worse = frame(rows([1] * 9 + [0], cost=40.0, tests=3)), frame(rows([1] * 3 + [0] * 7, cost=10.0, tests=1))
    spends = (0.0, 10.0, 20.0, 30.0, 70.0)
    assert [accuracy_at_spend(usd, [best, none]) for usd in spends] == pytest.approx([0.2, 0.5, 0.8, 0.8, 0.8])
    assert [accuracy_at_spend(usd, [best, none, more, worse]) for usd in spends] == pytest.approx(
        [0.2, 0.5, 0.8, 0.85, 0.9]
    ), "what lies below a mixture of others adds nothing"
    with pytest.raises(ValueError):
        accuracy_at_spend(5.0, [best])


def test_a_headroom_by_hand():
    weights = SETTINGS.utility
    acting, never = frame(rows([1] * 5 + [0] * 5, cost=14.0, tests=2)), frame(rows([1] * 2 + [0] * 8))
    found = measure_headroom(acting, never, weights, 0.6, [frame(rows([1] * 9 + [0], cost=7.0, tests=1)), never])
    assert [found[name] for name in ("accuracy", "immediate", "at_once", "chance")] == [0.5, 0.2, 0.0, 0.1]
    assert [found[name] for name in ("reading", "choice", "gain")] == pytest.approx([0.1, 0.3, 0.4])
    assert found["cost_to_test"] == pytest.approx(0.02 * 14 / weights.cost_unit_usd / (0.05 * 2))
    # value of information: .9 - .05 - .02; the policy: .5 - .10 - .04; .1 of the difference are reading errors
    assert found["choice_utility"] == pytest.approx(0.83 - 0.36 - 0.1)
    unknown = measure_headroom(acting, never, weights)
    assert {unknown[name] for name in ("exact", "reading", "choice", "gain", "choice_utility")} == {None}
    assert measure_headroom(never, never, weights)["cost_to_test"] is None


# What is said of it


def measured(**changes) -> dict:
    """A policy that leaves enough to learn, and leaves it to the choice of examinations."""
    row = {"dataset": "mimic_iv", "decoding": "greedy", "cases": 1000, "accuracy": 0.6, "at_once": 0.1, "chance": 0.05,
           "exact": 0.62, "choice": 0.13, "choice_utility": 0.28, "seeds": 3, "least_accuracy": 0.04,
           "least_utility": 0.05}  # fmt: skip
    return row | changes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"at_once": 0.95}, ["spending has collapsed, 95% of the cases"]),
        ({"accuracy": 0.11}, ["is near chance (11.0% right"]),
        ({"accuracy": 0.14}, []),
        ({"choice": 0.03, "choice_utility": -0.02}, ["gains 3.0% of accuracy at equal spend and -0.020 of utility"]),
        ({"choice": 0.03}, []),  # its utility can be seen
        ({"choice_utility": 0.0}, []),  # its accuracy can be seen
        ({"choice": None, "choice_utility": None}, []),
    ],
)
def test_why_an_experiment_cannot_answer(change, said):
    reasons = list_obstacles(measured(**change))
    assert len(reasons) == len(said) and all(part in text for part, text in zip(said, reasons, strict=True))


def preflight(*lost: str, safe: bool = True, unavailable: tuple[str, ...] = ()) -> dict:
    """Judged, with collapsed spending on some data sets."""
    rows = [measured(dataset=d, at_once=0.1 + 0.9 * (d in lost)) for d in BENCHMARKS]
    found = {"rows": rows, "warm_start": 0.3, "immediate": 0.2 if safe else 0.4}
    return judge_experiment(found | {"unavailable": dict.fromkeys(unavailable, UNKNOWN)}, 7.0)


def test_the_verdict_is_one_sentence():
    assert preflight()["verdict"].startswith("Yes")
    assert preflight("private")["verdict"] == "In part: in-domain it can, on Private it cannot."
    assert preflight("mimic_iv", "private")["verdict"].startswith("No")
    assert preflight(unavailable=BENCHMARKS)["verdict"].startswith("Not known")
    collapsing = preflight(safe=False)
    assert collapsing["verdict"].startswith("Yes") and "WARNING U(warm start) 0.300 <= " in collapsing["message"]
    assert "Private: headrooms are not available: only the synthetic" in preflight(unavailable=("private",))["message"]


# The stages


def checked(tmp_path: Path, inputs: dict[str, Path]) -> dict:
    job = Job("check_headroom", "k", inputs, {"preflight": tmp_path / "preflight.json"})
    check_headroom(SETTINGS, job)
    shown = {kind: tmp_path / f"headroom.{kind}" for kind in ("csv", "md", "tex")}
    sheet_headroom(SETTINGS, tmp_path).write(shown)
    return json.loads((tmp_path / "preflight.json").read_text())


def evaluations(tmp_path: Path, **by_run: list[EvaluationRow]) -> dict[str, Path]:
    """Files of evaluations, the same on every benchmark."""
    inputs = {f"{run}_{dataset}": tmp_path / f"{run}_{dataset}.jsonl" for run in by_run for dataset in BENCHMARKS}
    for run, lines in by_run.items():
        for dataset in BENCHMARKS:
            inputs[f"{run}_{dataset}"].write_text("".join(row.line() for row in lines), encoding="utf-8")
    return inputs


def both(lines: list[EvaluationRow]) -> list[EvaluationRow]:
    return [*lines, *(row.model_copy(update={"decoding": "sampled"}) for row in lines)]


def test_on_the_users_own_cases_no_posterior_is_known(tmp_path):
    greedy, sampled = (rows(right * 20, cost=9.0, tests=1) for right in ([1, 1, 0], [1, 0, 0]))
    acting = [*greedy, *(row.model_copy(update={"decoding": "sampled"}) for row in sampled)]
    found = checked(tmp_path, evaluations(tmp_path, warm_start=acting, immediate=both(rows([0] * 60))))
    assert found["unavailable"] == dict.fromkeys(BENCHMARKS, UNKNOWN) and found["safe"]
    assert {at["exact"] for at in found["rows"]} == {None}
    assert {at["seeds"] for at in found["rows"]} == {len(SETTINGS.seeds)}
    text = (tmp_path / "headroom.md").read_text(encoding="utf-8")
    assert f"Private: not available: {UNKNOWN}." in text and "Not known: nothing speaks against it" in text
    utility = sum(row.utility for row in sampled) / 60
    assert f"Sampled as in training, in-domain: U(warm start) {utility:.3f}, U(immediate diagnosis) 0.000." in text


def test_on_the_hospitals_cases_the_table_tells_all(cases, references, tmp_path):
    best, none = references
    acting = both([row.model_copy(update={"correct": row.correct and k % 3 > 0}) for k, row in enumerate(best)])
    inputs = evaluations(
        tmp_path,
        warm_start=acting,
        immediate=both(none),
        value_of_information=best,
        discounted_information=best,
        zero_test=none,
    )
    for dataset in BENCHMARKS:
        write_records(inputs.setdefault(f"cases_{dataset}", tmp_path / f"{dataset}.jsonl"), cases)
    found = checked(tmp_path, inputs)
    assert found["unavailable"] == {}
    with (tmp_path / "headroom.csv").open(encoding="utf-8") as lines:
        table = list(csv.DictReader(lines))
    in_domain = next(line for line in table if (line["dataset"], line["decoding"]) == ("mimic_iv", "greedy"))
    exact, accuracy = (sum(row.correct for row in lines) / 40 for lines in (best, acting[:40]))
    assert float(in_domain["reading"]) == pytest.approx(exact - accuracy, abs=1e-4) and exact > accuracy
    assert float(in_domain["choice"]) == 0.0 and float(in_domain["best_aec"]) == float(in_domain["aec"])

    withheld = both([row.model_copy(update={"obtained": None}) for row in best])
    found = checked(tmp_path, inputs | evaluations(tmp_path, warm_start=withheld))
    assert {why.partition(" of ")[0] for why in found["unavailable"].values()} == {"rows"}
