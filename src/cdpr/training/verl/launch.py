"""A training run with verl: plan, start, follow, and hand over the policy as a Hugging Face folder."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from ...agents.policy import longest_sequence
from ...cases import iterate_records
from ...environment.opening import check_judges
from ...job import Job
from ...llm.guard import NO_TELEMETRY, Disclosure, allow, disclosed
from ...llm.own_server import PROGRAMS, OwnServer
from ...metrics_log import read_metrics
from ...settings import Serving, Settings, SettingsError, judging_models, merge, parse_settings
from ...settings.datasets import IN_DOMAIN
from ...settings.verl import Verl
from ..training_run import Log, following
from .checkpoints import fall_back, hand_over, merge_shards
from .cluster import ray_cluster
from .configuration import CHECKPOINTS, overrides, resolve
from .cpu import ENVIRONMENT, LOGICAL
from .memory import needs_frozen
from .session import ROWS, Session

_POLL_SECONDS = 2.0
_FROZEN = "frozen"  # name of the frozen server's model
_RESTARTS = 3  # of a frozen server that dies, in a run


def train_policy(settings: Settings, job: Job) -> None:
    """Stage ``train``: one variant (settings already resolved) with the job's seed; the policy is a Hugging Face
    folder. A killed run resumes from verl's last checkpoint. Raises SettingsError where verl is missing or the plan
    does not fit, GovernanceError as :func:`disclosures`."""
    job.tags.update(disclosed(disclosures(settings, job.inputs["cases"])))
    _check_installed(settings.training.verl)
    state, policy = job.state.resolve(), Path(job.inputs["init_policy"]).resolve()
    state.mkdir(parents=True, exist_ok=True)
    trained, checkpoints = state / "policy", state / CHECKPOINTS
    with following(job) as log:
        if not trained.exists():
            fall_back(checkpoints)
            _train(Session(settings, Path(job.inputs["cases"]), policy, state, job.seed), log)
            merge_shards(checkpoints, policy, trained, settings.training.verl.lora_rank)
        shutil.rmtree(checkpoints, ignore_errors=True)  # also where a kill came between merging and removing
        hand_over(trained, Path(job.out["policy"]))


def _train(session: Session, log: Log) -> None:
    """Train with verl, with Ray and the frozen server beside it."""
    settings, verl, path = session.settings, session.settings.training.verl, session.state / "session.json"
    machines = LOGICAL if verl.without_gpu else None
    os.environ.update(NO_TELEMETRY | {"HF_HUB_OFFLINE": "1"})  # the policy is a folder: there is nothing to fetch
    if verl.without_gpu:
        os.environ.update(ENVIRONMENT | {"OMP_NUM_THREADS": str(settings.training.threads)})
    resolved = resolve(settings, path, session.policy, session.state)
    with contextlib.ExitStack() as running:
        running.enter_context(ray_cluster(verl.nodes, session.state / "ray.log", machines))
        if needs_frozen(settings) and verl.frozen.beside:
            server = running.enter_context(frozen_server(settings, session.policy, session.state))
            server.ready()
            place = {"url": server.address, "name": _FROZEN, "beside": False}
            placed = merge(settings.model_dump(), {"training": {"verl": {"frozen": place}}})
            session = dataclasses.replace(session, settings=parse_settings(placed))
        session.write(path)
        running.enter_context(_followed(session.state / ROWS, log))
        _launch(overrides(resolved))


def frozen_server(settings: Settings, policy: Path, state: Path, patience: float = 1800.0) -> OwnServer:
    """vLLM with the initial policy on the training GPUs, not yet started. Paper, appendix, Training details:
    "co-located on the same two devices via separate GPU memory budget". Its log is in ``state``."""
    verl, frozen = settings.training.verl, settings.training.verl.frozen
    options = {
        "data-parallel-size": verl.gpus_per_node // frozen.tensor_parallel,
        "gpu-memory-utilization": frozen.memory,
        "max-model-len": longest_sequence(settings),
        "max-num-seqs": frozen.at_once,
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    flags += ["--dtype", "float32", "--enforce-eager"] if verl.without_gpu else []  # as the trainer's own server
    command = PROGRAMS["vllm"].replace("vllm", frozen.command, 1)
    return OwnServer(
        Serving(program="vllm", command=command), str(policy), _FROZEN, state / "frozen_server.log",
        gpus=frozen.tensor_parallel, flags=flags, restarts=_RESTARTS, patience=patience,
    )  # fmt: skip


def _check_installed(verl: Verl) -> None:
    """Raises SettingsError naming what a run lacks: verl, its rollout server, a GPU, FlashAttention."""

    def missing(module: str) -> bool:
        return importlib.util.find_spec(module) is None

    if missing("verl"):
        raise SettingsError(
            "training.engine: verl is not installed: `make verl` without a GPU, `make gpu-env` with one"
        )
    if verl.without_gpu:
        return
    if missing(verl.rollout):
        raise SettingsError(f"training.verl.rollout: {verl.rollout} is not installed: `make gpu-env` installs vllm")
    if not _gpu_is_there():
        raise SettingsError(
            "training.verl: torch finds no GPU on this machine (nvidia-smi says which driver there is; torch 2.11 "
            "needs 580.65 or later); without a GPU set training.verl.rollout: cpu"
        )
    if verl.attention == "flash_attention_2" and missing("flash_attn"):
        raise SettingsError(
            "training.verl.attention: flash-attn is not installed: `pip install flash-attn==2.8.3 "
            "--no-build-isolation` compiles it for about an hour (CUDA toolkit 13.0); or set training.verl.attention: "
            "sdpa"
        )


def _gpu_is_there() -> bool:
    import torch

    return torch.cuda.is_available()


def disclosures(settings: Settings, cases: Path) -> list[Disclosure | None]:
    """Where credentialed text goes: to the frozen server, to judge and matcher. Checked before anything starts. Raises
    GovernanceError where it would leave the machine without an agreement."""
    url = settings.training.verl.frozen.url if needs_frozen(settings) else None
    if url is None and not judging_models(settings):
        return []
    credentialed = any(case.credentialed for case in iterate_records(cases))
    frozen = [] if url is None else [allow(url, credentialed, settings.governance)]
    return [*frozen, *check_judges(settings, IN_DOMAIN, credentialed=credentialed)]


def _launch(arguments: list[str]) -> None:
    """verl's entry point with our task runner."""
    import ray
    from hydra import compose, initialize_config_module
    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    from .trainer import DiagnosticTaskRunner

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=arguments)
    auto_set_device(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    try:
        run_ppo(config, task_runner_class=DiagnosticTaskRunner)
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _followed(path: Path, log: Log) -> Iterator[None]:
    """Hand every line that another process appends to ``path`` to ``log``."""
    path.unlink(missing_ok=True)
    ended = threading.Event()

    def follow() -> None:
        done, last = 0, False
        while not last:
            last = ended.wait(_POLL_SECONDS)
            rows = read_metrics(path)
            for row in rows[done:]:
                log(row)
            done = len(rows)

    thread = threading.Thread(target=follow, name="metrics")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
