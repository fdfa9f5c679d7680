"""Texts of clinical files, what they say, and the case summary: what is known before any examination (paper, appendix
"Unified data format")."""

import re
import unicodedata
from collections.abc import Mapping

from ..cases import PHYSICAL_SUFFIX, SECTIONS

LONGEST_TEXT = 1_000_000  # characters of one field; a longer one is a lost quote or a file in the wrong place
LONGEST_NAME = 120  # characters of an identifier or of the name of an examination
# Control characters without meaning for a reader, and marks that make a text look like another one.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")
_ABSENT = re.compile(
    r"\W*(?:(?:(?:data|details?|information|results?)\s+)?(?:(?:is|are|was|were)\s+)?"
    r"(?:not\s+(?:available|provided|specified|mentioned|indicated|applicable|assessed|performed|done|given)|pending)\b"
    r"(?!.*\bbut\b).{0,80}|n/?a(?:\s+(?:for|due|given)\b.{0,80})?|暂无.{0,4}|未(?:查|做|检))?\W*",
    re.IGNORECASE | re.DOTALL,
)
_REFERENCE = re.compile(
    r"(?:as (?:described |noted |stated )?above|see (?:above|findings|report|body))\W*", re.IGNORECASE
)
_BLANKED = re.compile(r"_{2,}")
CHINESE = re.compile(r"[\u3400-\u9fff]")  # characters that no other language of the data uses


def with_plain_ends(text: str) -> str:
    r"""The text with ``\n`` for every line end, whatever machine wrote it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def one_line(text: str) -> str:
    """The text with all white space, line ends included, collapsed to single spaces."""
    return " ".join(text.split())


def says_something(text: str) -> bool:
    """Whether anything is left besides de-identification blanks and punctuation."""
    return any(c.isalnum() for c in _BLANKED.sub("", text))


def visible(text: str) -> str:
    """The text as a reader sees it: composed characters, no control or direction marks, no halves of characters."""
    if text.isascii() and text.isprintable():  # as most are
        return text
    return HALF_CHARACTER.sub("\ufffd", _INVISIBLE.sub("", unicodedata.normalize("NFC", text)))


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


def only_refers(text: str) -> bool:
    """Whether an impression says nothing but "see above"."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def build_summary(sections: Mapping[str, str]) -> str:
    """Bullet lines ``- Section: text`` in the order of :data:`SECTIONS`; sections that say nothing are left out."""
    texts = {name: one_line(sections.get(name, "")) for name in SECTIONS}
    return "\n".join(f"- {name}: {text}" for name, text in texts.items() if says_something(text))


def patient_information(age: int | None, sex: str) -> str:
    """``58 year old male``; what is unknown is left out."""
    word = {"M": "male", "F": "female", "MALE": "male", "FEMALE": "female"}.get(sex.strip().upper(), "")
    return " ".join(part for part in (f"{age} year old" if age is not None else "", word) if part)


def tells_something(history: Mapping[str, str]) -> bool:
    """Whether there is a complaint or a present illness."""
    return says_something(illness(history))


def illness(history: Mapping[str, str]) -> str:
    """Complaint and present illness."""
    return history.get("Chief Complaint", "") + " " + history.get("History of Present Illness", "")
