"""How far two judges agree on the same diagnoses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .statistics import crossed_bootstrap, percentile_interval


@dataclass(frozen=True)
class Agreement:
    """Verdicts of two judges: how many, how many the two call right, on which they differ, and Cohen's kappa with its
    95% interval; None where chance alone would make them agree always, since each says one thing only."""

    verdicts: int
    first: int
    second: int
    only_first: int
    only_second: int
    kappa: float | None
    low: float | None
    high: float | None

    @property
    def agreed(self) -> float:
        """Share of the verdicts that are the same."""
        return 1 - (self.only_first + self.only_second) / self.verdicts


def agreement(counts: ArrayLike, resamples: int, seed: int, place: str = "") -> Agreement:
    """Agreement of two judges. ``counts`` [cases, 4] are, case by case, the verdicts that both call right, the first
    alone, the second alone, and neither: a case that several agents worked up has several.

    The interval resamples cases, since diagnoses of one case are no independent sample. Raises ValueError without
    verdicts.
    """
    table = np.asarray(counts, dtype=float)
    both, only_first, only_second, _ = (int(n) for n in table.sum(axis=0))
    if not table.sum():
        raise ValueError("there are no verdicts to compare")
    kappa = float(cohens_kappa(table.sum(axis=0)))
    draws = cohens_kappa(crossed_bootstrap(table[None], resamples, seed, place))
    draws = draws[np.isfinite(draws)]
    known = np.isfinite(kappa) and draws.size
    low, high = percentile_interval(draws) if known else (None, None)
    return Agreement(int(table.sum()), both + only_first, both + only_second, only_first, only_second,
                     kappa if known else None, low, high)  # fmt: skip


def cohens_kappa(counts: np.ndarray) -> np.ndarray:
    """Kappa of ``counts`` [..., 4] as of :func:`agreement`, or of anything proportional to them; NaN where chance
    agreement is certain. Source: Cohen, Educ. Psychol. Meas. 20 (1960): (p_o - p_e) / (1 - p_e)."""
    share = counts / counts.sum(axis=-1, keepdims=True)
    both, only_first, only_second, neither = np.moveaxis(share, -1, 0)
    first, second = both + only_first, both + only_second
    chance = first * second + (1 - first) * (1 - second)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance < 1, (both + neither - chance) / (1 - chance), np.nan)
