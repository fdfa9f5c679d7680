"""Tables as ``tables.yaml`` declares them, written as CSV (plain values), Markdown and LaTeX (booktabs).

The HTML page shows the same cells (``report/templates/parts.html``). A row is a dict of values by column key, so a
missing value leaves only its own cell empty.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from .. import escape
from ..evaluation.metrics import IN_DOMAIN_METRICS, METRICS
from ..files import parse_yaml, shipped_text, write_text
from ..settings import Settings
from . import table_templates
from .methods import tier_mark

# Why a cell is emphasised: best or second best of its column, or a difference that is clearly better or worse
# (shown on the HTML page alone).
Mark = Literal["", "best", "second", "better", "worse"]
# Evaluations behind a number, as (run, data set): ``(("cdpr-seed0", "mimic_iv"),)``.
Runs = tuple[tuple[str, str], ...]
EMPTY = "—"  # the text of a cell without a value


@dataclass(frozen=True)
class Column:
    """A column of a table, which shows the value under ``key`` of each row.

    - ``header`` is printed above it, ``group`` above several neighbouring columns.
    - Floats are multiplied by ``factor`` and printed with ``decimals`` decimals (None: all), and with a plus sign if
      ``signed``. Other values are replaced by ``words``, which maps values to texts.
    - With ``interval``, the ends of the interval are shown, the row's values ``<key>_low`` and ``<key>_high``.
    - ``marked`` is how many of the best values are marked: the best (1), or also the second best (2), where
      ``higher_is_better`` says what is best. Only rows with a true ``learned`` take part.
    - ``align`` is l, c or r. A ``width``, a fraction of the line, lets LaTeX break lines.
    - The cells of a ``linked`` column carry the runs of their row, to which the HTML page links them.
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
    words: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Cell:
    """What a table shows in one row and column: a ``text``, why it is emphasised (``mark``), and the evaluations behind
    it (``runs``)."""

    text: str
    mark: Mark = ""
    runs: Runs = ()


# Values by column key; a row can hold more than the columns show. Some keys have a meaning of their own:
# - ``runs``: the evaluations behind the numbers of the row; ``private.runs``: those behind keys like ``private.aec``.
# - ``reason``: why the row has no numbers; it is shown across the row.
# - ``<key>_text``: what is shown in place of the value under ``<key>``.
# - ``<key>_mark``, ``<key>_runs``: the fields of the cell under ``<key>``.
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table, which a page shows below its ``heading``. ``notes`` are sentences below the table, and ``label`` is its
    LaTeX label. With ``by``, neighbouring rows with the same value under that key are printed below this value as their
    heading. ``wide`` tables span both columns of a page; a ``long`` table can break over pages of LaTeX."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    caption: str = ""
    notes: Sequence[str] = ()
    label: str = ""
    wide: bool = True
    long: bool = False
    by: str = ""
    heading: str = ""

    def lines(self) -> Iterator[str | Row]:
        """Yield the rows in order, and before each block of rows its heading as a text."""
        for heading, rows in itertools.groupby(self.rows, lambda row: row.get(self.by)):
            if heading:
                yield heading
            yield from rows

    def groups(self) -> list[tuple[str, int, int]]:
        """Return the headers above neighbouring columns of one group, as (text, number of the first column from 1,
        number of columns). Columns without a group have an empty text."""
        groups, first = [], 1
        for text, columns in itertools.groupby(self.columns, lambda column: column.group):
            count = len(list(columns))
            groups.append((text, first, count))
            first += count
        return groups

    def cell(self, row: Row, column: Column) -> Cell:
        """Return the cell of a row and column: its text, mark and runs. Where there is no value, its text is
        ``—``."""
        key = column.key
        text = row.get(f"{key}_text")
        if text is None:
            text = self._format(row, column)
        # The evaluations behind the cell: under its own key, else those of its data set, else those of the row.
        runs: Any = ()
        if text != EMPTY and f"{key}_runs" in row:
            runs = row[f"{key}_runs"]
        elif text != EMPTY and column.linked:
            dataset, _, _ = key.rpartition(".")  # "private" of "private.aec"
            runs = row.get(f"{dataset}.runs", row.get("runs", ()))
        mark = row.get(f"{key}_mark") or self._marks.get((id(row), key), "")
        return Cell(text, mark, runs)

    def _format(self, row: Row, column: Column) -> str:
        """Return the value of a row in a column as text, with its interval where the column shows intervals; ``—``
        without a value."""
        value, low, high = (row.get(f"{column.key}{end}") for end in ("", "_low", "_high"))
        if value is None:
            return EMPTY
        if column.interval and low is not None and high is not None:
            mean, low, high = (column.factor * end for end in (value, low, high))
            return interval(mean, low, high, column.decimals, signed=column.signed)
        if isinstance(value, float):
            return number(column.factor * value, column.decimals, column.signed)
        return str(column.words.get(value, value))

    @cached_property
    def _marks(self) -> dict[tuple[int, str], Mark]:
        """The marks of the best and second-best values, by row and key of the column. A row, a dict, cannot be a key:
        its ``id`` is. A column is marked where at least two rows have a value."""
        marks: dict[tuple[int, str], Mark] = {}
        for column in self.columns:
            # The values are ranked as they are printed, times the factor and rounded, so equal texts share a mark.
            values = {id(row): round(column.factor * row[column.key], column.decimals or 0) for row in self.rows
                      if row.get("learned") and isinstance(row.get(column.key), float)}  # fmt: skip
            if len(values) > 1:
                ranked = sorted(set(values.values()), reverse=column.higher_is_better)[: column.marked]
                mark_of: dict[float, Mark] = dict(zip(ranked, ("best", "second"), strict=False))
                marks |= {(row, column.key): mark_of.get(value, "") for row, value in values.items()}
        return marks


class Sheet:
    """Tables that are written together, and the same results as plain numbers for a CSV. ``tables.yaml`` declares them
    under the name of a ``group``.

    ``words`` fill the braces of its declarations, beside the words that all declarations can use. ``tables`` begins
    empty, and so does ``rows``, those of the CSV, whose columns the group declares too.
    """

    def __init__(self, settings: Settings, group: str, **words: Any):
        self.declared = declarations()[group]
        mark = tier_mark(settings)
        self.words: dict[str, Any] = {
            "mark": mark, "Mark": mark[0].upper() + mark[1:], "cost_unit": f"{settings.utility.cost_unit_usd:g}",
            "warning": "" if settings.tier == "paper" else "; not comparable with the synthetic tier",
        } | words  # fmt: skip
        self.tables: list[Table] = []
        self.rows: list[Row] = []

    def add(
        self, name: str, rows: Sequence[Row], decoding: str = "", columns: Sequence[Column] = (), **words: Any
    ) -> None:
        """Add a table of these rows as the group declares it under ``name``, such as ``levels``.

        ``columns`` are added after the declared ones, and ``decoding`` is that of the results. The braces of heading,
        caption, label and notes are filled by ``words``, by those of the sheet, and by the texts that ``tables.yaml``
        declares as ``words`` for several tables. Of the notes

        - one that is only ``{word}``, where the word is a list, becomes a note for each item of the list;
        - one with ``if`` is left out where the word that ``if`` names is empty or zero;
        - an empty one is left out.
        """
        declared = self.declared[name]
        words = self.words | {"decoding": decoding, "Decoding": decoding.capitalize()} | words
        words |= {word: text.format(**words) for word, text in declarations()["words"].items()}
        heading, caption, label = (declared.get(field, "").format(**words) for field in ("heading", "caption", "label"))
        all_columns = [*declared_columns(declared.get("columns", ()), words), *columns]
        notes: list[str] = []
        for note in declared.get("notes", ()):
            if isinstance(note, dict):
                note = note["text"] if words[note["if"]] else ""
            value = words.get(note.strip("{}"))  # found only where the whole note is one word in braces
            notes += value if isinstance(value, list) else [note.format(**words)]
        options = {name: declared[name] for name in ("by", "wide", "long") if name in declared}
        self.tables.append(Table(all_columns, rows, caption, notes=[note for note in notes if note],
                                 label=f"tab:{label}" if label else "", heading=heading, **options))  # fmt: skip

    def write(self, out: Mapping[str, Path]) -> None:
        """Write the sheet to the paths ``out["csv"]``, ``out["md"]`` and, where LaTeX is wanted, ``out["tex"]``."""
        keys = csv_columns(self.declared["csv"])
        write_text(out["csv"], to_csv(self.rows, keys, self.declared.get("decimals", 6)))
        write_text(out["md"], self.markdown())
        if "tex" in out:
            latex = "\n".join(map(to_latex, self.tables))
            write_text(out["tex"], f"% needs \\usepackage{{booktabs,longtable}}\n{latex}")

    def markdown(self) -> str:
        """Return a page as Markdown: the title, then each of the tables below its heading."""
        title = f"{self.declared['title'].format(**self.words)} ({self.words['mark']})"
        page = f"# {escape.markdown(title)}\n"
        for table in self.tables:
            page += f"\n## {escape.markdown(table.heading)}\n\n" + to_markdown(table)
        return page


@cache
def declarations() -> dict[str, Any]:
    """Read ``tables.yaml``: the declarations of tables, by group and by the name of the table."""
    return parse_yaml(shipped_text(__package__, "tables.yaml"))


def declared_columns(entries: Iterable[str | dict[str, Any]], words: Mapping[str, Any] | None = None) -> list[Column]:
    """Return the columns that the ``entries`` of a declaration declare: for a name, the shared column of this name; for
    ``{metrics: ...}``, a column per metric; for the fields of a column, this column. ``words`` fill the braces of its
    header."""
    columns: list[Column] = []
    for entry in entries:
        fields = declarations()["columns"][entry] if isinstance(entry, str) else entry
        if "metrics" in fields:
            columns += _metric_columns(**fields)
        else:
            columns.append(Column(**fields | {"header": fields["header"].format(**words or {})}))
    return columns


def _metric_columns(
    metrics: str | Sequence[str], prefix: str = "", short: bool = False, marked: int = 0
) -> Iterator[Column]:
    """Yield a column per metric that shows its mean with its 95% interval. ``metrics`` are their names
    (:func:`_metric_names`).

    With a ``prefix`` (``Δ``), which is put before the headers, the columns show differences, with their signs.
    ``short`` takes the short headers of the main table. ``marked`` is how many of the best values are marked.
    """
    for metric in (METRICS[name] for name in _metric_names(metrics)):
        header = metric.short if short and metric.short else metric.header
        yield Column(metric.name, f"{prefix}{header} [95%]", decimals=metric.decimals, factor=metric.factor,
                     signed=bool(prefix), interval=True, marked=marked,
                     higher_is_better=metric.higher_is_better)  # fmt: skip


def _metric_names(names: str | Sequence[str]) -> Sequence[str]:
    """Return names of metrics. A declaration lists them, or has a word in their place: ``all``; ``in_domain`` for the
    metrics of the in-domain tables; ``compared`` for the metrics of which the main table shows differences between
    methods."""
    if not isinstance(names, str):
        return names
    compared = [metric.name for metric in METRICS.values() if metric.compared]
    in_domain = [metric.name for metric in IN_DOMAIN_METRICS]
    return {"all": list(METRICS), "in_domain": in_domain, "compared": compared}[names]


def csv_columns(declared: Iterable[str | dict[str, Any]]) -> list[str]:
    """Return the columns of a CSV, each ``declared`` by its name; or as ``{estimates: ..., prefix: ...}`` for mean,
    both ends of the interval and deviation between seeds (``utility``, ``utility_low``, ``utility_high``,
    ``utility_seed_sd``) of each of the ``estimates``, whose names get the ``prefix``."""
    keys: list[str] = []
    for column in declared:
        if isinstance(column, str):
            keys.append(column)
        else:
            names = itertools.product(_metric_names(column["estimates"]), ("", "_low", "_high", "_seed_sd"))
            keys += [f"{column.get('prefix', '')}{name}{end}" for name, end in names]
    return keys


def to_csv(rows: Iterable[Row], keys: Sequence[str], decimals: int = 6) -> str:
    """Return the columns ``keys`` of the rows as the text of a CSV file.

    Floats are written with ``decimals`` decimals, booleans as ``true`` and ``false``, and the values of a list with
    spaces between. A None or missing value is an empty cell. Texts that a spreadsheet would run as a formula are made
    harmless (:func:`cdpr.escape.csv_cell`).
    """

    def plain_text(value: Any) -> str:
        """Return a value as text, in the forms above."""
        if value is None:
            return ""
        if isinstance(value, (list, tuple)):
            return " ".join(map(str, value))
        if isinstance(value, bool):
            return str(value).lower()
        return number(value, decimals) if isinstance(value, float) else str(value)

    cells = [[escape.csv_cell(plain_text(row.get(key))) for key in keys] for row in rows]
    return pd.DataFrame(cells, columns=list(keys), dtype=object).to_csv(index=False, lineterminator="\n")


def to_markdown(table: Table) -> str:
    """Return a table as Markdown: a pipe table with its notes as a list below it. The best values are **bold** and the
    second best underlined. A row without values shows the reason after its first cell."""
    return escape.environment(table_templates).get_template("table.md").render(table=table)


def to_latex(table: Table) -> str:
    """Return a table as a LaTeX ``table`` or ``longtable`` environment, which needs the packages booktabs and
    longtable."""
    # LaTeX itself has braces everywhere, so this template's tags are <% %>, << >> and <# #>.
    tags = {"block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "<<",
            "variable_end_string": ">>", "comment_start_string": "<#", "comment_end_string": "#>"}  # fmt: skip
    return escape.environment(table_templates, **tags).get_template("table.tex").render(table=table)


def add_prefix(prefix: str, row: Row) -> Row:
    """Return a copy of the row with a prefix before all its keys."""
    return {f"{prefix}{key}": value for key, value in row.items()}


def interval(mean: float, low: float, high: float, decimals: int | None = 2, *, signed: bool = False) -> str:
    """Format a mean with the ends of its interval: ``12.30 [10.10, 14.50]``."""
    return f"{number(mean, decimals, signed)} [{number(low, decimals, signed)}, {number(high, decimals, signed)}]"


def number(value: float, decimals: int | None = 2, signed: bool = False) -> str:
    """Format a number with ``decimals`` decimals (None: with all of them), never as ``-0.00``; ``signed`` writes a plus
    before positive numbers."""
    if decimals is None:
        return str(value)
    rounded = round(float(value), decimals) + 0.0  # -0.0 + 0.0 is 0.0
    sign = "+" if signed and rounded else ""  # the format of numbers with both signs; zero has none
    return f"{rounded:{sign}.{decimals}f}"
