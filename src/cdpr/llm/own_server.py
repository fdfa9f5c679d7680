"""A model server that a job starts for itself and that ends with the job."""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from ..settings import Serving
from ..settings.models import PROVIDERS
from . import keeper
from .guard import NO_TELEMETRY
from .types import ModelUnavailable

HOST = "127.0.0.1"
# Usual commands. The generation config of a model would change sampling parameters that requests leave out: it is off.
PROGRAMS: Mapping[str, str] = {
    "vllm": "vllm serve {weights} --host {host} --port {port} --served-model-name {name} "
    "--tensor-parallel-size {gpus} --seed 0 --generation-config vllm {serve}",
    "sglang": "python -m sglang.launch_server --model-path {weights} --host {host} --port {port} "
    "--served-model-name {name} --tp-size {gpus} --sampling-defaults openai {serve}",
    "llama_cpp": "llama-server --model {weights} --host {host} --port {port} --alias {name} --jinja",
}
_LOG_LINES = 8  # last lines of the log that an error quotes


def command_of(serving: Serving, weights: str, name: str, port: int, gpus: int, flags: Sequence[str] = ()) -> list[str]:
    """The command of a server that calls its model ``name``; ``flags`` replace ``{serve}``."""
    values = {"weights": weights, "name": name, "host": HOST, "port": port, "gpus": max(1, gpus), "serve": ""}
    parts = shlex.split(serving.command or PROGRAMS[serving.program])
    return [word for part in parts for word in (flags if part == "{serve}" else [part.format(**values)])]


def program_missing(serving: Serving) -> str:
    """What has to be installed before a server can be started; empty: nothing."""
    program = command_of(serving, "", "", 0, 1)[0]
    if shutil.which(program):
        return ""
    return f"serving.command: there is no program {program!r}; install it, or say where it is"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return free.getsockname()[1]


@dataclass
class OwnServer(contextlib.AbstractContextManager):
    """A server of ``weights``, which it calls ``name``. The first :meth:`ready` starts it; the end of the context ends
    it, and so does the end of this process, even by a kill (:mod:`.keeper`).

    Its output goes to ``log``, which only its owner can read. ``restarts``: how often a server that ends is started
    again; ``patience``: seconds until it must be ready; ``grace``: seconds between asking it to end and killing it.
    """

    serving: Serving
    weights: str
    name: str
    log: Path
    gpus: int = 1
    flags: Sequence[str] = ()
    restarts: int = 0
    patience: float = 1800.0
    grace: float = 30.0
    port: int = field(default_factory=_free_port)
    _process: subprocess.Popen[bytes] | None = None
    _failure: str = ""

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Base URL of its OpenAI protocol."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def command(self) -> list[str]:
        """The command that starts it."""
        return command_of(self.serving, self.weights, self.name, self.port, self.gpus, self.flags)

    def ready(self) -> None:
        """Call before every request: starts the server once and waits until it answers. Raises ModelUnavailable with
        the end of the log where it does not start in time, or where it has ended; every later call raises the same."""
        if self._process is None:
            self._failure = self._failure or self._start()
        elif (code := self._process.poll()) is not None:  # its log may hold text of credentialed cases
            event = f"ended with exit status {code} during a request"
            self._failure = f"the server of {self.name} {event}; its log is {self.log}"
        if self._failure:
            self.stop()
            raise ModelUnavailable(self._failure)

    def stop(self) -> None:
        """End the server."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(self.grace + 10)
        except subprocess.TimeoutExpired:  # the keeper hangs
            process.kill()
            process.wait()

    def _start(self) -> str:
        """Start the server and wait until it answers; returns what went wrong, if anything."""
        print(f"server {self.name}: starting {shlex.join(self.command)} (log: {self.log})")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        secrets = {name for provider in PROVIDERS.values() for name in provider.keys}
        variables = {name: value for name, value in os.environ.items() if name not in secrets} | NO_TELEMETRY
        # By path and isolated, so that modules of this folder do not replace Python's own.
        arguments = [sys.executable, "-I", keeper.__file__, str(self.grace), str(self.restarts), *self.command]
        with open(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=out, stderr=out, env=variables, start_new_session=True
            )
        start = time.monotonic()
        while time.monotonic() - start < self.patience:
            if (code := self._process.poll()) is not None:
                return self._with_log(f"ended with exit status {code} before it was ready")
            if self.name in (names := self._models()):
                print(f"server {self.name}: ready after {time.monotonic() - start:.0f} seconds at {self.address}")
                return ""
            if names:
                return self._with_log(
                    f"calls its models {', '.join(names)}: pass the name in serving.command (`--served-model-name "
                    "{name}` of vLLM and SGLang, `--alias {name}` of llama.cpp)"
                )
            time.sleep(0.25)
        return self._with_log(f"was not ready within {self.patience:g} seconds")

    def _models(self) -> list[str]:
        """Names of its models, once it answers requests; before that none."""
        with contextlib.suppress(httpx2.HTTPError, ValueError, LookupError, TypeError):
            health = httpx2.get(f"http://{HOST}:{self.port}/health", timeout=5, trust_env=False)
            models = httpx2.get(f"{self.address}/models", timeout=5, trust_env=False)
            if health.is_success or health.status_code == 404:  # llama.cpp lists models before it has loaded them
                return [str(model["id"]) for model in models.raise_for_status().json()["data"]]
        return []

    def _with_log(self, event: str) -> str:
        """A message about ``event``, with the end of the log, which holds no request yet."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_LOG_LINES:]
        text = f"the server of {self.name} {event}; its log is {self.log}"
        return f"{text}, which ends:\n" + "\n".join(f"  {line[:300]}" for line in lines) if lines else text
