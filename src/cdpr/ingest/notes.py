"""Reads clinical notes: discharge summaries in the layout of MIMIC-IV-Note, radiology reports, and physical
examinations.

From a discharge summary only what was known at presentation, and the diagnosis, is read. Hospital course, medications,
pertinent results and everything about the discharge are never read, because they were written in the knowledge of the
diagnosis. A physical examination is divided into one result per system of the body.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..cases import PHYSICAL_SUFFIX, examinations
from ..cases.patterns import Patterns
from .names import add_text, physical_key
from .texts import one_line, patterns, phrases, plain_text, says_something, shape, spans_between, visible

_HEADINGS, _SHORT_HEADINGS = (phrases("notes")[name] for name in ("headings", "short"))
_ALL_HEADINGS = [*_HEADINGS, *_SHORT_HEADINGS]  # pairs (section that the heading opens, regular expression)
# Each heading is a group of the expression, so that the number of the group that matched tells which one it is.
# Their words may have more than one space between them.
_NOTE = patterns("notes", any_heading="|".join(f"({p})" for _, p in _ALL_HEADINGS).replace(" ", r"(?:[^\S\n]+)"))
_REPORT, _EXAM = patterns("radiology"), patterns("physical")
_HISTORY = ("History of Present Illness", "Past Medical History", "Personal History", "Family History")


class _Heading(NamedTuple):
    """A heading in a note, from ``start`` to ``end``: its ``number``, an index into :data:`_ALL_HEADINGS`; the
    ``section`` that it opens, None if it only ends the one before; and whether it is a short form such as "PE:"."""

    start: int
    end: int
    number: int
    section: str | None
    is_short: bool


class DischargeNote(NamedTuple):
    """The parts of a discharge summary that are read. ``history`` has texts by section of the case summary,
    ``physical`` texts by examination key. ``final_diagnosis`` is the whole discharge diagnosis on one line,
    ``primary_diagnosis`` the first diagnosis in it that is a primary one. ``cut``: the physical examination was ended
    early by a heading of something else."""

    history: dict[str, str]
    physical: dict[str, str]
    final_diagnosis: str
    primary_diagnosis: str
    cut: bool


def parse_discharge_note(text: str) -> DischargeNote:
    """Read the parts of a discharge summary. A part that is not found is empty; no error is raised. The history keeps
    its line ends."""
    sections = note_sections(_with_line_ends(plain_text(visible(text))))
    diagnosis = sections.pop("diagnosis", "")
    physical, text_after = split_off_examination(sections.pop("physical", ""))
    history = {name: body for name, body in sections.items() if says_something(body)}
    final_diagnosis = "; ".join(line for line in map(one_line, diagnosis.splitlines()) if says_something(line))
    cut = says_something(text_after)
    return DischargeNote(history, physical_results(physical), final_diagnosis, primary_diagnosis(diagnosis), cut)


def _with_line_ends(text: str) -> str:
    """Return a note; if an export took all its line ends away, or wrote them as letters, each heading that has a colon
    and a capital begins a line."""
    lines = text if "\n" in text.strip() else text.replace(r"\r", "").replace(r"\n", "\n")
    return lines if "\n" in lines.strip() else _NOTE.heading_within.sub(r"\n\g<heading>", lines)


def split_at_headings(text: str, headings: Iterable[re.Match[str]]) -> list[tuple[re.Match[str] | None, str]]:
    """Split a text at its headings. Returns pairs (heading, text below it); the first pair has None and the text before
    the first heading."""
    headings = list(headings)
    bodies = [text[start:end].strip() for start, end in spans_between(text, [heading.span() for heading in headings])]
    return list(zip([None, *headings], bodies, strict=True))


def note_sections(text: str) -> dict[str, str]:
    """Split a note into its sections: texts by section of the case summary, and by ``physical`` and ``diagnosis``.

    Any other heading ends the section before it; its own text is not read. Of a heading that occurs twice the first is
    used, but of the discharge diagnosis the last one with a text.
    """
    headings, examination = _section_headings(text)
    sections: dict[str, str] = {}
    numbers_before: set[int] = set()  # of the headings so far
    _, *bodies = spans_between(text, [(heading.start, heading.end) for heading in headings])
    for heading, (start, end) in zip(headings, bodies, strict=True):
        name, body = heading.section, text[start:end].strip()
        if name == "diagnosis":
            sections[name] = body if says_something(body) else sections.get(name, "")
        elif heading is examination:
            sections["physical"] = body
        elif name not in (None, "course", "physical") and heading.number not in numbers_before:
            add_text(sections, name, body, separator="\n")  # medical history, then surgical
        numbers_before.add(heading.number)
    return sections


def _section_headings(text: str) -> tuple[list[_Heading], _Heading | None]:
    """Return the headings of a note that open or end a section, and the heading of the physical examination at
    presentation (None without one). A heading that directly follows an equal one is left out, and so are short forms
    ("PE:") of a section that has a full heading."""
    headings = list(_find_headings(text))
    # Of several headings of a hospital course the last one counts: an earlier one may be about another hospital.
    course = max((h.start for h in headings if h.section == "course"), default=len(text))
    with_full = {h.section for h in headings if not h.is_short and (h.start < course or h.section == "diagnosis")}
    headings = [h for h in headings if not (h.is_short and h.section in with_full)]
    examination = _examination_heading(headings, course)
    openings: list[_Heading] = []
    for heading in headings:
        is_repeated = openings and heading.section is not None and heading.number == openings[-1].number
        is_within_another = heading.is_short and heading.section == "physical" and heading is not examination
        if not is_repeated and not is_within_another:
            openings.append(heading)
    return openings, examination


def _find_headings(text: str) -> Iterator[_Heading]:
    """Yield the headings of a note, each at the beginning of a line. A heading has a colon. One that is no short form
    may instead be in capitals or bold (:func:`_stands_out`), or alone on its line."""
    start = 0  # of the line
    for line in text.split("\n"):
        is_alone = line[:1].isupper() and 2 <= len(line.split()) <= 5  # more are a sentence, one may be a finding
        may_be_heading = ":" in line or is_alone or _stands_out(line)  # asked first, because matching takes longer
        if may_be_heading and (match := _NOTE.heading.match(text, start)):
            number = (match.lastindex or 0) - 1  # groups are counted from 1
            is_short = number >= len(_HEADINGS)
            heading = _Heading(match.start(), match.end(), number, _ALL_HEADINGS[number][0], is_short)
            if ":" in match[0] or ((_stands_out(match[0]) or is_alone) and not heading.is_short):
                yield heading
        start += len(line) + 1


def _examination_heading(headings: list[_Heading], course: int) -> _Heading | None:
    """Return the heading of the physical examination at presentation: the first one after the history and before the
    hospital course, which begins at ``course``. If there is none, it is the first one within the history that is no
    short form; None without any."""
    candidates = [h for h in headings if h.section == "physical" and h.start < course]
    # Where the history ends: at the first heading of its last section.
    first_starts = {h.section: h.start for h in reversed(headings) if h.section in _HISTORY and h.start < course}
    history_end = max(first_starts.values(), default=-1)
    after_history = [h for h in candidates if h.start > history_end]
    within_history = [h for h in candidates if not h.is_short]
    return next(iter(after_history or within_history), None)


def _stands_out(line: str) -> bool:
    """Whether a line is in capitals or bold type, or begins with ``#``, as a heading without a colon does."""
    return line.isupper() or "**" in line or line.startswith("#")


def primary_diagnosis(section: str) -> str:
    """Return the first primary diagnosis in the section "discharge diagnosis", without bullets, ranks and closing
    punctuation; empty where there is none. Lines below "Secondary diagnoses:" and similar labels are not primary."""
    is_primary = True
    for raw in section.splitlines():
        line = _NOTE.bullet.sub("", one_line(raw))
        # Labels before the name say whether it is primary, and so are the lines below them.
        while label := _NOTE.secondary.match(line) or _NOTE.first_label.match(line):
            is_primary = label.re is not _NOTE.secondary
            line = _NOTE.bullet.sub("", line[label.end() :])
        if is_primary and says_something(line) and not _NOTE.nameless.fullmatch(line):
            # "Gout; fever" ends at the semicolon, "1. Gout 2. Fever" at the second number. The first character cannot
            # end it.
            is_numbered = _NOTE.one.search(one_line(raw))
            ends = [_NOTE.end.search(line, 1), _NOTE.two.search(line) if is_numbered else None]
            end = min((match.start() for match in ends if match), default=len(line))
            return line[:end].strip(" .,;:-*").rstrip(" (,[-")
    return ""


_UNNAMED_HEADINGS = {"FINDINGS", "REPORT", "FINAL REPORT"}  # these are not written before their text
_IMPRESSIONS = {"IMPRESSION", "IMPRESSIONS", "CONCLUSION", "CONCLUSIONS"}


def report_text(text: str) -> str:
    """Write a radiology report on one line: findings and other sections first, the impression last. Sections about the
    reason for the examination and its technique are left out."""
    parts = []
    for heading, body in sorted(_report_sections(text), key=lambda section: section[0] in _IMPRESSIONS):
        if _REPORT.no_result.fullmatch(heading) or not says_something(body) or is_reference(body):
            continue
        label = "" if heading in _UNNAMED_HEADINGS else heading.capitalize()
        parts.append(": ".join(filter(None, (label, one_line(body)))))
    return " ".join(parts)


def examination_heading(text: str) -> str | None:
    """Return the name of the examination in a radiology report: the first line below EXAMINATION, EXAM or STUDY; None
    without one."""
    named = (body for heading, body in _report_sections(text) if heading in ("EXAMINATION", "EXAM", "STUDY"))
    return next((one_line(body.strip().splitlines()[0]) for body in named if says_something(body)), None)


def is_reference(text: str) -> bool:
    """Whether a text only refers to another one, such as "see above"."""
    return _REPORT.reference.fullmatch(text.strip()) is not None


def _report_sections(text: str) -> list[tuple[str, str]]:
    """Return (heading, text below it) for each heading of a report; headings are in capitals. The text before the first
    one has an empty heading."""
    text = plain_text(text)
    sections = split_at_headings(text, _REPORT.heading.finditer(text))
    return [(heading[1].strip() if heading else "", body) for heading, body in sections]


_PLAIN_WORDS = phrases("physical")["plain"]  # words such as "and", which say nothing of what a heading is about
# Expressions for headings within a physical examination and for those that end it; and all words of known headings.
_EXAM_HEADINGS = [phrases("physical")[name] for name in ("vital", "parts", "others")]
_HEADING_WORDS = frozenset(_NOTE.word.findall(" ".join([*(pattern for _, pattern in _ALL_HEADINGS), *_EXAM_HEADINGS])))
_VITAL_SIGNS, _GENERAL = f"Vital Signs{PHYSICAL_SUFFIX}", f"General Appearance{PHYSICAL_SUFFIX}"


def split_off_examination(text: str) -> tuple[str, str]:
    """Split a section into the physical examination at admission and the rest, which begins with the next heading that
    is not part of an examination. An examination at discharge is left out of both, wherever it is."""
    at_admission, *rest = _EXAM.at_discharge.split(text, maxsplit=1)
    # The examination at discharge may stand before that at admission.
    if rest and not physical_results(at_admission) and (begin := _EXAM.at_admission.search(rest[0])):
        at_admission = _EXAM.at_discharge.split(rest[0][begin.start() :], maxsplit=1)[0]
    # Look for the first line that opens another section; a heading such as "Assessment:" within a line begins a line.
    lines = _EXAM.thought_within.sub("\n", at_admission).splitlines(keepends=True)
    has_findings = False  # in the lines before
    # Each line with those before and below it.
    for number, (before, line, below) in enumerate(zip(["", *lines], lines, [*lines[1:], ""], strict=False)):
        is_apart = not before.strip()  # after an empty line
        # By a symbol, such as "# Labs", or by an underline.
        is_marked = bool(_EXAM.marked.match(line) or (is_apart and _EXAM.underline.fullmatch(below.strip("\n"))))
        plain = _EXAM.decoration.sub("", line).strip(" \t\n*=_~")
        if _opens_another_section(plain, is_marked and has_findings, is_apart and has_findings):
            return "".join(lines[:number]), "".join(lines[number:])
        has_findings = has_findings or (says_something(plain) and not _is_title(plain.rstrip(":："), ""))
    return "".join(lines), ""


def _opens_another_section(line: str, is_marked: bool, is_apart: bool) -> bool:
    """Whether a line within a physical examination is a heading that ends the examination.

    A heading about thoughts ("Assessment") always is. A heading with words that no examination has is one if it has a
    colon and names another section ("Labs:"), or if it is set apart: ``is_marked`` by a symbol or an underline, or
    alone on its line and ``is_apart``, after an empty line.
    """
    titled = _EXAM.titled.match(line)  # a name, and the colon, dash or end of the line after it
    if titled is None or (not titled["end"].strip() and len(titled["name"].split()) > 6):
        return False
    name = titled["name"].strip("*_# ")
    if _EXAM.thought.fullmatch(name):
        return True
    has_colon = titled["end"] in (":", "：")
    is_heading = (is_marked or has_colon) and name[:1].isupper() and len(name.split()) <= 4
    if not is_heading or _is_heading_within(name):
        return False
    is_alone = is_marked or (is_apart and not says_something(line[titled.end() :]))
    # A heading of which no word is one of an examination.
    words = set(re.findall(r"[a-z]+", name.casefold())).difference(_PLAIN_WORDS)
    return bool(_EXAM.other.search(name)) or (is_alone and not any(map(_EXAM.part.fullmatch, words)))


def _is_heading_within(name: str) -> bool:
    """Whether a heading belongs to a physical examination: it is a vital sign, a manoeuvre, a system or part of the
    body. One with a number or blank (``__``) is a finding, and belongs to it too, unless it names another section."""
    words = re.findall(r"[a-z]+", _EXAM.cranial.sub("", name).casefold())  # without the numbers of cranial nerves
    is_item = _EXAM.vital.match(name) or _EXAM.manoeuvre.fullmatch(name) or _kind_of(name) is not None
    is_finding = re.search(r"\d|__", name) and not _EXAM.other.search(name)  # "Reflexes 2+", but not "Labs 2"
    is_of_exam = _is_title(name, "") or _EXAM.of_exam.search(name) or all(map(_EXAM.part.fullmatch, words))
    return bool(is_item or is_finding or is_of_exam)


def outline(text: str) -> str:
    """Return the headings of a note, at most 40, for messages. A word that no known heading has may be a patient's, so
    it is replaced by its shape: ``AAAAA hospital course``."""
    lines = plain_text(text).split("\n")
    names = [line.partition(":")[0].strip() for line in lines if ":" in line or _stands_out(line)]
    headings = " / ".join([name for name in names if 0 < len(name.split()) <= 6][:40])
    return _NOTE.word.sub(lambda word: word[0] if word[0].casefold() in _HEADING_WORDS else shape(word[0]), headings)


def physical_results(text: str) -> dict[str, str]:
    """Read a physical examination with lines ``NAME: findings`` as results by key, ``NAME (Physical Examination)``.

    A line without a heading continues the one before, all vital signs have one key, and text before any heading is the
    general appearance. An examination at discharge and everything after it is left out. So is a line whose heading is
    the name of a known examination of another kind, such as a laboratory test, or has a kind of imaging in it.
    """
    results: dict[str, str] = {}
    key: str | None = None  # of the line before; empty for a line that is left out
    for line in _one_system_a_line(_EXAM.at_discharge.split(text, maxsplit=1)[0]).splitlines():
        headed = _EXAM.headed.match(line)
        name, findings = (headed[1].strip(), headed[2]) if headed else ("", line)
        if _is_title(name, findings):  # what follows a title ("Exam on admission:") has no heading of its own
            key, name, line = None, "", findings if name else ""
        if _EXAM.imaged.search(name):  # "CT abd"
            key = ""
        elif name and _EXAM.vital.match(name):
            # "Vitals" (or Chinese 生命体征) only repeats the key; other headings, such as "T" in "T: 36.6", are kept.
            key, findings = _VITAL_SIGNS, findings if name[0] in "Vv生" else line
        elif not name or len(name.split()) > 4 or _EXAM.cranial.fullmatch(name):
            key, findings = _key_without_heading(line, key), line
        else:
            key = physical_key(name[0].upper() + name[1:]) if _kind_of(name) in (None, "physical") else ""
        if key and says_something(findings) and not _EXAM.not_done.fullmatch(findings):
            add_text(results, key, one_line(findings).lstrip("-* "))
    return results


def _kind_of(name: str) -> str | None:
    """Return the kind of the known examination with this name (``physical``, ...); None for an unknown name."""
    term = examinations().find(name)
    return term.kind if term else None


def _is_title(name: str, rest: str) -> bool:
    """Whether a line is the title of a whole examination, not the name of a system: "ADMISSION PHYSICAL EXAM", "Exam:
    ...". ``name`` is the heading of the line, empty without one, ``rest`` the text after it."""
    if not name:
        return says_something(rest) and _EXAM.title_alone.fullmatch(rest) is not None
    if _EXAM.title_alone.fullmatch(name):
        return True
    # Several words, such as "Exam on admission", and nothing after them.
    is_alone = len(name.split()) > 1 and not rest.strip()
    return is_alone and _EXAM.title.search(name) is not None and _kind_of(name) is None


def _key_without_heading(line: str, current: str | None) -> str:
    """Return the key of a line without a heading; ``current`` is the key of the line before, None without one. The
    first of these that applies:

    - that of the system of the body with which the line begins;
    - ``current``, unless it is the vital signs;
    - the vital signs, if the line goes on with them, or has numbers like theirs;
    - the general appearance.
    """
    if system := _read_system_patterns().leading.match(line):
        return physical_key(system[1])
    if current not in (None, _VITAL_SIGNS):
        return current
    # A line goes on with vital signs if it has numbers, or begins within a sentence.
    is_continued = current and (re.search(r"\d", line) or not line.strip()[:1].isupper())
    tells_vital_signs = _EXAM.vital_numbers.search(line) or _EXAM.stable.search(line)
    return _VITAL_SIGNS if is_continued or tells_vital_signs else _GENERAL


def _one_system_a_line(text: str) -> str:
    """Break the paragraphs of a physical examination into lines with one system of the body each: before each name of a
    system; a name alone on its line becomes a heading. A text with vital signs and without headings is also broken
    after each sentence."""
    systems = _read_system_patterns()
    text = systems.inline.sub(r"\n\1", systems.alone.sub(r"\1:", text))
    if _EXAM.vital_numbers.search(text) and not systems.heading.search(text):
        text = systems.sentence.sub("\n", text)
    return text


@functools.cache
def _read_system_patterns() -> Patterns:
    """Return the expressions ``systems`` of ``phrases.yaml``. They find the names of systems of the body, the
    known items of the physical examination: within a line (``inline``), as its heading (``heading``) and at its
    beginning (``leading``); and the ends of sentences (``sentence``)."""
    terms = [term for term in examinations().terms.values() if term.kind == "physical" and term.name != "Vital Signs"]
    spellings = sorted((name for term in terms for name in (term.name, *term.aliases)), key=len, reverse=True)
    return patterns("systems", systems="|".join(map(re.escape, spellings)))
