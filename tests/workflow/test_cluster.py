"""The profiles: all can be planned, and Slurm's runs on a real Slurm where one can be started."""

import importlib.util
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from comparison import differences, snapshot
from finished_project import finished_project
from project import RESULTS, Project
from slurm_cluster import missing_programs, one_node

from cdpr.pipeline.machines import acting_machine, follow_jobs, serving_machine, training_machine, training_threads
from cdpr.settings import Machine, Settings, parse_settings

pytestmark = pytest.mark.workflow
PLUGINS = ("snakemake_executor_plugin_slurm", "snakemake_executor_plugin_kubernetes")
with_plugins = pytest.mark.skipif(not all(map(importlib.util.find_spec, PLUGINS)), reason="make cluster")
STORAGE = ("--default-storage-provider", "fs", "--default-storage-prefix")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    return Project(tmp_path_factory.mktemp("project"))


@pytest.mark.parametrize(
    "profile", ["default", "ci", *(pytest.param(name, marks=with_plugins) for name in ("slurm", "kubernetes"))]
)
def test_every_profile_plans_the_whole_paper(project, profile, tmp_path):
    more = (*STORAGE, str(tmp_path)) if profile == "kubernetes" else ()  # instead of a bucket
    output = project.snakemake("-n", "--workflow-profile", f"profiles/{profile}", *more)
    assert re.search(r"^reproduce_paper +1$", output, re.MULTILINE) and re.search(
        r"^train_policy +\d+", output, re.MULTILINE
    )


def training(engine="verl", **verl) -> Settings:
    placed = {"frozen": {"beside": True}, "gpus_per_node": 2, "tensor_parallel": 1, "rollout": "vllm"} | verl
    return parse_settings({"training": {"engine": engine, "verl": placed}, "policy": {"model": "models/some"}})


class Resources(dict):
    """As Snakemake hands resources to the plugin."""

    __getattr__ = dict.__getitem__


def submission(resources, threads) -> str:
    """What the plugin gives to Slurm."""
    from snakemake_executor_plugin_slurm.submit_string import get_submit_command
    from snakemake_executor_plugin_slurm.utils import set_gres_string

    names = ("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir")
    job = SimpleNamespace(resources=Resources({"runtime": 60} | resources), threads=threads)
    return get_submit_command(job, dict.fromkeys(names, "")) + set_gres_string(job)


SLURM = {  # a training, and what it requests: GPUs, cores of each task, megabytes, further flags
    "2 GPUs": (training(), "--gpus=2", 16, 128_000, ["--nodes=1"]),
    "8 GPUs": (training(gpus_per_node=8), "--gpus=8", 64, 512_000, ["--nodes=1"]),
    "a frozen server of its own": (training(frozen={}), "--gpus=3", 24, 192_000, ["--nodes=1"]),
    "2 machines": (training(nodes=2, gpus_per_node=8), "--gres=gpu:8 --gpus=16", 64, 512_000,
                   ["--nodes=2", "--ntasks=2"]),
    "torch": (training("torch"), "--gpus=1", 8, 64_000, []),
    "no GPU": (training(rollout="cpu"), "", 2, 8_000, ["--ntasks=1"]),
}  # fmt: skip


@with_plugins
def test_slurm_starts_one_server_however_many_gpus_it_has():
    command = submission(serving_machine(Machine(gpus=4, memory_gb=100, hours=5)), 8)
    assert "--ntasks-per-gpu" not in command and "--ntasks=4" not in command
    assert "--mem 100000" in command and "-t 300" in command


@with_plugins
@pytest.mark.parametrize("name", SLURM)
def test_what_a_training_requests_of_slurm(name):
    settings, gpus, cores, memory, flags = SLURM[name]
    command = submission(training_machine(settings), training_threads(settings))
    assert f"--cpus-per-task={cores}" in command and f"--mem {memory}" in command
    assert " ".join(re.findall(r"--(?:gpus|gres)=\S+", command)) == gpus
    assert all(flag in command for flag in flags) and "--ntasks-per-gpu" not in command


def pod(resources, threads):
    """The container that the Kubernetes plugin requests for a job."""
    import snakemake_executor_plugin_kubernetes as kubernetes

    bodies = []
    executor = SimpleNamespace(
        logger=logging.getLogger(), run_namespace="run", container_image="image", persistent_volumes=[],
        workflow=SimpleNamespace(deployment_settings=SimpleNamespace(deployment_method=())), k8s_cpu_scalar=1.0,
        k8s_service_account_name=None, secret_envvars={}, privileged=False, namespace="n",
        format_job_exec=lambda job: "true", report_job_submission=lambda info: None,
        _kubernetes_retry=lambda request: request(),
        batchapi=SimpleNamespace(create_namespaced_job=lambda namespace, body: bodies.append(body)),
    )  # fmt: skip
    job = SimpleNamespace(resources=dict(resources) | {"_cores": threads}, jobid=1, attempt=1, is_containerized=False)
    kubernetes.Executor.run_job(executor, job)
    [body] = bodies
    return body.spec.template.spec.containers[0].resources


@with_plugins
def test_what_jobs_request_of_kubernetes():
    requested = pod(training_machine(training()), training_threads(training()))
    assert requested.requests["nvidia.com/gpu"] == requested.limits["nvidia.com/gpu"] == "2"
    assert requested.requests["cpu"] == "16000m"
    policy, reference = (
        {name: value(SimpleNamespace(run=run)) if callable(value) else value
         for name, value in acting_machine(training()).items()}
        for run in ("cdpr-seed0", "value_of_information")
    )  # fmt: skip
    assert pod(policy, 8).limits["nvidia.com/gpu"] == "1"
    without_none = {name: value for name, value in reference.items() if value is not None}  # as Snakemake drops them
    assert pod(without_none, 1).limits is None and "nvidia.com/gpu" not in pod(without_none, 1).requests


TOY = """
import time
from cdpr.settings import parse_settings
from cdpr.pipeline.machines import acting_machine, training_machine
settings = parse_settings({{"policy": {{"model": "models/some"}}, "training": {training}}})
rule all:
    input: expand("{{kind}}{{i}}", kind=["train", "evaluate"], i=range(3)), "reference"
for kind, machine in (("train", training_machine(settings)), ("evaluate", acting_machine(settings))):
    rule:
        name: kind
        output: kind + "{{i}}"
        resources: **machine
        shell: "echo begin >> gpu.log; sleep 0.4; echo end >> gpu.log; touch {{output}}"
rule reference:
    output: "reference"
    resources: mem_mb=64000
    shell: "touch {{output}}"
"""


@pytest.mark.parametrize("profile", ["default", "ci"])
def test_jobs_with_a_gpu_never_overlap_on_one_machine(tmp_path, profile):
    """Snakemake itself schedules them, under the limits of the profile; jobs that request two GPUs run too."""
    shipped = yaml.safe_load(Path(f"profiles/{profile}/profile.yaml").read_text())
    (tmp_path / "Snakefile").write_text(TOY.format(training=training().training.model_dump(mode="json")))
    command = [sys.executable, "-m", "snakemake", "--cores", "8", "--resources", *shipped["resources"]]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "gpu.log").read_text().split() == ["begin", "end"] * 6


@pytest.mark.parametrize(("sacct", "follows"), [("exit 0", "sacct"), ("exit 1", "squeue"), ("", "squeue")])
def test_squeue_follows_jobs_where_sacct_does_not_answer(tmp_path, monkeypatch, sacct, follows):
    if sacct:
        (tmp_path / "sacct").write_text(f"#!/bin/sh\n{sacct}\n")
        (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    executor = SimpleNamespace(status_command="sacct")
    assert bool(follow_jobs(executor)) == (follows == "squeue") and executor.status_command == follows
    assert follow_jobs(None) == "", "not on Slurm"


# Slurm itself, on demand. A cluster of one machine keeps no accounts.
on_slurm = pytest.mark.skipif("CDPR_SLURM" not in os.environ, reason="on demand: make slurm-local")
SUBMITTING = (
    "--workflow-profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "1",
    "--seconds-between-status-checks", "2",
)  # fmt: skip


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[dict[str, str]]:
    """The environment of clients of a real Slurm."""
    assert missing_programs() == [], f"Slurm is not whole here: {missing_programs()}"
    with one_node(tmp_path_factory.mktemp("slurm") / "cluster") as environment:
        yield environment


@on_slurm
def test_the_miniature_runs_on_a_real_slurm(project, slurm):
    project.environment |= slurm
    output = project.snakemake("smoke", *SUBMITTING)
    assert "`squeue` is asked how jobs end" in output, "this Slurm keeps no accounts"
    assert "has been submitted with SLURM jobid" in output and re.search(r"\d+ of \d+ steps \(100%\) done", output)
    assert len(project.read("evaluations/cdpr-seed0/mimic_iv.jsonl")) > 1000


def cancel_a_training(project: Project, run: subprocess.Popen) -> str:
    """Cancel the first training that runs; returns its number."""
    command = ["squeue", "--noheader", "--states=RUNNING", "--format=%i %k"]
    while run.poll() is None:
        jobs = subprocess.run(command, env=project.environment, capture_output=True, text=True, check=True).stdout
        if training := re.search(r"^(\d+) rule_train_policy", jobs, re.MULTILINE):
            subprocess.run(["scancel", training[1]], env=project.environment, check=True)
            return training[1]
        time.sleep(0.5)
    raise AssertionError("no training ran")


@on_slurm
def test_the_paper_on_a_real_slurm_is_that_of_one_machine_also_after_a_cancelled_job(slurm, tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    local, remote = finished_project(base / "local", base / "finished"), Project(tmp_path_factory.mktemp("remote"))
    remote.environment |= slurm
    targets = ("reproduce_paper", "inspector")
    with (base / "first.txt").open("w") as output:
        run = subprocess.Popen(remote.command(*targets, *SUBMITTING, "--retries", "0"), cwd=remote.folder,
                               env=remote.environment, stdout=output, stderr=output)  # fmt: skip
        job = cancel_a_training(remote, run)
        assert run.wait() != 0
    output_text = (base / "first.txt").read_text()
    assert re.search(rf"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED", output_text), output_text[-4000:]
    again = remote.snakemake(*targets, *SUBMITTING)
    assert re.search(r"(\d+) of \1 steps \(100%\) done", again)
    assert "Nothing to be done" in remote.run(*targets, "-n").stdout
    assert differences(snapshot(local.folder / RESULTS), snapshot(remote.folder / RESULTS)) == []
