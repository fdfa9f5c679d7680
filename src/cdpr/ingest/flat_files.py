"""Reading small CSV and JSON sources whole.

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

# Python's own limit (131,072) is below what a long report may hold.
csv.field_size_limit(LONGEST_TEXT)
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_EXPORT_AGAIN = "repair the file or export it again"
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


def only_file_at(path: Path, ending: str) -> Path:
    """The file itself, or the one file of a folder that ends so. Raises IngestError where there are none or several."""
    files = files_at(path, ending)
    if len(files) != 1:
        raise IngestError(path, f"{len(files)} files *{ending} in this folder", "give the path of one of them")
    return files[0]


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
    line: int
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


def csv_rows(
    path: Path, columns: Sequence[str], filled: Collection[str], problems: list[IngestError]
) -> Iterator[RawRow]:
    """Rows of a table whose header has these columns, in any order and among others; fields are stripped.

    ``filled`` are the columns that cannot be empty, for the remedy of one that is missing. Rows with too many or too
    few fields go to ``problems``. Raises IngestError for a table that cannot be read, or not further.
    """
    lines = _csv_lines(path)
    line, header = next(lines)
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
        else:
            yield RawRow(path, line, dict(zip(names, fields, strict=True)), problems)


def _csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line at which it begins, and fields, of each row that is not blank; at least one."""
    empty = True
    try:
        with open_text(path) as lines:
            for line, fields in csv_records(lines):
                if any(visible(field).strip() for field in fields):
                    empty = False
                    yield line, fields
    except csv.Error as error:
        problem = f"the row that begins here cannot be read ({error.args[0]})"
        remedy = "close every double quote, and double those inside a text"
        raise IngestError(path, problem, remedy, line=error.args[1]) from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    if empty:
        raise IngestError(path, "the file is empty", "begin it with the names of the columns", line=1)


def _check_separator(path: Path, line: int, header: Sequence[str]) -> None:
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
    if not path.is_file():
        raise IngestError(path, "no such file", "check the path of this data set in config.yaml")
    try:
        with open_text(path) as lines:
            return lines.read()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def filled_lines(path: Path) -> list[tuple[int, str]]:
    """Number and text of each line that is not blank. Raises IngestError."""
    return [(number, text) for number, text in enumerate(read_text(path).split("\n"), 1) if text.strip()]


def parse_json(path: Path, text: str, line: int = 1) -> Any:
    """A JSON value that begins at a line of a file, with all its texts :func:`visible`. Raises IngestError."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
        return _checked(value)
    except json.JSONDecodeError as error:
        problem = f"not JSON at column {error.colno} ({error.msg})"
        raise IngestError(path, problem, _EXPORT_AGAIN, line=line + error.lineno - 1) from error
    except _Unfit as error:
        raise IngestError(path, error.args[0], _EXPORT_AGAIN, line=line, field=error.field) from error
    except (RecursionError, ValueError) as error:
        raise IngestError(path, "nested too deeply, or a number too long", _EXPORT_AGAIN, line=line) from error


class _Unfit(ValueError):
    """Valid JSON that cannot be trusted."""

    def __init__(self, problem: str, field: str | None = None):
        super().__init__(problem)
        self.field = field


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        name = visible(name)
        if name in content:
            raise _Unfit("stands twice in one object", field=quoted(name))
        content[name] = value
    return content


def _no_number(name: str) -> NoReturn:
    raise _Unfit(f"{name} is no number")


def _checked(value: Any, *place: str | int) -> Any:
    if isinstance(value, dict):
        return {name: _checked(inner, *place, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_checked(inner, *place, index) for index, inner in enumerate(value)]
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            path = "".join(f"[{part}]" if isinstance(part, int) else f".{quoted(part)}" for part in place)
            raise _Unfit(f"a text of {len(value):,} characters", field=path.lstrip("."))
        return visible(value)
    return value


def _unreadable(path: Path, error: Exception) -> IngestError:
    if isinstance(error, UnicodeDecodeError) and _is_utf16(path):
        remedy = "save the file as UTF-8 (in Excel: CSV UTF-8, not Unicode Text)"
        return IngestError(path, "UTF-16, not UTF-8", remedy, line=1)
    if isinstance(error, UnicodeDecodeError):
        problem = f"not UTF-8 ({error.reason})"
        return IngestError(path, problem, "save the file as UTF-8", line=_line_not_utf8(path))
    if isinstance(error, PermissionError):
        return IngestError.not_permitted(error)
    if isinstance(error, FileNotFoundError):
        return IngestError(path, "no such file", "see docs/reference/private-format.md for the layout")
    if isinstance(error, (EOFError, zlib.error)) or path.suffix == ".gz":
        return IngestError(path, "the compressed file is cut short or damaged", "copy or compress it again")
    return IngestError(path, f"cannot be read ({type(error).__name__})", "check the file and its permissions")


def _is_utf16(path: Path) -> bool:
    with open_text(path, errors="surrogateescape") as lines:
        return lines.read(2) in ("\udcff\udcfe", "\udcfe\udcff")


def _line_not_utf8(path: Path) -> int | None:
    with open_text(path, errors="surrogateescape") as lines:
        return next((number for number, line in enumerate(lines, 1) if _HALF_CHARACTER.search(line)), None)
