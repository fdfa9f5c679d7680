"""Leak control: finds the texts of a case that give its diagnosis away too early, and removes them.

Leaks are names of the diagnosis in the history and in results, results in the present illness, and the impressions of
reports. The settings ``data.leaks`` say for each whether the case is dropped, the text is removed or masked, or nothing
is done.
"""

import functools
from collections.abc import Iterator

from ..cases import PHYSICAL_SUFFIX, examinations, meaning
from ..cases.patterns import Patterns, compiled
from ..settings.datasets import Leaks
from .attrition import Attrition
from .diagnosis_names import Mention, mask, mentions
from .texts import LONG_CLAUSE, patterns, phrases, says_something, spans_between

_WORDS, _PATTERN = phrases("leaks"), patterns("leaks")
STRICT = Leaks.model_validate(_WORDS["strict"])
Texts = dict[str, str]  # by section of the history, or by examination
# Sections in which the diagnosis means that the patient had it before, a relative has it, or the doctor knows it now.
_PAST = ("Past Medical History", "Personal History")
_FAMILY = "Family History"
_PRESENT = ("Patient Information", "Chief Complaint", "History of Present Illness", "Allergy History")
_ACTIONS = {"drop": "removed", "mask": "masked", "keep": "kept"}  # by the value of a setting: what a report calls it


def control_leaks(
    case: str, diagnosis: str, history: Texts, results: Texts, leaks: Leaks, attrition: Attrition
) -> tuple[Texts, Texts] | None:
    """Remove or mask the leaks of a case as the settings ``leaks`` say, and count them in ``attrition``.

    ``history`` has texts by section, ``results`` texts by examination; ``case`` is the identifier. Returns the new
    history and the new results. Results of which nothing is left are missing in it; a section of which nothing is left
    stays, empty or only with the mark of a masked name. None where a leak drops the case.
    """
    history, results = dict(history), dict(results)
    _cut_results_in_history(case, history, leaks, attrition)
    found = list(_history_leaks(history, diagnosis, leaks))
    # One leak for which the settings say so drops the whole case.
    for section, kind, action, named in found:
        if action == "drop":
            attrition.drop(kind, case, section, named[0].words)
            return None
    to_mask: dict[str, list[Mention]] = {}
    for section, kind, action, named in found:
        attrition.leak(f"{kind} (case kept)", _ACTIONS[action], case, section, named[0].words)
        if action == "mask":
            to_mask.setdefault(section, []).extend(named)
    history |= {section: mask(history[section], named) for section, named in to_mask.items()}
    results = {exam: _control_result(case, exam, text, diagnosis, leaks, attrition) for exam, text in results.items()}
    return history, {exam: text for exam, text in results.items() if says_something(text)}


def _history_leaks(history: Texts, diagnosis: str, leaks: Leaks) -> Iterator[tuple[str, str, str, list[Mention]]]:
    """Find the sections of a history that name the diagnosis, as one of the patient or of a relative. Yields for each
    (section, kind of leak, what the settings say to do: ``drop``, ``mask`` or ``keep``, mentions of the diagnosis)."""
    for section in (*_PAST, _FAMILY, *_PRESENT):
        text = history.get(section, "")
        named = mentions(text, diagnosis, leaks.names == "loose")
        is_family = section == _FAMILY
        of_relatives = [m for m in named if (m.relative or is_family) and not _PATTERN.own.search(text, 0, m.start)]
        of_patient = [mention for mention in named if mention not in of_relatives]
        if of_patient and section in _PAST:
            yield section, "diagnosis established before", leaks.pre_established, of_patient
        elif of_patient:
            yield section, "diagnosis stated in the summary", leaks.diagnosis_in_summary, of_patient
        if of_relatives:
            yield section, "diagnosis of a relative", leaks.family_history, of_relatives


def _cut_results_in_history(case: str, history: Texts, leaks: Leaks, attrition: Attrition) -> None:
    """Remove results of examinations from the present illness, in place, as the settings ``leaks`` say: the text about
    the emergency department of this visit, and sentences that tell a result. Both are counted."""
    section = "History of Present Illness"
    text = history.get(section, "")
    if leaks.results_in_history != "keep" and (before := before_emergency(text)) is not None:
        attrition.leak("emergency department's findings in the history", "removed", case, section)
        text = history[section] = before
    sentences = [text[start:end] for start, end in _sentence_spans(text)]
    others = [sentence for sentence in sentences if not tells_result(sentence)]
    removed = leaks.results_in_history == "all"
    if len(others) < len(sentences):
        attrition.leak("results in the history", "removed" if removed else "kept", case, section)
        history[section] = "\n".join(others) if removed else text


def _control_result(case: str, exam: str, text: str, diagnosis: str, leaks: Leaks, attrition: Attrition) -> str:
    """Return the text of one result after leak control: as the settings ``leaks`` say, without its impression and
    without names of the diagnosis; empty where all of it is removed. What is removed, masked or kept is counted."""
    loose = leaks.names == "loose"
    if leaks.diagnosis_in_results != "keep" and (named := _diagnosis_in_name(exam, diagnosis, loose)):
        attrition.leak("diagnosis named by an examination", "removed", case, exam, named.words)
        return ""
    # The impression is the end of a report.
    if impression := _PATTERN.impression.search(text):
        before = text[: impression.start()]
        if leaks.impression == "drop":
            attrition.leak("impression of a report", "removed", case, exam)
            text = before.rstrip()
        elif leaks.impression == "mask" and (names := mentions(impression[0], diagnosis, loose)):
            attrition.leak("impression of a report", "masked", case, exam, names[0].words)
            text = before + mask(impression[0], names)
    # Names of the diagnosis in the rest.
    if not (names := mentions(text, diagnosis, loose)):
        return text
    action = _ACTIONS[leaks.diagnosis_in_results]
    attrition.leak("diagnosis named by a result", action, case, exam, names[0].words)
    return {"removed": "", "masked": mask(text, names), "kept": text}[action]


def _diagnosis_in_name(exam: str, diagnosis: str, loose: bool) -> Mention | None:
    """Find where the name of an examination states the diagnosis as what was seen ("Biopsy of melanoma"). None where it
    does not, where it is the name of a known examination, and where it asks for the disease ("gout screen", "test for
    gout")."""
    name = exam.removesuffix(PHYSICAL_SUFFIX)
    known = meaning(name)
    if (known.terms and known.whole) or examinations().find(name):  # whole: every word of the name is understood
        return None
    for mention in mentions(name, diagnosis, loose):
        # Unless the name only asks for the disease.
        if not (_PATTERN.test.match(name, mention.end) or _PATTERN.aim.search(name[: mention.start])):
            return mention
    return None


_TOLD = phrases("told_results")
# A space in an expression means any white space: the text may have a line end there.
_VISIT = Patterns({name: text.replace(" ", r"\s+") for name, text in _TOLD["patterns"].items()})


@functools.lru_cache(maxsize=8)  # both checks of a text need them
def _sentence_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return (start, end) of every sentence of a text, without the white space between sentences."""
    breaks = [match.span() for match in _PATTERN.sentence_end.finditer(text)]
    return tuple((start, end) for start, end in spans_between(text, breaks) if text[start:end].strip())


def _clause_start(text: str, sentence_start: int, position: int) -> int:
    """Return where the clause that contains ``position`` begins, in the sentence that begins at ``sentence_start``.
    Returns ``position`` itself where more than 80 characters are between them, which are too many for a clause."""
    clause_ends = [match.end() for match in _PATTERN.clause.finditer(text[sentence_start:position])]
    start = sentence_start + max(clause_ends, default=0)
    return start if position - start <= LONG_CLAUSE else position


def before_emergency(text: str) -> str | None:
    """Return the present illness up to where it turns to what the emergency department of this visit found. None where
    it does not mention the emergency department of this visit."""
    for start, end in _sentence_spans(text):
        for department in _VISIT.emergency.finditer(text, start, end):
            position, clause = department.start(), _clause_start(text, start, department.start())
            if _is_another_visit(text[start:position], text[clause:position], text[department.end() : end]):
                continue
            # A heading ("ED course:") begins a new part, so the text is cut there; other words ("then in the ED")
            # are cut with all of their clause.
            is_heading = department["heading"] or department["line"]
            return _PATTERN.loose_end.sub("", text[: position if is_heading else clause])
    return None


def _is_another_visit(before: str, clause: str, after: str) -> bool:
    """Whether the emergency department that a sentence names is one where the patient works, or one that was visited at
    another time.

    ``before`` are the words from the start of the sentence to the name of the department, ``clause`` those from the
    start of its clause; ``after`` are the words behind the name.
    """
    # The time may be given at the start of the sentence ("Last year, he was seen in the ED") or around the department.
    opening = before.partition(",")[0]
    around = clause + " " + _PATTERN.another_clause.split(after)[0]
    is_at_another_time = _VISIT.another_time.search(around) or _VISIT.another_time.search(opening)
    return bool(_VISIT.works.search(clause) or (_VISIT.visited.search(clause) and is_at_another_time))


def tells_result(sentence: str) -> bool:
    """Whether a sentence says what an examination showed ("CT showed a mass"), not only that there was one."""
    return compiled(_TOLD["result"]).search(sentence) is not None
