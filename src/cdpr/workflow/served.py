"""Jobs that start a model server, evaluate all agents that use the model, and stop the server.

Each evaluation has the key and the files of `evaluate_agent`; only the start of the server differs. A rule of such a
job (rules/jobs.smk) has all evaluations of one model as outputs. Main table, open cases and leak control have jobs of
their own, so that a target runs no more than it shows.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..agents.build import agent_class, agent_entry
from ..agents.policy import PolicyAgent, longest_sequence
from ..llm.own_server import OwnServer
from ..settings import Machine, Settings, SettingsError, digest, model_of, served
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.experiments import POLICY
from ..tracking.frame import exclusive
from .plan import Plan
from .running import run_stage
from .stages import STAGES

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


def served_jobs(plan: Plan) -> list[ServedJob]:
    """All jobs with a server, of every evaluation that some table or figure is made of."""
    if plan.settings.serving.program == "none":
        return []
    pairs: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for stage in STAGES:
        for run, dataset in plan.evidence(stage).evaluations:
            entry = agent_entry(plan.settings, run)
            if served(plan.settings, entry):
                own = POLICY if run in plan.settings.agents else run
                model = own if entry.own_policy else str(entry.model)
                pairs.setdefault((model, _family(dataset)), {})[run, dataset] = None
    return [ServedJob(model + family, model, tuple(of_job)) for (model, family), of_job in pairs.items()]


def machine_of(plan: Plan, job: ServedJob) -> Machine:
    """The machine that a job requests."""
    entry = plan.settings.models.get(job.model)
    return (entry and entry.machine) or Machine(gpus=plan.settings.serving.gpus)


def files_of(plan: Plan, job: ServedJob) -> tuple[list[str], list[str]]:
    """Inputs and outputs of a job, as its rule names them."""
    inputs, outputs = [], []
    for run, dataset in job.evaluations:
        options = {"run": run, "dataset": dataset}
        inputs += [path for need in STAGES[_STAGE].needs for path in plan.input(_STAGE, need, options)]
        outputs += plan.outputs(_STAGE, **options)
    return list(dict.fromkeys(inputs)), outputs


def key_of(plan: Plan, job: ServedJob) -> str:
    """Digest of the keys of its evaluations."""
    return digest([plan.key(_STAGE, run=run, dataset=dataset) for run, dataset in job.evaluations])


def evaluate_served(plan: Plan, name: str) -> None:
    """Run all evaluations of a job. Its server starts at the first question that no recording answers.

    Snakemake deletes the outputs of a failed job. So the rows of finished evaluations stay under ``state`` until the
    whole job has ended, and a rerun continues after them. Raises SettingsError for an unknown job, and what the
    evaluations raise.
    """
    jobs = {job.name: job for job in served_jobs(plan)}
    if name not in jobs:
        raise SettingsError(f"{name!r} is no job with a server of its own; there are: {', '.join(jobs) or 'none'} "
                            "(serving.program, serving.models, serving.policies)")  # fmt: skip
    job, state, finished = jobs[name], Path(plan.state), []
    with exclusive(state / "locks" / f"served-{name}", job.rule), server_of(plan, job) as server:
        for run, dataset in job.evaluations:
            options = {"run": run, "dataset": dataset}
            run_stage(plan, STAGES[_STAGE], options, server=server)
            rows = state / plan.key(_STAGE, **options) / "evaluation.jsonl"
            shutil.copyfile(plan.file(_STAGE, "evaluation", options), rows)
            finished.append(rows)
    for rows in finished:
        rows.unlink()


def server_of(plan: Plan, job: ServedJob) -> OwnServer:
    """The server of a job, not yet started."""
    settings, (run, dataset) = plan.settings, job.evaluations[0]
    entry, gpus = model_of(settings, agent_entry(settings, run)), machine_of(plan, job).gpus
    if entry:
        weights, name = entry.weights or entry.id, entry.id
        flags = entry.serve if settings.serving.program == "vllm" else []
    else:
        weights, name = plan.file(_STAGE, "policy", {"run": run, "dataset": dataset}), job.model
        flags, gpus = _policy_flags(settings, job, Path(weights), gpus), 1
    return OwnServer(
        settings.serving, weights, name, Path(plan.state) / "servers" / f"{job.name}.log",
        gpus=gpus, flags=flags, private=settings.data.credentialed, secrets=settings.key_names,
    )  # fmt: skip


def _policy_flags(settings: Settings, job: ServedJob, folder: Path, gpus: int) -> list[str]:
    """A copy of the policy on each GPU, and the longest sequence: without it the cache has to hold one as long as the
    model's whole context. Frameworks write their own prompts, so no bound is known."""
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
