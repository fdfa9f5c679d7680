"""Verdicts, and the rules that all kinds of claims share.

Printed figures are held against results only on the paper's cases, as many as it states, at tier `paper` and with its
backbone. Elsewhere they are not run, and a direction is at most the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..results.methods import Method
from ..results.results import Hole

REPRODUCED, SAME, NOT_SUPPORTED, DEVIATES = "reproduced", "same direction", "not supported", "deviates"
NOT_RUN, STATED, OTHERWISE = "not run", "as stated", "set otherwise"
# In the order of telling; the last two are of the configuration, no results.
VERDICTS = (REPRODUCED, SAME, NOT_SUPPORTED, DEVIATES, NOT_RUN, STATED, OTHERWISE)


@dataclass(frozen=True)
class Outcome:
    """A verdict and what stands behind it. ``measured`` with its 95% interval is in ``unit``; ``clear`` tells whether
    the interval settles the matter (None where there is none). ``k`` counts right diagnoses, ``n`` cases; of the
    average, which weighs data sets alike, there is no ``k``, and ``n`` lists them. ``scope`` tells how much of a
    superlative was run, ``runs`` what the claim rests on."""

    verdict: str
    why: str
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    clear: bool | None = None
    k: str = ""
    n: int | str | None = None
    scope: str = ""
    seeds: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effect:
    """A statistic with its 95% interval (none for a single seed), positive on the claimed side."""

    value: float
    low: float | None
    high: float | None

    @property
    def supported(self) -> bool:
        """Whether the interval excludes zero on the claimed side."""
        return self.low is not None and self.low > 0

    @property
    def refuted(self) -> bool:
        """Whether the interval excludes zero on the other side."""
        return self.high is not None and self.high < 0

    @property
    def clear(self) -> bool | None:
        """Whether the interval settles the matter; None without one."""
        return None if self.low is None else self.supported or self.refuted


def directional(effect: Effect, unfit: str = "", incomplete: str = "") -> tuple[str, str]:
    """Verdict and reason of a direction. ``unfit`` tells why it cannot be the paper's, ``incomplete`` what of the claim
    was not run; both stand in the way of `reproduced`."""
    if effect.value > 0:
        full = effect.supported and not unfit and not incomplete
        verdict = REPRODUCED if full else SAME
        shown = f"the interval {'excludes' if effect.supported else 'does not exclude'} the contrary"
    else:
        verdict = DEVIATES if effect.refuted else NOT_SUPPORTED
        shown = f"the interval {'excludes what is claimed' if effect.refuted else 'does not exclude the claim'}"
    if effect.low is None:
        shown = "one seed: no interval"
    notes = [shown, unfit.partition(";")[0], incomplete]
    return verdict, "; ".join(note for note in notes if note)


def within(value: float, low: float | None, high: float | None, margin: float) -> Effect:
    """How far a difference stays inside ``±margin``; positive inside."""
    if low is None or high is None:
        return Effect(margin - abs(value), None, None)
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return Effect(margin - abs(value), margin - max(abs(low), abs(high)), margin - nearest)


def signed(value: float, low: float | None, high: float | None, side: str) -> Effect:
    if side == "above":
        return Effect(value, low, high)
    return Effect(-value, None if high is None else -high, None if low is None else -low)


def not_run(why: str | Hole | Method) -> Outcome:
    text = why if isinstance(why, str) else why.reason if isinstance(why, Hole) else why.why
    return Outcome(NOT_RUN, text.removeprefix("not run: "))
