"""The miniature on machines that are not here: an emulated macOS, a disk that has no locks, other Pythons."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import uv
from project import RESULTS, ROOT, Project
from test_locks import library

from cdpr.files import path_digest

# What jobs of every kind make: with a table engine, worker processes, and a policy that learns.
FILES = (
    "cards/mimic_iv.json", "cases/mimic_iv.jsonl", "training/cdpr-seed0/metrics.jsonl",
    "training/cdpr-seed0/credit.jsonl.gz", "evaluations/cdpr-seed0/mimic_iv.jsonl",
)  # fmt: skip
# What the first stages make, which need no torch.
FIRST = ("raw/mimic_iv", "raw/clinicalbench", "raw/private", "cases/mimic_iv.jsonl", "cases/clinicalbench.jsonl",
         "cases/private.jsonl", "cards/mimic_iv.json", "cards/clinicalbench.json", "cards/private.json")  # fmt: skip
WITHOUT_MLFLOW = ("--config", "tracking={mlflow: false}")


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("gcc"), reason="needs Linux and gcc")
def test_a_mac_and_a_disk_without_locks_give_the_same_bytes(project, tmp_path):
    (tmp_path / "disk").mkdir()
    other = Project(tmp_path / "disk")
    environment = other.environment | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).with_name("macos")), other.environment["PYTHONPATH"]]),
        "LD_PRELOAD": str(library(tmp_path)), "NO_LOCKS_BELOW": str(other.folder), "NO_RECORD_LOCKS": "1",
    }  # fmt: skip
    run(other.command(*(f"{RESULTS}/{name}" for name in FILES), *WITHOUT_MLFLOW), other.folder, environment)
    assert not [name for name in FILES if other.read(name) != project.read(name)]


def pythons() -> list[str]:
    """Other Pythons of this machine that are supported, one of each version."""
    found = {}
    for minor in {11, 12, 13, 14} - {sys.version_info.minor}:
        installed = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))
        for path in (shutil.which(f"python3.{minor}"), *map(str, installed)):
            if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
                found[minor] = path
    return [found[minor] for minor in sorted(found)]


@pytest.mark.parametrize("python", pythons())
def test_another_python_makes_the_same_data(project, tmp_path, python):
    configuration = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    variables = runpy.run_path(str(ROOT / "envs/install.py"))["uv_variables"](configuration.stdout)
    environment = variables | os.environ | {"VIRTUAL_ENV": str(tmp_path / "venv"), "CC": "true"}  # see the Makefile
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("torch==")]
    (tmp_path / "requirements.txt").write_text("\n".join(lines))
    run([uv.find_uv_bin(), "venv", "--quiet", "--python", python, "venv"], tmp_path, environment)
    run([uv.find_uv_bin(), "pip", "install", "--no-deps", "-r", "requirements.txt"], tmp_path, environment)
    (tmp_path / "project").mkdir()
    other = Project(tmp_path / "project")
    targets = (f"{RESULTS}/{name}" for name in FIRST if not name.startswith("raw/"))
    command = [str(tmp_path / "venv/bin/python"), *other.command(*targets, *WITHOUT_MLFLOW)[1:]]
    # The command `cdpr`, which no environment without the package itself has.
    tool = tmp_path / "venv/bin/cdpr"
    tool.write_text(f'#!/bin/sh\nexec {tmp_path}/venv/bin/python -m cdpr.pipeline.cli "$@"\n')
    tool.chmod(0o755)
    run(command, other.folder, other.environment | {"PATH": f"{tool.parent}:/usr/bin:/bin"})
    made = {name: path_digest(other.folder / RESULTS / name) for name in FIRST}
    assert made == {name: path_digest(project.folder / RESULTS / name) for name in FIRST}
