"""Progress of a run from Snakemake's events: finished jobs, running jobs, and the time that is left."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any


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


def duration(seconds: float) -> str:
    """``40 s``, ``25 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
