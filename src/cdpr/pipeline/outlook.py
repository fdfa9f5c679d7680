"""What a run of the workflow prints at its start and at its end: how long its jobs take, and the result."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..records import RunRecord
from ..settings.section import read_shipped
from .experiment import Experiment

_SHORT = 1.5  # seconds of a job that the file does not list


def forecast(jobs: Sequence[tuple[str, int]], cores: int | None = None, overlays: Iterable[str | Path] = ()) -> str:
    """Forecast how long jobs take by the figures of ``workflow/durations.yaml``, as text: "about 12 min on 2 cores". It
    is unknown for overlays that are not in that file, and on a cluster (``cores`` is None). ``jobs`` are pairs (rule,
    threads), ``overlays`` the files after ``--configfile``."""
    configuration = "+".join(Path(overlay).stem for overlay in overlays) or "config"
    durations = read_shipped("workflow/durations.yaml").get(configuration)
    seconds = {rule: (durations or {}).get(rule, _SHORT) for rule, _ in jobs}
    if not durations or cores is None or None in seconds.values():
        return "for an unknown time"
    # No number of cores shortens one job of every rule, one after another.
    total = max(sum(seconds[rule] * threads for rule, threads in jobs) / cores, sum(seconds.values()))
    amount = f"{total:.0f} s" if total < 90 else f"{total / 60:.0f} min" if total < 5400 else f"{total / 3600:.1f} h"
    return f"about {amount} on {cores} cores"


def outcome(experiment: Experiment, files: Sequence[str], logs: Sequence[str]) -> str:
    """Write the last lines of a successful run. ``files`` are those of its targets; for targets without files their
    ``logs`` are printed."""
    page = f"{experiment.results}/report.html"
    if not files:
        return "\n".join(Path(log).read_text(encoding="utf-8").strip() for log in logs)
    if page not in files:
        to_read = [path for path in files if Path(path).suffix in (".md", ".png", ".html")] or files
        more = f" and {len(to_read) - 6} more" if len(to_read) > 6 else ""
        return "Made    " + ", ".join(to_read[:6]) + more
    says = RunRecord.read(Path(page).with_suffix(".run.json")).tags.get("says", "")
    lines = [f"Report  {page}", f"Says    {says}"]
    if server := experiment.settings.tracking.mlflow:
        database = shlex.quote(f"sqlite:///{experiment.results}/mlflow.db")
        command = "make ui" if experiment.results == "results" else f"mlflow ui --backend-store-uri {database}"
        lines.append(f"MLflow  {server if isinstance(server, str) else command}")
    return "\n".join(lines)
