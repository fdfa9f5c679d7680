"""Simulated raters. They score proposals by the exact posterior of the synthetic hospital, and are no physicians.

A rater has habits (leniency, contrast, drift), and for each proposal a mood and noise: see :func:`simulate_scores`. All
raters use the same posterior; physicians might judge a method otherwise.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from ..cases import diagnoses
from ..costs import price_of
from ..hospital.posterior import Diagnostician, canonical_name
from ..job import Job
from ..seeding import derive_seed
from ..settings import Costs, Settings
from .ratings import SIMULATED, write_ratings
from .records import Card, Content, Items, StudyState, dimensions, read_lines

_BURDEN_USD = 1.0  # added to every price for the burden on the patient, so that a free examination is no bargain
# The differential: the likeliest diseases, as many as together have this posterior probability.
_DIFFERENTIAL_MASS = 0.9


def simulate_ratings(settings: Settings, job: Job) -> None:
    """Stage ``simulate_ratings``: fill in every rater's form by a program, and write it as the HTML form exports it."""
    states = {state.digest: state for state in read_lines(job.inputs["states"], StudyState)}
    items = Items.read(job.inputs["cards"])
    assessors = {state.dataset: Assessor(state.dataset, settings.costs) for state in states.values()}
    qualities = {}
    for name, content in items.contents.items():
        state = states[content.state]
        qualities[name] = assessors[state.dataset].assess(state, content)
    for rater in items.forms:
        scores = simulate_scores(rater, settings.study.seed, items.cards(rater), qualities)
        write_ratings(job.out["ratings"] / f"{rater}.json", items.study, rater, SIMULATED, scores)
    print(f"{len(items.forms)} simulated raters scored {len(qualities)} proposals")


def simulate_scores(
    rater: str, seed: int, cards: Sequence[Card], qualities: Mapping[str, np.ndarray]
) -> dict[str, dict[str, int]]:
    """Draw the scores of one rater, 1 to 5. Returns them by the code of the proposal and by dimension.

    ``cards`` are the proposals in the rater's form. ``qualities`` has for each content an array [dimensions] from 0 to
    1; 0.5 is the middle of the scale. The habits of a rater depend on ``seed`` and its name alone.
    """
    # The sizes of habits are assumptions; they are not fitted to physicians.
    habits = np.random.default_rng(derive_seed(seed, "habits", rater))
    # How many points the rater gives too much or too little in all (leniency) and on each dimension (drift). Contrast
    # is a factor: above 1 the rater's points for good and bad proposals are farther apart than their qualities, below 1
    # closer together.
    leniency, contrast = habits.normal(0, 0.25), habits.uniform(0.85, 1.1)
    drift = habits.normal(0, 0.15, len(dimensions()))
    # Standard deviations in points: of an error that all scores of a proposal share (mood), and of one of each score.
    mood, noise = habits.uniform(0.15, 0.3), habits.uniform(0.35, 0.55)
    scores = {}
    for card in cards:
        rng = np.random.default_rng(derive_seed(seed, rater, card.content))
        # Without habits the quality 0 gives 1 point, 0.5 gives 3, and 1 gives 5.
        points = 3 + contrast * 4 * (qualities[card.content] - 0.5) + leniency + drift
        points = points + rng.normal(0, mood) + rng.normal(0, noise, len(points))
        rounded = np.clip(np.rint(points), 1, 5).astype(int).tolist()
        scores[card.code] = dict(zip(dimensions(), rounded, strict=True))
    return scores


class Assessor:
    """Computes the quality of proposals from the exact posterior over diseases, in the synthetic hospital of one data
    set."""

    def __init__(self, dataset: str, costs: Costs):
        """Prepare the posterior of the data set's hospital and the prices of its examinations in US dollars, ``usd``
        [examinations]."""
        self.doctor = Diagnostician(dataset=dataset)
        # By their names as the records of cases write them.
        self.usd = np.array([price_of(self.doctor.key(exam), costs).usd for exam in self.doctor.exams])
        # Every proposal at a state needs both; each is computed once per state.
        self.posterior = functools.cache(self._compute_posterior)
        self.information = functools.cache(self._compute_information)

    def _compute_posterior(self, state: StudyState) -> np.ndarray:
        """Compute the probability of each disease, given the presentation and the results at a state, shape
        [diseases]."""
        posterior = self.doctor.prior(state.presentation)
        for finding in state.found:
            if finding.kind == "result":
                posterior = self.doctor.update(posterior, finding.examination, finding.text)
        return posterior

    def assess(self, state: StudyState, content: Content) -> np.ndarray:
        """Compute the quality of a proposal at a state on each dimension: an array [dimensions] from 0 to 1, in the
        rubric's order."""
        posterior = self.posterior(state)
        reasoning = self._assess_reasoning(state, content, posterior)
        if content.kind == "diagnosis":
            return np.array([*reasoning, *self._assess_diagnosis(content, posterior)])
        return np.array([*reasoning, *self._assess_request(state, content)])

    def _assess_reasoning(self, state: StudyState, content: Content, posterior: np.ndarray) -> Sequence[float]:
        """Compute completeness and support of the reasoning in a proposal, both from 0 to 1.

        Both are measured in two ways, and averaged over those that are possible; both are 0 where none is.

        - By the disease that the proposal names, in its diagnosis or as the agent's ``leaning``, and the ``posterior``
          [diseases]. Completeness is the probability of this disease divided by that of the likeliest disease. Support
          is the probability p of this disease divided by p + q, where q is that of the likeliest other disease.
        - By the findings that the reasoning states (:meth:`_compare_findings`).
        """
        disease = self._disease_index(content.action if content.kind == "diagnosis" else content.leaning)
        measures: list[tuple[float, float]] = []
        if disease is not None:
            probability, strongest_rival = posterior[disease], np.delete(posterior, disease).max()
            measures.append((probability / posterior.max(), probability / (probability + strongest_rival)))
        if content.reasoning and (by_findings := self._compare_findings(state, content.reasoning)):
            measures.append(by_findings)
        return np.mean(measures, axis=0) if measures else (0.0, 0.0)

    def _compare_findings(self, state: StudyState, reasoning: str) -> tuple[float, float] | None:
        """Compare the findings that a reasoning states with those of the known results. Returns how many of the known
        findings it states correctly, and how many of the stated findings are correct, both as fractions. None where it
        states none."""
        # Reads the findings of an examination from a text: returns their values by name.
        read_findings = self.doctor.interpreter.examination
        # Values of findings, by (examination, name of the finding): in the results, and in the reasoning.
        known, stated = dict[tuple, object](), dict[tuple, object]()
        for earlier in state.found:
            exam = self.doctor.examination(earlier.examination) if earlier.kind == "result" else None
            if exam is not None:
                known |= {(exam.name, name): value for name, value in read_findings(exam, earlier.text).items()}
                stated |= {(exam.name, name): value for name, value in read_findings(exam, reasoning).items()}
        if not stated:
            return None
        correct = sum(known.get(name) == value for name, value in stated.items())
        return correct / max(1, len(known)), correct / len(stated)

    def _assess_diagnosis(self, content: Content, posterior: np.ndarray) -> Sequence[float]:
        """Compute relevance, gain and cost-effectiveness of a diagnosis, each from 0 to 1. ``posterior`` [diseases] are
        the probabilities of the diseases.

        - Gain is the probability of the diagnosed disease.
        - Relevance is the geometric mean of the gain, and of its ratio to the probability of the likeliest disease.
        - Cost-effectiveness is the gain, reduced by what one more examination could add to the probability of being
          right.
        """
        disease = self._disease_index(content.action)
        gain = 0.0 if disease is None else float(posterior[disease])
        best = float(posterior.max())
        relevance = gain / best**0.5  # sqrt(gain * gain / best)
        missed = float(np.max(self.doctor.expected_best(posterior))) - best
        # Where an examination could add 0.5 or more to the probability of being right, nothing is left of the gain.
        cost_effectiveness = gain * (1 - min(1.0, 2 * missed)) ** 0.5
        return relevance, gain, cost_effectiveness

    def _assess_request(self, state: StudyState, content: Content) -> Sequence[float]:
        """Compute relevance, gain and cost-effectiveness of a request, each from 0 to 1. They are the square roots of
        ratios: a value of the requested examination, divided by the largest value of any examination without a result.

        - Relevance: the value is the information about which of the likeliest diseases the patient has.
        - Gain: the value is the information about the disease, among all diseases.
        - Cost-effectiveness: the value is the information about the disease per dollar.

        All are 0 for an unknown examination and for one whose result is known.
        """
        exams = self.doctor.exams
        name = canonical_name(content.action) if content.kind == "request" else None
        known = {canonical_name(finding.examination) for finding in state.found if finding.kind == "result"}
        if name is None or name not in exams or name in known:
            return 0.0, 0.0, 0.0
        requested, has_no_result = exams.index(name), np.array([exam not in known for exam in exams])
        about_disease, about_differential = self.information(state)
        usd = self.usd.copy()
        usd[requested] = content.usd or 0.0  # the charge at this state, which may be less than the price
        measures = (about_differential, about_disease, about_disease / (usd + _BURDEN_USD))
        return [float(_share_of_best(values, requested, has_no_result)) ** 0.5 for values in measures]

    def _compute_information(self, state: StudyState) -> list[np.ndarray]:
        """Compute the expected information of each examination at a state, in bits: a list of two arrays
        [examinations]. The first is about the disease. The second is about the differential: the likeliest diseases
        that together hold most of the posterior probability, at least two."""
        posterior = self.posterior(state)
        likeliest_first = np.argsort(-posterior, kind="stable")
        held = np.cumsum(posterior[likeliest_first])  # the probability of the likeliest disease, of the first two, ...
        size = max(2, int(np.searchsorted(held, _DIFFERENTIAL_MASS)) + 1)
        p_differential = np.zeros_like(posterior)
        p_differential[likeliest_first[:size]] = posterior[likeliest_first[:size]]
        p_differential /= p_differential.sum()
        outcomes = self.doctor.outcomes  # P(outcome | disease) of each examination
        return [np.array([_mutual_information(o, p) for o in outcomes]) for p in (posterior, p_differential)]

    def _disease_index(self, name: str) -> int | None:
        """Return the index of the disease with this name, which can be any name of it in the vocabulary. None for an
        unknown name, and where the hospital has no such disease."""
        term = diagnoses().find(name) if name else None
        return self.doctor.diseases.index(term.name) if term and term.name in self.doctor.diseases else None


def _mutual_information(likelihoods: np.ndarray, p: np.ndarray) -> float:
    """Compute the mutual information I(outcome; disease) in bits. ``likelihoods`` are P(outcome | disease), shape
    [outcomes, diseases]; ``p`` is P(disease), shape [diseases]."""
    marginal = likelihoods @ p
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where((likelihoods > 0) & (p > 0), likelihoods * np.log2(likelihoods / marginal[:, None]), 0.0)
    return float(max(0.0, (terms * p).sum()))


def _share_of_best(values: np.ndarray, index: int, candidates: np.ndarray) -> float:
    """Return the value at ``index`` divided by the largest value among ``candidates`` (a mask), at most 1; 0 where no
    candidate has a value above zero."""
    best = values[candidates].max()
    return min(1.0, values[index] / best) if best > 1e-9 else 0.0
