"""What raters fill in: a page of HTML, a spreadsheet, and the files of three survey tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..files import write_text
from ..job import Job
from ..settings import Settings
from . import html_form, label_studio, redcap, spreadsheet
from .blinding import Items, Page, blind
from .methods import all_synthetic, left_out
from .presentation import Presentation
from .protocol import protocol
from .records import Proposal, StudyState, read_lines

SYNTHETIC = "Synthetic cases: no patient stands behind them."


def make_forms(settings: Settings, job: Job) -> None:
    """Stage ``make_forms``: blind the proposals, write the forms, what they hold (``cards``), the key (``sealed``) and
    the ``protocol`` of the study."""
    states = read_lines(job.inputs["states"], StudyState)
    proposal_files = sorted(name for name in job.inputs if name.startswith("proposals_"))
    proposals = [proposal for name in proposal_files for proposal in read_lines(job.inputs[name], Proposal)]
    runs = list(dict.fromkeys(proposal.run for proposal in proposals))
    items, key = blind(settings.study, states, proposals, left_out(settings))
    write_text(job.out["cards"], items.model_dump_json() + "\n")
    key.write(job.out["sealed"])
    presentation = Presentation(states, items)
    write_forms(items, presentation, job.out["forms"], SYNTHETIC if all_synthetic(settings) else "")
    write_text(job.out["protocol"], protocol(settings, states, items, runs, key.left_out))
    cards = {rater: sum(len(page.cards) for page in pages) for rater, pages in items.forms.items()}
    job.metrics["cards"] = len(items.contents)
    print(f"study {items.study}: {len(states)} states, {len(items.contents)} proposals to be rated by "
          f"{', '.join(cards)}, {5 * max(cards.values())} ratings each")  # fmt: skip


def write_forms(items: Items, presentation: Presentation, folder: Path, mark: str) -> None:
    """All forms of a study."""
    folder.mkdir(parents=True, exist_ok=True)
    forms: dict[str, Sequence[Page]] = dict(items.forms)
    for rater, pages in forms.items():
        html_form.write(folder / f"{rater}.html", items.study, rater, pages, presentation, mark)
        spreadsheet.write(folder / f"{rater}.xlsx", items.study, rater, pages, presentation, mark)
    redcap.write(folder / "redcap", items.study, forms, presentation)
    label_studio.write(folder / "label_studio", items.study, forms, presentation)
