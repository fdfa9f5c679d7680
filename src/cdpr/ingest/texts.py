"""Tests and cleans texts of clinical files, and loads the words and expressions by which they are read
(``phrases.yaml``)."""

import functools
import html
import re
import unicodedata
from typing import Any, Literal

from ..cases.patterns import Patterns, fill, rewrite
from ..files import parse_yaml, shipped_text

LONGEST_TEXT = 1_000_000  # characters of one field; a longer one is a lost quote or a file in the wrong place
LONGEST_NAME = 120  # characters of an identifier or of the name of an examination
HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")  # half of a surrogate pair without the other half
_BLANKED_WORDS = re.compile(r"_{2,}")
_ALPHANUMERIC = re.compile(r"[^\W_]")
CHINESE = re.compile(r"[\u3400-\u9fff]")  # characters that no other language of the data uses
LONG_CLAUSE = 80  # characters; a longer text is not a single clause
_SIMILAR_MARKS = str.maketrans("'\"\\", "’”＼")  # replaces quotes and backslashes by characters that look similar


def phrases(module: str, **words: str) -> dict[str, Any]:
    """Return the entries of ``phrases.yaml`` for ``module`` and the shared ones, by name. ``{name}`` in an entry is
    replaced by the entry of this name, or by the text of this name in ``words``."""
    return fill(words | _read_entries()["shared"] | _read_entries()[module])


def patterns(module: str, **words: str) -> Patterns:
    """Return the regular expressions of ``module``, its entry ``patterns`` in ``phrases.yaml``, as attributes
    by name. ``words`` fill placeholders, as in :func:`phrases`."""
    return Patterns(phrases(module, **words)["patterns"])


@functools.cache
def _read_entries() -> dict[str, dict[str, Any]]:
    """Read the entries of ``phrases.yaml`` by module, once per process."""
    return parse_yaml(shipped_text(__package__, "phrases.yaml"))


_PATTERN = patterns("texts")
_MARKUP, _RTF = (phrases("texts")[name] for name in ("markup", "rtf"))  # rules that remove the marks of HTML and RTF
# What tools write for a missing value ("NULL"), and words that tell of no finding, such as those beside "cancelled".
MISSING, _NEUTRAL = (frozenset(phrases("texts")[name]) for name in ("missing", "neutral"))


def one_line(text: str) -> str:
    """Return the text with all white space, also line ends, collapsed to single spaces."""
    return " ".join(text.split())


def spans_between(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (start, end) of each piece of text between ``spans``: before the first one, between each two, and after
    the last. The comma and space of "ab, c", the span (2, 4), leave (0, 2) and (4, 5)."""
    starts, ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)]
    return list(zip(starts, ends, strict=True))


def says_something(text: str) -> bool:
    """Whether a text has any letter or digit; ``___``, the mark of de-identification, does not count."""
    return _ALPHANUMERIC.search(_BLANKED_WORDS.sub("", text)) is not None


def visible(text: str) -> str:
    """Return the text as a reader sees it: composed characters (NFC), no control or direction marks, and U+FFFD instead
    of half a surrogate pair."""
    if text.isascii() and text.isprintable():  # as most are
        return text
    return HALF_CHARACTER.sub("\ufffd", _PATTERN.invisible.sub("", unicodedata.normalize("NFC", text)))


def quoted(value: str) -> str:
    """Return a value of a file in single quotes, for a message: on one line, and cut to 40 characters. Quotes and
    backslashes in the value become similar characters, so that the quotes around it show where it begins and ends, and
    :meth:`IngestError.without_text` can withhold it."""
    text = one_line(visible(value)).translate(_SIMILAR_MARKS)
    cut = text if len(text) <= 40 else text[:39] + "…"
    return f"'{cut}'"


def shape(text: str) -> str:
    """Return how a text is written, without what it says: digits as 9, letters as A, at most 40 characters.
    ``2150-01-31 8am`` becomes ``9999-99-99 9AA``."""
    plain = re.sub(r"[A-Za-z]", "A", re.sub(r"\d", "9", text.strip()))
    return re.sub(r"[^9A/:.,+ -]", "?", plain)[:40]


def html_text(text: str) -> str:
    """Return the text of an HTML document, with one line for each block (paragraph, row, ...)."""
    return "\n".join(filter(None, map(one_line, html.unescape(rewrite(text, _MARKUP)).splitlines())))


def plain_text(text: str) -> str:
    r"""Return a text without the marks of RTF or HTML, if it is one of these, and with ``\n`` for every line end, also
    for one that Excel wrote as ``_x000D_``."""
    text = text.replace("_x000D_", "\r").replace("\r\n", "\n").replace("\r", "\n")
    if text.lstrip().startswith("{\\rtf"):
        # Letters by their number, \u8217? or \'e9; the first has 16 bits with a sign, so it may be negative.
        text = re.sub(r"\\u(-?\d+) ?\??", lambda match: chr(int(match[1]) % 0x10000), text)
        text = re.sub(r"\\'([0-9a-f]{2})", lambda match: bytes.fromhex(match[1]).decode("cp1252", "replace"), text)
        return rewrite(text, _RTF).strip()
    return html_text(text) if _PATTERN.html.search(text) else text


def is_code(diagnosis: str) -> bool:
    """Whether a diagnosis is only a code (ICD, SNOMED CT), without a word."""
    return _PATTERN.code.fullmatch(diagnosis.strip()) is not None


def blank_if_missing(text: str) -> str:
    """Return the text without spaces around it; empty where it is a word that tools write for a missing value ("NULL",
    "nan")."""
    text = text.strip()
    return "" if text in MISSING else text


@functools.lru_cache(maxsize=1 << 12)  # a text is asked about at its import and with its case
def is_absent(text: str) -> bool:
    """Whether a text is empty, or says that there is no result ("Not available.", "Cancelled by ward", "暂无。")."""
    plain = one_line(visible(text))
    is_empty = not says_something(blank_if_missing(plain)) and not _PATTERN.sign.search(plain)  # "++" is a result
    # "Would show a mass" is imagined, not found; the Chinese phrases say that nothing was done, or is known yet.
    if is_empty or _PATTERN.imagined.fullmatch(plain) or _PATTERN.chinese.fullmatch(plain):
        return True
    # "Pending", "not done": no result, unless the rest of the text is long or tells of a finding.
    rest, undone = _PATTERN.undone.subn(" ", plain)
    if undone and len(rest) <= LONG_CLAUSE and not _PATTERN.finding.search(rest):
        return True
    # "Haemolysed", "invalid": may be findings, and are no result only where the other words tell of no finding.
    rest, spoilt = _PATTERN.spoilt.subn(" ", rest)
    # All words, and the numbers that may be values: a date or time has only short ones without a decimal mark.
    words = re.findall(r"[^\W\d_]+|\d+[.,]\d+|\d{4,}", rest.casefold())
    return bool(undone + spoilt) and _NEUTRAL.issuperset(words)


def language_of(text: str) -> Literal["en", "zh"]:
    """Return ``zh`` for a text with Chinese characters, else ``en``."""
    return "zh" if CHINESE.search(text) else "en"
