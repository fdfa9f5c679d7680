"""Checks that a table declares: what is refused, and the message that says why and what to do."""

import functools
from collections.abc import Mapping
from typing import Any

from .. import escape
from ..files import parse_yaml, shipped_text
from .section import SettingsError


def refuse(package: str, part: str, values: Mapping[str, Any]) -> None:
    """Raise SettingsError for the first entry of ``part`` in the file ``refusals.yaml`` of the package whose condition
    ``if`` is true; the message is ``because``. Both are Jinja over the named ``values`` and the other parts of the
    file. Raises jinja2.UndefinedError for a name that neither has."""
    table, jinja = _read_table(package), escape.environment(escape)
    names = {**table, **values}
    for entry in table[part]:
        if jinja.compile_expression(entry["if"], undefined_to_none=False)(names):
            raise SettingsError(jinja.from_string(entry["because"]).render(names))


@functools.cache
def _read_table(package: str) -> dict[str, Any]:
    """Read the file ``refusals.yaml`` of a package."""
    return parse_yaml(shipped_text(package, "refusals.yaml"))
