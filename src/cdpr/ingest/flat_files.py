"""Reading CSV and JSON files.

Every problem is an IngestError with file, line and field: raised where reading cannot go on behind it, else added to a
list of ``problems``, so that a check tells them all.
"""

import contextlib
import csv
import difflib
import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..cases import PHYSICAL_SUFFIX
from ..files import csv_records, open_text
from .error import IngestError
from .summary import one_line

LONGEST_TEXT = 1_000_000  # characters of one field; a longer one is a lost quote or a file in the wrong place
LONGEST_NAME = 120  # characters of an identifier or of the name of an examination
LONGEST_NOTE = 32 * 1024 * 1024  # bytes of one row of a table of notes

# Python's own limit (131,072) is below what a long report may hold.
csv.field_size_limit(LONGEST_NOTE)
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
# Control characters without meaning for a reader, and marks that make a text look like another one.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")
_ABSENT = re.compile(
    r"\W*(?:(?:(?:data|details?|information|results?)\s+)?(?:(?:is|are|was|were)\s+)?"
    r"(?:not\s+(?:available|provided|specified|mentioned|indicated|applicable|assessed|performed|done|given)|pending)\b"
    r"(?!.*\bbut\b).{0,80}|n/?a(?:\s+(?:for|due|given)\b.{0,80})?|暂无.{0,4}|未(?:查|做|检))?\W*",
    re.IGNORECASE | re.DOTALL,
)


def files_at(path: Path, ending: str) -> list[Path]:
    """The file itself, or those files of a folder that end so, compressed (``.gz``) ones included."""
    if not path.is_dir():
        return [path]
    return sorted(f for f in path.iterdir() if f.name.endswith((ending, f"{ending}.gz")) and f.name[0] != ".")


@contextlib.contextmanager
def collected(problems: list[IngestError]) -> Iterator[None]:
    """Within it what cannot be read ends the block and is added to the problems."""
    try:
        yield
    except IngestError as problem:
        problems.append(problem)


def visible(text: str) -> str:
    """The text as a reader sees it: composed characters, no control or direction marks, no halves of characters."""
    if text.isascii() and text.isprintable():  # as most are
        return text
    return _HALF_CHARACTER.sub("\ufffd", _INVISIBLE.sub("", unicodedata.normalize("NFC", text)))


def quoted(value: str) -> str:
    """A value for a message: short, on one line, between quotes and without any, so that it can be withheld whole."""
    text = one_line(visible(value)).replace("'", "’").replace('"', "”").replace("\\", "＼")
    return f"'{text if len(text) <= 40 else text[:39] + '…'}'"


def result_part(text: str) -> str:
    """A text that keeps to its place in the layout of a laboratory result, where "; " ends it."""
    return one_line(text).replace("; ", ", ")


def is_absent(text: str) -> bool:
    """Whether a text says that there is no result ("Not available.", "Pending", "暂无。"), or nothing at all."""
    return _ABSENT.fullmatch(text) is not None


def examination_name(name: str) -> str:
    """A name on one line, without the mark of physical examinations, which are free; "…" ends what is cut."""
    name = one_line(visible(name))
    while name.endswith(PHYSICAL_SUFFIX):
        name = name.removesuffix(PHYSICAL_SUFFIX).rstrip()
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


@dataclass(frozen=True)
class RawRow:
    """Fields of a table's row, or of an object in JSON (``within`` says where that stands in its line); what is wrong
    with them goes to ``problems``."""

    path: Path
    line: int | None
    fields: Mapping[str, str]
    problems: list[IngestError]
    within: str = ""

    def __getitem__(self, name: str) -> str:
        return self.fields[name]

    def problem(self, name: str, what: str, remedy: str) -> IngestError:
        """An error about one field of this row."""
        return IngestError(self.path, what, remedy, line=self.line, field=self.within + name)

    def tell(self, name: str, what: str, remedy: str) -> None:
        """Add an error about one field to the problems."""
        self.problems.append(self.problem(name, what, remedy))


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Within it a file that cannot be read is an IngestError."""
    try:
        yield
    except csv.Error as error:
        problem = f"the row that begins here cannot be read ({error.args[0]})"
        remedy = "close every double quote, and double those inside a text"
        raise IngestError(path, problem, remedy, line=error.args[1]) from error
    except PermissionError as error:
        raise IngestError.not_permitted(error) from error
    except FileNotFoundError as error:
        raise IngestError(path, "no such file", "check the path of this data set, and which files it needs") from error
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and path.suffix != ".gz":
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
    with explained(path), open_text(path, errors="surrogateescape") as lines:
        for line, fields in csv_records(lines):
            if any(map(_HALF_CHARACTER.search, fields)):
                raise _not_utf8(path, line, fields[0])
            if any(visible(field).strip() for field in fields):
                yield line, fields


def csv_rows(
    path: Path, columns: Sequence[str], filled: Collection[str], problems: list[IngestError]
) -> Iterator[RawRow]:
    """Rows of a table whose header has these columns, in any order and among others; fields are stripped.

    ``filled`` are the columns that cannot be empty, for the remedy of one that is missing. Rows that cannot be used go
    to ``problems``. Raises IngestError for a table that cannot be read, or not further.
    """
    lines = csv_lines(path)
    line, header = next(lines, (1, []))
    _check_separator(path, line, header)
    names = [one_line(visible(name)).casefold() for name in header]
    if lacking := list(_lacking(path, names, columns, filled)):
        problems += lacking
        return
    for line, fields in lines:
        fields = [visible(field).strip() for field in fields]
        if [field.casefold() for field in fields] == names:
            problems.append(IngestError(path, "the header stands here again", "remove this line", line=line))
        elif len(fields) != len(names):
            what = f"{len(fields)} fields, the header has {len(names)}"
            problems.append(IngestError(path, what, "put fields with commas in double quotes", line=line))
        elif (longest := max(map(len, fields))) > LONGEST_TEXT:
            what = f"a text of {longest:,} characters"
            problems.append(IngestError(path, what, "close every double quote, or shorten it", line=line))
        else:
            yield RawRow(path, line, dict(zip(names, fields, strict=True)), problems)


def _check_separator(path: Path, line: int, header: Sequence[str]) -> None:
    if not header:
        raise IngestError(path, "the file is empty", "begin it with the names of the columns", line=1)
    first = visible(header[0]).strip()
    if first.casefold().startswith("sep="):
        problem = "the line sep= that Excel writes stands before the header"
        raise IngestError(path, problem, "remove this line, and save the file with commas", line=line)
    mark = re.search("|".join(map(re.escape, _SEPARATORS)), first) if len(header) == 1 else None
    if mark is not None:
        problem = f"columns are separated by {_SEPARATORS[mark[0]]}"
        raise IngestError(path, problem, "save the file with commas", line=line)


def _lacking(path: Path, names: list[str], columns: Sequence[str], filled: Collection[str]) -> Iterator[IngestError]:
    """The columns that a header has not, or more than once."""
    for column in columns:
        if column not in names:
            near = difflib.get_close_matches(column, [name for name in names if name not in columns], 1)
            add = "add this column" if column in filled else "add this column; it may be empty"
            remedy = f"rename the column {quoted(near[0])}" if near else add
            yield IngestError(path, "no such column", remedy, line=1, field=column)
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        yield IngestError(path, "the column stands twice", "keep one of them", line=1, field=quoted(name))


def read_text(path: Path) -> str:
    """The text of a file, decompressed where its name ends in ``.gz``. Raises IngestError."""
    with explained(path), open_text(path, errors="surrogateescape") as lines:
        text = lines.read()
    if broken := _HALF_CHARACTER.search(text):
        raise _not_utf8(path, text.count("\n", 0, broken.start()) + 1, text)
    return text


def filled_lines(path: Path) -> list[tuple[int, str]]:
    """Number and text of each line that is not blank. Raises IngestError."""
    return [(number, text) for number, text in enumerate(read_text(path).split("\n"), 1) if text.strip()]


def parse_json(path: Path, text: str, line: int = 1) -> Any:
    """A JSON value that begins at a line of a file, with all its texts :func:`visible`. Raises IngestError."""

    def unfit(problem: str, field: str | None = None, at: int = line) -> IngestError:
        return IngestError(path, problem, "repair the file or export it again", line=at, field=field)

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
        raise unfit(f"not JSON at column {error.colno} ({error.msg})", at=line + error.lineno - 1) from error
    except IngestError:
        raise
    except (RecursionError, ValueError) as error:
        raise unfit("nested too deeply, or a number too long") from error
