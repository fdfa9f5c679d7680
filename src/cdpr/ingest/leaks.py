"""What gives the diagnosis away before it is due, and what is done about it.

Looked for are the names of the diagnosis in the history and in the results, results told in the present illness, and
the impressions of reports. ``data.leaks`` says whether each costs the case, is taken out, or stays.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from ..cases import diagnoses, leading_disease
from ..settings.data import Leaks
from .funnel import Funnel
from .summary import one_line, says_something

BLANK = "___"
STRICT = Leaks(
    pre_established="mask",
    diagnosis_in_summary="mask",
    results_in_history="all",
    diagnosis_in_results="mask",
    impression="drop",
)
_PAST = ("Past Medical History", "Personal History", "Family History")
_PRESENT = ("Patient Information", "Chief Complaint", "History of Present Illness", "Allergy History")
_QUALIFIER = re.compile(
    r"^(?:acute on chronic|acute|subacute|chronic|recurrent|severe|moderate|mild|left|right|bilateral|new|suspected|"
    r"probable|possible|presumed|likely|early|uncomplicated|complicated|decompensated|symptomatic|exacerbation of|"
    r"status post|s/p)\s+|\s+(?:exacerbation|flare|recurrence|nos|unspecified)$",
    re.IGNORECASE,
)
# What is left of a diagnosis without its qualifiers may be too general to give anything away.
_GENERAL = {
    "bleed", "bleeding", "cancer", "condition", "disease", "disorder", "failure", "fever", "fracture", "infection",
    "injury", "mass", "pain", "syndrome", "trauma", "weakness",
}  # fmt: skip
_CJK = re.compile(r"[\u3400-\u9fff]")
_SENTENCE = re.compile(r"(?<=[.!?。！？;；])\s+|\n+")
_EMERGENCY = re.compile(
    r"\b(?:in|upon arrival (?:to|in|at)|on arrival (?:to|in|at)|at) (?:the )?(?:OSH |outside )?(?:ED|ER|emergency)\b"
    r"(?!.{0,60}\bpresent)|^(?:in (?:the )?)?(?:ED|ER|emergency department|emergency room) course\b|"
    r"^(?:initial|triage|presenting) (?:vs|vitals?|vital signs)\b",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"\b(?:labs?|laborator(?:y|ies)|imaging|x-?rays?|cxr|kub|cta?|mr[ia]|mrcp|ultrasound|rus|us|ekg|ecg|echo(?:cardiogram)?|"
    r"tte|tee|u/?a|urinalysis|lactate|troponins?|wbc|lipase|hct|hgb|creatinine|cultures?|biopsy|endoscopy|egd|"
    r"colonoscopy|cath(?:eterization)?)\b[^.]{0,60}?\b(?:notable|significant|remarkable|consistent|concerning|positive|"
    r"negative|show(?:s|ed|ing)?|reveal(?:s|ed|ing)?|demonstrat(?:es|ed|ing)|suggest(?:s|ed|ive|ing)?|found|was|were|"
    r"with)\b|(?:CT|MRI|B超|超声|X线|血常规|心电图|胃镜|肠镜|造影)[^。]{0,20}(?:示|提示|显示|见)",
    re.IGNORECASE,
)
_IMPRESSION = re.compile(r"\s*\b(?:impression|conclusion)s?\s*:\s*(.*)$|\s*(?:印象|诊断意见|结论)\s*[:：]\s*(.*)$",
                         re.IGNORECASE | re.DOTALL)  # fmt: skip


@functools.lru_cache(maxsize=4096)
def names_of(diagnosis: str) -> tuple[str, ...]:
    """The diagnosis, its leading disease, both without qualifiers, and every alias that the vocabulary has of them."""
    names = dict.fromkeys((one_line(diagnosis), one_line(leading_disease(diagnosis))))
    for name in tuple(names):
        plain = name
        while (shorter := _QUALIFIER.sub("", plain).strip(" ,.-")) != plain:
            plain = shorter
        if plain.casefold() not in _GENERAL:
            names[plain] = None
    for name in tuple(names):
        term = diagnoses().find(name)
        if term is not None:
            names.update(dict.fromkeys((term.name, *term.aliases)))
    return tuple(name for name in names if says_something(name))


@functools.lru_cache(maxsize=4096)
def naming(diagnosis: str) -> re.Pattern[str]:
    """Any name of the diagnosis as whole words, longest first, whatever stands between its words.

    Abbreviations of up to four capitals match as written, so that "pe" in a sentence is not "PE".
    """
    patterns = []
    for name in sorted(names_of(diagnosis), key=lambda n: (-len(n), n)):
        words = r"[\W_]+".join(map(re.escape, re.findall(r"[^\W_]+", name))) + (r"\)?" if name[-1] == ")" else "")
        if _CJK.search(name):
            patterns.append(words)
        elif len(name) <= 4 and name.isupper():
            patterns.append(rf"(?<!\w){words}(?!\w|\s+tender)")  # "CVA tenderness" is no stroke
        else:
            patterns.append(rf"(?i:(?<!\w){words}(?!\w))")
    return re.compile("|".join(patterns) or r"(?!)")


@functools.lru_cache(maxsize=4096)
def _first_words(diagnosis: str) -> tuple[str, ...]:
    """What a text holds that names the diagnosis; looking for it is cheaper than matching names."""
    return tuple({re.findall(r"[^\W_]+", name)[0].casefold() for name in names_of(diagnosis)})


def diagnosis_in(text: str, diagnosis: str) -> str | None:
    """The words with which a text names the diagnosis, or None."""
    plain = text.casefold()
    if not any(word in plain for word in _first_words(diagnosis)):
        return None
    found = naming(diagnosis).search(text)
    return found[0] if found else None


def control(
    case: str,
    diagnosis: str,
    history: Mapping[str, str],
    results: Mapping[str, str],
    leaks: Leaks,
    funnel: Funnel,
) -> tuple[dict[str, str], dict[str, str]] | None:
    """History and results without what ``leaks`` takes out, or None for a case that it costs; all is told to the
    funnel. A section or result of which nothing is left is absent."""
    history, results = dict(history), dict(results)
    _cut_results_in_history(case, history, leaks, funnel)
    for sections, what, action in (
        (_PAST, "diagnosis established before", leaks.pre_established),
        (_PRESENT, "diagnosis stated in the summary", leaks.diagnosis_in_summary),
    ):
        for section in sections:
            name = diagnosis_in(history.get(section, ""), diagnosis)
            if name is None:
                continue
            if action == "drop":
                funnel.drop(what, case, section, name)
                return None
            funnel.leak(f"{what} (case kept)", "masked" if action == "mask" else "kept", case, section, name)
            if action == "mask":
                history[section] = naming(diagnosis).sub(BLANK, history[section])
    cleared = {exam: _cleared_result(case, exam, text, diagnosis, leaks, funnel) for exam, text in results.items()}
    return history, {exam: text for exam, text in cleared.items() if says_something(text)}


def _cut_results_in_history(case: str, history: dict[str, str], leaks: Leaks, funnel: Funnel) -> None:
    """Take results out of the present illness, in place."""
    section = "History of Present Illness"
    sentences = _SENTENCE.split(history.get(section, ""))
    kept = sentences
    if leaks.results_in_history != "keep":
        cut = next((i for i, sentence in enumerate(sentences) if _EMERGENCY.search(sentence)), len(sentences))
        kept = sentences[:cut]
        if cut < len(sentences):
            funnel.leak("emergency department's findings in the history", "removed", case, section)
    told = [sentence for sentence in kept if _RESULT.search(sentence)]
    if told:
        removed = leaks.results_in_history == "all"
        funnel.leak("results in the history", "removed" if removed else "kept", case, section)
        kept = [sentence for sentence in kept if sentence not in told] if removed else kept
    if kept != sentences:
        history[section] = " ".join(kept)


def _cleared_result(case: str, exam: str, text: str, diagnosis: str, leaks: Leaks, funnel: Funnel) -> str:
    found = _IMPRESSION.search(text)
    if found is not None:
        if leaks.impression == "drop":
            funnel.leak("impression of a report", "removed", case, exam)
            text = text[: found.start()].rstrip()
        elif leaks.impression == "mask" and (name := diagnosis_in(found[0], diagnosis)) is not None:
            funnel.leak("impression of a report", "masked", case, exam, name)
            text = text[: found.start()] + naming(diagnosis).sub(BLANK, found[0])
    name = diagnosis_in(text, diagnosis)
    if name is None:
        return text
    action = {"drop": "removed", "mask": "masked", "keep": "kept"}[leaks.diagnosis_in_results]
    funnel.leak("diagnosis named by a result", action, case, exam, name)
    if action == "kept":
        return text
    return "" if action == "removed" else naming(diagnosis).sub(BLANK, text)
