"""The display of a run: with and without a terminal, after a failure or an interruption, and without work."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from project import ROOT, Project

from cdpr.pipeline.experiment import Experiment
from cdpr.pipeline.outlook import forecast, outcome
from cdpr.settings import load_settings

WORKFLOW = """
from pathlib import Path
from snakemake.logging import logger

RUNS = ["a", "b", "c"]

rule all:
    input: expand("out/{run}.txt", run=RUNS), expand("many/{n}.txt", n=range(200))

rule train:
    output: "out/{run}.txt"
    log: "{run}.log"
    shell: '''
        exec > {log} 2>&1
        for i in $(seq 40); do sleep .05; echo "step $i${{MORE:-}}"; done
        test ! -e fail-{wildcards.run}; touch {output}
        '''

onstart:
    logger.info("What will be made.", extra={"job_count": 4})
    if Path("interrupt").exists():  # while the thread of the first job starts, which Snakemake then does not wait for
        import threading

        def interrupted(thread, start=threading.Thread.start):
            start(thread)
            if "ThreadPool" in thread.name and threading.current_thread() is threading.main_thread():
                threading.Thread.start = start
                raise KeyboardInterrupt

        threading.Thread.start = interrupted

onsuccess:
    logger.info("What was made.", extra={"outcome": True})

onerror:
    logger.info("What to do next.", extra={"outcome": False})
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "Snakefile").write_text(WORKFLOW)
    (tmp_path / "many").mkdir()
    for number in range(200):
        (tmp_path / "many" / f"{number}.txt").touch()
    return tmp_path


def command(*more: str) -> list[str]:
    display = ("--logger", "cdpr", "--logger-cdpr-every", "1")
    return [sys.executable, "-m", "snakemake", "--cores", "2", "--keep-going", *display, *more]


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*more), cwd=folder, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)  # fmt: skip


def full_log(folder: Path) -> str:
    return max((folder / ".snakemake" / "log").iterdir()).read_text()


def test_plain_lines_where_no_terminal_is_attached(folder):
    output = run(folder).stdout
    lines = output.splitlines()
    assert lines[0] == "What will be made." and lines[-1] == "What was made."
    assert lines[-2].startswith("4 of 4 jobs done in 0:00:")
    two = r"now train ([abc]) \(step [1-9]\d*\), train (?!\1)[abc] \(step \d+\)$"
    assert re.search(two, output, re.MULTILINE), output
    assert "\x1b" not in output and len(lines) < 12 and max(map(len, lines)) < 200
    assert "many/199.txt" in full_log(folder), "what the display leaves out stands in the full log"
    assert run(folder).stdout.startswith("Nothing to be done")


def test_a_failed_job_shows_the_end_of_its_own_log(folder):
    (folder / "fail-b").touch()
    result = run(folder)
    assert result.returncode == 1
    assert "train b failed. Its log, b.log, ends:\n" in result.stdout
    assert [n for n in range(1, 41) if f"    step {n}\n" in result.stdout] == [*range(26, 41)]
    assert "for i in" not in result.stdout, "the command belongs into the full log"
    assert re.search(r"2 of 4 jobs done in 0:00:\d\d, 1 failed \(train b\)\.\nWhat to do next\.\n$", result.stdout), (
        result.stdout
    )


def test_an_interrupted_run_ends_with_what_to_do(folder):
    # A shell may have started these tests in the background, where it has interrupts ignored.
    process = subprocess.Popen(command(), cwd=folder, text=True, start_new_session=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
    wait_until(lambda: any(folder.glob("*.log")))  # which training comes first is Snakemake's choice
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "failed" not in output and "Traceback" not in output, output
    assert re.search(r"Terminating processes(.*\n)+0 of 4 jobs done in 0:00:\d\d\.\nWhat to do next\.\n$", output), (
        output
    )


def test_an_interruption_while_a_job_starts_looks_like_any_other(folder):
    (folder / "interrupt").touch()
    result = run(folder)
    assert result.returncode == 1 and re.fullmatch(
        r"What will be made\.\nTerminating processes.*\n(\d.*\n)*0 of 4 jobs done in 0:00:\d\d\.\nWhat to do next\.\n",
        result.stdout,
    ), result.stdout
    (folder / "interrupt").unlink()
    assert run(folder).returncode == 0


def test_a_terminal_gets_one_display_and_is_given_back(folder):
    try:
        own_end, far_end = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminals in this container: {error}")
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "MORE": "\x1b]0;title\x07"}
    process = subprocess.Popen(command(), cwd=folder, env=environment, stdout=far_end, stderr=far_end, close_fds=True)
    os.close(far_end)
    output = b""
    try:
        while part := os.read(own_end, 65536):
            output += part
    except OSError:  # Linux: the other end is closed
        pass
    process.wait()
    text = output.decode()
    assert re.search(r"0 of 4 jobs.*train [abc] 0:00:\d\d  (\x1b\[2m)?step \d+", text, re.DOTALL), text
    assert "\x1b]" not in text  # a log cannot command the terminal
    hide, show = text.rindex("\x1b[?25l"), text.rindex("\x1b[?25h")
    assert hide < show < text.index("What was made.")


def test_a_dry_run_lists_jobs_and_reasons(folder):
    output = run(folder, "--dry-run").stdout
    assert re.search(r"^train +3$", output, re.MULTILINE) and "reason: Missing output files: out/a.txt" in output


def wait_until(true, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_what_stands_in_the_way_of_a_run_is_said_in_three_lines(tmp_path):
    """A second workflow, and folders that cannot be written; the full log keeps the stack."""
    project = Project(tmp_path)
    state = project.folder / "state/ci"
    for folder in ("results/ci", "state/ci"):  # two projects may share one of them
        (project.folder / folder).mkdir(parents=True, exist_ok=True)
        with (project.folder / folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            second = project.run("smoke")
        assert second.returncode == 1 and second.stdout.splitlines()[1:] == [
            "Another snakemake is at work here.", f"{project.folder}/{folder} (it holds {folder}/.lock)",
            "Wait for its end, or start this one with other paths.results and paths.state.",
        ]  # fmt: skip
    assert "in begin" in full_log(project.folder)
    bounds = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner"] if os.getuid() == 0 else []
    for folder in (state, project.folder / ".snakemake/log"):
        places = [folder, *folder.iterdir()]
        for place in places:
            place.chmod(0o555 if place.is_dir() else 0o444)
        done = subprocess.run([*bounds, *project.command("smoke")], cwd=project.folder, env=project.environment,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        assert done.returncode == 1 and "Traceback" not in done.stdout and 'File "' not in done.stdout
        what, where, remedy = done.stdout.splitlines()[1:4]
        assert what.endswith("Permission denied") and str(folder) in where and "Make it writable for you" in remedy
        for place in places:
            place.chmod(0o755)


def test_a_checkout_may_lie_in_a_folder_of_any_name(tmp_path):
    folder = tmp_path / "my $HOME & mine's"
    folder.mkdir()
    Project(folder).snakemake("make_hospital")
    assert (folder / "results/ci/raw/run.json").exists()


def settings(tmp_path: Path):
    loaded = load_settings(ROOT / "config.yaml", ROOT / "config/ci.yaml")
    return loaded.model_copy(update={"paths": loaded.paths.model_copy(update={"results": str(tmp_path)})})


def test_a_run_says_how_long_it_takes_where_that_is_known():
    jobs = [("warm_start_policy", 2), *[("train_policy", 1)] * 30, ("plot_points", 1), ("reproduce_paper", 1)]
    assert forecast(jobs, 2) == "10 min on 2 fast cores, up to 25 min on slow ones", (
        "two cores for 302 s, then thirty times 19 s on either"
    )
    assert forecast(jobs, 32) == "5 min on 32 fast cores, up to 14 min on slow ones", (
        "training waits for the warm start"
    )
    assert forecast(jobs, 2, ["config/ci.yaml"]) == "45 s on 2 fast cores, up to 2 min on slow ones"
    unknown = "for an unknown time"
    assert forecast(jobs, 2, ["config/my_own.yaml"]) == unknown and forecast(jobs) == unknown, "on a cluster"
    assert forecast([*jobs, ("evaluate_served", 1)], 2) == unknown, "as long as the server takes"


def test_the_last_lines_lead_to_the_report_or_to_the_targets(tmp_path):
    plan = Experiment(settings(tmp_path))
    tables = [f"{tmp_path}/tables/ablations.{kind}" for kind in ("csv", "md", "tex", "run.json")]
    assert outcome(plan, tables, []) == f"Made    {tmp_path}/tables/ablations.md"
    (tmp_path / "report.run.json").write_text('{"tags": {"says": "In-domain: Does A beat B? No."}}')
    report, says, tracking = outcome(plan, [*tables, f"{tmp_path}/report.html"], []).splitlines()
    assert report.endswith(f"{tmp_path}/report.html") and says.endswith("In-domain: Does A beat B? No.")
    assert tracking.endswith(f"mlflow ui --backend-store-uri sqlite:///{tmp_path}/mlflow.db")
