"""Table of stages, ``stages.yaml``: the function of each command, the settings that it reads, and those that change
nothing.

A rule of ``rules/`` says what a stage needs and makes, and which command ``cdpr STAGE`` it runs; the entry in the table
has the name of the command. Tables and figures need no entry: every function ``sheet_NAME`` of ``cdpr.report`` is the
stage ``write_NAME``, and every function ``plot_NAME`` or ``write_NAME`` there that takes the settings and a job is a
stage of its own name.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from ..agents.build import ACTING, DECISIONS, own_reads
from ..files import parse_yaml, shipped_text
from ..records import PIPELINE
from ..settings import Settings, algorithm_class, expand_keys, restrict
from ..settings.variants import RUNTIME
from . import hidden_inputs
from .hidden_inputs import HiddenInputs, Options
from .run_key import PACKAGE_FOLDER

if TYPE_CHECKING:
    from .experiment import Experiment

_ENTRIES = parse_yaml(shipped_text(__package__, "stages.yaml"))
_TABLE, _FIGURE = _ENTRIES.pop("x-table"), _ENTRIES.pop("x-figure")
# The groups of settings that entries of stages.yaml name: its own, and those that the code declares (RUNTIME: what
# changes no result of a training).
_GROUPS = _ENTRIES.pop("x-groups") | {"DECISIONS": DECISIONS, "ACTING": ACTING, "RUNTIME": RUNTIME}
# Settings that every stage can read although they change no result, so that no run key has them.
_ALWAYS_NEUTRAL = ("tier", "paths", "tracking")


def _expand_groups(names: tuple[str, ...]) -> tuple[str, ...]:
    """Replace each group of settings among ``names`` by the settings of the group."""
    return tuple(setting for name in names for setting in _GROUPS.get(name, (name,)))


_Names = Annotated[tuple[str, ...], AfterValidator(_expand_groups)]


@dataclass(frozen=True)
class Stage:
    """An entry of ``stages.yaml``: a function of the settings and a :class:`~cdpr.job.Job`, and what decides its
    outputs.

    - ``call``: the function, ``module:name``, or one for each ``training.engine``.
    - ``reads``: the settings that it reads and that enter the run key. Dotted names; a section means all its settings.
    - ``neutral``: the settings that it can also read and that change no result, such as how often to save. They do not
      enter the run key. Reading a setting that is in neither list is an error, so a run key can never miss one.
    - ``options``: the options that distinguish the jobs of the stage. ``{dataset}`` in the name of a setting is
      replaced by the value of that option.
    - ``own_reads``: whether the algorithm or the agent of a job declares further settings that it reads.
    - ``files``: settings that name files of the user, whose contents enter the run key.
    - ``describe``: the function of :mod:`cdpr.pipeline.hidden_inputs` that describes what else decides the outputs.
    - ``experiment``: the MLflow experiment that lists the jobs; ``live``: MLflow shows their metrics while they run.
    """

    call: str | dict[str, str]
    reads: _Names = ()
    neutral: _Names = ()
    options: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    describe: str = ""
    own_reads: Literal["algorithm", "agent", ""] = ""
    experiment: str = PIPELINE
    live: bool = False

    def target(self, settings: Settings) -> str:
        """The function that a job with these settings calls, as ``module:name``."""
        return self.call if isinstance(self.call, str) else self.call[settings.training.engine]

    def hidden(self, experiment: "Experiment", options: Options) -> HiddenInputs:
        """What decides the outputs of a job apart from its settings and input files."""
        return getattr(hidden_inputs, self.describe)(experiment, options) if self.describe else HiddenInputs()

    def parameters(self, settings: Settings, options: Options) -> dict[str, Any]:
        """The settings that decide the outputs of a job, as a JSON value by section. They are part of its run key."""
        return restrict(settings, self._key_settings(settings, options)).model_dump(mode="json")

    def view(self, settings: Settings, options: Options, name: str = "") -> Settings:
        """Restrict the settings to those that a job of this stage can read. ``name`` is the name of the stage, for the
        message about any other setting."""
        neutral = [key.format(**options) for key in (*_ALWAYS_NEUTRAL, *self.neutral)]
        remedy = f"add KEY to `reads` of {name} in src/cdpr/pipeline/stages.yaml, or its run key would miss it"
        return restrict(settings, self._key_settings(settings, options) | expand_keys(neutral), remedy)

    def _key_settings(self, settings: Settings, options: Options) -> set[str]:
        """The dotted names of all settings that enter the run key of a job. Raises SettingsError where an algorithm or
        agent declares a setting that does not exist."""
        reads = [key.format(**options) for key in self.reads]
        neutral = [key.format(**options) for key in self.neutral]
        declared: tuple[str, ...] = ()
        if self.own_reads == "algorithm":
            declared = algorithm_class(settings.training.algorithm).reads
        elif self.own_reads == "agent":
            declared = own_reads(settings, options["run"])
        restrict(settings, declared)  # raises SettingsError for a name that does not exist
        return expand_keys(reads, neutral) | expand_keys(declared)  # single settings: those of `neutral` are left out


# The source text of each module of cdpr.report, by the module's name. The modules themselves are not imported, because
# that takes long, and every job imports this file.
_REPORT_TEXTS = {path.stem: path.read_text("utf-8") for path in sorted(PACKAGE_FOLDER.joinpath("report").glob("*.py"))}
# Finds the names of functions that are stages in such a text: in `def sheet_NAME(settings: Settings, folder: ...)`,
# `def plot_NAME(settings: Settings, job: ...)` or `plot_NAME = ...`, and so for `write_NAME`.
_STAGE_FUNCTION = re.compile(r"^(?:def )?((?:sheet|write|plot)_\w+)(?:\(settings: Settings, (?:job|folder)| = )", re.M)

# The stages by name: first those of cdpr.report, where the function `sheet_NAME` becomes `write_NAME`.
STAGES = {
    name.replace("sheet_", "write_"): Stage(
        f"cdpr.report.{module}:{name}", **_FIGURE if name.startswith("plot_") else _TABLE
    )
    for module, text in _REPORT_TEXTS.items()
    for name in _STAGE_FUNCTION.findall(text)
} | {name: Stage(**entry) for name, entry in _ENTRIES.items()}

# The function of each table, by its stage: it makes the table from the settings and the results folder.
TABLES = {name: stage.call for name, stage in STAGES.items() if ":sheet_" in str(stage.call)}
