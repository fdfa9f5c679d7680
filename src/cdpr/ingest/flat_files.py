"""Reading CSV and JSON files.

Every problem is an IngestError with file, line and field.
"""

import contextlib
import csv
import difflib
import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
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


def visible(text: str) -> str:
    """The text as a reader sees it: composed characters, no control or direction marks, no halves of characters."""
    if text.isascii() and text.isprintable():  # as most are
        return text
    return _HALF_CHARACTER.sub("\ufffd", _INVISIBLE.sub("", unicodedata.normalize("NFC", text)))


def quoted(value: str) -> str:
    """A value for a message: short, on one line, between quotes and without any, so that it can be withheld whole."""
    text = one_line(visible(value)).replace("'", "’").replace('"', "”").replace("\\", "＼")
    return f"'{text if len(text) <= 40 else text[:39] + '…'}'"


def is_absent(text: str) -> bool:
    """Whether a text says that there is no result ("Not available.", "Pending", "暂无。"), or nothing at all."""
    return _ABSENT.fullmatch(text) is not None


def examination_name(name: str) -> str:
    """A name on one line, without the mark of physical examinations, which are free; "…" ends what is cut."""
    name = one_line(visible(name))
    while name.endswith(PHYSICAL_SUFFIX):
        name = name.removesuffix(PHYSICAL_SUFFIX).rstrip()
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


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
