"""Confidence intervals, paired tests, power, and agreement of judges.

All training seeds are evaluated on the same cases. Both are samples: other cases would change a result, and so would
another training. So intervals resample both (:func:`crossed_bootstrap`).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..seeding import derive_seed

# How many resamples are drawn at a time: all at once would take much memory, a number for each unit in each resample.
BLOCK = 256
# Experiments that `smallest_difference` simulates, and resamples of each.
_EXPERIMENTS, _DRAWS = 500, 1000


class McNemar(NamedTuple):
    """The result of an exact McNemar test: the numbers of cases that only the first, and only the second agent got
    right, and the p-value."""

    only_first: int
    only_second: int
    p_value: float


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Compute the 95% score interval of a proportion; returns (low, high) as fractions.

    Source: Wilson, JASA 22 (1927): (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n). ``scipy.stats.binomtest``
    computes the same, but its import takes most of a second. Raises ValueError unless 0 <= successes <= trials and
    trials > 0.
    """
    from scipy.special import ndtri

    if trials <= 0 or not 0 <= successes <= trials:
        raise ValueError(f"{successes} of {trials} is no proportion: need 0 <= successes <= trials and trials > 0")
    z, n, p = float(ndtri(0.975)), int(trials), int(successes) / int(trials)  # 95% are within z standard deviations
    # Wilson's fraction, with its numerator (center and half width) and its denominator multiplied by 2n.
    denominator = 2 * (n + z**2)
    center, half = (2 * n * p + z**2) / denominator, z / denominator * math.sqrt(4 * n * p * (1 - p) + z**2)
    # Without rounding errors where the interval ends at 0 or 1.
    return (center - half if successes else 0.0), (center + half if successes < trials else 1.0)


def crossed_bootstrap(values: ArrayLike, resamples: int, seed: int, dataset: str = "") -> np.ndarray:
    """Resample seeds and cases. Takes ``values`` [seeds, cases, metrics]; returns bootstrap means [resamples, metrics].

    A draw is the mean, plus the shift of the mean when the cases are resampled, plus its shift when the seeds are
    resampled. (Resampling both at once would count their interaction three times: Owen, Ann. Appl. Stat. 1 (2007).)
    Resamples of few seeds vary too little, so the shift of the seeds is multiplied by :func:`narrowness`. With a
    single seed the draws vary by the cases alone. All metrics share the resamples.

    ``dataset`` names the set of cases. The cases of different data sets are resampled independently, the seeds alike,
    since each policy is evaluated on all data sets. Raises ValueError without seeds, cases or resamples.
    """
    table = np.asarray(values, dtype=float)
    if table.ndim != 3 or 0 in table.shape[:2] or resamples <= 0:
        raise ValueError(f"cannot resample an empty table: shape {table.shape}, {resamples} resamples")
    seeds = len(table)
    # The mean with its shift by the cases, then the shift by the seeds.
    draws = _resampled(table.mean(axis=0), resamples, derive_seed(seed, dataset))
    if seeds > 1:
        by_seed = table.mean(axis=1)  # [seeds, metrics]
        draws += narrowness(seeds) * _resampled(by_seed - by_seed.mean(axis=0), resamples, derive_seed(seed, "seeds"))
    return draws


def narrowness(units: int) -> float:
    """Compute the factor by which a percentile interval over n ``units`` (at least 2) must be widened, such as 1.58 for
    5.

    Resampled means are too narrow for two reasons: their variance is (n - 1) / n of the true one, and their quantiles
    are those of the normal distribution, where Student's would be right. Source: Hesterberg, Am. Stat. 69 (2015),
    "narrowness bias" and the expanded percentile interval.
    """
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(units - 1, 0.975) / ndtri(0.975) * math.sqrt(units / (units - 1)))


def _resampled(values: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Resample the units (cases or seeds) of ``values`` [units, metrics] with replacement; returns the means
    [resamples, metrics] (Efron, Ann. Stat. 7 (1979))."""
    counts = _resample_counts(len(values), resamples, seed)
    # The sum over a resample is each unit times its count. In blocks, because counts as floats take much memory.
    blocks = [counts[start : start + BLOCK].astype(float) @ values for start in range(0, resamples, BLOCK)]
    return np.concatenate(blocks) / len(values)


@lru_cache(maxsize=8)
def _resample_counts(units: int, resamples: int, seed: int) -> np.ndarray:
    """Draw resamples of the units with replacement. Returns how often each unit is in each resample, shape [resamples,
    units]. The result is cached, because all methods on a data set share the resamples."""
    rng = np.random.default_rng(seed)
    counts = np.empty((resamples, units), dtype=np.uint16 if units < 2**16 else np.uint32)
    for start in range(0, resamples, BLOCK):
        rows = min(BLOCK, resamples - start)
        # Unit u in row r is counted as number r * units + u, so that one call counts all rows.
        picks = rng.integers(0, units, size=(rows, units)) + units * np.arange(rows)[:, None]
        counts[start : start + rows] = np.bincount(picks.ravel(), minlength=rows * units).reshape(rows, units)
    return counts


def percentile_interval(draws: np.ndarray) -> tuple[float, float]:
    """Compute the 95% percentile bootstrap interval of ``draws`` [resamples] (Efron 1979); returns (low, high)."""
    low, high = np.quantile(draws, [(1 - 0.95) / 2, 1 - (1 - 0.95) / 2])
    return float(low), float(high)


def mcnemar_exact(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Test, exactly and two-sided, whether two agents are right equally often on the same cases. Returns the numbers of
    cases that only one of them got right, and the p-value.

    ``first`` and ``second`` are booleans [cases]. Only cases on which the agents differ carry information: if both are
    equally good, each is as likely as the other to be right there. Source: McNemar, Psychometrika 12 (1947), exact
    binomial form.
    """
    from scipy.special import bdtr

    first_right, second_right = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    only_first, only_second = int((first_right & ~second_right).sum()), int((second_right & ~first_right).sum())
    discordant = only_first + only_second
    # `scipy.stats.binomtest` computes the same, and its import takes longer than most tables.
    p_value = min(1.0, 2 * float(bdtr(min(only_first, only_second), discordant, 0.5)))
    return McNemar(only_first, only_second, p_value)


def power_of_difference(cases: int, discordant: float, difference: float, alpha: float = 0.05) -> float:
    """Compute the probability that the exact McNemar test detects a true difference in accuracy (two-sided, level
    ``alpha``).

    ``discordant`` is the share of cases on which the two agents differ. ``difference`` is the share that only the first
    gets right minus the share that only the second gets right. The number of discordant cases is binomial. Given this
    number, so is the number of them that the first gets right (unconditional power). Source: Duffy, Biometrics 40
    (1984); large samples: Connor, Biometrics 43 (1987). Raises ValueError for no cases, or for a difference larger than
    ``discordant``.
    """
    from scipy.stats import binom

    if cases <= 0 or not 0 <= abs(difference) <= discordant <= 1:
        raise ValueError(f"need cases > 0 and |difference| <= discordant <= 1, got {cases}, {difference}, {discordant}")
    if discordant == 0:
        return 0.0
    # The possible numbers of discordant cases, and the probability of each; nearly impossible ones are left out.
    counts = np.arange(cases + 1)
    chance = binom.pmf(counts, cases, discordant)
    counts, chance = counts[chance > 1e-12], chance[chance > 1e-12]
    # An agent that is right on only a small minority of n discordant cases is significantly worse. For each n, the
    # largest minority that is significant: twice its lower tail is at most alpha.
    minority = binom.ppf(alpha / 2, counts, 0.5)
    minority = np.where(2 * binom.cdf(minority, counts, 0.5) <= alpha, minority, minority - 1)
    # The probability of such a minority, on either side. ``share``: the part of these cases that the first gets right.
    share = (discordant + difference) / (2 * discordant)
    rejected = binom.cdf(minority, counts, share) + binom.cdf(minority, counts, 1 - share)
    return float(chance @ np.where(minority >= 0, rejected, 0.0))


def detectable_difference(cases: int, discordant: float) -> float:
    """Find the smallest true difference in accuracy, as a fraction, that the exact McNemar test detects with 80% power.

    ``discordant`` is the share of ``cases`` on which the two agents differ. Returns ``math.inf`` where even the largest
    difference that this share allows has less power. Raises ValueError for no cases, or a share outside 0..1.
    """
    from scipy.optimize import brentq

    if power_of_difference(cases, discordant, discordant) < 0.8:
        return math.inf
    return float(brentq(lambda d: power_of_difference(cases, discordant, d) - 0.8, 0, discordant, xtol=1e-7))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple tests, so that the family-wise error is kept. Returns them in the order of
    ``p_values``.

    The i-th smallest of m is multiplied by m - i + 1, made monotone and capped at 1. Source: Holm, Scand. J. Stat. 6
    (1979). (The function of ``statsmodels`` takes a tenth of a second per call.) Raises ValueError for a value outside
    0..1.
    """
    raw = np.asarray(p_values, dtype=float)
    if not ((raw >= 0) & (raw <= 1)).all():
        raise ValueError(f"p-values must be in 0..1: {list(p_values)}")
    order = np.argsort(raw)  # the smallest first
    multiplied = raw[order] * np.arange(len(raw), 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(multiplied), 1.0)
    return adjusted[np.argsort(order)].tolist()  # back in the order of ``p_values``


def standard_error(cases: int, seeds: int, paired_variance: float, case_share: float, seed_sd: float) -> float:
    """Compute the standard error of the difference between the means of two methods, each trained with S ``seeds`` and
    evaluated on the same C ``cases``: sqrt(v (k / C + (1 - k) / (C S)) + 2 s² / S).

    v, the ``paired_variance``, is the variance over cases of the difference between one run of each method. Its part k,
    the ``case_share``, is the same for all seeds, so only more cases reduce it. s, the ``seed_sd``, is the standard
    deviation between trainings of a method's mean over all cases. Source: variance of a mean with cases and seeds as
    crossed random effects (Searle, Casella and McCulloch, Variance Components, 1992). Raises ValueError for no cases or
    seeds, or a share outside 0..1.
    """
    if cases <= 0 or seeds <= 0 or not 0 <= case_share <= 1:
        raise ValueError(f"need cases, seeds > 0 and a share in 0..1, got {cases}, {seeds} and {case_share}")
    of_cases = paired_variance * (case_share + (1 - case_share) / seeds) / cases
    return math.sqrt(of_cases + 2 * seed_sd**2 / seeds)


def smallest_difference(
    cases: int, seeds: int, paired_variance: float, case_share: float, seed_sd: float
) -> float | None:
    """Find the smallest true difference between two methods that an experiment shows with 80% power. It is shown where
    its 95% interval (:func:`crossed_bootstrap`) excludes zero. The arguments are those of :func:`standard_error`.
    Returns None for one seed, with which no difference can be shown, and 0 where the standard error is 0.

    Experiments in which the methods are equally good are simulated, to find how wide their intervals are. The middle of
    an interval is taken as normal around the true difference; the difference is shown where the interval is above zero.
    ``benchmarks/intervals.py`` compares the result with experiments that are simulated answer by answer.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    error = standard_error(cases, seeds, paired_variance, case_share, seed_sd)
    if seeds < 2:
        return None
    if error == 0:
        return 0.0
    # Variances: of the mean difference, by the choice of cases; of the difference in one seed, by the choice of seed.
    of_cases = paired_variance * (case_share + (1 - case_share) / seeds) / cases
    of_seed = 2 * seed_sd**2 + paired_variance * (1 - case_share) / cases
    rng = np.random.default_rng(0)  # one seed for all calls: equal arguments give equal results
    # In each experiment the mean difference of every seed; then bootstrap draws: the seeds are resampled, and the shift
    # by resampled cases is nearly normal.
    by_seed = rng.normal(0, math.sqrt(of_seed), (_EXPERIMENTS, seeds))
    resampled = np.take_along_axis(by_seed[:, None], rng.integers(seeds, size=(_EXPERIMENTS, _DRAWS, seeds)), axis=2)
    seed_shift = narrowness(seeds) * (resampled.mean(axis=2) - by_seed.mean(axis=1, keepdims=True))
    case_shift = rng.normal(0, math.sqrt(of_cases), seed_shift.shape)
    # From the middle of the 95% interval of each experiment to its lower end.
    half_width = -np.quantile(seed_shift + case_shift, 0.025, axis=1)

    # The difference that 80% of the experiments show, searched from 0 to one that every experiment shows.
    largest = half_width.max() + 10 * error
    return float(brentq(lambda d: float(ndtr((d - half_width) / error).mean()) - 0.8, 0.0, largest))


def agreement(counts: ArrayLike, resamples: int, seed: int, dataset: str = "") -> dict[str, Any]:
    """Measure the agreement of two judges on the diagnoses of several agents.

    ``counts`` [cases, 4] has for each case the numbers of diagnoses that both judges call right, that only the first
    does, that only the second does, and that neither does. Returns by name: the number of judged diagnoses
    (``verdicts``); how many of them the ``first`` and the ``second`` judge call right, and how many only one of them
    (``only_first``, ``only_second``); the share ``agreed`` of equal verdicts; Cohen's ``kappa`` with its 95% interval
    (``kappa_low``, ``kappa_high``), None where it is undefined. The interval resamples cases, since diagnoses of a case
    are not independent: ``resamples`` times, with random numbers that ``seed`` and the name ``dataset`` fix. Raises
    ValueError without verdicts.
    """
    table = np.asarray(counts, dtype=float)
    both, only_first, only_second, _ = (int(n) for n in table.sum(axis=0))
    if not (verdicts := int(table.sum())):
        raise ValueError("there are no verdicts to compare")
    kappa = float(cohens_kappa(table.sum(axis=0)))
    draws = cohens_kappa(crossed_bootstrap(table[None], resamples, seed, dataset))  # one "seed": cases are resampled
    draws = draws[np.isfinite(draws)]
    is_defined = np.isfinite(kappa) and draws.size
    low, high = percentile_interval(draws) if is_defined else (None, None)
    return {
        "verdicts": verdicts, "first": both + only_first, "second": both + only_second, "only_first": only_first,
        "only_second": only_second, "agreed": 1 - (only_first + only_second) / verdicts,
        "kappa": kappa if is_defined else None, "kappa_low": low, "kappa_high": high,
    }  # fmt: skip


def cohens_kappa(counts: np.ndarray) -> np.ndarray:
    """Compute Cohen's kappa, (p_o - p_e) / (1 - p_e). ``counts`` [..., 4] are the numbers, or shares, of verdicts
    "right" by both judges, by the first alone, by the second alone, and by neither. Returns an array [...]. It is NaN
    without verdicts, and where both judges give the same verdict on everything, so that they agree by chance. Source:
    Cohen, Educ. Psychol. Meas. 20 (1960)."""
    share = counts / counts.sum(axis=-1, keepdims=True)
    both, only_first, only_second, neither = np.moveaxis(share, -1, 0)
    first, second = both + only_first, both + only_second
    chance = first * second + (1 - first) * (1 - second)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance < 1, (both + neither - chance) / (1 - chance), np.nan)
