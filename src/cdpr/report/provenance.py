"""Functions that check whether results can be shown in one table: they need one tier (scale of the experiment), one
utility, one price list and, per data set, the same cases. Each is read from the ``run.json`` that a job writes beside
its results."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..records import ProvenanceError, RunRecord, job_name
from ..settings import DECIDING, Settings, judging_models


def check_provenance(settings: Settings, evaluations: Iterable[Path]) -> None:
    """Raise :class:`ProvenanceError` unless these evaluation files can be shown in one table.

    The ``run.json`` beside each must agree with the settings in tier, utility, costs, and in the models that judge
    diagnoses and match requests, and be the record of the job that makes the file. Evaluations on one data set must be
    of the same cases. Each file must be unchanged since it was written. Where there is no ``run.json``, or it does not
    state a value, nothing is checked; an unreadable one is an error.
    """
    cases: dict[str, tuple[str, Path]] = {}  # by data set
    paths = {path.with_suffix(".run.json"): path for path in evaluations}
    for origin, record in _read_existing(paths):
        path = paths[origin]
        _check_job(record, origin, "evaluate_agent", {"run": path.parent.name, "dataset": path.stem})
        _check_unaltered(record, origin, {path.name})
        check_tier(settings, f"{path} (see {origin})", record.tier)
        _check_settings(settings, record, path, origin)
        if digest := record.input_digest("cases"):
            what = f"were made on different cases of {path.stem} (their run.json give different digests)"
            _require_same(cases, path.stem, digest, path, f"{what}; evaluate both again")


def _check_settings(settings: Settings, record: RunRecord, path: Path, origin: Path) -> None:
    """Raise ProvenanceError where the evaluation file ``path`` was made with another utility, other costs or other
    judges than the settings'. ``record`` is its ``run.json``, read from the file ``origin``."""
    for section in ("utility", "costs"):
        stated = record.parameters.get(section) or {}
        for name, value in getattr(settings, section).model_dump(mode="json").items():
            if name in stated and stated[name] != value:
                raise ProvenanceError(
                    f"{path}: was made with {section}.{name} = {stated[name]!r} (see {origin}), but the configuration "
                    f"says {value!r}; such figures do not share a table: evaluate it again or change the configuration"
                )
    models = judging_models(settings)
    for setting in DECIDING:  # the settings of the models on which verdicts depend
        model = models[setting].request_settings() if setting in models else None
        if record.parameters and record.parameters.get(setting) != model:
            raise ProvenanceError(
                f"{path}: was not made with the {setting} of this configuration (see {origin}); verdicts of different "
                "judges do not share a table: evaluate it again or change the configuration"
            )


def check_training(settings: Settings, results: Path, runs: Iterable[str]) -> None:
    """Raise :class:`ProvenanceError` where one of the training ``runs`` is of another tier than the settings, was
    trained on other cases than the others, has files that were changed, or a ``run.json`` that is unreadable or of
    another job. Where there is no ``run.json``, or it does not state a value, nothing is checked."""
    cases: dict[str, tuple[str, Path]] = {}
    for origin, record in _read_existing(results / "training" / run / "run.json" for run in runs):
        _check_job(record, origin, "train_policy", {"run": origin.parent.name})
        check_tier(settings, origin, record.tier)
        _check_unaltered(record, origin, {"metrics.jsonl", "timings.jsonl"})
        if digest := record.input_digest("cases"):
            what = "are of training on different cases (their digests differ)"
            _require_same(cases, "", digest, origin, f"{what}; train both again")


def check_prices(results: Path, datasets: Iterable[str]) -> None:
    """Raise :class:`ProvenanceError` where the cases of these data sets were priced by different price lists, overrides
    or cost settings, since their average would mix them; and for a ``run.json`` that is unreadable or of another job.
    Data sets without a ``run.json`` are passed over."""
    first: dict[str, tuple[Any, Path]] = {}
    for origin, record in _read_existing(results / "cases" / f"{dataset}.run.json" for dataset in datasets):
        _check_job(record, origin, "map_costs", {"dataset": origin.name.removesuffix(".run.json")})
        prices = record.parameters.get("costs"), record.input_digest("catalogue"), record.input_digest("overrides")
        what = "were priced by different catalogues, overrides or cost settings"
        _require_same(first, "", prices, origin, f"{what}; price both again")


def _require_same(first: dict[str, tuple[Any, Path]], name: str, value: Any, path: Path, problem: str) -> None:
    """Raise ProvenanceError with the ``problem`` unless the file ``path`` has the same ``value`` as the first file of
    this ``name``. ``first`` has the first values and their files; it is filled here."""
    first_value, first_path = first.setdefault(name, (value, path))
    if value != first_value:
        raise ProvenanceError(f"{path} and {first_path} {problem}")


def _check_job(record: RunRecord, origin: Path, stage: str, options: Mapping[str, str]) -> None:
    """Raise ProvenanceError unless the ``record`` in the file ``origin`` is of the job that makes the files beside it:
    the ``stage`` with these ``options``. A record that does not name its job passes."""
    is_of_stage, has_options = record.stage in ("", stage), record.options in ({}, options)
    if not (is_of_stage and has_options):
        raise ProvenanceError(f"{origin}: is the record of {job_name(record.stage, record.options)!r}, and not of "
                              f"{job_name(stage, options)}: files were moved or exchanged; put them back, or remove "
                              "them and start snakemake again")  # fmt: skip


def _check_unaltered(record: RunRecord, origin: Path, names: set[str]) -> None:
    """Raise ProvenanceError where one of the files ``names`` differs from its digest in the ``record``, whose file
    ``origin`` is beside them."""
    for path in record.altered_outputs(origin, names):
        remove, remake = shlex.join(["rm", str(path), str(origin)]), f"snakemake --cores all {shlex.quote(str(path))}"
        raise ProvenanceError(
            f"{path}: is not what was written (its digest differs from the one in {origin}): it was edited or damaged. "
            f"To make it again: {remove}; {remake}"
        )


def _read_existing(origins: Iterable[Path]) -> Iterator[tuple[Path, RunRecord]]:
    """Yield path and content of each of the ``run.json`` files that exists."""
    yield from ((origin, RunRecord.read(origin)) for origin in origins if origin.exists())


def check_tier(settings: Settings, path: Path | str, tier: str | None) -> None:
    """Raise :class:`ProvenanceError` where ``tier``, that of the file ``path``, is not the settings' tier (scale of the
    experiment). None, a tier that is not recorded, passes."""
    if tier not in (None, settings.tier):
        raise ProvenanceError(
            f"{path}: was made with tier = {tier!r}, but the configuration says {settings.tier!r}; such results are "
            "not shown together: make it again or change the configuration"
        )
