"""AgentClinic's image challenges of the New England Journal of Medicine (one JSON object a line) -> case records.

The vignette is sorted sentence by sentence: history up to the first sentence about an examination, findings of the
physical examination, and tests under the name that their sentence begins with. The images are not read, and so a test
whose result only the image shows is none. What AgentClinic's language model made of a vignette is not read either: it
tells the patient's actor of findings. Questions that ask for something else than the diagnosis make no case.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..cases import CaseRecord
from ..settings.datasets import Source
from .attrition import Attrition
from .draft import Draft, Import, each_once
from .error import IngestError
from .flat_files import examination_name, filled_lines, only_file_at, parse_json
from .names import add_text, physical_key, spellings, term_of
from .phrases import phrases
from .sentences import spans
from .summary import one_line

_SAID = phrases("agentclinic_nejm")
_ABOUT = re.compile(_SAID["asks_for_diagnosis"], re.IGNORECASE)
_PATIENT = re.compile(_SAID["patient"], re.IGNORECASE)
_PHYSICAL = re.compile(_SAID["physical"], re.IGNORECASE)
_TEST = re.compile(_SAID["test"], re.IGNORECASE)
_TOLD = re.compile(rf"(?:(?:an?|the|subsequent|further|both|initial)\s+)*(.{{3,90}}?)\s+(?:{_SAID['tells']})\s", re.I)
_SHOWN = re.compile(_SAID["only_shown"], re.IGNORECASE)
_ASIDE = re.compile(r"\s*[([][^)\]]*[)\]]")
_AS_PUBLISHED = "use agentclinic_nejm_extended.jsonl as published"
_FINDINGS = physical_key("General Appearance")


def read_agentclinic_nejm(source: Source, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable cases of a ``.jsonl`` file (or the one such file of a folder). Raises IngestError."""
    file = only_file_at(work.path, ".jsonl")
    challenges = (_challenge(file, line, parse_json(file, text, line)) for line, text in filled_lines(file))
    drafts = (_draft(question, diagnosis, work.attrition) for question, diagnosis in challenges)
    yield from work.records(each_once(drafts))


def _challenge(path: Path, line: int, value: Any) -> tuple[str, str]:
    """The question, and the text of its one right answer."""

    def wrong(field: str, problem: str) -> IngestError:
        return IngestError(path, problem, _AS_PUBLISHED, line=line, field=field)

    question, answers = (value.get(name) if isinstance(value, Mapping) else None for name in ("question", "answers"))
    if not isinstance(question, str):
        raise wrong("question", "expected text")
    if not isinstance(answers, list) or not all(isinstance(answer, Mapping) for answer in answers):
        raise wrong("answers", "expected a list of objects")
    right = [answer.get("text") for answer in answers if answer.get("correct") is True]
    if len(right) != 1 or not isinstance(right[0], str):
        raise wrong("answers", f"{len(right)} right answers where one text is expected")
    return question, one_line(right[0]).rstrip(".")


def _draft(question: str, diagnosis: str, attrition: Attrition) -> Draft:
    sentences = [one_line(question[start:end]) for start, end in spans(question)]
    question_text = " ".join(sentence for sentence in sentences if sentence.endswith("?"))
    history, results = _sorted([sentence for sentence in sentences if not sentence.endswith("?")], attrition)
    patient = _PATIENT.search(history)
    number = "nejm-" + hashlib.sha256(json.dumps([question, diagnosis]).encode()).hexdigest()[:10]
    return Draft(
        note_id=number,
        subject_key=number,
        history={"Patient Information": patient[0] if patient else "", "History of Present Illness": history},
        results=results,
        diagnosis=diagnosis,
        rejected=None if _ABOUT.search(question_text) else "question about something else than the diagnosis",
    )


def _sorted(sentences: list[str], attrition: Attrition) -> tuple[str, dict[str, str]]:
    """History and results; a sentence without a name of its own continues the one before."""
    history: list[str] = []
    results: dict[str, str] = {}
    place: str | None = None
    for sentence in sentences:
        match = None if _PATIENT.search(sentence) else _TOLD.match(sentence)
        name = _ASIDE.sub("", match[1]) if match else ""
        if _PHYSICAL.search(name or sentence):
            place = _FINDINGS
        elif _TEST.search(sentence) and _SHOWN.search(sentence):
            attrition.count("tests whose result only the image shows")
            continue
        elif _TEST.search(name):
            term = term_of(name)
            place = term.name if term else examination_name(spellings(name)[1])
        if place is None:
            history.append(sentence)
        else:
            attrition.count("results")
            add_text(results, place, sentence)
    return " ".join(history), results
