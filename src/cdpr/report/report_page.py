"""``report.html``: everything on one page that needs nothing else, the answer that a reader wants first on top.

Tables are made of the same typed cells as their CSV, Markdown and LaTeX forms; figures are shown as they were drawn.
Missing files are named, with the command that makes them. The same results give the same bytes.
"""

import base64
import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import escape
from ..evaluation.metrics import Metric
from ..files import write_text
from ..job import Job, PageEntry
from ..settings import Settings
from . import templates
from .comparisons import ACCURACY, AEC, METHOD, UTILITY, interval_columns, outcome_of
from .data_card import card_parts
from .effort import spent_part
from .ledger.verdict import COUNTED, NOT_RUN, read_ledger
from .methods import (
    DATASETS,
    IN_DOMAIN,
    Method,
    is_synthetic,
    main_methods,
    open_datasets,
    page_methods,
    tier_mark,
)
from .page_runs import Artifact, Links, Records
from .results import Results
from .sample_case import CREDENTIALED
from .sources import notices
from .table import Block, Row, Table, interval, number

OURS, RIVALS = "cdpr", ("grpo", "utility_grpo", "warm_start")
PLACES = {IN_DOMAIN: "In-domain", "average": "Average of the data sets"}
# Metric of the head, its header, unit, and words for what the interval of a difference shows. The utility, which is the
# objective, decides the answer.
SHOWN: tuple[tuple[Metric, str, str, dict[str, str]], ...] = (
    (UTILITY, "Utility", "", {"better": "Yes", "worse": "No", "": "Open"}),
    (ACCURACY, "Accuracy (%)", " points",
     {"better": "more accurate", "worse": "less accurate", "": "accuracy is open"}),
    (AEC, "Cost per case (USD)", " USD",
     {"better": "cheaper", "worse": "costlier", "": "cost is open"}),
)  # fmt: skip


@dataclass
class Chapter:
    """A chapter of the page, or a data card: ``says`` is about its table, of which all parts but the first are folded;
    ``folded``: so is the chapter. ``artifact`` is how the table was made, ``reason`` why there is none."""

    name: str
    title: str
    says: str = ""
    folded: bool = False
    pictures: list[dict[str, Any]] = field(default_factory=list)
    artifact: Artifact | None = None
    parts: Sequence[tuple[str, Table | Sequence[Block]]] = ()
    reason: str = ""


def write_report(settings: Settings, job: Job) -> None:
    """Write the page.

    Missing files are named. Raises ProvenanceError for results of another tier, utility or set of cases
    and for JSON that cannot be read, EvaluationError for a broken evaluation; nothing is written then.
    """
    folder = job.inputs["results"]
    methods = page_methods(settings)
    results = Results(settings, folder, main_methods(settings))
    records = Records(settings, folder)
    behind = records.behind(methods)
    answers, head = headline(results, results.decodings[0])
    job.tags["says"] = f"{answers[0].place}: {answers[0].question} {answers[0].short}."
    page = {
        "mark": tier_mark(settings),
        "banner": banner(settings),
        "decoding": results.decodings[0],
        "seeds": settings.seeds,
        "answers": answers,
        "head": head,
        "links": Links(behind),
        "notices": notices(settings),
        "chapters": chapters(settings, job.page, records),
        "claims": (read_ledger(settings, folder / "claims.json"), records.artifact("claims.json")),
        "cards": [_card(name, label, records) for name, label in (DATASETS | open_datasets(settings)).items()],
        "behind": behind,
        "shared": shared_runs(methods),
    }
    write_text(job.out["html"], _environment().get_template("report.html").render(page))


def shared_runs(methods: Sequence[Method]) -> list[tuple[str, str]]:
    """List the variants that are shown with runs of another one, because both have the same training, if with fewer
    seeds."""
    first: dict[str, str] = {}
    owners = [(method.label, first.setdefault(method.runs[0], method.label)) for method in methods]
    return [(label, owner) for label, owner in owners if label != owner]


def banner(settings: Settings) -> tuple[str, str]:
    """Make the banner: where cases and policy come from, and what that means for the numbers."""
    made_up = [label for name, label in DATASETS.items() if is_synthetic(settings, name)]
    tiny = settings.policy.model == "tiny"
    if not made_up and not tiny:
        return f"Tier: {settings.tier}", "The cases are the user's own files."
    if settings.tier == "miniature":
        return "Miniature", "everything in small, for tests: its numbers mean nothing"
    cases = "Synthetic hospital" if len(made_up) == len(DATASETS) else f"Synthetic: {', '.join(made_up)}"
    what = ", ".join([*([cases] if made_up else []), *(["tiny policy"] if tiny else [])])
    return what[0].upper() + what[1:], "shows the method, not the paper's numbers"


def chapters(settings: Settings, entries: Sequence[PageEntry], records: Records) -> list[Chapter]:
    """Make the chapters of the page in the order of their first entry: figures, then the table."""
    filled: dict[str, Chapter] = {}
    for entry in entries:
        name = re.sub(r"\W+", "_", entry.chapter.lower()).strip("_")
        chapter = filled.setdefault(name, Chapter(name, entry.chapter, folded=len(filled) > 1))
        if not entry.module:
            chapter.pictures.append(_picture(records, entry.file, entry.text, entry.apart))
            continue
        chapter.says, chapter.artifact = entry.text, records.artifact(entry.file)
        if entry.file == "tables/sample_case.md" and settings.data.source(IN_DOMAIN).credentialed:
            chapter.artifact, chapter.reason = None, CREDENTIALED
        elif not (records.results / entry.file).exists():
            chapter.reason = f"missing: {entry.file}"
        else:
            chapter.parts = importlib.import_module(entry.module).sheet(settings, records.results).parts
            if entry.file == "tables/effort.md":
                chapter.parts = [*spent_part(settings), *chapter.parts]
    return list(filled.values())


def _card(name: str, label: str, records: Records) -> Chapter:
    file = records.results / (path := f"cards/{name}.json")
    card = Chapter(name, label, artifact=records.artifact(path), reason="" if file.exists() else f"missing: {path}")
    if not card.reason:
        card.parts = card_parts(records.settings, json.loads(file.read_text(encoding="utf-8")))
    return card


def _picture(records: Records, path: str, alt: str, apart: bool = False) -> dict[str, Any]:
    """Embed the PNG at ``path`` below the results as a data address, only its name if ``apart``, or the reason why it
    is missing."""
    file = records.results / path
    content = file.read_bytes() if file.exists() else b""
    reason = "" if content.startswith(b"\x89PNG") else f"{'no PNG image' if content else 'missing'}: {path}"
    data = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return {
        "name": path,
        "alt": alt,
        "artifact": records.artifact(path),
        "data": data,
        "reason": reason,
        "apart": apart,
    }


def _environment() -> Any:
    environment = escape.environment(templates, autoescape=True, finalize=escape.html)
    environment.filters |= {"unbroken": _unbroken, "slug": _slug}
    return environment


def _slug(verdict: str) -> str:
    """Return a verdict as a class of the page's style; one that is not known looks like `not run`."""
    return (verdict if verdict in COUNTED else NOT_RUN).replace(" ", "-")


def _unbroken(text: str) -> str:
    """Keep an interval together where a cell must break: 58.90 / [56.07, 61.83]."""
    return re.sub(r"\[[-+\d.]+, [-+\d.]+\]", lambda match: match[0].replace(", ", ",\u00a0"), text)


# The answer on top


@dataclass(frozen=True)
class Answer:
    """The comparison of ours with one rival at one place, in words."""

    place: str
    question: str
    short: str
    sentence: str


def headline(results: Results, decoding: str) -> tuple[list[Answer], Table]:
    """Answer whether CDPR's utility is higher than that of GRPO, of GRPO for the same objective, and of the policy that
    it started from, in-domain first; and make a table: per place the methods, then ours minus each rival."""
    ours, rivals = results.method(OURS), [m for name in RIVALS for m in results.methods if m.name == name]
    columns = [METHOD, *(replace(column, header=header, signed=False) for column, (_, header, *_) in
                         zip(interval_columns([metric for metric, *_ in SHOWN]), SHOWN, strict=True))]  # fmt: skip
    answers, rows = [], []
    for place, label in PLACES.items():
        changes = [results.change(ours, rival, place, decoding) for rival in rivals]
        answers += [_answer(results, label, rival, row) for rival, row in zip(rivals, changes, strict=True)]
        levels = [results.summary(method, place, decoding) | {"heading": label} for method in (ours, *rivals)]
        changes = [row | {"label": f"{row['label']} − {row['second']}", "heading": f"{label}: ours minus theirs"}
                   for row in changes]  # fmt: skip
        rows += [_noted(results, row) for row in (*levels, *changes)]
    return answers, Table(columns, rows, by="heading")


def _answer(results: Results, place: str, rival: Method, row: Row) -> Answer:
    start = f"the policy it started from ({rival.label[0].lower()}{rival.label[1:]})"
    than = start if rival.name == "warm_start" else rival.label
    question = f"Is the utility of {row['label']} higher than that of {than}?"
    if "reason" in row:
        return Answer(place, question, "Not known", f"{row['reason']}.")
    differences = [
        f"{header.partition(' (')[0].lower()} {_signed(row, metric)}{unit}" for metric, header, unit, _ in SHOWN
    ]
    sentence = f"Ours minus theirs: {'; '.join(differences)}."
    if (seeds := len(row["accuracy_by_seed"])) > 1:
        same = [sum(value * row[metric.name] > 0 for value in row[f"{metric.name}_by_seed"]) for metric, *_ in SHOWN]
        sentence += " Seeds with the same sign: {}, {} and {} of {}.".format(*same, seeds)
    if broken := "; ".join(results.divergences(runs_of(row))):
        sentence += f" {broken}: evaluated with the weights before."
    return Answer(place, question, _short(row), sentence)


def _signed(row: Row, metric: Metric) -> str:
    mean, low, high = (metric.factor * row[f"{metric.name}{end}"] for end in ("", "_low", "_high"))
    return interval(mean, low, high, metric.decimals, signed=True)


def _short(row: Row) -> str:
    """Answer yes, no or open by the utility; then accuracy and cost: ``Yes, by +0.141 [+0.120, +0.160]; less accurate,
    cheaper``."""
    if row["void"]:
        return f"Open: {row['void']}"
    answer, *others = (words[outcome_of(row, metric)] for metric, *_, words in SHOWN)
    return f"{answer}, by {_signed(row, UTILITY)}; {', '.join(others)}"


def _noted(results: Results, row: Row) -> Row:
    """Add what the cells show below their numbers: values or deviation by seed, number of seeds, diverged runs.
    Differences also get signs, and a mark of the side that they outcome_of."""
    if "reason" in row:
        return row
    change, seeds = "second" in row, len(row["accuracy_by_seed"])
    for metric, *_ in SHOWN:
        name = metric.name
        spread = row[f"{name}_by_seed"] if change else [row[f"{name}_seed_sd"] or 0.0]
        values = ", ".join(number(value * metric.factor, metric.decimals, change) for value in spread)
        row = row | {f"{name}_note": f"{'by seed' if change else 'seed SD'} {values}" if seeds > 1 else ""}
        row |= {f"{name}_mark": outcome_of(row, metric), f"{name}_text": _signed(row, metric)} if change else {}
    note = "; ".join([f"{seeds} seed{'s' if seeds > 1 else ''}", *results.divergences(runs_of(row))])
    return row | {"label_note": note}


def runs_of(row: Row) -> list[str]:
    """List the runs behind a row, each once."""
    return list(dict.fromkeys(run for run, _ in row["runs"]))
