"""Variants of an experiment: named changes of the settings, in canonical form.

Two variants whose canonical settings agree are one job: without the process reward CDPR *is* GRPO.
"""

from __future__ import annotations

from typing import Any

from .load import SettingsError, merge, parse_settings
from .schema import Settings

VARIANTS: dict[str, dict[str, Any]] = {
    "grpo": {"training": {"algorithm": "grpo"}},
    "utility_grpo": {"training": {"algorithm": "utility_grpo"}},
    "cdpr": {},
    "cdpr_step": {"credit": {"level": "step"}},
    "vineppo": {"training": {"algorithm": "vineppo"}},
    "gigpo": {"training": {"algorithm": "gigpo"}},
    "all_actions": {"training": {"algorithm": "all_actions"}},
    "without_selection": {"credit": {"select_all": True, "max_states": None}},
    "without_cache": {"credit": {"merge": "none", "cache": {"scope": "off"}}},
    "without_process_reward": {"credit": {"beta": 0.0}},
    "without_lambda_test": {"utility": {"lambda_test": 0.0}},
    "without_lambda_cost": {"utility": {"lambda_cost": 0.0}},
    "without_lambda_na": {"utility": {"lambda_na": 0.0}},
}


def resolve_variant(settings: Settings, name: str) -> Settings:
    """The settings under which a variant is trained, canonical. Raises SettingsError for an unknown name."""
    if name not in VARIANTS:
        raise SettingsError(f"unknown variant {name!r}; known: {', '.join(VARIANTS)}")
    changed = parse_settings(merge(settings.model_dump(), VARIANTS[name]), f"variant {name}")
    return canonical(changed, settings)


def canonical(settings: Settings, base: Settings) -> Settings:
    """Settings with everything that training does not use put back to the default, or to ``base`` where it
    is used for reporting."""
    data = settings.model_dump()
    if settings.training.algorithm == "cdpr" and settings.credit.beta == 0:
        data["training"]["algorithm"] = "grpo"
    if data["training"]["algorithm"] != "cdpr":
        data.pop("credit")
    if data["training"]["algorithm"] in ("cdpr", "grpo"):
        data.pop("comparators")
    if data["training"]["algorithm"] == "grpo":
        data["utility"] = base.utility.model_dump()
    return parse_settings(data)


def job_of(settings: Settings, name: str) -> str:
    """The first variant that trains exactly what ``name`` trains: the name of the one job both share."""
    wanted = resolve_variant(settings, name)
    return next(other for other in VARIANTS if resolve_variant(settings, other) == wanted)
