"""Variants of an experiment: named changes of the settings, in canonical form.

Two variants whose canonical settings agree are one job: without the process reward CDPR *is* GRPO, and the default
point of every sweep is CDPR.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from .experiments import Sweep, Value, Variant
from .load import SettingsError, merge, parse_settings
from .schema import Settings


def variants(settings: Settings) -> dict[str, Variant]:
    """All variants by name: those of the experiments file, then the points of its sweeps."""
    found = dict(settings.experiments.variants)
    for name, sweep in settings.experiments.sweeps.items():
        for value in points(settings, sweep):
            point = Variant(label=f"{sweep.symbol} = {value}", change={sweep.setting: value}, seeds=sweep.seeds)
            found.setdefault(point_name(name, value), point)
    return found


def shown(settings: Settings, where: str) -> dict[str, str]:
    """Variants that feed a table or figure, and their labels."""
    return {name: v.label for name, v in settings.experiments.variants.items() if where in v.feeds}


def sweeps(settings: Settings, where: str) -> dict[str, dict[Value, str]]:
    """Sweeps that feed a figure: of each point the variant that trains it."""
    chosen = {name: sweep for name, sweep in settings.experiments.sweeps.items() if sweep.feeds == where}
    return {name: {value: point_name(name, value) for value in points(settings, sweep)}
            for name, sweep in chosen.items()}  # fmt: skip


def seeds_of(settings: Settings, name: str) -> list[int]:
    """Seeds with which a variant is trained."""
    return settings.seeds[: _found(variants(settings), name).seeds]


def points(settings: Settings, sweep: Sweep) -> list[Value]:
    """The values of a sweep in order, the configuration's own among them."""
    own = value_at(settings, sweep.setting)
    other = [value for value in sweep.values if value != own][: settings.experiments.points]
    both = [own, *other]
    return sorted(both, key=float) if all(isinstance(v, (int, float)) for v in both) else both  # type: ignore[arg-type]


def point_name(sweep: str, value: Value) -> str:
    """Name of a point as a variant, fit for a path: ``beta_0.25``."""
    return f"{sweep}_{value:g}" if isinstance(value, float) else f"{sweep}_{value}".lower()


def value_at(settings: Settings, key: str) -> Any:
    """The setting with this dotted name. Raises SettingsError where there is none."""
    found: Any = settings
    for name in key.split("."):
        if name not in getattr(type(found), "model_fields", ()):
            raise SettingsError(f"{key!r} names no setting; see config/README.md for all keys")
        found = getattr(found, name)
    return found


def resolve_variant(settings: Settings, name: str) -> Settings:
    """The settings under which a variant is trained, canonical. Raises SettingsError for an unknown name, and for a
    change that is no valid setting."""
    return _found(_resolved(settings.model_dump_json())[0], name)


def job_of(settings: Settings, name: str) -> str:
    """The first variant that trains exactly what ``name`` trains: the name of the one job both share."""
    return _found(_resolved(settings.model_dump_json())[1], name)


def _found(known: Mapping[str, Any], name: str) -> Any:
    if name not in known:
        raise SettingsError(f"unknown variant {name!r}; known: {', '.join(known)}")
    return known[name]


@functools.lru_cache(maxsize=8)
def _resolved(text: str) -> tuple[dict[str, Settings], dict[str, str]]:
    """Of every variant of the settings with this JSON the canonical settings, and the job that trains it."""
    settings = Settings.model_validate_json(text)
    found: dict[str, Settings] = {}
    for name, variant in variants(settings).items():
        changed = merge(settings.model_dump(), _nested(variant.change))
        found[name] = canonical(parse_settings(changed, f"variant {name}"), settings)
    return found, {name: next(other for other in found if found[other] == found[name]) for name in found}


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
    if data["training"]["engine"] != "verl":
        data["training"].pop("verl")
    return parse_settings(data)


def _nested(change: Mapping[str, Value]) -> dict[str, Any]:
    """Dotted names as nested sections."""
    nested: dict[str, Any] = {}
    for name, value in change.items():
        *path, last = name.split(".")
        functools.reduce(lambda section, part: section.setdefault(part, {}), path, nested)[last] = value
    return nested
