"""Builds regular expressions from tables in YAML files: placeholders are filled, and lists of words become
alternatives."""

import re
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
Rewriting = list[tuple[re.Pattern[str], str]]  # expressions, and what replaces each in turn


def fill(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of regular expressions with its placeholders filled, and the lines of each text joined by ``|``.

    ``{name}`` in a text is replaced by the entry ``name`` above it; unknown placeholders stay as they are. For
    example::

        {"side": "left\\nright", "knee": "({side}) knee"}  becomes
        {"side": "left|right", "knee": "(left|right) knee"}
    """
    table: dict[str, Any] = {}
    for name, entry in entries.items():
        table[name] = _filled(entry, table)
    return table


def _filled(entry: Any, known: Mapping[str, Any]) -> Any:
    """Return one entry of a table for :func:`fill` (a text, or texts in lists and dictionaries) with its placeholders
    filled. ``known`` has the entries above it, which are filled already."""
    if isinstance(entry, str):
        return _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), "|".join(entry.splitlines()))
    if isinstance(entry, list):
        return [_filled(part, known) for part in entry]
    return {name: _filled(part, known) for name, part in entry.items()} if isinstance(entry, dict) else entry


def compile_patterns(texts: Mapping[str, str]) -> SimpleNamespace:
    """Compile the regular expressions ``texts``, given by name. Returns a namespace of them:
    ``patterns.side.search(text)``."""
    return SimpleNamespace(**{name: re.compile(text) for name, text in texts.items()})


def compile_rewriting(rules: Mapping[str, str] | Iterable[tuple[str, str]]) -> Rewriting:
    """Compile rules for :func:`rewrite`. ``rules`` are pairs of a regular expression and its replacement, or a
    dictionary of them; returns a list of pairs in the same order."""
    return [(re.compile(pattern), text) for pattern, text in (rules.items() if isinstance(rules, Mapping) else rules)]


def compile_any(rules: Rewriting) -> re.Pattern[str]:
    """One expression that finds something where any of ``rules`` does, in a fraction of the time. Their expressions may
    have no references to groups."""
    return re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in rules))


def rewrite(text: str, rules: Rewriting) -> str:
    """Return the text after the replacements of all ``rules``, one after another; each works on the result of the one
    before."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text
