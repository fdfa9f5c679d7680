"""Records on disk: one JSON object a line, every error with file, line and field."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from ..files import replacing
from .record import CaseRecord

_SPLIT = re.compile(r'"split": ?"(\w+)"')
_TAIL = 512  # characters; our own files name the split near the end of a line


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


def iterate_records(path: str | Path, split: str | None = None) -> Iterator[CaseRecord]:
    """Records one by one, of one split or all. Raises :class:`RecordError` on the first line that is not one; lines
    that clearly belong to another split are passed over unread."""
    path = Path(path)
    seen: dict[str, int] = {}
    with path.open(encoding="utf-8", errors="strict") as lines:
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                # Within a text the quotes would be escaped.
                told = _SPLIT.search(line, max(0, len(line) - _TAIL)) if split else None
                if told is not None and told[1] != split:
                    continue
                record = _parse(path, number, line)
                if record.note_id in seen:
                    raise RecordError(
                        f"{path}:{number}: note_id {record.note_id!r} stands already in line {seen[record.note_id]}"
                    )
                seen[record.note_id] = number
                if split in (None, record.split):
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
