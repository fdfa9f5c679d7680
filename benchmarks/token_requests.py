"""What a prompt of token ids takes of the processor: our request against the official client called plainly.

The two take turns at a local server, which answers at once with 128 tokens; the plain call passes the ids as `prompt`.
Measured is the processor time of the client's process per request, for prompts of 1,000, 3,000 and 6,000 tokens: the
ratios are the figures. Writes flat keys to results/benchmarks/token_requests.json.
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
from pathlib import Path

import httpx2
import openai
from _figures import save

from cdpr.llm import ModelSpec, Sampling, open_model
from cdpr.llm.server import OpenAIServer
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.settings.schema import TinyModel
from cdpr.training.torch.tiny import build_tiny_policy

SIZES, REPLY = (1000, 3000, 6000), 128
SERVER = f"""
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def answer(request):
    body = await request.json()
    prompt = body["prompt"]
    choice = {{"index": 0, "text": "word " * {REPLY}, "finish_reason": "length", "token_ids": prompt[:{REPLY}],
              "prompt_token_ids": prompt, "logprobs": None}}
    usage = {{"prompt_tokens": len(prompt), "completion_tokens": {REPLY}, "total_tokens": len(prompt) + {REPLY}}}
    return JSONResponse({{"id": "r", "object": "text_completion", "created": 0, "model": "m", "choices": [choice],
                         "usage": usage}})

app = Starlette(routes=[Route("/v1/completions", answer, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


async def measure(url: str, tokenizer: ChatTokenizer, requests: int) -> dict[int, tuple[float, float]]:
    """Milliseconds of the processor per request, plainly and ours, by the number of tokens."""
    model = open_model(ModelSpec(where=url, name="m", credentialed=True), tokenizer=tokenizer)
    assert isinstance(model, OpenAIServer)
    client = openai.AsyncOpenAI(api_key="none", base_url=url, http_client=httpx2.AsyncClient(trust_env=False))

    async def plain(ids: tuple[int, ...]) -> tuple[int, ...]:
        answer = await client.completions.create(
            model="m", prompt=list(ids), max_tokens=REPLY, temperature=1.0, top_p=1.0, seed=0,
            extra_body={"top_k": -1, "return_token_ids": True},
        )  # fmt: skip
        return tuple(answer.choices[0].token_ids)  # type: ignore[attr-defined]

    async def ours(ids: tuple[int, ...]) -> tuple[int, ...]:
        [answer] = await model.sample(ids, (0,), Sampling(REPLY), 0)
        return answer.token_ids

    figures = {}
    for size in SIZES:
        ids, took = tuple(k % 300 for k in range(size)), [0.0, 0.0]
        for repeat in range(requests + 2):
            for arm, ask in enumerate((plain, ours)):
                busy = time.process_time()
                assert await ask(ids) == ids[:REPLY]
                took[arm] += (time.process_time() - busy) * (repeat > 1)
        figures[size] = (1000 * took[0] / requests, 1000 * took[1] / requests)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/token_requests.json"))
    parser.add_argument("--requests", type=int, default=100)
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)])
    try:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = ChatTokenizer(build_tiny_policy(Path(folder) / "policy", TinyModel(), ["fever cough"] * 20))
            while True:
                try:
                    httpx2.get(f"http://127.0.0.1:{port}/v1", trust_env=False)
                    break
                except httpx2.TransportError:
                    time.sleep(0.2)
            figures = asyncio.run(measure(f"http://127.0.0.1:{port}/v1", tokenizer, arguments.requests))
    finally:
        server.kill()
    report = {}
    for size, (plain, ours) in figures.items():
        report |= {f"plain_{size}_tokens_cpu_ms": round(plain, 2), f"ours_{size}_tokens_cpu_ms": round(ours, 2),
                   f"plain_over_ours_{size}_tokens": round(plain / ours, 1)}  # fmt: skip
    save(arguments.out, report | {"requests": arguments.requests, "load": round(os.getloadavg()[0], 1)})


if __name__ == "__main__":
    main()
