"""A Slurm of one machine, for trying the cluster profile: daemons started from a folder, gone when it ends.

As root: `apt-get install slurm-wlm munge`; `make slurm-local` does it where it can.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_USUAL_CONF = Path("/etc/slurm/slurm.conf")
_CONF = """\
ClusterName=local
SlurmctldHost={host}
SlurmctldPort={control}
SlurmdPort={daemon}
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity,task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=16000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs() -> list[str]:
    """Programs of Slurm that this machine lacks."""
    return [name for name in ("slurmctld", "slurmd", "munged", "sbatch", "squeue") if not shutil.which(name)]


@contextlib.contextmanager
def one_node(folder: Path) -> Iterator[dict[str, str]]:
    """Start a cluster whose only node is this machine; the environment that its clients need. Raises TimeoutError when
    the node does not come up, FileExistsError where the machine belongs to a cluster already."""
    (folder / "state").mkdir(parents=True)
    conf = folder / "slurm.conf"
    # Jobs of the plugin forget SLURM_CONF: they look where Slurm always looks.
    _USUAL_CONF.parent.mkdir(exist_ok=True)
    _USUAL_CONF.symlink_to(conf)
    conf.write_text(_CONF.format(host=socket.gethostname(), control=_free_port(), daemon=_free_port(), folder=folder,
                                 cpus=os.cpu_count()))  # fmt: skip
    # A job gets the cores that it requested and no others, so that too small a request is felt.
    (folder / "cgroup.conf").write_text("CgroupAutomount=yes\nIgnoreSystemd=yes\nConstrainCores=yes\n")
    environment = {"SLURM_CONF": str(conf)}
    with contextlib.ExitStack() as stack:
        stack.callback(_USUAL_CONF.unlink)
        if not Path("/run/munge/munge.socket.2").exists():
            Path("/run/munge").mkdir(exist_ok=True)
            shutil.chown("/run/munge", "munge", "munge")
            stack.enter_context(_process(["runuser", "-u", "munge", "--", "munged", "--foreground"], {}))
        stack.enter_context(_process(["slurmctld", "-D"], environment))
        stack.enter_context(_process(["slurmd", "-D"], environment))
        deadline = time.monotonic() + 60
        while "idle" not in _state(environment):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no node came up: {_state(environment)}; see the logs in {folder}")
            time.sleep(0.5)
        yield environment


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _state(environment: dict[str, str]) -> str:
    result = subprocess.run(["sinfo", "-h", "-o", "%T"], env={**os.environ, **environment}, capture_output=True,
                           text=True, check=False)  # fmt: skip
    return result.stdout + result.stderr


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
