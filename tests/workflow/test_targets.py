"""What a user can ask for: a list without single stages, and a suggestion for a mistyped target."""

import re
import subprocess
import sys

import pytest
from project import ROOT, Project

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("targets"))


def test_rules_are_listed_with_what_they_make_and_each_stands_in_a_file(checkout):
    command = [sys.executable, "-m", "snakemake", "--list-rules"]
    done = subprocess.run(
        command, cwd=checkout.folder, env=checkout.environment, capture_output=True, text=True, check=True
    )
    listed = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert listed.keys() >= {"reproduce_paper", "main_table", "train_policy", "write_table", "claims"}
    assert [name for name, about in listed.items() if len(about) < 20] == []
    texts = [path.read_text("utf-8") for path in (ROOT / "Snakefile", *ROOT.glob("rules/*.smk"))]
    written = [
        name for text in texts for name in re.findall(r"^(?:use )?rule (?:\w+ as )?(\w+)(?: with)?:", text, re.M)
    ]
    assert sorted(listed) == sorted(written)
    assert [name for name in listed if not any(f"rule {name}" in text for text in texts)] == []  # grep finds each


def test_every_target_can_be_planned(checkout):
    targets = ["data_cards", *re.findall(r"^rule (\w+):", (ROOT / "rules/targets.smk").read_text("utf-8"), re.M)]
    done = checkout.run(*targets, "reproduce_paper", "--dry-run", "--quiet", "rules")
    assert len(targets) > 15 and done.returncode == 0 and "reproduce_paper  " in done.stdout, done.stdout[-2000:]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_mistyped_target_is_answered_with_the_nearest_one(checkout, more):
    done = checkout.run(*more, "--", "reproduce_papr")
    assert done.returncode == 1
    assert "there is no target reproduce_papr; did you mean reproduce_paper" in done.stdout, done.stdout[-2000:]


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
