"""Deleted, killed or lost results are made again, to the byte."""

import os
import re
import shutil
import signal
import subprocess
import time

import pytest
from finished_project import LAST, PICTURES, REPORTS, TABLES
from project import RESULTS

pytestmark = pytest.mark.workflow

# Results that are deleted, one of every kind.
DELETED = ("tables/sample_case.tex", "figures/sensitivity.csv", "claims.json")
EVALUATION = "evaluations/grpo-seed0/private.jsonl"


def test_missing_results_are_labelled_on_demand_and_remade_byte_for_byte(project):
    names = ["claims.json", "claims.csv", *TABLES, *PICTURES, "report.html", *DELETED, EVALUATION]
    before = {path: project.read(path) for path in names}

    folder = project.folder / RESULTS / "evaluations/without_lambda_na-seed0"
    hidden = folder.rename(folder.with_name("elsewhere"))
    project.snakemake("ablations", "--config", "evaluation={partial: true}")
    text, whole = (table.decode() for table in (project.read("tables/ablations.md"), before["tables/ablations.md"]))
    assert "missing: evaluations/without_lambda_na-seed0/mimic_iv.jsonl" in text
    rows = [re.findall(r"^\| (.+?)(?: — \*missing.+?)? \|", table, re.MULTILINE) for table in (text, whole)]
    assert len(rows[0]) > 20 and rows[0] == rows[1]  # no row is shifted or lost
    hidden.rename(folder)

    for name in DELETED:
        (project.folder / RESULTS / name).unlink()
    partial = {"write_ablations": 1}  # its table was made with a missing result
    expected = {"write_sample_case": 1, "plot_sensitivity": 1, "claims": 1, **LAST}
    assert project.would_run() == partial | expected
    (project.folder / RESULTS / EVALUATION).unlink()
    jobs = project.would_run()
    assert jobs["evaluate_on_benchmarks"] == 1
    assert set(jobs) - partial.keys() <= {"evaluate_on_benchmarks", *REPORTS} - {
        "write_ablations",
        "write_dynamic_vs_static",
    }
    project.snakemake()
    assert [path for path in names if project.read(path) != before[path]] == []
    assert project.would_run() == {}


def test_a_killed_training_continues_to_the_same_table(project):
    table, policy = project.read("tables/main_results.csv"), "training/cdpr-seed0/policy/model.safetensors"
    weights, metrics = project.read(policy), project.read("training/cdpr-seed0/metrics.jsonl")
    key = re.search(r'"run_key": "([\w-]+)"', project.read("training/cdpr-seed0/run.json").decode())[1]
    state = project.folder / "state" / "ci" / key
    shutil.rmtree(state)
    for name in ("training/cdpr-seed0", "evaluations/cdpr-seed0", "tables"):
        shutil.rmtree(project.folder / RESULTS / name)
    process = subprocess.Popen(project.command("main_table"), cwd=project.folder, env=project.environment,
                               stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
                               )  # fmt: skip
    deadline = time.monotonic() + 180
    while not (state / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    for group in {os.getpgid(pid) for pid in descendants(process.pid)}:
        os.killpg(group, signal.SIGKILL)
    process.wait()
    assert (state / "checkpoint.pt").exists()
    assert not (project.folder / RESULTS / "training" / "cdpr-seed0" / "run.json").exists(), "killed too late"
    project.snakemake("main_table")
    assert project.read(policy) == weights
    assert project.read("tables/main_results.csv") == table
    assert project.read("training/cdpr-seed0/metrics.jsonl") == metrics, "times stand in a file of their own"
    steps = re.findall(r'"step": (\d+)', project.read("training/cdpr-seed0/metrics.jsonl").decode())
    assert steps == [str(step) for step in range(len(steps))]


def descendants(pid: int) -> list[int]:
    """A process and all its descendants."""
    import psutil

    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def test_state_of_other_configurations_is_removed(project):
    stray = project.folder / "state" / "ci" / ("0" * 16)
    stray.mkdir()
    names = {p.name for p in stray.parent.iterdir()} - {stray.name}
    project.call("clean_state")
    assert not stray.exists() and {p.name for p in stray.parent.iterdir()} >= names


def test_the_index_can_be_made_anew(project):
    (project.folder / RESULTS / "mlflow.db").unlink()
    assert re.search(r"(\d+) records, \1 new, 0 superseded", project.call("rebuild_tracking"))
