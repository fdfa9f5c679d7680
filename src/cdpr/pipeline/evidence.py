"""The evaluations and training runs that each table and figure is made of."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from ..report import methods
from ..report.methods import Method
from ..settings import AgentEntry, Settings, job_of, labels_of, sweeps
from ..settings.datasets import BENCHMARKS, IN_DOMAIN, controlled_name

if TYPE_CHECKING:
    from .experiment import Experiment


class Evidence(NamedTuple):
    """The results that a table or figure reads: ``evaluations``, each a (run, data set), and ``training``, names of
    training runs such as ``cdpr-seed0``."""

    evaluations: tuple[tuple[str, str], ...] = ()
    training: tuple[str, ...] = ()

    def __or__(self, other: "Evidence") -> "Evidence":
        """Unite the results of two tables or figures: each evaluation and each training run is listed once."""
        evaluations = dict.fromkeys(self.evaluations + other.evaluations)
        training = dict.fromkeys(self.training + other.training)
        return Evidence(tuple(evaluations), tuple(training))

    @property
    def runs(self) -> list[str]:
        """The names of all runs, each once: training runs first, then those that are evaluated."""
        return list(dict.fromkeys([*self.training, *(run for run, _ in self.evaluations)]))


def find_evaluations(
    experiment: "Experiment", list_methods: Callable[[Settings], Sequence[Method]], datasets: Sequence[str]
) -> Evidence:
    """Find the evaluations on ``datasets`` of all runs of the methods that ``list_methods(settings)`` returns."""
    runs = [run for method in list_methods(experiment.settings) for run in method.runs]
    return Evidence(tuple(dict.fromkeys(experiment.evaluations(runs, datasets))))


def find_trainings(experiment: "Experiment", figure: str) -> Evidence:
    """Find the training runs, with all seeds, of the variants that feed a figure."""
    return Evidence(training=tuple(experiment.training_runs(*labels_of(experiment.settings, figure))))


def find_sweeps(experiment: "Experiment", figure: str, every: bool = False) -> Evidence:
    """Find the in-domain evaluations of the sweeps that a figure shows, with all seeds of each point. ``every``: also
    the points that the settings leave out."""
    points_by_sweep = sweeps(experiment.settings, figure, every).values()
    variants = [variant for points in points_by_sweep for variant in points.values()]
    # The variants that are trained: one for all that have equal settings.
    jobs = dict.fromkeys(job_of(experiment.settings, variant) for variant in variants)
    return Evidence(tuple(experiment.evaluations(experiment.training_runs(*jobs), [IN_DOMAIN])))


def find_inspected(experiment: "Experiment") -> Evidence:
    """Find the evaluations that the inspector shows: its runs on every benchmark."""
    return Evidence(tuple(experiment.evaluations(experiment.settings.inspector.runs)))


def credited_evaluations(experiment: "Experiment") -> list[tuple[str, str]]:
    """List the evaluations, each a (run, data set), whose single decisions the inspector credits: those of our own
    policies, trained or not, that order examinations step by step."""
    step_by_step = AgentEntry.model_fields["acts"].default  # the class PolicyAgent
    # Agents that do not act by our policy, or not step by step. Trained runs are no agents, so they are not here.
    not_ours = {name for name, agent in experiment.settings.agents.items()
                if not agent.own_policy or agent.acts != step_by_step}  # fmt: skip
    return [(run, dataset) for run, dataset in find_inspected(experiment).evaluations if run not in not_ours]


# The benchmarks without the cases whose text gives the diagnosis away.
_CONTROLLED = [controlled_name(dataset) for dataset in BENCHMARKS]
EvidenceFinder = Callable[["Experiment"], Evidence]  # finds what a table or figure shows; below `e` is the experiment

# What the results page shows, by the stage that writes it.
ON_PAGE: dict[str, EvidenceFinder] = {
    "plot_accuracy_cost": lambda e: find_evaluations(e, methods.pictured_methods, [IN_DOMAIN]),
    "plot_every_agent": lambda e: find_evaluations(e, methods.pictured_methods, BENCHMARKS),
    "write_main_table": lambda e: find_evaluations(e, methods.main_methods, BENCHMARKS),
    "write_open_cases": lambda e: find_evaluations(e, methods.open_methods, [*methods.open_datasets(e.settings)]),
    "write_effort": lambda e: find_evaluations(e, methods.main_methods, BENCHMARKS),
    "write_ablations": lambda e: find_evaluations(e, methods.ablation_methods, [IN_DOMAIN]),
    "write_dynamic_vs_static": lambda e: find_evaluations(e, methods.dynamic_methods, [IN_DOMAIN]),
    "plot_training_efficiency": lambda e: find_trainings(e, "training_efficiency"),
    "plot_training_time": lambda e: find_trainings(e, "training_efficiency"),
    "plot_sensitivity": lambda e: find_sweeps(e, "sensitivity"),
    "plot_learning_curves": lambda e: find_trainings(e, "learning_curves"),
    "write_sample_case": lambda e: find_evaluations(e, methods.main_methods, [IN_DOMAIN]),
}


def find_on_page(experiment: "Experiment") -> Evidence:
    """Find the evidence of everything that the results page shows."""
    return reduce(or_, [find(experiment) for find in ON_PAGE.values()])


# What every table and figure is made of, by the stage that writes it.
EVIDENCE: dict[str, EvidenceFinder] = ON_PAGE | {
    "write_comparators": lambda e: (find_evaluations(e, methods.comparator_methods, [IN_DOMAIN])
                                    | find_trainings(e, "comparators")),
    "write_frontier": lambda e: find_evaluations(e, methods.frontier_methods, BENCHMARKS),
    "plot_frontier": lambda e: find_evaluations(e, methods.frontier_methods, BENCHMARKS),
    "write_frontier_parts": lambda e: (find_evaluations(e, methods.part_methods, [IN_DOMAIN])
                                       | find_trainings(e, "frontier_parts") | find_trainings(e, "frontier_grid")),
    "write_judge_agreement": lambda e: ON_PAGE["write_main_table"](e) if e.settings.judge.second else Evidence(),
    "write_leak_control": lambda e: find_evaluations(e, methods.leak_methods, [*BENCHMARKS, *_CONTROLLED]),
    "plot_sensitivity_all": lambda e: find_sweeps(e, "sensitivity", every=True),
    "plot_further_sensitivity": lambda e: find_sweeps(e, "further_sensitivity", every=True),
    "plot_engines": lambda e: find_trainings(e, "engines"),
    "write_inspector": find_inspected,
    **dict.fromkeys(["write_claims", "write_frames", "write_report"], find_on_page),
    # Each of these reads a single file, which its rule names.
    **dict.fromkeys(["plot_credit_quality", "write_headroom", "plot_expert_study", "write_expert_study"],
                    lambda e: Evidence()),
}  # fmt: skip
