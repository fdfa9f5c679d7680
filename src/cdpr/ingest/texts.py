"""Texts of clinical files: the words by which they are read (``phrases.yaml``), what a text says, where its parts begin
and end, and the case summary (paper, appendix "Unified data format")."""

import functools
import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

from ..cases import PHYSICAL_SUFFIX, SECTIONS
from ..cases.patterns import compile_patterns, compile_rewriting, fill, rewrite
from ..files import parse_yaml, shipped_text

LONGEST_TEXT = 1_000_000  # characters of one field; a longer one is a lost quote or a file in the wrong place
LONGEST_NAME = 120  # characters of an identifier or of the name of an examination
HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")
_BLANKED = re.compile(r"_{2,}")
_ALPHANUMERIC = re.compile(r"[^\W_]")
CHINESE = re.compile(r"[\u3400-\u9fff]")  # characters that no other language of the data uses
_LONG_CLAUSE = 80  # characters


def phrases(module: str, **words: str) -> dict[str, Any]:
    """The entries of a module (:func:`cdpr.cases.patterns.fill`), the shared ones, and further ``words``."""
    return fill(words | _entries()["shared"] | _entries()[module])


def patterns(module: str, **words: str) -> SimpleNamespace:
    """The regular expressions of a module by name, made of its words and of these."""
    return compile_patterns(phrases(module, **words)["patterns"])


@functools.cache
def _entries() -> dict[str, dict[str, Any]]:
    return parse_yaml(shipped_text(__package__, "phrases.yaml"))


_PATTERN = patterns("texts")
_MARKUP, _RTF = (compile_rewriting(phrases("texts")[name]) for name in ("markup", "rtf"))
MISSING, _NEUTRAL = (frozenset(phrases("texts")[name]) for name in ("missing", "neutral"))


def one_line(text: str) -> str:
    """The text with all white space, line ends included, collapsed to single spaces."""
    return " ".join(text.split())


def says_something(text: str) -> bool:
    """Whether anything is left besides de-identification blanks and punctuation."""
    return _ALPHANUMERIC.search(_BLANKED.sub("", text)) is not None


def visible(text: str) -> str:
    """The text as a reader sees it: composed characters, no control or direction marks, no halves of characters."""
    if text.isascii() and text.isprintable():  # as most are
        return text
    return HALF_CHARACTER.sub("\ufffd", _PATTERN.invisible.sub("", unicodedata.normalize("NFC", text)))


def quoted(value: str) -> str:
    """A value for a message: short, on one line, between quotes and without any, so that it can be withheld whole."""
    text = one_line(visible(value)).replace("'", "’").replace('"', "”").replace("\\", "＼")
    return f"'{text if len(text) <= 40 else text[:39] + '…'}'"


def shape(text: str) -> str:
    """How a text is written, without what it says: digits as 9, letters as A."""
    plain = re.sub(r"[A-Za-z]", "A", re.sub(r"\d", "9", text.strip()))
    return re.sub(r"[^9A/:.,+ -]", "?", plain)[:40]


def unmarked(text: str) -> str:
    """The text of HTML, a block a line."""
    return "\n".join(filter(None, map(one_line, html.unescape(rewrite(text, _MARKUP)).splitlines())))


def plain_text(text: str) -> str:
    r"""A text without the marks of RTF or HTML, where it has such, and with ``\n`` for every line end."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.lstrip().startswith("{\\rtf"):
        text = re.sub(r"\\u(-?\d+) ?\??", lambda match: chr(int(match[1]) % 0x10000), text)
        text = re.sub(r"\\'([0-9a-f]{2})", lambda match: bytes.fromhex(match[1]).decode("cp1252", "replace"), text)
        return rewrite(text, _RTF).strip()
    return unmarked(text) if _PATTERN.html.search(text) else text


def is_code(diagnosis: str) -> bool:
    """Whether a diagnosis is a code (ICD, SNOMED CT) without a word."""
    return _PATTERN.code.fullmatch(diagnosis.strip()) is not None


def filled(text: str) -> str:
    """The text, stripped; nothing where it only says that the field is missing ("NULL", "nan")."""
    text = text.strip()
    return "" if text in MISSING else text


def is_absent(text: str) -> bool:
    """Whether a text says nothing, or that there is no result ("Not available.", "Cancelled by ward", "暂无。")."""
    plain = one_line(visible(text))
    if not says_something(filled(plain)) or _PATTERN.imagined.fullmatch(plain) or _PATTERN.chinese.fullmatch(plain):
        return True
    rest, undone = _PATTERN.undone.subn(" ", plain)
    if undone and len(rest) <= _LONG_CLAUSE and not _PATTERN.finding.search(rest):
        return True
    rest, spoilt = _PATTERN.spoilt.subn(" ", rest)
    return bool(undone + spoilt) and _NEUTRAL.issuperset(re.findall(r"[^\W\d_]+|\d+[.,]\d+|\d{4,}", rest.casefold()))


def examination_name(name: str) -> str:
    """A name on one line, without the mark of physical examinations, which are free; "…" ends what is cut."""
    name = one_line(visible(name))
    while name.endswith(PHYSICAL_SUFFIX):
        name = name.removesuffix(PHYSICAL_SUFFIX).rstrip()
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def language_of(text: str) -> Literal["en", "zh"]:
    """``zh`` for a text with Chinese characters, else ``en``."""
    return "zh" if CHINESE.search(text) else "en"


def alternatives(expressions: Iterable[str]) -> str:
    """A regular expression for any of these, which :func:`matched` tells apart."""
    return "|".join(f"(?P<s{i}>{expression})" for i, expression in enumerate(expressions))


def matched(match: re.Match[str]) -> int:
    """Which of some :func:`alternatives` a match is of."""
    return int(str(match.lastgroup)[1:])


def only_refers(text: str) -> bool:
    """Whether an impression says nothing but "see above"."""
    return _PATTERN.reference.fullmatch(text.strip()) is not None


def build_summary(sections: Mapping[str, str]) -> str:
    """Bullet lines ``- Section: text`` in the order of :data:`SECTIONS`; sections that say nothing are left out."""
    texts = {name: one_line(sections.get(name, "")) for name in SECTIONS}
    return "\n".join(f"- {name}: {text}" for name, text in texts.items() if says_something(text))


def patient_information(years: float | None, sex: str) -> str:
    """``58 year old male``, ``5 month old female``, ``12 day old``; what is unknown is left out."""
    word = {"M": "male", "F": "female", "MALE": "male", "FEMALE": "female"}.get(sex.strip().upper(), "")
    number, unit = years, "year"
    if years is not None and 0 < years < 1:
        number, unit = (years * 12, "month") if years * 12 >= 2 else (round(years * 365.25), "day")
    return " ".join(part for part in (f"{int(number)} {unit} old" if number is not None else "", word) if part)


def tells_something(history: Mapping[str, str]) -> bool:
    """Whether there is a complaint or a present illness."""
    return says_something(illness(history))


def illness(history: Mapping[str, str]) -> str:
    """Complaint and present illness."""
    return history.get("Chief Complaint", "") + " " + history.get("History of Present Illness", "")


def gaps(text: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Start and end of what stands before the first of some places, between them, and behind the last."""
    return list(zip([0, *(end for _, end in places)], [*(start for start, _ in places), len(text)], strict=True))


def headed(text: str, headings: Iterable[re.Match[str]]) -> list[tuple[re.Match[str] | None, str]]:
    """What stands before the first heading, then each heading with the text below it."""
    headings = list(headings)
    bodies = [text[start:end].strip() for start, end in gaps(text, [heading.span() for heading in headings])]
    return list(zip([None, *headings], bodies, strict=True))


@functools.lru_cache(maxsize=8)  # several readers of one text need them
def spans(text: str) -> tuple[tuple[int, int], ...]:
    """Start and end of every sentence, without the white space between them."""
    ends = [match.span() for match in _PATTERN.sentence_end.finditer(text)]
    return tuple((start, end) for start, end in gaps(text, ends) if text[start:end].strip())


def clause_start(text: str, sentence: int, place: int) -> int:
    """Where the clause that holds ``place`` begins, in the sentence from ``sentence`` on; ``place`` itself where the
    clause is too long to be one."""
    starts = [sentence, *(sentence + match.end() for match in _PATTERN.clause.finditer(text[sentence:place]))]
    return starts[-1] if place - starts[-1] <= _LONG_CLAUSE else place
