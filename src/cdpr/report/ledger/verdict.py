"""Verdicts with the rules that all kinds of claims share, and ``claims.json``, typed.

Printed figures are held against results only on the paper's cases, as many as it states, at tier `paper`, with its
backbone and a language model as judge. Elsewhere they are not run, and a direction is at most the same.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ConfigDict, TypeAdapter

from ...settings import Settings
from ..provenance import ProvenanceError, check_tier
from ..table import interval

REPRODUCED, SAME, OPEN, DEVIATES = "reproduced", "same direction", "open", "deviates"
NOT_RUN, APART, STATED, OTHERWISE = "not run", "timed apart", "as stated", "set otherwise"
# What a result was held against.
MEASURED = (REPRODUCED, SAME, OPEN, DEVIATES)
UNDECIDABLE = "undecidable"
# What claims are counted by, in the order of telling; `as stated` and `set otherwise` are of the configuration.
COUNTED = {
    REPRODUCED: "on the data, at the scale, with the backbone and a judge as in the paper: the printed figure in the "
    "interval, or the claimed direction with an interval that excludes the contrary",
    SAME: "the interval excludes the contrary",
    OPEN: "the interval holds both, whichever side the estimate lies on; or the comparison supports nothing: one "
    "seed, no side above chance, a policy that has stopped ordering",
    DEVIATES: "the interval excludes what is claimed or printed",
    NOT_RUN: "nothing was measured that could be held against it",
    APART: "about time, which is another one at every run: `claims_of_time.md` judges it on this machine",
    STATED: "of the configuration, no result: this run is set up as the paper says",
    OTHERWISE: "of the configuration, no result: this run is set up differently",
    UNDECIDABLE: "no result could ever decide it: a definition, an argument, or a fact of the authors' own setup",
}


@dataclass(frozen=True)
class Verdict:
    """A verdict and its evidence. ``measured`` with its 95% interval is in ``unit``. ``k`` counts right diagnoses and
    ``n`` cases; for the average, which gives data sets equal weight, ``k`` is empty and ``n`` lists the counts.
    ``scope`` says how many of its rivals a superlative was compared with; ``runs`` are those that the verdict rests on,
    and ``seeds`` theirs."""

    verdict: str
    why: str = ""
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    k: str = ""
    n: int | str | None = None
    scope: str = ""
    seeds: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()


class Effect(NamedTuple):
    """A statistic with the ends of its 95% interval; they are NaN where there is none, as for a single seed."""

    value: float
    low: float = nan
    high: float = nan

    def minus(self, amount: float) -> "Effect":
        """How far it exceeds an amount."""
        return Effect(*(end - amount for end in self))

    def toward(self, side: str | None) -> "Effect":
        """The same statistic with a sign that is positive on the claimed side: ``above`` zero, or ``below`` it."""
        return Effect(-self.value, -self.high, -self.low) if side == "below" else self

    def inside(self, margin: float) -> "Effect":
        """How far it is inside ``±margin``; positive inside."""
        ends = abs(self.low), abs(self.high)
        nearest = 0.0 if self.low <= 0 <= self.high else min(ends)
        return Effect(margin - abs(self.value), margin - max(ends), margin - nearest)


def weakest(effects: Sequence[Effect]) -> tuple[int, Effect]:
    """Position of the effect with the least value; and the effect of all together: least value, least ends."""
    at = min(range(len(effects)), key=lambda i: effects[i].value)
    return at, Effect(*np.min(effects, axis=0).tolist())


def directional(effect: Effect, unfit: str = "", incomplete: str = "", void: str = "") -> tuple[str, str]:
    """Verdict and reason for an effect that is positive where the claim holds.

    ``unfit`` says why the result cannot be the paper's, and ``incomplete`` what part of the claim was not run: either
    prevents `reproduced`. ``void`` says why the comparison supports nothing, whatever its interval.
    """
    if void or isnan(effect.low):
        verdict, reading = OPEN, void or "one seed: no interval"
    elif effect.low > 0:
        verdict, reading = SAME if unfit or incomplete else REPRODUCED, "the interval excludes the contrary"
    elif effect.high < 0:
        verdict, reading = DEVIATES, "the interval excludes what is claimed"
    else:
        verdict, reading = OPEN, "the interval holds both"
    return verdict, "; ".join(note for note in (reading, unfit.partition(";")[0], incomplete) if note)


def verdict_on(
    effect: Effect, shown: Effect, reading: str, unfit: str = "", incomplete: str = "", void: str = "", **evidence: Any
) -> Verdict:
    """The verdict on a comparison of two cells, or of a cell with a number. ``effect`` is positive where the claim
    holds, ``shown`` the statistic that readers see, and ``reading`` names what was compared; ``unfit``, ``incomplete``
    and ``void`` are those of :func:`directional`, and ``evidence`` further fields of the verdict."""
    verdict, why = directional(effect, unfit, incomplete, void)
    return Verdict(verdict, f"{reading}: {why}", *shown, **evidence)


@dataclass(frozen=True, kw_only=True)
class _ClaimFields:
    id: str
    also: tuple[str, ...] = ()
    place: str = ""
    kind: str = ""
    says: str = ""
    headline: bool = False
    printed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judged(Verdict, _ClaimFields):
    """What a claim says, and the verdict on it."""

    @property
    def figure(self) -> str:
        """What was measured, with its interval and unit; empty without."""
        if self.measured is None:
            return ""
        text = f"{self.measured:.4g}"
        if self.low is not None and self.high is not None:
            digits = 2 if max(abs(self.low), abs(self.high)) >= 1 else 3
            text = interval(self.measured, self.low, self.high, digits)
        return f"{text} {self.unit}".rstrip()

    @property
    def cases(self) -> str:
        """``58 / 100, seeds 0, 1``."""
        of = f"{self.k} / {self.n}" if self.k and self.n else f"N = {self.n}" if self.n else ""
        seeds = f"seeds {', '.join(map(str, self.seeds))}" if self.seeds else ""
        return ", ".join(filter(None, (of, seeds)))


@dataclass
class Ledger:
    """All claims; ``counts`` are the claims by what they count as, in the order of the page, ``headline`` sums them up
    (``443 claims: 73 measured, ...``); ``judges`` are sentences about the verdicts on diagnoses behind them."""

    __pydantic_config__ = ConfigDict(hide_input_in_errors=True)

    tier: str | None = None
    marks: str = ""
    decoding: str = ""
    judges: tuple[str, ...] = ()
    headline: str = field(init=False)
    counts: dict[str, int] = field(init=False)
    claims: tuple[Judged, ...] = ()

    def __post_init__(self) -> None:
        counted = Counter(UNDECIDABLE if claim.kind == UNDECIDABLE else claim.verdict for claim in self.claims)
        self.counts = {name: counted[name] for name in (*COUNTED, *counted)}
        parts = {"measured": MEASURED, "not run": (NOT_RUN,), "about settings": (STATED, OTHERWISE),
                 "about time": (APART,), "untestable": (UNDECIDABLE,)}  # fmt: skip
        sums = {words: sum(counted[name] for name in names) for words, names in parts.items()}
        self.headline = f"{len(self.claims)} claims: " + ", ".join(f"{n} {words}" for words, n in sums.items() if n)


def read_ledger(settings: Settings, path: Path) -> Ledger | None:
    """The ledger, or None where there is none. Raises ProvenanceError for a ledger of another tier and for a file that
    is none."""
    if not path.exists():
        return None
    try:
        ledger = TypeAdapter(Ledger).validate_json(path.read_bytes())
    except ValueError as error:
        raise ProvenanceError(
            f"{path}: no ledger of claims ({error}); remove it and run `snakemake --cores all claims`"
        ) from error
    check_tier(settings, path, ledger.tier)
    return ledger
