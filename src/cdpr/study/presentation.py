"""How a state and a proposal read in every form."""

from collections.abc import Sequence

from .blinding import Card, Content, Items, Page
from .records import Finding, StudyState

_MISSED = {"unavailable": "not available", "repeat": "asked again", "invalid": "an order that nobody could read",
           "over_budget": "refused: over the budget"}  # fmt: skip


class Presentation:
    """The texts of a study. What became of the patient is in none of them."""

    def __init__(self, states: Sequence[StudyState], items: Items):
        self.states = {state.digest: state for state in states}
        self.items = items

    def patient(self, page: Page) -> str:
        """Presentation and examinations so far, as one text."""
        state = self.states[page.state]
        lines = [state.presentation.strip(), "", "Examinations so far:" if state.found else "No examination so far."]
        for n, finding in enumerate(state.found, 1):
            lines += [f"{n}. {heading(finding)}", *([finding.text] if finding.text else [])]
        return "\n".join(lines)

    def proposal(self, card: Card) -> str:
        """Reasoning and action, as one text."""
        content = self.items.contents[card.content]
        return f"Reasoning: {reasoning(content)}\nNext action: {action(content)}"

    def rows(self, rater: str) -> list[dict[str, str | int]]:
        """A rater's form as a table, a proposal a row; ``state`` is the number of the page."""
        return [
            {
                "study": self.items.study,
                "rater": rater,
                "code": card.code,
                "state": number,
                "proposal": card.letter,
                "patient": self.patient(page),
                "proposed": self.proposal(card),
            }
            for number, page in enumerate(self.items.forms[rater], 1)
            for card in page.cards
        ]


def heading(finding: Finding) -> str:
    """An examination, its price and what came of it."""
    name = finding.examination or "Order"
    if finding.kind == "result":
        return f"{name} (USD {finding.usd:.2f})"
    return f"{name}: {_MISSED[finding.kind]}" if finding.examination else _MISSED[finding.kind].capitalize()


def reasoning(content: Content) -> str:
    """The words of a proposal, or what it leans to."""
    if content.reasoning:
        return content.reasoning
    if content.leaning:
        return f"(no words) Working diagnosis: {content.leaning}"
    return "(no words) Working diagnosis: as below" if content.kind == "diagnosis" else "(none was given)"


def action(content: Content) -> str:
    """What is to be done."""
    if content.kind == "request":
        return f"Order: {content.action} (USD {content.usd or 0:.2f})"
    return f"Stop and diagnose: {content.action}" if content.kind == "diagnosis" else "(no readable action)"
