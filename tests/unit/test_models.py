"""One door to models: what stands behind it, what it refuses before anything is asked, and what it must not load."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from served import answering
from toy import Grouped

from cdpr.agents.build import agent_code, agent_entry, model_spec
from cdpr.agents.policy import PolicyAgent
from cdpr.environment import PromptBuilder, State
from cdpr.llm import Model, ModelSpec, Sampling, open_model
from cdpr.llm.rollout_server import RolloutServer
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.llm.types import CASE, Completion, ModelFailure, unanswered
from cdpr.settings import AgentEntry, SettingsError, load_settings, parse_settings, why_not_run

SECRET = "zqsecret complaint"
ASK = [{"role": "user", "content": SECRET}]
SERVER = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from cdpr.training.torch.tiny import build_tiny_policy

    tiny = Grouped(hidden_size=32, layers=2, heads=4, intermediate_size=48, vocab_size=320)
    corpus = ["fever cough pain in the flank", "elevated blood count of a patient"] * 20
    return build_tiny_policy(tmp_path_factory.mktemp("policy") / "tiny", tiny, corpus)


def spec_of(where: str, name: str = "m") -> ModelSpec:
    return ModelSpec(where=where, name=name, credentialed=True)


def test_a_folder_answers_the_same_twice_and_says_when_there_is_no_room(folder):
    model = open_model(spec_of(str(folder)))

    def ask(max_tokens: int, temperature: float = 0.0, seed: int = 0) -> str:
        [answer] = asyncio.run(model.chat(ASK, (0,), Sampling(max_tokens, temperature), seed))
        return answer.text

    assert ask(6) == ask(6)
    assert len({ask(6, 2.0, seed) for seed in range(4)}) > 1
    assert asyncio.run(model.chat(ASK, (0, 1), Sampling(10**6), 0)) == [unanswered("too_long")] * 2


def test_messages_are_the_prompt_that_the_tokenizer_makes_of_them(folder):
    model = open_model(spec_of(str(folder)))
    prompt, drawn = model.tokenizer.encode_conversation(ASK), Sampling(5)
    assert asyncio.run(model.chat(ASK, (0, 3), drawn, 7)) == asyncio.run(model.sample(prompt, (0, 3), drawn, 7))


def test_verls_servers_answer_through_the_client_that_is_handed_over(folder):
    from _local_server import LocalServer

    server, drawn = LocalServer(folder), Sampling(5)
    model = RolloutServer(server, server.sampler.tokenizer, "cpu")
    prompt = model.tokenizer.encode_conversation(ASK)
    expected = asyncio.run(server.sampler.sample(prompt, (0, 3), drawn, 7))
    assert asyncio.run(model.sample(prompt, (0, 3), drawn, 7)) == expected
    assert asyncio.run(model.chat(ASK, (0, 3), drawn, 7)) == expected
    other = RolloutServer(server, server.sampler.tokenizer, "sglang")
    with pytest.raises(SettingsError, match="cannot score"):
        asyncio.run(other.score(prompt, [(6,)]))


def forward_pass(folder, ids) -> list[float]:
    """log p of every token but the first, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1]
    return logits.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


@pytest.mark.parametrize("door", ["process", "openai", "verl"])
def test_the_score_of_a_text_is_that_of_the_forward_pass(folder, door):
    """In this process; by the OpenAI protocol as vLLM speaks it; by verl's server, which adds a row of no token."""
    from _local_server import LocalServer

    async def answer(request, server):
        question = await request.json()
        ids = question["prompt"]
        assert question["prompt_logprobs"] == 0 and question["max_tokens"] == 1
        lines = zip(ids[1:], forward_pass(folder, ids), strict=True)
        rows = [None, *({str(token): {"logprob": logprob, "rank": 7}} for token, logprob in lines)]
        return {"choices": [{"text": "", "finish_reason": "length", "index": 0, "prompt_logprobs": rows}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}}  # fmt: skip

    with answering(answer) as server:
        local = LocalServer(folder)
        tokenizer = local.sampler.tokenizer
        model = {
            "process": lambda: local.sampler,
            "openai": lambda: open_model(ModelSpec(where=server.url, name="m", credentialed=False, tokens=str(folder))),
            "verl": lambda: RolloutServer(local, tokenizer, "cpu"),
        }[door]()
        prompt = tokenizer.encode_conversation(ASK)
        continuations = [(5, 9, 4), (6,), tuple(tokenizer.encode("blood count"))]
        for ids, scored in zip(continuations, asyncio.run(model.score(prompt, continuations)), strict=True):
            expected = forward_pass(folder, [*prompt, *ids])[-len(ids) :]
            assert scored == pytest.approx(expected, abs=1e-4) and len(set(expected)) == len(ids)


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_server_that_scores_other_positions_is_refused(folder, shift):
    """Rows of the next version of verl or vLLM may begin or end elsewhere."""
    from _local_server import LocalServer

    class Shifted(LocalServer):
        async def generate(self, *args, **kwargs):
            output = await super().generate(*args, **kwargs)
            rows = output.extra_fields["prompt_ids"]
            output.extra_fields["prompt_ids"] = rows[shift:] if shift > 0 else [[0], *rows]
            return output

    server = Shifted(folder)
    model = RolloutServer(server, server.sampler.tokenizer, "cpu")
    with pytest.raises(ModelFailure, match="other tokens"):
        asyncio.run(model.score((5, 6), [(7, 8)]))


def test_one_request_brings_several_replies_and_cases_keep_to_their_replica(folder):
    """vLLM draws reply i of a request with its seed + i; so reply k is the same however replies are put together."""
    fewer = []

    async def answer(request, server):
        question = await request.json()
        count = question.get("n", 1)
        server.requests.append((count, question.get("stop"), request.headers.get("X-data-parallel-rank")))
        ids = [[question["seed"] % 89 + i + 5, 3] for i in range(count - len(fewer))]
        choices = [{"index": i, "text": "", "finish_reason": "stop", "token_ids": own} for i, own in enumerate(ids)]
        return {"choices": choices[::-1], "usage": {"prompt_tokens": 3, "completion_tokens": 2 * count}}

    def sample(numbers, temperature=1.0, seed=0, first_line=False, case="a"):
        CASE.set(case)
        sampling = Sampling(4, temperature, first_line=first_line)
        return [c.token_ids for c in asyncio.run(model.sample((5, 6), numbers, sampling, seed))]

    with answering(answer) as server:
        spec = ModelSpec(where=server.url, name="m", credentialed=False, tokens=str(folder), replicas=2, retries=0)
        model = open_model(spec)
        alone = [sample((k,))[0] for k in range(6)]
        assert sample(range(6)) == alone and sample((4, 0, 1, 5)) == [alone[k] for k in (4, 0, 1, 5)]
        assert len(set(alone)) == 6 and sample((0,), seed=1)[0] not in alone
        assert sorted(count for count, _, _ in server.requests[6:10]) == [1, 1, 2, 6]
        assert [rank for _, _, rank in server.requests] == ["0"] * 11
        sample((0,), case="b"), sample((0,), case="c"), sample((0, 1), case="b", first_line=True)
        assert server.requests[11:] == [(1, None, "1"), (1, None, "0"), (2, ["\n"], "1")]
        sample((0, 1), temperature=0.0)
        assert [count for count, _, _ in server.requests[14:]] == [1, 1], "vLLM refuses several greedy replies"
        fewer.append(1)
        with pytest.raises(ModelFailure, match="form of an answer"):
            sample(range(2))


def test_a_diagnosis_that_ends_a_continuation_needs_no_reason(folder, case):
    """A server may stop behind its line. A trajectory keeps its last reply whole, because it is trained on."""
    asked = []

    class Server(Model):
        tokenizer = ChatTokenizer(folder)

        async def sample(self, prompt_ids, samples, sampling, seed):
            asked.append(sampling.first_line)
            return [Completion("REQUEST_TEST: x", (5,), (), "stop") for _ in samples]

    settings = load_settings("config.yaml")
    prompts = PromptBuilder(settings.environment.prompt, Server.tokenizer, settings.policy.max_prompt_tokens)
    agent = PolicyAgent(Server(), prompts, settings.policy, 1.0)
    state = State(case)
    for forced in (False, True):
        asyncio.run(agent.act(state, forced, 0))
        asyncio.run(agent.sample(state, (0, 1), forced, 0))
    assert asked == [False, False, False, True]


@pytest.mark.parametrize("where", [SERVER, "unix:/run/model.sock", "anthropic"])
def test_a_model_that_takes_messages_only_refuses_tokens(where):
    model = open_model(ModelSpec(where=where, name="m", credentialed=False))
    assert model.tokenizer is None
    with pytest.raises(SettingsError, match="messages only"):
        asyncio.run(model.sample((1, 2), (0,), Sampling(3), 0))


def test_what_cannot_be_opened_is_refused_at_once():
    for wrong, says in [(spec_of("no/such/folder"), "config.json"), (spec_of(SERVER, name=""), "which model")]:
        for refuse in (ModelSpec.check, open_model):
            with pytest.raises(SettingsError, match=says):
                refuse(wrong)


def test_settings_name_models(folder):
    verl = {"rollout": "vllm", "frozen": {"url": SERVER, "at_once": 5}}
    settings = parse_settings({"policy": {"model": "models/qwen"}, "training": {"verl": verl}})
    frozen = ModelSpec.of_frozen_server(settings, credentialed=False)
    assert (frozen.name, frozen.timeout, frozen.retries, frozen.at_once) == ("models/qwen", 600.0, 10, 5)


def test_every_runnable_agent_of_the_registry_resolves_to_its_own_code(folder):
    settings, policy = load_settings(), ("cdpr.agents.policy", "cdpr.llm.sampler", "cdpr.llm.agent_model")
    for name, entry in settings.agents.items():
        if why_not_run(settings, name):
            continue
        spec = model_spec(settings, agent_entry(settings, name), folder)
        assert (spec is None) == entry.knows_hospital
        assert agent_code(settings, entry) == (("cdpr.agents.reference",) if spec is None else policy)
    assert agent_code(settings, agent_entry(settings, "cdpr-seed0")) == policy
    served = AgentEntry(label="x", model=SERVER, served_as="m", look=None)
    asked = ("cdpr.llm.agent_model", "cdpr.llm.recording")
    assert agent_code(settings, served) == ("cdpr.agents.policy", "cdpr.llm.server", *asked)
    claude = agent_code(settings, settings.agents["claude_sonnet_4_6"])
    assert claude == ("cdpr.agents.policy", "cdpr.llm.server", *asked)
    with pytest.raises(SettingsError, match="neither trained"):
        agent_entry(settings, "nobody")
    with pytest.raises(SettingsError, match="--policy"):
        model_spec(settings, agent_entry(settings, "warm_start"), None)


def test_the_door_is_light():
    """Naming a model loads neither torch nor a client: the workflow does it for every job."""
    code = "import sys, cdpr.llm, cdpr.agents.build; print(*{'torch', 'httpx2'} & {*sys.modules})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == ""
