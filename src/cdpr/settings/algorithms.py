"""Finds training algorithms by name: a file in ``cdpr/training/algorithms``, or a class of the user's own.

Modules are imported by name, because the package ``settings`` must not depend on the package ``training``.
"""

import functools
import importlib
import importlib.util
import pkgutil
from typing import Any

from pydantic import ValidationError

from .section import SettingsError

_HOME = "cdpr.training.algorithms"  # the package whose modules are the known algorithms
_CONTRACT = "cdpr.training.algorithm"  # the module of their base class Algorithm


@functools.cache
def known_algorithms() -> list[str]:
    """List the names of the algorithms in ``cdpr/training/algorithms`` (such as ``cdpr``, ``grpo``), sorted. No
    algorithm is imported."""
    package: Any = importlib.util.find_spec(_HOME)
    return sorted(module.name for module in pkgutil.iter_modules(package.submodule_search_locations))


def check_algorithm(name: str) -> str:
    """Return the name of an algorithm unchanged. Raises SettingsError for a name that is neither in
    :func:`known_algorithms` nor an import path. An import path is not imported here."""
    if not _is_import_path(name) and name not in known_algorithms():
        raise SettingsError(f"unknown algorithm {name!r}; {_describe_choices()}")
    return name


def algorithm_module(name: str) -> str:
    """The name of the Python module that defines an algorithm: ``cdpr.training.algorithms.grpo`` for ``grpo``. The code
    of this module is part of the run key of a training, so that an edit makes it run again."""
    return name.partition(":")[0] if _is_import_path(name) else f"{_HOME}.{name}"


def _is_import_path(name: str) -> bool:
    """Whether the name of an algorithm is an import path, ``package.module`` or ``module:Class``. Otherwise it is that
    of a file in ``cdpr/training/algorithms``."""
    return "." in name or ":" in name


@functools.cache
def algorithm_class(name: str) -> Any:
    """Import the class of an algorithm, a subclass of :class:`cdpr.training.algorithm.Algorithm`.

    ``name`` is the setting ``training.algorithm``: a name in :func:`known_algorithms`, ``package.module`` or
    ``module:Class``. Raises SettingsError for an unknown name, for a missing module, and for a module that does not
    define exactly one such class.
    """
    module_name = algorithm_module(check_algorithm(name))
    _, _, class_name = name.partition(":")  # empty: the only algorithm of the module
    contract = importlib.import_module(_CONTRACT).Algorithm
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # The module `a.b` is missing if the error names `a` or `a.b`. Any other name is that of a module which the
        # algorithm imports; then the traceback tells more than our message.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise SettingsError(f"training.algorithm: {name!r}: no module {error.name!r} can be imported; install it or "
                            f"put its folder on PYTHONPATH; {_describe_choices()}") from error  # fmt: skip
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    # Algorithms that the module defines itself: it also imports some, such as the class from which its own inherits.
    algorithms = [found for found in classes if issubclass(found, contract) and found.__module__ == module_name]
    matching = [found for found in algorithms if class_name in ("", found.__name__)]
    if len(matching) != 1:
        there = ", ".join(found.__name__ for found in algorithms) or "none"
        raise SettingsError(f"training.algorithm: {name!r} names no single subclass of {_CONTRACT}.Algorithm in "
                            f"{module_name} (there: {there}); write MODULE:CLASS")  # fmt: skip
    return matching[0]


def algorithm_options(settings: Any) -> Any:
    """Check ``training.options``, the settings of one algorithm alone, and return them as an object of the algorithm's
    class ``Options``. Raises SettingsError, naming the known options, for an unknown option or an invalid value."""
    name = settings.training.algorithm
    options_class = algorithm_class(name).Options
    try:
        return options_class.model_validate(settings.training.options)
    except ValidationError as error:
        problem, *_ = error.errors(include_url=False)
        key = ".".join(["training.options", *map(str, problem["loc"])])
        raise SettingsError(f"{key}: {problem['msg']} (got {problem['input']!r}); the options of {name} are: "
                            f"{', '.join(options_class.model_fields) or 'none'}") from error  # fmt: skip


def _describe_choices() -> str:
    """The end of an error message about an unknown algorithm: the known names, and how an algorithm of the user's own
    is named."""
    return (f"known: {', '.join(known_algorithms())}; one of your own is named by its import path, such as "
            "my_package.my_rule or my_package.my_rule:MyRule")  # fmt: skip
