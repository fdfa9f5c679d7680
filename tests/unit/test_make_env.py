"""`make env` on machines as they come, on a small project: four packages of one line each, from a folder of wheels."""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
PROGRAMS = ("cat", "env", "find", "grep", "make", "mkdir", "rm", "sh", "sleep", "tail", "touch")
# The backend of the project, which also writes the wheels of the packages.
BACKEND = """
import zipfile

def wheel(folder, name):
    file, info = f"{folder}/{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    contents = {
        f"{name}/__init__.py": "", f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = "".join(f"{path},,\\n" for path in (*contents, f"{info}/RECORD"))
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in {**contents, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return file.rpartition("/")[2]

def build_editable(folder, settings=None, metadata=None):
    return wheel(folder, "cdpr")
"""
PYPROJECT = """
project = {name = "cdpr", version = "1.0"}
build-system = {requires = [], build-backend = "backend", backend-path = ["."]}
"""


class Machine:
    """A folder with the project, and a PATH of links to these programs alone."""

    def __init__(self, folder: Path):
        self.programs, self.project, self.wheels = folder / "bin", folder / "my project", folder / "wheels"
        for made in (self.programs, self.project, self.wheels):
            made.mkdir()
        for name in PROGRAMS:
            (self.programs / name).symlink_to(shutil.which(name))
        shutil.copytree(ROOT / "envs", self.project / "envs")
        shutil.copy(ROOT / "Makefile", self.project)
        (self.project / "backend.py").write_text(BACKEND)
        (self.project / "pyproject.toml").write_text(PYPROJECT)
        (self.project / "requirements.lock").write_text("torch==1.0\nimmutables==1.0\nsmall==1.0\nuv==1.0\n")
        backend: dict = {}
        exec(BACKEND, backend)
        for name in ("torch", "immutables", "small"):
            backend["wheel"](self.wheels, name)
        self.environment = {
            "PATH": str(self.programs), "HOME": str(folder), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels),
        }  # fmt: skip

    def link(self, name: str, program: Path) -> None:
        (self.programs / name).unlink(missing_ok=True)
        (self.programs / name).symlink_to(program)

    def start(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["make", "env", *arguments], cwd=self.project, env=self.environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def make(self, *arguments: str) -> str:
        """The output of `make env`, which must succeed and leave a whole environment."""
        process = self.start(*arguments)
        output = process.communicate(timeout=120)[0]
        assert process.returncode == 0, output
        imported = [self.project / ".venv/bin/python", "-c", "import torch, immutables, small, cdpr"]
        subprocess.run(imported, cwd=self.programs, check=True)
        again = self.start().communicate(timeout=60)[0]
        assert "Nothing to be done" in again and not (self.project / ".venv/.unfinished").exists()
        return output

    def fail(self, *arguments: str) -> str:
        """The output of `make env`, which must end with an error."""
        process = self.start(*arguments)
        output = process.communicate(timeout=120)[0]
        assert process.returncode == 2, output
        return output


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_python3_serves_where_python_does_not_exist_and_pip_where_uv_does_not(machine):
    machine.link("python3", PYTHON)
    assert "pip goes on" in machine.make()


def test_what_a_kill_leaves_is_mended_by_the_next_call(machine):
    machine.link("python3", PYTHON)
    process = machine.start()
    time.sleep(random.Random(0).uniform(0, 5))  # while the environment or a package is made
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    machine.make()
    # A further installation that was killed, in an environment that was whole.
    mark, left = machine.project / ".venv/.unfinished", machine.project / ".venv/lib/left_over"
    mark.touch()
    left.touch()
    machine.make()
    assert not left.exists()


def test_without_a_python_that_serves_one_sentence_says_what_to_install_and_then_all_is_well(machine):
    python = machine.programs / "python3"
    python.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*|*"-m venv"*) exit 1;; esac\nexec {PYTHON} "$@"\n')
    python.chmod(0o755)
    output = machine.fail()
    assert f"{python} lacks its module venv" in output
    assert "apt install python3-venv" in output and "dnf install python3.12" in output
    old = machine.programs / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    assert f"PYTHON={old} is no such Python" in machine.fail(f"PYTHON={old}")
    machine.make(f"PYTHON={PYTHON}")


def _python_312() -> Path | None:
    candidates = [*Path.home().glob(".pyenv/versions/3.12.*/bin/python3.12"), Path("/usr/bin/python3.12"), PYTHON]
    return next((path for path in candidates if path.name == "python3.12" and path.exists()), None)


@pytest.mark.skipif(_python_312() is None or platform.system() != "Linux", reason="no Python 3.12 to make a mirror of")
def test_uv_brings_a_python_from_its_mirror_where_there_is_none(machine, tmp_path):
    import uv

    prefix, archive = _python_312().resolve().parents[1], "cpython-3.12.1+1-install_only_stripped.tar.gz"
    left_out = {"test", "idlelib", "__pycache__", "site-packages", "tkinter"}
    (tmp_path / "mirror/1").mkdir(parents=True)
    with tarfile.open(tmp_path / "mirror/1" / archive, "w:gz", compresslevel=1, dereference=True) as tar:
        tar.add(prefix / "bin/python3.12", "python/bin/python3.12")
        tar.add(prefix / "lib/python3.12", "python/lib/python3.12",
                filter=lambda entry: None if left_out & set(entry.name.split("/")) else entry)  # fmt: skip
    releases = "https://github.com/astral-sh/python-build-standalone/releases/download"
    entry = {
        "name": "cpython", "arch": {"family": platform.machine(), "variant": None}, "os": "linux", "libc": "gnu",
        "major": 3, "minor": 12, "patch": 1, "prerelease": "", "sha256": None, "variant": None, "build": "1",
        "url": f"{releases}/1/{archive.replace('+', '%2B')}",
    }  # fmt: skip
    (tmp_path / "downloads.json").write_text(json.dumps({f"cpython-3.12.1-linux-{platform.machine()}-gnu": entry}))
    machine.link("uv", Path(uv.find_uv_bin()))
    machine.environment |= {
        "UV_PYTHON_DOWNLOADS_JSON_URL": str(tmp_path / "downloads.json"),
        "UV_PYTHON_INSTALL_MIRROR": (tmp_path / "mirror").as_uri(),
    }
    machine.make()
    home = (machine.project / ".venv/pyvenv.cfg").read_text()
    assert str(tmp_path / ".local/share/uv/python") in home and not (tmp_path / ".local/bin").exists()
