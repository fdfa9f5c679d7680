"""Reads the tables of this package, YAML files with expressions in Jinja."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ...escape import environment
from ...files import parse_yaml, shipped_text
from .. import verl as templates


def evaluate(expression: Any, values: Mapping[str, Any]) -> Any:
    """Compute the value of a Jinja ``expression`` over named ``values``; a number stays what it is. Raises
    jinja2.UndefinedError for a name that is not among the values."""
    return _compile(str(expression))(values)


@functools.cache
def _compile(expression: str) -> Callable[[Mapping[str, Any]], Any]:
    """Make a function of named values from a Jinja ``expression``."""
    return environment(templates).compile_expression(expression, undefined_to_none=False)


def add_quantities(quantities: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named ``values`` with the ``quantities`` added: expressions by name, each over the values and the
    quantities before it."""
    known = dict(values)
    for name, expression in quantities.items():
        known[name] = evaluate(expression, known)
    return known


@functools.cache
def read_table(name: str) -> dict[str, Any]:
    """Read the file ``NAME.yaml`` of this package."""
    return parse_yaml(shipped_text(__package__, f"{name}.yaml"))
