"""ToR, Tree of Reasoning (Peng et al. 2025): a doctor per kind of evidence, each with a tree from diseases to findings.

Per state the doctors of chief complaint, laboratory, imaging and pathology each draw a tree from what is known in their
field, discuss the trees, revise their own, and the head of the team decides. With 1, 2, 3 or 4 doctors at work these
are 4, at most 9, at most 16, at most 25 calls.
"""

from __future__ import annotations

import functools
import random
import re
from asyncio import gather
from dataclasses import dataclass

from ..cases import examinations, imaging_words, is_physical, parse_analytes
from ..environment import State, Turn
from ..llm import Model
from ..seeding import derive_seed
from ..settings import Settings
from .framework import Calls, Framework, Prompts, decision, titled, yes_or_no

_ASK = Prompts("tree_of_reasoning")
ROUNDS = TURNS = 1  # of the discussion, and of a round (num_rounds, num_turns)
ADDRESSES = 0.7  # probability with which a doctor in the discussion addresses each of the others (published code)
MAX_TOKENS = 1024  # of one answer; the description names no limit
FIELDS = ("chief complaint", "laboratory", "imaging", "pathology")
_KINDS = {"laboratory": "laboratory", "microbiology": "laboratory", "imaging": "imaging", "physical": "chief complaint"}
_TISSUE = re.compile(r"biops|patholog|histolog|cytolog|immunohisto|frozen section|marrow|pap smear", re.IGNORECASE)


@dataclass(frozen=True)
class Doctor:
    """One at work on a state: the field, and what is known in it (empty: nothing yet)."""

    field: str
    section: str

    @property
    def name(self) -> str:
        return f"Doctor of {self.field}"


class TreeOfReasoning(Framework):
    """Doctors with a tree each."""

    reads = ("frameworks.tree_of_reasoning", "frameworks.temperature")

    def __init__(self, model: Model, settings: Settings, temperature: float):
        super().__init__(model, settings, temperature)
        self.activate_empty = settings.frameworks.tree_of_reasoning.activate_empty
        self.talk_temperature = settings.frameworks.temperature

    @classmethod
    def calls(cls, settings: Settings) -> Calls:
        """Expected is that all doctors join the discussion; a doctor without findings may be at work or not."""

        def count(doctors: int, addresses: float) -> float:
            discussion = TURNS * doctors * (1 + addresses * (doctors - 1)) + doctors
            return doctors + ROUNDS * discussion + 1

        everyone = len(FIELDS)
        few, usual = (everyone, everyone) if settings.frameworks.tree_of_reasoning.activate_empty else (1, 2)
        return Calls((count(few, 0), count(usual, ADDRESSES), count(everyone, 1)), MAX_TOKENS)

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        record, known = self.record(state, forced), sections(state)
        doctors = [Doctor(field, text) for field, text in known.items() if text or self.activate_empty]
        trees = await gather(*(self._draw(doctor, record, seed) for doctor in doctors))
        for r in range(ROUNDS):
            trees = await self._discuss(doctors, trees, derive_seed(seed, "round", r))
        head = _ASK("decide", task=self.task(forced), case=record.strip(), trees=_signed(doctors, trees))
        return decision(await self._say(head, seed, "head"), forced)

    async def _discuss(self, doctors: list[Doctor], trees: list[str], seed: int) -> list[str]:
        """The trees after a round: each is revised by its doctor with what the others said about it."""
        everyone = range(len(doctors))
        feedback: list[list[tuple[str, str]]] = [[] for _ in doctors]
        for t in range(TURNS):
            turn = derive_seed(seed, "turn", t)
            replies = await gather(*(self._address(n, doctors, trees, turn) for n in everyone))
            for n, opinions in enumerate(replies):
                for listener, opinion in opinions.items():
                    feedback[listener].append((doctors[n].name, opinion))
        prompts = [
            _ASK("revise", doctor=doctors[n].name, tree=trees[n], feedback=titled(feedback[n]) or _ASK("no_feedback"))
            for n in everyone
        ]
        return await gather(*(self._say(prompts[n], seed, "revision", n) for n in everyone))

    async def _draw(self, doctor: Doctor, record: str, seed: int) -> str:
        """A doctor's first tree; with nothing to draw, what to examine."""
        if not doctor.section:
            prompt = _ASK("nothing_known", doctor=doctor.name, field=doctor.field, record=record)
            return await self._say(prompt, seed, "tree", doctor.field)
        prompt = _ASK("tree", doctor=doctor.name, field=doctor.field, section=doctor.section)
        return await self._say(prompt, seed, "tree", doctor.field)

    async def _address(self, n: int, doctors: list[Doctor], trees: list[str], seed: int) -> dict[int, str]:
        """What a doctor says to which others."""
        me = doctors[n]
        drawn = _signed(doctors, trees)
        section = me.section or _ASK("no_section")
        answer = await self._say(_ASK("join", doctor=me.name, case=section, trees=drawn), seed, "join", n)
        joins = yes_or_no(answer)
        others = [m for m in range(len(doctors)) if m != n]
        drawing = random.Random(derive_seed(seed, "addresses", n))
        listeners = [m for m in others if drawing.random() < ADDRESSES] if joins else []
        prompts = [
            _ASK("opinion", doctor=me.name, other=doctors[m].name, case=section, tree=trees[n], theirs=trees[m])
            for m in listeners
        ]
        calls = zip(prompts, listeners, strict=True)
        replies = await gather(*(self._say(prompt, seed, "opinion", n, m) for prompt, m in calls))
        return dict(zip(listeners, replies, strict=True))

    async def _say(self, prompt: str, seed: int, *call: object) -> str:
        messages = [{"role": "user", "content": prompt}]
        return await self.ask(messages, MAX_TOKENS, derive_seed(seed, *call), self.talk_temperature)


def _signed(doctors: list[Doctor], trees: list[str]) -> str:
    return titled(zip((doctor.name for doctor in doctors), trees, strict=True))


def sections(state: State) -> dict[str, str]:
    """What is known, by the doctors' fields: the presentation is the first's, results go where
    :func:`field_of` says. Requests without a result go to no doctor."""
    results: dict[str, list[str]] = {name: [] for name in FIELDS}
    results[FIELDS[0]].append(state.case.case_summary)
    for step in state.history:
        shown = step.observation
        if shown.kind == "result" and shown.exam_key is not None:
            results[field_of(shown.exam_key, shown.text)].append(f"{shown.exam_key}: {shown.text}")
    return {name: "\n".join(texts) for name, texts in results.items()}


@functools.lru_cache(maxsize=1 << 12)
def field_of(exam_key: str, result: str) -> str:
    """The doctor's field of an examination. What the vocabulary calls a procedure, or does not know, is sorted by its
    words and then by its result: values go to the laboratory, a report to imaging."""
    if is_physical(exam_key):
        return FIELDS[0]
    term = examinations().find(exam_key)
    if term is not None and term.kind in _KINDS:
        return _KINDS[term.kind]
    if _TISSUE.search(exam_key):
        return "pathology"
    if imaging_words(exam_key):
        return "imaging"
    return "laboratory" if parse_analytes(result) else "imaging"
