"""Reads CSV and JSON files by their content, not by their names, and gives access to JSON values by type.

Every problem, also a value of another type than expected, is an IngestError with file, line and field.
"""

import bz2
import contextlib
import csv
import difflib
import functools
import gzip
import hashlib
import io
import json
import lzma
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..files import csv_records, file_type
from .texts import HALF_CHARACTER, LONGEST_TEXT, one_line, patterns, phrases, quoted, visible

_PACKED_ENDINGS = ("", ".gz", ".zip", ".bz2", ".xz")
LONGEST_NOTE = 32 * 1024 * 1024  # bytes of one row of a table of notes

# Python's own limit (131,072) is below what a long report may hold.
csv.field_size_limit(LONGEST_NOTE)
# What a file is, by its first bytes: packed ones are opened, any other is named.
_MAGIC = {kind: bytes.fromhex(start) for kind, start in phrases("flat_files")["magic"].items()}
_COMPRESSED: dict[str, Callable[[Any], Any]] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
_FILES = (("data",), ("content",))  # the names of whole files in base64, as FHIR has them; STU3 called some "content"
# What is wrong with a file or folder that this user is not allowed to read, and what to do about it.
NOT_PERMITTED = ("may not be read by this user", "ask its owner, or see to its permissions")
_MOST_PACKINGS = 4  # compressions and archives around one file
_QUOTED, _NUMBER = patterns("flat_files").quoted, patterns("flat_files").number  # text in quotes, as repr writes it


class IngestError(ValueError):
    """Raw data that cannot be used. The message names the file, the line and the field, and says what to do.

    Text in quotes in the message is from the file: values, and also names of JSON objects and of columns.
    """

    def __init__(self, path: str | Path, problem: str, remedy: str, line: int | None = None, field: str | None = None):
        """Write the message ``path:line: field ...: problem; remedy``; ``line`` and ``field`` may be left out."""
        self.path, self.line, self.field, self.problem, self.remedy = Path(path), line, field, problem, remedy
        location = f"{path}:{line}" if line is not None else f"{path}"
        # A field whose name was read from the file has quotes already; they mark it as text to withhold.
        field_text = f"field {field if _QUOTED.search(field) else repr(field)}: " if field is not None else ""
        super().__init__(f"{location}: {field_text}{problem}; {remedy}")

    def without_text(self) -> "IngestError":
        """Return the same error with all quoted values withheld, for cases whose text must not appear in a log."""
        texts = (self.problem, self.remedy, self.field)
        problem, remedy, field = (_QUOTED.sub("'(withheld)'", text or "") for text in texts)
        return IngestError(self.path, problem, remedy, line=self.line, field=field or None)


@contextlib.contextmanager
def as_problems(problems: list[IngestError]) -> Iterator[None]:
    """A context that catches an IngestError: the block ends, and the error is appended to ``problems`` instead of
    raised."""
    try:
        yield
    except IngestError as problem:
        problems.append(problem)


def files_with_ending(path: Path, ending: str) -> list[Path]:
    """Return the files of a folder whose names end in ``ending``, or in ``ending`` and that of a compressed file
    (``.json.gz``), without hidden ones; sorted. A path that is no folder is returned itself."""
    if file_type(path) != "folder":
        return [path]
    endings = tuple(ending + packed for packed in _PACKED_ENDINGS)
    return sorted(file for file in path.iterdir() if file.name.endswith(endings) and file.name[0] != ".")


def find_file(folder: Path, name: str, *endings: str) -> Path | None:
    """Find the one file in ``folder`` that is called ``name`` with one of the ``endings`` (none given: ``name`` has
    its own), compressed or not; None where there is none. Raises IngestError for several."""
    candidates = (folder / f"{name}{ending}{packed}" for ending in endings or ("",) for packed in _PACKED_ENDINGS)
    paths = [path for path in candidates if file_type(path) == "file"]
    if len(paths) > 1:
        names = " and ".join(path.name for path in paths)
        raise IngestError(paths[0].parent, f"holds {names}", "keep the one that is right")
    return next(iter(paths), None)


def open_content(path: Path) -> tuple[str, list[str], io.BufferedReader]:
    """Open a file and unpack it, through at most :data:`_MOST_PACKINGS` compressions and archives. The first bytes
    decide what it is, not its name.

    Returns three things: the kind of the content (``text``, or another one of ``flat_files`` in ``phrases.yaml``, such
    as ``PDF``); the compressions around it, outermost first; and a stream of the unpacked bytes. Raises IngestError for
    an archive of several files and for an Excel workbook.
    """
    packings: list[str] = []
    stream: io.BufferedReader[Any] = path.open("rb")
    while True:
        start = stream.peek(16)[:16]
        kind = next((kind for kind, magic in _MAGIC.items() if start.startswith(magic)), "text")
        if kind == "text" and 0 in start[:2]:  # every second byte is 0, but there is no mark at the beginning
            kind = "UTF-16"
        if kind not in ("zip", *_COMPRESSED) or len(packings) == _MOST_PACKINGS:
            return kind, packings, stream
        stream = io.BufferedReader(_open_zip(path, stream) if kind == "zip" else _COMPRESSED[kind](stream))
        packings.append(kind)


def _open_zip(path: Path, stream: Any) -> Any:
    """Open the one file within a ZIP archive. Raises IngestError for several, and for an Excel workbook, which is a ZIP
    archive too. ``path`` is the file that ``stream`` reads, for messages."""
    archive = zipfile.ZipFile(stream)
    # macOS adds a folder of its own to archives.
    members = [one.filename for one in archive.infolist() if not (one.is_dir() or "__MACOSX" in one.filename)]
    if any(name.startswith("xl/") for name in members):
        raise IngestError(path, "an Excel workbook", "save its sheet as CSV UTF-8")
    if len(members) != 1:
        raise IngestError(path, f"an archive of {len(members)} files", "unpack it into a folder")
    return archive.open(members[0])


def _open_text(path: Path) -> io.TextIOWrapper:
    """Open a file as text, unpacked; bytes that are not UTF-8 become surrogates, by which callers find them. Raises
    IngestError for a file that is no text."""
    kind, _, stream = open_content(path)
    if kind != "text":
        remedy = "give the text itself, saved as UTF-8 (in Excel: CSV UTF-8, not Unicode Text)"
        raise IngestError(path, f"{kind}, whatever its name says", remedy)
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")


@contextlib.contextmanager
def as_ingest_errors(path: Path) -> Iterator[None]:
    """A context in which errors of reading the file ``path`` are raised as IngestError, which says what to do."""
    try:
        yield
    except csv.Error as error:
        message, line = error.args  # as ``csv_records`` raises it
        problem = f"the row that begins here cannot be read ({message})"
        remedy = "close every double quote, and double those inside a text"
        raise IngestError(path, problem, remedy, line=line) from error
    except PermissionError as error:
        raise IngestError(str(error.filename), *NOT_PERMITTED) from error
    except FileNotFoundError as error:
        raise IngestError(path, "no such file", "check the path of this data set, and which files it needs") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        problem, remedy = "the compressed file is cut short or damaged", "copy, download or compress it again"
        if isinstance(error, OSError) and error.errno is not None:
            problem, remedy = f"cannot be read ({type(error).__name__})", "check the file and its permissions"
        raise IngestError(path, problem, remedy) from error


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Read a CSV file. Yields, for each row that is not blank, the number of its first line and its fields. Raises
    IngestError for a file that cannot be read."""
    with as_ingest_errors(path), _open_text(path) as lines:
        for line, fields in csv_records(lines):
            if any(map(HALF_CHARACTER.search, fields)):  # what replaces a byte that is not UTF-8
                raise IngestError(path, "not UTF-8 in the row that begins here", "save the file as UTF-8", line=line)
            if any(visible(field).strip() for field in fields):
                yield line, fields


def header_errors(path: Path, line: int, names: list[str], remedies: Mapping[str, str]) -> Iterator[IngestError]:
    """Yield an error for each required column that the header ``names`` lacks, and for each name that it has more than
    once. ``remedies`` has the required columns, each with what to do if it is missing; ``line`` is that of the
    header."""
    for column, remedy in remedies.items():
        if column not in names:
            similar = difflib.get_close_matches(column, [name for name in names if name not in remedies], 1)
            # A header in one field has other marks between its names.
            advice = "put commas between the fields, not semicolons or tabs" if len(names) == 1 else remedy
            advice = f"rename the column {quoted(similar[0])}" if similar else advice
            yield IngestError(path, "no such column" if names else "an empty file", advice, line=line, field=column)
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        yield IngestError(path, "the column occurs twice", "keep one of them", line=line, field=quoted(name))


def read_text(path: Path) -> str:
    """Return the text of a file, unpacked. Raises IngestError for a file that cannot be read or is no UTF-8 text."""
    with as_ingest_errors(path), _open_text(path) as lines:
        text = lines.read()
    if broken := HALF_CHARACTER.search(text):
        line = text.count("\n", 0, broken.start()) + 1
        raise IngestError(path, "not UTF-8 in the row that begins here", "save the file as UTF-8", line=line)
    return text


class _Object(NamedTuple):
    """A JSON object as its text has it: a name may occur twice."""

    pairs: list[tuple[str, Any]]


def _parse_json(text: str) -> Any:
    """Parse a JSON value, its objects as :class:`_Object`. Returns the error for a text that is none."""
    try:
        return json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError) as error:
        return error


def _check_json(parsed: Any, path: Path, line: int, place: str) -> Any:
    """Return a JSON value of :func:`_parse_json`, which begins at ``line`` or ``place`` of the file ``path``, with
    dictionaries as objects. Its texts lose invisible characters (:func:`visible`).

    Raises IngestError for invalid JSON, a name that occurs twice in one object, NaN and infinity, and too long texts
    other than files in base64 (:data:`_FILES`).
    """

    def error_at(problem: str, keys: Iterable[str | int] = (), at: int = line) -> IngestError:
        """Make the error about a ``problem`` at the line ``at``. ``keys`` are the names and indices that lead to it."""
        field = place + "".join(f"[{key}]" if isinstance(key, int) else f".{quoted(key)}" for key in keys)
        remedy = "repair the file or export it again (JSON Lines: one object a line)"
        return IngestError(path, problem, remedy, line=None if place else at, field=field.lstrip(".") or None)

    def check(value: Any, *keys: str | int) -> Any:
        """Return the checked ``value`` to which ``keys`` lead."""
        if isinstance(value, _Object):
            names = [visible(name) for name, _ in value.pairs]
            if len(set(names)) < len(names):
                raise error_at("occurs twice in one object", (*keys, max(names, key=names.count)))
            return {name: check(inner, *keys, name) for name, (_, inner) in zip(names, value.pairs, strict=True)}
        if isinstance(value, list):
            return [check(inner, *keys, index) for index, inner in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            raise error_at(f"{json.dumps(value)} is no number")
        if isinstance(value, str) and len(value) > LONGEST_TEXT and keys[-1:] not in _FILES:
            raise error_at(f"a text of {len(value):,} characters", keys)
        return visible(value) if isinstance(value, str) else value

    if isinstance(parsed, json.JSONDecodeError):
        if root := re.match(r"\s*(?:<[?!][^<>]*>\s*)*<(?:\w+:)?(\w+)", parsed.doc):
            raise error_at(f"not JSON but XML, such as C-CDA, which is not read: <{root[1][:40]}>")
        # Text in quotes may be withheld, so "Expecting ',' delimiter" becomes "Expecting a comma as delimiter".
        reason = parsed.msg.replace("','", "a comma as").replace("':'", "a colon as")
        raise error_at(f"not JSON at column {parsed.colno} ({reason})", at=line + parsed.lineno - 1)
    with contextlib.suppress(RecursionError):
        if not isinstance(parsed, Exception):
            return check(parsed)
    raise error_at("nested too deeply, or a number too long")


class Element:
    """A JSON object or a row of a table, with its file, its ``line`` and its ``place`` in the JSON (such as
    ``entry[0].resource``) for messages. Its methods read the value of a name by type.

    A value that is absent or null is read as an empty one. The constructor raises IngestError for a value that is no
    object, the methods for a value of another type.
    """

    remedy = "use the data set as published"

    def __init__(self, value: Any, path: Path, line: int | None = None, place: str = ""):
        """Keep the object ``value`` and its position. Raises IngestError for a value that is no object."""
        self.value, self.path, self.line, self.place = value, path, line, place
        if not isinstance(value, Mapping):
            problem = f"expected an object, found {type(value).__name__}"
            raise IngestError(path, problem, self.remedy, line=line, field=place or None)

    @classmethod
    def read_file(cls, path: Path, repair: Callable[[str], str] = str) -> Iterator[Callable[[], Self]]:
        """Find the JSON objects of a file: one on each line, the items of a list, or a single one. The content decides,
        not the name. Yields for each a function that parses it, which raises IngestError where it cannot be read.

        ``repair`` is applied to the text of the file first. Raises IngestError for a file that is no text.
        """
        text = repair(read_text(path).replace("\ufeff", ""))  # also within the file, where several were joined
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        whole = _parse_json(text)

        def make(value: Any, line: int | None = None, place: str = "") -> Any:
            """Check a parsed ``value`` at ``line``, or at ``place`` of the whole, and make its element."""
            return cls(_check_json(value, path, line or 1, place), path, line, place)

        if isinstance(whole, list):
            yield from (functools.partial(make, item, None, f"[{index}]") for index, item in enumerate(whole))
        elif isinstance(whole, Exception) and any(isinstance(_parse_json(line), _Object) for _, line in lines[:2]):
            yield from (functools.partial(make, _parse_json(line), number) for number, line in lines)
        else:
            yield functools.partial(make, whole)

    def __bool__(self) -> bool:
        """Whether the object has any content: an absent value, which is read as an empty object, is False."""
        return bool(self.value)

    def error(self, name: str, problem: str, remedy: str = "") -> IngestError:
        """Make an error about the value of ``name``; without ``remedy`` it has the remedy of the class."""
        return IngestError(self.path, problem, remedy or self.remedy, line=self.line, field=self._place_of(name))

    def text(self, name: str) -> str:
        """Return the string ``name`` without spaces around it; empty where it is absent."""
        return self.typed(name, str, "text", "").strip()

    def number(self, name: str) -> str:
        """Return the number ``name`` as text, without an exponent; empty where it is absent. A number that a tool
        wrote as text counts as one."""
        value = self.value.get(name)
        if not (isinstance(value, str) and _NUMBER.fullmatch(value)):
            value = self.typed(name, (int, float), "a number", "")
        return f"{Decimal(str(value)):f}" if value != "" else ""

    def child(self, name: str, required: bool = False) -> Self:
        """Return the object ``name``; an empty one where it is absent, unless it is ``required``: then IngestError is
        raised."""
        if required and self.value.get(name) is None:
            raise self.error(name, "expected an object of this name")
        return self._make_element(name, self.typed(name, Mapping, "an object", {}))

    def children(self, name: str) -> list[Self]:
        """Return the objects in the list ``name``; empty where it is absent."""
        values = self.typed(name, list, "a list", [])
        return [self._make_element(f"{name}[{index}]", value) for index, value in enumerate(values)]

    def _make_element(self, name: str, value: Any) -> Self:
        """Make the element ``name`` within this one, with the content ``value``."""
        return type(self)(value, self.path, self.line, self._place_of(name))

    def _place_of(self, name: str) -> str:
        """Return the names that lead to the value ``name`` of this element, for messages: ``entry[0].resource``."""
        return f"{self.place}.{name}".strip(".")

    def typed(self, name: str, kind: Any, kind_name: str, default: Any) -> Any:
        """Return the value of ``name``; ``default`` where it is absent or null. Raises IngestError for a value that is
        not of the type ``kind``, which the message calls ``kind_name``."""
        value = self.value.get(name)
        if value is None:
            return default
        # In Python True and False are numbers too.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(name, f"expected {kind_name}, found {type(value).__name__}")
        return value


def flat_text(content: Any, label: Callable[[str], str], keep: Callable[[str], bool] = bool) -> str:
    """Write any JSON value on one line: ``Label: value; ...`` for an object, ``a, b`` for a list.

    ``label`` turns a name of an object into its label; where the label is empty, the value is written without one.
    Texts for which ``keep`` is False are left out.
    """
    if isinstance(content, Mapping):
        parts = ((label(name), flat_text(inner, label, keep)) for name, inner in content.items())
        return "; ".join(f"{name}: {text}" if name else text for name, text in parts if text)
    if isinstance(content, list):
        return ", ".join(filter(None, (flat_text(inner, label, keep) for inner in content)))
    content = f"{Decimal(str(content)):f}" if isinstance(content, float) else content  # without an exponent
    text = "" if content is None else one_line(str(content))
    return text if keep(text) else ""


def digest_id(dataset: str, content: Any) -> str:
    """Make an identifier for a case that has none: the name of the data set, and a digest of the case's ``content``."""
    return f"{dataset}-" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
