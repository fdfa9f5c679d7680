"""Results that may share a table: what their run.json say must agree."""

import json
import os
from pathlib import Path

import pytest

from cdpr.files import file_digest, path_digest
from cdpr.pipeline.cli import main
from cdpr.records import RunRecord
from cdpr.report.provenance import ProvenanceError, check_prices, check_provenance, check_training
from cdpr.settings import parse_settings

SETTINGS = parse_settings({})


def record(path, **content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def cases(digest):
    return {"cases": {"path": "cases.jsonl", "sha256": digest}}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"tier": "demo", "inputs": cases("a")}, None),
        ({}, None),
        ({"tier": "paper", "inputs": cases("a")}, "grpo-seed0/run.json: was made with tier = 'paper'"),
        ({"tier": "demo", "inputs": cases("b")}, "training on different cases"),
    ],
)
def test_training_runs_of_another_tier_or_on_other_cases_are_refused(tmp_path, other, message):
    record(tmp_path / "training/cdpr-seed0/run.json", tier="demo", inputs=cases("a"))
    record(tmp_path / "training/grpo-seed0/run.json", **other)
    runs = ["cdpr-seed0", "warm_start", "grpo-seed0"]
    if message is None:
        check_training(SETTINGS, tmp_path, runs)
    else:
        with pytest.raises(ProvenanceError, match=message):
            check_training(SETTINGS, tmp_path, runs)


@pytest.mark.parametrize(
    "other",
    [
        {"parameters": {"costs": {"price_map": "paper_prices"}}, "inputs": {}},
        {"parameters": {"costs": {"price_map": "corrected"}}, "inputs": {"catalogue": {"sha256": "b"}}},
        {"parameters": {"costs": {"price_map": "corrected"}}, "inputs": {"overrides": {"sha256": "b"}}},
    ],
)
def test_data_sets_with_different_prices_share_no_table(tmp_path, other):
    same = {"parameters": {"costs": {"price_map": "corrected"}}, "inputs": {"records": {"sha256": "its own"}}}
    record(tmp_path / "cases/mimic_iv.run.json", **same)
    record(tmp_path / "cases/private.run.json", **same | {"inputs": {"records": {"sha256": "another"}}})
    check_prices(tmp_path, ("mimic_iv", "clinicalbench", "private"))
    record(tmp_path / "cases/clinicalbench.run.json", **other)
    with pytest.raises(ProvenanceError, match="priced by different catalogues"):
        check_prices(tmp_path, ("mimic_iv", "clinicalbench", "private"))


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"tier": "paper"}, "tier = 'paper'"),
        ({"parameters": {"utility": {"lambda_cost": 0.5}}}, r"utility\.lambda_cost = 0\.5"),
        ({"parameters": {"costs": {"group_price": "sum"}}}, r"costs\.group_price = 'sum'"),
    ],
)
def test_evaluations_under_other_settings_are_refused(tmp_path, stated, message):
    path = tmp_path / "evaluations/cdpr-seed0/private.jsonl"
    record(path.with_suffix(".run.json"), tier="demo", inputs=cases("a"))
    check_provenance(SETTINGS, [path])
    record(path.with_suffix(".run.json"), **stated)
    with pytest.raises(ProvenanceError, match=message):
        check_provenance(SETTINGS, [path])


def test_results_that_were_altered_share_no_table_and_are_named(tmp_path, capsys, monkeypatch):
    """One flipped verdict moves a table; the same bytes are accepted whatever their time."""
    monkeypatch.chdir(tmp_path)
    evaluation, metrics = (
        tmp_path / "evaluations/cdpr-seed0/private.jsonl",
        tmp_path / "training/cdpr-seed0/metrics.jsonl",
    )
    for path, place in ((evaluation, evaluation.with_suffix(".run.json")), (metrics, metrics.with_name("run.json"))):
        path.parent.mkdir(parents=True)
        path.write_text('{"correct": false}\n')
        outputs = {"file": {"path": f"elsewhere/{path.name}", "sha256": file_digest(path)}}
        record(place, tier="demo", outputs=outputs)
    settings = tmp_path / "mine.yaml"
    settings.write_text(f"paths: {{results: {tmp_path}}}\n")

    def check():
        check_provenance(SETTINGS, [evaluation])
        check_training(SETTINGS, tmp_path, ["cdpr-seed0"])
        assert main(["verify", "--settings", str(settings)]) == 0

    check()
    os.utime(evaluation, ns=(1, 1))
    check()
    folder = tmp_path / "policies/warm_start"
    folder.mkdir(parents=True)
    (folder / "weights").write_text("1")
    record(folder.with_name("run.json"), outputs={"policy": {"path": str(folder), "sha256": path_digest(folder)}})
    (folder / ".snakemake_timestamp").touch()  # Snakemake marks folders when their job has ended
    check()
    evaluation.write_text('{"correct": true}\n')
    with pytest.raises(ProvenanceError, match=r"private\.jsonl: is not what was written .* snakemake --cores all"):
        check_provenance(SETTINGS, [evaluation])
    metrics.unlink()
    with pytest.raises(ProvenanceError, match=r"metrics\.jsonl"):
        check_training(SETTINGS, tmp_path, ["cdpr-seed0"])
    capsys.readouterr()
    assert main(["verify", "--settings", str(settings)]) == 1
    shown = capsys.readouterr().out
    assert "private.jsonl: not what was written" in shown and "metrics.jsonl: gone" in shown and "2 altered" in shown


@pytest.mark.parametrize("text", ["{", "[]", '{"run_key": 7}', '{"inputs": {"cases": "a"}}'])
def test_a_broken_record_is_named(tmp_path, text):
    path = tmp_path / "training/cdpr-seed0/run.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ProvenanceError, match=r"cdpr-seed0/run\.json: no run\.json"):
        check_training(SETTINGS, tmp_path, ["cdpr-seed0"])


def finished(results: Path, stage: str, file: str, **options: str) -> Path:
    """A job with one output, and its record as the frame of a job writes it."""
    path = results / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(options))
    outputs = {"it": {"path": str(path), "sha256": file_digest(path)}}
    place = path.with_name("run.json") if stage == "train_policy" else path.with_suffix(".run.json")
    return record(place, stage=stage, options=options, tier="demo", outputs=outputs)


@pytest.mark.parametrize("what", ["evaluations", "training"])
def test_exchanged_results_are_refused_and_named(tmp_path, capsys, what):
    """Whole folders of two methods, with their records: every digest agrees."""
    results, places = tmp_path / "results", {}
    for run in ("cdpr-seed0", "grpo-seed0"):
        finished(results, "train_policy", f"training/{run}/metrics.jsonl", run=run)
        places[run] = finished(
            results, "evaluate_agent", f"evaluations/{run}/private.jsonl", run=run, dataset="private"
        )
    settings = tmp_path / "mine.json"
    settings.write_text(json.dumps({"paths": {"results": str(results), "state": str(tmp_path / "state")}}))
    command = ["--settings", str(settings)]

    def check():
        check_training(SETTINGS, results, places)
        check_provenance(SETTINGS, [results / f"evaluations/{run}/private.jsonl" for run in places])

    check()
    assert main(["verify", *command]) == 0
    first, second = (results / what / run for run in places)
    for source, target in ((first, tmp_path / "x"), (second, first), (tmp_path / "x", second)):
        source.rename(target)
    with pytest.raises(ProvenanceError, match=r"run\.json: is the record of '\w+ grpo-seed0.* not of \w+ cdpr-seed0"):
        check()
    capsys.readouterr()
    assert main(["verify", *command]) == 1
    shown = capsys.readouterr().out
    assert shown.count("the record of ") == 2 and "2 altered" in shown
    assert main(["why", str(next(first.glob("*run.json"))), *command]) == 0
    assert "files were moved or exchanged" in capsys.readouterr().out


def test_a_record_is_named_as_the_index_lists_it():
    trained = RunRecord(stage="train_policy", experiment="cdpr/training", options={"run": "cdpr-seed0"})
    evaluated = RunRecord(stage="evaluate_agent", experiment="cdpr/evaluation",
                          options={"run": "cdpr-seed0", "dataset": "private"})  # fmt: skip
    asked = [RunRecord(stage=stage, options={"run": "cdpr-seed0"}) for stage in ("sample_states", "propose_actions")]
    assert [r.name for r in asked] == ["sample_states/cdpr-seed0", "propose_actions/cdpr-seed0"]
    others = [RunRecord(stage="ingest_dataset", options={"dataset": "private"}), RunRecord(stage="write_main_table")]
    assert [r.name for r in (trained, evaluated, *others)] == [
        "cdpr-seed0", "cdpr-seed0/private", "ingest_dataset/private", "write_main_table",
    ]  # fmt: skip
