"""``cdpr check_export``: every problem of a private export, and what would be ingested."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ..cases import CaseRecord, is_physical
from ..costs import Catalogue, load_catalogue, price_of, review, with_overrides
from ..files import file_type, parse_yaml, shipped_text, write_csv, write_text
from ..settings.schema import Costs, Settings
from .attrition import Attrition
from .draft import Import
from .flat_files import IngestError, collected
from .private import CASE_COLUMNS, FORMAT, RESULT_COLUMNS, Export, doubts, drafts, read_export
from .texts import quoted

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
        """The report for a terminal. Of a credentialed source it quotes no value unless asked to."""
        quiet = self.credentialed and not show_values
        problems, doubtful = ([problem.without_text() if quiet else problem for problem in problems]
                              for problems in (self.problems, doubts(self.export)))  # fmt: skip
        verdict = "can be ingested" if self.ok else f"would be refused: {_many(len(problems), 'problem')}"
        lines = [f"{self.path}: {verdict}", *_grouped(problems), *self._ignored(quiet)]
        if doubtful:
            lines += ["\nworth a look (no reason to refuse)", *_grouped(doubtful)]
        if self.attrition.read:
            title = "what would be ingested" if self.ok else "what the readable part would give"
            lines += ["", title, *self._ingested(quiet), *self._prices(quiet)]
        if quiet:
            lines += ["", "Values are withheld unless data.private.credentialed is false; --show-values shows them."]
        return "\n".join(lines)

    def _ignored(self, quiet: bool) -> Iterator[str]:
        if self.export.ignored:
            yield "\nnot in the layout, and ignored"
            for (file, name), count in self.export.ignored.most_common(_SHOWN):
                # A name in JSON may be a patient's words, and so may a first line that is no header.
                yield f"  {file}: {'(withheld)' if quiet else quoted(name)} ({_many(count, 'row')})"
        if unlisted := self.export.unlisted():
            lines = ", ".join(str(row.line) for row in unlisted[:_SHOWN]) + ", ..." * (len(unlisted) > _SHOWN)
            yield f"\nresults of cases that are not listed, left out: {unlisted[0].path.name}, lines {lines}"

    def _ingested(self, quiet: bool) -> Iterator[str]:
        yield from self.attrition.lines(identifiers=not quiet)
        yield from (f"  {count:>8} {event}" for event, count in sorted(self.attrition.events.items()))
        if not self.cases:
            return
        free = [sum(map(is_physical, case.key_pertinent_results_dict)) for case in self.cases]
        charged = [len(case.key_pertinent_results_dict) - n for case, n in zip(self.cases, free, strict=True)]
        for name, counts in (("examinations", charged), ("physical items", free)):
            yield f"  {name:17} {min(counts)} to {max(counts)} a case, median {median(counts):g}"

    def _prices(self, quiet: bool) -> Iterator[str]:
        keys = (key for case in self.cases for key in case.key_pertinent_results_dict if not is_physical(key))
        names, costs = Counter(keys), self.costs
        if not names:
            return
        missing, total = review(names, costs, self.catalogue), names.total()
        priced = total - sum(row["cases"] for row in missing)
        yield f"  prices            {len(names) - len(missing)} of {_many(len(names), 'name')} have one of " \
              f"their own, {priced / total:.1%} of {_many(total, 'examination')}"  # fmt: skip
        if own := sum(price_of(name, costs, self.catalogue).how == "override" for name in names):
            yield f"    your own        {_many(own, 'name')}, from data.price_overrides"
        if not missing:
            return
        fallback = f"{costs.fallback_usd:.2f} USD"
        yield f"  at the median of their class or the fallback price of {fallback} (correct the name, or set " \
              "data.price_overrides):"  # fmt: skip
        rows = [row for row in missing if not quiet or row["cases"] >= _COMMON][:_SHOWN]
        for row in rows:
            hint = f"; nearest known name: {row['nearest']}" if row["nearest"] else ""
            usd = price_of(str(row["examination"]), costs, self.catalogue).usd
            yield f"    {quoted(row['examination'])} ({_many(row['cases'], 'case')}): {usd:.2f} USD{hint}"
        if rest := len(missing) - len(rows):
            yield f"    and {rest} more" + (f" (names of fewer than {_COMMON} cases are withheld)" if quiet else "")


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


def _grouped(problems: Iterable[IngestError]) -> Iterator[str]:
    """The problems by kind: the first of each kind with their lines, the others counted."""
    kinds: dict[tuple[str, str, str], list[IngestError]] = {}
    for problem in problems:
        place = re.sub(r"\[\d+\]", "[]", problem.field or "")
        kinds.setdefault((problem.path.name, place, problem.remedy), []).append(problem)
    for (file, place, remedy), incidents in kinds.items():
        yield f"\n{file}{', ' + place if place else ''}: {remedy} ({_many(len(incidents), 'time')})"
        for problem in sorted(incidents, key=lambda p: p.line or 0)[:_SHOWN]:
            line = f"line {problem.line}: " if problem.line is not None else ""
            within = f"{problem.field}: " if problem.field != place and problem.field else ""
            yield f"  {line}{within}{problem.problem}"
        if len(incidents) > _SHOWN:
            yield f"  and {len(incidents) - _SHOWN} more"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def write_template(folder: str | Path) -> list[Path]:
    """Write ``cases.csv``, ``results.csv`` and, as the other layout, ``jsonl/cases.jsonl``; returns their paths.

    Raises IngestError rather than overwrite a file.
    """
    cases, results, objects = (Path(folder) / name for name in ("cases.csv", "results.csv", "jsonl/cases.jsonl"))
    for path in (cases, results, objects):
        if path.exists():
            raise IngestError(path, "stands there already", "give a new folder")
    examples = parse_yaml(shipped_text(__package__, "template.yaml"))
    write_text(objects, "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in examples))
    rows = [
        {"case_id": case["case_id"], "sequence": number} | result
        for case in examples
        for number, result in enumerate(case.pop("results"), 1)
    ]
    write_csv(cases, CASE_COLUMNS, examples, for_people=False)
    write_csv(results, RESULT_COLUMNS, rows, for_people=False)
    return [cases, results, objects]
