"""Regular expressions that are made of words in tables (YAML)."""

import re
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
Rewriting = list[tuple[re.Pattern[str], str]]  # expressions, and what replaces each in turn


def fill(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a table. A text is the alternatives of a regular expression, one or more a line; ``{name}`` in it
    stands for the entry of this name above."""
    table: dict[str, Any] = {}
    for name, entry in entries.items():
        table[name] = _filled(entry, table)
    return table


def _filled(entry: Any, known: Mapping[str, Any]) -> Any:
    """An entry with its placeholders replaced by the ``known`` entries above it."""
    if isinstance(entry, str):
        return _PLACEHOLDER.sub(lambda name: known.get(name[1], name[0]), "|".join(entry.splitlines()))
    if isinstance(entry, list):
        return [_filled(part, known) for part in entry]
    return {name: _filled(part, known) for name, part in entry.items()} if isinstance(entry, dict) else entry


def compile_patterns(texts: Mapping[str, str]) -> SimpleNamespace:
    """Regular expressions by name."""
    return SimpleNamespace(**{name: re.compile(text) for name, text in texts.items()})


def compile_rewriting(rules: Mapping[str, str] | Iterable[tuple[str, str]]) -> Rewriting:
    """A table of expressions and of what replaces them, in its order."""
    return [(re.compile(pattern), text) for pattern, text in (rules.items() if isinstance(rules, Mapping) else rules)]


def rewrite(text: str, rules: Rewriting) -> str:
    """The text after all replacements, each of which sees what the one before made of it."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text
