"""Stage ``build_catalogue``: the price catalogue from the user's own fee schedules."""

from __future__ import annotations

import json
from pathlib import Path

from ..costs import load_catalogue
from ..costs.build import SCHEDULES, build_catalogue
from ..costs.fee_schedules import NATIONAL, FeeScheduleError, Schedule, read_clfs, read_opps, read_pfs
from ..files import write_text
from ..job import Job
from ..run_key import path_digest
from ..settings import Settings
from ..settings.data import FeeSchedules

_LISTED = 100


def run(settings: Settings, job: Job) -> None:
    """Write the tables of a catalogue, and ``schedules.json``: what was read, what was left out, and why.

    Examinations of a schedule that is not given, or without a rate in it, keep the shipped rate.
    """
    schedules = _read(settings.data.fee_schedules, job.inputs)
    folder = job.out["catalogue"]
    kept = build_catalogue(folder, schedules, load_catalogue().prices)
    prices = load_catalogue(folder).prices
    report = {
        "files": {name: {"file": path.name, "sha256": path_digest(path)} for name, path in sorted(job.inputs.items())},
        "schedules": {kind: _told(schedule) for kind, schedule in schedules.items()},
        "shipped_rates_kept": {name: prices[name].source for name in kept},
    }
    write_text(folder / "schedules.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    job.metrics.update(examinations=len(prices), kept=len(kept))
    for kind in SCHEDULES:
        print(_line(kind, schedules.get(kind), sum(price.source.startswith(kind) for price in prices.values())))
    print(f"{len(prices)} examinations priced, {len(kept)} of them at the shipped rate")


def _read(chosen: FeeSchedules, inputs: dict[str, Path]) -> dict[str, Schedule]:
    if chosen.locality != NATIONAL and "pfs" not in inputs:
        raise FeeScheduleError(
            f"data.fee_schedules.locality is {chosen.locality!r}, but data.fee_schedules.pfs names no file"
        )
    schedules: dict[str, Schedule] = {}
    if "clfs" in inputs:
        schedules["CLFS"] = read_clfs(inputs["clfs"])
    if "pfs" in inputs:
        schedules["PFS"] = read_pfs(
            inputs["pfs"],
            conversion_factor=chosen.conversion_factor,
            locality=chosen.locality,
            gpci=inputs.get("gpci"),
            opps_cap=inputs.get("opps_cap"),
        )
    if "opps" in inputs:
        schedules["OPPS"] = read_opps(inputs["opps"])
    return schedules


def _told(schedule: Schedule) -> dict[str, object]:
    return {
        "file": schedule.path.name,
        "source": schedule.source,
        "year": schedule.year,
        "release": schedule.release,
        "locality": schedule.locality,
        "rows": schedule.rows,
        "rates": len(schedule.rates),
        "left_out": dict(sorted(schedule.left_out.items())),
        "rejected": len(schedule.rejected),
        "rejected_rows": schedule.rejected[:_LISTED],
        "notes": schedule.notes,
    }


def _line(kind: str, schedule: Schedule | None, examinations: int) -> str:
    if schedule is None:
        return f"{kind}: not given; {examinations} examinations keep the shipped rates"
    place = "" if schedule.locality == NATIONAL else f" at {schedule.locality}"
    return (
        f"{schedule.source}{place}: {len(schedule.rates)} rates from {schedule.rows} rows "
        f"({sum(schedule.left_out.values())} left out, {len(schedule.rejected)} rejected); {examinations} examinations"
    )
