"""Which files of a run an export is made of (``cdpr export``)."""

from __future__ import annotations

from pathlib import Path

from ..exports.every_eval_ever import write_every_eval_ever
from ..exports.inspect_log import write_inspect_log
from ..exports.workups import Exported
from ..settings import SettingsError
from ..settings.datasets import DATASETS
from .plan import Plan


def export(plan: Plan, to: str, run: str, dataset: str, file: str, organization: str) -> str:
    """Write an evaluation in the format ``to``; returns a message. Raises SettingsError for an unknown
    data set."""
    if dataset not in DATASETS:
        raise SettingsError(f"{dataset!r}: no such data set; there are {', '.join(DATASETS)}")
    options = {"run": run, "dataset": dataset}
    evaluation = Path(plan.resolved(plan.output("evaluate_agent", "evaluation", **options)))
    cases = Path(plan.resolved(plan.place(plan.source("evaluate_agent", "cases", options)) or ""))
    exported = Exported.open(plan.settings, run, dataset, evaluation, cases)
    if to == "inspect":
        return f"{file}: {write_inspect_log(exported, Path(file)):,} samples"
    return f"{file}: {write_every_eval_ever(exported, Path(file), organization)} results"
