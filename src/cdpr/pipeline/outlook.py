"""What a run of the workflow prints at its start and at its end: how long its jobs take, and the result."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..records import RunRecord
from ..settings.section import read_shipped
from .experiment import Experiment

_SHORT = 1.5  # seconds of a job that workflow/durations.yaml does not list
_SLOW = 2.5  # how much longer jobs take on slow cores than on those of workflow/durations.yaml


def forecast(jobs: Sequence[tuple[str, int]], cores: int | None = None, overlays: Iterable[str | Path] = ()) -> str:
    """Forecast how long jobs take, as text: "12 min on 2 fast cores, up to 30 min on slow ones". The seconds of each
    rule are those of ``workflow/durations.yaml``.

    ``jobs`` are pairs (rule, threads), ``cores`` the cores of this machine, ``overlays`` the files after
    ``--configfile``. A rule that the file does not list counts as :data:`_SHORT`. Returns "for an unknown time" on a
    cluster (``cores`` is None), for overlays that the file does not list, and for a rule whose seconds are null there.
    """
    configuration = "+".join(Path(overlay).stem for overlay in overlays) or "config"
    durations = read_shipped("workflow/durations.yaml").get(configuration)
    seconds = {rule: (durations or {}).get(rule, _SHORT) for rule, _ in jobs}
    if not durations or cores is None or None in seconds.values():  # null in the file: unknown
        return "for an unknown time"
    # At least all work divided by the cores, and at least one job of each rule, one after another.
    total = max(sum(seconds[rule] * threads for rule, threads in jobs) / cores, sum(seconds.values()))
    return f"{_in_words(total)} on {cores} fast cores, up to {_in_words(_SLOW * total)} on slow ones"


def _in_words(seconds: float) -> str:
    """Write a duration in the unit that suits it: "40 s", "12 min", "1.6 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def outcome(experiment: Experiment, files: Sequence[str], logs: Sequence[str]) -> str:
    """Write the last lines that a successful run of the workflow prints.

    ``files`` are the files of its targets. If the results page is one of them, the lines are its path, what it says,
    and how to open MLflow; otherwise the names of the files. Without files, for targets that only say something, they
    are the texts of the ``logs``.
    """
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
