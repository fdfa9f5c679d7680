"""Credit from complete records: what its values estimate, and what the policy learns from them."""

from __future__ import annotations

import asyncio
import itertools
import math
import re

import pytest
import torch
import transformers
from toy import appendicitis

from cdpr.environment import Turn
from cdpr.settings import SettingsError, merge, parse_settings
from cdpr.settings.variants import canonical
from cdpr.training.algorithm import score_groups
from cdpr.training.algorithms.record_critic import RecordCritic, net_gain
from cdpr.training.torch.beliefs import Branch, NameList, cached_name_scores, in_parts, name_scores
from cdpr.training.torch.loop import train
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.torch.update import Segment, token_logits
from cdpr.training.training_run import TrainingRun

# Two findings, A and B, given three diseases: P(finding | disease).
PRIOR = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
LIKELIHOOD = {"A": torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], dtype=torch.float64)}


def posterior(results):
    """The belief behind these results: a calibrated reader."""
    joint = PRIOR.clone()
    for name, result in results:
        joint = joint * LIKELIHOOD[name][:, result]
    return joint / joint.sum()


def test_what_is_not_listed_is_never_drawn():
    """The share of any other name, the last entry, does not count: nothing of it can be right."""
    before, after = torch.tensor([[0.3, 0.2, 0.5]]), torch.tensor([[0.1, 0.6, 0.3]])
    gain = 0.1 * (1 / 7 - 3 / 5) + 0.6 * (6 / 7 - 2 / 5)
    assert float(net_gain(before.log(), after.log(), 1.0, 2)) == pytest.approx(gain)


@pytest.mark.parametrize("power", [1.0, 2.0, 50.0])
def test_with_a_calibrated_reader_the_value_is_what_naming_gains(power):
    """Enumeration of disease and result: E[g | s, a] is the chance of naming the truth behind the result, less that
    before it. A reader that is too sure of itself is wrong about it."""

    def named(belief):
        return (power * belief.log()).softmax(0)

    def mean_gain(read):
        total = 0.0
        for result in (0, 1):
            chance = float((PRIOR * LIKELIHOOD["A"][:, result]).sum())
            before, after = read(posterior([])), read(posterior([("A", result)]))
            total += chance * float(net_gain(before.log()[None], after.log()[None], power, 3))
        return total

    exact = sum(
        float(PRIOR[disease] * LIKELIHOOD["A"][disease, result])
        * float(named(posterior([("A", result)]))[disease] - named(posterior([]))[disease])
        for disease, result in itertools.product(range(3), (0, 1))
    )
    assert mean_gain(lambda belief: belief) == pytest.approx(exact, abs=1e-12)
    sure = mean_gain(lambda belief: (4 * belief.log()).softmax(0))
    assert abs(sure - exact) > 0.02


def test_the_target_maximises_value_less_divergence_from_the_initial_policy():
    """pi_0 exp(G / tau), where prior and temperature agree, maximises E[G] - tau KL(pi | pi_0)."""
    rule = object.__new__(RecordCritic)
    rule.options = RecordCritic.Options(temperature=0.05, prior=0.05)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1, 5, generator=generator, dtype=torch.float64) / 10
    prior = torch.randn(1, 5, generator=generator, dtype=torch.float64).log_softmax(1)

    def objective(p):
        return float((p * values - 0.05 * p * (p.log() - prior)).sum())

    target = rule._compute_target(values, prior)
    for _ in range(50):
        other = (target.log() + 0.3 * torch.randn(1, 5, generator=generator, dtype=torch.float64)).softmax(1)
        assert objective(other) < objective(target)


def opened(tmp_path, case, differential=0, micro_batch=8, **options):
    """A training with the rule, of a policy that knows the names of the case."""
    plan = {"algorithm": "record_critic", "options": {"examinations": 9, "start": 0} | options, "steps": 4,
            "prompts_per_batch": 2, "mini_batch_prompts": 2, "micro_batch": micro_batch}  # fmt: skip
    tiny = {"hidden_size": 32, "heads": 2, "intermediate_size": 64, "vocab_size": 500}
    environment = {"prompt": {"style": "compact", "differential": differential}, "max_turns": 4}
    settings = parse_settings({"training": plan, "policy": {"tiny": tiny}, "environment": environment,
                               "warm_start": {"cases": 1}})  # fmt: skip
    truths = ["Acute appendicitis", "Sepsis", "Pneumonia"]
    cases = [case.model_copy(update={"note_id": f"T-{k}", "diagnosis_results": truths[k % 3]}) for k in range(7)]
    poor = {key: text for key, text in case.key_pertinent_results_dict.items() if key != "Lipase"}
    cases[4] = cases[4].model_copy(update={"key_pertinent_results_dict": poor})
    text = [f"REQUEST_TEST: {key}" for key in case.key_pertinent_results_dict] + [
        f"FINAL_DIAGNOSIS: {t}" for t in truths
    ]
    policy = build_tiny_policy(tmp_path / "policy", settings.policy.tiny, text * 50)
    return Trainer(TrainingRun(settings, cases, policy, 0))


def first_states(trainer):
    """Two episodes: a blood count, in the second one also a CT, then a diagnosis that has to be given."""
    environment, policy, groups = trainer.environment, trainer.policy, []
    for case, requests in zip(trainer.run.train[3:5], (1, 2), strict=True):
        state = environment.initial(case)
        for request in ("REQUEST_TEST: Complete Blood Count", "REQUEST_TEST: CT Abdomen and Pelvis")[:requests]:
            [turn] = asyncio.run(policy.score_replies(state, [request], False))
            state = state.after(environment.step(state, turn))
        [turn] = asyncio.run(policy.score_replies(state, ["FINAL_DIAGNOSIS: Sepsis"], True))
        groups.append([environment.finish(state, environment.step(state, turn), True)])
    return groups


def test_every_examination_of_the_record_has_the_value_that_a_pass_of_its_own_gives(tmp_path):
    trainer = opened(tmp_path, appendicitis())
    rule, prompts = trainer.algorithm, trainer.policy.prompts
    with torch.no_grad():  # an untrained reader believes everything alike
        for weights in rule.reader.parameters():
            weights.mul_(8.0 if weights.ndim == 2 else 1.0)
    batch = rule._read_states(first_states(trainer))
    pairs = rule._draw_pairs(
        rule._compute_target(torch.zeros(batch.log_prior.shape), batch.log_prior), batch, torch.Generator()
    )
    gains = asyncio.run(rule._compute_gains(batch, pairs)).tolist()
    names = rule.examinations.names

    def belief(state):
        ids = prompts.prompt_ids(state, True)
        logits, _ = token_logits(rule.reader.model, [[Segment(0, (*ids, 0), (len(ids),))]])
        return rule.reader.log_beliefs(rule.diagnoses.scores(logits[None])).detach()

    valued, physical = set(), 0
    for (n, e), gain in zip(pairs.tolist(), gains, strict=True):
        visit = batch.visits[n]
        assert not visit.forced
        step = trainer.environment.step(visit.state, Turn(f"REQUEST_TEST: {names[e]}"))
        expected = rule.return_of(0.0, step.effort) / trainer.settings.comparators.correctness_weight
        if step.observation.kind == "result":
            expected += float(net_gain(belief(visit.state), belief(visit.state.after(step)), rule.options.power, 3))
            physical += step.effort.physical
        else:
            assert step.observation.kind == "unavailable" and expected < 0
        assert gain == pytest.approx(expected, abs=1e-5)
        valued.add((visit.row, names[e], step.observation.kind))
    assert len({round(gain, 2) for gain in gains}) > 5 and physical  # free examinations were among them
    every = set(appendicitis().key_pertinent_results_dict) & set(names)
    assert {name for row, name, _ in valued if row == 1} == every
    assert {kind for row, name, kind in valued if (row, name) == (0, "Lipase")} == {"unavailable"}


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_a_name_of_several_tokens_has_the_probability_of_its_tokens(family, monkeypatch):
    """Names that begin alike: the softmax of their scores is the model's distribution over their first tokens up to the
    one that tells them apart. Both ways of computing it agree, however they are cut. The end-of-turn token is 9."""
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "initializer_range": 0.5}  # fmt: skip
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    ids = [(4, 5, 6, 9), (4, 5, 9), (4, 7, 8, 8, 9), (12, 4, 9), (4, 5, 6, 7, 9)]
    names = NameList(list("abcde"), ids)
    told_apart = [(4, 5, 6, 9), (4, 5, 9), (4, 7), (12,), (4, 5, 6, 7)]
    contexts = [(1, 2, 3, 4, 5, 6, 7, 8), (3, 3, 2), (8, 7, 6, 5, 4)]
    branches = [Branch(0, 5, (20, 21)), Branch(0, 8, (22,)), Branch(1, 3, (23, 20, 4)), Branch(2, 1, (30,))]

    def logprob(prefix, name):
        logits, tokens = token_logits(model, [[Segment(0, (*prefix, *name), range(len(prefix), len(prefix + name)))]])
        return float(logits.log_softmax(1).gather(1, tokens[:, None]).sum().detach())

    expected = torch.tensor([
        [logprob((*contexts[b.context][: b.start], *b.ids), name) for name in told_apart] for b in branches
    ]).log_softmax(1)  # fmt: skip
    with_any_other = NameList(list("abcde"), ids, is_open=True)
    opened = name_scores(model, contexts, branches, with_any_other)
    full = torch.tensor([[logprob((*contexts[b.context][: b.start], *b.ids), name) for name in ids] for b in branches])
    assert torch.allclose(opened[:, :5], full, atol=1e-3) and torch.allclose(opened.exp().sum(1), torch.ones(4))
    assert torch.allclose(cached_name_scores(model, contexts, branches, with_any_other), opened, atol=1e-3)
    whole = name_scores(model, contexts, branches, names)
    assert whole.requires_grad and torch.allclose(whole.log_softmax(1), expected, atol=1e-4)
    parts = torch.cat([name_scores(model, *part, names) for part in in_parts(contexts, branches, 2)])
    assert torch.allclose(parts, whole, atol=1e-4)
    for size in (1, 2, 1 << 30):
        monkeypatch.setattr("cdpr.training.torch.beliefs._CACHE_BYTES", size)
        assert torch.allclose(cached_name_scores(model, contexts, branches, names), whole, atol=1e-4)


def test_what_is_not_listed_is_one_entry_that_is_never_named(tmp_path):
    """Of three diseases the reader tells one apart. It learns that it is another one, and then no name is taught."""
    trainer = opened(tmp_path, appendicitis(), diagnoses=1, learning_rate=4e-3)
    rule, groups = trainer.algorithm, first_states(trainer)
    [listed] = rule.diagnoses.names
    others = [group for group in groups if group[0].case.diagnosis_results != listed]
    first = asyncio.run(score_groups(rule, others, 0))[0]
    for _ in range(80):
        scored = asyncio.run(score_groups(rule, others, 1))
    assert scored[0].counts["credit/reading_loss"] < 0.3 * first.counts["credit/reading_loss"]
    batch = rule._read_states(others)
    assert batch.log_beliefs.shape[1] == 2 and (batch.log_beliefs[:, 1] > batch.log_beliefs[:, 0]).all()
    named = [w[-1] for credit in scored for o in credit.alternatives for w in o.weights if isinstance(w, tuple)]
    assert named and not any(named)


def test_the_reader_learns_the_same_from_passes_of_any_size(tmp_path):
    gradients = []
    for size in (1, 32):
        trainer = opened(tmp_path, appendicitis(), micro_batch=size)
        rule = trainer.algorithm
        rule._read_states(first_states(trainer))
        gradients.append(torch.cat([p.grad.flatten() for p in rule.reader.parameters() if p.grad is not None]))
    assert gradients[0].norm() > 0 and torch.allclose(*gradients, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("differential", [0, 2])
def test_the_policy_learns_the_targets_and_not_what_it_did(tmp_path, differential):
    """With a differential every reply begins with the reader's two likeliest diagnoses, but for a forced one."""
    trainer = opened(tmp_path, appendicitis(), differential)
    groups = first_states(trainer)
    first_lines = trainer.algorithm._read_states(groups).first_lines
    scored = asyncio.run(score_groups(trainer.algorithm, groups, 0))
    for [trajectory], credit in zip(groups, scored, strict=True):
        assert not any(map(any, credit.weights)) and {other.advantages for other in credit.alternatives} == {(1.0,)}
        prompts = [step.turn.prompt_ids for step in trajectory.steps]
        free = [o for o in credit.alternatives if o.turns[0].prompt_ids == prompts[0]]
        lines = {o.turns[0].text.rpartition("\n")[0] for o in free}
        assert lines <= {line.strip() for line in first_lines} and len(lines) == 1
        assert bool(re.fullmatch(r"DIFFERENTIAL: \D+ \d+, \D+ \d+", *lines)) is (differential == 2)
        diagnosis, *requests = free
        stop, shares = diagnosis.weights[0][0], [other.weights[0] for other in requests]
        assert diagnosis.weights[0][-1] == trainer.algorithm.options.reading_weight
        assert 0 < stop < 1 and stop + sum(shares) == pytest.approx(1.0, abs=0.05)
        forced = [o for o in credit.alternatives if o.turns[0].prompt_ids == prompts[-1]]
        assert len(forced) == 1 and forced[0].turns[0].text.startswith("FINAL_DIAGNOSIS: ")
    readings = asyncio.run(score_groups(opened(tmp_path / "names", appendicitis(), choice=False).algorithm, groups, 0))
    assert all(other.turns[0].text.startswith("FINAL_") for credit in readings for other in credit.alternatives)


def test_reader_and_critic_learn_the_states_they_see(tmp_path):
    trainer = opened(tmp_path, appendicitis(), learning_rate=4e-3)
    rule, groups, rows = trainer.algorithm, first_states(trainer)[:1], []
    for _ in range(80):
        rows.append(rule.finish_batch(asyncio.run(score_groups(rule, groups, 1))))
    for name in ("credit/reading_loss", "credit/critic_loss"):
        assert rows[-1][name] < 0.5 * rows[0][name]
    frozen = opened(tmp_path / "frozen", appendicitis(), reader=False).algorithm
    before = {name: weights.clone() for name, weights in frozen.reader.model.state_dict().items()}
    asyncio.run(score_groups(frozen, groups, 1))
    assert all(torch.equal(before[name], weights) for name, weights in frozen.reader.model.state_dict().items())
    assert float(frozen.reader.log_scale.detach()) != pytest.approx(math.log(0.3), abs=1e-9)


def test_an_interrupted_run_continues_to_the_byte(tmp_path):
    """Reader, critic, their optimisers and the remembered states are in the checkpoint."""

    def trained(state, *stops):
        for stop in stops:
            trainer = opened(tmp_path, appendicitis())
            train(trainer, tmp_path / state, lambda row: None, steps=stop)
        return trainer.state_dict()

    whole, parts = trained("whole", 4), trained("parts", 1, 3, 4)
    for name in ("model", "optimizer", "algorithm"):
        assert equal(whole[name], parts[name]), name


def equal(a, b):
    """Whether two nested states are the same to the bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": {"prompt": {"style": "full"}}}, r"environment\.prompt\.style: record_critic"),
        ({"training": {"temperature": 0.7}}, r"training\.temperature: record_critic"),
        ({"training": {"options": {"temperature": 0.0}}}, r"training\.options\.temperature"),
        ({"training": {"options": {"critics": True}}}, r"training\.options\.critics.*options of record_critic"),
    ],
)
def test_what_it_cannot_train_is_refused_when_planned(changes, message):
    base = {"training": {"algorithm": "record_critic"}, "environment": {"prompt": {"style": "compact"}}}
    canonical(parse_settings(base), parse_settings({}))
    with pytest.raises(SettingsError, match=message):
        canonical(parse_settings(merge(base, changes)), parse_settings({}))
