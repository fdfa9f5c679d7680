"""ToR, Tree of Reasoning (Peng et al. 2025): one doctor for each kind of evidence, with a tree from diseases to
findings.

At every state the doctors for chief complaint, laboratory, imaging and pathology draw a tree from the evidence in their
field. They discuss the trees, and each revises its own. Then the head of the team decides. A state takes 13 to 25 calls
of the model.
"""

import functools
import random
import re
from asyncio import gather

from ..cases import examinations, imaging_words, is_physical, parse_analytes
from ..environment import State, Turn
from ..seeding import derive_seed
from .framework import Framework, complete_turn, fill_prompt, join_by_author, parse_yes_no

_PROMPT = functools.partial(fill_prompt, "tree_of_reasoning")  # fills in a prompt of prompts/tree_of_reasoning.yaml
ADDRESSES = 0.7  # probability with which a doctor in the discussion addresses each of the others (published code)
MAX_TOKENS = 1024  # of one answer; the publication names no limit
FIELDS = ("chief complaint", "laboratory", "imaging", "pathology")
DOCTORS = tuple(f"Doctor of {field}" for field in FIELDS)
# The field of a result by the kind of its examination; and words of examinations of tissue, which go to pathology.
_KINDS = {"laboratory": "laboratory", "microbiology": "laboratory", "imaging": "imaging", "physical": "chief complaint"}
_TISSUE = re.compile(r"biops|patholog|histolog|cytolog|immunohisto|frozen section|marrow|pap smear", re.IGNORECASE)


class TreeOfReasoning(Framework):
    """The framework Tree of Reasoning: doctors draw and discuss trees of evidence, and the head of the team decides."""

    reads = ("frameworks.temperature",)

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Let the doctors draw and revise their trees about a state. Returns the reply of the head of the team, who
        decides."""
        # A discussion has rounds of several turns. Here it has one of each: "round" 0 and "turn" 0 in the seeds.
        record, evidence = self.describe_state(state, forced), divide_evidence(state)
        trees = await gather(*(self._draw_tree(field, evidence[field], record, seed) for field in FIELDS))
        trees = await self._discuss(list(evidence.values()), trees, derive_seed(seed, "round", 0))
        task, all_trees = self.describe_task(forced), join_by_author(DOCTORS, trees)
        prompt = _PROMPT("decide", task=task, case=record.strip(), trees=all_trees)
        return complete_turn(await self._ask(prompt, seed, "head"), forced)

    async def _draw_tree(self, field: str, evidence: str, record: str, seed: int) -> str:
        """Let the doctor of a field draw a tree from the ``evidence`` of this field; returns the tree as text. Where
        the evidence is empty, the doctor reads the whole ``record`` and advises what to examine."""
        doctor = DOCTORS[FIELDS.index(field)]
        if evidence:
            prompt = _PROMPT("tree", doctor=doctor, field=field, section=evidence)
        else:
            prompt = _PROMPT("nothing_known", doctor=doctor, field=field, record=record)
        return await self._ask(prompt, seed, "tree", field)

    async def _discuss(self, evidence: list[str], trees: list[str], seed: int) -> list[str]:
        """Let the doctors exchange opinions about their trees; returns the trees, each revised by its doctor.
        ``evidence`` and ``trees`` have one text per doctor, in the order of :data:`DOCTORS`."""
        turn_seed = derive_seed(seed, "turn", 0)
        # opinions[n][m] is the opinion of doctor n about the tree of doctor m, if n gave one.
        opinions = await gather(*(self._give_opinions(n, text, trees, turn_seed) for n, text in enumerate(evidence)))
        prompts = []
        for receiver, doctor in enumerate(DOCTORS):
            received = {DOCTORS[n]: given[receiver] for n, given in enumerate(opinions) if receiver in given}
            feedback = join_by_author(received, received.values()) or _PROMPT("no_feedback")
            prompts.append(_PROMPT("revise", doctor=doctor, tree=trees[receiver], feedback=feedback))
        return await gather(*(self._ask(prompt, seed, "revision", receiver) for receiver, prompt in enumerate(prompts)))

    async def _give_opinions(self, speaker: int, evidence: str, trees: list[str], seed: int) -> dict[int, str]:
        """Ask the doctor ``speaker`` (an index of :data:`DOCTORS`) whether to join the discussion, and for opinions
        about the trees of some other doctors, drawn at random. ``evidence`` is that of the speaker's own field. Returns
        the opinions by the index of the other doctor; none where the speaker does not join."""
        doctor, tree, evidence = DOCTORS[speaker], trees[speaker], evidence or _PROMPT("no_section")
        prompt = _PROMPT("join", doctor=doctor, case=evidence, trees=join_by_author(DOCTORS, trees))
        if not parse_yes_no(await self._ask(prompt, seed, "join", speaker)):
            return {}
        rng = random.Random(derive_seed(seed, "addresses", speaker))
        addressed = [peer for peer in range(len(DOCTORS)) if peer != speaker and rng.random() < ADDRESSES]
        calls = []
        for peer in addressed:
            parts = {"doctor": doctor, "case": evidence, "tree": tree, "other": DOCTORS[peer], "theirs": trees[peer]}
            calls.append(self._ask(_PROMPT("opinion", **parts), seed, "opinion", speaker, peer))
        return dict(zip(addressed, await gather(*calls), strict=True))

    async def _ask(self, prompt: str, seed: int, *call: object) -> str:
        """Send a prompt to the model and return the answer. ``call`` names the request and is part of its seed."""
        messages = [{"role": "user", "content": prompt}]
        return await self.ask(messages, MAX_TOKENS, derive_seed(seed, *call), self.talk_temperature)


def divide_evidence(state: State) -> dict[str, str]:
    """Divide the evidence of a state among the doctors. Returns one text for each of :data:`FIELDS`, empty where the
    field has no evidence. The presentation goes to the chief complaint, a result to the field of its examination
    (:func:`field_of`). Steps without a new result go to no doctor."""
    results: dict[str, list[str]] = {name: [] for name in FIELDS}
    results[FIELDS[0]].append(state.case.case_summary)
    for step in state.history:
        answer = step.observation
        if answer.kind == "result" and answer.exam_key is not None:
            results[field_of(answer.exam_key, answer.text)].append(f"{answer.exam_key}: {answer.text}")
    return {name: "\n".join(texts) for name, texts in results.items()}


@functools.lru_cache(maxsize=1 << 12)
def field_of(exam_key: str, result: str) -> str:
    """Find the field (one of :data:`FIELDS`) of the doctor who gets a ``result`` of the examination ``exam_key``. It
    follows from the kind of the examination in the vocabulary, or else from words in its name. Where neither decides, a
    result with values goes to the laboratory and a report in words to imaging."""
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
