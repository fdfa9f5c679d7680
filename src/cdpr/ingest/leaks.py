"""Which cases cannot be used: something is missing, or the summary names the diagnosis and gives it away."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..cases import diagnoses, normalise
from .summary import says_something

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


def why_unusable(diagnosis: str, summary: str, results: Mapping[str, str], no_history: str | None = None) -> str | None:
    """The funnel's rule that drops a case, or None. ``no_history`` is the importer's own rule, where it found no
    history; without it an empty summary is none."""
    if not says_something(diagnosis):
        return "no diagnosis"
    if no_history or not summary:
        return no_history or "no history"
    if not results:
        return "no examination"
    return "diagnosis stated in the summary" if diagnosis_in_summary(summary, diagnosis) else None
