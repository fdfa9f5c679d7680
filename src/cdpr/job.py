"""What the function of a stage receives apart from the settings: the files, options and metrics of its job."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PageEntry:
    """A table or figure on the results page.

    - ``chapter``: the title of its chapter; ``text``: what the page says about it.
    - ``file``: its path in the results folder.
    - ``sheet``: for a table, the function that makes it from the settings and the results folder, as
      ``module:sheet_NAME``; else empty.
    - ``apart``: for a figure, whether the page only links it, because its bytes differ from run to run.
    """

    chapter: str
    text: str
    file: str = ""
    sheet: str = ""
    apart: bool = False


@dataclass
class Job:
    """A job of a stage. The stage's function takes the settings and this object.

    - ``name``, ``key``, ``seed``: the stage, the run key, and the seed of a training (None for another job).
    - ``inputs``: paths of input files by name; ``inputs["results"]`` is the folder of all results.
    - ``out``: the path to write for each output by name; a temporary path, which is renamed when the stage succeeds.
    - ``state``: the folder for unfinished work, which survives a kill.
    - ``options``: what distinguishes the jobs of a stage, such as ``{"run": "cdpr-seed0", "dataset": "private"}``.
    - ``metrics``, ``tags``: numbers and texts that go into ``run.json``.
    - ``page``: for the job that writes the results page, its tables and figures; else empty.
    - ``server``: a model server that the job has started, or None.
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
