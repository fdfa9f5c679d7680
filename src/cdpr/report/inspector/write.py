"""``results/inspector/``: the site and its data, one script per data set and per run on it."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ...agents.build import agent_class, agent_entry
from ...cases import CaseRecord, iterate_records
from ...environment.opening import open_environment
from ...evaluation.credit_workups import chosen_cases, read_credit
from ...evaluation.row import public_text, read_rows
from ...job import Job
from ...pseudonym import pseudonym
from ...settings import Settings
from ...study.records import StateMeans, read_lines
from ..methods import DATASETS, is_synthetic, tier_mark, why_unfit
from ..provenance import check_provenance
from ..sources import notices, source_of
from . import site
from .data import write_data
from .oracle import Oracle
from .workups import View, exam_names, is_readable, show_text

_SITE = ("index.html", "inspector.js", "inspector.css")


def credit_file(results: Path, run: str, dataset: str) -> Path:
    """Return the file with the credit of a run's episodes; agents that are no policy of our own have none."""
    return results / "analysis" / "credit" / run / f"{dataset}.jsonl.gz"


def write_inspector(settings: Settings, job: Job) -> None:
    """Stage ``write_inspector``: write the site. Raises InspectorError and ProvenanceError where results do not belong
    together."""
    folder, results = job.out["site"], job.inputs["results"]
    folder.mkdir(parents=True, exist_ok=True)
    for name in _SITE:
        (folder / name).write_bytes(resources.files(site).joinpath(name).read_bytes())
    datasets, views = [], []
    means = read_lines(job.inputs["study"], StateMeans) if "study" in job.inputs else []
    rated = {line.state for line in means}
    for dataset, label in DATASETS.items():
        summary = _write_dataset(settings, job.inputs[f"cases_{dataset}"], results, folder, dataset, rated)
        if summary:
            datasets.append({"name": dataset, "label": label, "about": source_of(settings, dataset).what,
                             "oracle": is_synthetic(settings, dataset)})  # fmt: skip
            views += summary
    closed = {view["dataset"] for view in views if view["credentialed"] and not settings.inspector.credentialed}
    write_data(folder, "data/index", {
        "mark": tier_mark(settings), "runs": settings.inspector.runs, "datasets": datasets, "views": views,
        "utility": settings.utility.model_dump(), "notices": notices(settings), "credit": _credit_settings(settings),
        "study": _study(settings, means, closed),
    })  # fmt: skip
    job.metrics.update({name: sum(view[name] for view in views) for name in ("workups", "decisions")})
    print(f"{job.metrics['decisions']:.0f} decisions of {len(views)} evaluations: open index.html")


def _credit_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings of ``credit`` that a reader needs to recompute the numbers."""
    credit = settings.credit
    names = ("threshold", "candidates", "continuations", "horizon", "samples", "baseline", "clip", "max_states")
    return {name: getattr(credit, name) for name in names} | {"entropy_base": "e"}


def _study(settings: Settings, means: Iterable[StateMeans], closed: set[str]) -> list[dict[str, Any]]:
    """Return the mean scores of the expert study, one line per state and run that was rated. On ``closed`` data sets
    actions are pseudonyms."""
    lines = [line.model_dump(exclude={"kind"}) for line in means]
    return [
        line | {"action": pseudonym(settings.paths.state, line["action"])} if line["dataset"] in closed else line
        for line in lines
    ]


def _write_dataset(
    settings: Settings, path: Path, results: Path, folder: Path, dataset: str, rated: set[str]
) -> list[dict[str, Any]]:
    """Write the cases of a data set and the episodes of every run on them; return their entries in the index."""
    runs = [run for run in settings.inspector.runs if not why_unfit(settings, run, dataset)]
    files = {run: results / "evaluations" / run / f"{dataset}.jsonl" for run in runs}
    check_provenance(settings, files.values())
    cases = {case.note_id: case for case in iterate_records(path, "test")}
    chosen = {case.note_id for case in chosen_cases(settings, path)}
    credentialed = any(case.credentialed for case in cases.values())
    environment = open_environment(settings, credentialed=credentialed)
    oracle = Oracle(settings, dataset) if is_synthetic(settings, dataset) else None
    views = []
    for run, file in files.items():
        if not file.exists():  # under `evaluation.partial`
            print(f"missing: {file}")
            continue
        credit = credit_file(results, run, dataset)
        credits = {case.case: case for case in read_credit(credit)} if credit.exists() else {}
        view = View(settings, environment, cases, credits, chosen, oracle, rated,
                    agent_class(agent_entry(settings, run)).whole_record)  # fmt: skip
        workups = asyncio.run(view.workups(read_rows(file)))
        name = f"data/{run}.{dataset}"
        write_data(folder, name, workups)
        views.append({"run": run, "dataset": dataset, "data": name, "workups": len(workups), "credited": len(credits),
                      "decisions": sum(len(workup["steps"]) for workup in workups),
                      "credentialed": credentialed})  # fmt: skip
    write_data(folder, f"data/{dataset}", dict(_case_fields(settings, cases, chosen)))
    return views


def _case_fields(
    settings: Settings, cases: Mapping[str, CaseRecord], chosen: set[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the cases by their name on the site; of credentialed ones no text."""
    for case in cases.values():
        fields: dict[str, Any] = {"gold": show_text(settings, case, case.diagnosis_results)}
        if case.note_id in chosen:
            fields["chosen"] = True
        if is_readable(settings, case):
            named, results = exam_names(case), case.key_pertinent_results_dict
            fields |= {"summary": case.case_summary, "results": {named(exam): text for exam, text in results.items()}}
            if case.credentialed:
                fields["digest"] = public_text(settings, case, case.note_id)  # as other results call it
        yield show_text(settings, case, case.note_id), fields
