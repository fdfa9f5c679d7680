"""The whole workflow in miniature: it ends, it stays quiet, it reruns what it must, it survives being killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("Snakefile", "config.yaml", "config", "rules", "profiles", "workflow", "envs", "src")
RESULTS = "results/ci"
TABLES = ("main_results", "ablations", "dynamic_vs_static", "sample_case")
FIGURES = ("training_efficiency", "learning_curves", "accuracy_cost", "cost_distribution", "sensitivity",
           "further_sensitivity")  # fmt: skip
REPORTS = {
    "write_main_table", "write_ablations", "write_dynamic_vs_static", "write_sample_case", "write_claims",
    *(f"plot_{name}" for name in FIGURES), "report_page", "index_runs", "reproduce_paper",
}  # fmt: skip
PAPER_TABLES = ("write_main_table", "write_ablations", "write_dynamic_vs_static", "write_sample_case")
LAST = {"report_page": 1, "index_runs": 1, "reproduce_paper": 1}

pytestmark = pytest.mark.workflow


class Project:
    """A copy of the project whose own sources are used."""

    def __init__(self, folder: Path):
        self.folder = folder
        for part in PARTS:
            source, ignored = ROOT / part, shutil.ignore_patterns("__pycache__", "*.egg-info")
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=ignored)
            else:
                shutil.copy(source, folder / part)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "PYTEST"))}
        self.environment = {**kept, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}

    def command(self, *arguments: str, overlay: str = "ci") -> list[str]:
        snakemake = [sys.executable, "-m", "snakemake", *arguments, "--configfile", f"config/{overlay}.yaml"]
        return [*snakemake, *(() if "--cores" in arguments else ("--cores", "2"))]

    def snakemake(self, *arguments: str, more: tuple[str, ...] = ()) -> str:
        done = subprocess.run([*self.command(*arguments), *more], cwd=self.folder, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def would_run(self, *more: str) -> dict[str, int]:
        """Jobs that the next run would do, by rule."""
        text = self.snakemake("-n", more=more)
        if "Nothing to be done" in text:
            return {}
        table = text.partition("Job stats:")[2].partition("total")[0]
        return {name: int(count) for name, count in re.findall(r"^([a-z_]+) +(\d+)$", table, re.MULTILINE)}

    def read(self, name: str) -> bytes:
        return (self.folder / RESULTS / name).read_bytes()

    def edit(self, name: str, change) -> None:
        path = self.folder / name
        path.write_text(change(path.read_text()))


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    """A project that has run once."""
    made = Project(tmp_path_factory.mktemp("project"))
    made.snakemake()
    return made


def test_everything_that_was_promised_is_there(project):
    wanted = [*(f"tables/{name}.{kind}" for name in TABLES for kind in ("csv", "md", "tex")),
              *(f"figures/{name}.{kind}" for name in FIGURES for kind in ("png", "pdf")),
              *(f"claims.{kind}" for kind in ("json", "md", "csv")), "figures/sensitivity.csv", "report.html",
              "preflight.json", "mlflow.db", "training/cdpr-seed0/metrics.jsonl"]  # fmt: skip
    assert [name for name in wanted if len(project.read(name)) < 100] == []
    results = project.folder / RESULTS
    assert not list(results.rglob("*.partial*")) and not list(results.rglob(".partial*"))
    for folder in results.glob("evaluations/*/*.jsonl"):
        assert folder.with_suffix(".run.json").exists()


def test_a_second_run_has_nothing_to_do(project):
    assert "Nothing to be done" in project.snakemake()


def test_touching_and_rewording_rerun_nothing(project):
    for part in PARTS:
        for path in [project.folder / part, *(project.folder / part).rglob("*")]:
            path.touch()
    project.edit("src/cdpr/environment/episode.py", lambda text: text.replace('"""', '"""Reworded. ', 1) + "\n# Why.\n")
    assert project.would_run() == {}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/cdpr/report/sensitivity.py", {"plot_sensitivity": 1, "plot_further_sensitivity": 1, **LAST}),
        ("src/cdpr/report/templates/style.html", LAST),
        ("workflow/paper/text.csv", {"write_claims": 1, **dict.fromkeys(PAPER_TABLES, 1), **LAST}),
        ("src/cdpr/training/algorithms/cdpr.py", {"train": 15, "evaluate": 15, **dict.fromkeys(REPORTS, 1)}),
        ("src/cdpr/tracking/mlflow_index.py", {}),
    ],
)
def test_an_edit_reruns_what_can_reach_it(project, file, expected):
    before = (project.folder / file).read_text()
    project.edit(file, lambda text: text + "\nEDITED = True\n")
    try:
        assert project.would_run() == expected
    finally:
        (project.folder / file).write_text(before)


def test_a_setting_reruns_what_reads_it(project):
    jobs = project.would_run("--config", "evaluation={bootstrap: 50}")
    assert jobs == dict.fromkeys(REPORTS, 1)
    jobs = project.would_run("--config", "credit={beta: 0.7}")
    assert jobs["train"] == 15 and "warm_start" not in jobs


@pytest.mark.parametrize(("overlay", "runs"), [("paper", 46), ("small_gpu", 47)])
def test_larger_tiers_can_be_planned_without_their_data(project, overlay, runs):
    done = subprocess.run(project.command("-n", overlay=overlay), cwd=project.folder, env=project.environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0 and re.search(rf"^train +{runs}$", done.stdout, re.MULTILINE), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("deleted", "rules"),
    [
        ("tables/ablations.tex", {"write_ablations", *LAST}),
        ("figures/sensitivity.csv", {"plot_sensitivity", *LAST}),
        ("claims.json", {"write_claims", *LAST}),
        (
            "evaluations/grpo-seed0/private.jsonl",
            {"evaluate", *REPORTS} - {"write_ablations", "write_dynamic_vs_static"},
        ),
    ],
)
def test_a_deleted_result_is_remade_byte_for_byte_with_what_depends_on_it(project, deleted, rules):
    kept = ["claims.json", "claims.csv", *(f"tables/{name}.{kind}" for name in TABLES for kind in ("csv", "md", "tex")),
            *(f"figures/{figure}.png" for figure in FIGURES), "report.html", deleted]  # fmt: skip
    before = {path: project.read(path) for path in kept}
    (project.folder / RESULTS / deleted).unlink()
    assert set() < set(project.would_run()) <= rules
    project.snakemake()
    assert [path for path in kept if project.read(path) != before[path]] == []
    assert project.would_run() == {}


def test_what_is_missing_is_a_labelled_hole_on_demand(project):
    table, folder = (
        project.read("tables/ablations.md"),
        project.folder / RESULTS / "evaluations/without_lambda_na-seed0",
    )
    moved = folder.rename(folder.with_name("elsewhere"))
    project.snakemake("ablations", more=("--config", "evaluation={partial: true}"))
    text = project.read("tables/ablations.md").decode()
    assert "missing: evaluations/without_lambda_na-seed0/mimic_iv.jsonl" in text
    rows = [re.findall(r"^\| (.+?)(?: — \*missing.+?)? \|", whole, re.MULTILINE) for whole in (text, table.decode())]
    assert len(rows[0]) > 20 and rows[0] == rows[1]  # no row is shifted or lost
    moved.rename(folder)
    project.snakemake()
    assert project.read("tables/ablations.md") == table


def test_snakemakes_own_report_holds_everything_with_captions(project):
    project.snakemake("--report", "report.zip")
    with zipfile.ZipFile(project.folder / "report.zip") as packed:
        pages = [name for name in packed.namelist() if name.count("/") == 1 and name.endswith("report.html")]
        page = packed.read(pages[0]).decode()
        files = {name for name in packed.namelist() if "/data/raw/" in name}
    found, categories = (json.loads(re.search(rf'<script id="{name}">\s*var {name} = (.*);\n', page)[1])
                         for name in ("results", "categories"))  # fmt: skip
    wanted = {*(f"tables/{name}.md" for name in TABLES), *(f"figures/{name}.png" for name in FIGURES), "claims.md",
              "report.html"}  # fmt: skip
    assert {f"{RESULTS}/{name}" for name in wanted} <= found.keys()
    assert all(len(entry["caption"]) > 60 and entry["labels"] for entry in found.values())
    assert {"Tables", "Figures", "Claims", "Report"} <= categories.keys()
    assert all(any(name.endswith(entry["data_uri"]) for name in files) for entry in found.values())
    assert not re.search(r'(?:src|href)="https?://', page), "the report would need a network"


def test_an_unknown_key_is_named(project):
    done = subprocess.run([*project.command("-n"), "--config", "credit={betta: 1}"], cwd=project.folder,
                          env=project.environment, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode != 0 and "did you mean 'credit.beta'" in done.stdout + done.stderr


def test_a_killed_training_continues_to_the_same_table(project):
    table, policy = project.read("tables/main_results.csv"), "training/cdpr-seed0/policy/model.safetensors"
    weights = project.read(policy)
    key = re.search(r'"run_key": "(\w+)"', project.read("training/cdpr-seed0/run.json").decode())[1]
    state = project.folder / "state" / "ci" / key
    shutil.rmtree(state)
    for name in ("training/cdpr-seed0", "evaluations/cdpr-seed0", "tables", "figures"):
        shutil.rmtree(project.folder / RESULTS / name)
    running = subprocess.Popen(project.command(), cwd=project.folder, env=project.environment, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    deadline = time.monotonic() + 180
    while not (state / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    for group in {os.getpgid(pid) for pid in descendants(running.pid)}:
        os.killpg(group, signal.SIGKILL)
    running.wait()
    assert (state / "checkpoint.pt").exists()
    assert not (project.folder / RESULTS / "training" / "cdpr-seed0" / "run.json").exists(), "killed too late"
    project.snakemake()
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
