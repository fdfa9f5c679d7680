"""What the pipeline costs: start-up of the command, planning the paper's workflow, the workflow in miniature, and the
stages of a finished run.

``--miniature`` runs the whole DAG of config/ci.yaml from nothing in a temporary folder, then asks for it again.
The stages of the run under ``--results`` are read from its run.json files: wall and CPU seconds by stage, the largest
peak memory, and the time from the first stage's start to the last one's end. Writes flat keys to
results/benchmarks/pipeline.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from _figures import save

from cdpr.pipeline.stages import STAGES

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def seconds(*command: str | Path) -> float:
    """Wall seconds of a command that has to succeed."""
    start = time.perf_counter()
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def startup() -> dict[str, float]:
    """Seconds of `cdpr --help`, and of planning the paper's workflow (`snakemake --dry-run`, which needs none of its
    data), with what Snakemake takes to start at all; best of five."""
    plan = (BIN / "snakemake", "--dry-run", "--quiet", "--configfile", "config/paper.yaml", "--", "reproduce_paper")
    return {
        "help_seconds": min(seconds(BIN / "cdpr", "--help") for _ in range(5)),
        "snakemake_start_seconds": min(seconds(BIN / "snakemake", "--help") for _ in range(5)),
        "paper_plan_seconds": min(seconds(*plan) for _ in range(5)),
    }


def miniature(cores: int) -> dict[str, float]:
    """Seconds of the ci overlay from nothing, and of asking for it a second time."""
    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder) / "elsewhere.yaml"
        overlay.write_text(f"paths: {{results: {folder}/results, state: {folder}/state}}\n")
        command = (BIN / "snakemake", "--cores", str(cores), "--configfile", "config/ci.yaml", overlay)
        return {"miniature_seconds": seconds(*command), "miniature_again_seconds": seconds(*command)}


def stages(results: Path) -> dict[str, float]:
    """Sums over the finished stages below ``results``; empty when there are none."""
    records = [json.loads(path.read_text()) for path in sorted(results.rglob("*run.json")) if "ci" not in path.parts]
    if not records:
        return {}
    begun = [datetime.fromisoformat(record["started"]).timestamp() for record in records]
    ended = [start + record["wall_seconds"] for start, record in zip(begun, records, strict=True)]
    flat = {
        "stages": len(records),
        "span_seconds": max(ended) - min(begun),
        "peak_memory_gb": max(record["peak_memory_mb"] for record in records) / 1024,
    }
    for record in records:
        for name in ("wall", "cpu"):
            key = f"{record['stage']}_{name}_seconds"
            flat[key] = flat.get(key, 0.0) + record[f"{name}_seconds"]
    shown = [name for name in STAGES if name.startswith(("write_", "plot_"))]
    return flat | {"rendering_wall_seconds": sum(flat.get(f"{stage}_wall_seconds", 0.0) for stage in shown)}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="a finished run")
    parser.add_argument("--miniature", action="store_true", help="also run the ci overlay from nothing (minutes)")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    args = parser.parse_args()
    figures = startup() | stages(args.results) | (miniature(args.cores) if args.miniature else {})
    save(ROOT / "results" / "benchmarks" / "pipeline.json", figures)


if __name__ == "__main__":
    main()
