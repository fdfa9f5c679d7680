"""The catalogue made from the fee schedules: ``examination_codes.csv`` says which code an examination has."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .catalogue import COLUMNS, CONFIDENCES, TABLES, Price, load_catalogue, shipped_folder
from .fee_schedules import NATIONAL, Schedule, split_codes
from .tables import CatalogueError, read_table

SCHEDULES = ("CLFS", "PFS", "OPPS")
_CODE_COLUMNS = ("examination", "hcpcs", "schedule", "billing_group", "confidence", "provenance")


@dataclass(frozen=True)
class Coded:
    """One examination's code: which schedule prices it, how well the code fits, and why this one."""

    examination: str
    hcpcs: str
    schedule: str
    billing_group: str
    confidence: str
    provenance: str


def examination_codes(path: Path | None = None) -> list[Coded]:
    """The mapping, by default the shipped one. Raises CatalogueError."""
    path, rows, seen = path or shipped_folder() / "examination_codes.csv", [], set()
    for line, row in read_table(path, _CODE_COLUMNS):
        if not row["examination"] or row["examination"] in seen:
            raise CatalogueError(f"{path}:{line}: field 'examination': empty, or stands twice")
        seen.add(row["examination"])
        for field, known in (("schedule", SCHEDULES), ("confidence", CONFIDENCES)):
            if row[field] not in known:
                raise CatalogueError(f"{path}:{line}: field {field!r}: expected one of {', '.join(known)}")
        try:
            split_codes(row["hcpcs"])
        except ValueError as error:
            raise CatalogueError(f"{path}:{line}: field 'hcpcs': {error}") from error
        rows.append(Coded(**row))
    return rows


def build_catalogue(folder: Path, schedules: Mapping[str, Schedule], before: Mapping[str, Price] | None = None):
    """Write the tables of a catalogue to a folder; returns the examinations that kept their rate of ``before``.

    An examination keeps the rate of ``before`` (default: none) when its schedule is not given, or has no rate for
    its code. Raises CatalogueError for one that then has no rate at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept: list[str] = []
    with (folder / "catalogue.csv").open("w", encoding="utf-8", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(COLUMNS)
        for coded in examination_codes():
            price = _priced(coded, schedules.get(coded.schedule))
            if price is None:
                price = (before or {}).get(coded.examination)
                kept.append(coded.examination)
            if price is None:
                raise CatalogueError(f"{coded.examination}: the {coded.schedule} has no rate for {coded.hcpcs}")
            table.writerow(
                (price.examination, price.hcpcs, f"{price.usd:.2f}", price.source, price.year, price.locality,
                 price.group or "", price.confidence)
            )  # fmt: skip
    for name in TABLES[1:]:
        if (shipped_folder() / name).resolve() != (folder / name).resolve():
            shutil.copyfile(shipped_folder() / name, folder / name)
    load_catalogue(folder)
    return kept


def _priced(coded: Coded, schedule: Schedule | None) -> Price | None:
    usd = schedule.rate(coded.hcpcs) if schedule is not None else None
    if usd is None:
        return None
    locality = schedule.locality if coded.schedule == "PFS" else NATIONAL
    return Price(
        coded.examination, coded.hcpcs, usd, schedule.source, schedule.year, coded.billing_group or None, "name",
        locality, coded.confidence,
    )  # fmt: skip
