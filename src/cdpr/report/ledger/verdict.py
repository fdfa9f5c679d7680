"""Verdicts on claims, the rules that all kinds of claims share, and ``claims.json``.

A printed number is compared with ours only on the paper's cases, on as many as it states, at tier `paper`, with the
paper's backbone model and a language model as judge. Elsewhere its verdict is `not run`, and a claimed direction is
`same direction` at best.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from ...evaluation.significance import percentile_interval
from ...settings import Settings, seeds_of_runs
from ..methods import unique_runs
from ..provenance import ProvenanceError, check_tier
from ..table import interval

REPRODUCED, SAME, OPEN, DEVIATES = "reproduced", "same direction", "open", "deviates"
NOT_RUN, APART, STATED, OTHERWISE = "not run", "timed apart", "as stated", "set otherwise"
UNDECIDABLE = "undecidable"
SETUP = {True: STATED, False: OTHERWISE}  # the verdict on a claim about the setup, by whether the claim holds
# The verdicts by which claims are counted, in the order of the page; `tables.yaml` has their meanings. UNDECIDABLE is a
# kind of claim, which is counted like a verdict.
COUNTED = (REPRODUCED, SAME, OPEN, DEVIATES, NOT_RUN, APART, STATED, OTHERWISE, UNDECIDABLE)
DECIMALS = 6  # of numbers in the files of claims
# The sums of the headline: the name of each, and the verdicts that it counts.
_SUMS = {"measured": (REPRODUCED, SAME, OPEN, DEVIATES), "not run": (NOT_RUN,), "about settings": (STATED, OTHERWISE),
         "about time": (APART,), "untestable": (UNDECIDABLE,)}  # fmt: skip


class Effect(NamedTuple):
    """A statistic with the ends of its 95% interval. The ends are NaN where there is no interval, as for a single
    seed."""

    value: float
    low: float = nan
    high: float = nan

    def minus(self, amount: float) -> "Effect":
        """Return the effect minus a fixed amount."""
        return Effect(self.value - amount, self.low - amount, self.high - amount)

    def support(self, claim: Mapping[str, Any]) -> "Effect":
        """Return how far this difference is on the side that ``claim`` says; positive where the claim holds. The claim
        has a ``side`` (``above`` or ``below`` zero) with a ``margin``, or says that the difference is ``within`` a
        limit of zero."""
        if "within" in claim:
            limit, ends = claim["within"], (abs(self.low), abs(self.high))
            smallest = 0.0 if self.low <= 0 <= self.high else min(ends)  # the smallest absolute value in the interval
            return Effect(limit - abs(self.value), limit - max(ends), limit - smallest)
        difference = Effect(-self.value, -self.high, -self.low) if claim["side"] == "below" else self
        return difference.minus(claim.get("margin", 0.0))

    @classmethod
    def of_samples(cls, samples: np.ndarray) -> "Effect":
        """Return the effect of ``samples`` [1 + resamples], which are its value, then its bootstrap values."""
        return cls(float(samples[0]), *percentile_interval(samples[1:]))


NO_EFFECT = Effect(nan)


class Verdict(BaseModel):
    """A ``verdict`` on a claim with its reason ``why``, and what was measured: the number ``measured`` with the ends
    ``low`` and ``high`` of its 95% interval, in ``unit``.

    - ``k``: the number of right diagnoses among ``n`` cases. For the average, in which data sets count alike, ``k`` is
      empty and ``n`` lists the numbers of cases.
    - ``scope``: where a method is claimed to be the best of many and not all were run, among how many it was compared
      (``of the 7 rows run``).
    - ``runs``: those that the verdict rests on; ``seeds``: their training seeds.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # what a file holds may be private

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

    @property
    def figure(self) -> str:
        """The measured number with interval and unit, as text: ``4.93 [2.10, 7.76] points``; empty where nothing was
        measured."""
        if self.measured is None:
            return ""
        text = f"{self.measured:.4g}"
        if self.low is not None and self.high is not None:
            decimals = 2 if max(abs(self.low), abs(self.high)) >= 1 else 3
            text = interval(self.measured, self.low, self.high, decimals)
        return f"{text} {self.unit}".rstrip()

    @property
    def cases(self) -> str:
        """Right diagnoses, cases and training seeds, as text: ``58 / 100, seeds 0, 1``; ``N = 100, seeds 0, 1`` where
        right diagnoses were not counted."""
        with_cases = f"{self.k} / {self.n}" if self.k else f"N = {self.n}"
        seeds = f"seeds {', '.join(map(str, self.seeds))}" if self.seeds else ""
        return ", ".join(filter(None, (with_cases if self.n else "", seeds)))


@dataclass(frozen=True)
class Comparison:
    """What a claim is judged by.

    - ``measured``: a statistic of the compared methods, in ``unit``, such as the difference of their accuracies.
    - ``text``: what was compared (``CDPR 53.07 against GRPO 47.33``).
    - ``support``: how far the statistic is on the claimed side, with its interval; positive where the claim holds.
    - ``void``: why the comparison supports no conclusion, whatever its interval; empty where it can.
    - ``k``, ``n``, ``runs``: those of :class:`Verdict`.
    - ``samples`` [1 + resamples, methods]: the compared means, then their bootstrap means, where there are some.
    """

    measured: Effect
    text: str = ""
    unit: str = ""
    k: str = ""
    n: int | str | None = None
    runs: tuple[str, ...] = ()
    void: str = ""
    support: Effect = NO_EFFECT
    samples: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def verdict(self, verdict: str, why: str, runs: tuple[str, ...] = ()) -> Verdict:
        """Return the verdict of this name (``open``), with the reason ``why`` and with what this comparison measured,
        over its own ``runs`` or over others. Numbers are rounded to :data:`DECIMALS`; those that are not finite become
        None."""
        # Adding 0.0 makes 0.0 of -0.0.
        ends = (round(float(end), DECIMALS) + 0.0 if isfinite(end) else None for end in self.measured)
        (measured, low, high), runs = ends, runs or self.runs
        seeds = tuple(sorted(set(seeds_of_runs(runs))))
        return Verdict(verdict=verdict, why=why, measured=measured, low=low, high=high, unit=self.unit, k=self.k,
                       n=self.n, seeds=seeds, runs=runs)  # fmt: skip


def judge_comparisons(comparisons: Sequence[Comparison], unlike_paper: str = "", incomplete: str = "") -> Verdict:
    """Return the verdict on a claim that holds only if all of these comparisons support it; a single one can refute it.

    The verdict shows one comparison: the one that refutes the claim most clearly if any does, else the one with the
    least support. Its runs are those of all comparisons. A void comparison (one that supports no conclusion) does not
    refute, and where no other one does, it leaves the verdict open. The other arguments are those of
    :func:`directional`.
    """
    # Comparisons whose whole interval is against the claim refute it, unless they are void.
    contrary = [comparison for comparison in comparisons if comparison.support.high < 0]
    refuting = [comparison for comparison in contrary if not comparison.void]
    if refuting:
        shown, void = min(refuting, key=lambda comparison: comparison.support.high), ""
    else:
        # Among equals, up to rounding, it is the one whose interval begins lower.
        shown = min(comparisons, key=lambda one: (round(one.support.value, DECIMALS), one.support.low))
        void = next((comparison.void for comparison in comparisons if comparison.void), "")
    # The claim has at least this support: the least of all values, of all low ends and of all high ends.
    weakest = Effect(*np.min([comparison.support for comparison in comparisons], axis=0).tolist())
    verdict, reason = directional(weakest, unlike_paper, incomplete, void)
    why = f"{shown.text}: {reason}"
    if (count := len(comparisons)) > 1:
        ahead = sum(comparison.support.value > 0 for comparison in comparisons)
        why = (f"ahead in {ahead} of {count} comparisons, clearly behind in {len(contrary)}; "
               f"{'refuted by' if refuting else 'closest'}: {why}")  # fmt: skip
    return shown.verdict(verdict, why, unique_runs(comparisons))


def directional(support: Effect, unlike_paper: str = "", incomplete: str = "", void: str = "") -> tuple[str, str]:
    """Return the verdict and its reason for an effect that is positive where the claim holds.

    ``unlike_paper`` says why the result cannot be the paper's, and ``incomplete`` which part of the claim was not run;
    with either, the verdict is `same direction` instead of `reproduced`. ``void`` says why the comparison supports no
    conclusion; then the verdict is `open`.
    """
    if void or isnan(support.low):
        verdict, reason = OPEN, void or "one seed: no interval"
    elif support.low > 0:
        verdict, reason = SAME if unlike_paper or incomplete else REPRODUCED, "the interval excludes the contrary"
    elif support.high < 0:
        verdict, reason = DEVIATES, "the interval excludes what is claimed"
    else:
        verdict, reason = OPEN, "the interval holds both"
    why_unlike, _, _ = unlike_paper.partition(";")  # what follows is about printed numbers: "; the figure is of ..."
    return verdict, "; ".join(filter(None, (reason, why_unlike, incomplete)))


class _Statement(BaseModel):
    """The fields of a :data:`~.claims.Claim` that ``claims.json`` has beside those of its verdict."""

    id: str
    also: tuple[str, ...]
    place: str
    kind: str
    says: str
    headline: bool
    printed: tuple[str, ...]


class JudgedClaim(Verdict, _Statement):
    """A claim with its verdict."""


class Ledger(BaseModel):
    """The contents of ``claims.json``: the scale of the experiment (``tier``), ``marks`` (words on the tier and the
    origin of the cases), ``decoding``, ``judges`` (sentences about who judged the diagnoses), a ``headline`` with the
    ``counts`` by verdict (:func:`count_verdicts`), and the ``claims``."""

    model_config = ConfigDict(hide_input_in_errors=True)

    tier: str | None
    marks: str = ""
    decoding: str = ""
    judges: tuple[str, ...] = ()
    headline: str
    counts: dict[str, int]
    claims: list[JudgedClaim]


def count_verdicts(claims: Sequence[JudgedClaim]) -> tuple[str, dict[str, int]]:
    """Count claims by verdict. Returns a headline (``443 claims: 73 measured, ...``), and the counts in the order of
    the page."""
    counted = Counter(UNDECIDABLE if claim.kind == UNDECIDABLE else claim.verdict for claim in claims)
    sums = {name: sum(counted[verdict] for verdict in verdicts) for name, verdicts in _SUMS.items()}
    headline = f"{len(claims)} claims: " + ", ".join(f"{n} {name}" for name, n in sums.items() if n)
    # Verdicts that are not in COUNTED, if there are any, come last.
    return headline, {name: counted[name] for name in (*COUNTED, *counted)}


def read_ledger(settings: Settings, path: Path) -> Ledger | None:
    """Read ``claims.json``; returns None where there is none. Raises ProvenanceError for a file that is no ledger, and
    for one of another tier (scale of the experiment) than the settings."""
    if not path.exists():
        return None
    try:
        ledger = Ledger.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise ProvenanceError(f"{path}: no ledger of claims ({error}); remove it and run `snakemake --cores all "
                              "claims`") from error  # fmt: skip
    check_tier(settings, path, ledger.tier)
    return ledger
