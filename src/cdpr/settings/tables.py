"""Tables with expressions: YAML files of a package whose conditions, numbers and messages are Jinja over named values.
Some declare what is refused, with the message that says why and what to do."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import escape
from ..files import parse_yaml, shipped_text
from .section import SettingsError


@functools.cache
def read_table(package: str, name: str) -> dict[str, Any]:
    """Read the file ``NAME.yaml`` of a package."""
    return parse_yaml(shipped_text(package, f"{name}.yaml"))


def evaluate(expression: Any, values: Mapping[str, Any]) -> Any:
    """Compute the value of a Jinja ``expression`` over named ``values``; a number stays what it is. Raises
    jinja2.UndefinedError for a name that is not among the values."""
    return _compile(str(expression))(values)


@functools.cache
def _compile(expression: str) -> Callable[[Mapping[str, Any]], Any]:
    """Make a function of named values from a Jinja ``expression``."""
    return escape.environment(escape).compile_expression(expression, undefined_to_none=False)


def add_quantities(quantities: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named ``values`` with the ``quantities`` added: expressions by name, each over the values and the
    quantities before it."""
    known = dict(values)
    for name, expression in quantities.items():
        known[name] = evaluate(expression, known)
    return known


def faults(package: str, part: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the message ``because`` of each entry of ``part`` in the file ``refusals.yaml`` of the package whose
    condition ``if`` is true. Both are Jinja over the named ``values`` and the other parts of the file. Raises
    jinja2.UndefinedError for a name that neither has."""
    table = read_table(package, "refusals")
    names = {**table, **values}
    for entry in table[part]:
        if evaluate(entry["if"], names):
            yield escape.environment(escape).from_string(entry["because"]).render(names)


def refuse(package: str, part: str, values: Mapping[str, Any]) -> None:
    """Raise SettingsError with the first message of :func:`faults`, if there is one."""
    for fault in faults(package, part, values):
        raise SettingsError(fault)
