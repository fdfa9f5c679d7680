"""Nine minutes on one GPU, without a network: does everything run there, how fast, and in how much memory?

Models have the shape of Qwen3-0.6B and Qwen3-4B and random weights, so nothing is fetched. For each: tokens a second of
our sampler against `transformers.generate` on the same prompts, a GRPO and a CDPR step of the torch trainer, and the
memory of an update against the planner's forecast; then `pytest -m gpu`, and two steps of the engine verl with vLLM
where both are installed. Every part runs in a process and a time limit of its own, so a part that fails costs no other.
Writes results/gpu_day.json; `--document` shows docs/benchmarks/gpu_day.json in docs/performance.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import sampler as dialogues
import torch
from sampler import Toy, generate, play

from cdpr.agents.policy import longest_sequence
from cdpr.cases import CaseRecord, write_records
from cdpr.environment.prompt import opening_messages
from cdpr.files import write_text
from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.metrics_log import read_history
from cdpr.settings import Settings, merge, parse_settings, resolve_variant
from cdpr.settings.schema import Prompt, TinyModel
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.training_run import TrainingRun
from cdpr.training.verl.estimates import memory_plan

SECONDS = 540
_QWEN3 = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "tie_word_embeddings": True}
MODELS = {  # public configurations
    "qwen3-0.6b": _QWEN3 | {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
                            "intermediate_size": 3072},
    "qwen3-4b": _QWEN3 | {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
                          "intermediate_size": 9728},
    "tiny": {"num_key_value_heads": 1, "head_dim": 16, "vocab_size": 4_000, "tie_word_embeddings": True,
             "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
}  # fmt: skip
LIMITS = {"sampler": 70, "step": 100, "memory": 60, "tests": 90, "verl": 240}
DOCS, MARK = Path("docs/performance.md"), "<!-- gpu_day -->"


def build(name: str, folder: Path, device: str) -> Path:
    """A folder with the tokenizer of toy texts and random weights of the model's shape in bfloat16."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    policy = folder / name
    if (policy / "model.safetensors.index.json").exists() or (policy / "model.safetensors").exists():
        return policy
    toy, prompt = Toy(), Prompt(style="full")
    corpus = [toy.presentation() + toy.result() + toy.turn(False) for _ in range(300)]
    corpus += [message["content"] for text in corpus[:50] for message in opening_messages(prompt, text)]
    build_tiny_policy(policy, TinyModel(), corpus)
    end = ChatTokenizer(policy).end_of_turn
    config = Qwen3Config(**MODELS[name], max_position_embeddings=40_960, eos_token_id=end, bos_token_id=None)
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(policy)
    return policy


def settings_of(folder: Path, algorithm: str, **change: Any) -> Settings:
    """A small step of the paper's kind: full prompt, turns of 64 tokens."""
    sizes = {"prompts_per_batch": 4, "mini_batch_prompts": 4, "group_size": 4, "micro_batch": 1, "steps": 2}
    base = {
        "policy": {"model": str(folder), "max_turn_tokens": 64, "max_response_tokens": 1024},
        "environment": {"prompt": {"style": "full"}, "max_turns": 4},
        "training": sizes,
    }
    chosen = resolve_variant(parse_settings(base), algorithm)
    return parse_settings(merge(chosen.model_dump(), change))


def toy_cases(count: int) -> list[CaseRecord]:
    """Made-up cases with eight priced examinations."""
    toy = Toy()
    exams = [f"Examination {k}" for k in range(8)]
    return [
        CaseRecord(
            note_id=f"T-{k}", case_summary=toy.presentation(), final_diagnosis="Sepsis", diagnosis_results="Sepsis",
            key_pertinent_results_dict={exam: toy.result() for exam in exams}, exam_cost_map=dict.fromkeys(exams, 9.0),
            exam_billing_group={}, dataset="mimic_iv", split="train" if k else "validation", subject_key=f"s{k}",
            credentialed=False,
        )
        for k in range(count)
    ]  # fmt: skip


def measure_sampler(policy: Path, device: str) -> dict[str, float]:
    """Tokens a second on the same requests; the first turn of each is a warm-up."""
    from transformers import AutoModelForCausalLM

    if device == "cpu":
        dialogues.CASES, dialogues.TURNS = 4, 2
    sampler, toy = InProcessSampler.from_folder(policy, device=device), Toy()
    play(sampler, toy)
    sampler.refresh()
    waves, tokens, seconds = play(sampler, toy)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.bfloat16).to(device)
    end = sampler.tokenizer.end_of_turn
    with torch.inference_mode():
        generate(model, end, [waves[0][:8]], 256)
        drawn, plain = generate(model, end, waves, 256)
    return {"tokens_per_second": tokens / seconds, "transformers_tokens_per_second": drawn / plain,
            "ratio": tokens / seconds / (drawn / plain)}  # fmt: skip


def measure_step(policy: Path, device: str) -> dict[str, float]:
    """Seconds of the second step of GRPO and of CDPR, and the most memory that each took."""
    figures: dict[str, float] = {}
    for name in ("grpo", "cdpr"):
        turn = 64 if device == "cuda" else 8
        settings = settings_of(policy, name, policy={"device": device, "max_turn_tokens": turn})
        trainer = Trainer(TrainingRun(settings, toy_cases(13), policy, 0))
        trainer.iterate()
        start = time.perf_counter()
        row = trainer.iterate()
        figures |= {f"{name}_seconds": time.perf_counter() - start, f"{name}_loss": row["policy/loss"]}
        if device == "cuda":
            figures[f"{name}_peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
            torch.cuda.reset_peak_memory_stats()
        del trainer
    return figures


def measure_memory(policy: Path, device: str) -> dict[str, float]:
    """What one update holds, as verl does it (float32 weights and Adam, bfloat16 arithmetic, gradient checkpointing),
    against the planner's forecast for the same phase without servers and allowance."""
    from transformers import AutoModelForCausalLM

    verl = {"rollout": "vllm", "gpus_per_node": 1, "tensor_parallel": 1, "gpu_memory_gb": 1000}
    settings = settings_of(policy, "grpo", training={"engine": "verl", "verl": verl})
    plan = memory_plan(settings)
    # verl computes logits in chunks, this update all at once.
    parts = plan.phases["update"] | {"logits": longest_sequence(settings) * plan.model.vocab * 10 / 1e9}
    forecast = sum(size for name, size in parts.items() if name not in ("frozen server", "allowance"))
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).to(device)
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    ids = torch.randint(0, 1000, (1, longest_sequence(settings)), device=device)
    for _ in range(2):  # the optimiser's state comes with the first step
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    figures = {"forecast_gb": forecast, "tokens": ids.numel()}
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 1e9
        figures |= {"peak_gb": peak, "peak_over_forecast": peak / forecast}
    return figures


def run_tests() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "pytest", "-m", "gpu", "-q"], capture_output=True, text=True)
    *_, last = done.stdout.strip().splitlines() or ["no output"]
    return {"exit_status": done.returncode, "summary": last}


def run_verl(policy: Path, folder: Path) -> dict[str, Any]:
    """Two steps of GRPO and of CDPR with vLLM as rollout server and as frozen server beside the trainer."""
    lacking = [name for name in ("verl", "vllm", "ray") if importlib.util.find_spec(name) is None]
    if lacking:
        return {"not run": f"{', '.join(lacking)} not installed (make gpu-env)"}
    memory = torch.cuda.get_device_properties(0).total_memory / 1e9
    place = {"rollout": "vllm", "gpus_per_node": 1, "tensor_parallel": 1, "quantization": "none", "attention": "sdpa",
             "gpu_memory_gb": memory, "frozen": {"beside": True}}  # fmt: skip
    write_records(folder / "cases.jsonl", toy_cases(13))
    figures: dict[str, Any] = {}
    for name in ("grpo", "cdpr"):
        paths = {"results": str(folder / name), "state": str(folder / f"{name}-state")}
        settings = settings_of(policy, name, training={"engine": "verl", "verl": place}, paths=paths,
                               tracking={"mlflow": False})  # fmt: skip
        write_text(folder / f"{name}.yaml", json.dumps(settings.model_dump(mode="json")))
        out = {"cases": folder / "cases.jsonl", "init_policy": policy, "policy": folder / name / "policy",
               "metrics": folder / name / "metrics.jsonl", "timings": folder / name / "timings.jsonl",
               "credit": folder / name / "credit.jsonl.gz"}  # fmt: skip
        command = [sys.executable, "-m", "cdpr.cli", "train_policy", "--run", f"{name}-seed0", "--key", "k" * 16]
        command += [part for flag, path in out.items() for part in (f"--{flag}", str(path))]
        subprocess.run([*command, "--settings", str(folder / f"{name}.yaml")], check=True)
        rows = read_history(out["metrics"], out["timings"])
        figures |= {f"{name}_{key}": value for key, value in rows[-1].items() if key.startswith(("time/", "rollout"))}
    return figures


def run_part(part: str, folder: Path, device: str) -> dict[str, Any]:
    kind, _, name = part.partition(" ")
    if kind == "tests":
        return run_tests()
    policy = build(name, folder, device)
    if kind == "verl":
        return run_verl(policy, folder)
    return {"sampler": measure_sampler, "step": measure_step, "memory": measure_memory}[kind](policy, device)


def supervise(parts: list[str], folder: Path, device: str) -> dict[str, Any]:
    """Every part in a process of its own, within its limit and what is left of the whole time."""
    started, results = time.monotonic(), {}
    for part in parts:
        limit = min(LIMITS[part.split()[0]], SECONDS - (time.monotonic() - started))
        if limit < 5:
            results[part] = {"not run": "no time left"}
            continue
        command = [sys.executable, __file__, "--part", part, "--folder", str(folder), "--device", device]
        begun = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
            lines = (done.stdout + done.stderr).strip().splitlines()
            figures = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": lines[-12:]}
        except subprocess.TimeoutExpired as error:
            lines = (error.stderr or b"").decode(errors="replace").strip().splitlines()
            figures = {"error": [f"not done within {limit:.0f} s", *lines[-12:]]}
        results[part] = figures | {"seconds": round(time.monotonic() - begun, 1)}
        print(part, json.dumps(results[part]), flush=True)
    return results


def table(path: Path) -> str:
    """What docs/performance.md says of these figures."""
    if not path.exists():
        return "Not run: no GPU was at hand. `make gpu-day` measures it all in nine minutes on one card."
    report = json.loads(path.read_text(encoding="utf-8"))
    lines = [f"On one {report['device']}, by `make gpu-day` ({path.name}):", "", "| part | figures |", "|---|---|"]
    for part, figures in report["parts"].items():
        cells = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items() if k != "seconds")
        lines.append(f"| {part} | {'; '.join(cells)} |")
    return "\n".join(lines)


def document(path: Path = Path("docs/benchmarks/gpu_day.json")) -> None:
    """Put the table between its marks in docs/performance.md."""
    before, _, after = DOCS.read_text(encoding="utf-8").split(MARK)
    write_text(DOCS, f"{before}{MARK}\n{table(path)}\n{MARK}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/gpu_day.json"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["qwen3-0.6b", "qwen3-4b"])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try the script itself")
    parser.add_argument("--folder", type=Path, default=Path("state/gpu_day"), help="where the models are built")
    parser.add_argument("--part", help="run one part in this process and print its figures")
    parser.add_argument("--document", action="store_true", help="only bring docs/performance.md up to date")
    arguments = parser.parse_args()
    if arguments.document:
        return document()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.exit(2, "gpu_day: torch finds no GPU; `--device cpu --models tiny` tries the script itself\n")
    if arguments.part:
        print(json.dumps(run_part(arguments.part, arguments.folder, arguments.device)))
        return None
    parts = [f"{kind} {name}" for name in arguments.models for kind in ("sampler", "step", "memory")]
    if arguments.device == "cuda":
        parts += ["tests", f"verl {arguments.models[0]}"]
    results = supervise(parts, arguments.folder, arguments.device)
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "verl", "vllm")
                if importlib.util.find_spec(name)}  # fmt: skip
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    write_text(arguments.out, json.dumps({"device": device, "versions": versions, "parts": results}, indent=2) + "\n")
    return None


if __name__ == "__main__":
    main()
