"""Hides the authors of proposals. Every rater gets the states and the proposals in an order of its own, under codes
that mean nothing without the key."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from ..seeding import derive_seed
from ..settings.schema import Study
from .records import Content, Proposal, Record, StudyError, StudyState

_LETTERS = "ABCDEFGH"


class Card(Record):
    """A proposal in one rater's form. ``code`` is its name in this form alone. ``content`` is its name in the study
    (:attr:`Items.contents`). ``letter`` is what the rater reads above it."""

    code: str
    content: str
    letter: str


class Page(Record):
    """One state in a rater's form: the digest of the state, and its proposals in the order of this form."""

    state: str
    cards: tuple[Card, ...]


class Items(Record):
    """All that is rated, without authors. Forms are written from it, and returned ratings are checked with it.

    ``forms`` has the pages of each rater, ``contents`` by name what each proposal says. ``study`` names the study: it
    is a digest of forms, contents and presentations.
    """

    study: str
    forms: dict[str, tuple[Page, ...]]
    contents: dict[str, Content]

    def cards(self, rater: str) -> list[Card]:
        """List the proposals in one rater's form, in the order of the form."""
        return [card for page in self.forms[rater] for card in page.cards]

    def codes(self) -> dict[str, tuple[str, str]]:
        """Return for the code of each proposal in a form its rater and the name of its content."""
        return {card.code: (rater, card.content) for rater in self.forms for card in self.cards(rater)}


class Key(Record):
    """The key of a ``study``, which says who proposed what; raters must not see it.

    ``runs`` lists by the name of a content the runs that proposed it. ``compared`` lists all runs, ours first.
    ``left_out`` has the reason for each method that could not be compared.
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
    by_state_and_run = {(proposal.state, proposal.run): proposal for proposal in proposals}
    contents: dict[str, Content] = {}
    authors: dict[str, tuple[str, ...]] = {}
    names_by_state: dict[str, list[str]] = {state.digest: [] for state in states}
    for state in names_by_state:
        if any((state, run) not in by_state_and_run for run in runs):
            raise StudyError(f"state {state}: not every method proposes something; make the proposals again")
        runs_by_content: dict[tuple[Content, str], list[str]] = {}
        for run in sorted(runs):
            content = Content(**by_state_and_run[state, run].model_dump(exclude={"run"}))
            # Equal proposals have one entry, or one for each run where they are not merged.
            runs_by_content.setdefault((content, "" if plan.merge_identical else run), []).append(run)
        for number, ((content, _), its_runs) in enumerate(runs_by_content.items()):
            name = _random_code("content", plan.seed, state, number)
            names_by_state[state].append(name)
            contents[name], authors[name] = content, tuple(its_runs)
    contents = dict(sorted(contents.items()))  # in the order of their random names, which reveals nothing
    forms = {rater: _shuffle_form(plan.seed, rater, names_by_state) for rater in plan.raters}
    states_shown = [(state.digest, state.presentation) for state in states]
    contents_shown = [content.model_dump() for content in contents.values()]
    forms_shown = {rater: [page.model_dump() for page in pages] for rater, pages in forms.items()}
    study = hashlib.sha256(json.dumps([states_shown, contents_shown, forms_shown]).encode()).hexdigest()[:12]
    key = Key(study=study, compared=runs, left_out=dict(left_out), runs=dict(sorted(authors.items())))
    return Items(study=study, forms=forms, contents=contents), key


def _shuffle_form(seed: int, rater: str, names_by_state: Mapping[str, Sequence[str]]) -> tuple[Page, ...]:
    """Make the pages of one rater's form: all states, and the proposals of each, both in a random order of this rater.
    ``names_by_state`` has the names of the proposals by the digest of the state."""
    rng, states = np.random.default_rng(derive_seed(seed, "order", rater)), list(names_by_state)
    pages = []
    for state_index in rng.permutation(len(states)):
        names = names_by_state[states[state_index]]
        cards = []
        for letter, index in zip(_LETTERS, rng.permutation(len(names)), strict=False):
            # A letter comes first, so that no program takes a code such as 1e5 for a number.
            code = "c" + _random_code(rater, seed, names[index])[1:]
            cards.append(Card(code=code, content=names[index], letter=letter))
        pages.append(Page(state=states[state_index], cards=tuple(cards)))
    return tuple(pages)


def _random_code(*parts: object) -> str:
    """Compute 12 hexadecimal digits that are fixed by ``parts`` and reveal nothing about them."""
    return f"{derive_seed('study', *parts):016x}"[-12:]
