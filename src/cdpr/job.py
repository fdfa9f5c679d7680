"""The job that a stage's function works on: its files, its options and its metrics."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PageEntry:
    """A table or figure on the results page: the title of its ``chapter``, a ``text``, and its ``file`` below the
    results. A table names the ``module`` whose ``sheet(settings, results)`` makes it. The page only links to a figure
    ``apart``, which is another one at every run."""

    chapter: str
    text: str
    file: str = ""
    module: str = ""
    apart: bool = False


@dataclass
class Job:
    """A stage in progress; a stage is a function of ``(settings, job)``.

    ``inputs`` are paths by name, among them ``results``, the folder of all results. ``out`` has the path to write for
    each output: a temporary place on the same file system, renamed when the stage succeeds. ``state`` is the job's own
    folder for work that survives a kill. ``options`` select one of the stage's jobs. ``metrics`` (name -> number) and
    ``tags`` go into ``run.json``. ``page`` lists the tables and figures of the results page. ``server`` is the job's
    own server of models, if it has one.
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
