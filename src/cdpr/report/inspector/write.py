"""Write ``results/inspector/``: the pages of the inspector and their data, a script per data set and per run on it."""

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ...agents.build import agent_class, agent_entry
from ...cases import CaseRecord, iterate_records
from ...environment.opening import open_environment
from ...escape import script
from ...evaluation.credit_workups import chosen_cases, read_credit
from ...evaluation.row import public_text, read_rows
from ...files import write_text
from ...job import Job
from ...pseudonym import pseudonym
from ...settings import Settings
from ..methods import DATASETS, is_synthetic, notices, source_of, tier_mark, why_unfit
from ..provenance import check_provenance
from . import site
from .oracle import Oracle
from .workups import Fields, View, exam_names, is_readable, show_text

_SITE = ("index.html", "inspector.js", "inspector.css")  # files that are copied as they are
# Settings of ``credit`` that a reader needs to compute the numbers again.
_CREDIT = ("threshold", "candidates", "continuations", "horizon", "samples", "baseline", "clip", "max_states")


def credit_file(results: Path, run: str, dataset: str) -> Path:
    """Return the path of the file with the credit (process rewards and the continuations behind them) of a run's
    episodes. It exists only for policies of our own."""
    return results / "analysis" / "credit" / run / f"{dataset}.jsonl.gz"


def write_inspector(settings: Settings, job: Job) -> None:
    """Stage ``write_inspector``: write the inspector to the folder ``site``. Raises InspectorError and ProvenanceError
    where results do not belong together."""
    folder, results = job.out["site"], job.inputs["results"]
    folder.mkdir(parents=True, exist_ok=True)
    for name in _SITE:
        (folder / name).write_bytes(resources.files(site).joinpath(name).read_bytes())
    study = job.inputs["study"].read_text(encoding="utf-8") if "study" in job.inputs else ""
    means = [json.loads(line) for line in study.splitlines()]
    rated = {line["state"] for line in means}
    datasets: list[Fields] = []
    views: list[Fields] = []
    for dataset, label in DATASETS.items():
        cases_path = job.inputs[f"cases_{dataset}"]
        if written := _write_dataset(settings, cases_path, results, folder, dataset, rated):
            views += written
            datasets.append({"name": dataset, "label": label, "about": source_of(settings, dataset).what,
                             "oracle": is_synthetic(settings, dataset)})  # fmt: skip
    credit = {name: getattr(settings.credit, name) for name in _CREDIT} | {"entropy_base": "e"}
    credentialed = {view["dataset"] for view in views if view["credentialed"]}
    write_data(folder, "data/index", {
        "mark": tier_mark(settings), "runs": settings.inspector.runs, "datasets": datasets, "views": views,
        "utility": settings.utility.model_dump(), "notices": notices(settings), "credit": credit,
        "study": _study_fields(settings, means, set() if settings.inspector.credentialed else credentialed),
    })  # fmt: skip
    job.metrics.update({name: sum(view[name] for view in views) for name in ("workups", "decisions")})
    print(f"{job.metrics['decisions']:.0f} decisions of {len(views)} evaluations: open index.html")


def _study_fields(settings: Settings, means: Iterable[Fields], hidden: Collection[str]) -> list[Fields]:
    """Return the mean scores of the expert study as JSON values, one per rated state and run. On ``hidden`` data sets
    the actions are pseudonyms."""
    lines = [{name: value for name, value in line.items() if name != "kind"} for line in means]
    for line in lines:
        if line["dataset"] in hidden:
            line["action"] = pseudonym(settings.paths.state, line["action"])
    return lines


def _write_dataset(
    settings: Settings, path: Path, results: Path, folder: Path, dataset: str, rated: Collection[str]
) -> list[Fields]:
    """Write the cases of a data set, and the episodes of every run on them, below the inspector's ``folder``. ``path``
    is the file of the cases, ``results`` the results folder, and ``rated`` are the digests of the states on which the
    raters of the expert study scored decisions.

    Returns an entry per run for the inspector's index. A run that was not evaluated is left out, with a message.
    """
    # The runs that can diagnose cases of this data set.
    runs = [run for run in settings.inspector.runs if not why_unfit(settings, run, dataset)]
    evaluations = {run: results / "evaluations" / run / f"{dataset}.jsonl" for run in runs}
    check_provenance(settings, evaluations.values())
    cases = {case.note_id: case for case in iterate_records(path, "test")}
    # The cases whose decisions get credit and the oracle's opinion.
    chosen = {case.note_id for case in chosen_cases(settings, path)}
    credentialed = any(case.credentialed for case in cases.values())
    environment = open_environment(settings, credentialed=credentialed)
    oracle = Oracle(settings, dataset) if is_synthetic(settings, dataset) else None
    # First a script for the episodes of each run, then one for the cases themselves.
    entries = []
    for run, evaluation in evaluations.items():
        if not evaluation.exists():
            print(f"missing: {evaluation}")
            continue
        credit_path = credit_file(results, run, dataset)
        credit = {case.case: case for case in read_credit(credit_path)} if credit_path.exists() else {}
        whole_record = agent_class(agent_entry(settings, run)).whole_record
        view = View(settings, environment, cases, credit, chosen, oracle, rated, whole_record)
        episodes = asyncio.run(view.episodes(read_rows(evaluation)))
        name = f"data/{run}.{dataset}"
        write_data(folder, name, episodes)
        decisions = sum(len(episode["steps"]) for episode in episodes)
        entries.append({"run": run, "dataset": dataset, "data": name, "workups": len(episodes),
                        "credited": len(credit), "decisions": decisions, "credentialed": credentialed})  # fmt: skip
    write_data(folder, f"data/{dataset}", _case_fields(settings, cases, chosen))
    return entries


def _case_fields(settings: Settings, cases: Mapping[str, CaseRecord], chosen: Collection[str]) -> dict[str, Fields]:
    """Return the cases as JSON values, by the names that the site shows. Where the site must not show the texts of a
    case, its id and diagnosis are pseudonyms, and beside them is only whether it was ``chosen``."""
    by_name: dict[str, Any] = {}
    for case in cases.values():
        fields: Fields = {"gold": show_text(settings, case, case.diagnosis_results)}
        if case.note_id in chosen:
            fields["chosen"] = True
        if is_readable(settings, case):
            exam_name, results = exam_names(case), case.key_pertinent_results_dict
            fields["summary"] = case.case_summary
            fields["results"] = {exam_name(exam): text for exam, text in results.items()}
            if case.credentialed:
                fields["digest"] = public_text(settings, case, case.note_id)  # the pseudonym that other results show
        by_name[show_text(settings, case, case.note_id)] = fields
    return by_name


def write_data(folder: Path, name: str, content: Any) -> None:
    """Write a value as JSON in the script ``<name>.js`` in a folder, floats with six decimals. When the page loads the
    script, it passes name and value to the page's function ``inspector.take``. (A page that is opened from a disk can
    load scripts beside it, but not fetch JSON.)"""
    rounded = json.loads(json.dumps(content), parse_float=lambda text: round(float(text), 6))
    write_text(folder / f"{name}.js", f"inspector.take({json.dumps(name)},{script(rounded)});\n")
