"""Figures printed in the paper, as facts with their place (``workflow/paper/*.csv``)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import read_table

METRICS = ("acc", "aen", "aec")


class PaperFactsError(ValueError):
    """A file of facts that is missing or malformed; the message names file, line and field."""


def facts_folder() -> Path:
    """``workflow/paper`` of the checkout: below the working directory, else above this package."""
    for root in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder := root / "workflow" / "paper").is_dir():
            return folder
    raise PaperFactsError("workflow/paper was not found; run from the root of the checkout")


def printed_rows(file: str, *values: str) -> list[dict[str, Any]]:
    """Rows of a file below ``workflow/paper`` with the columns ``values`` as numbers (None where nothing is printed).

    Raises :class:`PaperFactsError`.
    """
    return [row | {name: _number(where, row, name) for name in values}
            for where, row in read_table(facts_folder() / file, values, PaperFactsError)]  # fmt: skip


def read_paper(folder: str | Path | None = None) -> dict[str, float]:
    """Every number of a folder (default: ``workflow/paper``) by address: ``main:CDPR-4B:average.acc``,
    ``ablation:w/o R_proc:aen``, ``dynamic:CDPR:aec``, ``expert:CDPR:diagnostic_gain``, ``text:K``. Raises
    :class:`PaperFactsError`."""
    folder = Path(folder) if folder else facts_folder()
    numbers: dict[str, float | None] = {}
    tables = {"main": "main_results.csv", "ablation": "ablation.csv", "dynamic": "dynamic_vs_static.csv"}
    for table, name in tables.items():
        for where, row in read_table(folder / name, ("method", "acc"), PaperFactsError):
            for metric in (m for m in (*METRICS, "aec_reduction_percent") if m in row):
                column = f"{row['dataset']}.{metric}" if table == "main" else metric
                numbers[f"{table}:{row['method']}:{column}"] = _number(where, row, metric)
    for where, row in read_table(folder / "expert_study.csv", ("method", "dimension", "score"), PaperFactsError):
        numbers[f"expert:{row['method']}:{row['dimension']}"] = _number(where, row, "score")
    for where, row in read_table(folder / "text.csv", ("id", "value"), PaperFactsError):
        if row["value"].replace(".", "", 1).isdigit():
            numbers.setdefault(f"text:{row['id']}", _number(where, row, "value"))
    return {address: number for address, number in numbers.items() if number is not None}


def sample_prices() -> dict[str, float]:
    """Prices of the paper's sample record in USD, by examination as our catalogue calls it."""
    from ..costs.catalogue import load_catalogue

    return dict(load_catalogue().paper)


def _number(where: str, row: Mapping[str, str], column: str) -> float | None:
    try:
        return float(row[column]) if row[column] else None
    except ValueError as error:
        raise PaperFactsError(f"{where}: field {column!r}: {error}") from error
