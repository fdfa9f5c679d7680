"""``cdpr check_export``: every problem of a private export, and what would be ingested."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .. import ingest as package
from ..cases import CaseRecord, is_physical
from ..costs import Catalogue, load_catalogue, price_of, review, with_overrides
from ..escape import environment
from ..files import file_type, shipped_text, write_text
from ..settings.schema import Costs, Settings
from .attrition import Attrition
from .draft import Import
from .flat_files import IngestError, collected
from .private import FORMAT, Export, doubts, drafts, read_export
from .texts import quoted

_TEMPLATE = ("cases.csv", "results.csv", "jsonl/cases.jsonl")
_SHOWN = 20  # problems of one kind, and names
_COMMON = 3  # cases in which a name stands before it is shown without asking
LAYOUT = FORMAT["summary"].format(**{name: ", ".join(columns) for name, columns in FORMAT.items() if "columns" in name})


@dataclass
class Report:
    """What a check found. ``cases`` are the records that the readable part of the export gives."""

    path: Path
    credentialed: bool
    costs: Costs
    catalogue: Catalogue
    export: Export = field(default_factory=Export)
    attrition: Attrition = field(default_factory=lambda: Attrition("private"))
    cases: list[CaseRecord] = field(default_factory=list)

    @property
    def problems(self) -> list[IngestError]:
        """What refuses the data set."""
        return self.export.problems

    @property
    def ok(self) -> bool:
        """Whether the data set would be ingested."""
        return not self.problems and bool(self.cases)

    def text(self, show_values: bool = False) -> str:
        """The report for a terminal. Of a credentialed source it quotes no value unless asked to: a name in JSON may be
        a patient's words, and so may a first line that is no header."""
        quiet = self.credentialed and not show_values
        free = [sum(map(is_physical, case.key_pertinent_results_dict)) for case in self.cases]
        charged = [len(case.key_pertinent_results_dict) - n for case, n in zip(self.cases, free, strict=True)]
        sizes = {"examinations": charged, "physical items": free}
        keys = (key for case in self.cases for key in case.key_pertinent_results_dict if not is_physical(key))
        names = Counter(keys)
        prices = {name: price_of(name, self.costs, self.catalogue) for name in names}
        missing = review(names, self.costs, self.catalogue)
        listed = [row for row in missing if not quiet or row["cases"] >= _COMMON][:_SHOWN]
        text = environment(package).get_template("check_export.txt").render(
            quoted=quoted, median=median, report=self, quiet=quiet, shown=_SHOWN, common=_COMMON, names=names,
            problems=_by_kind(self.problems, quiet), doubts=_by_kind(doubts(self.export), quiet),
            unlisted=self.export.unlisted(), sizes=sizes if self.cases else {}, missing=missing,
            own=sum(price.how == "override" for price in prices.values()),
            listed=[row | {"usd": prices[row["examination"]].usd} for row in listed],
        )  # fmt: skip
        return text.removesuffix("\n")


def check(settings: Settings, path: str | Path) -> Report:
    """Read an export as ``ingest_dataset`` does, but past its problems, and price what it gives.

    Raises TableError for ``data.price_overrides`` that cannot be used.
    """
    own, folder = settings.data.price_overrides, Path(path)
    options = settings.data.private.model_dump() | {"path": str(folder)}
    credentialed = type(settings.data.private)(**options).credentialed
    catalogue = load_catalogue(place_of_service=settings.costs.place_of_service)
    catalogue = with_overrides(catalogue, own) if own else catalogue
    report = Report(folder, credentialed, settings.costs, catalogue)
    with collected(report.problems):
        try:
            if (there := file_type(folder)) != "folder":
                what = "not a folder" if there else "no such folder"
                raise IngestError(folder, what, "give the folder that holds cases.csv or cases.jsonl")
            report.export = read_export(folder, settings.data.private.decimal_mark)
        except PermissionError as error:
            raise IngestError.not_permitted(error) from None
    work = Import(credentialed, settings.data.leaks, report.attrition)
    report.cases += work.records(drafts(report.export, report.attrition))
    report.attrition.kept = len(report.cases)
    if not report.cases and not report.problems:
        what = f"no usable case among {report.attrition.read}"
        report.problems.append(IngestError(folder, what, "see below what was dropped"))
    return report


def _by_kind(problems: Iterable[IngestError], quiet: bool) -> dict[tuple[str, str, str], list[IngestError]]:
    """Problems by file, field and remedy, in the order of their lines, without what they quote if ``quiet``."""
    kinds: dict[tuple[str, str, str], list[IngestError]] = {}
    for problem in (problem.without_text() if quiet else problem for problem in problems):
        field = re.sub(r"\[\d+\]", "[]", problem.field or "")
        kinds.setdefault((problem.path.name, field, problem.remedy), []).append(problem)
    return {kind: sorted(alike, key=lambda problem: problem.line or 0) for kind, alike in kinds.items()}


def write_template(folder: str | Path) -> list[Path]:
    """Write the example: ``cases.csv``, ``results.csv`` and, as the other layout, ``jsonl/cases.jsonl``; returns their
    paths. Raises IngestError rather than overwrite a file."""
    for name in _TEMPLATE:
        if Path(folder, name).exists():
            raise IngestError(Path(folder, name), "stands there already", "give a new folder")
    return [write_text(Path(folder, name), shipped_text(__package__, "template", name)) for name in _TEMPLATE]
