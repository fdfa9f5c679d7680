"""A run as Snakemake's events tell of it: which jobs are done, which are at work, how long the rest will take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol


class Outlook(Protocol):
    """What the workflow knows beforehand (``cdpr.workflow.outlook``): core-seconds of one job by rule, in ``progress``
    the steps of a job that are done and all of them."""

    cores: int | None
    seconds: Mapping[str, float]

    def progress(self, rule: str, options: Mapping[str, str]) -> tuple[int, int] | None: ...
    def kind(self, rule: str) -> str: ...


@dataclass
class Working:
    """A job at work; ``began`` is the step where an earlier attempt had left it."""

    rule: str
    options: Mapping[str, str]
    logs: list[str]
    threads: int
    started: float
    began: int = 0

    @property
    def name(self) -> str:
        """``train_policy cdpr-seed0``."""
        return f"{self.rule} {'/'.join(map(str, self.options.values()))}".strip()


@dataclass
class Run:
    """Counts jobs; times are seconds of ``clock``."""

    total: Counter[str]
    outlook: Outlook | None = None
    clock: Callable[[], float] = time.monotonic
    working: dict[Any, Working] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def __post_init__(self):
        self._begun = self.clock()
        self._took: dict[str, list[float]] = {}

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self.clock() - self._begun

    def start(self, jobid: Any, rule: str, options: Mapping[str, str], logs: list[str], threads: int) -> None:
        """A job begins."""
        job = Working(rule, options, logs, threads, self.clock())
        self.working[jobid] = job
        job.began = (self.progress(job) or (0, 0))[0]

    def finish(self, jobid: Any) -> None:
        """A job has ended well."""
        if job := self.working.pop(jobid, None):
            self.done[job.rule] += 1
            self._took.setdefault(job.rule, []).append((self.clock() - job.started) * job.threads)

    def fail(self, jobid: Any) -> None:
        """A job has failed."""
        if job := self.working.pop(jobid, None):
            self.failed.append(job.name)

    def progress(self, job: Working) -> tuple[int, int] | None:
        """Steps done and all of them, where the job has steps."""
        return self.outlook.progress(job.rule, job.options) if self.outlook else None

    def left(self) -> float | None:
        """Seconds until all is done, as if the cores were always busy; None while nothing is known of some rule."""
        if self.outlook is None or not self.outlook.cores:
            return None
        expected = {**self.outlook.seconds, **{rule: median(took) for rule, took in self._took.items()}}
        waiting, working = self.total - self.done, list(self.working.values())
        waiting -= Counter(job.rule for job in working)
        rest = [self._rest(job, expected.get(job.rule)) for job in working]
        if None in rest or waiting.keys() - expected.keys():
            return None
        work = sum(seconds * job.threads for seconds, job in zip(rest, working, strict=True))
        work += sum(expected[rule] * count for rule, count in waiting.items())
        return max([work / self.outlook.cores, *rest])

    def _rest(self, job: Working, expected: float | None) -> float | None:
        """Seconds that a job at work still takes: by its steps once it has done some, else by what is expected; a job
        that is overdue takes a quarter of its time more."""
        gone = self.clock() - job.started
        step, of = self.progress(job) or (0, 0)
        if step > job.began:
            return gone * (of - step) / (step - job.began)
        return None if expected is None else max(expected / job.threads - gone, gone / 4)

    def kinds(self) -> dict[str, tuple[int, int]]:
        """By kind of job: how many are done, and all; empty where all are of one kind."""
        if self.outlook is None:
            return {}
        kinds: dict[str, tuple[int, int]] = {}
        for rule, count in self.total.items():
            done, of = kinds.get(self.outlook.kind(rule), (0, 0))
            kinds[self.outlook.kind(rule)] = done + self.done[rule], of + count
        return kinds if len(kinds) > 1 else {}


def spoken(seconds: float) -> str:
    """``40 s``, ``25 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
