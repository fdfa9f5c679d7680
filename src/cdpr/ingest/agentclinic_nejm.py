"""AgentClinic's image challenges of the New England Journal of Medicine (one JSON object a line) -> case records.

The vignette is sorted sentence by sentence: history up to the first sentence about an examination, findings of the
physical examination, and tests under the name that their sentence begins with. The images are not read, and so a test
whose result only the image shows is none. What AgentClinic's language model made of a vignette is not read either: it
tells the patient's actor of findings. Questions that ask for something else than the diagnosis make no case.
"""

import re
from collections.abc import Iterator

from ..cases import CaseRecord
from ..settings.datasets import Source
from .attrition import Attrition
from .draft import Draft, Import
from .elements import Element, json_lines, number_of
from .flat_files import examination_name
from .names import add_text, physical_key, term_of, usual_name
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
_FINDINGS = physical_key("General Appearance")


def read_agentclinic_nejm(source: Source, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable cases of a ``.jsonl`` file (or the one such file of a folder). Raises IngestError."""
    yield from work.records(_draft(challenge, work.attrition) for challenge in json_lines(work.path))


def _draft(challenge: Element, attrition: Attrition) -> Draft:
    question = challenge.text("question")
    if not question:
        raise challenge.wrong("question", "expected text")
    right = [answer.text("text") for answer in challenge.many("answers") if answer.value.get("correct") is True]
    if len(right) != 1:
        raise challenge.wrong("answers", f"{len(right)} right answers where one text is expected")
    diagnosis = one_line(right[0]).rstrip(".")
    sentences = [one_line(question[start:end]) for start, end in spans(question)]
    question_text = " ".join(sentence for sentence in sentences if sentence.endswith("?"))
    history, results = _sorted([sentence for sentence in sentences if not sentence.endswith("?")], attrition)
    patient = _PATIENT.search(history)
    return Draft(
        note_id=number_of("nejm", [question, diagnosis]),
        subject_key="",
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
            place = term.name if term else examination_name(usual_name(name))
        if place is None:
            history.append(sentence)
        else:
            attrition.count("results")
            add_text(results, place, sentence)
    return " ".join(history), results
