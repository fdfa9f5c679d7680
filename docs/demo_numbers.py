"""The demo's numbers in README and documents: all from one run.

    python docs/demo_numbers.py results     # read this run; write docs/benchmarks/demo.json, the pictures and the pages
    python docs/demo_numbers.py             # write the pages again, from docs/benchmarks/demo.json

A page has a block `<!-- demo: NAME -->` ... `<!-- end -->` for each function of `BLOCKS`.
"""

import argparse
import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "docs/benchmarks/demo.json"
PAGES = ("README.md", "docs/method.md", "docs/design/demo-learning.md")
PICTURES = ("accuracy_cost.png", "training_efficiency.png")
DATASETS = {"mimic_iv": "in-domain", "clinicalbench": "ClinicalBench", "private": "private"}
METHODS = {"warm_start": "warm start", "grpo": "GRPO", "utility_grpo": "utility-GRPO", "cdpr": "CDPR",
           "belief_gain": "belief gain (not in the paper)", "record_critic": "record critic (not in the paper)",
           "value_of_information": "value of information"}  # fmt: skip
OTHERS = {"grpo": "GRPO", "utility_grpo": "utility-GRPO, whose reward is the utility", "warm_start":
          "the warm start, from which it was trained"}  # fmt: skip
METRICS = {"accuracy": "correct", "cost_usd": "cost_usd", "utility": "utility"}
BLOCK = re.compile(r"(<!-- demo: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def measure(results: Path, processor: str) -> dict[str, Any]:
    """Means of every method, and differences of CDPR from others with 95% intervals over seeds and cases."""
    import numpy as np

    from cdpr.evaluation.significance import crossed_bootstrap, percentile_interval

    record = json.loads((results / "tables/main_results.run.json").read_text(encoding="utf-8"))
    settings = record["parameters"]["evaluation"]

    def values(method: str, dataset: str) -> Any:
        """[seeds, cases, metrics] of greedy decoding."""
        names = [method] if (results / "evaluations" / method).is_dir() else sorted(
            path.name for path in (results / "evaluations").glob(f"{method}-seed*"))  # fmt: skip
        seeds = []
        for name in names:
            lines = (results / "evaluations" / name / f"{dataset}.jsonl").read_text(encoding="utf-8").splitlines()
            rows = [row for row in map(json.loads, lines) if row["decoding"] == "greedy"]
            seeds.append([[row[key] for key in METRICS.values()] for row in rows])
        return np.asarray(seeds, dtype=float)

    report: dict[str, Any] = {"processor": processor, "started": record["started"][:10], "commit":
                              record["commit"], "seeds": len(values("cdpr", "mimic_iv")), "cases": {}, "means": {},
                              "minus": {}}  # fmt: skip
    for dataset in DATASETS:
        tables = {method: values(method, dataset) for method in METHODS}
        report["cases"][dataset] = tables["cdpr"].shape[1]
        report["means"][dataset] = {
            method: dict(zip(METRICS, table.mean(axis=(0, 1)).round(6).tolist(), strict=True))
            for method, table in tables.items()
        }
        report["minus"][dataset] = {}
        for other in OTHERS:
            difference = tables["cdpr"] - tables[other]
            draws = crossed_bootstrap(difference, settings["bootstrap"], settings["seed"], dataset)
            report["minus"][dataset][other] = {
                metric: [round(float(difference[..., at].mean()), 6),
                         *(round(float(bound), 6) for bound in percentile_interval(draws[:, at]))]
                for at, metric in enumerate(METRICS)
            }  # fmt: skip
    with (results / "tables/headroom.csv").open(encoding="utf-8", newline="") as file:
        report["headroom"] = [row for row in csv.DictReader(file) if row["dataset"] in DATASETS]
    return report


def verdict(difference: list[float]) -> str:
    """Whether CDPR's utility is higher."""
    _, low, high = difference
    return "yes" if low > 0 else "no" if high < 0 else "open"


def signed(value: float, form: str) -> str:
    text = format(value, form)
    return text.replace("0.", ".", 1).replace("-", "−") if form.endswith("3f") else text.replace("-", "−")


def utility(difference: list[float]) -> str:
    value, low, high = difference
    return f"{signed(value, '+.3f')} ({signed(low, '.3f')} to {signed(high, '.3f')})"


def points(difference: list[float]) -> str:
    value, low, high = (100 * each for each in difference)
    return f"{signed(value, '+.1f')} ({signed(low, '.1f')} to {signed(high, '.1f')})"


def verdicts(demo: dict[str, Any]) -> str:
    """CDPR against the others in-domain, by utility; the verdicts on the other two hospitals beside it."""
    first, *rest = DATASETS
    means, minus = demo["means"][first], demo["minus"]
    lines = ["| Is CDPR's utility higher than that of | in-domain | by | accuracy, points | USD a case | other "
             "hospitals |", "|---|---|---|---|---|---|"]  # fmt: skip
    for other, label in OTHERS.items():
        difference = minus[first][other]
        lines.append(f"| {label} | **{verdict(difference['utility'])}** | {utility(difference['utility'])} "
                     f"| {points(difference['accuracy'])} | {means['cdpr']['cost_usd']:.0f} against "
                     f"{means[other]['cost_usd']:.0f} "
                     f"| {', '.join(verdict(minus[each][other]['utility']) for each in rest)} |")  # fmt: skip
    return "\n".join(lines)


def outcome(demo: dict[str, Any]) -> str:
    """Accuracy, cost and utility of every method."""
    head = [f"{name} ({demo['cases'][dataset]:,} cases)" for dataset, name in DATASETS.items()]
    lines = [f"| accuracy, USD, utility | {' | '.join(head)} |", "|---" * 4 + "|"]
    for method, label in METHODS.items():
        cells = [demo["means"][dataset][method] for dataset in DATASETS]
        texts = [f"{100 * cell['accuracy']:.1f}%, {cell['cost_usd']:.0f}, {signed(cell['utility'], '.3f')}"
                 for cell in cells]  # fmt: skip
        lines.append(f"| {label} | {' | '.join(texts)} |")
    return "\n".join(lines)


def differences(demo: dict[str, Any]) -> str:
    """CDPR minus each other method, with intervals."""
    lines = [f"| CDPR minus | | {' | '.join(DATASETS.values())} |", "|---" * 5 + "|"]
    for other in OTHERS:
        for metric, text in (("accuracy", points), ("utility", utility)):
            cells = [text(demo["minus"][dataset][other][metric]) for dataset in DATASETS]
            lines.append(f"| {METHODS[other]} | {metric}{', points' * (text is points)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def aims(demo: dict[str, Any]) -> str:
    """The aims of docs/design/demo-learning.md, each with its figures and whether they meet it."""
    greedy = [row for row in demo["headroom"] if row["decoding"] == "greedy"]
    sampled = next(row for row in demo["headroom"] if row["decoding"] == "sampled")

    def aim(what: str, key: str, met: Callable[[float], bool], form: str, scale: float = 1) -> str:
        values = [scale * float(row[key]) for row in greedy]
        missed = [DATASETS[row["dataset"]] for row, value in zip(greedy, values, strict=True) if not met(value)]
        figures = ", ".join(format(value, form) for value in values)
        return f"{what} | {figures} | {'missed: ' * bool(missed)}{', '.join(missed) or 'met'} |"

    return "\n".join([
        "| aim | figure, by data set | |", "|---|---|---|",
        "| 1: " + aim("points lost by reading errors, at most 4", "reading", lambda x: x <= 4, ".1f", 100),
        "| 2: " + aim("points of value of information above the warm start, at least 10", "gain", lambda x: x >= 10,
                     ".1f", 100),
        "| 3: " + aim("cost term over test term, at least 1", "cost_to_test", lambda x: x >= 1, ".1f"),
        "| 4: " + aim("accuracy of the warm start, at least 40%", "accuracy", lambda x: x >= 40, ".1f", 100),
        f"| 5: utility of the warm start above that of immediate diagnosis, both sampled | {sampled['utility']} above "
        f"{sampled['immediate']} | {'met' if float(sampled['utility']) > float(sampled['immediate']) else 'missed'} |",
    ])  # fmt: skip


def run(demo: dict[str, Any]) -> str:
    return (f"These are the numbers of one run of the demo ({demo['started']}, {demo['seeds']} training seeds, greedy "
            f"decisions, 95% intervals over\nseeds and cases) on one kind of processor: "
            f"{demo['processor']}.")  # fmt: skip


BLOCKS: dict[str, Callable[[dict[str, Any]], str]] = {
    "verdicts": verdicts, "outcome": outcome, "differences": differences,
    "aims": aims, "run": run}  # fmt: skip


def render(text: str, demo: dict[str, Any]) -> str:
    """A page with its blocks written from ``demo``. Raises KeyError for a block without a function."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{BLOCKS[block[2]](demo)}\n\n{block[3]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", help="the results of a finished demo")
    parser.add_argument("--processor", help="of the machine that made the results, in words")
    arguments = parser.parse_args()
    if arguments.results:
        if not arguments.processor:
            parser.error("--processor is missing: the numbers depend on the kind of processor")
        demo = measure(arguments.results, arguments.processor)
        DEMO.write_text(json.dumps(demo, indent=1) + "\n", encoding="utf-8")
        for name in PICTURES:
            shutil.copyfile(arguments.results / "figures" / name, ROOT / "docs/images" / name)
    demo = json.loads(DEMO.read_text(encoding="utf-8"))
    for name in PAGES:
        page = ROOT / name
        page.write_text(render(page.read_text(encoding="utf-8"), demo), encoding="utf-8")


if __name__ == "__main__":
    main()
