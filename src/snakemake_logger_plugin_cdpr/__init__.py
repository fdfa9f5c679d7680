"""A short display of a run instead of Snakemake's lines: ``snakemake --logger cdpr``, which profiles/default sets.

On a terminal a few lines are updated in place: the count of finished jobs, and each running job with the last line of
its log, which for a training is its step. Elsewhere one line is printed every half minute. A failed job shows the end
of its log. Snakemake's log file is complete as always. Dry runs and ``--verbose``, ``--printshellcmds`` or
``--debug-dag`` print Snakemake's own lines.
"""

import logging
import textwrap
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

from cdpr.escape import terminal
from cdpr.problems import without_stack

LOG_LINES = 15  # how many lines of a failed job's log are shown
_DURING_A_RUN = ("Nothing to be done", "Terminating processes")  # first words of remarks that are shown during a run
# Parts of messages without use for a user, and of errors that repeat what the log of the failed job says better.
_HIDDEN_PARTS = ("Config file ", "Assuming unrestricted", "Building DAG", "CalledProcessError",
                 "At least one job did not complete", "Exiting because a job execution failed")  # fmt: skip


@dataclass
class RunningJob:
    """A running job: its ``name``, such as ``train_policy cdpr-seed0``, the path of its ``log``, and when it
    ``started`` (:func:`time.monotonic`)."""

    name: str
    log: Path
    started: float = field(default_factory=time.monotonic)

    def end_of_log(self) -> list[str]:
        """The last lines of the job's log, at most :data:`LOG_LINES`; empty where it has none."""
        return self.log.read_text("utf-8", errors="replace").splitlines()[-LOG_LINES:] if self.log.is_file() else []


def since(start: float) -> str:
    """The time since ``start``, a time of :func:`time.monotonic`, as in ``0:12:05``."""
    return str(timedelta(seconds=int(time.monotonic() - start)))


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Settings on the command line: ``--logger-cdpr-...``."""

    every: int = field(default=30, metadata={"help": "Seconds between two lines when no terminal is attached."})


class LogHandler(LogHandlerBase):
    """Shows Snakemake's events. The workflow adds two records of its own, whose messages are shown: one with
    ``job_count`` at the start, one with ``outcome`` at the end."""

    # What Snakemake has to know about every log handler.
    has_formatter = True
    writes_to_file = has_filter = needs_rulegraph = False

    def __post_init__(self) -> None:
        """Prepare the display. Snakemake has set ``common_settings``, its own options, and ``settings``."""
        options = self.common_settings
        self._total = self._done = 0
        self._running: dict[Any, RunningJob] = {}
        self._failed, self._began = dict[str, threading.Timer](), time.monotonic()  # failed jobs with their reports
        self._ended = threading.Event()
        # Whether the workflow is planned, so that its jobs run; and whether the user has stopped it.
        self._planned = self._stopped = False
        self._console = Console(stderr=True, no_color=options.nocolor or None, highlight=False, markup=False)
        self._live: Live | None = None

    @property
    def writes_to_stream(self) -> bool:
        """Whether this display shows the run: not where Snakemake's own lines are wanted. Snakemake reads this
        attribute too: where it is true, Snakemake prints no lines of its own."""
        options = self.common_settings
        return not (options.dryrun or options.verbose or options.printshellcmds or options.debug_dag)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record if a user needs it."""
        try:
            if self.writes_to_stream:
                self._show(record)
        except Exception:
            self.handleError(record)

    def _show(self, record: logging.LogRecord) -> None:
        """Show a record by its kind: the start and the end of the workflow, a message, or an event of a job."""
        event, details, message = getattr(record, "event", None), record.__dict__, record.getMessage()
        self._planned |= event == LogEvent.WORKFLOW_STARTED
        if "job_count" in details:
            self._print(message)
            self._total, self._began = details["job_count"], time.monotonic()
            if self._console.is_terminal and not self._console.is_dumb_terminal:
                self._live = Live(None, console=self._console, get_renderable=self._draw, transient=True)
                self._live.start()
            else:
                threading.Thread(target=self._print_lines, daemon=True).start()
        elif "outcome" in details:
            for report in self._failed.values():
                report.join()
            self.close()
            summary = f"{self._count_jobs()} done in {since(self._began)}"
            if self._failed and not self._stopped:  # a stop by the user makes running jobs fail
                summary += f", {len(self._failed)} failed ({', '.join([*self._failed][:6])})"
            self._print(f"{summary}." if self._total else "")
            self._print(message)
        elif event in (None, LogEvent.ERROR):  # a message: a log record without an event, or an error
            is_fault = event is not None or record.levelno >= logging.WARNING
            self._stopped |= message.startswith("Terminating")
            # While the workflow is planned all messages are of use, during the run only faults and some remarks.
            is_useful = is_fault or not self._planned or message.startswith(_DURING_A_RUN)
            if is_useful and not any(part in message for part in _HIDDEN_PARTS):
                self._print(without_stack(message), "red" if is_fault else "")  # the full log keeps the stack
        elif event == LogEvent.JOB_INFO:
            name = f"{details['rule_name']} {'/'.join({**details['wildcards']}.values())}".strip()
            # The path of its first log is empty where it has none.
            self._running[details["jobid"]] = RunningJob(name, Path(next(iter(details["log"]), "")))
        elif event == LogEvent.JOB_FINISHED:
            self._done += self._running.pop(details["job_id"], None) is not None  # one more, if it was running
        elif event == LogEvent.JOB_ERROR and (job := self._running.pop(details["jobid"], None)):
            # Ctrl-C ends the jobs too, at times before Snakemake notices it: the report waits whether it says so.
            self._failed[job.name] = threading.Timer(1.0, self._report, [job])
            self._failed[job.name].start()

    def _report(self, job: RunningJob) -> None:
        """Print the end of the log of a failed job; nothing after a stop by the user, which makes running jobs fail."""
        lines = job.end_of_log() or ["(it is empty: a signal ended the job, a kill or lack of memory)"]
        why = [f"{job.name} failed. Its log, {job.log}, ends:", *lines]
        self._print("" if self._stopped else "\n    ".join(why), "red")

    def _count_jobs(self) -> str:
        """How many jobs are done, as text: ``3 of 12 jobs``."""
        return f"{self._done} of {self._total} jobs"

    def _list_jobs(self) -> list[tuple[str, str, str]]:
        """Name, last line of the log and time of every running job. The line is empty for an empty log, and has single
        spaces."""
        jobs = list(self._running.values())
        return [(job.name, " ".join("".join(job.end_of_log()[-1:]).split()), since(job.started)) for job in jobs]

    def _print_lines(self) -> None:
        """Print a line with up to three of the running jobs every ``settings.every`` seconds, until the workflow has
        ended."""
        while not self._ended.wait(self.settings.every):
            jobs = [f"{name} ({textwrap.shorten(line, 40)})" if line else name for name, line, _ in self._list_jobs()]
            more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
            now = f"; now {', '.join(jobs[:3])}{more}" if jobs else ""
            self._print(f"{time.strftime('%H:%M:%S')}  {self._count_jobs()} done{now}")

    def _draw(self) -> Group:
        """Draw the display on a terminal: the progress of all jobs, and below it up to eight running jobs."""
        head, jobs = Table.grid(padding=(0, 2)), Table.grid(Column(no_wrap=True), Column(no_wrap=True), padding=(0, 2))
        head.add_row(ProgressBar(self._total, self._done, width=30), self._count_jobs(), since(self._began))
        for name, line, duration in self._list_jobs()[:8]:
            jobs.add_row(terminal(f"{name} {duration}"), Text(terminal(line), style="dim"))
        return Group(head, jobs)

    def _print(self, message: str, style: str = "") -> None:
        """Print a message, above the display if there is one; nothing for an empty message."""
        if message:
            self._console.print(Text(terminal(message), style=style), soft_wrap=True)

    def close(self) -> None:
        """Remove the display and restore the terminal; can be called again."""
        self._ended.set()
        if self._live:
            self._live.stop()
        if self._stopped:
            # A Snakemake that was stopped while it started a job fails during cleanup. It reports that after its log
            # has ended, when Python would print the report to the terminal.
            logging.lastResort = logging.NullHandler()
        super().close()
