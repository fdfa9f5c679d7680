"""Escapes text from outside for each output format, so that no name becomes a formula, link, tag, code, command or
mathematics.

There is one function for each format, which all writers use. HTML templates escape markup by themselves.
"""

import functools
import json
import re
import unicodedata
from pathlib import Path
from types import ModuleType
from typing import Any

# Characters that control a terminal or reverse the order of letters, without line ends and tabs.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SPACES = re.compile("[ \t-\r\x1c-\x1f\x85\u2028\u2029]+")  # all white space but the no-break space, which stays


def terminal(text: str) -> str:
    """Replace control characters (not tab and line ends) and marks of the writing direction by U+FFFD, for a terminal
    and for formats that show text as it is."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


class EscapingStream:
    """An output stream that replaces control characters, so that no name from a file can command the terminal.
    Everything else is as in the wrapped ``stream``."""

    def __init__(self, stream: Any) -> None:
        """Wrap the output stream ``stream``."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text with its control characters replaced; returns the number of characters written."""
        return self._stream.write(terminal(text))

    def __getattr__(self, name: str) -> Any:
        """Get any other attribute from the wrapped stream."""
        return getattr(self._stream, name)


def one_line(text: str) -> str:
    """Join the lines of a text by single spaces, and replace control characters by U+FFFD."""
    return terminal(_SPACES.sub(" ", text).strip())


# A formula begins with = @ tab or return, or with a sign, unless the whole cell is a number such as -1.5. Apostrophes
# in front are skipped: "'=A1" gets one more, so that `unescape_csv_cell` gives it back.
_FORMULA = re.compile(r"'*(?:[=@\t\r]|[+\-](?!\d+(?:\.\d+)?$))")


def csv_cell(cell: Any) -> Any:
    """Escape a cell of a CSV table that people open in a spreadsheet. A text that the spreadsheet would run as a
    formula gets an apostrophe in front: "=A1" becomes "'=A1". Every other value is returned unchanged."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def unescape_csv_cell(cell: str) -> str:
    """Remove the apostrophe that :func:`csv_cell` put in front of a formula. Other texts are returned unchanged."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell


# Patterns of single characters that begin markup. In any text: the < of a tag, the ] of a link, the & of an entity.
_TAGS = r"<(?=[A-Za-z/!?])|\](?=[(\[:])|&(?=#?\w+;)"
# In a name also: marks of emphasis, code, mathematics and tables, and the . or : of an address such as www.a.b, http://.
_NAME = re.compile(rf"[\\|`*~$]|(?<!\w)_|_(?!\w)|(?<=\bwww)\.|:(?=//)|{_TAGS}", re.IGNORECASE)
# In a sentence of ours also: a first character that would make it a heading, quotation, list or table.
_SENTENCE = re.compile(rf"\A[#>+=|-]|{_TAGS}")
_ENTITIES = {"<": "&lt;", "&": "&amp;", ":": "&#58;"}


def markdown(text: str) -> str:
    """Escape a name for a cell or heading in Markdown, on one line. The reader sees the name as it is: none of it acts
    as markup."""
    return _NAME.sub(_escape_character, one_line(text))


def sentence(text: str) -> str:
    """Escape a sentence that this package wrote for Markdown. The code, emphasis and addresses in it stay markup. Tags,
    links and list marks, which only a name inside the sentence can bring, are escaped."""
    return _SENTENCE.sub(_escape_character, one_line(text))


def _escape_character(character: re.Match[str]) -> str:
    """Write one Markdown character, matched by a pattern, as an HTML entity or with a backslash in front."""
    return _ENTITIES.get(character[0], f"\\{character[0]}")


def latex(text: str) -> str:
    """Escape a text for LaTeX, on one line. A character that pdflatex cannot print becomes its code point, such as
    (U+4E2D)."""
    escaped = "".join(map(_latex_character, _SPACES.sub(" ", text).strip()))
    # At the beginning of a table row, [ and * would be read as an argument of the `\\` that ends the row before.
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped


@functools.cache
def _latex_table() -> dict[str, dict[str, str]]:
    """Read ``latex.yaml``: the ``special`` characters and the ``accents``, each by its Unicode character."""
    from ..files import parse_yaml, shipped_text

    return parse_yaml(shipped_text(__package__, "latex.yaml"))


def _latex_character(character: str) -> str:
    """Write one character in LaTeX: as itself, by a command, as a letter with its accent, or else as its code point."""
    special, accent_of = _latex_table()["special"], _latex_table()["accents"]
    if character in special or " " <= character <= "~":
        return special.get(character, character)
    letter, *accents = list(unicodedata.normalize("NFD", character))
    if letter.isascii() and len(accents) == 1 and accents[0] in accent_of:
        return f"\\{accent_of[accents[0]]}{{{letter}}}"
    return f"(U+{ord(character):04X})"


def figure(text: str) -> str:
    """Escape a name for a matplotlib figure, on one line. A dollar sign would begin a formula there."""
    return one_line(text).replace("$", "\\$")


def html(value: Any) -> Any:
    """Replace what :func:`terminal` replaces, for a template that escapes markup by itself. Values of other types are
    returned unchanged."""
    # The type is kept: a jinja2.Markup is a str whose markup is wanted; in a plain str the template would escape it.
    return type(value)(terminal(value)) if isinstance(value, str) and _CONTROLS.search(value) else value


def script(content: Any) -> str:
    """Write a value as JSON for a ``<script>`` element of an HTML page, so that no text in the value can end that
    element."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@functools.cache
def environment(package: ModuleType, **options: Any) -> Any:
    """Open the Jinja templates in the folder of a package; returns a :class:`jinja2.Environment`. Templates can use the
    escapes ``markdown``, ``sentence`` and ``latex`` as filters. ``options`` are further arguments of the
    environment."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(loader=FileSystemLoader(Path(str(package.__file__)).parent), undefined=StrictUndefined,
                            trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, **options)  # fmt: skip
    templates.filters |= {"markdown": markdown, "sentence": sentence, "latex": latex}
    return templates
