"""Leak guard: a case whose summary names its diagnosis teaches nothing about diagnosing."""

from __future__ import annotations

import re

from ..cases import diagnoses, normalise

_DETAIL = re.compile(r"[,;/(]|\b(?:with|due to|secondary to|complicated by)\b", re.IGNORECASE)


def diagnosis_in_summary(summary: str, diagnosis: str) -> str | None:
    """The name under which the summary states the diagnosis, or None.

    Looked for are the diagnosis, its head (before "with", "due to", a comma), and every alias of it in the
    vocabulary, as whole words. Abbreviations of up to four capitals are matched as written, so that the
    word "pe" in a sentence is not "PE".
    """
    names = {diagnosis, _DETAIL.split(diagnosis, maxsplit=1)[0].strip()}
    for name in tuple(names):
        term = diagnoses().find(name)
        if term is not None:
            names.update((term.name, *term.aliases))
    plain = f" {normalise(summary)} "
    for name in sorted(names):
        if len(name) <= 4 and name.isupper():
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", summary):
                return name
        elif normalise(name) and f" {normalise(name)} " in plain:
            return name
    return None
