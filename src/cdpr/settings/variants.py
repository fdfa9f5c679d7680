"""Variants of an experiment: named changes of the settings, in canonical form.

Two variants whose canonical settings agree are one job: without the process reward CDPR *is* GRPO, and the default
point of every sweep is CDPR.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from .algorithms import algorithm_class
from .experiments import Sweep, Value, Variant
from .load import SettingsError, merge, parse_settings
from .restrict import without
from .schema import Settings

_SHARED = ("training", "environment", "policy", "warm_start.cases")
_OWNED = ("training.normalise", "utility", "credit", "comparators")
_VERL = "training.verl"
"""What every training reads; but of these what its algorithm declares, and the last on the engine verl alone."""


def variants(settings: Settings) -> dict[str, Variant]:
    """All variants by name: those of the experiments file, then the points of its sweeps."""
    by_name = dict(settings.experiments.variants)
    for name, sweep in settings.experiments.sweeps.items():
        for value in _points(settings, sweep):
            point = Variant(label=f"{sweep.symbol} = {value}", change={sweep.setting: value}, seeds=sweep.seeds)
            by_name.setdefault(point_name(name, value), point)
    return by_name


def labels_of(settings: Settings, where: str) -> dict[str, str]:
    """Variants that feed a table or figure, and their labels."""
    return {name: v.label for name, v in settings.experiments.variants.items() if where in v.feeds}


def sweeps(settings: Settings, where: str, every: bool = False) -> dict[str, dict[Value, str]]:
    """Sweeps that feed a figure: of each point the variant that trains it. Those that `experiments.swept` and
    `points` choose, the configuration's own always among them; or ``every`` point."""
    by_sweep = {}
    for name, sweep in settings.experiments.sweeps.items():
        if sweep.feeds == where:
            most = None if every else planned_points(settings, name)
            by_sweep[name] = {value: point_name(name, value) for value in _points(settings, sweep, most)}
    return by_sweep


def planned_points(settings: Settings, sweep: str) -> int | None:
    """How many points of a sweep are chosen beside the configuration's own; None: all."""
    chosen = settings.experiments.swept
    return settings.experiments.points if chosen is None or sweep in chosen else 0


def seeds_of(settings: Settings, name: str) -> list[int]:
    """Seeds with which a variant is trained."""
    return settings.seeds[: _variant(settings, name).seeds]


def _points(settings: Settings, sweep: Sweep, most: int | None = None) -> list[Value]:
    """The values of a sweep in order: the configuration's own and the first ``most`` others."""
    own = value_at(settings, sweep.setting)
    other = [value for value in sweep.values if value != own][:most]
    both = [own, *other]
    return sorted(both, key=float) if all(isinstance(v, (int, float)) for v in both) else both  # type: ignore[arg-type]


def point_name(sweep: str, value: Value) -> str:
    """Name of a point as a variant, fit for a path: ``beta_0.25``."""
    return f"{sweep}_{value:g}" if isinstance(value, float) else f"{sweep}_{value}".lower()


def value_at(settings: Settings, key: str) -> Any:
    """The setting with this dotted name. Raises SettingsError where there is none."""
    value: Any = settings
    for name in key.split("."):
        if name not in getattr(type(value), "model_fields", ()):
            raise SettingsError(f"{key!r} names no setting; see config/README.md for all keys")
        value = getattr(value, name)
    return value


def resolve_variant(settings: Settings, name: str) -> Settings:
    """The settings under which a variant is trained, canonical. Raises SettingsError for an unknown name, for a change
    that is no valid setting, and for one that its training would not notice."""
    resolved = _resolved(settings.model_dump_json(), name)
    if isinstance(resolved, SettingsError):
        raise resolved
    return resolved


def job_of(settings: Settings, name: str) -> str:
    """The first variant that trains exactly what ``name`` trains: the name of the one job both share. Raises
    SettingsError as :func:`resolve_variant`."""
    resolve_variant(settings, name)
    return _job(settings.model_dump_json(), name)


@functools.lru_cache(maxsize=4096)
def _job(text: str, name: str) -> str:
    own, known = _resolved(text, name), variants(Settings.model_validate_json(text))
    return next(other for other in known if _resolved(text, other) == own)


@functools.lru_cache(maxsize=1024)
def _resolved(text: str, name: str) -> Settings | SettingsError:
    """Canonical settings of a variant of the settings with this JSON, or the error that its use raises. The error is
    raised only on use, because a configuration may choose an algorithm under which other variants are invalid."""
    settings = Settings.model_validate_json(text)
    change = _variant(settings, name).change
    changed = parse_settings(merge(settings.model_dump(), _nested(change)), f"variant {name}")
    return _unnoticed(name, change, changed) or canonical(changed, settings)


def _variant(settings: Settings, name: str) -> Variant:
    known = variants(settings)
    if name not in known:
        raise SettingsError(f"unknown variant {name!r}; known: {', '.join(known)}")
    return known[name]


def canonical(settings: Settings, base: Settings) -> Settings:
    """Settings with everything that training does not read put back to the default, so that what trains the same thing
    is the same. ``utility`` is put back to that of ``base``: every run reports it."""
    settings = algorithm_class(settings.training.algorithm).canonical(settings)
    data, default = settings.model_dump(), Settings()
    for key in without((*_OWNED, _VERL), _reads(settings)):
        *path, last = key.split(".")
        section = functools.reduce(lambda section, part: section[part], path, data)
        section[last] = value_at(base if path == ["utility"] else default, key)
    return parse_settings(data)


def _reads(settings: Settings) -> tuple[str, ...]:
    """What this training reads of the settings that not every training reads."""
    own = algorithm_class(settings.training.algorithm).reads
    return (*own, _VERL) if settings.training.engine == "verl" else tuple(own)


def _unnoticed(name: str, change: Iterable[str], settings: Settings) -> SettingsError | None:
    """What is wrong with a variant that changes what the training with these ``settings`` does not read."""
    training, reads = settings.training, _reads(settings)
    read = without((*_SHARED, *reads), without((*_OWNED, _VERL), reads))
    for key in change:
        if key not in read:
            return SettingsError(
                f"variant {name} sets {key}, which {training.algorithm} on the engine {training.engine} does not read; "
                f"take the key out, or set training.algorithm to one that reads it (beside {', '.join(_SHARED)} this "
                f"one reads {', '.join(reads)})"
            )
    return None


def _nested(change: Mapping[str, Value]) -> dict[str, Any]:
    """Dotted names as nested sections."""
    nested: dict[str, Any] = {}
    for name, value in change.items():
        *path, last = name.split(".")
        functools.reduce(lambda section, part: section.setdefault(part, {}), path, nested)[last] = value
    return nested
