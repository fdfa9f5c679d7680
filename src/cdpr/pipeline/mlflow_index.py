"""MLflow as an index over ``run.json`` and ``metrics.jsonl``: it can be filled at any time and is never the source.

MLflow is imported inside functions only.
"""

import contextlib
import functools
import hashlib
import importlib
import json
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..escape import csv_text
from ..files import read_table
from ..locks import NO_RECORD_LOCKS, has_record_locks, hold
from ..metrics_log import read_history, read_metrics
from ..records import KEY_TAG, PIPELINE, RunRecord, record_files
from ..settings import Settings

CURRENT_TAG = "cdpr.current"
COMPARISON = "cdpr/comparison"
# What the experiments hold, as MLflow shows it above their runs.
EXPERIMENTS = {
    COMPARISON: "A run per method of Table 1: means over training seeds with the ends of 95% intervals, "
    "in-domain and on average over data sets, the utility first. Select all runs and press Compare.",
    "cdpr/training": "A run per variant and seed. Compare `validation/utility`, the objective, then accuracy and aec "
    "(cost per case in USD) over steps; group by the tag `variant`. `credit/*` says how the process reward came about.",
    "cdpr/evaluation": "A run per agent and data set. Compare utility, the objective, then accuracy, aec (cost in "
    "USD) and aen (examinations), greedy and sampled; group by the tags `run` and `dataset`.",
    PIPELINE: "All other jobs: ingestion, prices, warm start, tables and figures.",
}
_LONGEST, _MOST_RUNS = 6000, 50_000  # characters of a parameter, and runs of a search, that MLflow takes
# Each entry of these settings is one parameter: a figure reads them all, and a page of a thousand helps no one.
_REGISTRIES = ("agents", "models", "experiments.variants", "experiments.sweeps")


class TrackingError(RuntimeError):
    """An MLflow index that cannot be used; the message says how to make it again."""


def tracking_uri(settings: Settings) -> str:
    """Address of the index: the configured server, or a SQLite file under ``paths.results``."""
    address = settings.tracking.mlflow
    return address if isinstance(address, str) else f"sqlite:///{settings.paths.results}/mlflow.db"


def load() -> None:
    """Import MLflow without its messages; takes seconds."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    importlib.import_module("mlflow.tracking")
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    # A thousand small commits, each of which would wait for the disk, for an index that can be made again.
    event.listen(Engine, "connect", _do_not_wait_for_the_disk)


def _do_not_wait_for_the_disk(connection: Any, pooled: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


class MlflowIndex:
    """Finds and fills MLflow runs by run key, so no job is listed twice."""

    def __init__(self, uri: str):
        load()
        from mlflow.tracking import MlflowClient

        database = Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None
        self.folder = database and database.parent
        if database and not database.exists():
            with hold(database.with_name(f"{database.name}.lock")):  # jobs run side by side
                if not database.exists():
                    _make(database)
        self.client = MlflowClient(tracking_uri=uri)
        self.experiment = functools.cache(self._experiment)

    def _experiment(self, name: str) -> str:
        """MLflow's number of an experiment, which is created if missing."""
        from mlflow.exceptions import MlflowException

        if experiment := self.client.get_experiment_by_name(name):
            return experiment.experiment_id
        folder = self.folder and self.folder.resolve() / "mlartifacts" / name.rpartition("/")[2]
        place, tags = folder.as_uri() if folder else None, {"mlflow.note.content": EXPERIMENTS[name]}
        try:
            return self.client.create_experiment(name, place, tags)
        except MlflowException:
            if experiment := self.client.get_experiment_by_name(name):  # another job was first
                return experiment.experiment_id
            raise

    def find(self, record: RunRecord) -> Any:
        """MLflow's run of a record's key, None when there is none."""
        return next(iter(self.runs(f"tags.`{KEY_TAG}` = '{record.run_key}'", [record.experiment])), None)

    def create(self, record: RunRecord, started: int | None = None) -> Any:
        """A new run. ``started``: milliseconds, now when left out."""
        tags = record_tags(record) | {KEY_TAG: record.run_key, CURRENT_TAG: "true"}
        return self.client.create_run(self.experiment(record.experiment), started, tags, record.name)

    def runs(self, query: str = "", experiments: Iterable[str] = EXPERIMENTS) -> Sequence[Any]:
        """All runs that match the query."""
        return self.client.search_runs([self.experiment(name) for name in experiments], query, max_results=_MOST_RUNS)

    def last_step(self, run_id: str) -> int:
        """Largest step for which the run has metrics; -1 without any."""
        names = self.client.get_run(run_id).data.metrics
        return max((m.step for name in names for m in self.client.get_metric_history(run_id, name)[-1:]), default=-1)

    def log(self, run_id: str, rows: Iterable[tuple[int, Mapping[str, Any]]], **more: Any) -> None:
        """Append the numbers in rows of metrics by step, and ``more`` as for MLflow's ``log_batch``."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        values = [(name, value, step) for step, row in rows for name, value in row.items() if name != "step"]
        metrics = [Metric(name, float(v), now, step) for name, v, step in values if isinstance(v, (int, float))]
        self.client.log_batch(run_id, metrics=metrics, **more)

    def upsert(self, record: RunRecord, history: Sequence[Mapping[str, Any]], run: Any = None) -> bool:
        """Index one ``run.json`` with its metric history; False if it was. ``run``: MLflow's run of this key."""
        from mlflow.entities import Param, RunTag

        if run and run.info.status == "FINISHED":
            if run.data.tags.get(CURRENT_TAG) != "true":
                self.client.set_tag(run.info.run_id, CURRENT_TAG, "true")
            return False
        started = int(record.started.timestamp() * 1000)
        run_id = (run or self.create(record, started)).info.run_id
        last = self.last_step(run_id) if run else -1  # live tracking has written part of the metrics
        final = dict(record.metrics)
        if record.experiment != COMPARISON:
            final |= {"wall_seconds": record.wall_seconds, "peak_memory_mb": record.peak_memory_mb}
        rows = [(row["step"], row) for row in history if row["step"] > last]
        final_step = history[-1]["step"] if history else 0
        final_row = {f"final/{name}" if history else name: value for name, value in final.items()}
        tags = [RunTag(name, value) for name, value in record_tags(record).items()]
        parameters = flatten(record.parameters, registries=_REGISTRIES)
        params = [Param(name, value[:_LONGEST]) for name, value in parameters.items()]
        self.log(run_id, [*rows, (final_step, final_row)], tags=tags, params=params)
        self.client.set_terminated(run_id, status="FINISHED", end_time=started + int(record.wall_seconds * 1000))
        return True


def _make(database: Path) -> None:
    """Create the database, whole or not at all."""
    from mlflow.tracking import MlflowClient

    if not has_record_locks(database.parent):
        raise TrackingError(
            f"{database}: {NO_RECORD_LOCKS}: set tracking.mlflow to false or to a server's address, or name a "
            "folder on another disk in paths.results"
        )
    # SQLite keeps what a killed migration has made so far, which no other migration can go on from.
    fresh = database.with_name(f"{database.name}.partial")
    fresh.unlink(missing_ok=True)
    MlflowClient(tracking_uri=f"sqlite:///{fresh}").search_experiments()
    fresh.replace(database)


def record_tags(record: RunRecord) -> dict[str, str]:
    """Tags of a run: stage, options, seed, commit, and digests of its inputs and outputs."""
    seed = None if record.seed is None else str(record.seed)
    further = {"seed": seed, "mlflow.source.git.commit": record.commit}
    tags = {"stage": record.stage, "tier": str(record.tier), **record.options, **record.tags}
    tags |= {name: value for name, value in further.items() if value}
    for side, files in (("inputs", record.inputs), ("outputs", record.outputs)):
        tags |= {f"{side}.{label}": f"{file.path} sha256:{file.sha256[:16]}" for label, file in files.items()}
    return tags


def flatten(tree: Mapping[str, Any], prefix: str = "", registries: Sequence[str] = ()) -> dict[str, str]:
    """``{"a": {"b": 1}}`` -> ``{"a.b": "1"}``; an entry of a registry is one text, as JSON."""
    flat: dict[str, str] = {}
    for name, value in tree.items():
        if not isinstance(value, Mapping):
            flat[prefix + name] = str(value)
        elif prefix.rstrip(".") in registries:
            flat[prefix + name] = json.dumps(value, ensure_ascii=False)
        else:
            flat |= flatten(value, f"{prefix}{name}.", registries)
    return flat


def rebuild_tracking(settings: Settings) -> dict[str, int]:
    """Bring the index up to date with every ``run.json`` under ``paths.results``.

    Returns the numbers of records, of new ones among them, and of runs in the index that are superseded. Raises
    TrackingError for an index that cannot be used.
    """
    new, keys = 0, set()
    paths = record_files(Path(settings.paths.results))
    try:
        index = MlflowIndex(tracking_uri(settings))
        runs = {run.data.tags.get(KEY_TAG): run for run in index.runs()}
    except Exception as error:  # of MLflow, its database or its server
        raise TrackingError(
            f"{tracking_uri(settings)}: no usable MLflow index ({type(error).__name__}); everything in it comes from "
            "run.json files: remove it, or correct its address, and run `cdpr rebuild_tracking`"
        ) from error
    for record in method_records(Path(settings.paths.results)):
        keys.add(record.run_key)
        index.upsert(record, [], runs.get(record.run_key))
    for path in paths:
        record = RunRecord.read(path)
        metrics, timings = (record.outputs.get(name) for name in ("metrics", "timings"))
        keys.add(record.run_key)
        history = read_history(metrics.path, timings.path if timings else None) if metrics else []
        new += index.upsert(record, history, runs.get(record.run_key))
    superseded = [run for run in index.runs(f"tags.`{CURRENT_TAG}` = 'true'") if run.data.tags.get(KEY_TAG) not in keys]
    for run in superseded:
        index.client.set_tag(run.info.run_id, CURRENT_TAG, "false")
    return {"records": len(paths), "new": new, "superseded": len(superseded)}


def method_records(results: Path) -> Iterator[RunRecord]:
    """A record for each measured method of Table 1 (main decoding); none without that table."""
    path = results / "tables" / "main_results.csv"
    rows = [row for _, row in read_table(path)] if path.exists() else []
    shown: dict[str, dict[str, float]] = {}
    for row in rows:
        main = row["decoding"] == rows[0]["decoding"] and row["dataset"] in (rows[0]["dataset"], "average")
        if main and row["utility"]:
            metrics = shown.setdefault(csv_text(row["label"]), {})
            for order, name in enumerate(("utility", "accuracy", "aec", "aen"), 1):
                ends = ("", "_low", "_high")
                metrics |= {f"{row['dataset']}/{order} {name}{end}": float(row[f"{name}{end}"]) for end in ends}
    made = RunRecord.read(path.with_suffix(".run.json")) if shown else RunRecord()
    for label, metrics in shown.items():
        key = hashlib.sha256(f"{label} {made.outputs['csv'].sha256}".encode()).hexdigest()[:16]
        yield RunRecord(stage=label, experiment=COMPARISON, run_key=key, tier=made.tier, tags={"method": label},
                        metrics=metrics, started=made.started)  # fmt: skip


@contextlib.contextmanager
def live_run(
    settings: Settings, record: RunRecord, state: Path, patience: float = 120.0, every: float = 15.0
) -> Iterator:
    """Show the metrics of a running job in MLflow; a resumed job continues its MLflow run.

    A thread copies new rows of ``metrics.jsonl`` in the job's ``state`` every ``every`` seconds; its errors never reach
    the job. It imports MLflow (seconds) itself, and does nothing for a job that ends within ``patience`` seconds.
    """
    ended = threading.Event()

    def follow() -> None:
        """Copy new rows of metrics to MLflow until the job has ended."""
        if ended.wait(patience):
            return
        try:
            index = MlflowIndex(tracking_uri(settings))
            run_id = (index.find(record) or index.create(record)).info.run_id
            index.client.update_run(run_id, status="RUNNING")
            last, is_last = index.last_step(run_id), False
            while not is_last:
                is_last = ended.wait(every)
                rows = [(row["step"], row) for row in read_metrics(state / "metrics.jsonl") if row["step"] > last]
                index.log(run_id, rows)
                last = rows[-1][0] if rows else last
        except Exception as error:  # tracking is an index: results must not depend on it
            warnings.warn(f"live tracking stopped ({error}); `rebuild_tracking` will index this run", stacklevel=2)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
