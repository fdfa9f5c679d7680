"""The catalogue made from the fee schedules: ``examination_codes.csv`` says which code an examination has."""

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..files import write_csv, write_text
from ..job import Job
from ..settings import Settings
from ..settings.data import FeeSchedules
from .catalogue import COLUMNS, CONFIDENCES, TABLES, Price, load_catalogue, shipped_folder
from .fee_schedules import (
    CAPPED,
    NATIONAL,
    FeeScheduleError,
    Schedule,
    read_clfs,
    read_gpci,
    read_opps,
    read_pfs,
    split_codes,
)
from .tables import CatalogueError, read_table

SCHEDULES = ("CLFS", "PFS", "OPPS")
FILES = ("clfs", "pfs", "opps_cap", "gpci", "opps")
_LISTED = 100


class Coded(NamedTuple):
    """One examination's code: which schedule prices it, how well the code fits, and why this one."""

    examination: str
    hcpcs: str
    schedule: str
    billing_group: str
    confidence: str
    provenance: str


def build_catalogue(settings: Settings, job: Job) -> None:
    """Write the tables of a catalogue, and ``schedules.json``: what was read, what was left out, and why.

    Examinations of a schedule that is not given, or without a rate in it, keep the shipped rate.
    """
    given = {name: job.inputs[name] for name in FILES if name in job.inputs}
    schedules = _read(settings.data.fee_schedules, given)
    folder = job.out["catalogue"]
    kept = write_catalogue(folder, schedules, load_catalogue().prices)
    prices = load_catalogue(folder).prices
    priced = {kind: _priced(kind, schedule, kept) for kind, schedule in schedules.items()}
    report = {
        "files": {
            name: {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for name, path in sorted(given.items())
        },
        "schedules": {kind: _told(schedule) | {"examinations": priced[kind]} for kind, schedule in schedules.items()},
        "shipped_rates_kept": {name: prices[name].source for name in kept},
    }
    write_text(folder / "schedules.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    job.metrics.update(examinations=len(prices), kept=len(kept))
    for kind in SCHEDULES:
        of_kind = sum(coded.schedule == kind for coded in examination_codes())
        print(_line(kind, schedules.get(kind), priced.get(kind, 0), of_kind))
    for line in _lines_of_place(settings.data.fee_schedules, schedules.get("PFS"), given):
        print(line)
    print(f"{len(prices)} examinations priced, {len(kept)} of them at the shipped rate")


def examination_codes(path: Path | None = None) -> list[Coded]:
    """The mapping, by default the shipped one. Raises CatalogueError."""
    coded: dict[str, Coded] = {}
    for where, row in read_table(path or shipped_folder() / "examination_codes.csv", Coded._fields):
        if not row["examination"] or row["examination"] in coded:
            raise CatalogueError(f"{where}: field 'examination': empty, or stands twice")
        for field, known in (("schedule", SCHEDULES), ("confidence", CONFIDENCES)):
            if row[field] not in known:
                raise CatalogueError(f"{where}: field {field!r}: expected one of {', '.join(known)}")
        try:
            split_codes(row["hcpcs"])
        except ValueError as error:
            raise CatalogueError(f"{where}: field 'hcpcs': {error}") from error
        coded[row["examination"]] = Coded(**row)
    return list(coded.values())


def write_catalogue(
    folder: Path, schedules: Mapping[str, Schedule], before: Mapping[str, Price] | None = None
) -> list[str]:
    """Write the tables of a catalogue to a folder; returns the examinations that kept their rate of ``before``.

    An examination keeps the rate of ``before`` (default: none) when its schedule is not given, or has no rate for
    its code. Raises CatalogueError for one that then has no rate at all.
    """
    kept: list[str] = []
    rows: list[dict[str, object]] = []
    for coded in examination_codes():
        schedule, price = schedules.get(coded.schedule), (before or {}).get(coded.examination)
        usd = schedule.rate(coded.hcpcs) if schedule else None
        if schedule and usd is not None:
            price = Price(
                coded.examination, coded.hcpcs, usd, schedule.source, schedule.year, coded.billing_group,
                "name", schedule.locality, coded.confidence,
            )  # fmt: skip
        else:
            kept.append(coded.examination)
        if price is None:
            raise CatalogueError(f"{coded.examination}: the {coded.schedule} has no rate for {coded.hcpcs}")
        rows.append(vars(price) | {"rate_usd": f"{price.usd:.2f}", "billing_group": price.group})
    write_csv(folder / "catalogue.csv", COLUMNS, [{name: row[name] for name in COLUMNS} for row in rows])
    for name in TABLES[1:]:
        if (shipped_folder() / name).resolve() != (folder / name).resolve():
            shutil.copyfile(shipped_folder() / name, folder / name)
    load_catalogue(folder)
    return kept


def _read(chosen: FeeSchedules, inputs: dict[str, Path]) -> dict[str, Schedule]:
    if chosen.locality != NATIONAL and "pfs" not in inputs:
        raise FeeScheduleError(
            f"data.fee_schedules.locality is {chosen.locality!r}, but data.fee_schedules.pfs names no file"
        )
    for name in ("gpci", "opps_cap"):
        if name in inputs and "pfs" not in inputs:
            raise FeeScheduleError(f"{inputs[name]}: sets nothing without data.fee_schedules.pfs")
    readers: dict[str, Callable[[Path], Schedule]] = {
        "CLFS": read_clfs,
        "PFS": lambda path: read_pfs(
            path, conversion_factor=chosen.conversion_factor, locality=chosen.locality,
            gpci=inputs.get("gpci"), opps_cap=inputs.get("opps_cap"),
        ),
        "OPPS": read_opps,
    }  # fmt: skip
    return {kind: read(inputs[kind.lower()]) for kind, read in readers.items() if kind.lower() in inputs}


def _told(schedule: Schedule) -> dict[str, object]:
    kept = {name: getattr(schedule, name) for name in ("source", "year", "release", "locality", "rows")}
    return {
        "file": schedule.path.name, **kept, "rates": len(schedule.rates),
        "left_out": dict(sorted(schedule.left_out.items())), "rejected": len(schedule.rejected),
        "rejected_rows": schedule.rejected[:_LISTED], "notes": schedule.notes,
    }  # fmt: skip


def _priced(kind: str, schedule: Schedule, kept: Collection[str]) -> int:
    """How many examinations the file prices. Raises FeeScheduleError where it was given for nothing."""
    mine = [coded for coded in examination_codes() if coded.schedule == kind]
    set_here = sum(coded.examination not in kept for coded in mine)
    if not set_here:
        place = "" if schedule.locality == NATIONAL else f" at {schedule.locality}"
        raise FeeScheduleError(
            f"{schedule.path}: sets the rate of none of the {len(mine)} examinations that the {kind} prices; its "
            f"{len(schedule.rates)} rates{place} are of other codes. Give the whole file, or leave "
            f"data.fee_schedules.{kind.lower()} empty"
        )
    return set_here


def _line(kind: str, schedule: Schedule | None, priced: int, of_kind: int) -> str:
    if schedule is None:
        return f"{kind}: not given; {of_kind} examinations keep the shipped rates"
    place = "" if schedule.locality == NATIONAL else f" at {schedule.locality}"
    return (
        f"{schedule.source}{place}: {len(schedule.rates)} rates from {schedule.rows} rows "
        f"({sum(schedule.left_out.values())} left out, {len(schedule.rejected)} rejected); sets {priced} of {of_kind} "
        "examinations" + (f", {of_kind - priced} keep the shipped rate" if priced < of_kind else "")
    )


def _lines_of_place(chosen: FeeSchedules, schedule: Schedule | None, inputs: Mapping[str, Path]) -> Iterator[str]:
    if schedule is not None and "gpci" in inputs:
        place = read_gpci(inputs["gpci"], chosen.locality)
        told = f"work {place.work}, practice expense {place.expense}, malpractice {place.malpractice}"
        yield f"GPCI: {place.name}, {told}"
    if schedule is not None and "opps_cap" in inputs:
        read = (
            f"{schedule.notes[f'{what} imaging caps']} {what.split()[0]}" for what in ("rows of", "localities with")
        )
        yield f"OPPSCAP: {schedule.notes[CAPPED]} rates have a published cap ({', '.join(read)})"
