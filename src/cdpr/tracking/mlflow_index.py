"""MLflow as an index over ``run.json`` and ``metrics.jsonl``: created once, filled at any time, never the source.

MLflow is imported inside functions only.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ..job import Job
from ..metrics_log import read_metrics
from ..records import KEY_TAG, PIPELINE, RunRecord, record_files
from ..settings import Settings

CURRENT_TAG = "cdpr.current"
EXPERIMENTS = ("cdpr/training", "cdpr/evaluation", PIPELINE)
_LONGEST = 6000  # characters of a parameter that MLflow takes
# Of these settings each entry is one parameter: a figure reads them all, and a page of a thousand tells nothing.
_REGISTRIES = ("agents", "models", "experiments.variants", "experiments.sweeps")


def tracking_uri(settings: Settings) -> str:
    """Where runs are indexed: the configured server, or a SQLite file under ``paths.results``."""
    return settings.tracking.uri or f"sqlite:///{settings.paths.results}/mlflow.db"


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numeric entries of a metrics row, without its step."""
    return {k: float(v) for k, v in row.items() if k != "step" and isinstance(v, (int, float))}


def load() -> None:
    """Import MLflow, quietly: it takes seconds."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    importlib.import_module("mlflow.tracking")


class MlflowIndex:
    """Upserts by run key, so that nothing is ever listed twice."""

    def __init__(self, uri: str):
        load()
        from mlflow.tracking import MlflowClient

        self.folder = Path(uri.removeprefix("sqlite:///")).parent if uri.startswith("sqlite:///") else None
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.client = MlflowClient(tracking_uri=uri)
        self._experiments: dict[str, str] = {}

    def create(self) -> None:
        """Create the database and all experiments (jobs that do this side by side would collide)."""
        for name in EXPERIMENTS:
            self.experiment(name)

    def experiment(self, name: str) -> str:
        """Id of an experiment, made where it is missing."""
        if name not in self._experiments:
            if (found := self.client.get_experiment_by_name(name)) is not None:
                self._experiments[name] = found.experiment_id
            else:
                place = (
                    (self.folder.resolve() / "mlartifacts" / name.rpartition("/")[2]).as_uri() if self.folder else None
                )
                self._experiments[name] = self.client.create_experiment(name, artifact_location=place)
        return self._experiments[name]

    def find_or_create(
        self, experiment: str, name: str, key: str, tags: Mapping[str, str], started: int | None = None
    ) -> str:
        """Id of the run of ``key``; the run is set to running. ``started``: milliseconds, now when left out."""
        if (run := self._found(experiment, key)) is not None:
            self.client.update_run(run.info.run_id, status="RUNNING")
            return run.info.run_id
        return self._create(experiment, name, key, tags, started)

    def _create(self, experiment: str, name: str, key: str, tags: Mapping[str, str], started: int | None) -> str:
        tags, where = {**tags, KEY_TAG: key, CURRENT_TAG: "true"}, self.experiment(experiment)
        return self.client.create_run(where, start_time=started, tags=tags, run_name=name).info.run_id

    def _found(self, experiment: str, key: str) -> Any:
        query = f"tags.`{KEY_TAG}` = '{key}'"
        return next(iter(self.client.search_runs([self.experiment(experiment)], query, max_results=1)), None)

    def runs(self, query: str = "") -> Iterator[Any]:
        """All runs that the query finds, whatever their experiment."""
        where, token = [self.experiment(name) for name in EXPERIMENTS], None
        while token != "":
            page = self.client.search_runs(where, query, page_token=token)
            yield from page
            token = page.token or ""

    def run_of(self, record: RunRecord) -> str:
        """Id of the run of a ``run.json``, which is indexed where it is not yet."""
        found = self._found(record.experiment, record.run_key)
        if found is None:
            self.upsert(record, [])
        return (found or self._found(record.experiment, record.run_key)).info.run_id

    def last_step(self, run_id: str) -> int:
        """Largest step for which the run has metrics; -1 without any."""
        names = self.client.get_run(run_id).data.metrics
        return max((m.step for name in names for m in self.client.get_metric_history(run_id, name)[-1:]), default=-1)

    def log(
        self, run_id: str, rows: Iterable[tuple[int, Mapping[str, float]]], parameters: Mapping[str, str] | None = None
    ) -> None:
        """Append metrics of several steps, and parameters that the run lacks."""
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        points = [Metric(name, value, now, step) for step, row in rows for name, value in row.items()]
        told = [Param(name, value[:_LONGEST]) for name, value in (parameters or {}).items()]
        self.client.log_batch(run_id, metrics=points, params=told)

    def upsert(self, record: RunRecord, history: Sequence[Mapping[str, Any]], found: Any = None) -> bool:
        """Index one ``run.json`` with its metric history; False when it stood there whole already. ``found``: the run
        that MLflow has of it."""
        from mlflow.entities import RunTag

        if found and found.info.status == "FINISHED":
            if found.data.tags.get(CURRENT_TAG) != "true":
                self.client.set_tag(found.info.run_id, CURRENT_TAG, "true")
            return False
        started = int(datetime.fromisoformat(record.started).timestamp() * 1000)
        known: Mapping[str, str] = {}
        if found:  # a run that was logged while it went on has its first tags, and part of its metrics
            run_id, known = found.info.run_id, found.data.params
            last = self.last_step(run_id)
            self.client.log_batch(run_id, tags=[RunTag(k, v) for k, v in record_tags(record).items()])
        else:
            run_id = self._create(record.experiment, record.name, record.run_key, record_tags(record), started)
            last = -1
        final = {**record.metrics, "wall_seconds": record.wall_seconds, "peak_memory_mb": record.peak_memory_mb}
        step = history[-1]["step"] if history else 0
        rows = [(r["step"], numbers(r)) for r in history if r["step"] > last]
        parameters = {k: v for k, v in record_parameters(record).items() if k not in known}
        told = (step, {f"final/{k}" if history else k: v for k, v in final.items()})
        self.log(run_id, [*rows, told], parameters)
        self.client.set_terminated(run_id, status="FINISHED", end_time=started + int(record.wall_seconds * 1000))
        return True

    def retire_others(self, keys: set[str]) -> int:
        """Mark runs whose key is not among the current ones; returns how many were marked."""
        others = [r for r in self.runs(f"tags.`{CURRENT_TAG}` = 'true'") if r.data.tags.get(KEY_TAG) not in keys]
        for run in others:
            self.client.set_tag(run.info.run_id, CURRENT_TAG, "false")
        return len(others)


def record_tags(record: RunRecord) -> dict[str, str]:
    """Tags of a run: its coordinates, how it came about, and digests of what it read and wrote."""
    tags = {"stage": record.stage, "tier": str(record.tier), **record.options, **record.tags}
    if record.seed is not None:
        tags["seed"] = str(record.seed)
    if record.commit:
        tags["mlflow.source.git.commit"] = record.commit
    for side, files in (("inputs", record.inputs), ("outputs", record.outputs)):
        tags |= {f"{side}.{label}": f"{file.path} sha256:{file.sha256[:16]}" for label, file in files.items()}
    return tags


def record_parameters(record: RunRecord) -> dict[str, str]:
    """Parameters of a run by their dotted names; an entry of a registry is one, as JSON."""
    told = flatten(record.parameters)
    for registry in _REGISTRIES:
        entries: Any = record.parameters
        for name in registry.split("."):
            entries = entries.get(name, {})
        told = {name: value for name, value in told.items() if not name.startswith(f"{registry}.")}
        told |= {f"{registry}.{name}": json.dumps(entry, ensure_ascii=False) for name, entry in entries.items()}
    return told


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``{"a": {"b": 1}}`` -> ``{"a.b": "1"}``."""
    flat: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = str(value)
    return flat


def init_tracking(settings: Settings, job: Job) -> None:
    """Create database and experiments once, before jobs run side by side. A tracking problem is a warning: results do
    not depend on it."""
    message = "tracking.mlflow is off\n"
    if settings.tracking.mlflow:
        message = f"{tracking_uri(settings)}\n"
        try:
            MlflowIndex(tracking_uri(settings)).create()
        except Exception as error:  # whatever MLflow raises: an index must never stop the work
            message = f"not available: {error}\n"
            print(f"WARNING: no MLflow index: {error}")
    job.out["ready"].write_text(message, encoding="utf-8")


def rebuild_tracking(settings: Settings) -> dict[str, int]:
    """Bring the index up to date with every ``run.json`` under ``paths.results``; nothing is listed twice.

    Returns how many records were found, how many were new, and how many runs in the index have been superseded.
    """
    index = MlflowIndex(tracking_uri(settings))
    index.create()
    new, keys = 0, set()
    records = record_files(Path(settings.paths.results))
    found = {run.data.tags.get(KEY_TAG): run for run in index.runs()}
    for path in records:
        record = RunRecord.read(path)
        metrics = record.outputs.get("metrics")
        keys.add(record.run_key)
        new += index.upsert(record, read_metrics(metrics.path) if metrics else [], found.get(record.run_key))
    return {"records": len(records), "new": new, "superseded": index.retire_others(keys)}
