"""Data cards: what a data set holds, as numbers (JSON) and as a page (Markdown)."""

import json

from .. import escape
from ..costs.price import COVERAGE_COLUMNS
from ..files import path_digest, read_table, write_text
from ..job import Job
from ..records import RunRecord
from ..settings import Settings
from .card_counts import FEWEST_PATIENTS, CardError, count_cases, data_card, read_report
from .documents import render


def write_data_card(settings: Settings, job: Job) -> None:
    """Stage ``write_data_card``: count the cases of a data set, and write its card as ``json`` and ``md``. Raises
    CardError where its files do not belong together."""
    dataset, attrition = job.options["dataset"], read_report(job.inputs["report"])
    table = read_table(job.inputs["coverage"], COVERAGE_COLUMNS, CardError)
    # The cells as they were before they were escaped for spreadsheets.
    prices = [{name: escape.unescape_csv_cell(cell) for name, cell in row.items()} for _, row in table]
    cases = count_cases(job.inputs["cases"], prices)
    digests: dict[str, str | None] = {}  # None: not recorded
    if "ingested" in job.inputs:
        digests["raw"] = RunRecord.read(job.inputs["ingested"]).input_digest("raw")
    digests |= {name: path_digest(job.inputs[name]) for name in ("cases", "report", "coverage")}
    card = data_card(settings, dataset, cases, attrition, prices, digests)
    write_text(job.out["json"], json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], render("card.txt", card=card, fewest_patients=FEWEST_PATIENTS))
    job.metrics.update(cases=len(cases), patients=card["counts"]["patients"])
    print(f"{dataset}: {len(cases)} of {attrition.read} cases, {card['counts']['patients']} patients")
