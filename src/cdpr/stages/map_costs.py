"""Stage ``map_costs``: prices and billing groups for case records."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator

from ..cases import CaseRecord, iterate_records, write_records
from ..costs import coverage, load_catalogue, price_case
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Price the records one by one and write what every examination was priced by."""
    catalogue = load_catalogue()
    counts: Counter[str] = Counter()

    def priced() -> Iterator[CaseRecord]:
        for record in iterate_records(job.inputs["records"]):
            counts.update(list(record.key_pertinent_results_dict))
            yield price_case(record, settings.costs, catalogue)

    cases = write_records(job.out["cases"], priced())
    rows = [entry.row() for entry in coverage(counts, settings.costs, catalogue)]
    with job.out["coverage"].open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, list(rows[0]) if rows else ["exam_key"], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    unmapped = sum(row["how"] == "fallback" for row in rows)
    job.metrics.update(cases=cases, examinations=len(rows), unmapped=unmapped)
    print(f"{job.options['dataset']}: {cases} cases, {len(rows)} examinations, {unmapped} at the fallback price")
