"""Compressed CSV tables read out of core with DuckDB; every failure names file, line and field."""

import contextlib
import csv
import gzip
import io
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from .error import IngestError

_LINE = re.compile(r"CSV Error on Line: (\d+)")
LONGEST_NOTE = 32 * 1024 * 1024  # bytes; one note is one line of a table
WHOLE_NUMBERS = {
    "subject_id", "hadm_id", "itemid", "labevent_id", "microevent_id", "micro_specimen_id", "test_seq", "isolate_num",
    "anchor_age", "anchor_year", "field_ordinal",
}  # fmt: skip
_LONGEST_ROW = 1024 * 1024  # of other tables: the engine's buffers grow with it
_FETCH = 2048  # rows in memory at a time; the engine's own batch


class Tables:
    """Views over the tables of a folder; all columns are text, empty fields are NULL."""

    def __init__(self, folder: Path, scratch: Path, memory_gb: float = 4.0, threads: int = 2):
        """``scratch``: where linked tables lie meanwhile; what a killed import left there goes first."""
        import duckdb

        self.folder = folder
        # On disk, readable by nobody else: what is linked may be larger than memory, and is patients' data.
        self._scratch = scratch
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(mode=0o700, parents=True)
        self.connection = duckdb.connect(str(self._scratch / "tables.duckdb"))
        self.connection.execute("SET enable_progress_bar = false")
        self.connection.execute(f"SET temp_directory = {_quoted(str(self._scratch))}")
        self.connection.execute(f"SET memory_limit = '{memory_gb:g}GB'")
        self.connection.execute(f"SET threads = {threads}")
        # Not knowing how many rows a compressed file has, the optimiser would hash the event tables, not the cases.
        self.connection.execute("SET disabled_optimizers = 'build_side_probe_side'")
        self._paths: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def add(self, name: str, columns: Sequence[str], longest_line: int = _LONGEST_ROW) -> Path:
        """Make ``folder/name.csv.gz`` (``.csv``, ``.parquet``) a view called by the last part of its name.

        Raises IngestError when the table or a column is missing, or its head cannot be read.
        """
        path = self._find(name)
        self._paths.append(path)
        quoted, parquet = _quoted(str(path)), path.suffix == ".parquet"
        if parquet:
            header = [row[0] for row in self.rows(f"DESCRIBE SELECT * FROM read_parquet({quoted})")]
        else:
            header = read_header(path)
        missing = [column for column in columns if column not in header]
        if missing:
            raise IngestError(
                path, f"no such column; found {', '.join(map(repr, header))}",
                "use the table as its publisher wrote it", line=1, field=missing[0],
            )  # fmt: skip
        wanted = ", ".join(f'{_cleaned(column)} AS "{column}"' for column in columns)
        types = ", ".join(f"{_quoted(column)}: 'VARCHAR'" for column in header)
        source = f"read_parquet({quoted})" if parquet else (
            f"read_csv({quoted}, auto_detect=false, header=true, columns={{{types}}}, delim=',', quote='\"', "
            f"escape='\"', max_line_size={longest_line})"
        )  # fmt: skip
        self.connection.execute(f"CREATE VIEW {name.split('/')[-1]} AS SELECT {wanted} FROM {source}")
        return path

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows of a query, fetched in batches. Raises IngestError for a table that is broken further down."""
        with self._explained():
            cursor = self.connection.cursor().execute(sql, parameters)
            while batch := cursor.fetchmany(_FETCH):
                yield from batch

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Execute a statement. Raises IngestError like :meth:`rows`."""
        with self._explained():
            self.connection.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except (duckdb.IOException, duckdb.InvalidInputException, duckdb.OutOfRangeException) as error:
            raise self._explain(str(error)) from error

    def _explain(self, message: str) -> IngestError:
        path = next((p for p in self._paths if str(p) in message), self.folder)
        if "GZIP" in message or "gzip" in message:
            return IngestError(path, "the compressed file is cut short or damaged", "copy or download it again")
        found = _LINE.search(message)
        detail = next((t for t in message.splitlines()[1:] if t and not t.startswith("Original Line")), message)
        return IngestError(path, f"row cannot be read ({detail.strip()!r})", "repair or download the file again",
                           line=int(found[1]) if found else None)  # fmt: skip

    def _find(self, name: str) -> Path:
        for ending in (".csv.gz", ".csv", ".parquet"):
            if (path := self.folder / f"{name}{ending}").is_file():
                return path
        raise IngestError(
            self.folder / f"{name}.csv.gz", "no such table",
            "point the data set's path at the folder that holds hosp/ and note/",
        )  # fmt: skip


def open_text(path: Path, errors: str = "strict") -> io.TextIOBase:
    """A table as text, decompressed where its name says so; ``errors`` as for :func:`open`."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=errors, newline="")  # type: ignore[return-value]
    return path.open(encoding="utf-8-sig", errors=errors, newline="")


def read_header(path: Path) -> list[str]:
    """Column names of a table. Raises IngestError."""
    try:
        # Decoding runs ahead of the first line; what is wrong further down is reported by whoever reads it.
        with open_text(path, errors="replace") as lines:
            header = next(csv.reader(lines), [])
    except (OSError, EOFError, zlib.error) as error:
        raise IngestError(path, f"cannot be read ({error})", "copy or download it again", line=1) from error
    repeated = {name for name in header if header.count(name) > 1}
    if not header or repeated:
        problem = f"column names repeat: {', '.join(map(repr, sorted(repeated)))}" if repeated else "the table is empty"
        raise IngestError(path, problem, "use the table as its publisher wrote it", line=1)
    return header


def line_of(path: Path, column: str, value: str) -> int | None:
    """Line at which a table's row with this value starts or ends; a slow scan, for error messages only."""
    with open_text(path, errors="replace") as lines:
        reader = csv.DictReader(lines)
        return next((reader.line_num for row in reader if (row.get(column) or "").strip() == value), None)


def _cleaned(column: str) -> str:
    """A column as text without white space, NULL where nothing is left; whole numbers that another tool wrote as
    ``20044587.0`` as they were."""
    text = f'trim("{column}"::VARCHAR)'
    if column in WHOLE_NUMBERS:
        text = f"CASE WHEN ends_with({text}, '.0') THEN {text}[:-3] ELSE {text} END"
    return f"nullif({text}, '')"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
