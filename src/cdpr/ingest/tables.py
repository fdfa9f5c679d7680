"""Compressed CSV tables read out of core with DuckDB; every failure names file, line and field."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from .flat_files import IngestError, csv_lines, header_faults

_ENDINGS = (".csv.gz", ".csv", ".parquet")
# What tools write where nothing is; exactly so, since a result may read NONE.
MISSING = ("NULL", "\\N", "nan", "NaN", "None", "<NA>")
_WHOLE_NUMBER = re.compile(r"\w*(?:id|_seq|_num|_ordinal)|anchor_\w+")  # columns
LONGEST_ROW = 1024 * 1024  # of other tables: the engine's buffers grow with it
_MEMORY = "4GB"  # of the engine, what is larger goes to disk: the whole of MIMIC-IV takes 6 GB of the job's 8
_FETCH = 2048  # rows in memory at a time; the engine's own batch


class Tables:
    """Views over the tables of a folder; all columns are text, empty fields are NULL."""

    def __init__(self, folder: Path, scratch: Path, threads: int = 2):
        """``scratch``: where linked tables lie meanwhile; what a killed import left there goes first."""
        import duckdb

        self.folder, self._scratch = folder, scratch
        # On disk, readable by nobody else: what is linked may be larger than memory, and is patients' data.
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700, parents=True)
        # Not knowing how many rows a compressed file has, the optimiser would hash the event tables, not the cases.
        options = {"temp_directory": str(scratch), "memory_limit": _MEMORY, "threads": threads,
                   "disabled_optimizers": "build_side_probe_side"}  # fmt: skip
        self.connection = duckdb.connect(str(scratch / "tables.duckdb"), config=options)
        self.connection.execute("SET enable_progress_bar = false")
        self.paths: dict[str, Path] = {}  # by the names of the tables
        self._widths: dict[Path, int] = {}  # of the CSV files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def add(self, name: str, columns: Sequence[str], longest_line: int) -> None:
        """Make ``folder/name.csv.gz`` (``.csv``, ``.parquet``) a view called by the last part of its name.

        Raises IngestError when the table or a column is missing, or stands there twice, or its head cannot be read.
        """
        path = self.paths[name] = self._find(name)
        quoted_path, line = _quoted(str(path)), 1
        if path.suffix == ".parquet":
            source = f"read_parquet({quoted_path})"
            names = [row[0] for row in self.rows(f"DESCRIBE SELECT * FROM {source}")]
        else:
            line, header = next(csv_lines(path), (1, []))
            names = [name.strip() or f"(column {number})" for number, name in enumerate(header, 1)]
            self._widths[path] = len(names)
            types = ", ".join(f"{_quoted(column)}: 'VARCHAR'" for column in names)
            source = (f"read_csv({quoted_path}, auto_detect=false, header=true, skip={line - 1}, columns={{{types}}}, "
                      f"delim=',', quote='\"', escape='\"', max_line_size={longest_line})")  # fmt: skip
        for fault in header_faults(
            path, line, names, dict.fromkeys(columns, "use the table as its publisher wrote it")
        ):
            raise fault
        selection = ", ".join(f'{_cleaned(column)} AS "{column}"' for column in columns)
        self.connection.execute(f"CREATE VIEW {name.split('/')[-1]} AS SELECT {selection} FROM {source}")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows of a query, fetched in batches. Raises IngestError for a table that is broken further down."""
        import duckdb

        try:
            cursor = self.connection.cursor().execute(sql, parameters)
            while batch := cursor.fetchmany(_FETCH):
                yield from batch
        except (duckdb.IOException, duckdb.InvalidInputException, duckdb.OutOfRangeException) as error:
            raise self._explain(str(error)) from error

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Execute a statement. Raises IngestError like :meth:`rows`."""
        list(self.rows(sql, parameters))

    def _explain(self, message: str) -> IngestError:
        """What the engine says quotes rows, and counts records where files have lines; so only the table is taken from
        it, and what is wrong is looked for again, in a slow scan."""
        path = next((p for p in self.paths.values() if str(p) in message), self.folder)
        if path not in self._widths or "gzip" in message.casefold():
            return IngestError(path, "the file is cut short or damaged", "copy or download it again")
        width = self._widths[path]
        try:
            for line, fields in csv_lines(path):
                if len(fields) != width:
                    problem = f"the row that begins here has {len(fields)} fields where the header has {width}"
                    return IngestError(path, problem, "repair or download the file again", line=line)
        except IngestError as error:
            return error
        problem = "a mixture of line ends, or a row that is longer than any that is known"
        return IngestError(path, problem, "repair or download the file again")

    def _find(self, name: str) -> Path:
        paths = [path for ending in _ENDINGS if (path := self.folder / f"{name}{ending}").is_file()]
        if not paths:
            remedy = "point the data set's path at the folder that holds hosp/ and note/"
            raise IngestError(self.folder / f"{name}.csv.gz", "no such table", remedy)
        if len(paths) > 1:
            names = " and ".join(path.name for path in paths)
            raise IngestError(paths[0].parent, f"holds {names}", "keep the one that is right")
        return paths[0]


def line_of(path: Path, column: str, value: str) -> int | None:
    """Line on which a table's row with this value begins; a slow scan, for error messages only."""
    if path.suffix == ".parquet":
        return None
    rows = ((line, [field.strip() for field in fields]) for line, fields in csv_lines(path))
    place = next(rows)[1].index(column)
    return next((line for line, row in rows if place < len(row) and row[place] in (value, f"{value}.0")), None)


def _cleaned(column: str) -> str:
    """A column as text without white space, NULL where nothing is left or a word says so; whole numbers that another
    tool wrote as ``20044587.0`` as they were."""
    text = f'trim("{column}"::VARCHAR)'
    if _WHOLE_NUMBER.fullmatch(column):
        text = f"CASE WHEN ends_with({text}, '.0') THEN {text}[:-3] ELSE {text} END"
    return f"CASE WHEN {text} IN ({', '.join(map(_quoted, ('', *MISSING)))}) THEN NULL ELSE {text} END"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
