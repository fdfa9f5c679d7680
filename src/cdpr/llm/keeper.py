"""A small process between a job and its server, so that the server ends with the job, however the job ends.

It runs as a program of its own, by path and without this package: `keeper.py GRACE RESTARTS COMMAND...`. Its standard
input is a pipe from the job: the pipe ends with the job. The whole process group of the server gets SIGTERM, then after
GRACE seconds SIGKILL. A server that ends by itself is started again RESTARTS times. The exit code is the server's.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys

_TICK = 0.1  # seconds


def main(grace: float, restarts: int, command: list[str]) -> int:
    """Run the server until it ends for good, or the job ends."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # the pipe decides; the server gets the default handler
    for restarts_left in reversed(range(restarts + 1)):
        try:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            print(f"{command[0]}: cannot be started ({error.strerror})", flush=True)
            return 127
        while server.poll() is None and not select.select([sys.stdin], [], [], _TICK)[0]:
            pass
        job_ended = server.poll() is None
        if job_ended:
            os.killpg(server.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(grace)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)  # also processes that the server started and left behind
        code = server.wait()
        if job_ended or not restarts_left:
            break
        print(f"the server ended with code {code}; starting it again", flush=True)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
