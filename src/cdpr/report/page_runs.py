"""The runs behind a number: keys, digests and the command that makes them again, from the ``run.json`` files.

No date, duration, commit or absolute path is taken over: the same results give the same page.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..records import KEY_TAG
from ..settings import Settings
from .inspector.data import address
from .methods import DATASETS, Method, is_synthetic
from .provenance import check_tier, read_record


@dataclass(frozen=True)
class Artifact:
    """The origin of one file, and a query for its run in MLflow; ``key`` is empty where there is no ``run.json``."""

    target: str
    command: str
    name: str = ""
    key: str = ""
    code: str = ""
    seed: str = ""
    cases: str = ""
    experiment: str = ""
    query: str = ""


class Records:
    """The ``run.json`` files below a results folder. Methods raise ProvenanceError for one that cannot be read or is of
    another tier than the settings."""

    def __init__(self, settings: Settings, results: Path):
        self.settings, self.results = settings, results

    def artifact(self, target: str, record: Path | None = None) -> Artifact:
        """Describe the origin of ``target``, a path below the results; ``record`` where it is not the ``run.json``
        beside it."""
        root = self.settings.paths.results
        # An absolute folder is the reader's own matter: it would make the page another one on every machine.
        file = f"{'<results>' if Path(root).is_absolute() else shlex.quote(root)}/{target}"
        # Results in another folder are those of an overlay, whose name no record holds.
        overlays = "" if root == "results" else "--configfile YOUR_OVERLAYS -- "
        command = f"snakemake --cores all {overlays}{file}"
        run_json = record or (self.results / target).with_suffix(".run.json")
        if not run_json.exists():
            return Artifact(target, command)
        content = read_record(run_json)
        check_tier(self.settings, run_json, content.tier)
        seed = content.tags.get("seed", "") if content.seed is None else str(content.seed)
        return Artifact(target, command, content.name, content.run_key, content.code_digest, seed,
                    (content.input_digest("cases") or "")[:16], content.experiment,
                    f"tags.`{KEY_TAG}` = '{content.run_key}'")  # fmt: skip

    def behind(self, methods: Iterable[Method]) -> list[dict[str, Any]]:
        """Return, by method, all evaluations that there are, as ``blocks`` by data set; each once, with the first of
        the methods that share it. ``training`` is how its policy was trained (None for one that was not), ``inspector``
        where the inspector shows its cases (empty for runs that it does not show)."""
        sources, known = [], set()
        for method in methods:
            blocks: dict[str, list[dict[str, Any]]] = {}
            for dataset, label in DATASETS.items():
                if method.knows_hospital and not is_synthetic(self.settings, dataset):
                    continue
                here = [one for run in method.runs if run not in known for one in self._evaluated(run, dataset)]
                blocks |= {label: here} if here else {}
            known |= set(method.runs)
            sources += [{"anchor": anchor(method.name), "title": method.label, "blocks": blocks}] if blocks else []
        return sources

    def _evaluated(self, run: str, dataset: str) -> Iterator[dict[str, Any]]:
        path, record = f"evaluations/{run}/{dataset}.jsonl", self.results / "training" / run / "run.json"
        if (self.results / path).exists():
            yield {
                "run": run, "anchor": anchor(run, dataset), "artifact": self.artifact(path),
                "training": self.artifact(f"training/{run}/metrics.jsonl", record) if record.exists() else None,
                "inspector": address(run, dataset) if run in self.settings.inspector.runs else "",
            }  # fmt: skip


class Links:
    """Links from the runs of a cell to their anchors on the page."""

    def __init__(self, behind: Iterable[Mapping[str, Any]]):
        self._known = {one["anchor"] for method in behind for block in method["blocks"].values() for one in block}

    def anchors(self, runs: Iterable[tuple[str, str]]) -> list[str]:
        """Return the anchors of those runs that are on the page."""
        return [name for run, dataset in runs if (name := anchor(run, dataset)) in self._known]

    def of_claim(self, run: str) -> list[str]:
        """Return the anchors of a run such as ``cdpr-seed0`` on all data sets, or on the one after a slash."""
        name, _, dataset = run.partition("/")
        return self.anchors([(name, d) for d in ([dataset] if dataset else DATASETS)])


def anchor(name: str, dataset: str = "") -> str:
    """Return the anchor on the page of an evaluation, or of a method."""
    return "-".join(["made", *(re.sub(r"\W", "-", part) for part in (name, dataset) if part)])
