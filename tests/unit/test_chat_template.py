"""`policy.chat_template_kwargs` reaches every prompt of the policy, whoever asks for it."""

from __future__ import annotations

import asyncio
import json

import pytest
from _local_server import LocalServer
from test_serving import server

from cdpr.agents.build import build_agent
from cdpr.cases import write_records
from cdpr.environment import DiagnosticEnvironment, run_episode
from cdpr.environment.prompt import FORCED_PREFIX
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.settings import parse_settings
from cdpr.settings.schema import TinyModel
from cdpr.training.torch.tiny import CHAT_TEMPLATE, build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.training_run import TrainingRun
from cdpr.training.verl.session import Session

NO_THOUGHTS = "<thoughts></thoughts>"
SWITCH = "{% if add_generation_prompt and enable_thinking is false %}" + NO_THOUGHTS + "{% endif %}"
SETTINGS = {
    "policy": {"chat_template_kwargs": {"enable_thinking": False}, "max_turn_tokens": 4},
    "environment": {"max_turns": 3},
    "warm_start": {"cases": 1},
    "training": {"prompts_per_batch": 2, "mini_batch_prompts": 2, "group_size": 2, "verl": {"rollout": "cpu"}},
}


@pytest.fixture
def policy(tmp_path):
    """A tiny policy whose template can open a reply with empty thoughts."""
    tiny = TinyModel(hidden_size=32, layers=1, heads=2, intermediate_size=48, vocab_size=320)
    folder = build_tiny_policy(tmp_path / "tiny", tiny, ["fever cough pain in the flank"] * 20)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE + SWITCH)
    return folder


@pytest.fixture
def cases(case):
    return [case.model_copy(update={"note_id": f"T-{k}"}) for k in range(4)]


def prompts_of(workups):
    return [step.turn.prompt_ids for workup in workups for step in workup.steps]


def of_training(settings, policy, cases, tmp_path):
    groups = asyncio.run(Trainer(TrainingRun(settings, cases, policy, 0)).roll_out(0))
    return prompts_of(workup for group in groups for workup in group)


def of_evaluation(settings, policy, cases, tmp_path, own=None):
    """Also of what an inspected or studied policy is asked: all open it by the same spec."""
    agent = build_agent(settings, "cdpr-seed0", policy, 1.0, "mimic_iv", own)
    environment = DiagnosticEnvironment(settings.environment)
    return prompts_of([asyncio.run(run_episode(environment, agent, case, 0)) for case in cases])


def of_served_evaluation(settings, policy, cases, tmp_path):
    with server(tmp_path, "--log", str(tmp_path / "asked")) as own:
        of_evaluation(settings, policy, cases, tmp_path, own)
    return [json.loads(line.partition(" ")[2]) for line in (tmp_path / "asked").read_text().splitlines()]


def of_verl(settings, policy, cases, tmp_path):
    """What reaches its rollout servers and the frozen one."""
    asked = []

    class Kept(LocalServer):
        async def generate(self, request_id, *, prompt_ids, sampling_params, **more):
            asked.append(prompt_ids)
            return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)

    write_records(tmp_path / "cases.jsonl", cases)
    session = Session(settings, tmp_path / "cases.jsonl", policy, tmp_path, 0)
    context = session.context(Kept(policy, Kept(policy)))
    for agent in (context.policy, context.frozen()):
        before = len(asked)
        asyncio.run(run_episode(context.environment, agent, cases[0], 0))
        assert len(asked) > before
    return asked


@pytest.mark.parametrize("asked", [of_training, of_evaluation, of_served_evaluation, of_verl])
def test_every_reply_begins_as_the_settings_say(policy, cases, tmp_path, asked):
    prompts = asked(parse_settings(SETTINGS), policy, cases, tmp_path)
    texts = [ChatTokenizer(policy).decode(ids) for ids in prompts]
    begun = [text.removesuffix(FORCED_PREFIX["compact"]).endswith(NO_THOUGHTS) for text in texts]
    assert len(begun) > 3 and all(begun), texts
    assert max(text.count(NO_THOUGHTS) for text in texts) == 3, "of later turns too"
