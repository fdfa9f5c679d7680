"""A model server (vLLM, SGLang or llama.cpp) that a job starts for itself and that ends with the job."""

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..files import parse_yaml, shipped_text
from ..locks import hold
from ..settings import PROVIDERS, Serving
from . import keeper
from .model_folder import refuse_code
from .types import ModelUnavailable

HOST = "127.0.0.1"  # the address at which servers listen: only this machine reaches them
_SERVERS: Mapping[str, Mapping[str, str]] = parse_yaml(shipped_text(__package__, "servers.yaml"))
PROGRAMS = _SERVERS["programs"]
"""The usual command of each program, with placeholders in braces, which :func:`server_command` fills in."""
WITHOUT_TOOLKIT = _SERVERS["without_toolkit"]
"""Environment variables that every vLLM server gets, unless the user's environment sets them otherwise."""
NO_TELEMETRY = _SERVERS["no_telemetry"]
"""Environment variables that switch off telemetry."""
_LOG_LINES = 8  # last lines of the log that an error quotes


def server_command(
    serving: Serving, weights: str, name: str, port: int, gpus: int, flags: Sequence[str] = ()
) -> list[str]:
    """Build the command line that starts a server: ``serving.command``, or the usual command of ``serving.program``,
    with its placeholders filled in. Returns its words, as for subprocess.

    ``weights`` is a folder, a file or an id on Hugging Face's hub; requests use ``name`` for the model. ``gpus`` are
    the GPUs of one copy of the model; ``flags`` replace the word ``{serve}``.
    """
    # At least 1 GPU, because servers refuse 0 also on a CPU. The flags are whole words: a {serve} within a longer word
    # becomes the empty text.
    values = {"weights": weights, "name": name, "host": HOST, "port": port, "gpus": max(1, gpus), "serve": ""}
    command: list[str] = []  # word by word; "{serve}" becomes as many words as there are flags
    for word in shlex.split(serving.command or PROGRAMS[serving.program]):
        command += flags if word == "{serve}" else [word.format(**values)]
    return command


@dataclass(eq=False)
class OwnServer(contextlib.AbstractContextManager):
    """A server of the model in ``weights``, which this process starts; requests use ``name`` for the model.

    The first :meth:`ensure_ready` starts it. It ends with this context manager, and with this process, even if that is
    killed (:mod:`.keeper`). The operating system chooses a port that no other job has. ``serving``, ``gpus`` and
    ``flags`` are those of :func:`server_command`. The output goes to the file ``log``, which only the owner can read.

    - ``private``: requests hold credentialed text, so the error of a server that ended during a request does not quote
      the log.
    - ``secrets``: names of further environment variables that hold keys; the server does not get them.
    - ``restarts``: how often a server that ended by itself is started again.
    - ``patience``: seconds in which it must become ready. ``grace``: seconds between SIGTERM and SIGKILL at its end.
    """

    serving: Serving
    weights: str
    name: str
    log: Path
    gpus: int = 1
    flags: Sequence[str] = ()
    private: bool = True
    secrets: Collection[str] = ()
    restarts: int = 0
    patience: float = 1800.0
    grace: float = 30.0

    def __post_init__(self) -> None:
        """Reserve a port and build the command; the server is started by :meth:`ensure_ready`."""
        self._process: subprocess.Popen[bytes] | None = None
        self._failure = ""  # why the server cannot be used; empty: it can
        self._log_start = 0  # the byte of the log at which the output of this server begins
        self.port, self._claim = _claim_port()  # the port and its lock
        self.address = f"http://{HOST}:{self.port}/v1"  # of its OpenAI protocol
        self.command = server_command(self.serving, self.weights, self.name, self.port, self.gpus, self.flags)

    def __exit__(self, *_: object) -> None:
        """End the server with the context."""
        self.stop()

    def ensure_ready(self) -> None:
        """Make sure that the server runs; called before every request. The first call starts it and waits until it
        answers.

        Raises ModelUnavailable, with the end of the log, where the server does not start in time or has ended; every
        later call raises the same error. Raises SettingsError for weights whose configuration names Python code of
        their own.
        """
        if not self._failure:
            try:
                if self._process is None:
                    self._start()
                elif (code := self._process.poll()) is not None:
                    event = f"ended {_describe_exit(code)} during a request"
                    raise ModelUnavailable(self._describe_error(event, quote=not self.private))
                return
            except ModelUnavailable as error:
                self._failure = str(error)
                self.stop()
        raise ModelUnavailable(self._failure)

    def stop(self) -> None:
        """End the server, if it was started, and release its port."""
        process, self._process = self._process, None
        self._claim.close()
        if process and process.stdin:
            with contextlib.suppress(OSError):
                process.stdin.close()  # the sign for the keeper to end the server
            try:
                process.wait(self.grace + 10)  # the keeper itself kills the server after the grace
            except subprocess.TimeoutExpired:  # the keeper hangs; when it is killed, the kernel ends the server too
                process.kill()
                process.wait()

    def _start(self) -> None:
        """Start the server and wait until it answers. Raises ModelUnavailable where it ends before, or does not answer
        within ``patience`` seconds."""
        refuse_code(Path(self.weights))
        print(f"server {self.name}: starting {shlex.join(self.command)} (log: {self.log})")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        secrets = {name for provider in PROVIDERS.values() for name in provider.keys} | {*self.secrets}
        without_secrets = {name: value for name, value in os.environ.items() if name not in secrets}
        environment = {**WITHOUT_TOOLKIT, **without_secrets, **NO_TELEMETRY}
        # By path and isolated (-I), so that modules of this folder, such as types.py, do not replace Python's own.
        command = [sys.executable, "-I", keeper.__file__, str(self.grace), str(self.restarts), *self.command]
        with open(descriptor, "ab") as out:
            self._log_start = out.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, start_new_session=True
            )
        start = time.monotonic()
        while (code := self._process.poll()) is None:
            if self._is_ready():
                print(f"server {self.name}: ready after {time.monotonic() - start:.0f} seconds at {self.address}")
                return
            if time.monotonic() - start > self.patience:
                raise ModelUnavailable(self._describe_error(f"was not ready within {self.patience:g} seconds"))
            time.sleep(0.25)
        raise ModelUnavailable(self._describe_error(f"ended {_describe_exit(code)} before it was ready"))

    def _is_ready(self) -> bool:
        """Whether the server answers requests now. Raises ModelUnavailable where it answers, but calls its model by
        another name than requests do."""
        import httpx2  # here, because the import would slow the start of every command

        try:
            health = httpx2.get(f"http://{HOST}:{self.port}/health", timeout=5, trust_env=False)
            models = httpx2.get(f"{self.address}/models", timeout=5, trust_env=False)
            # 404: some servers have no such path, then their list of models is enough.
            if not models.is_success or not (health.is_success or health.status_code == 404):
                return False
            names = [str(model["id"]) for model in models.json()["data"]]
        except (httpx2.HTTPError, ValueError, LookupError, TypeError):
            return False
        if self.name not in names:
            problem = f"the server of {self.name} calls its models {', '.join(names) or 'nothing'}"
            flags = "`--served-model-name {name}` of vLLM and SGLang, `--alias {name}` of llama.cpp"
            raise ModelUnavailable(f"{problem}: pass the name in serving.command ({flags})")
        return True

    def _describe_error(self, event: str, quote: bool = True) -> str:
        """Write the message of an error. ``event`` says what happened to the server, such as "ended by SIGKILL before
        it was ready". With ``quote`` the last lines of the log follow."""
        text = f"the server of {self.name} {event}; its log is {self.log}"
        if not quote:
            return f"{text} (not quoted here: the requests held credentialed cases)"
        with self.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(self._log_start)
            lines = [f"  {line.rstrip()[:300]}" for line in deque(filter(str.strip, log), _LOG_LINES)]
        return "\n".join([f"{text}, which ends:", *lines]) if lines else text


def describe_missing_program(serving: Serving) -> str:
    """Write the message that the program of the server's command is not installed. The message is empty where it is
    installed."""
    program = server_command(serving, weights="", name="", port=0, gpus=1)[0]  # the first word of the command
    if shutil.which(program):
        return ""
    return f"serving.command: there is no program {program!r}; install it, or say where it is"


def _claim_port() -> tuple[int, contextlib.ExitStack]:
    """Choose a free port and lock it, so that no other job of this machine takes it. Returns the port and its lock,
    which is released by ``close()``."""
    folder = Path(tempfile.gettempdir()) / f"cdpr-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        with socket.socket() as free:
            free.bind((HOST, 0))  # 0: the operating system chooses a free one
            port: int = free.getsockname()[1]
        with contextlib.suppress(TimeoutError):  # another job has locked it
            return port, hold(folder / str(port), wait=False)


def _describe_exit(code: int) -> str:
    """Describe how a process with this exit ``code`` ended: "by SIGKILL" or "with exit status 1"."""
    # The number of the signal that ended the process, if one did: Popen reports it as -number, shells as 128 + number.
    number = -code if code < 0 else code - 128
    return f"by {signal.Signals(number).name}" if number in {*signal.Signals} else f"with exit status {code}"
