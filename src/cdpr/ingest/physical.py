"""Physical examinations: from a paragraph by systems to one result per system."""

import functools
import re

from ..cases import PHYSICAL_SUFFIX, examinations
from .names import add_text, physical_key
from .texts import one_line, phrases, says_something

_SAID = phrases("physical")
_HAN = r"\u3400-\u9fff"
_HEADED = re.compile(
    rf"^[\s*•-]*([A-Za-z][A-Za-z0-9 /&,.()+'-]{{0,38}}?|[{_HAN}]{{1,10}}?)\s*(?::|：|\s-\s)[\s*]*(.*)$"
)
_VITAL = re.compile(rf"^(?:{_SAID['vital']})\.?$", re.IGNORECASE)
VITAL_NUMBERS = re.compile(r"(?<!\d)(?:\d{2,3}/\d{2,3}|(?:9\d|10[0-6])\.\d|3[5-9]\.\d)(?!\d)")
_STABLE = re.compile(r"\b(?:avss|vss|afebrile|ra|room air)\b", re.IGNORECASE)
_VITAL_SIGNS, _GENERAL = f"Vital Signs{PHYSICAL_SUFFIX}", f"General Appearance{PHYSICAL_SUFFIX}"
_NO_ITEM = ""
_TITLE = re.compile(r"^(?:on |at |upon )?(?:admission|initial|presentation|arrival|admit)\b|\bexam(?:ination)?$", re.I)
_TITLE_ALONE = re.compile(
    r"[\W_]*+(?:(?:on|at|upon) )?(?:(?:admission|initial|presentation|arrival) )?(?:physical )?(?:exam(?:ination)?|pe)?"
    r"(?: (?:on|at|upon) )?(?:admission|presentation|arrival)?[\W_]*|体格检查|查体",
    re.IGNORECASE,
)
_NOT_DONE = re.compile(
    r"\W*(?:exam )?(?:deferred|refused|(?:was )?not (?:done|examined|performed|assessed|tested))\W*", re.IGNORECASE
)
_CRANIAL = re.compile(r"[IVX]+(?:\s*(?:[-,/&–]|and)\s*[IVX]+)*")

AT_DISCHARGE = re.compile(rf"(?:^|(?<=[.;]))[\[(*#=_\d/ \t-]*(?:{_SAID['at_discharge']})", re.IGNORECASE | re.MULTILINE)


def physical_results(text: str) -> dict[str, str]:
    """Results keyed ``NAME (Physical Examination)`` from lines ``NAME: findings``.

    Lines without a heading continue the one before; vital signs are gathered under one key; what stands
    before any heading is the general appearance. An examination "at discharge" and all after it is cut, and
    a heading that names a test of another kind makes no item.
    """
    cut = AT_DISCHARGE.search(text)
    results: dict[str, str] = {}
    current: str | None = None
    for line in _one_system_a_line(text[: cut.start()] if cut else text).splitlines():
        headed = _HEADED.match(line)
        name, rest = (headed[1].strip(), headed[2]) if headed else ("", line)
        if _is_title(name, rest):
            current, name, line = None, "", rest if name else ""
        if name and _VITAL.match(name):
            current, rest = _VITAL_SIGNS, rest if name[0] in "Vv生" else line
        elif not name or len(name.split()) > 4 or _CRANIAL.fullmatch(name):
            current, rest = _unheaded(line, current), line
        else:
            current = _NO_ITEM if _kind(name) not in (None, "physical") else physical_key(name[0].upper() + name[1:])
        if current != _NO_ITEM and says_something(rest) and not _NOT_DONE.fullmatch(rest):
            add_text(results, current, one_line(rest).lstrip("-* "))
    return results


def _kind(name: str) -> str | None:
    term = examinations().find(name)
    return term and term.kind


def _is_title(name: str, rest: str) -> bool:
    """Whether a line names the examination itself and no system: "ADMISSION PHYSICAL EXAM", "Exam: ..."."""
    if not name:
        return says_something(rest) and _TITLE_ALONE.fullmatch(rest) is not None
    titled = _TITLE.search(name) and len(name.split()) > 1 and not rest.strip() and _kind(name) is None
    return bool(titled or _TITLE_ALONE.fullmatch(name))


def _unheaded(line: str, current: str | None) -> str:
    """The key of a line without a heading: the system that it begins with, else that of the line before; behind vital
    signs a sentence without numbers is the general appearance."""
    system = _patterns()["leading"].match(line)
    if system:
        return physical_key(system[1])
    if current not in (None, _VITAL_SIGNS):
        return current
    continued = current and (re.search(r"\d", line) or not line.strip()[:1].isupper())
    return _VITAL_SIGNS if continued or VITAL_NUMBERS.search(line) or _STABLE.search(line) else _GENERAL


def _one_system_a_line(text: str) -> str:
    """Paragraphs that name several systems, broken before each name that the vocabulary knows; one that begins with
    vital signs and has no headings, broken into its sentences."""
    patterns = _patterns()
    text = patterns["inline"].sub(r"\n\1", text)
    if VITAL_NUMBERS.search(text) and not patterns["heading"].search(text):
        text = patterns["sentence"].sub("\n", text)
    return text


@functools.cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """What finds the systems that the vocabulary knows, at the beginning of a line or of a sentence."""
    terms = [term for term in examinations().terms.values() if term.kind == "physical" and term.name != "Vital Signs"]
    spellings = sorted((name for term in terms for name in (term.name, *term.aliases)), key=len, reverse=True)
    systems = "|".join(map(re.escape, spellings))
    headed = rf"((?:{systems})[^\S\n]*:(?!\s*\d)|(?:vs|vitals|vital signs)[^\S\n]*:)"  # "Resp: 16" is a vital sign
    side = "".join(rf"(?<!\b{word})" for word in ("lower", "upper", "left", "right", "r", "l", "and", "&"))
    space = rf"(?=[^\S\n])(?<=\S)(?:(?<=[.;])[^\S\n]+|[^\S\n]{{2,}}|{side}[^\S\n](?-i:(?=[A-Z])))"
    chinese = rf"(?:(?<=[。；;])|(?<=\S)[^\S\n]+)(?=[{_HAN}]{{1,10}}[：:])"
    return {
        "inline": re.compile(f"{space}{headed}|{chinese}", re.IGNORECASE),
        "heading": re.compile(rf"^[^\S\n]*[*•-]*[^\S\n]?(?:{systems})[^\S\n]*:", re.IGNORECASE | re.MULTILINE),
        "leading": re.compile(rf"\s*(?=(?-i:[A-Z]))({systems})(?=\s+[A-Za-z])", re.IGNORECASE),
        "sentence": re.compile(rf"(?<=[.;])[^\S\n]+(?=[A-Z])|(?<=\S)[^\S\n]+(?=(?:{systems})\s+[A-Za-z])"),
    }
