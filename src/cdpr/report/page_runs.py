"""Which runs stand behind a number: keys, digests and the command that makes them again, from the ``run.json`` files.

No date, duration, commit or absolute path is taken over: the same results give the same page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..results.methods import DATASETS, Method, synthetic
from ..results.provenance import check_tier, find_record, read_record
from ..settings import Settings

# Where MLflow lists the run of a record: experiment, name, and the filter that finds it.
Indexed = Callable[[Mapping[str, Any]], tuple[str, str, str]]


@dataclass(frozen=True)
class Made:
    """How one file was made; ``key`` is empty where no ``run.json`` tells."""

    target: str
    command: str
    name: str = ""
    key: str = ""
    code: str = ""
    seed: str = ""
    cases: str = ""
    experiment: str = ""
    filter: str = ""


@dataclass(frozen=True)
class Block:
    """What stands behind the figures of a method on one data set: evaluations, each with the training of its policy
    (None for a policy that was not trained). ``anchor`` is its place on the page."""

    anchor: str
    title: str
    runs: Sequence[tuple[Made, Made | None]]


@dataclass(frozen=True)
class Behind:
    """What stands behind the figures of a method."""

    anchor: str
    title: str
    blocks: Sequence[Block]


class Records:
    """The ``run.json`` files below a results folder. Methods raise ProvenanceError for one that cannot be read or is of
    another tier than the settings."""

    def __init__(self, settings: Settings, results: str | Path, indexed: Indexed):
        self.settings, self.results, self.indexed = settings, Path(results), indexed

    def made(self, target: str, record: Path | None = None) -> Made:
        """How ``target``, a path below the results, was made."""
        root = self.settings.paths.results
        # An absolute folder is the reader's own matter: it would make the page another one on every machine.
        command = f"snakemake --cores all {'<results>' if Path(root).is_absolute() else root}/{target}"
        if record is None or not record.exists():
            return Made(target, command)
        content = read_record(record)
        check_tier(self.settings, record, content)
        experiment, name, query = self.indexed(content)
        seed = content.get("seed")
        seed = (content.get("tags") or {}).get("seed", "") if seed is None else seed
        cases = (content.get("inputs") or {}).get("cases") or {}
        return Made(target, command, name, str(content.get("run_key", "")), str(content.get("code_digest", "")),
                    str(seed), str(cases.get("sha256", ""))[:16], experiment, query)  # fmt: skip

    def behind(self, methods: Sequence[Method]) -> dict[str, Behind]:
        """What stands behind every method with evaluations, by its name."""
        found = {m.name: Behind(anchor(m.name), m.label, list(self._blocks(m))) for m in methods}
        return {name: entry for name, entry in found.items() if entry.blocks}

    def _blocks(self, method: Method) -> Iterator[Block]:
        for dataset, label in DATASETS.items():
            paths = [f"evaluations/{run}/{dataset}.jsonl" for run in method.runs]
            if not any((self.results / path).exists() for path in paths):
                continue
            if not method.decodes and not synthetic(self.settings, dataset):
                continue
            runs = [(self.made(path, find_record(self.results / path)), self._training(run))
                    for run, path in zip(method.runs, paths, strict=True)]  # fmt: skip
            yield Block(anchor(method.name, dataset), f"{method.label} on {label}", runs)

    def _training(self, run: str) -> Made | None:
        record = self.results / "training" / run / "run.json"
        return self.made(f"training/{run}/metrics.jsonl", record) if record.exists() else None


def anchor(name: str, dataset: str = "") -> str:
    """Place on the page of what stands behind a method's figures."""
    return "-".join(["made", *(re.sub(r"\W", "-", part) for part in (name, dataset) if part)])
