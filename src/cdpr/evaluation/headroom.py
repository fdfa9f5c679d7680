"""What there is to gain: accuracy split by what the policy reads wrongly and by what it could have ordered instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from ..cases import iterate_records
from ..environment import DiagnosticEnvironment, RequestTest, Turn, render_action
from ..hospital.posterior import Diagnostician
from ..settings import Settings
from ..settings.schema import Utility
from .power import smallest_difference, standard_error
from .row import EvaluationRow

# Assumed of methods that are not trained yet. Between three methods with three seeds on 1,000 in-domain cases of an
# earlier demo, the share was .15 to .6 and the deviation up to .015.
CASE_SHARE = 0.5
SEED_SD = 0.01

Rows = Sequence[EvaluationRow]


class Headroom(BaseModel):
    """A policy on one data set under one decoding, means over cases; fractions, US dollars, units of utility.

    ``immediate`` is its accuracy when it must diagnose at once, ``at_once`` how often it does so unasked, ``chance``
    the accuracy of always naming the commonest diagnosis. ``cost_to_test`` is the cost term of the utility over the
    test term (None without tests). ``exact`` is the accuracy of the exact posterior on the evidence that the policy
    gathered, ``best_choice`` that of value of information at the policy's spend, ``best_utility`` and
    ``best_aec`` those of value of information at its own; None where the posterior is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    decoding: str
    cases: int
    accuracy: float
    immediate: float
    aec: float
    aen: float
    utility: float
    at_once: float
    chance: float
    cost_to_test: float | None
    exact: float | None = None
    best_choice: float | None = None
    best_utility: float | None = None
    best_aec: float | None = None

    @property
    def reading(self) -> float | None:
        """Accuracy lost by reading the gathered evidence otherwise than the exact posterior."""
        return None if self.exact is None else self.exact - self.accuracy

    @property
    def choice(self) -> float | None:
        """Accuracy that the exact posterior gains when value of information chooses, at the same spend."""
        return None if self.best_choice is None or self.exact is None else self.best_choice - self.exact

    @property
    def gain(self) -> float | None:
        """Accuracy that both together are worth."""
        return None if self.best_choice is None else self.best_choice - self.accuracy

    @property
    def choice_utility(self) -> float | None:
        """Utility that value of information has above the policy, less what reading errors cost it."""
        if self.best_utility is None or self.reading is None:
            return None
        return self.best_utility - self.utility - self.reading


class Resolution(BaseModel):
    """The smallest true difference between two trained methods, in accuracy (a fraction) and utility, that so many
    cases and seeds show, from the variances of the difference between one run of each on one case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    cases: int
    seeds: int
    accuracy_variance: float
    utility_variance: float
    accuracy: float
    utility: float


def measure_headroom(
    rows: Rows, immediate: Rows, weights: Utility, dataset: str, exact: float | None = None,
    references: Sequence[Rows] = (),
) -> Headroom:  # fmt: skip
    """What a policy reaches (``rows``, of one decoding), and ``immediate`` diagnosis with it.

    ``exact`` as of :func:`exact_accuracy`; ``references`` are workups of policies that know the hospital's model, where
    it is known: those of value of information first, one that orders nothing among them.
    """
    best = references[0] if references else ()
    aec, of_tests = mean(rows, "cost_usd"), weights.lambda_test * mean(rows, "n_tests")
    return Headroom(
        dataset=dataset,
        decoding=rows[0].decoding,
        cases=len(rows),
        accuracy=mean(rows, "correct"),
        immediate=mean(immediate, "correct"),
        aec=aec,
        aen=mean(rows, "n_issued"),
        utility=mean(rows, "utility"),
        at_once=float(np.mean([row.turns == 1 for row in rows])),
        chance=Counter(row.gold for row in rows).most_common(1)[0][1] / len(rows),
        cost_to_test=weights.lambda_cost * aec / weights.cost_unit_usd / of_tests if of_tests else None,
        exact=exact,
        best_choice=accuracy_at_spend(aec, references) if best else None,
        best_utility=mean(best, "utility") if best else None,
        best_aec=mean(best, "cost_usd") if best else None,
    )


def exact_accuracy(settings: Settings, dataset: str, cases: Path, rows: Rows) -> float:
    """Accuracy of the exact posterior's likeliest disease, given the results that each workup of ``rows`` read. The
    synthetic hospital of ``dataset`` must have written the ``cases``."""
    environment, doctor = DiagnosticEnvironment(settings.environment), Diagnostician(dataset=dataset)
    records = {case.note_id: case for case in iterate_records(cases, "test")}
    right = 0
    for row in rows:
        state = environment.initial(case := records[row.note_id])
        p = doctor.prior(case.case_summary)
        for key in row.obtained or ():
            step = environment.step(state, Turn(render_action(RequestTest(key), "full")))
            p, state = doctor.update(p, key, step.observation.text), state.after(step)
        right += environment.is_correct(doctor.diseases[int(p.argmax())], case.diagnosis_results)
    return right / len(rows)


def accuracy_at_spend(spend: float, references: Sequence[Rows]) -> float:
    """The best accuracy that policies with these workups reach at an average of at most ``spend`` US dollars: one of
    them alone, or a dearer one for just so many cases, drawn at random, as the money lasts for, and a cheaper one for
    the others. Raises ValueError where all spend more."""
    points = [(mean(rows, "cost_usd"), mean(rows, "correct")) for rows in references]
    within = [point for point in points if point[0] <= spend]
    dearer = [point for point in points if point[0] > spend]
    mixed = [low + (high - low) * (spend - saved) / (cost - saved) for saved, low in within for cost, high in dearer]
    return max([accuracy for _, accuracy in within] + mixed)


def measure_resolution(rows: Sequence[Rows], seeds: int, dataset: str) -> Resolution:
    """What ``seeds`` seeds of two methods can show on the cases of ``rows``, which are a policy's workups by decoding.

    Two methods trained from one start are taken to differ, case by case, as the greedy and the sampled workups of that
    start do (of a single decoding: as two independent policies of its accuracy would), with :data:`CASE_SHARE` and
    :data:`SEED_SD`.
    """
    variances = [_paired_variance([_values(of_one, name) for of_one in rows]) for name in ("correct", "utility")]
    cases = len(rows[0])
    found = [smallest_difference(standard_error(cases, seeds, v, CASE_SHARE, SEED_SD)) for v in variances]
    return Resolution(
        dataset=dataset, cases=cases, seeds=seeds, accuracy_variance=variances[0], utility_variance=variances[1],
        accuracy=found[0], utility=found[1],
    )  # fmt: skip


def mean(rows: Rows, name: str) -> float:
    """Mean of a field over cases."""
    return float(_values(rows, name).mean())


def _values(rows: Rows, name: str) -> np.ndarray:
    """A field by case, in the order of the cases' names."""
    return np.array([getattr(row, name) for row in sorted(rows, key=lambda row: row.note_id)], dtype=float)


def _paired_variance(by_decoding: Sequence[np.ndarray]) -> float:
    if len(by_decoding) == 1:
        return float(2 * by_decoding[0].var(ddof=1))
    return float((by_decoding[0] - by_decoding[1]).var(ddof=1))
