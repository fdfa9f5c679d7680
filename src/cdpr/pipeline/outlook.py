"""What a run shows: what it will make and how long that takes here, the step of a training, and the result.

Times are guesses: the median of earlier jobs under the same results, or a figure of ``workflow/durations.yaml``.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from ..metrics_log import read_metrics
from ..records import RunRecord, record_files
from ..settings.datasets import BENCHMARKS
from ..settings.section import read_shipped
from .experiment import Experiment

_SHORT = 2.0  # seconds of a job that does not compute with tensors
_EVALUATIONS = ("evaluate_agent", "evaluate_on_benchmarks", "evaluate_served")
_SLOW = ("warm_start_policy", "train_policy", *_EVALUATIONS, "sample_states", "propose_actions",
         "measure_credit_quality", "credit_workups")  # fmt: skip
_KINDS = {
    "train_policy": "trainings",
    **dict.fromkeys(_EVALUATIONS, "evaluations"),
    **dict.fromkeys(("write_table", "plot_figure", "plot_points"), "tables and figures"),
}


class Outlook:
    """The jobs of a run, the time that they take, and the steps of each.

    ``jobs`` are (rule, threads) of every job to be done, ``overlays`` the files after ``--configfile``; ``cores`` is
    None on a cluster.
    """

    def __init__(
        self,
        experiment: Experiment,
        jobs: Sequence[tuple[str, int]],
        cores: int | None = None,
        overlays: Iterable[str | Path] = (),
    ):
        self._experiment, self._cores, self._threads = experiment, cores, dict(jobs)
        self.jobs = Counter(rule for rule, _ in jobs)
        configuration = "+".join(Path(overlay).stem for overlay in overlays) or "config"
        known = read_shipped("workflow/durations.yaml").get(configuration, {}) | measured(experiment.results)
        if evaluation := known.get("evaluate_agent"):
            known["evaluate_on_benchmarks"] = evaluation * len(BENCHMARKS)
        self._seconds = dict.fromkeys(self.jobs.keys() - {*_SLOW}, _SHORT) | known

    def __str__(self) -> str:
        kinds, jobs = self.kinds(self.jobs), "1 job" if self.jobs.total() == 1 else f"{self.jobs.total()} jobs"
        parts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        time = f"{left} on {self._cores} cores" if (left := self.time()) else "for an unknown time"
        return f"{jobs}{f' ({parts})' if len(kinds) > 1 else ''}, {time}."

    def time(self, done: Mapping[str, int] | None = None, elapsed: float = 0.0) -> str:
        """How long the jobs take that are not ``done`` (by rule), on which running jobs have spent ``elapsed`` seconds
        of a core; empty where it is unknown."""
        rest, seconds = self.jobs - Counter(done), self._seconds
        if self._cores is None or rest.keys() - seconds.keys():
            return ""
        work = sum(seconds[rule] * self._threads[rule] * count for rule, count in rest.items()) - elapsed
        # One job of every rule, one after another: what no number of cores shortens.
        left = max(work, sum(seconds[rule] for rule in rest) * self._cores - elapsed, 0.0) / self._cores
        amount = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min" if left < 5400 else f"{left / 3600:.1f} h"
        return f"about {amount}"

    def expected(self, rule: str) -> float:
        """Seconds that a job of a rule takes; 0 where unknown."""
        return self._seconds.get(rule, 0.0)

    def kinds(self, jobs: Mapping[str, int]) -> Counter[str]:
        """Numbers of jobs by what a user calls them, from those by rule."""
        kinds = Counter(dict.fromkeys((*_KINDS.values(), "others"), 0))
        for rule, count in jobs.items():
            kinds[_KINDS.get(rule, "others")] += count
        return +kinds

    def progress(self, rule: str, options: Mapping[str, str]) -> tuple[int, int]:
        """Finished steps and all steps of a job; (0, 0) for a job without steps."""
        if rule == "train_policy":
            total = self._experiment.settings_of(rule, options)[0].training.steps or 0
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


def measured(results: str) -> dict[str, float]:
    """Median seconds of one job by stage, from the records of earlier jobs; unreadable records are ignored."""
    seconds: dict[str, list[float]] = {}
    for path in record_files(Path(results)):
        with suppress(OSError, ValueError):
            record = RunRecord.read(path)
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
