"""Hides the authors of proposals. Every rater gets the states and the proposals in an order of its own, under codes
that mean nothing without the key."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from ..seeding import derive_seed
from ..settings import digest
from ..settings.schema import Study
from .records import Content, Proposal, Record, StudyError, StudyState

_LETTERS = "ABCDEFGH"  # above the proposals on a page; `study.methods` has at most as many names


class Card(Record):
    """A proposal in one rater's form.

    - ``code``: its name in this form; every form has another one for the same proposal.
    - ``content``: its name in the whole study (:attr:`Items.contents`).
    - ``letter``: the heading that the rater reads above it, A to H.
    """

    code: str
    content: str
    letter: str


class Page(Record):
    """One state in a rater's form: the digest of the state, and its proposals in the order of this form."""

    state: str
    cards: tuple[Card, ...]


class Items(Record):
    """All that is rated, without authors. Forms are written from these records, and returned ratings checked with them.

    - ``forms``: the pages of each rater, by the rater's name.
    - ``contents``: what each proposal says, by its name in the study.
    - ``study``: the name of the study, a digest of forms, contents and presentations.
    """

    study: str
    forms: dict[str, tuple[Page, ...]]
    contents: dict[str, Content]

    def cards(self, rater: str) -> list[Card]:
        """List the proposals in one rater's form, in the order of the form."""
        return [card for page in self.forms[rater] for card in page.cards]


class Key(Record):
    """The key of a ``study``, which says who proposed what; raters must not see it.

    - ``compared``: all compared runs, ours first.
    - ``left_out``: the reason for each method that could not be compared.
    - ``runs``: the runs that proposed each content, by the name of the content.
    """

    study: str
    compared: tuple[str, ...]
    left_out: dict[str, str]
    runs: dict[str, tuple[str, ...]]

    @classmethod
    def open(cls, path: Path, items: Items) -> Self:
        """Read the key that belongs to ``items`` from the file ``path``. Raises StudyError for the key of another
        study, or one with other contents."""
        key = cls.read(path)
        if key.study != items.study or set(key.runs) != set(items.contents):
            raise StudyError(f"{path}: this is the key of study {key.study}, the forms are of {items.study}; keep the "
                             "key that was written with them")  # fmt: skip
        return key


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
    contents: dict[str, Content] = {}
    authors: dict[str, tuple[str, ...]] = {}  # the runs that proposed each content, by the content's name
    names_by_state: dict[str, list[str]] = {state.digest: [] for state in states}
    for state, names in names_by_state.items():
        if any((state, run) not in proposal_of for run in runs):
            raise StudyError(f"state {state}: not every method proposes something; make the proposals again")
        runs_by_content: dict[tuple[Content, str], list[str]] = defaultdict(list)
        for run in sorted(runs):
            content = Content(**proposal_of[state, run].model_dump(exclude={"run"}))
            shared_by = "" if plan.merge_identical else run  # with its run in the key, no content is equal to another
            runs_by_content[content, shared_by].append(run)
        for number, ((content, _), its_runs) in enumerate(runs_by_content.items()):
            name = _random_code("content", plan.seed, state, number)
            names.append(name)
            contents[name], authors[name] = content, tuple(its_runs)
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
        cards = []
        for letter, name in zip(_LETTERS, rng.permutation(names_by_state[state]).tolist(), strict=False):
            # The c comes first, so that no spreadsheet takes a code such as 1e5 for a number.
            code = "c" + _random_code(rater, seed, name)[1:]
            cards.append(Card(code=code, content=name, letter=letter))
        pages.append(Page(state=state, cards=tuple(cards)))
    return tuple(pages)


def _random_code(*parts: object) -> str:
    """Compute 12 hexadecimal digits that are fixed by ``parts`` and reveal nothing about them."""
    return f"{derive_seed('study', *parts):016x}"[-12:]
