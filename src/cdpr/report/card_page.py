"""A data card as a page to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..results.table import Block, Cell, Column, Row, Table, Warned
from .card_counts import FEWEST_PATIENTS

# Key of a column, its header, and its decimals (None: text).
Columns = Sequence[tuple[str, str, int | None]]


def card_parts(card: Mapping[str, Any]) -> list[tuple[str, list[Block]]]:
    """The numbers of :func:`cdpr.report.card_counts.data_card`, to read, below their headings."""
    digests = [{"input": name, "sha256": digest} for name, digest in card["digests"].items()]
    return [
        ("What it is", _about(card)),
        ("Counts and splits", _splits(card)),
        ("Selection", [_attrition(card)]),
        ("What gave the diagnosis away", [_leaks(card)]),
        ("Rows behind the examinations", [_events(card)]),
        ("Distributions per case", [_distributions(card)]),
        ("Most frequent diagnoses", _diagnoses(card)),
        ("Price coverage", _prices(card)),
        ("Digests of the inputs", [_table([("input", "Input", None), ("sha256", "SHA-256", None)], digests)]),
    ]


def card_title(card: Mapping[str, Any]) -> str:
    """Which data set the card is of, and where its cases come from."""
    return f"Data card: {card['source']['label']} ({mark(card)})"


def mark(card: Mapping[str, Any]) -> str:
    """Where the cases come from, for the corner of everything that shows them."""
    return f"tier: {card['tier']}" + (" — synthetic hospital" if card["synthetic"] else "")


def others(card: Mapping[str, Any]) -> str:
    """The diagnoses that are not named, in words; empty without any."""
    rest = card["diagnoses"]["others"]
    return f"{rest['diagnoses']} others in {rest['cases']} cases" if rest["cases"] else ""


def _about(card: Mapping[str, Any]) -> list[Block]:
    source = card["source"]
    see = [f"See {', '.join(source['links'])}"] if source["links"] else []
    privacy = ("The cases are credentialed: this card holds numbers, and of diagnoses those names that are no words of "
            f"the source, where {FEWEST_PATIENTS} patients or more have them.")  # fmt: skip
    return [
        source["what"],
        f"Licence: {source['licence']}.",
        [*source["conditions"], *see],
        *([privacy] if card["credentialed"] else []),
        *map(Warned, card["warnings"]),
    ]


def _splits(card: Mapping[str, Any]) -> list[Block]:
    counts = card["counts"]
    languages = ", ".join(f"{name} {number}" for name, number in counts["languages"].items())
    text = (f"{counts['kept']} cases of {counts['patients']} patients, out of {counts['read']} cases read; "
            f"by language: {languages}. No patient stands in two splits (checked).")  # fmt: skip
    return [text, _table([("split", "Split", None), ("patients", "Patients", 0), ("cases", "Cases", 0)],
                         card["splits"])]  # fmt: skip


def _attrition(card: Mapping[str, Any]) -> Block:
    read, total = card["counts"]["read"], {"rule": Cell("kept", "total"), "left": card["counts"]["kept"]}
    rows = [{"rule": "cases read", "left": read}, *card["funnel"], total]
    rows = [row | {"share": _percent(row["left"] / read)} for row in rows]
    columns = [("rule", "Rule, in the order applied", None), ("dropped", "Dropped", 0), ("left", "Left", 0),
               ("share", "Left of those read", None)]  # fmt: skip
    return _table(columns, rows)


def _leaks(card: Mapping[str, Any]) -> Block:
    if not card["leaks"]:
        return "None was found."
    rows = [row | {"share": _percent(row["share"])} for row in card["leaks"]]
    columns = [("leak", "Leak", None), ("found", "Cases", 0), ("dropped", "Case dropped", 0), ("masked", "Masked", 0),
               ("removed", "Removed", 0), ("kept", "Kept", 0), ("share", "Share of those read", None)]  # fmt: skip
    return _table(columns, rows)


def _events(card: Mapping[str, Any]) -> Block:
    rows = [{"what": what, "number": number} for what, number in card["events"].items()]
    return _table([("what", "What", None), ("number", "Number", 0)], rows) if rows else "Nothing to tell."


def _distributions(card: Mapping[str, Any]) -> Block:
    numbers = ("min", "q1", "median", "q3", "max", "mean")
    rows = [{"what": row["what"], **{n: f"{row[n]:,.1f}".removesuffix(".0") for n in numbers}}
            for row in card["distributions"]]  # fmt: skip
    return _table([("what", "Per case", None), *((name, name, 0) for name in numbers)], rows)


def _diagnoses(card: Mapping[str, Any]) -> list[Block]:
    diagnoses, rest = card["diagnoses"], others(card)
    text = f"{diagnoses['distinct']} distinct diagnoses{f'; not named here: {rest}' if rest else ''}."
    columns = [("diagnosis", "Diagnosis", None), ("cases", "Cases", 0)]
    return [text, _table(columns, diagnoses["named"])] if diagnoses["named"] else [text]


_FOUND = {"found": "found", "code": "priced by a code", "class": "priced by the median of their class",
          "fallback": "at the fallback price"}  # fmt: skip

_HOW = {"name": "as its own name", "alias": "as another name", "analyte": "as a quantity of it",
        "class": "by its class", "fallback": "not at all", "override": "in your prices"}  # fmt: skip
_DRAWN = "Names that are not the catalogue's own, drawn at random: see for yourself whether each is read right."


def _prices(card: Mapping[str, Any]) -> list[Block]:
    prices, printed = card["prices"], card["prices"]["paper"]
    about = (
        "Examinations but physical, each counted in every case that has it; dollars before the rule of billing groups."
    )
    heads = {"by_how": "Name found", "by_confidence": "Confidence of the code"}
    dates = "" if not printed else (
        f"The paper prints prices for {printed['names']} of the names ({printed['examinations']} examinations): "
        f"USD {printed['paper_usd']:,.0f} instead of {printed['usd']:,.0f}.")  # fmt: skip
    coverage = prices["found"]
    columns = [("what", "Examinations", None), ("count", "Count", 0), ("share", "Share", None)]
    counts = [{"what": words, "count": coverage[key], "share": _percent(coverage[key] / max(1, coverage["found"]))}
              for key, words in _FOUND.items()]  # fmt: skip
    counts.append({"what": "left out before: no examination", "count": coverage["no_examination"]})
    drawn = [{**row, "how": _HOW.get(row["how"], row["how"]), "price_usd": f"{float(row['price_usd']):.2f}"}
             for row in prices["mappings"]]  # fmt: skip
    mappings = [("exam_key", "Name", None), ("how", "Found", None), ("examination", "Priced as", None),
                ("hcpcs", "Code", None), ("price_usd", "USD", None), ("source", "Source", None)]  # fmt: skip
    tables = [_table(columns, counts)]
    tables += [_DRAWN, _table(mappings, drawn)] if drawn else []
    how = [{**row, "how": _HOW.get(row["how"], row["how"])} for row in prices["by_how"]]
    shared = {**prices, "by_how": how}
    return [about, *tables, *(_share_table(shared[key], head) for key, head in heads.items() if shared[key]), dates]


def _share_table(rows: Sequence[Mapping[str, Any]], header: str) -> Table:
    first = next(iter(rows[0]))
    columns = [(first, header, None), ("names", "Names", 0), ("examinations", "Examinations", 0),
               ("share", "Share", None), ("usd", "USD", 0), ("usd_share", "Share of USD", None)]  # fmt: skip
    shares = [{**row, "share": _percent(row["share"]), "usd": f"{row['usd']:,.0f}",
              "usd_share": _percent(row["usd_share"])} for row in rows]  # fmt: skip
    return _table(columns, shares)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _table(columns: Columns, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Text stands left, and so does a first column."""
    cells = [Column(key, header, decimals=decimals, align="r" if place and key != "sha256" else "l")
            for place, (key, header, decimals) in enumerate(columns)]  # fmt: skip
    return Table(cells, [Row({key: row[key] for key, *_ in columns if key in row}) for row in rows])
