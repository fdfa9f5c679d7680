"""Data cards: what a data set holds, as numbers, as a page and as a figure."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import escape
from ..costs.price import COVERAGE_COLUMNS
from ..files import path_digest, read_table, write_text
from ..job import Job
from ..records import RunRecord
from ..settings import Settings
from . import layout, style
from .card_counts import FEWEST_PATIENTS, KINDS, CardError, count_cases, data_card, mark, others, read_report
from .table import Block, Table, Warned, markdown_page

_FOUND = {"found": "found", "code": "priced by a code", "class": "priced by the median of their class",
          "fallback": "at the fallback price"}  # fmt: skip
_COLOURS = {"physical": style.GREY, "laboratory": style.BLUE, "microbiology": style.GREEN, "imaging": style.ORANGE,
            "other": style.PURPLE}  # fmt: skip


def write_data_card(settings: Settings, job: Job) -> None:
    """Count the cases and write the card. Raises CardError for files that do not belong together."""
    attrition = read_report(job.inputs["report"])
    table = read_table(job.inputs["coverage"], COVERAGE_COLUMNS, CardError)
    prices = [{name: escape.csv_text(cell) for name, cell in row.items()} for _, row in table]
    cases = count_cases(job.inputs["cases"], prices)
    digests = {name: path_digest(job.inputs[name]) for name in ("cases", "report", "coverage")}
    if "ingested" in job.inputs:
        digests = {"raw": RunRecord.read(job.inputs["ingested"]).digest_of("raw"), **digests}
    card = data_card(settings, job.options["dataset"], cases, attrition, prices, digests)
    parts = [(title, *blocks) for title, blocks in card_parts(settings, card)]
    write_text(job.out["json"], json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], markdown_page(f"Data card: {card['source']['label']} ({mark(card)})", parts))
    draw_card(card, cases, job.out)
    job.metrics.update(cases=len(cases), patients=card["counts"]["patients"])
    print(f"{job.options['dataset']}: {len(cases)} of {attrition.read} cases, {card['counts']['patients']} patients")


def card_parts(settings: Settings, card: Mapping[str, Any]) -> list[tuple[str, list[Block]]]:
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
    size = (f"{counts['kept']:,} cases of {counts['patients']:,} patients, out of {counts['read']:,} cases read; "
            f"by language: {languages}. No patient stands in two splits (checked).")  # fmt: skip
    steps = [{"rule": "cases read", "left": counts["read"]}, *card["funnel"],
             {"rule": "kept", "rule_mark": "total", "left": counts["kept"]}]  # fmt: skip
    spread = [{name: f"{value:,.1f}".removesuffix(".0") if isinstance(value, float) else value
               for name, value in row.items()} for row in card["distributions"]]  # fmt: skip
    events = [{"what": what, "number": number} for what, number in card["events"].items()]
    digests = [{"input": name, "sha256": digest} for name, digest in card["digests"].items()]
    unnamed = f"; not named here: {others(card)}" if others(card) else ""

    def table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
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


def _prices(prices: Mapping[str, Any], table: Callable[[str, Sequence[Mapping[str, Any]]], Table]) -> list[Block]:
    coverage = prices["found"]
    counts = [{"what": words, "count": coverage[key], "share": coverage[key] / max(1, coverage["found"])}
              for key, words in _FOUND.items()]  # fmt: skip
    counts.append({"what": "left out before: no examination", "count": coverage["no_examination"]})
    blocks: list[Block] = [
        "Examinations but physical, each counted in every case that has it; dollars before the rule of billing groups.",
        table("found", counts),
    ]
    if prices["mappings"]:
        drawn = [row | {"price_usd": f"{float(row['price_usd']):.2f}"} for row in prices["mappings"]]
        blocks += ["Names that are not the catalogue's own, drawn at random: see for yourself whether each is read "
                   "right.", table("mappings", drawn)]  # fmt: skip
    blocks += [table(key, [row | {"usd": f"{row['usd']:,.0f}"} for row in prices[key]])
               for key in ("by_how", "by_confidence") if prices[key]]  # fmt: skip
    printed = prices["paper"]
    dates = "" if not printed else (
        f"The paper prints prices for {printed['names']} of the names ({printed['examinations']} examinations): "
        f"USD {printed['paper_usd']:,.0f} instead of {printed['usd']:,.0f}.")  # fmt: skip
    return [*blocks, dates]


# The figure


def draw_card(card: Mapping[str, Any], cases: pd.DataFrame, out: Mapping[str, Path]) -> None:
    """``png`` and ``pdf``: the selection funnel, examinations per case by kind, the price of the
    whole record (logarithmic) and the most frequent diagnoses."""
    with style.drawing(7.2, 4.6 + 0.1 * len(card["funnel"]), out) as figure:
        rows = figure.add_gridspec(2, 1)  # nested, so that no row makes room for the names of the other
        upper, lower = rows[0].subgridspec(1, 2, width_ratios=[1.2, 1]), rows[1].subgridspec(1, 2)
        _draw_attrition(figure.add_subplot(upper[0]), card)
        _draw_prices(figure.add_subplot(upper[1]), cases.usd.to_numpy())
        _draw_kinds(figure.add_subplot(lower[0]), cases)
        _draw_diagnoses(figure.add_subplot(lower[1]), card)
        counts = card["counts"]
        title = f"{card['source']['label']}: {counts['kept']:,} cases of {counts['patients']:,} patients"
        figure.text(0.5, 0.99, title, ha="center", va="top", fontsize=9.5)
        style.corners(figure, mark(card), "examinations per case: quartiles, 5th to 95th percentile, mean (diamond)")
        figure.get_layout_engine().set(rect=(0, 0.045, 1, 0.905))
        # Laid out once, with rounded places: the solver's last digits differ from one call to the next.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for panel in figure.axes:
            panel.set_position(np.round(panel.get_position().bounds, 5))


def _draw_attrition(panel: style.Axes, card: Mapping[str, Any]) -> None:
    steps = [("cases read", 0, card["counts"]["read"])]
    steps += [(step["rule"], step["dropped"], step["left"]) for step in card["funnel"]]
    left = [step[2] for step in steps]
    places = range(len(steps))
    panel.barh(places, left, color=style.BLUE, height=0.62)
    panel.barh(places, [step[1] for step in steps], left=left, color=style.ORANGE, height=0.62)
    for place, (_, lost, remaining) in zip(places, steps, strict=True):
        text = f"{remaining:,}" + (f"  (−{lost:,})" if lost else "")
        panel.annotate(text, (remaining + lost, place), (3, 0), textcoords="offset points", va="center", fontsize=7)
    panel.set_yticks(places, [escape.figure(step[0]) for step in steps], fontsize=7)
    panel.set_ylim(max(len(steps), 3) - 0.4, -0.6)
    panel.set_xlim(0, 1.42 * max(left))
    panel.grid(axis="y", visible=False)
    panel.locator_params(axis="x", nbins=4, integer=True)
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.set_xlabel("cases")
    dropped = " (blue)\nand dropped by the rule (orange)" if len(steps) > 1 else " (no rule dropped any)"
    panel.set_title(f"cases left{dropped}")


def _draw_kinds(panel: style.Axes, cases: pd.DataFrame) -> None:
    data = [cases[kind].to_numpy() for kind in KINDS]
    boxes = panel.boxplot(data, orientation="horizontal", whis=(5, 95), showfliers=False, patch_artist=True, widths=0.6,
                          medianprops={"color": style.BLACK, "linewidth": 1.2})  # fmt: skip
    for box, kind in zip(boxes["boxes"], KINDS, strict=True):
        box.set(facecolor=_COLOURS[kind], alpha=0.75, linewidth=0.7)
    for place, values in enumerate(data, 1):
        panel.plot(np.mean(values), place, marker="D", color="white", markeredgecolor=style.BLACK, markersize=3.5)
    panel.set_yticks(range(1, len(KINDS) + 1), KINDS)
    panel.set_ylim(len(KINDS) + 0.6, 0.4)
    panel.set_xlim(left=-0.02 * panel.get_xlim()[1])
    panel.grid(axis="y", visible=False)
    panel.set_title("examinations per case")


def _draw_prices(panel: style.Axes, usd: np.ndarray) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    priced = usd[usd > 0]
    free = len(usd) - len(priced)
    free_note = f"; {free:,} free" if free else ""
    panel.set_title(f"price of the whole record\nmedian USD {np.median(usd):,.0f} (dashed){free_note}")
    panel.set_xlabel("USD (logarithmic)")
    panel.set_ylabel("cases")
    panel.locator_params(axis="y", integer=True)
    if not len(priced):
        return
    low, high = priced.min() / 1.15, priced.max() * 1.15
    panel.hist(priced, bins=np.geomspace(low, high, 33), color=style.BLUE, alpha=0.8)
    panel.set_xscale("log")
    panel.set_xlim(low, high)
    ticks = (1, 2, 3, 5) if high < 5 * low else (1, 2, 5) if high < 30 * low else (1, 3)
    panel.xaxis.set_major_locator(LogLocator(subs=ticks))
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    panel.xaxis.set_minor_locator(NullLocator())
    panel.axvline(np.median(usd), color=style.BLACK, linewidth=1, linestyle="--")


def _draw_diagnoses(panel: style.Axes, card: Mapping[str, Any]) -> None:
    names = card["diagnoses"]["named"]
    note = f"\n(not shown: {others(card)})" if others(card) else ""
    panel.set_title(f"most frequent diagnoses{note}")
    panel.set_xlabel("cases")
    panel.barh(range(len(names)), [row["cases"] for row in names], color=style.GREEN, height=0.62)
    labels = [_label(row["diagnosis"], rank) for rank, row in enumerate(names, 1)]
    panel.set_yticks(range(len(names)), labels, fontsize=6.5)
    panel.set_ylim(max(len(names), 1) - 0.4, -0.6)
    panel.grid(axis="y", visible=False)
    panel.locator_params(axis="x", nbins=4, integer=True)
    if not names:
        panel.set_axis_off()
        style.empty(panel, f"no known diagnosis of {FEWEST_PATIENTS} patients or more")


def _label(diagnosis: str, rank: int, width: int = 38) -> str:
    """The name, cut to ``width``; its rank where the figure's typeface has no letters for it."""
    if any(ord(character) > 0x24F and character.isalpha() for character in diagnosis):
        return f"no. {rank} of the card's table"
    return escape.figure(diagnosis if len(diagnosis) <= width else diagnosis[: width - 1].rstrip() + "…")
