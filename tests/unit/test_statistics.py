"""Statistics against cases worked by hand, brute force over all possibilities, and published examples."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import multinomial, norm, rankdata, wilcoxon

from cdpr.evaluation import statistics as st


def test_wilson_by_hand():
    # k=8, n=10, z=1.959964: centre (0.8 + 0.19207)/1.38415 = 0.71674, half width 0.22658
    low, high = st.wilson_interval(8, 10)
    assert (low, high) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    # k=0: [0, z²/(n + z²)]
    assert st.wilson_interval(0, 20) == pytest.approx((0.0, 3.841459 / 23.841459), abs=1e-6)
    # Newcombe, Stat. Med. 17 (1998), table I
    for right, cases, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (1, 29, 0.0061, 0.1718)):
        assert st.wilson_interval(right, cases) == pytest.approx((low, high), abs=5e-5)
    with pytest.raises(ValueError, match="3 of 2"):
        st.wilson_interval(3, 2)


def test_mcnemar_by_hand():
    # 6 discordant pairs, 5 to 1: p = 2 * (C(6,0) + C(6,1)) / 2^6 = 14/64
    first = [True] * 5 + [False] + [True] * 4
    second = [False] * 5 + [True] + [True] * 4
    assert st.mcnemar_exact(first, second) == st.McNemar(5, 1, pytest.approx(14 / 64))
    assert st.mcnemar_exact(first, first).p_value == 1.0
    # two-sided: exchanging the agents changes nothing but the names
    assert st.mcnemar_exact(second, first).p_value == pytest.approx(14 / 64)


def test_holm_by_hand_keeps_order():
    # sorted 0.01*4, 0.02*3, 0.03*2 -> 0.06, 0.04 -> raised to 0.06
    assert st.holm([0.02, 0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.06, 0.04, 0.06])
    assert st.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert st.holm([]) == []
    with pytest.raises(ValueError):
        st.holm([1.2])


def test_bootstrap_agrees_with_every_possible_resample():
    # two cases 0 and 1: means 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4
    draws = st.bootstrap_means([0.0, 1.0], 20000, seed=1)
    shares = [np.mean(draws == value) for value in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.015)
    assert np.array_equal(draws, st.bootstrap_means([0.0, 1.0], 20000, seed=1))
    assert not np.array_equal(draws, st.bootstrap_means([0.0, 1.0], 20000, seed=2))


def test_bootstrap_error_is_that_of_the_mean_and_metrics_share_cases():
    rng = np.random.default_rng(0)
    values = rng.normal(size=400)
    draws = st.bootstrap_means(np.stack([values, 3 * values], axis=1), 4000, seed=5)
    assert draws[:, 0].std() == pytest.approx(values.std() / 20, rel=0.05)
    assert np.allclose(draws[:, 1], 3 * draws[:, 0])


def test_clustering_by_case_equals_averaging_seeds_per_case():
    rng = np.random.default_rng(3)
    table = rng.random((3, 50))  # seeds x cases
    flat, names = table.T.ravel(), np.repeat([f"{i:02d}" for i in range(50)], 3)
    clustered = st.bootstrap_means(flat, 500, seed=9, clusters=names)
    assert np.allclose(clustered, st.bootstrap_means(st.case_means(table), 500, seed=9))
    # pretending that seeds were further cases would understate the error
    constant_over_seeds = np.tile(rng.random(50), (3, 1))
    honest = st.bootstrap_means(st.case_means(constant_over_seeds), 2000, seed=1).std()
    naive = st.bootstrap_means(constant_over_seeds.ravel(), 2000, seed=1).std()
    assert naive == pytest.approx(honest / np.sqrt(3), rel=0.1)


def test_unequal_clusters_weigh_by_size():
    # clusters a = {1, 1, 1} and b = {0}: both drawn once -> 3/4
    draws = st.bootstrap_means([1.0, 1.0, 1.0, 0.0], 2000, seed=2, clusters=["a", "a", "a", "b"])
    assert set(np.round(draws, 9)) == {0.0, 0.75, 1.0}


def test_paired_bootstrap_removes_what_cases_share():
    rng = np.random.default_rng(4)
    difficulty = rng.normal(scale=100, size=300)
    difference, low, high = st.paired_bootstrap(difficulty + 1.0, difficulty, 1000, seed=0)
    assert (difference, low, high) == pytest.approx((1.0, 1.0, 1.0))
    noisy = st.paired_bootstrap(np.stack([difficulty + 1, difficulty + 3]), difficulty, 1000, seed=0)
    assert noisy[0] == pytest.approx(2.0)
    with pytest.raises(ValueError, match="same cases"):
        st.paired_bootstrap([1.0, 2.0], [1.0], 10, seed=0)


def test_paired_bootstrap_resamples_whole_cases():
    # three states to a case that agree within it: as uncertain as the cases alone, not as three times as many
    difference = np.random.default_rng(6).normal(size=60)
    states, names = np.repeat(difference, 3), np.repeat([f"{i:02d}" for i in range(60)], 3)
    nothing = np.zeros(180)
    clustered = st.paired_bootstrap(states, nothing, 800, seed=1, clusters=names)
    assert clustered == pytest.approx(st.paired_bootstrap(difference, np.zeros(60), 800, seed=1))
    naive = st.paired_bootstrap(states, nothing, 800, seed=1)
    assert naive[2] - naive[1] == pytest.approx((clustered[2] - clustered[1]) / math.sqrt(3), rel=0.15)
    with pytest.raises(ValueError, match="cluster names"):
        st.paired_bootstrap(states, nothing, 10, seed=1, clusters=names[:-1])


def test_signed_rank_on_published_examples():
    # Darwin's maize: rank sums 96 and 24, exact p 0.0413 (scipy's documentation); r = (96 - 24) / 120
    darwin = [6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75]
    test = st.wilcoxon_signed_rank(darwin)
    assert (test.favours_first, test.favours_second, test.zeros) == (96, 24, 0)
    assert test.p_value == pytest.approx(0.041259765625) and test.rank_biserial == pytest.approx(0.6)
    # Hollander and Wolfe (1999), depression before and after: V = 40, one-sided p 10/512, shift 0.46 [0.010, 0.786]
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    assert st.wilcoxon_signed_rank(before, after, "greater").p_value == pytest.approx(10 / 512)
    assert st.wilcoxon_signed_rank(before, after, "less").favours_first == 40
    assert st.hodges_lehmann(before, after) == pytest.approx((0.46, 0.010, 0.786))


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize(
    "difference", [[0, 1, 1, -2, 3, 0, 4, 4, -1], [0, 0, 0, 5], [1, 2, 3, -4, 5, 6, 7], [2, 2, -2]]
)
def test_signed_rank_by_all_changes_of_sign(difference, alternative):
    # Pratt: zeros are ranked, then count for neither side
    values = np.array(difference, dtype=float)
    ranks = rankdata(np.abs(values)) * (values != 0)
    observed = ranks[values > 0].sum()
    sums = [ranks @ np.array(flips) for flips in itertools.product((0, 1), repeat=len(values))]
    upper, lower = (np.mean([s >= observed for s in sums]), np.mean([s <= observed for s in sums]))
    exact = {"greater": upper, "less": lower, "two-sided": min(1, 2 * min(upper, lower))}[alternative]
    test = st.wilcoxon_signed_rank(values, alternative=alternative)
    assert test.p_value == pytest.approx(exact)
    assert test.rank_biserial == pytest.approx(
        (observed - ranks[values < 0].sum()) / (len(values) * (len(values) + 1) / 2)
    )


def test_signed_rank_by_hand_with_zeros_and_rounding():
    # |d| 0, 0, 1/3, 2/3 -> ranks 1.5, 1.5, 3, 4: r = (3 - 4) / 10
    test = st.wilcoxon_signed_rank([2.0, 3.0, 7 / 3, 3.0], [2.0, 3.0, 2.0, 11 / 3])
    assert (test.favours_first, test.favours_second, test.zeros, test.rank_biserial) == (3, 4, 2, pytest.approx(-0.1))
    # thirds that differ by rounding only are ties, so exchanging the methods mirrors everything
    third = [1 / 3 + 1 / 3 + 1 / 3, 4 / 3]
    assert st.wilcoxon_signed_rank(third, [2 / 3, 1.0]).favours_first == 3
    equal = st.wilcoxon_signed_rank([1.0, 2.0], [1.0, 2.0])
    assert (equal.p_value, equal.rank_biserial, equal.zeros) == (1.0, 0.0, 2)
    with pytest.raises(ValueError, match="same cases"):
        st.wilcoxon_signed_rank([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="no cases"):
        st.hodges_lehmann([])


def test_shift_by_hand_and_interval_inverts_the_test():
    # Walsh averages of 1, 2, 6: 1, 1.5, 2, 3.5, 4, 6
    assert st.hodges_lehmann([1.0, 2.0, 6.0])[0] == pytest.approx(2.75)
    # with five cases no rejection at 5% is possible: 2 / 32 > 0.05; with six it is: 2 / 64
    assert st.hodges_lehmann([1, 2, 3, 4, 5])[1:] == (-math.inf, math.inf)
    assert st.hodges_lehmann([1, 2, 3, 4, 5, 6])[1:] == (1, 6)
    values = np.random.default_rng(8).normal(size=25)
    shift, low, high = st.hodges_lehmann(values)
    assert low < shift < high
    for edge, inside in ((low, 1), (high, -1)):
        assert wilcoxon(values - edge - inside * 1e-6).pvalue > 0.05
        assert wilcoxon(values - edge + inside * 1e-6).pvalue <= 0.05


def test_shift_covers_as_often_as_it_says_beyond_the_exact_tables():
    rng = np.random.default_rng(9)
    inside = 0
    for _ in range(300):
        _, low, high = st.hodges_lehmann(rng.normal(loc=0.3, size=120))
        inside += low <= 0.3 <= high
    assert 0.92 <= inside / 300 <= 0.98


def test_power_by_all_possible_tables():
    cases, discordant, difference = 12, 0.7, 0.5
    first, second = (discordant + difference) / 2, (discordant - difference) / 2
    power = 0.0
    for one in range(cases + 1):
        for two in range(cases + 1 - one):
            table = [True] * one + [False] * two
            if st.mcnemar_exact(table, [not t for t in table]).p_value <= 0.05:
                shares = [first, second, 1 - discordant]
                power += multinomial.pmf([one, two, cases - one - two], cases, shares)
    assert st.power_of_difference(cases, discordant, difference) == pytest.approx(power)
    assert st.power_of_difference(cases, discordant, -difference) == pytest.approx(power)
    assert st.power_of_difference(5, 1.0, 1.0) == 0.0  # five cases can never be significant
    assert st.power_of_difference(6, 1.0, 1.0) == pytest.approx(1.0)  # 2 / 64 < 0.05


def test_power_agrees_with_connor_s_formula():
    def connor(discordant, difference, power):
        root = norm.ppf(0.975) * math.sqrt(discordant) + norm.ppf(power) * math.sqrt(discordant - difference**2)
        return (root / difference) ** 2

    assert math.ceil(connor(0.5, 0.4, 0.8)) == 23  # published: shares .45 and .05
    # the exact test needs somewhat more than the formula, and never finds more under the hypothesis than alpha
    assert st.power_of_difference(23, 0.5, 0.4) < 0.8 < st.power_of_difference(30, 0.5, 0.4)
    for cases, discordant in ((750, 0.3), (1500, 0.3), (952, 0.2)):
        least = st.detectable_difference(cases, discordant)
        assert connor(discordant, least, 0.8) == pytest.approx(cases, rel=0.05)
        assert st.power_of_difference(cases, discordant, least) == pytest.approx(0.8, abs=1e-4)
        assert st.power_of_difference(cases, discordant, 0.0) <= 0.05


def test_what_the_paper_s_test_sets_can_show():
    # points that 80% power reaches: 750 cases at 30%, 33% and 34% discordant pairs, 1500 and 952 at 30%
    found = [100 * st.detectable_difference(n, share) for n, share in
             ((750, 0.30), (750, 0.33), (750, 0.34), (1500, 0.30), (952, 0.30))]  # fmt: skip
    assert found == pytest.approx([5.71, 5.98, 6.07, 4.02, 5.06], abs=0.005)
    assert st.detectable_difference(10, 0.1) == st.detectable_difference(10, 0.0) == math.inf
    for wrong in ((0, 0.3, 0.1), (10, 0.3, 0.4), (10, 1.2, 0.1)):
        with pytest.raises(ValueError, match="need cases"):
            st.power_of_difference(*wrong)


def test_seed_deviation_is_apart_from_case_variance():
    assert st.seed_deviation([1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert st.seed_deviation([0.4]) is None
    # cases vary, seeds agree: no deviation between seeds
    assert st.seed_deviation([np.mean([0, 1, 0, 1])] * 3) == 0.0
