"""What made each number of the results page: keys, digests and commands of the runs, from their ``run.json`` files.

No date, duration, commit or absolute path is among them, so the same results give the same page.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from ..records import KEY_TAG
from ..settings import Settings
from .methods import DATASETS, Method, page_methods, why_unfit
from .provenance import check_tier, read_record


class Artifact(NamedTuple):
    """How the file ``target`` was made.

    ``command`` makes it again. The other fields describe the job that made it, and are empty where there is no
    ``run.json``: its ``name``, its run ``key`` and ``seed``, the digests of its ``code`` and of its ``cases``, its
    MLflow ``experiment``, and the ``query`` that finds it in MLflow.
    """

    target: str
    command: str
    name: str = ""
    key: str = ""
    code: str = ""
    seed: str = ""
    cases: str = ""
    experiment: str = ""
    query: str = ""


class Evaluation(NamedTuple):
    """An evaluation listed on the page under ``anchor``, and the ``artifact`` that says how it was made. ``training``
    says how its policy was trained (None for an agent that is not trained), and ``inspector`` is the address at which
    its cases can be inspected (empty where they cannot)."""

    anchor: str
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
            return Artifact(target, command)
        run = read_record(run_json)
        check_tier(self.settings, run_json, run.tier)
        return Artifact(
            target, command, name=run.name, key=run.run_key, code=run.code_digest, experiment=run.experiment,
            seed=run.tags.get("seed", "") if run.seed is None else str(run.seed),
            cases=(run.input_digest("cases") or "")[:16], query=f"tags.`{KEY_TAG}` = '{run.run_key}'",
        )  # fmt: skip

    def sources(self) -> dict[Method, dict[str, list[Evaluation]]]:
        """Return the evaluations that exist: by method of the page and then by label of the data set, a list with an
        entry per run. A run that several methods share is listed with the first of these methods."""
        sources: dict[Method, dict[str, list[Evaluation]]] = {}
        listed: set[str] = set()
        for method in page_methods(self.settings):
            runs = [run for run in method.runs if run not in listed]
            listed.update(runs)
            by_dataset = {label: self._evaluations(runs, dataset) for dataset, label in DATASETS.items()}
            if any(by_dataset.values()):
                sources[method] = by_dataset
        return sources

    def _evaluations(self, runs: Sequence[str], dataset: str) -> list[Evaluation]:
        """Return the evaluations of these runs on a data set that exist. Runs that cannot diagnose its cases are left
        out."""
        entries = []
        for run in runs:
            evaluation, record = f"evaluations/{run}/{dataset}.jsonl", f"training/{run}/run.json"
            if why_unfit(self.settings, run, dataset) or not (self.results / evaluation).exists():
                continue
            was_trained = (self.results / record).exists()
            training = self.artifact(f"training/{run}/metrics.jsonl", record) if was_trained else None
            is_inspected = run in self.settings.inspector.runs
            inspector = f"inspector/index.html#{urlencode({'run': run, 'dataset': dataset})}" if is_inspected else ""
            entries.append(Evaluation(anchor(run, dataset), self.artifact(evaluation), training, inspector))
        return entries


def shared_runs(settings: Settings) -> list[tuple[str, str]]:
    """Return the methods of the page that have the same runs as an earlier one, because both are the same training, as
    pairs of labels (later, earlier): ``("w/o R_proc", "GRPO")``."""
    first_labels: dict[str, str] = {}  # by the first run of the method: those who share it share all their runs
    pairs = []
    for method in page_methods(settings):
        earlier = first_labels.setdefault(method.runs[0], method.label)
        if earlier != method.label:
            pairs.append((method.label, earlier))
    return pairs


class Links(frozenset[str]):
    """Links from numbers of the page to the evaluations behind them: the anchors of all evaluations that the page
    lists."""

    def anchors(self, runs: Iterable[tuple[str, str]]) -> list[str]:
        """Return the anchors of evaluations, given as pairs (run, data set). Evaluations that are not on the page are
        left out."""
        names = (anchor(run, dataset) for run, dataset in runs)
        return [name for name in names if name in self]

    def of_claim(self, run: str) -> list[str]:
        """Return the anchors of a run that a claim names: of ``cdpr-seed0`` on all benchmarks, of
        ``cdpr-seed0/private`` on this data set alone. Evaluations that are not on the page are left out."""
        name, _, only = run.partition("/")
        return self.anchors((name, dataset) for dataset in ([only] if only else DATASETS))


def anchor(name: str, dataset: str = "") -> str:
    """Return the anchor of a method, or of the evaluation of a run on a data set: ``made-cdpr-seed0-private``."""
    return "-".join(["made", *(re.sub(r"\W", "-", word) for word in (name, dataset) if word)])
