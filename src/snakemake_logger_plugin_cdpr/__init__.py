"""One calm display of a run in place of Snakemake's lines: ``snakemake --logger cdpr``, which profiles/default sets.

On a terminal a few lines stand still: jobs done, jobs at work with the steps of trainings, time left. Elsewhere a plain
line comes every half minute. A job that fails shows the end of its own log. Everything that Snakemake says goes to its
log file as ever. Dry runs and whoever asks for more (``--verbose``, ``--printshellcmds``, ``--debug-dag``) get
Snakemake's own lines.

(The kept plugin nearest to this, snakemake-logger-plugin-rich 0.5.1, knows neither steps nor time left, is silent
without a terminal, and prints failed jobs' whole logs.)
"""

import logging
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from snakemake.logging import ColorizingTextHandler, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

from .run import Run, Working, spoken

LOG_LINES = 15
_WIDEST = 400  # characters of a line of a dry run; some list hundreds of files
# Of remarks without an event a run shows these; before a run begins all but these (`--list-resources` remarks, too).
_SHOWN = ("Nothing to be done", "Terminating processes")
_HIDDEN = ("Config file ", "Assuming unrestricted", "Building DAG")
_SAID_BETTER = ("CalledProcessError", "At least one job did not complete", "Exiting because a job execution failed")


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """What ``--logger-cdpr-...`` sets."""

    every: int = field(default=30, metadata={"help": "Seconds between two lines where no terminal is attached."})


class LogHandler(LogHandlerBase):
    """Shows Snakemake's events. A workflow adds what it knows by records of its own: ``outlook`` (see :mod:`.run`) when
    it begins, ``outcome`` when it ends; their messages are shown."""

    def __post_init__(self) -> None:
        asked = self.common_settings
        self._run: Run | None = None
        self._ended = threading.Event()
        self._started = self._stopped = False
        self._live: Live | None = None
        self._console = Console(stderr=True, no_color=asked.nocolor or None, highlight=False, markup=False)
        self._as_ever: logging.Handler | None = None
        if asked.dryrun or asked.verbose or asked.printshellcmds or asked.debug_dag:
            formatter = _Short(asked.quiet) if asked.dryrun else DefaultFormatter(asked.quiet, asked.show_failed_logs)
            stream = sys.stdout if asked.stdout else sys.stderr
            self._as_ever = ColorizingTextHandler(asked.nocolor, stream, formatter)

    writes_to_stream = True
    writes_to_file = has_filter = needs_rulegraph = False
    has_formatter = True

    def emit(self, record: logging.LogRecord) -> None:
        """Show what a user needs of a record."""
        if self._as_ever:
            return self._as_ever.emit(record)
        try:
            self._show(record)
        except Exception:
            self.handleError(record)

    def _show(self, record: logging.LogRecord) -> None:
        event, said = getattr(record, "event", None), record.__dict__
        if event == LogEvent.WORKFLOW_STARTED:
            self._started = True
        elif event == LogEvent.RUN_INFO:
            self._begin(Counter({rule: n for rule, n in said["stats"].items() if rule != "total"}))
        elif "outlook" in said:
            if self._run:
                self._run.outlook = said["outlook"]
            self._say(record.getMessage())
        elif "outcome" in said:
            self._end(record.getMessage())
        elif event == LogEvent.ERROR or (event is None and record.levelno >= logging.WARNING):
            self._complain(record.getMessage())
        elif self._run and event == LogEvent.JOB_INFO:
            self._run.start(
                said["jobid"], said["rule_name"], dict(said["wildcards"]), list(said["log"]), said["threads"]
            )
        elif self._run and event == LogEvent.JOB_FINISHED:
            self._run.finish(said["job_id"])
        elif event == LogEvent.JOB_ERROR:
            self._fail(said)
        elif event is None:
            self._remark(record.getMessage())

    def _begin(self, total: Counter[str]) -> None:
        self._run = Run(total)
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=2, transient=True)
            self._live.start()
        else:
            threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        while not self._ended.wait(self.settings.every):
            self._say(f"{time.strftime('%H:%M:%S')}  {self._line()}")

    def _line(self) -> str:
        run = self._run
        now = [_with_steps(run, job) for job in list(run.working.values())]
        more = f" and {len(now) - 3} more" if len(now) > 3 else ""
        kinds = ", ".join(f"{kind} {done}/{of}" for kind, (done, of) in run.kinds().items())
        return (f"{run.done.total()} of {run.total.total()} jobs done{f' ({kinds})' if kinds else ''}"
                f"{'; now ' if now else ''}{', '.join(now[:3])}{more}; {_left(run)}")  # fmt: skip

    def _view(self) -> Group:
        run = self._run
        head = Table.grid(padding=(0, 2))
        done, of = run.done.total(), run.total.total()
        head.add_row(
            ProgressBar(of, done, width=30), f"{done} of {of} jobs", f"{clock(run.seconds)} gone, {_left(run)}"
        )
        kinds = Text("  ".join(f"{kind} {done}/{of}" for kind, (done, of) in run.kinds().items()), style="dim")
        jobs = Table.grid(padding=(0, 2))
        for job in list(run.working.values())[:8]:
            step, of = run.progress(job) or (0, 0)
            jobs.add_row(f"  {job.name}", f"step {step} of {of}" if of else "", clock(run.clock() - job.started))
        return Group(head, kinds, jobs)

    def _remark(self, message: str) -> None:
        self._stopped |= message.startswith("Terminating")
        if message.startswith(_SHOWN) if self._started else not message.startswith(_HIDDEN):
            self._say(message)

    def _complain(self, message: str) -> None:
        """Errors and warnings, but for what a failed job's own log says better."""
        if not any(said in message for said in _SAID_BETTER):
            self._say(message, "red")

    def _fail(self, said: dict) -> None:
        """The end of the failed job's own log."""
        job = Working(said["rule_name"], {}, list(said["log"]), 1, 0.0)
        if self._run:
            job = self._run.working.get(said["jobid"], job)
            self._run.fail(said["jobid"])
        if self._stopped:
            return
        for log in job.logs or [""]:
            ends = _last_lines(log)
            self._say(f"{job.name} failed. {f'Its log, {log}, ends:' if ends else f'Its log {log} is empty.'}", "red")
            self._say("\n".join(f"    {line}" for line in ends))

    def _end(self, message: str) -> None:
        self.close()
        if run := self._run:
            failed = (
                f", {len(run.failed)} failed ({', '.join(run.failed[:6])})" if run.failed and not self._stopped else ""
            )
            self._say(f"{run.done.total()} of {run.total.total()} jobs done in {clock(run.seconds)}{failed}.")
        self._say(message)

    def _say(self, message: str, style: str = "") -> None:
        if message:
            self._console.print(Text(message, style=style), soft_wrap=True)

    def close(self) -> None:
        """Take the display away, so that the terminal is as it was. Can be called again."""
        self._ended.set()
        if self._live:
            self._live.stop()
        if self._stopped:
            # Interrupted while it starts a job, Snakemake fails to tidy up and says so, long after its log has ended.
            logging.lastResort = logging.NullHandler()
        super().close()


class _Short(DefaultFormatter):
    """Snakemake's lines, those that list hundreds of files cut."""

    def format(self, record: logging.LogRecord) -> str:
        lines = str(super().format(record)).split("\n")
        return "\n".join(
            f"{line[:_WIDEST]} ... ({len(line)} characters)" if len(line) > _WIDEST else line for line in lines
        )


def clock(seconds: float) -> str:
    """``0:42``, ``12:05``, ``1:02:10``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _left(run: Run) -> str:
    left = run.left()
    return "time left not known yet" if left is None else f"about {spoken(left)} left"


def _with_steps(run: Run, job: Working) -> str:
    step, of = run.progress(job) or (0, 0)
    return f"{job.name} (step {step} of {of})" if of else job.name


def _last_lines(log: str) -> list[str]:
    if not log or not Path(log).is_file():
        return []
    with open(log, encoding="utf-8", errors="replace") as lines:
        return [line.rstrip("\n") for line in deque(lines, LOG_LINES)]
