"""Stage ``data_card``: what a data set holds, as numbers, as a page and as a figure."""

from __future__ import annotations

import json

from ..files import write_text
from ..job import Job
from ..report.data_card import count_cases, data_card, read_coverage, read_report
from ..report.data_card_figure import plot_card
from ..report.data_card_page import render_card
from ..run_key import path_digest
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Count the cases and write the card."""
    told, prices = read_report(job.inputs["report"]), read_coverage(job.inputs["coverage"])
    tally = count_cases(job.inputs["cases"], prices)
    digests = {name: path_digest(job.inputs[name]) for name in ("cases", "report", "coverage")}
    if "ingested" in job.inputs:
        ingested = json.loads(job.inputs["ingested"].read_text(encoding="utf-8"))
        digests = {"raw": ingested["inputs"]["raw"]["sha256"], **digests}
    card = data_card(settings, job.options["dataset"], tally, told, prices, digests)
    write_text(job.out["json"], json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], render_card(card))
    plot_card(card, tally, job.out["png"].with_suffix(""))
    job.metrics.update(cases=tally.cases, patients=card["counts"]["patients"])
    print(f"{job.options['dataset']}: {tally.cases} of {told['read']} cases, {card['counts']['patients']} patients")
