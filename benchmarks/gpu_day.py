"""Nine minutes on one GPU, without a network: does everything run there, how fast, and in how much memory?

`tests/gpu` first. Then models with the shape of Qwen3-0.6B and Qwen3-4B and weights that are random but for the words
of a reply, so that nothing is fetched and rewards differ. For each: tokens a second of our sampler against
`transformers.generate` on the same prompts, a GRPO and a CDPR step of the torch trainer (of LoRA adapters at 4B), and
the memory of an update against the planner's forecast. Then `small_model.py`, what SmolLM2-135M learns, where its
lessons are; and two steps of the engine verl with vLLM where both are installed.

Every part runs in a process and a time limit of its own and only where its memory is free, so a part that fails costs
no other; its figures are written when it ends, beside those of an earlier call. Writes results/gpu_day.json.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import sampler as dialogues
import torch
from local_model import smollm2
from sampler import Toy, generate, play

from cdpr.agents.policy import longest_sequence
from cdpr.cases import CaseRecord, write_records
from cdpr.environment.prompt import FORCED_PREFIX, opening_messages
from cdpr.files import write_text
from cdpr.job import Job
from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.metrics_log import read_history
from cdpr.settings import Settings, merge, parse_settings, resolve_variant
from cdpr.settings.schema import Prompt, TinyModel
from cdpr.settings.tables import add_quantities, read_table
from cdpr.training.torch import loop
from cdpr.training.torch.optimisers import AdamW
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.training_run import TrainingRun
from cdpr.training.verl.memory import ModelSize, memory_plan

_QWEN3 = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "tie_word_embeddings": True}
MODELS = {  # public configurations
    "qwen3-0.6b": _QWEN3 | {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
                            "intermediate_size": 3072},
    "qwen3-4b": _QWEN3 | {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
                          "intermediate_size": 9728},
    "tiny": {"num_key_value_heads": 1, "head_dim": 64, "vocab_size": 2_500, "tie_word_embeddings": True,
             "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256},
}  # fmt: skip
MODELS["tiny-lora"] = MODELS["tiny"]
POSITIONS = 40_960
RANK = {"qwen3-4b": 64, "tiny-lora": 8}  # of LoRA adapters, where all weights with their optimiser do not fit 80 GB
LIMITS = {"tests": 90, "sampler": 80, "step": 120, "memory": 60, "learning": 300, "verl": 480}  # seconds, on a GPU


# The models: they speak by design


def build(name: str, folder: Path, device: str) -> Path:
    """A folder with the tokenizer of toy texts and weights of the model's shape that write short replies."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    policy = folder / name
    if policy.exists():
        return policy
    partial = folder / f"{name}.partial"
    toy, prompt = Toy(), Prompt(style="full")
    corpus = [toy.presentation() + toy.result() + toy.turn(False) for _ in range(300)]
    corpus += [message["content"] for text in corpus[:50] for message in opening_messages(prompt, text)]
    build_tiny_policy(partial, TinyModel(), [*corpus, *(reply for reply in REPLIES for _ in range(20))])
    tokenizer = ChatTokenizer(partial)
    end = tokenizer.end_of_turn
    config = Qwen3Config(**MODELS[name], max_position_embeddings=POSITIONS, eos_token_id=end, bos_token_id=None)
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16 if device == "cuda" else torch.float32)
    teach(model, successors(tokenizer, toy))
    model.save_pretrained(partial)
    return partial.rename(policy)


REPLIES = [f"REQUEST_TEST: Examination {k}" for k in range(4)] + ["FINAL_DIAGNOSIS: Sepsis", "FINAL_DIAGNOSIS: Stroke"]


def successors(tokenizer: ChatTokenizer, toy: Toy) -> list[tuple[int, int]]:
    """Which token follows which in a reply: a thought of 48 words, one of two at each place, then an action."""
    words = list(dict.fromkeys(ids[-1] for word in toy.words if (ids := tokenizer.encode(f" {word}"))))
    opening, line = tokenizer.encode_conversation([{"role": "user", "content": "?"}])[-1:], tokenizer.encode("\n")[-1:]
    places = [opening, *(words[k : k + 2] for k in range(0, 96, 2)), line]
    pairs = {(a, b): None for before, after in itertools.pairwise(places) for a in before for b in after}
    actions = [tokenizer.encode(reply) for reply in REPLIES]
    forced = tokenizer.encode(FORCED_PREFIX["full"])[-1:]
    for ids in [*(line + action for action in actions), *(forced + diagnosis[1:] for diagnosis in actions[-2:])]:
        pairs |= dict.fromkeys(zip(ids, [*ids[1:], tokenizer.end_of_turn], strict=True))
    return list(pairs)


def teach(model: Any, pairs: Sequence[tuple[int, int]]) -> None:
    """Let the model write b after a for every pair: a neuron of the last block that knows the embedding of a writes
    that of b. All other weights stay random; the blocks add little to the embedding that passes through them."""
    width = model.config.hidden_size
    with torch.no_grad():
        for block in model.model.layers:
            block.self_attn.o_proj.weight.mul_(1e-3)
            block.mlp.down_proj.weight.mul_(1e-3)
        directions = torch.nn.functional.normalize(model.model.embed_tokens.weight.normal_())
        tokens = sorted({token for pair in pairs for token in pair})
        # At right angles, so that the successors of a token are equally likely.
        apart, _ = torch.linalg.qr(torch.randn(width, len(tokens)))
        directions[tokens] = apart.T.to(directions)
        table = model.model.embed_tokens.weight.copy_(40 / width**0.5 * directions)  # 40: logit of a sure token
        for neuron, (a, b) in enumerate(pairs):
            block.mlp.gate_proj.weight[neuron] = block.mlp.up_proj.weight[neuron] = directions[a]
            block.mlp.down_proj.weight[:, neuron] = 4 * table[b] / width


def settings_of(folder: Path, algorithm: str, device: str, **change: Any) -> Settings:
    """A small step of the paper's kind: full prompt, turns of 64 tokens; on a CPU compact prompts."""
    style, prompts = ("full", 4) if device == "cuda" else ("compact", 2)
    base = {
        "policy": {"model": str(folder), "device": device, "max_turn_tokens": 64, "max_response_tokens": 1024},
        "environment": {"prompt": {"style": style, "max_observation_chars": 2000}, "max_turns": 4},
        "training": {"prompts_per_batch": prompts, "mini_batch_prompts": prompts, "group_size": 4, "steps": 2},
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


# The parts: each yields figures as it gets them


def measure_sampler(policy: Path, device: str) -> Iterator[dict[str, float]]:
    """Tokens a second on the same requests, after a first turn as warm-up."""
    from transformers import AutoModelForCausalLM

    dialogues.MAX_TOKENS = 64
    sampler, toy = InProcessSampler.from_folder(policy, device=device), Toy()
    dialogues.CASES, dialogues.TURNS = 1, 1
    play(sampler, toy)
    if device == "cuda":
        dialogues.CASES, dialogues.TURNS = 32, 3
    sampler.refresh()
    waves, tokens, seconds = play(sampler, toy)
    yield {"tokens": tokens, "tokens_per_second": tokens / seconds} | peak(device)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype="auto").to(device)
    end = sampler.tokenizer.end_of_turn
    with torch.inference_mode():
        generate(model, end, [waves[0][:8]], 256)
        drawn, plain = generate(model, end, waves, 256)
    yield {"transformers_tokens_per_second": drawn / plain, "ratio": tokens / seconds / (drawn / plain)}


@contextlib.contextmanager
def adapters(trainer: Trainer, rank: int) -> Iterator[None]:
    """Train LoRA adapters alone. They are merged into the weights, which the sampler shares, except while they are
    trained."""
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.lora import LoraLayer

    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear"), trainer.model)
    layers = [module for module in trainer.model.modules() if isinstance(module, LoraLayer)]
    trainer.optimizer = AdamW(trainer.model.parameters(), trainer.settings.training.learning_rate)
    step = loop.update

    def update(*arguments: Any) -> dict[str, float]:
        for layer in layers:
            layer.unmerge()
        metrics = step(*arguments)
        for layer in layers:
            layer.merge()
        return metrics

    loop.update = update
    try:
        yield
    finally:
        loop.update = step


def measure_step(policy: Path, device: str, rank: int = 0) -> Iterator[dict[str, float]]:
    """The second step of GRPO and of CDPR: its seconds and tokens, what it learned from, and the most memory. Raises
    FloatingPointError where nothing was learned."""
    torch.set_float32_matmul_precision("high")  # TF32
    figures: dict[str, float] = {"lora_rank": rank} if rank else {}
    for name in ("grpo", "cdpr"):
        # At the usual rate one step makes these weights certain of their best action: the next would have no gradient.
        training = {"micro_batch": 1 if rank else 4, "learning_rate": 1e-8}
        settings = settings_of(policy, name, device, training=training)
        trainer = Trainer(TrainingRun(settings, toy_cases(13), policy, 0))
        with adapters(trainer, rank) if rank else contextlib.nullcontext():
            for step in range(2):
                start = time.perf_counter()
                row = loop.iterate(trainer)
                seconds = time.perf_counter() - start
                figures[f"{name}_{'first_' if step == 0 else ''}seconds"] = seconds
        kept = {"rollout/tokens": "rollout_tokens", "policy/trained_tokens": "trained_tokens", "policy/loss": "loss",
                "policy/grad_norm": "gradient_norm", "policy/max_ratio_drift": "ratio_drift", "time/rollout": "rollout",
                "time/credit": "credit", "time/update": "update", "train/accuracy": "accuracy"}  # fmt: skip
        figures |= {f"{name}_{short}": row[key] for key, short in kept.items()}
        figures |= {f"{name}_{key}": value for key, value in peak(device).items()}
        yield figures
        if not row["policy/grad_norm"] > 0:
            raise FloatingPointError(f"{name}: the gradient is zero: all rewards of a group are equal")
        del trainer
        gc.collect()  # before the next one's memory is measured
        torch.cuda.empty_cache()
    whole = [sum(figures[f"{name}_{phase}"] for phase in ("rollout", "credit", "update")) for name in ("grpo", "cdpr")]
    yield {"cdpr_over_grpo": whole[1] / whole[0]}


def measure_memory(policy: Path, device: str, rank: int = 0) -> Iterator[dict[str, float]]:
    """What one update holds, as verl does it (float32 weights and Adam, bfloat16 arithmetic, gradient checkpointing),
    against the planner's forecast for the same phase without servers and allowance."""
    from transformers import AutoModelForCausalLM

    verl = {"rollout": "vllm", "gpus_per_node": 1, "tensor_parallel": 1, "gpu_memory_gb": 1000, "lora_rank": rank}
    settings = settings_of(policy, "grpo", device, training={"micro_batch": 1, "engine": "verl", "verl": verl})
    plan = memory_plan(settings)
    # verl computes logits in chunks, this update all at once.
    parts = plan.phases["update"] | {"logits": longest_sequence(settings) * plan.model.vocab * 10 / 1e9}
    forecast = sum(size for name, size in parts.items() if name not in ("frozen server", "allowance"))
    yield {"forecast_gb": forecast, "tokens": longest_sequence(settings)}
    torch.set_float32_matmul_precision("high")
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).to(device)
    if rank:
        from peft import LoraConfig, inject_adapter_in_model

        inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear"), model)
        model.enable_input_require_grads()
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-6)
    ids = torch.randint(0, 1000, (1, longest_sequence(settings)), device=device)
    for _ in range(2):  # the optimiser's state comes with the first step
        start = time.perf_counter()
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
    yield {"update_seconds": time.perf_counter() - start}
    if device == "cuda":
        most = peak(device)["peak_gb"]
        yield {"peak_gb": most, "peak_over_forecast": most / forecast}


def peak(device: str) -> dict[str, float]:
    """The most GPU memory that this process has held since the last call."""
    if device != "cuda":
        return {}
    most = torch.cuda.max_memory_allocated() / 1e9
    torch.cuda.reset_peak_memory_stats()
    return {"peak_gb": most}


def run_tests(device: str) -> Iterator[dict[str, Any]]:
    chosen = ["-m", "gpu"] if device == "cuda" else []
    done = subprocess.run([sys.executable, "-m", "pytest", "tests/gpu", *chosen], capture_output=True, text=True)
    *before, last = done.stdout.strip().splitlines() or ["no output"]
    failed = {"failed": before[-40:] + done.stderr.splitlines()[-5:]} if done.returncode else {}
    yield {"exit_status": done.returncode, "summary": last} | failed


def run_learning(device: str, limit: float) -> Iterator[dict[str, Any]]:
    """`small_model.py`: a supervised start of SmolLM2-135M on its lessons, then as many steps of each rule as the time
    lets them, one process for each seed."""
    folder = Path("state/small_model")
    if not (folder / "lessons.jsonl.gz").exists():
        yield {
            "not run": f"{folder} has no lessons: `make small-model` prepares them, `make gpu-carry` takes them along"
        }
        return
    command = [sys.executable, "benchmarks/small_model.py", "run", "--folder", str(folder), "--device", device]
    began = time.monotonic()
    model = smollm2()
    yield {"conversion_seconds": time.monotonic() - began}
    subprocess.run([*command, "--model", str(model), "--seconds", str(limit)], check=True, stdout=subprocess.DEVNULL)
    summary = json.loads((folder / "small_model.json").read_text(encoding="utf-8"))
    yield {"start": summary["start"][-1], "steps": summary["steps"]}
    for policy, measures in summary["results"].items():
        yield {policy: {name: value[0] if isinstance(value, list) else value for name, value in measures.items()}}


def run_verl(policy: Path, folder: Path, device: str) -> Iterator[dict[str, Any]]:
    """Two steps of CDPR with scored verdicts, and of GRPO on LoRA adapters. vLLM serves the rollouts, and beside the
    trainer the frozen policy; on a CPU our own sampler does."""
    server = ["vllm"] if device == "cuda" else []
    if lacking := [name for name in ("verl", "ray", *server) if importlib.util.find_spec(name) is None]:
        yield {"not run": f"{', '.join(lacking)} not installed (make gpu-env, on a CPU make verl)"}
        return
    place: dict[str, Any] = {"rollout": "cpu", "quantization": "none", "attention": "sdpa", "gpus_per_node": 1,
                             "tensor_parallel": 1}  # fmt: skip
    if device == "cuda":
        memory = torch.cuda.get_device_properties(0).total_memory / 1e9
        shares = {"rollout_memory": 16 / memory, "frozen": {"beside": True, "memory": 16 / memory}}
        place |= {"rollout": "vllm", "gpu_memory_gb": memory} | shares
    write_records(folder / "cases.verl.jsonl", toy_cases(13))
    for name, change in (("cdpr", {"credit": {"verdicts": "scored"}}), ("grpo", {})):
        verl = place | ({"lora_rank": 16} if name == "grpo" and device == "cuda" else {})
        training = {"micro_batch": 1, "engine": "verl", "verl": verl}
        settings = settings_of(policy.resolve(), name, device, training=training, **change)
        write_text(folder / f"{name}.json", settings.model_dump_json())
        begun = time.monotonic()
        command = [sys.executable, __file__, "--folder", str(folder), "--device", device, "--part", f"train {name}"]
        done = subprocess.run(command, capture_output=True, text=True)
        figures: dict[str, Any] = {f"{name}_whole_seconds": time.monotonic() - begun}
        if done.returncode:
            figures[f"{name}_error"] = (done.stdout + done.stderr).strip().splitlines()[-60:]
        else:
            row = read_history(folder / name / "metrics", folder / name / "timings")[-1]
            figures |= {f"{name}_{key}": value for key, value in row.items()
                        if key.startswith(("time/", "rollout", "policy/", "train/accuracy"))}  # fmt: skip
        yield figures


def train_by_verl(folder: Path, name: str) -> None:
    """The stage ``train_policy`` of the engine verl, with the settings of ``folder / NAME.json``."""
    from cdpr.training.verl.launch import train_policy

    settings, out = parse_settings(json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))), folder / name
    out.mkdir(exist_ok=True)
    inputs = {"cases": folder / "cases.verl.jsonl", "init_policy": Path(settings.policy.model)}
    files = {file: out / file for file in ("policy", "metrics", "timings", "credit")}
    train_policy(settings, Job("train_policy", "", inputs, files, 0, out / "state", {"run": f"{name}-seed0"}))


# One process for each part


def needs_gb(kind: str, name: str, device: str) -> float:
    """Memory that a part takes at least: weights, gradients and optimiser, activations of one trajectory, caches."""
    if kind == "learning":
        return 60.0 if device == "cuda" else 4.0
    size = ModelSize.model_validate(MODELS[name] | {"max_position_embeddings": POSITIONS})
    rank = RANK.get(name, 0)
    quantities = read_table("cdpr.training.verl", "memory")["sizes"]
    sizes = add_quantities(quantities, {"model": size, "verl": {"lora_rank": rank}})
    weights = sizes["parameters"] / 1e9
    trained = sizes["adapters"] / 1e9 if rank else weights
    tokens = 1500 * (1 if rank else 4)
    activations = tokens * size.layers * 2 * (34 * size.hidden + 6 * size.intermediate) / 1e9
    # The sampler and generate hold weights in bfloat16 each; a step in float32, and again those of the frozen policy.
    return {"sampler": 4 * weights + 5, "step": 8 * weights + 12 * trained + activations + 4,
            "memory": 4 * weights + 12 * trained + 5000 * size.vocab * 12 / 1e9 + 2,
            "verl": 40.0 if device == "cuda" else 3.0}[kind]  # fmt: skip


def free_gb(device: str) -> float:
    return (torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available) / 1e9


def run_part(part: str, folder: Path, device: str, limit: float) -> Iterator[dict[str, Any]]:
    kind, _, name = part.partition(" ")
    if kind == "tests":
        yield from run_tests(device)
    elif kind == "train":
        train_by_verl(folder, name)
    elif (needed := needs_gb(kind, name, device)) > (free := free_gb(device)):
        yield {"not run": f"it takes about {needed:.0f} GB, and {free:.0f} are free"}
    elif kind == "learning":
        yield from run_learning(device, limit)
    else:
        policy, rank = build(name, folder, device), RANK.get(name, 0)
        if rank and kind != "sampler" and importlib.util.find_spec("peft") is None:
            yield {"not run": "peft is not installed (make gpu-env)"}
        elif kind == "verl":
            yield from run_verl(policy, folder, device)
        elif kind == "sampler":
            yield from measure_sampler(policy, device)
        else:
            yield from {"step": measure_step, "memory": measure_memory}[kind](policy, device, rank)


def supervise(parts: Sequence[str], arguments: argparse.Namespace) -> None:
    """Every part in a process of its own, within its limit and what is left of the whole time; figures that it printed
    before it failed are kept."""
    started, out = time.monotonic(), arguments.out
    report = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"parts": {}}
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "peft", "verl", "vllm")
                if importlib.util.find_spec(name)}  # fmt: skip
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    for part in parts:
        own = LIMITS[part.split()[0]] if arguments.device == "cuda" else 3600
        limit = min(own, arguments.seconds - (time.monotonic() - started))
        if limit < 5:
            print(part, "not run: no time left", flush=True)
            continue
        command = [sys.executable, __file__, "--part", part, "--folder", str(arguments.folder), "--device",
                   arguments.device, "--seconds", str(limit / 2)]  # fmt: skip
        begun = time.monotonic()
        with tempfile.TemporaryFile("w+") as log, tempfile.TemporaryFile("w+") as printed:
            process = subprocess.Popen(command, stdout=printed, stderr=log, text=True, start_new_session=True)
            try:
                failed = "" if process.wait(limit) == 0 else f"exit status {process.returncode}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
                failed = f"not done within {limit:.0f} s"
            printed.seek(0)
            log.seek(0)
            figures = {}
            for line in printed:
                figures |= json.loads(line) if line.startswith("{") else {}
            if failed:
                figures["error"] = [failed, *log.read().strip().splitlines()[-12:]]
        figures |= {"seconds": round(time.monotonic() - begun, 1), "device": device, "versions": versions}
        report["parts"][part] = figures
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, json.dumps(report, indent=1) + "\n")
        rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items() if k != "versions"}
        print(part, json.dumps(rounded), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/gpu_day.json"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["qwen3-0.6b", "qwen3-4b"])
    parser.add_argument("--kinds", nargs="+", choices=LIMITS, default=list(LIMITS), help="parts to run")
    parser.add_argument("--seconds", type=float, default=540, help="for all parts together")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try the script itself")
    parser.add_argument("--folder", type=Path, default=Path("state/gpu_day"), help="where models and cases are")
    parser.add_argument("--part", help="run one part in this process and print its figures")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.exit(2, "gpu_day: torch finds no GPU; `--device cpu --models tiny` tries the script itself\n")
    if arguments.part:
        for figures in run_part(arguments.part, arguments.folder, arguments.device, arguments.seconds):
            print(json.dumps(figures), flush=True)
        return None
    per_model = [kind for kind in ("step", "memory", "sampler") if kind in arguments.kinds]
    parts = ["tests"] * ("tests" in arguments.kinds)
    parts += [f"{kind} {name}" for name in arguments.models for kind in per_model]
    parts += ["learning"] * ("learning" in arguments.kinds)
    parts += [f"verl {arguments.models[0]}"] * ("verl" in arguments.kinds)
    return supervise(parts, arguments)


if __name__ == "__main__":
    main()
