"""Stage ``init_tracking``: the MLflow database, once, before jobs run side by side."""

from __future__ import annotations

from ..job import Job
from ..settings import Settings
from ..tracking.mlflow_index import init_tracking, tracking_uri


def run(settings: Settings, job: Job) -> None:
    """Create database and experiments; a tracking problem is a warning, results do not depend on it."""
    message = "tracking.mlflow is off\n"
    if settings.tracking.mlflow:
        message = f"{tracking_uri(settings)}\n"
        try:
            init_tracking(settings)
        except Exception as error:  # whatever MLflow raises: an index must never stop the work
            message = f"not available: {error}\n"
            print(f"WARNING: no MLflow index: {error}")
    job.out["ready"].write_text(message, encoding="utf-8")
