"""Builds a catalogue of prices from fee schedules; ``examination_codes.csv`` gives the billing code of each
examination."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace

from ..files import TableError, path_digest, shipped_table, write_bytes, write_csv, write_text
from ..job import Job
from ..settings import FeeSchedules, Settings
from .fee_schedules import NATIONAL, Schedule, read_clfs, read_opps, read_pfs
from .price import COLUMNS, ORIGIN, SHIPPED, TABLES, load_catalogue

SCHEDULES = ("CLFS", "PFS", "OPPS")  # kinds of fee schedules: laboratory, physicians, hospital outpatients
FILES = ("clfs", "pfs", "gpci", "opps")  # the user's files: one for each kind, and geographic indices for the PFS
_MOST_LISTED = 100  # rejected rows of one file in the report


def build_catalogue(settings: Settings, job: Job) -> None:
    """Stage ``build_catalogue``: write a catalogue of prices from the user's fee schedules, and ``schedules.json``, a
    report on these files.

    An examination keeps its shipped price if its schedule was not given or has no price for its code. Raises TableError
    for a file that cannot be read, or that sets no price.
    """
    inputs = {name: job.inputs[name] for name in FILES if name in job.inputs}
    schedules = _read_schedules(settings.data.fee_schedules, inputs)
    folder = job.out["catalogue"]
    unchanged = write_catalogue(folder, schedules, shipped_table(__package__, TABLES[0]))
    prices, reports = load_catalogue(folder).prices, {}
    for kind in SCHEDULES:
        names = {coded.examination for coded in examination_codes() if coded.schedule == kind}
        priced = len(names.difference(unchanged))
        if kind in schedules:
            reports[kind] = _describe_schedule(schedules[kind], priced, len(names))
        else:
            print(f"{kind}: not given; {len(names)} examinations keep the shipped rates")
    report = {
        "files": {name: {"file": path.name, "sha256": path_digest(path)} for name, path in sorted(inputs.items())},
        "schedules": reports,
        "shipped_rates_kept": {name: prices[name].source for name in unchanged},
    }
    write_text(folder / "schedules.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    job.metrics.update(examinations=len(prices), kept=len(unchanged))
    print(f"{len(prices)} examinations priced, {len(unchanged)} of them at the shipped rate")


def examination_codes() -> list[SimpleNamespace]:
    """Return the shipped table of billing codes, one row per examination: its code, the schedule that prices it, how
    well the code fits, and why."""
    return [SimpleNamespace(**row) for row in shipped_table(__package__, "examination_codes.csv")]


def write_catalogue(
    folder: Path, schedules: Mapping[str, Schedule], before: Iterable[dict[str, str]] = ()
) -> list[str]:
    """Write a catalogue of prices to ``folder`` from ``schedules`` (by kind, such as ``CLFS``).

    Returns the examinations whose price was set by no schedule: theirs is missing, or has no price for their code. They
    keep their row in ``before``, the rows of an earlier catalogue. Raises TableError for an examination that has no
    price there either.
    """
    unchanged: list[str] = []
    rows: list[dict[str, str]] = []
    earlier = {row["examination"]: row for row in before}
    for coded in examination_codes():
        schedule, row = schedules.get(coded.schedule), earlier.get(coded.examination, {}) | vars(coded)
        usd = schedule.rate(coded.hcpcs) if schedule else None
        if schedule and usd is not None:
            row |= {name: getattr(schedule, name) for name in ORIGIN} | {"rate_usd": f"{usd:.2f}"}
        else:
            unchanged.append(coded.examination)
        if "rate_usd" not in row:
            raise TableError(f"{coded.examination}: the {coded.schedule} has no rate for {coded.hcpcs}")
        # A hospital procedure also has a price in a physician's office.
        if coded.schedule == "OPPS" and "PFS" in schedules:
            office = schedules["PFS"].rate(coded.hcpcs)
            row["office_usd"] = "" if office is None else f"{office:.2f}"
        rows.append({name: row.get(name, "") for name in COLUMNS})
    write_csv(folder / TABLES[0], COLUMNS, rows)
    write_bytes(folder / TABLES[1], (SHIPPED / TABLES[1]).read_bytes())
    return unchanged


def _read_schedules(chosen: FeeSchedules, inputs: dict[str, Path]) -> dict[str, Schedule]:
    """Read the fee schedules in the files ``inputs``; returns them by kind, such as ``CLFS``. ``chosen`` are the user's
    settings of these files. Raises TableError for a file that cannot be read or used."""
    if "gpci" in inputs and "pfs" not in inputs:
        raise TableError(f"{inputs['gpci']}: sets nothing without data.fee_schedules.pfs")
    factor, gpci = chosen.conversion_factor, inputs.get("gpci")
    pfs = functools.partial(read_pfs, conversion_factor=factor, locality=chosen.locality, gpci=gpci)
    readers: dict[str, Callable[[Path], Schedule]] = {"CLFS": read_clfs, "PFS": pfs, "OPPS": read_opps}
    return {kind: read(inputs[kind.lower()]) for kind, read in readers.items() if kind.lower() in inputs}


def _describe_schedule(schedule: Schedule, priced: int, examinations: int) -> dict[str, object]:
    """Describe what a file of rates gave, as a dictionary for ``schedules.json``, and print it in one line. ``priced``
    of the ``examinations`` of its kind got their price from it. Raises TableError if none did."""
    kind, rates, rejected = schedule.kind, len(schedule.rates), len(schedule.rejected)
    locality = "" if schedule.locality == NATIONAL else f" at {schedule.locality}"
    if not priced:
        problem = f"sets the rate of none of the {examinations} examinations that the {kind} prices"
        remedy = f"Give the whole file, or leave data.fee_schedules.{kind.lower()} empty"
        raise TableError(f"{schedule.path}: {problem}; its {rates} rates{locality} are of other codes. {remedy}")
    unpriced = f", {examinations - priced} keep the shipped rate" if priced < examinations else ""
    read = f"{rates} rates from {schedule.rows} rows ({schedule.left_out.total()} left out, {rejected} rejected)"
    print(f"{schedule.source}{locality}: {read}; sets {priced} of {examinations} examinations{unpriced}")
    return {
        "file": schedule.path.name,
        **{name: getattr(schedule, name) for name in ("source", "year", "release", "locality", "rows")},
        "rates": rates,
        "left_out": dict(sorted(schedule.left_out.items())),
        "rejected": rejected,
        "rejected_rows": schedule.rejected[:_MOST_LISTED],
        "notes": schedule.notes,
        "examinations": priced,
    }
