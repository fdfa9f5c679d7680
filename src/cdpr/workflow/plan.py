"""The jobs of one configuration, their files, and the run key of each: what the Snakefile and the commands ask."""

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cachetools import cachedmethod

from ..environment.utility import check_terms
from ..files import write_text
from ..locks import hold
from ..run_key import code_digest
from ..settings import Settings, SettingsError, digest, is_trained, missing_paths, variants
from ..settings.datasets import BENCHMARKS, IN_DOMAIN
from .experiment import Experiment, Options, Product, Source
from .stage import Evidence
from .stages import STAGES, check_functions, page_entries, stages_on_page
from .systems import refuse_what_lacks

# Training allocates tensors of megabytes in every step. With these thresholds glibc keeps the memory instead of
# returning it to the kernel each time, which saves a quarter of an update's time.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_MMAP_THRESHOLD_": "1073741824"}


class Plan(Experiment):
    """An experiment with its jobs: the table of stages, resolved for its settings."""

    def __init__(self, config: Mapping[str, Any] | Settings):
        super().__init__(config)
        check_functions(STAGES)
        check_terms()
        self._keys: dict[tuple, str] = {}
        self._codes: dict[tuple, str] = {}
        self._evidence: dict[tuple, Evidence] = {}

    # Which jobs there are

    @cachedmethod(lambda self: self._evidence)
    def evidence(self, stage: str) -> Evidence:
        """The evaluations and trainings behind a table or figure."""
        return STAGES[stage].evidence(self)

    on_page = property(stages_on_page)
    page = property(page_entries)

    def smoke(self) -> list[str]:
        """In-domain evaluations of a few agents that together use every stage: untrained, reference, trained."""
        runs = ["warm_start", "zero_test", self.trained("cdpr")[0]]
        return [self.output("evaluate_agent", "evaluation", run=run, dataset=IN_DOMAIN) for run in runs]

    # Files

    def output(self, stage: str, output: str, **options: str) -> str:
        """Path of an output, ``<results>`` standing for the results folder; options left out stay wildcards."""
        return STAGES[stage].path(output, options)

    def outputs(self, stage: str, **options: str) -> list[str]:
        """Paths of all outputs of a job, its run.json included."""
        return [self.output(stage, name, **options) for name in (*STAGES[stage].outputs, "record")]

    def source(self, stage: str, need: str, options: Options) -> Source:
        """Where an input of a job comes from; None where the job does without."""
        source = STAGES[stage].needs[need]
        if isinstance(source, str):
            maker, _, output = source.partition(".")
            return Product(maker, output, options)
        return source(self, options) if callable(source) else source

    def place(self, source: Source) -> str | None:
        return self.output(source.stage, source.output, **source.options) if isinstance(source, Product) else source

    def input(self, stage: str, need: str, options: Options) -> list[str]:
        """An input of a rule: none for a user's file that is not there. So the paper's workflow can be planned
        anywhere; a run is refused before its first job."""
        source = self.source(stage, need, options)
        path = self.place(source)
        return [path] if path and (isinstance(source, Product) or Path(path).exists()) else []

    def flags(self, stage: str, options: Options, inputs: Any, outputs: Any) -> str:
        """Flags of a stage's command: which job, and its files as Snakemake has them in place."""
        entry, flags = STAGES[stage], {"record": str(outputs.record), **options}
        for need in entry.needs:
            path = str(getattr(inputs, need, "") or "") or self.place(self.source(stage, need, options))
            flags |= {need: path} if path else {}
        flags |= {name: str(getattr(outputs, name)) for name in entry.outputs}
        return " ".join(shlex.quote(f"--{name}={value}") for name, value in flags.items())

    def environment(self, stage: str) -> str:
        """Variables in front of a stage's command."""
        return "".join(f"{k}={v} " for k, v in KEEP_MEMORY.items()) if STAGES[stage].tensors else ""

    def evidence_files(self, stage: str) -> list[str]:
        """Files that a stage finds by itself, as a rule's input; under ``evaluation.partial`` those that exist."""
        evidence = self.evidence(stage)
        paths = [self.output("evaluate_agent", name, run=run, dataset=dataset)
                 for name in ("evaluation", "record") for run, dataset in evidence.evaluations]  # fmt: skip
        paths += [self.output("train_policy", name, run=run) for name in ("metrics", "record")
                  for run in trainings(evidence)]  # fmt: skip
        paths = self._present(paths)
        return [*paths, *(str(self.place(product)) for product in STAGES[stage].follows(self))]

    def all_results(self) -> list[str]:
        """Every result that the report comes from. Snakemake does not remake a deleted file between two existing ones;
        a target that names all of them has it remade."""
        synthetic = [name for name in BENCHMARKS if self.raw_path(name) is None]
        paths = [self.output("make_hospital", name) for name in (*synthetic, *(["record"] if synthetic else []))]
        for dataset in self.datasets:
            for stage in ("ingest_dataset", "map_costs"):
                paths += self.outputs(stage, dataset=dataset)
        paths += self.outputs("warm_start_policy") if self.settings.policy.warm_started else []
        paths += self._present([self.output("train_policy", name, run=run) for name in ("policy", "credit", "timings")
                                for run in trainings(self.evidence("write_claims"))])  # fmt: skip
        return [*paths, *self.evidence_files("write_claims")]

    def _present(self, paths: list[str]) -> list[str]:
        return [p for p in paths if not self.settings.evaluation.partial or Path(self.resolved(p)).exists()]

    def file(self, stage: str, name: str, options: Options) -> str:
        """Path of an input or output of a job, the results folder in its place; empty where it does without."""
        needed = name in STAGES[stage].needs
        path = self.place(self.source(stage, name, options)) if needed else self.output(stage, name, **options)
        return self.resolved(path or "")

    def resolved(self, path: str) -> str:
        """A path with the results folder in its place."""
        return path.replace("<results>", self.results)

    def write_settings(self) -> None:
        """Write the resolved settings to where jobs read them (:attr:`resolved_settings`), also over damaged ones."""
        path, text = Path(self.resolved_settings), json.dumps(self.settings.model_dump(mode="json"), indent=2) + "\n"
        if not path.exists() or path.read_bytes() != text.encode():
            write_text(path, text)

    @property
    def resolved_settings(self) -> str:
        """File of the resolved settings; its name is their digest."""
        return str(Path(self.state) / f"resolved-{digest(self.settings)}.json")

    def begin(self, runs: Iterable[str] = ()) -> None:
        """Before the first job of a run: refuse paths that lead nowhere and ``runs`` whose agents lack something, keep
        other workflows out until this process ends, however it ends, and write the settings. Raises SettingsError for
        such paths and runs, and where another process holds the results."""
        if missing := missing_paths(self.settings):
            lines = "\n".join(f"  {key}: {path}" for key, path in missing)
            raise SettingsError(f"these paths of the configuration do not exist:\n{lines}\n"
                                "Correct them, or set a key to null to do without.")  # fmt: skip
        refuse_what_lacks(self, runs)
        path = Path(self.state) / "lock"
        try:
            self._lock = hold(path, wait=False)  # Snakemake's own lock outlives a killed process
        except TimeoutError as error:
            raise SettingsError(
                f"Another snakemake is at work here.\n{Path(self.results).absolute()} ({error})\n"
                "Wait for its end, or start this one with other paths.results and paths.state."
            ) from None
        self.write_settings()

    # Keys

    @cachedmethod(lambda self: self._keys)
    def key(self, stage: str, **options: str) -> str:
        """Run key of one job: a digest of everything that its outputs depend on, which are its settings, the code that
        it can reach, its input files, the keys of the jobs before it, and its seed.

        Snakemake has it as a rule parameter (an edit reruns, a ``touch`` does not), ``state/<run_key>/`` holds the
        job's checkpoints, and MLflow finds runs by it."""
        sources = self._sources(stage, options)
        upstream = {name: self.key(product.stage, **{o: product.options[o] for o in STAGES[product.stage].options})
                    for name, product in sources.items() if isinstance(product, Product)}  # fmt: skip
        inputs = {name: self.digests.digest(path) for name, path in sources.items() if isinstance(path, str)}
        _, seed = self.settings_of(stage, options)
        parts = {"stage": stage, "options": options, "parameters": self.parameters(stage, options)}
        parts |= {"code": self.code(stage, options), "upstream": upstream, "inputs": inputs, "seed": seed}
        return digest(parts)

    def _sources(self, stage: str, options: Options) -> dict[str, Source]:
        """Everything that a job reads, by name: products of other jobs, and files that no job makes."""
        evidence = self.evidence(stage)
        sources = {need: self.source(stage, need, options) for need in STAGES[stage].needs}
        sources |= {" ".join([p.stage, *p.options.values()]): p for p in STAGES[stage].follows(self)}
        sources |= {f"{run}/{dataset}": Product("evaluate_agent", "evaluation", {"run": run, "dataset": dataset})
                    for run, dataset in evidence.evaluations}  # fmt: skip
        return sources | {run: Product("train_policy", "policy", {"run": run}) for run in evidence.training}

    def parameters(self, stage: str, options: Options) -> dict[str, Any]:
        """The settings and other values that decide a job's outputs, as JSON."""
        entry, (settings, _) = STAGES[stage], self.settings_of(stage, options)
        return entry.parameters(settings, options) | entry.also(self, options)

    def roots(self, stage: str, options: Options) -> list[str]:
        """Modules whose import closure is a job's code."""
        entry, (settings, _) = STAGES[stage], self.settings_of(stage, options)
        return [entry.target(settings).partition(":")[0], *entry.more_code(self, options)]

    def code(self, stage: str, options: Options) -> str:
        """Digest of this code."""
        roots = tuple(self.roots(stage, options))
        if roots not in self._codes:
            self._codes[roots] = code_digest(roots, cache=self.digests)
        return self._codes[roots]

    def current_keys(self) -> set[str]:
        """Keys of all jobs of this configuration, which keep work in ``state/``."""
        runs = self.trained(*variants(self.settings))
        pairs = {*self.evaluations([*self.agents, *runs]), *self.evidence("write_leak_control").evaluations,
                 *self.evidence("write_open_cases").evaluations}  # fmt: skip
        keys = {self.key("train_policy", run=run) for run in runs}
        keys |= {self.key("evaluate_agent", run=run, dataset=dataset) for run, dataset in pairs}
        keys |= {self.key("ingest_dataset", dataset=dataset) for dataset in self.datasets}
        return keys | {self.key("warm_start_policy")}


def trainings(evidence: Evidence) -> list[str]:
    """The training runs behind a table or figure."""
    evaluated = (run for run, _ in evidence.evaluations if is_trained(run))
    return list(dict.fromkeys([*evidence.training, *evaluated]))
