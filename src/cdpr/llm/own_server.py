"""A model server that a job starts for itself, when its first question has no recorded answer, and ends with itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import httpx2

from ..settings import Serving
from ..settings.models import PROVIDERS
from . import keeper
from .guard import NO_TELEMETRY
from .types import ModelUnavailable

HOST = "127.0.0.1"
# As each is usually started. A model's own generation config would change how answers are drawn, in what is not asked.
PROGRAMS: Mapping[str, str] = {
    "vllm": "vllm serve {weights} --host {host} --port {port} --served-model-name {name} "
            "--tensor-parallel-size {gpus} --seed 0 --generation-config vllm {serve}",
    "sglang": "python -m sglang.launch_server --model-path {weights} --host {host} --port {port} "
              "--served-model-name {name} --tp-size {gpus} --sampling-defaults openai {serve}",
    "llama_cpp": "llama-server --model {weights} --host {host} --port {port} --alias {name} --jinja",
}  # fmt: skip
_TRIES = 3  # of a server whose port another process was quicker to take
_TOLD = 8  # last lines of a log


def command_of(serving: Serving, weights: str, name: str, port: int, gpus: int, flags: Sequence[str] = ()) -> list[str]:
    """How a server is started; ``name`` is what it shall call its model, ``flags`` stand for ``{serve}``."""
    filled = {"weights": weights, "name": name, "host": HOST, "port": port, "gpus": max(1, gpus), "serve": ""}
    parts = shlex.split(serving.command or PROGRAMS[serving.program])
    return [word for part in parts for word in (flags if part == "{serve}" else [part.format(**filled)])]


class OwnServer:
    """A server of ``weights``, which it calls ``name``; a context that starts nothing itself: the first who needs an
    answer calls :meth:`ready`.

    Its port is the operating system's choice and kept from other jobs as long as this object lasts. It ends with the
    context, and with this process however that ends (:mod:`.keeper`). ``log`` keeps what it says, for its owner's eyes
    alone. ``private``: it is asked about credentialed cases, so that no error quotes what it said after the first
    question. ``grace``: seconds between asking it to end and killing it.
    """

    def __init__(
        self, serving: Serving, weights: str, name: str, log: Path, *, gpus: int = 1, flags: Sequence[str] = (),
        private: bool = True, grace: float = 30.0,
    ) -> None:  # fmt: skip
        self.weights, self.name, self.log = weights, name, log
        self._serving, self._gpus, self._flags = serving, gpus, tuple(flags)
        self._private, self._grace = private, grace
        self._process: subprocess.Popen[bytes] | None = None
        self._ready, self._failed, self._begin = False, "", 0
        self._claim()

    def __enter__(self) -> OwnServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Where it answers, or will."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def local_weights(self) -> str | None:
        """The file or folder of its weights; None where it fetches them by their id."""
        return self.weights if Path(self.weights).exists() else None

    def ready(self) -> None:
        """Before every request: start it, if it never ran, and wait until it answers. Raises ModelUnavailable with its
        last words where it does not come up in time or has ended: in this job nobody starts it again."""
        if not self._failed:
            try:
                if not self._ready:
                    self._come_up()
                    self._ready = True
                elif self._process and (code := self._process.poll()) is not None:
                    raise ModelUnavailable(self._told(f"ended {_how(code)} while it was asked", not self._private))
                return
            except ModelUnavailable as error:
                self._failed = str(error)
                self.stop()
        raise ModelUnavailable(self._failed)

    def stop(self) -> None:
        """End it, asked first, then by force, and give its port back."""
        process, self._process, self._ready = self._process, None, False
        self._claimed.close()
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(self._grace + 10)
        except subprocess.TimeoutExpired:  # its keeper is stuck; the kernel ends the server with it
            process.kill()
            process.wait()

    def _come_up(self) -> None:
        for _ in range(_TRIES):
            began = time.monotonic()
            self._start()
            while (code := self._process.poll()) is None:  # type: ignore[union-attr]
                if self._answers():
                    print(f"server {self.name}: ready after {time.monotonic() - began:.0f} seconds at {self.address}")
                    return
                if time.monotonic() - began > self._serving.patience_s:
                    raise ModelUnavailable(
                        self._told(f"was not ready within {self._serving.patience_s:g} seconds (serving.patience_s)")
                    )
                time.sleep(0.25)
            if not _taken(self.port):
                break
            self._claim()
        raise ModelUnavailable(self._told(f"ended {_how(code)} before it was ready"))

    def _start(self) -> None:
        command = command_of(self._serving, self.weights, self.name, self.port, self._gpus, self._flags)
        print(f"server {self.name}: starting {shlex.join(command)} (log: {self.log})")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # By path and isolated: this folder's modules shall not stand in for Python's own.
        kept = [sys.executable, "-I", keeper.__file__, str(self._grace), *command]
        with open(descriptor, "ab") as out:
            self._begin = out.tell()
            self._process = subprocess.Popen(
                kept, stdin=subprocess.PIPE, stdout=out, stderr=out, env=_environment(), start_new_session=True
            )

    def _answers(self) -> bool:
        """Whether it is ready, and knows its model by the name that will be asked for. Raises ModelUnavailable where it
        knows it by another."""
        try:
            health = httpx2.get(f"http://{HOST}:{self.port}/health", timeout=5, trust_env=False)
            models = httpx2.get(f"{self.address}/models", timeout=5, trust_env=False)
            told = models.json() if models.is_success and (health.is_success or health.status_code == 404) else None
        except (httpx2.HTTPError, ValueError):
            return False
        if told is None:
            return False
        names = _names(told)
        if self.name not in names:
            raise ModelUnavailable(
                f"the server of {self.name} calls its models {', '.join(names) or 'nothing'}: let serving.command tell "
                "it the name (`--served-model-name {name}` of vLLM and SGLang, `--alias {name}` of llama.cpp)"
            )
        return True

    def _claim(self) -> None:
        """A free port that no other job of this machine has chosen."""
        place = Path(tempfile.gettempdir()) / f"cdpr-ports-{os.getuid()}"
        place.mkdir(mode=0o700, exist_ok=True)
        while True:
            with socket.socket() as free:
                free.bind((HOST, 0))
                self.port: int = free.getsockname()[1]
            claim: IO[bytes] = (place / str(self.port)).open("ab")
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._claimed = claim  # until it is closed
                return

    def _told(self, what: str, quoted: bool = True) -> str:
        """What went wrong, with the last lines of this start's log where they may be ``quoted``."""
        text = f"the server of {self.name} {what}; its log is {self.log}"
        if not quoted:
            return f"{text} (not quoted here: it was asked about credentialed cases)"
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(self._begin, log.seek(0, os.SEEK_END) - 16_384))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()[-_TOLD:]
            return f"{text}, which ends:\n" + "\n".join(f"  {line[:300]}" for line in lines) if lines else text
        return text


def program_missing(serving: Serving) -> str:
    """What has to be installed before a server can be started; empty: nothing."""
    import shutil

    first = command_of(serving, "", "", 0, 1)[0]
    if shutil.which(first):
        return ""
    return f"serving.command: there is no program {first!r}; install it, or say where it is"


def _environment() -> dict[str, str]:
    """The server's variables: ours, without the keys of providers, and no telemetry."""
    secret = {name for provider in PROVIDERS.values() for name in provider.keys}
    return {name: value for name, value in os.environ.items() if name not in secret} | NO_TELEMETRY


def _names(told: Any) -> list[str]:
    try:
        return [str(model["id"]) for model in told["data"]]
    except (LookupError, TypeError):
        return []


def _how(code: int) -> str:
    """An exit code in words."""
    number = -code if code < 0 else code - 128
    if number > 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(number).name}"
    return f"with exit status {code}"


def _taken(port: int) -> bool:
    """Whether some process listens at a port."""
    with socket.socket() as line:
        line.settimeout(1)
        return line.connect_ex((HOST, port)) == 0
