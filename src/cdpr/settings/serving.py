"""Model servers that a job starts and ends itself."""

from __future__ import annotations

import shlex
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt, field_validator

from .section import Section, key


class Machine(Section):
    """Resources of a job with a server."""

    gpus: NonNegativeInt = key(1)
    """GPUs over which the weights of a model are spread, or each of which holds a copy of a policy; 0: the server
    computes on the CPU."""
    cpus: PositiveInt = key(4, "Cores.")
    memory_gb: PositiveInt = key(64, "Main memory.")
    hours: PositiveInt = key(12, "Longest duration.")


class Serving(Section):
    program: Literal["none", "vllm", "sglang", "llama_cpp"] = key("none")
    """Server that jobs start; it must be installed, possibly in another environment (`command`)."""
    models: list[str] = key([])
    """Entries of `workflow/models.yaml` that jobs serve; an entry with an address (`at`) keeps that server."""
    policies: bool = key(False)
    """Whether policies (trained ones and the initial one) are evaluated behind such a server, not in the process of the
    evaluation; `vllm` or `sglang`, which take tokens."""
    command: str | None = key(None)
    """Command of the server; empty: the usual one of the program. Placeholders: `{weights}`, `{name}`, `{host}`,
    `{port}`, `{gpus}` (of one copy of the weights) and `{serve}` (flags: those of the model's entry; for a policy its
    longest sequence and the number of copies)."""
    gpus: NonNegativeInt = key(1)
    """GPUs of the job, over which weights are spread, or each of which holds a copy of a policy; 0: the server computes
    on the CPU. The entry of a model may set another `machine`."""

    @field_validator("command")
    @classmethod
    def _can_be_filled(cls, command: str | None) -> str | None:
        try:
            shlex.split((command or "").format(weights="", name="", host="", port=0, gpus=1, serve=""))
        except (LookupError, ValueError) as error:
            raise ValueError(f"only {{weights}}, {{name}}, {{host}}, {{port}}, {{gpus}} and {{serve}} are filled in "
                             f"({type(error).__name__}: {error})") from None  # fmt: skip
        if command is not None and "{port}" not in command:
            raise ValueError("name {port}, at which the job expects the server")
        return command
