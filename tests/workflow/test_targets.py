"""What a user can ask for: a list without single stages, and a suggestion for a mistyped target."""

import subprocess
import sys

import pytest
import yaml
from project import ROOT, Project

from cdpr.workflow.stages import STAGES

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("targets"))


def test_rules_are_listed_with_their_descriptions_and_targets_without_single_stages(checkout):
    targets = yaml.safe_load((ROOT / "workflow/targets.yaml").read_text(encoding="utf-8"))
    named = {name: target["about"] for name, target in targets.items()}
    for option, expected in (
        ("--list-target-rules", named),
        ("--list-rules", {name: stage.summary for name, stage in STAGES.items()} | named),
    ):
        command = [sys.executable, "-m", "snakemake", option]
        done = subprocess.run(
            command, cwd=checkout.folder, env=checkout.environment, capture_output=True, text=True, check=True
        )
        assert dict(line.split(maxsplit=1) for line in done.stdout.splitlines()) == expected


def test_every_target_that_is_listed_is_a_rule(checkout):
    targets = yaml.safe_load((ROOT / "workflow/targets.yaml").read_text(encoding="utf-8"))
    done = checkout.run(*targets, "--dry-run", "--quiet", "rules")
    assert done.returncode == 0 and "reproduce_paper  " in done.stdout, done.stdout[-2000:]


def test_a_mistyped_target_gets_a_suggestion(checkout):
    done = checkout.run("main_tabel")
    assert done.returncode and "main_tabel is no target. Did you mean main_table?" in done.stdout
    assert "is no target" not in checkout.run("--dry-run", "main_table").stdout


@pytest.mark.parametrize("how", ["-s", "module"])
def test_the_workflow_runs_from_another_folder(checkout, tmp_path, how):
    """Settings come from the checkout, results go to the working directory."""
    overlay, snakefile = checkout.folder / "config/ci.yaml", checkout.folder / "Snakefile"
    if how == "module":
        (tmp_path / "Snakefile").write_text(
            f'module cdpr:\n    snakefile: "{snakefile}"\nuse rule * from cdpr\n', encoding="utf-8"
        )
    where = ["-s", str(snakefile)] if how == "-s" else []
    command = [sys.executable, "-m", "snakemake", *where, "--cores", "1"]
    for target in (["--dry-run", "results/raw/mimic_iv"],  # an overlay would hide that config.yaml was not found
                   ["--configfile", str(overlay), "--", "results/ci/raw/mimic_iv"]):  # fmt: skip
        done = subprocess.run(
            [*command, *target], cwd=tmp_path, env=checkout.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "results/ci/raw/mimic_iv").is_dir() and not (checkout.folder / "results/ci/raw").exists()
