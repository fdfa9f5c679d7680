"""Which analytes make up which examination (``panels.csv``: examination, label, fluid in report order)."""

from __future__ import annotations

import functools

from ..files import shipped_table

ANY_LABEL = "*"


@functools.cache
def panels() -> tuple[tuple[str, str, str, int, int], ...]:
    """Rows (examination, label, fluid, place of the examination, place of the label); label ``*`` takes what no
    other row of its fluid names.

    Raises ValueError when one analyte stands in two examinations.
    """
    owner: dict[tuple[str, str], str] = {}
    first: dict[str, int] = {}
    rows = []
    for place, row in enumerate(shipped_table("cdpr.ingest", "panels.csv")):
        examination, label, fluid = row["examination"], row["label"], row["fluid"]
        if owner.setdefault((label, fluid), examination) != examination:
            raise ValueError(f"panels.csv: {label!r} ({fluid}) stands in {owner[label, fluid]!r} and {examination!r}")
        rows.append((examination, label, fluid, first.setdefault(examination, place), place))
    return tuple(rows)
