"""What made each number of the results page: keys, digests and commands of the runs, from their ``run.json`` files.

No date, duration, commit or absolute path is among them, so the same results give the same page.
"""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from ..records import RunRecord
from ..settings import Settings
from .methods import DATASETS, Method, page_methods, why_unfit
from .provenance import check_tier, read_record


class Artifact(NamedTuple):
    """How the file ``target`` was made: ``command`` makes it again, and ``record`` is the ``run.json`` of the job that
    made it (None where there is none)."""

    target: str
    command: str
    record: RunRecord | None


class Evaluation(NamedTuple):
    """An evaluation listed on the page under ``anchor``, on the data set with the label ``data``. ``artifact`` says how
    it was made, ``training`` how its policy was trained (None for an agent that is not trained), and ``inspector`` is
    the address at which its cases can be inspected (empty where they cannot)."""

    anchor: str
    data: str
    artifact: Artifact
    training: Artifact | None
    inspector: str


class Records:
    """The ``run.json`` files in a results folder. Methods raise ProvenanceError for a file that cannot be read, or that
    is of another tier (scale of the experiment) than the settings."""

    def __init__(self, settings: Settings, results: Path):
        self.settings, self.results = settings, results

    def artifact(self, target: str, record: str = "") -> Artifact:
        """Return how the file ``target`` was made. ``record`` is its ``run.json``, by default the one beside it. Both
        paths are relative to the results folder."""
        root = self.settings.paths.results
        # An absolute path would make the page different on every machine.
        folder = "<results>" if Path(root).is_absolute() else shlex.quote(root)
        # Results in another folder than the default are those of a configuration that the user overlaid; the command
        # needs its file, whose name is in no record.
        overlays = "" if root == "results" else "--configfile YOUR_OVERLAYS -- "
        command = f"snakemake --cores all {overlays}{folder}/{target}"
        run_json = self.results / record if record else (self.results / target).with_suffix(".run.json")
        if not run_json.exists():
            return Artifact(target, command, None)
        run = read_record(run_json)
        check_tier(self.settings, run_json, run.tier)
        return Artifact(target, command, run)

    def sources(self) -> dict[Method, list[Evaluation]]:
        """Return the evaluations that exist, by method of the page. A run that several methods share is listed with the
        first of these methods."""
        sources: dict[Method, list[Evaluation]] = {}
        listed: set[str] = set()
        for method in page_methods(self.settings):
            pairs = [(run, dataset) for dataset in DATASETS for run in method.runs if run not in listed]
            listed.update(method.runs)
            if entries := [entry for run, dataset in pairs if (entry := self._evaluation(run, dataset))]:
                sources[method] = entries
        return sources

    def _evaluation(self, run: str, dataset: str) -> Evaluation | None:
        """Return the evaluation of a run on a data set; None where there is none, or where the run cannot diagnose its
        cases."""
        evaluation, record = f"evaluations/{run}/{dataset}.jsonl", f"training/{run}/run.json"
        if why_unfit(self.settings, run, dataset) or not (self.results / evaluation).exists():
            return None
        was_trained = (self.results / record).exists()
        training = self.artifact(f"training/{run}/metrics.jsonl", record) if was_trained else None
        is_inspected = run in self.settings.inspector.runs
        inspector = f"inspector/index.html#{urlencode({'run': run, 'dataset': dataset})}" if is_inspected else ""
        return Evaluation(anchor(run, dataset), DATASETS[dataset], self.artifact(evaluation), training, inspector)


def anchors(runs: Iterable[str | tuple[str, str]]) -> list[str]:
    """Return the anchors of evaluations. Each of the ``runs`` is a pair (run, data set), or a text: ``cdpr-seed0`` for
    all benchmarks, ``cdpr-seed0/private`` for this data set alone."""
    names = []
    for run in runs:
        name, *only = run.split("/") if isinstance(run, str) else run
        names += [anchor(name, dataset) for dataset in only or DATASETS]
    return names


def anchor(name: str, dataset: str = "") -> str:
    """Return the anchor of a method, or of the evaluation of a run on a data set: ``made-cdpr-seed0-private``."""
    return "-".join(["made", *(re.sub(r"\W", "-", word) for word in (name, dataset) if word)])
