"""Imported by every Python whose PYTHONPATH names this folder: what macOS lacks is gone, its rule of forks holds."""

import multiprocessing
import os
import sys

LINUX_ONLY = (
    "copy_file_range", "eventfd", "getrandom", "memfd_create", "pidfd_open", "posix_fadvise", "posix_fallocate",
    "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_setaffinity", "sched_setscheduler", "setns",
    "splice", "unshare", "process_cpu_count", "O_DIRECT", "O_TMPFILE",
)  # fmt: skip
for name in LINUX_ONLY:
    if hasattr(os, name):
        delattr(os, name)
_fork = os.fork


def fork() -> int:
    if "torch" in sys.modules:
        raise RuntimeError("macOS ends processes that fork after libraries have started threads")
    return _fork()


os.fork = fork
multiprocessing.set_start_method("spawn")
