"""One configuration seen from the workflow: its runs, its data sets, and the files that it starts from.

Nothing here knows the table of stages, which is made of functions that take an :class:`Experiment`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import DigestCache
from ..results.methods import unfit
from ..settings import Settings, SettingsError, TrainedRun, check_serving, parse_settings, why_not_run
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.queries import check_paths
from ..settings.variants import job_of, resolve_variant, seeds_of

Options = Mapping[str, str]


@dataclass(frozen=True)
class Product:
    """A file that another stage makes: one of its outputs, by the options of its job."""

    stage: str
    output: str
    options: Options = field(default_factory=dict)


Source = Product | str | None  # a job's output, a file of the user's own, or nothing: the job does without


class Experiment:
    """The runs, data sets and sources of one configuration. Raises SettingsError for an invalid configuration."""

    def __init__(self, config: Mapping[str, Any] | Settings):
        self.settings = config if isinstance(config, Settings) else parse_settings(config)
        check_paths(self.settings)
        check_serving(self.settings)
        data, results = self.settings.data, self.settings.paths.results
        chosen, own = data.fee_schedules, data.price_overrides
        if chosen.pfs is None and (chosen.locality != "national" or chosen.conversion_factor is not None):
            raise SettingsError("data.fee_schedules.locality and .conversion_factor apply to the file "
                                "data.fee_schedules.pfs, which is not given")  # fmt: skip
        if own and Path(own).resolve().is_relative_to(Path(results).resolve()):
            raise SettingsError(f"data.price_overrides: {own} lies under {results}/, where jobs remove and rewrite "
                                "files; copy it to another folder first and name the copy")  # fmt: skip
        self.results, self.state = (str(Path(p)) for p in (results, self.settings.paths.state))
        self.digests = DigestCache(Path(self.state) / "digests.json")

    def settings_of(self, stage: str, options: Options) -> tuple[Settings, int | None]:
        """Settings of a job (of its variant, for training) and its seed. Raises SettingsError for a name of no run."""
        if stage != "train_policy":
            return self.settings, None
        run = TrainedRun.parse(options["run"])
        if run is None:
            raise SettingsError(f"run {options['run']!r} is not of the form VARIANT-seedN, for example cdpr-seed0")
        return resolve_variant(self.settings, run.variant), run.seed

    def trained(self, *names: str) -> list[str]:
        """Runs of the variants over their seeds; variants that train the same thing share them."""
        jobs = {name: job_of(self.settings, name) for name in names}
        return list(dict.fromkeys(str(TrainedRun(jobs[v], seed)) for v in names for seed in seeds_of(self.settings, v)))

    @property
    def agents(self) -> list[str]:
        """Agents of the main table that are run and not trained here."""
        return [name for name in self.settings.agents if not why_not_run(self.settings, name)]

    def evaluations(self, runs: Iterable[str], datasets: Iterable[str] = BENCHMARKS) -> list[tuple[str, str]]:
        """(run, data set) pairs, without those whose agent cannot work up such cases."""
        return [(r, d) for r in runs for d in datasets if not unfit(self.settings, r, d)]

    @property
    def datasets(self) -> list[str]:
        """All data sets that are at hand: the benchmarks, and further ones that have a path."""
        return [name for name in DATASETS if name in BENCHMARKS or self.raw_path(name) is not None]

    def raw_path(self, dataset: str) -> str | None:
        """The user's own raw data, or None for the synthetic hospital's."""
        return self.settings.data.source(dataset).path
