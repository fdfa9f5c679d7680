"""A server of both protocols that misbehaves as it is asked to, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2

# A server of the protocol whose behaviour is the name of the model; it runs as a process of its own.
SERVER = """
import asyncio, collections, json, os, sys, time
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse

app, seen, times = FastAPI(), collections.Counter(), collections.defaultdict(list)

def answer(text, finish="stop", refusal=None):
    # In the form of both protocols: each client reads its own part.
    message = {"role": "assistant", "content": None if refusal else text} | ({"refusal": refusal} if refusal else {})
    stop = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}[finish]
    return {"choices": [{"message": message, "finish_reason": finish}], "model": "told-by-server",
            "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
                      "input_tokens": 100, "output_tokens": 50},
            "type": "message", "content": [{"type": "text", "text": refusal or text}],
            "stop_reason": "refusal" if refusal else stop}

# What servers say of a conversation that is too long for their model.
TOO_LONG = {
    "vllm": {"error": {"message": "This model's maximum context length is 2048 tokens. However, you requested 2100 "
                                  "tokens (1900 in the messages, 200 in the completion)."}},
    "openai": {"error": {"message": "Your input exceeds the context window.", "code": "context_length_exceeded"}},
    "llama": {"error": {"code": 400, "message": "request (4390 tokens) exceeds the available context size (4096 "
                                                "tokens), try increasing it", "type": "exceed_context_size_error"}},
    "sglang": {"object": "error", "message": "The input (2100 tokens) is longer than the model's context length (2048 "
                                             "tokens).", "type": "BadRequest", "code": 400},
    "gemini": [{"error": {"code": 400, "message": "The input token count (314175) exceeds the maximum number of tokens "
                                                  "allowed (131072).", "status": "INVALID_ARGUMENT"}}],
    "claude": {"type": "error", "error": {"type": "invalid_request_error",
                                          "message": "prompt is too long: 208310 tokens > 200000 maximum"}},
}

async def half():
    yield b'{"choices": [{"message": {"role": "assistant", "content": "cut'
    raise RuntimeError("the connection ends here")

def busy(wait):
    return JSONResponse({"error": "busy"}, 429, headers={"Retry-After": wait})

def work_up(said):  # orders a CT and reads it
    if "appendix" in said or "Give your final diagnosis now." in said:
        return f"ACTION: FINAL_DIAGNOSIS\\nDiagnosis: {'Acute appendicitis' if 'appendix' in said else 'Sepsis'}"
    return "ACTION: REQUEST_TEST\\nTest needed: CT Abdomen and Pelvis"

async def drip():
    while True:
        yield b" "
        await asyncio.sleep(0.05)

@app.middleware("http")
async def tally(request: Request, call_next):
    seen["requests"] += request.method == "POST"
    return await call_next(request)

@app.get("/seen/{name}")
def count(name: str):
    return seen[name]

@app.get("/times/{name}")
def when(name: str):
    return times[name]

@app.post("/v1/messages")
@app.post("/v1/chat/completions")
async def complete(request: Request):
    body = await request.json()
    kind, asked = body["model"], body["messages"][-1]["content"]
    seen[kind] += 1
    times[kind].append(time.time())
    if kind.startswith("doctor"):
        if kind == "doctor_patchy" and not os.path.exists("well"):  # has no word for one case, no room for another
            if "Case 3" in str(body):
                return answer("")
            if "Case 5" in str(body):
                return JSONResponse(TOO_LONG["llama"], 400)
        if kind == "doctor_dies" and seen[kind] > 5:
            await asyncio.sleep(0.3)
            os._exit(1)
        if kind == "doctor_fails" and seen[kind] == 5:
            return JSONResponse({"error": asked}, 401)
        if kind == "doctor_slow":
            await asyncio.sleep(0.05)
        return answer(work_up(asked))
    if kind.startswith("referee"):  # judges and matches
        if asked.startswith("On record"):
            return answer("Computed slices of the belly" if "CT Abdomen" in asked else "NO_MATCH")
        return answer("Correct" if "appendicitis" in asked and kind == "referee" else "Wrong")
    if kind == "retry_after":
        return answer("well again") if seen[kind] > 2 else busy("0.3" if seen[kind] == 1 else "1")
    if kind == "tomorrow":
        return busy("86400")
    if kind.startswith("full_"):
        told = TOO_LONG.get(kind[5:])
        return JSONResponse(told, 400) if told else Response("too large", 413)
    if kind == "empty":
        return answer(" ")
    if kind == "thought_long":
        return answer("", "length")
    if kind == "refuses":
        return answer("", refusal="I cannot help with that.")
    if kind == "filtered":
        return answer("", "content_filter")
    if kind == "cut_off":
        return StreamingResponse(half(), media_type="application/json")
    if kind in ("slow", "counts"):
        number = seen[kind]
        await asyncio.sleep(0.3 * (kind == "slow"))
        return answer(f"number {number}")
    if kind == "wants_key" and "authorization" not in request.headers:
        return JSONResponse({"error": "no key"}, 401)
    if kind == "echo":
        return answer(f"{asked}|{body['max_tokens']}|{body.get('temperature')}|{body.get('seed')}")
    if kind == "key":
        return answer(request.headers.get("authorization", "none"))
    if kind in ("status500", "status503", "status429", "status400", "status404"):
        return JSONResponse({"error": f"cannot answer {asked}"}, int(kind[-3:]))
    if kind == "recovers":
        return answer("well again") if seen[kind] > 2 else JSONResponse({"error": asked}, 500)
    if kind == "surrogate":
        return Response(json.dumps(answer("well \\ud800 done")), media_type="application/json")
    if kind == "odd_usage":  # what no call can have taken
        counts = dict.fromkeys(("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"), -10**6)
        return answer("paid for") | {"usage": counts | {"total_tokens": -2 * 10**6}}
    if kind == "garbage":
        return Response(asked + " { not json", media_type="application/json")
    if kind == "nested":
        return Response("[" * 100_000, media_type="application/json")
    if kind == "shapeless":
        return {"choices": [{"message": {"content": None}}], "content": asked}
    if kind == "redirect":
        return RedirectResponse(f"http://{request.headers['host']}/v1/elsewhere", 307)
    if kind == "drips":
        return StreamingResponse(drip(), media_type="application/json")
    if kind == "dies":
        os._exit(1)
    await asyncio.sleep(3600)

@app.post("/v1/elsewhere")
def elsewhere():
    seen["elsewhere"] += 1
    return answer("you should not be here")

uvicorn.run(app, log_level="error", **({"uds": sys.argv[1]} if "/" in sys.argv[1] else
                                       {"host": "127.0.0.1", "port": int(sys.argv[1])}))
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def answering(answer: Callable[[Any, SimpleNamespace], Awaitable[Any]]) -> Iterator[SimpleNamespace]:
    """A server of both protocols in a thread of the test; ``answer`` gets a request and the server, which has
    ``requests``, a list for them, and ``url``, its address, and returns what is sent or a whole response."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def respond(request):
        content = await answer(request, served)
        return content if isinstance(content, Response) else JSONResponse(content)

    port = free_port()
    places = ("/v1/chat/completions", "/v1/completions", "/v1/messages")
    app = Starlette(routes=[Route(place, respond, methods=["POST"]) for place in places])
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    served = SimpleNamespace(url=f"http://127.0.0.1:{port}/v1", requests=[])
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield served
    server.should_exit = True
    thread.join()


class Server:
    """The process of :data:`SERVER` at a free port, or at a Unix socket."""

    def __init__(self, folder: Path, unix: bool = False):
        if unix:
            place, self.url = str(folder / "s"), f"unix:{folder / 's'}"
        else:
            place = str(free_port())
            self.url = f"http://127.0.0.1:{place}/v1"
        (folder / "server.py").write_text(SERVER)
        self.process = subprocess.Popen([sys.executable, str(folder / "server.py"), place], cwd=folder)
        transport = httpx2.HTTPTransport(uds=place) if unix else None
        self.client = httpx2.Client(base_url="http://localhost" if unix else self.url[:-3], trust_env=False,
                                   transport=transport)  # fmt: skip
        deadline = time.monotonic() + 120  # a machine may be busy
        while time.monotonic() < deadline:
            try:
                self.count("nothing")
                return
            except httpx2.TransportError:
                time.sleep(0.05)
        self.__exit__()
        raise RuntimeError("the test's server did not start")

    def count(self, kind: str) -> int:
        return self.client.get(f"/seen/{kind}").json()

    def times(self, kind: str) -> list[float]:
        """When requests came, in seconds."""
        return self.client.get(f"/times/{kind}").json()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
