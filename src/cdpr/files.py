"""Writes files whole or not at all, reads CSV tables and YAML, and computes digests of files."""

import contextlib
import csv
import errno
import gzip
import hashlib
import io
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .escape import csv_cell

if TYPE_CHECKING:
    from pydantic import BaseModel

Line = TypeVar("Line", bound="BaseModel")
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)  # error numbers: no space left, quota of the user exceeded


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write a file whole or not at all. Yields a temporary path beside ``path``, to which the caller writes. That file
    replaces ``path`` when the context ends, and is removed when it ends with an error. A missing folder is created."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        if error.errno in FULL_DISK:  # such an error names no file
            error.filename = error.filename or str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write bytes to a file, whole or not at all. Returns the path."""
    with replacing(path) as partial:
        partial.write_bytes(content)
    return Path(path)


def write_text(path: str | Path, text: str) -> Path:
    """Write text to a file in UTF-8, whole or not at all. Returns the path."""
    return write_bytes(path, text.encode("utf-8"))


def append_text(path: Path, text: str) -> None:
    """Append text to a file in UTF-8. A missing file or folder is created. When this returns, the whole file is safe
    from a power cut; a kill before that may leave a part of the text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def write_csv(
    path: str | Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, for_people: bool = True
) -> Path:
    """Write a CSV table, compressed where the name ends in ``.gz``. Equal rows give equal bytes. Returns the path.

    ``rows`` are dictionaries by column. A missing column is written empty; a column that is not in ``columns`` raises
    ValueError. With ``for_people`` texts that would be formulas in a spreadsheet are escaped
    (:func:`cdpr.escape.csv_cell`).
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    cells = ({name: csv_cell(cell) for name, cell in row.items()} for row in rows)
    writer.writerows(cells if for_people else rows)
    data = text.getvalue().encode("utf-8")
    return write_gz(path, [data]) if Path(path).suffix == ".gz" else write_bytes(path, data)


def write_gz(path: str | Path, parts: Iterable[bytes]) -> Path:
    """Write a gzip file with the joined ``parts``, whole or not at all; returns the path. Equal contents give equal
    bytes on every system, because the header has no time and is written by Python, unlike that of ``gzip.compress``."""
    # GzipFile: no name in the header, mode, level of compression, the file, no time in the header.
    with replacing(path) as partial, partial.open("wb") as target, gzip.GzipFile("", "wb", 6, target, 0) as packed:
        packed.writelines(parts)
    return Path(path)


class TableError(ValueError):
    """A table that cannot be used; the message names file, line and field."""


def open_text(path: Path) -> io.TextIOBase:
    """Open a text file in UTF-8 for reading. A file whose name ends in ``.gz`` is decompressed."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")  # type: ignore[return-value]
    return path.open(encoding="utf-8-sig", newline="")


def csv_records(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Parse the lines of a CSV table. Yields for each record the number of its first line, from 1, and its fields.
    Empty lines are skipped.

    Raises csv.Error for a stray quote or an incomplete last record. The second argument of the error is the number of
    the record's first line.
    """
    reader, begin = csv.reader(lines, strict=True), 1
    try:
        for fields in reader:
            if fields:
                yield begin, fields
            begin = reader.line_num + 1
    except csv.Error as error:
        raise csv.Error(str(error), begin) from error


def read_table(
    path: str | Path, columns: Sequence[str] = (), error: type[ValueError] = TableError
) -> list[tuple[str, dict[str, str]]]:
    """Read a CSV file. Returns for each row its location (``file:line``) and its cells by column.

    The header must have ``columns`` and can have others. Raises an error of the class ``error`` for a file that cannot
    be read whole, for a missing or repeated column, and for a row with more or fewer fields than the header. The
    message quotes no cell, which may be the text of a patient.
    """
    path = Path(path)
    try:
        with open_text(path) as lines:
            records = list(csv_records(lines))
    except csv.Error as problem:
        fault, first_line = problem.args
        raise error(f"{path}:{first_line}: not CSV ({fault}); is the file whole?") from problem
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
        # An OSError has its words in `strerror`, a UnicodeDecodeError in `reason`, the others in their text.
        reason = getattr(problem, "strerror", None) or getattr(problem, "reason", None) or problem
        raise error(f"{path}: cannot be read as CSV in UTF-8: {reason}") from problem
    first, header = records[0] if records else (1, [])
    for column in columns:
        if column not in header:
            raise error(f"{path}:{first}: no column {column!r}; expected {', '.join(columns)}, with commas between")
    if len(set(header)) < len(header):
        raise error(f"{path}:{first}: a column appears twice")
    for line, fields in records[1:]:
        if (count := len(fields)) != len(header):
            raise error(f"{path}:{line}: expected {len(header)} fields, as in the header, but the row has {count}")
    return [(f"{path}:{line}", dict(zip(header, fields, strict=True))) for line, fields in records[1:]]


def shipped_table(package: str, *path: str) -> list[dict[str, str]]:
    """Read a CSV file that is part of an installed package. Returns its rows as dictionaries by column. ``path`` are
    the folders and the name of the file inside the package."""
    return [row for _, row in read_table(Path(str(resources.files(package).joinpath(*path))))]


def shipped_text(package: str, *path: str) -> str:
    """Read a text file that is part of an installed package. ``path`` are the folders and the name of the file inside
    the package."""
    return resources.files(package).joinpath(*path).read_text(encoding="utf-8")


def read_json_lines(
    path: str | Path,
    kind: type[Line],
    error: type[ValueError] = TableError,
    remedy: str = "; remove the file and start snakemake again",
) -> Iterator[tuple[int, Line]]:
    """Yield the records in a file that has one JSON object per line, each as (number of its line, object of the
    pydantic class ``kind``). A file whose name ends in ``.gz`` is decompressed.

    Raises ``error`` for a line that is no such record, and for a file that is not UTF-8. The message names file, line
    and field, ends with ``remedy``, and quotes nothing of the line, which may hold text of a case; the name of an
    unknown field is a text of the line too.
    """
    from pydantic import ValidationError

    number = 0
    try:
        with open_text(Path(path)) as lines:
            for number, line in enumerate(lines, 1):
                yield number, kind.model_validate_json(line)
    except ValidationError as problem:  # no cause of the error below, since it may quote a patient's text
        first = problem.errors()[0]
        field = next((name for name in first["loc"][:1] if name in kind.model_fields), "record")
        fault = f"not JSON ({first['msg']})" if first["type"] == "json_invalid" else f"field {field!r}: {first['msg']}"
        raise error(f"{path}:{number}: {fault}{remedy}") from None
    except UnicodeDecodeError as problem:
        raise error(f"{path}:{number + 1}: not UTF-8 ({problem.reason}){remedy}") from None


def parse_yaml(text: str) -> Any:
    """Parse a YAML text; returns its content. The fast parser libyaml is used where it is installed. Raises
    yaml.YAMLError."""
    import yaml

    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def file_type(path: str | Path) -> str:
    """Say what is at a path: ``file``, ``folder`` or ``other``, and an empty text where nothing is. Raises
    PermissionError for a folder that this user cannot read; ``Path.exists`` returns False for it since Python 3.14."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return {stat.S_IFREG: "file", stat.S_IFDIR: "folder"}.get(stat.S_IFMT(mode), "other")


def path_digest(path: str | Path) -> str:
    """Compute the SHA-256 of a file's bytes, as hexadecimal text. For a folder it covers the names and bytes of all
    files in it, at any depth, except Snakemake's time stamp. The path must exist: a missing one is taken for an empty
    folder."""
    path = Path(path)
    if path.is_file():
        return file_digest(path)
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file() and p.name != ".snakemake_timestamp"):
        digest.update(f"{file.relative_to(path).as_posix()}={file_digest(file)}\n".encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Compute the SHA-256 of a file's bytes, as hexadecimal text."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class DigestCache:
    """A cache of SHA-256 digests, kept in the JSON file ``path`` if its folder exists, else in memory (None: always). A
    digest is computed again only when the size or the modification time of its file has changed."""

    def __init__(self, path: str | Path | None):
        """Read the digests that the cache's file has. A missing or damaged file gives an empty cache."""
        self._path = Path(path) if path else None
        self._values: dict[str, list] = {}
        self._changed = False
        with contextlib.suppress(OSError, ValueError):
            self._values = json.loads(self._path.read_text(encoding="utf-8")) if self._path else {}

    def digest(self, path: str | Path) -> str:
        """The SHA-256 of a file or folder as :func:`path_digest` computes it, or ``"absent"`` where there is none.
        Saves the cache of digests."""
        path = Path(path)
        if not file_type(path):
            return "absent"
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        # Names, sizes and times of change (nanoseconds), by which a change of the content is noticed.
        stamp = [[str(f.relative_to(path)), f.stat().st_size, f.stat().st_mtime_ns] for f in files]
        value = self.remember(str(path.resolve()), stamp, lambda: path_digest(path))
        self.save()
        return value

    def remember(self, name: str, stamp: list, compute: Callable[[], Any]) -> Any:
        """Return the value that is stored under ``name``, if it was stored with an equal ``stamp``. Otherwise store the
        result of ``compute()`` with the stamp, and return it. Stamp and value must be JSON values.

        An example of a stamp is the size and the time of a file, whose digest is the value.
        """
        stored_stamp, value = self._values.get(name, (None, None))
        if stored_stamp != stamp:
            value = compute()
            self._values[name], self._changed = [stamp, value], True
        return value

    def save(self) -> None:
        """Write the cache to its file if it has changed and the folder of the file exists."""
        if self._path and self._changed and self._path.parent.is_dir():
            write_text(self._path, json.dumps(self._values, sort_keys=True))
            self._changed = False
