"""``report.html``: all results on one page that needs no other file, with the main answer on top.

Its tables have the same cells as their CSV, Markdown and LaTeX files; figures are shown as they were drawn. Missing
files are named, with the command that makes them. The same results give the same bytes.
"""

import base64
import importlib
import itertools
import json
import re
from typing import Any, NamedTuple

from .. import escape
from ..files import write_text
from ..job import Job, PageEntry
from ..records import KEY_TAG
from ..settings import Settings
from . import comparisons, layout, methods, templates
from .comparisons import ACCURACY, AEC, UTILITY
from .data_card import FEWEST_PATIENTS
from .documents import render
from .ledger.verdict import read_ledger
from .methods import DATASETS, IN_DOMAIN, OURS, Method, main_methods, open_datasets, synthetic_origin, tier_mark
from .page_runs import Records, anchor, anchors
from .results import Results
from .table import Row, Table

# The methods with which ours is compared on top of the page; and the data sets on which they are compared, with their
# labels (``average`` is the average over data sets).
RIVALS = ("grpo", "utility_grpo", "warm_start")
PLACES = {IN_DOMAIN: "In-domain", "average": "Average of the data sets"}
# The metrics of the answer. The utility, which is the objective, decides it.
SHOWN = (UTILITY, ACCURACY, AEC)
# What is said of a difference that is in favour of CDPR, against it, or neither.
WORDS = {
    UTILITY: {"better": "Yes", "worse": "No", "": "Open"},
    ACCURACY: {"better": "more accurate", "worse": "less accurate", "": "accuracy is open"},
    AEC: {"better": "cheaper", "worse": "costlier", "": "cost is open"},
}


def write_report(settings: Settings, job: Job) -> None:
    """Stage ``write_report``: write the page as ``html``. Missing files are named on it.

    Raises ProvenanceError where results do not belong together (another tier, utility or set of cases) or a JSON file
    cannot be read, and EvaluationError for a broken evaluation. Nothing is written then.
    """
    folder = job.inputs["results"]
    results, records = Results(settings, folder, main_methods(settings)), Records(settings, folder)
    sources = records.sources()  # the evaluations behind the numbers, by method
    listed = {evaluation.anchor for evaluations in sources.values() for evaluation in evaluations}
    # The answers in words, and the tables below them.
    answers, tables = headline(results, results.decodings[0])
    # The first answer is in-domain, against the first rival.
    job.tags["says"] = f"{answers[0].place}: {answers[0].question} {answers[0].short}."
    chapters: dict[str, list[dict[str, Any]]] = {}
    for entry in job.page:
        chapters.setdefault(entry.chapter, []).append(_show(settings, records, entry))
    page = {
        "mark": tier_mark(settings),
        "banner": banner(settings),
        "decoding": results.decodings[0],
        "seeds": settings.seeds,
        "answers": answers,
        "tables": tables,
        "notices": methods.notices(settings),
        "chapters": chapters,
        "claims": (read_ledger(settings, folder / "claims.json"), records.artifact("claims.json")),
        "cards": [_read_card(name, label, records) for name, label in (DATASETS | open_datasets(settings)).items()],
        "sources": sources,
    }
    # An overlay, because a compiled template keeps its functions, and those below are of this page alone.
    environment = escape.environment(templates, autoescape=True, finalize=escape.html).overlay()
    environment.globals["key_tag"] = KEY_TAG
    # Functions that the template applies to values: {{ text | unbroken }}. `anchors` gives those that the page has.
    environment.filters = environment.filters | {
        "unbroken": _join_intervals, "anchor": anchor,
        "anchors": lambda runs: [name for name in anchors(runs) if name in listed],
        "chapter": lambda title: re.sub(r"\W+", "_", title.lower()).strip("_"),
    }  # fmt: skip
    write_text(job.out["html"], environment.get_template("report.html").render(page))


def _join_intervals(text: str) -> str:
    """Put a no-break space into every interval in a text, such as ``[56.07, 61.83]``, so that it stays on one line."""
    return re.sub(r"\[[-+\d.]+, [-+\d.]+\]", lambda match: match[0].replace(", ", ",\u00a0"), text)


def banner(settings: Settings) -> tuple[str, str]:
    """Return the two halves of the banner at the top of the page: where cases and policy come from, and what this means
    for the numbers. A miniature has the word ``Miniature`` in place of the origin. Without synthetic cases and the tiny
    policy, the halves are the tier, and that the cases are the user's own."""
    tiny = "tiny policy" if settings.policy.model == "tiny" else ""
    origin = ", ".join(filter(None, (synthetic_origin(settings), tiny)))
    if not origin:
        return f"Tier: {settings.tier}", "The cases are the user's own files."
    if settings.tier == "miniature":
        return "Miniature", "everything in small, for tests: its numbers mean nothing"
    return origin[0].upper() + origin[1:], "shows the method, not the paper's numbers"


def _show(settings: Settings, records: Records, entry: PageEntry) -> dict[str, Any]:
    """Return a table or figure of the page as the fields that the template shows: its ``entry`` in the list of the
    page, how it was made (``artifact``), and its tables with their headings (``parts``) or its PNG image as a ``data:``
    address (``image``); or the ``reason`` why there is neither."""
    path = records.results / entry.file
    shown: dict[str, Any] = {"entry": entry, "artifact": records.artifact(entry.file), "reason": ""}
    if not path.exists():
        return shown | {"reason": f"missing: {entry.file}"}
    if entry.module:  # a table, which is made again from the results, with links
        return shown | {"parts": importlib.import_module(entry.module).sheet(settings, records.results).parts}
    content = path.read_bytes()
    if not content.startswith(b"\x89PNG"):
        return shown | {"reason": f"no PNG image: {entry.file}"}
    return shown | {"image": f"data:image/png;base64,{base64.b64encode(content).decode()}"}


def _read_card(dataset: str, label: str, records: Records) -> dict[str, Any]:
    """Return the data card of a data set, read from its JSON file, as the fields that the template shows; its ``html``
    is empty where the file is missing."""
    target = f"cards/{dataset}.json"
    path = records.results / target
    html = ""
    if path.exists():
        card = json.loads(path.read_text(encoding="utf-8"))
        html = render("card.txt", "form.html", card=card, fewest_patients=FEWEST_PATIENTS)
    return {"title": label, "artifact": records.artifact(target), "html": html}


# The answer on top


class Answer(NamedTuple):
    """Whether our method is better than one rival, on the data named by ``place``: ``short`` is the answer to the
    ``question``, and ``sentence`` gives the numbers."""

    place: str
    question: str
    short: str
    sentence: str


def headline(results: Results, decoding: str) -> tuple[list[Answer], list[Table]]:
    """Answer whether CDPR's utility is higher than that of each of :data:`RIVALS`, in-domain and on average over data
    sets.

    Returns the answers, and two tables with rows for each of :data:`PLACES`: the results of all methods, and CDPR minus
    each rival.
    """
    ours = results.method(OURS)
    rivals = [method for name in RIVALS for method in results.methods if method.name == name]
    levels = [results.summary(method, place, decoding) | {"heading": label}
              for place, label in PLACES.items() for method in (ours, *rivals)]  # fmt: skip
    pairs = list(itertools.product(PLACES, rivals))
    changes = comparisons.compare_pairs(results, [(ours, rival, place) for place, rival in pairs], decoding)
    answers = []
    for (place, rival), change in zip(pairs, changes, strict=True):
        answers.append(_answer(results, PLACES[place], rival, change))
        change |= {"label": f"{change['label']} − {change['second']}", "heading": PLACES[place]}
    tables = {"levels": levels, "changes": changes}
    return answers, [layout.table(results.settings, f"report_page.{name}", rows, remarks=results.divergence_notes())[1]
                     for name, rows in tables.items()]  # fmt: skip


def _answer(results: Results, place: str, rival: Method, change: Row) -> Answer:
    """Say in words whether our method's utility is higher than that of ``rival`` on the data that ``place`` names.
    ``change`` has the differences, ours minus the rival's. If it has instead the reason why there are none, the answer
    is ``Not known``."""
    than = rival.label
    if rival.name == "warm_start":
        than = f"the policy it started from ({rival.label[0].lower()}{rival.label[1:]})"
    question = f"Is the utility of {change['label']} higher than that of {than}?"
    if "reason" in change:
        return Answer(place, question, "Not known", f"{change['reason']}.")
    texts = {metric.header: comparisons.difference_text(change, metric) for metric in SHOWN}
    sentence = f"Ours minus theirs: {'; '.join(map(' '.join, texts.items()))}."
    seeds = len(change["accuracy_by_seed"])
    if seeds > 1:
        same_sign = [sum(value * change[metric.name] > 0 for value in change[f"{metric.name}_by_seed"])
                     for metric in SHOWN]  # fmt: skip
        sentence += " Seeds with the same sign: {}, {} and {} of {}.".format(*same_sign, seeds)
    if diverged := "; ".join(results.divergences(dict.fromkeys(run for run, _ in change["runs"]))):
        sentence += f" {diverged}: evaluated with the weights before."
    if change["void"]:
        return Answer(place, question, f"Open: {change['void']}", sentence)
    answer, *others = (WORDS[metric][change[f"{metric.name}_mark"]] for metric in SHOWN)
    return Answer(place, question, f"{answer}, by {texts[UTILITY.header]}; {', '.join(others)}", sentence)
