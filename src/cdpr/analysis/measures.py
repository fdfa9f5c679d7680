"""How far replicated estimates of advantages lie from the truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from .workups import Workups


def measures(estimates: np.ndarray, workups: Workups) -> dict[str, float]:
    """Measures of ``estimates`` (replicates x decisions), in units of utility where they are no shares.

    Replicates share their workups: what the workups themselves owe to chance is part of the bias of a decision and of
    ``rmse``, not of ``variance``. ``bias`` is a mean over decisions, in which errors of either sign cancel,
    ``bias_error`` its standard error over cases; ``bias_rms`` the root mean square of the bias of single decisions,
    free of the noise of estimates and truth.
    """
    deviation = estimates - workups.advantage
    bias, square = deviation.mean(axis=0), float((deviation**2).mean())
    variance = float(estimates.var(axis=0, ddof=1).mean())
    known = np.abs(workups.advantage) > 2 * workups.error
    return {
        "bias": float(bias.mean()),
        "bias_error": clustered_error(bias, [g for g, _, _ in workups.decisions]),
        "bias_examinations": _mean(bias[~workups.ends]),
        "bias_diagnoses": _mean(bias[workups.ends]),
        "bias_rms": max(0.0, square - variance - float((workups.error**2).mean())) ** 0.5,
        "variance": variance,
        "rmse": square**0.5,
        "rank_correlation": float(np.mean([rank_correlation(row, workups.advantage) for row in estimates])),
        "right_signs": _mean((np.sign(estimates) == np.sign(workups.advantage))[:, known]),
    }


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's correlation; 0 where one side is constant."""
    ranks = rankdata(x), rankdata(y)
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def clustered_error(values: np.ndarray, clusters: Sequence[int]) -> float:
    """Standard error of a mean whose values depend on each other within clusters; 0 of one cluster."""
    sums = np.bincount(clusters, weights=values - values.mean())
    count = len(set(clusters))
    return float(np.sqrt((sums**2).sum() * count / (count - 1)) / len(values)) if count > 1 else 0.0


def _mean(values: np.ndarray) -> float:
    """The mean; 0 of nothing."""
    return float(values.mean()) if values.size else 0.0
