"""The in-process sampler against transformers: log-probabilities, draws, greedy text, and what must not matter."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest
import torch
from local_model import smollm2
from scipy.stats import chisquare
from toy import Grouped

from cdpr.llm.attention import Branches
from cdpr.llm.decoding import draw, uniforms
from cdpr.llm.prefix_cache import as_path
from cdpr.llm.sampler import InProcessSampler, cache_memory
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.llm.transformer import DecoderConfig, Transformer
from cdpr.llm.types import Request, Sampling
from cdpr.training.torch.tiny import build_tiny_policy, train_tokenizer

WORDS = ["fever", "cough", "pain in the flank", "Complete Blood Count", "CT Abdomen", "58 year old male", "elevated"]
PLAIN = (Sampling(12),)
MIXED = (Sampling(9), Sampling(4, temperature=0.7), Sampling(12, temperature=0), Sampling(7, top_p=0.8, top_k=20))
RULES = ((1.0,), (1.0,), (0.7,), (0.0,), (1.0, 0.7), (0.9, 0.9, 12))
TINY = Grouped(hidden_size=32, layers=2, heads=4, intermediate_size=48, vocab_size=320)


def corpus() -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=12)) for _ in range(100)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_tiny_policy(tmp_path_factory.mktemp("policy") / "tiny", TINY, corpus())


@pytest.fixture(scope="module")
def model(folder):
    from transformers import AutoModelForCausalLM

    return sharpen(AutoModelForCausalLM.from_pretrained(folder))


@pytest.fixture
def sampler(model, folder):
    return InProcessSampler.from_model(model, ChatTokenizer(folder))


def limited(sampler: InProcessSampler, prefixes: int = 10**5, rows: int = 768, tokens: int = 10**6) -> InProcessSampler:
    """With room for so many tokens of prefixes, and chunks of so many completions and tokens."""
    sampler._prefixes.resize(prefixes)
    sampler._decoder.rows, sampler._decoder.tokens = rows, tokens
    return sampler


def sharpen(model):
    """Random weights give near-uniform distributions; larger ones give turns that end and modes that matter."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6.0) if parameter.ndim > 1 else parameter.add_(
                0.3 * torch.randn(parameter.shape, generator=generator)
            )
    return model.eval()


def requests(count: int, vocab: int = 320, seed: int = 0, samplings=PLAIN) -> list[Request]:
    rng = random.Random(seed)
    roots = [rng.choices(range(4, vocab), k=rng.randint(1, 40)) for _ in range(5)]
    return [
        Request(
            (*rng.choice(roots), *rng.choices(range(4, vocab), k=rng.randint(0, 25))),
            tuple(range(rng.choice([1, 2, 4]))),
            rng.choice(samplings),
            rng.getrandbits(64),
        )
        for _ in range(count)
    ]


def worst_difference(model, wave, answers) -> float:
    worst = 0.0
    for request, completions in zip(wave, answers, strict=True):
        for completion in completions:
            with torch.no_grad():
                logits = model(torch.tensor([request.prompt + completion.token_ids])).logits[0].double()
            expected = (logits / (request.sampling.temperature or 1.0)).log_softmax(-1)
            for at, (token, logprob) in enumerate(zip(completion.token_ids, completion.logprobs, strict=True)):
                worst = max(worst, abs(expected[len(request.prompt) - 1 + at, token].item() - logprob))
    return worst


def test_caches_take_a_share_of_the_gpu_and_the_same_on_every_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 4 * 2**30)
    assert cache_memory(torch.device("cuda"), 0.5) == 30 * 2**30
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 0.25)
    assert cache_memory(torch.device("cuda"), 0.5) == 8 * 2**30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 80 * 2**30))
    assert cache_memory(torch.device("cuda"), 0.5) == cache_memory(torch.device("cpu"), 0.5) == 3 * 2**29


def test_logprobs_equal_the_forward_pass_of_qwen3(model, sampler):
    for seed in (0, 0, 1):  # the second wave answers from the prefix cache
        wave = requests(30, seed=seed, samplings=MIXED)
        assert worst_difference(model, wave, sampler.sample_batch(wave)) < 1e-4
    assert sampler.counters["reused_tokens"] > 0


@pytest.mark.parametrize("scaled", [False, True])
def test_logprobs_equal_the_forward_pass_of_llama(scaled, folder, tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    rope = {"rope_type": "default", "rope_theta": 500.0}
    if scaled:
        rope |= {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        rope["original_max_position_embeddings"] = 32
    config = LlamaConfig(
        vocab_size=320, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=3, head_dim=8, max_position_embeddings=256, rope_parameters=rope, attention_bias=scaled,
        mlp_bias=scaled, tie_word_embeddings=False, eos_token_id=3,
    )  # fmt: skip
    llama = sharpen(LlamaForCausalLM(config))
    llama.save_pretrained(tmp_path)
    for transformer in (Transformer.from_model(llama), Transformer.load(tmp_path)):
        sampler = InProcessSampler(transformer, ChatTokenizer(folder))
        wave = requests(12, samplings=MIXED)
        assert worst_difference(llama, wave, sampler.sample_batch(wave)) < 1e-4


def test_bfloat16_stays_close_to_float32(folder, model):
    sampler = InProcessSampler(Transformer.load(folder, dtype=torch.bfloat16), ChatTokenizer(folder))
    wave = requests(10)
    for answer in sampler.sample_batch(wave):
        assert all(torch.isfinite(torch.tensor(c.logprobs)).all() for c in answer)


def test_draws_follow_the_softmax(model, sampler):
    prompt, n = (5, 6, 7, 8), 20_000
    drawn = [c.token_ids[0] for c in sampler.sample_batch([Request(prompt, tuple(range(n)), Sampling(1), 11)])[0]]
    with torch.no_grad():
        expected = model(torch.tensor([prompt])).logits[0, -1].double().softmax(-1) * n
    observed = torch.bincount(torch.tensor(drawn), minlength=len(expected)).double()
    common = expected >= 5
    assert observed[~common].sum() <= 5 * (~common).sum()
    observed, expected = observed[common], expected[common]
    expected *= observed.sum() / expected.sum()
    assert chisquare(observed.numpy(), expected.numpy()).pvalue > 1e-3


def test_uniforms_are_uniform_and_independent_of_the_batch():
    zeros = np.zeros(400, np.int64)
    table = uniforms(np.arange(400), zeros, 50)
    assert table.min() >= 0 and table.max() < 1
    counts = torch.histc(torch.from_numpy(table), 20, 0, 1).numpy()
    assert chisquare(counts).pvalue > 1e-3
    assert (uniforms(np.array([7]), zeros[:1], 50)[0] == table[7]).all()
    first, second = uniforms(np.array([7, 7]), np.array([0, 1]), 5)
    assert (first != second).all()


@pytest.mark.parametrize("vocabulary", [5, 100, 1601])
def test_inverse_of_the_distribution_never_draws_what_is_impossible(vocabulary):
    logits = torch.randn(200, vocabulary).mul_(4).masked_fill_(torch.rand(200, vocabulary) < 0.6, -torch.inf)
    logits[:, 2] = 0.0
    possible = logits > -torch.inf
    for extreme in (0.0, 0.5, 1 - 2.0**-53):
        token, _ = draw(logits.clone(), Sampling(1), torch.full((200,), extreme, dtype=torch.double), torch.arange(200))
        assert possible[torch.arange(200), token].all()


@pytest.mark.parametrize(("top_p", "top_k"), [(0.7, 12), (0.7, 0), (1.0, 12)])
def test_top_k_and_top_p_cut_as_transformers_does(top_p, top_k):
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = torch.randn(1, 50) * 2
    sampling = Sampling(1, temperature=0.8, top_p=top_p, top_k=top_k)
    warpers = [TemperatureLogitsWarper(0.8), *([TopKLogitsWarper(top_k)] if top_k else []), TopPLogitsWarper(top_p)]
    kept = logits
    for warper in warpers:
        kept = warper(None, kept)
    grid = torch.arange(0, 1, 1 / 5000, dtype=torch.double)
    token, logprob = draw(logits.clone(), sampling, grid, torch.zeros(len(grid), dtype=torch.int64))
    assert set(token.tolist()) == set((kept[0] > -torch.inf).nonzero()[:, 0].tolist())
    share = torch.bincount(token, minlength=50) / len(grid)
    assert torch.allclose(share, kept[0].softmax(-1), atol=1e-3)
    assert torch.allclose(logprob, (logits[0] / 0.8).log_softmax(-1)[token], atol=1e-5)


def test_greedy_equals_transformers_generate(model, sampler):
    for request in requests(6, seed=3):
        [completion] = sampler.sample_batch([Request(request.prompt, (0,), Sampling(16, temperature=0), 0)])[0]
        ids = torch.tensor([request.prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=16)
        assert completion.token_ids == tuple(out[0, len(request.prompt) :].tolist())


def test_order_of_coroutines_does_not_matter(model, folder):
    wave = requests(40, samplings=MIXED)

    async def ask(sampler, request, delay):
        for _ in range(delay):
            await asyncio.sleep(0)
        return await sampler.sample(request.prompt, request.samples, request.sampling, request.seed)

    async def play(order, delays):
        sampler = InProcessSampler.from_model(model, ChatTokenizer(folder))
        answers = await asyncio.gather(*(ask(sampler, wave[i], d) for i, d in zip(order, delays, strict=True)))
        assert sampler.counters["rounds"] == 1
        return {i: answer for i, answer in zip(order, answers, strict=True)}

    rng = random.Random(4)
    straight = asyncio.run(play(range(40), [0] * 40))
    shuffled = asyncio.run(play(rng.sample(range(40), 40), [rng.randrange(6) for _ in range(40)]))
    assert straight == shuffled  # token ids, texts and log-probabilities, bit for bit


def test_given_tokens_have_the_logprobs_of_the_forward_pass(model, sampler):
    """Of any length, with end tokens inside, beside draws, and from prefixes that draws left behind."""
    rng, end = random.Random(5), sampler.tokenizer.end_of_turn
    prompts = [tuple(rng.choices(range(4, 320), k=rng.randint(1, 40))) for _ in range(8)]
    prompts += [(*prompts[0], 7, 8), prompts[1]]
    given = [[tuple(rng.choices([*range(4, 320), end], k=rng.randint(1, 7))) for _ in range(rng.randint(1, 5))]
             for _ in prompts]  # fmt: skip
    given[0] += [given[0][0], (*given[0][0], end, 9)]

    async def play():
        draws = [sampler.sample(prompt, (0, 1), Sampling(4), 0) for prompt in prompts]
        scores = [sampler.score(*pair) for pair in zip(prompts, given, strict=True)]
        answers = await asyncio.gather(*draws, *scores)
        return answers[: len(prompts)], answers[len(prompts) :]

    _, scored = asyncio.run(play())
    reused, generated = sampler.counters["reused_tokens"], sampler.counters["generated_tokens"]
    again = [asyncio.run(sampler.score(*pair)) for pair in zip(prompts, given, strict=True)]
    assert sampler.counters["reused_tokens"] > reused and sampler.counters["generated_tokens"] == generated
    assert sampler.counters["scored_tokens"] == 2 * sum(len(row) for rows in given for row in rows)
    for prompt, rows, first, second in zip(prompts, given, scored, again, strict=True):
        for tokens, *answers in zip(rows, first, second, strict=True):
            with torch.no_grad():
                table = model(torch.tensor([prompt + tokens])).logits[0].double().log_softmax(-1)
            expected = table[range(len(prompt) - 1, len(prompt) + len(tokens) - 1), tokens]
            for answer in answers:
                torch.testing.assert_close(torch.tensor(answer, dtype=torch.float64), expected, atol=1e-4, rtol=0)
    completion = asyncio.run(sampler.sample(prompts[0], (3,), Sampling(5), 1))[0]
    [own] = asyncio.run(sampler.score(prompts[0], [completion.token_ids]))
    assert own == pytest.approx(completion.logprobs, abs=1e-5)


def test_survives_an_event_loop_that_broke_off(sampler):
    async def fail():
        raise RuntimeError("an episode failed")

    async def play(*others):
        return await asyncio.gather(sampler.sample([5, 6], [0], Sampling(3), 0), *others)

    with pytest.raises(RuntimeError, match="episode"):
        asyncio.run(play(fail()))
    assert len(asyncio.run(asyncio.wait_for(play(), 20))[0]) == 1


def test_a_completion_depends_on_its_index_and_not_on_the_others(sampler):
    [whole] = sampler.sample_batch([Request((5, 6, 7), tuple(range(8)), Sampling(6), 3)])
    parts = sampler.sample_batch([Request((5, 6, 7), some, Sampling(6), 3) for some in ((6, 1), (3, 3))])
    for some, part in zip(((6, 1), (3, 3)), parts, strict=True):
        assert [c.token_ids for c in part] == [whole[k].token_ids for k in some]
        assert [c.text for c in part] == [whole[k].text for k in some]


def test_shared_branches_are_separate_decoding(model, folder):
    """Prompts that extend one another, several requests of one prompt, sampling parameters mixed within it."""
    rng, tokenizer = random.Random(7), ChatTokenizer(folder)
    stem = rng.choices(range(4, 320), k=30)
    wave = [
        Request(tuple(stem[: rng.choice([3, 10, 11, 30])]), (0, 1, 2, 5), Sampling(8, *rng.choice(RULES)), seed % 7)
        for seed in range(40)
    ]
    shared = InProcessSampler.from_model(model, tokenizer)
    alone = limited(InProcessSampler.from_model(model, tokenizer), prefixes=1, rows=1)
    for ours, theirs in zip(shared.sample_batch(wave), alone.sample_batch(wave), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.token_ids == b.token_ids and a.text == b.text
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)
    work, single = shared.counters, alone.counters
    assert work["generated_tokens"] == single["generated_tokens"]
    assert single["decoded_tokens"] == single["generated_tokens"] - single["completions"]
    assert work["decoded_tokens"] < 0.8 * single["decoded_tokens"]
    assert work["prefilled_tokens"] == len(stem) + 4 * 4, "for each further rule the last token of four prompts again"


def test_one_rich_prompt_does_not_widen_the_others(sampler, monkeypatch):
    places = []
    advance = Branches.advance
    monkeypatch.setattr(Branches, "advance", lambda b, parent: (advance(b, parent), places.append(len(b.keys[0]))))
    wave = [Request((5, 6, 7), tuple(range(900)), Sampling(4), 0)]
    sampler.sample_batch(wave + [Request((8, i), (0,), Sampling(4), i) for i in range(4, 304)])
    assert max(places) <= 4 * sampler._decoder.rows


def test_batch_and_prefix_cache_do_not_change_the_draws(model, folder):
    tokenizer, wave = ChatTokenizer(folder), requests(40, samplings=MIXED)
    full = InProcessSampler.from_model(model, tokenizer)
    full.sample_batch(wave[:20])
    variants = [
        full,
        limited(InProcessSampler.from_model(model, tokenizer), prefixes=0),
        limited(InProcessSampler.from_model(model, tokenizer), prefixes=64, rows=7),
        limited(InProcessSampler.from_model(model, tokenizer), tokens=0),
    ]
    first, *others = [s.sample_batch(wave) for s in variants]
    for answers in others:
        for one, other in zip(first, answers, strict=True):
            for a, b in zip(one, other, strict=True):
                assert a.token_ids == b.token_ids and a.finish_reason == b.finish_reason
                assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
    assert variants[1]._prefixes.capacity == max(len(request.prompt) for request in wave)  # no more than it must


def test_prefix_cache_reuses_turns_and_shared_prompts(sampler):
    system = tuple(range(10, 60))
    wave = [Request((*system, i, i + 1), (0, 1), Sampling(6), i) for i in range(100, 110)]
    answers = sampler.sample_batch(wave)
    # The shared system prompt once, then two tokens a request.
    assert sampler.counters["prefilled_tokens"] == len(system) + 2 * len(wave)
    before = sampler.counters["prefilled_tokens"]
    said = answers[0][1].token_ids
    sampler.sample_batch([Request((*wave[0].prompt, *said, 77, 78), (0,), Sampling(3), 0)])
    assert sampler.counters["prefilled_tokens"] - before == 3  # the last sampled token and the new two
    sampler.refresh()
    assert sampler._prefixes._n_free == sampler._prefixes.capacity
    assert sampler._prefixes.insert(as_path(system)).known == 0


def test_follows_the_weights_of_the_trainer(model, folder):
    sampler = InProcessSampler.from_model(model, ChatTokenizer(folder))
    wave = requests(5)
    sampler.sample_batch(wave)
    weight = model.model.layers[0].mlp.up_proj.weight
    try:
        with torch.no_grad():
            weight.mul_(1.5)
        sampler.refresh()
        assert worst_difference(model, wave, sampler.sample_batch(wave)) < 1e-4
    finally:
        with torch.no_grad():
            weight.div_(1.5)


def test_stop_and_length(sampler):
    wave = [Request(r.prompt, tuple(range(4)), Sampling(40), r.seed) for r in requests(60, seed=5)]
    wave += [Request(r.prompt, (0, 1), Sampling(1), r.seed) for r in wave[:10]]
    completions = [c for answer in sampler.sample_batch(wave) for c in answer]
    assert {c.finish_reason for c in completions} == {"stop", "length"}
    for c in completions:
        ends = [token in sampler.tokenizer.eos_ids for token in c.token_ids]
        assert not any(ends[:-1]) and ends[-1] == (c.finish_reason == "stop")
        assert len(c.logprobs) == len(c.token_ids) and "<|end|>" not in c.text
    # Samples of one request differ, and the same request gives the same completions again.
    assert len({c.token_ids for c in completions[:4]}) > 1
    again = [c.token_ids for c in sampler.sample_batch(wave[:1])[0]]
    assert again == [c.token_ids for c in completions[:4]]


def test_bad_requests_say_what_is_wrong(sampler):
    async def ask(prompt, samples=(0,), max_tokens=4):
        return await sampler.sample(prompt, samples, Sampling(max_tokens), 0)

    for arguments, words in [
        (((),), "empty"), (((4, 999),), "999"), (((4,), ()), "one or more indices"), (((4,), (2, -1)), "-1"),
        (((4,), (0,), 9000), "8192 positions"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=words):
            asyncio.run(ask(*arguments))
    for continuations, words in [([(5,), ()], "continuation is empty"), ([(5, 999)], "999"), ([], "one or more")]:
        with pytest.raises(ValueError, match=words):
            asyncio.run(sampler.score((4,), continuations))
    with pytest.raises(ValueError, match="temperature"):
        Sampling(3, temperature=-1)
    with pytest.raises(ValueError, match="gpt2"):
        DecoderConfig.from_config({"model_type": "gpt2"})


def test_a_conversation_is_its_template_token_by_token(folder):
    from transformers import AutoTokenizer

    ours, theirs = ChatTokenizer(folder), AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "system", "content": "cough"}, {"role": "user", "content": "fever pain\n- CT"}]
    reply, result = "REQUEST_TEST: Complete Blood Count", "elevated  58"
    ids = [*ours.encode_conversation(messages), *ours.encode(reply), ours.end_of_turn, *ours.encode_user_turn(result)]
    whole = [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": result}]
    assert ids == theirs.apply_chat_template(whole, add_generation_prompt=True)["input_ids"]
    assert ids == ours.encode_conversation(whole)
    assert ours.decode(ours.encode(reply)) == reply and len(ours.encode("FINAL_DIAGNOSIS:")) == 1
    assert ours.eos_ids == {theirs.eos_token_id} == {ours.end_of_turn}


def test_the_tiny_policy_is_the_same_for_the_same_corpus(folder, tmp_path):
    again = build_tiny_policy(tmp_path / "again", TINY, corpus())
    for path in sorted(folder.iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    with pytest.raises(ValueError, match="too small"):
        train_tokenizer(corpus(), vocab_size=200)


def test_a_common_phrase_is_one_token_however_long_and_nothing_is_unknown():
    corpus = ["Rare finding of the lung. Vital signs 98"] * 10 + ["FINAL_DIAGNOSIS: Appendicitis"] * 10
    tokenizer = train_tokenizer([*corpus, "heard once only"] * 2, vocab_size=300)
    for text in ("Rare finding of the lung. ", "Vital signs ", " Appendicitis", "98"):
        assert tokenizer.encode(text).tokens == [tokenizer.encode(text).tokens[0]], text
    assert len(tokenizer.encode("FINAL_DIAGNOSIS: Appendicitis").ids) == 2
    for text in ("heard once only", "Überraschung: 12.5 µg/l", "Vital signs 98 Vital"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_missing_local_model_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("local_model.PACKAGE", "no_such_wheel")
    with pytest.raises(ModuleNotFoundError, match="make local-llm"):
        smollm2(tmp_path)
    assert not list(tmp_path.iterdir())
