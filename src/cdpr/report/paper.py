"""Figures printed in the paper, as facts with their place (``workflow/paper/*.csv``)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path


class PaperFactsError(ValueError):
    """A file of facts that is missing or malformed; the message names file, line and field."""


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's Table 1: accuracy in %, AEN, AEC in US dollars by data set (``average`` included)."""

    method: str
    group: str
    figures: dict[str, dict[str, float]]


def facts_folder() -> Path:
    """``workflow/paper`` of the checkout: below the working directory, else above this package."""
    candidates = [Path.cwd() / "workflow" / "paper", Path(__file__).resolve().parents[3] / "workflow" / "paper"]
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise PaperFactsError("workflow/paper was not found; run from the root of the checkout")


def read_main_results(path: str | Path | None = None) -> dict[str, PaperRow]:
    """Table 1 of the paper by method, in its order. Raises :class:`PaperFactsError`."""
    path = Path(path) if path else facts_folder() / "main_results.csv"
    rows: dict[str, PaperRow] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), 2):
            try:
                entry = rows.setdefault(row["method"], PaperRow(row["method"], row["group"], {}))
                entry.figures[row["dataset"]] = {name: float(row[name]) for name in ("acc", "aen", "aec")}
            except (KeyError, TypeError, ValueError) as error:
                raise PaperFactsError(f"{path}:{number}: {type(error).__name__}: {error}") from error
    return rows
