"""Jobs that start a model server, run the episodes of all agents that use the model, and stop the server.

Each evaluation has the key of `evaluate_agent`, whose jobs write the rows that such a job leaves. Main table, open
cases and leak control have jobs of their own, so that a target runs no more than it shows.
"""

import json
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ..agents.build import agent_class, agent_entry
from ..llm.own_server import OwnServer
from ..settings import Machine, Settings, SettingsError, digest, model_of, served
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.experiments import POLICY
from .evidence import EVIDENCE
from .experiment import Experiment
from .running import keep_rows, run_stage
from .stages import Options

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
    def runs(self) -> tuple[str, ...]:
        """The agents and trained runs that act."""
        return tuple(dict.fromkeys(run for run, _ in self.evaluations))


def served_jobs(experiment: Experiment) -> list[ServedJob]:
    """List the jobs that start a server for a model: one for each model and group of data sets, with the evaluations
    that tables and figures need. Empty where ``serving.program`` is none."""
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
    """Run the episodes of all evaluations of a job; the job `evaluate_agent` of each finds its rows under ``state``.
    The server starts at the first question that no recording answers.

    The rows of finished evaluations stay when a later one fails, and a rerun continues after them. Raises SettingsError
    for an unknown job, and what the evaluations raise.
    """
    jobs = {job.name: job for job in served_jobs(experiment)}
    if name not in jobs:
        raise SettingsError(f"{name!r} is no job with a server of its own; there are: {', '.join(jobs) or 'none'} "
                            "(serving.program, serving.models, serving.policies)")  # fmt: skip
    scratch = Path(experiment.state) / "servers" / name
    with server_of(experiment, jobs[name]) as server:
        for run, dataset in jobs[name].evaluations:
            policy = experiment.acting_policy(run)
            inputs = {"cases": f"<results>/cases/{dataset}.jsonl"} | ({"policy": policy} if policy else {})
            outputs = {"evaluation": f"{scratch}/{run}/{dataset}.jsonl"}
            run_stage(experiment, _STAGE, {"run": run, "dataset": dataset}, inputs, outputs, server=server)
            keep_rows(experiment, outputs["evaluation"])
    shutil.rmtree(scratch, ignore_errors=True)


def own_server(experiment: Experiment, stage: str, options: Options) -> AbstractContextManager[OwnServer | None]:
    """The server of an evaluation whose model a job serves; it starts only where rows and answers are missing."""
    pair = (options.get("run"), options.get("dataset"))
    serving = [job for job in served_jobs(experiment) if pair in job.evaluations] if stage == _STAGE else []
    return server_of(experiment, serving[0]) if serving else nullcontext()


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
