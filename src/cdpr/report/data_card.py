"""Data cards: what a data set holds, as numbers (JSON) and as a page (Markdown)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .. import escape
from ..costs.price import COVERAGE_COLUMNS
from ..files import path_digest, read_table, write_text
from ..job import Job
from ..records import RunRecord
from ..settings import Settings
from . import layout
from .card_counts import FEWEST_PATIENTS, CardError, count_cases, data_card, read_report
from .table import Block, Row, Table, Warned, markdown_page


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
    mark = f"tier: {card['tier']}{' — synthetic hospital' if card['synthetic'] else ''}"
    sections = [(heading, *blocks) for heading, blocks in card_sections(settings, card)]
    write_text(job.out["md"], markdown_page(f"Data card: {card['source']['label']} ({mark})", sections))
    job.metrics.update(cases=len(cases), patients=card["counts"]["patients"])
    print(f"{dataset}: {len(cases)} of {attrition.read} cases, {card['counts']['patients']} patients")


def card_sections(settings: Settings, card: Mapping[str, Any]) -> list[tuple[str, list[Block]]]:
    """Return the sections of a data card, each a heading with the blocks (texts and tables) below it. ``card`` is the
    card as numbers (:func:`cdpr.report.card_counts.data_card`)."""
    counts = card["counts"]
    languages = ", ".join(f"{name} {number}" for name, number in counts["languages"].items())
    size = (f"{counts['kept']:,} cases of {counts['patients']:,} patients, out of {counts['read']:,} cases read; "
            f"by language: {languages}. No patient is in two splits (checked).")  # fmt: skip
    steps = [{"rule": "cases read", "left": counts["read"]}, *card["funnel"],
             {"rule": "kept", "rule_mark": "total", "left": counts["kept"]}]  # fmt: skip
    selection = [step | {"share": step.get("dropped", 0) / counts["read"]} for step in steps]
    events = [{"what": what, "number": number} for what, number in card["events"].items()]
    distributions = []
    for row in card["distributions"]:
        # Commas between thousands, and at most one decimal.
        texts = {name: f"{value:,.1f}".removesuffix(".0") for name, value in row.items() if isinstance(value, float)}
        distributions.append(row | texts)
    named, others = card["diagnoses"]["named"], card["diagnoses"]["others"]
    diagnoses = f"{card['diagnoses']['distinct']} distinct diagnoses"
    if others["cases"]:
        diagnoses += f"; not named here: {others['diagnoses']:,} others in {others['cases']:,} cases"
    diagnosis_blocks: list[Block] = [f"{diagnoses}."]
    if named:
        diagnosis_blocks.append(_table(settings, "diagnoses", named))
    digests = [{"input": name, "sha256": digest} for name, digest in card["digests"].items()]
    return [
        ("What it is", _about(card)),
        ("Counts and splits", [size, _table(settings, "splits", card["splits"])]),
        ("Selection", [_table(settings, "selection", selection)]),
        ("What gave the diagnosis away", [_table(settings, "leaks", card["leaks"]) or "None was found."]),
        ("Rows behind the examinations", [_table(settings, "events", events) or "No events recorded."]),
        ("Distributions per case", [_table(settings, "distributions", distributions)]),
        ("Most frequent diagnoses", diagnosis_blocks),
        ("Price coverage", _price_blocks(settings, card["prices"])),
        ("Digests of the inputs", [_table(settings, "digests", digests)]),
    ]  # fmt: skip


def _table(settings: Settings, name: str, rows: Sequence[Row]) -> Table | str:
    """Return the table of the card that ``tables.yaml`` declares under ``name``, of these rows; an empty text where
    there are none."""
    return layout.table(settings, f"data_card.{name}", rows)[1] if rows else ""  # [1]: without a heading


def _about(card: Mapping[str, Any]) -> list[Block]:
    """Return the first section of a card: source, licence, conditions and warnings."""
    source = card["source"]
    links = [f"See {', '.join(source['links'])}"] if source["links"] else []
    about: list[Block] = [source["what"], f"Licence: {source['licence']}.", [*source["conditions"], *links]]
    if card["credentialed"]:
        about.append("The cases are credentialed: this card holds numbers, and of diagnoses those names that are no "
                     f"words of the source, where {FEWEST_PATIENTS} patients or more have them.")  # fmt: skip
    return [*about, *map(Warned, card["warnings"])]


def _price_blocks(settings: Settings, prices: Mapping[str, Any]) -> list[Block]:
    """Return the section on how examinations were priced: a sentence, and tables of counts, dollars and shares."""
    found = prices["found"]
    counts = []
    for what, count in found.items():
        is_priced = what != "no_examination"  # these entries were left out before pricing
        counts.append({"what": what, "count": count, "share": count / max(1, found["found"]) if is_priced else None})
    blocks: list[Block] = [
        "Examinations but physical, each counted in every case that has it; dollars before the rule of billing groups.",
        _table(settings, "found", counts),
    ]
    for key in ("by_how", "by_confidence"):
        if rows := [row | {"usd": f"{row['usd']:,.0f}"} for row in prices[key]]:
            blocks.append(_table(settings, key, rows))
    return blocks
