"""What a run shows: what it will make and how long that takes here, the step of a training, and the result.

Times are guesses: the median of earlier jobs under the same results, or a figure of ``workflow/durations.yaml``.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from ..metrics_log import read_metrics
from ..records import RunRecord, record_files
from ..settings.datasets import BENCHMARKS
from ..settings.section import read_shipped
from .experiment import Experiment
from .stages import STAGES

if TYPE_CHECKING:
    from snakemake_logger_plugin_cdpr import Run, RunningJob

_SHORT = 2.0  # seconds of a job that nothing is known of and that does not compute with tensors
_EVALUATIONS = ("evaluate_agent", "evaluate_on_benchmarks", "evaluate_served")
_KINDS = {"train_policy": "trainings", **dict.fromkeys(_EVALUATIONS, "evaluations"),
          **{name: "tables and figures" for name in STAGES if name.startswith(("plot_", "write_"))}}  # fmt: skip
_SLOW = ("warm_start_policy", "train_policy", *_EVALUATIONS, "sample_states", "propose_actions",
         "measure_credit_quality", "credit_workups")  # fmt: skip


class Expectation:
    """How long the rest of a run takes. A subclass has the number of ``cores`` (None on a cluster), expected
    core-seconds of one job by rule (``seconds``), the ``kind`` of a rule, and the steps of a job (``progress``)."""

    cores: int | None
    seconds: Mapping[str, float]

    def kind(self, rule: str) -> str:
        """What a user calls the jobs of a rule."""
        raise NotImplementedError

    def progress(self, rule: str, options: Mapping[str, str]) -> tuple[int, int]:
        """Finished steps and all steps of a job; (0, 0) for a job without steps."""
        raise NotImplementedError

    def kinds(self, jobs: Mapping[str, int]) -> Counter[str]:
        """Numbers of jobs by kind, from those by rule."""
        kinds: Counter[str] = Counter()
        for rule, count in jobs.items():
            kinds[self.kind(rule)] += count
        return kinds

    def time_left(self, run: "Run") -> str:
        """The time left in words."""
        seconds = self.left(run)
        return "time left not known yet" if seconds is None else f"about {duration(seconds)} left"

    def left(self, run: "Run") -> float | None:
        """Seconds until the end if all cores stay busy; None when the time of some rule is unknown."""
        expected = {**self.seconds, **{rule: median(times) for rule, times in run.core_seconds.items()}}
        jobs = list(run.running.values())
        waiting = run.total - run.done - Counter(job.rule for job in jobs)
        if self.cores is None or {*waiting, *(job.rule for job in jobs)} - expected.keys():
            return None
        rest = [self._rest(job, run.clock() - job.started, expected[job.rule] / job.threads) for job in jobs]
        work = sum(seconds * job.threads for seconds, job in zip(rest, jobs, strict=True))
        work += sum(expected[rule] * count for rule, count in waiting.items())
        return max([work / self.cores, *rest])

    def _rest(self, job: "RunningJob", elapsed: float, expected: float) -> float:
        """Remaining seconds of a running job: by its steps after the first one, else by the expected time. An overdue
        job is expected to need a quarter of its time more."""
        step, total = self.progress(job.rule, job.options)
        by_steps = step > job.first_step
        return elapsed * (total - step) / (step - job.first_step) if by_steps else max(expected - elapsed, elapsed / 4)


class Outlook(Expectation):
    """What lies ahead of a run.

    ``jobs`` are (rule, threads) of every job to be done, ``overlays`` the files after ``--configfile``; ``cores`` is
    None on a cluster. ``seconds`` holds core-seconds of one job by rule, for as many rules as are known.
    """

    def __init__(
        self,
        experiment: Experiment,
        jobs: Sequence[tuple[str, int]],
        cores: int | None,
        overlays: Iterable[str | Path] = (),
    ):
        self._experiment, self.cores = experiment, cores
        configuration = "+".join(Path(overlay).stem for overlay in overlays) or "config"
        known = read_shipped("workflow/durations.yaml").get(configuration, {}) | measured(experiment.results)
        if evaluation := known.get("evaluate_agent"):
            known["evaluate_on_benchmarks"] = evaluation * len(BENCHMARKS)
        self.jobs = Counter(rule for rule, _ in jobs)
        short = [rule for rule in self.jobs if rule not in _SLOW]
        known = {**dict.fromkeys(short, _SHORT), **known}
        self.seconds = {rule: known[rule] * threads for rule, threads in jobs if rule in known}
        # One job of every stage, one after another: what no number of cores shortens.
        self._chain = sum(known[rule] for rule in self.seconds)

    def __str__(self) -> str:
        kinds = self.kinds(self.jobs)
        parts = ", ".join(
            f"{kinds[kind]} {kind}" for kind in dict.fromkeys((*_KINDS.values(), "others")) if kinds[kind]
        )
        jobs = "1 job" if self.jobs.total() == 1 else f"{self.jobs.total()} jobs"
        time = "nothing is known yet of how long they take"
        if self.cores is not None and not self.jobs.keys() - self.seconds.keys():
            work = sum(self.seconds[rule] * count for rule, count in self.jobs.items())
            time = f"about {duration(max(work / self.cores, self._chain))} on {self.cores} cores"
        return f"{jobs}{f' ({parts})' if len(kinds) > 1 else ''}, {time}."

    def kind(self, rule: str) -> str:
        return _KINDS.get(rule, "others")

    def progress(self, rule: str, options: Mapping[str, str]) -> tuple[int, int]:
        if rule == "train_policy":
            total = self._experiment.settings_of(rule, options)[0].training.steps
        elif rule == "warm_start_policy":
            total = self._experiment.settings.warm_start.epochs
        else:
            return 0, 0
        try:
            begun = Path(self._experiment.state).glob(f"{self._experiment.key(rule, **options)}-*/metrics.jsonl")
            rows = [row for path in begun for row in read_metrics(path)]
        except (OSError, ValueError):  # the job itself will say what is wrong with its file
            return 0, 0
        return max((row["step"] for row in rows), default=0), total


def duration(seconds: float) -> str:
    """``40 s``, ``25 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def measured(results: str) -> dict[str, float]:
    """Median seconds of one job by stage, from the records of earlier jobs; unreadable records are ignored."""
    seconds: dict[str, list[float]] = {}
    for path in record_files(Path(results)):
        try:
            record = RunRecord.read(path)
        except (OSError, ValueError):
            continue
        seconds.setdefault(record.stage, []).append(record.wall_seconds)
    return {stage: median(of_stage) for stage, of_stage in seconds.items()}


def outcome(experiment: Experiment, files: Sequence[str], logs: Sequence[str]) -> str:
    """The last lines of a successful run. ``files`` are those of the targets; ``logs`` serve for targets without."""
    page = f"{experiment.results}/report.html"
    if not files:
        return "\n".join(Path(log).read_text(encoding="utf-8").strip() for log in logs)
    if page not in files:
        readable = [path for path in files if Path(path).suffix in (".md", ".png", ".html")] or files
        more = f" and {len(readable) - 6} more" if len(readable) > 6 else ""
        return "Made    " + ", ".join(readable[:6]) + more
    says = RunRecord.read(Path(page).with_suffix(".run.json")).tags.get("says", "")
    lines = [f"Report  {page}", f"Says    {says}"]
    if server := experiment.settings.tracking.mlflow:
        file = f"mlflow ui --backend-store-uri {shlex.quote(f'sqlite:///{experiment.results}/mlflow.db')}"
        command = "make ui" if experiment.results == "results" else file
        lines.append(f"MLflow  {server if isinstance(server, str) else command}")
    return "\n".join(lines)
