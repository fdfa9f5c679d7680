"""The table of stages: the function of each command, the settings that it reads, and those that change nothing.

A rule of ``rules/`` says what a stage needs and makes, and which command ``cdpr STAGE`` it runs; the entry here has the
name of the command. Tables and figures need no entry: every function ``write_NAME`` or ``plot_NAME`` of ``cdpr.report``
is a stage.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..agents.build import ACTING, DECISIONS
from ..records import PIPELINE
from ..settings import Settings
from ..settings.algorithms import algorithm_class
from ..settings.load import restrict, without
from ..settings.variants import RUNTIME
from . import sources
from .run_key import package_folder

if TYPE_CHECKING:
    from .experiment import Experiment

Options = Mapping[str, str]

# Settings that several stages read: who judges and matches.
_JUDGED = ("judge", "matcher", "models", "governance", "calls")  # `also` keys what decides of them
_REPORTED = ("tier", "seeds", "evaluation", "data", "costs", "hospital", "training", "credit", "comparators",
             "experiments", "agents", "models", "judge", "matcher", "serving.program", "serving.models",
             "study.states", *DECISIONS)  # fmt: skip
_NOWHERE = ("tier", "paths", "tracking")
_RUN_AND_DATASET = ("run", "dataset")


@dataclass(frozen=True)
class Stage:
    """One stage.

    ``call`` (``module:function``) takes the settings and a :class:`~cdpr.job.Job`. It sees only the settings named in
    ``reads``, which enter the run key, and ``ignores``, which do not (where files are, how often to save); reading any
    other setting is an error, so a key can never miss a dependency. ``options`` select one of the stage's jobs;
    placeholders in ``reads`` and ``ignores`` are filled with them. ``own_reads``: what an algorithm or an agent
    declares, beside ``reads``. ``files`` are settings that name files of the user, whose contents enter the key. What
    else decides its outputs: ``also`` (values, and digests of files that are no inputs) and ``more_code`` (modules that
    it imports by name). ``experiment`` is where MLflow lists it; ``live``: MLflow follows its metrics as they come.
    """

    call: str | Callable[[Settings], str]
    reads: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    also: Callable[["Experiment", Options], Mapping[str, Any]] = lambda experiment, options: {}
    more_code: Callable[["Experiment", Options], list[str]] = lambda experiment, options: []
    experiment: str = PIPELINE
    live: bool = False
    own_reads: Callable[[Settings, Options], tuple[str, ...]] = lambda settings, options: ()
    files: tuple[str, ...] = ()

    def target(self, settings: Settings) -> str:
        """``module:function`` of the job with these settings."""
        return self.call if isinstance(self.call, str) else self.call(settings)

    def parameters(self, settings: Settings, options: Options) -> dict[str, Any]:
        """The slice of the settings that decides the outputs, as JSON."""
        return restrict(settings, self._keyed(settings, options)).model_dump(mode="json")

    def view(self, settings: Settings, options: Options, name: str = "") -> Settings:
        """The settings as the stage sees them."""
        ignored = [name.format(**options) for name in (*_NOWHERE, *self.ignores)]
        remedy = f"add KEY to `reads` of {name} in src/cdpr/pipeline/stages.py, or its run key would miss it"
        return restrict(settings, self._keyed(settings, options) | without(ignored, ()), remedy)

    def _keyed(self, settings: Settings, options: Options) -> set[str]:
        reads, ignores = ([name.format(**options) for name in names] for names in (self.reads, self.ignores))
        own = self.own_reads(settings, options)
        restrict(settings, own)  # raises for names of no settings
        return without(reads, ignores) | without(own, ())


_REPORT = {path.stem: path.read_text("utf-8") for path in sorted(package_folder().joinpath("report").glob("*.py"))}
_FUNCTION = re.compile(r"^(?:def )?((?:write|plot)_\w+)(?:\(settings: Settings, job: Job\)| = )", re.MULTILINE)
TABLES = {name: f"cdpr.report.{name}" for name, text in _REPORT.items() if "\ndef sheet(" in text}
"""Modules of the tables that the results page shows whole, by name of the table."""


def _result(call: str) -> Stage:
    """A table or figure; tables print the paper's numbers too."""
    also = sources.data_sets_and_paper if ":write" in call else sources.data_sets
    return Stage(call, _REPORTED, ("training.save_every",), also=also)


STAGES = {
    **{name: _result(f"cdpr.report.{module}:{name}") for module, text in _REPORT.items()
       for name in _FUNCTION.findall(text)},
    "make_hospital": Stage(
        "cdpr.hospital.raw_files:make_hospital",
        ("hospital",), also=sources.writers, more_code=sources.writers_code,
    ),
    "ingest_dataset": Stage(
        "cdpr.ingest.run:ingest_dataset",
        ("data.{dataset}", "data.leaks", "data.train_cases", "data.validation_cases", "data.test_cases"),
        ("data.{dataset}.path",), ("dataset",), sources.data_set, sources.importers_code,
        files=("data.{dataset}.path",),
    ),
    "build_catalogue": Stage(
        "cdpr.costs.build_catalogue:build_catalogue",
        ("data.fee_schedules.locality", "data.fee_schedules.conversion_factor"), files=("data.fee_schedules",),
    ),
    "map_costs": Stage("cdpr.costs.price:map_costs", ("costs",), options=("dataset",), files=("data.price_overrides",)),
    "write_data_card": Stage(
        "cdpr.report.data_card:write_data_card",
        ("tier", "data.{dataset}"), ("data.{dataset}.path",), ("dataset",), sources.data_sets,
    ),
    "remove_leaks": Stage("cdpr.ingest.leaks:remove_leaks", options=("dataset",)),
    "warm_start_policy": Stage(
        "cdpr.training.torch.warm_start:warm_start_policy",
        ("warm_start", "costs", *DECISIONS), files=("policy.model",),
    ),
    "train_policy": Stage(
        sources.engine,
        ("training", "credit", "comparators", "warm_start.cases", *DECISIONS),
        (*RUNTIME, *_JUDGED), ("run",), sources.rule_and_judges, sources.training_code,
        "cdpr/training", live=True,
        own_reads=lambda settings, options: algorithm_class(settings.training.algorithm).reads, files=("policy.model",),
    ),
    "evaluate_agent": Stage(
        "cdpr.evaluation.evaluate_agent:evaluate_agent",
        ("tier", "evaluation.decodings", "evaluation.seed", "evaluation.max_turn_tokens", "costs",
         "training.temperature", *DECISIONS),
        ("agents", "frameworks", "evaluation.open_cases", *_JUDGED), _RUN_AND_DATASET,
        sources.acting_agent, sources.agents_code, "cdpr/evaluation", own_reads=sources.agent_reads,
    ),
    "check_headroom": Stage(
        "cdpr.evaluation.preflight:check_headroom",
        ("utility", "tier", "seeds", "evaluation.decodings", "environment"), also=sources.data_sets,
    ),
    "measure_credit_quality": Stage(
        "cdpr.evaluation.credit_quality:measure_credit_quality",
        ("analysis", "credit", "training.group_size", "training.temperature", *DECISIONS), _JUDGED,
        also=sources.deciding_judges, more_code=sources.credit_code, files=("policy.model",),
    ),
    "plot_credit_quality": Stage(
        "cdpr.report.credit_quality:plot_credit_quality",
        ("tier", "data", "utility.cost_unit_usd"), also=sources.data_sets,
    ),
    "credit_workups": Stage(
        "cdpr.evaluation.credit_workups:credit_workups",
        ("inspector.cases", "credit", "evaluation.decodings", "evaluation.seed", "training.temperature", *DECISIONS),
        _JUDGED, _RUN_AND_DATASET, sources.deciding_judges, sources.credit_code, files=("policy.model",),
    ),
    "sample_states": Stage(
        "cdpr.study.sampling:sample_states",
        ("study.states", "study.seed", *ACTING), ("agents", "frameworks", *_JUDGED), ("run",),
        sources.acting_in_study, sources.agents_code, own_reads=sources.agent_reads,
    ),
    "propose_actions": Stage(
        "cdpr.study.proposals:propose_actions",
        ACTING, ("agents", "frameworks", *_JUDGED), ("run",), sources.acting_in_study, sources.agents_code,
        own_reads=sources.agent_reads,
    ),
    "make_forms": Stage(
        "cdpr.study.forms:make_forms",
        ("study.methods", "study.raters", "study.merge_identical", "study.seed"),
        ("agents", "models", "serving", "data"), also=sources.compared,
    ),
    "simulate_ratings": Stage("cdpr.study.simulated:simulate_ratings", ("study.seed", "costs"), files=("study.kept",)),
    "analyse_study": Stage(
        "cdpr.study.analysis:analyse_study",
        ("study", "evaluation.bootstrap"), ("study.ratings", "study.kept", "data"), also=sources.synthetic,
        files=("study.kept", "study.ratings"),
    ),
    "write_claims": _result("cdpr.report.ledger.page:write_claims"),
    "write_frames": Stage("cdpr.report.frames:write_frames", _REPORTED, ("training.save_every",),
                          also=sources.data_sets),
    "write_report": Stage(
        "cdpr.report.report_page:write_report",
        (*_REPORTED, "inspector.runs"), ("training.save_every",), also=sources.data_sets_and_page,
        more_code=lambda experiment, options: [*TABLES.values()],
    ),
    "write_timings": Stage("cdpr.report.timings:write_timings"),
    "write_inspector": Stage(
        "cdpr.report.inspector.write:write_inspector",
        (*_REPORTED, "inspector"), ("training.save_every", "governance", "calls"), also=sources.data_sets,
        more_code=sources.inspector_code,
    ),
}  # fmt: skip
