"""Results that the present illness tells: what the emergency department found, and sentences about examinations."""

import re

from .phrases import phrases
from .sentences import clause_start, spans


def _pattern(words: str) -> re.Pattern[str]:
    """Words in any case; a space stands for any white space, so that a line may be wrapped within."""
    return re.compile(words.replace(" ", r"\s+"), re.IGNORECASE)


_SAID = phrases("told_results")
_ED = r"(?:ED|ER|EW|emergency (?:department|dept|room|ward))"
# What stands after a heading is found in this visit; "in the ED" may have been another one.
_EMERGENCY = _pattern(
    rf"(?P<line>(?:^|(?<=[\n.;]))\s*(?:in )?(?:the |our )?{_ED}\s*[:-])|"
    rf"\b(?=\w)(?:(?P<heading>(?:in )?(?:the |our )?{_ED} (?:course|vitals?|vital signs|vs|labs?|work-?up|findings)\b|"
    r"(?:initial|triage|presenting|arrival) (?:vs|vitals?|vital signs)\b|"
    r"(?:vs|vitals?|vital signs)(?: (?:were|was|taken))? (?:up)?(?:on|at|in) (?:the |our )?"
    rf"(?:arrival|presentation|triage|{_ED})\b)|"
    r"(?:in|at|(?:arrival|on transfer) (?:to|in|at)) (?:the |our |an? |this )?(?:OSH |outside (?:hospital )?|local )?"
    rf"(?:{_ED}|triage)\b"
    r"(?!,? (?:(?:s?he|the patient|pt) )?(?:was )?present(?:ing|ed|s)\b)|"
    r"(?:up)?on arrival (?:to|on) the (?:floor|unit|ward|[MSCN]ICU|ICU)\b)"
)
_ELSEWHEN = _pattern(rf"\b(?:{_SAID['elsewhen']})\b")
_VISITED = _pattern(r"\b(?:seen|evaluated|treated|went|visit\w*|stay\w*|discharged|was|been)\b")
_WORKS = _pattern(
    r"\b(?:is|was|as) an? (?:\w+ ){0,2}(?:nurse|physician|doctor|technician|clerk|volunteer)\b|"
    r"\b(?:work(?:s|ed|ing)?|employed|volunteer\w*)\b"
)
_LOOSE_END = re.compile(r"(?:[\s,;:-]|\b(?:and|then|but|where|when)\b)+$", re.IGNORECASE)

_MODALITY = rf"(?:(?i:\b(?:{_SAID['modalities']})\b)|\b(?:{_SAID['modalities_in_capitals']})\b)"
_ANALYTE = rf"(?:(?i:\b(?:{_SAID['analytes']})\b)|\b(?:Na|K|Cr|Hb)\b)"
_DOSE = r"\s*(?:mg|mcg|meq|tabs?|units?|g|years?|days?|weeks?)\b(?!/)"
# Asked only where a word begins, and what is examined once for all that may follow.
_RESULT = re.compile(
    r"\b(?=\w)(?:"
    rf"{_MODALITY}(?:[^.;]{{0,50}}?\b(?i:{_SAID['showed']})(?!\w)|[^.;,]{{0,25}}?\b(?i:{_SAID['finding']})(?!\w)|"
    r"[^.;,:]{0,20}(?::|\s[-–=]+\s))|"
    rf"{_ANALYTE}(?:[^.;,\d]{{0,20}}\d[\d.,]*(?!\d)(?!(?i:{_DOSE}))|"
    r"[^.;,]{0,20}?\b(?i:elevated|low|high|normal|positive|negative|rising|wnl)\b)|"
    rf"(?i:elevated|low|high|rising|positive|negative|abnormal|normal)\s+(?:\w+\s+)?{_ANALYTE}|"
    r"(?i:found|seen|noted|visible|evident|shown|positive|negative|elevated|abnormal)\b[^.;]{0,40}\b(?:on|by)\s+"
    rf"(?:\w+\s+){{0,3}}?{_MODALITY})|"
    r"(?:CT|MRI|B超|超声|X线|血常规|心电图|胃镜|肠镜|造影)[^。]{0,20}(?:示|提示|显示|见)"
)


def before_emergency(text: str) -> str | None:
    """The present illness up to where it turns to what the emergency department of this visit found; None where it
    does not."""
    for sentence, end in spans(text):
        for found in _EMERGENCY.finditer(text, sentence, end):
            start = clause_start(text, sentence, found.start())
            if not _another_visit(text[sentence : found.start()], text[start : found.start()], text[found.end() : end]):
                return _LOOSE_END.sub("", text[: found.start() if found["heading"] or found["line"] else start])
    return None


def _another_visit(sentence: str, clause: str, after: str) -> bool:
    """Whether "in the ED" tells of an earlier visit, one elsewhere, or of a place of work; the arguments are the words
    of the sentence and of its clause up to there, and those that follow."""
    if _WORKS.search(clause):
        return True
    opening = sentence.partition(",")[0]
    when = clause + " " + re.split(r"[,;]| and ", after)[0]
    return bool(_VISITED.search(clause) and (_ELSEWHEN.search(when) or _ELSEWHEN.search(opening)))


def tells_result(sentence: str) -> bool:
    """Whether a sentence says what an examination showed."""
    return _RESULT.search(sentence) is not None
