"""The evaluations and training runs that tables and figures are made of, by stage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..report import methods
from ..report.methods import Method
from ..settings import AgentEntry, Settings, job_of, labels_of, sweeps
from ..settings.datasets import BENCHMARKS, IN_DOMAIN, controlled_name

if TYPE_CHECKING:
    from .experiment import Experiment


@dataclass(frozen=True)
class Evidence:
    """What a table or figure reads below the results folder: evaluations, as (run, data set), and training runs."""

    evaluations: tuple[tuple[str, str], ...] = ()
    training: tuple[str, ...] = ()

    @property
    def runs(self) -> list[str]:
        """All runs, each once: trainings first."""
        return list(dict.fromkeys([*self.training, *(run for run, _ in self.evaluations)]))


_EvidenceOf = Callable[["Experiment"], Evidence]


def of(rows: Callable[[Settings], Sequence[Method]], datasets: Sequence[str]) -> _EvidenceOf:
    """The rows of a table on some data sets."""

    def evaluations(experiment: "Experiment") -> Evidence:
        """The evaluations of all runs of these rows."""
        runs = [run for method in rows(experiment.settings) for run in method.runs]
        return Evidence(tuple(dict.fromkeys(experiment.evaluations(runs, datasets))))

    return evaluations


def curves(where: str) -> _EvidenceOf:
    """The training of the variants that feed a figure."""
    return lambda experiment: Evidence(training=tuple(experiment.trained(*labels_of(experiment.settings, where))))


def swept(where: str, every: bool = False) -> _EvidenceOf:
    """The points of sweeps, in-domain, each with all seeds that its job is trained with."""

    def evaluations(experiment: "Experiment") -> Evidence:
        points = [name for of_one in sweeps(experiment.settings, where, every).values() for name in of_one.values()]
        jobs = dict.fromkeys(job_of(experiment.settings, name) for name in points)
        return Evidence(tuple(experiment.evaluations(experiment.trained(*jobs), [IN_DOMAIN])))

    return evaluations


def inspected(experiment: "Experiment") -> Evidence:
    """The runs that the inspector shows, on every benchmark."""
    return Evidence(tuple(experiment.evaluations(experiment.settings.inspector.runs)))


def inspected_credit(experiment: "Experiment") -> list[tuple[str, str]]:
    """The runs and data sets whose credit the inspector shows: those of the trained policies among its runs, which
    examine step by step."""
    agents = experiment.settings.agents
    own = [run for run in experiment.settings.inspector.runs if run not in agents
           or (agents[run].own_policy and agents[run].acts == AgentEntry.model_fields["acts"].default)]  # fmt: skip
    return [(run, dataset) for run, dataset in inspected(experiment).evaluations if run in own]


def _all(*parts: _EvidenceOf) -> _EvidenceOf:
    def joined(experiment: "Experiment") -> Evidence:
        """The evaluations and trainings of all parts, each once."""
        evidences = [part(experiment) for part in parts]
        evaluations = dict.fromkeys(pair for part in evidences for pair in part.evaluations)
        return Evidence(tuple(evaluations), tuple(dict.fromkeys(run for part in evidences for run in part.training)))

    return joined


main_runs = of(methods.main_methods, BENCHMARKS)
_frontier = of(methods.frontier_methods, BENCHMARKS)
ON_PAGE: dict[str, _EvidenceOf] = {
    "plot_accuracy_cost": of(methods.pictured_methods, [IN_DOMAIN]),
    "plot_every_agent": of(methods.pictured_methods, BENCHMARKS),
    "write_main_table": main_runs,
    # Agents on open cases, which are in no other table.
    "write_open_cases": lambda e: of(methods.open_methods, [*methods.open_datasets(e.settings)])(e),
    "write_effort": main_runs,
    "write_ablations": of(methods.ablation_methods, [IN_DOMAIN]),
    "write_dynamic_vs_static": of(methods.dynamic_methods, [IN_DOMAIN]),
    "plot_training_efficiency": curves("training_efficiency"),
    "plot_training_time": curves("training_efficiency"),
    "plot_sensitivity": swept("sensitivity"),
    "plot_learning_curves": curves("learning_curves"),
    "write_sample_case": of(methods.main_methods, [IN_DOMAIN]),
}
EVIDENCE: dict[str, _EvidenceOf] = ON_PAGE | {
    "write_comparators": _all(of(methods.comparator_methods, [IN_DOMAIN]), curves("comparators")),
    "write_frontier": _frontier,
    "plot_frontier": _frontier,
    "write_frontier_parts": _all(of(methods.part_methods, [IN_DOMAIN]), curves("frontier_parts"),
                                 curves("frontier_grid")),
    "write_judge_agreement": lambda e: main_runs(e) if e.settings.judge.second else Evidence(),
    "write_leak_control": of(methods.leak_methods, [*BENCHMARKS, *map(controlled_name, BENCHMARKS)]),
    "plot_sensitivity_all": swept("sensitivity", every=True),
    "plot_further_sensitivity": swept("further_sensitivity", every=True),
    "plot_engines": curves("engines"),
    # Each reads one file, which its rule names.
    **dict.fromkeys(("plot_credit_quality", "write_headroom", "plot_expert_study",
                     "write_expert_study"), lambda experiment: Evidence()),
    "write_inspector": inspected,
    **dict.fromkeys(("write_claims", "write_frames", "write_report"), _all(*ON_PAGE.values())),
}  # fmt: skip
