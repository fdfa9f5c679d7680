"""A server of the OpenAI protocol as a program of its own, which misbehaves as its flags ask: real, but for the
model. `python stub_server.py --port 8000 --name m --late 1 --dies-after 3 --stubborn --child FILE --never`"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

flags = argparse.ArgumentParser()
flags.add_argument("--port", type=int)
flags.add_argument("--name", default="m")
flags.add_argument("--late", type=float, default=0.0)  # seconds before it is ready
flags.add_argument("--never", action="store_true")  # ready
flags.add_argument("--fails", action="store_true")  # to start
flags.add_argument("--dies-after", type=int, default=10**9)  # answers
flags.add_argument("--stubborn", action="store_true")  # ignores SIGTERM
flags.add_argument("--child", default="")  # where it writes down itself and a child that would outlive it
flags.add_argument("--slow", type=float, default=0.0)  # seconds of an answer
flags.add_argument("--asked", default="")  # where it writes a line for every question: the model, and its token ids
asked = flags.parse_args()
began, answers = time.time(), 0

if asked.fails:
    sys.exit("no weights in that folder")
if asked.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if asked.child:
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
    )
    with open(asked.child, "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
print("stub: environment has a key:", "OPENAI_API_KEY" in os.environ, flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        ready = not asked.never and time.time() > began + asked.late
        self.say({"data": [{"id": asked.name}]} if ready else {"error": "loading"}, 200 if ready else 503)

    def do_POST(self):
        global answers
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers += 1
        if answers > asked.dies_after:
            print("stub: out of memory", flush=True)
            os._exit(1)
        if asked.asked:
            with open(asked.asked, "a") as file:
                file.write(f"{question['model']} {json.dumps(question.get('prompt'))}\n")
        time.sleep(asked.slow)
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if "prompt" in question:  # token ids
            choice = {"text": "x", "finish_reason": "stop", "token_ids": [int(i) for i in question["prompt"][:2]]}
        else:
            said = question["messages"][-1]["content"]
            done = "appendix" in said or "final diagnosis now" in said
            text = "ACTION: FINAL_DIAGNOSIS\nDiagnosis: Acute appendicitis" if done else (
                "ACTION: REQUEST_TEST\nTest needed: CT Abdomen and Pelvis")  # fmt: skip
            choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self.say({"choices": [choice], "model": asked.name, "usage": usage})

    def say(self, told, status=200):
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer.request_queue_size = 256
ThreadingHTTPServer(("127.0.0.1", asked.port), Handler).serve_forever()
