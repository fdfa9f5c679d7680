"""Figures printed in the paper, as facts with their place (``workflow/paper/*.csv``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..files import read_table

METRICS = ("acc", "aen", "aec")


class PaperFactsError(ValueError):
    """A file of facts that is missing or malformed; the message names file, line and field."""


class Printed(Fraction):
    """A number as printed, exact in calculations; rounding may hide up to ``half`` a unit of its last place, and
    nothing where it was set or counted, not measured."""

    text: str
    half: Fraction

    @classmethod
    def of(cls, text: str) -> Printed:
        """A measured figure: ``"2.10"`` is 2.10 ± 0.005. Raises ValueError for what is no number."""
        number = cls.exactly(text)
        number.half = Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
        return number

    @classmethod
    def exactly(cls, text: str) -> Printed:
        """A setting, a count or a price. Raises ValueError for what is no number."""
        number = cls(text)
        number.text, number.half = text, Fraction(0)
        return number


@dataclass(frozen=True)
class Statement:
    """What the text says of a quantity, in one place: a number or a word."""

    value: str
    about: str
    place: str


@dataclass(frozen=True)
class PaperFacts:
    """All facts. ``numbers`` and ``marks`` by address: ``main:CDPR-4B:average.acc``, ``ablation:w/o R_proc:aen``,
    ``dynamic:CDPR:aec``, ``expert:CDPR:diagnostic_gain``, ``text:K``, ``price:<examination>`` (sample record),
    ``schedule:<examination>`` (our catalogue, from the fee schedules that the paper names). ``groups``: group of each
    row by table. ``statements`` by id, one per place."""

    numbers: Mapping[str, Printed]
    marks: Mapping[str, str]
    groups: Mapping[str, Mapping[str, str]]
    statements: Mapping[str, tuple[Statement, ...]]

    def __getitem__(self, address: str) -> Printed:
        return self.numbers[address]

    def rows(self, table: str = "main") -> list[str]:
        """Rows of a table, in its order."""
        return list(self.groups[table])

    def column(self, column: str, rows: Iterable[str] = (), table: str = "main") -> dict[str, Printed]:
        """Figures of a column by row: of the rows named, by default of all."""
        return {row: self[f"{table}:{row}:{column}"] for row in rows or self.rows(table)}

    def cases(self, dataset: str) -> int:
        """Stated number of test cases."""
        return int(self[f"text:cases.{dataset}"])


def facts_folder() -> Path:
    """``workflow/paper`` of the checkout: below the working directory, else above this package."""
    for root in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder := root / "workflow" / "paper").is_dir():
            return folder
    raise PaperFactsError("workflow/paper was not found; run from the root of the checkout")


def printed_rows(file: str, *values: str) -> Iterator[dict[str, Any]]:
    """Rows of a file below ``workflow/paper`` with the columns ``values`` as numbers (None where nothing is printed).

    Raises :class:`PaperFactsError`.
    """
    for where, row in read_table(facts_folder() / file, error=PaperFactsError):
        with _at(where):
            read = {name: float(row[name]) if row[name] else None for name in values}
        yield row | read


def read_paper(folder: str | Path | None = None) -> PaperFacts:
    """All facts of a folder (default: ``workflow/paper``). Raises :class:`PaperFactsError`."""
    folder = Path(folder) if folder else facts_folder()
    numbers: dict[str, Printed] = {}
    marks: dict[str, str] = {}
    groups: dict[str, dict[str, str]] = {"main": {}, "ablation": {}, "dynamic": {}}
    tables = {"main": "main_results.csv", "ablation": "ablation.csv", "dynamic": "dynamic_vs_static.csv"}
    for table, name in tables.items():
        for where, row in read_table(folder / name, error=PaperFactsError):
            with _at(where):
                groups[table][row["method"]] = row.get("group", "")
                for metric in (m for m in (*METRICS, "aec_reduction_percent") if row.get(m)):
                    column = f"{row['dataset']}.{metric}" if table == "main" else metric
                    numbers[f"{table}:{row['method']}:{column}"] = Printed.of(row[metric])
                    marks[f"{table}:{row['method']}:{column}"] = row.get(f"{metric}_mark", "")
    for where, row in read_table(folder / "expert_study.csv", error=PaperFactsError):
        with _at(where):
            numbers[f"expert:{row['method']}:{row['dimension']}"] = Printed.of(row["score"])
    statements: dict[str, tuple[Statement, ...]] = {}
    for where, row in read_table(folder / "text.csv", error=PaperFactsError):
        with _at(where):
            statement = Statement(row["value"], row["about"], row["place"])
            statements[row["id"]] = (*statements.get(row["id"], ()), statement)
    for name, stated in statements.items():
        if stated[0].value.replace(".", "", 1).isdigit():
            numbers[f"text:{name}"] = Printed.exactly(stated[0].value)
    return PaperFacts(numbers | _prices(), marks, groups, statements)


def sample_prices() -> dict[str, float]:
    """Prices of the paper's sample record in USD, by examination as our catalogue calls it."""
    from ..costs.catalogue import load_catalogue

    return dict(load_catalogue().paper)


def _prices() -> dict[str, Printed]:
    """Prices of the paper's sample record, and the rates of our catalogue."""
    from ..costs.catalogue import load_catalogue

    catalogue = load_catalogue()
    printed = {f"price:{name}": Printed.exactly(f"{usd:.2f}") for name, usd in sample_prices().items()}
    rates = {f"schedule:{name}": Printed.exactly(f"{price.usd:.2f}") for name, price in catalogue.prices.items()}
    return printed | rates


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Turns what goes wrong with a row into an error that names file and line."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise PaperFactsError(f"{where}: {type(error).__name__}: {error}") from error
