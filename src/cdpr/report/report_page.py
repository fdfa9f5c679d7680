"""``report.html``: everything on one page that needs nothing else, the answer that a reader wants first on top.

It shows what the other stages wrote (tables as Markdown, figures as PNG, the claims as JSON) and computes only the
small table at its head. What is not there is a labelled hole. The same results give the same bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..files import write_text
from ..results.methods import DATASETS, IN_DOMAIN, Method, main_methods, synthetic, tier_mark, trained
from ..results.results import Results
from ..results.sources import notices
from ..settings import Settings, variants
from . import templates
from .headline import ASKED, headline
from .main_table import PLACES
from .page_claims import Claims, read_claims
from .page_markdown import Grid, Line, Part, parts
from .page_runs import Behind, Indexed, Made, Records, anchor

# Bytes of all images together; base64 makes them a third larger, and the page stays below 5 MB.
IMAGE_BUDGET = 3_500_000
_PLACE_OF = {label: place for place, label in (*PLACES.items(), *DATASETS.items())}


@dataclass(frozen=True)
class Section:
    """A section of the page: which figures and which table it shows, and what they are, in a sentence each."""

    name: str
    title: str
    figures: Mapping[str, str] = field(default_factory=dict)
    table: str = ""
    says: str = ""
    opened: int = 1  # parts of the table that are not folded


SECTIONS = (
    Section("accuracy_cost", "Accuracy against cost", {
        "accuracy_cost": "Accuracy against average cost per case for every agent, one panel per data set; the line is "
                         "the best accuracy that a reference policy reaches for at most that cost."}),
    Section("main_table", "Main table", table="main_results", opened=3,
            says="Every agent on every benchmark. Each number leads to the runs that made it."),
    Section("ablations", "Ablations", table="ablations", opened=2, says="CDPR without one of its parts, in-domain."),
    Section("dynamic_vs_static", "Dynamic against static diagnosis", table="dynamic_vs_static", opened=2,
            says="CDPR, which asks for one examination at a time, against a diagnosis from the whole record."),
    Section("efficiency", "Training efficiency", {
        "training_efficiency": "Validation accuracy, utility and cost during training, against wall-clock time and "
                               "against generated tokens; one line per method, a band over its seeds."}),
    Section("sensitivity", "Sensitivity", {
        "sensitivity": "In-domain results for each value of the paper's six settings M, K, H, β, η and n, one panel "
                       "each, the default marked.",
        "further_sensitivity": "In-domain results for each value of settings that the paper leaves open, one panel "
                               "each, the default marked."}),
    Section("learning_curves", "Learning curves", {
        "learning_curves": "Validation accuracy, examinations, cost, unavailable requests and utility by training "
                           "step; one line per method, a band over its seeds."}),
    Section("cost_distribution", "Distribution of costs", {
        "cost_distribution": "How the cost of a work-up is distributed over cases, per data set and agent."}),
    Section("sample_case", "A sample case", table="sample_case",
            says="One test case, chosen by a digest and not by hand: its examinations, and what each agent did."),
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
    """A section with its contents. ``made`` tells how its table was made; ``hole`` why there is none."""

    name: str
    title: str
    says: str
    pictures: Sequence[Picture] = ()
    made: Made | None = None
    parts: Sequence[Part] = ()
    opened: int = 1
    hole: str = ""


def write_report_page(settings: Settings, results_dir: str | Path, out: str | Path, indexed: Indexed) -> Path:
    """Write the page. ``indexed`` tells where MLflow lists the run of a ``run.json``.

    Missing files become labelled holes. Raises ProvenanceError for results of another tier, utility or set of cases
    and for JSON that cannot be read, EvaluationError for a broken evaluation; nothing is written then.
    """
    folder = Path(results_dir)
    methods = all_methods(settings)
    results = Results(settings, folder, main_methods(settings))
    records = Records(settings, folder, indexed)
    behind = records.behind(methods)
    linker = Linker(methods, behind)
    images = Images(folder)
    decoding = settings.evaluation.decodings[0]
    answers, rows = headline(results, decoding)
    page = {
        "mark": tier_mark(settings),
        "banner": banner(settings),
        "decoding": decoding,
        "seeds": settings.seeds,
        "answers": answers,
        "rows": rows,
        "asked": [header for _, header, *_ in ASKED],
        "linker": linker,
        "notices": notices(settings),
        "sections": [_section(settings, s, records, linker, images) for s in SECTIONS],
        "claims": _claims(settings, records, linker),
        "cards": [_card(name, label, records, images) for name, label in DATASETS.items()],
        "behind": list(behind.values()),
        "shared": shared_runs(settings, methods),
    }
    return write_text(out, _environment().get_template("report.html").render(page))


def all_methods(settings: Settings) -> list[Method]:
    """Everyone who may stand on the page, each once: the main table's rows, then the other variants that feed it."""
    named = settings.experiments.variants
    others = [v for v in variants(settings) if v not in named or set(named[v].feeds) - {"comparators"}]
    methods = {m.name: m for m in (*main_methods(settings), *(trained(settings, v) for v in others))}
    return [method for method in methods.values() if method.runs]


def shared_runs(settings: Settings, methods: Sequence[Method]) -> list[tuple[str, str]]:
    """Variants that are shown with the runs of another one, because both train the same thing."""
    first: dict[tuple[str, ...], str] = {}
    found = []
    for method in methods:
        owner = first.setdefault(method.runs, method.label)
        if owner != method.label:
            found.append((method.label, owner))
    return found


def banner(settings: Settings) -> tuple[str, str]:
    """What nobody may miss: where cases and policy come from, and what that means."""
    made_up = [label for name, label in DATASETS.items() if synthetic(settings, name)]
    tiny = settings.policy.model == "tiny"
    if not made_up and not tiny:
        return f"Tier: {settings.tier}", "The cases are the user's own files."
    cases = "Synthetic hospital" if len(made_up) == len(DATASETS) else f"Synthetic: {', '.join(made_up)}"
    what = ", ".join([*([cases] if made_up else []), *(["tiny policy"] if tiny else [])])
    return what[0].upper() + what[1:], "shows the method, not the paper's numbers"


class Linker:
    """From a number in a table to the runs that made it."""

    def __init__(self, methods: Sequence[Method], behind: Mapping[str, Behind]):
        self.behind = behind
        self._labels = {m.label: m.name for m in reversed(methods) if m.name in behind}
        self._anchors = {block.anchor for entry in behind.values() for block in entry.blocks}
        self._runs = {run: m.name for m in reversed(methods) if m.name in behind for run in m.runs}

    def anchor(self, name: str, place: str = "") -> str:
        """``#made-cdpr-mimic_iv``, of the whole method for averages, empty where nothing is known."""
        exact = anchor(name, place)
        if exact in self._anchors:
            return f"#{exact}"
        return f"#{anchor(name)}" if name in self.behind and place in ("", "average") else ""

    def run(self, run: str) -> str:
        """The anchor of a run such as ``cdpr-seed0``, with or without a data set after a slash."""
        name, _, dataset = run.removeprefix("evaluations/").removesuffix(".jsonl").partition("/")
        return self.anchor(self._runs[name], dataset) if name in self._runs else ""

    def link(self, part: Part) -> Part:
        """Give the numbers of a part's tables their anchors. What is printed in the paper was measured by no run."""
        for grid in (block for block in part.blocks if isinstance(block, Grid)):
            _group(grid)
            if "printed in the paper" not in part.title.lower():
                for line in (line for line in grid.lines if line.kind == "row"):
                    self._link(grid, line, part.title)
        return part

    def _link(self, grid: Grid, line: Line, title: str) -> None:
        texts = {head: cell.text for head, cell in zip(grid.heads, line.cells, strict=True)}
        # "A against B, greedy decoding" by data set, or "Changes against B" with a row for every A
        first, _, rival = (self._labels.get(text, text) for text in title.partition(", ")[0].partition(" against "))
        name = self._labels.get(line.cells[0].text, first if first in self.behind else None)
        row_place = _PLACE_OF.get(texts.get("Data set", ""), "")
        for head, cell in list(zip(grid.heads, line.cells, strict=True))[1:]:
            quoted = head == "N" or any(word in head.lower() for word in ("paper", "printed", "seeds", "data set"))
            if name is None or quoted or not any(character.isdigit() for character in cell.text):
                continue
            column_place = next((place for label, place in _PLACE_OF.items() if head.startswith(f"{label} ")), "")
            place = column_place or row_place or IN_DOMAIN
            cell.href = self.anchor(name, place)
            cell.also = self.anchor(rival, place) if rival != name else ""


class Images:
    """Pictures as data addresses, as long as the page stays small."""

    def __init__(self, folder: Path):
        self.folder, self.left = folder, IMAGE_BUDGET

    def picture(self, records: Records, path: str, alt: str) -> Picture:
        """The PNG at ``path`` below the results, or the hole in its place."""
        file = self.folder / path
        made = records.made(path, file.with_suffix(".run.json"))
        if not file.exists():
            return Picture(path, alt, made, hole=f"missing: {path}")
        content = file.read_bytes()
        if not content.startswith(b"\x89PNG"):
            return Picture(path, alt, made, hole=f"no PNG image: {path}")
        if len(content) > self.left:
            return Picture(path, alt, made, hole=f"left out, as the page would become too large: {path}")
        self.left -= len(content)
        return Picture(path, alt, made, data=f"data:image/png;base64,{base64.b64encode(content).decode()}")


def _section(settings: Settings, section: Section, records: Records, linker: Linker, images: Images) -> Shown:
    pictures = [images.picture(records, f"figures/{name}.png", alt) for name, alt in section.figures.items()]
    shown = Shown(section.name, section.title, section.says, pictures, opened=section.opened)
    if not section.table:
        return shown
    path = f"tables/{section.table}.md"
    made = records.made(path, records.results / f"tables/{section.table}.run.json")
    if section.name == "sample_case" and settings.data.mimic_iv.credentialed:
        return replace(shown, hole="not shown: cases are credentialed")
    file = records.results / path
    if not file.exists():
        return replace(shown, made=made, hole=f"missing: {path}")
    return replace(shown, made=made, parts=[linker.link(part) for part in parts(file.read_text(encoding="utf-8"))])


def _card(name: str, label: str, records: Records, images: Images) -> Shown:
    path = f"cards/{name}.md"
    made = records.made(path, records.results / f"cards/{name}.run.json")
    file = records.results / path
    if not file.exists():
        return Shown(name, label, "", made=made, hole=f"missing: {path}")
    picture = images.picture(records, f"cards/{name}.png", f"Distributions over the cases of {label}, as in the card.")
    return Shown(name, label, "", [picture], made, parts(file.read_text(encoding="utf-8")))


def _claims(settings: Settings, records: Records, linker: Linker) -> tuple[Claims | None, Made]:
    made = records.made("claims.json", records.results / "claims.run.json")
    return read_claims(settings, records.results / "claims.json", linker.run), made


def _group(grid: Grid) -> None:
    """Neighbouring columns of one benchmark get a common header."""
    labels = [next((p for p in PLACES.values() if head.startswith(f"{p} ")), "") for head in grid.heads]
    for label in labels if any(labels) else ():
        if grid.groups and grid.groups[-1][0] == label:
            grid.groups[-1] = (label, grid.groups[-1][1] + 1)
        else:
            grid.groups.append((label, 1))


def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(templates.__file__).parent
    return Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                       lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
