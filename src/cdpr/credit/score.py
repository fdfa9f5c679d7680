"""From process rewards to scores (paper, section "Training with Counterfactual Process Reward")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from ..settings.credit import Credit

ProcessRewards = Sequence[float | None]
"""R_proc of each decision of a trajectory; None where the state was not selected or not valued."""


def bounded(value: float, c: float) -> float:
    """``value`` clipped to [-c, c]."""
    return max(-c, min(c, value))


def weighted_rewards(process: ProcessRewards, credit: Credit) -> list[float]:
    """beta 1(s_t in S*) R_proc(s_t, a_t), the process part of equation "combined reward", per decision."""
    rewards = [credit.beta * (r or 0.0) for r in process]
    return [bounded(r, credit.clip) for r in rewards] if credit.clip_applies_to == "weighted" else rewards


def step_scale(processes: Sequence[ProcessRewards], rule: str) -> float:
    """What step-level process rewards of a batch are divided by (``credit.step_scale``): 1, or their root mean square
    over the ``credited`` decisions or over ``all`` of them; 1 also where every reward is zero."""
    rewards = [r for process in processes for r in process if r is not None or rule == "all"]
    if rule == "none" or not any(rewards):
        return 1.0
    return math.sqrt(fmean((r or 0.0) ** 2 for r in rewards))


def process_score(process: ProcessRewards, credit: Credit) -> float:
    """The process part of the trajectory score: the sum (or mean over selected states) of beta R_proc."""
    selected = [w for w, r in zip(weighted_rewards(process, credit), process, strict=True) if r is not None]
    if not selected:
        return 0.0
    total = fmean(selected) if credit.aggregate == "mean" else sum(selected)
    return bounded(total, credit.clip) if credit.clip_applies_to == "sum" else total


def trajectory_score(outcome: float, process: ProcessRewards, credit: Credit) -> float:
    """G(tau) = R_out + beta * sum over S* of R_proc, equation "trajectory score"."""
    return outcome + process_score(process, credit)
