"""Tokens per second of the in-process sampler against transformers' `generate` on the same branching dialogues.

64 cases, 4 trajectories a case, 5 turns with growing context, 4 samples at every state (the first is followed): the
shape of a CDPR step. The prompts are recorded once and given to both; neither is asked for more than tokens, though
the sampler returns log-probabilities as well. The tiny policy is fitted for some seconds to a toy dialogue, so that
turns end by themselves. Writes flat keys to results/benchmarks/sampler.json.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import torch
from _figures import save

from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.llm.types import Request, Sampling
from cdpr.settings.schema import TinyModel
from cdpr.training.torch.tiny import build_tiny_policy

CASES, TRAJECTORIES, TURNS, SAMPLES, MAX_TOKENS = 64, 4, 5, 4, 16
BATCHES = 64, 256, 1024  # completions that `generate` draws at a time: its best is reported
SYLLABLES = [a + b for a in "bcdfglmnprstv" for b in ("a", "ec", "io", "um", "al")]


def toy_words(count: int, rng: random.Random) -> list[str]:
    return ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 3))) for _ in range(count)]


class Toy:
    """Presentations, results and turns of made-up words, about as long as the demo's."""

    def __init__(self) -> None:
        self.rng = random.Random(0)
        self.words = toy_words(600, self.rng)
        self.names = [" ".join(self.rng.sample(self.words, k=self.rng.randint(1, 3))) for _ in range(60)]

    def presentation(self) -> str:
        return "\n".join("- " + " ".join(self.rng.choices(self.words, k=9)) for _ in range(5))

    def result(self) -> str:
        return f"Result: {' '.join(self.rng.choices(self.words, k=4))} {self.rng.randint(1, 99)}; Flag: abnormal"

    def turn(self, last: bool) -> str:
        return ("FINAL_DIAGNOSIS: " if last else "REQUEST_TEST: ") + self.rng.choice(self.names)

    def dialogue(self) -> list[dict[str, str]]:
        messages = [{"role": "user", "content": self.presentation()}]
        for turn in range(2):
            messages.append({"role": "assistant", "content": self.turn(turn == 1)})
            messages.append({"role": "user", "content": self.result()})
        return messages[:-1]


def fit(model: torch.nn.Module, tokenizer: ChatTokenizer, toy: Toy, steps: int) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        batch = [tokenizer.encode(tokenizer.render(toy.dialogue())) for _ in range(16)]
        width = max(map(len, batch))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in batch])
        mask = torch.arange(width) < torch.tensor([[len(row)] for row in batch])
        loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(~mask, -100)).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.eval()


def play(sampler: InProcessSampler, toy: Toy) -> tuple[list[list[Request]], int, float]:
    """Play the dialogues; returns every turn's requests, the tokens generated, and the sampler's seconds."""
    tokenizer, sampling = sampler.tokenizer, Sampling(MAX_TOKENS)
    openings = [
        tuple(tokenizer.encode_conversation([{"role": "user", "content": toy.presentation()}])) for _ in range(CASES)
    ]
    prompts = [prompt for prompt in openings for _ in range(TRAJECTORIES)]
    waves, tokens, seconds = [], 0, 0.0
    for turn in range(TURNS):
        wave = [Request(p, tuple(range(SAMPLES)), sampling, turn * len(prompts) + i) for i, p in enumerate(prompts)]
        started = time.perf_counter()
        answers = sampler.sample_batch(wave)
        seconds += time.perf_counter() - started
        waves.append(wave)
        tokens += sum(len(c.token_ids) for answer in answers for c in answer)
        for i, answer in enumerate(answers):
            said = answer[0].token_ids
            closed = said if answer[0].finish_reason == "stop" else (*said, tokenizer.end_of_turn)
            prompts[i] = (*prompts[i], *closed, *tokenizer.encode_user_turn(toy.result()))
    return waves, tokens, seconds


def generate(model: torch.nn.Module, eos: int, waves: list[list[Request]], size: int) -> tuple[int, float]:
    """The same requests through transformers, left-padded batches of ``size`` completions sorted by length."""
    tokens, started = 0, time.perf_counter()
    for wave in waves:
        ordered = sorted((r.prompt for r in wave), key=len)
        for start in range(0, len(ordered), size // SAMPLES):
            batch = ordered[start : start + size // SAMPLES]
            width = len(batch[-1])
            ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in batch], device=model.device)
            mask = torch.arange(width) >= torch.tensor([[width - len(p)] for p in batch])
            mask = mask.to(model.device)
            out = model.generate(
                input_ids=ids, attention_mask=mask.long(), do_sample=True, top_k=0, temperature=1.0,
                num_return_sequences=SAMPLES, max_new_tokens=MAX_TOKENS, eos_token_id=eos, pad_token_id=0,
            )  # fmt: skip
            drawn = out[:, width:]
            ended = (drawn == eos).int().cumsum(1)
            tokens += int(((ended == 0) | ((drawn == eos) & (ended == 1))).sum())
    return tokens, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/sampler.json"))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    toy = Toy()
    with tempfile.TemporaryDirectory() as folder:
        corpus = [toy.presentation() + toy.result() + toy.turn(False) for _ in range(1000)]
        build_tiny_policy(Path(folder) / "policy", TinyModel(), corpus)
        tokenizer = ChatTokenizer(Path(folder) / "policy")
        model = AutoModelForCausalLM.from_pretrained(Path(folder) / "policy")
    fit(model, tokenizer, toy, 60)
    sampler = InProcessSampler.from_model(model, tokenizer)
    best = 0.0
    for repeat in range(arguments.repeats):
        sampler.refresh()
        toy.rng.seed(1)
        waves, tokens, seconds = play(sampler, toy)
        best = max(best, tokens / seconds)
        if repeat == 0:
            counters = sampler.counters.copy()
    with torch.inference_mode():
        generate(model, tokenizer.end_of_turn, [waves[0][:8]], BATCHES[0])  # warm up
        plain = {}
        for size in BATCHES:
            drawn, seconds = generate(model, tokenizer.end_of_turn, waves, size)
            plain[size] = drawn / seconds
        batch = max(plain, key=plain.get)
        for _ in range(arguments.repeats - 1):  # as often as the sampler
            drawn, seconds = generate(model, tokenizer.end_of_turn, waves, batch)
            plain[batch] = max(plain[batch], drawn / seconds)
    completions = sum(len(r.samples) for wave in waves for r in wave)
    prompts = [len(r.prompt) for wave in waves for r in wave]
    report = {
        "sampler_tokens_per_second": round(best, 1),
        "transformers_tokens_per_second": round(plain[batch], 1),
        "transformers_batch": batch,
        "sampler_over_transformers": round(best / plain[batch], 2),
        "completions": completions,
        "mean_prompt_tokens": round(sum(prompts) / len(prompts), 1),
        "mean_completion_tokens": round(tokens / completions, 2),
        "sampler_prefilled_tokens": counters["prefilled_tokens"],
        "sampler_reused_tokens": counters["reused_tokens"],
        "sampler_generated_tokens": counters["generated_tokens"],
        "sampler_decoded_tokens": counters["decoded_tokens"],
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    save(arguments.out, report)


if __name__ == "__main__":
    main()
