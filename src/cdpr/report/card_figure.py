"""A data card as a figure: selection, examinations, prices and diagnoses at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from . import style
from .card_counts import FEWEST_PATIENTS, KINDS, mark, others

_COLOURS = {"physical": style.GREY, "laboratory": style.BLUE, "microbiology": style.GREEN, "imaging": style.ORANGE,
            "other": style.PURPLE}  # fmt: skip


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
        small = {"va": "bottom", "fontsize": 6.5, "color": style.GREY}
        figure.text(0.995, 0.004, mark(card), ha="right", **small)
        notes = "examinations per case: quartiles, 5th to 95th percentile, mean (diamond)"
        figure.text(0.005, 0.004, notes, ha="left", **small)
        figure.get_layout_engine().set(rect=(0, 0.045, 1, 0.905))
        _settle(figure)


def _settle(figure: style.Figure) -> None:
    """Lay the figure out once and round the places: the solver's last digits differ from one call to the next."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for panel in figure.axes:
        panel.set_position(np.round(panel.get_position().bounds, 5))


def _draw_attrition(panel: style.Axes, card: Mapping[str, Any]) -> None:
    steps = [("cases read", 0, card["counts"]["read"])]
    steps += [(step["rule"], step["dropped"], step["left"]) for step in card["funnel"]]
    left = [step[2] for step in steps]
    colours = [style.GREY] + [style.SKY] * (len(steps) - 1)
    colours[-1] = style.BLUE
    places = range(len(steps))
    panel.barh(places, left, color=colours, height=0.62)
    for place, (_, dropped, remaining) in zip(places, steps, strict=True):
        text = f"{remaining:,}" + (f"  (−{dropped:,})" if dropped else "")
        panel.annotate(text, (remaining, place), (3, 0), textcoords="offset points", va="center", fontsize=7)
    panel.set_yticks(places, [step[0] for step in steps], fontsize=7)
    panel.set_ylim(max(len(steps), 3) - 0.4, -0.6)
    panel.set_xlim(0, 1.42 * max(left))
    panel.grid(axis="y", visible=False)
    panel.locator_params(axis="x", nbins=4)
    panel.set_title("cases left after each rule" if len(steps) > 1 else "cases left (no rule dropped any)")


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
    panel.set_title(f"price of the whole record\nmedian USD {np.median(usd):,.0f}{free_note}")
    panel.set_xlabel("USD")
    panel.set_ylabel("cases")
    if not len(priced):
        return
    low, high = priced.min() / 1.15, priced.max() * 1.15
    panel.hist(priced, bins=np.geomspace(low, high, 33), color=style.BLUE, alpha=0.8)
    panel.set_xscale("log")
    panel.set_xlim(low, high)
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 30 * low else (1, 3)))
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
    return diagnosis if len(diagnosis) <= width else diagnosis[: width - 1].rstrip() + "…"
