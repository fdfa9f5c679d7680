"""Data cards: what a data set holds, as numbers, as a page and as a figure."""

from __future__ import annotations

import json

from ..files import path_digest, write_text
from ..job import Job
from ..records import RunRecord
from ..results.table import markdown_page, to_markdown
from ..settings import Settings
from .card_counts import count_cases, data_card, read_coverage, read_report
from .card_figure import draw_card
from .card_page import card_parts, card_title


def write_data_card(settings: Settings, job: Job) -> None:
    """Count the cases and write the card. Raises CardError for files that do not belong together."""
    attrition, prices = read_report(job.inputs["report"]), read_coverage(job.inputs["coverage"])
    tally = count_cases(job.inputs["cases"], prices)
    digests = {name: path_digest(job.inputs[name]) for name in ("cases", "report", "coverage")}
    if "ingested" in job.inputs:
        digests = {"raw": RunRecord.read(job.inputs["ingested"]).digest_of("raw"), **digests}
    card = data_card(settings, job.options["dataset"], tally, attrition, prices, digests)
    parts = [(title, "\n".join(map(to_markdown, blocks))) for title, blocks in card_parts(card)]
    write_text(job.out["json"], json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], markdown_page(card_title(card), parts))
    draw_card(card, tally, job.out)
    job.metrics.update(cases=tally.cases, patients=card["counts"]["patients"])
    print(f"{job.options['dataset']}: {tally.cases} of {attrition.read} cases, {card['counts']['patients']} patients")
