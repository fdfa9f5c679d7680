"""Where in a reply the answer stands: models that think aloud mark it, each in its own way."""

from __future__ import annotations

import re
from collections.abc import Sequence


def cut_answer(text: str, expressions: Sequence[str]) -> tuple[str, bool]:
    """The answer in ``text``, and whether it was marked as :attr:`~cdpr.settings.ModelEntry.answer` says: it is what
    stands behind the last match of the first expression that is found, or the group of that match. Where nothing is
    marked (a thought was cut off, a server had taken it out already) it is the whole text."""
    for expression in expressions:
        *_, last = [None, *re.finditer(expression, text)]
        if last is not None:
            answer = last[1] if last.re.groups else text[last.end() :]
            return answer.strip(), True
    return text, not expressions
