"""The ledger of claims: that it is whole, and that verdicts follow their rules."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from toy import CALL_COUNTS

from cdpr.costs.price import load_catalogue
from cdpr.job import Job
from cdpr.metrics_log import split_times
from cdpr.report.ledger.claims import ClaimsError, read_claims
from cdpr.report.ledger.evidence import Evidence
from cdpr.report.ledger.judge import measure_final_accuracy
from cdpr.report.ledger.page import make_ledger, write_claims
from cdpr.report.ledger.verdict import Effect, directional
from cdpr.report.methods import DATASETS
from cdpr.report.paper import facts_folder
from cdpr.settings import Settings, merge, parse_settings, sweeps, value_at
from cdpr.settings.judging import Judge
from cdpr.study.analysis import Analysis
from cdpr.study.ratings import PHYSICIAN
from cdpr.study.records import dimensions

EVERY_POINT = parse_settings({}).experiments.model_copy(update={"swept": None, "points": None})
SYNTHETIC = parse_settings(
    {"experiments": EVERY_POINT, "seeds": [0, 1], "evaluation": {"bootstrap": 200, "decodings": ["greedy"]}}
)
PAPER = parse_settings({"experiments": EVERY_POINT,
    "tier": "paper", "seeds": [0, 1], "evaluation": {"bootstrap": 200, "decodings": ["greedy"]},
    "policy": {"model": "models/Qwen3-4B-Instruct-2507"}, "data": {name: {"path": f"data/{name}"} for name in DATASETS},
    "judge": {"model": "gpt_5_4"},
})  # fmt: skip
# As many as the paper states of MIMIC-IV, not of the others.
CASES = {"mimic_iv": 750, "clinicalbench": 60, "private": 40}
# Run -> right diagnoses in 20, examinations per case, cost of one.
RUNS = {
    "warm_start": (8, 3, 20.0), "static": (10, 9, 40.0), "grpo": (10, 3, 18.0), "cdpr": (11, 2, 17.0),
    "without_lambda_test": (11, 4, 17.0), "without_lambda_cost": (11, 2, 40.0), "without_lambda_na": (11, 2, 17.0),
    "candidates_2": (11, 2, 17.0), "candidates_6": (4, 2, 17.0), "beta_0.25": (9, 2, 17.0), "beta_1": (6, 2, 17.0),
}  # fmt: skip
# Numbers of the paper's text by place; those of its tables are counted below.
FACTS = {
    "Experimental Setup": "23377 750 1500 24 150 952",
    "Main Results (1)": "47.42 45.30 42.24 40.88 42.10 23.52 30.06 34.24 263.17 16.58 4 1/16",
    "Main Results (2)": "37.93 38.27 39.75 50.97 61.97",
    "Main Results (3)": "19.07 37.74 40.88 42.24",
    "Ablation Studies": "53.07 47.33 2.10 4.10 79.20",
    "Training Efficiency": "47 53.07",
    "Hyperparameter Sensitivity": "4 3 0.5",
    "Expert Evaluation": "3 300 100 5 4.7 4.0 0.001 4.5 4.2 4.1 0.05",
    "Dynamic vs. Static": "53.07 50.23 1/10 36.65 395.40 90.7",
    "Appendix: data sets": "23377 750 1500 24 150 952",
    "Appendix: sample record": "0.00 5.00 8.46 10.56 8.68 18.00 6.47 11.57 29.73 8.50",
    "Appendix: training": "2 8 2048 4096 4 16 64 1 5e-6 3 200 0.5 0.05 0.02 0.10 1.0 8192",
    "Appendix: evaluation": "2048 4096",
    "Appendix: expert evaluation": "3 5 100 300 1 0.7",
}


def write_rows(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_evaluation(folder: Path, run: str, right: int, tests: int, price: float, cases=CASES) -> None:
    for dataset, count in cases.items():
        rows = [{
            "note_id": f"c{i:03d}", "decoding": "greedy", "correct": i % 20 < right, "diagnosis": "a", "gold": f"b{i}",
            "turns": 1, "n_issued": tests, "n_available": tests, "n_unavailable": 0, "n_invalid": 0, "n_repeated": 0,
            "n_physical": 0, "n_tests": tests, "n_na": 0, "cost_usd": tests * price, "utility": 0.0, "forced": False,
            **CALL_COUNTS,
        } for i in range(count)]  # fmt: skip
        write_rows(folder / "evaluations" / run / f"{dataset}.jsonl", rows)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    untrained = ("warm_start", "static")
    for run, figures in RUNS.items():
        for name in [run] if run in untrained else [f"{run}-seed{seed}" for seed in (0, 1)]:
            write_evaluation(folder, name, *figures)
    for run, (pace, top) in {"grpo": (1, 0.4), "cdpr": (2, 0.6), "without_cache": (5, 0.6)}.items():
        for seed in (0, 1, 2):
            right = round(1000 * top) + 2 * seed * pace
            rows = [
                {"step": s, "seconds": s * pace * (1 + 0.01 * seed), "tokens": s * (9 - pace)}
                | {"validation/accuracy": right / 1000 * min(1, 0.5 + s / 20)}
                | {"validation/verdicts": "1" * right + "0" * (1000 - right)}
                | ({"credit/probe_tokens": 10 + seed, "credit/continuation_tokens": 40} if s and run == "cdpr" else {})
                for s in range(0, 21, 5)
            ]
            place = folder / "training" / f"{run}-seed{seed}"
            split_times(rows, place / "metrics.jsonl", place / "timings.jsonl")
    return folder


def judged(settings: Settings, results: Path, *claims: dict) -> list[dict]:
    """The entries of a ledger that holds just these claims."""
    head = {"place": "x", "says": "y"}
    path = results / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [head | {"id": str(i)} | c for i, c in enumerate(claims)]}))
    return make_ledger(settings, results, read_claims(path))["claims"]


def written(results: Path, stem: Path) -> Job:
    """The stage, run: `stem` + .json, .md and .csv, and .time.md."""
    endings = {"json": "json", "md": "md", "csv": "csv", "time": "time.md"}
    out = {form: stem.with_name(f"{stem.name}.{ending}") for form, ending in endings.items()}
    job = Job("claims", "key", {"results": results}, out)
    write_claims(SYNTHETIC, job)
    return job


@pytest.fixture(scope="module")
def synthetic(results) -> dict:
    return make_ledger(SYNTHETIC, results, read_claims())


def test_every_number_of_the_paper_is_in_the_ledger():
    claims = read_claims()
    printed: dict[str, set[str]] = {}
    for claim in claims:
        for place in (claim["place"], *claim["also"]):
            printed.setdefault(place, set()).update(claim["printed"])
    for place, numbers in FACTS.items():
        assert set(numbers.split()) <= printed[place], place
    count = {
        place: sum(place in (c["place"], *c["also"]) for c in claims) for place in ("Table 1", "Table 2", "Table 3")
    }
    assert count == {"Table 1": 18 * 4 * 3, "Table 2": 5 * 3, "Table 3": 2 * 2}
    assert {c["place"] for c in claims} >= {"Abstract", "Introduction", "Methodology"}
    # What is said in several places is one claim; a figure printed otherwise is another.
    by_id = {c["id"]: c for c in claims}
    assert by_id["setup.mimic_cases"]["also"] == ["Appendix: data sets"] and "appendix.mimic_cases" not in by_id
    assert by_id["abstract.cache.seconds"]["also"] == ["Training Efficiency", "Conclusion"]
    assert sum(c["headline"] for c in claims) > 10


def test_every_name_in_the_ledger_is_known(results):
    evidence = Evidence(SYNTHETIC, results)
    for claim in read_claims():
        names = [claim[n] for n in ("of", "than", "nearer_to") if n in claim]
        names += claim["among"] if claim.get("among", "data_sets") != "data_sets" else ()
        for name in names:
            assert evidence.method(name).name == name, claim["id"]
        if claim.get("what") == "settings":
            for setting in claim["value"]:
                value_at(SYNTHETIC, setting)
        if "sweep" in claim:
            assert claim["value"] in sweeps(SYNTHETIC, "sensitivity")[claim["sweep"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "larger"}, r"claims\.yaml: claim 'a': field 'kind': 'larger' is not one of .*'compare'"),
        ({"side": "over"}, r"claim 'a': field 'side': 'over' is not one of \['above', 'below'\]"),
        ({"metrics": 1}, r"claim 'a': Unevaluated properties are not allowed \('metrics' was unexpected\)"),
        ({"on": ["mimic_iv", "mimic_iv"]}, r"claim 'a.mimic_iv': field 'id': appears twice"),
        ({"printed": 1}, r"claim 'a': field 'printed': 1 is not of type 'array'"),
        ({"times": 2.0, "by": "tokens"}, r"claim 'a': Unevaluated properties .* \('by' was unexpected\)"),
        ({"than": ""}, r"claim 'a': field 'than': '' should be non-empty"),
        ({"metric": "final_accuracy"}, r"claim 'a': field 'metric': 'final_accuracy' is not one of \['accuracy'"),
        (
            {"kind": "figure", "printed": ["1"], "statistic": "ratio"},
            r"claim 'a': Unevaluated properties .* \('side' was unexpected\)",
        ),
        ({"within": 2}, r"claim 'a': either `side` or `within`"),
        ({"kind": "training", "by": "tokens"}, r"claim 'a': Unevaluated properties .* \('metric', 'on' were"),
    ],
)
def test_a_malformed_ledger_names_file_claim_and_field(tmp_path, change, message):
    good = {"id": "a", "place": "x", "says": "y", "kind": "compare", "of": "cdpr", "than": "grpo", "metric": "aen",
            "on": "private", "side": "below"}  # fmt: skip
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [good | change]}))
    with pytest.raises(ClaimsError, match=message):
        read_claims(path)
    head = {"id": "a", "place": "x", "says": "y"}
    figure = {"kind": "figure", "of": "cdpr", "metric": "final_accuracy", "on": "mimic_iv", "printed": ["1"]}
    for other, message in (
        ({"kind": "compare", "of": "a", "than": "b", "metric": "aen", "on": "private"}, "either `side` or `within`"),
        ({"kind": "setup", "what": "settings", "value": 1}, "field 'value': 1 is not of type 'object'"),
        ({"kind": "setup", "what": "sweeps", "value": {"a": 1}}, "field 'value': {'a': 1} should not be valid"),
        ({"kind": "setup", "what": "price", "value": 1.0}, "`names` is one data set"),
        ({"kind": "setup", "what": "sweeps", "names": ["a"], "value": 1}, "`names` is one data set"),
        ({"kind": "best", "side": "above", "metric": "aen", "on": "private", "sweep": "beta"}, "`sweep` with `value`"),
        ({"kind": "training", "of": "cdpr", "by": "probes", "side": "below"}, "'times' is a required property"),
        ({"kind": "training", "of": "cdpr", "by": "tokens", "side": "below"}, "'than' is a required property"),
        ({"kind": "study", "asks": "above"}, "`above` goes with `of`"),
        ({"kind": "study", "asks": "largest_lead"}, "`largest_lead` with `dimension`"),
        ({"kind": "study", "asks": "leads", "dimension": "beauty"}, "field 'dimension': 'beauty' is not one of"),
        (figure | {"on": "private"}, "field 'on': 'mimic_iv' was expected"),
        (figure | {"than": "grpo", "statistic": "ratio"}, "`final_accuracy` is of one training"),
        (figure | {"metric": "aen", "than": "grpo"}, "'statistic' is a dependency of 'than'"),
        (figure | {"printed": []}, r"field 'printed': \[\] should be non-empty"),
        (figure | {"printed": ["1", "2"]}, r"field 'printed': \['1', '2'\] is too long"),
        (figure | {"printed": ["abc"]}, "field 'printed.0': 'abc' does not match"),
    ):
        path.write_text(yaml.safe_dump({"claims": [head | other]}))
        with pytest.raises(ClaimsError, match=rf"claim 'a': .*{message}"):
            read_claims(path)
    schema = yaml.safe_load((facts_folder() / "claims.schema.yaml").read_text())
    assert set(schema["$defs"]["dimension"]["enum"]) == set(dimensions())
    path.write_text(yaml.safe_dump({"claims": [], "more": 1}))
    with pytest.raises(ClaimsError, match="'more' was unexpected"):
        read_claims(path)


@pytest.mark.parametrize(
    ("effect", "verdict", "unfit", "incomplete"),
    [
        ((1, 0.5, 2), "reproduced", "", ""),
        ((1, 0.5, 2), "same direction", "synthetic cases; ...", ""),
        ((1, 0.5, 2), "same direction", "", "3 of 18"),
        ((1, -0.5, 2), "open", "", ""),
        ((-1, -2, 0.5), "open", "", ""),
        ((0, 0, 0), "open", "", ""),
        ((-1, -2, -0.5), "deviates", "synthetic cases", ""),
        ((1,), "open", "", ""),
        ((-1,), "open", "", ""),
    ],
)
def test_directions(effect, verdict, unfit, incomplete):
    assert directional(Effect(*effect), unfit, incomplete)[0] == verdict
    assert directional(Effect(*effect), unfit, incomplete, void="one seed")[0] == "open"


def test_an_effect_keeps_its_interval_in_order():
    for effect, expected in (
        (Effect(1, -1, 2).support({"side": "below"}), (-1, -2, 1)),
        (Effect(1).support({"side": "below"}), (-1, np.nan, np.nan)),
        (Effect(1, 0, 2).minus(0.5), (0.5, -0.5, 1.5)), (Effect(1).minus(0.5), (0.5, np.nan, np.nan)),
        (Effect(0.5, -1, 2).support({"within": 3}), (2.5, 1, 3)),  # zero may be the truth: it is the best that can be
        (Effect(2, 1, 4).support({"within": 3}), (1, -1, 2)), (Effect(-2).support({"within": 3}), (1, np.nan, np.nan)),
    ):  # fmt: skip
        np.testing.assert_equal(tuple(effect), expected)


def test_synthetic_cases_reproduce_nothing_and_no_figure_is_compared(synthetic):
    assert synthetic["counts"]["reproduced"] == 0
    assert sum(synthetic["counts"].values()) == len(synthetic["claims"])
    apart = [c for c in synthetic["claims"] if c["kind"] == "undecidable"]
    assert synthetic["counts"]["undecidable"] == len(apart) > 15 and {c["verdict"] for c in apart} == {"not run"}
    assert synthetic["counts"]["not run"] == sum(c["verdict"] == "not run" for c in synthetic["claims"]) - len(apart)
    figures = [c for c in synthetic["claims"] if c["kind"] == "figure"]
    assert len(figures) > 230
    assert all(c["verdict"] == "not run" and c["measured"] is None for c in figures)
    by_id = {c["id"]: c for c in synthetic["claims"]}
    assert "synthetic cases; the figure is of MIMIC-IV" in by_id["table_1.CDPR-4B.mimic_iv.acc"]["why"]
    assert by_id["table_1.GPT-5.4.private.aec"]["why"].startswith("costs money (models.gpt_5_4.enabled")
    better = by_id["abstract.accuracy.mimic_iv"]
    assert (better["verdict"], better["k"]) == ("same direction", "417+417 : 380+380")
    assert (better["measured"], better["n"], better["seeds"]) == (pytest.approx(37 / 7.5), 750, (0, 1))
    average = by_id["abstract.accuracy.average"]  # data sets weigh alike: no pooled count stands beside their mean
    assert (average["k"], average["n"]) == ("", "750+60+40")
    assert average["measured"] == pytest.approx((37 / 7.5 + 5 + 5) / 3)
    assert by_id["ablation.test_bounds"]["unit"] == "ratio" and by_id["ablation.test_bounds"]["measured"] == 2.0
    assert by_id["hyper.learning_rate"]["verdict"] == "as stated"
    assert by_id["hyper.epochs"]["verdict"] == "set otherwise"
    assert by_id["ablation.is_grpo"]["verdict"] == "as stated"


def test_differences_are_those_of_the_paired_table(results):
    evidence = Evidence(SYNTHETIC, results)
    one, two = (evidence.method(name) for name in ("cdpr", "grpo"))
    paired = evidence.change(one, two, "private", "greedy")
    (entry,) = judged(SYNTHETIC, results, {"kind": "compare", "of": "cdpr", "than": "grpo", "metric": "accuracy",
                                           "on": "private", "side": "above"})  # fmt: skip
    ends = [paired[f"accuracy{end}"] for end in ("", "_low", "_high")]
    assert [entry[n] / 100 for n in ("measured", "low", "high")] == pytest.approx(ends)


def test_real_cases_at_the_paper_tier(results):
    def figure(printed, metric="accuracy", of="cdpr", **more):
        return {"kind": "figure", "of": of, "metric": metric, "on": "mimic_iv", "printed": [printed]} | more

    def greater(side, **more):
        return {
            "kind": "compare",
            "of": "cdpr",
            "than": "grpo",
            "metric": "aec",
            "on": "mimic_iv",
            "side": side,
            **more,
        }

    def close(margin, on="mimic_iv"):
        return {"kind": "compare", "of": "cdpr", "than": "grpo", "metric": "aen", "on": on, "within": margin}

    def cases(on, value):
        return {"kind": "setup", "what": "cases", "names": [on], "value": value}

    def peak(sweep, value):
        point = {"sweep": sweep, "value": value, "metric": "accuracy", "on": "mimic_iv", "side": "above"}
        return {"kind": "best"} | point

    def of_data_sets(on, side):
        return {"kind": "best", "of": "cdpr", "metric": "accuracy", "on": on, "side": side, "among": "data_sets"}

    table = [
        (figure("53.07"), "reproduced"),
        (figure("70.00"), "deviates"),
        (figure("2.10", "aen"), "deviates"),
        (figure("2.0", "aen"), "reproduced"),
        (figure("90.6", "aec", than="static", statistic="reduction"), "reproduced"),
        (figure("90.7", "aec", than="static", statistic="reduction"), "deviates"),
        (figure("1/10", "aec", than="static", statistic="ratio", within=0.02), "reproduced"),
        (figure("42.93", of="GPT-5.4"), "not run"),
        (greater("below"), "reproduced"),
        (greater("above"), "deviates"),
        (greater("below", margin=25), "deviates"),
        (greater("below", times=0.7), "reproduced"),
        (greater("below", times=0.6), "deviates"),
        # Only 3 of the 18 rows were run.
        ({"kind": "best", "of": "cdpr", "metric": "aec", "on": "mimic_iv", "side": "below"}, "same direction"),
        (
            {"kind": "best", "of": "cdpr", "metric": "aec", "on": "mimic_iv", "side": "below", "among": ["grpo"]},
            "reproduced",
        ),
        (close(2), "reproduced"),
        (close(0.5), "deviates"),
        (peak("candidates", 4), "open"),
        (peak("beta", 0.5), "open"),  # ahead everywhere, but two seeds of the default are too few
        (peak("beta", 0.3), "not run"),
        (peak("horizon", 3), "not run"),
        (cases("mimic_iv", 750), "as stated"),
        (cases("clinicalbench", 1500), "set otherwise"),
        # Nobody else has the authors' private cases, nor an average that holds them.
        (cases("private", 40), "not run"),
        (figure("55.00", on="private"), "not run"),
        (figure("55.00", on="average"), "not run"),
        (close(2, on="private"), "same direction"),
        (close(2, on="average"), "same direction"),
        (of_data_sets("mimic_iv", "below"), "open"),
        # A printed figure is of as many cases as the paper has; a direction may be of others.
        (figure("55.00", on="clinicalbench"), "not run"),
        (close(2, on="clinicalbench"), "reproduced"),
        (of_data_sets("mimic_iv", "above"), "open"),  # 417 / 750 against 33 / 60 and 22 / 40
    ]  # fmt: skip
    entries = judged(PAPER, results, *(claim for claim, _ in table))
    assert [(e["id"], e["verdict"]) for e in entries] == [(str(i), v) for i, (_, v) in enumerate(table)]
    assert all(e["low"] <= e["measured"] <= e["high"] for e in entries if e["low"] is not None)
    assert "3 of 18 rows were run" in entries[13]["why"]
    assert "3 of 4 points of our grid were run" in entries[17]["why"]
    whys = [entry["why"] for entry in entries]
    assert all("not the authors' cases" in whys[i] for i in (23, 24, 25, 26, 27))
    assert whys[29] == "60 cases were evaluated; the figure is of 1500"
    assert "to be below 0.7 times" in whys[11] and not any("times" in whys[i] for i in (8, 9, 10))
    assert [e["unit"] for e in (entries[8], entries[11])] == ["USD", "ratio"]


@pytest.mark.parametrize(
    ("peak_seeds", "other_seeds", "verdict"), [(3, 2, "reproduced"), (2, 2, "open"), (3, 1, "open")]
)
def test_a_peak_takes_three_seeds_and_two_of_every_other_point(results, tmp_path, peak_seeds, other_seeds, verdict):
    folder, seeds = tmp_path / "results", range(peak_seeds)
    shutil.copytree(results, folder)
    for run in ("cdpr", "grpo"):  # the second is the sweep's point 0
        write_evaluation(folder, f"{run}-seed2", *RUNS[run])
    sweep = {"experiments": {"sweeps": {"beta": {"seeds": other_seeds}}}, "seeds": [*seeds]}
    settings = parse_settings(merge(PAPER.model_dump(), sweep))
    claim = {"kind": "best", "sweep": "beta", "value": 0.5, "metric": "accuracy", "on": "mimic_iv", "side": "above"}
    [entry] = judged(settings, folder, claim)
    assert (entry["verdict"], "too few seeds for a peak" in entry["why"]) == (verdict, verdict == "open")


def test_only_real_cases_at_the_paper_scale_are_the_papers(results):
    mixed = {name: {"path": None if name == "private" else "data/x"} for name in DATASETS}
    changed = {
        "paper": PAPER, "small": PAPER.model_copy(update={"tier": "small_gpu"}),
        "tiny": PAPER.model_copy(update={"policy": SYNTHETIC.policy}),
        "base": PAPER.model_copy(update={"policy": PAPER.policy.model_copy(update={"model": "/m/Qwen3-4B-Base/"})}),
        "mixed": parse_settings(merge(PAPER.model_dump(), {"data": mixed})),
    }  # fmt: skip
    unfit = {name: Evidence(settings, results).why_not_comparable for name, settings in changed.items()}
    assert unfit["paper"]("mimic_iv") == unfit["paper"]("clinicalbench") == unfit["mixed"]("mimic_iv") == ""
    assert "the authors'" in unfit["paper"]("private") and "the authors'" in unfit["paper"]("average")
    assert "tier small_gpu" in unfit["small"]("mimic_iv") and "backbone tiny" in unfit["tiny"]("mimic_iv")
    assert unfit["base"]("mimic_iv") == "backbone Qwen3-4B-Base; the figure is of Qwen3-4B-Instruct-2507"
    assert "synthetic" in unfit["mixed"]("average") and "synthetic" in unfit["mixed"]("private")


def test_variants_meet_with_the_seeds_that_both_have(results):
    evidence = Evidence(SYNTHETIC, results)
    runs = {other: evidence.compare(["cdpr", other], "accuracy", "mimic_iv").runs
            for other in ("grpo", "candidates_2", "warm_start")}  # fmt: skip
    both = ("cdpr-seed0", "cdpr-seed1")
    assert runs["grpo"] == (*both, "grpo-seed0", "grpo-seed1")
    assert runs["candidates_2"] == (*both, "candidates_2-seed0", "candidates_2-seed1")
    assert runs["warm_start"] == (*both, "warm_start")


def test_training_is_compared_seed_by_seed(results):
    def slower(of, than, side, **more):
        return {"kind": "training", "by": "seconds", "of": of, "than": than, "side": side, **more}

    entries = judged(
        PAPER, results,
        slower("without_cache", "cdpr", "above"),
        slower("grpo", "cdpr", "above", share=None),
        slower("cdpr", "without_cache", "below", nearer_to="grpo"),
        slower("cdpr", "grpo", "above", share=0.4),
        slower("without_selection", "cdpr", "above"),
        slower("without_cache", "cdpr", "above", by="tokens"),
        slower("cdpr", "without_cache", "above", by="tokens", share=None),
        probes("cdpr", 0.5),
        probes("cdpr", 0.1),
        probes("grpo", 0.5),
    )  # fmt: skip
    verdicts = ["reproduced", "deviates", "reproduced", "not run", "not run", "deviates", "reproduced", "reproduced",
                "deviates", "not run"]  # fmt: skip
    assert [entry["verdict"] for entry in entries] == verdicts
    assert entries[0]["measured"] == pytest.approx(30 * 1.005)  # both get there at step 10
    # Student's t of two seeds that take 30 and 30.3 seconds longer
    assert entries[0]["high"] - entries[0]["measured"] == pytest.approx(12.7062 * 0.15, rel=1e-4)
    (nearer,) = judged(PAPER, results, slower("cdpr", "grpo", "below", nearer_to="without_cache"))
    assert (nearer["verdict"], nearer["measured"]) == ("reproduced", pytest.approx((30 - 40) * 1.005))
    assert entries[4]["why"].startswith("missing: training/without_selection-seed0/metrics.jsonl")
    assert "by the clock" in entries[0]["why"] and "by the clock" not in entries[6]["why"]
    assert (entries[5]["measured"], entries[6]["measured"], entries[6]["unit"]) == (-30, 60, "tokens")
    assert (entries[7]["measured"], entries[7]["unit"]) == (pytest.approx(10.5 / 40), "ratio")
    one_seed = PAPER.model_copy(update={"seeds": [0]})
    (entry,) = judged(one_seed, results, slower("without_cache", "cdpr", "above"))
    assert (entry["verdict"], entry["low"]) == ("open", None)


def test_final_accuracies_are_compared_over_seeds_and_validation_cases(results, tmp_path):
    three = PAPER.model_copy(update={"seeds": [0, 1, 2]})
    claims = (final("grpo", "cdpr", side="below"), final("cdpr", "grpo", side="below"), FINAL_CDPR | {"within": 0.5})
    assert [entry["verdict"] for entry in judged(three, results, *claims)] == ["reproduced", "deviates", "reproduced"]
    for entry in judged(PAPER, results, *claims):
        assert entry["verdict"] == "open" and "fewer than 3 seeds" in entry["why"]
    folder = Path(shutil.copytree(results, tmp_path / "results"))
    for run in ("cdpr", "grpo"):  # every seed ends alike, whatever the cases
        rows = (folder / "training" / f"{run}-seed0" / "metrics.jsonl").read_text()
        for seed in (1, 2):
            (folder / "training" / f"{run}-seed{seed}" / "metrics.jsonl").write_text(rows)
    (alike,) = judged(three, folder, claims[0])
    assert alike["verdict"] == "open" and "the same accuracy" in alike["why"]


def test_without_a_difference_final_accuracies_seldom_differ():
    """The interval of Student over three to five seeds called one in four such pairs different."""
    rng, false = np.random.default_rng(0), 0
    for _ in range(200):
        cases = rng.random((2, 1, 200)) < 0.6  # both methods answer most cases the same way under every seed
        flips = rng.random((2, 3, 200)) < 0.05
        first, second = (cases ^ flips).astype(float)
        difference = measure_final_accuracy(first - second, SYNTHETIC)
        false += not difference.void and not difference.measured.low <= 0 <= difference.measured.high
    assert false <= 0.08 * 200


FINAL_CDPR = {"kind": "figure", "of": "cdpr", "metric": "final_accuracy", "on": "mimic_iv", "printed": ["60"]}


def final(of: str, than: str, **wanted) -> dict:
    return {"kind": "training", "by": "final_accuracy", "of": of, "than": than} | wanted


def probes(of: str, times: float) -> dict:
    return {"kind": "training", "by": "probes", "of": of, "side": "below", "times": times}


def cut(results: Path, run: str, steps: int, diverged: int | None = None) -> None:
    """Leave the first rows of a training run, and say that it diverged."""
    path = results / "training" / run / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()][:steps] if path.exists() else []
    write_rows(path, rows + ([{"step": diverged, "tokens": 1, "diverged": True}] if diverged else []))


def test_what_rests_on_a_diverged_or_shortened_run_says_so(results, tmp_path):
    def slower(of, than, share=None):
        return {"kind": "training", "by": "seconds", "of": of, "than": than, "side": "below", "share": share}

    def better(of, than):
        return {"kind": "compare", "of": of, "than": than, "metric": "accuracy", "on": "mimic_iv", "side": "above"}

    def ahead(of, among):
        return {"kind": "best", "of": of, "metric": "aec", "on": "mimic_iv", "side": "below", "among": among}

    training = [
        slower("grpo", "cdpr"), slower("grpo", "cdpr", 0.95), final("cdpr", "grpo", side="above"),
        FINAL_CDPR, probes("cdpr", 0.5),
    ]  # fmt: skip
    others = [slower("grpo", "without_cache"), better("cdpr", "grpo"), better("cdpr", "candidates_6"),
              ahead("grpo", ["static", "without_lambda_cost", "without_lambda_test"])]  # fmt: skip
    once = {"experiments": {"sweeps": {"candidates": {"seeds": 1}}}}
    settings = parse_settings(merge(PAPER.model_dump(), once))
    healthy = judged(settings, results, *training, *others)
    assert not [entry for entry in healthy if "diverged" in entry["why"] or entry["verdict"] == "not run"]
    for steps, at in ((3, 11), (1, 2), (0, 1)):  # after validations, before the first in training, before any
        broken = tmp_path / str(steps)
        shutil.copytree(results, broken)
        cut(broken, "cdpr-seed1", steps, at)
        cut(broken, "without_lambda_cost-seed0", 0, 7)
        entries = judged(settings, broken, *training, *others)
        for entry in entries[: len(training)]:
            assert entry["verdict"] == "not run" and entry["measured"] is None, entry
            assert entry["why"].startswith(f"cdpr-seed1 diverged at step {at}: "), entry
        elsewhere, hurt, first_seed, superlative = entries[len(training) :]
        assert elsewhere == healthy[len(training)]
        assert hurt["verdict"] == "reproduced" and f"; cdpr-seed1 diverged at step {at} (" in hurt["why"]
        assert first_seed == healthy[len(training) + 2]  # compared over the first seed alone
        assert "without_lambda_cost-seed0 diverged at step 7" in superlative["why"]  # a rival, not the closest one
    short = tmp_path / "short"
    shutil.copytree(results, short)
    for seed in (0, 1):
        cut(short, f"grpo-seed{seed}", 3)
    for entry in judged(PAPER, short, *training[:3]):
        why = "grpo-seed0 ends at step 10, grpo-seed1 ends at step 10, not at 20: nothing can be said of the end"
        assert entry["verdict"] == "not run" and entry["why"].startswith(why)


def test_a_superlative_is_clear_with_every_row_or_against_one(results, tmp_path):
    def ahead(side, **more):
        return {"kind": "best", "of": "cdpr", "metric": "aec", "on": "mimic_iv", "side": side} | more

    part, whole, refuted = judged(SYNTHETIC, results, ahead("below"), ahead("below", among=["grpo", "static"]),
                                  ahead("above"))  # fmt: skip
    assert (part["verdict"], part["scope"]) == ("same direction", "of the 3 rows run")
    assert (whole["verdict"], whole["scope"]) == ("same direction", "")
    (tied,) = judged(SYNTHETIC, results, ahead("below", among=["grpo", "without_lambda_na"]))  # as dear as the second
    assert tied["verdict"] == "open"
    assert (refuted["verdict"], refuted["scope"]) == ("deviates", "of the 3 rows run")
    written(results, tmp_path / "claims")
    assert "same direction, of the 3 rows run" in (tmp_path / "claims.md").read_text()


def test_a_data_set_stands_against_each_of_the_others(results, tmp_path):
    folder = Path(shutil.copytree(results, tmp_path / "results"))
    write_evaluation(folder, "static", 19, 9, 40.0, {"mimic_iv": 750})  # elsewhere 10 of 20 are right
    claim = {"kind": "best", "of": "static", "metric": "accuracy", "on": "mimic_iv", "among": "data_sets"}
    easiest, hardest = judged(PAPER, folder, claim | {"side": "above"}, claim | {"side": "below"})
    assert easiest["verdict"] == "same direction" and easiest["low"] > 30
    assert hardest["verdict"] == "deviates" and hardest["high"] < -30


@pytest.mark.parametrize(
    ("what", "names", "value", "stated", "why"),
    [
        ("settings", [], {"credit.beta": 0.5, "credit.horizon": 3}, True, "credit.beta = 0.5, credit.horizon = 3"),
        ("settings", [], {"credit.beta": 0.5, "credit.horizon": 4}, False, "credit.horizon = 3"),
        ("ablations", [], 4, True, "this workflow has 4"),
        ("groups", [], 3, False, "this workflow has 4"),
        ("same_training", ["without_process_reward", "grpo"], True, True, "trained as grpo"),
        ("same_training", ["cdpr", "grpo"], True, False, "trained as cdpr and grpo"),
        ("price", ["Anion Gap"], 8.46, True, "8.46 USD, from CLFS 2025 Q2 80048"),
        ("price", ["Anion Gap"], 8.45, False, "8.46 USD, from CLFS 2025 Q2 80048"),
        ("billed_together", ["Sodium", "Glucose"], True, True, "billed as BMP_PANEL"),
        ("billed_together", ["Sodium", "Hemoglobin"], True, False, "billed as {'Sodium': 'BMP_PANEL', "),
    ],
)
def test_the_setup_is_held_against_what_is_here(results, what, names, value, stated, why):
    (entry,) = judged(SYNTHETIC, results, {"kind": "setup", "what": what, "names": names, "value": value})
    assert entry["verdict"] == ("as stated" if stated else "set otherwise") and entry["why"].startswith(why)


def test_a_price_that_the_paper_does_not_print_is_no_claim():
    names = {claim["names"][0] for claim in read_claims() if claim.get("what") == "price"}
    assert "Anion Gap" in names and "Basic Metabolic Panel" not in names
    assert set(load_catalogue().paper) < names


def test_page_holds_every_claim_and_the_same_bytes(results, tmp_path):
    counts = written(results, tmp_path / "a").metrics
    written(results, tmp_path / "b")
    forms = [(tmp_path / f"{name}{suffix}").read_bytes() for suffix in (".json", ".md", ".csv") for name in "ab"]
    assert forms[::2] == forms[1::2]
    ledger, page = json.loads(forms[0]), forms[2].decode()
    assert ledger["tier"] == "demo"
    assert {f"claims/{name.replace(' ', '_')}": n for name, n in ledger["counts"].items()} == counts
    assert "synthetic hospital" in page.splitlines()[0]
    heads = ("## What holds here", "## Headline claims", "## What no result could ever decide", "## Abstract")
    assert sorted(heads, key=page.index) == list(heads)
    assert len(forms[4].decode().splitlines()) == len(ledger["claims"]) + 1


def test_wall_clock_time_changes_no_byte_of_what_is_compared(results, tmp_path):
    written(results, tmp_path / "a")
    slow = Path(shutil.copytree(results, tmp_path / "results"))
    for timings in slow.glob("training/grpo-*/timings.jsonl"):
        rows = [json.loads(line) for line in timings.read_text().splitlines()]
        write_rows(timings, [row | {"seconds": 10 * row["seconds"]} for row in rows])
    written(slow, tmp_path / "b")
    for form in ("json", "md", "csv"):
        assert (tmp_path / f"a.{form}").read_bytes() == (tmp_path / f"b.{form}").read_bytes(), form
    entries = {entry["id"]: entry for entry in json.loads((tmp_path / "a.json").read_text())["claims"]}
    timed = {name for name in entries if name.endswith(".seconds") or ".seconds." in name}
    assert timed == {name for name, entry in entries.items() if entry["verdict"] == "timed apart"} and len(timed) > 5
    fast, slow = ((tmp_path / f"{name}.time.md").read_text() for name in "ab")
    assert "on this machine" in fast.lower() and all(entries[name]["says"] in fast for name in timed)
    assert "deviates" in slow and "deviates" not in fast


def test_while_tables_judge_nothing_is_reproduced_even_on_the_papers_cases(results):
    said = {"of": "cdpr", "than": "grpo", "metric": "aec", "on": "mimic_iv", "side": "below", "kind": "compare"}
    slower = {"of": "cdpr", "than": "grpo", "side": "above", "kind": "training", "by": "seconds"}
    printed = {"of": "cdpr", "metric": "accuracy", "on": "mimic_iv", "kind": "figure", "printed": ["53.07"]}
    by_model = judged(PAPER, results, said, slower, printed)
    by_tables = judged(PAPER.model_copy(update={"judge": Judge()}), results, said, slower, printed)
    assert [entry["verdict"] for entry in by_model] == ["reproduced"] * 3
    assert [entry["verdict"] for entry in by_tables] == ["same direction", "same direction", "not run"]
    assert all("tables of names judge" in entry["why"] for entry in by_tables)


def test_variants_that_train_the_same_thing_have_the_same_seeds(results):
    evidence = Evidence(SYNTHETIC.model_copy(update={"seeds": [0, 1, 2, 3, 4]}), results)
    assert evidence.method("beta_0.5").runs == evidence.method("cdpr").runs
    assert evidence.method("without_process_reward").runs == evidence.method("grpo").runs
    assert len(evidence.method("grpo").runs) == 5 and len(evidence.method("beta_0.25").runs) == 2


def test_a_printed_figure_is_open_with_one_seed(results):
    figure = {"kind": "figure", "of": "cdpr", "metric": "accuracy", "on": "mimic_iv", "printed": ["53.07"]}
    entries = judged(PAPER.model_copy(update={"seeds": [0]}), results, figure, FINAL_CDPR)
    assert [entry["verdict"] for entry in entries] == ["open", "open"]
    assert "trained with one seed" in entries[0]["why"] and "fewer than 3 seeds" in entries[1]["why"]


def test_a_refuted_superlative_shows_the_pair_that_refutes_it(results, tmp_path):
    folder = Path(shutil.copytree(results, tmp_path / "results"))
    (entry,) = judged(SYNTHETIC, folder, {
        "kind": "best", "of": "grpo", "metric": "aec", "on": "mimic_iv", "side": "below",
        "among": ["static", "cdpr", "without_lambda_cost"],
    })  # fmt: skip
    assert entry["verdict"] == "deviates" and "refuted by: GRPO 54.00 against CDPR" in entry["why"]


def test_one_clear_pair_refutes_a_superlative_whatever_else_supports_nothing(results, tmp_path):
    folder = Path(shutil.copytree(results, tmp_path / "results"))
    for seed in (0, 1):  # it has stopped ordering examinations, so that its costs compare with none
        write_evaluation(folder, f"utility_grpo-seed{seed}", 8, 0, 0.0)
    claim = {"kind": "best", "metric": "aec", "on": "mimic_iv", "side": "below"}
    (refuted, void) = judged(SYNTHETIC, folder, claim | {"of": "grpo", "among": ["cdpr", "utility_grpo"]},
                             claim | {"of": "cdpr", "among": ["grpo", "utility_grpo"]})  # fmt: skip
    assert refuted["verdict"] == "deviates" and "against CDPR" in refuted["why"]
    assert void["verdict"] == "open" and "stopped ordering" in void["why"]


@pytest.mark.parametrize(
    ("claim", "ours", "baseline", "lead", "ahead", "verdict"),
    [
        # Two means whose intervals do not meet are apart; the claim's interval is at most both spreads together.
        ({"asks": "above"}, (4.0, 3.9, 4.1), (3.7, 3.6, 3.85), None, None, ("same direction", 0.3, 0.05, 0.5)),
        ({"asks": "above"}, (4.0, 3.9, 4.1), (3.7, 3.4, 3.95), None, None, ("open", 0.3, -0.05, 0.7)),
        ({"asks": "above"}, (3.7, 3.6, 3.8), (4.0, 3.9, 4.1), None, None, ("deviates", -0.3, -0.5, -0.1)),
        # The largest lead is a lead, and clearly above every other one.
        ({"asks": "largest_lead"}, None, None, (0.5, 0.3, 0.7), (0.2, 0.1, 0.3), ("same direction", 0.5, 0.3, 0.7)),
        ({"asks": "largest_lead"}, None, None, (0.5, 0.3, 0.7), (0.2, -0.1, 0.4), ("open", 0.5, 0.3, 0.7)),
        ({"asks": "largest_lead"}, None, None, (0.1, -0.2, 0.4), (0.2, 0.1, 0.3), ("open", 0.1, -0.2, 0.4)),
    ],
)
def test_physicians_ratings_are_judged_by_their_intervals(tmp_path, claim, ours, baseline, lead, ahead, verdict):
    def interval(numbers):
        value, low, high = numbers or (3.0, 2.9, 3.1)
        return {"value": value, "low": low, "high": high}

    dimension, runs = dimensions()[0], ("cdpr-seed0", "grpo-seed0")
    analysis = Analysis(
        study="s", kind=PHYSICIAN, source="warm_start", runs=runs, left_out={}, raters=("R1",), states=20, cases=20,
        scores={dimension: dict(zip(runs, map(interval, (ours, baseline)), strict=True))},
        lead={dimension: interval(lead)}, ahead={dimension: interval(ahead)},
    )  # fmt: skip
    (tmp_path / "study").mkdir()
    (tmp_path / "study/analysis.json").write_text(analysis.model_dump_json(), encoding="utf-8")
    where = {"on_dimensions": [dimension], "of": "cdpr", "than": "grpo"} if claim["asks"] == "above" else {}
    # The paper's private cases are not ours: its claim is at most shown in the same direction.
    (entry,) = judged(PAPER, tmp_path, {"kind": "study"} | claim | (where or {"dimension": dimension}))
    measured = (entry["verdict"], *(pytest.approx(entry[key]) for key in ("measured", "low", "high")))
    assert measured == verdict, entry["why"]
