"""The command ``cdpr``: in a fork of the process that :mod:`cdpr.workflow.forkserver` keeps, where it does, else here.

It imports little, since a workflow starts it for every job.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence

PLACE = "CDPR_FORKSERVER"
STALE = b"stale"
_LOST = 137  # exit code of a job that was killed


def main() -> int:
    """Exit code of the command that this process was called with."""
    if (code := ask(sys.argv[1:])) is not None:
        return code
    from . import cli

    return cli.main()


def ask(arguments: Sequence[str]) -> int | None:
    """Exit code of ``cdpr`` with these arguments, run by the server; None where there is none for this job, which has
    to have one thread: libraries take their number when they are imported."""
    place = os.environ.get(PLACE)
    if not place or os.environ.get("OMP_NUM_THREADS") != "1":
        return None
    job = {"arguments": list(arguments), "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(place)
            socket.send_fds(line, [b"-"], [1, 2])
            line.sendall(json.dumps(job).encode() + b"\n")
        except OSError:
            return None
        answer = line.makefile("rb").read()  # ends with the job
    return None if answer == STALE else int(answer or _LOST)


if __name__ == "__main__":
    sys.exit(main())
