"""A server of the OpenAI protocol in a process of its own, without a model; flags make it misbehave.

`python stub_server.py --port 8000 --name m --late 1 --dies-after 3 --stubborn --child FILE --never --ails FILE`
"""

import argparse
import json
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--name", default="m")
parser.add_argument("--late", type=float, default=0.0)  # seconds before it is ready
parser.add_argument("--never", action="store_true")  # ready
parser.add_argument("--fails", action="store_true")  # to start
parser.add_argument("--dies-after", type=int, default=10**9)  # answers
parser.add_argument("--stubborn", action="store_true")  # ignores SIGTERM
parser.add_argument("--child", default="")  # file for the ids of the server and of a child that would outlive it
parser.add_argument("--slow", type=float, default=0.0)  # seconds of an answer
parser.add_argument("--ails", default="")  # file that names the fault of its answers; without the file there is none
parser.add_argument("--log", default="")  # file for a line per question: model and token ids
options = parser.parse_args([*sys.argv[1:], *shlex.split(os.environ.get("STUB", ""))])
start, answers = time.time(), 0

if options.fails:
    sys.exit("no weights in that folder")
if options.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.child:
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
    )
    with open(options.child, "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
print("stub: environment has a key:", *(name in os.environ for name in ("OPENAI_API_KEY", "MY_LAB_KEY")), flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        ready = not options.never and time.time() > start + options.late
        self.send({"data": [{"id": options.name}]} if ready else {"error": "loading"}, 200 if ready else 503)

    def do_POST(self):
        global answers
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers += 1
        if answers > options.dies_after:
            print("stub: out of memory", flush=True)
            os._exit(1)
        if options.log:
            with open(options.log, "a") as file:
                file.write(f"{question['model']} {json.dumps(question.get('prompt'))}\n")
        time.sleep(options.slow)
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if "prompt" in question:  # token ids
            choice = {"text": "x", "finish_reason": "stop", "token_ids": [int(i) for i in question["prompt"][:2]]}
        else:
            prompt = question["messages"][-1]["content"]
            ends = "appendix" in prompt or "final diagnosis now" in prompt
            text = "ACTION: FINAL_DIAGNOSIS\nDiagnosis: Acute appendicitis" if ends else (
                "ACTION: REQUEST_TEST\nTest needed: CT Abdomen and Pelvis")  # fmt: skip
            choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        content = {"choices": [choice], "model": options.name, "usage": usage}
        if os.path.exists(options.ails):
            with open(options.ails) as file:
                FAULTS[file.read()](self, content)
        else:
            self.send(content)

    def send(self, content, status=200, **headers):
        self.send_bytes(json.dumps(content).encode(), status=status, **headers)

    def send_bytes(self, body, length=None, kind="application/json", status=200, **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def reset(self, content):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def half(self, content):
        body = json.dumps(content).encode()
        self.send_bytes(body[: len(body) // 2], len(body))
        self.close_connection = True

    def page(self, content):
        self.send_bytes(b"<html><body>502 Bad Gateway</body></html>", kind="text/html")

    def soon(self, content):
        self.send({"error": "busy"}, 429, Retry_After="0.2") if answers <= 2 else self.send(content)

    def hiccup(self, content):
        self.send({"error": "out of memory"}, 500) if answers <= 3 else self.send(content)

    def drip(self, content):
        self.send_bytes(b"", 10**6)
        while True:
            self.wfile.write(b" ")
            time.sleep(0.05)

    def surrogate(self, content):
        content["choices"][0]["message"]["content"] += " \ud800"
        self.send(content)

    def dies(self, content):
        self.send(content) if answers <= 5 else os._exit(1)

    def log_message(self, *_):
        pass


FAULTS = {
    **{
        name: getattr(Handler, name)
        for name in ("reset", "half", "page", "soon", "hiccup", "drip", "surrogate", "dies")
    },
    "nothing": lambda handler, content: handler.send_bytes(b""),
    "busy": lambda handler, content: handler.send({"error": "busy"}, 429),
    "tomorrow": lambda handler, content: handler.send({"error": "busy"}, 429, Retry_After="86400"),
    "broken": lambda handler, content: handler.send({"error": "out of memory"}, 500),
    "negative": lambda handler, content: handler.send(content | {"usage": dict.fromkeys(content["usage"], -(10**6))}),
    "words": lambda handler, content: handler.send(content | {"usage": dict.fromkeys(content["usage"], "many")}),
    "imposter": lambda handler, content: handler.send(content | {"model": "smaller-one"}),
}
ThreadingHTTPServer.request_queue_size = 256
ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
