"""Stage ``ingest``: raw files of one data set -> case records."""

from __future__ import annotations

import csv
import importlib
import json
from typing import Any

from ..cases import write_records
from ..ingest import Funnel, ingest
from ..job import Job
from ..settings import Settings

_FINDINGS = ("case", "what", "action", "place", "name")


def run(settings: Settings, job: Job) -> None:
    """Read the raw files; write records, the numbers of what was kept and dropped, and the list behind them."""
    dataset = job.options["dataset"]
    processes = settings.data.mimic_iv.threads if dataset == "mimic_iv" else 1
    structurer = _structurer(settings, job)
    improve = structurer.improve_all if structurer else None
    records, funnel = ingest(dataset, settings, job.inputs["raw"], processes, improve, job.state / "tables")
    if structurer:
        funnel.events += structurer.counters
        job.tags.update(structurer.tags())
    write_records(job.out["records"], records)
    job.out["report"].write_text(json.dumps(funnel.report(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    with job.out["findings"].open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, _FINDINGS, lineterminator="\n")
        table.writeheader()
        table.writerows(funnel.rows())
    steps = funnel.steps()
    job.metrics.update(read=funnel.read, kept=funnel.kept, **{f"dropped/{rule}": lost for rule, lost, _ in steps})
    print(told(funnel))


def _structurer(settings: Settings, job: Job) -> Any:
    """The help that the settings ask for, or None. Imported by name: without it, ingestion does not depend on it."""
    source = getattr(settings.data, job.options["dataset"])
    if job.options["dataset"] != "mimic_iv" or source.structurer.model is None:
        return None
    module = importlib.import_module("cdpr.ingest.structurer")
    return module.Structurer(source.structurer, settings.governance, source.credentialed, job.state)


def told(funnel: Funnel) -> str:
    """The funnel in a few lines, numbers only."""
    lines = [f"{funnel.dataset}: kept {funnel.kept} of {funnel.read} cases {funnel.splits}"]
    lines += [f"  {left:>8} left, {lost:>8} dropped: {rule}" for rule, lost, left in funnel.steps()]
    lines += [f"  {entry['cases']:>8} cases: {entry['leak']} ({entry['action']})" for entry in funnel.report()["leaks"]]
    return "\n".join([*lines, *(f"  note: {text}" for text in funnel.warnings)])
