"""Verdicts with the rules that all kinds of claims share, and ``claims.json``, typed.

Printed figures are held against results only on the paper's cases, as many as it states, at tier `paper`, with its
backbone and a language model as judge. Elsewhere they are not run, and a direction is at most the same.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
    """A verdict and what stands behind it. ``measured`` with its 95% interval is in ``unit``. ``k`` counts right
    diagnoses, ``n`` cases; of the average, which weighs data sets alike, there is no ``k``, and ``n`` lists them.
    ``scope`` tells how much of a superlative was run, ``runs`` what the claim rests on."""

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
    """A statistic with its 95% interval (none for a single seed)."""

    value: float
    low: float | None = None
    high: float | None = None

    def minus(self, amount: float) -> "Effect":
        """How far it exceeds an amount."""
        return Effect(self.value - amount, *(None if end is None else end - amount for end in (self.low, self.high)))

    def toward(self, side: str | None) -> "Effect":
        """Positive on the claimed side: ``above`` zero, or ``below`` it."""
        ends = (None if end is None else -end for end in (self.high, self.low))
        return Effect(-self.value, *ends) if side == "below" else self

    def inside(self, margin: float) -> "Effect":
        """How far it stays inside ``±margin``; positive inside."""
        if self.low is None or self.high is None:
            return Effect(margin - abs(self.value))
        nearest = 0.0 if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))
        return Effect(margin - abs(self.value), margin - max(abs(self.low), abs(self.high)), margin - nearest)

    @property
    def supported(self) -> bool:
        """Whether the interval excludes zero on the claimed side."""
        return self.low is not None and self.low > 0

    @property
    def refuted(self) -> bool:
        """Whether the interval excludes zero on the other side."""
        return self.high is not None and self.high < 0


def weakest(effects: Sequence[Effect]) -> tuple[int, Effect]:
    """Which effect is least, and what holds of all of them: the least value, the least ends of the intervals."""
    at = min(range(len(effects)), key=lambda i: effects[i].value)
    ends = ([getattr(effect, end) for effect in effects] for end in ("low", "high"))
    return at, Effect(effects[at].value, *(None if None in end else min(end) for end in ends))


def directional(effect: Effect, unfit: str = "", incomplete: str = "", void: str = "") -> tuple[str, str]:
    """Verdict and reason of a direction, by an effect that is positive on the claimed side. ``unfit`` tells why it
    cannot be the paper's, ``incomplete`` what of the claim was not run: both stand in the way of `reproduced`. ``void``
    tells why the comparison supports nothing, whatever its interval."""
    if effect.low is None:
        void = void or "one seed: no interval"
    if void:
        verdict, reading = OPEN, void
    elif effect.supported:
        verdict, reading = SAME if unfit or incomplete else REPRODUCED, "the interval excludes the contrary"
    elif effect.refuted:
        verdict, reading = DEVIATES, "the interval excludes what is claimed"
    else:
        verdict, reading = OPEN, "the interval holds both"
    return verdict, "; ".join(note for note in (reading, unfit.partition(";")[0], incomplete) if note)


def verdict_on(
    effect: Effect, shown: Effect, reading: str, unfit: str = "", incomplete: str = "", void: str = "", **behind: Any
) -> Verdict:
    """The verdict on a comparison. ``effect`` says how far the claim holds, ``reading`` what was compared; ``unfit``,
    ``incomplete`` and ``void`` are those of :func:`directional`. The verdict shows the statistic ``shown`` and has the
    fields ``behind``."""
    verdict, why = directional(effect, unfit, incomplete, void)
    return Verdict(verdict, f"{reading}: {why}", *shown, **behind)


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
