"""Jobs that start a model server, run the episodes of all agents that use the model, and stop the server
(:func:`.running.evaluate_served`).

Such a job leaves the rows of each evaluation under `state`. The job `evaluate_agent` of the same run and data set finds
them there by its run key, and writes them to the results. Benchmarks, open cases and leak-controlled cases have
separate jobs, so that a target runs no more than it shows.
"""

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from ..agents.build import agent_class, agent_entry
from ..llm.own_server import OwnServer
from ..settings import BENCHMARKS, DATASETS, POLICY, Machine, Settings, digest, is_served, model_of
from .evidence import EVIDENCE
from .experiment import Experiment
from .stages import Options

EVALUATION_STAGE = "evaluate_agent"
# The flag of each server for the longest sequence.
_LENGTH_FLAG = {"vllm": "--max-model-len", "sglang": "--context-length"}


class ServedJob(NamedTuple):
    """A job that starts a server for a model and runs the episodes of ``evaluations``, each a (run, data set).

    ``model`` is an entry of models.yaml, a trained run, or ``policy``, the one that training starts from. ``name`` is
    that of the model, with the group of data sets behind it if they are not the benchmarks: ``qwen3_8b-open_cases``.
    """

    name: str
    model: str
    evaluations: tuple[tuple[str, str], ...]

    @property
    def runs(self) -> tuple[str, ...]:
        """The agents and trained runs that act, each once."""
        return tuple(dict.fromkeys(run for run, _ in self.evaluations))


def served_jobs(experiment: Experiment) -> list[ServedJob]:
    """List the jobs that start a server: one for each model and group of data sets, with the evaluations that tables
    and figures need. Empty where ``serving.program`` is none."""
    if experiment.settings.serving.program == "none":
        return []
    evaluations: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for run, dataset in dict.fromkeys(pair for name in EVIDENCE for pair in experiment.evidence(name).evaluations):
        entry = agent_entry(experiment.settings, run)
        if is_served(experiment.settings, entry):
            # Agents share the policy that training starts from; a trained run has one of its own.
            policy = POLICY if run in experiment.settings.agents else run
            model = policy if entry.own_policy else str(entry.model)
            evaluations.setdefault((model, _dataset_group(dataset)), []).append((run, dataset))
    return [ServedJob(model + group, model, tuple(pairs)) for (model, group), pairs in evaluations.items()]


def _dataset_group(dataset: str) -> str:
    """The ending of a job's name for the group of a data set: empty for benchmarks, else ``-open_cases`` or
    ``-leak_control``."""
    if dataset in BENCHMARKS:
        return ""
    return "-open_cases" if dataset in DATASETS else "-leak_control"


def machine_of(experiment: Experiment, job: ServedJob) -> Machine:
    """The machine that a job requests: that of its model's entry, or one with ``serving.gpus`` GPUs."""
    entry = experiment.settings.models.get(job.model)
    return (entry and entry.machine) or Machine(gpus=experiment.settings.serving.gpus)


def key_of(experiment: Experiment, evaluations: Iterable[tuple[str, str]]) -> str:
    """The run key of a job that runs several evaluations, each a (run, data set): the digest of their run keys."""
    return digest([experiment.key(EVALUATION_STAGE, run=run, dataset=dataset) for run, dataset in evaluations])


def own_server(experiment: Experiment, stage: str, options: Options) -> AbstractContextManager[OwnServer | None]:
    """Make the server that a single job of a stage needs, as a context manager. Only an evaluation needs one, and only
    if its pair of run and data set is among the evaluations of a :func:`served job <served_jobs>`; other jobs get None.
    The server starts at the first question that neither saved rows nor recorded answers settle."""
    pair = (options.get("run"), options.get("dataset"))
    jobs = [job for job in served_jobs(experiment) if pair in job.evaluations] if stage == EVALUATION_STAGE else []
    return server_of(experiment, jobs[0]) if jobs else nullcontext()


def server_of(experiment: Experiment, job: ServedJob) -> OwnServer:
    """The server of a job, not yet started."""
    settings, run = experiment.settings, job.runs[0]  # all runs of a job act by the same model
    model, gpus = model_of(settings, agent_entry(settings, run)), machine_of(experiment, job).gpus
    if model:
        weights, name = model.weights or model.id, model.id
        flags = model.serve if settings.serving.program == "vllm" else []  # they are vLLM's flags
    else:  # a policy, of which each GPU has a whole copy: the model is on 1 GPU
        weights, name = experiment.resolve_path(str(experiment.acting_policy(run))), job.model
        flags, gpus = _policy_flags(settings, job, Path(weights), gpus), 1
    log = Path(experiment.state) / "servers" / f"{job.name}.log"
    private, secrets = settings.data.credentialed, settings.key_names
    return OwnServer(settings.serving, weights, name, log, gpus=gpus, flags=flags, private=private, secrets=secrets)


def _policy_flags(settings: Settings, job: ServedJob, folder: Path, gpus: int) -> list[str]:
    """The flags of a server for the policy in ``folder``.

    - A copy of the policy on each of the ``gpus``.
    - The longest sequence. Without this flag the server's cache has to hold one as long as the model's whole context.
      It is left out where frameworks act, which write their own prompts of unknown length.
    """
    from ..agents.policy import PolicyAgent, longest_sequence

    flags = ["--data-parallel-size", str(gpus)] if gpus > 1 else []
    if not all(issubclass(agent_class(agent_entry(settings, run)), PolicyAgent) for run in job.runs):
        return flags
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    longest = longest_sequence(settings)
    bound = min(longest, config.get("max_position_embeddings", longest))
    return [*flags, _LENGTH_FLAG[settings.serving.program], str(bound)]
