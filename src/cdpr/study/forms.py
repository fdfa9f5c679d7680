"""Writes the raters' forms, one HTML page each, and the protocol of the study."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..escape import environment, script
from ..files import shipped_text, write_text
from ..job import Job
from ..settings import Settings
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.schema import Study
from . import templates
from .blinding import Items, Page, blind
from .methods import all_synthetic, left_out
from .records import Content, Proposal, StudyState, dimensions, read_lines, rubric
from .statistics import LEVEL, TARGET, states_needed

SYNTHETIC = "Synthetic cases: they describe no real patient."
# Rows of the table of power: standard deviations of the difference between two methods' mean scores, in points.
_STANDARD_DEVIATIONS = (0.5, 0.75, 1.0, 1.25, 1.5)
_MINUTES_PER_CARD = 1.5  # an estimate, for the plan of a rater's work


def make_forms(settings: Settings, job: Job) -> None:
    """Stage ``make_forms``: hide the authors of the proposals, and write the raters' forms, their content (``cards``),
    the key with the authors (``sealed``) and the ``protocol`` of the study, which names the methods that are compared
    and those that are left out."""
    states = read_lines(job.inputs["states"], StudyState)
    proposal_files = sorted(name for name in job.inputs if name.startswith("proposals_"))
    proposals = [proposal for name in proposal_files for proposal in read_lines(job.inputs[name], Proposal)]
    excluded = left_out(settings)  # methods of `study.methods` that cannot be compared, with the reason
    items, key = blind(settings.study, states, proposals, excluded)
    write_text(job.out["cards"], items.model_dump_json() + "\n")
    write_text(job.out["sealed"], key.model_dump_json(indent=1) + "\n")
    job.out["sealed"].chmod(0o600)  # only its owner can read the key
    write_forms(states, items, job.out["forms"], SYNTHETIC if all_synthetic(settings) else "")
    write_text(job.out["protocol"], protocol(settings, states, items, key.compared, excluded))
    count = len(items.contents)
    job.metrics["cards"] = count
    print(f"study {items.study}: {len(states)} states, {count} proposals for {', '.join(items.forms)}, "
          f"{len(dimensions()) * count} ratings each")  # fmt: skip


@cache
def form_words() -> Any:
    """Return the functions ``finding``, ``reasoning`` and ``action``, which write the words of a form by the template
    ``words.txt``: ``Lactate: not available``, ``Order: Lactate (USD 11.59)``."""
    return environment(templates).get_template("words.txt").module


def write_forms(states: Sequence[StudyState], items: Items, folder: Path, notice: str) -> None:
    """Write the form of each rater to ``FOLDER/RATER.html``, a page that works offline and shows ``notice`` at its top.
    It never holds the patient's diagnosis."""
    state_of = {state.digest: state for state in states}
    form = shipped_text(__package__, "templates", "form.html")
    scales = [dimension._asdict() for dimension in rubric()]
    for rater, pages in items.forms.items():
        page_data = [_page_data(page, state_of[page.state], items.contents) for page in pages]
        data = {"study": items.study, "rater": rater, "mark": notice, "dimensions": scales, "pages": page_data}
        write_text(folder / f"{rater}.html", form.replace("__DATA__", script(data)))


def _page_data(page: Page, state: StudyState, contents: Mapping[str, Content]) -> dict[str, Any]:
    """Collect the texts of one page of a form, as JSON values: the presentation of the patient, the earlier requests
    with their results, and the proposals."""
    words, cards = form_words(), []
    for card in page.cards:
        content = contents[card.content]
        texts = {"reasoning": words.reasoning(content), "action": words.action(content)}
        cards.append({"code": card.code, "letter": card.letter} | texts)
    findings = [{"head": words.finding(finding), "text": finding.text} for finding in state.found]
    return {"patient": state.presentation, "found": findings, "cards": cards}


def protocol(
    settings: Settings, states: Sequence[StudyState], items: Items, runs: Sequence[str], left_out: Mapping[str, str]
) -> str:
    """Write the protocol of the study as Markdown: the sample, the work of each rater, and how many states are needed
    to show a difference. It is read before anything is rated. It names the compared ``runs``, so raters must not see
    it."""
    states_by_turn = Counter((state.dataset, state.turn) for state in states)
    cases = {name: len({state.note_id for state in states if state.dataset == name}) for name in BENCHMARKS}
    # Whoever knows the seed can compute the codes, and so the authors. That matters for real cases, where physicians
    # rate: the protocol then warns of the seed that everyone knows, the default one.
    has_known_seed = settings.study.seed == Study.model_fields["seed"].default and not all_synthetic(settings)
    return environment(templates).get_template("protocol.md").render(
        items=items, runs=runs, left_out=left_out, source=states[0].source, states=len(states),
        states_by_turn=states_by_turn, turns=sorted({turn for _, turn in states_by_turn}), cases=cases,
        datasets={name: DATASETS[name].label for name in BENCHMARKS}, merged=settings.study.merge_identical,
        dimensions=len(dimensions()), minutes_per_card=_MINUTES_PER_CARD, deviations=_STANDARD_DEVIATIONS,
        states_needed=states_needed, level=LEVEL, target=TARGET, has_known_seed=has_known_seed,
    )  # fmt: skip
