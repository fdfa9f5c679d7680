"""What a user sees of a run: with and without a terminal, of a failure, of an interruption, of a run without work."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from project import ROOT

from cdpr.records import RunRecord
from cdpr.settings import load_settings
from cdpr.workflow.outlook import Outlook, outcome
from cdpr.workflow.plan import Plan
from snakemake_logger_plugin_cdpr.progress import Run

WORKFLOW = """
from pathlib import Path
from snakemake.logging import logger

RUNS = ["a", "b", "c"]

class Known:
    cores = 2
    seconds = {"all": 0, "train": 2}
    def kind(self, rule):
        return {"train": "trainings"}.get(rule, "others")
    def progress(self, rule, options):
        log = Path(f"{options.get('run')}.log")
        return (log.read_text().count("step") if log.exists() else 0, 40) if rule == "train" else None

rule all:
    input: expand("out/{run}.txt", run=RUNS), expand("many/{n}.txt", n=range(200))

rule train:
    output: "out/{run}.txt"
    log: "{run}.log"
    shell: '''
        exec > {log} 2>&1
        for i in $(seq 40); do sleep .05; echo step $i; done
        test ! -e fail-{wildcards.run}; touch {output}
        '''

onstart:
    logger.info("What will be made.", extra={"outlook": Known()})
    if Path("interrupt").exists():  # while the first job's thread starts: nobody waits for that thread then
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
    shown = ("--logger", "cdpr", "--logger-cdpr-every", "1")
    return [sys.executable, "-m", "snakemake", "--cores", "2", "--keep-going", *shown, *more]


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*more), cwd=folder, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)  # fmt: skip


def full_log(folder: Path) -> str:
    return max((folder / ".snakemake" / "log").iterdir()).read_text()


def test_plain_lines_where_no_terminal_is_attached(folder):
    said = run(folder).stdout
    lines = said.splitlines()
    assert lines[0] == "What will be made." and lines[-1] == "What was made."
    assert lines[-2].startswith("4 of 4 jobs done in 0:0")
    two = r"now train ([abc]) \(step [1-9]\d* of 40\), train (?!\1)[abc] \(step \d+ of 40\); about \d+ s left"
    assert re.search(two, said), said
    assert "\x1b" not in said and len(lines) < 12 and max(map(len, lines)) < 200
    assert "many/199.txt" in full_log(folder), "what the display leaves out stands in the full log"
    assert run(folder).stdout.startswith("Nothing to be done")


def test_a_failed_job_shows_the_end_of_its_own_log(folder):
    (folder / "fail-b").touch()
    done = run(folder)
    assert done.returncode == 1
    assert "train b failed. Its log, b.log, ends:\n" in done.stdout
    assert [n for n in range(1, 41) if f"    step {n}\n" in done.stdout] == [*range(26, 41)]
    assert "for i in" not in done.stdout, "the command belongs into the full log"
    assert re.search(r"2 of 4 jobs done in 0:\d\d, 1 failed \(train b\)\.\nWhat to do next\.\n$", done.stdout), (
        done.stdout
    )


def test_an_interrupted_run_ends_with_what_to_do(folder):
    # A shell may have started these tests in the background, where it has interrupts ignored.
    running = subprocess.Popen(command(), cwd=folder, text=True, start_new_session=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
    wait_until(lambda: any(folder.glob("*.log")))  # which training comes first is Snakemake's choice
    os.killpg(running.pid, signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 1 and "failed" not in said and "Traceback" not in said, said
    assert re.search(r"Terminating processes(.*\n)+0 of 4 jobs done in 0:\d\d\.\nWhat to do next\.\n$", said), said


def test_an_interruption_while_a_job_starts_looks_like_any_other(folder):
    (folder / "interrupt").touch()
    done = run(folder)
    assert done.returncode == 1 and re.fullmatch(
        r"What will be made\.\nTerminating processes.*\n(\d.*\n)*0 of 4 jobs done in 0:\d\d\.\nWhat to do next\.\n",
        done.stdout,
    ), done.stdout
    (folder / "interrupt").unlink()
    assert run(folder).returncode == 0


def test_a_terminal_gets_one_display_and_is_given_back(folder):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    running = subprocess.Popen(command(), cwd=folder, env=environment, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # how Linux tells that the other end is closed
        pass
    running.wait()
    text = said.decode()
    assert re.search(r"trainings 0/3.*train [abc]  step \d+ of 40", text, re.DOTALL), text
    hidden, shown = text.rindex("\x1b[?25l"), text.rindex("\x1b[?25h")
    assert hidden < shown < text.index("What was made.")


def test_a_dry_run_tells_jobs_and_reasons_in_lines_of_bearable_length(folder):
    said = run(folder, "--dry-run").stdout
    assert re.search(r"^train +3$", said, re.MULTILINE) and "reason: Missing output files: out/a.txt" in said
    assert max(map(len, said.splitlines())) < 500 and " characters)" in said


def wait_until(true, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_time_left_follows_the_steps_of_jobs_at_work():
    now, step = [0.0], [0]
    known = SimpleNamespace(cores=2, seconds={"train": 100.0, "draw": 10.0}, kind=str,
                            progress=lambda rule, options: (step[0], 60) if rule == "train" else None)  # fmt: skip
    following = Run(Counter(train=2, draw=4), known, clock=lambda: now[0])
    assert following.left() == (2 * 100 + 4 * 10) / 2
    step[0] = 20  # where an earlier attempt had left it
    following.start(1, "train", {"run": "cdpr-seed0"}, [], 1)
    now[0], step[0] = 30.0, 30
    assert following.left() == (30 * 30 / 10 + 100 + 4 * 10) / 2, "ten steps in 30 s, thirty to go"
    following.finish(1)
    assert following.left() == (30 + 4 * 10) / 2, "this run's own jobs count for more than what was expected"
    following.start(2, "draw", {}, [], 1)
    now[0] = 70.0
    assert following.left() == (40 / 4 + 30 + 3 * 10) / 2, "an overdue job goes on for a quarter of its time"
    following.total["unheard of"] = 1
    assert following.left() is None


JOBS = [("warm_start_policy", 2), *[("train_policy", 1)] * 10, ("plot_sensitivity", 1), ("reproduce_paper", 1)]


def settings(tmp_path: Path):
    found = load_settings(ROOT / "config.yaml", ROOT / "config/ci.yaml")
    return found.model_copy(update={"paths": found.paths.model_copy(update={"results": str(tmp_path)})})


def test_times_are_those_of_earlier_runs_else_the_shipped_ones(tmp_path):
    plan = Plan(settings(tmp_path))
    assert "13 jobs (10 trainings, 1 tables and figures, 2 others)" in str(Outlook(plan, JOBS, 2, ["config/ci.yaml"]))
    assert "nothing is known yet" in str(Outlook(plan, JOBS, 2, ["config/my_own.yaml"]))
    assert "nothing is known yet" in str(Outlook(plan, JOBS, None, ["config/ci.yaml"])), "on a cluster"
    for number, (stage, seconds) in enumerate(
        [("warm_start_policy", 300), ("train_policy", 99), ("train_policy", 101), ("train_policy", 100)]
    ):
        (tmp_path / f"{number}.run.json").write_text(RunRecord(stage=stage, wall_seconds=seconds).model_dump_json())
    (tmp_path / "broken.run.json").write_text("{")
    ours = Outlook(plan, JOBS, 2, ["config/my_own.yaml"])
    assert ours.seconds["warm_start_policy"] == 600 and ours.seconds["train_policy"] == 100
    assert "about 13 min on 2 cores" in str(ours)
    assert "about 7 min on 32 cores" in str(Outlook(plan, JOBS, 32)), "training waits for the warm start"


def test_the_last_lines_lead_to_the_report_or_to_what_was_asked_for(tmp_path):
    plan = Plan(settings(tmp_path))
    tables = [f"{tmp_path}/tables/ablations.{kind}" for kind in ("csv", "md", "tex", "run.json")]
    assert outcome(plan, tables, []) == f"Made    {tmp_path}/tables/ablations.md"
    (tmp_path / "report.run.json").write_text('{"tags": {"says": "In-domain: Does A beat B? No."}}')
    report, says, tracking = outcome(plan, [*tables, f"{tmp_path}/report.html"], []).splitlines()
    assert report.endswith(f"{tmp_path}/report.html") and says.endswith("In-domain: Does A beat B? No.")
    assert tracking.endswith(f"mlflow ui --backend-store-uri sqlite:///{tmp_path}/mlflow.db")
