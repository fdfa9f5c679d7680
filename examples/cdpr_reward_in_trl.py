"""CDPR's trajectory score G as the reward of TRL's GRPOTrainer: pip install 'cdpr[trl]', python cdpr_reward_in_trl.py

`rollout_func` runs our episodes with the model that TRL trains and hands their scores to the reward function;
`env_mask` keeps results out of the loss. Advantages and loss are TRL's: single decisions have no credit of their own.
"""

import asyncio
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from cdpr import ProcessReward, Settings, TrainingRun, run_episode, synthetic_cases, trajectory_score, warm_start
from cdpr.llm.sampler import InProcessSampler
from cdpr.training.torch.weights import load_model

GROUP = 4
SETTINGS = Settings.model_validate({
    "policy": {"tiny": {"hidden_size": 32, "heads": 2, "intermediate_size": 64, "vocab_size": 600}},
    "environment": {"max_turns": 4},
    "warm_start": {"cases": 0, "epochs": 4},
    "training": {"prompts_per_batch": 2},
})  # fmt: skip


def roll_out(prompts: list[str], trainer: GRPOTrainer) -> dict[str, list]:
    """Groups of episodes of the cases whose numbers are the prompts, each repeated GROUP times."""
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    policy, frozen = (RUN.make_agent(InProcessSampler.from_model(m, RUN.tokenizer)) for m in (model, FROZEN))
    step = trainer.state.global_step
    reward = ProcessReward(RUN.environment, policy, frozen, SETTINGS.credit, SETTINGS.utility, step)
    columns = {name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "score")}
    assert prompts == [prompt for prompt in prompts[::GROUP] for _ in range(GROUP)]
    for start in range(0, len(prompts), GROUP):
        case = CASES[prompts[start]]
        seeds = [RUN.episode_seed(case, step, i) for i in range(GROUP)]
        group = [asyncio.run(run_episode(RUN.environment, policy, case, seed)) for seed in seeds]
        [report] = asyncio.run(reward.score([group], step))
        for episode, process in zip(group, report.process, strict=True):
            turns = [s.turn for s in episode.steps]
            begin, ids = len(turns[0].prompt_ids), turns[-1].prompt_ids + turns[-1].token_ids
            known = {len(t.prompt_ids) + k: x for t in turns for k, x in enumerate(t.logprobs)}
            row = (ids[:begin], ids[begin:], [known.get(k, 0.0) for k in range(begin, len(ids))],
                   [int(k in known) for k in range(begin, len(ids))],
                   trajectory_score(float(episode.correct), process, SETTINGS.credit))  # fmt: skip
            for column, value in zip(columns.values(), row, strict=True):
                column.append(list(value) if isinstance(value, tuple) else value)
    model.train()
    return columns


if __name__ == "__main__":
    CASES = {case.note_id: case for case in synthetic_cases(50, SETTINGS) if case.split == "train"}
    POLICY = warm_start(CASES.values(), Path("warm_start"), SETTINGS)
    RUN, FROZEN = TrainingRun(SETTINGS, CASES.values(), POLICY, seed=0), load_model(POLICY)
    config = GRPOConfig("trl", num_generations=GROUP, per_device_train_batch_size=2 * GROUP, max_steps=2, use_cpu=True,
                        logging_steps=1, report_to="none")  # fmt: skip
    GRPOTrainer(str(POLICY), lambda completions, score, **_: score, config, Dataset.from_dict({"prompt": [*CASES]}),
                rollout_func=roll_out).train()  # fmt: skip
