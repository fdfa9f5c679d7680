"""How soon the inspector opens and how smoothly it scrolls, with a thousand to a hundred thousand decisions.

The inspector of the run under ``--results`` (`snakemake inspector`) is copied, and the workups of its first view stand
in it under other names until there are enough. Chromium without a window opens it: milliseconds from navigation to a
page that answers, the slowest of forty frames on the way through the list, and the memory of its script; the best of
five visits each. Writes flat keys to results/benchmarks/inspector.json.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from _figures import save

from cdpr.report.inspector.write import write_data

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "unit"))

from browser import CHROMIUM, SCROLL, Browser, read_data  # noqa: E402

DECISIONS = 1_000, 10_000, 100_000
VISITS = 5
MEMORY = "performance.memory.usedJSHeapSize / 2 ** 20"


def grow(site: Path, run: str, dataset: str, decisions: int) -> int:
    """Let a view hold so many decisions, by repeating its workups; how many it holds."""
    name = f"data/{run}.{dataset}"
    workups, grown, count = read_data(site, name), [], 0
    while count < decisions:
        grown.append({**workups[len(grown) % len(workups)]})
        count += len(grown[-1]["steps"])
    cases = read_data(site, f"data/{dataset}")
    for number, workup in enumerate(grown):
        cases[f"{number:05d}"] = cases[workup["case"]]
        workup["case"] = f"{number:05d}"
    write_data(site, name, grown)
    write_data(site, f"data/{dataset}", cases)
    return count


def visit(site: Path, **place: str) -> tuple[float, float, float]:
    """Milliseconds to a page that answers, and of the slowest frame; megabytes of the script's memory."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Browser(Path(folder), Path(folder))
        try:
            page.inspect(site, **place)
            return float(page.js("document.documentElement.dataset.ready")), page.js(SCROLL)[0], page.js(MEMORY)
        finally:
            page.close()


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="a finished run")
    args = parser.parse_args()
    if CHROMIUM is None:
        parser.exit(2, "no chromium on this machine: install one, or name its binary in CHROMIUM\n")
    if not (args.results / "inspector").is_dir():
        parser.exit(2, f"{args.results}/inspector: missing; `snakemake inspector` makes it\n")
    figures: dict[str, object] = {}
    for least in DECISIONS:
        with tempfile.TemporaryDirectory() as folder:
            site = Path(shutil.copytree(args.results / "inspector", Path(folder) / "inspector"))
            first = read_data(site, "data/index")["views"][0]
            count = grow(site, first["run"], first["dataset"], least)
            visits = [visit(site, run=first["run"], dataset=first["dataset"]) for _ in range(VISITS)]
            size = sum(path.stat().st_size for path in site.rglob("*.*")) / 2**20
        ready, frame, memory = (round(min(column), 1) for column in zip(*visits, strict=True))
        figures |= {f"decisions_{least}": count, f"ready_ms_{least}": ready, f"slowest_frame_ms_{least}": frame,
                    f"memory_mb_{least}": memory, f"files_mb_{least}": size}  # fmt: skip
    save(ROOT / "results" / "benchmarks" / "inspector.json", figures)


if __name__ == "__main__":
    main()
