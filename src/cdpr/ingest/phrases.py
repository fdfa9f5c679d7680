"""The words by which clinical text is read, kept in ``phrases.yaml``."""

import functools
from importlib import resources
from typing import Any

import yaml


def phrases(module: str) -> dict[str, Any]:
    """The entries of a module: tables and lists as they are, of a text the alternatives of a regular expression."""
    entries = _entries()[module].items()
    return {name: "|".join(entry.splitlines()) if isinstance(entry, str) else entry for name, entry in entries}


@functools.cache
def _entries() -> dict[str, dict[str, Any]]:
    return yaml.safe_load(resources.files(__package__).joinpath("phrases.yaml").read_text(encoding="utf-8"))
