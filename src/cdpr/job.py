"""The job that a stage's function works on: its files, its options and its metrics."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PageEntry:
    """A table or figure on the results page: the title of its ``chapter``, a ``text``, and its ``file`` in the results
    folder. A table has the ``module`` whose function ``sheet(settings, results)`` makes it. A figure is shown on the
    page; one with ``apart``, whose bytes differ from run to run, is only linked."""

    chapter: str
    text: str
    file: str = ""
    module: str = ""
    apart: bool = False


@dataclass
class Job:
    """The job on which a stage works; a stage is a function of ``(settings, job)``.

    ``inputs`` are paths by name; ``results`` is the folder of all results. ``out`` has the path to write for each
    output: a temporary one, which is renamed when the stage succeeds. ``state`` is the job's folder for work that
    survives a kill. ``options`` tell the jobs of a stage apart. ``metrics`` and ``tags`` go into ``run.json``. ``page``
    lists the tables and figures of the results page. ``server`` is a model server that the job has started, or None.
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
    page: tuple[PageEntry, ...] = ()
    server: Any = None
