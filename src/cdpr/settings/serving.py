"""Servers that a job starts for itself, for as long as it evaluates their model."""

from __future__ import annotations

import shlex
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt, field_validator

from .section import Section, key


class Machine(Section):
    """What a job with a server asks of a machine."""

    gpus: NonNegativeInt = key(1)
    """GPUs over which the weights of a model are spread, or which hold a copy of a policy each; 0: it computes on the
    CPU."""
    cpus: PositiveInt = key(4, "Cores.")
    memory_gb: PositiveInt = key(64, "Main memory.")
    hours: PositiveInt = key(12, "Longest time that it may take.")


class Serving(Section):
    program: Literal["none", "vllm", "sglang", "llama_cpp"] = key("none")
    """Server that jobs start; it has to be installed, in an environment of its own if need be (`command`)."""
    models: list[str] = key([])
    """Entries of `workflow/models.yaml` that are served so; one that says where it stands (`at`) is asked there."""
    policies: bool = key(False)
    """Whether policies, trained ones and the one that training starts from, are evaluated behind such a server too, and
    not in the process of the evaluation; `vllm` or `sglang`, which take tokens."""
    command: str | None = key(None)
    """How it is started; empty: as the program usually is. `{weights}`, `{name}`, `{host}`, `{port}`, `{gpus}` (of one
    copy of the weights) and `{serve}` (flags: those of the model's entry; for a policy its longest sequence and the
    number of copies) stand for what they say."""
    gpus: NonNegativeInt = key(1)
    """GPUs of its job, over which weights are spread, or each of which holds a copy of a policy; 0: it computes on the
    CPU. The entry of a model may ask for another `machine`."""

    @field_validator("command")
    @classmethod
    def _can_be_filled(cls, command: str | None) -> str | None:
        if command is None:
            return None
        try:
            parts = [
                part.format(weights="", name="", host="", port=0, gpus=1, serve="") for part in shlex.split(command)
            ]
        except (LookupError, ValueError) as error:
            raise ValueError(f"only {{weights}}, {{name}}, {{host}}, {{port}}, {{gpus}} and {{serve}} are filled in "
                             f"({type(error).__name__}: {error})") from None  # fmt: skip
        if not parts or "{port}" not in command:
            raise ValueError("name {port}, where the job will look for the server")
        return command
