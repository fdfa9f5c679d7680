"""Exports: what a log tells of a workup is what happened, and nothing of credentialed cases leaves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from toy import CBC, CT, MRI, RIGHT, WRONG, Script

from cdpr.cases import write_records
from cdpr.environment import DiagnosticEnvironment, run_episode
from cdpr.evaluation.evaluate_agent import evaluation_row
from cdpr.evaluation.row import EvaluationRow
from cdpr.files import file_digest
from cdpr.llm.agent_model import Meter
from cdpr.pipeline import cli
from cdpr.records import RunRecord
from cdpr.report.inspect_log import Exported, ExportError, workups, write_inspect_log
from cdpr.settings import merge, parse_settings

SCRIPTS = {"T-0": (CBC, CBC, CT, RIGHT), "T-1": (MRI, "No idea.", WRONG), "T-2": (CBC, MRI, CT, "Hm.", "Hm.")}


def exported(folder: Path, case, credentialed: bool = False, **changed) -> Exported:
    """Three workups under both decodings: one with a repeat, one with a request that misses and a reply that says
    nothing, one that never diagnoses."""
    settings = parse_settings({"environment": {"max_turns": 5}, "paths": {"results": str(folder)}} | changed)
    environment = DiagnosticEnvironment(settings.environment)
    cases = [case.model_copy(update={"note_id": name, "split": "test", "credentialed": credentialed})
             for name in SCRIPTS]  # fmt: skip
    rows: list[EvaluationRow] = []
    for decoding in ("greedy", "sampled"):
        for one in cases:
            agent = Script(*SCRIPTS[one.note_id])
            workup = asyncio.run(run_episode(environment, agent, one, 0))
            rows.append(evaluation_row(settings, agent, workup, decoding, Meter(len(workup.steps), 100, 7)))
    evaluation = folder / "evaluations" / "grpo-seed0" / "mimic_iv.jsonl"
    evaluation.parent.mkdir(parents=True)
    evaluation.write_text("".join(row.line() for row in rows), encoding="utf-8")
    (folder / "cases").mkdir()
    write_records(folder / "cases" / "mimic_iv.jsonl", cases)
    record = RunRecord(
        stage="evaluate_agent", run_key="abc", tier="demo", started="2026-01-02T03:04:05+00:00", wall_seconds=60,
        inputs={"cases": {"sha256": file_digest(folder / "cases" / "mimic_iv.jsonl")}},
    )  # fmt: skip
    evaluation.with_name("mimic_iv.run.json").write_text(record.model_dump_json())
    return Exported.open(settings, "grpo-seed0", "mimic_iv", evaluation, folder / "cases" / "mimic_iv.jsonl")


def _answers(workup) -> list[str]:
    return [message["content"] for message in workup.messages if message["role"] == "user"][1:]


def test_workups_are_told_as_they_were(case, tmp_path):
    greedy = [workup for workup in workups(exported(tmp_path, case)) if workup.row.decoding == "greedy"]
    told = {workup.row.note_id: workup for workup in greedy}
    said = [(message["role"], message["content"]) for message in told["T-0"].messages]
    assert [text for role, text in said if role == "assistant"] == list(SCRIPTS["T-0"]) and told["T-0"].opening == 1
    assert _answers(told["T-0"]) == [
        "White Blood Cells high", "White Blood Cells high", "Dilated appendix with fat stranding."
    ]  # fmt: skip
    assert _answers(told["T-1"]) == ["unavailable", "invalid"]
    assert told["T-2"].row.forced and told["T-2"].messages[-1]["content"] == "Hm." and told["T-2"].row.n_invalid == 2


def test_a_workup_that_would_be_answered_otherwise_is_refused(case, tmp_path):
    found = exported(tmp_path, case)
    rows = found.evaluation.read_text()
    found.evaluation.write_text(rows.replace("REQUEST_TEST: CBC", "REQUEST_TEST: Lipase", 1))
    with pytest.raises(ExportError, match=r"T-0.*cost_usd 305.03, now"):
        list(workups(found))
    found.evaluation.write_text(json.dumps(json.loads(rows.splitlines()[0]) | {"replies": None}) + "\n")
    with pytest.raises(ExportError, match="holds no replies"):
        list(workups(found))


def test_other_cases_are_refused(case, tmp_path):
    found = exported(tmp_path, case)
    write_records(found.cases, [case.model_copy(update={"split": "test", "note_id": "T-0"})])
    with pytest.raises(ExportError, match="not the cases of"):
        Exported.open(found.settings, found.run, found.dataset, found.evaluation, found.cases)
    absent = tmp_path / "evaluations" / "cpdr-seed0" / "mimic_iv.jsonl"
    with pytest.raises(ExportError, match=rf"correct the name of the run, or .*the same settings: snakemake {absent}"):
        Exported.open(found.settings, "cpdr-seed0", found.dataset, absent, found.cases)


def test_no_log_is_written_of_credentialed_cases(case, tmp_path, capsys):
    found = exported(tmp_path, case, credentialed=True)
    with pytest.raises(ExportError, match="credentialed"):
        write_inspect_log(found, tmp_path / "run.eval")
    settings = tmp_path / "s.yaml"
    settings.write_text(json.dumps({"environment": {"max_turns": 5}, "paths": {"results": str(tmp_path)}}))
    asked = ["export", "--inspect", "grpo-seed0", str(tmp_path / "run.eval"), "--settings", str(settings)]
    assert cli.main(asked) == 2 and "credentialed" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.eval"))


def test_the_mark_of_now_counts_too(case, tmp_path):
    found = exported(tmp_path, case)  # while its data set was open
    marked = parse_settings(merge(found.settings.model_dump(), {"data": {"mimic_iv": {"credentialed": True}}}))
    with pytest.raises(ExportError, match="credentialed"):
        write_inspect_log(replace(found, settings=marked), tmp_path / "run.eval")
    assert not list(tmp_path.rglob("*.eval"))


def test_a_log_of_inspect_holds_every_workup(case, tmp_path):
    log_of = pytest.importorskip("inspect_ai.log", reason="needs the extra cdpr[inspect]")
    found = exported(tmp_path, case)
    assert write_inspect_log(found, tmp_path / "run.eval") == 6
    log = log_of.read_eval_log(str(tmp_path / "run.eval"))
    assert log.status == "success" and log.eval.model == "cdpr/grpo-seed0" and log.eval.created.startswith("2026-01-02")
    assert log.eval.metadata["tier"] == "demo" and log.eval.metadata["synthetic"] == "true"
    by_id = {(sample.id, sample.epoch): sample for sample in log.samples}
    assert len(by_id) == 6
    rows = [json.loads(line) for line in found.evaluation.read_text().splitlines()]
    for row in rows:
        sample = by_id[row["note_id"], 1 if row["decoding"] == "greedy" else 2]
        assert sample.scores["correct"].value == ("C" if row["correct"] else "I") and sample.target == row["gold"]
        assert sample.scores["utility"].value == row["utility"] and sample.scores["cost_usd"].value == row["cost_usd"]
        assert [m.text for m in sample.messages if m.role == "assistant"] == row["replies"]
        assert sample.metadata["exam_cost_usd"]["CT Abdomen and Pelvis"] == 297.26
        assert sample.model_usage["cdpr/grpo-seed0"].total_tokens == 107
    greedy = next(score for score in log.results.scores if score.name == "greedy")
    assert greedy.metrics["accuracy"].value == pytest.approx(1 / 3)
    assert greedy.metrics["aec"].value == pytest.approx(fmean(r["cost_usd"] for r in rows[:3]))
    assert log.stats.model_usage["cdpr/grpo-seed0"].output_tokens == 42
