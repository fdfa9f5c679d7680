"""The frozen server beside the trainer: vLLM with the initial policy on the training GPUs, as long as a run lasts."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import httpx2

from ....agents.policy import longest_sequence
from ....settings import Settings, SettingsError

NAME = "frozen"
LOG = "frozen_server.log"
_RESTARTS = 3


def command_of(settings: Settings, policy: Path, port: int) -> list[str]:
    """How the server is started. Paper, appendix, Training details: "co-located on the same two devices via separate
    GPU memory budget"."""
    verl = settings.training.verl
    options = {
        "host": "127.0.0.1", "port": port, "served-model-name": NAME, "seed": 0,
        "tensor-parallel-size": verl.frozen.tensor_parallel,
        "data-parallel-size": verl.gpus_per_node // verl.frozen.tensor_parallel,
        "gpu-memory-utilization": verl.frozen.memory, "max-model-len": longest_sequence(settings),
        "max-num-seqs": verl.frozen.at_once,
        "generation-config": "vllm",  # the model's own would change how replies are drawn, in what we do not set
    }  # fmt: skip
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    flags += ["--dtype", "float32", "--enforce-eager"] if verl.without_gpu else []  # as the trainer's own server
    return [*shlex.split(verl.frozen.command), "serve", str(policy), *flags]


@contextlib.contextmanager
def serving(settings: Settings, policy: Path, state: Path, patience: float = 1800.0) -> Iterator[str]:
    """Start the server, yield its address, end it. One that dies is started again, ``_RESTARTS`` times in a run.

    Its log stays in ``state``. Raises SettingsError where it is not to be found or does not answer within ``patience``
    seconds.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = Path(state) / LOG
    with log.open("ab") as out:
        keeper = _Keeper(command_of(settings, policy, port), out)
        try:
            url = f"http://127.0.0.1:{port}/v1"
            print(f"frozen server: starting {keeper.command[0]} (log: {log})")
            _await(url, keeper, patience, log)
            yield url
        finally:
            keeper.end()


class _Keeper(threading.Thread):
    """Keeps one process running."""

    def __init__(self, command: Sequence[str], out: IO[bytes]):
        super().__init__(name="frozen server", daemon=True)
        self.command, self._out = list(command), out
        self._change, self._ending, self.failed = threading.Lock(), False, ""
        self.process = self._start()
        self.start()

    def _start(self) -> subprocess.Popen:
        try:
            return subprocess.Popen(self.command, stdout=self._out, stderr=subprocess.STDOUT)
        except OSError as error:
            raise SettingsError(
                f"training.verl.frozen.command: {self.command[0]!r} cannot be started ({error.strerror}); install vLLM "
                "or name where it is, or set training.verl.frozen.url"
            ) from None

    def run(self) -> None:
        for left in reversed(range(_RESTARTS + 1)):
            code = self.process.wait()
            with self._change:
                if self._ending:
                    return
                if not left:
                    break
                print(f"frozen server: it ended with exit status {code}; starting it again ({left - 1} times left)")
                self.process = self._start()
        self.failed = f"it ended with exit status {code} time and again"
        print(f"frozen server: {self.failed}")

    def end(self) -> None:
        """Stop the process, by force where it does not listen."""
        with self._change:
            self._ending = True
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.join()


def _await(url: str, keeper: _Keeper, patience: float, log: Path) -> None:
    """Wait for the first answer."""
    until = time.monotonic() + patience
    while time.monotonic() < until and not keeper.failed:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(f"{url}/models", timeout=5, trust_env=False).is_success:
                return
        time.sleep(0.5)
    why = keeper.failed or f"it gave no answer within {patience:g} seconds"
    raise SettingsError(f"training.verl.frozen: the frozen server cannot be used: {why}; its log is {log}")
