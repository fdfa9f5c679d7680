"""What a run shows: how long its jobs take here, and the result."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..records import RunRecord
from ..settings.section import read_shipped
from .experiment import Experiment

_SHORT = 1.5  # seconds of a job that the file does not list


def forecast(jobs: Sequence[tuple[str, int]], cores: int | None = None, overlays: Iterable[str | Path] = ()) -> str:
    """How long jobs take, by the figures of ``workflow/durations.yaml``; unknown with settings that are not in that
    file, and on a cluster (``cores`` is None). ``jobs`` are (rule, threads) of each, ``overlays`` the files after
    ``--configfile``."""
    known = read_shipped("workflow/durations.yaml").get("+".join(Path(o).stem for o in overlays) or "config")
    seconds = {rule: (known or {}).get(rule, _SHORT) for rule, _ in jobs}
    if not known or cores is None or None in seconds.values():
        return "for an unknown time"
    work = sum(seconds[rule] * threads for rule, threads in jobs) / cores
    # One job of every rule, one after another: what no number of cores shortens.
    whole = max(work, sum(seconds.values()))
    amount = f"{whole:.0f} s" if whole < 90 else f"{whole / 60:.0f} min" if whole < 5400 else f"{whole / 3600:.1f} h"
    return f"about {amount} on {cores} cores"


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
