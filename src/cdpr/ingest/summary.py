"""The case summary: what is known before any examination (paper, appendix "Unified data format")."""

import re
from collections.abc import Mapping

from ..cases import SECTIONS

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
