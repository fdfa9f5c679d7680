"""Jobs that start a model server, evaluate all agents that use the model, and stop the server.

Each evaluation has the key and the files of `evaluate_agent`; only the start of the server differs. A rule of such a
job (rules/evaluation.smk) has all evaluations of one model as outputs. Main table, open cases and leak control have
jobs of their own, so that a target runs no more than it shows.
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..agents.build import agent_class, agent_entry
from ..llm.own_server import OwnServer
from ..records import RunRecord
from ..settings import Machine, Settings, SettingsError, digest, model_of, served
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.experiments import POLICY
from ..tracking.frame import exclusive
from .evidence import EVIDENCE
from .experiment import Experiment
from .running import run_stage

_STAGE = "evaluate_agent"
_LONGEST = {"vllm": "--max-model-len", "sglang": "--context-length"}


@dataclass(frozen=True)
class ServedJob:
    """The evaluations that one server serves: (run, data set). ``model`` is an entry of models.yaml, a trained run, or
    ``policy``, the one that training starts from."""

    name: str
    model: str
    evaluations: tuple[tuple[str, str], ...]

    @property
    def rule(self) -> str:
        return "evaluate_served_" + self.name.replace("-", "_").replace(".", "_")

    @property
    def runs(self) -> tuple[str, ...]:
        """The agents and trained runs that act."""
        return tuple(dict.fromkeys(run for run, _ in self.evaluations))


def served_jobs(experiment: Experiment) -> list[ServedJob]:
    """All jobs with a server, of every evaluation that some table or figure is made of."""
    if experiment.settings.serving.program == "none":
        return []
    pairs: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for name in EVIDENCE:
        for run, dataset in experiment.evidence(name).evaluations:
            entry = agent_entry(experiment.settings, run)
            if served(experiment.settings, entry):
                own = POLICY if run in experiment.settings.agents else run
                model = own if entry.own_policy else str(entry.model)
                pairs.setdefault((model, _family(dataset)), {})[run, dataset] = None
    return [ServedJob(model + family, model, tuple(of_job)) for (model, family), of_job in pairs.items()]


def machine_of(experiment: Experiment, job: ServedJob) -> Machine:
    """The machine that a job requests."""
    entry = experiment.settings.models.get(job.model)
    return (entry and entry.machine) or Machine(gpus=experiment.settings.serving.gpus)


def key_of(experiment: Experiment, evaluations: Iterable[tuple[str, str]]) -> str:
    """Digest of the keys of several evaluations."""
    return digest([experiment.key(_STAGE, run=run, dataset=dataset) for run, dataset in evaluations])


def evaluate_served(experiment: Experiment, name: str) -> None:
    """Run all evaluations of a job. Its server starts at the first question that no recording answers.

    Snakemake deletes the outputs of a failed job. So the rows of finished evaluations stay under ``state`` until the
    whole job has ended, and a rerun continues after them. Raises SettingsError for an unknown job, and what the
    evaluations raise.
    """
    jobs = {job.name: job for job in served_jobs(experiment)}
    if name not in jobs:
        raise SettingsError(f"{name!r} is no job with a server of its own; there are: {', '.join(jobs) or 'none'} "
                            "(serving.program, serving.models, serving.policies)")  # fmt: skip
    with server_of(experiment, jobs[name]) as server:
        _evaluate(experiment, name, jobs[name].evaluations, server)


def evaluate_on_benchmarks(experiment: Experiment, run: str) -> None:
    """Evaluate one run on all benchmarks, each with the key and the files of `evaluate_agent`."""
    _evaluate(experiment, run, [(run, dataset) for dataset in BENCHMARKS])


def _evaluate(
    experiment: Experiment, name: str, evaluations: Iterable[tuple[str, str]], server: OwnServer | None = None
) -> None:
    state, finished = Path(experiment.state), []
    with exclusive(state / "locks" / f"evaluations-{name}", f"evaluations of {name}"):
        for run, dataset in evaluations:
            inputs, outputs = experiment.evaluation_files(run, dataset)
            run_stage(experiment, _STAGE, {"run": run, "dataset": dataset}, inputs, outputs, server=server)
            written, record = (Path(experiment.resolved(outputs[name])) for name in ("evaluation", "record"))
            rows = state / RunRecord.read(record).run_key / "evaluation.jsonl"
            rows.parent.mkdir(exist_ok=True)
            shutil.copyfile(written, rows)
            finished.append(rows)
    for rows in finished:
        rows.unlink()


def server_of(experiment: Experiment, job: ServedJob) -> OwnServer:
    """The server of a job, not yet started."""
    settings, run = experiment.settings, job.runs[0]
    entry, gpus = model_of(settings, agent_entry(settings, run)), machine_of(experiment, job).gpus
    if entry:
        weights, name = entry.weights or entry.id, entry.id
        flags = entry.serve if settings.serving.program == "vllm" else []
    else:
        weights, name = experiment.resolved(str(experiment.acting_policy(run))), job.model
        flags, gpus = _policy_flags(settings, job, Path(weights), gpus), 1
    return OwnServer(
        settings.serving, weights, name, Path(experiment.state) / "servers" / f"{job.name}.log",
        gpus=gpus, flags=flags, private=settings.data.credentialed, secrets=settings.key_names,
    )  # fmt: skip


def _policy_flags(settings: Settings, job: ServedJob, folder: Path, gpus: int) -> list[str]:
    """A copy of the policy on each GPU, and the longest sequence: without it the cache has to hold one as long as the
    model's whole context. Frameworks write their own prompts, so no bound is known."""
    from ..agents.policy import PolicyAgent, longest_sequence

    flags = ["--data-parallel-size", str(gpus)] if gpus > 1 else []
    if not all(issubclass(agent_class(agent_entry(settings, run)), PolicyAgent) for run in job.runs):
        return flags
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    longest = longest_sequence(settings)
    bound = min(longest, config.get("max_position_embeddings", longest))
    return [*flags, _LONGEST[settings.serving.program], str(bound)]


def _family(dataset: str) -> str:
    if dataset in BENCHMARKS:
        return ""
    return "-open_cases" if dataset in DATASETS else "-leak_control"
