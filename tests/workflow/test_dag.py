"""The whole workflow in miniature: it ends, it stays quiet, it reruns what it must, it survives being killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pytest
from project import PARTS, RESULTS, ROOT, Project

from cdpr.settings import load_settings
from cdpr.workflow.plan import Plan

MADE = Plan(load_settings(ROOT / "config.yaml", ROOT / "config/ci.yaml"))
# What the report page shows, by the table of stages; whoever adds a table or figure need not come here.
SHOWN = {stage: [path.removeprefix("<results>/") for path in MADE.outputs(stage)] for stage in MADE.on_page}
TABLES = [path for stage in SHOWN if stage.startswith("write_") for path in SHOWN[stage] if "run.json" not in path]
PICTURES = [path for paths in SHOWN.values() for path in paths if path.endswith(".png")]
LAST = {"write_report": 1, "index_runs": 1, "reproduce_paper": 1}
REPORTS = dict.fromkeys([*SHOWN, "write_claims"], 1) | LAST
# From the decisions of a trained policy to the table and figure of the expert study.
STUDY = {"propose_actions": None, "make_forms": 1, "simulate_ratings": 1, "analyse_study": 1, "write_expert_study": 1,
         "plot_expert_study": 1}  # fmt: skip

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    """A project that has run once, and made the inspector with it."""
    made = Project(tmp_path_factory.mktemp("project"))
    told = made.snakemake("reproduce_paper", "inspector")
    assert re.search(r"jobs \(.*\), about \d+ \w+ on 2 cores", told), "workflow/durations.yaml lacks a stage"
    return made


def test_everything_that_was_promised_is_there(project):
    shown = [path for paths in SHOWN.values() for path in paths]
    others = ["claims.json", "claims.md", "claims.csv", "report.html", "preflight.json", "mlflow.db",
              "training/cdpr-seed0/metrics.jsonl"]  # fmt: skip
    assert {"tables/main_results.csv", "figures/accuracy_cost.png", "figures/sensitivity.csv"} < set(shown)
    assert [name for name in [*shown, *others] if len(project.read(name)) < 100] == []
    assert json.loads(project.read("report.run.json"))["tags"]["says"].startswith("In-domain: Does CDPR")
    results = project.folder / RESULTS
    assert not list(results.rglob("*.partial*")) and not list(results.rglob(".partial*"))
    for folder in results.glob("evaluations/*/*.jsonl"):
        assert folder.with_suffix(".run.json").exists()


def test_a_second_run_has_nothing_to_do(project):
    assert "Nothing to be done" in project.snakemake()


def test_the_inspector_shows_what_was_evaluated(project):
    views = json.loads(project.read("inspector/data/index.js").partition(b",")[2].removesuffix(b");\n"))["views"]
    assert len(views) == 6 and {view["credited"] for view in views} == {0, 3}
    assert all(view["decisions"] >= view["workups"] > 0 for view in views)
    assert b'href="inspector/index.html#run=cdpr-seed0&amp;dataset=mimic_iv"' in project.read("report.html")
    assert b" workups of 6 evaluations" in (project.folder / RESULTS / "logs/log_traces.log").read_bytes()


def test_touching_and_rewording_rerun_nothing(project):
    for part in PARTS:
        for path in [project.folder / part, *(project.folder / part).rglob("*")]:
            path.touch()
    project.edit("src/cdpr/environment/episode.py", lambda text: text.replace('"""', '"""Reworded. ', 1) + "\n# Why.\n")
    assert project.would_run() == {}


def runs_of(algorithm: str) -> int:
    """How many training runs use an algorithm in the miniature."""
    runs = {run for stage in MADE.on_page for run in trained_behind(stage)}
    return sum(MADE.settings_of("train_policy", {"run": run})[0].training.algorithm == algorithm for run in runs)


def trained_behind(stage: str) -> set[str]:
    """Training runs that a table or figure is made of."""
    found = MADE.evidence(stage)
    return {*found.training, *(run for run, _ in found.evaluations if "-seed" in run)}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/cdpr/report/sensitivity.py", {"plot_sensitivity": 1, **LAST}),
        ("src/cdpr/report/templates/style.html", LAST),
        ("workflow/paper/text.csv", {"write_claims": 1, **LAST,
                                     **{stage: 1 for stage in SHOWN if stage.startswith("write_")}}),
        ("src/cdpr/training/algorithms/cdpr.py", {"train_policy": runs_of("cdpr"), "evaluate_agent": None,
                                                  "write_claims": 1, **LAST, **STUDY,
                                                  **{stage: 1 for stage in SHOWN if trained_behind(stage)}}),
        ("src/cdpr/tracking/mlflow_index.py", {}),
    ],
)  # fmt: skip
def test_an_edit_reruns_what_can_reach_it(project, file, expected):
    before = (project.folder / file).read_text()
    project.edit(file, lambda text: text + "\nEDITED = True\n")
    try:
        jobs = project.would_run()
    finally:
        (project.folder / file).write_text(before)
    assert jobs.keys() == expected.keys()
    assert {name: count for name, count in jobs.items() if expected[name] is not None} == {
        name: count for name, count in expected.items() if count is not None}  # fmt: skip


def test_a_setting_reruns_what_reads_it(project):
    assert project.would_run("--config", "evaluation={bootstrap: 50}") == REPORTS | {"analyse_study": 1}
    before = files_of(project)
    jobs = project.would_run("--config", "credit={beta: 0.7}")
    assert jobs["train_policy"] == runs_of("cdpr") and "warm_start_policy" not in jobs
    assert {path.name for path in files_of(project) - before} <= {"digests.json"}, "planning alone writes nothing"


def files_of(project: Project) -> set[Path]:
    return {path for path in project.folder.rglob("*") if ".snakemake" not in path.parts}


def test_a_new_row_of_the_main_table_reruns_what_shows_rows(project):
    line = '  another: {label: Another, group: open, why: "not run: for want of time"}\n'
    project.edit("workflow/agents.yaml", lambda text: text + line)
    try:
        jobs = project.would_run()
    finally:
        project.edit("workflow/agents.yaml", lambda text: text.removesuffix(line))
    assert "write_main_table" in jobs and not {"train_policy", "evaluate_agent"} & jobs.keys()


@pytest.mark.parametrize("overlay", ["paper", "small_gpu"])
def test_larger_tiers_can_be_planned_without_their_data(project, overlay):
    done = project.run("-n", overlay=overlay)
    plan = Plan(load_settings(ROOT / "config.yaml", ROOT / f"config/{overlay}.yaml"))
    runs = len(
        {run for stage in plan.on_page for run in plan.evidence(stage).training}
        | {run for stage in plan.on_page for run, _ in plan.evidence(stage).evaluations if "-seed" in run}
    )
    assert runs > 20 and re.search(rf"^train_policy +{runs}$", done.stdout, re.MULTILINE), done.stdout[-3000:]
    assert done.returncode == 0


def test_a_mistyped_path_stops_a_run_before_its_first_job(project):
    done = project.run("--config", "data={private: {path: no/such/folder}}")
    assert done.returncode != 0 and "data.private.path: no/such/folder" in done.stdout
    full = max((project.folder / ".snakemake/log").iterdir()).read_text()
    assert "Building DAG" in full and "rule ingest_dataset" not in full


# Results that are deleted, one of every kind.
SHOWN_ALONE = ("tables/sample_case.tex", "figures/sensitivity.csv", "claims.json")
EVALUATION = "evaluations/grpo-seed0/private.jsonl"


def test_holes_are_labelled_on_demand_and_whatever_is_missing_is_remade_byte_for_byte(project):
    kept = ["claims.json", "claims.csv", *TABLES, *PICTURES, "report.html", *SHOWN_ALONE, EVALUATION]
    before = {path: project.read(path) for path in kept}

    folder = project.folder / RESULTS / "evaluations/without_lambda_na-seed0"
    moved = folder.rename(folder.with_name("elsewhere"))
    project.snakemake("ablations", "--config", "evaluation={partial: true}")
    text, whole = (table.decode() for table in (project.read("tables/ablations.md"), before["tables/ablations.md"]))
    assert "missing: evaluations/without_lambda_na-seed0/mimic_iv.jsonl" in text
    rows = [re.findall(r"^\| (.+?)(?: — \*missing.+?)? \|", table, re.MULTILINE) for table in (text, whole)]
    assert len(rows[0]) > 20 and rows[0] == rows[1]  # no row is shifted or lost
    moved.rename(folder)

    for deleted in SHOWN_ALONE:
        (project.folder / RESULTS / deleted).unlink()
    partial = {"write_ablations": 1}  # what the hole has left
    wanted = {"write_sample_case": 1, "plot_sensitivity": 1, "write_claims": 1, **LAST}
    assert project.would_run() == partial | wanted
    (project.folder / RESULTS / EVALUATION).unlink()
    jobs = project.would_run()
    assert jobs["evaluate_agent"] == 1
    assert set(jobs) - partial.keys() <= {"evaluate_agent", *REPORTS} - {"write_ablations", "write_dynamic_vs_static"}
    project.snakemake()
    assert [path for path in kept if project.read(path) != before[path]] == []
    assert project.would_run() == {}


def test_snakemakes_own_report_holds_everything_with_captions(project):
    project.snakemake("--report", "report.zip")
    with zipfile.ZipFile(project.folder / "report.zip") as packed:
        pages = [name for name in packed.namelist() if name.count("/") == 1 and name.endswith("report.html")]
        page = packed.read(pages[0]).decode()
        files = {name for name in packed.namelist() if "/data/raw/" in name}
    found, categories = (json.loads(re.search(rf'<script id="{name}">\s*var {name} = (.*);\n', page)[1])
                         for name in ("results", "categories"))  # fmt: skip
    wanted = {*(path for path in TABLES if path.endswith(".md")), *PICTURES, "claims.md", "report.html"}
    assert {f"{RESULTS}/{name}" for name in wanted} <= found.keys()
    assert all(len(entry["caption"]) > 60 and entry["labels"] for entry in found.values())
    assert {"Tables", "Figures", "Claims", "Report"} <= categories.keys()
    assert all(any(name.endswith(entry["data_uri"]) for name in files) for entry in found.values())
    assert not re.search(r'(?:src|href)="https?://', page), "the report would need a network"


def test_an_unknown_key_is_named(project):
    done = project.run("-n", "--config", "credit={betta: 1}")
    assert done.returncode != 0 and "did you mean 'credit.beta'" in done.stdout


def test_a_killed_training_continues_to_the_same_table(project):
    table, policy = project.read("tables/main_results.csv"), "training/cdpr-seed0/policy/model.safetensors"
    weights = project.read(policy)
    key = re.search(r'"run_key": "(\w+)"', project.read("training/cdpr-seed0/run.json").decode())[1]
    state = project.folder / "state" / "ci" / key
    shutil.rmtree(state)
    for name in ("training/cdpr-seed0", "evaluations/cdpr-seed0", "tables"):
        shutil.rmtree(project.folder / RESULTS / name)
    running = subprocess.Popen(project.command("main_table"), cwd=project.folder, env=project.environment,
                               stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
                               )  # fmt: skip
    deadline = time.monotonic() + 180
    while not (state / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    for group in {os.getpgid(pid) for pid in descendants(running.pid)}:
        os.killpg(group, signal.SIGKILL)
    running.wait()
    assert (state / "checkpoint.pt").exists()
    assert not (project.folder / RESULTS / "training" / "cdpr-seed0" / "run.json").exists(), "killed too late"
    project.snakemake("main_table")
    assert project.read(policy) == weights
    assert project.read("tables/main_results.csv") == table
    steps = re.findall(r'"step": (\d+)', project.read("training/cdpr-seed0/metrics.jsonl").decode())
    assert steps == [str(step) for step in range(len(steps))]


def descendants(pid: int) -> list[int]:
    """A process and everything that it started."""
    import psutil

    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def test_state_of_other_configurations_is_removed(project):
    stray = project.folder / "state" / "ci" / ("0" * 16)
    stray.mkdir()
    kept = {p.name for p in stray.parent.iterdir()} - {stray.name}
    project.snakemake("clean_state")
    assert not stray.exists() and {p.name for p in stray.parent.iterdir()} >= kept


def test_the_index_can_be_made_anew(project):
    (project.folder / RESULTS / "mlflow.db").unlink()
    assert re.search(r"(\d+) runs, \1 new, 0 superseded", project.snakemake("rebuild_tracking"))
