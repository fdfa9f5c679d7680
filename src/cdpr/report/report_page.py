"""``report.html``: all results on one page that needs no other file, with the main answer on top.

Its tables have the same cells as their CSV, Markdown and LaTeX files; figures are shown as they were drawn. Missing
files are named, with the command that makes them. The same results give the same bytes.
"""

import base64
import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import escape
from ..evaluation.metrics import Metric
from ..files import write_text
from ..job import Job, PageEntry
from ..settings import Settings
from . import layout, methods, templates
from .comparisons import ACCURACY, AEC, UTILITY, outcome_of
from .data_card import render_card
from .effort import spent_part
from .ledger.verdict import COUNTED, NOT_RUN, read_ledger
from .methods import DATASETS, IN_DOMAIN, OURS, Method, main_methods, open_datasets, synthetic_origin, tier_mark
from .page_runs import Artifact, Links, Records, anchor, shared_runs
from .results import Results
from .sample_case import CREDENTIALED
from .table import Row, Table, interval, number

# The methods with which ours is compared on top of the page; and the data sets on which they are compared, with their
# labels (``average`` is the average over data sets).
RIVALS = ("grpo", "utility_grpo", "warm_start")
PLACES = {IN_DOMAIN: "In-domain", "average": "Average of the data sets"}


class ShownMetric(NamedTuple):
    """A metric of the answer on top of the page: its name in a sentence, its unit, and the words for a difference that
    is in favour of CDPR (``better``), against it (``worse``), or neither (``open``)."""

    metric: Metric
    noun: str
    unit: str
    better: str
    worse: str
    open: str

    def difference(self, row: Row) -> str:
        """Return the metric's difference in a row of differences (:meth:`Results.change`) as text, with its interval:
        ``+30.00 [21.00, 39.00]``."""
        name, factor = self.metric.name, self.metric.factor
        mean, low, high = (factor * row[f"{name}{end}"] for end in ("", "_low", "_high"))
        return interval(mean, low, high, self.metric.decimals, signed=True)

    def words(self, row: Row) -> str:
        """Return ``better``, ``worse`` or ``open``, the words for the metric's difference in a row of differences."""
        return {"better": self.better, "worse": self.worse, "": self.open}[outcome_of(row, self.metric)]

    def count_same_sign(self, row: Row) -> int:
        """Return how many seeds have a difference with the sign of the mean difference, in a row of differences."""
        return sum(value * row[self.metric.name] > 0 for value in row[f"{self.metric.name}_by_seed"])


# The utility, which is the objective, decides the answer.
SHOWN = (
    ShownMetric(UTILITY, "utility", "", "Yes", "No", "Open"),
    ShownMetric(ACCURACY, "accuracy", " points", "more accurate", "less accurate", "accuracy is open"),
    ShownMetric(AEC, "cost per case", " USD", "cheaper", "costlier", "cost is open"),
)


@dataclass
class Chapter:
    """A chapter of the page, or a data card.

    - ``name``: its anchor; ``title``: its heading; ``says``: a text below the heading.
    - ``folded``: whether it is closed until a click.
    - ``pictures``: its figures, the fields of each (:func:`_embed_picture`).
    - ``parts``: its tables with their headings; all but the first are folded. ``artifact``: how the tables were made;
      ``reason``: why there are no tables. ``html``: the data card.
    """

    name: str
    title: str
    says: str = ""
    folded: bool = False
    pictures: list[dict[str, Any]] = field(default_factory=list)
    artifact: Artifact | None = None
    parts: Sequence[tuple[str, Table]] = ()
    reason: str = ""
    html: str = ""


def write_report(settings: Settings, job: Job) -> None:
    """Stage ``write_report``: write the page as ``html``. Missing files are named on it.

    Raises ProvenanceError where results do not belong together (another tier, utility or set of cases) or a JSON file
    cannot be read, and EvaluationError for a broken evaluation. Nothing is written then.
    """
    folder = job.inputs["results"]
    results = Results(settings, folder, main_methods(settings))
    records = Records(settings, folder)
    sources = records.sources()  # the evaluations behind the numbers, by method and then by label of the data set
    # The answers in words, and the table below them.
    answers, head = headline(results, results.decodings[0])
    # The first answer is in-domain, against the first rival.
    job.tags["says"] = f"{answers[0].place}: {answers[0].question} {answers[0].short}."
    page = {
        "mark": tier_mark(settings),
        "banner": banner(settings),
        "decoding": results.decodings[0],
        "seeds": settings.seeds,
        "answers": answers,
        "head": head,
        "links": Links(made.anchor for datasets in sources.values() for runs in datasets.values() for made in runs),
        "notices": methods.notices(settings),
        "chapters": make_chapters(settings, job.page, records),
        "claims": (read_ledger(settings, folder / "claims.json"), records.artifact("claims.json")),
        "cards": [_read_card(name, label, records) for name, label in (DATASETS | open_datasets(settings)).items()],
        "sources": sources,
        "shared": shared_runs(settings),
    }
    environment = escape.environment(templates, autoescape=True, finalize=escape.html)
    # Functions that the template applies to values: {{ text | unbroken }}.
    environment.filters |= {"unbroken": _join_intervals, "slug": _style_class, "anchor": anchor}
    write_text(job.out["html"], environment.get_template("report.html").render(page))


def _style_class(verdict: str) -> str:
    """Return the CSS class of a verdict on a claim of the paper. An unknown verdict has the class of `not run`."""
    return (verdict if verdict in COUNTED else NOT_RUN).replace(" ", "-")


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


def make_chapters(settings: Settings, entries: Sequence[PageEntry], records: Records) -> list[Chapter]:
    """Return the chapters of the page with their figures and tables, in the order of their first entry. All but the
    first two are folded."""
    chapters: dict[str, Chapter] = {}
    for entry in entries:
        name = re.sub(r"\W+", "_", entry.chapter.lower()).strip("_")
        chapter = chapters.setdefault(name, Chapter(name, entry.chapter, folded=len(chapters) > 1))
        if not entry.module:  # a figure
            chapter.pictures.append(_embed_picture(records, entry))
            continue
        # A table of the page is made again from the results, with links; but only if the workflow has written its file.
        chapter.says, chapter.artifact = entry.text, records.artifact(entry.file)
        if entry.file == "tables/sample_case.md" and settings.data.source(IN_DOMAIN).credentialed:
            chapter.artifact, chapter.reason = None, CREDENTIALED
        elif not (records.results / entry.file).exists():
            chapter.reason = f"missing: {entry.file}"
        else:
            chapter.parts = importlib.import_module(entry.module).sheet(settings, records.results).parts
            if entry.file == "tables/effort.md":  # the file leaves out what was paid so far, which is no result
                chapter.parts = [*spent_part(settings), *chapter.parts]
    return list(chapters.values())


def _embed_picture(records: Records, entry: PageEntry) -> dict[str, Any]:
    """Read a PNG image into the page. Returns the fields that the template shows: the image as a ``data:`` address, how
    it was made, and the ``reason`` why there is no image (empty where there is one)."""
    path = records.results / entry.file
    content = path.read_bytes() if path.exists() else b""
    problem = ""
    if not content.startswith(b"\x89PNG"):
        problem = "no PNG image" if content else "missing"
    data = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return {"name": entry.file, "alt": entry.text, "apart": entry.apart, "artifact": records.artifact(entry.file),
            "data": data, "reason": f"{problem}: {entry.file}" if problem else ""}  # fmt: skip


def _read_card(dataset: str, label: str, records: Records) -> Chapter:
    """Return the chapter with the data card of a data set, read from its JSON file; with the reason where it is
    missing."""
    target = f"cards/{dataset}.json"
    card, path = Chapter(dataset, label, artifact=records.artifact(target)), records.results / target
    if path.exists():
        card.html = render_card(json.loads(path.read_text(encoding="utf-8")), "form.html")
    else:
        card.reason = f"missing: {target}"
    return card


# The answer on top


class Answer(NamedTuple):
    """Whether our method is better than one rival, on the data named by ``place``: ``short`` is the answer to the
    ``question``, and ``sentence`` gives the numbers."""

    place: str
    question: str
    short: str
    sentence: str


def headline(results: Results, decoding: str) -> tuple[list[Answer], Table]:
    """Answer whether CDPR's utility is higher than that of each of :data:`RIVALS`, in-domain and on average over data
    sets.

    Returns the answers, and a table that has for each of :data:`PLACES` the results of all methods, then CDPR minus
    each rival.
    """
    ours = results.method(OURS)
    rivals = [method for name in RIVALS for method in results.methods if method.name == name]
    answers, rows = [], []
    for place, label in PLACES.items():
        for method in (ours, *rivals):
            row = results.summary(method, place, decoding) | {"heading": label}
            rows.append(row if "reason" in row else _add_notes(results, row))
        for rival in rivals:
            row = results.change(ours, rival, place, decoding)
            answers.append(_answer(results, label, rival, row))
            row |= {"label": f"{row['label']} − {row['second']}", "heading": f"{label}: ours minus theirs"}
            rows.append(row if "reason" in row else _add_notes(results, row))
    return answers, layout.table(results.settings, "report_page.answer", rows)[1]  # [1]: without a heading


def _answer(results: Results, place: str, rival: Method, row: Row) -> Answer:
    """Say in words whether our method's utility is higher than that of ``rival`` on the data that ``place`` names.
    ``row`` has the differences, ours minus the rival's. If it has instead the reason why there are none, the answer is
    ``Not known``."""
    than = rival.label
    if rival.name == "warm_start":
        than = f"the policy it started from ({rival.label[0].lower()}{rival.label[1:]})"
    question = f"Is the utility of {row['label']} higher than that of {than}?"
    if "reason" in row:
        return Answer(place, question, "Not known", f"{row['reason']}.")
    differences = [f"{shown.noun} {shown.difference(row)}{shown.unit}" for shown in SHOWN]
    sentence = f"Ours minus theirs: {'; '.join(differences)}."
    seeds = len(row["accuracy_by_seed"])
    if seeds > 1:
        same_sign = [shown.count_same_sign(row) for shown in SHOWN]
        sentence += " Seeds with the same sign: {}, {} and {} of {}.".format(*same_sign, seeds)
    if diverged := "; ".join(results.divergences(runs_of(row))):
        sentence += f" {diverged}: evaluated with the weights before."
    if row["void"]:
        return Answer(place, question, f"Open: {row['void']}", sentence)
    utility, *others = SHOWN  # the utility decides the answer; the others are added in words
    words = ", ".join(shown.words(row) for shown in others)
    return Answer(place, question, f"{utility.words(row)}, by {utility.difference(row)}; {words}", sentence)


def _add_notes(results: Results, row: Row) -> Row:
    """Return a measured row, of means or of differences, with what the page adds to it. Its cells get notes below their
    values (``<column>_note``): the label the number of seeds, with the runs that diverged; a mean its deviation between
    seeds; a difference its values by seed. Differences also get signs, and marks where they are clear."""
    is_difference = "second" in row  # only a row of differences has the label of a second method
    by_seed = "by seed" if is_difference else "seed SD"
    seeds = len(row["accuracy_by_seed"])
    count = f"{seeds} seeds" if seeds > 1 else "1 seed"
    notes = {"label_note": "; ".join([count, *results.divergences(runs_of(row))])}
    for shown in SHOWN:
        metric, name = shown.metric, shown.metric.name
        if seeds > 1:
            values = row[f"{name}_by_seed"] if is_difference else [row[f"{name}_seed_sd"]]
            texts = [number(value * metric.factor, metric.decimals, is_difference) for value in values]
            notes[f"{name}_note"] = f"{by_seed} {', '.join(texts)}"
        if is_difference:
            notes |= {f"{name}_text": shown.difference(row), f"{name}_mark": outcome_of(row, metric)}
    return row | notes


def runs_of(row: Row) -> list[str]:
    """Return the names of the runs behind a row, each once."""
    return list(dict.fromkeys(run for run, _ in row["runs"]))
