"""The evaluations and training runs that tables and figures are made of."""

from collections.abc import Callable, Sequence

from ..results import methods
from ..results.methods import Method
from ..settings import AgentEntry, Settings, job_of, labels_of, sweeps
from ..settings.datasets import BENCHMARKS, IN_DOMAIN, controlled_name
from .experiment import Experiment, Product
from .stage import Evidence


def of(rows: Callable[[Settings], Sequence[Method]], datasets: Sequence[str]) -> Callable[[Experiment], Evidence]:
    """The rows of a table on some data sets."""

    def evaluations(experiment: Experiment) -> Evidence:
        runs = [run for method in rows(experiment.settings) for run in method.runs]
        return Evidence(tuple(dict.fromkeys(experiment.evaluations(runs, datasets))))

    return evaluations


main_runs = of(methods.main_methods, BENCHMARKS)
pictured = of(methods.pictured_methods, BENCHMARKS)
sample_case = of(methods.main_methods, [IN_DOMAIN])
ablations = of(methods.ablation_methods, [IN_DOMAIN])
dynamic_vs_static = of(methods.dynamic_methods, [IN_DOMAIN])
nothing = of(lambda settings: [], [])  # of stages that read their inputs alone
leak_control = of(methods.leak_methods, [*BENCHMARKS, *map(controlled_name, BENCHMARKS)])


def open_cases(experiment: Experiment) -> Evidence:
    """The agents on open cases, which stand in no other table."""
    return of(methods.open_methods, list(methods.open_datasets(experiment.settings)))(experiment)


def judged_twice(experiment: Experiment) -> Evidence:
    """The rows of the main table, where a second judge is set."""
    return main_runs(experiment) if experiment.settings.judge.second else Evidence()


def comparators(experiment: Experiment) -> Evidence:
    """Ways to assign credit, and what their training cost."""
    return of(methods.comparator_methods, [IN_DOMAIN])(experiment) | curves("comparators")(experiment)


frontier = of(methods.frontier_methods, BENCHMARKS)


def frontier_parts(experiment: Experiment) -> Evidence:
    """In-domain evaluations and the training of a rule's parts, and the training of the grid."""
    parts = of(methods.part_methods, [IN_DOMAIN])(experiment)
    return parts | curves("frontier_parts")(experiment) | curves("frontier_grid")(experiment)


def curves(where: str) -> Callable[[Experiment], Evidence]:
    """The training of the variants that feed a figure."""
    return lambda experiment: Evidence(training=tuple(experiment.trained(*labels_of(experiment.settings, where))))


def swept(where: str, every: bool = False) -> Callable[[Experiment], Evidence]:
    """The points of sweeps, in-domain, each with all seeds that its job is trained with."""

    def evaluations(experiment: Experiment) -> Evidence:
        points = [name for of_one in sweeps(experiment.settings, where, every).values() for name in of_one.values()]
        jobs = dict.fromkeys(job_of(experiment.settings, name) for name in points)
        return Evidence(tuple(experiment.evaluations(experiment.trained(*jobs), [IN_DOMAIN])))

    return evaluations


def inspected(experiment: Experiment) -> Evidence:
    """The runs that the inspector shows, on every benchmark."""
    return Evidence(tuple(experiment.evaluations(experiment.settings.inspector.runs)))


def inspected_credit(experiment: Experiment) -> list[Product]:
    """The credit that the inspector shows: of the trained policies among these runs, which examine step by step."""
    agents = experiment.settings.agents
    own = [run for run in experiment.settings.inspector.runs if run not in agents
           or (agents[run].own_policy and agents[run].acts == AgentEntry.model_fields["acts"].default)]  # fmt: skip
    return [Product("credit_workups", "credit", {"run": run, "dataset": dataset})
            for run, dataset in inspected(experiment).evaluations if run in own]  # fmt: skip
