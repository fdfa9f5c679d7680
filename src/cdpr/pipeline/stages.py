"""The table of stages: the function of each command, the settings that it reads, and those that change nothing.

A rule of ``rules/`` says what a stage needs and makes, and which command ``cdpr STAGE`` it runs; the entry here has the
name of the command. Tables and figures need no entry: every function ``sheet_NAME`` of ``cdpr.report`` is the stage
``write_NAME``, and every function ``plot_NAME`` or ``write_NAME`` there that takes the settings and a job is a stage of
its own name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..agents.build import ACTING, DECISIONS, own_reads
from ..records import PIPELINE
from ..settings import Settings
from ..settings.algorithms import algorithm_class
from ..settings.load import expand_keys, restrict
from ..settings.variants import RUNTIME
from . import hidden_inputs as hidden
from .hidden_inputs import HiddenInputs, Options
from .run_key import PACKAGE_FOLDER

if TYPE_CHECKING:
    from .experiment import Experiment

# Settings of the models that judge and match. They are `neutral` (see :class:`Stage`): they stay out of the run key,
# which has all that decides a verdict from `hidden_inputs`.
_JUDGING = ("judge", "matcher", "models", "governance", "calls")
# Settings that tables and figures print or compute with.
_REPORTING = ("tier", "seeds", "evaluation", "data", "costs", "hospital", "training", "credit", "comparators",
              "experiments", "agents", "models", "judge", "matcher", "serving.program", "serving.models",
              "study.states", *DECISIONS)  # fmt: skip
# Settings that every stage can read although they change no result, so that no run key has them.
_ALWAYS_NEUTRAL = ("tier", "paths", "tracking")
_ENGINES = {"torch": "torch.trainer", "verl": "verl.launch"}  # the module in cdpr.training of each training.engine


@dataclass(frozen=True)
class Stage:
    """One stage: a function of the settings and a :class:`~cdpr.job.Job`, and what decides its outputs.

    - ``call``: the function, ``module:name``, or how to find it from the settings.
    - ``reads``: the settings that it reads and that enter the run key. Dotted names; a section means all its settings.
    - ``neutral``: the settings that it can also read and that change no result, such as how often to save. They do not
      enter the run key. Reading a setting that is in neither list is an error, so a run key can never miss one.
    - ``options``: the options that distinguish the jobs of the stage. ``{dataset}`` in the name of a setting is
      replaced by the value of that option.
    - ``own_reads``: further settings that the algorithm or agent of a job declares.
    - ``files``: settings that name files of the user, whose contents enter the run key.
    - ``hidden``: what else decides the outputs (:mod:`cdpr.pipeline.hidden_inputs`).
    - ``experiment``: the MLflow experiment that lists the jobs; ``live``: MLflow shows their metrics while they run.
    """

    call: str | Callable[[Settings], str]
    reads: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    hidden: Callable[["Experiment", Options], HiddenInputs] = lambda experiment, options: HiddenInputs()
    files: tuple[str, ...] = ()
    own_reads: Callable[[Settings, Options], tuple[str, ...]] = lambda settings, options: ()
    experiment: str = PIPELINE
    live: bool = False

    def target(self, settings: Settings) -> str:
        """The function that a job with these settings calls, as ``module:name``."""
        return self.call if isinstance(self.call, str) else self.call(settings)

    def parameters(self, settings: Settings, options: Options) -> dict[str, Any]:
        """The settings that decide the outputs of a job, as a JSON value by section. They are part of its run key."""
        return restrict(settings, self._key_settings(settings, options)).model_dump(mode="json")

    def view(self, settings: Settings, options: Options, name: str = "") -> Settings:
        """Restrict the settings to those that a job of this stage can read. ``name`` is the name of the stage, for the
        message about any other setting."""
        neutral = [key.format(**options) for key in (*_ALWAYS_NEUTRAL, *self.neutral)]
        remedy = f"add KEY to `reads` of {name} in src/cdpr/pipeline/stages.py, or its run key would miss it"
        return restrict(settings, self._key_settings(settings, options) | expand_keys(neutral), remedy)

    def _key_settings(self, settings: Settings, options: Options) -> set[str]:
        """The dotted names of all settings that enter the run key of a job. Raises SettingsError where an algorithm or
        agent declares a setting that does not exist."""
        reads = [key.format(**options) for key in self.reads]
        neutral = [key.format(**options) for key in self.neutral]
        declared = self.own_reads(settings, options)
        restrict(settings, declared)  # raises SettingsError for a name that does not exist
        return expand_keys(reads, neutral) | expand_keys(declared)  # single settings: those of `neutral` are left out


# The source text of each module of cdpr.report, by the module's name. The modules themselves are not imported, because
# that takes long, and every job imports this file.
_REPORT_TEXTS = {path.stem: path.read_text("utf-8") for path in sorted(PACKAGE_FOLDER.joinpath("report").glob("*.py"))}
# Finds the names of functions that are stages in such a text: in `def sheet_NAME(settings: Settings, folder: ...)`,
# `def plot_NAME(settings: Settings, job: ...)` or `plot_NAME = ...`, and so for `write_NAME`.
_STAGE_FUNCTION = re.compile(r"^(?:def )?((?:sheet|write|plot)_\w+)(?:\(settings: Settings, (?:job|folder)| = )", re.M)


def _report_stage(call: str, describe: Callable[["Experiment", Options], HiddenInputs] | None = None) -> Stage:
    """Make the stage of a table or figure, whose function is ``call`` (``module:sheet_NAME``, ``module:plot_NAME``).
    ``describe`` gives its hidden inputs. By default the paper's numbers are among those of a table, which prints them
    beside ours."""
    describe = describe or (hidden.describe_datasets if ":plot" in call else hidden.describe_table)
    return Stage(call, _REPORTING, ("training.save_every",), hidden=describe)


def _agent_reads(settings: Settings, options: Options) -> tuple[str, ...]:
    """The settings that the agent of a job declares."""
    return own_reads(settings, options["run"])


# The stages by name: first those of cdpr.report, where the function `sheet_NAME` becomes `write_NAME`. Positional
# arguments of Stage are call, reads, neutral, options and hidden.
STAGES = {
    **{name.replace("sheet_", "write_"): _report_stage(f"cdpr.report.{module}:{name}")
       for module, text in _REPORT_TEXTS.items() for name in _STAGE_FUNCTION.findall(text)},
    "make_hospital": Stage("cdpr.hospital.raw_files:make_hospital", ("hospital",), hidden=hidden.describe_hospital),
    "ingest_dataset": Stage(
        "cdpr.ingest.run:ingest_dataset",
        ("data.{dataset}", "data.leaks", "data.train_cases", "data.validation_cases", "data.test_cases"),
        ("data.{dataset}.path",), ("dataset",), hidden.describe_import, files=("data.{dataset}.path",),
    ),
    "build_catalogue": Stage(
        "cdpr.costs.build_catalogue:build_catalogue",
        ("data.fee_schedules.locality", "data.fee_schedules.conversion_factor"), files=("data.fee_schedules",),
    ),
    "map_costs": Stage("cdpr.costs.price:map_costs", ("costs",), options=("dataset",), files=("data.price_overrides",)),
    "write_data_card": Stage(
        "cdpr.report.data_card:write_data_card",
        ("tier", "data.{dataset}"), ("data.{dataset}.path",), ("dataset",), hidden.describe_datasets,
    ),
    "remove_leaks": Stage("cdpr.ingest.draft:remove_leaks", options=("dataset",)),
    "warm_start_policy": Stage(
        "cdpr.training.torch.warm_start:warm_start_policy", ("warm_start", "costs", *DECISIONS), files=("policy.model",)
    ),
    "train_policy": Stage(
        lambda settings: f"cdpr.training.{_ENGINES[settings.training.engine]}:train_policy",
        ("training", "credit", "comparators", "warm_start.cases", *DECISIONS),
        (*RUNTIME, *_JUDGING), ("run",), hidden.describe_training, files=("policy.model",), experiment="cdpr/training",
        own_reads=lambda settings, options: algorithm_class(settings.training.algorithm).reads, live=True,
    ),
    "evaluate_agent": Stage(
        "cdpr.evaluation.evaluate_agent:evaluate_agent",
        ("tier", "evaluation.decodings", "evaluation.seed", "evaluation.max_turn_tokens", "costs",
         "training.temperature", *DECISIONS),
        ("agents", "frameworks", "evaluation.open_cases", *_JUDGING), ("run", "dataset"),
        hidden.describe_evaluation, own_reads=_agent_reads, experiment="cdpr/evaluation",
    ),
    "check_headroom": Stage(
        "cdpr.evaluation.preflight:check_headroom",
        ("utility", "tier", "seeds", "evaluation.decodings", "environment"), hidden=hidden.describe_datasets,
    ),
    "measure_credit_quality": Stage(
        "cdpr.evaluation.decision_credit:measure_credit_quality",
        ("analysis", "credit", "training.group_size", "training.temperature", *DECISIONS), _JUDGING,
        hidden=hidden.describe_credit, files=("policy.model",),
    ),
    "credit_workups": Stage(
        "cdpr.evaluation.decision_credit:credit_workups",
        ("inspector.cases", "credit", "evaluation.decodings", "evaluation.seed", "training.temperature", *DECISIONS),
        _JUDGING, ("run", "dataset"), hidden.describe_credit, files=("policy.model",),
    ),
    "sample_states": Stage(
        "cdpr.study.decisions:sample_states",
        ("study.states", "study.seed", *ACTING), ("agents", "frameworks", *_JUDGING), ("run",),
        hidden.describe_evaluation, own_reads=_agent_reads,
    ),
    "propose_actions": Stage(
        "cdpr.study.decisions:propose_actions",
        ACTING, ("agents", "frameworks", *_JUDGING), ("run",), hidden.describe_evaluation, own_reads=_agent_reads,
    ),
    "make_forms": Stage(
        "cdpr.study.forms:make_forms",
        ("study.methods", "study.raters", "study.merge_identical", "study.seed"),
        ("agents", "models", "serving", "data"), hidden=hidden.describe_forms,
    ),
    "simulate_ratings": Stage("cdpr.study.simulated:simulate_ratings", ("study.seed", "costs"), files=("study.kept",)),
    "analyse_study": Stage(
        "cdpr.study.analysis:analyse_study",
        ("study", "evaluation.bootstrap"), ("study.ratings", "study.kept", "data"), hidden=hidden.describe_study,
        files=("study.kept", "study.ratings"),
    ),
    "write_claims": _report_stage("cdpr.report.ledger.page:write_claims"),
    "write_frames": _report_stage("cdpr.report.results:write_frames", hidden.describe_datasets),
    "write_report": Stage(
        "cdpr.report.report_page:write_report",
        (*_REPORTING, "inspector.runs"), ("training.save_every",), hidden=hidden.describe_page,
    ),
    "write_timings": Stage("cdpr.report.timings:write_timings"),
    "write_inspector": Stage(
        "cdpr.report.inspector.write:write_inspector",
        (*_REPORTING, "inspector"), ("training.save_every", "governance", "calls"), hidden=hidden.describe_inspector,
    ),
}  # fmt: skip

# The function of each table, by its stage: it makes the table from the settings and the results folder.
TABLES = {name: stage.call for name, stage in STAGES.items() if ":sheet_" in str(stage.call)}
