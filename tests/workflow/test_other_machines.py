"""The miniature on machines that are not here: an emulated macOS, on a disk that has no locks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project import RESULTS, Project
from test_locks import library

# Jobs of every kind, with a table engine, worker processes, and a policy that learns.
FILES = (
    "cards/mimic_iv.json", "cases/mimic_iv.jsonl", "training/cdpr-seed0/metrics.jsonl",
    "training/cdpr-seed0/credit.jsonl.gz", "evaluations/cdpr-seed0/mimic_iv.jsonl",
)  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("gcc"), reason="needs Linux and gcc")
def test_a_mac_and_a_disk_without_locks_give_the_same_bytes(project, tmp_path):
    (tmp_path / "disk").mkdir()
    other = Project(tmp_path / "disk")
    environment = other.environment | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).with_name("macos")), other.environment["PYTHONPATH"]]),
        "LD_PRELOAD": str(library(tmp_path)), "NO_LOCKS_BELOW": str(other.folder), "NO_RECORD_LOCKS": "1",
    }  # fmt: skip
    command = other.command(*(f"{RESULTS}/{name}" for name in FILES), "--config", "tracking={mlflow: false}")
    done = subprocess.run(command, cwd=other.folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert not [name for name in FILES if other.read(name) != project.read(name)]
