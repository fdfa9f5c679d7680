"""Hide the authors of proposals: every rater gets the states and the proposals in an order of its own, under codes that
mean nothing without the key."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from ..files import write_text
from ..seeding import derive_seed
from ..settings.schema import Study
from .records import Content, Proposal, Record, StudyError, StudyState

_LETTERS = "ABCDEFGH"


class Card(Record):
    """One proposal as a rater sees it: ``code`` is its name in this rater's form, ``content`` that of the proposal."""

    code: str
    content: str
    letter: str


class Page(Record):
    """A state in a rater's form, and its proposals in this rater's order."""

    state: str
    cards: tuple[Card, ...]


class Items(Record):
    """The proposals that each rater rates, without their authors; forms are made of them, and ratings are checked with
    them. ``forms`` are the pages by rater, ``contents`` those of the cards by name; ``study`` is a digest of both."""

    study: str
    forms: dict[str, tuple[Page, ...]]
    contents: dict[str, Content]

    def codes(self) -> dict[str, tuple[str, str]]:
        """Map each code to its rater and content."""
        return {card.code: (rater, card.content) for rater, pages in self.forms.items() for page in pages
                for card in page.cards}  # fmt: skip


class Key(Record):
    """The sealed part of a ``study``: the ``runs`` that proposed each content; ``compared`` are all of them, ours
    first, and ``left_out`` the methods that could not be compared, with the reason."""

    study: str
    compared: tuple[str, ...]
    left_out: dict[str, str]
    runs: dict[str, tuple[str, ...]]

    def write(self, path: Path) -> None:
        """Write the key to a file that only its owner can read."""
        write_text(path, self.model_dump_json(indent=1) + "\n")
        path.chmod(0o600)

    @classmethod
    def open(cls, path: Path, items: Items) -> Self:
        """Read the key. Raises StudyError for the key of another study, or one that was edited."""
        key = cls.read(path)
        if key.study != items.study or set(key.runs) != set(items.contents):
            raise StudyError(f"{path}: this is the key of study {key.study}, the forms are of {items.study}; keep the "
                             "key that was written with them")  # fmt: skip
        return key


def blind(
    plan: Study, states: Sequence[StudyState], proposals: Sequence[Proposal], left_out: Mapping[str, str]
) -> tuple[Items, Key]:
    """Make items and key. Raises StudyError where a run has no proposal at a state: scores could not be paired then."""
    runs = tuple(dict.fromkeys(proposal.run for proposal in proposals))
    at = {(proposal.state, proposal.run): proposal for proposal in proposals}
    contents: dict[str, Content] = {}
    behind: dict[str, tuple[str, ...]] = {}
    of_state: dict[str, list[str]] = {}
    for state in (state.digest for state in states):
        if any((state, run) not in at for run in runs):
            raise StudyError(f"state {state}: not every method proposes something; make the proposals again")
        alike: dict[tuple[Content, str], list[str]] = defaultdict(list)
        for run in sorted(runs):
            content = Content.model_validate(at[state, run].model_dump(exclude={"run"}))
            alike[content, "" if plan.merge_identical else run].append(run)
        of_state[state] = [_code("content", plan.seed, state, n) for n in range(len(alike))]
        contents |= zip(of_state[state], (content for content, _ in alike), strict=True)
        behind |= zip(of_state[state], map(tuple, alike.values()), strict=True)
    contents = dict(sorted(contents.items()))  # in an order that tells nothing
    forms = {rater: _form(plan.seed, rater, of_state) for rater in plan.raters}
    everything = json.dumps([[(s.digest, s.presentation) for s in states], [c.model_dump() for c in contents.values()],
                             {r: [p.model_dump() for p in pages] for r, pages in forms.items()}])  # fmt: skip
    study = hashlib.sha256(everything.encode()).hexdigest()[:12]
    items = Items(study=study, forms=forms, contents=contents)
    return items, Key(study=study, compared=runs, left_out=dict(left_out), runs=dict(sorted(behind.items())))


def _form(seed: int, rater: str, of_state: Mapping[str, Sequence[str]]) -> tuple[Page, ...]:
    """Order the states, and the proposals of each under letters, as this rater alone gets them."""
    rng, states = np.random.default_rng(derive_seed(seed, "order", rater)), list(of_state)
    pages = []
    for i in rng.permutation(len(states)):
        names = [of_state[states[i]][j] for j in rng.permutation(len(of_state[states[i]]))]
        # A letter first, so that no program takes a code such as 1e5 for a number.
        cards = tuple(Card(code=f"c{_code(rater, seed, name)[1:]}", content=name, letter=letter)
                      for letter, name in zip(_LETTERS, names, strict=False))  # fmt: skip
        pages.append(Page(state=states[i], cards=cards))
    return tuple(pages)


def _code(*parts: object) -> str:
    return f"{derive_seed('study', *parts):016x}"[-12:]
