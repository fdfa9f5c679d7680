"""``report.html``: all results on one page that needs no other file, with the main answer on top.

Its tables have the same cells as their CSV, Markdown and LaTeX files; figures are shown as they were drawn. Missing
files are named, with the command that makes them. The same results give the same bytes.
"""

import base64
import itertools
import json
import pkgutil
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from .. import escape
from ..evaluation.metrics import ACCURACY, AEC, UTILITY
from ..files import write_text
from ..job import Job, PageEntry
from ..records import KEY_TAG, RunRecord
from ..settings import Settings
from . import methods, templates
from .data_card import FEWEST_PATIENTS
from .documents import render
from .ledger.page import read_ledger
from .methods import DATASETS, IN_DOMAIN, OURS, Method, main_methods, open_datasets, synthetic_origin, tier_mark
from .provenance import check_tier
from .results import Results, difference_text
from .table import Row, Sheet, Table, declarations

# The methods with which ours is compared on top of the page; and the data sets on which they are compared, with their
# labels (``average`` is the average over data sets).
RIVALS = ("grpo", "utility_grpo", "warm_start")
PLACES = {IN_DOMAIN: "In-domain", "average": "Average of the data sets"}
# The metrics of the answer. The utility, which is the objective, decides it.
SHOWN = (UTILITY, ACCURACY, AEC)


def write_report(settings: Settings, job: Job) -> None:
    """Stage ``write_report``: write the page as ``html``. Missing files are named on it.

    Raises ProvenanceError where results do not belong together (another tier, utility or set of cases) or a JSON file
    cannot be read, and EvaluationError for a broken evaluation. Nothing is written then.
    """
    folder = job.inputs["results"]
    results, records = Results(settings, folder, main_methods(settings)), Records(settings, folder)
    sources = records.sources()  # the evaluations behind the numbers, by method
    listed = {evaluation["anchor"] for evaluations in sources.values() for evaluation in evaluations}
    # The answers in words, and the tables below them.
    answers, tables = headline(results, results.decodings[0])
    # The first answer is in-domain, against the first rival.
    job.tags["says"] = "{heading}: {question} {short}.".format_map(answers[0])
    chapters: dict[str, list[dict[str, Any]]] = {}
    for entry in job.page:
        chapters.setdefault(entry.chapter, []).append(records.picture_or_tables(entry))
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
        "cards": [records.card(name, label) for name, label in (DATASETS | open_datasets(settings)).items()],
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


# What is shown of the files in a results folder


class Records:
    """The files in a results folder, and how they were made: the keys, digests and commands of their jobs, from the
    ``run.json`` of each. No date, duration, commit or absolute path is among them, so the same results give the same
    page.

    Methods return what the template shows, as dicts. They raise ProvenanceError for a ``run.json`` that cannot be read,
    or that is of another tier (scale of the experiment) than the settings.
    """

    def __init__(self, settings: Settings, results: Path):
        self.settings, self.results = settings, results

    def artifact(self, target: str, record: str = "") -> dict[str, Any]:
        """Return how the file ``target`` was made: the ``command`` that makes it again, and the ``record`` of the job
        that made it (None where there is none). ``record`` is its ``run.json``, by default the one beside it. Both
        paths are relative to the results folder."""
        root = self.settings.paths.results
        # An absolute path would make the page different on every machine.
        folder = "<results>" if Path(root).is_absolute() else shlex.quote(root)
        # Results in another folder than the default are those of a configuration that the user overlaid; the command
        # needs its file, whose name is in no record.
        overlays = "" if root == "results" else "--configfile YOUR_OVERLAYS -- "
        path, run = self.results / record if record else (self.results / target).with_suffix(".run.json"), None
        if path.exists():
            run = RunRecord.read(path)
            check_tier(self.settings, path, run.tier)
        return {"target": target, "command": f"snakemake --cores all {overlays}{folder}/{target}", "record": run}

    def picture_or_tables(self, entry: PageEntry) -> dict[str, Any]:
        """Return a table or figure of the page: its ``entry`` in the list of the page, how it was made (``artifact``),
        and its ``tables`` or its PNG image as a ``data:`` address (``image``); or the ``reason`` why there is
        neither."""
        path = self.results / entry.file
        shown: dict[str, Any] = {"entry": entry, "artifact": self.artifact(entry.file), "reason": ""}
        if not path.exists():
            return shown | {"reason": f"missing: {entry.file}"}
        if entry.sheet:  # a table, which is made again from the results, with links
            return shown | {"tables": pkgutil.resolve_name(entry.sheet)(self.settings, self.results).tables}
        content = path.read_bytes()
        if not content.startswith(b"\x89PNG"):
            return shown | {"reason": f"no PNG image: {entry.file}"}
        return shown | {"image": f"data:image/png;base64,{base64.b64encode(content).decode()}"}

    def card(self, dataset: str, label: str) -> dict[str, Any]:
        """Return the data card of a data set, read from its JSON file; its ``html`` is empty where the file is
        missing."""
        target, html = f"cards/{dataset}.json", ""
        path = self.results / target
        if path.exists():
            card = json.loads(path.read_text(encoding="utf-8"))
            html = render("card.txt", "form.html", card=card, fewest_patients=FEWEST_PATIENTS)
        return {"title": label, "artifact": self.artifact(target), "html": html}

    def sources(self) -> dict[Method, list[dict[str, Any]]]:
        """Return the evaluations that exist, by method of the page. Each has the ``anchor`` under which it is listed,
        the label of its data set (``data``), how it was made (``artifact``) and how its policy was trained
        (``training``; None for an agent that is not trained), and the address at which its cases can be inspected
        (``inspector``; empty where they cannot). A run that several methods share is listed with the first of these
        methods."""
        sources: dict[Method, list[dict[str, Any]]] = {}
        listed: set[str] = set()
        for method in methods.page_methods(self.settings):
            pairs = itertools.product(DATASETS, [run for run in method.runs if run not in listed])
            listed.update(method.runs)
            if entries := [entry for dataset, run in pairs if (entry := self._evaluation(run, dataset))]:
                sources[method] = entries
        return sources

    def _evaluation(self, run: str, dataset: str) -> dict[str, Any] | None:
        """Return the evaluation of a run on a data set; None where there is none, or where the run cannot diagnose its
        cases."""
        evaluation, record = f"evaluations/{run}/{dataset}.jsonl", f"training/{run}/run.json"
        if methods.why_unfit(self.settings, run, dataset) or not (self.results / evaluation).exists():
            return None
        was_trained, is_inspected = (self.results / record).exists(), run in self.settings.inspector.runs
        return {
            "anchor": anchor(run, dataset), "data": DATASETS[dataset], "artifact": self.artifact(evaluation),
            "training": self.artifact(f"training/{run}/metrics.jsonl", record) if was_trained else None,
            "inspector": f"inspector/index.html#{urlencode({'run': run, 'dataset': dataset})}" if is_inspected else "",
        }  # fmt: skip


def anchors(runs: Iterable[str | tuple[str, str]]) -> list[str]:
    """Return the anchors of evaluations. Each of the ``runs`` is a pair (run, data set), or a text: ``cdpr-seed0`` for
    all benchmarks, ``cdpr-seed0/private`` for this data set alone."""
    names = []
    for run in runs:
        name, *only = run.split("/") if isinstance(run, str) else run
        names += [anchor(name, dataset) for dataset in only or DATASETS]
    return names


def anchor(name: str, dataset: str = "") -> str:
    """Return the anchor of a method, or of the evaluation of a run on a data set: ``made-cdpr-seed0-private``."""
    return "-".join(["made", *(re.sub(r"\W", "-", word) for word in (name, dataset) if word)])


# The answer on top


def headline(results: Results, decoding: str) -> tuple[list[Row], list[Table]]:
    """Answer whether CDPR's utility is higher than that of each of :data:`RIVALS`, in-domain and on average over data
    sets.

    Returns the answers, and two tables with rows for each of :data:`PLACES`: the results of all methods, and CDPR minus
    each rival. The answers are the rows of the second table with the texts of :func:`_answer`.
    """
    ours = results.method(OURS)
    rivals = [method for name in RIVALS for method in results.methods if method.name == name]
    levels = [results.summary(method, place, decoding) | {"heading": label}
              for place, label in PLACES.items() for method in (ours, *rivals)]  # fmt: skip
    pairs = list(itertools.product(PLACES, rivals))
    changes = results.compare_pairs([(ours, rival, place) for place, rival in pairs], decoding)
    for (place, rival), change in zip(pairs, changes, strict=True):
        change |= _answer(results, rival, change)
        change |= {"label": f"{change['label']} − {change['second']}", "heading": PLACES[place]}
    sheet = Sheet(results.settings, "report_page", remarks=results.divergence_notes())
    sheet.add("levels", levels)
    sheet.add("changes", changes)
    return changes, sheet.tables


def _answer(results: Results, rival: Method, change: Row) -> dict[str, str]:
    """Say in words whether our method's utility is higher than that of ``rival``: ``short`` is the answer to the
    ``question``, and ``sentence`` gives the numbers. ``change`` has the differences, ours minus the rival's. If it has
    instead the reason why there are none, the answer is ``Not known``."""
    than = rival.label
    if rival.name == "warm_start":
        than = f"the policy it started from ({rival.label[0].lower()}{rival.label[1:]})"
    question = f"Is the utility of {change['label']} higher than that of {than}?"
    if "reason" in change:
        return {"question": question, "short": "Not known", "sentence": f"{change['reason']}."}
    texts = {metric.header: difference_text(change, metric) for metric in SHOWN}
    sentence = f"Ours minus theirs: {'; '.join(map(' '.join, texts.items()))}."
    seeds = len(change["accuracy_by_seed"])
    if seeds > 1:
        same_sign = [sum(value * change[metric.name] > 0 for value in change[f"{metric.name}_by_seed"])
                     for metric in SHOWN]  # fmt: skip
        sentence += " Seeds with the same sign: {}, {} and {} of {}.".format(*same_sign, seeds)
    if diverged := "; ".join(results.divergences(dict.fromkeys(run for run, _ in change["runs"]))):
        sentence += f" {diverged}: evaluated with the weights before."
    words = declarations()["report_page"]["answers"]
    answer, *others = (words[metric.name][change[f"{metric.name}_mark"] or "open"] for metric in SHOWN)
    short = f"{answer}, by {texts[UTILITY.header]}; {', '.join(others)}"
    return {"question": question, "short": f"Open: {change['void']}" if change["void"] else short, "sentence": sentence}
