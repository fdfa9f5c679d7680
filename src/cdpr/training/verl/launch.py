"""Runs a training with verl: starts Ray and the servers, runs verl, and writes the policy as a Hugging Face folder."""

import contextlib
import dataclasses
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from ...agents.policy import longest_sequence
from ...files import write_text
from ...job import Job
from ...llm.own_server import PROGRAMS, OwnServer
from ...settings import Serving, Settings, SettingsError, Verl, merge, parse_settings, read_table, refuse
from ..training_run import uses_frozen_policy, write_training_outputs
from .checkpoints import link_policy, merge_shards, prepare_resume
from .configuration import CHECKPOINTS, SESSION, environment_variables, hydra_arguments, translate_settings
from .memory import cpus_of_ray
from .session import START, Session

_FROZEN = "frozen"  # name of the frozen server's model
_RESTARTS = 3  # how often a frozen server that died is started again, in a run
# The command that every machine of the job runs to start Ray. The first machine, where this process runs, leads; the
# others wait 5 seconds and join it at its address. `ray_cluster` fills in what is in braces.
_START = (
    'if [ "$SLURM_NODEID" = 0 ]; then exec ray start {options} --head --port={port} '
    "--include-dashboard=false; fi; sleep 5; exec ray start {options} --address={address}"
)


def train_policy(settings: Settings, job: Job) -> None:
    """Stage ``train_policy`` with the engine verl: train a policy under the settings of one run, with the seed of
    ``job``. Writes the policy as a Hugging Face folder, its metrics, and its records of credit.

    A killed run resumes from verl's last checkpoint. Raises SettingsError where verl is not installed or memory does
    not fit, GovernanceError where credentialed text would leave the machine without an agreement.
    """
    state, policy = job.state.resolve(), Path(job.inputs["init_policy"]).resolve()
    session = Session(settings, Path(job.inputs["cases"]).resolve(), policy, state, job.seed or 0)
    job.tags.update(session.run.check_servers())
    session.run.count_cut_prompts(job)
    _check_installed(settings.training.verl)
    state.mkdir(parents=True, exist_ok=True)
    trained, checkpoints = state / "policy", state / CHECKPOINTS
    if not trained.exists():
        prepare_resume(checkpoints)
        _train(session)
        merge_shards(checkpoints, policy, trained, settings.training.verl.lora_rank)
    shutil.rmtree(checkpoints, ignore_errors=True)  # also where a kill came between merging and removing
    link_policy(trained, Path(job.out["policy"]))
    write_training_outputs(job)


def _train(session: Session) -> None:
    """Run verl on the training that ``session`` describes. Ray is started first. With ``training.verl.frozen.beside``
    a vLLM server of the frozen initial policy is started next; it shares the GPUs with the training."""
    settings, verl = session.settings, session.settings.training.verl
    os.environ.update(environment_variables(settings))
    arguments = hydra_arguments(translate_settings(settings, session.policy, session.state))
    with contextlib.ExitStack() as stack:
        devices = read_table(__package__, "overrides")["logical_devices"] if verl.without_gpu else None
        stack.enter_context(ray_cluster(verl.nodes, session.state / "ray.log", devices))
        if uses_frozen_policy(settings) and verl.frozen.beside:
            server = stack.enter_context(frozen_server(settings, session.policy, session.state))
            server.ensure_ready()
            # The processes of the run find this server by its address, as one that the user has started. ``beside``
            # would start a server, so it is off for them.
            frozen = {"url": server.address, "name": _FROZEN, "beside": False, "replicas": verl.gpus_per_node}
            with_address = merge(settings.model_dump(), {"training": {"verl": {"frozen": frozen}}})
            session = dataclasses.replace(session, settings=parse_settings(with_address))
        session.write(session.state / SESSION)
        _run_verl(arguments, session.state, cpus_of_ray(settings))


def frozen_server(settings: Settings, policy: Path, state: Path, patience: float = 1800.0) -> OwnServer:
    """Make the vLLM server of the frozen initial policy, which shares the training GPUs. The caller starts it by
    ``ensure_ready``; it ends with its context. Its log is in the folder ``state``. It must be ready within ``patience``
    seconds. Paper, appendix, Training details: "co-located on the same two devices via separate GPU memory budget"."""
    verl, frozen = settings.training.verl, settings.training.verl.frozen
    options = {
        "data-parallel-size": verl.gpus_per_node,
        "gpu-memory-utilization": frozen.memory,
        "max-model-len": longest_sequence(settings),
        "max-num-seqs": frozen.at_once,
    }
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    flags += ["--dtype", "float32", "--enforce-eager"] if verl.without_gpu else []  # as the rollout servers have
    # The usual command, with its first word, the program, replaced.
    serving = Serving(program="vllm", command=PROGRAMS["vllm"].replace("vllm", frozen.command, 1))
    return OwnServer(
        serving, weights=str(policy), name=_FROZEN, log=state / "frozen_server.log", flags=flags,
        secrets=settings.key_names, restarts=_RESTARTS, patience=patience,
    )  # fmt: skip


def _check_installed(verl: Verl) -> None:
    """Raise SettingsError where verl is missing; unless the run works without a GPU, also where its rollout server, a
    GPU, a C compiler, or FlashAttention (if the settings choose it) is missing (``refusals.yaml``)."""
    import torch

    values = {
        "verl": verl,
        "installed": find_spec,
        "cuda": torch.cuda.is_available(),
        "compiler": os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"),
    }
    refuse(__package__, "installation", values)


def _run_verl(arguments: list[str], state: Path, cpus: int) -> None:
    """Run verl's entry point with our task runner. ``arguments`` are changes of verl's configuration, ``state`` is the
    folder of unfinished work, ``cpus`` the number of CPUs that Ray must have."""
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
        with time_to_start(state, cpus):
            run_ppo(config, task_runner_class=DiagnosticTaskRunner)
    finally:
        ray.shutdown()


@contextlib.contextmanager
def time_to_start(state: Path, cpus: int, patience: float = 1800.0) -> Iterator[None]:
    """A context that limits the time in which the run inside it must start. Without this limit the processes of the run
    would wait for Ray and for each other without end.

    The file :data:`~.session.START` in ``state`` says what the run waits for; it is empty once the run has started. A
    thread watches it. Where Ray has fewer than ``cpus`` CPUs, or the run has not started after ``patience`` seconds,
    the thread interrupts the main thread by a signal, and the context raises SettingsError, which names what the run
    waits for. Use it in the main thread.
    """
    import ray

    write_text(state / START, "Ray")
    deadline, ended, problems = time.monotonic() + patience, threading.Event(), []

    def watch() -> None:
        """Interrupt the main thread by a signal as soon as the start has failed; end when the run has started."""
        # Twice a second, until the context has ended or the file is empty, which says that the run has started.
        while not ended.wait(0.5) and (waiting := (state / START).read_text()):
            ray_cpus = ray.cluster_resources().get("CPU", cpus) if ray.is_initialized() else cpus
            if ray_cpus < cpus:
                problems.append(f"Ray has {ray_cpus:g} CPUs, and the run takes {cpus}: use a machine with more")
            elif time.monotonic() > deadline:
                reason = f"it waits for {waiting}{_missing_resources()}"
                problems.append(f"the run did not start within {patience:g} seconds; {reason}")
            if problems:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
                return

    # At the signal the main thread raises KeyboardInterrupt: Ray passes no other exception on.
    earlier_handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt:
        if not problems:  # the user's own interrupt, not that of the watcher
            raise
    finally:
        ended.set()
        watcher.join()
        signal.signal(signal.SIGALRM, earlier_handler)
    if problems:
        raise SettingsError(f"training.verl: {' '.join(problems)}")


def _missing_resources() -> str:
    """Write, for an error message, which CPUs and GPUs the run requests and Ray cannot provide, and which are free;
    empty where Ray provides all."""
    import ray

    def describe(resources: Mapping[str, float]) -> str:
        """Write the numbers of CPUs and GPUs in ``resources``, such as "3 CPUs and 1 GPUs"."""
        return " and ".join(f"{resources.get(name, 0):g} {name}s" for name in ("CPU", "GPU"))

    waiting = [group for group in ray.util.placement_group_table().values() if group["state"] == "PENDING"]
    requests = [describe(request) for group in waiting for request in group["bundles"].values()]
    if not requests:
        return ""
    return f": Ray has no room for {', then '.join(requests)} ({describe(ray.available_resources())} are free)"


# Ray over several machines: a cluster that runs already, or one over the machines of this Slurm job.


@contextlib.contextmanager
def ray_cluster(
    nodes: int, log: Path, devices: Mapping[str, int] | None = None, patience: float = 300.0
) -> Iterator[None]:
    """A context that runs Ray on ``nodes`` machines of the Slurm job, with its address in the environment as
    ``RAY_ADDRESS``.

    With one machine it does nothing: verl starts Ray itself. If ``RAY_ADDRESS`` is set already, that cluster is used
    and left running. ``devices`` are the numbers of devices of each machine (``num_cpus``, ``num_gpus``); by default
    Ray counts them. ``log`` is the file of Ray's output. Raises SettingsError where the Slurm job has fewer machines or
    there is none, or when not all machines have joined within ``patience`` seconds; RuntimeError when Ray is already
    imported, because Ray reads its secret at import.
    """
    if nodes == 1 or os.environ.get("RAY_ADDRESS"):
        yield
        return
    machines = _machines_of_job()
    if machines < nodes:
        problem = f"this Slurm job has {machines}" if machines else "there is no Slurm job and no RAY_ADDRESS"
        raise SettingsError(
            f"training.verl.nodes: {nodes} machines are needed, and {problem}; submit with "
            "`--workflow-profile profiles/slurm`, or start Ray on every machine and export RAY_ADDRESS=HOST:6379"
        )
    if "ray" in sys.modules:
        raise RuntimeError("ray_cluster has to be entered before Ray is imported")
    # Below 32,768, where Linux begins to give ports to clients; jobs that share a machine get different ones.
    port = 20_000 + int(os.environ.get("SLURM_JOB_ID", 0)) % 10_000
    address = f"{_own_address()}:{port}"
    options = ["--block --disable-usage-stats"]
    options += [f"--{name.replace('_', '-')}={count}" for name, count in (devices or {}).items()]
    script = _START.format(port=port, address=address, options=" ".join(options))
    command = ["srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--cpu-bind=none"]
    command += ["bash", "-c", script]
    with log.open("ab") as out:
        # The machines and this process authenticate each other by a secret of this run, which no command line shows.
        variables = {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.update(variables)
        without_address = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        servers = subprocess.Popen(command, stdout=out, stderr=out, env=without_address)
        try:
            _await_machines(nodes, servers, patience, log)
            yield
        finally:
            servers.terminate()
            servers.wait()
            for name in variables:
                del os.environ[name]


def _own_address() -> str:
    """Return the IP address of this machine in the network. (The machine's host name may resolve to a loopback
    address.)"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route, contextlib.suppress(OSError):
        route.connect(("8.8.8.8", 80))  # as Ray does: it chooses a route and sends nothing
        return route.getsockname()[0]
    return socket.gethostbyname(socket.gethostname())


def _machines_of_job() -> int:
    """Count the machines of this Slurm job; 0 without a job. Snakemake's Slurm plugin removes all of Slurm's
    environment variables but the job's number, so if necessary Slurm itself is asked. Raises SettingsError where it
    does not answer."""
    count, job = os.environ.get("SLURM_JOB_NUM_NODES"), os.environ.get("SLURM_JOB_ID")
    if count:
        return int(count)
    if not job:
        return 0
    command = ["squeue", "--noheader", f"--jobs={job}", "--format=%D"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "stderr", None) or error
        raise SettingsError(
            f"training.verl.nodes: Slurm does not say how many machines job {job} has: {why}; export "
            "SLURM_JOB_NUM_NODES, or RAY_ADDRESS of a cluster"
        ) from error


def _await_machines(nodes: int, servers: subprocess.Popen, patience: float, log: Path) -> None:
    """Wait until ``nodes`` machines have joined Ray. Raises SettingsError, naming the file ``log``, if that takes
    longer than ``patience`` seconds, or if the process ``servers``, which starts Ray on the machines, ends."""
    import ray

    deadline, joined = time.monotonic() + patience, 0
    while time.monotonic() < deadline and servers.poll() is None:
        with contextlib.suppress(ConnectionError, RuntimeError):  # Ray's first machine does not answer yet
            ray.init(log_to_driver=False, logging_level="ERROR")
            joined = sum(node["Alive"] for node in ray.nodes())
        ray.shutdown()
        if joined >= nodes:
            print(f"Ray: {joined} machines at {os.environ['RAY_ADDRESS']}")
            return
        time.sleep(2)
    raise SettingsError(f"training.verl.nodes: {joined} of {nodes} machines joined Ray; the log is {log}")
