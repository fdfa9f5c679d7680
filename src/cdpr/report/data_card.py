"""Data cards: what a data set holds, as numbers, as a page and as a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..files import path_digest, write_text
from ..job import Job
from ..records import RunRecord
from ..results.table import Block, Cell, Column, Row, Table, Warned, markdown_page, to_markdown
from ..settings import Settings
from .card_counts import FEWEST_PATIENTS, count_cases, data_card, mark, others, read_coverage, read_report
from .card_figure import draw_card

_FOUND = {"found": "found", "code": "priced by a code", "class": "priced by the median of their class",
          "fallback": "at the fallback price"}  # fmt: skip
_HOW = {"name": "as its own name", "alias": "as another name", "analyte": "as a quantity of it",
        "class": "by its class", "fallback": "not at all", "override": "in your prices"}  # fmt: skip


def write_data_card(settings: Settings, job: Job) -> None:
    """Count the cases and write the card. Raises CardError for files that do not belong together."""
    attrition, prices = read_report(job.inputs["report"]), read_coverage(job.inputs["coverage"])
    cases = count_cases(job.inputs["cases"], prices)
    digests = {name: path_digest(job.inputs[name]) for name in ("cases", "report", "coverage")}
    if "ingested" in job.inputs:
        digests = {"raw": RunRecord.read(job.inputs["ingested"]).digest_of("raw"), **digests}
    card = data_card(settings, job.options["dataset"], cases, attrition, prices, digests)
    parts = [(title, "\n".join(map(to_markdown, blocks))) for title, blocks in card_parts(card)]
    write_text(job.out["json"], json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], markdown_page(f"Data card: {card['source']['label']} ({mark(card)})", parts))
    draw_card(card, cases, job.out)
    job.metrics.update(cases=len(cases), patients=card["counts"]["patients"])
    print(f"{job.options['dataset']}: {len(cases)} of {attrition.read} cases, {card['counts']['patients']} patients")


def card_parts(card: Mapping[str, Any]) -> list[tuple[str, list[Block]]]:
    """The numbers of :func:`cdpr.report.card_counts.data_card`, to read, below their headings."""
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
    size = (f"{counts['kept']} cases of {counts['patients']} patients, out of {counts['read']} cases read; "
            f"by language: {languages}. No patient stands in two splits (checked).")  # fmt: skip
    steps = [{"rule": "cases read", "left": counts["read"]}, *card["funnel"],
             {"rule": Cell("kept", "total"), "left": counts["kept"]}]  # fmt: skip
    numbers = ("min", "q1", "median", "q3", "max", "mean")
    spread = [row | {n: f"{row[n]:,.1f}".removesuffix(".0") for n in numbers} for row in card["distributions"]]
    unnamed = f"; not named here: {others(card)}" if others(card) else ""
    return [
        ("What it is", about),
        ("Counts and splits", [size, _table(card["splits"], split="Split", patients="Patients", cases="Cases")]),
        ("Selection", [_table(
            [row | {"share": row["left"] / counts["read"]} for row in steps],
            rule="Rule, in the order applied", dropped="Dropped", left="Left", share="Left of those read")]),
        ("What gave the diagnosis away", [_table(
            card["leaks"], leak="Leak", found="Cases", dropped="Case dropped", masked="Masked", removed="Removed",
            kept="Kept", share="Share of those read") if card["leaks"] else "None was found."]),
        ("Rows behind the examinations", [_table(
            [{"what": what, "number": number} for what, number in card["events"].items()],
            what="What", number="Number") if card["events"] else "Nothing to tell."]),
        ("Distributions per case", [_table(spread, what="Per case", **{name: name for name in numbers})]),
        ("Most frequent diagnoses", [
            f"{diagnoses['distinct']} distinct diagnoses{unnamed}.",
            *([_table(diagnoses["named"], diagnosis="Diagnosis", cases="Cases")] if diagnoses["named"] else [])]),
        ("Price coverage", _prices(card["prices"])),
        ("Digests of the inputs", [_table(
            [{"input": name, "sha256": digest} for name, digest in card["digests"].items()],
            input="Input", sha256="SHA-256")]),
    ]  # fmt: skip


def _prices(prices: Mapping[str, Any]) -> list[Block]:
    found = prices["found"]
    counts = [{"what": words, "count": found[key], "share": found[key] / max(1, found["found"])}
              for key, words in _FOUND.items()]  # fmt: skip
    counts.append({"what": "left out before: no examination", "count": found["no_examination"]})
    blocks: list[Block] = [
        "Examinations but physical, each counted in every case that has it; dollars before the rule of billing groups.",
        _table(counts, what="Examinations", count="Count", share="Share"),
    ]
    if prices["mappings"]:
        drawn = [row | {"price_usd": f"{float(row['price_usd']):.2f}"} for row in prices["mappings"]]
        blocks += [
            "Names that are not the catalogue's own, drawn at random: see for yourself whether each is read right.",
            _table(drawn, exam_key="Name", how="Found", examination="Priced as", hcpcs="Code", price_usd="USD",
                   source="Source"),
        ]  # fmt: skip
    for key, first, header in (("by_how", "how", "Name found"),
                               ("by_confidence", "confidence", "Confidence of the code")):  # fmt: skip
        rows = [row | {"usd": f"{row['usd']:,.0f}"} for row in prices[key]]
        columns = {first: header, "names": "Names", "examinations": "Examinations", "share": "Share", "usd": "USD",
                   "usd_share": "Share of USD"}  # fmt: skip
        blocks += [_table(rows, **columns)] if rows else []
    printed = prices["paper"]
    dates = "" if not printed else (
        f"The paper prints prices for {printed['names']} of the names ({printed['examinations']} examinations): "
        f"USD {printed['paper_usd']:,.0f} instead of {printed['usd']:,.0f}.")  # fmt: skip
    return [*blocks, dates]


def _table(rows: Sequence[Mapping[str, Any]], **headers: str) -> Table:
    """Columns by their key; shares in per cent, ways to read a name in words. The first column and digests stand
    left."""
    columns = [Column(key, header, align="r" if place and key != "sha256" else "l")
               for place, (key, header) in enumerate(headers.items())]  # fmt: skip
    words = {"how": lambda how: _HOW.get(how, how), "share": _percent, "usd_share": _percent}
    return Table(columns, [
        Row({key: words[key](row[key]) if key in words else row[key] for key in headers if key in row}) for row in rows
    ])  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
