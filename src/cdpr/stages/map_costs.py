"""Stage ``map_costs``: prices and billing groups for case records."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..cases import CaseRecord, iterate_records, write_records
from ..costs import Catalogue, coverage, load_catalogue, price_case, review, with_overrides
from ..costs.coverage import COVERAGE_COLUMNS, REVIEW_COLUMNS
from ..job import Job
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Price the records one by one; write what every examination was priced by, and a table of those that nothing
    priced, to be filled in as overrides.

    The review table holds every name and stands beside the cases. In the coverage table, which goes into reports,
    names that only the source of credentialed cases uses are pooled.
    """
    catalogue = _catalogue(job.inputs)
    counts: Counter[str] = Counter()
    credentialed = False

    def priced() -> Iterator[CaseRecord]:
        nonlocal credentialed
        for record in iterate_records(job.inputs["records"]):
            counts.update(list(record.key_pertinent_results_dict))
            credentialed = credentialed or record.credentialed
            yield price_case(record, settings.costs, catalogue)

    cases = write_records(job.out["cases"], priced())
    rows = coverage(counts, settings.costs, catalogue, pool_unknown=credentialed)
    _write(job.out["coverage"], COVERAGE_COLUMNS, (row.row() for row in rows))
    unmapped = review(counts, settings.costs, catalogue)
    _write(job.out["review"], REVIEW_COLUMNS, unmapped)
    job.metrics.update(cases=cases, examinations=len(counts), unmapped=len(unmapped))
    print(f"{job.options['dataset']}: {cases} cases, {len(counts)} examinations, {len(unmapped)} at the fallback price")


def _catalogue(inputs: Mapping[str, Path]) -> Catalogue:
    catalogue = load_catalogue(inputs.get("catalogue"))
    return with_overrides(catalogue, inputs["overrides"]) if "overrides" in inputs else catalogue


def _write(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, list(columns), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
