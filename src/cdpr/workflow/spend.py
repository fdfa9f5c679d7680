"""Text of ``cdpr spend``: what was spent on language models, and what a target would cost."""

from __future__ import annotations

from collections.abc import Sequence

from ..llm.spending import Spent, spent
from .spend_plan import Asked, Range


def render_plan(found: Sequence[Asked], assumptions: Sequence[str], budget: float | None) -> str:
    """For people."""
    if not found:
        return "This target asks no language model beside those that act in this project's own processes."
    head = ("system", "model", "cases", "calls", "(least..most)", "recorded", "M in", "M out", "USD", "(least..most)",
            "price of")  # fmt: skip
    rows = [(f"{a.system} (study)" if a.study else a.system, a.model, f"{a.cases:,}", f"{a.calls.expected:,.0f}",
             _between(a.calls, 0), f"{a.recorded:,}", f"{a.prompt.expected / 1e6:,.2f}",
             f"{a.completion.expected / 1e6:,.2f}", *_price(a), a.date) for a in found]  # fmt: skip
    total = sum((a.usd for a in found if a.usd), Range())
    lines = [*_aligned([head, *rows]), "",
             f"{sum(a.calls.expected for a in found):,.0f} calls are expected, for {total.expected:,.2f} USD (least "
             f"{total.least:,.2f}, most {total.most:,.2f}){' where prices are known' * any(not a.usd for a in found)}."
             ]  # fmt: skip
    if unknown := sorted({a.system for a in found if a.unpriced}):
        lines.append(f"NOT in this sum: {', '.join(unknown)}. Nobody has said what their answers cost: name `prices` "
                     "in the model's entry ({input: 0, output: 0} where they are free).")  # fmt: skip
    if any(not a.usd and not a.unpriced for a in found):
        lines.append("Open models without a price are taken to run on machines of your own; a host that charges for "
                     "them has its `at` and `prices` in the model's entry.")  # fmt: skip
    lines += [f"calls.budget_usd is {'not set' if budget is None else f'{budget:,.2f}'}.", "", "Assumed:"]
    return "\n".join([*lines, *(f"- {text}" for text in assumptions)])


def _price(asked: Asked) -> tuple[str, str]:
    """Dollars as expected, and their range."""
    if asked.usd:
        return f"{asked.usd.expected:,.2f}", _between(asked.usd, 2)
    return ("?", "not known") if asked.unpriced else ("-", "no price")


def render_spent(state: str, budget: float | None) -> str:
    """What was spent, for people."""
    found = spent(state)
    if not found:
        return f"Nothing was spent: {state} knows of no call of a model with prices."
    head = ("system", "model", "calls", "tokens in", "tokens out", "USD", "of it unknown", "under way")
    total = Spent("total", "", *(sum(getattr(s, name) for s in found) for name in Spent.__dataclass_fields__ if name
                                 not in ("system", "model")))  # fmt: skip
    rows = [(s.system or "-", s.model, f"{s.calls:,}", f"{s.prompt_tokens:,}", f"{s.completion_tokens:,}",
             f"{s.usd:,.4f}", f"{s.unknown_usd:,.4f} ({s.unknown_calls:,})", f"{s.reserved_usd:,.4f}")
            for s in [*found, total]]  # fmt: skip
    said = [*_aligned([head, *rows]), ""]
    if total.unknown_calls:
        said.append(f"Unknown: {total.unknown_calls:,} calls timed out, or their process was killed; they may have "
                    "been billed, and count as spent in their worst case.")  # fmt: skip
    left = "" if budget is None else f"; {max(0.0, budget - total.usd - total.reserved_usd):,.2f} USD are left"
    return "\n".join([*said, f"calls.budget_usd is {'not set' if budget is None else f'{budget:,.2f}'}{left}."])


def _between(found: Range, digits: int) -> str:
    return f"({found.least:,.{digits}f}..{found.most:,.{digits}f})"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) if n < 2 else cell.rjust(width) for n, (cell, width) in
                      enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]  # fmt: skip
