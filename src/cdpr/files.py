"""Files that appear whole or not at all, the readers of all CSV tables and YAML files, and digests of files."""

import contextlib
import csv
import errno
import gzip
import hashlib
import io
import json
import os
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from .escape import csv_cell


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A context with a temporary path in the folder of ``path``, which is created if missing. The temporary file
    replaces ``path`` when the context ends; it is removed after an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        if error.errno in _FULL:  # such an error names no file
            error.filename = error.filename or str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a file, whole or not at all. Returns the path."""
    with replacing(path) as partial:
        partial.write_bytes(content)
    return Path(path)


def write_text(path: str | Path, text: str) -> Path:
    """Write text as UTF-8; see :func:`write_bytes`."""
    return write_bytes(path, text.encode("utf-8"))


def write_csv(
    path: str | Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, for_people: bool = True
) -> Path:
    """Write a CSV table, compressed where the name ends in ``.gz``; equal rows give equal bytes. Returns the path.

    Missing fields are empty; fields outside ``columns`` raise ValueError. ``for_people``: texts that would be formulas
    in a spreadsheet are escaped (:func:`cdpr.escape.csv_cell`).
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    cells = ({name: csv_cell(cell) for name, cell in row.items()} for row in rows)
    writer.writerows(cells if for_people else rows)
    data = text.getvalue().encode("utf-8")
    return write_gz(path, [data]) if Path(path).suffix == ".gz" else write_bytes(path, data)


def write_gz(path: str | Path, parts: Iterable[bytes]) -> Path:
    """Write a gzip file, whole or not at all; returns the path. Equal contents give equal bytes on every system: the
    header has no time, and is Python's own, unlike that of ``gzip.compress``."""
    with replacing(path) as partial, partial.open("wb") as target, gzip.GzipFile("", "wb", 6, target, 0) as packed:
        packed.writelines(parts)
    return Path(path)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_REMEDIES = {
    **dict.fromkeys(_FULL, "Free space there"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "Make it writable for you"),
}
_SHARED_MEMORY, _LEAST_FREE = "/dev/shm", 2**20


def disk_problem(number: int | None, where: str | None, folders: Iterable[str] = ()) -> str | None:
    """A message in three lines about a disk or folder: the problem, the path, and what to do; None for other errors.

    ``number`` is the errno of an error, ``where`` its file. Where the error names no file, the full disk is looked for
    among those of ``folders``, of temporary files, and of shared memory.
    """
    if number not in _REMEDIES:
        return None
    if not where and number in _FULL:
        every = (*folders, tempfile.gettempdir(), _SHARED_MEMORY)
        where = next((folder for folder in every if os.path.exists(folder) and _free(folder) < _LEAST_FREE), None)
    if not where and Path(_SHARED_MEMORY).exists() and not os.access(_SHARED_MEMORY, os.W_OK):
        where = _SHARED_MEMORY  # it holds Python's locks between processes, whose errors name no file
    path, home = Path(where or "").absolute(), Path.home()
    instead = "name other folders in paths.results and paths.state (config.yaml)"
    if where == _SHARED_MEMORY:
        instead = "start the container with shared memory"
    elif where and (path in (home, *home.parents) or str(path).startswith(f"{home}/.")):
        instead = "set HOME to a folder that is: programs keep their caches there"
    disk = path if where else "the disk of the results, of the state, or of temporary files"
    return f"{os.strerror(number)}\n{disk}\n{_REMEDIES[number]}, or {instead}; then the same command goes on."


def _free(folder: str) -> int:
    """Bytes that this user may still write on the disk of a folder."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


class TableError(ValueError):
    """A table that cannot be used; the message names file, line and field."""


def open_text(path: Path) -> io.TextIOBase:
    """A text file in UTF-8, opened for reading; decompressed where its name ends in ``.gz``."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")  # type: ignore[return-value]
    return path.open(encoding="utf-8-sig", newline="")


def csv_records(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV table, each as the number of its first line and its fields; empty lines are skipped.

    Raises csv.Error for a stray quote or an incomplete last record; the second argument of the error is the number of
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
    """The rows of a CSV file, each as its location (``file:line``) and its cells by column.

    The header must have ``columns`` and may have others. Raises ``error`` for a file that cannot be read whole, a
    missing or repeated column, and a row with more or fewer fields than the header. The message quotes no cell, which
    may be the text of a patient.
    """
    path = Path(path)
    try:
        with open_text(path) as lines:
            records = list(csv_records(lines))
    except csv.Error as problem:
        raise error(f"{path}:{problem.args[1]}: not CSV ({problem.args[0]}); is the file whole?") from problem
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or getattr(problem, "reason", None) or problem
        raise error(f"{path}: cannot be read as CSV in UTF-8: {reason}") from problem
    first, header = records[0] if records else (1, [])
    for column in columns:
        if column not in header:
            raise error(f"{path}:{first}: no column {column!r}; expected {', '.join(columns)}, with commas between")
    if len(set(header)) < len(header):
        raise error(f"{path}:{first}: a column appears twice")
    for line, fields in records[1:]:
        if len(fields) != len(header):
            raise error(
                f"{path}:{line}: expected {len(header)} fields, as in the header, but the row has {len(fields)}"
            )
    return [(f"{path}:{line}", dict(zip(header, fields, strict=True))) for line, fields in records[1:]]


def shipped_table(package: str, *path: str) -> list[dict[str, str]]:
    """Rows of a CSV file that is part of a package, by column."""
    return [row for _, row in read_table(Path(str(resources.files(package).joinpath(*path))))]


def shipped_text(package: str, *path: str) -> str:
    """A text file that is part of a package."""
    return resources.files(package).joinpath(*path).read_text(encoding="utf-8")


def parse_yaml(text: str) -> Any:
    """The content of a YAML text, read by libyaml if installed, which is ten times as fast. Raises yaml.YAMLError."""
    import yaml

    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def file_type(path: str | Path) -> str:
    """``file``, ``folder`` or ``other``; empty for a path that does not exist. Raises PermissionError where this user
    may not look, unlike ``Path.exists``, which since Python 3.14 returns False."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return {stat.S_IFREG: "file", stat.S_IFDIR: "folder"}.get(stat.S_IFMT(mode), "other")


def path_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes, or of the names and bytes of all files in a folder (without Snakemake's time
    stamp)."""
    path = Path(path)
    if path.is_file():
        return file_digest(path)
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file() and p.name != ".snakemake_timestamp"):
        digest.update(f"{file.relative_to(path).as_posix()}={file_digest(file)}\n".encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class DigestCache:
    """A cache of digests in the file ``path`` (None: in memory). A digest is computed again only when the size or the
    modification time of its file has changed."""

    def __init__(self, path: str | Path | None):
        self._path = Path(path) if path else None
        self._values: dict[str, list] = {}
        self._changed = False
        with contextlib.suppress(OSError, ValueError):
            self._values = json.loads(self._path.read_text(encoding="utf-8")) if self._path else {}

    def digest(self, path: str | Path) -> str:
        """Digest of a file or folder; ``"absent"`` when it does not exist."""
        path = Path(path)
        if not file_type(path):
            return "absent"
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        stamp = [[str(f.relative_to(path)), f.stat().st_size, f.stat().st_mtime_ns] for f in files]
        value = self.remember(str(path.resolve()), stamp, lambda: path_digest(path))
        self.save()
        return value

    def remember(self, name: str, stamp: list, compute: Callable[[], Any]) -> Any:
        """The value stored under this name and stamp (both JSON); computed when there is none."""
        if name not in self._values or self._values[name][0] != stamp:
            self._values[name] = [stamp, compute()]
            self._changed = True
        return self._values[name][1]

    def save(self) -> None:
        """Write the cache to its file if it has changed."""
        if self._path and self._changed:
            write_text(self._path, json.dumps(self._values, sort_keys=True))
            self._changed = False
