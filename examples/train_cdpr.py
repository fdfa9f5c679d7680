"""CDPR on cases of your own, without Snakemake: python train_cdpr.py [CASES.jsonl POLICY_FOLDER]

CASES.jsonl are priced cases (docs/reference/private-format.md); POLICY_FOLDER is a Hugging Face folder that follows the
prompt. Without them: cases of the synthetic hospital and a tiny policy, which first imitates clinicians. A killed
training goes on where it stopped.
"""

import sys
from pathlib import Path
from statistics import fmean

from cdpr import (
    PolicyAgent,
    Settings,
    Trainer,
    TrainingRun,
    evaluate_cases,
    iterate_records,
    synthetic_cases,
    train,
    warm_start,
)

CHANGES = {
    "policy": {"tiny": {"hidden_size": 32, "heads": 2, "intermediate_size": 64, "vocab_size": 600}},
    "environment": {"max_turns": 4},
    "utility": {"cost_unit_usd": 7.0},
    "warm_start": {"cases": 0, "epochs": 4},  # no training case is set apart for imitation
    "training": {"steps": 3, "prompts_per_batch": 4, "mini_batch_prompts": 4, "learning_rate": 1e-3},
    "credit": {"max_states": 2},
}


def main(cases_file: str = "", policy_folder: str = "tiny") -> None:
    settings = Settings.model_validate({**CHANGES, "policy": {**CHANGES["policy"], "model": policy_folder}})
    cases = list(iterate_records(cases_file)) if cases_file else synthetic_cases(50, settings)
    policy = Path(policy_folder)
    if policy_folder == "tiny":
        policy = warm_start([case for case in cases if case.split == "train"], Path("warm_start"), settings)
    trainer = Trainer(TrainingRun(settings, cases, policy, seed=0))
    train(trainer, Path("state"))
    trainer.save(Path("cdpr_policy"))
    tests = [case for case in cases if case.split == "test"]
    for name in (policy, Path("cdpr_policy")):
        rows = evaluate_cases(PolicyAgent.load(name, settings), tests, settings)
        print(f"{name}: utility {fmean(row.utility for row in rows):.3f} on {len(rows)} test cases")


if __name__ == "__main__":
    main(*sys.argv[1:])
