"""Escapes text from outside for each output format, so that no name becomes a formula, link, tag, code, command or
mathematics.

There is one function for each format, which all writers use. Templates of pages escape markup by themselves.
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
_SPACES = re.compile("[ \t-\r\x1c-\x1f\x85\u2028\u2029]+")  # without the no-break space


def terminal(text: str) -> str:
    """The text without control characters, for a terminal and for formats that show text as it is."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """The text on one line, without control characters."""
    return terminal(_SPACES.sub(" ", text).strip())


_FORMULA = re.compile(r"'*(?:[=@\t\r]|[+\-](?!\d+(?:\.\d+)?$))")  # but not a number


def csv_cell(cell: Any) -> Any:
    """The cell for a CSV table that people open in a spreadsheet: a text that would be a formula gets an apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def csv_text(cell: str) -> str:
    """The inverse of :func:`csv_cell`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell


_TAGS = r"<(?=[A-Za-z/!?])|\](?=[(\[:])|&(?=#?\w+;)"
_NAME = re.compile(rf"[\\|`*~$]|(?<!\w)_|_(?!\w)|(?<=\bwww)\.|:(?=//)|{_TAGS}", re.IGNORECASE)
_SENTENCE = re.compile(rf"\A[#>+=|-]|{_TAGS}")
_ENTITIES = {"<": "&lt;", "&": "&amp;", ":": "&#58;"}


def markdown(text: str) -> str:
    """A name for a cell or heading in Markdown, which is shown unchanged."""
    return _NAME.sub(_entity, one_line(text))


def sentence(text: str) -> str:
    """A sentence of our own, perhaps with names in it, for Markdown: its code, emphasis and addresses are kept."""
    return _SENTENCE.sub(_entity, one_line(text))


def _entity(sign: re.Match[str]) -> str:
    """The matched character as an HTML entity, or behind a backslash."""
    return _ENTITIES.get(sign[0], f"\\{sign[0]}")


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "—": "---", "–": "--",
            "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "·": r"$\cdot$",
            "λ": r"$\lambda$", "Δ": r"$\Delta$", "<": "$<$", ">": "$>$", "|": r"\textbar{}", "°": r"$^{\circ}$",
            "µ": r"$\mu$", "μ": r"$\mu$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$",
            "η": r"$\eta$", "π": r"$\pi$", "σ": r"$\sigma$", "≈": r"$\approx$", "≠": r"$\neq$", "→": r"$\rightarrow$",
            "↑": r"$\uparrow$", "↓": r"$\downarrow$", "½": r"$\frac{1}{2}$", "¼": r"$\frac{1}{4}$",
            "¾": r"$\frac{3}{4}$", "“": "``", "”": "''", "‘": "`", "’": "'", "…": r"\ldots{}", "•": r"\textbullet{}",
            "\u00a0": "~", "\u202f": "~", "\u2009": r"\,", "\u2011": "-", "\u2010": "-", "`": "{`}",
            "ß": r"\ss{}", "ø": r"\o{}", "å": r"\aa{}",
            **{power: f"$^{digit}$" for digit, power in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
            **{c: "\\" + c for c in "&%$#_{}"}}  # fmt: skip
# LaTeX's accents, by the mark that Unicode combines with a letter.
_ACCENTS = {"\u0301": "'", "\u0300": "`", "\u0302": "^", "\u0308": '"', "\u0303": "~", "\u0327": "c"}


def latex(text: str) -> str:
    """The text for LaTeX on one line; characters that pdflatex cannot print become their code point."""
    escaped = "".join(map(_latex_character, _SPACES.sub(" ", text).strip()))
    # At the beginning of a table row these two would be an argument of the line end before.
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped


def _latex_character(character: str) -> str:
    """A character in LaTeX's notation."""
    if character in _SPECIAL or " " <= character <= "~":
        return _SPECIAL.get(character, character)
    letter, accent = (*unicodedata.normalize("NFD", character), "")[:2]
    known = letter.isascii() and accent in _ACCENTS
    return f"\\{_ACCENTS[accent]}{{{letter}}}" if known else f"(U+{ord(character):04X})"


def figure(text: str) -> str:
    """A name for a figure, on one line; dollar signs are escaped, because they would begin a formula."""
    return one_line(text).replace("$", "\\$")


def html(value: Any) -> Any:
    """The value for a template that escapes markup by itself: a text loses its control characters."""
    return type(value)(terminal(value)) if isinstance(value, str) and _CONTROLS.search(value) else value


def script(content: Any) -> str:
    """The content as JSON that is safe inside a script of a page: no text in it can end the script."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@functools.cache
def environment(package: ModuleType, **options: Any) -> Any:
    """The Jinja templates of a package, with the escapes of each format as filters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(loader=FileSystemLoader(Path(str(package.__file__)).parent), undefined=StrictUndefined,
                            trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, **options)  # fmt: skip
    templates.filters |= {"markdown": markdown, "sentence": sentence, "latex": latex}
    return templates
