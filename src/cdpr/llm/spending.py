"""The cost of model calls in US dollars, and a budget that no call exceeds.

Before a call is sent, its highest possible cost is reserved; after the answer the real cost replaces it. So the budget
holds with any number of processes, and after kills. A call that timed out, or whose process died, may have been billed:
it counts with its highest possible cost.
"""

import asyncio
import functools
import json
import logging
import os
import platform
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from ..files import shipped_text
from ..settings import ModelEntry, Prices, SettingsError
from .guard import is_local
from .journal import Journal, open_journal
from .spec import ModelSpec
from .types import SYSTEM, Messages, ModelUnavailable, Usage

if TYPE_CHECKING:
    import pandas as pd

# What a call cost: the tokens that it used, nothing (``free``), or an amount that is not known (``unknown``).
Cost = Usage | Literal["free", "unknown"]
_TEMPLATE_TOKENS, _MESSAGE_TOKENS = 64, 16  # most tokens that a provider's template adds to a prompt, and to a message
_GRACE = 60.0  # seconds after the time-out of its call until a reservation counts as that of a dead process
_POLL = 0.25  # seconds between two attempts to reserve, where other calls hold the rest of the budget
_POLLS_BEFORE_CHECK = 8  # such attempts between two checks whether the processes that hold reservations still run
_CLOCK_TOLERANCE = 2.0  # seconds by which two readings of the start time of the same process may differ
_log = logging.getLogger(__name__)


class Spending:
    """The costs of one model. They are in a database in the folder ``spec.state``, which all processes and models
    share, as they share the budget. A client calls :meth:`reserve` before each call of the model and :meth:`book` after
    it. ``label`` names the model in errors."""

    def __init__(self, spec: ModelSpec, prices: Prices, label: str) -> None:
        """Open the database of costs for the model ``spec`` with these prices; ``label`` names the model in errors."""
        self.label, self.model, self.prices = label, spec.name, prices
        self.budget = spec.calls.budget_usd if spec.calls else None
        self._lifetime = spec.timeout + _GRACE  # seconds of a reservation; a live process has booked its call by then
        self._journal = _open_database(spec.state)

    @classmethod
    def open(cls, spec: ModelSpec, label: str) -> Self | None:
        """Open the costs of a model; None for a model without prices. Raises SettingsError where a budget is set, but
        this model has no prices although its calls may cost money."""
        if spec.entry and spec.entry.prices:
            return cls(spec, spec.entry.prices, label)
        if spec.calls and spec.calls.budget_usd is not None and has_unknown_cost(spec.entry, spec.address):
            problem = "calls.budget_usd is set, but not what a call of this model costs"
            prices = "`prices` in its entry of workflow/models.yaml ({input: 0, output: 0} where calls are free)"
            raise SettingsError(f"{label}: {problem}; name {prices}, or set calls.budget_usd to null")
        return None

    async def reserve(self, prompt_tokens: int, max_tokens: int) -> int:
        """Reserve the highest possible cost of a call with at most these numbers of tokens of prompt and answer.
        Returns the number of the reservation. Waits while other calls in progress hold the rest of the budget. Raises
        ModelUnavailable where what is spent leaves too little for the call, even if no other call were in progress."""
        needed, system, waits = self.prices.usd(prompt_tokens, max_tokens), SYSTEM.get(), 0
        while True:
            number, left, reserved = self._journal.write(lambda database: self._reserve(database, system, needed))
            if number is not None:
                return number
            if waits == 0:
                message = "%s: %.4f USD of the budget are left, and calls under way hold %.4f: waiting, at most %.0f s"
                _log.warning(message, self.label, left, reserved, self._lifetime)
            if waits % _POLLS_BEFORE_CHECK == 0:  # the call of a dead process will never be booked: do not wait for it
                self._journal.write(_expire_dead_reservations)
            waits += 1
            await asyncio.sleep(_POLL)

    def _reserve(self, database: sqlite3.Connection, system: str, needed: float) -> tuple[int | None, float, float]:
        """Insert a reservation of ``needed`` US dollars for a call of ``system`` (an agent, judge or matcher), if the
        budget has room for it. Returns

        - the number of the reservation, or None where the reservations of other calls leave no room at present;
        - the US dollars of the budget that are not spent (infinite without a budget);
        - the US dollars that were reserved before.

        Raises ModelUnavailable where the budget would have no room even without other reservations.
        """
        [(spent, reserved)] = database.execute("SELECT TOTAL(usd), TOTAL(reserved) FROM costs")  # one row, US dollars
        if self.budget is not None and spent + needed > self.budget:
            used = f"{spent:.4f} USD are spent, {reserved:.4f} reserved for calls under way"
            limit = f"this call may cost {needed:.4f}, and calls.budget_usd is {self.budget:g}"
            remedy = "raise it to continue (answers so far are kept and not paid again), and see `cdpr spend`"
            raise ModelUnavailable(f"{self.label}: the budget is used up: {used}, {limit}; {remedy}")
        left = float("inf") if self.budget is None else self.budget - spent
        if reserved + needed > left:
            return None, left, reserved
        row = (system, self.model, needed, time.time() + self._lifetime)
        number = database.execute("INSERT INTO reserved (system, model, usd, until) VALUES (?, ?, ?, ?)", row).lastrowid
        database.execute("INSERT INTO holders VALUES (?, ?)", (number, _describe_process(os.getpid())))
        return number, left, reserved

    def book(self, number: int, cost: Cost) -> None:
        """Replace the reservation ``number`` by the cost of its call. ``cost`` are the tokens that the call used, or
        ``free`` (costs nothing), or ``unknown`` (costs what was reserved)."""

        def replace_reservation(database: sqlite3.Connection) -> None:
            """Delete the reservation, and add its cost to the table ``spent``."""
            query = "DELETE FROM reserved WHERE id = ? RETURNING system, model, usd"
            system, model, usd = database.execute(query, (number,)).fetchone()
            database.execute("DELETE FROM holders WHERE id = ?", (number,))
            if cost == "free":
                return
            tokens = (0, 0)  # of a call of unknown cost, which counts as the reserved ``usd``
            if isinstance(cost, Usage):
                tokens = cost.prompt_tokens, cost.completion_tokens
                usd = self.prices.usd(*tokens)
            database.execute(
                "INSERT INTO spent VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT DO UPDATE SET calls = calls + 1, "
                "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
                "completion_tokens = completion_tokens + excluded.completion_tokens, usd = usd + excluded.usd",
                (system, model, isinstance(cost, Usage), *tokens, usd),
            )

        self._journal.write(replace_reservation)


@functools.cache
def _describe_process(number: int) -> str:
    """Describe the process with this number as JSON: machine, number and start time, which identify it even after its
    number is used again."""
    import psutil

    return json.dumps([platform.node(), number, psutil.Process(number).create_time()])


def _is_dead(holder: str) -> bool:
    """Whether the process that :func:`_describe_process` described as ``holder`` has ended. False for a process of
    another machine, about which this is unknown."""
    import psutil

    node, *_, number, start = json.loads(holder)  # earlier versions wrote a further entry between node and number
    if node != platform.node():
        return False
    try:
        process = psutil.Process(number)
        # Another start time: the process has ended, and a new one has its number.
        return abs(process.create_time() - start) > _CLOCK_TOLERANCE or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _expire_dead_reservations(database: sqlite3.Connection) -> None:
    """End the reservations of processes that died before their call was answered, so that no other call waits for them.
    The money does not become free: these calls count as spent from now on, because they may have been billed."""
    query = "SELECT id, process FROM holders JOIN reserved USING (id) WHERE until > 0"  # 0: ended here before
    dead = [(number,) for number, holder in database.execute(query) if _is_dead(holder)]
    # A reservation counts as spent once its time is over; 0, the year 1970, is over for every clock.
    database.executemany("UPDATE reserved SET until = 0 WHERE id = ?", dead)


def has_unknown_cost(entry: ModelEntry | None, address: str | None) -> bool:
    """Whether a model has no prices although its calls may cost money. Models in this process (``address`` is None) and
    on servers of this machine cost nothing, unless their ``entry`` in ``workflow/models.yaml`` names a paid
    provider."""
    if address is None or (entry and entry.prices):
        return False
    is_paid = entry is not None and entry.paid
    return is_paid or not is_local(address)


def bound_prompt_tokens(messages: Messages) -> int:
    """Compute an upper bound of the number of prompt tokens of a conversation: one per byte of its messages, and those
    that the provider's chat template adds."""
    return _TEMPLATE_TOKENS + sum(_MESSAGE_TOKENS + len(message["content"].encode()) for message in messages)


def spent(state: str | Path) -> "pd.DataFrame":
    """Read all costs in the folder ``state``, US dollars, as a frame with a row for each ``system`` (an agent, judge or
    matcher) and each ``model`` that it called.

    - ``calls``, ``prompt_tokens``, ``completion_tokens``: of the calls whose tokens the server reported.
    - ``usd``: the cost of all calls but those in progress, ``unknown_usd`` included.
    - ``unknown_usd``: the highest possible cost of the ``unknown_calls``, whose tokens are unknown.
    - ``reserved_usd``: the highest possible cost of the calls in progress.
    """
    import pandas as pd  # here, because the import would slow every job that calls a model

    if not _database_path(state).exists():
        return pd.DataFrame()
    columns = ["system", "model", "calls", "prompt_tokens", "completion_tokens", "usd"]
    columns += ["unknown_calls", "unknown_usd", "reserved_usd"]
    return pd.DataFrame(_open_database(state).read("SELECT * FROM bills"), columns=columns)


def _database_path(state: str | Path) -> Path:
    """The path of the database of all costs in the folder ``state``."""
    return Path(state) / "recordings" / "spending.sqlite"


def _open_database(state: str | Path) -> Journal:
    """Open the database of all costs in the folder ``state``, or make it. Raises JournalError as
    :class:`~.journal.Journal`."""
    return open_journal(_database_path(state), shipped_text(__package__, "spending.sql"))


def render_spent(state: str, budget: float | None) -> str:
    """Write the table that ``cdpr spend`` prints: the calls, tokens and costs of each system and model in the folder
    ``state``, their total, and what is left of ``budget`` (US dollars; None: no budget is set)."""
    bills = spent(state)
    if bills.empty:
        return f"Nothing was spent: {state} holds no call of a model with prices; other models are not listed."
    counts = [name for name in bills if name.endswith(("calls", "tokens"))]
    total = bills.sum(numeric_only=True)
    bills.loc[len(bills)] = {"system": "total", "model": "", **total}  # a last row
    bills = bills.astype(dict.fromkeys(counts, int)).replace({"system": {"": "-"}})  # "-": no agent, judge or matcher
    text = bills.to_string(index=False, formatters=dict.fromkeys(counts, "{:,}".format), float_format="{:,.4f}".format)
    if total.unknown_calls:
        text += "\n\nUnknown: they timed out, or their process was killed; usd has their worst case, since they "
        text += "may have been billed."
    if budget is None:
        return f"{text}\n\ncalls.budget_usd is not set."
    left = max(0.0, budget - total.usd - total.reserved_usd)
    return f"{text}\n\ncalls.budget_usd is {budget:,.2f}; {left:,.2f} USD are left."
