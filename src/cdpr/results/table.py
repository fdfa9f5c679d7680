"""A table of typed cells and its forms: CSV with plain values, Markdown to read, LaTeX (booktabs) to print; the HTML
page shows the same cells (``report/templates/parts.html``).

Cells are addressed by column key, so a missing value leaves its own place empty and can shift nothing.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from .. import escape
from ..files import write_text

Value = float | int | str | None
# How a cell stands out: among the rows of its column, as a sum, or (on the page) in whose favour a difference is.
Mark = Literal["", "best", "second", "total", "better", "worse"]
# Evaluations, as (run, data set).
Runs = tuple[tuple[str, str], ...]
EMPTY = "—"


@dataclass(frozen=True)
class Column:
    """A column: ``key`` addresses it, ``header`` and ``group`` (a header above several columns) are shown.

    ``decimals`` formats numbers (None: as they are), which are shown times ``factor``; ``signed`` writes a plus,
    ``align`` is l, c or r. A ``width``, a share of the line, lets LaTeX break lines in it.
    """

    key: str
    header: str
    group: str = ""
    decimals: int | None = 2
    align: Literal["l", "c", "r"] = "r"
    signed: bool = False
    width: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True)
class Cell:
    """A value, how it stands out, and the runs behind it; ``text`` is shown in its place but in CSV, ``note`` below it
    on the page; ``link`` is where it leads there, below the results folder."""

    value: Value = None
    mark: Mark = ""
    text: str | None = None
    runs: Runs = ()
    note: str = ""
    link: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading between rows."""

    title: str


# Cells or plain values by column key; a row may hold more than the columns show. Its ``hole`` says why it holds no
# figures, and is shown across it.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table. ``label`` is LaTeX's; ``notes`` stand below."""

    columns: Sequence[Column]
    rows: Sequence[Row | Heading]
    caption: str = ""
    notes: Sequence[str] = ()
    label: str = ""
    wide: bool = True

    def cell(self, row: Row, column: Column) -> Cell:
        """What stands in a row and column; an empty cell where nothing does."""
        content = row.get(column.key)
        return content if isinstance(content, Cell) else Cell(content)

    def cell_text(self, row: Row, column: Column) -> str:
        """The text of a cell."""
        cell = self.cell(row, column)
        if cell.text is not None:
            return cell.text
        value = column.factor * cell.value if isinstance(cell.value, float) else cell.value
        return EMPTY if value is None else _text(column, value, column.signed)


@dataclass(frozen=True)
class Sheet:
    """Tables that are shown together, each below its heading, and the same figures as plain numbers. ``printed`` are
    the tables in the form for print, where they differ."""

    title: str
    parts: Sequence[tuple[str, Table]]
    plain: Table
    printed: Sequence[Table] = ()

    def write(self, out: Mapping[str, Path]) -> None:
        """Write ``csv`` (the plain numbers), ``md`` and ``tex`` to their paths."""
        printed = self.printed or [table for _, table in self.parts]
        write_text(out["csv"], to_csv(self.plain))
        write_text(out["md"], markdown_page(self.title, [(title, to_markdown(table)) for title, table in self.parts]))
        write_text(out["tex"], "% needs \\usepackage{booktabs}\n" + "\n".join(map(to_latex, printed)))


@dataclass(frozen=True)
class Warned:
    """A paragraph that nobody may miss."""

    text: str


# What stands below a heading: a table, a paragraph, a list, a warning.
Block = Table | str | Sequence[str] | Warned


def to_csv(table: Table) -> str:
    """Values only: numbers rounded to the column's decimals, empty where there is none, texts as of
    :func:`cdpr.escape.csv_cell`; headings are left out."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    for row in table.rows:
        if not isinstance(row, Heading):
            values = [(column, table.cell(row, column).value) for column in table.columns]
            texts = ("" if value is None else _text(column, value) for column, value in values)
            writer.writerow(map(escape.csv_cell, texts))
    return out.getvalue()


def to_markdown(block: Block) -> str:
    """A table as a pipe table, marks as **bold** and underline, notes as a list, a hole in the first cell.
    Paragraphs, items, captions and notes are our own sentences."""
    if isinstance(block, Warned):
        return f"**Warning:** {escape.sentence(block.text)}\n"
    if isinstance(block, str):
        return f"{escape.sentence(block)}\n" if block else ""
    if not isinstance(block, Table):
        return "".join(f"- {escape.sentence(item)}\n" for item in block)
    heads = [escape.markdown(f"{column.group} {column.header}".strip()) for column in block.columns]
    body = [heads, [{"l": ":--", "c": ":-:", "r": "--:"}[column.align] for column in block.columns]]
    for row in block.rows:
        if isinstance(row, Heading):
            body.append([f"***{escape.markdown(row.title)}***", *[""] * (len(heads) - 1)])
        elif hole := row.get("hole"):
            first = escape.markdown(block.cell_text(row, block.columns[0]))
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
    for position, row in enumerate(table.rows):
        if isinstance(row, Heading):
            lines += ["\\midrule"] if position else []
            lines.append(f"\\multicolumn{{{width}}}{{l}}{{\\textit{{\\textbf{{{escape.latex(row.title)}}}}}}} \\\\")
        elif hole := row.get("hole"):
            first = escape.latex(table.cell_text(row, table.columns[0]))
            lines.append(f"{first} & \\multicolumn{{{width - 1}}}{{l}}{{\\textit{{{escape.latex(hole)}}}}} \\\\")
        else:
            lines.append(" & ".join(_printed(table, row, escape.latex, _LATEX)) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}"]
    if table.notes:
        lines.append("\\par\\smallskip\\begin{minipage}{\\linewidth}\\raggedright\\scriptsize")
        lines += [*(f"{escape.latex(note)}\\par" for note in table.notes), "\\end{minipage}"]
    return "\n".join([*lines, f"\\end{{{environment}}}"]) + "\n"


def marks(values: Mapping[str, float | None], decimals: int, *, higher_is_better: bool) -> dict[str, Mark]:
    """Best and second-best among the values there are, judged as printed: ties share a mark."""
    rounded = {name: round(value, decimals) for name, value in values.items() if value is not None}
    ranked = sorted(set(rounded.values()), reverse=higher_is_better)
    places: dict[float, Mark] = dict(zip(ranked, ("best", "second"), strict=False))
    return {name: places.get(value, "") for name, value in rounded.items()}


def interval(mean: float, low: float, high: float, decimals: int = 2, *, signed: bool = False) -> str:
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


def _text(column: Column, value: Value, signed: bool = False) -> str:
    return number(value, column.decimals, signed) if isinstance(value, float) else str(value)


# Marks in each form; a mark that is not here changes nothing.
_MARKDOWN = {"best": "**{}**", "total": "**{}**", "second": "<ins>{}</ins>"}
_LATEX = {"best": "\\textbf{{{}}}", "total": "\\textbf{{{}}}", "second": "\\underline{{{}}}"}


def _printed(table: Table, row: Row, form: Callable[[str], str], marks: Mapping[str, str]) -> list[str]:
    return [marks.get(table.cell(row, column).mark, "{}").format(form(table.cell_text(row, column)))
            for column in table.columns]  # fmt: skip


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
