"""Training metrics in MLflow while training runs; whatever goes wrong here never reaches the training."""

from __future__ import annotations

import contextlib
import queue
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ..job import Job
from ..records import run_name
from ..settings import Settings
from .mlflow_index import MlflowIndex, numbers, tracking_uri

_BATCH = 10
_FLUSH_SECONDS = 60.0
_PATIENCE = 120.0


class LiveRun:
    """Streams rows of a :class:`~cdpr.metrics_log.MetricsLog` to the run of a key, from a thread of its own.

    The thread also pays for importing MLflow (seconds), so training starts at once; what ends within ``patience``
    seconds is left to the index, which takes it from its files. A resumed stage continues the same run; steps that it
    has already are not sent twice.
    """

    def __init__(
        self, uri: str, experiment: str, name: str, key: str, tags: Mapping[str, str], patience: float = _PATIENCE
    ):
        self._target = (uri, experiment, name, key, dict(tags))
        self._patience = patience
        self._rows: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Send a row soon; returns at once."""
        self._rows.put(dict(row))

    def close(self) -> None:
        """Send what is left, waiting a minute at most."""
        self._ended.set()
        self._rows.put(None)
        self._thread.join(_FLUSH_SECONDS)

    def _work(self) -> None:
        if self._patience and self._ended.wait(self._patience):
            return
        try:
            uri, experiment, name, key, tags = self._target
            index = MlflowIndex(uri)
            run_id = index.find_or_create(experiment, name, key, tags)
            last, waiting = index.last_step(run_id), []
            while True:
                row = self._rows.get()
                if row is not None and row["step"] > last:
                    waiting.append((row["step"], numbers(row)))
                if waiting and (row is None or len(waiting) >= _BATCH or self._rows.empty()):
                    index.log(run_id, waiting)
                    waiting = []
                if row is None:
                    return
        except Exception as error:  # tracking is an index: results must not depend on it
            warnings.warn(f"live tracking stopped ({error}); `rebuild_tracking` will index this run", stacklevel=2)


@contextlib.contextmanager
def live_run(settings: Settings, job: Job, experiment: str) -> Iterator[None]:
    """Let MLflow show the metrics of a job while it runs, where tracking is on."""
    if not settings.tracking.mlflow:
        yield
        return
    tags = {"stage": job.name, "tier": settings.tier, **job.options, **job.tags}
    run = LiveRun(tracking_uri(settings), experiment, run_name(job.name, job.options), job.key, tags)
    job.listener = run
    yield
    run.close()
