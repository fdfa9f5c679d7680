"""Workups of the inspector as MLflow traces: one span a turn, with price, U_hat, R_proc and the inspector's address.

Credentialed cases are never traced: the store may be open to more people than the cases.
"""

import os
from pathlib import Path
from typing import Any

from ..inspector.data import address, read_data
from ..records import RunRecord
from ..seeding import stratified_sample
from ..settings import Settings
from .mlflow_index import MlflowIndex, tracking_uri

# Tag on the run of an evaluation: key of the inspector whose workups it has as traces.
TRACED_TAG = "cdpr.traced"
TRACES = 50  # of an evaluation: the inspector has all of them, MLflow shows some of each kind
_REPLY_CHARACTERS = 1000  # the inspector has the whole reply
_ASYNCHRONOUS = {"MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "true", "MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE": "200"}

Entry = dict[str, Any]  # an entry of the inspector's data


def log_traces(settings: Settings) -> dict[str, int]:
    """Log ``TRACES`` workups of every evaluation in the inspector, those of an evaluation once.

    Returns the numbers of traces, of evaluations, and of credentialed evaluations without traces. Raises ValueError
    when the inspector or the ``run.json`` of an evaluation is missing.
    """
    results = Path(settings.paths.results)
    folder = results / "inspector"
    if not (folder / "index.html").exists():
        raise ValueError(f"{folder}: no inspector; make it first: snakemake inspector")
    key = RunRecord.read(folder.with_suffix(".run.json")).run_key
    counts = {"traces": 0, "evaluations": 0, "credentialed": 0}
    os.environ.update(_ASYNCHRONOUS)
    index = MlflowIndex(tracking_uri(settings))
    import mlflow

    mlflow.set_tracking_uri(tracking_uri(settings))
    for view in read_data(folder, "data/index")["views"]:
        if view["credentialed"]:
            counts["credentialed"] += 1
            continue
        record = RunRecord.read(results / "evaluations" / view["run"] / f"{view['dataset']}.run.json")
        if (run := index.find(record)) is None:
            index.upsert(record, [])
            run = index.find(record)
        if run.data.tags.get(TRACED_TAG) == key:
            continue
        run_id, workups = run.info.run_id, sample(read_data(folder, view["data"]))
        for workup in workups:
            _log(index.experiment(record.experiment), run_id, view, workup, record.run_key)
        index.client.set_tag(run_id, TRACED_TAG, key)
        counts["traces"] += len(workups)
        counts["evaluations"] += 1
    mlflow.flush_trace_async_logging()
    return counts


def sample(workups: list[Entry]) -> list[Entry]:
    """The workups to log: credited ones if there are any, spread over decodings, right and wrong, and lengths."""
    with_steps = [workup for workup in workups if workup["steps"]]
    credited = [workup for workup in with_steps if any("credit" in step for step in workup["steps"])]
    return stratified_sample(
        credited or with_steps, TRACES,
        lambda workup: (workup["decoding"], workup["right"], len(workup["steps"])),
        lambda workup: f"{workup['case']} {workup['decoding']}", 0,
    )  # fmt: skip


def _log(experiment: str, run_id: str, view: Entry, workup: Entry, key: str) -> None:
    import mlflow

    addresses = [address(view["run"], view["dataset"], case=workup["case"], decoding=workup["decoding"], turn=turn)
                 for turn in range(len(workup["steps"]))]  # fmt: skip
    numbers = {name: workup[name] for name in ("right", "forced", "cost", "utility", "tests", "missed")}
    root = mlflow.start_span_no_context(
        f"{view['run']}: {workup['case']}", "AGENT", experiment_id=experiment, inputs={"case": workup["case"]},
        attributes={**numbers, "inspector": addresses[0]},
        tags={"cdpr.run_key": key, "cdpr.dataset": view["dataset"], "cdpr.decoding": workup["decoding"],
              "cdpr.right": str(workup["right"]).lower(), "cdpr.inspector": addresses[0]},
        metadata={"mlflow.sourceRun": run_id, "mlflow.trace.session": f"{view['dataset']}/{workup['case']}"},
    )  # fmt: skip
    for turn, step in enumerate(workup["steps"]):
        kind, name = step["act"]
        mlflow.start_span_no_context(
            f"{turn + 1}: {name or kind}", "TOOL" if kind != "end" else "LLM", parent_span=root,
            inputs={"reply": step["reply"][:_REPLY_CHARACTERS]} if "reply" in step else None,
            attributes={"turn": turn, "kind": kind, "price_usd": step["charge"], "spent_usd": step["spent"],
                        **_credit(step), "inspector": addresses[turn]},
        ).end()  # fmt: skip
    root.end(outputs={"diagnosis": workup["said"]})


def _credit(step: Entry) -> Entry:
    """U_hat of the action taken, R_proc and entropy, for a credited decision."""
    if "credit" not in step:
        return {}
    credit = step["credit"]
    value = next((each["value"] for each in credit["candidates"] if each.get("taken")), None)
    numbers = {"u_hat": value, "r_proc": credit["process"], "entropy": credit["entropy"]}
    return {name: value for name, value in numbers.items() if value is not None} | {"selected": credit["why"] or "no"}
