"""Checks that results may share a table: they have one tier, one utility, one cost map and, per data set, the same
cases."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..records import RunRecord, job_name
from ..settings import Settings, judging_models
from ..settings.judging import DECIDING


class ProvenanceError(ValueError):
    """Results that do not belong together; the message names both and what they differ in."""


def check_provenance(settings: Settings, evaluations: Iterable[Path]) -> None:
    """Refuse evaluations whose ``run.json`` contradicts the settings or, on one data set, each other.

    Each file must be the one that was written. Compared are the tier, the utility, the cost map and who judges and
    matches (with the settings) and the digest of the cases (among the runs on one data set). What a ``run.json`` does
    not state, or one that is absent, is let pass.
    Raises :class:`ProvenanceError`.
    """
    expected = {(section, name): value for section in ("utility", "costs")
                for name, value in getattr(settings, section).model_dump(mode="json").items()}  # fmt: skip
    models = judging_models(settings)
    judges = {where: models[where].request_settings() if where in models else None for where in DECIDING}
    cases: dict[str, tuple[str, Path]] = {}
    for path in evaluations:
        origin = path.with_suffix(".run.json")
        if not origin.exists():
            continue
        record = read_record(origin)
        _check_job(record, origin, "evaluate_agent", {"run": path.parent.name, "dataset": path.stem})
        _check_unaltered(record, origin, {path.name})
        check_tier(settings, f"{path} (see {origin})", record.tier)
        for (section, name), value in expected.items():
            stated = record.parameters.get(section) or {}
            if name in stated and stated[name] != value:
                raise ProvenanceError(
                    f"{path}: was made with {section}.{name} = {stated[name]!r} (see {origin}), but the configuration "
                    f"says {value!r}; such figures do not share a table: evaluate it again or change the configuration"
                )
        for where, model in judges.items():
            if record.parameters and record.parameters.get(where) != model:
                raise ProvenanceError(
                    f"{path}: was not made with the {where} of this configuration (see {origin}); verdicts of "
                    "different judges do not share a table: evaluate it again or change the configuration"
                )
        if (digest := record.input_digest("cases")) is not None:
            known, other = cases.setdefault(path.stem, (digest, path))
            if known != digest:
                raise ProvenanceError(f"{path} and {other} were made on different cases of {path.stem} (their "
                                      "run.json give different digests); evaluate both again")  # fmt: skip


def check_training(settings: Settings, results: Path, runs: Iterable[str]) -> None:
    """Refuse training runs of another tier than the settings', or on other cases than each other's. What a
    ``run.json`` does not state, or one that is absent, is let pass. Raises :class:`ProvenanceError`."""
    cases: dict[str, Path] = {}
    for origin, record in _records(results / "training" / run / "run.json" for run in runs):
        _check_job(record, origin, "train_policy", {"run": origin.parent.name})
        check_tier(settings, origin, record.tier)
        _check_unaltered(record, origin, {"metrics.jsonl", "timings.jsonl"})
        if (digest := record.input_digest("cases")) is not None:
            cases.setdefault(digest, origin)
        if len(cases) > 1:
            raise ProvenanceError(f"{origin} and {next(iter(cases.values()))} are of training on different cases "
                                  "(their digests differ); train both again")  # fmt: skip


def check_prices(results: Path, datasets: Iterable[str]) -> None:
    """Refuse data sets whose cases were priced by different catalogues or overrides, for their averages would mix
    them. Raises :class:`ProvenanceError`."""
    known: tuple[Any, Path] | None = None
    for origin, record in _records(results / "cases" / f"{dataset}.run.json" for dataset in datasets):
        _check_job(record, origin, "map_costs", {"dataset": origin.name.removesuffix(".run.json")})
        priced = [record.parameters.get("costs"), *map(record.input_digest, ("catalogue", "overrides"))]
        known = known or (priced, origin)
        if known[0] != priced:
            raise ProvenanceError(f"{origin} and {known[1]}: cases were priced by different catalogues, overrides or "
                                  "cost settings; price both again")  # fmt: skip


def _check_job(record: RunRecord, origin: Path, stage: str, options: Mapping[str, str]) -> None:
    """Refuse the record of another job than the one whose files are there; an older record names none."""
    if (record.stage or stage) != stage or (record.options or options) != options:
        raise ProvenanceError(f"{origin}: is the record of {job_name(record.stage, record.options)!r}, and not of "
                              f"{job_name(stage, options)}: files were moved or exchanged; put them back, or remove "
                              "them and start snakemake again")  # fmt: skip


def _check_unaltered(record: RunRecord, origin: Path, names: set[str]) -> None:
    for path in record.altered_outputs(origin, names):
        again = shlex.join(["rm", str(path), str(origin)]), shlex.join(["snakemake", "--cores", "all", str(path)])
        raise ProvenanceError(
            f"{path}: is not what was written (its digest differs from the one in {origin}): it was edited or damaged. "
            f"To make it again: {'; '.join(again)}"
        )


def _records(origins: Iterable[Path]) -> Iterator[tuple[Path, RunRecord]]:
    yield from ((origin, read_record(origin)) for origin in origins if origin.exists())


def read_record(path: Path) -> RunRecord:
    """Read a ``run.json``. Raises :class:`ProvenanceError` for one that cannot be read."""
    try:
        return RunRecord.read(path)
    except ValueError as error:
        raise ProvenanceError(str(error)) from error


def check_tier(settings: Settings, path: Path | str, tier: str | None) -> None:
    """Refuse what was made under another tier than the settings'. Raises :class:`ProvenanceError`."""
    if tier not in (None, settings.tier):
        raise ProvenanceError(
            f"{path}: was made with tier = {tier!r}, but the configuration says {settings.tier!r}; such results are "
            "not shown together: make it again or change the configuration"
        )
