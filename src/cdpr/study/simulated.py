"""Simulated raters: they know the synthetic hospital's model, score by its exact posterior, and are no physicians.

Each has a leniency, a contrast, a drift of its own per dimension, a mood per proposal (which moves all its scores of it
together) and noise. They agree on the posterior; physicians might judge a method otherwise.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..cases import diagnoses, is_physical
from ..costs import price_of
from ..hospital.posterior import Diagnostician, canonical_name
from ..job import Job
from ..seeding import derive_seed
from ..settings import Settings
from ..settings.schema import Costs
from .blinding import Items, Page
from .ratings import SIMULATED, write_ratings
from .records import Content, StudyState, read_lines
from .rubric import dimensions

_DRAW = 1.0  # US dollars of burden that every examination has beside its price
_CANDIDATES = 0.9  # share of the posterior that the differential holds


def simulate_ratings(settings: Settings, job: Job) -> None:
    """Stage ``simulate_ratings``: fill in every rater's form."""
    states = {state.digest: state for state in read_lines(job.inputs["states"], StudyState)}
    items = Items.read(job.inputs["cards"])
    assessors = {state.dataset: Assessor(state.dataset, settings.costs) for state in states.values()}
    values = {name: assessors[states[content.state].dataset].value(states[content.state], content)
              for name, content in items.contents.items()}  # fmt: skip
    job.out["ratings"].mkdir(parents=True, exist_ok=True)
    for rater, pages in items.forms.items():
        scores = _simulated_scores(rater, settings.study.seed, pages, values)
        write_ratings(job.out["ratings"] / f"{rater}.json", items.study, rater, SIMULATED, scores)
    print(f"{len(items.forms)} simulated raters scored {len(values)} proposals")


def _simulated_scores(
    rater: str, seed: int, pages: Sequence[Page], values: Mapping[str, np.ndarray]
) -> dict[str, dict[str, int]]:
    """Score every card: scores by code. ``values`` [dimensions] are in 0..1, by content. Habits are in points; a rater
    of a name always has the same ones."""
    habits = np.random.default_rng(derive_seed(seed, "habits", rater))
    leniency, contrast = habits.normal(0, 0.25), habits.uniform(0.85, 1.1)
    drift = habits.normal(0, 0.15, len(dimensions()))
    mood, noise = habits.uniform(0.15, 0.3), habits.uniform(0.35, 0.55)
    scores = {}
    for card in (card for page in pages for card in page.cards):
        rng = np.random.default_rng(derive_seed(seed, rater, card.content))
        points = 3 + contrast * 4 * (values[card.content] - 0.5) + leniency + drift
        points = points + rng.normal(0, mood) + rng.normal(0, noise, len(points))
        rated = np.clip(np.rint(points), 1, 5).astype(int).tolist()
        scores[card.code] = dict(zip(dimensions(), rated, strict=True))
    return scores


class Assessor:
    """Values proposals by the exact posterior of one hospital."""

    def __init__(self, dataset: str, costs: Costs):
        self.doctor = Diagnostician(dataset=dataset)
        keys = [self.doctor.key(exam) for exam in self.doctor.exams]
        self.usd = np.array([0.0 if is_physical(key) else price_of(key, costs).usd for key in keys])
        self.posterior = functools.cache(self._posterior)
        self.gains = functools.cache(self._gains)

    def _posterior(self, state: StudyState) -> np.ndarray:
        p = self.doctor.prior(state.presentation)
        for finding in state.found:
            if finding.kind == "result":
                p = self.doctor.update(p, finding.examination, finding.text)
        return p

    def value(self, state: StudyState, content: Content) -> np.ndarray:
        """Value a proposal: [dimensions] in 0..1, in the rubric's order."""
        p = self.posterior(state)
        return np.array([*self._reasoning(state, content, p), *self._action(state, content, p)])

    def _reasoning(self, state: StudyState, content: Content, p: np.ndarray) -> tuple[float, float]:
        """Value completeness and support. Completeness: the probability of its disease over that of the likeliest.
        Support: that disease against its strongest rival. Where it states findings, the share of the known ones that it
        states, and the share of those stated that are true, count half."""
        disease = self._disease(content.action if content.kind == "diagnosis" else content.leaning)
        leans = (0.0, 0.0) if disease is None else (
            float(p[disease] / p.max()), float(p[disease] / (p[disease] + np.delete(p, disease).max())))  # fmt: skip
        fidelity = self._fidelity(state, content.reasoning) if content.reasoning else None
        if fidelity is None:
            return leans
        return fidelity if disease is None else tuple(np.mean([leans, fidelity], axis=0))

    def _fidelity(self, state: StudyState, reasoning: str) -> tuple[float, float] | None:
        """Compare the findings that a reasoning states with the known ones; None where it states none that can be
        read."""
        read = self.doctor.interpreter.examination
        known, stated = dict[tuple[str, str], Any](), dict[tuple[str, str], Any]()
        for finding in state.found:
            exam = self.doctor.examination(finding.examination) if finding.kind == "result" else None
            if exam is not None:
                known |= {(exam.name, name): value for name, value in read(exam, finding.text).items()}
                stated |= {(exam.name, name): value for name, value in read(exam, reasoning).items()}
        if not stated:
            return None
        right = sum(known.get(name) == value for name, value in stated.items())
        return right / max(1, len(known)), right / len(stated)

    def _action(self, state: StudyState, content: Content, p: np.ndarray) -> tuple[float, float, float]:
        """Value relevance, gain and cost-effectiveness. An examination: its information on the differential beside that
        of the best one; its expected information beside that of the best one; its bits per dollar beside the best. A
        diagnosis: whether it is the likeliest, and how likely (geometric mean); its probability; the same, less what
        one examination more could add."""
        if content.kind == "diagnosis":
            disease = self._disease(content.action)
            sure = 0.0 if disease is None else float(p[disease])
            better = float(np.max(self.doctor.expected_best(p)) - p.max())
            return sure / float(p.max()) ** 0.5, sure, sure * (1 - min(1.0, 2 * better)) ** 0.5
        name = canonical_name(content.action) if content.kind == "request" else None
        known = {canonical_name(finding.examination) for finding in state.found if finding.kind == "result"}
        if name is None or name not in self.doctor.exams or name in known:
            return 0.0, 0.0, 0.0
        at, open_ = self.doctor.exams.index(name), np.array([e not in known for e in self.doctor.exams])
        gain, few = self.gains(state)
        usd = self.usd.copy()
        usd[at] = content.usd or 0.0
        per_dollar = gain / (usd + _DRAW)
        return tuple(float(_share(values, at, open_)) ** 0.5 for values in (few, gain, per_dollar))  # type: ignore[return-value]

    def _gains(self, state: StudyState) -> tuple[np.ndarray, np.ndarray]:
        """Compute the expected information of each examination about the disease, bits [examinations], and its part on
        the differential: the likeliest diseases that together hold most of the posterior."""
        p = self.posterior(state)
        order = np.argsort(-p, kind="stable")
        few = order[: max(2, int(np.searchsorted(np.cumsum(p[order]), _CANDIDATES)) + 1)]
        mass = np.zeros_like(p)
        mass[few] = p[few]
        both = (p, mass / mass.sum())
        return tuple(np.array([_mutual_information(table, q) for table in self.doctor.outcomes]) for q in both)  # type: ignore[return-value]

    def _disease(self, name: str) -> int | None:
        term = diagnoses().find(name) if name else None
        return self.doctor.diseases.index(term.name) if term and term.name in self.doctor.diseases else None


def _mutual_information(table: np.ndarray, p: np.ndarray) -> float:
    """Compute I(outcome; disease) in bits; ``table`` [outcomes, D] is P(outcome | disease)."""
    marginal = table @ p
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where((table > 0) & (p > 0), table * np.log2(table / marginal[:, None]), 0.0)
    return float(max(0.0, (terms * p).sum()))


def _share(values: np.ndarray, at: int, among: np.ndarray) -> float:
    best = values[among].max()
    return min(1.0, values[at] / best) if best > 1e-9 else 0.0
