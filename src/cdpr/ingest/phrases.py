"""The words by which clinical text is read, kept in ``phrases.yaml``."""

import functools
import re
from collections.abc import Mapping
from typing import Any

from ..files import parse_yaml, shipped_text

_REFERENCE = re.compile(r"\{([a-z_]+)\}")


def phrases(module: str) -> dict[str, Any]:
    """The entries of a module. A text is the alternatives of a regular expression, one or more a line; ``{name}`` in
    it stands for the entry of this name above."""
    table: dict[str, Any] = {}
    for name, entry in _entries()[module].items():
        table[name] = _filled(entry, table)
    return table


def _filled(entry: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(entry, str):
        return _REFERENCE.sub(lambda name: known.get(name[1], name[0]), "|".join(entry.splitlines()))
    if isinstance(entry, list):
        return [_filled(part, known) for part in entry]
    return {name: _filled(part, known) for name, part in entry.items()} if isinstance(entry, dict) else entry


@functools.cache
def _entries() -> dict[str, dict[str, Any]]:
    return parse_yaml(shipped_text(__package__, "phrases.yaml"))
