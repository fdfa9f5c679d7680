"""Seeded damage to files: of bytes, lines, cells, JSON values, archives and folders."""

import csv
import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

NASTY = [
    "", " ", "NULL", "\\N", "nan", "None", "N/A", "-1", "0", "1e999", "9" * 25, "3.14.15", "12,5", "20250101", "___",
    "2150-13-45", "02.03.2150 08:00", "2150-03-02", "2150-03-02T08:00:00+99:00", "\x00", "a\x00b", "\u202eabc", "\t",
    "\ud7ff", "\ufeff", "é" * 50, "'; DROP TABLE notes; --", "../../etc/passwd", 'quote " and\nline', "=1+1", "-",
    "x" * 5_000, "{}", "true", "[1", "(((((", "%s%n", "${HOME}", "<div><b", ",,,,,", "\\", "\\u12", "not available",
    "pending",
]  # fmt: skip
VALUES: list[Any] = [None, True, 0, -1, 1.5e300, [], {}, [[]], {"": ""}, [None], "x" * 5_000, *NASTY]
Mutation = Callable[[random.Random, Path], str]


def _content(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def _put(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, 1, mtime=0) if path.suffix == ".gz" else content)


def _of_bytes(change: Callable[[random.Random, bytearray], None]) -> Mutation:
    def mutate(rng: random.Random, path: Path) -> str:
        content = bytearray(_content(path))
        change(rng, content)
        _put(path, bytes(content))
        return change.__name__

    return mutate


def _of_lines(change: Callable[[random.Random, list[bytes]], None]) -> Mutation:
    def mutate(rng: random.Random, path: Path) -> str:
        lines = _content(path).splitlines(keepends=True)
        if lines:
            change(rng, lines)
        _put(path, b"".join(lines))
        return change.__name__

    return mutate


def flip_byte(rng: random.Random, content: bytearray) -> None:
    if content:
        content[rng.randrange(len(content))] = rng.randrange(256)


def insert_bytes(rng: random.Random, content: bytearray) -> None:
    at = rng.randint(0, len(content))
    content[at:at] = rng.randbytes(rng.randint(1, 40))


def delete_span(rng: random.Random, content: bytearray) -> None:
    at = rng.randint(0, len(content))
    del content[at : at + rng.randint(1, 200)]


def repeat_span(rng: random.Random, content: bytearray) -> None:
    at = rng.randint(0, len(content))
    content[at:at] = content[at : at + rng.randint(1, 400)]


def cut(rng: random.Random, content: bytearray) -> None:
    del content[rng.randint(0, len(content)) :]


def other_marks(rng: random.Random, content: bytearray) -> None:
    old, new = rng.choice([(b",", b";"), (b",", b"\t"), (b'"', b"'"), (b"\n", b"\r"), (b"\n", b"\r\n"), (b'"', b""),
                           (b":", b"="), (b".", b",")])  # fmt: skip
    content[:] = content.replace(b"\r\n", b"\n").replace(old, new)


def other_encoding(rng: random.Random, content: bytearray) -> None:
    text = content.decode("utf-8", errors="replace") + "é"
    content[:] = text.encode(rng.choice(["utf-16", "latin-1", "utf-8-sig", "utf-16-le", "cp1252", "utf-32"]), "replace")


def empty(rng: random.Random, content: bytearray) -> None:
    content[:] = rng.choice([b"", b"\n", b"\xef\xbb\xbf", b" ", b"\n\n\n", b"{}", b"[]", b"null", b"\x00" * 100])


def noise(rng: random.Random, content: bytearray) -> None:
    content[:] = rng.choice([b"", b"PK\x03\x04", b"\x1f\x8b", b"PAR1", b"%PDF-1.4"]) + rng.randbytes(
        rng.randint(1, 3_000)
    )


def drop_line(rng: random.Random, lines: list[bytes]) -> None:
    del lines[rng.randrange(len(lines))]


def repeat_line(rng: random.Random, lines: list[bytes]) -> None:
    lines.insert(rng.randint(0, len(lines)), rng.choice(lines))


def shuffle_lines(rng: random.Random, lines: list[bytes]) -> None:
    rng.shuffle(lines)


def blank_lines_first(rng: random.Random, lines: list[bytes]) -> None:
    lines[:0] = [rng.choice([b"\n", b" \n", b",,,\n", b"# remark\n", b"sep=,\n"])] * rng.randint(1, 3)


def cut_at_line(rng: random.Random, lines: list[bytes]) -> None:
    del lines[rng.randint(0, len(lines)) :]


def _rows(path: Path) -> list[list[str]] | None:
    try:
        return list(csv.reader(io.StringIO(_content(path).decode("utf-8", "surrogateescape"), newline="")))
    except csv.Error:
        return None


def _put_rows(path: Path, rows: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    _put(path, text.getvalue().encode("utf-8", "surrogateescape"))


def cell(rng: random.Random, path: Path) -> str:
    """One cell, or a whole column, with something else in it."""
    rows = _rows(path)
    if not rows or not any(rows):
        return "cell"
    width = max(map(len, rows))
    column, value = rng.randrange(width), rng.choice(NASTY)
    chosen = [rng.randrange(len(rows))] if rng.random() < 0.6 else range(1, len(rows))
    for number in chosen:
        if column < len(rows[number]):
            rows[number][column] = value
    _put_rows(path, rows)
    return "cell" if len(chosen) == 1 else "column filled"


def columns(rng: random.Random, path: Path) -> str:
    """A column lost, twice, in another place, or under another name; or two exchanged below their names."""
    rows = _rows(path)
    if not rows or not any(rows):
        return "columns"
    width, kind = len(max(rows, key=len)), rng.choice(["lost", "twice", "moved", "renamed", "exchanged"])
    a, b = rng.randrange(width), rng.randrange(width)
    for number, row in enumerate(rows):
        if max(a, b) >= len(row):
            continue
        if kind == "lost":
            del row[a]
        elif kind == "twice":
            row.insert(b, row[a])
        elif kind == "moved":
            row.insert(b, row.pop(a))
        elif kind == "renamed" and number == 0:
            row[a] = rng.choice(NASTY)
        elif kind == "exchanged" and number:
            row[a], row[b] = row[b], row[a]
    _put_rows(path, rows)
    return f"column {kind}"


def json_value(rng: random.Random, path: Path) -> str:
    """A value of a JSON text replaced, dropped, renamed, repeated or wrapped."""
    text = _content(path).decode("utf-8", "replace")
    lines = text.splitlines() if path.name.removesuffix(".gz").endswith(("jsonl", "ndjson")) else [text]
    number = rng.randrange(len(lines)) if lines else 0
    try:
        value = json.loads(lines[number])
    except (ValueError, IndexError):
        return "json"
    holders = [node for node in _nodes(value) if isinstance(node, (dict, list)) and node]
    if not holders:
        return "json"
    holder, kind = rng.choice(holders), rng.choice(["replaced", "dropped", "renamed", "wrapped", "deep", "exchanged"])
    key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if kind == "replaced":
        holder[key] = rng.choice(VALUES)
    elif kind == "dropped":
        del holder[key]
    elif kind == "renamed" and isinstance(holder, dict):
        holder[rng.choice(NASTY)] = holder.pop(key)
    elif kind == "wrapped":
        holder[key] = rng.choice([[holder[key]], {"x": holder[key]}, str(holder[key])])
    elif kind == "exchanged":
        other = rng.choice(holders)
        place = rng.choice(list(other) if isinstance(other, dict) else range(len(other)))
        holder[key], other[place] = json.loads(json.dumps(other[place])), json.loads(json.dumps(holder[key]))
    deep = "[" * 5_000 + "]" * 5_000 if kind == "deep" else None
    if deep:
        holder[key] = "DEEP"
    lines[number] = json.dumps(value).replace('"DEEP"', deep or '"DEEP"')
    _put(path, "\n".join(lines).encode())
    return f"json {kind}"


def _nodes(value: Any) -> list[Any]:
    found = [value]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += _nodes(inner)
    return found


def archive(rng: random.Random, path: Path) -> str:
    """The compressed bytes of a .gz or .xlsx themselves."""
    raw = bytearray(path.read_bytes())
    rng.choice([flip_byte, cut, delete_span, insert_bytes])(rng, raw)
    path.write_bytes(raw)
    return "compressed bytes"


def inside_workbook(rng: random.Random, path: Path) -> str:
    """A part of a workbook lost or damaged."""
    out, kind = io.BytesIO(), rng.choice(["lost", "flip", "cut", "span", "cell", "cell"])
    with zipfile.ZipFile(path) as book, zipfile.ZipFile(out, "w") as damaged:
        names = book.namelist()
        sheets = [name for name in names if "sheet1" in name or "sharedStrings" in name]
        chosen = rng.choice(sheets if kind == "cell" and sheets else names)
        for name in names:
            content = bytearray(book.read(name))
            if name == chosen:
                if kind == "lost":
                    continue
                if kind == "cell":
                    _other_text(rng, content)
                else:
                    {"flip": flip_byte, "cut": cut, "span": delete_span}[kind](rng, content)
            damaged.writestr(name, bytes(content))
    path.write_bytes(out.getvalue())
    return f"workbook {kind}"


def _other_text(rng: random.Random, content: bytearray) -> None:
    starts = [i + 1 for i in range(len(content) - 1) if content[i : i + 1] == b">" and content[i + 1 : i + 2] != b"<"]
    if starts:
        start = rng.choice(starts)
        end = content.find(b"<", start)
        content[start:end] = rng.choice(NASTY).encode().replace(b"<", b"&lt;").replace(b"&", b"&amp;")


def file_itself(rng: random.Random, path: Path) -> str:
    """The file gone, a folder in its place, a second one beside it, or under another name."""
    kind = rng.choice(["gone", "folder", "twice", "renamed"])
    content = _content(path)
    if kind == "twice":
        other = path.with_suffix("") if path.suffix == ".gz" else path.with_name(path.name + ".gz")
        _put(other, content)
        return "file twice"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "renamed":
        path.with_name(path.name + rng.choice([".txt", "~", ".gz", ".bak"])).write_bytes(content)
    return f"file {kind}"


_ANYWHERE = (flip_byte, insert_bytes, delete_span, repeat_span, cut, other_marks, other_encoding, empty, noise)
BYTES = [_of_bytes(change) for change in _ANYWHERE]
LINES = [_of_lines(f) for f in (drop_line, repeat_line, shuffle_lines, blank_lines_first, cut_at_line)]
PLAIN: list[Mutation] = [*BYTES, *LINES, file_itself]
OF_KIND: dict[str, list[Mutation]] = {
    "csv": [*PLAIN, cell, cell, cell, cell, columns, columns],
    "json": [*PLAIN, *[json_value] * 10],
    "binary": PLAIN,
    "xlsx": [archive, file_itself, *BYTES[-2:], *[inside_workbook] * 8],
}
