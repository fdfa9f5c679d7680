"""Finds the evaluations and training runs that each table and figure is made of (``evidence.yaml``)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..files import parse_yaml, shipped_text
from ..report.methods import list_methods, open_datasets
from ..settings import BENCHMARKS, IN_DOMAIN, AgentEntry, controlled_name, job_of, labels_of, sweeps, value_at

if TYPE_CHECKING:
    from .experiment import Experiment

_TABLE: dict[str, dict[str, dict[str, Any]]] = parse_yaml(shipped_text(__package__, "evidence.yaml"))
EVIDENCE = _TABLE["on_page"] | _TABLE["elsewhere"]
"""What every table and figure is made of, by the stage that writes it."""


class Evidence(NamedTuple):
    """The results that a table or figure reads: ``evaluations``, each a (run, data set), and ``training``, names of
    training runs such as ``cdpr-seed0``."""

    evaluations: tuple[tuple[str, str], ...] = ()
    training: tuple[str, ...] = ()

    @property
    def runs(self) -> list[str]:
        """The names of all runs, each once: training runs first, then those that are evaluated."""
        return list(dict.fromkeys([*self.training, *(run for run, _ in self.evaluations)]))


def find_evidence(
    experiment: "Experiment", datasets: Sequence[str] = (), methods: str = "", swept: str = "", every: bool = False,
    runs: str = "", trainings: Sequence[str] = (), needs: str = "", whole_page: bool = False,
) -> Evidence:  # fmt: skip
    """Find the results of which a table or figure is made, by its entry in ``evidence.yaml``. That file explains the
    keys of an entry, which are parameters here; without any there are no results."""
    settings = experiment.settings
    if whole_page:
        parts = [experiment.evidence(stage) for stage in _TABLE["on_page"]]
        evaluations = dict.fromkeys(pair for part in parts for pair in part.evaluations)
        return Evidence(tuple(evaluations), tuple(dict.fromkeys(run for part in parts for run in part.training)))
    if needs and not value_at(settings, needs):
        return Evidence()
    groups = {"in_domain": [IN_DOMAIN], "benchmarks": BENCHMARKS, "open": open_datasets(settings),
              "controlled": [controlled_name(dataset) for dataset in BENCHMARKS]}  # fmt: skip
    evaluated: list[str] = value_at(settings, runs) if runs else []
    if methods:
        evaluated = [run for method in list_methods(settings, methods) for run in method.runs]
    if swept:
        points_by_sweep = sweeps(settings, swept, every).values()
        # The variants that are trained: one for all that have equal settings.
        jobs = [job_of(settings, variant) for points in points_by_sweep for variant in points.values()]
        evaluated = experiment.training_runs(*jobs)
    pairs = experiment.evaluations(evaluated, [dataset for group in datasets for dataset in groups[group]])
    trained = [variant for shown_in in trainings for variant in labels_of(settings, shown_in)]
    return Evidence(tuple(dict.fromkeys(pairs)), tuple(experiment.training_runs(*trained)))


def credited_evaluations(experiment: "Experiment") -> list[tuple[str, str]]:
    """List the evaluations, each a (run, data set), whose single decisions the inspector credits: those of our own
    policies, trained or not, that order examinations step by step."""
    step_by_step = AgentEntry.model_fields["acts"].default  # the class PolicyAgent
    # Agents that do not act by our policy, or not step by step. Trained runs are no agents, so they are not here.
    not_ours = {name for name, agent in experiment.settings.agents.items()
                if not agent.own_policy or agent.acts != step_by_step}  # fmt: skip
    inspected = experiment.evidence("write_inspector").evaluations
    return [(run, dataset) for run, dataset in inspected if run not in not_ours]
