"""A short display of a run instead of Snakemake's lines: ``snakemake --logger cdpr``, which profiles/default sets.

On a terminal a few lines are updated in place: finished jobs, running jobs with the steps of trainings, time left.
Elsewhere one line is printed every half minute. A failed job shows the end of its own log. Snakemake's log file is
complete as always. Dry runs and ``--verbose``, ``--printshellcmds`` or ``--debug-dag`` print Snakemake's own lines.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

from cdpr.escape import terminal
from cdpr.problems import without_stack

LOG_LINES = 15
_DURING_A_RUN = ("Nothing to be done", "Terminating processes")  # Snakemake's remarks that are shown then
# Messages without use for a user, and errors that repeat what the log of the failed job says better.
_HIDDEN = ("Config file ", "Assuming unrestricted", "Building DAG", "CalledProcessError",
           "At least one job did not complete", "Exiting because a job execution failed")  # fmt: skip


@dataclass
class RunningJob:
    """A running job."""

    rule: str
    options: Mapping[str, str]
    log: Path
    threads: int
    started: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """``train_policy cdpr-seed0``."""
        return " ".join([self.rule, "/".join(self.options.values())]).strip()

    def end_of_log(self) -> list[str]:
        """Its last lines, or why there are none."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines() if self.log.is_file() else []
        return lines[-LOG_LINES:] or ["(it is empty: a signal ended the job, a kill or lack of memory)"]


@dataclass
class Run:
    """Counts jobs by rule. ``outlook`` is a ``cdpr.pipeline.outlook.Outlook``."""

    outlook: Any
    running: dict[Any, RunningJob] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def counts(self) -> str:
        return f"{self.done.total()} of {self.outlook.jobs.total()} jobs"

    def time_left(self) -> str:
        # An overdue job takes no time from the others.
        elapsed = sum(min(time.monotonic() - job.started, self.outlook.expected(job.rule)) * job.threads
                      for job in list(self.running.values()))  # fmt: skip
        return f"{self.outlook.time(self.done, elapsed) or 'unknown time'} left"

    def ended(self, stopped: bool) -> str:
        """What the run has done, and which jobs failed; of one that was ``stopped`` by its user the counts alone."""
        names = f", {len(self.failed)} failed ({', '.join(self.failed[:6])})" if self.failed and not stopped else ""
        return f"{self.counts()} done in {since(self.began)}{names}."

    def kinds(self) -> str:
        """Finished and all jobs by kind (``trainings 3/38  evaluations 0/90``); empty for a single kind."""
        done, kinds = self.outlook.kinds(self.done), self.outlook.kinds(self.outlook.jobs)
        return "  ".join(f"{name} {done[name]}/{count}" for name, count in kinds.items()) if len(kinds) > 1 else ""

    def jobs(self) -> list[tuple[str, str, str]]:
        """Name, step (or what it waits for) and time of every running job."""
        rows = []
        for job in list(self.running.values()):
            step, steps = self.outlook.progress(job.rule, job.options)
            last = job.end_of_log()[-1]
            state = last if "waiting for" in last else f"step {step} of {steps}" if steps else ""
            rows.append((job.name, state, since(job.started)))
        return rows


def since(start: float) -> str:
    """``0:12:05``."""
    return str(timedelta(seconds=int(time.monotonic() - start)))


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Settings on the command line: ``--logger-cdpr-...``."""

    every: int = field(default=30, metadata={"help": "Seconds between two lines when no terminal is attached."})


class LogHandler(LogHandlerBase):
    """Shows Snakemake's events. The workflow adds two records of its own, whose messages are shown: one with
    ``outlook`` (see :class:`Run`) at the start, one with ``outcome`` at the end."""

    has_formatter = True
    writes_to_file = has_filter = needs_rulegraph = False

    def __post_init__(self) -> None:
        options = self.common_settings
        self._run: Run | None = None
        self._ended = threading.Event()
        self._planned = self._stopped = False
        self._console = Console(stderr=True, no_color=options.nocolor or None, highlight=False, markup=False)
        self._live: Live | None = None

    @property
    def writes_to_stream(self) -> bool:
        """Not where Snakemake's own lines are wanted."""
        options = self.common_settings
        return not (options.dryrun or options.verbose or options.printshellcmds or options.debug_dag)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record if a user needs it."""
        try:
            self._show(record) if self.writes_to_stream else None
        except Exception:
            self.handleError(record)

    def _show(self, record: logging.LogRecord) -> None:
        event, details, message = getattr(record, "event", None), record.__dict__, record.getMessage()
        self._planned |= event == LogEvent.WORKFLOW_STARTED
        if "outlook" in details:
            self._print(message)
            self._run = Run(details["outlook"])
            if self._console.is_terminal and not self._console.is_dumb_terminal:
                self._live = Live(None, console=self._console, get_renderable=self._view, transient=True)
                self._live.start()
            else:
                threading.Thread(target=self._print_lines, daemon=True).start()
        elif "outcome" in details:
            self.close()
            self._print(self._run.ended(self._stopped) if self._run else "")
            self._print(message)
        elif event in (None, LogEvent.ERROR):
            fault = event is not None or record.levelno >= logging.WARNING
            self._stopped |= message.startswith("Terminating")
            shown = fault or not self._planned or message.startswith(_DURING_A_RUN)
            shown &= not any(part in message for part in _HIDDEN)
            self._print(without_stack(message) if shown else "", "red" * fault)  # the full log keeps the stack
        elif event == LogEvent.JOB_INFO and self._run:
            log = Path(next(iter(details["log"]), ""))
            self._run.running[details["jobid"]] = RunningJob(
                details["rule_name"], {**details["wildcards"]}, log, details["threads"]
            )
        elif event == LogEvent.JOB_FINISHED and self._run and (job := self._run.running.pop(details["job_id"], None)):
            self._run.done[job.rule] += 1
        elif event == LogEvent.JOB_ERROR and self._run and (job := self._run.running.pop(details["jobid"], None)):
            self._run.failed.append(job.name)
            why = [f"{job.name} failed. Its log, {job.log}, ends:", *job.end_of_log()]
            self._print("" if self._stopped else "\n    ".join(why), "red")

    def _print_lines(self) -> None:
        while not self._ended.wait(self.settings.every):
            run, jobs = self._run, self._run.jobs()
            names = ", ".join(f"{name} ({step})" if step else name for name, step, _ in jobs[:3])
            now = f"; now {names}{f' and {len(jobs) - 3} more' if len(jobs) > 3 else ''}" if jobs else ""
            kinds = f" ({run.kinds()})" if run.kinds() else ""
            self._print(f"{time.strftime('%H:%M:%S')}  {run.counts()} done{kinds}{now}; {run.time_left()}")

    def _view(self) -> Group:
        head, jobs, run = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2)), self._run
        bar = ProgressBar(run.outlook.jobs.total(), run.done.total(), width=30)
        head.add_row(bar, run.counts(), f"{since(run.began)} elapsed, {run.time_left()}")
        for row in run.jobs()[:8]:
            jobs.add_row(*row)
        return Group(head, Text(run.kinds(), style="dim"), jobs)

    def _print(self, message: str, style: str = "") -> None:
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
