"""ToR, Tree of Reasoning (Peng et al. 2025): a doctor per kind of evidence, each with a tree from diseases to findings.

Per state the doctors of chief complaint, laboratory, imaging and pathology each draw a tree from what is known in their
field, discuss the trees, revise their own, and the head of the team decides. With 1, 2, 3 or 4 doctors at work these
are 4, at most 9, at most 16, at most 25 calls.
"""

from __future__ import annotations

import functools
import json
import random
import re
from asyncio import gather
from dataclasses import dataclass
from pathlib import Path

from ..cases import SECTIONS, examinations, imaging_words, is_physical, parse_analytes
from ..environment import State, Turn
from ..llm import Model
from ..seeding import derive_seed
from ..settings import Settings
from .framework import Calls, Framework, decision, titled, yes_or_no
from .passages import Passages
from .prompts import Prompts

_SAY = Prompts("tree_of_reasoning")
FIELDS = ("chief complaint", "laboratory", "imaging", "pathology")
_KINDS = {"laboratory": "laboratory", "microbiology": "laboratory", "imaging": "imaging", "physical": "chief complaint"}
_SEARCHED = ("Chief Complaint", "History of Present Illness")
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
    """Doctors with a tree each. Its public quirks: discussion and decision read the whole record as JSON, and
    all prompts stand as the system's word; only a "Yes" written so joins the discussion; passages are looked up by
    chief complaint and history alone.
    """

    reads = ("frameworks.tree_of_reasoning",)

    def __init__(self, model: Model, settings: Settings, temperature: float):
        super().__init__(model, settings, temperature)
        self.settings = found = settings.frameworks.tree_of_reasoning
        self.public = found.quirks == "public"
        folders = {FIELDS[0]: found.statpearls} | dict.fromkeys(FIELDS[1:], found.textbooks)
        searched = folders if found.retriever == "bm25" else {}
        self.passages = {field: Passages(Path(folder)) for field, folder in searched.items() if folder}

    @classmethod
    def calls(cls, settings: Settings) -> Calls:
        """Expected is that all doctors join the discussion; a doctor without findings may be at work or not."""
        own = settings.frameworks.tree_of_reasoning

        def asked(doctors: int, addresses: float) -> float:
            discussed = own.turns * doctors * (1 + addresses * (doctors - 1)) + doctors
            return doctors + own.rounds * discussed + 1

        everyone = len(FIELDS)
        few, usual = (everyone, everyone) if own.activate_empty else (1, 2)
        most = 1.0 if own.addresses else 0.0
        return Calls((asked(few, 0), asked(usual, own.addresses), asked(everyone, most)), own.max_tokens)

    async def decide(self, state: State, forced: bool, seed: int) -> Turn:
        record, known = self.record(state, forced), sections(state)
        case = json.dumps(known, ensure_ascii=False, indent=1) if self.public else ""
        doctors = [Doctor(field, text) for field, text in known.items() if text or self.settings.activate_empty]
        trees = await gather(*(self._draw(doctor, state, record, seed) for doctor in doctors))
        for r in range(self.settings.rounds):
            trees = await self._discussed(doctors, trees, case, derive_seed(seed, "round", r))
        head = _SAY("decide", task=self.task(forced), case=f"{case}\n\n{record}".strip(), trees=_signed(doctors, trees))
        return decision(await self._say(head, seed, "head"), forced)

    async def _discussed(self, doctors: list[Doctor], trees: list[str], case: str, seed: int) -> list[str]:
        """The trees after a round: each is revised by its doctor with what the others said about it."""
        everyone = range(len(doctors))
        heard: list[list[tuple[str, str]]] = [[] for _ in doctors]
        for t in range(self.settings.turns):
            turn = derive_seed(seed, "turn", t)
            said = await gather(*(self._address(n, doctors, trees, case, turn) for n in everyone))
            for n, opinions in enumerate(said):
                for listener, opinion in opinions.items():
                    heard[listener].append((doctors[n].name, opinion))
        asked = [
            _SAY("revise", doctor=doctors[n].name, tree=trees[n], feedback=titled(heard[n]) or _SAY("no_feedback"))
            for n in everyone
        ]
        return await gather(*(self._say(asked[n], seed, "revision", n) for n in everyone))

    async def _draw(self, doctor: Doctor, state: State, record: str, seed: int) -> str:
        """A doctor's first tree; with nothing to draw, what to examine."""
        if not doctor.section:
            asked = _SAY("nothing_known", doctor=doctor.name, field=doctor.field, record=record)
            return await self._say(asked, seed, "tree", doctor.field)
        query = _complaint(state.case.case_summary) if self.public else doctor.section
        found = self.passages[doctor.field].find(query, self.settings.snippets) if doctor.field in self.passages else ()
        passages = _SAY("passages", passages="\n\n".join(found)) if found else ""
        asked = _SAY("tree", doctor=doctor.name, field=doctor.field, section=doctor.section, passages=passages)
        return await self._say(asked, seed, "tree", doctor.field)

    async def _address(self, n: int, doctors: list[Doctor], trees: list[str], case: str, seed: int) -> dict[int, str]:
        """What a doctor says to which others."""
        me = doctors[n]
        drawn = _signed(doctors, trees)
        shown = case or me.section or _SAY("no_section")
        answer = await self._say(_SAY("join", doctor=me.name, case=shown, trees=drawn), seed, "join", n)
        joins = "Yes" in answer if self.public else yes_or_no(answer, False)
        others = [m for m in range(len(doctors)) if m != n]
        drawing = random.Random(derive_seed(seed, "addresses", n))
        addressed = [m for m in others if drawing.random() < self.settings.addresses] if joins else []
        said = await gather(
            *(
                self._say(
                    _SAY("opinion", doctor=me.name, other=doctors[m].name, case=shown, tree=trees[n], theirs=trees[m]),
                    seed, "opinion", n, m,
                )
                for m in addressed
            )
        )  # fmt: skip
        return dict(zip(addressed, said, strict=True))

    async def _say(self, prompt: str, seed: int, *call: object) -> str:
        said = [{"role": "user", "content": prompt}]
        if self.public:
            said = [{"role": "system", "content": prompt}, {"role": "user", "content": _SAY("nudge")}]
        return await self.ask(said, self.settings.max_tokens, derive_seed(seed, *call), self.settings.temperature)


def _signed(doctors: list[Doctor], trees: list[str]) -> str:
    return titled(zip((doctor.name for doctor in doctors), trees, strict=True))


def _complaint(summary: str) -> str:
    """Chief complaint and present illness of a presentation; all of it where they cannot be found."""
    lines, kept, wanted = summary.splitlines(), [], False
    for line in lines:
        heading = line.lstrip("- ").partition(":")[0]
        wanted = heading in _SEARCHED if heading in SECTIONS else wanted
        kept += [line] * wanted
    return "\n".join(kept) or summary


def sections(state: State) -> dict[str, str]:
    """What is known, by the doctors' fields: the presentation is the first's, results are told apart by
    :func:`field_of`. Requests that gave nothing are nobody's."""
    found: dict[str, list[str]] = {name: [] for name in FIELDS}
    found[FIELDS[0]].append(state.case.case_summary)
    for step in state.history:
        seen = step.observation
        if seen.kind == "result" and seen.exam_key is not None:
            found[field_of(seen.exam_key, seen.text)].append(f"{seen.exam_key}: {seen.text}")
    return {name: "\n".join(texts) for name, texts in found.items()}


@functools.lru_cache(maxsize=1 << 12)
def field_of(exam_key: str, result: str) -> str:
    """Whose an examination is. What the vocabulary calls a procedure, or does not know, is told by its words and then
    by its result: values are the laboratory's, a report is read like an image."""
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
