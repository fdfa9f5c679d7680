"""A small program between a job and the model server that the job started. It makes the server end with the job,
however the job ends.

The keeper is run by path and without this package: `keeper.py GRACE RESTARTS COMMAND...`, where COMMAND starts the
server. The keeper's standard input is a pipe from the job, which closes when the job ends. Then the whole process group
of the server gets SIGTERM, and after GRACE seconds SIGKILL. A server that ends by itself is started again, at most
RESTARTS times. The exit code is the server's.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys

_PDEATHSIG = 1  # the option PR_SET_PDEATHSIG of Linux' prctl: send this process a signal when its parent dies
_TICK = 0.1  # seconds between two looks at the server


def main(grace: float, restarts: int, command: list[str]) -> int:
    """Run a server until the job ends (standard input closes), a signal arrives, or the server has ended by itself
    ``restarts`` + 1 times.

    ``command`` starts the server. When it has to end, its process group gets SIGTERM, and after ``grace`` seconds
    SIGKILL. Returns its exit code as shells do: 128 plus the number of the signal that ended it; 127 where it cannot be
    started.
    """
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.append(number))
    for restarts_left in reversed(range(restarts + 1)):
        try:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent
            )
        except OSError as error:
            print(f"{command[0]}: cannot be started ({error.strerror})", flush=True)
            return 127
        # The job never writes: standard input becomes readable when it closes. `select` waits for that, at most a tick;
        # its first list is what is readable.
        while server.poll() is None and not signals and not select.select([sys.stdin], [], [], _TICK)[0]:
            pass
        stopped = server.poll() is None  # by the job or a signal, since the server still runs
        if stopped:
            _signal_group(server.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(grace)
        _signal_group(server.pid, signal.SIGKILL)  # also processes that the server started and left behind
        code = server.wait()
        if stopped:
            break
        if restarts_left:
            print(f"the server ended with code {code}; starting it again", flush=True)
    return 128 - code if code < 0 else code  # Popen's code for a signal is its negative number


def _signal_group(group: int, number: int) -> None:
    """Send the signal ``number`` to the process group ``group``; nothing happens where it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _die_with_parent() -> None:
    """Make the calling process, the new server, die when its keeper dies, even if the keeper is killed (Linux only). It
    runs in the server's process before its program starts."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
