"""``cdpr spend``: what was spent on language models."""

from collections.abc import Sequence
from dataclasses import fields

from ..llm.spending import Spent, spent


def render_spent(state: str, budget: float | None) -> str:
    """What was spent, for people."""
    bills = spent(state)
    if not bills:
        return f"Nothing was spent: {state} holds no call of a model with prices; other models are not listed."
    counted = [field.name for field in fields(Spent) if field.name not in ("system", "model")]
    total = Spent("total", "", *(sum(getattr(bill, name) for bill in bills) for name in counted))
    head = ("system", "model", "calls", "tokens in", "tokens out", "USD", "of it unknown", "under way")
    rows = [(s.system or "-", s.model, f"{s.calls:,}", f"{s.prompt_tokens:,}", f"{s.completion_tokens:,}",
             f"{s.usd:,.4f}", f"{s.unknown_usd:,.4f} ({s.unknown_calls:,})", f"{s.reserved_usd:,.4f}")
            for s in [*bills, total]]  # fmt: skip
    lines = [*_aligned([head, *rows]), ""]
    if total.unknown_calls:
        lines.append(f"Unknown: {total.unknown_calls:,} calls timed out, or their process was killed; they may have "
                    "been billed, and count as spent in their worst case.")  # fmt: skip
    left = "" if budget is None else f"; {max(0.0, budget - total.usd - total.reserved_usd):,.2f} USD are left"
    return "\n".join([*lines, f"{_budget(budget)}{left}."])


def _budget(usd: float | None) -> str:
    return f"calls.budget_usd is {'not set' if usd is None else f'{usd:,.2f}'}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table; all but the first two columns are numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) if n < 2 else cell.rjust(width) for n, (cell, width) in
                      enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]  # fmt: skip
