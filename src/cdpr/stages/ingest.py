"""Stage ``ingest``: raw files of one data set -> case records."""

from __future__ import annotations

import json

from ..cases import write_records
from ..ingest import ingest
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Read the raw files; write records and the report of what was kept and dropped."""
    records, funnel = ingest(job.options["dataset"], settings, job.inputs["raw"])
    write_records(job.out["records"], records)
    job.out["report"].write_text(json.dumps(funnel.report(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    dropped = {rule: len(ids) for rule, ids in sorted(funnel.dropped.items())}
    job.metrics.update(read=funnel.read, kept=funnel.kept, **{f"dropped/{r}": n for r, n in dropped.items()})
    shown = "".join(f"\n  dropped {count}: {rule}" for rule, count in dropped.items())
    shown += "".join(f"\n  note: {text}" for text in funnel.warnings)
    print(f"{job.options['dataset']}: kept {funnel.kept} of {funnel.read} cases {funnel.splits}{shown}")
