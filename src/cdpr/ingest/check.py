"""The command ``cdpr check_export``: lists all problems of a hospital's own export, and what would be imported of
it."""

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
from .flat_files import IngestError, as_ingest_errors, as_problems
from .private import FORMAT, Export, doubtful_cells, make_drafts, read_export
from .texts import quoted

_TEMPLATE = ("cases.csv", "results.csv")  # files of an example of an export
_SHOWN = 20  # most problems of one kind, and most names, in the report
_COMMON = 3  # an unpriced examination that so many cases have is named in the report, also where texts are withheld
# The description of the format that the command prints, with the columns of its tables.
LAYOUT = FORMAT["summary"].format(**{name: ", ".join(columns) for name, columns in FORMAT.items() if "columns" in name})


@dataclass
class Report:
    """The result of checking the export in the folder ``path``.

    ``export`` has its rows and problems, ``cases`` the records of the part that can be read, ``attrition`` the counts.
    ``costs`` and ``catalogue`` price the examinations. ``credentialed``: the texts must not leave the machine.
    """

    path: Path
    credentialed: bool
    costs: Costs
    catalogue: Catalogue
    export: Export = field(default_factory=Export)
    attrition: Attrition = field(default_factory=lambda: Attrition("private"))
    cases: list[CaseRecord] = field(default_factory=list)

    @property
    def problems(self) -> list[IngestError]:
        """The problems for which an import would refuse the export; empty if there are none."""
        return self.export.problems

    @property
    def ok(self) -> bool:
        """Whether the export would be imported: it has no problem, and at least one usable case."""
        return not self.problems and bool(self.cases)

    def text(self, show_values: bool = False) -> str:
        """Write the report for a terminal.

        For a credentialed export, unless ``show_values``, it has no values, no names of columns, and no names of
        unpriced examinations that few cases have: such a name, a key in JSON, or the first line of a table without a
        header may be a patient's words.
        """
        quiet = self.credentialed and not show_values
        keys = [list(case.key_pertinent_results_dict) for case in self.cases]
        physical = [sum(map(is_physical, case_keys)) for case_keys in keys]  # numbers of items, by case
        charged = [len(case_keys) - number for case_keys, number in zip(keys, physical, strict=True)]
        names = Counter(key for case_keys in keys for key in case_keys if not is_physical(key))
        text = environment(package).get_template("check_export.txt").render(
            quoted=quoted, median=median, report=self, quiet=quiet, shown=_SHOWN, common=_COMMON, names=names,
            problems=_group_by_kind(self.problems, quiet), doubts=_group_by_kind(doubtful_cells(self.export), quiet),
            unlisted=self.export.unlisted(), missing=review(names, self.costs, self.catalogue),
            sizes={"examinations": charged, "physical items": physical} if self.cases else {},
            prices={name: price_of(name, self.costs, self.catalogue) for name in names},
        )  # fmt: skip
        return text.removesuffix("\n")


def check(settings: Settings, path: str | Path) -> Report:
    """Check the export in the folder ``path``. It is read as by the stage ``ingest_dataset``, but reading continues
    after a problem; examinations are priced. Returns the report.

    Raises TableError for a file ``data.price_overrides`` that cannot be used.
    """
    overrides, folder = settings.data.price_overrides, Path(path)
    options = settings.data.private.model_dump() | {"path": str(folder)}
    # As for a data set with this path: its texts are withheld unless the settings say that they are free.
    credentialed = type(settings.data.private)(**options).credentialed
    catalogue = load_catalogue(place_of_service=settings.costs.place_of_service)
    catalogue = with_overrides(catalogue, overrides) if overrides else catalogue
    report = Report(folder, credentialed, settings.costs, catalogue)
    with as_problems(report.problems), as_ingest_errors(folder):
        kind = file_type(folder)
        if kind != "folder":
            problem = "not a folder" if kind else "no such folder"
            raise IngestError(folder, problem, "give the folder that holds cases.csv")
        report.export = read_export(folder, settings.data.private.decimal_mark)
    # Make records of the part that could be read.
    work = Import(credentialed, settings.data.leaks, report.attrition)
    report.cases += work.records(make_drafts(report.export, report.attrition))
    report.attrition.kept = len(report.cases)
    if not report.cases and not report.problems:
        problem = f"no usable case among {report.attrition.read}"
        report.problems.append(IngestError(folder, problem, "see below what was dropped"))
    return report


def _group_by_kind(problems: Iterable[IngestError], quiet: bool) -> dict[tuple[str, str, str], list[IngestError]]:
    """Group problems by (name of the file, field, remedy); each group is in the order of its lines. If ``quiet``,
    values that problems quote are withheld."""
    kinds: dict[tuple[str, str, str], list[IngestError]] = {}
    for problem in problems:
        shown = problem.without_text() if quiet else problem
        kinds.setdefault((shown.path.name, shown.field or "", shown.remedy), []).append(shown)
    return {kind: sorted(group, key=lambda problem: problem.line or 0) for kind, group in kinds.items()}


def write_template(folder: str | Path) -> list[Path]:
    """Write an example of a hospital's own export to ``folder``: ``cases.csv`` and ``results.csv``. Returns their
    paths. Raises IngestError if one of them exists already."""
    for name in _TEMPLATE:
        if Path(folder, name).exists():
            raise IngestError(Path(folder, name), "stands there already", "give a new folder")
    return [write_text(Path(folder, name), shipped_text(__package__, "template", name)) for name in _TEMPLATE]
