"""``report.html``: everything on one page that needs nothing else, the answer that a reader wants first on top.

Tables are made of the same typed cells as their CSV, Markdown and LaTeX forms; figures are shown as they were drawn.
What is not there is a labelled hole. The same results give the same bytes.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ..files import write_text
from ..job import Job, PageEntry
from ..ledger.record import read_ledger
from ..ledger.verdict import COUNTED, NOT_RUN
from ..results.methods import DATASETS, IN_DOMAIN, Method, main_methods, open_datasets, synthetic, tier_mark, trained
from ..results.results import Results, results_folder
from ..results.sources import notices
from ..results.table import Block, Column, Table
from ..settings import Settings, variants
from . import templates
from .data_card import card_parts
from .effort import spent_table
from .headline import headline
from .page_runs import Artifact, Links, Records
from .sample_case import CREDENTIALED

# Bytes of all images together; base64 makes them a third larger, and the page stays below 5 MB.
IMAGE_BUDGET = 3_500_000


@dataclass(frozen=True)
class Picture:
    """A figure, or the hole in its place."""

    name: str
    alt: str
    artifact: Artifact
    data: str = ""
    hole: str = ""


@dataclass(frozen=True)
class Chapter:
    """A chapter of the page, or a data card: ``says`` is about its table, of which the first ``opened`` parts are not
    folded. ``made`` is how the table was made, ``hole`` why there is none."""

    name: str
    title: str
    says: str = ""
    opened: int = 1
    pictures: Sequence[Picture] = ()
    artifact: Artifact | None = None
    parts: Sequence[tuple[str, Table | Sequence[Block]]] = ()
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
    images = Images(records)
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
        "chapters": chapters(settings, job.page, images),
        "claims": (read_ledger(settings, folder / "claims.json"), records.artifact("claims.json")),
        "cards": [_card(name, label, images) for name, label in (DATASETS | open_datasets(settings)).items()],
        "behind": behind,
        "shared": shared_runs(methods),
    }
    write_text(job.out["html"], _environment().get_template("report.html").render(page))


def all_methods(settings: Settings) -> list[Method]:
    """Everyone who may stand on the page, each once: the main table's rows, then the other variants that feed it."""
    entries = settings.experiments.variants
    others = [v for v in variants(settings) if v not in entries or set(entries[v].feeds) - {"comparators"}]
    methods = {m.name: m for m in (*main_methods(settings), *(trained(settings, v) for v in others))}
    return [method for method in methods.values() if method.runs]


def shared_runs(methods: Sequence[Method]) -> list[tuple[str, str]]:
    """Variants that are shown with runs of another one, because both train the same thing, if with fewer seeds."""
    first: dict[str, str] = {}
    owners = [(method.label, first.setdefault(method.runs[0], method.label)) for method in methods]
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

    def __init__(self, records: Records):
        self.records, self.left = records, IMAGE_BUDGET

    def picture(self, path: str, alt: str) -> Picture:
        """The PNG at ``path`` below the results, or the hole in its place."""
        file = self.records.results / path
        picture = Picture(path, alt, self.records.artifact(path))
        if not file.exists():
            return replace(picture, hole=f"missing: {path}")
        content = file.read_bytes()
        if not content.startswith(b"\x89PNG"):
            return replace(picture, hole=f"no PNG image: {path}")
        if len(content) > self.left:
            return replace(picture, hole=f"left out, as the page would become too large: {path}")
        self.left -= len(content)
        return replace(picture, data=f"data:image/png;base64,{base64.b64encode(content).decode()}")


def chapters(settings: Settings, entries: Sequence[PageEntry], images: Images) -> list[Chapter]:
    """The chapters of the page in the order of their first entry: figures, then the table."""
    filled: dict[str, Chapter] = {}
    for entry in entries:
        name = re.sub(r"\W+", "_", entry.chapter.lower()).strip("_")
        chapter = filled.get(name, Chapter(name, entry.chapter))
        if entry.module:
            filled[name] = _with_table(settings, chapter, entry, images.records)
        else:
            filled[name] = replace(chapter, pictures=[*chapter.pictures, images.picture(entry.file, entry.text)])
    return list(filled.values())


def _with_table(settings: Settings, chapter: Chapter, entry: PageEntry, records: Records) -> Chapter:
    artifact = records.artifact(entry.file)
    chapter = replace(chapter, says=entry.text, opened=entry.opened, artifact=artifact)
    if entry.file == "tables/sample_case.md" and settings.data.source(IN_DOMAIN).credentialed:
        return replace(chapter, artifact=None, hole=CREDENTIALED.reason)
    if not (records.results / entry.file).exists():
        return replace(chapter, hole=f"missing: {entry.file}")
    parts = list(importlib.import_module(entry.module).sheet(settings, records.results).parts)
    if entry.file == "tables/effort.md" and (bill := spent_table(settings.paths.state)):
        parts.insert(0, ("What was spent", bill))
    return replace(chapter, parts=parts)


def _card(name: str, label: str, images: Images) -> Chapter:
    file = images.records.results / (path := f"cards/{name}.json")
    card = Chapter(name, label, artifact=images.records.artifact(path))
    if not file.exists():
        return replace(card, hole=f"missing: {path}")
    picture = images.picture(f"cards/{name}.png", f"Distributions over the cases of {label}, as in the card.")
    return replace(card, pictures=[picture], parts=card_parts(json.loads(file.read_text(encoding="utf-8"))))


def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(templates.__file__).parent
    environment = Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
    environment.filters |= {"groups": _groups, "unbroken": _unbroken, "slug": _slug}
    return environment


def _slug(verdict: str) -> str:
    """A verdict as a class of the page's style; one that is not known looks like `not run`."""
    return (verdict if verdict in COUNTED else NOT_RUN).replace(" ", "-")


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Headers above neighbouring columns, each with its number of columns."""
    return [(group, len(list(members))) for group, members in groupby(columns, key=lambda column: column.group)]


def _unbroken(text: str) -> str:
    """An interval holds together where a cell must break: 58.90 / [56.07, 61.83]."""
    return re.sub(r"\[[-+\d.]+, [-+\d.]+\]", lambda match: match[0].replace(", ", ",\u00a0"), text)
