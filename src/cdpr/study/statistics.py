"""Agreement of raters, paired tests on the mean scores of states, effect sizes and power."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .records import SCALE

LEVEL = 0.05  # the significance level, for p-values after Holm's correction (paper)
TARGET = 0.5  # the difference between two mean scores, in points, that a study should be able to find
# Mean scores are rounded to these decimals, so that equal means which were summed in another order are ties in tests.
DECIMALS = 9


def krippendorff_alpha(counts: np.ndarray) -> float | None:
    """Compute the ordinal Krippendorff's alpha from ``counts`` [items, 5]: how often each item got each of the five
    scores.

    Returns None where alpha is undefined: no item was rated twice, or all scores of such items are equal. Source:
    Krippendorff, Content Analysis (2004), chapter 11; computed by the package ``krippendorff``.
    """
    import krippendorff

    counts = counts[counts.sum(axis=1) > 1]
    if (counts.sum(axis=0) > 0).sum() < 2:  # no two different scores
        return None
    return float(krippendorff.alpha(value_counts=counts, value_domain=list(SCALE), level_of_measurement="ordinal"))


def resample_clusters(clusters: Sequence[object], resamples: int, seed: int) -> np.ndarray:
    """Draw bootstrap resamples of whole clusters, because the states of one case are not independent.

    ``clusters`` has the cluster of each item, such as its case. Returns how often each item is drawn, shape [resamples,
    items].
    """
    # np.unique needs values that can be sorted: each cluster is represented by its text.
    names, cluster_of_item = np.unique(np.asarray([repr(name) for name in clusters]), return_inverse=True)
    counts = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    return counts[:, cluster_of_item]


def compare_pairs(differences: ArrayLike, permutations: int, seed: int) -> dict[str, float]:
    """Test whether two methods differ. ``differences`` [states], at least one, are the mean scores of the first method
    minus those of the second. The permutation test draws ``permutations`` random choices of signs, which ``seed``
    fixes.

    Returns by name:

    - the mean ``difference``, the standard deviation ``sd`` of the differences (0 for a single one), and the number of
      ``zeros`` among them;
    - two-sided p-values: ``p`` of the signed-rank test with zeros as Pratt treats them, ``p_zeros_dropped`` of that
      test without zeros, ``p_permutation`` of the permutation test;
    - the ``rank_biserial`` correlation;
    - the Hodges-Lehmann ``shift`` with its 95% interval, ``shift_low`` to ``shift_high``.

    Sources: Wilcoxon, Biometrics Bull. 1 (1945); Pratt, JASA 54 (1959); Kerby, Compr. Psychol. 3 (2014); Hodges and
    Lehmann, Ann. Math. Stat. 34 (1963).
    """
    rounded = np.round(np.asarray(differences, dtype=float), DECIMALS)
    shift_low, shift, shift_high = hodges_lehmann(rounded)
    return {
        "difference": float(rounded.mean()), "sd": float(rounded.std(ddof=1)) if len(rounded) > 1 else 0.0,
        "zeros": int((rounded == 0).sum()), "rank_biserial": rank_biserial(rounded),
        "p": signed_rank_p_value(rounded, "pratt"),
        "p_zeros_dropped": signed_rank_p_value(rounded, "wilcox"),
        "p_permutation": permutation_p_value(rounded, permutations, seed),
        "shift": shift, "shift_low": shift_low, "shift_high": shift_high,
    }  # fmt: skip


def signed_rank_p_value(differences: np.ndarray, zeros: str) -> float:
    """Compute the two-sided p-value of Wilcoxon's signed-rank test of ``differences`` [states], by the normal
    approximation. ``zeros`` says how differences of 0 are treated; it is the ``zero_method`` of SciPy. Returns 1 where
    nothing differs."""
    from scipy.stats import wilcoxon

    if not differences.any():
        return 1.0
    p_value = float(wilcoxon(differences, zero_method=zeros, correction=False, method="approx").pvalue)
    return p_value if math.isfinite(p_value) else 1.0


def permutation_p_value(differences: np.ndarray, permutations: int, seed: int) -> float:
    """Compute the two-sided p-value of the mean of ``differences`` [states] by random signs: the share of choices of
    signs whose mean is at least as far from zero as the observed one. The choices are ``permutations`` random ones and
    the observed signs (Phipson and Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010)). Zeros have no sign and are left out.
    Returns 1 where nothing differs."""
    nonzero = differences[differences != 0]
    zeros_and_ones = np.random.default_rng(seed).integers(0, 2, size=(permutations, len(nonzero)), dtype=np.int8)
    signs = zeros_and_ones * 2.0 - 1.0  # -1 or 1
    # Sums instead of means, which have the same order; 1e-9 is for sums that differ by rounding alone.
    at_least_observed = (abs(signs @ nonzero) >= abs(nonzero.sum()) - 1e-9).sum()
    return float((at_least_observed + 1) / (permutations + 1))


def rank_biserial(differences: np.ndarray) -> float:
    """Compute the matched-pairs rank-biserial correlation of ``differences`` [states], from -1 (all negative) to 1 (all
    positive): the rank sum of the positive ones minus that of the negative ones, divided by the sum of both. Zeros are
    left out. Returns 0 where nothing differs."""
    from scipy.stats import rankdata

    nonzero = differences[differences != 0]
    ranks = rankdata(abs(nonzero))
    return float((ranks * np.sign(nonzero)).sum() / max(1.0, ranks.sum()))  # 0 / 1 where nothing differs


def hodges_lehmann(differences: np.ndarray) -> tuple[float, float, float]:
    """Estimate the shift of ``differences`` [states] with a 95% interval; returns (low, shift, high).

    The shift is the median of the averages of all pairs (Walsh averages). The ends of the interval are the outermost
    Walsh averages that the signed-rank test does not reject (large samples).
    """
    count = len(differences)
    first, second = np.triu_indices(count)  # all pairs, also of each difference with itself
    walsh = np.sort((differences[first] + differences[second]) / 2)
    # Mean and standard deviation of the signed-rank statistic where nothing differs; 1.96 for 95%.
    mean, deviation = count * (count + 1) / 4, math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    # The lower end is the Walsh average with this index, the upper end that with the same index from the end. Where
    # there are few differences, the index is kept within the lower half.
    rank = min(max(math.floor(mean - 1.959964 * deviation), 0), (len(walsh) - 1) // 2)
    return float(walsh[rank]), float(np.median(walsh)), float(walsh[-1 - rank])


def states_needed(difference: float, sd: float, tests: int = 1) -> int:
    """Compute the number of states with which the signed-rank test finds a mean ``difference`` with 80% power.

    ``sd`` is the standard deviation of the differences, in points like ``difference``. The level is :data:`LEVEL`
    divided by the number of ``tests`` (Bonferroni's correction, which is never less strict than Holm's). The number is
    that of the t-test, divided by the asymptotic efficiency of the signed-rank test for normal differences, 3 / pi
    (Lehmann, Nonparametrics (1975)). It is at least six, since fewer states reach no p below .05. Raises ValueError
    where ``difference`` or ``sd`` is not above 0, and where ``tests`` is below 1.
    """
    from scipy.stats import norm

    if difference <= 0 or sd <= 0 or tests < 1:
        raise ValueError(f"need difference, sd > 0 and tests >= 1, got {difference}, {sd} and {tests}")
    z = norm.ppf(1 - LEVEL / tests / 2) + norm.ppf(0.8)  # quantiles of the two-sided level and of the power
    return max(6, math.ceil((z * sd / difference) ** 2 * math.pi / 3))
