"""A real language model, untrained for the task, on cases that nobody here wrote.

Its accuracy is poor and reported as it is: the point is that free text survives the whole path.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..job import Job
from ..llm.local_models import LocalModelUnavailable, smollm2
from ..settings import Settings, merge
from .row import read_rows
from .run import Benchmark, evaluate

MODEL_RUN = "zero_shot"
_NO_CASES = "no AgentClinic cases: set data.agentclinic.path to agentclinic_medqa.jsonl"
_COLUMNS = ("cases", "accuracy", "n_issued", "n_available", "n_unavailable", "n_invalid", "cost_usd")


def try_real_model(settings: Settings, job: Job) -> None:
    """Stage ``smoke_real``: evaluate reference policies on all cases and the model on a few; what cannot run says
    why."""
    job.out["evaluations"].mkdir()
    cases, reference = job.inputs.get("cases"), [n for n, entry in settings.agents.items() if entry.knows_hospital]
    if cases is None:
        rows = {name: {"not_run": _NO_CASES} for name in (MODEL_RUN, *reference)}
    else:
        rows = {MODEL_RUN: _zero_shot(settings, cases, job)}
        rows |= {name: _evaluate(settings, name, cases, job, None) for name in reference}
    job.out["summary"].write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    job.out["md"].write_text(render(rows), encoding="utf-8")
    print(render(rows))


def render(rows: dict[str, dict]) -> str:
    """Markdown table of the outcome."""
    lines = ["| agent | " + " | ".join(_COLUMNS) + " |", "|---" * (1 + len(_COLUMNS)) + "|"]
    for name, row in rows.items():
        if "not_run" in row:
            lines.append(f"| {name} | not run: {row['not_run']} |" + " |" * (len(_COLUMNS) - 1))
        else:
            lines.append(f"| {name} | " + " | ".join(f"{row[c]:g}" for c in _COLUMNS) + " |")
    return "\n".join(lines) + "\n"


def _zero_shot(settings: Settings, cases: Path, job: Job) -> dict:
    """The model on a few cases, with the paper's full prompt, long turns and greedy decoding."""
    try:
        model = settings.smoke_real.model or smollm2(settings.paths.state)
    except LocalModelUnavailable as error:
        return {"not_run": str(error)}
    shown = merge(settings.model_dump(), {
        "environment": {"prompt": {"style": "full"}},
        "policy": {"max_turn_tokens": settings.smoke_real.max_turn_tokens},
        "evaluation": {"decodings": ["greedy"]},
        "agents": {MODEL_RUN: {"label": "Zero-shot", "model": str(model)}},
    })  # fmt: skip
    return _evaluate(type(settings).model_validate(shown), MODEL_RUN, cases, job, settings.smoke_real.cases)


def _evaluate(settings: Settings, name: str, cases: Path, job: Job, limit: int | None) -> dict:
    """Means over the greedy rows of one agent."""
    path = job.out["evaluations"] / f"{name}.jsonl"
    evaluate(settings, name, Benchmark.read(cases, limit), path, job.state / name)
    rows = list(read_rows(path))
    means = {column: round(sum(getattr(row, column) for row in rows) / len(rows), 4) for column in _COLUMNS[2:]}
    return {"cases": len(rows), "accuracy": sum(row.correct for row in rows) / len(rows), **means}
