"""The form for Label Studio: a labelling configuration, and one file of tasks per rater."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from ..files import write_text
from .blinding import Page
from .presentation import Presentation
from .rubric import rubric


def write(folder: Path, study: str, forms: Mapping[str, Sequence[Page]], presentation: Presentation) -> None:
    """Write ``config.xml`` and ``tasks_<rater>.json``, to be imported into one project per rater."""
    lines = ["<View>", '  <Header value="What is known"/>', '  <Text name="patient" value="$patient"/>',
             '  <Header value="What is proposed"/>', '  <Text name="proposed" value="$proposed"/>']  # fmt: skip
    for dimension in rubric():
        meaning = " ".join(f"{value}: {text}" for value, text in dimension.anchors.items())
        lines.append(f'  <Header value={quoteattr(f"{dimension.title}: {dimension.asks} {meaning}")} size="5"/>')
        lines.append(f'  <Rating name="{dimension.name}" toName="proposed" maxRating="5" required="true"/>')
    lines += ['  <TextArea name="comment" toName="proposed" placeholder="Comment" rows="2"/>', "</View>"]
    write_text(folder / "config.xml", "\n".join(lines) + "\n")
    for rater, pages in forms.items():
        tasks = [{"data": {"study": study, "rater": rater, "code": card.code, "patient": presentation.patient(page),
                           "proposed": presentation.proposal(card)}}
                 for page in pages for card in page.cards]  # fmt: skip
        write_text(folder / f"tasks_{rater}.json", json.dumps(tasks, indent=1, ensure_ascii=False) + "\n")
