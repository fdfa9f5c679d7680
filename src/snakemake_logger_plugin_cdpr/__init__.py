"""A short display of a run instead of Snakemake's lines: ``snakemake --logger cdpr``, which profiles/default sets.

On a terminal a few lines are updated in place: finished jobs, running jobs with the steps of trainings, time left.
Elsewhere one line is printed every half minute. A failed job shows the end of its own log. Snakemake's log file is
complete as always. Dry runs and ``--verbose``, ``--printshellcmds`` or ``--debug-dag`` print Snakemake's own lines.
"""

import copy
import errno
import importlib.util
import logging
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from snakemake.logging import ColorizingTextHandler, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

LOG_LINES = 15
_WIDTH = 400  # characters of a line of a dry run; some list hundreds of files
# Of Snakemake's remarks these are shown during a run; before a run all except the hidden ones.
_REMARKS = ("Nothing to be done", "Terminating processes")
_HIDDEN_REMARKS = ("Config file ", "Assuming unrestricted", "Building DAG")
# Errors that repeat what the log of the failed job says better.
_HIDDEN_ERRORS = ("CalledProcessError", "At least one job did not complete", "Exiting because a job execution failed")


def check_executors(words: Sequence[str]) -> None:
    """End with the remedy where a profile or an option of the command line names a cluster whose plugin is missing;
    Snakemake would call it an invalid choice. It imports this module before it reads its command line, and offers a
    plugin nothing else at that moment."""
    options = " ".join(words)
    for name in ("slurm", "kubernetes"):
        is_used = re.search(rf"(^| )(-e|--executor|--profile|--workflow-profile)[ =](\S*/)?{name}/?( |$)", options)
        if is_used and importlib.util.find_spec(f"snakemake_executor_plugin_{name}") is None:
            sys.exit(f"Snakemake's plugin for {name} is not installed: make cluster")


check_executors(sys.argv[1:])


@dataclass
class RunningJob:
    """A running job; ``first_step`` is the step that an earlier attempt had reached."""

    rule: str
    options: Mapping[str, str]
    logs: list[str]
    threads: int
    started: float
    first_step: int = 0

    @property
    def name(self) -> str:
        """``train_policy cdpr-seed0``."""
        return f"{self.rule} {'/'.join(map(str, self.options.values()))}".strip()


@dataclass
class Run:
    """Counts jobs by rule; times are seconds of ``clock``.

    ``outlook`` is a ``cdpr.workflow.outlook.Outlook``, None until the workflow has sent it: number of cores, expected
    core-seconds of one job by rule, the kind of a rule, and the steps of a running job (finished, all).
    """

    total: Counter[str]
    outlook: Any = None
    clock: Callable[[], float] = time.monotonic
    running: dict[Any, RunningJob] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def __post_init__(self):
        self._started = self.clock()
        self._core_seconds: dict[str, list[float]] = {}

    @property
    def seconds(self) -> float:
        return self.clock() - self._started

    def start(self, jobid: Any, rule: str, options: Mapping[str, str], logs: list[str], threads: int) -> None:
        job = self.running[jobid] = RunningJob(rule, options, logs, threads, self.clock())
        job.first_step = self.steps(job)[0]

    def finish(self, jobid: Any) -> None:
        if job := self.running.pop(jobid, None):
            self.done[job.rule] += 1
            self._core_seconds.setdefault(job.rule, []).append((self.clock() - job.started) * job.threads)

    def steps(self, job: RunningJob) -> tuple[int, int]:
        """Finished steps and all steps of a job; (0, 0) for a job without steps."""
        return (self.outlook and self.outlook.progress(job.rule, job.options)) or (0, 0)

    def left(self) -> float | None:
        """Seconds until the end if all cores stay busy; None when the time of some rule is unknown."""
        if self.outlook is None or not self.outlook.cores:
            return None
        expected = {**self.outlook.seconds, **{rule: median(times) for rule, times in self._core_seconds.items()}}
        jobs = list(self.running.values())
        waiting = self.total - self.done - Counter(job.rule for job in jobs)
        rest = [self._rest(job, expected.get(job.rule)) for job in jobs]
        if None in rest or waiting.keys() - expected.keys():
            return None
        work = sum(seconds * job.threads for seconds, job in zip(rest, jobs, strict=True))
        work += sum(expected[rule] * count for rule, count in waiting.items())
        return max([work / self.outlook.cores, *rest])

    def time_left(self) -> str:
        """The time left in words."""
        seconds = self.left()
        return "time left not known yet" if seconds is None else f"about {duration(seconds)} left"

    def _rest(self, job: RunningJob, expected: float | None) -> float | None:
        """Remaining seconds of a running job: by its steps after the first one, else by the expected time. An overdue
        job is expected to need a quarter of its time more."""
        elapsed = self.clock() - job.started
        step, total = self.steps(job)
        if step > job.first_step:
            return elapsed * (total - step) / (step - job.first_step)
        return None if expected is None else max(expected / job.threads - elapsed, elapsed / 4)

    def kinds(self) -> str:
        """Finished and all jobs by kind (``trainings 3/38  evaluations 0/90``); empty for a single kind."""
        done: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for rule, count in self.total.items() if self.outlook else ():
            done[self.outlook.kind(rule)] += self.done[rule]
            total[self.outlook.kind(rule)] += count
        return "  ".join(f"{kind} {done[kind]}/{count}" for kind, count in total.items()) if len(total) > 1 else ""


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Settings on the command line: ``--logger-cdpr-...``."""

    every: int = field(default=30, metadata={"help": "Seconds between two lines when no terminal is attached."})


class LogHandler(LogHandlerBase):
    """Shows Snakemake's events. The workflow adds two records of its own, whose messages are shown: one with
    ``outlook`` (see :class:`Run`) at the start, one with ``outcome`` at the end."""

    writes_to_stream = True
    writes_to_file = has_filter = needs_rulegraph = False
    has_formatter = True

    def __post_init__(self) -> None:
        options = self.common_settings
        self._run: Run | None = None
        self._ended = threading.Event()
        self._started = self._stopped = False
        self._live: Live | None = None
        self._console = Console(stderr=True, no_color=options.nocolor or None, highlight=False, markup=False)
        self._plain_handler: logging.Handler | None = None
        if options.dryrun or options.verbose or options.printshellcmds or options.debug_dag:
            formatter = _CutLines if options.dryrun else DefaultFormatter
            stream = sys.stdout if options.stdout else sys.stderr
            self._plain_handler = ColorizingTextHandler(
                options.nocolor, stream, formatter(options.quiet, options.show_failed_logs)
            )

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record if a user needs it."""
        if record.levelno >= logging.ERROR:
            record = copy.copy(record)  # the full log keeps the stack
            record.msg, record.args = explained(record.getMessage()), ()
        if self._plain_handler:
            return self._plain_handler.emit(record)
        try:
            self._show(record)
        except Exception:
            self.handleError(record)

    def _show(self, record: logging.LogRecord) -> None:
        event, details, message = getattr(record, "event", None), record.__dict__, record.getMessage()
        if event == LogEvent.WORKFLOW_STARTED:
            self._started = True
        elif event == LogEvent.RUN_INFO:
            self._run = Run(Counter({rule: n for rule, n in details["stats"].items() if rule != "total"}))
            if self._console.is_terminal and not self._console.is_dumb_terminal:
                self._live = Live(
                    get_renderable=self._view, console=self._console, refresh_per_second=2, transient=True
                )
                self._live.start()
            else:
                threading.Thread(target=self._print_lines, daemon=True).start()
        elif "outlook" in details:
            if self._run:
                self._run.outlook = details["outlook"]
            self._print(message)
        elif "outcome" in details:
            self.close()
            if run := self._run:
                names = ", ".join(run.failed[:6])
                failed = f", {len(run.failed)} failed ({names})" if run.failed and not self._stopped else ""
                self._print(f"{run.done.total()} of {run.total.total()} jobs done in {clock(run.seconds)}{failed}.")
            self._print(message)
        elif event == LogEvent.ERROR or (event is None and record.levelno >= logging.WARNING):
            if not any(part in message for part in _HIDDEN_ERRORS):
                self._print(message, "red")
        elif self._run and event == LogEvent.JOB_INFO:
            self._run.start(details["jobid"], details["rule_name"], dict(details["wildcards"]), list(details["log"]),
                            details["threads"])  # fmt: skip
        elif self._run and event == LogEvent.JOB_FINISHED:
            self._run.finish(details["job_id"])
        elif event == LogEvent.JOB_ERROR:
            self._fail(details)
        elif event is None:
            self._stopped |= message.startswith("Terminating")
            if message.startswith(_REMARKS) if self._started else not message.startswith(_HIDDEN_REMARKS):
                self._print(message)

    def _print_lines(self) -> None:
        while not self._ended.wait(self.settings.every):
            self._print(f"{time.strftime('%H:%M:%S')}  {self._line()}")

    def _line(self) -> str:
        run, jobs = self._run, self._jobs()
        kinds = f" ({run.kinds()})" if run.kinds() else ""
        now = (
            f"; now {', '.join(f'{name} ({steps})' if steps else name for name, steps, _ in jobs[:3])}" if jobs else ""
        )
        more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
        return f"{run.done.total()} of {run.total.total()} jobs done{kinds}{now}{more}; {run.time_left()}"

    def _view(self) -> Group:
        run = self._run
        done, total = run.done.total(), run.total.total()
        head, jobs = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
        times = f"{clock(run.seconds)} elapsed, {run.time_left()}"
        head.add_row(ProgressBar(total, done, width=30), f"{done} of {total} jobs", times)
        for name, steps, seconds in self._jobs()[:8]:
            jobs.add_row(f"  {name}", steps, clock(seconds))
        return Group(head, Text(run.kinds(), style="dim"), jobs)

    def _jobs(self) -> list[tuple[str, str, float]]:
        """Name, step (or what it waits for) and seconds of every running job."""
        jobs = [(job, *self._run.steps(job)) for job in list(self._run.running.values())]
        return [(job.name, waits_for(job.logs) or (f"step {step} of {steps}" if steps else ""),
                 self._run.clock() - job.started) for job, step, steps in jobs]  # fmt: skip

    def _fail(self, details: dict) -> None:
        job = self._run.running.pop(details["jobid"], None) if self._run else None
        name, logs = job.name if job else details["rule_name"], job.logs if job else list(details["log"])
        if job:
            self._run.failed.append(name)
        for log in [] if self._stopped else logs or [""]:
            text = Path(log).read_text(encoding="utf-8", errors="replace") if Path(log).is_file() else ""
            lines = text.splitlines()[-LOG_LINES:]
            empty = f"Its log {log} is empty: a signal ended it (lack of memory, a kill). The same command continues."
            self._print(f"{name} failed. {f'Its log, {log}, ends:' if lines else empty}", "red")
            self._print("\n".join(f"    {line}" for line in lines))

    def _print(self, message: str, style: str = "") -> None:
        from cdpr.escape import terminal

        if message:
            self._console.print(Text(terminal(message), style=style), soft_wrap=True)

    def close(self) -> None:
        """Remove the display and restore the terminal; may be called again."""
        self._ended.set()
        if self._live:
            self._live.stop()
        if self._stopped:
            # Interrupted while it starts a job, Snakemake fails during cleanup and reports it after its log has ended.
            logging.lastResort = logging.NullHandler()
        super().close()


def waits_for(logs: list[str]) -> str:
    """What the last line of a job's log says that it waits for; empty where it says nothing of it."""
    for log in (Path(log) for log in logs):
        if log.is_file():
            with log.open("rb") as text:
                text.seek(max(0, log.stat().st_size - 1000))
                last = text.read().decode(errors="replace").rstrip().rpartition("\n")[2]
            return last if "waiting for" in last else ""
    return ""


def explained(message: str) -> str:
    """An error of Snakemake's main process without its stack where a user can act on it: one of the project's own, or
    of a disk or folder."""
    from cdpr.files import disk_problem

    if own := re.match(
        r'(?:SettingsError|UnreadableRecord) in file ".*", line \d+:\n(.*?)(\n  File ".*)?\Z', message, re.DOTALL
    ):
        return own[1]
    if protected := re.match(r"ProtectedOutputException .*affected files:\s*(.*?)\n", message + "\n", re.DOTALL):
        return disk_problem(errno.EACCES, protected[1]) or message
    if "in load_configfile" in message:
        fault = message.rstrip().rpartition("\n")[2]
        return f"A file of --configfile cannot be read: {fault}\nCorrect its name or its content; nothing was started."
    of_disk = re.search(r"\[Errno (\d+)\] [^:\n]*(?:: '([^'\n]*)')?", message)
    return (of_disk and disk_problem(int(of_disk[1]), of_disk[2])) or message


class _CutLines(DefaultFormatter):
    """Snakemake's lines; lines that list hundreds of files are cut."""

    def format(self, record: logging.LogRecord) -> str:
        lines = str(super().format(record)).split("\n")
        return "\n".join(f"{x[:_WIDTH]} ... ({len(x)} characters)" if len(x) > _WIDTH else x for x in lines)


def clock(seconds: float) -> str:
    """``0:42``, ``12:05``, ``1:02:10``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def duration(seconds: float) -> str:
    """``40 s``, ``25 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
