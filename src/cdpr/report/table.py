"""A table: rows of a frame with columns, caption and notes; and its forms: CSV with plain values, Markdown to read,
LaTeX (booktabs) to print; the HTML page shows the same cells (``report/templates/parts.html``).

A row holds values by column key, so a missing value leaves its own cell empty and can shift nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from .. import escape
from ..files import write_text
from . import table_templates

# How a cell stands out: among the rows of its column, as a sum, or (on the page) in whose favour a difference is.
Mark = Literal["", "best", "second", "total", "better", "worse"]
# Evaluations, as (run, data set).
Runs = tuple[tuple[str, str], ...]
EMPTY = "—"


@dataclass(frozen=True)
class Column:
    """A column: ``key`` addresses it, ``header`` and ``group`` (a header above several columns) are shown.

    ``decimals`` formats numbers (None: as they are), which are shown times ``factor``; ``signed`` writes a plus,
    ``align`` is l, c or r. A ``width``, a share of the line, lets LaTeX break lines in it. An ``interval`` is shown
    with the ends ``<key>_low`` and ``<key>_high`` of the row. ``marked`` is how many of the best values are marked,
    among the rows that are ``learned``. Numbers that are ``linked`` lead to the runs behind them. A ``unit`` follows
    numbers; ``words`` are shown for values.
    """

    key: str
    header: str
    group: str = ""
    decimals: int | None = 2
    align: Literal["l", "c", "r"] = "r"
    signed: bool = False
    width: float = 0.0
    factor: float = 1.0
    interval: bool = False
    marked: int = 0
    higher_is_better: bool = False
    linked: bool = True
    unit: str = ""
    words: Mapping[str, str] = field(default_factory=dict, hash=False)

    def text(self, value: Any, signed: bool = False, factor: float = 1.0) -> str:
        """Format a value; floats alone are numbers with decimals."""
        if isinstance(value, float):
            return number(factor * value, self.decimals, signed) + self.unit
        return str(self.words.get(value, value))


@dataclass(frozen=True)
class Cell:
    """The content of a table in a row and column: a text, its mark, the runs behind it, a ``note`` below it, and the
    address of its link on the page, below the results folder (``link``)."""

    text: str
    mark: Mark = ""
    runs: Runs = ()
    note: str = ""
    link: str = ""


# Values by column key; a row may hold more than the columns show. `runs` are the evaluations behind its numbers,
# `reason` says why it has none and is shown across it. Beside a value, `<key>_text` is shown in its place,
# `<key>_mark`, `<key>_note`, `<key>_link` and `<key>_runs` are those of its cell. Values of `SET.metric` have the runs
# of `SET.runs`.
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table. ``label`` is LaTeX's; ``notes`` are shown below. Rows with the same value of ``by`` have it as a
    heading."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    caption: str = ""
    notes: Sequence[str] = ()
    label: str = ""
    wide: bool = True
    by: str = ""

    def lines(self) -> Iterator[str | Row]:
        """Yield headings and rows."""
        for heading, rows in groupby(self.rows, lambda row: row.get(self.by)):
            yield from [heading] if heading else []
            yield from rows

    def groups(self) -> list[tuple[str, int, int]]:
        """List the headers above neighbouring columns: text, number of the first column, and how many columns."""
        runs = groupby(enumerate(self.columns, 1), lambda at: at[1].group)
        return [(group, members[0][0], len(members)) for group, run in runs if (members := list(run))]

    def cell(self, row: Row, column: Column) -> Cell:
        """Make the cell of a row and column, empty where there is no value."""
        key, value = column.key, row.get(column.key)
        beside = {name: row.get(f"{key}_{name}") for name in ("text", "mark", "note", "link", "runs")}
        if (text := beside["text"]) is None:
            ends: list[Any] = [row.get(f"{key}{end}") for end in ("", "_low", "_high")] if column.interval else [None]
            if None not in ends:
                value, low, high = (end * column.factor for end in ends)
                text = interval(value, low, high, column.decimals, signed=column.signed)
            else:
                text = EMPTY if value is None else column.text(value, column.signed, column.factor)
        runs: Any = row.get(f"{key.rpartition('.')[0]}.runs", row.get("runs", ())) if column.linked else ()
        mark = beside["mark"] or self._marks.get((id(row), key), "")
        return Cell(text, mark, beside["runs"] or runs if text != EMPTY else (), beside["note"] or "",
                    beside["link"] or "")  # fmt: skip

    @cached_property
    def _marks(self) -> dict[tuple[int, str], Mark]:
        """Find marks by row and column, where at least two rows compete: one alone is the best of nothing."""
        marked: dict[tuple[int, str], Mark] = {}
        for c in (column for column in self.columns if column.marked):
            rivals = {id(row): c.factor * row[c.key] for row in self.rows
                      if row.get("learned") and isinstance(row.get(c.key), float)}  # fmt: skip
            ranks = marks(rivals, c.decimals or 0, higher_is_better=c.higher_is_better) if len(rivals) > 1 else {}
            marked |= {(row, c.key): mark for row, mark in ranks.items() if mark in ("best", "second")[: c.marked]}
        return marked


@dataclass(frozen=True)
class Sheet:
    """Tables that are shown together, each below its heading; ``rows`` have the same figures as plain numbers, of which
    CSV holds the columns ``keys``. ``printed`` are the tables in the form for print, where they differ."""

    title: str
    parts: Sequence[tuple[str, Table]]
    rows: Sequence[Row]
    keys: Sequence[str]
    decimals: int = 6
    printed: Sequence[Table] = ()

    def write(self, out: Mapping[str, Path]) -> None:
        """Write ``csv`` (the plain numbers), ``md`` and ``tex`` to their paths."""
        printed = self.printed or [table for _, table in self.parts]
        write_text(out["csv"], to_csv(self.rows, self.keys, self.decimals))
        write_text(out["md"], markdown_page(self.title, self.parts))
        write_text(out["tex"], "% needs \\usepackage{booktabs}\n" + "\n".join(map(to_latex, printed)))


@dataclass(frozen=True)
class Warned:
    """A paragraph that the page shows as a warning."""

    text: str


# What stands below a heading: a table, a paragraph, a list, a warning.
Block = Table | str | Sequence[str] | Warned


def to_csv(rows: Iterable[Row], keys: Sequence[str], decimals: int = 6) -> str:
    """Write values only: numbers with so many decimals, empty where there is none, texts as of
    :func:`cdpr.escape.csv_cell`."""

    def plain(value: Any) -> str:
        return number(value, decimals) if isinstance(value, float) else "" if value is None else str(value)

    cells = [[escape.csv_cell(plain(row.get(key))) for key in keys] for row in rows]
    return pd.DataFrame(cells, columns=list(keys), dtype=object).to_csv(index=False, lineterminator="\n")


def to_markdown(block: Block) -> str:
    """Write a table as a pipe table, marks as **bold** and underline, notes as a list, a missing row's reason beside
    its first cell; texts as they are."""
    return escape.environment(table_templates).get_template("block.md").render(block=block)


def to_latex(table: Table) -> str:
    """Write a ``table`` environment for a document that loads booktabs; no other package is needed."""
    signs = dict(zip(("block", "variable", "comment"), (("<%", "%>"), ("<<", ">>"), ("<#", "#>")), strict=True))
    syntax = {f"{what}_{end}_string": sign for what, pair in signs.items()
              for end, sign in zip(("start", "end"), pair, strict=True)}  # fmt: skip
    return escape.environment(table_templates, **syntax).get_template("table.tex").render(table=table)


def marks(values: Mapping[Any, float | None], decimals: int, *, higher_is_better: bool) -> dict[Any, Mark]:
    """Mark best and second-best among the values there are, judged as printed: ties share a mark."""
    rounded = {name: round(value, decimals) for name, value in values.items() if value is not None}
    ranked = sorted(set(rounded.values()), reverse=higher_is_better)
    places: dict[float, Mark] = dict(zip(ranked, ("best", "second"), strict=False))
    return {name: places.get(value, "") for name, value in rounded.items()}


def interval(mean: float, low: float, high: float, decimals: int | None = 2, *, signed: bool = False) -> str:
    """Format an interval: ``12.3 [10.1, 14.5]``."""
    return f"{number(mean, decimals, signed)} [{number(low, decimals, signed)}, {number(high, decimals, signed)}]"


def number(value: float, decimals: int | None = 2, signed: bool = False) -> str:
    """Format a number; there is no negative zero."""
    if decimals is None:
        return str(value)
    rounded = round(float(value), decimals) + 0.0
    return f"{rounded:{'+' if signed and rounded else ''}.{decimals}f}"


def markdown_page(title: str, parts: Iterable[tuple[Any, ...]]) -> str:
    """Write a page of parts, each a heading and the blocks below it."""
    texts = [f"## {escape.markdown(heading)}\n\n" + "\n".join(map(to_markdown, blocks)) for heading, *blocks in parts]
    return "\n".join([f"# {escape.markdown(title)}", "", *texts])
