"""What a run shows: what it will make and how long that takes here, the step of a training, and the result.

Times are guesses: the median of earlier jobs under the same results, or a figure of ``workflow/durations.yaml``.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from snakemake_logger_plugin_cdpr import duration

from ..metrics_log import read_metrics
from ..records import RunRecord, record_files
from ..settings.datasets import BENCHMARKS
from ..settings.section import read_shipped
from .experiment import Experiment
from .stages import STAGES

_SHORT = 2.0  # seconds of a job that nothing is known of and that does not compute with tensors
_KINDS = {"train_policy": "trainings", **dict.fromkeys(("evaluate_agent", "evaluate_on_benchmarks"), "evaluations"),
          **{name: "tables and figures" for name in STAGES if name.startswith(("plot_", "write_"))}}  # fmt: skip
_SLOW = ("warm_start_policy", "train_policy", "evaluate_agent", "evaluate_on_benchmarks", "sample_states",
         "propose_actions", "measure_credit_quality", "credit_workups")  # fmt: skip
_SERVED = "evaluate_served_"  # how rules of jobs with a server of their own begin


class Outlook:
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
        short = [rule for rule in self.jobs if rule not in _SLOW and not rule.startswith(_SERVED)]
        known = {**dict.fromkeys(short, _SHORT), **known}
        self.seconds = {rule: known[rule] * threads for rule, threads in jobs if rule in known}
        # One job of every stage, one after another: what no number of cores shortens.
        self._chain = sum(known[rule] for rule in self.seconds)

    def __str__(self) -> str:
        kinds: Counter[str] = Counter()
        for rule, count in self.jobs.items():
            kinds[self.kind(rule)] += count
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
        """What a user calls the jobs of a rule."""
        return _KINDS.get("evaluate_agent" if rule.startswith(_SERVED) else rule, "others")

    def progress(self, rule: str, options: Mapping[str, str]) -> tuple[int, int] | None:
        """Steps of a training that are done, and all of them; None for other jobs."""
        if rule == "train_policy":
            total = self._experiment.settings_of(rule, options)[0].training.steps
        elif rule == "warm_start_policy":
            total = self._experiment.settings.warm_start.epochs
        else:
            return None
        try:
            begun = Path(self._experiment.state).glob(f"{self._experiment.key(rule, **options)}-*/metrics.jsonl")
            rows = [row for path in begun for row in read_metrics(path)]
        except (OSError, ValueError):  # the job itself will say what is wrong with its file
            return None
        return max((row["step"] for row in rows), default=0), total


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
