"""Agreement, paired tests on per-state means, effect sizes and power."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .rubric import SCALE

Level = Literal["nominal", "ordinal", "interval", "ratio"]

LEVEL = 0.05  # of significance, after Holm's correction (paper)
TARGET = 0.5  # points that a study should be able to find
DECIMALS = 9  # means of whole scores lie on a grid: rounding keeps ties equal


def alpha(ratings: ArrayLike, level: Level = "ordinal") -> float | None:
    """Compute Krippendorff's alpha of ``ratings`` [raters, units], NaN where one is missing; None where nothing was
    rated twice, or all scores are equal, so that chance alone agrees.

    Source: Krippendorff, Content Analysis (2004), chapter 11; computed by the package ``krippendorff``.
    """
    return alpha_of_counts(value_counts(ratings), level)


def value_counts(ratings: ArrayLike) -> np.ndarray:
    """Count how often each unit got each score, [units, 5], for units rated at least twice."""
    counts = np.stack([(np.asarray(ratings) == value).sum(axis=0) for value in SCALE], axis=1)
    return counts[counts.sum(axis=1) > 1]


def alpha_of_counts(counts: np.ndarray, level: Level = "ordinal") -> float | None:
    """Compute alpha as :func:`alpha` does, from :func:`value_counts`."""
    import krippendorff

    if len(counts) == 0 or (counts.sum(axis=0) > 0).sum() < 2:
        return None
    return float(krippendorff.alpha(value_counts=counts, value_domain=list(SCALE), level_of_measurement=level))


def resampled_clusters(clusters: Sequence[object], resamples: int, seed: int) -> np.ndarray:
    """Resample whole clusters, and count how often each unit is drawn, [resamples, units] (states of one case are no
    independent sample)."""
    names, of_unit = np.unique(np.asarray([repr(name) for name in clusters]), return_inverse=True)
    drawn = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    return drawn[:, of_unit]


def compare(differences: ArrayLike, permutations: int, seed: int) -> dict[str, float]:
    """Compare in pairs, by ``differences`` [states], at least one: their mean, ``sd`` and number of
    ``zeros``; two-sided p-values of the signed-rank test with Pratt's zeros (``p``), with zeros dropped, and of the
    permutation test; rank-biserial correlation; Hodges-Lehmann ``shift`` with its 95% interval. Sources: Wilcoxon,
    Biometrics Bull. 1 (1945); Pratt, JASA 54 (1959); Kerby, Compr. Psychol. 3 (2014); Hodges and Lehmann, Ann. Math.
    Stat. 34 (1963)."""
    d = np.round(np.asarray(differences, dtype=float), DECIMALS)
    low, shift, high = hodges_lehmann(d)
    return {
        "zeros": int((d == 0).sum()), "difference": float(d.mean()), "sd": float(d.std(ddof=1)) if len(d) > 1 else 0.0,
        "p": signed_rank(d, "pratt"), "p_zeros_dropped": signed_rank(d, "wilcox"),
        "p_permutation": sign_flips(d, permutations, seed), "rank_biserial": rank_biserial(d), "shift": shift,
        "shift_low": low, "shift_high": high,
    }  # fmt: skip


def signed_rank(d: np.ndarray, zeros: str) -> float:
    """Compute the two-sided p-value of the signed-rank test, without continuity correction; 1 where nothing differs."""
    from scipy.stats import wilcoxon

    if not d.any():
        return 1.0
    p = float(wilcoxon(d, zero_method=zeros, correction=False, alternative="two-sided", method="approx").pvalue)
    return p if math.isfinite(p) else 1.0


def sign_flips(d: np.ndarray, permutations: int, seed: int) -> float:
    """Compute the two-sided p-value of the mean under random signs, from so many flips and the observed one
    (Phipson and Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010)). Zeros change nothing, so they are left
    out."""
    moved = d[d != 0]
    if not len(moved):
        return 1.0
    flips = np.random.default_rng(seed).integers(0, 2, size=(permutations, len(moved)), dtype=np.int8) * 2.0 - 1.0
    extreme = (abs(flips @ moved) >= abs(moved.sum()) - 1e-9).sum()
    return float((extreme + 1) / (permutations + 1))


def rank_biserial(d: np.ndarray) -> float:
    """Compute the rank sum of the positive differences minus that of the negative ones, over both, in -1..1, without
    zeros."""
    from scipy.stats import rankdata

    moved = d[d != 0]
    if not len(moved):
        return 0.0
    ranks = rankdata(abs(moved))
    return float((ranks * np.sign(moved)).sum() / ranks.sum())


def hodges_lehmann(d: np.ndarray) -> tuple[float, float, float]:
    """Compute lower end, estimate and upper end (95%) of the shift: the median of all pairwise averages, and the order
    statistics that the signed-rank test does not reject (large samples)."""
    i, j = np.triu_indices(len(d))
    walsh = np.sort((d[i] + d[j]) / 2)
    n = len(d)
    spread = 1.959964 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    at = min(max(math.floor(n * (n + 1) / 4 - spread), 0), (len(walsh) - 1) // 2)
    return float(walsh[at]), float(np.median(walsh)), float(walsh[-1 - at])


def states_needed(difference: float, sd: float, tests: int = 1) -> int:
    """Compute the states that the signed-rank test needs to find a mean ``difference`` of per-state means whose
    deviation is ``sd`` with 80% power, at ``LEVEL`` over ``tests`` (Bonferroni's, which Holm's is never above).

    Normal approximation, divided by the test's asymptotic efficiency against the t-test for normal differences, 3 / pi
    (Lehmann, Nonparametrics (1975)); at least six, since fewer reach no p below .05. Raises
    ValueError for no difference or no spread.
    """
    from scipy.stats import norm

    if difference <= 0 or sd <= 0 or tests < 1:
        raise ValueError(f"need difference, sd > 0 and tests >= 1, got {difference}, {sd} and {tests}")
    z = norm.ppf(1 - LEVEL / tests / 2) + norm.ppf(0.8)
    return max(6, math.ceil((z * sd / difference) ** 2 * math.pi / 3))
