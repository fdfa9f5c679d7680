"""A table: rows of a frame with columns, caption and notes; and its forms: CSV with plain values, Markdown to read,
LaTeX (booktabs) to print; the HTML page shows the same cells (``report/templates/parts.html``).

A row holds values by column key, so a missing value leaves its own cell empty and can shift nothing.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from .. import escape
from ..files import write_text

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
    with the ends ``<key>_low`` and ``<key>_high`` of the row. So many of the best values are ``marked`` among rows
    that are ``learned``. Numbers that are ``linked`` lead to the runs behind them.
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

    def text(self, value: Any, signed: bool = False, factor: float = 1.0) -> str:
        """A value as printed; floats alone are numbers with decimals."""
        return number(factor * value, self.decimals, signed) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Cell:
    """What a table shows in a row and column: a text, how it stands out, the runs behind it, a ``note`` below it, and
    where it leads to on the page, below the results folder (``link``)."""

    text: str
    mark: Mark = ""
    runs: Runs = ()
    note: str = ""
    link: str = ""


# Values by column key; a row may hold more than the columns show. `runs` are the evaluations behind its numbers, `hole`
# says why it has none and is shown across it. Beside a value, `<key>_text` is shown in its place, `<key>_mark`,
# `<key>_note`, `<key>_link` and `<key>_runs` are those of its cell. Values of `SET.metric` have the runs of `SET.runs`.
Row = Mapping[str, Any]


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
        """Headings and rows."""
        for heading, rows in groupby(self.rows, lambda row: row.get(self.by)):
            yield from [heading] if heading else []
            yield from rows

    def cell(self, row: Row, column: Column) -> Cell:
        """What is shown in a row and column; an empty cell where there is no value."""
        key, value = column.key, row.get(column.key)
        beside = {name: row.get(f"{key}_{name}") for name in ("text", "mark", "note", "link", "runs")}
        if (text := beside["text"]) is None:
            ends = [row.get(f"{key}{end}") for end in ("", "_low", "_high")] if column.interval else [None]
            if None not in ends:
                text = interval(*(end * column.factor for end in ends), column.decimals, signed=column.signed)
            else:
                text = EMPTY if value is None else column.text(value, column.signed, column.factor)
        runs = row.get(f"{key.rpartition('.')[0]}.runs", row.get("runs", ())) if column.linked else ()
        mark = beside["mark"] or self._marks.get((id(row), key), "")
        return Cell(text, mark, beside["runs"] or runs if text != EMPTY else (), beside["note"] or "",
                    beside["link"] or "")  # fmt: skip

    @cached_property
    def _marks(self) -> dict[tuple[int, str], Mark]:
        """Marks by row and column, where at least two rows compete: one alone is the best of nothing."""
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
        write_text(out["md"], markdown_page(self.title, [(title, to_markdown(table)) for title, table in self.parts]))
        write_text(out["tex"], "% needs \\usepackage{booktabs}\n" + "\n".join(map(to_latex, printed)))


@dataclass(frozen=True)
class Warned:
    """A paragraph that nobody may miss."""

    text: str


# What stands below a heading: a table, a paragraph, a list, a warning.
Block = Table | str | Sequence[str] | Warned


def to_csv(rows: Iterable[Row], keys: Sequence[str], decimals: int = 6) -> str:
    """Values only: numbers with so many decimals, empty where there is none, texts as of
    :func:`cdpr.escape.csv_cell`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for row in rows:
        texts = (
            number(v, decimals) if isinstance(v, float) else "" if v is None else str(v) for v in map(row.get, keys)
        )
        writer.writerow(map(escape.csv_cell, texts))
    return out.getvalue()


def to_markdown(block: Block) -> str:
    """A table as a pipe table, marks as **bold** and underline, notes as a list, a hole in the first cell; texts as
    they are."""
    if isinstance(block, Warned):
        return f"**Warning:** {escape.sentence(block.text)}\n"
    if isinstance(block, str):
        return f"{escape.sentence(block)}\n" if block else ""
    if not isinstance(block, Table):
        return "".join(f"- {escape.sentence(item)}\n" for item in block)
    heads = [escape.markdown(f"{column.group} {column.header}".strip()) for column in block.columns]
    body = [heads, [{"l": ":--", "c": ":-:", "r": "--:"}[column.align] for column in block.columns]]
    for row in block.lines():
        if isinstance(row, str):
            body.append([f"***{escape.markdown(row)}***", *[""] * (len(heads) - 1)])
        elif hole := row.get("hole"):
            first = escape.markdown(block.cell(row, block.columns[0]).text)
            body.append([f"{first} — *{escape.markdown(hole)}*", *[EMPTY] * (len(heads) - 1)])
        else:
            body.append(_printed(block, row, escape.markdown, _MARKDOWN))
    lines = [escape.sentence(block.caption), ""] if block.caption else []
    lines += ["| " + " | ".join(cells) + " |" for cells in body]
    lines += ["", *(f"- {escape.sentence(note)}" for note in block.notes)] if block.notes else []
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """A ``table`` environment for a document that loads booktabs; no other package is needed."""
    environment, width = "table*" if table.wide else "table", len(table.columns)
    places = "".join(f"p{{{c.width}\\linewidth}}" if c.width else c.align for c in table.columns)
    lines = [f"\\begin{{{environment}}}[t]", "\\centering", f"\\caption{{{escape.latex(table.caption)}}}"]
    lines += [f"\\label{{{table.label}}}"] if table.label else []
    lines += ["\\scriptsize", "\\setlength{\\tabcolsep}{3pt}", f"\\begin{{tabular}}{{{places}}}", "\\toprule"]
    lines += [*_latex_header(table.columns), "\\midrule"]
    for position, row in enumerate(table.lines()):
        if isinstance(row, str):
            lines += ["\\midrule"] if position else []
            lines.append(f"\\multicolumn{{{width}}}{{l}}{{\\textit{{\\textbf{{{escape.latex(row)}}}}}}} \\\\")
        elif hole := row.get("hole"):
            first = escape.latex(table.cell(row, table.columns[0]).text)
            lines.append(f"{first} & \\multicolumn{{{width - 1}}}{{l}}{{\\textit{{{escape.latex(hole)}}}}} \\\\")
        else:
            lines.append(" & ".join(_printed(table, row, escape.latex, _LATEX)) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}"]
    if table.notes:
        lines.append("\\par\\smallskip\\begin{minipage}{\\linewidth}\\raggedright\\scriptsize")
        lines += [*(f"{escape.latex(note)}\\par" for note in table.notes), "\\end{minipage}"]
    return "\n".join([*lines, f"\\end{{{environment}}}"]) + "\n"


def marks(values: Mapping[Any, float | None], decimals: int, *, higher_is_better: bool) -> dict[Any, Mark]:
    """Best and second-best among the values there are, judged as printed: ties share a mark."""
    rounded = {name: round(value, decimals) for name, value in values.items() if value is not None}
    ranked = sorted(set(rounded.values()), reverse=higher_is_better)
    places: dict[float, Mark] = dict(zip(ranked, ("best", "second"), strict=False))
    return {name: places.get(value, "") for name, value in rounded.items()}


def interval(mean: float, low: float, high: float, decimals: int | None = 2, *, signed: bool = False) -> str:
    """``12.3 [10.1, 14.5]``."""
    return f"{number(mean, decimals, signed)} [{number(low, decimals, signed)}, {number(high, decimals, signed)}]"


def number(value: float, decimals: int | None = 2, signed: bool = False) -> str:
    """A number as printed; there is no negative zero."""
    if decimals is None:
        return str(value)
    rounded = round(float(value), decimals) + 0.0
    return f"{rounded:{'+' if signed and rounded else ''}.{decimals}f}"


def markdown_page(title: str, parts: Iterable[tuple[str, str]]) -> str:
    """A page with one heading per part."""
    return "\n".join([f"# {escape.markdown(title)}", "",
                      *(f"## {escape.markdown(heading)}\n\n{text}" for heading, text in parts)])  # fmt: skip


# Marks in each form; a mark that is not here changes nothing.
_MARKDOWN = {"best": "**{}**", "total": "**{}**", "second": "<ins>{}</ins>"}
_LATEX = {"best": "\\textbf{{{}}}", "total": "\\textbf{{{}}}", "second": "\\underline{{{}}}"}


def _printed(table: Table, row: Row, form: Callable[[str], str], marks: Mapping[str, str]) -> list[str]:
    cells = (table.cell(row, column) for column in table.columns)
    return [marks.get(cell.mark, "{}").format(form(cell.text)) for cell in cells]


def _latex_header(columns: Sequence[Column]) -> list[str]:
    lines = []
    if any(column.group for column in columns):
        cells, rules, start = [], [], 1
        for group, members in groupby(columns, key=lambda column: column.group):
            width = len(list(members))
            head = f"\\multicolumn{{{width}}}{{c}}{{\\textbf{{{escape.latex(group)}}}}}"
            cells.append(head if group else " & " * (width - 1))
            rules += [f"\\cmidrule(lr){{{start}-{start + width - 1}}}"] if group else []
            start += width
        lines += [" & ".join(cells) + " \\\\", " ".join(rules)]
    return [*lines, " & ".join(f"\\textbf{{{escape.latex(column.header)}}}" for column in columns) + " \\\\"]
