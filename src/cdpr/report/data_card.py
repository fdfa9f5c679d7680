"""Data cards: the contents of a data set, as numbers and as a page."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import escape
from ..costs.price import COVERAGE_COLUMNS
from ..files import path_digest, read_table, write_text
from ..job import Job
from ..records import RunRecord
from ..settings import Settings
from . import layout
from .card_counts import FEWEST_PATIENTS, CardError, count_cases, data_card, mark, others, read_report
from .table import Block, Row, Table, Warned, markdown_page

_FOUND = {"found": "found", "code": "priced by a code", "class": "priced by the median of their class",
          "fallback": "at the fallback price"}  # fmt: skip


def write_data_card(settings: Settings, job: Job) -> None:
    """Count the cases and write the card. Raises CardError for files that do not belong together."""
    attrition = read_report(job.inputs["report"])
    table = read_table(job.inputs["coverage"], COVERAGE_COLUMNS, CardError)
    prices = [{name: escape.csv_text(cell) for name, cell in row.items()} for _, row in table]
    cases = count_cases(job.inputs["cases"], prices)
    digests: dict[str, str | None] = {name: path_digest(job.inputs[name]) for name in ("cases", "report", "coverage")}
    if "ingested" in job.inputs:
        digests = {"raw": RunRecord.read(job.inputs["ingested"]).input_digest("raw"), **digests}
    card = data_card(settings, job.options["dataset"], cases, attrition, prices, digests)
    parts = [(title, *blocks) for title, blocks in card_parts(settings, card)]
    write_text(job.out["json"], json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], markdown_page(f"Data card: {card['source']['label']} ({mark(card)})", parts))
    job.metrics.update(cases=len(cases), patients=card["counts"]["patients"])
    print(f"{job.options['dataset']}: {len(cases)} of {attrition.read} cases, {card['counts']['patients']} patients")


def card_parts(settings: Settings, card: Mapping[str, Any]) -> list[tuple[str, list[Block]]]:
    """Arrange the numbers of :func:`cdpr.report.card_counts.data_card` to read, below their headings."""
    source, counts, diagnoses = card["source"], card["counts"], card["diagnoses"]
    privacy = ("The cases are credentialed: this card holds numbers, and of diagnoses those names that are no words of "
               f"the source, where {FEWEST_PATIENTS} patients or more have them.")  # fmt: skip
    about = [
        source["what"],
        f"Licence: {source['licence']}.",
        [*source["conditions"], *([f"See {', '.join(source['links'])}"] if source["links"] else [])],
        *([privacy] if card["credentialed"] else []),
        *map(Warned, card["warnings"]),
    ]
    languages = ", ".join(f"{name} {number}" for name, number in counts["languages"].items())
    size = (f"{counts['kept']:,} cases of {counts['patients']:,} patients, out of {counts['read']:,} cases read; "
            f"by language: {languages}. No patient is in two splits (checked).")  # fmt: skip
    steps = [{"rule": "cases read", "left": counts["read"]}, *card["funnel"],
             {"rule": "kept", "rule_mark": "total", "left": counts["kept"]}]  # fmt: skip
    spread = [{name: f"{value:,.1f}".removesuffix(".0") if isinstance(value, float) else value
               for name, value in row.items()} for row in card["distributions"]]  # fmt: skip
    events = [{"what": what, "number": number} for what, number in card["events"].items()]
    digests = [{"input": name, "sha256": digest} for name, digest in card["digests"].items()]
    unnamed = f"; not named here: {others(card)}" if others(card) else ""

    def table(name: str, rows: Sequence[Row]) -> Table:
        return layout.part(settings, f"data_card.{name}", rows)[1]

    shares = [row | {"share": row.get("dropped", 0) / counts["read"]} for row in steps]
    return [
        ("What it is", about),
        ("Counts and splits", [size, table("splits", card["splits"])]),
        ("Selection", [table("selection", shares)]),
        ("What gave the diagnosis away", [table("leaks", card["leaks"]) if card["leaks"] else "None was found."]),
        ("Rows behind the examinations", [table("events", events) if events else "No events recorded."]),
        ("Distributions per case", [table("distributions", spread)]),
        ("Most frequent diagnoses", [f"{diagnoses['distinct']} distinct diagnoses{unnamed}.",
                                     *([table("diagnoses", diagnoses["named"])] if diagnoses["named"] else [])]),
        ("Price coverage", _prices(card["prices"], table)),
        ("Digests of the inputs", [table("digests", digests)]),
    ]  # fmt: skip


def _prices(prices: Mapping[str, Any], table: Callable[[str, Sequence[Row]], Table]) -> list[Block]:
    coverage = prices["found"]
    counts = [{"what": words, "count": coverage[key], "share": coverage[key] / max(1, coverage["found"])}
              for key, words in _FOUND.items()]  # fmt: skip
    counts.append({"what": "left out before: no examination", "count": coverage["no_examination"]})
    blocks: list[Block] = [
        "Examinations but physical, each counted in every case that has it; dollars before the rule of billing groups.",
        table("found", counts),
    ]
    if prices["mappings"]:
        rows = [row | {"price_usd": f"{float(row['price_usd']):.2f}"} for row in prices["mappings"]]
        blocks += ["Names that are not the catalogue's own, drawn at random: see for yourself whether each is read "
                   "right.", table("mappings", rows)]  # fmt: skip
    blocks += [table(key, [row | {"usd": f"{row['usd']:,.0f}"} for row in prices[key]])
               for key in ("by_how", "by_confidence") if prices[key]]  # fmt: skip
    printed = prices["paper"]
    dates = "" if not printed else (
        f"The paper prints prices for {printed['names']} of the names ({printed['examinations']} examinations): "
        f"USD {printed['paper_usd']:,.0f} instead of {printed['usd']:,.0f}.")  # fmt: skip
    return [*blocks, dates]
