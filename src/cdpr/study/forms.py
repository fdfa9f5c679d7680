"""Hides the authors of proposals, and writes the raters' forms, one HTML page each, and the protocol of the study.

Every rater gets the states and the proposals in an order of its own, under codes that mean nothing without the key.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..escape import environment, script
from ..files import shipped_text, write_text
from ..job import Job
from ..seeding import derive_seed
from ..settings import BENCHMARKS, DATASETS, Settings, Study, digest
from . import templates
from .methods import all_synthetic, left_out
from .records import Card, Content, Items, Key, Page, Proposal, StudyError, StudyState, dimensions, read_lines, rubric
from .statistics import LEVEL, TARGET, states_needed

SYNTHETIC = "Synthetic cases: they describe no real patient."
# The functions ``finding``, ``reasoning`` and ``action``, which write the words of a form: ``Lactate: not available``,
# ``Order: Lactate (USD 11.59)``.
WORDS = environment(templates).get_template("words.txt").module
_LETTERS = "ABCDEFGH"  # above the proposals on a page; `study.methods` has at most as many names


def make_forms(settings: Settings, job: Job) -> None:
    """Stage ``make_forms``: hide the authors of the proposals, and write the raters' forms, their content (``cards``),
    the key with the authors (``sealed``) and the ``protocol`` of the study, which names the methods that are compared
    and those that are left out."""
    states = read_lines(job.inputs["states"], StudyState)
    proposal_files = sorted(name for name in job.inputs if name.startswith("proposals_"))
    proposals = [proposal for name in proposal_files for proposal in read_lines(job.inputs[name], Proposal)]
    items, key = blind(settings.study, states, proposals, left_out(settings))
    write_text(job.out["cards"], items.model_dump_json() + "\n")
    write_text(job.out["sealed"], key.model_dump_json(indent=1) + "\n")
    job.out["sealed"].chmod(0o600)  # only its owner can read the key
    write_forms(states, items, job.out["forms"], SYNTHETIC if all_synthetic(settings) else "")
    write_text(job.out["protocol"], protocol(settings, states, items, key.compared, key.left_out))
    count = len(items.contents)
    job.metrics["cards"] = count
    print(f"study {items.study}: {len(states)} states, {count} proposals for {', '.join(items.forms)}, "
          f"{len(dimensions()) * count} ratings each")  # fmt: skip


def blind(
    plan: Study, states: Sequence[StudyState], proposals: Sequence[Proposal], left_out: Mapping[str, str]
) -> tuple[Items, Key]:
    """Separate proposals from their authors. Returns what raters see, and the key that has the authors.

    ``plan`` is the section ``study`` of the settings. With ``merge_identical`` equal proposals at a state are shown
    once. ``left_out`` has the reason for each method that is not compared. Raises StudyError where a run has no
    proposal at a state, because its scores could not be paired.
    """
    runs = tuple(dict.fromkeys(proposal.run for proposal in proposals))
    proposal_of = {(proposal.state, proposal.run): proposal for proposal in proposals}
    # By the name of a content, what raters see and the runs that proposed it; by state, the names of its contents.
    contents: dict[str, Content] = {}
    authors: dict[str, tuple[str, ...]] = {}
    names_by_state: dict[str, list[str]] = {}
    for state in [state.digest for state in states]:
        if any((state, run) not in proposal_of for run in runs):
            raise StudyError(f"state {state}: not every method proposes something; make the proposals again")
        runs_by_content: dict[tuple[Content, str], list[str]] = defaultdict(list)
        for run in sorted(runs):
            content = Content(**proposal_of[state, run].model_dump(exclude={"run"}))
            shared_by = "" if plan.merge_identical else run  # with its run in the key, no content is equal to another
            runs_by_content[content, shared_by].append(run)
        names = [_random_code("content", plan.seed, state, number) for number in range(len(runs_by_content))]
        names_by_state[state] = names
        contents |= zip(names, (content for content, _ in runs_by_content), strict=True)
        authors |= zip(names, map(tuple, runs_by_content.values()), strict=True)
    # In the order of their random names, which reveals nothing.
    contents, authors = dict(sorted(contents.items())), dict(sorted(authors.items()))
    forms = {rater: _shuffle_form(plan.seed, rater, names_by_state) for rater in plan.raters}
    # The name of the study comes from all that its raters see.
    items = Items(study="", forms=forms, contents=contents)
    study = digest([items.model_dump(), [state.presentation for state in states]], 12)
    key = Key(study=study, compared=runs, left_out=dict(left_out), runs=authors)
    return items.model_copy(update={"study": study}), key


def _shuffle_form(seed: int, rater: str, names_by_state: Mapping[str, Sequence[str]]) -> tuple[Page, ...]:
    """Make the pages of one rater's form: all states, and the proposals of each, both in a random order of this rater.
    ``names_by_state`` has the names of the contents by the digest of the state."""
    rng = np.random.default_rng(derive_seed(seed, "order", rater))
    pages = []
    for state in rng.permutation(list(names_by_state)).tolist():
        lettered = zip(_LETTERS, rng.permutation(names_by_state[state]).tolist(), strict=False)
        # The c comes first, so that no spreadsheet takes a code such as 1e5 for a number.
        cards = [Card(code=f"c{_random_code(rater, seed, name)[1:]}", content=name, letter=letter)
                 for letter, name in lettered]  # fmt: skip
        pages.append(Page(state=state, cards=tuple(cards)))
    return tuple(pages)


def _random_code(*parts: object) -> str:
    """Compute 12 hexadecimal digits that are fixed by ``parts`` and reveal nothing about them."""
    return f"{derive_seed('study', *parts):016x}"[-12:]


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
    cards = []
    for card in page.cards:
        content = contents[card.content]
        cards.append({"code": card.code, "letter": card.letter, "reasoning": WORDS.reasoning(content),
                      "action": WORDS.action(content)})  # fmt: skip
    findings = [{"head": WORDS.finding(finding), "text": finding.text} for finding in state.found]
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
        dimensions=len(dimensions()), states_needed=states_needed, level=LEVEL, target=TARGET,
        has_known_seed=has_known_seed,
    )  # fmt: skip
