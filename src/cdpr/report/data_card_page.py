"""A data card as a page to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..results.table import Column, Row, Table, markdown_page, to_markdown
from .data_card import FEWEST_PATIENTS


def render_card(card: Mapping[str, Any]) -> str:
    """The card of :func:`cdpr.report.data_card.data_card` in Markdown."""
    parts = [
        ("What it is", _about(card)),
        ("Counts and splits", _splits(card)),
        ("Selection", _funnel(card)),
        ("What gave the diagnosis away", _leaks(card)),
        ("Rows behind the examinations", _events(card)),
        ("Distributions per case", _distributions(card)),
        ("Most frequent diagnoses", _diagnoses(card)),
        ("Price coverage", _prices(card)),
        ("Digests of the inputs", _table([("input", "Input", None), ("sha256", "SHA-256", None)],
                                         [{"input": k, "sha256": v} for k, v in card["digests"].items()])),
    ]  # fmt: skip
    return markdown_page(f"Data card: {card['source']['label']} ({mark(card)})", parts)


def mark(card: Mapping[str, Any]) -> str:
    """Where the cases come from, for the corner of everything that shows them."""
    return f"tier: {card['tier']}" + (" — synthetic hospital" if card["synthetic"] else "")


def others(card: Mapping[str, Any]) -> str:
    """The diagnoses that are not named, in words; empty without any."""
    rest = card["diagnoses"]["others"]
    return f"{rest['diagnoses']} others in {rest['cases']} cases" if rest["cases"] else ""


def _about(card: Mapping[str, Any]) -> str:
    source = card["source"]
    lines = [source["what"], "", f"Licence: {source['licence']}.", ""]
    lines += [f"- {text}" for text in source["conditions"]]
    lines += [f"- See {', '.join(source['links'])}"] if source["links"] else []
    if card["credentialed"]:
        lines += ["", "The cases are credentialed: this card holds numbers, and of diagnoses those names that "
                  f"are no words of the source, where {FEWEST_PATIENTS} patients or more have them."]  # fmt: skip
    lines += [f"\n**Warning:** {text}" for text in card["warnings"]]
    return "\n".join(lines) + "\n"


def _splits(card: Mapping[str, Any]) -> str:
    counts = card["counts"]
    languages = ", ".join(f"{name} {number}" for name, number in counts["languages"].items())
    text = (f"{counts['kept']} cases of {counts['patients']} patients, out of {counts['read']} cases read; "
            f"by language: {languages}. No patient stands in two splits (checked).\n\n")  # fmt: skip
    columns = [("split", "Split", None), ("patients", "Patients", 0), ("cases", "Cases", 0)]
    return text + _table(columns, card["splits"])


def _funnel(card: Mapping[str, Any]) -> str:
    read = card["counts"]["read"]
    rows = [{"rule": "cases read", "left": read}, *card["funnel"], {"rule": "**kept**", "left": card["counts"]["kept"]}]
    rows = [row | {"share": _percent(row["left"] / read)} for row in rows]
    columns = [("rule", "Rule, in the order applied", None), ("dropped", "Dropped", 0), ("left", "Left", 0),
               ("share", "Left of those read", None)]  # fmt: skip
    return _table(columns, rows)


def _leaks(card: Mapping[str, Any]) -> str:
    if not card["leaks"]:
        return "None was found.\n"
    rows = [row | {"share": _percent(row["share"])} for row in card["leaks"]]
    columns = [("leak", "Leak", None), ("found", "Cases", 0), ("dropped", "Case dropped", 0), ("masked", "Masked", 0),
               ("removed", "Removed", 0), ("kept", "Kept", 0), ("share", "Share of those read", None)]  # fmt: skip
    return _table(columns, rows)


def _events(card: Mapping[str, Any]) -> str:
    rows = [{"what": what, "number": number} for what, number in card["events"].items()]
    return _table([("what", "What", None), ("number", "Number", 0)], rows) if rows else "Nothing to tell.\n"


def _distributions(card: Mapping[str, Any]) -> str:
    numbers = ("min", "q1", "median", "q3", "max", "mean")
    rows = [{"what": row["what"], **{n: f"{row[n]:,.1f}".removesuffix(".0") for n in numbers}}
            for row in card["distributions"]]  # fmt: skip
    return _table([("what", "Per case", None), *((name, name, 0) for name in numbers)], rows)


def _diagnoses(card: Mapping[str, Any]) -> str:
    found = card["diagnoses"]
    rest = others(card)
    text = f"{found['distinct']} distinct diagnoses{f'; not named here: {rest}' if rest else ''}.\n"
    if not found["named"]:
        return text
    return text + "\n" + _table([("diagnosis", "Diagnosis", None), ("cases", "Cases", 0)], found["named"])


def _prices(card: Mapping[str, Any]) -> str:
    prices = card["prices"]
    text = ("Examinations but physical, each counted in every case that has it; dollars before the rule of billing "
            "groups.\n\n")  # fmt: skip
    for key, header in (("by_how", "Name found"), ("by_confidence", "Confidence of the code")):
        if prices[key]:
            text += _share_table(prices[key], header) + "\n"
    if printed := prices["paper"]:
        text += (f"The paper prints prices for {printed['names']} of the names ({printed['examinations']} "
                 f"examinations): USD {printed['paper_usd']:,.0f} instead of {printed['usd']:,.0f}.\n")  # fmt: skip
    return text


def _share_table(rows: Sequence[Mapping[str, Any]], header: str) -> str:
    first = next(iter(rows[0]))
    columns = [(first, header, None), ("names", "Names", 0), ("examinations", "Examinations", 0),
               ("share", "Share", None), ("usd", "USD", 0), ("usd_share", "Share of USD", None)]  # fmt: skip
    shown = [{**row, "share": _percent(row["share"]), "usd": f"{row['usd']:,.0f}",
              "usd_share": _percent(row["usd_share"])} for row in rows]  # fmt: skip
    return _table(columns, shown)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _table(columns: Sequence[tuple[str, str, int | None]], rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table of (key, header, decimals) columns; text stands left, and so does a first column."""
    keys = {key for key, *_ in columns}
    made = [
        Column(key, header, decimals=decimals, align="r" if place and key != "sha256" else "l")
        for place, (key, header, decimals) in enumerate(columns)
    ]
    return to_markdown(Table(made, [Row({k: v for k, v in row.items() if k in keys}) for row in rows]))
