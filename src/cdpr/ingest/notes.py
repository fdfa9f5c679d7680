"""Reads clinical notes: discharge summaries in the layout of MIMIC-IV-Note, radiology reports, and physical
examinations.

From a discharge summary only what was known at presentation, and the diagnosis, is read. Hospital course, medications,
pertinent results and everything about the discharge are never read, because they were written in the knowledge of the
diagnosis. A physical examination is divided into one result per system of the body.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NamedTuple

from ..cases import PHYSICAL_SUFFIX, examinations
from .headings import group_number, numbered_groups, spans_between, split_at_headings
from .names import add_text, physical_key
from .texts import one_line, patterns, phrases, plain_text, says_something, shape, visible

_HEADINGS, _SHORT = (phrases("notes")[name] for name in ("headings", "short"))
_ALL_HEADINGS = [*_HEADINGS, *_SHORT]
_NOTE, _REPORT, _EXAM = map(patterns, ("notes", "radiology", "physical"))
_HEADING = re.compile(
    r"^[^\S\n]*(?:(?:\*+|#+|[=_]+)[^\S\n]*)?(?:"
    + numbered_groups(pattern for _, pattern in _ALL_HEADINGS)
    + r")[^\S\n]*(?:[*=_]+[^\S\n]*)?(?::\**|$)",
    re.IGNORECASE | re.MULTILINE,
)
_HISTORY = ("History of Present Illness", "Past Medical History", "Personal History", "Family History")


class _Heading(NamedTuple):
    """A heading in a note, from ``start`` to ``end``: its ``number``, an index into :data:`_ALL_HEADINGS`; the
    ``section`` that it opens, None if it only ends the one before; and whether it is a short form such as "PE:"."""

    start: int
    end: int
    number: int
    section: str | None
    is_short: bool


@dataclass(frozen=True)
class DischargeNote:
    """The parts of a discharge summary that are read. ``history`` has texts by section of the case summary,
    ``physical`` texts by key. ``final_diagnosis`` is the whole discharge diagnosis on one line, ``primary_diagnosis``
    the first primary one. ``cut``: the physical examination was ended early by a heading of something else."""

    history: dict[str, str] = field(default_factory=dict)
    physical: dict[str, str] = field(default_factory=dict)
    final_diagnosis: str = ""
    primary_diagnosis: str = ""
    cut: bool = False


def parse_discharge_note(text: str) -> DischargeNote:
    """Read the parts of a discharge summary. A part that is not found is empty; no error is raised. The history keeps
    its line ends."""
    sections = note_sections(plain_text(visible(text)))
    diagnosis = sections.pop("diagnosis", "")
    physical, behind = split_off_examination(sections.pop("physical", ""))
    return DischargeNote(
        history={name: body for name, body in sections.items() if says_something(body)},
        physical=physical_results(physical),
        final_diagnosis="; ".join(line for raw in diagnosis.splitlines() if says_something(line := one_line(raw))),
        primary_diagnosis=primary_diagnosis(diagnosis),
        cut=says_something(behind),
    )


def note_sections(text: str) -> dict[str, str]:
    """Split a note into its sections: texts by section of the case summary, and by ``physical`` and ``diagnosis``.

    Any other heading ends the section before it. Of a heading that occurs twice the first is used, but of the discharge
    diagnosis the last one with a text.
    """
    openings, examination = _section_headings(text)
    sections: dict[str, str] = {}
    starts: set[int] = set()  # numbers of the headings so far
    bodies = spans_between(text, [heading[:2] for heading in openings])[1:]
    for heading, (start, end) in zip(openings, bodies, strict=True):
        name, body = heading.section, text[start:end].strip()
        if name == "diagnosis":
            sections[name] = body if says_something(body) else sections.get(name, "")
        elif name == "physical":
            sections |= {name: body} if heading is examination else {}
        elif name not in (None, "course") and heading.number not in starts:
            sections[name] = f"{sections[name]}\n{body}" if name in sections else body  # medical history, then surgical
        starts.add(heading.number)
    return sections


def _section_headings(text: str) -> tuple[list[_Heading], _Heading | None]:
    """Return the headings of a note that open or end a section, and the heading of the physical examination at
    presentation (None without one). A heading that directly follows an equal one is left out, and so are short forms
    ("PE:") of a section that has a full heading."""
    headings = list(_find_headings(text))
    # One heading of the course may be about another place.
    course = max((h.start for h in headings if h.section == "course"), default=len(text))
    full = {h.section for h in headings if not h.is_short and h.start < course}
    headings = [h for h in headings if not (h.is_short and h.section in full)]
    examination = _examination_heading(headings, course)
    # Leave out repeated headings, and short forms such as "PE:" in another section.
    openings: list[_Heading] = []
    for heading in headings:
        again = openings and heading.section is not None and heading.number == openings[-1].number
        elsewhere = heading.is_short and heading.section == "physical" and heading is not examination
        if not again and not elsewhere:
            openings.append(heading)
    return openings, examination


def _find_headings(text: str) -> Iterator[_Heading]:
    """Yield the headings of a note. A heading has a colon. One that is no short form may instead be in capitals or bold
    (:func:`_stands_out`), or alone on its line."""
    start = 0
    for line in text.split("\n"):
        alone = line[:1].isupper() and 2 <= len(line.split()) <= 5
        if (":" in line or alone or _stands_out(line)) and (match := _HEADING.match(text, start)):
            number = group_number(match)
            heading = _Heading(*match.span(), number, _ALL_HEADINGS[number][0], number >= len(_HEADINGS))
            if ":" in match[0] or ((_stands_out(match[0]) or alone) and not heading.is_short):
                yield heading
        start += len(line) + 1


def _examination_heading(headings: list[_Heading], course: int) -> _Heading | None:
    """Return the heading of the physical examination at presentation: the first one after the history and before the
    hospital course, which begins at ``course``. If there is none, the first full heading within the history; None
    without any."""
    # Where each section of the history begins, and the headings of physical examinations.
    history = {h.section: h.start for h in reversed(headings) if h.section in _HISTORY and h.start < course}
    own = [h for h in headings if h.section == "physical" and h.start < course]
    after = [h for h in own if h.start > max(history.values(), default=-1)]
    return next(iter(after or [h for h in own if not h.is_short]), None)


def _stands_out(line: str) -> bool:
    """Whether a line is in capitals or bold type, or begins with ``#``, as a heading without a colon does."""
    return line.isupper() or "**" in line or line.startswith("#")


def primary_diagnosis(section: str) -> str:
    """Return the first primary diagnosis in the section "discharge diagnosis", without bullets, ranks and closing
    punctuation; empty where there is none. Lines below "Secondary diagnoses:" and similar labels are not primary."""
    primary = True
    for raw in section.splitlines():
        line = _NOTE.bullet.sub("", one_line(raw))
        while label := _NOTE.secondary.match(line) or _NOTE.first_label.match(line):
            primary = label.re is not _NOTE.secondary
            line = _NOTE.bullet.sub("", line[label.end() :])
        if primary and says_something(line) and not _NOTE.nameless.fullmatch(line):
            ends = [_NOTE.end.search(line, 1), _NOTE.two.search(line) if _NOTE.one.search(one_line(raw)) else None]
            line = line[: min((end.start() for end in ends if end), default=None)]
            return line.strip(" .,;:-*").rstrip(" (,[-")
    return ""


_UNNAMED_HEADINGS = {"FINDINGS", "REPORT", "FINAL REPORT"}
_IMPRESSIONS = {"IMPRESSION", "IMPRESSIONS", "CONCLUSION", "CONCLUSIONS"}


def report_text(text: str) -> str:
    """Write a radiology report on one line: findings and other sections first, the impression last. Sections about the
    reason for the examination and its technique are left out."""
    parts = []
    for heading, body in sorted(_report_sections(text), key=lambda section: section[0] in _IMPRESSIONS):
        if _REPORT.no_result.fullmatch(heading) or not says_something(body) or is_reference(body):
            continue
        body = one_line(body)
        parts.append(body if not heading or heading in _UNNAMED_HEADINGS else f"{heading.capitalize()}: {body}")
    return " ".join(parts)


def examination_heading(text: str) -> str | None:
    """Return the name of the examination in a radiology report: the first line below EXAMINATION, EXAM or STUDY; None
    without one."""
    for heading, body in _report_sections(text):
        if heading in ("EXAMINATION", "EXAM", "STUDY") and says_something(body):
            return one_line(body.strip().splitlines()[0])
    return None


def is_reference(text: str) -> bool:
    """Whether a text only refers to another one, such as "see above"."""
    return _REPORT.reference.fullmatch(text.strip()) is not None


def _report_sections(text: str) -> list[tuple[str, str]]:
    """Return (heading, text below it) for each heading of a report; headings are in capitals. The text before the first
    one has an empty heading."""
    text = plain_text(text)
    sections = split_at_headings(text, _REPORT.heading.finditer(text))
    return [(heading[1].strip() if heading else "", body) for heading, body in sections]


_PLAIN_WORDS = phrases("physical")["plain"]
_WORD = re.compile(r"[^\W_]+")
_EXAM_HEADINGS = [phrases("physical")[name] for name in ("vital", "parts", "others")]
_KNOWN_HEADINGS = [pattern for _, pattern in _ALL_HEADINGS] + _EXAM_HEADINGS
_HEADING_WORDS = frozenset(_WORD.findall(" ".join(_KNOWN_HEADINGS)))
_VITAL_SIGNS, _GENERAL = f"Vital Signs{PHYSICAL_SUFFIX}", f"General Appearance{PHYSICAL_SUFFIX}"
_NO_ITEM = ""


def split_off_examination(text: str) -> tuple[str, str]:
    """Split a section into the physical examination at admission and the rest, which begins with the next heading that
    is not part of an examination. An examination at discharge is left out of both, wherever it is."""
    at_admission, *rest = _EXAM.at_discharge.split(text, maxsplit=1)
    if rest and not physical_results(at_admission) and (begin := _EXAM.at_admission.search(rest[0])):
        at_admission = _EXAM.at_discharge.split(rest[0][begin.start() :], maxsplit=1)[0]
    # Look for the first line that opens another section.
    lines = _EXAM.thought_within.sub("\n", at_admission).splitlines(keepends=True)
    begun = False  # whether a line before has findings
    for number, line in enumerate(lines):
        apart, below = not "".join(lines[max(0, number - 1) : number]).strip(), "".join(lines[number + 1 : number + 2])
        marked = _EXAM.marked.match(line) or (apart and _EXAM.underline.fullmatch(below.strip("\n")))
        plain = _EXAM.decoration.sub("", line).strip(" \t\n*=_~")
        if _opens_another_section(plain, bool(marked) and begun, apart and begun):
            return "".join(lines[:number]), "".join(lines[number:])
        begun = begun or (says_something(plain) and not _is_title(plain.rstrip(":："), ""))
    return "".join(lines), ""


def _opens_another_section(line: str, is_marked: bool, is_apart: bool) -> bool:
    """Whether a line within a physical examination is a heading that ends the examination.

    A heading about thoughts ("Assessment") always is. A heading with words that no examination has is one if it has a
    colon and names another section ("Labs:"), or if it is set apart: ``is_marked`` by a symbol or an underline, or
    alone on its line and ``is_apart``, after an empty line.
    """
    titled = _EXAM.titled.match(line)
    if titled is None or (not titled["end"].strip() and len(titled["name"].split()) > 6):
        return False
    name = titled["name"].strip("*_# ")
    if _EXAM.thought.fullmatch(name):
        return True
    is_heading = (is_marked or titled["end"] in (":", "：")) and name[:1].isupper() and len(name.split()) <= 4
    if not is_heading or _is_heading_within(name):
        return False
    # A heading of words that no examination has.
    words = set(re.findall(r"[a-z]+", name.casefold())).difference(_PLAIN_WORDS)
    is_alone = is_marked or (is_apart and not says_something(line[titled.end() :]))
    return bool(_EXAM.other.search(name)) or (is_alone and not any(map(_EXAM.part.fullmatch, words)))


def _is_heading_within(name: str) -> bool:
    """Whether a heading belongs to a physical examination: it is a vital sign, a manoeuvre, a system or part of the
    body. A heading with a number is a finding, and belongs to it too."""
    words = re.findall(r"[a-z]+", _EXAM.cranial.sub("", name).casefold())
    known = _EXAM.vital.match(name) or _EXAM.manoeuvre.fullmatch(name) or _is_title(name, "") or _kind(name) is not None
    counted = re.search(r"\d|__", name) and not _EXAM.other.search(name)  # a finding, not "2 other headings"
    return bool(known or counted or _EXAM.of_exam.search(name) or all(map(_EXAM.part.fullmatch, words)))


def outline(text: str) -> str:
    """Return the headings of a note, at most 40, for messages. A word that no known heading has may be a patient's, so
    it is replaced by its shape: ``AAAAA hospital course``."""
    lines = plain_text(text).split("\n")
    names = (line.partition(":")[0].strip() for line in lines if ":" in line or _stands_out(line))
    masked = (_WORD.sub(lambda word: word[0] if word[0].casefold() in _HEADING_WORDS else shape(word[0]), name)
              for name in names if 0 < len(name.split()) <= 6)  # fmt: skip
    return " / ".join(itertools.islice(masked, 40))


def physical_results(text: str) -> dict[str, str]:
    """Read a physical examination with lines ``NAME: findings`` as results by key, ``NAME (Physical Examination)``.

    A line without a heading continues the one before, all vital signs have one key, and text before any heading is the
    general appearance. An examination at discharge and everything after it is left out. So is a line whose heading is
    the name of a known examination of another kind, such as a laboratory test.
    """
    results: dict[str, str] = {}
    current: str | None = None
    for line in _one_system_a_line(_EXAM.at_discharge.split(text, maxsplit=1)[0]).splitlines():
        headed = _EXAM.headed.match(line)
        name, rest = (headed[1].strip(), headed[2]) if headed else ("", line)
        # Which key the line belongs to, and which of its text is findings.
        if _is_title(name, rest):
            current, name, line = None, "", rest if name else ""
        if name and _EXAM.vital.match(name):
            current, rest = _VITAL_SIGNS, rest if name[0] in "Vv生" else line
        elif not name or len(name.split()) > 4 or _EXAM.cranial.fullmatch(name):
            current, rest = _key_without_heading(line, current), line
        else:
            current = _NO_ITEM if _kind(name) not in (None, "physical") else physical_key(name[0].upper() + name[1:])
        if current != _NO_ITEM and says_something(rest) and not _EXAM.not_done.fullmatch(rest):
            add_text(results, current, one_line(rest).lstrip("-* "))
    return results


def _kind(name: str) -> str | None:
    """Return the kind of the known examination with this name (``physical``, ...); None for an unknown name."""
    term = examinations().find(name)
    return term.kind if term else None


def _is_title(name: str, rest: str) -> bool:
    """Whether a line is the title of a whole examination, not the name of a system: "ADMISSION PHYSICAL EXAM", "Exam:
    ...". ``name`` is the heading of the line, empty without one, ``rest`` the text after it."""
    if not name:
        return says_something(rest) and _EXAM.title_alone.fullmatch(rest) is not None
    titled = _EXAM.title.search(name) and len(name.split()) > 1 and not rest.strip() and _kind(name) is None
    return bool(titled or _EXAM.title_alone.fullmatch(name))


def _key_without_heading(line: str, current: str | None) -> str:
    """Return the key of a line without a heading: that of the system with which it begins, else ``current``, the key of
    the line before. After vital signs a sentence without numbers is the general appearance."""
    system = _systems().leading.match(line)
    if system:
        return physical_key(system[1])
    if current not in (None, _VITAL_SIGNS):
        return current
    continued = current and (re.search(r"\d", line) or not line.strip()[:1].isupper())
    return _VITAL_SIGNS if continued or _EXAM.vital_numbers.search(line) or _EXAM.stable.search(line) else _GENERAL


def _one_system_a_line(text: str) -> str:
    """Break the paragraphs of a physical examination into lines with one system of the body each: before each name of a
    system. A text with vital signs and without headings is also broken after each sentence."""
    systems = _systems()
    text = systems.inline.sub(r"\n\1", text)
    if _EXAM.vital_numbers.search(text) and not systems.heading.search(text):
        text = systems.sentence.sub("\n", text)
    return text


@functools.cache
def _systems() -> SimpleNamespace:
    """Return the compiled expressions ``systems`` of ``phrases.yaml``, which find the names of systems of the body
    (known items of the physical examination): ``inline``, ``heading``, ``leading`` and ``sentence``."""
    terms = [term for term in examinations().terms.values() if term.kind == "physical" and term.name != "Vital Signs"]
    spellings = sorted((name for term in terms for name in (term.name, *term.aliases)), key=len, reverse=True)
    return patterns("systems", systems="|".join(map(re.escape, spellings)))
