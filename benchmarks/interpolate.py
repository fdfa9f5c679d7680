"""What the weights between a policy's start and its end can do (WiSE-FT, Wortsman et al., 2022): accuracy and cost of
(1 - share) * initial weights + share * trained weights, on the test cases of every hospital.

With --unread only the embeddings of tokens that the initial policy's training episodes lack are interpolated; all other
weights are the trained ones. How far these tokens moved is printed too.

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
from cdpr.environment import run_episodes
from cdpr.evaluation.evaluate_agent import evaluate
from cdpr.llm import run_async
from cdpr.settings import Settings, load_settings
from cdpr.training.torch.trainer import Trainer
from cdpr.training.training_run import TrainingRun

HOSPITALS = ("mimic_iv", "clinicalbench", "private")
WEIGHTS, EMBEDDINGS = "model.safetensors", "model.embed_tokens.weight"
EPISODES = 3000  # of the initial policy on training cases; what they contain counts as read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="name of a run in the folder of trainings")
    parser.add_argument("shares", nargs="+", type=float, help="shares of the trained weights, 0 to 1")
    parser.add_argument("--overlay", default="config/beyond_paper_fresh.yaml", help="overlay of the training")
    parser.add_argument("--unread", action="store_true", help="interpolate the embeddings of unread tokens alone")
    options = parser.parse_args()
    settings = load_settings("config.yaml", options.overlay)
    folder = Path(settings.paths.results)
    trained = folder / "training" / options.run / "policy"
    start, end = load_file(folder / "policies/warm_start" / WEIGHTS), load_file(trained / WEIGHTS)
    torch.set_num_threads(1)
    is_unread = find_unread(settings, folder) if options.unread else None
    if is_unread is not None:
        moved = (end[EMBEDDINGS] - start[EMBEDDINGS]).norm(dim=1)
        for name, rows in (("unread", is_unread), ("read", ~is_unread)):
            length = start[EMBEDDINGS][rows].norm(dim=1).mean()
            print(f"# {int(rows.sum())} {name} tokens moved by {moved[rows].mean():.2f}, their length {length:.2f}")
    print("run,interpolated,share,hospital,cases,greedy,greedy_usd,sampled,sampled_usd")
    what = "embeddings of unread tokens" if options.unread else "all weights"
    for share in options.shares:
        for hospital in HOSPITALS:
            cases = list(iterate_records(folder / "cases" / f"{hospital}.jsonl", "test"))
            with tempfile.TemporaryDirectory() as scratch:
                policy, state = Path(scratch, "policy"), Path(scratch, "state")
                state.mkdir()
                shutil.copytree(trained, policy)
                between = {name: torch.lerp(start[name], end[name], share) for name in end}
                if is_unread is not None:
                    rows = torch.where(is_unread[:, None], between[EMBEDDINGS], end[EMBEDDINGS])
                    between = end | {EMBEDDINGS: rows}
                save_file(between, policy / WEIGHTS, metadata={"format": "pt"})
                metrics, _ = evaluate(settings, options.run, cases, state / "rows.jsonl", state, policy)
            means = [(100 * metrics[f"{how}/accuracy"], metrics[f"{how}/aec"]) for how in ("greedy", "sampled")]
            numbers = ",".join(f"{accuracy:.1f},{usd:.1f}" for accuracy, usd in means)
            print(f"{options.run},{what},{share:g},{hospital},{len(cases)},{numbers}", flush=True)


def find_unread(settings: Settings, folder: Path) -> torch.Tensor:
    """Return which tokens occur in none of the first :data:`EPISODES` training episodes of the initial policy, neither
    in a prompt nor in a reply: a mask [V] over the vocabulary."""
    run = TrainingRun(settings, iterate_records(folder / "cases/mimic_iv.jsonl"), folder / "policies/warm_start", 0)
    trainer = Trainer(run)
    read: set[int] = set()
    for episode in run_async(run_episodes(run.environment, trainer.policy, run.train[:EPISODES], 0)):
        if episode is not None:
            read.update(run.prompts.context_ids(episode.states[-1]), episode.steps[-1].turn.token_ids)
    mask = torch.ones(len(trainer.model.model.embed_tokens.weight), dtype=torch.bool)
    mask[list(read)] = False
    return mask


if __name__ == "__main__":
    main()
