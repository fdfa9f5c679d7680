"""Results that may share a table: made under one tier, one utility, one cost map and, per data set, the same cases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..settings import Settings


class ProvenanceError(ValueError):
    """Results that do not belong together; the message names both and what they differ in."""


def check_provenance(settings: Settings, evaluations: Iterable[Path]) -> None:
    """Refuse evaluations whose ``run.json`` contradicts the settings or, on one data set, each other.

    Compared are the tier, the utility and the cost map (with the settings) and the digest of the cases (among the
    runs on one data set). What a ``run.json`` does not state, or one that is absent, is let pass. Raises
    :class:`ProvenanceError`.
    """
    wanted = {"tier": settings.tier}
    for section in ("utility", "costs"):
        values = getattr(settings, section).model_dump(mode="json")
        wanted |= {f"{section}.{name}": value for name, value in values.items()}
    cases: dict[str, tuple[str, Path]] = {}
    for path in evaluations:
        record = find_record(path)
        if record is None:
            continue
        content = read_record(record)
        stated = _stated(content)
        for name, value in wanted.items():
            if name in stated and stated[name] != value:
                raise ProvenanceError(
                    f"{path}: was made with {name} = {stated[name]!r} (see {record}), but the configuration says "
                    f"{value!r}; such figures do not share a table: evaluate it again or change the configuration"
                )
        digest = _cases_digest(content)
        if digest is not None:
            known, other = cases.setdefault(path.stem, (digest, path))
            if known != digest:
                raise ProvenanceError(f"{path} and {other} were made on different cases of {path.stem} (their "
                                      "run.json give different digests); evaluate both again")  # fmt: skip


def check_training(settings: Settings, results: Path, runs: Iterable[str]) -> None:
    """Refuse training runs of another tier than the settings', or on other cases than each other's. What a
    ``run.json`` does not state, or one that is absent, is let pass. Raises :class:`ProvenanceError`."""
    known: tuple[str, Path] | None = None
    for run in runs:
        record = results / "training" / run / "run.json"
        if not record.exists():
            continue
        content = read_record(record)
        check_tier(settings, record, content)
        digest = _cases_digest(content)
        if digest is not None:
            known = known or (digest, record)
            if known[0] != digest:
                raise ProvenanceError(f"{record} and {known[1]} are of training on different cases (their digests "
                                      "differ); train both again")  # fmt: skip


def check_prices(results: Path, datasets: Iterable[str]) -> None:
    """Refuse data sets whose cases were priced by different catalogues or overrides, for their averages would mix
    them. Raises :class:`ProvenanceError`."""
    known: tuple[Any, Path] | None = None
    for dataset in datasets:
        record = results / "cases" / f"{dataset}.run.json"
        if not record.exists():
            continue
        content = read_record(record)
        inputs = content.get("inputs") or {}
        priced = [(content.get("parameters") or {}).get("costs")]
        priced += [(inputs.get(name) or {}).get("sha256") for name in ("catalogue", "overrides")]
        known = known or (priced, record)
        if known[0] != priced:
            raise ProvenanceError(f"{record} and {known[1]}: cases were priced by different catalogues, overrides or "
                                  "cost settings; price both again")  # fmt: skip


def find_record(evaluation: Path) -> Path | None:
    """The ``run.json`` of ``.../{run}/{dataset}.jsonl``: of the data set, else of the whole run, else None."""
    names = (f"{evaluation.stem}.run.json", "run.json")
    return next((path for name in names if (path := evaluation.with_name(name)).exists()), None)


def read_record(path: Path) -> Mapping[str, Any]:
    """The object in a ``run.json`` or another file that a stage wrote. Raises :class:`ProvenanceError`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ProvenanceError(f"{path}: not JSON ({error}); delete it and run its stage again") from error
    if not isinstance(content, dict):
        raise ProvenanceError(f"{path}: expected an object, found {type(content).__name__}; make it again")
    return content


def check_tier(settings: Settings, path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a record that states another tier than the settings. Raises :class:`ProvenanceError`."""
    tier = _stated(content).get("tier", settings.tier)
    if tier != settings.tier:
        raise ProvenanceError(
            f"{path}: was made with tier = {tier!r}, but the configuration says {settings.tier!r}; such results are "
            "not shown together: make it again or change the configuration"
        )


def _stated(content: Mapping[str, Any]) -> dict[str, Any]:
    parameters = content.get("parameters") or {}
    stated = {}
    for section in ("utility", "costs"):
        values = content.get(section) or parameters.get(section) or {}
        stated |= {f"{section}.{name}": value for name, value in values.items()}
    tier = content.get("tier", parameters.get("tier"))
    return stated if tier is None else stated | {"tier": tier}


def _cases_digest(content: Mapping[str, Any]) -> str | None:
    cases = (content.get("inputs") or {}).get("cases")
    return cases.get("sha256") if isinstance(cases, dict) else None
