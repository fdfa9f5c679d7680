"""What each stage reads and writes: the table from which command line, run keys and rules are made.

A stage sees only the settings named in ``reads`` (they enter its run key) and ``runtime`` (they do not: where files
lie, how often to save). Reading any other setting is an error, so a key can never miss a dependency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..settings import Settings, SettingsError
from ..settings.datasets import BENCHMARKS
from ..settings.restrict import restrict, without

DATASETS = BENCHMARKS
REAL_DATASET = "agentclinic"
REFERENCES = ("zero_test", "all_tests", "random", "cheapest_first", "value_of_information")
UNTRAINED = ("warm_start", "immediate", "static")

_RUNTIME = ("tier", "paths", "tracking")


@dataclass(frozen=True)
class Stage:
    """One stage.

    ``options`` say which job of the stage is meant; placeholders in ``reads`` are filled with them
    (``data.{dataset}``). ``places`` are further paths, whose contents other stages' keys already cover.
    """

    name: str
    summary: str
    reads: tuple[str, ...]
    runtime: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    example: str = ""

    def parameters(self, settings: Settings, options: Mapping[str, str]) -> dict[str, Any]:
        """The slice of the settings that decides the outputs, as JSON."""
        return restrict(settings, self._keyed(options)).model_dump(mode="json")

    def view(self, settings: Settings, options: Mapping[str, str]) -> Settings:
        """The settings as the stage sees them."""
        runtime = {name.format(**options) for name in self.runtime}
        return restrict(settings, self._keyed(options) | {*_RUNTIME} | runtime)

    def module(self, settings: Settings) -> str:
        """The module that does the work."""
        other = self.name == "train" and settings.training.engine == "verl"
        return "cdpr.stages.train_verl" if other else f"cdpr.stages.{self.name}"

    def roots(self, settings: Settings) -> list[str]:
        """Modules whose import closure is the stage's code."""
        own = [self.module(settings)]
        if self.name == "ingest" and settings.data.mimic_iv.structurer.model is not None:
            own.append("cdpr.ingest.structurer")
        if self.name == "train":
            own.append(f"cdpr.training.algorithms.{settings.training.algorithm}")
        return own

    def _keyed(self, options: Mapping[str, str]) -> set[str]:
        return without([name.format(**options) for name in self.reads],
                       [name.format(**options) for name in self.runtime])  # fmt: skip


def stage_named(name: str) -> Stage:
    """Raises SettingsError for a name that no stage has."""
    if name not in STAGES:
        raise SettingsError(f"unknown stage {name!r}; known: {', '.join(STAGES)}")
    return STAGES[name]


_DECISIONS = ("environment", "policy", "utility")
# Where and how comfortably verl runs, and what it computes nothing of.
_PLACES = tuple(f"training.verl.{name}" for name in (
    "nodes", "gpus_per_node", "gpu_memory_gb", "gradient_checkpointing", "chunked_logits", "offload", "rollout_memory",
    "timeout_s", "max_failed", "frozen",
))  # fmt: skip
_RUN = "who acts: a trained run such as cdpr-seed0, warm_start, static, or a reference policy"
_DATASET = "mimic_iv, clinicalbench, private or agentclinic"
_DATASET_OR_VARIANT = f"{_DATASET}, or its leak-controlled variant such as mimic_iv_controlled"
_TABLE = {"csv": "the numbers", "md": "the table to read", "tex": "the table to print"}
_PLOT = {"png": "the figure", "pdf": "the figure for print"}
_REPORTED = (
    "tier",
    "seeds",
    "evaluation",
    "data",
    "costs",
    "hospital",
    "training",
    "credit",
    "comparators",
    "experiments",
    *_DECISIONS,
)
_RESULTS = {"results": "folder with evaluations and training metrics (default: paths.results)"}


def _table(name: str, summary: str, **inputs: str) -> Stage:
    example = "".join(f"--{given} {given}.jsonl " for given in inputs) + "--csv t.csv --md t.md --tex t.tex"
    return _shown(name, summary, _TABLE, example, inputs)


def _figure(name: str, summary: str, **more: str) -> Stage:
    example = " ".join(f"--{form} f.{form}" for form in (*_PLOT, *more))
    return _shown(name, summary, {**_PLOT, **more}, example)


def _shown(
    name: str, summary: str, outputs: Mapping[str, str], example: str, inputs: Mapping[str, str] | None = None
) -> Stage:
    """A stage that shows results of other runs, which it finds below ``results``."""
    return Stage(
        name, summary, reads=_REPORTED, runtime=("training.save_every",), places=_RESULTS, inputs=inputs or {},
        outputs=outputs, example=example,
    )  # fmt: skip


_ALL = (
    Stage(
        "make_hospital", "Write the synthetic hospital's raw files, each data set in its own native format.",
        reads=("hospital",),
        outputs={"mimic_iv": "MIMIC-IV tables", "clinicalbench": "ClinicalBench JSON", "private": "private CSV files"},
        example="--mimic_iv raw/mimic_iv --clinicalbench raw/clinicalbench --private raw/private",
    ),
    Stage(
        "ingest", "Read a data set's raw files into case records, split by patient.",
        reads=("data.{dataset}", "data.leaks", "data.train_cases", "data.validation_cases", "data.test_cases",
               "data.split_seed"),
        runtime=("data.{dataset}.path", "data.mimic_iv.memory_gb", "data.mimic_iv.threads",
                 "data.mimic_iv.structurer.at_once", "governance"),
        options={"dataset": _DATASET},
        inputs={"raw": "folder or file with the raw data"},
        outputs={
            "records": "case records, one JSON object a line", "report": "how many cases each rule dropped",
            "findings": "every dropped case and every leak, one a row; as private as the records",
        },
        example="--dataset mimic_iv --raw raw/mimic_iv --records r.jsonl --report r.report.json --findings r.csv",
    ),
    Stage(
        "build_catalogue", "Make the price catalogue from your own year or locality of the Medicare fee schedules.",
        reads=("data.fee_schedules.locality", "data.fee_schedules.conversion_factor"),
        inputs={
            "clfs": "Clinical Laboratory Fee Schedule (CSV)", "pfs": "relative value file, PPRRVU (CSV)",
            "opps_cap": "imaging caps, OPPSCAP (CSV)", "gpci": "geographic indices, GPCI (CSV)",
            "opps": "OPPS Addendum B (xlsx)",
        },
        optional=("clfs", "pfs", "opps_cap", "gpci", "opps"),
        outputs={"catalogue": "folder with the tables, and what was read and left out"},
        example="--clfs CLFS_2025_Q2V1.csv --pfs PPRRVU2025_Oct.csv --catalogue my_catalogue",
    ),
    Stage(
        "map_costs", "Attach prices and billing groups to the examinations of case records.",
        reads=("costs",),
        options={"dataset": _DATASET},
        inputs={
            "records": "case records", "catalogue": "folder of `build_catalogue` (default: the shipped catalogue)",
            "overrides": "your own prices (CSV)",
        },
        optional=("catalogue", "overrides"),
        outputs={
            "cases": "priced case records", "coverage": "what each examination was priced by",
            "review": "examinations that nothing priced, to be filled in as overrides; as private as the cases",
        },
        example="--dataset mimic_iv --records r.jsonl --cases c.jsonl --coverage coverage.csv --review c.review.csv",
    ),
    Stage(
        "data_card", "Write a data set's card: counts, selection, leaks, distributions, price coverage, licence.",
        reads=("tier", "data.{dataset}"),
        runtime=("data.{dataset}.path",),
        options={"dataset": _DATASET},
        inputs={
            "cases": "priced case records", "report": "what `ingest` reports", "coverage": "what `map_costs` reports",
            "ingested": "run.json of `ingest`, which knows the digest of the raw data",
        },
        optional=("ingested",),
        outputs={"md": "the card to read", "json": "its numbers", **_PLOT},
        example="--dataset private --cases c.jsonl --report r.report.json --coverage coverage.csv "
                "--md card.md --json card.json --png card.png --pdf card.pdf",
    ),
    Stage(
        "control_leaks", "Make the leak-controlled variant of a benchmark's test cases.",
        reads=(),
        options={"dataset": _DATASET},
        inputs={"cases": "priced case records"},
        outputs={"controlled": "the test cases without what gives the diagnosis away", "report": "what was taken out"},
        example="--dataset private --cases c.jsonl --controlled c_controlled.jsonl --report c_controlled.report.json",
    ),
    Stage(
        "warm_start", "Build the tiny policy and teach it the work-ups of a wasteful clinician.",
        reads=("warm_start", "costs", *_DECISIONS),
        inputs={"cases": "priced cases (training split)"},
        outputs={"policy": "Hugging Face folder", "metrics": "loss and validation per step"},
        example="--cases cases/mimic_iv.jsonl --policy policies/warm_start --metrics metrics.jsonl",
    ),
    Stage(
        "train", "Train a policy with one variant (grpo, cdpr, vineppo, gigpo, all_actions, an ablation, ...).",
        reads=("training", "credit", "comparators", "warm_start.cases", *_DECISIONS),
        runtime=("training.save_every", "governance", *_PLACES),
        options={"run": "VARIANT-seedN, for example cdpr-seed0"},
        inputs={"cases": "priced cases", "init_policy": "policy to start from"},
        outputs={
            "policy": "Hugging Face folder", "metrics": "learning curve",
            "credit": "what credit assignment found, one JSON object an iteration",
        },
        example="--run cdpr-seed0 --cases c.jsonl --init_policy warm_start --policy p --metrics m --credit c.gz",
    ),
    Stage(
        "evaluate", "Let an agent work up the test cases of a data set and judge it.",
        reads=("tier", "evaluation.decodings", "evaluation.seed", "costs", "training.temperature", *_DECISIONS),
        runtime=("agents", "governance"),
        options={"run": _RUN, "dataset": _DATASET_OR_VARIANT},
        inputs={"cases": "priced cases", "policy": "policy folder (none for reference policies)"},
        optional=("policy",),
        outputs={"evaluation": "one line per case and decoding"},
        example="--run cdpr-seed0 --dataset private --cases c.jsonl --policy p --evaluation e.jsonl",
    ),
    Stage(
        "preflight", "Compare U(warm start) with U(immediate diagnosis) and warn when training would collapse.",
        reads=("utility", "tier"),
        inputs={"warm_start": "evaluation of the warm start", "immediate": "evaluation of its immediate diagnoses"},
        outputs={"report": "the comparison, as JSON"},
        example="--warm_start e/warm_start/mimic_iv.jsonl --immediate e/immediate/mimic_iv.jsonl --report p.json",
    ),
    _table("main_table", "Write Table 1: every agent on every benchmark, with intervals."),
    _table("ablations", "Write Table 2: CDPR without one of its parts."),
    _table("dynamic_vs_static", "Write Table 3: CDPR against a diagnosis from the whole record at once."),
    _table("sample_case", "Write the sample case: one test case with its prices, and what each agent did on it.",
           cases="priced in-domain cases"),
    _table("comparators", "Write the table of ways to assign credit: GRPO, VinePPO, GiGPO, CDPR, all actions."),
    _table("leak_control", "Write the table of agents on each benchmark and on its leak-controlled variant."),
    _figure("plot_training_efficiency", "Draw accuracy against wall-clock time and generated tokens."),
    _figure("plot_learning_curves", "Draw accuracy, AEN, AEC, unavailable requests and utility by iteration."),
    _figure("plot_sensitivity", "Draw the six panels of the paper's sensitivity analysis: M, K, H, beta, eta, n.",
            csv="the numbers"),
    _figure("plot_further_sensitivity", "Draw sweeps of what the paper leaves open: n_s, lambdas, cost unit, ...",
            csv="the numbers"),
    _figure("plot_engines", "Draw the learning curves of verl beside the torch trainer's.", csv="how they agree"),
    _figure("plot_cost_distribution", "Draw how the cost of a work-up is distributed over cases."),
    _figure("plot_accuracy_cost", "Draw accuracy against cost, with the frontier of the reference policies."),
    _shown(
        "claims", "Hold every claim of the paper against what was measured, and the paper against itself.",
        {"json": "the ledger", "md": "the ledger to read", "csv": "one row per claim"},
        "--json c.json --md c.md --csv c.csv",
    ),
    _shown(
        "report_page", "Write one HTML page with all results, each linked to the run that made it.",
        {"html": "the page"}, "--html report.html",
    ),
    Stage(
        "timings", "Sum up what the computing costs: time and memory per stage, from Snakemake's benchmark files.",
        reads=(), places=_RESULTS, outputs={"md": "the page", "json": "its numbers"}, example="--md t.md --json t.json",
    ),
    Stage(
        "credit_quality", "Measure how well process rewards estimate the true advantage, and at what price.",
        reads=("analysis", "credit", "training.group_size", "training.temperature", *_DECISIONS),
        inputs={"cases": "priced cases (validation split)", "policy": "policy that acts and continues"},
        outputs={"quality": "one row of measures per setting, as JSON"},
        example="--cases cases/mimic_iv.jsonl --policy policies/warm_start --quality credit_quality.json",
    ),
    Stage(
        "plot_credit_quality", "Draw bias, variance and rank correlation of the process reward by setting and price.",
        reads=("tier", "data", "utility.cost_unit_usd"),
        inputs={"quality": "measures of `credit_quality`"},
        outputs=_PLOT,
        example="--quality credit_quality.json --png f.png --pdf f.pdf",
    ),
    Stage(
        "smoke_real", "Let a small real language model work up a few real cases; says 'not run: why' without them.",
        reads=("smoke_real", "evaluation.decodings", "evaluation.seed", "costs", "data.agentclinic",
               "training.temperature", *_DECISIONS),
        runtime=("agents", "governance"),
        inputs={"cases": "priced AgentClinic cases"},
        optional=("cases",),
        outputs={"evaluations": "folder with one file per agent", "summary": "the outcome as JSON", "md": "to read"},
        example="--cases cases/agentclinic.jsonl --evaluations e --summary s.json --md s.md",
    ),
    Stage(
        "init_tracking", "Create the MLflow database and its experiments once, before jobs run side by side.",
        reads=(), outputs={"ready": "marker"},
        example="--ready results/tracking.ready.json",
    ),
)  # fmt: skip

STAGES: dict[str, Stage] = {stage.name: stage for stage in _ALL}
