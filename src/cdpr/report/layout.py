"""Tables as ``tables.yaml`` declares them: columns, caption and notes, with the words of the results at hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ..evaluation.metrics import METRICS
from ..files import parse_yaml, shipped_text
from ..settings import Settings
from . import comparisons
from .methods import tier_mark
from .table import Column, Row, Sheet, Table


def _paper(settings: Settings, decoding: str) -> str:
    warning = "" if settings.tier == "paper" else "; not comparable with the synthetic tier"
    return f"As printed in the paper (MIMIC-IV, Qwen3-4B{warning})"


# Words that every table may use.
_WORDS: dict[str, Callable[[Settings, str], str]] = {
    "decoding": lambda settings, decoding: decoding,
    "Decoding": lambda settings, decoding: decoding.capitalize(),
    "mark": lambda settings, decoding: tier_mark(settings),
    "in_domain": comparisons.in_domain_caption,
    "paired": lambda settings, decoding: comparisons.PAIRED_INTERVALS,
    "paper": _paper,
}


@cache
def _declared() -> dict[str, Any]:
    return parse_yaml(shipped_text(__package__, "tables.yaml"))


def title(settings: Settings, group: str) -> str:
    """Return the title of a group of tables, which names the tier."""
    return f"{_declared()[group]['title']} ({tier_mark(settings)})"


def declared_sheet(
    settings: Settings, group: str, parts: Sequence[tuple[str, Table]], rows: Sequence[Row], heading: str = "",
    printed: Sequence[Table] = (),
) -> Sheet:  # fmt: skip
    """Make a sheet: a group of tables below its declared title, or another ``heading``, and the same figures as plain
    ``rows``."""
    entry = _declared()[group]
    keys: list[str] = []
    for column in entry["csv"]:
        keys += [column] if isinstance(column, str) else _estimates(**column)
    return Sheet(heading or title(settings, group), parts, rows, keys, entry.get("decimals", 6), printed)


def _estimates(estimates: str | Sequence[str], prefix: str = "") -> Iterator[str]:
    """Yield, for each estimate, the columns of its mean, interval and seed deviation; ``all``: of all metrics."""
    names_of = {"all": list(METRICS), "in_domain": [metric.name for metric in comparisons.IN_DOMAIN_METRICS]}
    names = names_of[estimates] if isinstance(estimates, str) else estimates
    for name in names:
        yield from (f"{prefix}{name}{end}" for end in ("", "_low", "_high", "_seed_sd"))


def notes(group: str) -> list[str]:
    """Return the notes that a group of tables declares for all of them."""
    return list(_declared()[group]["notes"])


def shared(*names: str) -> list[Column]:
    """Return columns that several tables share."""
    return [Column(**_declared()["columns"][name]) for name in names]


def part(
    settings: Settings, name: str, rows: Sequence[Row], decoding: str = "", columns: Sequence[Column] = (), **words: Any
) -> tuple[str, Table]:
    """Make heading and table ``GROUP.TABLE`` of these rows. ``columns`` follow the declared ones. ``words`` fill
    braces; a note that is nothing but a word whose value is a list gives a note for each of its items."""
    group, _, table = name.partition(".")
    entry = _declared()[group][table]
    words |= {word: text_of(settings, decoding) for word, text_of in _WORDS.items() if f"{{{word}}}" in str(entry)}
    heading, caption, label = (entry.get(field, "").format(**words) for field in ("heading", "caption", "label"))
    columns = [*(column for declared in entry.get("columns", ()) for column in _columns(declared, words)), *columns]
    filled_notes = list(_filled(entry.get("notes", ()), words))
    label = f"tab:{label}" if label else ""
    return heading, Table(columns, rows, caption, filled_notes, label, entry.get("wide", True), entry.get("by", ""))


def _columns(entry: str | dict[str, Any], words: Mapping[str, Any]) -> Sequence[Column]:
    if isinstance(entry, str):
        return shared(entry)
    if "metrics" in entry:
        names = entry["metrics"]
        metrics = comparisons.IN_DOMAIN_METRICS if names == "in_domain" else [METRICS[name] for name in names]
        return comparisons.interval_columns(**entry | {"metrics": metrics})
    return [Column(**entry | {"header": entry["header"].format(**words)})]


def _filled(notes: Sequence[str], words: Mapping[str, Any]) -> Iterator[str]:
    for note in notes:
        value = words.get(note.strip("{}"))
        yield from value if isinstance(value, list) else filter(None, [note.format(**words)])
