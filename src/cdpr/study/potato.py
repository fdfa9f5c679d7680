"""The form for Potato (version 2): a configuration and a data file per rater."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from ..files import write_text
from .blinding import Page
from .rubric import rubric
from .shown import Shown


def write(folder: Path, study: str, forms: Mapping[str, Sequence[Page]], shown: Shown) -> None:
    """Write ``<rater>.yaml`` and ``<rater>.jsonl``, one task per rater. The server answers this machine alone; by
    itself Potato would answer the whole network."""
    schemes = [{
        "annotation_type": "likert", "name": dimension.name, "size": 5, "sequential_key_binding": True,
        "description": f"{dimension.title}: {dimension.asks} "
                       + " ".join(f"{value}: {text}" for value, text in dimension.anchors.items()),
        "min_label": "1", "max_label": "5", "label_requirement": {"required": True},
    } for dimension in rubric()]  # fmt: skip
    for rater, pages in forms.items():
        task = {
            "annotation_task_name": f"Study {study}, rater {rater}", "task_dir": ".", "host": "127.0.0.1",
            "data_files": [f"{rater}.jsonl"], "item_properties": {"id_key": "id", "text_key": "text"},
            "output_annotation_dir": f"annotation_output/{rater}",
            "annotation_schemes": [*schemes, {"annotation_type": "text", "name": "comment", "description": "Comment"}],
        }  # fmt: skip
        write_text(folder / f"{rater}.yaml", yaml.safe_dump(task, sort_keys=False, width=120))
        lines = [{"id": card.code, "text": _markup(f"{shown.patient(page)}\n\n{shown.proposal(card)}")}
                 for page in pages for card in page.cards]  # fmt: skip
        write_text(folder / f"{rater}.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _markup(text: str) -> str:
    """Potato shows text as HTML: what a case holds is escaped, its line breaks stay."""
    return html.escape(text).replace("\n", "<br>")
