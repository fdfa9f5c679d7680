"""Coverage of every interval, and errors of every verdict, in simulated experiments whose truth is known.

    python benchmarks/intervals.py [--experiments 1000] [--parts kappas study] [--write]

Answers are drawn case by case: a method's probability of a right answer is its mean, moved by the case, by the training
seed, and by both together. `--write` keeps the figures in docs/benchmarks/intervals.json and prints the tables of
docs/reference/statistics.md. A figure of 1,000 experiments has a standard error of at most 1.6 points.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from cdpr.evaluation.decision_credit import clustered_error
from cdpr.evaluation.significance import (
    agreement,
    crossed_bootstrap,
    holm,
    mcnemar_exact,
    percentile_interval,
    smallest_difference,
    wilson_interval,
)
from cdpr.report.ledger.judge import agrees_with, measure_final_accuracy, over_seeds
from cdpr.report.ledger.verdict import Effect, directional
from cdpr.settings import parse_settings
from cdpr.study import statistics

OUT = Path(__file__).parents[1] / "docs" / "benchmarks" / "intervals.json"
CASE_SD, BOTH_SD = 0.3, 0.15  # of a case, and of a case under one seed, on the scale of probabilities
RESAMPLES = 500


def answers(rng, seeds: int, cases: int, seed_sd: float, means: list[float]) -> np.ndarray:
    """Right answers [methods, seeds, cases] of methods with these mean accuracies on the same cases."""
    case = CASE_SD * rng.standard_normal(cases)
    tables = []
    for mean in means:
        seed = seed_sd * rng.standard_normal((seeds, 1))
        both = BOTH_SD * rng.standard_normal((seeds, cases))
        p = np.clip(mean + case + seed + both, 0, 1)
        tables.append(rng.random((seeds, cases)) < p)
    return np.array(tables, dtype=float)


def truth(rng, mean: float) -> float:
    """The expected accuracy of a method: probabilities are cut at 0 and 1."""
    spread = np.sqrt(CASE_SD**2 + BOTH_SD**2)
    return float(np.clip(mean + spread * rng.standard_normal(2_000_000), 0, 1).mean())


def interval(values: np.ndarray, k: int) -> tuple[float, float]:
    """The 95% interval of a mean, as tables compute it; ``values`` [seeds, cases]."""
    return percentile_interval(crossed_bootstrap(values[:, :, None], RESAMPLES, k)[:, 0])


def crossed(experiments: int) -> list[dict]:
    """The crossed bootstrap: coverage of a mean and of a difference, and how often no difference is called one."""
    rows = []
    for seeds in (1, 2, 3, 5, 8):
        for seed_sd in (0.0, 0.01, 0.03):
            rng = np.random.default_rng([seeds, int(1000 * seed_sd)])
            true = truth(rng, 0.6)
            mean = difference = excluded = 0
            for k in range(experiments):
                one, other = answers(rng, seeds, 500, seed_sd, [0.6, 0.6])
                low, high = interval(one, k)
                mean += low <= true <= high
                low, high = interval(one - other, k)
                difference += low <= 0 <= high
                excluded += low > 0 or high < 0
            rows.append({"seeds": seeds, "seed_sd": seed_sd, "coverage_mean": mean / experiments,
                         "coverage_difference": difference / experiments, "false": excluded / experiments})  # fmt: skip
    return rows


def power(experiments: int) -> list[dict]:
    """How often the interval excludes zero at the smallest difference that the preflight promises at 80% power."""
    rows = []
    for seeds in (2, 3, 5, 8):
        for cases, seed_sd in ((1000, 0.005), (500, 0.012)):
            rng = np.random.default_rng([seeds, cases])
            v, share = 0.3, 0.5
            true = smallest_difference(cases, seeds, v, share, seed_sd)
            found = 0
            for k in range(experiments):
                table = (true + np.sqrt(v * share) * rng.standard_normal(cases)
                         + np.sqrt(v * (1 - share)) * rng.standard_normal((seeds, cases))
                         + np.sqrt(2) * seed_sd * rng.standard_normal((seeds, 1)))  # fmt: skip
                found += interval(table, k)[0] > 0
            rows.append({"seeds": seeds, "cases": cases, "seed_sd": seed_sd, "difference": true,
                         "power": found / experiments})  # fmt: skip
    return rows


def superlatives(experiments: int) -> list[dict]:
    """The claim "best of all": how often it is called supported, or refuted, where all methods are equal."""
    rows = []
    for rivals in (1, 5, 15):
        rng = np.random.default_rng(rivals)
        supported = refuted = 0
        for k in range(experiments // 5):
            tables = answers(rng, 5, 500, 0.01, [0.6] * (rivals + 1))
            ends = [interval(tables[0] - other, k) for other in tables[1:]]
            supported += min(low for low, _ in ends) > 0
            refuted += any(high < 0 for _, high in ends)
        rows.append({"rivals": rivals, "supported": supported / (experiments // 5),
                     "refuted": refuted / (experiments // 5)})  # fmt: skip
    return rows


def single_runs(experiments: int) -> list[dict]:
    """Wilson's interval of one run's accuracy over other cases, and McNemar's test of two equal runs."""
    rows = []
    for share in (0.1, 0.5, 0.9):
        rng = np.random.default_rng(int(10 * share))
        counts = rng.binomial(500, share, experiments)
        inside = sum(low <= share <= high for low, high in (wilson_interval(int(c), 500) for c in counts))
        false = any_false = 0
        for _ in range(experiments):
            p_values = []
            for _ in range(5):
                one, other = rng.random((2, 500)) < share
                p_values.append(mcnemar_exact(one, other).p_value)
            false += p_values[0] < 0.05
            any_false += min(holm(p_values)) < 0.05
        rows.append({"accuracy": share, "wilson": inside / experiments, "mcnemar": false / experiments,
                     "holm_of_five": any_false / experiments})  # fmt: skip
    return rows


def final_accuracies(experiments: int) -> list[dict]:
    """Claims on final validation accuracy: two equal methods on 200 validation cases, or one 5 points better."""
    settings = parse_settings({"evaluation": {"bootstrap": RESAMPLES}})
    rows = []
    for seeds in (3, 5):
        for seed_sd in (0.0, 0.02):
            rng, counts = np.random.default_rng([seeds, int(1000 * seed_sd)]), {0.6: 0, 0.65: 0}
            for _ in range(experiments):
                other, *better = answers(rng, seeds, 200, seed_sd, [0.6, *counts])
                for mean, one in zip(counts, better, strict=True):
                    difference = measure_final_accuracy(one - other, settings)
                    verdict, _ = directional(difference.measured, void=difference.void)
                    counts[mean] += verdict in (("reproduced",) if mean > 0.6 else ("reproduced", "deviates"))
            false, power_at_5 = counts.values()
            rows.append({"seeds": seeds, "seed_sd": seed_sd, "false": false / experiments,
                         "power_5_points": power_at_5 / experiments})  # fmt: skip
    return rows


def printed_figures(experiments: int) -> list[dict]:
    """A printed accuracy of one training on 750 cases against ours: how often it is called different where the methods
    are equal, or 5 or 10 points apart. ``same_cases``: the paper evaluated the cases that we have."""
    rows = []
    for seeds in (2, 3, 5):
        for same_cases in (False, True):
            rng, counts = np.random.default_rng([seeds, same_cases]), {0.6: 0, 0.65: 0, 0.7: 0}
            for k in range(experiments // 2):
                ours, *theirs = answers(rng, seeds, 750, 0.01, [0.6, *counts])
                low, high = interval(ours, k)
                measured = Effect(100 * ours.mean(), 100 * low, 100 * high)
                for mean, table in zip(counts, theirs, strict=True):
                    right = table[0] if same_cases else answers(rng, 1, 750, 0.01, [mean])[0, 0]
                    ends = wilson_interval(int(right.sum()), 750)
                    printed = round(100 * right.mean(), 2)
                    counts[mean] += not agrees_with(printed, 0.005, 50 * (ends[1] - ends[0]), measured)
            false, *found = (count / (experiments // 2) for count in counts.values())
            rows.append({"seeds": seeds, "same_cases": int(same_cases), "false": false,
                         "power_5_points": found[0], "power_10_points": found[1]})  # fmt: skip
    return rows


def equalities(experiments: int) -> list[dict]:
    """The claim "within 3 points": how often it is supported where the methods are equal, and at exactly 3 points."""
    rows = []
    for seeds in (3, 5):
        rng, counts = np.random.default_rng(seeds), [0, 0]
        for k in range(experiments // 2):
            table = answers(rng, seeds, 1000, 0.005, [0.6, 0.6])
            for n, apart in enumerate((0.0, 0.03)):
                difference = table[0] - table[1] + apart
                effect = Effect(float(difference.mean()), *interval(difference, k)).support({"within": 0.03})
                counts[n] += effect.low > 0
        rows.append({"seeds": seeds, "equal": counts[0] / (experiments // 2),
                     "at_the_margin": counts[1] / (experiments // 2)})  # fmt: skip
    return rows


def kappas(experiments: int) -> list[dict]:
    """Coverage of kappa's interval: two judges on three diagnoses a case, whose difficulty the case sets."""

    def verdicts(rng, cases: int) -> np.ndarray:
        hard = rng.normal(0, 0.25, (cases, 1))
        right = rng.random((cases, 3)) < np.clip(0.6 + hard, 0, 1)
        wrong = rng.random((2, cases, 3)) < np.clip(0.08 + 0.3 * np.abs(hard), 0, 1)
        first, second = right ^ wrong[0], right ^ wrong[1]
        kinds = 2 * ~first + ~second
        return np.stack([(kinds == kind).sum(axis=1) for kind in range(4)], axis=1)

    rng = np.random.default_rng(0)
    true = agreement(verdicts(rng, 1_000_000), 1, 0)["kappa"]
    rows = []
    for cases in (30, 100, 300):
        inside = 0
        for k in range(experiments):
            measured = agreement(verdicts(rng, cases), RESAMPLES, k)
            inside += measured["kappa_low"] <= true <= measured["kappa_high"]
        rows.append({"cases": cases, "kappa": true, "coverage": inside / experiments})
    return rows


def scores(rng, cases: int, better: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores [methods, raters, states] of 1 to 5 and the case of each state: two states a case, three raters (one
    severe, one lenient). The first method is ``better`` by so many points before rounding; this varies with case and
    state."""
    case = np.repeat(np.arange(cases), 2)
    level = 3 + rng.normal(0, 0.5, cases)[case] + rng.normal(0, 0.4, 2 * cases)
    apart = better + rng.normal(0, 0.4, cases)[case] + rng.normal(0, 0.5, 2 * cases)
    of_method = level + np.array([0.5, -0.5])[:, None] * apart
    noise = rng.normal(0, 0.6, (2, 3, 2 * cases)) + np.array([-0.3, 0.0, 0.3])[:, None]
    return np.clip(np.rint(of_method[:, None] + noise), 1, 5), case


def count_scores(ratings: np.ndarray) -> np.ndarray:
    """How often each item, a column of the ratings, got each score."""
    return np.stack([(ratings == score).sum(axis=0) for score in statistics.SCALE], axis=1)


def study(experiments: int) -> list[dict]:
    """The expert study: coverage of the intervals of a mean difference, of the shift and of alpha; how often the tests
    call equal methods different, and find half a point."""
    rows = []
    large, _ = scores(np.random.default_rng(1), 20_000, 0.0)
    true_alpha = statistics.krippendorff_alpha(count_scores(np.concatenate(large, axis=1)))
    for cases in (20, 50):
        rng = np.random.default_rng(cases)
        counts = dict.fromkeys(("difference", "shift", "alpha", "false_signed_rank", "false_permutation", "power"), 0)
        for k in range(experiments // 2):
            table, case = scores(rng, cases, 0.0)
            d = table[0].mean(axis=0) - table[1].mean(axis=0)
            weights = statistics.resample_clusters(case.tolist(), RESAMPLES, k)
            low, high = percentile_interval((weights @ d) / weights.sum(axis=1))
            test = statistics.compare_pairs(d, 200, k)
            counts["difference"] += low <= 0 <= high
            counts["shift"] += test["shift_low"] <= 0 <= test["shift_high"]
            counts["false_signed_rank"] += test["p"] < statistics.LEVEL
            counts["false_permutation"] += test["p_permutation"] < statistics.LEVEL
            units = np.concatenate(table, axis=1)
            values, of_unit = count_scores(units), np.tile(np.arange(2 * cases), 2)
            drawn = [statistics.krippendorff_alpha(np.repeat(values, w[of_unit], axis=0)) for w in weights[:100]]
            low, high = percentile_interval(np.array(drawn))
            counts["alpha"] += low <= true_alpha <= high
            table, _ = scores(rng, cases, statistics.TARGET)
            counts["power"] += statistics.compare_pairs(table[0].mean(axis=0) - table[1].mean(axis=0), 1, k)["p"] < 0.05
        rows.append({"cases": cases, "states": 2 * cases} | {n: c / (experiments // 2) for n, c in counts.items()})
    return rows


def standard_errors(experiments: int) -> list[dict]:
    """Intervals without cases to resample: Student's over seeds, of training times; and two standard errors of a bias
    over the cases of the credit quality figure, eight decisions each."""
    rows = []
    for units in (2, 3, 5, 12):
        rng, student, bias = np.random.default_rng(units), 0, 0
        cluster = np.repeat(np.arange(units), 8)
        for _ in range(experiments):
            effect = over_seeds(np.exp(rng.normal(0, 0.1, units)))
            student += effect.low <= np.exp(0.005) <= effect.high
            values = rng.normal(0, 0.1, units)[cluster] + rng.normal(0, 0.1, 8 * units)
            bias += abs(values.mean()) <= 1.96 * clustered_error(pd.Series(values), pd.Series(cluster))
        rows.append({"units": units, "student": student / experiments, "two_errors": bias / experiments})
    return rows


PARTS = (crossed, power, superlatives, single_runs, final_accuracies, printed_figures, equalities, kappas, study,
         standard_errors)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--write", action="store_true")
    names = [part.__name__ for part in PARTS]
    parser.add_argument("--parts", nargs="+", choices=names, default=names, help="these alone; others stay in the file")
    args = parser.parse_args()
    kept = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    figures = {part.__name__: part(args.experiments) for part in tqdm(PARTS) if part.__name__ in args.parts}
    for name, rows in figures.items():
        print(f"\n{name}\n| " + " | ".join(rows[0]) + " |\n|" + "--:|" * len(rows[0]))
        for row in rows:
            print("| " + " | ".join(f"{value:.3g}" for value in row.values()) + " |")
    if args.write:
        OUT.write_text(
            json.dumps(kept | {"experiments": args.experiments} | figures, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
