"""CDPR: outcome reward plus counterfactual process rewards (paper, "Training with Counterfactual Process Reward")."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...credit import scores
from ...credit.process_reward import GroupCredit, ProcessReward
from ...environment.utility import outcome_reward
from ...settings import Settings
from ..algorithm import Algorithm, Context, Group, GroupAdvantages, repeat_over_decisions, share_of_equal_groups


@dataclass(kw_only=True)
class _CreditedGroup(GroupAdvantages):
    """The advantages of a group, with the ``credit`` (process rewards and continuations) from which they were
    computed."""

    credit: GroupCredit


class Cdpr(Algorithm):
    """CDPR: the advantage of a trajectory is its group-relative score G = R_out + beta * sum of R_proc over its
    selected states. R_out is 1 for a right diagnosis and else 0; R_proc is the counterfactual process reward of a
    decision.

    With ``credit.level: step`` the advantage of a decision is the group-relative R_out of its trajectory, plus its own
    beta R_proc divided by a number that ``credit.step_scale`` chooses."""

    reads = ("training.normalise", "utility", "credit")

    def __init__(self, context: Context):
        """Create the process reward. The current policy proposes counterfactual actions; ``credit.continuation.policy``
        says whether the current or the frozen initial policy continues the episode after them."""
        super().__init__(context)
        self.credit = context.settings.credit
        continuing = context.load_frozen_policy() if self.needs_frozen_policy(context.settings) else context.policy
        environment, weights = context.environment, context.settings.utility
        self.process_reward = ProcessReward(environment, context.policy, continuing, self.credit, weights, context.seed)

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute the process rewards of a group, and one advantage for each trajectory from its score G.

        There are three ways. By default the scores G = R_out + beta P are normalised, where P sums the process rewards
        of a trajectory. With ``credit.normalise: apart`` R_out and P are normalised separately, A(R_out) and A(P), and
        the advantage is A(R_out) + beta A(P). With ``credit.level: step`` only R_out counts here:
        :meth:`finish_batch` adds the process rewards."""
        credit = self.process_reward.open_group(group, iteration)
        await credit.score()
        process, outcomes = credit.report.process, [outcome_reward(trajectory) for trajectory in group]
        if self.credit.level == "step":
            totals, advantages = outcomes, self.normalise_scores(outcomes)
        elif self.credit.normalise == "apart" and self.credit.beta > 0:  # with beta = 0 P does not count in any way
            beta = self.credit.beta
            # P of each trajectory; ``process_score`` is beta P.
            sums = [scores.process_score(rewards, self.credit) / beta for rewards in process]
            totals = [outcome + beta * p for outcome, p in zip(outcomes, sums, strict=True)]
            # Where all outcomes are equal, A(R_out) is 0, and the advantages have the size of beta.
            normalised = zip(self.normalise_scores(outcomes), self.normalise_scores(sums), strict=True)
            advantages = [outcome + beta * p for outcome, p in normalised]
        else:
            totals = [scores.trajectory_score(r, p, self.credit) for r, p in zip(outcomes, process, strict=True)]
            advantages = self.normalise_scores(totals)
        record = credit.report.as_record(iteration + 1, group)  # it counts iterations from 1
        decisions = repeat_over_decisions(advantages, group)
        return _CreditedGroup(decisions=decisions, scores=totals, record=record, credit=credit)

    def _add_step_level(self, batch: Sequence[_CreditedGroup]) -> None:
        """Add beta R_proc(s_t, a_t) / scale to the advantage of each decision of the batch, in place. The setting
        ``credit.step_scale`` says how the scale is computed from the R_proc of the batch."""
        processes = [rewards for scored in batch for rewards in scored.credit.report.process]
        scale = scores.step_scale(processes, self.credit.step_scale)
        for scored in batch:
            for advantages, rewards in zip(scored.decisions, scored.credit.report.process, strict=True):
                weighted = scores.weighted_rewards(rewards, self.credit)
                advantages[:] = [a + w / scale for a, w in zip(advantages, weighted, strict=True)]

    def finish_batch(self, batch: Sequence[GroupAdvantages]) -> dict[str, float]:
        """Complete the advantages of a batch and return its metrics. Two things wait until all groups are scored.

        Rewards of single decisions (``credit.level: step``) are added here, because their scale depends on the whole
        batch. Sampled continuations go to the rollout cache here, so that the result does not depend on which group was
        scored first."""
        credited = [scored for scored in batch if isinstance(scored, _CreditedGroup)]
        if self.credit.level == "step":
            self._add_step_level(credited)
        for scored in credited:
            scored.credit.store()
        metrics = scores.summarise([g.credit.report for g in credited], self.credit) | super().finish_batch(batch)
        outcomes = [list(map(outcome_reward, scored.credit.group)) for scored in credited]
        return metrics | {"credit/equal_outcome_groups": share_of_equal_groups(outcomes)}

    def state_dict(self) -> Any:
        """Return the rollout cache (continuations for reuse), and the iteration of the policy that drew them."""
        return self.process_reward.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Restore the rollout cache and the iteration of its policy from ``state``, a result of :meth:`state_dict`."""
        self.process_reward.load_state_dict(state)

    @classmethod
    def canonical_settings(cls, settings: Settings) -> Settings:
        """Return the settings of GRPO if beta is 0, because CDPR without process rewards trains the same policy; else
        ``settings`` unchanged."""
        if settings.credit.beta:
            return settings
        return settings.model_copy(update={"training": settings.training.model_copy(update={"algorithm": "grpo"})})

    @classmethod
    def needs_frozen_policy(cls, settings: Settings) -> bool:
        """Whether continuations come from the frozen initial policy, not from the current one."""
        return settings.credit.continuation.policy == "frozen_init"

    @classmethod
    def scoring_policies(cls, settings: Settings) -> set[str]:
        """Return which policies score given diagnoses. Under ``credit.verdicts: drawn`` none does, because diagnoses
        are sampled. Otherwise the policy that draws continuations scores the diagnoses at their ends. Under
        ``credit.diagnoses: one_action`` the current policy also scores them, for the value of diagnosing at once."""
        if settings.credit.verdicts == "drawn":
            return set()
        of_continuations = {"frozen" if cls.needs_frozen_policy(settings) else "current"}
        return of_continuations | ({"current"} if settings.credit.diagnoses == "one_action" else set())
