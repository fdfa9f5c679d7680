"""Differences between pairs of trained variants, in accuracy (points) and cost (USD), on every data set and for every
decoding, with the intervals of the report: 95% over training seeds and cases.

Needs the evaluations of an overlay: snakemake --cores all --configfile config/beyond_paper_epsilon.yaml -- frontier
Parts (`frontier_parts`) are evaluated on mimic_iv alone: --datasets mimic_iv.
Usage: python benchmarks/differences.py record_critic_quarter:cdpr record_critic_quarter:grpo [--overlay ...]
"""

from __future__ import annotations

import argparse

import numpy as np

from cdpr.evaluation.metrics import METRICS, estimate
from cdpr.report.methods import DATASETS, variant_method
from cdpr.report.results import Results
from cdpr.settings import load_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", help="two variants, joined by a colon: the second is subtracted")
    parser.add_argument("--overlay", default="config/beyond_paper_epsilon.yaml", help="overlay of the evaluations")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS, help="default: all")
    options = parser.parse_args()
    settings = load_settings("config.yaml", options.overlay)
    pairs = [pair.split(":") for pair in options.pairs]
    methods = {name: variant_method(settings, name) for pair in pairs for name in pair}
    results = Results(settings, settings.paths.results, list(methods.values()))
    numbers = ("accuracy", "cost_usd", "other_accuracy", "other_cost_usd")
    changes = ("accuracy_points", "low", "high", "cost_difference", "cost_low", "cost_high")
    print("rule", "seeds", "other", "other_seeds", "dataset", "decoding", *numbers, *changes, sep=",")
    columns, units = [list(METRICS).index(name) for name in ("accuracy", "aec")], np.array([100.0, 1.0])
    for name, other in pairs:
        for dataset in options.datasets:
            for decoding in results.decodings:
                both = [methods[name], methods[other]]
                samples = results.samples(both, dataset, decoding)[:, :, columns] * units  # [1 + resamples, 2, 2]
                difference = samples[:, 0] - samples[:, 1]
                found = [
                    estimate("x", [mean], draws) for mean, draws in zip(difference[0], difference[1:].T, strict=True)
                ]
                means = [f"{value:.1f}" for value in samples[0].ravel()]
                ends = [f"{row[end]:+.1f}" for row in found for end in ("x", "x_low", "x_high")]
                seeds = [len(method.runs) for method in both]
                print(name, seeds[0], other, seeds[1], dataset, decoding, *means, *ends, sep=",", flush=True)


if __name__ == "__main__":
    main()
