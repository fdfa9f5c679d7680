"""Finds training algorithms by their name: a file in ``cdpr/training/algorithms``, or a class outside this package.

Modules are imported by name, because settings must not depend on the package ``training``.
"""

import functools
import importlib
import importlib.util
import pkgutil
from typing import Any

from pydantic import ValidationError

from .section import SettingsError

_HOME = "cdpr.training.algorithms"
_CONTRACT = "cdpr.training.algorithm"


@functools.cache
def known_algorithms() -> list[str]:
    """Names of the algorithms that come with the package."""
    package: Any = importlib.util.find_spec(_HOME)
    return sorted(module.name for module in pkgutil.iter_modules(package.submodule_search_locations))


def check_algorithm(name: str) -> str:
    """The same name. Raises SettingsError for a name that is neither known nor an import path. An import path is not
    imported yet."""
    if not _is_outside(name) and name not in known_algorithms():
        raise SettingsError(f"unknown algorithm {name!r}; {_choices()}")
    return name


def algorithm_module(name: str) -> str:
    """The name of the module of an algorithm, whose code is part of the run key of a training."""
    return name.partition(":")[0] if _is_outside(name) else f"{_HOME}.{name}"


def _is_outside(name: str) -> bool:
    """Whether the name is an import path."""
    return "." in name or ":" in name


@functools.cache
def algorithm_class(name: str) -> Any:
    """The class of an algorithm, a subclass of :class:`cdpr.training.algorithm.Algorithm`. ``name`` is that of a file
    in this package, ``package.module`` or ``module:Class``. Raises SettingsError where there is no such class."""
    module_name, chosen = algorithm_module(check_algorithm(name)), name.partition(":")[2]
    contract = importlib.import_module(_CONTRACT).Algorithm
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        raise SettingsError(f"training.algorithm: {name!r}: no module {error.name!r} can be imported; install it or "
                            f"put its folder on PYTHONPATH; {_choices()}") from error  # fmt: skip
    own = [thing for thing in vars(module).values()
           if isinstance(thing, type) and issubclass(thing, contract) and thing.__module__ == module_name]  # fmt: skip
    classes = [thing for thing in own if chosen in ("", thing.__name__)]
    if len(classes) != 1:
        there = ", ".join(thing.__name__ for thing in own) or "none"
        raise SettingsError(f"training.algorithm: {name!r} names no single subclass of {_CONTRACT}.Algorithm in "
                            f"{module_name} (there: {there}); write MODULE:CLASS")  # fmt: skip
    return classes[0]


def algorithm_options(settings: Any) -> Any:
    """``training.options`` as an object of the algorithm's class ``Options``. Raises SettingsError, naming the known
    options, for an unknown option or an invalid value."""
    name, kind = settings.training.algorithm, algorithm_class(settings.training.algorithm).Options
    try:
        return kind.model_validate(settings.training.options)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(["training.options", *map(str, problem["loc"])])
        raise SettingsError(f"{key}: {problem['msg']} (got {problem['input']!r}); the options of {name} are: "
                            f"{', '.join(kind.model_fields) or 'none'}") from error  # fmt: skip


def _choices() -> str:
    """The known algorithms and the form of import paths, for messages."""
    return (f"known: {', '.join(known_algorithms())}; one of your own is named by its import path, such as "
            "my_package.my_rule or my_package.my_rule:MyRule")  # fmt: skip
