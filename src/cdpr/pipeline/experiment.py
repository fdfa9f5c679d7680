"""One configuration seen from the workflow: its runs and data sets, the files behind its results, and run keys."""

import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..files import DigestCache, write_text
from ..job import PageEntry
from ..locks import hold
from ..report.methods import why_unfit
from ..settings import Settings, SettingsError, TrainedRun, digest, is_trained, parse_settings, project_folder, variants
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.load import expand_keys
from ..settings.queries import check_settings, is_served, model_of, refuse_missing_paths, user_files, why_not_run
from ..settings.variants import job_of, resolve_variant, seeds_of
from . import own_code
from .evidence import EVIDENCE, find_evidence
from .page import read_page
from .run_key import code_digest
from .stages import STAGES, Options, Stage
from .systems import refuse_unready


class Experiment:
    """The runs, data sets and jobs of one configuration. Raises SettingsError for an invalid configuration, and outside
    a checkout.

    In paths ``<results>`` means the results folder.
    """

    def __init__(self, config: Mapping[str, Any] | Settings):
        """Check a configuration: settings, or a nested dictionary of them, as Snakemake reads it. Raises SettingsError
        for an invalid one, and outside a checkout."""
        project_folder()  # raises outside a checkout
        self.settings: Settings = config if isinstance(config, Settings) else parse_settings(config)
        check_settings(self.settings)
        own_code.watch(self.settings)
        self.results = str(Path(self.settings.paths.results))
        self.state = str(Path(self.settings.paths.state))
        # Only a real run makes the folder of the state: a dry run leaves none behind, and keeps digests in memory.
        self.digests = DigestCache(Path(self.state) / "digests.json")
        self._digest_code = functools.cache(lambda roots: code_digest(roots, cache=self.digests))
        # The results behind a table or figure by its stage; none for another stage.
        self.evidence = functools.cache(lambda stage: find_evidence(self, **EVIDENCE.get(stage, {})))
        self._locks: list[ExitStack] = []

    # Runs and data sets

    def training_runs(self, *variants: str) -> list[str]:
        """The names of the training runs of these variants, one for each seed, such as ``cdpr-seed0``. Variants with
        equal settings share their runs, which are listed once."""
        runs = [TrainedRun(job_of(self.settings, v), seed) for v in variants for seed in seeds_of(self.settings, v)]
        return list(dict.fromkeys(map(str, runs)))

    @property
    def agents(self) -> list[str]:
        """The names of the agents in workflow/agents.yaml that are run with these settings."""
        return [name for name in self.settings.agents if not why_not_run(self.settings, name)]

    def evaluations(self, runs: Iterable[str], datasets: Iterable[str] = BENCHMARKS) -> list[tuple[str, str]]:
        """Pair each run with each data set (by default the benchmarks), without the pairs whose agent cannot diagnose
        the cases of the data set; returns pairs (run, data set)."""
        return [(run, dataset) for run in runs for dataset in datasets if not why_unfit(self.settings, run, dataset)]

    @property
    def datasets(self) -> list[str]:
        """The names of the data sets on which agents can be evaluated: the benchmarks, and further ones with a path."""
        return [name for name in DATASETS if name in BENCHMARKS or self.settings.data.source(name).path is not None]

    def page(self) -> dict[str, PageEntry]:
        """The tables and figures of the results page in their order, by file without its ending
        (``tables/ablations``). The table of open cases is among them only where agents are evaluated on such cases."""
        open_cases = self.evidence("write_open_cases").evaluations
        return {path: entry for path, entry in read_page().items() if open_cases or path != "tables/open_cases"}

    def evaluated_together(self) -> list[str]:
        """List the runs for which one job evaluates all benchmarks, instead of one job for each benchmark. With the
        tiny policy an evaluation takes less time than the start of a job.

        These are the runs of the tiny policy, and the agents without a model, that tables and figures need on every
        benchmark. Empty where the policy is another model, or on a server.
        """
        if self.settings.policy.model != "tiny" or self.settings.serving.policies:
            return []
        pairs = {pair for stage in EVIDENCE for pair in self.evidence(stage).evaluations}
        # Agents with a model of their own are slow: they have jobs of their own.
        slow = {name for name, agent in self.settings.agents.items() if agent.model and not agent.own_policy}
        complete = {run for run, _ in pairs if all((run, dataset) in pairs for dataset in BENCHMARKS)}
        return sorted(complete - slow)

    # Files

    def initial_policy(self) -> str:
        """The folder of the policy that training starts from: the warm-started one, or the user's own."""
        policy = self.settings.policy
        return "<results>/policies/warm_start" if policy.warm_started else policy.model

    def acting_policy(self, run: str) -> str | None:
        """The folder of the weights by which a run acts, loaded by this process or by the server of its job. None where
        the run needs no folder: it acts without a model, or calls a model at an address or an id of the hub."""
        if is_trained(run):
            return f"<results>/training/{run}/policy"
        entry = self.settings.agents.get(run)
        if entry is None:
            return None
        if entry.own_policy:
            return self.initial_policy()
        if (model := model_of(self.settings, entry)) is None:
            return None
        weights = model.weights or model.id
        # The server of its job reads a folder here, or downloads the weights by their id.
        return weights if is_served(self.settings, entry) and Path(weights).exists() else model.folder

    def files_behind(
        self, stage: str, training_files: Sequence[str] = ("metrics.jsonl", "run.json"), evaluations: bool = True
    ) -> list[str]:
        """List the files that the table or figure of a stage is made of: those of its evaluations (unless
        ``evaluations`` is off), and for every trained run that it shows or whose evaluation it shows, the files
        ``training_files`` in the folder of the run. Under ``evaluation.partial`` only files that exist. Raises
        SettingsError for a table or figure without a line in ``pipeline/evidence.yaml``."""
        if stage not in EVIDENCE:
            raise SettingsError(f"{stage}: no line in src/cdpr/pipeline/evidence.yaml; correct the name, or add one")
        evidence = self.evidence(stage)
        paths: list[str] = []
        for run, dataset in evidence.evaluations if evaluations else ():
            paths += [f"<results>/evaluations/{run}/{dataset}.{ending}" for ending in ("jsonl", "run.json")]
        for run in filter(is_trained, evidence.runs):
            paths += [f"<results>/training/{run}/{file}" for file in training_files]
        partial = self.settings.evaluation.partial
        return [path for path in paths if not partial or Path(self.resolve_path(path)).exists()]

    def resolve_path(self, path: str) -> str:
        """Replace ``<results>`` in a path by the results folder."""
        return path.replace("<results>", self.results)

    def file_digests(self, settings: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of each of the user's files and folders that these settings name, by path. ``settings`` are
        dotted names; a section means all its settings."""
        keys = expand_keys(settings)
        return {path: self.digests.digest(path) for key, path in user_files(self.settings) if key in keys}

    # Keys

    def key(self, stage: str, **options: str) -> str:
        """Compute the run key of a job: 16 hexadecimal digits, the digest of its settings and hidden inputs
        (:mod:`.hidden_inputs`), its seed, the user's files that its settings name, and the code that it can reach.

        The run key is a parameter of the job's rule: so Snakemake reruns the jobs that an edit affects, and none after
        a mere ``touch``. The key does not cover the input files of the rule, whose changes Snakemake notices itself.
        """
        training = self.training_of(stage, options)
        files = self.file_digests(name.format(**options) for name in stage_of(stage).files)
        parts = {"stage": stage, "options": options, "seed": training and training.seed, "files": files}
        return digest(parts | {"parameters": self.parameters(stage, options), "code": self.code(stage, options)})

    def training_of(self, stage: str, options: Options) -> TrainedRun | None:
        """The variant and the seed of a training job; None for a job of any other stage. Raises SettingsError for a
        training whose option ``run`` is not of the form VARIANT-seedN."""
        run = TrainedRun.parse(options["run"]) if stage == "train_policy" else None
        if stage == "train_policy" and run is None:
            raise SettingsError(f"run {options['run']!r} is not of the form VARIANT-seedN, for example cdpr-seed0")
        return run

    def settings_of(self, stage: str, options: Options) -> Settings:
        """The settings of a job: those of its variant for a training, and the whole configuration for any other job.
        Raises SettingsError as :meth:`training_of`, and for an unknown variant."""
        training = self.training_of(stage, options)
        return resolve_variant(self.settings, training.variant) if training else self.settings

    def parameters(self, stage: str, options: Options) -> dict[str, Any]:
        """The settings and hidden inputs (:mod:`.hidden_inputs`) that decide a job's outputs, as a dictionary for
        JSON. They are part of the run key."""
        entry = stage_of(stage)
        return {**entry.parameters(self.settings_of(stage, options), options), **entry.hidden(self, options).values}

    def code_roots(self, stage: str, options: Options) -> list[str]:
        """The modules at which a job's code begins: that of its stage, and those that it imports by a name in the
        settings. The code of the job is these and all that they import, directly or not."""
        entry = stage_of(stage)
        return [entry.target(self.settings_of(stage, options)).partition(":")[0], *entry.hidden(self, options).modules]

    def code(self, stage: str, options: Options) -> str:
        """The digest of a job's code, all that is reached from :meth:`code_roots`: 16 hexadecimal digits."""
        return self._digest_code(tuple(self.code_roots(stage, options)))

    def current_keys(self) -> set[str]:
        """Compute the run keys of all jobs of this configuration that keep work in ``state/``."""
        runs = self.training_runs(*variants(self.settings))
        # All agents and trained runs on the benchmarks, and the evaluations on other data sets that two tables read.
        evaluations = {*self.evaluations([*self.agents, *runs]), *self.evidence("write_leak_control").evaluations,
                       *self.evidence("write_open_cases").evaluations}  # fmt: skip
        keys = {self.key("warm_start_policy")}
        keys |= {self.key("train_policy", run=run) for run in runs}
        keys |= {self.key("evaluate_agent", run=run, dataset=dataset) for run, dataset in evaluations}
        return keys | {self.key("ingest_dataset", dataset=dataset) for dataset in self.datasets}

    # A run of the workflow

    @property
    def resolved_settings(self) -> str:
        """The path of the file with the resolved settings, which jobs read; its name has their digest."""
        return str(Path(self.state) / f"resolved-{digest(self.settings)}.json")

    def write_settings(self) -> None:
        """Write the resolved settings to their file, also over a damaged one."""
        path = Path(self.resolved_settings)
        text = json.dumps(self.settings.model_dump(mode="json"), indent=2) + "\n"
        if not path.exists() or path.read_bytes() != text.encode():
            write_text(path, text)

    def keep_private(self) -> None:
        """Where data are credentialed, let this process and those that it starts write files for their owner alone."""
        if self.settings.data.credentialed:
            os.umask(0o077)

    def begin(self, runs: Iterable[str] = ()) -> None:
        """Prepare a run of the workflow: lock the results, and write the settings. ``runs`` are the agents and trained
        runs that will act. Raises SettingsError where a path of the settings does not exist, where one of ``runs``
        cannot act yet (no model, key or price, for example), and as :meth:`lock`."""
        refuse_missing_paths(self.settings)
        refuse_unready(self, runs)
        self.lock()
        self.write_settings()
        self.digests.save()  # jobs read them: they digest the same code

    def lock(self) -> None:
        """Lock the folders of results and state against other workflows until this process ends. Raises SettingsError
        where another process holds a lock, and where credentialed results would be in another user's folder."""
        for folder in map(Path, (self.results, self.state)):
            if self.settings.data.credentialed:
                folder.mkdir(parents=True, exist_ok=True)
                # Files written before the data were marked as credentialed may be readable by others: a private folder
                # hides them.
                _make_private(folder)
            try:
                # Unlike Snakemake's own lock, this one ends with its process, even if that is killed.
                self._locks.append(hold(folder / ".lock", wait=False))
            except TimeoutError as error:
                problem = f"Another snakemake is at work here.\n{folder.absolute()} ({error})"
                remedy = "Wait for its end, or start this one with other paths.results and paths.state."
                raise SettingsError(f"{problem}\n{remedy}") from None


def _make_private(folder: Path) -> None:
    """Let only its owner open a folder. Raises SettingsError where it belongs to another user."""
    try:
        folder.chmod(0o700)
    except PermissionError:
        problem = "belongs to another user, and results of credentialed data are for their owner alone"
        remedy = "name other folders in paths.results and paths.state"
        raise SettingsError(f"{folder.absolute()}: {problem}; {remedy}") from None


def stage_of(name: str) -> Stage:
    """Look up the entry of a stage. Raises SettingsError where neither the table of stages nor ``cdpr.report`` has
    it."""
    if name not in STAGES:
        raise SettingsError(f"there is no stage {name}: add it to src/cdpr/pipeline/stages.yaml, or write a function "
                            f"{name}(settings, job) in a module of src/cdpr/report")  # fmt: skip
    return STAGES[name]
