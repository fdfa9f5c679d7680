"""From a reply in free text to an action; never raises."""

from __future__ import annotations

import functools
import re

from .state import Action, FinalDiagnosis, Invalid, RequestTest

# The paper's grammar puts the verb and its argument on lines of their own; the compact one on one line.
_VERB = re.compile(r"ACTION\s*:\W*(REQUEST[_ ]TEST|FINAL[_ ]DIAGNOSIS)", re.IGNORECASE)
_TEST = re.compile(r"^\W*Test needed\W*:[ \t*]*(.+)$", re.IGNORECASE | re.MULTILINE)
_DIAGNOSIS = re.compile(r"^\W*Diagnosis\W*:[ \t*]*(.+)$", re.IGNORECASE | re.MULTILINE)
_COMPACT = re.compile(r"^\W*(REQUEST_TEST|FINAL_DIAGNOSIS)\s*:\s*(.+)$", re.MULTILINE)
_DECORATION = " \t\r\n*`_\"'[]<>."


@functools.lru_cache(maxsize=1 << 14)
def parse_action(text: str) -> Action:
    """The action of a reply in the full or the compact grammar, or :class:`Invalid`.

    The last verb counts: models restate the format before they use it. Exactly one of the two verbs
    must have its argument, so a reply that hedges between both is invalid.
    """
    verbs = list(_VERB.finditer(text))
    if verbs:
        wants_test = verbs[-1].group(1).upper().startswith("REQUEST")
        found = (_TEST if wants_test else _DIAGNOSIS).search(text, verbs[-1].end())
        return _action(wants_test, found.group(1) if found else "", text)
    compact = _COMPACT.findall(text)
    if len(compact) == 1:
        verb, argument = compact[0]
        return _action(verb == "REQUEST_TEST", argument, text)
    return Invalid(text)


def _action(wants_test: bool, argument: str, raw: str) -> Action:
    argument = argument.strip(_DECORATION)
    if not argument:
        return Invalid(raw)
    return RequestTest(argument) if wants_test else FinalDiagnosis(argument)


def render_action(action: Action, style: str) -> str:
    """The reply that expresses an action in the ``full`` or ``compact`` grammar."""
    match action, style:
        case RequestTest(name), "full":
            return f"ACTION: REQUEST_TEST\nTest needed: {name}"
        case FinalDiagnosis(text), "full":
            return f"ACTION: FINAL_DIAGNOSIS\nDiagnosis: {text}"
        case RequestTest(name), _:
            return f"REQUEST_TEST: {name}"
        case FinalDiagnosis(text), _:
            return f"FINAL_DIAGNOSIS: {text}"
        case _:
            return action.raw
