"""Trajectory scores from process rewards (paper, section "Training with Counterfactual Process Reward"), the records of
credit assignment state by state, and the metrics of a batch for the log."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from ..environment import Trajectory
from ..environment.utility import utility
from ..settings import Credit, Tests, Utility
from .states import ActionKey

#: R_proc of each decision of a trajectory; None where the state was not selected or not valued.
ProcessRewards = Sequence[float | None]


def weighted_rewards(process: ProcessRewards, credit: Credit) -> list[float]:
    """Multiply the process rewards of a trajectory by beta (equation "combined reward"). Returns beta R_proc for each
    decision, 0 where its state was not selected or its action has no value."""
    return [credit.beta * (r or 0.0) for r in process]


def step_scale(processes: Sequence[ProcessRewards], rule: str) -> float:
    """Compute the number by which the step-level process rewards of a batch are divided.

    ``processes`` has R_proc of each decision for every trajectory, None without a reward. ``rule`` is
    ``credit.step_scale``. Under ``none`` the number is 1. Under ``credited`` it is the root mean square of the rewards
    over the decisions that have one; under ``all`` over all decisions, where a missing reward counts as 0. It is also 1
    where all rewards are zero.
    """
    rewards = [r or 0.0 for process in processes for r in process if r is not None or rule == "all"]
    if rule == "none" or not any(rewards):
        return 1.0
    return math.sqrt(fmean(r**2 for r in rewards))


def process_score(process: ProcessRewards, credit: Credit) -> float:
    """Compute the process part of a trajectory's score: the sum of beta R_proc over the decisions that have a reward,
    or its mean where ``credit.aggregate`` is ``mean``. It is 0 where no decision has a reward."""
    selected = [credit.beta * r for r in process if r is not None]
    if not selected:
        return 0.0
    return fmean(selected) if credit.aggregate == "mean" else math.fsum(selected)


def trajectory_score(outcome: float, process: ProcessRewards, credit: Credit) -> float:
    """Compute the score of a trajectory, G(tau) = R_out + beta * sum over S* of R_proc, equation "trajectory score".

    ``outcome`` is R_out (0 or 1), ``process`` R_proc of each decision (None: it has none), both in units of utility.
    S* are the decisions that have a reward. ``credit`` holds beta, and ``aggregate``: ``mean`` takes the mean over S*
    in place of the sum.
    """
    return outcome + process_score(process, credit)


# Records


@dataclass(frozen=True)
class CandidateValue:
    """The estimated value U_hat(s, a) of one action: ``value``, None where all requests for it failed. ``in_top_m``
    says that the action is in the candidate set A_c(s).

    Means over the continuations of the action, with the action's own effort: ``correct``, ``tests`` (examinations with
    a result), ``cost_usd`` and ``infeasible`` requests. Counts of continuations by their source: ``suffixes`` were made
    from the group's own trajectories, ``cached`` come from the cache, ``fresh`` were drawn. ``failed`` counts those
    that are missing because their request failed.
    """

    action: ActionKey
    in_top_m: bool
    value: float | None
    correct: float = 0.0
    tests: float = 0.0
    cost_usd: float = 0.0
    infeasible: float = 0.0
    suffixes: int = 0
    cached: int = 0
    fresh: int = 0
    failed: int = 0


@dataclass(frozen=True)
class SampledAction:
    """An action sampled at a state: its share ``p`` of the samples, and the token ids of one reply that takes it."""

    action: ActionKey
    p: float
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class StateCredit:
    """One state of a group, for the record. ``evidence`` has for each step before it the kind of the observation and
    the examination, such as ("result", "CBC"). ``visits`` has a pair of indices (trajectory, decision) for each visit.
    ``entropy`` is U(s) in nats, None where it was not measured. ``reason`` says why the state was selected for credit:
    ``disagreed``, ``entropy`` or ``all``; it is empty where it was not selected. ``actions`` are those sampled there,
    ``candidates`` those whose value was estimated."""

    evidence: tuple[ActionKey, ...]
    visits: tuple[tuple[int, int], ...]
    entropy: float | None
    reason: str
    actions: list[SampledAction]
    candidates: tuple[CandidateValue, ...]


# The names of the counts of a report, in the order of the log.
COUNTS: tuple[str, ...] = ("probes", "fresh", "cached", "suffixes", "failed", "unvalued", "clipped")
COUNTS += ("probe_tokens", "continuation_tokens")


@dataclass
class CreditReport:
    """The credit of one group. ``process[i][t]`` is R_proc of decision t of trajectory i, None where the state was not
    selected or its action has no value. ``states`` describes every state of the group.

    ``counts`` are numbers by name: sampled next actions (``probes``) and their tokens; continuations that are
    ``fresh``, ``cached`` or made from ``suffixes`` of the group, and their tokens; ``failed`` requests; decisions
    without a value because of these (``unvalued``); ``clipped`` rewards.
    """

    process: list[list[float | None]]
    states: list[StateCredit] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))

    def as_record(self, step: int, group: Sequence[Trajectory]) -> dict[str, Any]:
        """The credit of ``group`` in one iteration (``step``, from 1) in JSON values: an element of ``groups`` in a
        line of the file ``credit.jsonl.gz``. ``outcomes`` says which trajectories were right. A record has names of
        examinations and token ids of replies, so the file must stay with the cases.

        It is faster than ``dataclasses.asdict``, which copies every value and takes 4% of the time of a training
        step."""
        outcomes, states = [trajectory.correct for trajectory in group], []
        for state in self.states:
            actions, candidates = [*map(vars, state.actions)], [*map(vars, state.candidates)]
            states.append(vars(state) | {"actions": actions, "candidates": candidates})
        row = {"step": step, "case": group[0].case.note_id, "outcomes": outcomes}
        return row | {"process": self.process, "states": states}


# Metrics for the log


def summarise(reports: Sequence[CreditReport], credit: Credit) -> dict[str, float]:
    """Summarise the credit of a batch, given as one report per group: returns the metrics ``credit/...`` by name. They
    say how many states were selected, how many requests the estimates took, and how large the process rewards are.

    ``credit/corr_selected_bonus`` is the correlation, over trajectories, between the number of rewarded decisions and
    the bonus that these rewards add to the score. Far from zero, the process reward favours longer (or shorter)
    episodes.
    """
    states = [state for report in reports for state in report.states]
    entropies = [state.entropy for state in states if state.entropy is not None]
    # For each trajectory: R_proc of its decisions, the number of rewards among these, and what they add to its score.
    processes = [process for report in reports for process in report.process]
    rewards = [r for process in processes for r in process if r is not None]
    rewarded = [sum(r is not None for r in process) for process in processes]
    bonus = [process_score(process, credit) for process in processes]
    return {
        "credit/states": len(states),
        "credit/selected_share": sum(state.reason != "" for state in states) / max(1, len(states)),
        "credit/disagreed_share": sum(state.reason == "disagreed" for state in states) / max(1, len(states)),
        "credit/entropy": fmean(entropies) if entropies else 0.0,
        "credit/candidates": sum(len(state.candidates) for state in states),
        "credit/selected_per_trajectory": fmean(rewarded) if rewarded else 0.0,
        "credit/r_proc_mean": fmean(rewards) if rewards else 0.0,
        "credit/r_proc_std": stdev(rewards) if len(rewards) > 1 else 0.0,
        "credit/corr_selected_bonus": _correlate(rewarded, bonus),
        **{f"credit/{name}": sum(report.counts[name] for report in reports) for name in COUNTS},
    }


def _correlate(first: Sequence[float], second: Sequence[float]) -> float:
    """Compute Pearson's correlation of two sequences of one length. It is 0 where one of them is constant or has fewer
    than two values. ``statistics.correlation`` is not used, because its last bits differ between versions of Python."""
    if len(first) < 2:
        return 0.0
    x, y = ([value - fmean(values) for value in values] for values in (first, second))  # centred
    norm = math.sqrt(math.fsum(value * value for value in x) * math.fsum(value * value for value in y))
    return math.fsum(map(operator.mul, x, y)) / norm if norm else 0.0


def verdicts(correct: Sequence[float]) -> str:
    """Write verdicts as a string with one character per episode: ``1`` for a right diagnosis, ``0`` for a wrong one,
    ``-`` for NaN, an episode that failed. For example ``[1, 0, nan]`` becomes ``10-``."""
    return "".join("-" if math.isnan(c) else str(int(c)) for c in correct)


def summarise_episodes(trajectories: Sequence[Trajectory], weights: Utility, tests: Tests) -> dict[str, float]:
    """Compute the means over episodes, by name: ``accuracy`` and the share of ``forced`` diagnoses (0 to 1), issued
    examinations (``aen``), US dollars (``aec``), infeasible requests (``n_na``), items of the ``physical`` examination,
    ``utility`` and ``turns``. ``weights`` and ``tests`` are the settings of the utility. Raises StatisticsError without
    episodes."""
    efforts = [t.effort() for t in trajectories]
    return {
        "accuracy": fmean(t.correct for t in trajectories),
        "aen": fmean(e.issued for e in efforts),
        "aec": fmean(e.cost_usd for e in efforts),
        "n_na": fmean(e.infeasible for e in efforts),
        "physical": fmean(e.physical for e in efforts),
        "utility": fmean(utility(t.correct, e, weights, tests) for t, e in zip(trajectories, efforts, strict=True)),
        "forced": fmean(t.forced for t in trajectories),
        "turns": fmean(len(t.steps) for t in trajectories),
    }
