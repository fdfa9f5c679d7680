"""Tables as ``tables.yaml`` declares them: columns, caption and notes, whose words in braces are filled in."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ..evaluation.metrics import METRICS, Metric
from ..files import parse_yaml, shipped_text
from ..settings import Settings
from .methods import tier_mark
from .results import IN_DOMAIN_METRICS
from .table import Column, Row, Sheet, Table


@cache
def _declared() -> dict[str, Any]:
    """Read ``tables.yaml``: the declarations of tables, by group and by the name of the table."""
    return parse_yaml(shipped_text(__package__, "tables.yaml"))


def declared_sheet(
    settings: Settings, group: str, tables: Sequence[Table], rows: Sequence[Row], heading: str = ""
) -> Sheet:
    """Make a sheet of ``tables``, below the title that ``tables.yaml`` declares for their ``group``, or below another
    ``heading``.

    ``rows`` have the same numbers unformatted, for the CSV, whose columns the group declares too.
    """
    declared = _declared()[group]
    heading = heading or f"{declared['title']} ({tier_mark(settings)})"
    return Sheet(heading, tables, rows, csv_columns(group), declared.get("decimals", 6))


def csv_columns(group: str) -> list[str]:
    """Return the columns that a ``group`` of tables declares for its CSV."""
    keys: list[str] = []
    for column in _declared()[group]["csv"]:  # a name, or {estimates: ..., prefix: ...}
        keys += [column] if isinstance(column, str) else _estimate_columns(**column)
    return keys


def _estimate_columns(estimates: str | Sequence[str], prefix: str = "") -> Iterator[str]:
    """Yield the CSV columns of estimates: mean, both ends of the interval, and deviation between seeds (``utility``,
    ``utility_low``, ``utility_high``, ``utility_seed_sd``). ``estimates`` are their names (:func:`_names`). ``prefix``
    is put before every name."""
    for name in _names(estimates):
        yield from (f"{prefix}{name}{end}" for end in ("", "_low", "_high", "_seed_sd"))


def _names(names: str | Sequence[str]) -> Sequence[str]:
    """Return names of metrics. A declaration lists them, or has a word in their place: ``all``; ``in_domain`` for the
    metrics of the in-domain tables; ``compared`` for the metrics of which the main table shows differences between
    methods."""
    if not isinstance(names, str):
        return names
    in_domain = [metric.name for metric in IN_DOMAIN_METRICS]
    compared = [metric.name for metric in METRICS.values() if metric.compared]
    return {"all": list(METRICS), "in_domain": in_domain, "compared": compared}[names]


def shared_columns(*names: str) -> list[Column]:
    """Return the columns of these ``names`` that ``tables.yaml`` declares for several tables."""
    return [Column(**_declared()["columns"][name]) for name in names]


def table(
    settings: Settings, name: str, rows: Sequence[Row], decoding: str = "", columns: Sequence[Column] = (), **words: Any
) -> Table:
    """Make a table of these rows as ``tables.yaml`` declares it under ``name``, such as ``ablations.levels`` (group and
    table).

    ``columns`` are added after the declared ones, and ``decoding`` is that of the results. The braces of heading,
    caption, label and notes are filled by ``words``, by :func:`_shared_words`, and by the texts that ``tables.yaml``
    declares as ``words`` for several tables. Of the notes

    - one that is only ``{word}``, where the word is a list, becomes a note for each item of the list;
    - one with ``if`` is left out where the word that ``if`` names is empty or zero;
    - an empty one is left out.
    """
    group, _, table_name = name.partition(".")
    declared = _declared()[group][table_name]
    words = _shared_words(settings, decoding) | words
    words |= {word: text.format(**words) for word, text in _declared()["words"].items()}
    heading, caption, label = (declared.get(field, "").format(**words) for field in ("heading", "caption", "label"))
    all_columns = [column for entry in declared.get("columns", ()) for column in _declared_columns(entry, words)]
    table_notes: list[str] = []
    for note in declared.get("notes", ()):
        if isinstance(note, dict):
            note = note["text"] if words[note["if"]] else ""
        value = words.get(note.strip("{}"))  # found only where the whole note is one word in braces
        table_notes += value if isinstance(value, list) else [note.format(**words)]
    options = {name: declared[name] for name in ("by", "wide", "long") if name in declared}
    return Table([*all_columns, *columns], rows, caption, notes=[note for note in table_notes if note],
                 label=f"tab:{label}" if label else "", heading=heading, **options)  # fmt: skip


def _shared_words(settings: Settings, decoding: str) -> dict[str, str]:
    """Return the words that every declaration can use in braces."""
    mark = tier_mark(settings)
    return {
        "decoding": decoding, "Decoding": decoding.capitalize(), "mark": mark, "Mark": mark[0].upper() + mark[1:],
        "cost_unit": f"{settings.utility.cost_unit_usd:g}",
        "warning": "" if settings.tier == "paper" else "; not comparable with the synthetic tier",
    }  # fmt: skip


def _declared_columns(entry: str | dict[str, Any], words: Mapping[str, Any]) -> Sequence[Column]:
    """Return the columns that one ``entry`` under ``columns`` of a declaration declares: for a name, the shared column
    of this name; for ``{metrics: ...}``, a column per metric; for the fields of a column, this column, with ``words``
    in the braces of its header."""
    if isinstance(entry, str):
        return shared_columns(entry)
    if "metrics" in entry:
        metrics = [METRICS[name] for name in _names(entry["metrics"])]
        return interval_columns(**entry | {"metrics": metrics})
    return [Column(**entry | {"header": entry["header"].format(**words)})]


def interval_columns(metrics: Sequence[Metric], prefix: str = "", short: bool = False, marked: int = 0) -> list[Column]:
    """Return a column per metric that shows its mean with its 95% interval.

    With a ``prefix`` (``Δ``), which is put before the headers, the columns show differences, with their signs.
    ``short`` takes the short headers of the main table. ``marked`` is how many of the best values are marked.
    """
    columns = []
    for metric in metrics:
        header = metric.short if short and metric.short else metric.header
        columns.append(Column(metric.name, f"{prefix}{header} [95%]", decimals=metric.decimals, factor=metric.factor,
                              signed=bool(prefix), interval=True, marked=marked,
                              higher_is_better=metric.higher_is_better))  # fmt: skip
    return columns
