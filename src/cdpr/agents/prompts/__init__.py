"""What published frameworks ask, in our own words: a text file each, whose prompts stand under their names in
brackets."""

from __future__ import annotations

import functools
import re
from importlib import resources

_NAME = re.compile(r"^\[(\w+)\]\n", re.MULTILINE)


class Prompts:
    """The prompts of ``NAME.txt``; called with a prompt's name and what fills its braces."""

    def __init__(self, name: str):
        self._texts = _read(name)

    def __call__(self, name: str, /, **parts: object) -> str:
        """Raises KeyError for a prompt that is not there, or a brace that nothing fills."""
        return self._texts[name].format(**parts)


@functools.cache
def _read(name: str) -> dict[str, str]:
    text = resources.files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
