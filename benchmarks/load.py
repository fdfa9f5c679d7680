"""What days of use take: a long evaluation that is killed and goes on, and a full cache of continuations.

    python benchmarks/load.py                    10,000 cases, half an hour
    python benchmarks/load.py --seconds 1        the same with quicker answers

An agent of two turns works up made-up cases through a local server that answers after ``--seconds``, 64 at a time,
recorded and metered. Memory, open files and threads of the process are sampled every second into a table. It is killed
(SIGKILL) at a moment that `--seed` draws and started again; its rows must be those of an evaluation that was never
killed. Then a cache of `credit.cache.capacity` states with as many continuations as are kept is filled, read, saved as
in a checkpoint and read back. Writes flat keys to results/benchmarks/load.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch
from _figures import save

from cdpr.cases import CaseRecord, write_records
from cdpr.credit.continuations import Continuation
from cdpr.credit.process_reward import MOST_PER_STATE, Entry, ProcessReward
from cdpr.environment import DiagnosticEnvironment, Effort
from cdpr.evaluation import evaluate_agent
from cdpr.settings import Settings, parse_settings

IN_FLIGHT = 64
SERVER = """
import asyncio, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def answer(request):
    said = (await request.json())["messages"][-1]["content"]
    await asyncio.sleep(float(sys.argv[2]))
    action = "FINAL_DIAGNOSIS\\nDiagnosis: Sepsis" if "Value:" in said else "REQUEST_TEST\\nTest needed: Lactate"
    return JSONResponse({
        "choices": [{"message": {"role": "assistant", "content": "ACTION: " + action}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}})

async def ready(request):
    return JSONResponse({"data": [{"id": "m"}]})

app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"]), Route("/v1/models", ready)])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


@contextmanager
def serving(seconds: float):
    """The address of a server whose answers take so long."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port), str(seconds)], stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()


def write_cases(path: Path, count: int) -> None:
    results = {"Lactate": "Value: 4.0; Units: mmol/L; Reference Range: 0.5--2.0. " * 5}
    write_records(path, [CaseRecord(
        note_id=f"B-{n:05d}", case_summary=f"- Patient Information: {n} years\n" * 20, diagnosis_results="Sepsis",
        key_pertinent_results_dict=results, final_diagnosis="Sepsis", exam_cost_map=dict.fromkeys(results, 5.0),
        dataset="mimic_iv", split="test", subject_key=f"s{n}", credentialed=False,
    ) for n in range(count)])  # fmt: skip


def evaluate(folder: str, url: str, name: str) -> None:
    """One evaluation, in a process of its own."""
    place = Path(folder)
    evaluate_agent.EPISODES_AT_ONCE = IN_FLIGHT
    settings = parse_settings({
        "agents": {"stub": {"label": "Stub", "group": "open", "model": url, "served_as": "m"}},
        "evaluation": {"decodings": ["greedy"]}, "paths": {"state": f"{folder}/{name}"},
    })  # fmt: skip
    cases = evaluate_agent.read_cases(place / "cases.jsonl")
    evaluate_agent.evaluate(settings, "stub", cases, place / f"{name}.jsonl", place / name / "evaluation")


def start(folder: Path, url: str, name: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, __file__, "--evaluate", str(folder), url, name], stderr=subprocess.DEVNULL)


def watch(process: subprocess.Popen, rows: list[dict], began: float, until: float) -> bool:
    """Sample a process until it ends (True) or a moment comes, after so many seconds."""
    seen = psutil.Process(process.pid)
    while process.poll() is None and time.monotonic() - began < until:
        try:
            rows.append({"seconds": round(time.monotonic() - began), "process": process.pid,
                         "memory_mb": round(seen.memory_info().rss / 2**20, 1), "files": seen.num_fds(),
                         "threads": seen.num_threads()})  # fmt: skip
        except psutil.NoSuchProcess:
            break
        time.sleep(1)
    return process.poll() is not None


def long_evaluation(folder: Path, count: int, answer: float, seed: int, samples: Path) -> dict[str, object]:
    """Figures of an evaluation that is killed once, and whether its rows are those of an undisturbed one."""
    write_cases(folder / "cases.jsonl", count)
    expected = 2 * answer * count / IN_FLIGHT  # seconds, two turns a case
    moment = random.Random(seed).uniform(0.2, 0.8) * expected
    rows: list[dict] = []
    began = time.monotonic()
    with serving(answer) as url:
        process = start(folder, url, "killed")
        if watch(process, rows, began, moment):
            raise SystemExit(f"the evaluation ended after {time.monotonic() - began:.0f} s, before it could be killed")
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = sum(1 for _ in (folder / "killed/evaluation/evaluation.jsonl").open("rb"))
        process = start(folder, url, "killed")
        watch(process, rows, began, float("inf"))
        seconds = time.monotonic() - began
    with serving(0.0) as url:
        whole = start(folder, url, "whole")
        whole.wait()
    if process.returncode or whole.returncode:
        raise SystemExit("an evaluation failed")
    made = [[json.loads(line) for line in (folder / f"{name}.jsonl").open()] for name in ("killed", "whole")]
    samples.parent.mkdir(parents=True, exist_ok=True)
    with samples.open("w", newline="") as table:
        writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    last = [row for row in rows if row["process"] == process.pid]
    quarter, late = last[len(last) // 4], last[9 * len(last) // 10]
    return {
        "cases": count, "in_flight": IN_FLIGHT, "answer_seconds": answer, "evaluation_seconds": round(seconds),
        "killed_after_seconds": round(moment),
        "rows_kept_at_the_kill": kept, "same_rows": made[0] == made[1] and len(made[0]) == count,
        "same_bytes": (folder / "killed.jsonl").read_bytes() == (folder / "whole.jsonl").read_bytes(),
        "memory_mb_at_a_quarter": quarter["memory_mb"], "memory_mb_at_nine_tenths": late["memory_mb"],
        "most_memory_mb": max(row["memory_mb"] for row in last),
        "most_files": max(row["files"] for row in last[len(last) // 4 :]), "files_at_a_quarter": quarter["files"],
        "threads": max(row["threads"] for row in last),
    }  # fmt: skip


def full_cache() -> dict[str, object]:
    """Memory of a full cache, and what a look-up, an entry more and a checkpoint take."""
    settings, process = Settings(), psutil.Process()
    capacity = settings.credit.cache.capacity
    rewards = ProcessReward(
        DiagnosticEnvironment(settings.environment), None, None, settings.credit, settings.utility, 0
    )
    before = process.memory_info().rss
    draw = random.Random(0)

    def key(n: int) -> tuple:
        return (f"B-{n:05d}", tuple(("result", f"Examination {k}", f"value {n % 97} of {k}" * 3) for k in range(6)))

    def entry() -> Entry:
        ends = [Continuation(draw.random(), Effort()) for _ in range(MOST_PER_STATE)]
        return Entry(MOST_PER_STATE, ends)

    def microseconds(act, numbers) -> float:
        keys = [key(n) for n in numbers]
        began = time.perf_counter()
        for one in keys:
            act(one)
        return 1e6 * (time.perf_counter() - began) / len(keys)

    def store(at: tuple) -> None:
        rewards.cache[at] = entry()

    figures: dict[str, object] = {"states": capacity, "continuations_of_a_state": MOST_PER_STATE}
    figures["store_us_first_eighth"] = microseconds(store, range(capacity // 8))
    microseconds(store, range(capacity // 8, capacity))
    figures["cache_memory_mb"] = round((process.memory_info().rss - before) / 2**20, 1)
    figures["store_us_full"] = microseconds(store, range(capacity, 2 * capacity))
    figures["look_up_us"] = microseconds(
        rewards.cache.get, random.Random(1).sample(range(capacity, 2 * capacity), 4096)
    )
    figures["miss_us"] = microseconds(rewards.cache.get, range(4096))
    with tempfile.TemporaryFile() as file:
        began = time.perf_counter()
        torch.save(rewards.state_dict(), file)
        figures["checkpoint_seconds"], figures["checkpoint_mb"] = time.perf_counter() - began, file.tell() / 2**20
        file.seek(0)
        began = time.perf_counter()
        rewards.load_state_dict(torch.load(file, weights_only=True))
        figures["restore_seconds"] = time.perf_counter() - began
    assert len(rewards.cache) == capacity
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.6, help="of an answer (default: 5.6)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/load.json"))
    parser.add_argument("--evaluate", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.evaluate:
        return evaluate(*arguments.evaluate)
    figures = full_cache()
    with tempfile.TemporaryDirectory() as folder:
        figures |= long_evaluation(Path(folder), arguments.cases, arguments.seconds, arguments.seed,
                                   arguments.out.with_suffix(".csv"))  # fmt: skip
    save(arguments.out, figures)


if __name__ == "__main__":
    main()
