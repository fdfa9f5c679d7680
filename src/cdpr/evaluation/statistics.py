"""Intervals and paired tests for evaluations.

Every training seed meets the same cases: seeds and cases are crossed, and both are samples. Other cases would move a
figure, and so would training again, so intervals resample both (:func:`crossed_bootstrap`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from ..seeding import derive_seed

# Resamples drawn at a time: bounds memory to this many rows of one count per unit.
BLOCK = 256


@dataclass(frozen=True)
class McNemar:
    """Exact McNemar test: cases that only the first, or only the second agent got right, and the p-value."""

    only_first: int
    only_second: int
    p_value: float


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """95% score interval of a proportion, as fractions.

    Source: Wilson, JASA 22 (1927): (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n); computed by
    ``scipy.stats``. Raises ValueError unless 0 <= successes <= trials and trials > 0.
    """
    from scipy.stats import binomtest

    if trials <= 0 or not 0 <= successes <= trials:
        raise ValueError(f"{successes} of {trials} is no proportion: need 0 <= successes <= trials and trials > 0")
    interval = binomtest(int(successes), int(trials)).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def crossed_bootstrap(values: ArrayLike, resamples: int, seed: int, place: str = "") -> np.ndarray:
    """Means of resampled seeds and cases, [resamples, metrics], of ``values`` [seeds, cases, metrics].

    A draw is the mean, moved as far as resampling the cases moves it, and as far as resampling the seeds does. (Drawing
    both at once would count their interaction three times: Owen, Ann. Appl. Stat. 1 (2007).) Resamples of few seeds are
    too narrow, so what the seeds move is stretched by :func:`few_units`. All metrics share the resamples; ``place``
    names the set of cases: sets are resampled independently, seeds alike, since each policy visits all sets. A single
    seed moves nothing: the draws then tell of the cases alone. Raises ValueError without seeds, cases or resamples.
    """
    table = np.asarray(values, dtype=float)
    if table.ndim != 3 or 0 in table.shape[:2] or resamples <= 0:
        raise ValueError(f"cannot resample [seeds, cases, metrics] of shape {table.shape} {resamples} times: "
                         "there must be some of each")  # fmt: skip
    seeds = len(table)
    draws = _resampled(table.mean(axis=0), resamples, derive_seed(seed, place))
    if seeds > 1:
        by_seed = table.mean(axis=1)
        draws += few_units(seeds) * _resampled(by_seed - by_seed.mean(axis=0), resamples, derive_seed(seed, "seeds"))
    return draws


def few_units(units: int) -> float:
    """By how much a percentile interval over so few units is too narrow.

    The resampled mean varies (n - 1) / n as much as it should, and its quantiles are the normal's instead of Student's.
    Source: Hesterberg, Am. Stat. 69 (2015), "narrowness bias" and the expanded percentile interval.
    """
    from scipy.stats import norm, t

    return float(t.ppf(0.975, units - 1) / norm.ppf(0.975) * math.sqrt(units / (units - 1)))


def _resampled(values: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means [resamples, metrics] of resampled rows of ``values`` [units, metrics] (Efron, Ann. Stat. 7 (1979))."""
    counts = _resample_counts(len(values), resamples, seed)
    blocks = [counts[start : start + BLOCK].astype(float) @ values for start in range(0, resamples, BLOCK)]
    return np.concatenate(blocks) / len(values)


@lru_cache(maxsize=8)
def _resample_counts(units: int, resamples: int, seed: int) -> np.ndarray:
    """How often each resample holds each unit, [resamples, units]; kept because all methods on a data set share it."""
    rng = np.random.default_rng(seed)
    counts = np.empty((resamples, units), dtype=np.uint16 if units < 2**16 else np.uint32)
    for start in range(0, resamples, BLOCK):
        rows = min(BLOCK, resamples - start)
        drawn = rng.integers(0, units, size=(rows, units)) + units * np.arange(rows)[:, None]
        counts[start : start + rows] = np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units)
    return counts


def percentile_interval(draws: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of draws [resamples] (Efron 1979)."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def mcnemar_exact(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Two-sided exact test of whether two agents are right equally often, on the same cases.

    ``first`` and ``second`` are booleans [cases]. Only cases on which the agents differ carry information: under the
    hypothesis they fall to either side like a fair coin. Source: McNemar, Psychometrika 12 (1947), in its exact
    binomial form; computed by ``scipy.stats``. Raises ValueError when the cases differ in number.
    """
    from scipy.stats import binomtest

    one, two = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if one.shape != two.shape or one.ndim != 1:
        raise ValueError(f"need one verdict per case for both agents, got shapes {one.shape} and {two.shape}")
    only_first, only_second = int((one & ~two).sum()), int((two & ~one).sum())
    discordant = only_first + only_second
    p_value = float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0
    return McNemar(only_first, only_second, p_value)


def power_of_difference(cases: int, discordant: float, difference: float, alpha: float = 0.05) -> float:
    """Chance that the exact McNemar test finds a true difference in accuracy (two-sided, level ``alpha``).

    ``discordant`` is the share of cases on which the two agents differ, ``difference`` that of cases which the one
    alone gets right minus that of the other, both as fractions. Unconditional: the number of discordant cases is
    binomial, and within it the split between the agents. Source: Duffy, Biometrics 40 (1984); large samples: Connor,
    Biometrics 43 (1987). Raises ValueError for no cases, or for a difference larger than ``discordant``.
    """
    from scipy.stats import binom

    if cases <= 0 or not 0 <= abs(difference) <= discordant <= 1:
        raise ValueError(f"need cases > 0 and |difference| <= discordant <= 1, got {cases}, {difference}, {discordant}")
    if discordant == 0:
        return 0.0
    split = np.arange(cases + 1)
    chance = binom.pmf(split, cases, discordant)
    split, chance = split[chance > 1e-12], chance[chance > 1e-12]
    # Largest minority that is still significant: twice its lower tail is at most alpha.
    edge = binom.ppf(alpha / 2, split, 0.5)
    edge = np.where(2 * binom.cdf(edge, split, 0.5) <= alpha, edge, edge - 1)
    share = (discordant + difference) / (2 * discordant)
    found = binom.cdf(edge, split, share) + binom.cdf(edge, split, 1 - share)
    return float(chance @ np.where(edge >= 0, found, 0.0))


def detectable_difference(cases: int, discordant: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Smallest true difference in accuracy, as a fraction, that the exact McNemar test finds with ``power``.

    ``discordant`` as in :func:`power_of_difference`, whose inverse this is. ``math.inf`` where even a difference as
    large as ``discordant`` allows stays below the power. Raises ValueError for no cases or no fraction.
    """
    from scipy.optimize import brentq

    if power_of_difference(cases, discordant, discordant, alpha) < power:
        return math.inf
    if power_of_difference(cases, discordant, 0.0, alpha) >= power:
        return 0.0
    return float(brentq(lambda d: power_of_difference(cases, discordant, d, alpha) - power, 0, discordant, xtol=1e-7))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that keep the family-wise error, in the order given.

    The i-th smallest of m is multiplied by m - i + 1, made monotone and capped at 1. Source: Holm, Scand. J. Stat. 6
    (1979). The numbers are those of ``statsmodels``, which collects garbage at every call, a tenth of a second each.
    Raises ValueError for a value outside 0..1.
    """
    given = np.asarray(p_values, dtype=float)
    if not ((given >= 0) & (given <= 1)).all():
        raise ValueError(f"p-values must lie in 0..1: {list(p_values)}")
    order = np.argsort(given)
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)), 1.0)
    return adjusted.tolist()


def seed_deviation(by_seed: Sequence[float]) -> float | None:
    """Sample standard deviation (n - 1) between seeds; None for a single seed, which says nothing about it."""
    return float(np.std(by_seed, ddof=1)) if len(by_seed) > 1 else None
