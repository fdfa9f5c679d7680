"""Cost-aware sequential diagnosis: counterfactual diagnostic process rewards (CDPR), trained with GRPO.

The public names are imported on first use: ``import cdpr`` alone loads no other module, so that jobs start fast.
"""

# ruff: noqa: F401

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agents.policy import PolicyAgent
    from .cases import CaseRecord, iterate_records, write_records
    from .costs import price_case
    from .credit.process_reward import ProcessReward
    from .credit.scores import trajectory_score
    from .environment import (
        Agent,
        DiagnosticEnvironment,
        FinalDiagnosis,
        RequestTest,
        State,
        Trajectory,
        Turn,
        render_action,
        run_episode,
    )
    from .evaluation.evaluate_agent import evaluate_cases
    from .ingest.synthetic import synthetic_cases
    from .settings import Settings, load_settings
    from .training.algorithm import Algorithm, Context, Group, GroupAdvantages, repeat_over_decisions
    from .training.torch.loop import train
    from .training.torch.trainer import Trainer
    from .training.torch.warm_start import warm_start
    from .training.training_run import TrainingRun

__version__ = "0.2.0"

PUBLIC = {
    "cdpr.settings": ("Settings", "load_settings"),
    "cdpr.cases": ("CaseRecord", "iterate_records", "write_records"),
    "cdpr.costs": ("price_case",),
    "cdpr.ingest.synthetic": ("synthetic_cases",),
    "cdpr.environment": ("Agent", "DiagnosticEnvironment", "FinalDiagnosis", "RequestTest", "State", "Trajectory",
                         "Turn", "render_action", "run_episode"),
    "cdpr.agents.policy": ("PolicyAgent",),
    "cdpr.evaluation.evaluate_agent": ("evaluate_cases",),
    "cdpr.credit.process_reward": ("ProcessReward",),
    "cdpr.credit.scores": ("trajectory_score",),
    "cdpr.training.training_run": ("TrainingRun",),
    "cdpr.training.torch.trainer": ("Trainer",),
    "cdpr.training.torch.loop": ("train",),
    "cdpr.training.torch.warm_start": ("warm_start",),
    "cdpr.training.algorithm": ("Algorithm", "Context", "Group", "GroupAdvantages", "repeat_over_decisions"),
}  # fmt: skip
"""The public names by their module. docs/reference/api.md documents them."""

__all__ = [name for names in PUBLIC.values() for name in names]


def __getattr__(name: str) -> Any:
    """Import the public name ``name`` on its first use. Raises AttributeError for any other name."""
    for module, names in PUBLIC.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'cdpr' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names of this module for completion, also the public names that are not imported yet."""
    return sorted([*globals(), *__all__])
