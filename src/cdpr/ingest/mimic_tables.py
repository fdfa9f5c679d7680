"""Reads the tables of a MIMIC-IV folder with DuckDB, on disk; every problem names file, line and field.

A table that was cut at the end of a line reads like a whole one, and a table with times in another format gives no
event at all. Both are found by comparing the tables with each other and with the publisher's checksums: identifiers
that no table has, patients after the last one of a table, times that cannot be read.
"""

import glob
import hashlib
import os
import re
import shutil
import tempfile
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ..files import file_digest, file_type, parse_yaml, shipped_text
from ..locks import NO_RECORD_LOCKS, has_record_locks
from .attrition import Attrition
from .flat_files import LONGEST_NOTE, IngestError, as_ingest_errors, csv_rows, find_file, header_errors, open_content
from .texts import MISSING, is_absent, patterns, quoted, shape

# A name that says that it is missing, in any letters; nothing that is examined is called by it. Sodium is "Na" in no
# table of MIMIC.
_NAMELESS = r"(?i)[\W_]*(?:n[/.]?a\.?|nan|nil|none|null)?[\W_]*"
_NAMES = ("label", "fluid", "test_name", "spec_type_desc", "field_value")
_WHOLE_NUMBER = re.compile(r"\w*(?:id|_seq|_num|_ordinal)|anchor_\w+")  # columns
LONGEST_ROW = 1024 * 1024  # of tables without notes: the engine's buffers grow with it
_MEMORY = "4GB"  # of the engine, what is larger goes to disk: the whole of MIMIC-IV takes 6 GB of the job's 8
_FETCH = 2048  # rows in memory at a time; the engine's own batch
QUERIES = parse_yaml(shipped_text(__package__, "mimic_queries.yaml"))
CHECKSUMS = "SHA256SUMS.txt"
AS_PUBLISHED = "export them as 2150-01-31 08:00:00"
_NEEDED = ("note/discharge", "hosp/admissions", "hosp/patients")  # no case without a row of each
OLDEST = 130  # years
_FEW = 20  # rows or cases, below which shares say nothing
_CLOCK = 100  # times from which on it is no chance that none lies outside half a day
_LOST = 0.01  # share of times that may be unreadable before a warning
_HALF_A_DAY = sum(1 << hour for hour in range(1, 13))
_CHECKSUM_LINE = re.compile(r"([0-9a-fA-F]{64})[ \t]+\*?(\S.*)")


class Tables:
    """The tables of a MIMIC-IV folder as views of a DuckDB database. All columns are text; empty fields are NULL.

    It is a context manager: at its end the database is closed and its files are removed.
    """

    def __init__(self, folder: Path, scratch: Path, attrition: Attrition, threads: int = 2):
        """Open a new database in the folder ``scratch``, or in a temporary folder where ``scratch`` does not support
        file locks. Files of an import that was killed are removed first. Raises IngestError where neither folder has
        locks."""
        import duckdb

        # On disk, readable by nobody else: what is linked may be larger than memory, and is patients' data.
        name = f"cdpr-{os.getuid()}-{hashlib.sha256(bytes(scratch.resolve())).hexdigest()[:16]}"
        for self._scratch in (scratch, Path(tempfile.gettempdir(), name)):
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir(mode=0o700, parents=True)
            if has_record_locks(self._scratch):
                break
        else:
            raise IngestError(self._scratch, NO_RECORD_LOCKS, "set TMPDIR to a folder on another disk")
        self.folder, self.attrition = folder, attrition
        # Not knowing how many rows a compressed file has, the optimiser would hash the event tables, not the cases.
        options: dict[str, Any] = {"temp_directory": str(self._scratch), "memory_limit": _MEMORY, "threads": threads,
                   "disabled_optimizers": "build_side_probe_side"}  # fmt: skip
        self.connection = duckdb.connect(str(self._scratch / "tables.duckdb"), config=options)
        # A time with a zone is shown as it was written to a Parquet file, not as this machine's clock would.
        self.connection.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
        self.connection.create_function("is_absent", is_absent, ["VARCHAR"], "BOOLEAN")
        doubtful = _literal(patterns("texts").doubtful.pattern)
        for macro in ("unzoned", "moment", "blank"):
            self.connection.execute(QUERIES[macro].replace("{doubtful}", doubtful))
        self.paths: dict[str, Path] = {}  # by the names of the tables
        self._zoned: dict[str, bool] = {}  # whether the times of a table have a zone
        self._widths: dict[Path, int] = {}  # of the CSV files

    def __enter__(self) -> Self:
        """Return these tables; they are open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the database and remove its files."""
        self.connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def add(self, name: str, columns: Sequence[str]) -> None:
        """Add a table of the folder, such as ``hosp/labevents``, as a view with these ``columns``. The view is called
        by the last part of ``name``; the file may be ``.csv`` or ``.parquet``, compressed or not.

        Raises IngestError where the table or a column is missing or occurs twice, or the header cannot be read.
        """
        path = self.paths[name] = self._find(name)
        line, texts = 1, {}
        with as_ingest_errors(path):
            file, packing = self._unpack(path)
        quoted_path = _literal(glob.escape(str(file)))
        # How DuckDB reads the file, and the names of its columns.
        if packing == "Parquet":
            source = f"read_parquet({quoted_path})"
            types = {row[0]: row[1] for row in self.rows(f"DESCRIBE SELECT * FROM {source}")}
            names = list(types)
            texts = {name: f'decode("{name}")' for name, kind in types.items() if kind == "BLOB"}
        else:
            line, header = next(csv_rows(path), (1, []))
            names = [name.strip() or f"(column {number})" for number, name in enumerate(header, 1)]
            self._widths[path] = len(names)
            longest_line = LONGEST_NOTE if name in ("note/discharge", "note/radiology") else LONGEST_ROW
            kinds = ", ".join(f"{_literal(column)}: 'VARCHAR'" for column in names)
            source = (f"read_csv({quoted_path}, auto_detect=false, header=true, skip={line - 1}, columns={{{kinds}}}, "
                      f"delim=',', quote='\"', escape='\"', max_line_size={longest_line}, "
                      f"compression='{packing}')")  # fmt: skip
        # Check the columns, and create the view.
        remedies = dict.fromkeys(columns, "use the table as its publisher wrote it")
        for fault in header_errors(path, line, names, remedies):
            raise fault
        self.connection.execute(f"CREATE VIEW {name.split('/')[-1]} AS FROM {_cleaning_query(columns, source, texts)}")

    def _unpack(self, path: Path) -> tuple[Path, str]:
        """Return a file that DuckDB can read, ``path`` itself or an unpacked copy of it, and its format: ``Parquet``,
        or the compression of a CSV file, ``gzip`` or ``none``."""
        kind, layers, content = open_content(path)
        with content:
            if kind not in ("text", "Parquet"):
                raise IngestError(path, f"{kind}, whatever its name says", "export it as CSV")
            if not layers or (kind, layers) == ("text", ["gzip"]):
                return path, kind if kind == "Parquet" else "gzip" if layers else "none"
            copy = self._scratch / f"{len(self.paths)}-{path.name}"
            with copy.open("wb") as target:
                shutil.copyfileobj(content, target, 1 << 20)
        return copy, kind if kind == "Parquet" else "none"

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[Any]:
        """Run a query and yield its rows as named tuples, with the columns as fields; rows are fetched in batches.
        Raises IngestError for a table that cannot be read."""
        import duckdb

        try:
            cursor = self.connection.cursor().execute(sql, parameters)
            row_type = namedtuple("Row", [name for name, *_ in cursor.description or ()], rename=True)  # type: ignore[misc]
            while batch := cursor.fetchmany(_FETCH):
                yield from map(row_type._make, batch)
        except (duckdb.IOException, duckdb.InvalidInputException, duckdb.OutOfRangeException,
                duckdb.ConversionException) as error:  # fmt: skip
            raise self._explain(str(error)) from error

    def query(self, name: str, parameters: Sequence[Any] = (), **parts: Any) -> list[Any]:
        """Run the query ``name`` of ``mimic_queries.yaml`` and return its rows as named tuples. A ``CREATE TABLE``
        returns one row, with the number of rows of the new table. ``parts`` fill its placeholders. Raises IngestError
        for a table that cannot be read."""
        return list(self.rows(statement(name, **parts), parameters))

    def _explain(self, message: str) -> IngestError:
        """Make the error to raise for an error message of DuckDB. The message quotes rows and counts records instead of
        lines, so only the table is taken from it; then a slow scan of that table finds the line and the problem."""
        path = next((p for p in self.paths.values() if str(p) in message), self.folder)
        if path not in self._widths or "gzip" in message.casefold():
            return IngestError(path, "the file is cut short or damaged", "copy or download it again")
        width = self._widths[path]
        try:
            for line, fields in csv_rows(path):
                if len(fields) != width:
                    problem = f"the row that begins here has {len(fields)} fields where the header has {width}"
                    return IngestError(path, problem, "repair or download the file again", line=line)
        except IngestError as error:
            return error
        problem = "a mixture of line ends, or a row that is longer than any that is known"
        return IngestError(path, problem, "repair or download the file again")

    def _find(self, name: str) -> Path:
        """Return the file of the table ``name``. Raises IngestError where there is none or more than one."""
        if path := find_file(self.folder, name, ".csv", ".parquet"):
            return path
        remedy = "point the data set's path at the folder that holds hosp/ (MIMIC-IV) and note/ (MIMIC-IV-Note)"
        raise IngestError(self.folder / f"{name}.csv.gz", "no such table", remedy)

    # Whether the tables are whole and fit together.

    def check_sums(self) -> None:
        """Compare the tables with the publisher's checksums (``SHA256SUMS.txt`` in the folder or beside a table), where
        these exist. Raises IngestError for a table that differs."""
        for folder in {self.folder, *(path.parent for path in self.paths.values())}:
            checksums = folder / CHECKSUMS
            text = checksums.read_text(encoding="utf-8", errors="replace") if file_type(checksums) == "file" else ""
            lines = filter(None, map(_CHECKSUM_LINE.fullmatch, text.splitlines()))
            sums = {folder / line[2].strip(): line[1].lower() for line in lines}  # digests by file
            for path in self.paths.values():
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

    def check_times(self, name: str, column: str, counts: Sequence[Any]) -> None:
        """Check the times in a column of a table by ``counts`` of them. These are the number of times, of times that
        cannot be read, an example of these, the number of others at midnight, the hours that occur (bit h: hour h), and
        the number with a zone.

        Raises IngestError where most cannot be read, most have no time of day, all are of a 12-hour clock, or where one
        table has times with a zone and another has times without. Warns where more than 1% cannot be read.
        """
        filled, unread, sample, midnight, hours, zoned = counts
        # All tables must have times with a zone, or all without.
        if filled:
            self._zoned[name] = zoned * 2 > filled
        if other := next((one for one, has in self._zoned.items() if has != self._zoned.get(name, has)), ""):
            having, lacking = (name, other) if self._zoned[name] else (other, name)
            problem = f"its times have a zone, those of {lacking} have none, so that neither can be moved to the other"
            raise IngestError(self.paths[having], problem, f"{AS_PUBLISHED}, without a zone")
        message = f"{unread:,} of {filled:,} times cannot be read; they look like {shape(sample or '')}"
        # Times that cannot be read, have no time of day, or are of a 12-hour clock.
        known = filled - unread
        dated = f"{midnight:,} of {known:,} times have no time of day, which the window of a case needs"
        halved = f"{known:,} times, all from 1:00 to 12:59: a 12-hour clock without AM and PM"
        for is_wrong, problem in (
            (unread * 2 > filled, message),
            (known >= _FEW and midnight > 0.9 * known, dated),
            (known >= _CLOCK and hours == _HALF_A_DAY, halved),
        ):
            if is_wrong:
                raise IngestError(self.paths[name], problem, AS_PUBLISHED, field=column)
        if unread > filled * _LOST:
            self.attrition.warn(f"{name}, {column}: {message}")

    def check_rows(self, table: str, key: str, column: str, condition: str, problem: str) -> None:
        """Check that each filled value of ``column`` meets ``condition`` (SQL). Raises IngestError with ``problem`` for
        the first row, in the order of ``key``, that does not."""
        failing = f"{column} IS NOT NULL AND NOT ({condition})"
        query = f"SELECT {key}, {column} FROM {table} WHERE {failing} ORDER BY 1, 2 LIMIT 1"
        for number, value in self.rows(query):
            path = self.paths[f"hosp/{table}"]
            row = "" if key == column else f" in the row of {key} {quoted(number or '')}"
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
        without age or sex, and of an event table that ends long before the last patient."""
        for check in QUERIES["fit"]:
            total, lost = next(self.rows(check["query"].replace("{oldest}", str(OLDEST))))
            if total >= check["few"] and lost > check["share"] * total:
                self.attrition.warn(check["warning"].format(lost=lost, total=total, rest=total - lost, oldest=OLDEST))


def statement(name: str, **parts: Any) -> str:
    """Return the SQL statement ``name`` of ``mimic_queries.yaml``, with its placeholders ``{part}`` filled by
    ``parts``."""
    return QUERIES[name].format(times=QUERIES["times"], **parts)


def _line_of(path: Path, column: str, value: str) -> int | None:
    """Return the line on which the first row of a CSV file with this ``value`` in ``column`` begins; None for a Parquet
    file, and where no row has it. The scan is slow, so it is used for error messages only."""
    if path.suffix == ".parquet":
        return None
    rows = ((line, [field.strip() for field in fields]) for line, fields in csv_rows(path))
    place = next(rows)[1].index(column)
    return next((line for line, row in rows if place < len(row) and row[place] in (value, f"{value}.0")), None)


def _cleaning_query(columns: Sequence[str], source: str, texts: Mapping[str, str]) -> str:
    """Write a query (SQL) that reads ``columns`` of the table ``source`` and cleans them. ``texts`` has expressions
    that read columns which are not text.

    Fields become text without white space at the ends, and NULL where they are empty or say that they are missing. A
    whole number that a tool wrote as ``20044587.0`` loses its ``.0``. Each step is a query of its own around the one
    before: otherwise DuckDB would trim a field once for each use.
    """
    steps = [{column: f"trim({texts.get(column, column)}::VARCHAR)" for column in columns}]
    steps.append({column: f"CASE WHEN ends_with({column}, '.0') THEN {column}[:-3] ELSE {column} END"
                  for column in columns if _WHOLE_NUMBER.fullmatch(column)})  # fmt: skip
    # A number; in its place tools write NA, 0, ... where there is none.
    steps.append({column: f"CASE WHEN regexp_matches({column}, '[1-9]') THEN {column} END"
                  for column in columns if column == "hadm_id"})  # fmt: skip
    steps.append({column: f"CASE WHEN NOT regexp_full_match({column}, '{_NAMELESS}') THEN {column} END"
                  for column in columns if column in _NAMES})  # fmt: skip
    missing = ", ".join(map(_literal, sorted({"", "None", *MISSING})))  # a tool wrote None
    steps.append({column: f"CASE WHEN {column} NOT IN ({missing}) THEN {column} END" for column in columns})
    for step in filter(None, steps):
        source = f"(SELECT {', '.join(f'{step.get(column, column)} AS {column}' for column in columns)} FROM {source})"
    return source


def _literal(text: str) -> str:
    """Return a text as a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
