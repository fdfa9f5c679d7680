"""Variants of an experiment: named changes of the settings with which a policy is trained.

The settings of a variant have a canonical form, in which everything that its training does not read has its default.
Variants with equal canonical settings are trained once, by one job: without the process reward CDPR *is* GRPO, and
every sweep contains CDPR itself.
"""

import contextlib
import functools
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from .algorithms import algorithm_class, algorithm_options
from .experiments import Sweep, Value, Variant
from .load import expand_keys, known_keys, merge, nest, parse_settings, restrict
from .runs import check_name
from .schema import REGISTRIES, Settings
from .section import SettingsError

# Settings of a training that change no result: how often it saves, and how verl uses machines and memory.
RUNTIME = ("training.save_every",
           *(f"training.verl.{name}" for name in ("nodes", "gpus_per_node", "gpu_memory_gb", "offload",
                                                  "rollout_memory", "frozen")))  # fmt: skip
_SHARED_KEYS = ("training", "environment", "policy", "warm_start.cases")
"""Keys that every training reads, except those of the next two constants."""
_DECLARED_KEYS = ("training.normalise", "utility", "credit", "comparators")
"""Keys that a training reads only where its algorithm declares them."""
_VERL_KEY = "training.verl"
"""The key that a training reads only on the engine verl."""

_default_settings = functools.cache(Settings)  # the settings with all defaults, made once


@functools.lru_cache(64)
def variants(settings: Settings) -> dict[str, Variant]:
    """Collect all variants by name (named changes of the settings, with which policies are trained): those of
    ``experiments.variants``, then one for each value of each sweep in ``experiments.sweeps``, named like ``beta_0.25``.
    A declared variant with such a name replaces that of the sweep."""
    by_name = dict(settings.experiments.variants)
    for name, sweep in settings.experiments.sweeps.items():
        for value in _list_points(settings, sweep):
            point = Variant(label=f"{sweep.symbol} = {value}", change={sweep.setting: value}, seeds=sweep.seeds)
            point_name = check_name(_point_name(name, value), f"sweep {name}: the point")
            by_name.setdefault(point_name, point)
    return by_name


def labels_of(settings: Settings, shown_in: str) -> dict[str, str]:
    """The labels, by name, of the variants that the table or figure ``shown_in`` shows, without those that these
    settings cannot train."""
    entries = settings.experiments.variants.items()
    return {name: v.label for name, v in entries if shown_in in v.feeds and not why_not_trained(settings, name)}


def why_not_trained(settings: Settings, name: str) -> str:
    """Say which setting keeps the variant ``name`` from being trained, because its algorithm requires another value;
    empty where none does. Raises SettingsError for an unknown variant or algorithm."""
    return _describe_unmet(changed_settings(settings, name))


def check_required(settings: Settings) -> None:
    """Raise SettingsError where a setting of a training has another value than the one that its algorithm requires: the
    attribute ``requires`` of the class is a dictionary of values by dotted name, such as
    ``{"training.engine": "torch"}``."""
    if unmet := _describe_unmet(settings):
        raise SettingsError(f"{unmet}; change it, or choose another training.algorithm")


def _describe_unmet(settings: Settings) -> str:
    """Describe the first setting of a training whose value is not the one that its algorithm requires
    (:func:`check_required`); empty where all are."""
    algorithm = algorithm_class(settings.training.algorithm)
    for key, needed in algorithm.requires.items():
        if (value := value_at(settings, key)) != needed:
            return f"{key}: {algorithm.__module__.rpartition('.')[2]} works with {needed} alone, not with {value}"
    return ""


def sweeps(settings: Settings, shown_in: str, every: bool = False) -> dict[str, dict[Value, str]]:
    """Collect the sweeps (several values of one setting, each trained) that the figure ``shown_in`` shows: for each
    sweep, by name, its values and the name of the variant that trains each value.

    The values are the configuration's own value and those that ``experiments.swept`` and ``experiments.points`` choose;
    with ``every`` all values.
    """
    swept, points = settings.experiments.swept, settings.experiments.points
    by_sweep = {}
    for name, sweep in settings.experiments.sweeps.items():
        if sweep.feeds == shown_in:
            # 0 for a sweep that `experiments.swept` leaves out: only the configuration's own value is shown.
            most = points if swept is None or name in swept else 0
            values = _list_points(settings, sweep, None if every else most)
            by_sweep[name] = {value: _point_name(name, value) for value in values}
    return by_sweep


def seeds_of(settings: Settings, name: str) -> list[int]:
    """List the seeds with which the variant ``name`` is trained, the first of ``seeds`` in the settings. Raises
    SettingsError for an unknown variant."""
    return settings.seeds[: _find_variant(settings, name).seeds]


def _list_points(settings: Settings, sweep: Sweep, most: int | None = None) -> list[Value]:
    """List the values of a sweep: the configuration's own value and the first ``most`` others (None: all). Numbers are
    in ascending order; otherwise the own value comes first."""
    own = value_at(settings, sweep.setting)
    others = [value for value in sweep.values if value != own]
    values = [own, *others[:most]]
    are_numbers = all(isinstance(value, (int, float)) for value in values)
    return sorted(values, key=float) if are_numbers else values  # type: ignore[arg-type]


def _point_name(sweep: str, value: Value) -> str:
    """The name of the variant that trains one value of a sweep, safe in a path: ``beta_0.25``, ``fill_strict``."""
    return f"{sweep}_{value:g}" if isinstance(value, float) else f"{sweep}_{value}".lower()


def value_at(settings: Settings, key: str) -> Any:
    """Get the value of the setting or section with the dotted name ``key``. Raises SettingsError where there is
    none."""
    if key not in known_keys():
        raise SettingsError(f"{key!r} names no setting; see config/README.md for all keys")
    return attrgetter(key)(settings)


def job_of(settings: Settings, name: str) -> str:
    """The name of the job that trains the variant ``name``. Variants whose trainings read equal settings share one job,
    named after the first of them. Raises SettingsError as :func:`resolve_variant`."""
    resolve_variant(settings, name)  # raises for a variant that has no job
    return _job_by_variant(settings)[name]


@functools.lru_cache(64)
def _job_by_variant(settings: Settings) -> dict[str, str]:
    """For every variant the name of the training job that it shares with others: the first variant whose training reads
    equal settings. Left out are variants for which :func:`resolve_variant` raises SettingsError, for example because
    the configuration chooses an algorithm that does not read what they change."""
    jobs: dict[str, str] = {}
    first_with: dict[str, str] = {}  # of the settings of a training, as JSON: the first variant that has them
    for name in variants(settings):
        with contextlib.suppress(SettingsError):  # an invalid variant is left out
            resolved = resolve_variant(settings, name).model_dump_json()
            jobs[name] = first_with.setdefault(resolved, name)
    return jobs


@functools.lru_cache(1024)
def resolve_variant(settings: Settings, name: str) -> Settings:
    """Compute the settings with which the variant ``name``, a named change of the settings, is trained: those of the
    configuration with the variant's changes, in :func:`canonical` form. Raises SettingsError for an unknown variant,
    for a change that is no valid setting, and for one that its training does not read."""
    resolved = changed_settings(settings, name)
    _check_changes_are_read(name, _find_variant(settings, name).change, resolved)
    return canonical(resolved, settings)


@functools.lru_cache(1024)
def changed_settings(settings: Settings, name: str) -> Settings:
    """The settings of the configuration with the changes of the variant ``name``. Its algorithm need not be able to
    train with them. Raises SettingsError for an unknown variant, and for a change that is no valid setting."""
    changed = _to_dict(settings)
    change = _find_variant(settings, name).change
    if "training.algorithm" in change:
        changed["training"]["options"] = {}  # they belong to another algorithm
    for key, value in change.items():
        changed = merge(changed, nest(key, value))
    return parse_settings(changed, f"variant {name}")


def _to_dict(settings: Settings) -> dict[str, Any]:
    """The settings as a nested dictionary. The registries of experiments, agents and models stay objects: no training
    reads them, and checking them again takes longest."""
    return settings.model_dump(exclude=set(REGISTRIES)) | {name: getattr(settings, name) for name in REGISTRIES}


def _find_variant(settings: Settings, name: str) -> Variant:
    """Get the variant ``name``, a named change of the settings. Raises SettingsError where there is none."""
    known = variants(settings)
    if name not in known:
        raise SettingsError(f"unknown variant {name!r}; known: {', '.join(known)}")
    return known[name]


def canonical(settings: Settings, base: Settings) -> Settings:
    """Copy the settings of a training, with the default for every setting that it does not read. So trainings that
    differ only in what they do not read have equal canonical settings. Raises SettingsError where a setting has another
    value than the training algorithm requires.

    ``base`` is the configuration without the changes of a variant. Settings of the section ``utility`` that the
    training does not read get the values of ``base`` instead of their defaults, because every run reports the utility.
    """
    algorithm = algorithm_class(settings.training.algorithm)
    check_required(settings)
    settings = algorithm.canonical_settings(settings)
    data, default = _to_dict(settings), _default_settings()
    data["training"]["options"] = algorithm_options(settings).model_dump()
    for key in _unread_keys(_own_keys(settings)):
        source = base if key.startswith("utility.") else default  # where the value comes from
        data = merge(data, nest(key, value_at(source, key)))
    return parse_settings(data)


def restrict_to_algorithm(settings: Settings) -> Settings:
    """Copy the settings of a training so that only two kinds can be read: those that every algorithm reads, and those
    that the class of its algorithm declares in ``reads``. Any other raises UndeclaredSetting, which says what to
    declare."""
    name, own = settings.training.algorithm, algorithm_class(settings.training.algorithm).reads
    line = f"reads = {(*own, 'KEY')}".replace("'", '"')  # the line of Python to write, quoted as this code is
    remedy = f"write `{line}` in the class of the algorithm {name}, or its trainings would not change with the setting"
    # Runtime settings, such as how often a training saves, are for the engine, unless the algorithm declares them.
    undeclared_runtime = expand_keys(RUNTIME, own)
    return restrict(settings, _read_keys(_own_keys(settings)) - undeclared_runtime, remedy)


def _own_keys(settings: Settings) -> tuple[str, ...]:
    """The dotted names that only some trainings read (not in :data:`_SHARED_KEYS`) and this one does: those that its
    algorithm declares (``reads``), and the section of the engine verl if it is used."""
    own = algorithm_class(settings.training.algorithm).reads
    return (*own, _VERL_KEY) if settings.training.engine == "verl" else tuple(own)


@functools.cache
def _unread_keys(own: tuple[str, ...]) -> set[str]:
    """Of the settings that only some trainings read (:data:`_DECLARED_KEYS`, :data:`_VERL_KEY`), those that a training
    does not read. ``own`` are the keys of this kind that it reads (:func:`_own_keys`)."""
    return expand_keys((*_DECLARED_KEYS, _VERL_KEY), own)


@functools.cache
def _read_keys(own: tuple[str, ...]) -> set[str]:
    """All single settings that a training reads. ``own`` are the keys that it reads in addition to
    :data:`_SHARED_KEYS`, which every training reads (:func:`_own_keys`)."""
    return expand_keys((*_SHARED_KEYS, *own), _unread_keys(own))


def _check_changes_are_read(name: str, change: Iterable[str], settings: Settings) -> None:
    """Raise SettingsError where the variant ``name`` changes a setting that its training does not read. ``change`` are
    the dotted names that it changes, ``settings`` the settings with its changes."""
    training, own = settings.training, _own_keys(settings)
    for key in change:
        if key not in _read_keys(own) and not key.startswith("training.options."):
            problem = f"which {training.algorithm} on the engine {training.engine} does not read"
            reads = f"beside {', '.join(_SHARED_KEYS)} this one reads {', '.join(own)}"
            remedy = f"take the key out, or set training.algorithm to one that reads it ({reads})"
            raise SettingsError(f"variant {name} sets {key}, {problem}; {remedy}")
