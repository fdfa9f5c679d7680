"""Statistics against cases worked by hand."""

import numpy as np
import pytest

from cdpr.evaluation import statistics as st


def test_wilson_by_hand():
    # k=8, n=10, z=1.959964: centre (0.8 + 0.19207)/1.38415 = 0.71674, half width 0.22658
    low, high = st.wilson_interval(8, 10)
    assert (low, high) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    # k=0: [0, z²/(n + z²)]
    assert st.wilson_interval(0, 20) == pytest.approx((0.0, 3.841459 / 23.841459), abs=1e-6)
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


def test_seed_deviation_is_apart_from_case_variance():
    assert st.seed_deviation([1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert st.seed_deviation([0.4]) is None
    # cases vary, seeds agree: no deviation between seeds
    assert st.seed_deviation([np.mean([0, 1, 0, 1])] * 3) == 0.0
