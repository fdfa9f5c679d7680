"""Write the raters' forms, a page of HTML each, and the protocol of the study."""

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ..escape import environment, script
from ..files import write_text
from ..job import Job
from ..settings import Settings
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.schema import Study
from . import templates
from .blinding import Items, Page, blind
from .methods import all_synthetic, left_out
from .records import Content, Finding, Proposal, StudyState, read_lines
from .rubric import dimensions, rubric
from .statistics import LEVEL, TARGET, states_needed

SYNTHETIC = "Synthetic cases: they describe no real patient."
_MISSED = {"unavailable": "not available", "repeat": "asked again", "invalid": "an unreadable order",
           "over_budget": "refused: over the budget"}  # fmt: skip
_SPREADS = (0.5, 0.75, 1.0, 1.25, 1.5)
_MINUTES_PER_CARD = 1.5


def make_forms(settings: Settings, job: Job) -> None:
    """Stage ``make_forms``: blind the proposals, write the forms, their content (``cards``), the key (``sealed``) and
    the ``protocol`` of the study."""
    states = read_lines(job.inputs["states"], StudyState)
    proposal_files = sorted(name for name in job.inputs if name.startswith("proposals_"))
    proposals = [proposal for name in proposal_files for proposal in read_lines(job.inputs[name], Proposal)]
    items, key = blind(settings.study, states, proposals, left_out(settings))
    write_text(job.out["cards"], items.model_dump_json() + "\n")
    key.write(job.out["sealed"])
    write_forms(states, items, job.out["forms"], SYNTHETIC if all_synthetic(settings) else "")
    write_text(job.out["protocol"], protocol(settings, states, items, key.compared, key.left_out))
    job.metrics["cards"] = len(items.contents)
    print(f"study {items.study}: {len(states)} states, {len(items.contents)} proposals to be rated by "
          f"{', '.join(items.forms)}, {5 * len(items.contents)} ratings each")  # fmt: skip


# How a state and a proposal read


def heading(finding: Finding) -> str:
    """Write the heading of a finding: examination, price, and why there is no result."""
    name = finding.examination or "Order"
    if finding.kind == "result":
        return f"{name} (USD {finding.usd:.2f})"
    return f"{name}: {_MISSED[finding.kind]}" if finding.examination else _MISSED[finding.kind].capitalize()


def reasoning(content: Content) -> str:
    """Write the reasoning of a proposal, or the diagnosis that it leans to."""
    if content.reasoning:
        return content.reasoning
    if content.leaning:
        return f"(no words) Working diagnosis: {content.leaning}"
    return "(no words) Working diagnosis: as below" if content.kind == "diagnosis" else "(none was given)"


def action(content: Content) -> str:
    """Write the action of a proposal."""
    if content.kind == "request":
        price = f"USD {content.usd:.2f}" if content.usd else "USD 0.00: obtained already, or free of charge"
        return f"Order: {content.action} ({price})"
    return f"Stop and diagnose: {content.action}" if content.kind == "diagnosis" else "(no readable action)"


# The forms


def write_forms(states: Sequence[StudyState], items: Items, folder: Path, mark: str) -> None:
    """Write a page per rater that works from a file, without a network. ``mark`` is on top of it. No page holds the
    patient's diagnosis."""
    folder.mkdir(parents=True, exist_ok=True)
    by_digest = {state.digest: state for state in states}
    form = resources.files(templates).joinpath("form.html").read_text(encoding="utf-8")
    for rater, pages in items.forms.items():
        content = {
            "study": items.study, "rater": rater, "mark": mark,
            "dimensions": [{"name": d.name, "title": d.title, "asks": d.asks, "anchors": d.anchors} for d in rubric()],
            "pages": [_page(page, by_digest[page.state], items.contents) for page in pages],
        }  # fmt: skip
        write_text(folder / f"{rater}.html", form.replace("__DATA__", script(content)))


def _page(page: Page, state: StudyState, contents: Mapping[str, Content]) -> dict[str, Any]:
    cards = [{"code": card.code, "letter": card.letter, "reasoning": reasoning(contents[card.content]),
              "action": action(contents[card.content])} for card in page.cards]  # fmt: skip
    findings = [{"head": heading(finding), "text": finding.text} for finding in state.found]
    return {"patient": state.presentation, "found": findings, "cards": cards}


# The study on one page, before anything is rated: sample, load, and how many states a difference takes


def protocol(
    settings: Settings, states: Sequence[StudyState], items: Items, runs: Sequence[str], left_out: Mapping[str, str]
) -> str:
    """Write the protocol in Markdown. It names the runs, so raters must not see it."""
    counts = Counter((state.dataset, state.turn) for state in states)
    return environment(templates).get_template("protocol.md").render(
        items=items, runs=runs, left_out=left_out, source=states[0].source, states=len(states), counts=counts,
        turns=sorted({turn for _, turn in counts}), datasets={name: DATASETS[name].label for name in BENCHMARKS},
        cases={name: len({s.note_id for s in states if s.dataset == name}) for name in BENCHMARKS},
        merged=settings.study.merge_identical, few=len(dimensions()), per_card=_MINUTES_PER_CARD,
        spreads=_SPREADS, needed=states_needed, level=LEVEL, target=TARGET,
        known_seed=not all_synthetic(settings) and settings.study.seed == Study.model_fields["seed"].default,
    )  # fmt: skip
