"""Jobs that are forked from one process: what the caller sees is what a process of its own would have said and done."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cdpr.workflow import forkserver

ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path, monkeypatch) -> Path:
    """A copy of the package that is the one to be imported."""
    copy = tmp_path / "src"
    shutil.copytree(ROOT / "src" / "cdpr", copy / "cdpr", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(copy))
    return copy / "cdpr"


@pytest.fixture
def server(monkeypatch) -> Iterator[subprocess.Popen]:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    started = forkserver.start({})
    door = Path(os.environ["CDPR_FORKSERVER"])
    while not door.exists():
        assert started.poll() is None
        time.sleep(0.05)
    yield started
    started.stdin.close()
    assert started.wait(30) == 0 and not door.parent.exists()


def cdpr(*arguments: str, **variables: str) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen([sys.executable, "-m", "cdpr.command", *arguments], cwd=ROOT, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def children(server: subprocess.Popen) -> list[psutil.Process]:
    return [child for child in psutil.Process(server.pid).children() if is_alive(child)]


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("arguments", [["config", "--check"], ["write_timings", "--key"], ["why", "no/such/run.json"]])
def test_a_fork_says_and_returns_what_a_process_does(server, arguments):
    forked, alone = cdpr(*arguments), cdpr(*arguments, OMP_NUM_THREADS="2")
    said = [(*process.communicate(), process.returncode) for process in (forked, alone)]
    assert said[0] == said[1]


def test_a_job_runs_in_the_server_with_the_callers_folder_and_variables(server, tmp_path):
    """An empty results folder, named by variables that the server does not have."""
    (tmp_path / "settings.yaml").write_text(f"paths: {{results: {tmp_path}/results, state: {tmp_path}/state}}\n")
    os.kill(server.pid, signal.SIGSTOP)
    asked = cdpr("write_timings", CDPR_SETTINGS=str(tmp_path / "settings.yaml"))
    with pytest.raises(subprocess.TimeoutExpired):
        asked.wait(1)  # it waits for the server, and does nothing itself
    os.kill(server.pid, signal.SIGCONT)
    assert asked.communicate() == ("0 jobs, 0 files that cannot be used\n", "") and asked.returncode == 0
    assert (tmp_path / "results" / "timings.md").exists()


def test_what_cannot_be_prepared_is_left_to_the_job_that_needs_it(source, request, tmp_path):
    (tmp_path / "settings.yaml").write_text(f"paths: {{results: {tmp_path}/results, state: {tmp_path}/state}}\n")
    module = source / "workflow" / "forkserver.py"
    module.write_text(module.read_text().replace('"scipy.stats"', '"no.such.module"'))
    server = request.getfixturevalue("server")
    told, complaint = cdpr("write_timings", "--settings", str(tmp_path / "settings.yaml")).communicate()
    assert (told, complaint, server.poll()) == ("0 jobs, 0 files that cannot be used\n", "", None)


def test_a_long_folder_for_temporary_files_is_no_obstacle(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    started = forkserver.start({})
    assert wait_for(lambda: Path(os.environ["CDPR_FORKSERVER"]).exists())
    assert cdpr("config", "--check").wait(60) == 0
    started.stdin.close()
    assert started.wait(30) == 0


def test_an_interrupt_while_it_starts_is_for_the_jobs_alone(monkeypatch, capfd):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    started = forkserver.start({})
    for _ in range(20):
        started.send_signal(signal.SIGINT)
        time.sleep(0.02)
    assert wait_for(lambda: Path(os.environ["CDPR_FORKSERVER"]).exists()) and started.poll() is None
    started.stdin.close()
    assert started.wait(30) == 0 and "Traceback" not in capfd.readouterr().err


def test_a_server_that_dies_with_a_request_leaves_the_job_to_its_caller(tmp_path):
    place = tmp_path / "door"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(place))
        door.listen()
        caller = cdpr("config", "--check", CDPR_FORKSERVER=str(place))
        line, _ = door.accept()
        time.sleep(0.5)  # the request is there, and unread
        line.close()
    _, errors = caller.communicate(timeout=120)
    assert caller.returncode == 0 and not errors


def test_a_caller_that_dies_before_it_asks_costs_the_others_nothing(server):
    for request in (b"", b'{"arguments"'):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(os.environ["CDPR_FORKSERVER"])
            socket.send_fds(line, [b"-"], [1, 2]) if request else None
            line.sendall(request)
    assert cdpr("config", "--check").wait(60) == 0 and server.poll() is None


def test_folders_of_killed_servers_are_removed_by_the_next_run(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "from cdpr.workflow import forkserver; forkserver.start({}).wait()"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    assert wait_for(lambda: list(tmp_path.glob("cdpr-*/door")))
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    (other := tmp_path / f"cdpr-{os.getpid()}-of_a_living_process").mkdir()
    [left] = set(tmp_path.iterdir()) - {other}
    started = forkserver.start({})
    assert not left.exists() and other.exists()
    started.stdin.close()
    assert started.wait(30) == 0


def wait_for(condition, seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return bool(condition())


def test_a_job_ends_with_its_caller(server, tmp_path):
    fifo = tmp_path / "settings.yaml"
    os.mkfifo(fifo)  # reading it never ends
    asked = cdpr("why", "some.json", "--settings", str(fifo))
    deadline = time.monotonic() + 30
    while not children(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(children(server)) == 1
    asked.kill()
    while children(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children(server) == []


def test_a_killed_job_is_no_success(server, tmp_path):
    fifo = tmp_path / "settings.yaml"
    os.mkfifo(fifo)
    asked = cdpr("why", "some.json", "--settings", str(fifo))
    while not (jobs := children(server)):
        time.sleep(0.05)
    jobs[0].kill()
    assert asked.wait(30) == 137


LATE = """
import atexit, threading, time
atexit.register(print, "at the end")
threading.Thread(target=lambda: (time.sleep(0.3), print("late"))).start()
"""


def test_what_a_job_leaves_for_its_end_is_done(source, request, tmp_path):
    (tmp_path / "settings.yaml").write_text(f"paths: {{results: {tmp_path}/results, state: {tmp_path}/state}}\n")
    timings = source / "report" / "timings.py"
    timings.write_text(timings.read_text() + LATE)
    server = request.getfixturevalue("server")
    asked = cdpr("write_timings", "--settings", str(tmp_path / "settings.yaml"))
    while not (jobs := children(server)) and asked.poll() is None:
        time.sleep(0.01)
    assert jobs, "it ran by itself"
    assert asked.communicate() == ("0 jobs, 0 files that cannot be used\nlate\nat the end\n", "")
