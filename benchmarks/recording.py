"""What recording, the cap and the meter take of a model call: against a plain loop, in a replay, and per episode step.

A local server answers after a second, as quick models do. A plain asyncio loop over the official client and an agent's
model with everything on (recorded, priced, capped, metered) take turns at it with 32 requests in flight: the ratio of
their throughputs is the figure, and beside it what each takes of the processor, which is what counts where answers come
much sooner. Then 10,000 recorded answers are replayed, and made-up cases are worked up with a model that answers at
once, first recorded, then replayed: what a step takes is all our own. Writes flat keys to
results/benchmarks/recording.json.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2
from _figures import save

from cdpr.agents.policy import PolicyAgent
from cdpr.cases import CaseRecord
from cdpr.environment import DiagnosticEnvironment, PromptBuilder, run_episodes
from cdpr.llm import Completion, Messages, Model, ModelSpec, Sampling, Usage, open_model
from cdpr.llm.recording import RecordedModel
from cdpr.settings import ModelEntry, Settings
from cdpr.settings.models import Calls

IN_FLIGHT, CALLS, REPLAYED, CASES, TURNS = 32, 320, 10_000, 200, 4
SERVER = """
import asyncio, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def answer(request):
    await request.json()
    await asyncio.sleep(1)
    return JSONResponse({"choices": [{"message": {"role": "assistant", "content": "ACTION"}, "finish_reason": "stop"}],
                         "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}})

app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""
GREEDY = Sampling(64, 0.0)


class Instant(Model):
    """Orders a test that is there, then another, then diagnoses."""

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        turn = len(messages) // 2
        text = f"THINKING: it may be so.\nACTION: REQUEST_TEST\nTest needed: Test {turn}"
        if turn >= TURNS:
            text = "THINKING: it is so.\nACTION: FINAL_DIAGNOSIS\nDiagnosis: Sepsis"
        return [Completion(text, (), (), "stop", Usage(500, 30)) for _ in samples]


def conversation(number: int) -> list[dict[str, str]]:
    return [{"role": "system", "content": "instruction " * 200}, {"role": "user", "content": f"case {number} " * 100}]


def spec_of(url: str, state: Path, mode: str = "record") -> ModelSpec:
    entry = ModelEntry(id="m", at=url, prices={"input": 1.0, "output": 10.0})
    return ModelSpec(where=url, name="m", credentialed=False, entry=entry, metered=True, state=str(state),
                     calls=Calls(mode=mode, budget_usd=1e6))  # fmt: skip


async def in_flight(ask, numbers: Sequence[int]) -> float:
    """Seconds for all calls."""
    gate, started = asyncio.Semaphore(IN_FLIGHT), time.perf_counter()

    async def one(number: int) -> None:
        async with gate:
            await ask(conversation(number))

    await asyncio.gather(*map(one, numbers))
    return time.perf_counter() - started


async def plain(url: str, numbers: Sequence[int]) -> float:
    import openai

    limits = httpx2.Limits()
    async with openai.AsyncOpenAI(
        api_key="none", base_url=url, http_client=httpx2.AsyncClient(limits=limits)
    ) as client:
        return await in_flight(
            lambda said: client.chat.completions.create(model="m", messages=said, max_tokens=64, temperature=0.0),
            numbers,
        )


async def ours(url: str, state: Path, numbers: Sequence[int], mode: str = "record") -> float:
    model = open_model(spec_of(url, state, mode))
    return await in_flight(lambda said: model.chat(said, (0,), GREEDY, 0), numbers)


def throughput(folder: Path, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds, and milliseconds of the processor per call, of the plain loop and of ours, each at its best."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)])
    try:
        while True:
            try:
                asyncio.run(plain(url, range(2)))
                break
            except Exception:
                time.sleep(0.2)
        asyncio.run(ours(url, folder / "warm", range(2)))
        took, work = [float("inf")] * 2, [float("inf")] * 2
        for repeat in range(repeats):
            for arm in (0, 1):
                asked = ours(url, folder / f"run{repeat}", range(CALLS)) if arm else plain(url, range(CALLS))
                busy = time.process_time()
                took[arm] = min(took[arm], asyncio.run(asked))
                work[arm] = min(work[arm], 1000 * (time.process_time() - busy) / CALLS)
    finally:
        server.kill()
    return took, work


def replay(folder: Path) -> float:
    """Seconds to replay the answers."""
    spec = spec_of("http://127.0.0.1:9/v1", folder / "replay")
    recorded = RecordedModel(spec, Instant())
    asyncio.run(in_flight(lambda said: recorded.chat(said, (0,), GREEDY, 0), range(REPLAYED)))
    return asyncio.run(ours(spec.where, folder / "replay", range(REPLAYED), "replay"))


def steps(folder: Path) -> tuple[float, float]:
    """Milliseconds of a step, recorded and replayed: prompt, question, answer, parsing, matching, charging."""
    results = {f"Test {n}": "Value: 1.0; Units: K/uL; Reference Range: 0.5--2.0. " * 5 for n in range(30)}
    cases = [CaseRecord(
        note_id=f"B-{n}", case_summary=f"- Patient Information: {n} years\n" * 20, diagnosis_results="Sepsis",
        key_pertinent_results_dict=results, final_diagnosis="Sepsis", exam_cost_map=dict.fromkeys(results, 5.0),
        dataset="mimic_iv", split="test", subject_key="s", credentialed=False,
    ) for n in range(CASES)]  # fmt: skip
    settings = Settings()
    environment = DiagnosticEnvironment(settings.environment)
    took = []
    for inner in (Instant(), None):
        model = RecordedModel(spec_of("http://127.0.0.1:9/v1", folder / "steps"), inner)
        prompts = PromptBuilder(settings.environment.prompt.model_copy(update={"style": "full"}), None, 2048)
        agent, started = PolicyAgent(model, prompts, settings.policy, 0.0), time.perf_counter()
        done = asyncio.run(run_episodes(environment, agent, cases, 0))
        took.append(1000 * (time.perf_counter() - started) / sum(len(workup.steps) for workup in done))
    return took[0], took[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/recording.json"))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (loop, own), (loop_work, own_work) = throughput(folder, arguments.repeats)
        seconds = replay(folder)
        recorded, replayed = steps(folder)
    report = {
        "plain_loop_calls_per_second": round(CALLS / loop, 1),
        "recorded_calls_per_second": round(CALLS / own, 1),
        "recorded_over_plain_loop": round(loop / own, 3),
        "plain_loop_cpu_ms_per_call": round(loop_work, 2),
        "recorded_cpu_ms_per_call": round(own_work, 2),
        "in_flight": IN_FLIGHT,
        "replay_of_10000_calls_seconds": round(seconds, 2),
        "step_recorded_ms": round(recorded, 2),
        "step_replayed_ms": round(replayed, 2),
        "load": round(os.getloadavg()[0], 1),
    }
    save(arguments.out, report)


if __name__ == "__main__":
    main()
