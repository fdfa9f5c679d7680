"""Compressed CSV tables read out of core with DuckDB; every failure names file, line and field."""

import contextlib
import csv
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..files import csv_records, open_text
from .error import IngestError

_ENDINGS = (".csv.gz", ".csv", ".parquet")
# What tools write where nothing is; exactly so, since a result may read NONE.
MISSING = ("NULL", "\\N", "nan", "NaN", "None", "<NA>")
_NO_UTF8 = re.compile(r"[\udc80-\udcff]")
_MARKS = "'\"\\"
LONGEST_NOTE = 32 * 1024 * 1024  # bytes; one note is one line of a table
WHOLE_NUMBERS = {
    "subject_id", "hadm_id", "itemid", "labevent_id", "microevent_id", "micro_specimen_id", "test_seq", "isolate_num",
    "anchor_age", "anchor_year", "field_ordinal",
}  # fmt: skip
_LONGEST_ROW = 1024 * 1024  # of other tables: the engine's buffers grow with it
_MEMORY = "4GB"  # of the engine, what is larger goes to disk: the whole of MIMIC-IV takes 6 GB of the job's 8
_FETCH = 2048  # rows in memory at a time; the engine's own batch


class Tables:
    """Views over the tables of a folder; all columns are text, empty fields are NULL."""

    def __init__(self, folder: Path, scratch: Path, threads: int = 2):
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
        self.connection.execute(f"SET memory_limit = '{_MEMORY}'")
        self.connection.execute(f"SET threads = {threads}")
        # Not knowing how many rows a compressed file has, the optimiser would hash the event tables, not the cases.
        self.connection.execute("SET disabled_optimizers = 'build_side_probe_side'")
        self.paths: dict[str, Path] = {}  # by the names of the tables
        self._headers: dict[Path, Header] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def add(self, name: str, columns: Sequence[str], longest_line: int = _LONGEST_ROW) -> Path:
        """Make ``folder/name.csv.gz`` (``.csv``, ``.parquet``) a view called by the last part of its name.

        Raises IngestError when the table or a column is missing, or stands there twice, or its head cannot be read.
        """
        path = self._find(name)
        quoted_path, parquet = _quoted(str(path)), path.suffix == ".parquet"
        if parquet:
            self.paths[name] = path
            header = Header([row[0] for row in self.rows(f"DESCRIBE SELECT * FROM read_parquet({quoted_path})")], 1)
        else:
            header = read_header(path)
        self.paths[name], self._headers[path] = path, header
        missing = [column for column in columns if column not in header.names]
        if missing:
            raise IngestError(
                path, f"no such column; found {_listed(header.names)}",
                "use the table as its publisher wrote it", line=header.line, field=missing[0],
            )  # fmt: skip
        selection = ", ".join(f'{_cleaned(column)} AS "{column}"' for column in columns)
        types = ", ".join(f"{_quoted(column)}: 'VARCHAR'" for column in header.names)
        source = f"read_parquet({quoted_path})" if parquet else (
            f"read_csv({quoted_path}, auto_detect=false, header=true, skip={header.line - 1}, columns={{{types}}}, "
            f"delim=',', quote='\"', escape='\"', max_line_size={longest_line})"
        )  # fmt: skip
        self.connection.execute(f"CREATE VIEW {name.split('/')[-1]} AS SELECT {selection} FROM {source}")
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
        """What the engine says quotes rows, and counts records where files have lines; so only the table is taken from
        it, and what is wrong is looked for again."""
        path = next((p for p in self.paths.values() if str(p) in message), self.folder)
        if path.suffix == ".parquet" or path not in self._headers or "gzip" in message.casefold():
            what = "compressed file" if path.suffix == ".gz" else "file"
            return IngestError(path, f"the {what} is cut short or damaged", "copy or download it again")
        try:
            first = first_fault(path, len(self._headers[path].names))
        except (OSError, EOFError, zlib.error):
            return IngestError(path, "the compressed file is cut short or damaged", "copy or download it again")
        line, fault = first or (None, "a mixture of line ends, or a row that is longer than any that is known")
        return IngestError(path, f"the row that begins here cannot be read ({fault})" if line else fault,
                           "repair or download the file again", line=line)  # fmt: skip

    def _find(self, name: str) -> Path:
        paths = [path for ending in _ENDINGS if (path := self.folder / f"{name}{ending}").is_file()]
        if not paths:
            raise IngestError(
                self.folder / f"{name}.csv.gz",
                "no such table",
                "point the data set's path at the folder that holds hosp/ and note/",
            )
        if len(paths) > 1:
            names = " and ".join(path.name for path in paths)
            raise IngestError(paths[0].parent, f"holds {names}", "keep the one that is right")
        return paths[0]


class Header(NamedTuple):
    """Column names of a table, and the line on which they stand."""

    names: list[str]
    line: int


def read_header(path: Path) -> Header:
    """The first row that is not blank. Raises IngestError."""
    names: list[str] = []
    place = 1
    try:
        # Decoding runs ahead of the first line; what is wrong further down is reported by whoever reads it.
        with open_text(path, errors="replace") as lines:
            for line, row in csv_records(lines):
                place, names = line, [name.strip() for name in row]
                if any(names):
                    break
    except PermissionError as error:
        raise IngestError.not_permitted(error) from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise IngestError(
            path, f"cannot be read ({type(error).__name__})", "copy or download it again", line=1
        ) from error
    publisher = "use the table as its publisher wrote it"
    if not any(names):
        raise IngestError(path, "the table is empty", publisher, line=1)
    repeated = sorted({name for name in names if names.count(name) > 1} - {""})
    if "" in names:
        raise IngestError(path, f"column {names.index('') + 1} has no name", publisher, line=place)
    if repeated:
        raise IngestError(path, f"column names repeat: {_listed(repeated)}", publisher, line=place)
    return Header(names, place)


def first_fault(path: Path, width: int) -> tuple[int, str] | None:
    """Line on which the first record begins that cannot be read, and why; nothing of its text. A slow scan, for error
    messages only."""
    limit = csv.field_size_limit(LONGEST_NOTE)
    try:
        with open_text(path, errors="surrogateescape") as lines:
            for line, fields in csv_records(lines):
                if fields and len(fields) != width:
                    return line, f"{len(fields)} fields where the header has {width}"
                if any(_NO_UTF8.search(field) for field in fields):
                    return line, "not UTF-8"
    except csv.Error as error:
        return error.args[1], error.args[0]
    finally:
        csv.field_size_limit(limit)
    return None


def line_of(path: Path, column: str, value: str) -> int | None:
    """Line on which a table's row with this value begins; a slow scan, for error messages only."""
    if path.suffix == ".parquet":
        return None
    limit = csv.field_size_limit(LONGEST_NOTE)
    try:
        with open_text(path, errors="replace") as lines:
            rows = ((line, [field.strip() for field in fields]) for line, fields in csv_records(lines) if any(fields))
            _, header = next(rows)
            place = header.index(column)
            return next((line for line, row in rows if place < len(row) and row[place] in (value, f"{value}.0")), None)
    finally:
        csv.field_size_limit(limit)


def _cleaned(column: str) -> str:
    """A column as text without white space, NULL where nothing is left or a word says so; whole numbers that another
    tool wrote as ``20044587.0`` as they were."""
    text = f'trim("{column}"::VARCHAR)'
    if column in WHOLE_NUMBERS:
        text = f"CASE WHEN ends_with({text}, '.0') THEN {text}[:-3] ELSE {text} END"
    return f"CASE WHEN {text} IN ({', '.join(map(_quoted, ('', *MISSING)))}) THEN NULL ELSE {text} END"


def _listed(names: Sequence[str]) -> str:
    """Names of columns for a message; a file that is no table has a few lines of anything there."""
    shortened = [
        f"'{''.join(c if c.isprintable() and c not in _MARKS else '?' for c in name[:40])}'" for name in names[:30]
    ]
    return ", ".join(shortened) + (", …" if len(names) > len(shortened) else "")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
