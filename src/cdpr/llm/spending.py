"""What calls cost, in dollars, and the cap that no call may exceed.

The worst case of a call is put aside before it is sent, and replaced by what it cost when the answer tells. So the cap
holds whatever runs at the same time and whatever is killed. Money whose fate nobody knows counts as spent: a call that
timed out, or whose process died, may have been billed.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..settings import SettingsError
from .guard import is_local
from .journal import Journal, open_journal
from .types import SYSTEM, Messages, ModelUnavailable, Usage

if TYPE_CHECKING:
    from ..settings import ModelEntry
    from .spec import ModelSpec

_SCHEMA = """
CREATE TABLE IF NOT EXISTS spent (
    system TEXT, model TEXT, known INTEGER, calls INTEGER, prompt_tokens INTEGER, completion_tokens INTEGER, usd REAL,
    PRIMARY KEY (system, model, known));
CREATE TABLE IF NOT EXISTS reserved (
    id INTEGER PRIMARY KEY AUTOINCREMENT, system TEXT, model TEXT, usd REAL, until REAL);
"""
Outcome = Usage | Literal["free", "unknown"]
_TEMPLATE = 64  # tokens that a provider's template may add to a prompt
_ROLE = 16  # and to every message
_GRACE = 60.0  # seconds after its time-out until a reservation is taken for that of a dead process
_POLL = 0.25  # seconds


@dataclass(frozen=True)
class Spent:
    """What a system paid for a model: ``usd`` in all, of which ``unknown_usd`` (the worst case of ``unknown_calls``)
    may have been billed or not, and ``reserved_usd``, beside it, for calls under way. Tokens are those of answered
    calls."""

    system: str
    model: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    unknown_calls: int = 0
    unknown_usd: float = 0.0
    reserved_usd: float = 0.0


class Spending:
    """The bill of one model under one folder of state; ``called`` is how errors name the model."""

    def __init__(self, spec: ModelSpec, called: str) -> None:
        assert spec.entry is not None and spec.entry.prices is not None
        self.called, self.model, self.prices = called, spec.name, spec.entry.prices
        self.budget = spec.calls.budget_usd if spec.calls else None
        self._until = spec.timeout + _GRACE
        self._journal = _journal(Path(spec.state))

    @classmethod
    def of(cls, spec: ModelSpec, called: str) -> Spending | None:
        """The bill of a model; None for one that has no prices. Raises SettingsError where there is a budget to keep,
        unless it is a server on this machine, which is taken to be free."""
        if spec.entry and spec.entry.prices:
            return cls(spec, called)
        if spec.calls and spec.calls.budget_usd is not None and unpriced(spec.entry, spec.address):
            raise SettingsError(
                f"{called}: calls.budget_usd is set, but not what a call of this model costs; name `prices` in its "
                "entry of workflow/models.yaml ({input: 0, output: 0} where calls are free), or set calls.budget_usd "
                "to null"
            )
        return None

    async def reserve(self, prompt_tokens: int, max_tokens: int) -> int:
        """Put the worst case of a call aside and return its number. Waits while calls under way hold what is missing;
        raises ModelUnavailable where the budget has no room for it."""
        needed, system = self.prices.usd(prompt_tokens, max_tokens), SYSTEM.get()
        while True:
            found = self._journal.write_now(lambda database: self._reserve(database, system, needed))
            if isinstance(found, int):
                return found
            spent, reserved = found
            if self.budget is not None and spent + needed > self.budget:
                raise ModelUnavailable(
                    f"{self.called}: the budget is used up: {spent:.4f} USD are spent, {reserved:.4f} reserved for "
                    f"calls under way, this call may cost {needed:.4f}, and calls.budget_usd is {self.budget:g}; raise "
                    "it to go on (what was answered is kept and not asked again), and see `cdpr spend`"
                )
            await asyncio.sleep(_POLL)

    def _reserve(self, database: sqlite3.Connection, system: str, needed: float) -> int | tuple[float, float]:
        """The reservation's number, or what is spent and what is reserved where there is no room for it."""
        now = time.time()
        ((spent,),) = database.execute("SELECT COALESCE(SUM(usd), 0) FROM spent")
        ((lost, reserved),) = database.execute(
            "SELECT COALESCE(SUM(usd) FILTER (WHERE until < ?), 0), COALESCE(SUM(usd) FILTER (WHERE until >= ?), 0) "
            "FROM reserved", (now, now),
        )  # fmt: skip
        if self.budget is not None and spent + lost + reserved + needed > self.budget:
            return spent + lost, reserved
        row = (system, self.model, needed, now + self._until)
        number = database.execute("INSERT INTO reserved (system, model, usd, until) VALUES (?, ?, ?, ?)", row).lastrowid
        assert number is not None
        return number

    def book(self, number: int, outcome: Outcome) -> None:
        """What became of a call: its usage, or that it was not billed (``free``), or that nobody knows (``unknown``)
        and its worst case counts as spent."""
        usd = None if isinstance(outcome, str) else self.prices.usd(outcome.prompt_tokens, outcome.completion_tokens)
        self._journal.write_now(lambda database: _book(database, number, outcome, usd))


def unpriced(entry: ModelEntry | None, address: str | None) -> bool:
    """Whether nobody knows what a call costs: no prices are named, and who answers is neither this process (no
    address) nor a server on this machine that is no gateway to a provider, which are taken to be free."""
    if address is None or (entry and entry.prices):
        return False
    return (entry is not None and entry.paid) or not is_local(address)


def worst_case(messages: Messages) -> int:
    """Tokens of a prompt, from above: no tokeniser makes more tokens than there are bytes."""
    return _TEMPLATE + sum(_ROLE + len(message["content"].encode()) for message in messages)


def spent(state: str | Path) -> list[Spent]:
    """What was paid under a folder of state, by system and model; empty where nothing was."""
    if not _place(Path(state)).exists():
        return []
    journal = _journal(Path(state))
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for system, model, known, calls, prompt, completion, usd in journal.read("SELECT * FROM spent"):
        row = rows.setdefault((system, model), {})
        row["usd"] = row.get("usd", 0.0) + usd
        if known:
            row |= {"calls": calls, "prompt_tokens": prompt, "completion_tokens": completion}
        else:
            row |= {"unknown_calls": calls, "unknown_usd": usd}
    now = time.time()
    for system, model, usd, until in journal.read("SELECT system, model, usd, until FROM reserved ORDER BY id"):
        row = rows.setdefault((system, model), {})
        if until >= now:
            row["reserved_usd"] = row.get("reserved_usd", 0.0) + usd
        else:  # of a process that was killed
            for name, more in (("usd", usd), ("unknown_usd", usd), ("unknown_calls", 1)):
                row[name] = row.get(name, 0) + more
    return [Spent(*names, **row) for names, row in sorted(rows.items())]  # type: ignore[arg-type]


def _book(database: sqlite3.Connection, number: int, outcome: Outcome, usd: float | None) -> None:
    """Move a reservation to what is spent; ``usd`` None: all of it."""
    taken = database.execute("DELETE FROM reserved WHERE id = ? RETURNING system, model, usd", (number,)).fetchone()
    assert taken is not None, "a reservation is booked once"
    if outcome == "free":
        return
    system, model, reserved = taken
    known, tokens = False, (0, 0)
    if isinstance(outcome, Usage):
        known, tokens = True, (outcome.prompt_tokens, outcome.completion_tokens)
    database.execute(
        "INSERT INTO spent VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT DO UPDATE SET calls = calls + 1, "
        "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
        "completion_tokens = completion_tokens + excluded.completion_tokens, usd = usd + excluded.usd",
        (system, model, known, *tokens, reserved if usd is None else usd),
    )


def _journal(state: Path) -> Journal:
    return open_journal(_place(state), _SCHEMA)


def _place(state: Path) -> Path:
    return state / "recordings" / "spending.sqlite"
