"""What a comparison may support: seeds, stopped policies, chance, and in whose favour it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_claims import PAPER, SYNTHETIC, judged, results, write_evaluation, write_rows  # noqa: F401
from toy import CALL_COUNTS

from cdpr.evaluation.metrics import METRICS
from cdpr.report.methods import TRAINED, Method
from cdpr.report.results import Results, outcome_of
from cdpr.settings.datasets import BENCHMARKS


def write_run(folder: Path, run: str, right: int, tests: int, common: int = 1, costs=None, cases: int = 100) -> None:
    """A run with ``right`` of ``cases`` diagnoses; the first ``common`` cases have the same disease."""
    costs = costs or [10.0 * tests] * cases
    for dataset in BENCHMARKS:
        rows = [{
            "note_id": f"c{i:03d}", "decoding": "greedy", "correct": i < right, "diagnosis": "a",
            "gold": "common" if i < common else f"b{i}", "turns": 1, "n_issued": tests, "n_available": tests,
            "n_unavailable": 0, "n_invalid": 0, "n_repeated": 0, "n_physical": 0, "n_tests": tests, "n_na": 0,
            "cost_usd": costs[i], "utility": 0.0, "forced": False, **CALL_COUNTS,
        } for i in range(cases)]  # fmt: skip
        write_rows(folder / "evaluations" / run / f"{dataset}.jsonl", rows)


def trained(name: str, *seeds: int) -> Method:
    return Method(name, name.upper(), TRAINED, tuple(f"{name}-seed{seed}" for seed in seeds))


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path


@pytest.mark.parametrize(
    "seeds, right, tests, common, reason",
    [
        ((0, 1), 60, 2, 20, ""),
        ((0,), 60, 2, 20, "CDPR was trained with one seed"),
        ((0, 1), 60, 0, 20, "CDPR has stopped ordering examinations (AEN 0.00)"),
        ((0, 1), 20, 2, 20, "none is above chance (20%, the most frequent diagnosis)"),
        ((0, 1), 27, 2, 20, "none is above chance (20%, the most frequent diagnosis)"),  # its interval holds 20%
    ],
)
@pytest.mark.parametrize("place", ["mimic_iv", "average"])
def test_a_comparison_supports_nothing(folder, seeds, right, tests, common, reason, place):
    for seed in seeds:
        write_run(folder, f"cdpr-seed{seed}", right, tests, common)
        write_run(folder, f"grpo-seed{seed}", 20, 2, common)
    methods = [trained("cdpr", *seeds), trained("grpo", *seeds)]
    at = Results(SYNTHETIC, folder, methods)
    # On the average there are three times as many cases, so 27% is above a chance of 20%.
    expected = "" if place == "average" and right == 27 else reason
    assert at.why_void(methods, place, "greedy") == expected
    assert at.change(*methods, place, "greedy")["void"] == expected


def test_a_policy_has_stopped_when_it_orders_nothing_whatever_it_costs(folder):
    for seed in (0, 1):
        write_run(folder, f"cdpr-seed{seed}", 60, 0, costs=[5.0] * 100)  # a charge without an examination
        write_run(folder, f"grpo-seed{seed}", 60, 2, costs=[0.0] * 100)  # free examinations
    methods = [trained("cdpr", 0, 1), trained("grpo", 0, 1)]
    at = Results(SYNTHETIC, folder, methods)
    assert at.why_void(methods[:1], "mimic_iv", "greedy") == "CDPR has stopped ordering examinations (AEN 0.00)"
    assert at.why_void(methods[1:], "mimic_iv", "greedy") == ""


def test_an_agent_that_is_not_trained_needs_neither_seeds_nor_examinations(folder):
    write_run(folder, "zero_test", 60, 0, 20)
    agent = Method("zero_test", "At once", "Open-Source LLMs", ("zero_test",))
    assert Results(SYNTHETIC, folder, [agent]).why_void([agent], "mimic_iv", "greedy") == ""


def test_seeds_are_paired_by_number_and_one_run_stands_against_all(folder):
    for run, right in {"cdpr-seed0": 40, "cdpr-seed1": 60, "grpo-seed1": 50, "grpo-seed2": 10, "static": 30}.items():
        write_run(folder, run, right, 2)
    ours, others = trained("cdpr", 0, 1), trained("grpo", 1, 2)
    static = Method("static", "Static", "Open-Source LLMs", ("static",))
    at = Results(SYNTHETIC, folder, [ours, others, static])

    def difference(first, second):
        change = at.change(first, second, "mimic_iv", "greedy")
        return change["accuracy"], change["void"]

    assert difference(ours, others) == (pytest.approx(0.1), "CDPR was trained with one seed")  # seed 1 alone
    assert difference(ours, static) == (pytest.approx(0.2), "")
    assert difference(static, ours) == (pytest.approx(-0.2), "")
    assert "share no seed" in at.change(trained("cdpr", 0), trained("grpo", 2), "mimic_iv", "greedy")["reason"]


def test_in_whose_favour_a_comparison_is(folder):
    for seed in (0, 1):
        write_run(folder, f"cdpr-seed{seed}", 80, 2)
        write_run(folder, f"grpo-seed{seed}", 20, 4)
    ours, others = trained("cdpr", 0, 1), trained("grpo", 0, 1)
    at = Results(SYNTHETIC, folder, [ours, others])
    change = at.change(ours, others, "mimic_iv", "greedy")
    assert [outcome_of(change, METRICS[name]) for name in ("accuracy", "aec")] == ["better", "better"]
    reversed_ = at.change(others, ours, "mimic_iv", "greedy")
    assert [outcome_of(reversed_, METRICS[name]) for name in ("accuracy", "aec")] == ["worse", "worse"]
    assert outcome_of(change | {"void": "one seed"}, METRICS["accuracy"]) == ""
    assert outcome_of(change, METRICS["n_na"]) == ""  # no difference: the interval holds zero


def test_costs_and_chance_of_a_summary(folder):
    write_run(folder, "cdpr-seed0", 50, 2, common=30, costs=[float(i) for i in range(100)])
    cdpr = trained("cdpr", 0)
    row = Results(SYNTHETIC, folder, [cdpr]).summary(cdpr, "mimic_iv", "greedy")
    assert (row["cost_median"], row["cost_p90"], row["chance"]) == (49.5, pytest.approx(89.1), 0.3)


def test_a_comparison_that_supports_nothing_is_open(results, tmp_path):  # noqa: F811
    one_seed = PAPER.model_copy(update={"seeds": [0]})
    claim = {"kind": "compare", "of": "cdpr", "than": "grpo", "metric": "aec", "on": "mimic_iv", "side": "below"}
    (clear,), (void,) = judged(PAPER, results, claim), judged(one_seed, results, claim)
    assert (clear["verdict"], void["verdict"]) == ("reproduced", "open")
    assert "one seed" in void["why"]


def test_a_printed_accuracy_is_as_uncertain_as_its_cases(results):  # noqa: F811
    """Measured 55.0 on 750 cases, both ±3.6 points: figures up to √2 times as far are the same."""
    entries = judged(PAPER, results, *(
        {"kind": "figure", "of": "cdpr", "metric": "accuracy", "on": "mimic_iv", "printed": [printed]}
        for printed in ("50.4", "49.5", "60.0", "60.6")
    ))  # fmt: skip
    measured = entries[0]
    below, above = measured["measured"] - measured["low"], measured["high"] - measured["measured"]
    for entry, printed in zip(entries, (50.4, 49.5, 60.0, 60.6), strict=True):
        p = round(printed * 7.5) / 750
        z = 1.959964
        theirs = 100 * z * np.sqrt(p * (1 - p) / 750 + z * z / (4 * 750**2)) / (1 + z * z / 750)
        ours = above if printed > measured["measured"] else below
        inside = abs(printed - measured["measured"]) <= 0.05 + np.hypot(ours, theirs)
        assert entry["verdict"] == ("reproduced" if inside else "deviates"), printed
    assert {entry["verdict"] for entry in entries} == {"reproduced", "deviates"}


def test_a_printed_accuracy_is_compared_with_the_end_of_the_interval_on_its_side(tmp_path):
    """Near 100% Wilson's interval reaches further down than up: 1.8 and 1.4 points at 713 of 750."""
    write_evaluation(tmp_path, "warm_start", 19, 2, 10.0)
    claim = {"kind": "figure", "of": "warm_start", "metric": "accuracy", "on": "mimic_iv", "printed": ["92.5"]}
    assert judged(PAPER, tmp_path, claim)[0]["verdict"] == "reproduced"  # 2.5 points below; 2.6 may be chance


def test_only_a_pair_that_supports_something_refutes_a_superlative(tmp_path):
    for run, right in {"cdpr": 8, "grpo": 15, "warm_start": 2, "static": 3}.items():
        for name in [run] if run in ("warm_start", "static") else [f"{run}-seed{seed}" for seed in (0, 1)]:
            write_evaluation(tmp_path, name, right, 2, 10.0)
    claim = {"kind": "best", "of": "cdpr", "metric": "accuracy", "on": "mimic_iv", "side": "above", "among": ["grpo"]}
    (two_seeds,) = judged(PAPER, tmp_path, claim)
    (one_seed,) = judged(PAPER.model_copy(update={"seeds": [0]}), tmp_path, claim)
    assert (two_seeds["verdict"], one_seed["verdict"]) == ("deviates", "open")
    assert "excludes what is claimed" in two_seeds["why"] and "excludes" not in one_seed["why"]


def test_a_share_of_the_final_accuracy_is_reached_at_its_first_validation(results):  # noqa: F811
    claim = {"kind": "training", "by": "seconds", "of": "without_cache", "than": "cdpr", "side": "above", "share": 1.0}
    (entry,) = judged(PAPER, results, claim)
    assert entry["measured"] == pytest.approx(30 * 1.005)  # at step 10, where both first have all of it
