"""Records on disk: one JSON object a line, every error with file, line and field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from ..files import replacing
from .record import CaseRecord


class RecordError(ValueError):
    """A record file that cannot be trusted; the message names file, line and field."""


def write_records(path: str | Path, records: Iterable[CaseRecord]) -> int:
    """Write records atomically (temporary file, then rename); returns how many."""
    count = 0
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as out:
        for record in records:
            out.write(json.dumps(record.model_dump(), ensure_ascii=False) + "\n")
            count += 1
    return count


def read_records(path: str | Path) -> list[CaseRecord]:
    """All records of a file. Raises :class:`RecordError`."""
    return list(iterate_records(path))


def iterate_records(path: str | Path) -> Iterator[CaseRecord]:
    """Records one by one. Raises :class:`RecordError` on the first line that is not one."""
    path = Path(path)
    seen: dict[str, int] = {}
    with path.open(encoding="utf-8", errors="strict") as lines:
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                record = _parse(path, number, line)
                if record.note_id in seen:
                    raise RecordError(
                        f"{path}:{number}: note_id {record.note_id!r} stands already in line {seen[record.note_id]}"
                    )
                seen[record.note_id] = number
                yield record
        except UnicodeDecodeError as error:
            raise RecordError(f"{path}:{number + 1}: not UTF-8 ({error.reason})") from error


def _parse(path: Path, number: int, line: str) -> CaseRecord:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}:{number}: not JSON at column {error.colno} ({error.msg})") from error
    try:
        return CaseRecord.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "record"
        raise RecordError(f"{path}:{number}: field {field!r}: {first['msg']}") from error
