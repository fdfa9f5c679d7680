"""What raters fill in: a page of HTML, a spreadsheet, and the files of two survey tools; and the study on one page for
whoever runs it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from ..escape import environment, script
from ..files import write_csv, write_text
from ..job import Job
from ..settings import Settings
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.schema import Study
from . import spreadsheet, templates
from .blinding import Card, Items, Page, blind
from .methods import all_synthetic, left_out
from .records import Content, Finding, Proposal, StudyState, read_lines
from .rubric import dimensions, rubric
from .statistics import LEVEL, TARGET, states_needed

SYNTHETIC = "Synthetic cases: no patient stands behind them."
_CHOICES = "Choices, Calculations, OR Slider Labels"
# The 18 columns of REDCap's data dictionary.
_REDCAP = (
    "Variable / Field Name", "Form Name", "Section Header", "Field Type", "Field Label", _CHOICES, "Field Note",
    "Text Validation Type OR Show Slider Number", "Text Validation Min", "Text Validation Max", "Identifier?",
    "Branching Logic (Show field only if...)", "Required Field?", "Custom Alignment",
    "Question Number (surveys only)", "Matrix Group Name", "Matrix Ranking?", "Field Annotation",
)  # fmt: skip
_MISSED = {"unavailable": "not available", "repeat": "asked again", "invalid": "an order that nobody could read",
           "over_budget": "refused: over the budget"}  # fmt: skip
_SPREADS = (0.5, 0.75, 1.0, 1.25, 1.5)
_MINUTES_PER_CARD = 1.5


def make_forms(settings: Settings, job: Job) -> None:
    """Stage ``make_forms``: blind the proposals, write the forms, what they hold (``cards``), the key (``sealed``) and
    the ``protocol`` of the study."""
    states = read_lines(job.inputs["states"], StudyState)
    proposal_files = sorted(name for name in job.inputs if name.startswith("proposals_"))
    proposals = [proposal for name in proposal_files for proposal in read_lines(job.inputs[name], Proposal)]
    items, key = blind(settings.study, states, proposals, left_out(settings))
    write_text(job.out["cards"], items.model_dump_json() + "\n")
    key.write(job.out["sealed"])
    write_forms(Presentation(states, items), job.out["forms"], SYNTHETIC if all_synthetic(settings) else "")
    write_text(job.out["protocol"], protocol(settings, states, items, key.compared, key.left_out))
    job.metrics["cards"] = len(items.contents)
    print(f"study {items.study}: {len(states)} states, {len(items.contents)} proposals to be rated by "
          f"{', '.join(items.forms)}, {5 * len(items.contents)} ratings each")  # fmt: skip


# How a state and a proposal read in every form


class Presentation:
    """The texts of a study. What became of the patient is in none of them."""

    def __init__(self, states: Sequence[StudyState], items: Items):
        self.states = {state.digest: state for state in states}
        self.items = items

    def patient(self, page: Page) -> str:
        """Presentation and examinations so far, as one text."""
        state = self.states[page.state]
        heads = "Examinations so far:" if state.found else "No examination so far."
        lines = ["Presentation:", state.presentation.strip(), "", heads]
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
        price = f"USD {content.usd:.2f}" if content.usd else "USD 0.00: obtained already, or free of charge"
        return f"Order: {content.action} ({price})"
    return f"Stop and diagnose: {content.action}" if content.kind == "diagnosis" else "(no readable action)"


# The forms


def write_forms(presentation: Presentation, folder: Path, mark: str) -> None:
    """All forms of a study; ``mark`` stands on top of them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "redcap" / "dictionary.csv", _REDCAP, _redcap_fields(), for_people=False)
    # Tasks are imported into one project per rater.
    labels = environment(templates).get_template("label_studio.xml").render(rubric=rubric())
    write_text(folder / "label_studio" / "config.xml", labels)
    for rater in presentation.items.forms:
        rows = presentation.rows(rater)
        _write_html(folder / f"{rater}.html", rater, presentation, mark)
        spreadsheet.write(folder / f"{rater}.xlsx", rows, f"Rater {rater}, study {presentation.items.study}. {mark}")
        records = [{"record_id": row["code"], **{name: row[name] for name in row if name != "code"}} for row in rows]
        write_csv(folder / "redcap" / f"import_{rater}.csv", list(records[0]), records)
        columns = ("study", "rater", "code", "patient", "proposed")
        tasks = [{"data": {name: row[name] for name in columns}} for row in rows]
        text = json.dumps(tasks, indent=1, ensure_ascii=False) + "\n"
        write_text(folder / "label_studio" / f"tasks_{rater}.json", text)


def _write_html(path: Path, rater: str, presentation: Presentation, mark: str) -> None:
    """A page that needs nothing else: it works from a file, without a network."""
    content = {
        "study": presentation.items.study, "rater": rater, "mark": mark,
        "dimensions": [{"name": d.name, "title": d.title, "asks": d.asks, "anchors": d.anchors} for d in rubric()],
        "pages": [_page(page, presentation) for page in presentation.items.forms[rater]],
    }  # fmt: skip
    form = resources.files(templates).joinpath("form.html").read_text(encoding="utf-8")
    write_text(path, form.replace("__DATA__", script(content)))


def _page(page: Page, presentation: Presentation) -> dict:
    state, contents = presentation.states[page.state], presentation.items.contents
    cards = [{"code": card.code, "letter": card.letter, "reasoning": reasoning(contents[card.content]),
              "action": action(contents[card.content])} for card in page.cards]  # fmt: skip
    findings = [{"head": heading(finding), "text": finding.text} for finding in state.found]
    return {"patient": state.presentation, "found": findings, "cards": cards}


def _redcap_fields() -> list[dict[str, str]]:
    """The data dictionary: what is shown cannot be changed, the ratings stand below each other."""
    fields = [("record_id", "text", "Code of the proposal", {})]
    for name, label in (("study", "Study"), ("rater", "Rater"), ("state", "State"), ("proposal", "Proposal")):
        fields.append((name, "text", label, {"Field Annotation": "@READONLY"}))
    for name, label in (("patient", "What is known of the patient"), ("proposed", "What is proposed")):
        fields.append((name, "notes", label, {"Field Annotation": "@READONLY"}))
    choices = " | ".join(f"{value}, {value}" for value in range(1, 6))
    rated = {_CHOICES: choices, "Required Field?": "y", "Matrix Group Name": "rating_matrix"}
    fields += [(dimension.name, "radio", dimension.text, rated) for dimension in rubric()]
    fields.append(("comment", "notes", "Comment (no names, no dates)", {}))
    return [
        {"Variable / Field Name": name, "Form Name": "rating", "Field Type": kind, "Field Label": label, **more}
        for name, kind, label, more in fields
    ]


# The study on one page, before anything is rated: sample, load, and how many states a difference takes


def protocol(
    settings: Settings, states: Sequence[StudyState], items: Items, runs: Sequence[str], left_out: Mapping[str, str]
) -> str:
    """Markdown. It names the runs, so raters must not see it."""
    counts = Counter((state.dataset, state.turn) for state in states)
    return environment(templates).get_template("protocol.md").render(
        items=items, runs=runs, left_out=left_out, source=states[0].source, states=len(states), counts=counts,
        turns=sorted({turn for _, turn in counts}), datasets={name: DATASETS[name].label for name in BENCHMARKS},
        cases={name: len({s.note_id for s in states if s.dataset == name}) for name in BENCHMARKS},
        merged=settings.study.merge_identical, few=len(dimensions()), per_card=_MINUTES_PER_CARD,
        spreads=_SPREADS, needed=states_needed, level=LEVEL, target=TARGET,
        known_seed=not all_synthetic(settings) and settings.study.seed == Study.model_fields["seed"].default,
    )  # fmt: skip
