"""What raters fill in: a page of HTML, a spreadsheet, and the files of two survey tools."""

import json
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import quoteattr

from ..files import write_csv, write_text
from ..job import Job
from ..settings import Settings
from . import spreadsheet, templates
from .blinding import Page, blind
from .methods import all_synthetic, left_out
from .presentation import Presentation, action, heading, reasoning
from .protocol import protocol
from .records import Proposal, StudyState, read_lines
from .rubric import rubric

SYNTHETIC = "Synthetic cases: no patient stands behind them."
_CHOICES = "Choices, Calculations, OR Slider Labels"
# The 18 columns of REDCap's data dictionary.
_REDCAP = (
    "Variable / Field Name", "Form Name", "Section Header", "Field Type", "Field Label", _CHOICES, "Field Note",
    "Text Validation Type OR Show Slider Number", "Text Validation Min", "Text Validation Max", "Identifier?",
    "Branching Logic (Show field only if...)", "Required Field?", "Custom Alignment",
    "Question Number (surveys only)", "Matrix Group Name", "Matrix Ranking?", "Field Annotation",
)  # fmt: skip


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


def write_forms(presentation: Presentation, folder: Path, mark: str) -> None:
    """All forms of a study; ``mark`` stands on top of them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "redcap" / "dictionary.csv", _REDCAP, _redcap_fields())
    write_text(folder / "label_studio" / "config.xml", _label_studio())
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
    # No text of a case can end the script element that holds it.
    data = json.dumps(content, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    write_text(path, form.replace("__DATA__", data))


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


def _label_studio() -> str:
    """The labelling configuration; tasks are imported into one project per rater."""
    lines = ["<View>", '  <Header value="What is known"/>', '  <Text name="patient" value="$patient"/>',
             '  <Header value="What is proposed"/>', '  <Text name="proposed" value="$proposed"/>']  # fmt: skip
    for dimension in rubric():
        lines.append(f'  <Header value={quoteattr(dimension.text)} size="5"/>')
        lines.append(f'  <Rating name="{dimension.name}" toName="proposed" maxRating="5" required="true"/>')
    lines += ['  <TextArea name="comment" toName="proposed" placeholder="Comment" rows="2"/>', "</View>"]
    return "\n".join(lines) + "\n"
