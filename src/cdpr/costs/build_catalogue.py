"""A catalogue from fee schedules; ``examination_codes.csv`` maps examinations to codes."""

import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from ..files import write_csv, write_text
from ..job import Job
from ..settings import Settings
from ..settings.data import FeeSchedules
from .catalogue import COLUMNS, TABLES, CatalogueError, Price, load_catalogue, read_table, shipped_folder
from .fee_schedules import (
    NATIONAL,
    FeeScheduleError,
    Schedule,
    read_clfs,
    read_gpci,
    read_opps,
    read_pfs,
)

SCHEDULES = ("CLFS", "PFS", "OPPS")
FILES = ("clfs", "pfs", "gpci", "opps")
_LISTED = 100


class Coded(NamedTuple):
    """The code of one examination, its schedule, the fit of the code, and the reason for it."""

    examination: str
    hcpcs: str
    schedule: str
    billing_group: str
    confidence: str
    provenance: str


def build_catalogue(settings: Settings, job: Job) -> None:
    """Stage ``build_catalogue``: write the tables of a catalogue, and ``schedules.json``, the report on the files.

    Examinations of a missing schedule, or without a rate in their schedule, keep the shipped rate.
    """
    inputs = {name: job.inputs[name] for name in FILES if name in job.inputs}
    schedules = _read(settings.data.fee_schedules, inputs)
    folder = job.out["catalogue"]
    keys = write_catalogue(folder, schedules, load_catalogue().prices)
    prices = load_catalogue(folder).prices
    priced = {kind: _priced(kind, schedule, keys) for kind, schedule in schedules.items()}
    report = {
        "files": {
            name: {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for name, path in sorted(inputs.items())
        },
        "schedules": {kind: _report(schedule) | {"examinations": priced[kind]} for kind, schedule in schedules.items()},
        "shipped_rates_kept": {name: prices[name].source for name in keys},
    }
    write_text(folder / "schedules.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    job.metrics.update(examinations=len(prices), kept=len(keys))
    for kind in SCHEDULES:
        of_kind = sum(coded.schedule == kind for coded in examination_codes())
        print(_line(kind, schedules.get(kind), priced.get(kind, 0), of_kind))
    if "gpci" in inputs:
        place = read_gpci(inputs["gpci"], settings.data.fee_schedules.locality)
        print(
            f"GPCI: {place.name}, work {place.work}, practice expense {place.expense}, malpractice {place.malpractice}"
        )
    print(f"{len(prices)} examinations priced, {len(keys)} of them at the shipped rate")


def examination_codes() -> list[Coded]:
    """The shipped mapping."""
    return [Coded(**row) for _, row in read_table(shipped_folder() / "examination_codes.csv", Coded._fields)]


def write_catalogue(
    folder: Path, schedules: Mapping[str, Schedule], before: Mapping[str, Price] | None = None
) -> list[str]:
    """Write the tables of a catalogue to a folder; returns the examinations at their rate of ``before``.

    An examination keeps the rate of ``before`` (default: none) when its schedule is missing, or has no rate for its
    code. Raises CatalogueError for one that then has no rate at all.
    """
    unchanged: list[str] = []
    rows: list[dict[str, object]] = []
    for coded in examination_codes():
        schedule, price = schedules.get(coded.schedule), (before or {}).get(coded.examination)
        usd = schedule.rate(coded.hcpcs) if schedule else None
        if schedule and usd is not None:
            origin = schedule.source, schedule.year, coded.billing_group, "name", schedule.locality, coded.confidence
            price = Price(coded.examination, coded.hcpcs, usd, *origin)
        else:
            unchanged.append(coded.examination)
        if price is None:
            raise CatalogueError(f"{coded.examination}: the {coded.schedule} has no rate for {coded.hcpcs}")
        rows.append(vars(price) | {"rate_usd": f"{price.usd:.2f}", "billing_group": price.group})
    write_csv(folder / "catalogue.csv", COLUMNS, [{name: row[name] for name in COLUMNS} for row in rows])
    for name in TABLES[1:]:
        if (shipped_folder() / name).resolve() != (folder / name).resolve():
            shutil.copyfile(shipped_folder() / name, folder / name)
    return unchanged


def _read(chosen: FeeSchedules, inputs: dict[str, Path]) -> dict[str, Schedule]:
    if chosen.locality != NATIONAL and "pfs" not in inputs:
        raise FeeScheduleError(
            f"data.fee_schedules.locality is {chosen.locality!r}, but data.fee_schedules.pfs names no file"
        )
    if "gpci" in inputs and "pfs" not in inputs:
        raise FeeScheduleError(f"{inputs['gpci']}: sets nothing without data.fee_schedules.pfs")
    readers: dict[str, Callable[[Path], Schedule]] = {
        "CLFS": read_clfs,
        "PFS": functools.partial(
            read_pfs,
            conversion_factor=chosen.conversion_factor,
            locality=chosen.locality,
            gpci=inputs.get("gpci"),
        ),
        "OPPS": read_opps,
    }
    return {kind: read(inputs[kind.lower()]) for kind, read in readers.items() if kind.lower() in inputs}


def _report(schedule: Schedule) -> dict[str, object]:
    return {
        "file": schedule.path.name,
        **{name: getattr(schedule, name) for name in ("source", "year", "release", "locality", "rows")},
        "rates": len(schedule.rates),
        "left_out": dict(sorted(schedule.left_out.items())),
        "rejected": len(schedule.rejected),
        "rejected_rows": schedule.rejected[:_LISTED],
        "notes": schedule.notes,
    }


def _priced(kind: str, schedule: Schedule, keys: Collection[str]) -> int:
    """The number of examinations that the file prices. Raises FeeScheduleError for a file without effect."""
    of_kind = [coded for coded in examination_codes() if coded.schedule == kind]
    priced = sum(coded.examination not in keys for coded in of_kind)
    if not priced:
        place = "" if schedule.locality == NATIONAL else f" at {schedule.locality}"
        raise FeeScheduleError(
            f"{schedule.path}: sets the rate of none of the {len(of_kind)} examinations that the {kind} prices; its "
            f"{len(schedule.rates)} rates{place} are of other codes. Give the whole file, or leave "
            f"data.fee_schedules.{kind.lower()} empty"
        )
    return priced


def _line(kind: str, schedule: Schedule | None, priced: int, of_kind: int) -> str:
    if schedule is None:
        return f"{kind}: not given; {of_kind} examinations keep the shipped rates"
    place = "" if schedule.locality == NATIONAL else f" at {schedule.locality}"
    return (
        f"{schedule.source}{place}: {len(schedule.rates)} rates from {schedule.rows} rows "
        f"({sum(schedule.left_out.values())} left out, {len(schedule.rejected)} rejected); sets {priced} of {of_kind} "
        "examinations" + (f", {of_kind - priced} keep the shipped rate" if priced < of_kind else "")
    )
