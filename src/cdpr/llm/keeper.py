"""Stands between a job and the server that it has started, so that neither outlives the other: run as a program of its
own, by path and without this package. Its standard input is a pipe that ends with the job, however the job ends.

The server is a group of processes: all of it is asked to end (SIGTERM), and killed where it does not within the grace
that the first argument tells, in seconds. What follows is the server's command. The exit code is the server's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_PDEATHSIG = 1  # prctl: a signal for when the parent dies
_TICK = 0.1  # seconds


def main(grace: float, command: list[str]) -> int:
    """Keep a server until it ends, its job ends, or this process is asked to end."""
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: asked.append(number))
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent)
    while server.poll() is None and not asked and not select.select([sys.stdin], [], [], _TICK)[0]:
        pass
    if server.poll() is None:
        _tell(server.pid, signal.SIGTERM)
        until = time.monotonic() + grace
        while server.poll() is None and time.monotonic() < until:
            time.sleep(_TICK)
    _tell(server.pid, signal.SIGKILL)  # also what the server has started and left behind
    code = server.wait()
    return 128 - code if code < 0 else code


def _tell(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _die_with_parent() -> None:
    """In the server's process: end with its keeper even where that is killed. Linux alone knows how."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
