"""Builds regular expressions from tables in YAML files: placeholders are filled, and lists of words become
alternatives."""

import functools
import re
from collections.abc import Collection, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
# Pairs (regular expression, what replaces its matches), in the order of their use. Instead of a replacement a pair may
# have other rules, which are used only on a text in which the expression finds something.
Rules = Collection[tuple[str, Any]]


def fill(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of regular expressions with its placeholders filled, and the lines of each text joined by ``|``.

    ``{name}`` in a text is replaced by the entry ``name`` above it; unknown placeholders stay as they are. For
    example::

        {"side": "left\\nright", "knee": "({side}) knee"}  becomes
        {"side": "left|right", "knee": "(left|right) knee"}
    """
    table: dict[str, Any] = {}
    for name, entry in entries.items():
        table[name] = _fill_entry(entry, table)
    return table


def _fill_entry(entry: Any, known: Mapping[str, Any]) -> Any:
    """Return one entry of a table for :func:`fill` (a text, or texts in lists and dictionaries) with its placeholders
    filled. ``known`` has the entries above it, which are filled already."""
    if isinstance(entry, str):
        return _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), "|".join(entry.splitlines()))
    if isinstance(entry, list):
        return [_fill_entry(part, known) for part in entry]
    return {name: _fill_entry(part, known) for name, part in entry.items()} if isinstance(entry, dict) else entry


# A regular expression is compiled when it is first used: most jobs read no name of an examination, and the hundreds of
# the vocabulary take a tenth of a second.
compiled = functools.cache(re.compile)


class Patterns:
    """Regular expressions by name: ``Patterns({"side": "left|right"}).side.search(text)``."""

    def __init__(self, texts: Mapping[str, str]):
        """Take the ``texts`` of the expressions, by name."""
        self._texts = texts

    def __getattr__(self, name: str) -> re.Pattern[str]:
        """Compile the expression ``name``. Raises AttributeError where there is none."""
        if name not in self._texts:
            raise AttributeError(name)
        return vars(self).setdefault(name, compiled(self._texts[name]))  # from now on found without this method


def any_of(rules: Rules) -> str:
    """Join the expressions of ``rules`` to one that finds something where any of them does, in a fraction of the time.
    They must have neither references to groups nor alternatives outside of groups."""
    # Expressions that begin with \b share one, so that they are tried only where words begin or end.
    at_words = "|".join(pattern[2:] for pattern, _ in rules if pattern.startswith(r"\b"))
    return "|".join([rf"\b(?:{at_words})", *(pattern for pattern, _ in rules if not pattern.startswith(r"\b"))])


def rewrite(text: str, rules: Rules) -> str:
    """Return the text after the replacements of all ``rules``, one after another; each works on the result of the one
    before."""
    for pattern, replacement in rules:
        if isinstance(replacement, str):
            text = compiled(pattern).sub(replacement, text)
        elif compiled(pattern).search(text):
            text = rewrite(text, replacement)
    return text
