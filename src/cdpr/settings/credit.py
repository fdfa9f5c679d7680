"""Settings of the counterfactual process reward, which compares the action that was taken with other actions in the
same state, and of the algorithms that it is compared with."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from .section import Section, key


class ContinuationSettings(Section):
    """Settings of continuations: rollouts from a state and an action to a diagnosis, which estimate the action's
    value."""

    #: The policy that acts in continuations.
    policy: Literal["frozen_init", "current"] = key("frozen_init", paper="frozen for the entire run", decision="D2")


class Cache(Section):
    """Settings of the cache of continuations, which keeps those of each state for the next time that the state is
    reached."""

    #: How long continuations are kept: as long as their policy stays the same, within a batch, or not at all.
    scope: Literal["run", "batch", "off"] = key("run", paper="rollouts not reused across iterations", decision="D3")
    #: States kept; a full cache removes the one stored longest ago. A state that is used is stored again.
    capacity: PositiveInt = key(8192, paper="The continuation cache has capacity 8192 entries")
    #: `partial`: a state's cached ones, then new ones up to K; `strict`: cached ones only if there are K.
    fill: Literal["partial", "strict"] = key("partial", decision="D3a")
    #: Continuations added whenever a state that has K or more is reached again; 0: the paper's rule.
    grow: NonNegativeInt = key(1, decision="D3")
    #: Which suffixes of the group count as continuations: those behind states where its trajectories take different
    #: actions, all, or none.
    reuse_group: Literal["branching", "every", "none"] = key(
        "branching", paper="the suffixes of these trajectories form a pool", decision="D4a"
    )
    #: Suffixes beyond H: `cut`, a diagnosis is forced; `drop`, not used (favours early endings); `keep`, used whole.
    long_suffixes: Literal["cut", "drop", "keep"] = key("cut", decision="D4")


class Credit(Section):
    """Settings of the counterfactual process reward R_proc of single decisions: how it is estimated, and how it enters
    the advantages."""

    beta: NonNegativeFloat = key(0.5, "Weight of the process reward.", paper="weight beta = 0.5")
    candidates: PositiveInt = key(4, "M: candidate actions per state.", paper="top-M candidate actions M=4")
    continuations: PositiveInt = key(4, "K: continuations per candidate.", paper="K=4 continuations per branch")
    #: H: decisions of a continuation before a diagnosis is forced.
    horizon: NonNegativeInt = key(3, paper="continuation horizon H=3")
    #: n_s: next actions drawn to measure uncertainty.
    samples: PositiveInt = key(8, paper="n_s=8 action samples for uncertainty estimation")
    #: Whether the group's own actions at a state are among its n_s samples.
    own_actions: Literal["counted", "apart"] = key("counted", decision="D8")
    #: Value of a continuation's diagnosis: whether the name drawn is right, or the probability that the policy names
    #: the truth (it must give log-probabilities).
    verdicts: Literal["drawn", "scored"] = key("drawn", paper="K=4 continuations per branch", decision="D4c")
    threshold: float = key(0.5, "eta: entropy from which a state is evaluated.", paper="uncertainty threshold eta=0.5")
    select_all: bool = key(False, "Evaluate every state (the paper's 'w/o state selection').")
    #: Whether states where the group disagrees (cache-disagreed) are selected too.
    select_disagreed: bool = key(True, paper="Unified State Selection: the union of both sets", decision="D9")
    #: Most states evaluated per trajectory, cache-disagreed ones first; empty: all.
    max_states: int | None = key(None, paper="preferred when the budget is limited", decision="D9", gt=0)
    #: Which states of a group are one: those with the same evidence in the same order, in any order, or no two.
    merge: Literal["ordered", "set", "none"] = key(
        "ordered", paper="share both the case description and the observed examination history", decision="D7"
    )
    #: Whether all diagnoses are one action or each disease is its own.
    diagnoses: Literal["one_action", "by_text"] = key("one_action", decision="D7")
    #: Mean over candidates that R_proc subtracts: plain, weighted by p_hat (sampled shares), or without the action.
    baseline: Literal["uniform", "policy_weighted", "leave_one_out"] = key(
        "uniform", paper="Eq. process reward", decision="D5"
    )
    clip: PositiveFloat = key(1.0, "c: bound of each R_proc, before beta.", paper="c=1.0", decision="D12")
    #: How a trajectory's process rewards are combined.
    aggregate: Literal["sum", "mean"] = key("sum", paper="Eq. trajectory score", decision="D1")
    #: Process rewards enter the trajectory score, or each the advantage of its own decision.
    level: Literal["trajectory", "step"] = key("trajectory", paper="Eq. trajectory score", decision="D1")
    #: What R_proc is divided by under `level: step`. `credited`: its root mean square over the credited decisions;
    #: `all`: over all of the batch, where it is 0 without credit.
    step_scale: Literal["none", "credited", "all"] = key("none", paper="r_t = R_out + beta R_proc", decision="D1b")
    #: Under `level: trajectory`: whether the score is normalised whole, or outcome and process part each before beta
    #: weighs them.
    normalise: Literal["together", "apart"] = key("together", paper="Eq. group-relative advantage of G", decision="D1a")
    continuation: ContinuationSettings = Field(default_factory=ContinuationSettings, description="How they are made.")
    cache: Cache = Field(default_factory=Cache, description="The rollout cache.")


class Comparators(Section):
    """Settings of the return, weighted correctness minus costs, that all algorithms but GRPO and CDPR maximise."""

    #: w: weight of correctness in the return of all algorithms but GRPO and CDPR.
    correctness_weight: PositiveFloat = key(1.0)
