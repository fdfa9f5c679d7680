"""Workups as MLflow traces: one span a turn, with its price, U_hat and R_proc, and the way to the inspector.

They are made from what the inspector shows, so they hold no more than it does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..inspector.data import address, read_data
from ..records import RunRecord
from ..seeding import stratified_sample
from ..settings import Settings
from .mlflow_index import MlflowIndex, tracking_uri

# On a run of an evaluation: the key of the inspector whose workups it shows.
TRACED_TAG = "cdpr.traced"
_SHOWN = 1000  # characters of a reply; the whole is in the inspector
_AHEAD = {"MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "true", "MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE": "200"}

Told = dict[str, Any]


def log_traces(settings: Settings) -> dict[str, int]:
    """Log ``tracking.traces`` workups of every evaluation in the inspector, those of an evaluation once.

    Returns how many traces of how many evaluations were logged, and how many evaluations were passed over because their
    cases are credentialed. Raises ValueError where the inspector or an evaluation's ``run.json`` is not there.
    """
    results = Path(settings.paths.results)
    folder = results / "inspector"
    if not (folder / "index.html").exists():
        raise ValueError(f"{folder}: no inspector; make it first: snakemake inspector")
    key = RunRecord.read(folder.with_suffix(".run.json")).run_key
    counts = {"traces": 0, "evaluations": 0, "credentialed": 0}
    with _tracing(tracking_uri(settings)) as index:
        for view in read_data(folder, "data/index")["views"]:
            if view["credentialed"] and not settings.tracking.credentialed:
                counts["credentialed"] += 1
                continue
            record = RunRecord.read(results / "evaluations" / view["run"] / f"{view['dataset']}.run.json")
            run_id = index.run_of(record)
            if index.client.get_run(run_id).data.tags.get(TRACED_TAG) == key:
                continue
            chosen = sample(read_data(folder, view["data"]), settings)
            for workup in chosen:
                _log(index.experiment(record.experiment), run_id, view, workup, record.run_key)
            index.client.set_tag(run_id, TRACED_TAG, key)
            counts["traces"] += len(chosen)
            counts["evaluations"] += 1
    return counts


def sample(workups: list[Told], settings: Settings) -> list[Told]:
    """The workups that are logged: of those whose decisions are told, credited ones first, spread over decodings,
    right and wrong, and lengths."""
    told = [workup for workup in workups if workup["steps"]]
    credited = [workup for workup in told if any("credit" in step for step in workup["steps"])]
    return stratified_sample(
        credited or told, settings.tracking.traces,
        lambda workup: (workup["decoding"], workup["right"], len(workup["steps"])),
        lambda workup: f"{workup['case']} {workup['decoding']}", settings.inspector.seed,
    )  # fmt: skip


def _place(view: Told, workup: Told, turn: int = 0) -> str:
    return address(view["run"], view["dataset"], case=workup["case"], decoding=workup["decoding"], turn=turn)


def _log(experiment: str, run_id: str, view: Told, workup: Told, key: str) -> None:
    import mlflow

    numbers = {name: workup[name] for name in ("right", "forced", "cost", "utility", "tests", "missed")}
    root = mlflow.start_span_no_context(
        f"{view['run']}: {workup['case']}", "AGENT", experiment_id=experiment, inputs={"case": workup["case"]},
        attributes={**numbers, "inspector": _place(view, workup)},
        tags={"cdpr.run_key": key, "cdpr.dataset": view["dataset"], "cdpr.decoding": workup["decoding"],
              "cdpr.right": str(workup["right"]).lower(), "cdpr.inspector": _place(view, workup)},
        metadata={"mlflow.sourceRun": run_id, "mlflow.trace.session": f"{view['dataset']}/{workup['case']}"},
    )  # fmt: skip
    for turn, step in enumerate(workup["steps"]):
        kind, name = step["act"]
        span = mlflow.start_span_no_context(
            f"{turn + 1}: {name or kind}", "TOOL" if kind != "end" else "LLM", parent_span=root,
            inputs={"reply": step["reply"][:_SHOWN]} if "reply" in step else None,
            attributes={"turn": turn, "kind": kind, "price_usd": step["charge"], "spent_usd": step["spent"],
                        **_credit(step), "inspector": _place(view, workup, turn)},
        )  # fmt: skip
        span.end()
    root.end(outputs={"diagnosis": workup["said"]})


def _credit(step: Told) -> Told:
    """U_hat of the action taken, R_proc and entropy, where the decision is credited."""
    if "credit" not in step:
        return {}
    credit = step["credit"]
    taken = [each["value"] for each in credit["candidates"] if each.get("taken")]
    told = {"u_hat": taken[0] if taken else None, "r_proc": credit["process"], "entropy": credit["entropy"]}
    return {name: value for name, value in told.items() if value is not None} | {"selected": credit["why"] or "no"}


@contextlib.contextmanager
def _tracing(uri: str) -> Iterator[MlflowIndex]:
    """The index, and traces that go to it in the background; at the end what is still on its way is waited for."""
    os.environ.update(_AHEAD)
    index = MlflowIndex(uri)
    import mlflow

    mlflow.set_tracking_uri(uri)
    try:
        yield index
    finally:
        mlflow.flush_trace_async_logging()
