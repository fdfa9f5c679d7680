"""One configuration seen from the workflow: its runs and data sets, the files of an evaluation, and run keys."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cachetools import cachedmethod

from ..files import DigestCache, write_text
from ..job import PageEntry
from ..locks import hold
from ..report.methods import why_unfit
from ..settings import (
    Settings,
    SettingsError,
    TrainedRun,
    check_settings,
    digest,
    is_trained,
    model_of,
    parse_settings,
    project_folder,
    served,
    variants,
    why_not_run,
)
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.load import without
from ..settings.queries import refuse_missing_paths, user_files
from ..settings.variants import job_of, resolve_variant, seeds_of
from . import evidence, own_code
from .evidence import Evidence
from .page import read_page
from .run_key import code_digest
from .stages import STAGES, Options, Stage
from .systems import refuse_what_lacks


class Experiment:
    """The runs, data sets and jobs of one configuration. Raises SettingsError for an invalid configuration, and outside
    a checkout."""

    def __init__(self, config: Mapping[str, Any] | Settings):
        project_folder()
        self.settings: Settings = config if isinstance(config, Settings) else parse_settings(config)
        check_settings(self.settings)
        own_code.watch(self.settings)
        paths = self.settings.paths
        self.results, self.state = (str(Path(path)) for path in (paths.results, paths.state))
        # A dry run elsewhere leaves no folder behind: only a run makes the one of the state.
        self.digests = DigestCache(Path(self.state) / "digests.json" if Path(self.state).is_dir() else None)
        self._codes: dict[tuple, str] = {}
        self._evidence: dict[tuple, Evidence] = {}
        self._locks: list[ExitStack] = []

    # Runs and data sets

    def trained(self, *names: str) -> list[str]:
        """Runs of the variants over their seeds; variants that train the same thing share them."""
        jobs = {name: job_of(self.settings, name) for name in names}
        return list(dict.fromkeys(str(TrainedRun(jobs[v], s)) for v in names for s in seeds_of(self.settings, v)))

    @property
    def agents(self) -> list[str]:
        """Agents of the main table that are run and not trained here."""
        return [name for name in self.settings.agents if not why_not_run(self.settings, name)]

    def evaluations(self, runs: Iterable[str], datasets: Iterable[str] = BENCHMARKS) -> list[tuple[str, str]]:
        """(run, data set) pairs, without those whose agent cannot diagnose such cases."""
        return [(r, d) for r in runs for d in datasets if not why_unfit(self.settings, r, d)]

    @property
    def datasets(self) -> list[str]:
        """All data sets that have cases: the benchmarks, and further ones that have a path."""
        return [name for name in DATASETS if name in BENCHMARKS or self.raw_path(name) is not None]

    def raw_path(self, dataset: str) -> str | None:
        """The user's own raw data, or None for the synthetic hospital's."""
        return self.settings.data.source(dataset).path

    @cachedmethod(lambda self: self._evidence)
    def evidence(self, name: str) -> Evidence:
        """The evaluations and trainings behind a table or figure."""
        return evidence.EVIDENCE.get(name, lambda experiment: Evidence())(self)

    def page(self) -> dict[str, PageEntry]:
        """What the results page shows, by file without its ending: open cases where agents are evaluated on some."""
        open_cases = self.evidence("write_open_cases").evaluations
        return {path: part for path, part in read_page().items() if open_cases or path != "tables/open_cases"}

    def evaluated_together(self) -> list[str]:
        """List the runs that one job evaluates on all benchmarks, because starting a job for each would take longer
        than its work. With the tiny policy, unless a server has it, these are its runs and the agents without a model;
        otherwise there are none."""
        pairs = {pair for name in evidence.EVIDENCE for pair in self.evidence(name).evaluations}
        runs = {run: self.settings.agents.get(run) for run, _ in sorted(pairs)}
        short = [run for run, agent in runs.items() if agent is None or agent.model is None or agent.own_policy]
        tiny = self.settings.policy.model == "tiny" and not self.settings.serving.policies
        return [run for run in short if tiny and all((run, dataset) in pairs for dataset in BENCHMARKS)]

    # Files; ``<results>`` is the results folder

    def initial_policy(self) -> str:
        """The policy that training starts from: the warm-started one, or the user's own folder."""
        policy = self.settings.policy
        return "<results>/policies/warm_start" if policy.warm_started else policy.model

    def acting_policy(self, run: str) -> str | None:
        """The model of a run: a folder, or what the server of its job loads; None where it needs none."""
        if is_trained(run):
            return f"<results>/training/{run}/policy"
        entry = self.settings.agents.get(run)
        if entry is None or entry.own_policy:
            return self.initial_policy() if entry else None
        if (model := model_of(self.settings, entry)) is None:
            return None
        loaded = model.weights or model.id
        return loaded if served(self.settings, entry) and Path(loaded).exists() else model.folder

    def files_behind(
        self, name: str, training_files: Sequence[str] = ("metrics.jsonl", "run.json"), evaluations: bool = True
    ) -> list[str]:
        """The files that a table or figure is made of: its evaluations (unless ``evaluations`` is off), and
        ``training_files`` of each of its trainings. Under ``evaluation.partial`` only files that exist. Raises
        SettingsError for a table or figure without a line in ``pipeline/evidence.py``."""
        if name not in evidence.EVIDENCE:
            raise SettingsError(f"{name}: no line in src/cdpr/pipeline/evidence.py; correct the name, or add one")
        behind = self.evidence(name)
        pairs, trained = behind.evaluations if evaluations else (), filter(is_trained, behind.runs)
        paths = [f"<results>/evaluations/{run}/{d}.{kind}" for run, d in pairs for kind in ("jsonl", "run.json")]
        paths += [f"<results>/training/{run}/{file}" for run in trained for file in training_files]
        return [p for p in paths if not self.settings.evaluation.partial or Path(self.resolved(p)).exists()]

    def resolved(self, path: str) -> str:
        """A path with the results folder in it."""
        return path.replace("<results>", self.results)

    def file_digests(self, settings: Iterable[str]) -> dict[str, str]:
        """Digests of the user's own files and folders that these settings name, by path."""
        keys, model = without(settings, ()), self.settings.policy.model
        paths = [*user_files(self.settings), *([("policy.model", model)] if model != "tiny" else [])]
        return {path: self.digests.digest(path) for key, path in paths if key in keys}

    # Keys

    def key(self, name: str, **options: str) -> str:
        """Run key of a job: the digest of its settings, its seed, and the code that it can reach.

        Snakemake has it as a rule parameter: an edit reruns the jobs that it concerns, a ``touch`` none. Changes of
        files reach a job through the inputs of its rule."""
        _, seed = self.settings_of(name, options)
        files = self.file_digests(key.format(**options) for key in stage_of(name).files)
        parts = {"stage": name, "options": options, "parameters": self.parameters(name, options)}
        return digest(parts | {"code": self.code(name, options), "seed": seed, "files": files})

    def settings_of(self, name: str, options: Options) -> tuple[Settings, int | None]:
        """Settings of a job (of its variant, for training) and its seed. Raises SettingsError for a name of no run."""
        if name != "train_policy":
            return self.settings, None
        run = TrainedRun.parse(options["run"])
        if run is None:
            raise SettingsError(f"run {options['run']!r} is not of the form VARIANT-seedN, for example cdpr-seed0")
        return resolve_variant(self.settings, run.variant), run.seed

    def parameters(self, name: str, options: Options) -> dict[str, Any]:
        """The settings and other values that decide a job's outputs, as JSON."""
        stage, (settings, _) = stage_of(name), self.settings_of(name, options)
        return {**stage.parameters(settings, options), **stage.also(self, options)}

    def roots(self, name: str, options: Options) -> list[str]:
        """Modules whose import closure is a job's code."""
        stage, (settings, _) = stage_of(name), self.settings_of(name, options)
        return [stage.target(settings).partition(":")[0], *stage.more_code(self, options)]

    def code(self, name: str, options: Options) -> str:
        """Digest of this code."""
        roots = tuple(self.roots(name, options))
        if roots not in self._codes:
            self._codes[roots] = code_digest(roots, cache=self.digests)
        return self._codes[roots]

    def current_keys(self) -> set[str]:
        """Keys of all jobs of this configuration that keep work in ``state/``."""
        runs = self.trained(*variants(self.settings))
        pairs = {*self.evaluations([*self.agents, *runs]), *self.evidence("write_leak_control").evaluations,
                 *self.evidence("write_open_cases").evaluations}  # fmt: skip
        keys = {self.key("train_policy", run=run) for run in runs}
        keys |= {self.key("evaluate_agent", run=run, dataset=dataset) for run, dataset in pairs}
        keys |= {self.key("ingest_dataset", dataset=dataset) for dataset in self.datasets}
        return keys | {self.key("warm_start_policy")}

    # A run of the workflow

    @property
    def resolved_settings(self) -> str:
        """File of the resolved settings, which jobs read; its name is their digest."""
        return str(Path(self.state) / f"resolved-{digest(self.settings)}.json")

    def write_settings(self) -> None:
        """Write this file, also over a damaged one."""
        path, text = Path(self.resolved_settings), json.dumps(self.settings.model_dump(mode="json"), indent=2) + "\n"
        if not path.exists() or path.read_bytes() != text.encode():
            write_text(path, text)

    def keep_private(self) -> None:
        """Where data are credentialed, let this process and those that it starts write for their owner alone."""
        if self.settings.data.credentialed:
            os.umask(0o077)

    def begin(self, runs: Iterable[str] = ()) -> None:
        """Before the first job of a run: refuse paths that lead nowhere and ``runs`` whose agents lack something, lock
        the results, and write the settings. Raises SettingsError for such paths and runs, and as :meth:`lock`."""
        refuse_missing_paths(self.settings)
        refuse_what_lacks(self, runs)
        self.lock()
        self.write_settings()
        self.digests.keep(Path(self.state) / "digests.json")  # jobs digest the same code

    def lock(self) -> None:
        """Keep other workflows out of the results and the state until this process ends, however it ends. Raises
        SettingsError where another process holds them."""
        for folder in map(Path, (self.results, self.state)):
            if self.settings.data.credentialed:
                folder.mkdir(parents=True, exist_ok=True)
                _make_private(folder)  # files from before the mark can be read by others, and their folder cannot
            try:
                self._locks.append(hold(folder / ".lock", wait=False))  # Snakemake's own outlives a killed process
            except TimeoutError as error:
                raise SettingsError(
                    f"Another snakemake is at work here.\n{folder.absolute()} ({error})\n"
                    "Wait for its end, or start this one with other paths.results and paths.state."
                ) from None


def _make_private(folder: Path) -> None:
    try:
        folder.chmod(0o700)
    except PermissionError:
        raise SettingsError(
            f"{folder.absolute()}: belongs to another user, and results of credentialed data are for their owner "
            "alone; name other folders in paths.results and paths.state"
        ) from None


def stage_of(name: str) -> Stage:
    """The entry of a stage. Raises SettingsError where neither the table nor ``cdpr.report`` has one."""
    if name not in STAGES:
        raise SettingsError(f"there is no stage {name}: add it to the table in src/cdpr/pipeline/stages.py, or write a "
                            f"function {name}(settings, job) in a module of src/cdpr/report")  # fmt: skip
    return STAGES[name]
