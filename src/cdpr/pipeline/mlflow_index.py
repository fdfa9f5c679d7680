"""MLflow as an index of ``run.json`` and ``metrics.jsonl``: it can be filled at any time and is never the source.

MLflow is imported inside functions only, because that takes seconds.
"""

import contextlib
import functools
import gc
import hashlib
import importlib
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..escape import unescape_csv_cell
from ..files import parse_yaml, read_table, shipped_text
from ..locks import NO_RECORD_LOCKS, has_record_locks, hold
from ..metrics_log import read_history, read_metrics
from ..records import KEY_TAG, RunRecord, record_files
from ..settings import REGISTRIES, Settings, flatten

CURRENT_TAG = "cdpr.current"  # "true": the results still have this run; "false": a later run replaced it
COMPARISON = "cdpr/comparison"  # the MLflow experiment with a run for each method of Table 1
EXPERIMENTS: dict[str, str] = parse_yaml(shipped_text(__package__, "mlflow.yaml"))
"""The MLflow experiments, with the text that MLflow shows above the runs of each."""
# What MLflow takes at most: characters of a parameter, runs of a search.
_MOST_CHARACTERS, _MOST_RUNS = 6000, 50_000


class TrackingError(RuntimeError):
    """An MLflow index that cannot be used; the message says how to make it again."""


def tracking_uri(settings: Settings) -> str:
    """The address of the index: the configured server, or a SQLite file under ``paths.results``."""
    address = settings.tracking.mlflow
    return address if isinstance(address, str) else f"sqlite:///{settings.paths.results}/mlflow.db"


def load() -> None:
    """Import MLflow without its messages; takes seconds. Its connections to SQLite then write without waiting."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    importlib.import_module("mlflow.tracking")
    from sqlalchemy import Engine, event

    event.listen(Engine, "connect", _write_without_waiting)


def _write_without_waiting(connection: Any, record: Any) -> None:
    """Let SQLite write a thousand small commits without waiting for the disk: the index can be made again. SQLAlchemy
    calls this for each new ``connection``, with its own ``record`` of it."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


class MlflowIndex:
    """Finds and fills the MLflow runs of jobs by run key, so that no job is listed twice. ``uri`` is the address of the
    index; a missing SQLite database is created."""

    def __init__(self, uri: str):
        """Connect to the index at ``uri``; a missing SQLite database is created. Raises TrackingError where that would
        be on a file system without file locks, and ``sqlite3.DatabaseError`` for a file that is no database."""
        load()
        from mlflow.tracking import MlflowClient

        database = Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None  # else a server
        if database and not database.exists():
            with hold(database.with_name(f"{database.name}.lock")):  # jobs that run side by side make it once
                if not database.exists():
                    _create_database(database)
        if database:  # MLflow itself would try a damaged file again and again, for two minutes
            with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master")
        self.client = MlflowClient(tracking_uri=uri)
        self.experiment = functools.cache(self._find_experiment)

    def _find_experiment(self, name: str) -> str:
        """The MLflow identifier of an experiment, which is created if it is missing."""
        from mlflow.exceptions import MlflowException

        if experiment := self.client.get_experiment_by_name(name):
            return experiment.experiment_id
        try:
            return self.client.create_experiment(name, tags={"mlflow.note.content": EXPERIMENTS[name]})
        except MlflowException:
            if experiment := self.client.get_experiment_by_name(name):  # another job was first
                return experiment.experiment_id
            raise

    def find(self, record: RunRecord) -> Any:
        """Find the MLflow run with the run key of a record, in the record's experiment; None where there is none."""
        return next(iter(self.runs(f"tags.`{KEY_TAG}` = '{record.run_key}'", [record.experiment])), None)

    def create(self, record: RunRecord, started: int | None = None) -> Any:
        """Create an MLflow run for a record and return it. ``started`` is its start in milliseconds since 1970; now
        when left out."""
        tags = record_tags(record) | {KEY_TAG: record.run_key, CURRENT_TAG: "true"}
        return self.client.create_run(self.experiment(record.experiment), started, tags, record.name)

    def runs(self, query: str = "", experiments: Iterable[str] = EXPERIMENTS) -> Sequence[Any]:
        """The MLflow runs of these experiments that match the query, in MLflow's language of filters (empty: all)."""
        return self.client.search_runs([self.experiment(name) for name in experiments], query, max_results=_MOST_RUNS)

    def last_step(self, run_id: str) -> int:
        """The largest step for which a run has metrics; -1 without any."""
        histories = [self.client.get_metric_history(run_id, name) for name in self.client.get_run(run_id).data.metrics]
        return max((history[-1].step for history in histories if history), default=-1)

    def log_rows(self, run_id: str, rows: Iterable[Mapping[str, Any]], **more: Any) -> None:
        """Append metrics to a run: all numbers in the rows ``{"step": int, ...}``. ``more`` are further arguments of
        MLflow's ``log_batch``, such as ``tags``."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, float(value), now, row["step"]) for row in rows for name, value in row.items()
                   if name != "step" and isinstance(value, (int, float))]  # fmt: skip
        self.client.log_batch(run_id, metrics=metrics, **more)

    def upsert(self, record: RunRecord, history: Sequence[Mapping[str, Any]], run: Any = None) -> bool:
        """Bring the MLflow run of one ``run.json`` up to date: its metrics, parameters and tags. Returns False where it
        was complete already.

        ``history`` are its metrics as rows ``{"step": int, ...}``, empty for a job without steps. ``run`` is the MLflow
        run with its run key, if there is one; otherwise one is created.
        """
        from mlflow.entities import Param, RunTag

        if run and run.info.status == "FINISHED":
            if run.data.tags.get(CURRENT_TAG) != "true":
                self.client.set_tag(run.info.run_id, CURRENT_TAG, "true")
            return False
        started = int(record.started.timestamp() * 1000)
        last_step = self.last_step(run.info.run_id) if run else -1  # live tracking has written part of the metrics
        run_id = (run or self.create(record, started)).info.run_id
        final = dict(record.metrics)
        if record.experiment != COMPARISON:
            final |= {name: getattr(record, name) for name in ("wall_seconds", "cpu_seconds", "peak_memory_mb")}
        if history:  # the curves over steps have the names of the metrics already
            final = {f"final/{name}": value for name, value in final.items()}
        final_row = {**final, "step": history[-1]["step"] if history else 0}
        # Every figure reads the registries of agents, models and experiments: a page of a thousand parameters helps no
        # one.
        sections = {name: value for name, value in record.parameters.items() if name not in REGISTRIES}
        params = [Param(name, str(value)[:_MOST_CHARACTERS]) for name, value in flatten(sections).items()]
        # A new run has all its tags. A run that was tracked live lacks those that came with the results of the job.
        tags = [RunTag(name, value) for name, value in record_tags(record).items()] if run else []
        new_rows = [row for row in history if row["step"] > last_step]
        self.log_rows(run_id, [*new_rows, final_row], tags=tags, params=params)
        self.client.set_terminated(run_id, status="FINISHED", end_time=started + int(record.wall_seconds * 1000))
        return True


def _create_database(database: Path) -> None:
    """Create MLflow's SQLite database, whole or not at all. Raises TrackingError on a file system without locks."""
    from mlflow.tracking import MlflowClient

    if not has_record_locks(database.parent):
        alternative = "name a folder on another disk in paths.results"
        remedy = f"set tracking.mlflow to false or to a server's address, or {alternative}"
        raise TrackingError(f"{database}: {NO_RECORD_LOCKS}: {remedy}")
    # SQLite keeps what a killed migration has made so far, and no other migration can continue from there.
    fresh = database.with_name(f"{database.name}.partial")
    fresh.unlink(missing_ok=True)
    MlflowClient(tracking_uri=f"sqlite:///{fresh}").search_experiments()
    fresh.replace(database)


def record_tags(record: RunRecord) -> dict[str, str]:
    """The tags of an MLflow run: stage, options, seed, commit, and digests of the inputs and outputs."""
    tags = {"stage": record.stage, "tier": str(record.tier), **record.options, **record.tags}
    if record.seed is not None:
        tags["seed"] = str(record.seed)
    if record.commit:
        tags["mlflow.source.git.commit"] = record.commit
    for kind, files in (("inputs", record.inputs), ("outputs", record.outputs)):
        tags |= {f"{kind}.{label}": f"{file.path} sha256:{file.sha256[:16]}" for label, file in files.items()}
    return tags


def rebuild_tracking(settings: Settings) -> dict[str, int]:
    """Bring the index up to date with every ``run.json`` under ``paths.results``, and with Table 1.

    Returns the numbers of records, of new ones among them, and of runs in the index that are superseded. Raises
    TrackingError for an index that cannot be used.
    """
    try:
        index = MlflowIndex(tracking_uri(settings))
        runs = {run.data.tags.get(KEY_TAG): run for run in index.runs()}
    except Exception as error:  # of MLflow, its database or its server
        problem = f"no usable MLflow index ({type(error).__name__}); everything in it comes from run.json files"
        remedy = "remove it, or correct its address, and run `cdpr rebuild_tracking`"
        raise TrackingError(f"{tracking_uri(settings)}: {problem}: {remedy}") from error
    results = Path(settings.paths.results)
    methods = list(method_records(results))
    for record in methods:
        index.upsert(record, [], runs.get(record.run_key))
    records = [RunRecord.read(path) for path in record_files(results)]
    new = 0
    for record in records:
        metrics, timings = (record.outputs.get(name) for name in ("metrics", "timings"))
        history = read_history(metrics.path, timings.path if timings else None) if metrics else []
        new += index.upsert(record, history, runs.get(record.run_key))
    keys = {record.run_key for record in [*methods, *records]}
    current = index.runs(f"tags.`{CURRENT_TAG}` = 'true'")
    superseded = [run for run in current if run.data.tags.get(KEY_TAG) not in keys]
    for run in superseded:
        index.client.set_tag(run.info.run_id, CURRENT_TAG, "false")
    return {"records": len(records), "new": new, "superseded": len(superseded)}


def method_records(results: Path) -> Iterator[RunRecord]:
    """Make a :class:`RunRecord` for each measured method of Table 1 in the folder ``results``, so that MLflow can
    compare methods. The metrics of a record are the means of the table's first decoding, in-domain and on average over
    data sets, with the ends of their intervals. Without the table there are no records."""
    path = results / "tables" / "main_results.csv"
    rows = [row for _, row in read_table(path)] if path.exists() else []
    metrics_of: dict[str, dict[str, float]] = {}
    for row in rows:
        # The first row has the table's first decoding, and the in-domain data set.
        is_shown = row["decoding"] == rows[0]["decoding"] and row["dataset"] in (rows[0]["dataset"], "average")
        if is_shown and row["utility"]:
            metrics = metrics_of.setdefault(unescape_csv_cell(row["label"]), {})
            for order, name in enumerate(("utility", "accuracy", "aec", "aen"), 1):  # MLflow sorts metrics by name
                for end in ("", "_low", "_high"):
                    metrics[f"{row['dataset']}/{order} {name}{end}"] = float(row[f"{name}{end}"])
    # The record of the job that made the table.
    table = RunRecord.read(path.with_suffix(".run.json")) if metrics_of else RunRecord()
    for label, metrics in metrics_of.items():
        key = hashlib.sha256(f"{label} {table.outputs['csv'].sha256}".encode()).hexdigest()[:16]
        yield RunRecord(stage=label, experiment=COMPARISON, run_key=key, tier=table.tier, tags={"method": label},
                        metrics=metrics, started=table.started)  # fmt: skip


@contextlib.contextmanager
def live_run(
    settings: Settings, record: RunRecord, state: Path, patience: float = 120.0, every: float = 15.0
) -> Iterator:
    """Show the metrics of the job that runs in this context in MLflow; a resumed job continues its MLflow run.

    A thread copies the new rows of the file ``metrics.jsonl`` in the folder ``state`` of the job every ``every``
    seconds; its errors never reach the job. It imports MLflow itself, and does nothing for a job that ends within
    ``patience`` seconds. Then it freezes what exists in this process, MLflow included: the job's garbage collections
    leave it out. ``record`` describes the job.
    """
    ended = threading.Event()

    def copy_rows() -> None:
        """Copy new rows of metrics to MLflow until the job has ended."""
        if ended.wait(patience):
            return
        try:
            index = MlflowIndex(tracking_uri(settings))
            run_id = (index.find(record) or index.create(record)).info.run_id
            index.client.update_run(run_id, status="RUNNING")
            gc.freeze()  # to look through MLflow's 280,000 objects takes 0.2 s, at every iteration of a training
            last_step, is_last = index.last_step(run_id), False
            while not is_last:
                is_last = ended.wait(every)
                rows = [row for row in read_metrics(state / "metrics.jsonl") if row["step"] > last_step]
                index.log_rows(run_id, rows)
                last_step = rows[-1]["step"] if rows else last_step
        except Exception as error:  # tracking is an index: results must not depend on it
            warnings.warn(f"live tracking stopped ({error}); `rebuild_tracking` will index this run", stacklevel=2)

    thread = threading.Thread(target=copy_rows, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
