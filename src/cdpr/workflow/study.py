"""Where the inputs of the expert study come from, and what else decides its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..llm.spec import modules_of
from ..settings import Settings
from ..settings.datasets import BENCHMARKS, DATASETS, IN_DOMAIN
from ..settings.models import named_model
from ..settings.study import MOST_METHODS
from ..study.methods import all_synthetic, left_out, study_run, study_runs
from . import sources
from .stage import Made, Need, Options, Source

if TYPE_CHECKING:
    from .plan import Plan

CASES: dict[str, Need] = {name: sources.output_of("map_costs", "cases", dataset=name) for name in BENCHMARKS}
ABOUT_CASES = {name: f"priced cases of {DATASETS[name].label}" for name in BENCHMARKS}


def states(plan: Plan, options: Options) -> Source:
    """The states of the source that the settings name."""
    return Made("sample_states", "states", {"run": _source(plan)})


def _source(plan: Plan) -> str:
    return study_run(plan.settings, plan.settings.study.source)


def kept(need: Need, path: str) -> Need:
    """The same of the study that was handed out, where the settings say where it is kept."""

    def of(plan: Plan, options: Options) -> Source:
        folder = plan.settings.study.kept
        return f"{folder}/{path.format(source=_source(plan))}" if folder else need(plan, options)  # type: ignore[operator]

    return of


def _proposals(position: int) -> Need:
    def of(plan: Plan, options: Options) -> Source:
        runs = list(study_runs(plan.settings).values())
        return Made("propose_actions", "proposals", {"run": runs[position]}) if position < len(runs) else None

    return of


PROPOSALS: dict[str, Need] = {f"proposals_{n + 1}": _proposals(n) for n in range(MOST_METHODS)}


KEPT: dict[str, Need] = {
    "states": kept(states, "states/{source}.jsonl"),
    "cards": kept(sources.output_of("make_forms", "cards"), "cards.json"),
    "sealed": kept(sources.output_of("make_forms", "sealed"), "sealed/key.json"),
}


def ratings(plan: Plan, options: Options) -> Source:
    """The forms that came back; simulated ones where no patient stands behind any case; else none yet."""
    if plan.settings.study.ratings:
        return plan.settings.study.ratings
    return Made("simulate_ratings", "ratings") if all_synthetic(plan.settings) else None


def model_ratings(plan: Plan, options: Options) -> Source:
    return Made("rate_by_model", "ratings") if plan.settings.study.model_rater else None


# What else decides outputs


def actor(plan: Plan, options: Options) -> Mapping[str, Any]:
    """Who acts, as in an evaluation."""
    return sources.acting_agent(plan, {**options, "dataset": IN_DOMAIN})


def actor_files(plan: Plan, options: Options) -> Mapping[str, str]:
    return sources.acting_files(plan, {**options, "dataset": IN_DOMAIN})


def compared(plan: Plan, options: Options) -> Mapping[str, Any]:
    """Why methods are not compared, and that nobody stands behind any case, which the forms say."""
    return {"left_out": left_out(plan.settings), "synthetic": all_synthetic(plan.settings)}


def model_rater(plan: Plan, options: Options) -> Mapping[str, Any]:
    name = plan.settings.study.model_rater
    return {"model": named_model(plan.settings, name).asked()} if name else {}


def model_rater_code(plan: Plan, settings: Settings, options: Options) -> list[str]:
    name = settings.study.model_rater
    return list(modules_of(named_model(plan.settings, name))) if name else []
