"""The profiles: all can be planned, and Slurm's runs on a real Slurm where one can be started."""

import os
import re
from types import SimpleNamespace

import pytest
from project import Project
from slurm_cluster import missing, one_node
from snakemake_executor_plugin_slurm.submit_string import get_submit_command

from cdpr.settings import parse_settings
from cdpr.workflow.machines import training_machine

pytestmark = pytest.mark.workflow
STORAGE = ("--default-storage-provider", "fs", "--default-storage-prefix")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    return Project(tmp_path_factory.mktemp("project"))


@pytest.mark.parametrize("profile", ["default", "ci", "slurm", "kubernetes"])
def test_every_profile_plans_the_whole_paper(project, profile, tmp_path):
    more = (*STORAGE, str(tmp_path)) if profile == "kubernetes" else ()  # instead of a bucket
    said = project.snakemake("-n", "--workflow-profile", f"profiles/{profile}", *more)
    assert re.search(r"^reproduce_paper +1$", said, re.MULTILINE) and re.search(
        r"^train_policy +\d+", said, re.MULTILINE
    )


class Resources(SimpleNamespace):
    """As Snakemake hands resources to the plugin."""

    def get(self, name, default=None):
        return getattr(self, name, default)


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_slurm_is_asked_for_a_training_with_verl(nodes):
    verl = {"engine": "verl", "verl": {"nodes": nodes, "gpus_per_node": 4, "frozen": {"beside": True}}}
    asked = training_machine(parse_settings({"training": verl, "policy": {"model": "models/some"}}))
    job = SimpleNamespace(resources=Resources(**asked, runtime=60), threads=4)
    names = ("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir")
    command = get_submit_command(job, dict.fromkeys(names, ""))
    assert "--ntasks-per-gpu" not in command
    several = [f"--nodes={nodes}", f"--ntasks={nodes}"]
    assert [flag in command for flag in several] == [nodes > 1] * 2


@pytest.mark.skipif("CDPR_SLURM" not in os.environ, reason="on demand: make slurm-local")
def test_the_miniature_runs_on_a_real_slurm(project, tmp_path):
    assert missing() == [], f"Slurm is not whole here: {missing()}"
    with one_node(tmp_path / "slurm") as environment:
        project.environment |= environment
        said = project.snakemake(
            "smoke", "--workflow-profile", "profiles/slurm", "--slurm-status-command", "squeue",
            "--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "2",
        )  # fmt: skip
    assert "has been submitted with SLURM jobid" in said and re.search(r"\d+ of \d+ steps \(100%\) done", said)
    assert len(project.read("evaluations/cdpr-seed0/mimic_iv.jsonl")) > 1000
