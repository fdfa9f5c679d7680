"""One page of HTML per rater that needs nothing else: it works from a file, without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from ..files import write_text
from . import templates
from .blinding import Page
from .presentation import Presentation, action, heading, reasoning
from .rubric import rubric


def write(path: Path, study: str, rater: str, pages: Sequence[Page], presentation: Presentation, mark: str) -> None:
    """Write a rater's form; ``mark`` stands on top of it."""
    content = {
        "study": study, "rater": rater, "mark": mark,
        "dimensions": [{"name": d.name, "title": d.title, "asks": d.asks, "anchors": d.anchors} for d in rubric()],
        "pages": [_page(page, presentation) for page in pages],
    }  # fmt: skip
    form = resources.files(templates).joinpath("form.html").read_text(encoding="utf-8")
    # No text of a case can end the script element that holds it.
    data = json.dumps(content, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    write_text(path, form.replace("__DATA__", data))


def _page(page: Page, presentation: Presentation) -> dict:
    state = presentation.states[page.state]
    cards = [{"code": card.code, "letter": card.letter, "reasoning": reasoning(content), "action": action(content)}
             for card in page.cards for content in (presentation.content(card),)]  # fmt: skip
    findings = [{"head": heading(finding), "text": finding.text} for finding in state.found]
    return {"patient": state.presentation, "found": findings, "cards": cards}
