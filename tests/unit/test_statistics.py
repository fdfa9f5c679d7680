"""Statistics against cases worked by hand, brute force over all possibilities, and published examples."""

import math

import numpy as np
import pytest
from scipy.stats import multinomial, norm

from cdpr.evaluation import significance as st


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


def test_holm_is_that_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    draw = np.random.default_rng(0)
    for size in range(1, 30):
        given = draw.choice([0.0, 1.0, *draw.random(size) ** 3], size)  # with ties
        assert st.holm(given) == multipletests(given, method="holm")[1].tolist()


def test_bootstrap_agrees_with_every_possible_resample():
    # one seed, two cases 0 and 1: means 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4
    values = np.array([0.0, 1.0]).reshape(1, 2, 1)
    draws = st.crossed_bootstrap(values, 20000, seed=1)[:, 0]
    shares = [np.mean(draws == value) for value in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.015)
    assert np.array_equal(draws, st.crossed_bootstrap(values, 20000, seed=1)[:, 0])
    assert not np.array_equal(draws, st.crossed_bootstrap(values, 20000, seed=2)[:, 0])
    # two seeds that differ by 1 on every case move the mean by -1/2, 0, 1/2, stretched: 12.706 / 1.960 * sqrt(2)
    crossed = st.crossed_bootstrap(values + np.array([0.0, 1.0]).reshape(2, 1, 1), 40000, seed=1)[:, 0]
    assert st.narrowness(2) == pytest.approx(9.168, abs=0.001)
    moved = [-0.5 * st.narrowness(2), 0.0, 0.5 * st.narrowness(2)]
    for case, p in ((0.0, 0.25), (0.5, 0.5), (1.0, 0.25)):
        for seed, q in zip(moved, (0.25, 0.5, 0.25), strict=True):
            assert np.mean(np.isclose(crossed, 0.5 + case + seed)) == pytest.approx(p * q, abs=0.01)
    for empty in (np.zeros((0, 2, 1)), np.zeros((2, 0, 1)), np.zeros((2, 2))):
        with pytest.raises(ValueError, match="empty table"):
            st.crossed_bootstrap(empty, 10, seed=1)


def test_bootstrap_error_is_that_of_the_mean_and_metrics_share_resamples():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1, 400))
    draws = st.crossed_bootstrap(np.stack([values, 3 * values], axis=2), 4000, seed=5)
    assert draws[:, 0].std() == pytest.approx(values.std() / 20, rel=0.05)
    assert np.allclose(draws[:, 1], 3 * draws[:, 0])
    # Other cases at another place, but the same policies: what seeds move is the same, what cases move is not.
    seeds, cases = rng.normal(size=(5, 1, 1)) * np.ones((5, 400, 1)), np.ones((5, 1, 1)) * values.reshape(1, 400, 1)
    here, there = (st.crossed_bootstrap(seeds, 500, 5, place) for place in ("here", "there"))
    assert np.allclose(here, there)
    here, there = (st.crossed_bootstrap(cases, 500, 5, place)[:, 0] for place in ("here", "there"))
    assert abs(np.corrcoef(here, there)[0, 1]) < 0.15


@pytest.mark.parametrize(("seeds", "between"), [(5, 0.05), (5, 0.015), (3, 0.05), (3, 0.0)])
def test_the_interval_covers_where_seeds_and_cases_vary(seeds, between):
    """A mixed model with a true mean of 0: what a seed does to all cases, how hard a case is, and the rest."""
    rng = np.random.default_rng(11)
    covered, by_cases, trials, cases = 0, 0, 300, 300
    for _ in range(trials):
        values = rng.normal(0, between, (seeds, 1)) + rng.normal(0, 0.25, (1, cases))
        values = (values + rng.normal(0, 0.25, (seeds, cases)))[..., None]
        both = st.percentile_interval(st.crossed_bootstrap(values, 400, 3)[:, 0])
        alone = st.percentile_interval(st.crossed_bootstrap(values.mean(axis=0, keepdims=True), 400, 3)[:, 0])
        covered += both[0] <= 0 <= both[1]
        by_cases += alone[0] <= 0 <= alone[1]
    assert 0.94 <= covered / trials <= 0.995
    assert between < 0.05 or by_cases / trials < 0.85  # what cases alone tell is too narrow once training varies


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
