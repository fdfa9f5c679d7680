"""A process that jobs are forked from, so that they do not all import torch again: most jobs of the demo are shorter
than that import. Without it the demo takes about a fifth longer, even with one evaluation job for all data sets of a
run: a training takes 8 seconds of a processor to start, an evaluation 2, a table 2.

Snakemake's main process starts the server. The command ``cdpr`` of a job sends its arguments to the server, which runs
the same command in a fork, and passes on output and exit code. Jobs run the code that the server has imported, which is
that of the run keys. Without a server the job runs in its own process.
"""

import atexit
import contextlib
import gc
import json
import multiprocessing
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from ..command import PLACE

# As Snakemake sets them for a job; and no thread of Arrow, since a process with threads is not to be forked.
_THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
_THREADS["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
_LONGEST_FOLDER = 80  # characters; an address of a socket has at most 107
# What takes long to import, or as `module:function` to prepare: for all jobs, and for those that work with tensors.
_SLOW = ("cdpr.tracking.frame:versions", "matplotlib.figure", "matplotlib.backends.backend_agg",
         "matplotlib.backends.backend_pdf", "scipy.stats", "cdpr.report.report_page",
         "cdpr.tracking.mlflow_index:load")  # fmt: skip
_SLOW_TENSORS = ("cdpr.evaluation.evaluate_agent", "cdpr.llm.sampler", "cdpr.cases.naming:prepare",
                 "cdpr.training.torch.trainer", "transformers.models.qwen3.modeling_qwen3")  # fmt: skip


def start(environment: Mapping[str, str], tensors: bool = False) -> subprocess.Popen | None:
    """Start a server with these environment variables added, and announce it to jobs. While idle it imports what jobs
    need, also with ``tensors``. It ends with this process, or with the standard input of the returned one. None where
    processes that have imported libraries are not to be forked, as on macOS."""
    if multiprocessing.get_start_method() == "spawn":
        return None
    place = "/tmp" if len(tempfile.gettempdir()) > _LONGEST_FOLDER else tempfile.gettempdir()
    for left in Path(place).glob("cdpr-[0-9]*-*"):  # where both processes were killed
        if (process := left.name.split("-")[1]).isdigit() and not psutil.pid_exists(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"cdpr-{os.getpid()}-", dir=place)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # where only the server was killed
    door = os.environ[PLACE] = str(Path(folder) / "door")
    command = [sys.executable, "-m", __name__, door, *_SLOW, *(_SLOW_TENSORS if tensors else ())]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        env={**os.environ, **environment, **_THREADS},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # from the first import on; the jobs get it
    )


def serve(place: str, targets: Sequence[str]) -> None:
    """Fork a job for every request until standard input ends; prepare the ``targets`` in between."""
    from .. import cli
    from .stages import STAGES

    cli.configure_output()
    cli.build_parser()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    later = list(targets)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(place)
        door.listen()
        while sys.stdin not in (ready := select.select([door, sys.stdin], [], [], 0 if later else None)[0]):
            if not ready:
                _prepare(later.pop(0))
                continue
            line, _ = door.accept()
            outputs = socket.recv_fds(line, 1, 2)[1]
            request = line.makefile("rb").readline()
            job = json.loads(request) if request.endswith(b"\n") else None  # None: the caller was killed
            stage = STAGES.get((job["arguments"] or [""])[0]) if job else None
            while later and stage and stage.tensors:  # or every job at the start would import all that by itself
                _prepare(later.pop(0))
            gc.freeze()  # the jobs share this memory as long as they write nothing there
            if job and not os.fork():
                door.close()
                # Not `sys.exit`: to take a process apart object by object is to copy all that it shares.
                os._exit(_run(job, line, outputs))
            line.close()
            for output in outputs:
                os.close(output)
    shutil.rmtree(Path(place).parent, ignore_errors=True)


def _prepare(target: str) -> None:
    """Import a module; of ``module:function`` also call the function. A failure is ignored: the job reports it."""
    with contextlib.suppress(Exception):
        if callable(function := pkgutil.resolve_name(target)):
            function()


def _run(job: Mapping[str, Any], line: socket.socket, outputs: Sequence[int]) -> int:
    """The command in a fork: with the caller's folder, variables and output, and no longer than the caller lives."""
    from ..cli import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for standard, output in enumerate(outputs, start=1):
        os.dup2(output, standard)
        os.close(output)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    threading.Thread(target=lambda: line.recv(1) or os._exit(1), daemon=True).start()
    try:
        code = main(job["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # what the end of a process does, as in multiprocessing
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        line.sendall(str(code).encode())
    return code


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
