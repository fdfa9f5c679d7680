"""CSV files with the same bytes every time."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..files import write_bytes


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[dict]) -> None:
    """A CSV file, compressed when its name ends in ``.gz``; missing fields are empty, unknown ones an error."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    write_bytes(path, gzip.compress(data, compresslevel=6, mtime=0) if path.suffix == ".gz" else data)
