"""Files that appear whole or not at all, and tables that come with the package."""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside ``path`` to write to; it takes the place of ``path`` when the block ends well
    and is removed when it does not. Folders are made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a file whole or not at all. Returns the path."""
    with replacing(path) as partial:
        partial.write_bytes(content)
    return Path(path)


def write_text(path: str | Path, text: str) -> Path:
    """Write text as UTF-8; see :func:`write_bytes`."""
    return write_bytes(path, text.encode("utf-8"))


def write_csv(path: str | Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write a table, the same bytes every time, compressed where the name ends in ``.gz``; missing fields are empty,
    unknown ones a ValueError. Returns the path."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode("utf-8")
    return write_bytes(path, gzip.compress(data, compresslevel=6, mtime=0) if Path(path).suffix == ".gz" else data)


def with_suffix(stem: str | Path, suffix: str) -> Path:
    """``stem`` plus ``suffix``; dots in the stem stay."""
    stem = Path(stem)
    return stem.with_name(stem.name + suffix)


def shipped_table(package: str, *path: str) -> list[dict[str, str]]:
    """Rows of a CSV file that is part of a package, by column."""
    text = resources.files(package).joinpath(*path).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def path_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes, or of the names and bytes of all files below a folder."""
    path = Path(path)
    if path.is_file():
        return file_digest(path)
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        digest.update(f"{file.relative_to(path).as_posix()}={file_digest(file)}\n".encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
