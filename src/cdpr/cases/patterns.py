"""Regular expressions that are made of words in tables (YAML)."""

import re
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
Rewriting = list[tuple[re.Pattern[str], str]]  # expressions, and what replaces each in turn


def fill(entries: Mapping[str, Any]) -> dict[str, Any]:
    """A table of regular expressions with its placeholders replaced, and the lines of each text joined by ``|``.

    ``{name}`` in a text is replaced by the entry ``name`` above it:
    ``{"side": "left\\nright", "knee": "({side}) knee"}`` becomes
    ``{"side": "left|right", "knee": "(left|right) knee"}``.
    Unknown placeholders stay as they are.
    """
    table: dict[str, Any] = {}
    for name, entry in entries.items():
        table[name] = _filled(entry, table)
    return table


def _filled(entry: Any, known: Mapping[str, Any]) -> Any:
    """One entry of :func:`fill` (a text, or texts in lists and dictionaries), with the entries ``known`` so far."""
    if isinstance(entry, str):
        return _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), "|".join(entry.splitlines()))
    if isinstance(entry, list):
        return [_filled(part, known) for part in entry]
    return {name: _filled(part, known) for name, part in entry.items()} if isinstance(entry, dict) else entry


def compile_patterns(texts: Mapping[str, str]) -> SimpleNamespace:
    """A namespace with one compiled expression per name: ``patterns.side.search(text)``."""
    return SimpleNamespace(**{name: re.compile(text) for name, text in texts.items()})


def compile_rewriting(rules: Mapping[str, str] | Iterable[tuple[str, str]]) -> Rewriting:
    """Pairs of expression and replacement, for :func:`rewrite`, from a table or from pairs of texts."""
    return [(re.compile(pattern), text) for pattern, text in (rules.items() if isinstance(rules, Mapping) else rules)]


def rewrite(text: str, rules: Rewriting) -> str:
    """The text after all replacements of ``rules``, in their order; each works on the result of the one before."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text
