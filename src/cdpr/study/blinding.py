"""Who said what is hidden: every rater gets the states and the proposals in an order of its own, under codes that mean
nothing without the key."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from ..seeding import derive_seed
from ..settings.study import Study
from .records import Proposal, StudyError, StudyState

_LETTERS = "ABCDEFGH"


class Card(BaseModel):
    """One proposal as a rater sees it: ``code`` is its name in this rater's form, ``content`` that of the proposal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    content: str
    letter: str


class Page(BaseModel):
    """A state in a rater's form, and its proposals in this rater's order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: str
    cards: tuple[Card, ...]


class Content(BaseModel):
    """What stands on a card."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: str
    reasoning: str
    leaning: str
    kind: str
    action: str
    usd: float | None


class Items(BaseModel):
    """What is rated by whom, without a word of who proposed it: what a form is made of, and what an import is checked
    against. ``forms`` are the pages by rater, ``contents`` the cards' by name. ``study`` is a digest of it all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: str
    forms: dict[str, tuple[Page, ...]]
    contents: dict[str, Content]

    def codes(self) -> dict[str, tuple[str, str]]:
        """Rater and content by code."""
        return {card.code: (rater, card.content) for rater, pages in self.forms.items() for page in pages
                for card in page.cards}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """The sealed part: the runs behind every content, of one ``study``; ``compared`` are all of them, ours first, and
    ``left_out`` what could not be."""

    study: str
    compared: tuple[str, ...]
    runs: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]

    def write(self, path: Path) -> None:
        """Readable by its owner alone."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "study": self.study,
            "compared": list(self.compared),
            "left_out": dict(self.left_out),
            "runs": dict(self.runs),
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        path.chmod(0o600)

    @classmethod
    def open(cls, path: Path, items: Items) -> Key:
        """Raises StudyError for the key of another study, or one that was edited."""
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        key = cls(
            content["study"],
            tuple(content["compared"]),
            {name: tuple(runs) for name, runs in content["runs"].items()},
            content["left_out"],
        )
        if key.study != items.study or set(key.runs) != set(items.contents):
            raise StudyError(f"{path}: this is the key of study {key.study}, the forms are of {items.study}; keep the "
                             "key that was written with them")  # fmt: skip
        return key


def blind(
    plan: Study, states: Sequence[StudyState], proposals: Sequence[Proposal], left_out: Mapping[str, str]
) -> tuple[Items, Key]:
    """Items and key. Raises StudyError where a run has no proposal at a state: then nothing would be paired."""
    at: dict[str, list[Proposal]] = defaultdict(list)
    for proposal in proposals:
        at[proposal.state].append(proposal)
    runs = dict.fromkeys(proposal.run for proposal in proposals)
    contents: dict[str, Content] = {}
    behind: dict[str, tuple[str, ...]] = {}
    of_state: dict[str, list[str]] = defaultdict(list)
    for state in states:
        if {proposal.run for proposal in at[state.digest]} != set(runs):
            raise StudyError(f"state {state.digest}: not every method proposes something; make the proposals again")
        grouped: dict[tuple, list[str]] = defaultdict(list)
        for proposal in sorted(at[state.digest], key=lambda proposal: proposal.run):
            visible = proposal.reasoning, proposal.leaning, proposal.kind, proposal.action, proposal.usd
            grouped[visible if plan.merge_identical else (*visible, proposal.run)].append(proposal.run)
        for n, (visible, those) in enumerate(grouped.items()):
            name = _code("content", plan.seed, state.digest, n)
            reasoning, leaning, kind, action, usd = visible[:5]
            contents[name] = Content(
                state=state.digest, reasoning=reasoning, leaning=leaning, kind=kind, action=action, usd=usd
            )
            behind[name] = tuple(those)
            of_state[state.digest].append(name)
    contents = dict(sorted(contents.items()))  # in an order that tells nothing
    forms = {rater: _form(plan.seed, rater, of_state) for rater in plan.raters}
    seed_text = json.dumps([[(s.digest, s.presentation) for s in states], [c.model_dump() for c in contents.values()],
                       {r: [p.model_dump() for p in pages] for r, pages in forms.items()}])  # fmt: skip
    study = hashlib.sha256(seed_text.encode()).hexdigest()[:12]
    return Items(study=study, forms=forms, contents=contents), Key(
        study, tuple(runs), dict(sorted(behind.items())), left_out
    )


def _form(seed: int, rater: str, of_state: Mapping[str, Sequence[str]]) -> tuple[Page, ...]:
    """States in the rater's own order, and the proposals of each under the rater's own letters."""
    rng, states = np.random.default_rng(derive_seed(seed, "order", rater)), list(of_state)
    pages = []
    for i in rng.permutation(len(states)):
        names = [of_state[states[i]][j] for j in rng.permutation(len(of_state[states[i]]))]
        # A letter first: spreadsheets take codes such as 1e5 for numbers, and write other ones back.
        cards = tuple(Card(code=f"c{_code(rater, seed, name)[1:]}", content=name, letter=letter)
                      for letter, name in zip(_LETTERS, names, strict=False))  # fmt: skip
        pages.append(Page(state=states[i], cards=cards))
    return tuple(pages)


def _code(*parts: object) -> str:
    return f"{derive_seed('study', *parts):016x}"[-12:]
