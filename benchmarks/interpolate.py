"""What the weights between a policy's start and its end can do (WiSE-FT, Wortsman et al., 2022): accuracy and cost of
(1 - share) * initial weights + share * trained weights, on the test cases of every hospital.

Needs a trained run of an overlay: snakemake --cores all --configfile config/beyond_paper_fresh.yaml -- frontier
Usage: python benchmarks/interpolate.py record_critic-seed1 0 0.3 0.5 0.7 0.85 1 [--overlay ...]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from cdpr.cases import iterate_records
from cdpr.evaluation.evaluate_agent import evaluate
from cdpr.settings import load_settings

HOSPITALS = ("mimic_iv", "clinicalbench", "private")
WEIGHTS = "model.safetensors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="name of a run in the folder of trainings")
    parser.add_argument("shares", nargs="+", type=float, help="shares of the trained weights, 0 to 1")
    parser.add_argument("--overlay", default="config/beyond_paper_fresh.yaml", help="overlay of the training")
    options = parser.parse_args()
    settings = load_settings("config.yaml", options.overlay)
    folder = Path(settings.paths.results)
    trained = folder / "training" / options.run / "policy"
    start, end = load_file(folder / "policies/warm_start" / WEIGHTS), load_file(trained / WEIGHTS)
    torch.set_num_threads(1)
    print("run,share,hospital,cases,greedy,greedy_usd,sampled,sampled_usd")
    for share in options.shares:
        for hospital in HOSPITALS:
            cases = list(iterate_records(folder / "cases" / f"{hospital}.jsonl", "test"))
            with tempfile.TemporaryDirectory() as scratch:
                policy, state = Path(scratch, "policy"), Path(scratch, "state")
                state.mkdir()
                shutil.copytree(trained, policy)
                between = {name: torch.lerp(start[name], end[name], share) for name in end}
                save_file(between, policy / WEIGHTS, metadata={"format": "pt"})
                metrics, _ = evaluate(settings, options.run, cases, state / "rows.jsonl", state, policy)
            means = [(100 * metrics[f"{how}/accuracy"], metrics[f"{how}/aec"]) for how in ("greedy", "sampled")]
            numbers = ",".join(f"{accuracy:.1f},{usd:.1f}" for accuracy, usd in means)
            print(f"{options.run},{share:g},{hospital},{len(cases)},{numbers}", flush=True)


if __name__ == "__main__":
    main()
