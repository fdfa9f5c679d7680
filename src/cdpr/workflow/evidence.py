"""What tables and figures are made of: which agents on which data sets, and which training runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..results.methods import (
    Method,
    ablation_methods,
    comparator_methods,
    dynamic_methods,
    leak_methods,
    main_methods,
    open_datasets,
    open_methods,
    pictured_methods,
)
from ..settings import AgentEntry, Settings, job_of, project_folder, shown, sweeps
from ..settings.datasets import BENCHMARKS, IN_DOMAIN, controlled_name
from .stage import Evidence, Options

if TYPE_CHECKING:
    from .plan import Plan

_PAPER_FACTS = "workflow/paper"


def of(rows: Callable[[Settings], Sequence[Method]], datasets: Sequence[str]) -> Callable[[Plan], Evidence]:
    """The rows of a table on some data sets."""

    def found(plan: Plan) -> Evidence:
        runs = [run for method in rows(plan.settings) for run in method.runs]
        return Evidence(tuple(dict.fromkeys(plan.evaluations(runs, datasets))))

    return found


main_runs = of(main_methods, BENCHMARKS)
pictured = of(pictured_methods, BENCHMARKS)
sample_case = of(main_methods, [IN_DOMAIN])
ablations = of(ablation_methods, [IN_DOMAIN])
dynamic_vs_static = of(dynamic_methods, [IN_DOMAIN])
leak_control = of(leak_methods, [*BENCHMARKS, *map(controlled_name, BENCHMARKS)])


def open_cases(plan: Plan) -> Evidence:
    """The agents on open cases, which stand in no other table."""
    return of(open_methods, list(open_datasets(plan.settings)))(plan)


def judged_twice(plan: Plan) -> Evidence:
    """The rows of the main table, where a second judge is set."""
    return main_runs(plan) if plan.settings.judge.second else Evidence()


def nothing(plan: Plan) -> Evidence:
    """For what is made of its inputs alone."""
    return Evidence()


def comparators(plan: Plan) -> Evidence:
    """Ways to assign credit, and what their training cost."""
    return of(comparator_methods, [IN_DOMAIN])(plan) | curves("comparators")(plan)


def curves(where: str) -> Callable[[Plan], Evidence]:
    """The training of the variants that feed a figure."""
    return lambda plan: Evidence(training=tuple(plan.trained(*shown(plan.settings, where))))


def swept(where: str, every: bool = False) -> Callable[[Plan], Evidence]:
    """The points of sweeps, in-domain, each with all seeds that its job is trained with."""

    def found(plan: Plan) -> Evidence:
        points = [name for of_one in sweeps(plan.settings, where, every).values() for name in of_one.values()]
        jobs = dict.fromkeys(job_of(plan.settings, name) for name in points)
        return Evidence(tuple(plan.evaluations(plan.trained(*jobs), [IN_DOMAIN])))

    return found


def inspected(plan: Plan) -> Evidence:
    """The runs that the inspector shows, on every benchmark."""
    return Evidence(tuple(plan.evaluations(plan.settings.inspector.runs)))


def credited(plan: Plan) -> list[tuple[str, str]]:
    """Those of them (run, data set) whose decisions are credited: policies of our own that examine step by step."""
    agents = plan.settings.agents
    own = [run for run in plan.settings.inspector.runs if run not in agents
           or (agents[run].own_policy and agents[run].acts == AgentEntry.model_fields["acts"].default)]  # fmt: skip
    return [(run, dataset) for run, dataset in inspected(plan).evaluations if run in own]


def whole_report(plan: Plan) -> Evidence:
    """Everything behind the tables and figures that the page shows and the ledger judges."""
    found = Evidence()
    for stage in plan.on_page:
        found |= plan.evidence(stage)
    return found


# Digests of what is no input of a rule


def paper_facts(plan: Plan, options: Options) -> dict[str, str]:
    """The paper's figures and claims."""
    return {"paper": plan.digests.digest(str(project_folder() / _PAPER_FACTS))}


def credit_keys(plan: Plan, options: Options) -> dict[str, str]:
    """Keys of the credit that the inspector shows."""
    return {f"credit of {r} on {d}": plan.key("credit_workups", run=r, dataset=d) for r, d in credited(plan)}


def shown_on_page(plan: Plan, options: Options) -> dict[str, str]:
    """Keys of everything that the page shows."""
    parts = {stage: plan.key(stage) for stage in (*plan.on_page, "write_claims")}
    return parts | {f"card of {dataset}": plan.key("write_data_card", dataset=dataset) for dataset in plan.datasets}
