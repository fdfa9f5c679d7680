"""Jobs that start the server of their model, under Snakemake: one job, one server, also after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from project import ROOT, Project

pytestmark = pytest.mark.workflow
STUB = ROOT / "tests" / "unit" / "stub_server.py"
EVALUATIONS = [f"results/ci/evaluations/doctor/{dataset}.jsonl" for dataset in ("mimic_iv", "clinicalbench", "private")]
OVERLAY = """
agents: {{doctor: {{label: Doctor, group: open, model: doctor}}}}
models: {{doctor: {{id: doctor, machine: {{gpus: 0, cpus: 2, memory_gb: 1}}}}}}
serving: {{program: vllm, models: [doctor], command: "{command}"}}
tracking: {{mlflow: false}}
"""


def serve(project: Project, *flags: str) -> None:
    """Set how the next run's server behaves, which its command does not show: the command is part of the key."""
    command = f"{sys.executable} {STUB} --port {{port}} --name {{name}}"
    project.environment["STUB"] = " ".join(flags)
    text = (ROOT / "config" / "ci.yaml").read_text() + OVERLAY.format(command=command)
    (project.folder / "config" / "served.yaml").write_text(text)


def server_starts(project: Project) -> int:
    """Number of server starts."""
    log = project.folder / "state" / "ci" / "servers" / "doctor.log"
    return log.read_text().count("stub: environment") if log.exists() else 0


def request_count(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_job_makes_them_all_and_survives_a_kill_of_either_side(project, tmp_path):
    count, pids = tmp_path / "asked", tmp_path / "pids"
    serve(project, f"--log {count}", "--dies-after 20")
    result = project.run(*EVALUATIONS, overlay="served")
    assert result.returncode and "ended with exit status 1 during a request" in result.stdout, result.stdout[-3000:]
    assert "out of memory" in result.stdout and 0 < request_count(count) <= 20

    serve(project, f"--log {count}", f"--child {pids}", "--slow 0.5")
    run = subprocess.Popen(project.command(*EVALUATIONS, overlay="served"), cwd=project.folder, env=project.environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    deadline = time.monotonic() + 120
    while request_count(count) < 30 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert request_count(count) >= 30
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    server, child = map(int, pids.read_text().split())
    deadline = time.monotonic() + 40
    while (alive(server) or alive(child)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(server) and not alive(child)

    serve(project, f"--log {count}")
    result = project.run(*EVALUATIONS, overlay="served")
    assert result.returncode == 0, result.stdout[-3000:]
    assert all((project.folder / path).stat().st_size for path in EVALUATIONS) and server_starts(project) == 3
    before = {path: (project.folder / path).read_bytes() for path in EVALUATIONS}
    assert "Nothing to be done" in project.run(*EVALUATIONS, overlay="served").stdout

    (project.folder / EVALUATIONS[0]).unlink()  # all is recorded
    serve(project, "--fails")
    result = project.run(*EVALUATIONS, overlay="served")
    assert result.returncode == 0 and before == {path: (project.folder / path).read_bytes() for path in EVALUATIONS}
