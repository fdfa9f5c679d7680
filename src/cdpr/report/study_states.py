"""The states of the expert study, each with what raters gave there and the way to the decision in the inspector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from ..inspector.data import address
from ..results.methods import DATASETS
from ..results.table import Cell, Column, Row, Table, Value
from ..settings import Settings
from ..study.records import StateMeans


def states_table(settings: Settings, means: Sequence[StateMeans], labels: dict[str, str]) -> Table:
    """One row per state, where ours (the first of ``labels``: run and what it is called) does best first. Actions are
    in the inspector alone: of credentialed cases they are case text."""
    by_state: dict[str, dict[str, StateMeans]] = {}
    for line in means:
        by_state.setdefault(line.state, {})[line.run] = line
    columns = [Column("state", "State", align="l"),
               *(Column(run, label) for run, label in labels.items()),
               Column("lead", "Ours above the mean of the others", signed=True)]  # fmt: skip
    rows = [_row(settings, lines, list(labels)) for lines in by_state.values()]
    rows.sort(key=_best_first)
    source = means[0].source
    note = f"To see the decisions, name {source} in inspector.runs."
    if source in settings.inspector.runs:
        note = "Every state leads to its decision in the inspector, which snakemake inspector makes."
    return Table(columns, rows, "Every state: means over raters and dimensions.", [note])


def _best_first(row: Row) -> float:
    lead = row.cells["lead"]
    return -lead if isinstance(lead, float) else math.inf


def _row(settings: Settings, lines: dict[str, StateMeans], runs: Sequence[str]) -> Row:
    place = next(iter(lines.values()))
    means = {run: _mean(lines[run]) for run in runs if run in lines}
    ours, others = means.get(runs[0]), [mean for run in runs[1:] if (mean := means.get(run)) is not None]
    cells: dict[str, Cell | Value] = dict(means)
    cells["lead"] = ours - fmean(others) if ours is not None and others else None
    link = address(place.source, place.dataset, case=place.note_id, decoding="greedy", turn=place.turn)
    linked = place.source in settings.inspector.runs
    text = f"{DATASETS[place.dataset]}, turn {place.turn + 1}"
    return Row(cells | {"state": Cell(text, link=link if linked else "")})


def _mean(line: StateMeans) -> float | None:
    known = [mean for mean in line.means.values() if mean is not None]
    return fmean(known) if known else None
