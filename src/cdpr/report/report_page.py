"""``report.html``: everything on one page that needs nothing else, the answer that a reader wants first on top.

Tables are made of the same typed cells as their CSV, Markdown and LaTeX forms; figures are shown as they were drawn.
What is not there is a labelled hole. The same results give the same bytes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ..files import write_text
from ..job import Job
from ..results.methods import DATASETS, IN_DOMAIN, Method, main_methods, synthetic, tier_mark, trained
from ..results.results import Results, results_folder
from ..results.sources import notices
from ..results.table import Block, Column, Sheet, Table
from ..settings import Settings, project_folder, variants
from . import templates
from .ablations import ablations_sheet
from .card_page import card_parts
from .dynamic_vs_static import dynamic_sheet
from .headline import headline
from .main_table import main_sheet
from .page_claims import read_ledger, slug
from .page_runs import Links, Made, Records
from .sample_case import CREDENTIALED, sample_sheet

# Bytes of all images together; base64 makes them a third larger, and the page stays below 5 MB.
IMAGE_BUDGET = 3_500_000


@dataclass(frozen=True)
class Chapter:
    """A chapter of the page: its figures with what each shows, or a table (its file and what makes it anew) of which
    the first ``opened`` parts are not folded."""

    name: str
    title: str
    figures: Mapping[str, str] = field(default_factory=dict)
    table: str = ""
    sheet: Callable[[Settings, Path], Sheet] | None = None
    says: str = ""
    opened: int = 1


CHAPTERS = (
    Chapter("accuracy_cost", "Accuracy against cost", {
        "accuracy_cost": "Accuracy against average cost per case for every agent, one panel per data set; the line is "
                         "the best accuracy that a reference policy reaches for at most that cost."}),
    Chapter("main_table", "Main table", {}, "main_results", main_sheet,
            "Every agent on every benchmark. Each number leads to the runs that made it.", 3),
    Chapter("ablations", "Ablations", {}, "ablations", ablations_sheet, "CDPR without one of its parts, in-domain.", 2),
    Chapter("dynamic_vs_static", "Dynamic against static diagnosis", {}, "dynamic_vs_static", dynamic_sheet,
            "CDPR, which asks for one examination at a time, against a diagnosis from the whole record.", 2),
    Chapter("efficiency", "Training efficiency", {
        "training_efficiency": "Validation accuracy, utility and cost during training, against wall-clock time and "
                               "against generated tokens; one line per method, a band over its seeds."}),
    Chapter("sensitivity", "Sensitivity", {
        "sensitivity": "In-domain results for each value of the paper's six settings M, K, H, β, η and n, one panel "
                       "each, the default marked.",
        "further_sensitivity": "In-domain results for each value of settings that the paper leaves open, one panel "
                               "each, the default marked."}),
    Chapter("learning_curves", "Learning curves", {
        "learning_curves": "Validation accuracy, examinations, cost, unavailable requests and utility by training "
                           "step; one line per method, a band over its seeds."}),
    Chapter("cost_distribution", "Distribution of costs", {
        "cost_distribution": "How the cost of a work-up is distributed over cases, per data set and agent."}),
    Chapter("sample_case", "A sample case", {}, "sample_case",
            lambda settings, folder: sample_sheet(settings, folder, folder / "cases" / f"{IN_DOMAIN}.jsonl"),
            "One test case, chosen by a digest and not by hand: its examinations, and what each agent did."),
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """A figure, or the hole in its place."""

    name: str
    alt: str
    made: Made
    data: str = ""
    hole: str = ""


@dataclass(frozen=True)
class Shown:
    """A chapter with its contents. ``made`` tells how its table was made; ``hole`` why there is none."""

    name: str
    title: str
    says: str = ""
    pictures: Sequence[Picture] = ()
    made: Made | None = None
    parts: Sequence[tuple[str, Table | Sequence[Block]]] = ()
    opened: int = 1
    hole: str = ""


def write_report(settings: Settings, job: Job) -> None:
    """Write the page.

    Missing files become labelled holes. Raises ProvenanceError for results of another tier, utility or set of cases
    and for JSON that cannot be read, EvaluationError for a broken evaluation; nothing is written then.
    """
    folder = results_folder(settings, job)
    methods = all_methods(settings)
    results = Results(settings, folder, main_methods(settings))
    records = Records(settings, folder)
    behind = records.behind(methods)
    images = Images(folder)
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
        "chapters": [_chapter(settings, chapter, records, images) for chapter in (*CHAPTERS, *further(job.on_page))],
        "claims": (read_ledger(settings, folder / "claims.json"), records.made("claims.json")),
        "cards": [_card(name, label, records, images) for name, label in DATASETS.items()],
        "behind": behind,
        "shared": shared_runs(methods),
    }
    write_text(job.out["html"], _environment().get_template("report.html").render(page))


def further(on_page: Iterable[str]) -> list[Chapter]:
    """Chapters of the figures (stages ``plot_<name>``) that no chapter has: their name and their caption."""
    named = [stage.removeprefix("plot_") for stage in on_page if stage.startswith("plot_")]
    known = {name for chapter in CHAPTERS for name in chapter.figures}
    return [Chapter(name, name.replace("_", " ").capitalize(), {name: caption(name)}) for name in named
            if name not in known]  # fmt: skip


def caption(name: str) -> str:
    """The caption of a figure, ``workflow/report/<name>.rst``, as plain text."""
    text = (project_folder() / "workflow" / "report" / f"{name}.rst").read_text(encoding="utf-8")
    return " ".join(text.replace("``", "").split())


def all_methods(settings: Settings) -> list[Method]:
    """Everyone who may stand on the page, each once: the main table's rows, then the other variants that feed it."""
    named = settings.experiments.variants
    others = [v for v in variants(settings) if v not in named or set(named[v].feeds) - {"comparators"}]
    methods = {m.name: m for m in (*main_methods(settings), *(trained(settings, v) for v in others))}
    return [method for method in methods.values() if method.runs]


def shared_runs(methods: Sequence[Method]) -> list[tuple[str, str]]:
    """Variants that are shown with the runs of another one, because both train the same thing."""
    first: dict[tuple[str, ...], str] = {}
    owners = [(method.label, first.setdefault(method.runs, method.label)) for method in methods]
    return [(label, owner) for label, owner in owners if label != owner]


def banner(settings: Settings) -> tuple[str, str]:
    """What nobody may miss: where cases and policy come from, and what that means."""
    made_up = [label for name, label in DATASETS.items() if synthetic(settings, name)]
    tiny = settings.policy.model == "tiny"
    if not made_up and not tiny:
        return f"Tier: {settings.tier}", "The cases are the user's own files."
    cases = "Synthetic hospital" if len(made_up) == len(DATASETS) else f"Synthetic: {', '.join(made_up)}"
    what = ", ".join([*([cases] if made_up else []), *(["tiny policy"] if tiny else [])])
    return what[0].upper() + what[1:], "shows the method, not the paper's numbers"


class Images:
    """Pictures as data addresses, as long as the page stays small."""

    def __init__(self, folder: Path):
        self.folder, self.left = folder, IMAGE_BUDGET

    def picture(self, records: Records, path: str, alt: str) -> Picture:
        """The PNG at ``path`` below the results, or the hole in its place."""
        file = self.folder / path
        picture = Picture(path, alt, records.made(path))
        if not file.exists():
            return replace(picture, hole=f"missing: {path}")
        content = file.read_bytes()
        if not content.startswith(b"\x89PNG"):
            return replace(picture, hole=f"no PNG image: {path}")
        if len(content) > self.left:
            return replace(picture, hole=f"left out, as the page would become too large: {path}")
        self.left -= len(content)
        return replace(picture, data=f"data:image/png;base64,{base64.b64encode(content).decode()}")


def _chapter(settings: Settings, chapter: Chapter, records: Records, images: Images) -> Shown:
    pictures = [images.picture(records, f"figures/{name}.png", alt) for name, alt in chapter.figures.items()]
    shown = Shown(chapter.name, chapter.title, chapter.says, pictures, opened=chapter.opened)
    if chapter.sheet is None:
        return shown
    path = f"tables/{chapter.table}.md"
    shown = replace(shown, made=records.made(path))
    if chapter.name == "sample_case" and settings.data.source(IN_DOMAIN).credentialed:
        return replace(shown, made=None, hole=CREDENTIALED.reason)
    if not (records.results / path).exists():
        return replace(shown, hole=f"missing: {path}")
    return replace(shown, parts=chapter.sheet(settings, records.results).parts)


def _card(name: str, label: str, records: Records, images: Images) -> Shown:
    path = f"cards/{name}.json"
    shown = Shown(name, label, made=records.made(path))
    file = records.results / path
    if not file.exists():
        return replace(shown, hole=f"missing: {path}")
    picture = images.picture(records, f"cards/{name}.png", f"Distributions over the cases of {label}, as in the card.")
    return replace(shown, pictures=[picture], parts=card_parts(json.loads(file.read_text(encoding="utf-8"))))


def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(templates.__file__).parent
    made = Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                       lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
    made.filters |= {"groups": _groups, "unbroken": _unbroken, "slug": slug}
    return made


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Headers above neighbouring columns, each with its number of columns."""
    return [(group, len(list(members))) for group, members in groupby(columns, key=lambda column: column.group)]


def _unbroken(text: str) -> str:
    """An interval holds together where a cell must break: 58.90 / [56.07, 61.83]."""
    return re.sub(r"\[[-+\d.]+, [-+\d.]+\]", lambda found: found[0].replace(", ", ",\u00a0"), text)
