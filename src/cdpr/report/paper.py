"""Numbers printed in the paper, read from ``workflow/paper/*.csv``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..files import read_table
from ..settings import project_folder
from .table import Row, number

# By column of the printed tables, the name of our metric.
METRICS = {"acc": "accuracy", "aen": "aen", "aec": "aec"}


class PaperFactsError(ValueError):
    """A file of the paper's numbers that is missing or malformed; the message names file, line and field."""


def facts_folder() -> Path:
    """Return the path of ``workflow/paper`` in the checkout."""
    return project_folder() / "workflow/paper"


def printed_rows(file: str, *numeric: str) -> list[dict[str, Any]]:
    """Read a CSV file in ``workflow/paper`` as a dict per row, without the columns ``..._mark`` (what the paper prints
    bold or underlined). The columns ``numeric`` become floats, None where the paper prints nothing. Raises
    :class:`PaperFactsError` for a missing file or column, and a cell of these that is no number."""
    rows = []
    for location, cells in read_table(facts_folder() / file, numeric, PaperFactsError):
        row: dict[str, Any] = {name: cell for name, cell in cells.items() if not name.endswith("_mark")}
        for column in numeric:
            try:
                row[column] = float(cells[column]) if cells[column] else None
            except ValueError as error:
                raise PaperFactsError(f"{location}: field {column!r}: {error}") from error
        rows.append(row)
    return rows


def paper_cells(row: Row, names: Iterable[str]) -> dict[str, str | None]:
    """Return the columns ``names`` of a row of the paper as columns ``paper_<name>`` of a CSV, formatted with two
    decimals; None where the paper prints nothing."""
    return {f"paper_{name}": None if row[name] is None else number(row[name]) for name in names}
