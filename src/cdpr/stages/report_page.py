"""Stage ``report_page``: everything on one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..job import Job
from ..report.report_page import write_report_page
from ..settings import Settings
from ..tracking.mlflow_index import KEY_TAG, run_name


def run(settings: Settings, job: Job) -> None:
    """Write the page."""
    write_report_page(settings, job.inputs["results"], job.out["html"], indexed)


def indexed(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """Where MLflow lists the run of a ``run.json``: experiment, name, and the filter that finds it."""
    stage = str(record.get("stage", ""))
    query = f"tags.`{KEY_TAG}` = '{record.get('run_key', '')}'"
    return record.get("experiment", ""), run_name(stage, record.get("options") or {}), query
