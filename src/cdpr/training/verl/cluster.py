"""Ray over several machines: a cluster that is there already, or one over the machines of this Slurm job."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...settings import SettingsError

# One call starts Ray on every machine of the job: the first, where this process runs, leads.
_START = (
    'if [ "$SLURM_NODEID" = 0 ]; then exec ray start {options} --head --port={port} '
    "--include-dashboard=false; fi; sleep 5; exec ray start {options} --address={address}"
)


@contextlib.contextmanager
def ray_cluster(nodes: int, log: Path, has: Mapping[str, int] | None = None, patience: float = 300.0) -> Iterator[None]:
    """Run Ray on ``nodes`` machines while the context lasts; ``RAY_ADDRESS`` is its address.

    One machine needs nothing: verl starts Ray itself. A cluster named by ``RAY_ADDRESS`` is used and left running.
    ``has``: devices of each machine (``num_cpus``, ``num_gpus``); without it Ray counts them. Raises SettingsError
    where there is no cluster, or not all machines joined within ``patience`` seconds; RuntimeError where Ray is
    imported already, because it reads its secret at import.
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
    port = 20_000 + int(os.environ.get("SLURM_JOB_ID", 0)) % 10_000  # jobs that share a machine keep apart
    address = f"{_own_address()}:{port}"
    command = ["srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--cpu-bind=none"]
    with log.open("ab") as out:
        # Machines and this process authenticate each other by a secret of the job; it is on no command line.
        variables = {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        alone = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        options = ["--block --disable-usage-stats"]
        options += [f"--{name.replace('_', '-')}={count}" for name, count in (has or {}).items()]
        start = _START.format(port=port, address=address, options=" ".join(options))
        servers = subprocess.Popen([*command, "bash", "-c", start], stdout=out, stderr=out, env=alone)
        try:
            _await(nodes, servers, patience, log)
            yield
        finally:
            servers.terminate()
            servers.wait()
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def _own_address() -> str:
    """The address of this machine for others; many machines resolve their own name to a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route, contextlib.suppress(OSError):
        route.connect(("8.8.8.8", 80))  # as Ray does: it chooses a route and sends nothing
        return route.getsockname()[0]
    return socket.gethostbyname(socket.gethostname())


def _machines_of_job() -> int:
    """Machines of the Slurm job around this process, 0 without one. Snakemake's plugin leaves of Slurm's variables the
    job's number alone, so Slurm itself is asked then. Raises SettingsError where it gives no answer."""
    count, job = os.environ.get("SLURM_JOB_NUM_NODES"), os.environ.get("SLURM_JOB_ID")
    if count is None and job:
        command = ["squeue", "--noheader", f"--jobs={job}", "--format=%D"]
        try:
            count = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", None) or error
            raise SettingsError(
                f"training.verl.nodes: Slurm does not say how many machines job {job} has: {why}; export "
                "SLURM_JOB_NUM_NODES, or RAY_ADDRESS of a cluster"
            ) from error
    return int(count or 0)


def _await(nodes: int, servers: subprocess.Popen, patience: float, log: Path) -> None:
    """Wait until every machine has joined."""
    import ray

    until, joined = time.monotonic() + patience, 0
    while time.monotonic() < until and servers.poll() is None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            ray.init(log_to_driver=False, logging_level="ERROR")
            joined = sum(node["Alive"] for node in ray.nodes())
        ray.shutdown()
        if joined >= nodes:
            print(f"Ray: {joined} machines at {os.environ['RAY_ADDRESS']}")
            return
        time.sleep(2)
    raise SettingsError(f"training.verl.nodes: {joined} of {nodes} machines joined Ray; the log is {log}")
