"""Reading CSV and JSON files, whatever their names say, and walking JSON by objects that know their path.

Every problem, also a value of another type than expected, is an IngestError with file, line and field.
"""

import bz2
import contextlib
import csv
import difflib
import gzip
import hashlib
import io
import json
import lzma
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

from ..files import csv_records, file_type
from .texts import HALF_CHARACTER, LONGEST_TEXT, one_line, phrases, quoted, visible

_PACKED_ENDINGS = ("", ".gz", ".zip", ".bz2", ".xz")
LONGEST_NOTE = 32 * 1024 * 1024  # bytes of one row of a table of notes

# Python's own limit (131,072) is below what a long report may hold.
csv.field_size_limit(LONGEST_NOTE)
# What a file is, by its first bytes: packed ones are opened, any other is named.
_MAGIC = {kind: bytes.fromhex(start) for kind, start in phrases("flat_files")["magic"].items()}
_PACKED: dict[str, Callable[[Any], Any]] = {
    "gzip": lambda stream: gzip.GzipFile(fileobj=stream, mode="rb"),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}
_LAYERS = 4  # of packing
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")  # as repr writes them


class IngestError(ValueError):
    """Raw data that cannot be trusted. The message names file, line and field, and what to do.

    What stands in quotes, in any of its parts, is out of the file: names of JSON objects and headings too.
    """

    def __init__(self, path: str | Path, problem: str, remedy: str, line: int | None = None, field: str | None = None):
        self.path, self.line, self.field, self.problem, self.remedy = Path(path), line, field, problem, remedy
        place = f"{path}:{line}" if line is not None else f"{path}"
        # A field out of the file brings its own quotes.
        field_text = f"field {field if _QUOTED.search(field) else repr(field)}: " if field is not None else ""
        super().__init__(f"{place}: {field_text}{problem}; {remedy}")

    @classmethod
    def not_permitted(cls, error: PermissionError) -> "IngestError":
        """The error about a file or folder that this user may not read."""
        return cls(str(error.filename), "may not be read by this user", "ask its owner, or see to its permissions")

    def without_text(self) -> "IngestError":
        """The same error without the values that it quotes, for cases that must not appear in a log."""
        parts = (self.problem, self.remedy, self.field)
        problem, remedy, field = (_QUOTED.sub("'(withheld)'", text or "") for text in parts)
        return IngestError(self.path, problem, remedy, line=self.line, field=field or None)


@contextlib.contextmanager
def collected(problems: list[IngestError]) -> Iterator[None]:
    """Within it what cannot be read ends the block and is added to the problems."""
    try:
        yield
    except IngestError as problem:
        problems.append(problem)


def files_at(path: Path, ending: str) -> list[Path]:
    """The file itself, or those files of a folder that end so, compressed ones included."""
    if file_type(path) != "folder":
        return [path]
    endings = tuple(ending + packed for packed in _PACKED_ENDINGS)
    return sorted(f for f in path.iterdir() if f.name.endswith(endings) and f.name[0] != ".")


def file_called(folder: Path, name: str, *endings: str) -> Path | None:
    """The one file of a folder that has this name with one of the endings, compressed or not; None without any. Raises
    IngestError for several."""
    spellings = (f"{name}{ending}{packed}" for ending in endings or ("",) for packed in _PACKED_ENDINGS)
    paths = [path for one in spellings if file_type(path := folder / one) == "file"]
    if len(paths) > 1:
        names = " and ".join(path.name for path in paths)
        raise IngestError(paths[0].parent, f"holds {names}", "keep the one that is right")
    return next(iter(paths), None)


def content_of(path: Path) -> tuple[str, list[str], io.BufferedReader]:
    """What a file holds once it is unpacked, however often and whatever its name says: ``text`` or another kind of
    ``phrases.yaml``; how it was packed; and a stream of it. Raises IngestError for an archive of several files or a
    workbook."""
    layers: list[str] = []
    stream: io.BufferedReader[Any] = path.open("rb")
    while True:
        start = stream.peek(16)[:16]
        kind = next((kind for kind, magic in _MAGIC.items() if start.startswith(magic)), "text")
        if kind == "zip":
            archive = zipfile.ZipFile(stream)
            members = [one.filename for one in archive.infolist() if not (one.is_dir() or "__MACOSX" in one.filename)]
            if any(name.startswith("xl/") for name in members):
                raise IngestError(path, "an Excel workbook", "save its sheet as CSV UTF-8")
            if len(members) != 1:
                raise IngestError(path, f"an archive of {len(members)} files", "unpack it into a folder")
            stream = io.BufferedReader(archive.open(members[0]))
        elif kind in _PACKED and len(layers) < _LAYERS:
            stream = io.BufferedReader(_PACKED[kind](stream))
        else:
            return kind, layers, stream
        layers.append(kind)


def open_raw(path: Path) -> io.TextIOWrapper:
    """The text of a file by its first bytes; what is not UTF-8 becomes surrogates. Raises IngestError for what is no
    text."""
    kind, _, stream = content_of(path)
    if kind != "text":
        raise IngestError(path, f"{kind}, whatever its name says", "give the text itself, saved as UTF-8")
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")


@contextlib.contextmanager
def as_ingest_errors(path: Path) -> Iterator[None]:
    """A context that turns errors of reading a file into IngestErrors, with the remedy."""
    try:
        yield
    except csv.Error as error:
        problem = f"the row that begins here cannot be read ({error.args[0]})"
        remedy = "close every double quote, and double those inside a text"
        _, line = error.args  # by `csv_records`
        raise IngestError(path, problem, remedy, line=line) from error
    except PermissionError as error:
        raise IngestError.not_permitted(error) from error
    except FileNotFoundError as error:
        raise IngestError(path, "no such file", "check the path of this data set, and which files it needs") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno is not None:
            problem = f"cannot be read ({type(error).__name__})"
            raise IngestError(path, problem, "check the file and its permissions") from error
        problem = "the compressed file is cut short or damaged"
        raise IngestError(path, problem, "copy, download or compress it again") from error


def _not_utf8(path: Path, line: int, start: str) -> IngestError:
    """The error about a line that was read with ``surrogateescape``; ``start`` is how the file begins."""
    if start.startswith(("\udcff\udcfe", "\udcfe\udcff")):
        return IngestError(path, "UTF-16, not UTF-8", "save the file as UTF-8 (in Excel: CSV UTF-8, not Unicode Text)",
                           line=line)  # fmt: skip
    return IngestError(path, "not UTF-8 in the row that begins here", "save the file as UTF-8", line=line)


def csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line at which it begins, and fields, of each row of a table that is not blank. Raises IngestError."""
    with as_ingest_errors(path), open_raw(path) as lines:
        for line, fields in csv_records(lines):
            if any(map(HALF_CHARACTER.search, fields)):
                raise _not_utf8(path, line, fields[0])
            if any(visible(field).strip() for field in fields):
                yield line, fields


def header_faults(path: Path, line: int, names: list[str], remedies: Mapping[str, str]) -> Iterator[IngestError]:
    """An error for each column that a header has not, with its remedy, and for each that it has more than once."""
    for column, remedy in remedies.items():
        if column not in names:
            near = difflib.get_close_matches(column, [name for name in names if name not in remedies], 1)
            advice = f"rename the column {quoted(near[0])}" if near else remedy
            yield IngestError(path, "no such column", advice, line=line, field=column)
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        yield IngestError(path, "the column stands twice", "keep one of them", line=line, field=quoted(name))


def read_text(path: Path) -> str:
    """The text of a file, decompressed where it is packed. Raises IngestError."""
    with as_ingest_errors(path), open_raw(path) as lines:
        text = lines.read()
    if broken := HALF_CHARACTER.search(text):
        raise _not_utf8(path, text.count("\n", 0, broken.start()) + 1, text)
    return text


def filled_lines(path: Path) -> list[tuple[int, str]]:
    """Number and text of each line that is not blank. Raises IngestError."""
    return [(number, text) for number, text in enumerate(read_text(path).split("\n"), 1) if text.strip()]


def parse_json(path: Path, text: str, line: int = 1) -> Any:
    """A JSON value that begins at a line of a file, with all its texts :func:`visible`. Raises IngestError."""

    def unfit(problem: str, field: str | None = None, at: int = line) -> IngestError:
        remedy = "repair the file or export it again (JSON Lines: one object a line)"
        return IngestError(path, problem, remedy, line=at, field=field)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = {visible(name): value for name, value in pairs}
        if len(content) < len(pairs):
            names = Counter(visible(name) for name, _ in pairs)
            raise unfit("stands twice in one object", quoted(names.most_common(1)[0][0]))
        return content

    def no_number(name: str) -> NoReturn:
        raise unfit(f"{name} is no number")

    def checked(value: Any, *place: str | int) -> Any:
        if isinstance(value, dict):
            return {name: checked(inner, *place, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [checked(inner, *place, index) for index, inner in enumerate(value)]
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            where = "".join(f"[{part}]" if isinstance(part, int) else f".{quoted(part)}" for part in place)
            raise unfit(f"a text of {len(value):,} characters", where.lstrip("."))
        return visible(value) if isinstance(value, str) else value

    try:
        return checked(json.loads(text, object_pairs_hook=unique, parse_constant=no_number))
    except json.JSONDecodeError as error:
        reason = error.msg.replace("','", "a comma as").replace("':'", "a colon as")  # quotes would be withheld
        raise unfit(f"not JSON at column {error.colno} ({reason})", at=line + error.lineno - 1) from error
    except IngestError:
        raise
    except (RecursionError, ValueError) as error:
        raise unfit("nested too deeply, or a number too long") from error


class Element:
    """A JSON object, and where it stands in its file. What is absent, or null, is empty.

    Raises IngestError for a value that is no object, and so do its methods for parts of another type than they read.
    """

    remedy = "use the data set as published"

    def __init__(self, value: Any, path: Path, line: int | None = None, place: str = ""):
        self.value, self.path, self.line, self.place = value, path, line, place
        if not isinstance(value, Mapping):
            problem = f"expected an object, found {type(value).__name__}"
            raise IngestError(path, problem, self.remedy, line=line, field=place or None)

    def __bool__(self) -> bool:
        return bool(self.value)

    def wrong(self, name: str, problem: str, remedy: str = "") -> IngestError:
        """An error about one of its parts."""
        return IngestError(self.path, problem, remedy or self.remedy, line=self.line, field=self._place(name))

    def text(self, name: str) -> str:
        """A string, stripped."""
        return self._typed(name, str, "text", "").strip()

    def number(self, name: str) -> str:
        """A number as it is written, without a power of ten."""
        value = self._typed(name, (int, float), "a number", "")
        return f"{value:.10f}".rstrip("0").rstrip(".") if "e" in str(value) else str(value)

    def one(self, name: str, required: bool = False) -> Self:
        """An object."""
        if required and self.value.get(name) is None:
            raise self.wrong(name, "expected an object of this name")
        return self._part(name, self._typed(name, Mapping, "an object", {}))

    def many(self, name: str) -> list[Self]:
        """A list of objects."""
        values = self._typed(name, list, "a list", [])
        return [self._part(f"{name}[{index}]", value) for index, value in enumerate(values)]

    def _part(self, name: str, value: Any) -> Self:
        """The element at a name within this one."""
        return type(self)(value, self.path, self.line, self._place(name))

    def _place(self, name: str) -> str:
        """The path of a name within this element, for messages."""
        return f"{self.place}.{name}".strip(".")

    def _typed(self, name: str, kind: Any, called: str, absent: Any) -> Any:
        """The value of a name if it is of the type, ``absent`` if there is none. Raises IngestError for another
        type."""
        value = self.value.get(name)
        if value is None:
            return absent
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(name, f"expected {called}, found {type(value).__name__}")
        return value


def flat_text(content: Any, label: Callable[[str], str], keep: Callable[[str], bool] = bool) -> str:
    """Any JSON value on one line: ``Label: value; ...`` for objects, ``a, b`` for lists. A name whose label is empty
    does not stand there, and neither does a text that is not to ``keep``."""
    if isinstance(content, Mapping):
        parts = ((label(name), flat_text(inner, label, keep)) for name, inner in content.items())
        return "; ".join(f"{name}: {text}" if name else text for name, text in parts if text)
    if isinstance(content, list):
        return ", ".join(filter(None, (flat_text(inner, label, keep) for inner in content)))
    text = "" if content is None else one_line(str(content))
    return text if keep(text) else ""


def json_lines(path: Path) -> Iterator[Element]:
    """The objects of a file, one a line, or of the one ``*.jsonl`` file of a folder. Raises IngestError."""
    files = files_at(path, ".jsonl")
    if len(files) != 1:
        raise IngestError(path, f"{len(files)} files *.jsonl in this folder", "give the path of one of them")
    return (Element(parse_json(files[0], text, line), files[0], line) for line, text in filled_lines(files[0]))


def number_of(dataset: str, content: Any) -> str:
    """The number of a case that has none of its own: a digest of its content."""
    return f"{dataset}-" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
