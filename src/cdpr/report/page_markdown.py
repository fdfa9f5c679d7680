"""The Markdown of this project's own tables and cards as blocks for the HTML page.

It knows what ``report.table`` writes (headings, paragraphs, lists, pipe tables, marks, holes, sections) and no more.
All text is escaped before marks become tags, so whatever stands in a name stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from markupsafe import Markup

from ..results.table import EMPTY


@dataclass
class Cell:
    """A cell: what is shown, its plain text, and where its number comes from: an anchor on the page, and for a
    difference a second one."""

    shown: Markup
    text: str
    href: str = ""
    also: str = ""


@dataclass
class Line:
    """A row: ``kind`` is ``row``, ``section`` (a heading between rows) or ``hole`` (the second cell says why)."""

    kind: str
    cells: list[Cell]


@dataclass
class Grid:
    """A table: headers, alignments (``l``, ``c``, ``r``) and rows."""

    heads: list[str]
    aligns: list[str]
    lines: list[Line]
    groups: list[tuple[str, int]] = field(default_factory=list)

    kind = "table"

    def short(self, column: int) -> str:
        """The header of a column without the group that stands above it."""
        label = [name for name, width in self.groups for _ in range(width)][column] if self.groups else ""
        return self.heads[column].removeprefix(f"{label} ")


@dataclass
class Text:
    """A paragraph, or a list of ``items``."""

    items: list[Markup]
    kind: str = "paragraph"


@dataclass
class Part:
    """Blocks below one heading of the second level; the part before the first has no title."""

    title: str
    blocks: list[Grid | Text]


def parts(markdown: str) -> list[Part]:
    """The page below its title, by heading of the second level."""
    found = [Part("", [])]
    for chunk in _chunks(markdown):
        if chunk[0].startswith("## "):
            found.append(Part(_plain(chunk[0][3:]), []))
        elif chunk[0].startswith("# "):
            continue
        elif chunk[0].startswith("|") and len(chunk) > 1:
            found[-1].blocks.append(_grid(chunk))
        elif chunk[0].startswith("- "):
            found[-1].blocks.append(Text([inline(line.removeprefix("- ")) for line in chunk], "list"))
        else:
            found[-1].blocks.append(Text([inline(" ".join(chunk).lstrip("# "))]))
    return [part for part in found if part.blocks or part.title]


def inline(text: str) -> Markup:
    """Text with its marks as tags: bold, underline, italics, code, links to https addresses."""
    out = escape(text, quote=True)
    for pattern, tag in (
        (r"`([^`]+)`", r"<code>\1</code>"),
        (r"\[([^\[\]]+)\]\((https://[^\s()]+)\)", r'<a href="\2">\1</a>'),
        (r'(?<!["\w])(https://[^\s<>()"]+[^\s<>()".,;])', r'<a href="\1">\1</a>'),
        (r"\*\*([^*]+)\*\*", r"<strong>\1</strong>"),
        (r"&lt;ins&gt;(.+?)&lt;/ins&gt;", r"<ins>\1</ins>"),
        (r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])", r"<em>\1</em>"),
    ):
        out = re.sub(pattern, tag, out)
    return Markup(out)


def _chunks(markdown: str) -> Iterator[list[str]]:
    """Lines that belong together: a heading, a table, a list, a paragraph."""
    chunk: list[str] = []
    for line in [*markdown.splitlines(), ""]:
        if chunk and (not line.strip() or _kind(line) != _kind(chunk[-1]) or _kind(line) == "#"):
            yield chunk
            chunk = []
        if line.strip():
            chunk.append(line.strip())


def _kind(line: str) -> str:
    line = line.strip()
    return next((mark for mark in ("#", "|", "- ") if line.startswith(mark)), "")


def _grid(chunk: list[str]) -> Grid:
    heads = [_plain(text) for text in _split(chunk[0])]
    rules = _split(chunk[1])
    aligns = ["c" if r.startswith(":") and r.endswith(":") else "r" if r.endswith(":") else "l" for r in rules]
    return Grid(heads, aligns, [_line(_split(row), len(heads)) for row in chunk[2:]])


def _line(texts: list[str], width: int) -> Line:
    texts = (texts + [""] * width)[:width]
    first = texts[0]
    if first.startswith("***") and first.endswith("***") and not any(texts[1:]):
        return Line("section", [_cell(first.strip("*"))])
    hole = re.fullmatch(rf"(.*) {EMPTY} \*(.+)\*", first)
    if hole and width > 1 and set(texts[1:]) == {EMPTY}:
        return Line("hole", [_cell(hole[1]), _cell(hole[2])])
    return Line("row", [_cell(text) for text in texts])


def _cell(text: str) -> Cell:
    # An interval holds together where a cell must break: 58.90 / [56.07, 61.83].
    whole = re.sub(r"\[[-+\d.]+, [-+\d.]+\]", lambda found: found[0].replace(", ", ",\u00a0"), text)
    return Cell(inline(whole), _plain(text))


def _split(row: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))
    return [cell.replace("\\|", "|").strip() for cell in cells]


def _plain(text: str) -> str:
    """Without marks: what a reader sees."""
    return re.sub(r"<ins>(.*?)</ins>", r"\1", text.strip()).replace("**", "").strip("*` ")
