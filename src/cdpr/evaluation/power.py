"""How small a difference between two trained methods an experiment can show."""

from __future__ import annotations

import math


def standard_error(cases: int, seeds: int, paired_variance: float, case_share: float, seed_sd: float) -> float:
    """Standard error of the difference between the means of two methods, each trained with ``seeds`` seeds and judged
    on the same ``cases``: sqrt(v (k / C + (1 - k) / (C S)) + 2 s² / S).

    v is ``paired_variance``, that of the difference between one run of each method on one case. Its part k, the
    ``case_share``, stays with the case whatever the seed and is averaged over cases alone. s, the ``seed_sd``, is how
    far training again moves a method's mean over all cases. Source: variance of a mean with cases and seeds as crossed
    random effects (Searle, Casella and McCulloch, Variance Components, 1992). Raises ValueError for no cases or seeds,
    or a share outside 0..1.
    """
    if cases <= 0 or seeds <= 0 or not 0 <= case_share <= 1:
        raise ValueError(f"need cases, seeds > 0 and a share in 0..1, got {cases}, {seeds} and {case_share}")
    of_cases = paired_variance * (case_share + (1 - case_share) / seeds) / cases
    return math.sqrt(of_cases + 2 * seed_sd**2 / seeds)


def smallest_difference(error: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The true difference that a two-sided test at level ``alpha`` finds with ``power``: (z_{1-α/2} + z_power) times
    its standard ``error``."""
    from scipy.stats import norm

    return float((norm.ppf(1 - alpha / 2) + norm.ppf(power)) * error)
