"""The measurements of one GPU, and the loads for a box without network."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import gpu_carry
import gpu_day

from cdpr.environment import FinalDiagnosis, RequestTest, parse_action
from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.types import Request, Sampling


def test_the_model_writes_actions_that_differ_and_learns_from_them(tmp_path):
    policy = gpu_day.build("tiny", tmp_path, "cpu")
    sampler = InProcessSampler.from_folder(policy)
    prompt = tuple(sampler.tokenizer.encode_conversation([{"role": "user", "content": "fever"}]))
    [replies] = sampler.sample_batch([Request(prompt, tuple(range(32)), Sampling(64), 0)])
    actions = [parse_action(reply.text) for reply in replies]
    assert {type(action) for action in actions} >= {RequestTest, FinalDiagnosis}
    assert sum(reply.finish_reason == "stop" for reply in replies) > 24
    figures = {}
    for part in gpu_day.measure_step(policy, "cpu"):
        figures |= part
    assert figures["grpo_gradient_norm"] > 0 and figures["cdpr_gradient_norm"] > 0
    assert figures["grpo_loss"] and figures["cdpr_loss"]


def test_figures_before_a_failure_are_kept_and_written(tmp_path, monkeypatch):
    script = tmp_path / "part.py"
    script.write_text(
        "import sys, json\nprint(json.dumps({'first': 1}), flush=True)\nsys.exit('memory' in sys.argv[2] and 'no room')"
    )
    monkeypatch.setattr(gpu_day, "__file__", str(script))
    out = tmp_path / "day.json"
    out.write_text(json.dumps({"parts": {"earlier": {"kept": True}}}))
    gpu_day.supervise(["memory tiny", "step tiny"], Namespace(out=out, device="cpu", seconds=60, folder=tmp_path))
    parts = json.loads(out.read_text())["parts"]
    assert parts["earlier"] == {"kept": True}
    assert parts["memory tiny"]["first"] == 1 and parts["memory tiny"]["error"][-1] == "no room"
    assert parts["step tiny"]["first"] == 1 and "error" not in parts["step tiny"]


def test_a_part_starts_only_where_its_memory_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_day, "free_gb", lambda device: 40.0)
    [figures] = gpu_day.run_part("step qwen3-4b", tmp_path, "cpu", 60)
    assert "40 are free" in figures["not run"]
    with_adapters = gpu_day.needs_gb("step", "qwen3-4b", "cuda")
    monkeypatch.setattr(gpu_day, "RANK", {})
    assert with_adapters < 80 < gpu_day.needs_gb("step", "qwen3-4b", "cuda")


def test_loads_are_installed_when_they_are_whole(tmp_path):
    files = [tmp_path / "lessons.jsonl.gz", tmp_path / "cases.jsonl.gz"]
    for number, path in enumerate(files):
        path.write_bytes(bytes([number]) * 1500)
    loads = gpu_carry.write_loads(files, tmp_path / "loads", 1000)
    assert all(sum(p.stat().st_size for p in load.glob("*of*")) <= 1000 for load in loads)
    checkout = tmp_path / "checkout"
    checkout.mkdir()

    def start(load: Path, *command: str) -> str:
        environment = {"PATH": "/usr/bin:/bin", "STORE": str(tmp_path / "store")}
        call = ["sh", str(load / "start.sh"), *command]
        return subprocess.run(call, cwd=checkout, env=environment, capture_output=True, text=True, check=True).stdout

    installed = checkout / "state/small_model"
    start(loads[0])
    assert not (installed / "lessons.jsonl.gz").exists()
    damaged = next(loads[1].glob("lessons*of*"))
    good = damaged.read_bytes()
    damaged.write_bytes(b"x" + good[1:])
    start(loads[1])
    assert not (installed / "lessons.jsonl.gz").exists()
    damaged.write_bytes(good)
    for load in loads:
        path = start(load, "sh", "-c", "echo $PYTHONPATH")
    assert [(installed / path.name).read_bytes() for path in files] == [path.read_bytes() for path in files]
    assert path.startswith(f"{tmp_path / 'store'}/site:{checkout}/src")


@pytest.mark.parametrize("native", [True, False])
def test_only_code_that_a_hopper_card_runs_is_kept(tmp_path, native):
    def entry(kind: int, card: int) -> bytes:
        return struct.pack("<HHIQ12xI32x", kind, 1, 64, 8, card) + bytes([kind]) * 8

    cards = [(1, 80), (2, 80), *([(2, 90)] if native else []), (2, 120)]
    entries = b"".join(entry(*card) for card in cards)
    library = tmp_path / "kernels.so"
    library.write_bytes(b"ELF " + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries + b"tail")
    gpu_carry.blank_other_cards(library)
    content = library.read_bytes()
    assert content.startswith(b"ELF ") and content.endswith(b"tail")
    kept = [content[20 + 72 * k + 64 : 20 + 72 * k + 72] for k in range(len(cards))]
    wanted = (2, 90) if native else (1, 80)
    assert [any(part) for part in kept] == [card == wanted for card in cards]
