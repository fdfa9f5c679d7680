"""The rows of the main table: who they are, which runs they stand for, why some cannot be run here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..settings import Settings, datasets, job_of, seeds_of, shown, variants

DATASETS = {name: datasets.DATASETS[name].column for name in datasets.BENCHMARKS}
IN_DOMAIN = datasets.IN_DOMAIN

CLOSED, OPEN, AGENTS, TRAINED = (
    "Closed-Source LLMs",
    "Open-Source LLMs",
    "Medical Agents",
    "Reinforcement Variants",
)
REFERENCE = "Reference policies (they know the synthetic hospital's model)"
_PAPER_ROWS = {"grpo": "GRPO-4B", "cdpr": "CDPR-4B"}
_NEEDS_KEY = "not run: needs an API key"
_NEEDS_SERVER = "not run: needs a model server"
_NEEDS_WEIGHTS = "not run: needs its released weights on a model server"


@dataclass(frozen=True)
class Method:
    """A row. ``runs`` are its evaluated runs, one per seed; without any, ``why`` says why it is not run.

    ``paper`` names the row of the paper's Table 1 that it stands for. ``learned`` rows compete for the marks.
    ``decodes`` is false for reference policies, which have one figure whatever the decoding.
    """

    name: str
    label: str
    group: str
    runs: tuple[str, ...] = ()
    paper: str = ""
    why: str = ""
    learned: bool = False
    decodes: bool = True


def trained(settings: Settings, variant: str) -> Method:
    """A variant with one run per seed; variants that train the same thing share the runs of one job."""
    job = job_of(settings, variant)
    runs = tuple(f"{job}-seed{seed}" for seed in seeds_of(settings, variant))
    return Method(variant, variants(settings)[variant].label, TRAINED, runs, _PAPER_ROWS.get(variant, ""), learned=True)


def main_methods(settings: Settings) -> list[Method]:
    """All rows of the main table, in the paper's order, ours beside the paper's counterparts."""
    reference = [
        Method(name, label, REFERENCE, (name,), decodes=False)
        for name, label in (
            ("zero_test", "Zero-test"),
            ("random", "Random"),
            ("cheapest_first", "Cheapest-first"),
            ("all_tests", "All-tests"),
            ("value_of_information", "Value of information"),
        )
    ]
    learners = shown(settings, "main_table")
    return [
        *_absent(CLOSED, _NEEDS_KEY, "GPT-5.4", "Claude-Sonnet-4.6", "Gemini-3.1-Flash", "DeepSeek-V4"),
        Method("warm_start", backbone(settings), OPEN, ("warm_start",), "Qwen3-4B", learned=True),
        Method("immediate", "Immediate diagnosis (no examination)", OPEN, ("immediate",), learned=True),
        Method("static", "Static diagnosis (whole record)", OPEN, ("static",), learned=True),
        *_absent(OPEN, _NEEDS_SERVER, "Qwen3-8B", "Qwen3-32B", "Ministral-3-8B", "Med-Gemma-27B", "Huatuo-o1-8B",
                 "Baichuan-M1-32B"),
        *_absent(AGENTS, _NEEDS_SERVER, "MedAgent", "MDAgent", "ToR"),
        *(trained(settings, name) for name in learners if name != "cdpr"),
        *_absent(TRAINED, _NEEDS_WEIGHTS, "DiagAgent-8B", "DiagAgent-14B"),
        *(trained(settings, name) for name in learners if name == "cdpr"),
        *reference,
    ]  # fmt: skip


def backbone(settings: Settings) -> str:
    """What the policy is before reinforcement learning."""
    model = settings.policy.model
    return "Warm-started tiny policy" if model == "tiny" else f"Backbone {Path(model).name}"


def synthetic(settings: Settings, dataset: str) -> bool:
    """Whether a data set comes from the synthetic hospital instead of the user's own files."""
    return settings.data.source(dataset).path is None


def tier_mark(settings: Settings) -> str:
    """What every table and figure must say about where its cases come from."""
    made_up = [label for name, label in DATASETS.items() if synthetic(settings, name)]
    if len(made_up) == len(DATASETS):
        return f"tier: {settings.tier} — synthetic hospital"
    return f"tier: {settings.tier}" + (f" — synthetic: {', '.join(made_up)}" if made_up else "")


def _absent(group: str, why: str, *names: str) -> list[Method]:
    return [Method(name, name, group, paper=name, why=why) for name in names]
