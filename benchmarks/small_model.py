"""Does a real small language model learn here? SmolLM2-135M on the synthetic hospital, with the compact prompt.

The model imitates clinicians on in-domain and textbook cases, then GRPO, CDPR with its short continuations, belief
gain and the record critic train it, with three seeds each. Accuracy and cost are measured on test cases, greedy and
sampled, for each policy, for the supervised start, and for its immediate diagnoses, with intervals over cases and
seeds.

    make small-model                             all of it
    python benchmarks/small_model.py prepare     the lessons in tokens and the cases, in --folder
    python benchmarks/small_model.py document    the picture of docs/benchmarks/small_model.json
    python benchmarks/small_model.py start       the supervised start, which `run` makes where it is missing
    python benchmarks/small_model.py run         supervised start, then all trainings side by side; needs torch alone

`run` goes on where it was stopped. On one GPU it takes minutes, on two cores hours. --seconds ends the trainings:
each then stops after some whole steps, without checkpoints, and is evaluated.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from cdpr.agents.policy import ImmediateAgent
from cdpr.cases import iterate_records
from cdpr.environment import Trajectory, run_episodes
from cdpr.environment.utility import count_tests, utility
from cdpr.files import write_text
from cdpr.metrics_log import MetricsLog
from cdpr.settings import Settings, load_settings, merge, parse_settings, resolve_variant
from cdpr.training.torch import loop
from cdpr.training.torch.trainer import Trainer
from cdpr.training.torch.update import Segment
from cdpr.training.torch.warm_start import encode_lessons, gather_lessons, imitate
from cdpr.training.torch.weights import load_model, save_policy
from cdpr.training.training_run import TrainingRun

FILES = ("config.yaml", "config/small_model.yaml")
LABELS = {"belief_gain": "belief gain", "record_critic": "record critic", "cdpr_short": "CDPR (H = 0, K = 16)",
          "grpo": "GRPO"}  # fmt: skip
VARIANTS = tuple(LABELS)
MEASURES = ("accuracy", "usd", "examinations", "utility")
WINDOW = 10  # steps that a point of the picture is the mean of
RUN_GB = 13.0  # least GPU memory of a training or evaluation
CONTEXT_GB = 0.8  # of it, outside torch's reach


def prepare(folder: Path) -> None:
    """Lessons in the model's tokens, and the cases that they do not use."""
    settings = load_settings(*FILES)
    cases = {path.stem: path for path in (Path(settings.paths.results) / "cases").glob("*.jsonl")}
    model = Path(settings.policy.model)
    rows = encode_lessons(settings, model, gather_lessons(settings, cases))
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "lessons.jsonl.gz", "wt") as file:
        for row in rows:
            file.write(json.dumps([[piece.start, list(piece.ids), list(piece.scored)] for piece in row]) + "\n")
    train = 0
    with gzip.open(folder / "cases.jsonl.gz", "wt") as file:
        for case in iterate_records(cases["mimic_iv"]):
            train += case.split == "train"
            if case.split != "train" or train > settings.warm_start.cases:
                file.write(case.model_dump_json() + "\n")
    tokens = sum(len(piece.ids) for row in rows for piece in row)
    print(f"{len(rows):,} lessons with {tokens:,} tokens; longest {max(sum(len(p.ids) for p in r) for r in rows)}")


def read_lessons(folder: Path) -> list[list[Segment]]:
    with gzip.open(folder / "lessons.jsonl.gz", "rt") as file:
        return [[Segment(start, tuple(ids), scored) for start, ids, scored in json.loads(line)] for line in file]


def start(folder: Path, model: Path, device: str, settings: Settings) -> None:
    """The supervised start, in the folder ``start``."""
    lessons = read_lessons(folder)
    policy, log = load_model(model, device), MetricsLog(folder / "start.jsonl")
    begun = time.perf_counter()
    imitate(policy, lessons, settings, folder, lambda row: log(row | {"seconds": time.perf_counter() - begun}))
    save_policy(policy, model, folder / "start.partial")
    (folder / "start.partial").rename(folder / "start")


def settings_of(settings: Settings, variant: str, policy: Path, device: str) -> Settings:
    """The variant's settings: it begins with the supervised start, and the folder's cases are all its own."""
    plain = merge(settings.model_dump(), {"policy": {"model": str(policy), "warm_start": False, "device": device}})
    return resolve_variant(parse_settings(plain), variant)


def train(settings: Settings, folder: Path, run: str, device: str, deadline: float, memory: float) -> None:
    """One training, until its last step or the deadline; then its evaluation. ``start`` is evaluated as it is. On a
    GPU it may take ``memory`` GB."""
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory * 1e9 / torch.cuda.mem_get_info()[1]))
    variant, _, seed = run.partition("-seed") if "-seed" in run else ("", "", "")
    resolved = settings_of(settings, variant or "grpo", folder / "start", device)
    with gzip.open(folder / "cases.jsonl.gz", "rb") as packed, (folder / f"{run}.cases").open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    cases = list(iterate_records(folder / f"{run}.cases"))
    (folder / f"{run}.cases").unlink()
    trainer = Trainer(TrainingRun(resolved, cases, folder / "start", int(seed or 0)))
    state = folder / run
    state.mkdir(exist_ok=True)
    if variant:
        log = MetricsLog(state / "metrics.jsonl")
        if deadline == float("inf"):
            loop.train(trainer, state, log, lambda row: None)
        while trainer.step < trainer.run.steps and time.time() < deadline:  # without checkpoints and validation
            log(loop.iterate(trainer))
            gc.collect()
    trainer.sampler.refresh()
    tests = [case for case in cases if case.split == "test"]
    rows = {}
    for decoding, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        agents = {"": trainer.run.make_agent(trainer.sampler, temperature)}
        if not variant:
            agents["immediate, "] = ImmediateAgent(trainer.sampler, trainer.run.prompts, resolved.policy, temperature)
        for name, agent in agents.items():
            workups = asyncio.run(run_episodes(trainer.environment, agent, tests, settings.evaluation.seed))
            rows[name + decoding] = [measures(settings, workup) for workup in workups]
            write_text(state / "rows.json", json.dumps({"step": trainer.step, "rows": rows}))
    if device == "cuda":
        print(f"largest memory: {torch.cuda.max_memory_reserved() / 1e9:.1f} of {memory:.1f} GB")


def measures(settings: Settings, workup: Trajectory) -> list[float]:
    """The :data:`MEASURES` of a workup."""
    effort, tests = workup.effort(), settings.environment.tests
    value = utility(workup.correct, effort, settings.utility, tests)
    return [float(workup.correct), effort.cost_usd, float(count_tests(effort, tests)), value]


def run(folder: Path, model: Path, device: str, seconds: float, seeds: list[int], variants: list[str]) -> None:
    """Start, all trainings, as many at a time as fit the memory, each with an equal share of the time; summary."""
    settings = load_settings(*FILES)
    if not (folder / "start").exists():
        start(folder, model, device, settings)
    runs = ["start", *(f"{variant}-seed{seed}" for seed in seeds for variant in variants)]
    left = [name for name in runs if not (folder / name / "rows.json").exists()]
    free = torch.cuda.mem_get_info()[0] / 1e9 if device == "cuda" else 0.0
    side_by_side = max(1, min(int(free / RUN_GB), len(left)))
    command = [sys.executable, __file__, "train", "--folder", str(folder), "--device", device]
    command += ["--memory", str(free / side_by_side - CONTEXT_GB)]
    begun, failed = time.time(), {}
    for done in range(0, len(left), side_by_side):
        together = left[done : done + side_by_side]
        deadline = begun + seconds * (done + len(together)) / len(left)
        running = {}
        for name in together:
            with (folder / f"{name}.log").open("w") as log:
                arguments = [*command, "--run", name, "--deadline", str(deadline)]
                running[name] = subprocess.Popen(arguments, stdout=log, stderr=log)
        for name, process in running.items():
            if process.wait():
                failed[name] = (folder / f"{name}.log").read_text().strip().splitlines()[-1:]
                print(name, "failed:", *failed[name])
    summary = summarise(folder, runs) | {"failed": failed, "seconds_of_trainings": round(time.time() - begun)}
    if device == "cuda":
        summary["device"] = torch.cuda.get_device_name()
    write_text(folder / "small_model.json", json.dumps(summary, indent=1))
    print(json.dumps(summary["results"], indent=1))


def summarise(folder: Path, runs: list[str]) -> dict:
    """Means of every policy and decoding, and its gains over diagnosing at once, the supervised start and the other
    rules, with 95% intervals: cases and seeds are drawn again, the same cases for all."""
    done = {name: json.loads(path.read_text()) for name in runs if (path := folder / name / "rows.json").exists()}
    rows: dict[str, list] = {}  # by policy and decoding: those of each seed, [cases, measures]
    for name, content in done.items():
        for key, measured in content["rows"].items():
            policy = "" if key.startswith("immediate") else f"{name.rpartition('-seed')[0] or 'supervised start'}, "
            rows.setdefault(policy + key.replace("immediate", "immediate diagnosis"), []).append(measured)
    means = {policy: bootstrap(np.array(seeds)) for policy, seeds in rows.items()}
    results = {}
    for policy, drawn in means.items():
        mean = np.array(rows[policy]).mean((0, 1))
        results[policy] = {"seeds": len(rows[policy])}
        results[policy] |= {measure: interval(mean[k], drawn[:, k]) for k, measure in enumerate(MEASURES)}
        for other in ("immediate diagnosis", "supervised start", *VARIANTS):
            base = f"{other}, {policy.rpartition(', ')[2]}"
            if base in means and base != policy:
                gain, draws = mean - np.array(rows[base]).mean((0, 1)), drawn - means[base]
                for k in map(MEASURES.index, ("accuracy", "usd", "utility")):
                    results[policy][f"{MEASURES[k]} above {other}"] = interval(gain[k], draws[:, k])
    keep = ("step", "seconds", "train/accuracy", "train/aec", "train/utility", "time/rollout", "time/credit",
            "time/update", *(f"validation/{x}" for x in ("accuracy", "aec", "utility")))  # fmt: skip
    curves = {name: read_rows(folder / name / "metrics.jsonl", keep) for name in runs if name != "start"}
    steps = {name: len(rows) for name, rows in curves.items()}
    return {
        "results": results, "episodes": last_episodes(curves), "steps": steps, "curves": curves,
        "start": read_rows(folder / "start.jsonl"),
    }  # fmt: skip


def last_episodes(curves: dict[str, list[dict]], steps: int = 15, draws: int = 2000) -> dict:
    """Means of accuracy, USD and utility over the sampled episodes of the last ``steps`` training steps of a variant,
    with 95% intervals: seeds and steps are drawn again. In the first epoch every step has cases that are new to the
    policy, so these episodes measure it as test cases would."""
    rng, measured = np.random.default_rng(0), {}
    columns = ("train/accuracy", "train/aec", "train/utility")
    for variant in VARIANTS:
        seeds = [rows[-steps:] for name, rows in curves.items() if name.startswith(variant + "-seed")]
        seeds = [[[row[column] for column in columns] for row in rows] for rows in seeds if len(rows) == steps]
        if not seeds:
            continue
        values = np.array(seeds)  # [seeds, steps, columns]
        drawn = np.array([
            np.mean([values[k, rng.integers(steps, size=steps)] for k in rng.integers(len(values), size=len(values))],
                    axis=(0, 1)) for _ in range(draws)
        ])  # fmt: skip
        measured[variant] = {"seeds": len(values)}
        for k, measure in enumerate(("accuracy", "usd", "utility")):
            measured[variant][measure] = interval(values[..., k].mean(), drawn[:, k])
    return measured


def bootstrap(rows: np.ndarray, draws: int = 2000) -> np.ndarray:
    """Means (draws, measures) of rows (seeds, cases, measures), with cases and seeds drawn again. Draw k has the same
    cases whatever the number of seeds."""
    seeds, cases, _ = rows.shape
    case_rng, seed_rng = np.random.default_rng(0), np.random.default_rng(1)
    return np.array([
        rows[seed_rng.integers(seeds, size=seeds)].mean(0)[case_rng.integers(cases, size=cases)].mean(0)
        for _ in range(draws)
    ])  # fmt: skip


def interval(mean: float, drawn: np.ndarray) -> list[float]:
    """Mean with its 95% interval."""
    return [round(float(x), 4) for x in (mean, *np.quantile(drawn, [0.025, 0.975]))]


def read_rows(path: Path, keep: tuple[str, ...] = ()) -> list[dict]:
    """Rows of metrics, with the columns to ``keep`` (all where it is empty)."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if k in keep or not keep} for row in rows]


def draw(report: dict, out: Path) -> None:
    """Accuracy and cost of the training episodes by step, means over seeds and ten steps, with those of the immediate
    diagnosis and the supervised start."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4))
    for axes, column, measure in zip(panels, ("train/accuracy", "train/aec"), ("accuracy", "usd"), strict=True):
        for variant in VARIANTS:
            curves = [[row[column] for row in rows if column in row]
                      for name, rows in report["curves"].items() if name.startswith(variant + "-seed")]  # fmt: skip
            curves = [curve for curve in curves if len(curve) >= WINDOW]
            if not curves:
                continue
            values = np.array([curve[: min(map(len, curves))] for curve in curves]).mean(0)
            smooth = np.convolve(values, np.ones(WINDOW) / WINDOW, "valid")
            seeds = "1 seed" if len(curves) == 1 else f"{len(curves)} seeds"
            axes.plot(range(WINDOW, len(values) + 1), smooth, label=f"{LABELS[variant]}, {seeds}")
        for name, style in (("immediate diagnosis", ":"), ("supervised start", "--")):
            mean, low, high = report["results"][f"{name}, sampled"][measure]
            line = axes.axhline(mean, linestyle=style, color="0.3", label=f"{name}, test cases, 95% interval")
            axes.axhspan(low, high, alpha=0.15, color=line.get_color())
        axes.set_xlabel(f"training step (64 sampled episodes each, mean of {WINDOW} steps)")
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("accuracy (higher is better)")
    panels[1].set_ylabel("cost of an episode, USD (lower is better)")
    panels[0].legend(fontsize=8, loc="lower right")
    figure.suptitle("SmolLM2-135M on the synthetic hospital, sampled decisions")
    figure.tight_layout()
    figure.savefig(out, dpi=120, bbox_inches="tight", metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "start", "run", "train", "document"])
    parser.add_argument("--folder", type=Path, default=Path("state/small_model"))
    parser.add_argument("--model", type=Path, default=Path("models/smollm2-135m-instruct"))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the trainings stop after this time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", choices=VARIANTS, nargs="+", default=list(VARIANTS), help="rules to train by")
    parser.add_argument("--run")
    parser.add_argument("--deadline", type=float, default=float("inf"))
    parser.add_argument("--memory", type=float, default=float("inf"), help="GB of the GPU that a training may take")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    if arguments.command == "prepare":
        prepare(arguments.folder)
    elif arguments.command == "document":
        draw(json.loads(Path("docs/benchmarks/small_model.json").read_text()), Path("docs/images/small_model.png"))
    elif arguments.command == "train":
        settings = load_settings(*FILES)
        train(settings, arguments.folder, arguments.run, arguments.device, arguments.deadline, arguments.memory)
    elif arguments.command == "start":
        start(arguments.folder, arguments.model, arguments.device, load_settings(*FILES))
    else:
        run(arguments.folder, arguments.model, arguments.device, arguments.seconds, arguments.seeds, arguments.variants)


if __name__ == "__main__":
    main()
