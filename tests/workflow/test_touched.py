"""An edit, a setting or a new row of a table reruns the jobs that depend on it, and no other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from finished_project import LAST, ON_PAGE, PLAN, REPORTS
from project import PARTS, RESULTS, ROOT, Project

pytestmark = pytest.mark.workflow

# From the decisions of a trained policy to the table and figure of the expert study.
STUDY = {"propose_actions": None, "make_forms": 1, "simulate_ratings": 1, "analyse_study": 1, "write_expert_study": 1,
         "plot_expert_study": 1}  # fmt: skip


def test_touching_and_rewording_rerun_nothing(project):
    for part in PARTS:
        for path in [project.folder / part, *(project.folder / part).rglob("*")]:
            path.touch()
    project.edit("src/cdpr/environment/episode.py", lambda text: text.replace('"""', '"""Reworded. ', 1) + "\n# Why.\n")
    assert project.would_run() == {}


def runs_of(algorithm: str) -> int:
    """Number of training runs with an algorithm in the miniature."""
    runs = {run for stage in ON_PAGE for run in training_runs(stage)}
    return sum(PLAN.settings_of("train_policy", {"run": run}).training.algorithm == algorithm for run in runs)


def training_runs(stage: str) -> set[str]:
    """Training runs that a table or figure depends on."""
    evidence = PLAN.evidence(stage)
    return {*evidence.training, *(run for run, _ in evidence.evaluations if "-seed" in run)}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/cdpr/report/sensitivity.py", {"plot_sensitivity": 1, **LAST}),
        ("src/cdpr/report/templates/style.html", LAST),
        ("workflow/paper/text.csv", {"claims": 1, **LAST,
                                     **{stage: 1 for stage in ON_PAGE if stage.startswith("write_")}}),
        ("src/cdpr/training/algorithms/cdpr.py", {"train_policy": runs_of("cdpr"), "evaluate_agent": None,
                                                  "evaluate_on_benchmarks": None,
                                                  "claims": 1, "write_frames": 1, "credit_workups": None,
                                                  "inspector": 1, **LAST, **STUDY,
                                                  **{stage: 1 for stage in ON_PAGE if training_runs(stage)}}),
        ("src/cdpr/pipeline/mlflow_index.py", {}),
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
    line = "  another: {label: Another, group: open, model: gpt_5_4}\n"  # not run: its entry is not enabled
    project.edit("workflow/agents.yaml", lambda text: text + line)
    try:
        jobs = project.would_run()
    finally:
        project.edit("workflow/agents.yaml", lambda text: text.removesuffix(line))
    assert "write_main_table" in jobs and not {"train_policy", "evaluate_agent"} & jobs.keys()


LARGE = """
rule all:
    input: "out.txt"
rule make:
    output: "large.bin"
    shell: "head -c 3000000 /dev/zero > {output}"
rule read:
    input: "large.bin"
    output: "out.txt"
    shell: "wc -c {input} > {output}"
"""


@pytest.mark.parametrize("profile", ["default", "ci", "slurm", "kubernetes"])
def test_a_large_file_that_is_touched_reruns_nothing(tmp_path, profile):
    """Snakemake compares checksums of small files only, unless a profile says otherwise."""
    (tmp_path / "Snakefile").write_text(LARGE)
    shipped = yaml.safe_load((ROOT / f"profiles/{profile}/profile.yaml").read_text("utf-8"))
    limit = ["--max-checksum-file-size", str(shipped["max-checksum-file-size"])]
    command = [sys.executable, "-m", "snakemake", "--cores", "1"]
    subprocess.run([*command, *limit], cwd=tmp_path, check=True, capture_output=True)
    os.utime(tmp_path / "large.bin")
    done = [subprocess.run([*command, "-n", *more], cwd=tmp_path, check=True, capture_output=True, text=True)
            for more in (limit, [])]  # fmt: skip
    assert ["Nothing to be done" in run.stdout + run.stderr for run in done] == [True, False]


RULE = """
from cdpr.training.algorithms.grpo import Grpo


class Mine(Grpo):
    {reads}
    async def score_group(self, group, iteration):
        scored = await super().score_group(group, iteration)
        scored.decisions = [[a * self.settings.credit.beta for a in row] for row in scored.decisions]
        return scored
"""


def test_a_rule_of_ones_own_sees_what_it_declares_and_reruns_with_it(project):
    variant = '{variants: {mine: {label: Mine, feeds: [], change: {training.algorithm: "mine:Mine"}}}}'
    target = f"{RESULTS}/training/mine-seed0/metrics.jsonl"

    def arguments(beta: float) -> list[str]:
        return ["--config", f"experiments={variant}", f"credit={{beta: {beta}}}", "--", target]

    rule = project.folder / "src/mine.py"
    rule.write_text(RULE.format(reads=""))
    failed = project.run(*arguments(0.7))
    line = 'reads = ("training.normalise", "credit.beta")'
    assert (
        failed.returncode != 0 and "reads the setting credit" in failed.stdout and "write `reads = (" in failed.stdout
    )
    rule.write_text(RULE.format(reads=line))
    project.snakemake(*arguments(0.7))
    assert project.would_run(*arguments(0.7)) == {}
    assert project.would_run(*arguments(0.9)) == {"train_policy": 1}
