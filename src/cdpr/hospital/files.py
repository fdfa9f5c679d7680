"""Writing files whole or not at all, with the same bytes every time."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_bytes(path: Path, data: bytes) -> None:
    """Write through a temporary file and a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[dict]) -> None:
    """A CSV file, compressed when its name ends in ``.gz``; missing fields are empty, unknown ones an error."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    write_bytes(path, gzip.compress(data, compresslevel=6, mtime=0) if path.suffix == ".gz" else data)
