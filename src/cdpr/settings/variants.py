"""Variants of an experiment: named changes of the settings, in canonical form.

Two variants whose canonical settings agree are one job: without the process reward CDPR *is* GRPO, and the default
point of every sweep is CDPR.
"""

import contextlib
import functools
from collections.abc import Iterable
from typing import Any

from .algorithms import algorithm_class, algorithm_options
from .experiments import Sweep, Value, Variant
from .load import merge, parse_settings, restrict, without
from .runs import check_name
from .schema import REGISTRIES, Settings
from .section import SettingsError

# Settings of a training that change no result: how often it saves, and where verl puts what.
RUNTIME = ("training.save_every",
           *(f"training.verl.{name}" for name in ("nodes", "gpus_per_node", "gpu_memory_gb", "offload",
                                                  "rollout_memory", "frozen")))  # fmt: skip
_SHARED = ("training", "environment", "policy", "warm_start.cases")
_OWNED = ("training.normalise", "utility", "credit", "comparators")
_VERL = "training.verl"
"""What every training reads; but of these what its algorithm declares, and the last on the engine verl alone."""


_default = functools.cache(Settings)


@functools.lru_cache(64)
def variants(settings: Settings) -> dict[str, Variant]:
    """All variants by name: those of the experiments file, then the points of its sweeps."""
    by_name = dict(settings.experiments.variants)
    for name, sweep in settings.experiments.sweeps.items():
        for value in _points(settings, sweep):
            point = Variant(label=f"{sweep.symbol} = {value}", change={sweep.setting: value}, seeds=sweep.seeds)
            by_name.setdefault(check_name(_point_name(name, value), f"sweep {name}: the point"), point)
    return by_name


def labels_of(settings: Settings, where: str) -> dict[str, str]:
    """Variants that feed a table or figure, and their labels."""
    return {name: v.label for name, v in settings.experiments.variants.items() if where in v.feeds}


def sweeps(settings: Settings, where: str, every: bool = False) -> dict[str, dict[Value, str]]:
    """Sweeps that feed a figure: of each point the variant that trains it. Those that `experiments.swept` and
    `points` choose, the configuration's own always among them; or ``every`` point."""
    chosen, points = settings.experiments.swept, settings.experiments.points
    by_sweep = {}
    for name, sweep in settings.experiments.sweeps.items():
        if sweep.feeds == where:
            most = points if chosen is None or name in chosen else 0
            values = _points(settings, sweep, None if every else most)
            by_sweep[name] = {value: _point_name(name, value) for value in values}
    return by_sweep


def seeds_of(settings: Settings, name: str) -> list[int]:
    """Seeds with which a variant is trained."""
    return settings.seeds[: _variant(settings, name).seeds]


def _points(settings: Settings, sweep: Sweep, most: int | None = None) -> list[Value]:
    """The values of a sweep in order: the configuration's own and the first ``most`` others."""
    own = value_at(settings, sweep.setting)
    both = [own, *[value for value in sweep.values if value != own][:most]]
    return sorted(both, key=float) if all(isinstance(v, (int, float)) for v in both) else both  # type: ignore[arg-type]


def _point_name(sweep: str, value: Value) -> str:
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


def job_of(settings: Settings, name: str) -> str:
    """The first variant that trains exactly what ``name`` trains: the name of the one job both share. Raises
    SettingsError as :func:`resolve_variant`."""
    jobs = _jobs(settings)
    if name not in jobs:
        resolve_variant(settings, name)  # raises
    return jobs[name]


@functools.lru_cache(64)
def _jobs(settings: Settings) -> dict[str, str]:
    """Of every variant the first that trains the same. A configuration may choose an algorithm under which some
    variants are invalid: they have no job."""
    jobs: dict[str, str] = {}
    first: dict[str, str] = {}
    for name in variants(settings):
        with contextlib.suppress(SettingsError):
            jobs[name] = first.setdefault(resolve_variant(settings, name).model_dump_json(), name)
    return jobs


@functools.lru_cache(1024)
def resolve_variant(settings: Settings, name: str) -> Settings:
    """The settings under which a variant is trained, canonical. Raises SettingsError for an unknown name, for a change
    that is no valid setting, and for one that its training would not notice."""
    changed = _plain(settings)
    change = _variant(settings, name).change
    if "training.algorithm" in change:
        changed["training"]["options"] = {}  # those of another algorithm
    for key, value in change.items():
        nested: Any = value
        for part in reversed(key.split(".")):
            nested = {part: nested}
        changed = merge(changed, nested)
    resolved = parse_settings(changed, f"variant {name}")
    _check_noticed(name, change, resolved)
    return canonical(resolved, settings)


def _plain(settings: Settings) -> dict[str, Any]:
    """Settings as a dictionary. Registries stay as they are: training reads none, and to check them takes longest."""
    return settings.model_dump(exclude=set(REGISTRIES)) | {name: getattr(settings, name) for name in REGISTRIES}


def _variant(settings: Settings, name: str) -> Variant:
    known = variants(settings)
    if name not in known:
        raise SettingsError(f"unknown variant {name!r}; known: {', '.join(known)}")
    return known[name]


def canonical(settings: Settings, base: Settings) -> Settings:
    """Settings with everything that training does not read put back to the default, so that what trains the same thing
    is the same. ``utility`` is put back to that of ``base``: every run reports it."""
    settings = algorithm_class(settings.training.algorithm).canonical(settings)
    data, default = _plain(settings), _default()
    data["training"]["options"] = algorithm_options(settings).model_dump()
    for key in _ignored(_reads(settings)):
        *path, last = key.split(".")
        section = functools.reduce(lambda section, part: section[part], path, data)
        section[last] = value_at(base if path == ["utility"] else default, key)
    return parse_settings(data)


def seen_by_algorithm(settings: Settings) -> Settings:
    """The settings of a training as its algorithm sees them: what every algorithm reads, and what it declares."""
    name, own = settings.training.algorithm, algorithm_class(settings.training.algorithm).reads
    line = f"reads = {(*own, 'KEY')}".replace("'", '"')
    remedy = f"write `{line}` in the class of the algorithm {name}, or its trainings would not change with the setting"
    return restrict(settings, _read(_reads(settings)) - without(RUNTIME, own), remedy)


def _reads(settings: Settings) -> tuple[str, ...]:
    """What this training reads of the settings that not every training reads."""
    own = algorithm_class(settings.training.algorithm).reads
    return (*own, _VERL) if settings.training.engine == "verl" else tuple(own)


@functools.cache
def _ignored(reads: tuple[str, ...]) -> set[str]:
    """The settings that a training which reads these ignores."""
    return without((*_OWNED, _VERL), reads)


@functools.cache
def _read(reads: tuple[str, ...]) -> set[str]:
    """All settings that such a training reads."""
    return without((*_SHARED, *reads), _ignored(reads))


def _check_noticed(name: str, change: Iterable[str], settings: Settings) -> None:
    """Raise SettingsError for a variant that changes what the training with these ``settings`` does not read."""
    training, reads = settings.training, _reads(settings)
    read = _read(reads)
    for key in change:
        if key not in read and not key.startswith("training.options."):
            raise SettingsError(
                f"variant {name} sets {key}, which {training.algorithm} on the engine {training.engine} does not read; "
                f"take the key out, or set training.algorithm to one that reads it (beside {', '.join(_SHARED)} this "
                f"one reads {', '.join(reads)})"
            )
