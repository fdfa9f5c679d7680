"""The command ``cdpr``: it runs in a fork of the server of :mod:`cdpr.workflow.forkserver` if there is one, else here.

It imports little, since a workflow starts it for every job.
"""

import json
import os
import socket
import sys
from collections.abc import Sequence

PLACE = "CDPR_FORKSERVER"


def main() -> int:
    """Run the command of this process; returns its exit code."""
    if (code := ask(sys.argv[1:])) is not None:
        return code
    from . import cli

    return cli.main()


def ask(arguments: Sequence[str]) -> int | None:
    """Exit code of ``cdpr`` with these arguments in the server; None when this process has to do the job.

    The server takes jobs of one thread only: libraries fix their number of threads when they are imported.
    """
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
        try:
            answer = line.makefile("rb").read()  # until the job ends
        except ConnectionResetError:  # the server has died before it read the request
            return None
    return int(answer or 137)  # of a killed job


if __name__ == "__main__":
    sys.exit(main())
