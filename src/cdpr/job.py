"""What a stage's function is handed: the job's files, which job it is, and where it tells what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Job:
    """A stage in progress; a stage is a function of ``(settings, job)``.

    ``inputs`` are paths by name; ``out`` holds, per output name, the path to write to: a staging place on the same
    file system, renamed to where it belongs when the stage ends well. ``state`` is the job's own folder for work that
    survives a kill. ``options`` say which of the stage's jobs it is. ``metrics`` (name -> number) and ``tags`` end up
    in ``run.json``. A long job tells ``listener`` every row of its metrics as it comes (live tracking). ``on_page``
    names the stages whose tables and figures the page shows; ``server`` is a server of models that runs for the job
    (a ``cdpr.llm.own_server.OwnServer``).
    """

    name: str
    key: str
    inputs: dict[str, Path]
    out: dict[str, Path]
    seed: int | None = None
    state: Path = Path("state")
    options: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    listener: Callable[[Mapping[str, Any]], None] | None = None
    on_page: tuple[str, ...] = ()
    server: Any = None
