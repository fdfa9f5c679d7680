"""Reads the tables of a MIMIC-IV folder with DuckDB, on disk; every problem names file, line and field.

A table that was cut at the end of a line reads like a whole one, and a table with times in another format gives no
event at all. Both are found by comparing the tables with each other and with the publisher's checksums: identifiers
that no table has, patients after the last one of a table, times that cannot be read.
"""

import contextlib
import glob
import hashlib
import os
import re
import shutil
import tempfile
from collections import namedtuple
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..files import file_digest, file_type, parse_yaml, shipped_text
from ..locks import NO_RECORD_LOCKS, has_record_locks
from .attrition import Attrition
from .flat_files import LONGEST_NOTE, IngestError, as_ingest_errors, csv_rows, find_file, header_errors, open_content
from .texts import MISSING, is_absent, patterns, quoted, shape

LONGEST_ROW = 1024 * 1024  # bytes, in tables without notes; kept small, since the engine's buffers grow with it
_MEMORY = "4GB"  # of DuckDB, the rest is on disk; importing all of MIMIC-IV then takes 6 GB, and the job has 8
_FETCH = 2048  # rows in memory at a time; the engine's own batch
QUERIES = parse_yaml(shipped_text(__package__, "mimic_queries.yaml"))  # SQL, and lists of columns and checks, by name
CHECKSUMS = "SHA256SUMS.txt"
AS_PUBLISHED = "export them as 2150-01-31 08:00:00"  # what to do about times that cannot be used
_NEEDED = ("note/discharge", "hosp/admissions", "hosp/patients")  # a case has a row in each of these tables
OLDEST = 130  # years
_FEW = 20  # a share of fewer times says nothing
_CLOCK = 100  # if so many times are all from 1:00 to 12:59, it is no chance: the clock has 12 hours
_LOST = 0.01  # a warning is given if a larger share of times is unreadable, or of rows stray
_HALF_A_DAY = sum(1 << hour for hour in range(1, 13))  # the hours of a 12-hour clock: bit h is set for hour h
# Part files: beside each other, or in a folder or one below it (year=2150/part-0.parquet), without those of tools
# (_SUCCESS).
_PARTS = ("[-_][0-9]*", *(f"{end}/{file}" for end in ("", ".csv", ".parquet") for file in ("[!._]*", "[!._]*/[!._]*")))
_CHECKSUM_LINE = re.compile(r"([0-9a-fA-F]{64})[ \t]+\*?(\S.*)")  # digest and file, as sha256sum writes them


class Tables(contextlib.AbstractContextManager["Tables"]):
    """The tables of a MIMIC-IV folder as views of a DuckDB database. All columns are text; empty fields are NULL.

    It is a context manager: at its end the database is closed and its files are removed.
    """

    def __init__(self, folder: Path, scratch: Path, attrition: Attrition, threads: int = 2):
        """Open a new database in the folder ``scratch``, or in a temporary folder where ``scratch`` does not support
        file locks (:func:`_scratch_folder`). ``threads`` is how many processor cores DuckDB uses at most."""
        import duckdb

        self.folder, self.attrition = folder, attrition
        self._scratch = _scratch_folder(scratch)
        # One optimiser is off: it cannot know how many rows a compressed file has, and would hash the event tables
        # instead of the cases, which are fewer.
        options: dict[str, Any] = {"temp_directory": str(self._scratch), "memory_limit": _MEMORY, "threads": threads,
                   "disabled_optimizers": "build_side_probe_side"}  # fmt: skip
        self.connection = duckdb.connect(str(self._scratch / "tables.duckdb"), config=options)
        # A time with a zone is shown as it was written to a Parquet file, not as this machine's clock would.
        self.connection.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
        self.connection.create_function("is_absent", is_absent, ["VARCHAR"], "BOOLEAN")
        doubtful = _write_literal(patterns("texts").doubtful.pattern)
        for macro in ("unzoned", "moment", "blank", "one_line", "plain", "cancelled", "finite"):
            self.connection.execute(QUERIES[macro].replace("{doubtful}", doubtful))
        self.paths: dict[str, Path] = {}  # by the names of the tables: file, or folder of parts
        self._parts: dict[str, dict[Path, str]] = {}  # by the names of the tables: a query for each file
        self._by_zone: dict[bool, str] = {}  # the first table whose times have a zone, and the first without
        self._widths: dict[Path, int] = {}  # of all files: fields of a row, 0 in Parquet

    def __exit__(self, *_: object) -> None:
        """Close the database and remove its files."""
        self.connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def add(self, name: str, columns: Sequence[str]) -> None:
        """Add a table of the folder, such as ``hosp/labevents``, as a view with these ``columns``, in any letters. The
        view is called by the last part of ``name``; the file may be ``.csv`` or ``.parquet``, compressed or not, or in
        parts (:func:`_table_files`).

        Raises IngestError where the table or a column is missing or occurs twice, or the header cannot be read.
        """
        files = _table_files(self.folder, name)
        if not files:
            remedy = "point the data set's path at the folder that holds hosp/ (MIMIC-IV) and note/ (MIMIC-IV-Note)"
            raise IngestError(self.folder / f"{name}.csv.gz", "no such table", remedy)
        self.paths[name] = files[0] if len(files) == 1 else files[0].parent
        self._parts[name] = {file: f"FROM {self._query_of(file, name, columns)}" for file in files}
        parts = " UNION ALL ".join(self._parts[name].values())
        self.connection.execute(f"CREATE VIEW {name.split('/')[-1]} AS {parts}")

    def _file_with(self, name: str, column: str, value: str | None) -> Path:
        """Return the file of the table ``name`` that has the ``value`` in a column; the folder of its parts where none
        has, or the value is None."""
        parts = self._parts[name].items() if len(self._parts[name]) > 1 and value else ()
        matching = (file for file, query in parts if any(self.rows(f"{query} WHERE {column} = ? LIMIT 1", [value])))
        return next(matching, self.paths[name])

    def _query_of(self, path: Path, name: str, columns: Sequence[str]) -> str:
        """Write a query (SQL) that reads ``columns`` from ``path``, a file of the table ``name``. Raises IngestError as
        :meth:`add`."""
        with as_ingest_errors(path):
            file, packing = self._unpack(path)
        quoted_path = _write_literal(glob.escape(str(file)))
        header_line = 1
        # How DuckDB reads the file, and the names of its columns.
        if packing == "Parquet":
            source = f"read_parquet({quoted_path})"
            types = {row.column_name.lower(): row.column_type for row in self.rows(f"DESCRIBE SELECT * FROM {source}")}
            names = list(types)
            # Some tools store texts as bytes.
            decoded = [f"decode({column}) AS {column}" for column in columns if types.get(column) == "BLOB"]
            source = _replacing_query(source, decoded)
        else:
            header_line, header = next(csv_rows(path), (1, []))
            names = [name.strip().lower() or f"(column {number})" for number, name in enumerate(header, 1)]
            longest_row = LONGEST_NOTE if name in ("note/discharge", "note/radiology") else LONGEST_ROW
            text_columns = ", ".join(f"{_write_literal(column)}: 'VARCHAR'" for column in names)
            source = statement("read_csv", path=quoted_path, types=text_columns, skip=header_line - 1,
                               longest_row=longest_row, packing=packing)  # fmt: skip
        self._widths[path] = 0 if packing == "Parquet" else len(names)
        remedies = dict.fromkeys(columns, "use the table as its publisher wrote it")
        for error in header_errors(path, header_line, names, remedies):
            raise error
        return _cleaning_query(columns, source)

    def _unpack(self, path: Path) -> tuple[Path, str]:
        """Return a file that DuckDB can read, ``path`` itself or an unpacked copy of it, and its format: ``Parquet``,
        or the compression of a CSV file, ``gzip`` or ``none``."""
        kind, compressions, content = open_content(path)
        with content:
            if kind not in ("text", "Parquet"):
                raise IngestError(path, f"{kind}, whatever its name says", "export it as CSV")
            file_format = "none" if kind == "text" else "Parquet"
            if not compressions:
                return path, file_format
            if kind == "text" and compressions == ["gzip"]:
                return path, "gzip"
            copy = self._scratch / f"{len(self._widths)}-{path.name}"
            with copy.open("wb") as target:
                shutil.copyfileobj(content, target, length=1 << 20)
        return copy, file_format

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[Any]:
        """Run a query and yield its rows as named tuples, with the columns as fields; rows are fetched in batches.
        ``parameters`` take the places of its question marks. Raises IngestError for a table that cannot be read."""
        import duckdb

        try:
            cursor = self.connection.cursor().execute(sql, parameters)
            row_type = namedtuple("Row", [name for name, *_ in cursor.description or ()], rename=True)  # type: ignore[misc]
            while batch := cursor.fetchmany(_FETCH):
                yield from map(row_type._make, batch)
        except (duckdb.IOException, duckdb.InvalidInputException, duckdb.OutOfRangeException,
                duckdb.ConversionException) as error:  # fmt: skip
            if "No space left on device" in str(error):
                raise  # the table is whole: `cdpr.problems` says which disk is full
            self._explain(str(error))

    def query(self, name: str, parameters: Sequence[Any] = (), **parts: Any) -> list[Any]:
        """Run the query ``name`` of ``mimic_queries.yaml`` and return its rows as named tuples. A ``CREATE TABLE``
        returns one row, with the number of rows of the new table. ``parts`` fill its placeholders, ``parameters`` take
        the places of its question marks. Raises IngestError for a table that cannot be read."""
        return list(self.rows(statement(name, **parts), parameters))

    def _explain(self, message: str) -> NoReturn:
        """Raise the IngestError for an error message of DuckDB. The message quotes rows and counts records instead of
        lines, so only the table is taken from it; then a slow scan of that table finds the line and the problem."""
        path = next((p for p in self._widths if str(p) in message), self.folder)
        width = self._widths.get(path)
        if not width or "gzip" in message.casefold():
            raise IngestError(path, "the file is cut short or damaged", "copy or download it again")
        for line, fields in csv_rows(path):  # which may raise the error itself
            if len(fields) != width:
                problem = f"the row that begins here has {len(fields)} fields where the header has {width}"
                raise IngestError(path, problem, "repair or download the file again", line=line)
        problem = "a mixture of line ends, or a row that is longer than any that is known"
        raise IngestError(path, problem, "repair or download the file again")

    # Whether the tables are whole and fit together.

    def check_sums(self) -> None:
        """Compare the tables with the publisher's checksums (``SHA256SUMS.txt`` in the folder or beside a table), where
        these exist. Raises IngestError for a table that differs."""
        for folder in {self.folder, *(path.parent for path in self._widths)}:
            checksums = folder / CHECKSUMS
            text = checksums.read_text(encoding="utf-8", errors="replace") if file_type(checksums) == "file" else ""
            lines = filter(None, map(_CHECKSUM_LINE.fullmatch, text.splitlines()))
            sums = {folder / line[2].strip(): line[1].lower() for line in lines}  # digests by file
            for path in self._widths:
                if path in sums and file_digest(path) != sums[path]:
                    remedy = f"download it again, or take {CHECKSUMS} away if you changed it yourself"
                    raise IngestError(path, f"not the bytes that {CHECKSUMS} lists: cut short, or changed", remedy)

    def count_rows(self) -> None:
        """Count the rows of the tables that are not linked to admissions. Warns of an empty table; raises IngestError
        if it is one without which there is no case."""
        for name in (*_NEEDED, "hosp/d_labitems", "note/radiology_detail"):
            (rows,) = next(self.rows(f"SELECT count(*) FROM {name.split('/')[-1]}"))
            if not rows and name in _NEEDED:
                raise IngestError(self.paths[name], "a header and no row", "copy or download it again")
            if not rows:
                self.attrition.warn(f"{name} has a header and no row")
            self.attrition.tables[name] = rows

    def check_times(self, name: str, column: str, counts: Any) -> None:
        """Check the times in a ``column`` of the table ``name`` by ``counts`` of them, a row with these fields: the
        number of times (``filled``), of those that cannot be read (``unread``) with an example (``sample``), of others
        at midnight (``midnight``), of those with a zone (``zoned``), and the ``hours`` that occur (bit h: hour h).

        Raises IngestError where most cannot be read, more than nine in ten have no time of day, all are of a 12-hour
        clock (the last two are judged only from many times), or where one table has times with a zone and another has
        times without. Warns where more than 1% cannot be read.
        """
        filled, unread, readable = counts.filled, counts.unread, counts.filled - counts.unread
        # All tables must have times with a zone, or all without. A table has what most of its times have.
        if filled:
            self._by_zone.setdefault(counts.zoned * 2 > filled, name)
        if len(self._by_zone) == 2:
            zoned, local = self._by_zone[True], self._by_zone[False]
            problem = f"its times have a zone, those of {local} have none, so that neither can be moved to the other"
            raise IngestError(self.paths[zoned], problem, f"{AS_PUBLISHED}, without a zone")
        unreadable = f"{unread:,} of {filled:,} times cannot be read; they look like {shape(counts.sample or '')}"
        problem = ""
        if unread * 2 > filled:
            problem = unreadable
        elif readable >= _FEW and counts.midnight > 0.9 * readable:
            problem = f"{counts.midnight:,} of {readable:,} times have no time of day, which the window of a case needs"
        elif readable >= _CLOCK and counts.hours == _HALF_A_DAY:
            problem = f"{readable:,} times, all from 1:00 to 12:59: a 12-hour clock without AM and PM"
        if problem:
            raise IngestError(self._file_with(name, column, counts.sample), problem, AS_PUBLISHED, field=column)
        if unread > filled * _LOST:
            self.attrition.warn(f"{name}, {column}: {unreadable}")

    def check_rows(self, table: str, key: str, column: str, condition: str, problem: str) -> None:
        """Check that each filled value of ``column`` meets ``condition`` (SQL). Raises IngestError, which says what
        ``problem`` the value has, for the first row in the order of the column ``key`` that does not. Warns instead
        where at most 1% do not, unless it is the ``key`` itself."""
        failing = f"{column} IS NOT NULL AND NOT ({condition})"
        query = f"SELECT {key}, {column}, count(*) OVER () FROM {table} WHERE {failing} ORDER BY 1, 2 LIMIT 1"
        for identifier, value, failed in self.rows(query):
            if key != column and failed <= _LOST * int(self.attrition.tables[f"hosp/{table}"]):
                return self.attrition.warn(f"hosp/{table}: {failed:,} times {column} {problem}, like {shape(value)}")
            path = self._file_with(f"hosp/{table}", column, value)
            row = "" if key == column else f" in the row of {key} {quoted(identifier or '')}"
            # Where quoted values are withheld, the shape of a time still shows what is wrong with it.
            message = f"{quoted(value)}{row} {problem}" + (f", but {shape(value)}" if column == "admittime" else "")
            line = _line_of(path, column, value)
            raise IngestError(path, message, "repair the row or remove it", line=line, field=column)

    def check_strays(self, name: str, rows: int, stray: int) -> None:
        """Check how many of the ``rows`` of the event table ``name`` are ``stray``: they name an admission that
        ``hosp/admissions`` lacks.

        Warns of a table without rows, and where more than 1% are stray. Raises IngestError where a spreadsheet has
        rounded the numbers of the admissions (to 2.1E+07)."""
        if not rows:
            self.attrition.warn(f"{name} has a header and no row")
        if stray > _LOST * rows:
            [(sample, rounded)] = self.query("unknown_admissions", table=name.split("/")[-1])
            if rounded:
                remedy = "export it again with whole numbers: a spreadsheet has rounded these"
                raise IngestError(self.paths[name], f"{rounded:,} numbers like 2.1E+07", remedy, field="hadm_id")
            problem = f"{stray:,} of {rows:,} rows name an admission that hosp/admissions lacks"
            self.attrition.warn(f"{name}: {problem}; these numbers look like {shape(sample)}")

    def check_references(self) -> None:
        """Run the checks ``fit`` of ``mimic_queries.yaml``. They warn of identifiers that no other table has, of people
        without age or sex, and of an event table that ends long before the last patient. The query of a check counts
        all rows, and those that are lost; a warning is given for more than a ``share`` of lost rows among at least
        ``few``."""
        for check in QUERIES["fit"]:
            total, lost = next(self.rows(check["query"].replace("{oldest}", str(OLDEST))))
            if total >= check["few"] and lost > check["share"] * total:
                self.attrition.warn(check["warning"].format(lost=lost, total=total, rest=total - lost, oldest=OLDEST))


def _table_files(folder: Path, name: str) -> list[Path]:
    """Return the files of the table ``name``, sorted; empty where there is none. It is one file, or the parts that
    Spark and Hive write into a folder of this name, or BigQuery with numbers (``labevents-000000000000.csv``)."""
    if whole := find_file(folder, name, ".csv", ".parquet"):
        return [whole]
    base = folder / name
    found = (file for part in _PARTS for file in base.parent.glob(base.name + part))
    return sorted(file for file in found if file_type(file) == "file")


def _scratch_folder(wanted: Path) -> Path:
    """Return a new empty folder for the database: ``wanted``, or a temporary one where ``wanted`` does not support file
    locks. What an import that was killed left there is removed. Raises IngestError where neither has locks."""
    # The temporary folder too has to be private: it holds patients' data.
    name = f"cdpr-{os.getuid()}-{hashlib.sha256(bytes(wanted.resolve())).hexdigest()[:16]}"
    temporary = Path(tempfile.gettempdir(), name)
    for folder in (wanted, temporary):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        if has_record_locks(folder):
            return folder
    raise IngestError(temporary, NO_RECORD_LOCKS, "set TMPDIR to a folder on another disk")


def statement(name: str, **parts: Any) -> str:
    """Return the SQL ``name`` of ``mimic_queries.yaml`` with its placeholders filled: ``{table}`` by the argument
    ``table``, and so on; ``{times}`` by the entry ``times`` of the file, the columns that count the times of a table
    for :meth:`Tables.check_times`."""
    return QUERIES[name].format(times=QUERIES["times"], **parts)


def _line_of(path: Path, column: str, value: str) -> int | None:
    """Return the line on which the first row of a CSV file with this ``value`` in ``column`` begins; None for a Parquet
    file or several, and where no row has it. The scan is slow, so it is used for error messages only."""
    if path.suffix == ".parquet" or file_type(path) == "folder":
        return None
    rows = ((line, [field.strip() for field in fields]) for line, fields in csv_rows(path))
    _, header = next(rows)
    index = list(map(str.lower, header)).index(column)
    spellings = (value, f"{value}.0")  # whole numbers lost their .0 when they were read
    return next((line for line, row in rows if index < len(row) and row[index] in spellings), None)


def _cleaning_query(columns: Sequence[str], source: str) -> str:
    """Write a query (SQL) that reads ``columns`` of the table ``source`` as text, and cleans them as the entry
    ``cleaning`` of ``mimic_queries.yaml`` says.

    Each step is a query of its own around the one before: ``SELECT ... FROM (SELECT ... FROM source)``. In one query
    DuckDB would trim a field once for each use.
    """
    missing = ", ".join(map(_write_literal, sorted({"", "None", *MISSING})))  # a tool wrote None
    query = f"(SELECT {', '.join(columns)} FROM {source})"
    for step in QUERIES["cleaning"]:
        applies_to = [column for column in columns if re.fullmatch(step["columns"], column)]
        cleaned = [f"{step['expression'].format(column=name, missing=missing)} AS {name}" for name in applies_to]
        query = _replacing_query(query, cleaned)
    return query


def _replacing_query(source: str, columns: Sequence[str]) -> str:
    """Write a query (SQL) that reads all columns of ``source``, but some in another way: each of ``columns`` is
    ``expression AS name``."""
    return f"(SELECT * REPLACE ({', '.join(columns)}) FROM {source})" if columns else source


def _write_literal(text: str) -> str:
    """Return a text as a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
