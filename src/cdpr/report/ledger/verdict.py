"""Verdicts on claims, and the rules that all kinds of claims share.

A printed number is compared with ours only on the paper's cases, on as many as it states, at tier `paper`, with the
paper's backbone model and a language model as judge. Elsewhere its verdict is `not run`, and a claimed direction is
`same direction` at best.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan, nan
from typing import Any, NamedTuple

import numpy as np

from ...evaluation.significance import percentile_interval
from ...settings import seeds_of_runs
from ..methods import unique_runs

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

# A verdict on a claim by field; :func:`verdict_of` says which fields there are.
Verdict = dict[str, Any]


def verdict_of(verdict: str, why: str, **fields: Any) -> Verdict:
    """Return a ``verdict`` on a claim with its reason ``why``, and what was measured, of which ``fields`` has what is
    known: the number ``measured`` with the ends ``low`` and ``high`` of its 95% interval, in ``unit``.

    - ``k``: the number of right diagnoses among ``n`` cases. For the average, in which data sets count alike, ``k`` is
      empty and ``n`` lists the numbers of cases.
    - ``scope``: where a method is claimed to be the best of many and not all were run, among how many it was compared
      (``of the 7 rows run``).
    - ``runs``: those that the verdict rests on; ``seeds``: their training seeds.
    """
    return {"verdict": verdict, "why": why, "measured": None, "low": None, "high": None, "unit": "", "k": "", "n": None,
            "scope": "", "seeds": (), "runs": ()} | fields  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """What a claim is judged by.

    - ``measured``: a statistic of the compared methods, in ``unit``, such as the difference of their accuracies.
    - ``text``: what was compared (``CDPR 53.07 against GRPO 47.33``).
    - ``support``: how far the statistic is on the claimed side, with its interval; positive where the claim holds.
    - ``void``: why the comparison supports no conclusion, whatever its interval; empty where it can.
    - ``k``, ``n``, ``runs``: those of :func:`verdict_of`.
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
        return verdict_of(verdict, why, measured=measured, low=low, high=high, unit=self.unit, k=self.k, n=self.n,
                          seeds=seeds, runs=runs)  # fmt: skip


def judge_all(comparisons: Sequence[Comparison], unlike_paper: str = "", incomplete: str = "") -> Verdict:
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


def count_verdicts(claims: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, int]]:
    """Count claims by verdict. Returns a headline (``443 claims: 73 measured, ...``), and the counts in the order of
    the page."""
    counted = Counter(UNDECIDABLE if claim["kind"] == UNDECIDABLE else claim["verdict"] for claim in claims)
    sums = {name: sum(counted[verdict] for verdict in verdicts) for name, verdicts in _SUMS.items()}
    headline = f"{len(claims)} claims: " + ", ".join(f"{n} {name}" for name, n in sums.items() if n)
    # Verdicts that are not in COUNTED, if there are any, come last.
    return headline, {name: counted[name] for name in (*COUNTED, *counted)}
