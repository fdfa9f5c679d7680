"""CDPR: outcome reward plus counterfactual process rewards (paper, "Training with Counterfactual Process Reward")."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...credit import scores
from ...credit.process_reward import GroupCredit, ProcessReward
from ...credit.scores import CreditRow, ProcessRewards
from ...environment.utility import outcome_reward
from ...settings import Settings
from ..algorithm import Algorithm, Context, Group, GroupAdvantages, equal_share, every_decision


@dataclass(kw_only=True)
class _CreditedGroup(GroupAdvantages):
    """Advantages with the credit that they come from."""

    credit: GroupCredit


class Cdpr(Algorithm):
    """A = group-relative G, with G = R_out + beta * sum of R_proc over the selected states."""

    reads = ("training.normalise", "utility", "credit")

    def __init__(self, context: Context):
        super().__init__(context)
        self.credit = context.settings.credit
        continues = context.frozen() if self.needs_frozen(context.settings) else context.policy
        self.process_reward = ProcessReward(
            context.environment, context.policy, continues, self.credit, context.settings.utility, context.seed
        )

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute the process rewards of a group, and the advantage of each trajectory. With ``credit.level: step``
        this is the advantage of the outcome, to which :meth:`finish` adds the process rewards."""
        credit = self.process_reward.open_group(group, iteration)
        await credit.score()
        process, outcome = credit.report.process, [outcome_reward(trajectory) for trajectory in group]
        if self.credit.level == "step":
            totals, decisions = outcome, every_decision(self.normalised(outcome), group)
        elif self.credit.normalise == "apart" and self.credit.beta > 0:
            totals, advantages = self._apart(outcome, process)
            decisions = every_decision(advantages, group)
        else:
            totals = [scores.trajectory_score(r, p, self.credit) for r, p in zip(outcome, process, strict=True)]
            decisions = every_decision(self.normalised(totals), group)
        correct = [trajectory.correct for trajectory in group]
        row = CreditRow(iteration + 1, group[0].case.note_id, correct, process, credit.report.states)
        return _CreditedGroup(decisions=decisions, scores=totals, record=row, credit=credit)

    def _add_step_level(self, batch: Sequence[_CreditedGroup]) -> None:
        """Add beta R_proc(s_t, a_t), divided by the scale of ``credit.step_scale``, to the advantage of each
        decision."""
        processes = [rewards for scored in batch for rewards in scored.credit.report.process]
        scale = scores.step_scale(processes, self.credit.step_scale)
        for scored in batch:
            for steps, rewards in zip(scored.decisions, scored.credit.report.process, strict=True):
                weighted = scores.weighted_rewards(rewards, self.credit)
                steps[:] = [a + w / scale for a, w in zip(steps, weighted, strict=True)]

    def _apart(self, outcome: list[float], process: Sequence[ProcessRewards]) -> tuple[list[float], list[float]]:
        """Compute the scores and the advantages of a group where its outcomes R_out and process parts P are normalised
        apart: A(R_out) + beta A(P). Where all outcomes are equal, the advantages have the size of beta."""
        beta = self.credit.beta
        part = [scores.process_score(rewards, self.credit) / beta for rewards in process]
        totals = [r + beta * p for r, p in zip(outcome, part, strict=True)]
        advantages = zip(self.normalised(outcome), self.normalised(part), strict=True)
        return totals, [of_outcome + beta * of_process for of_outcome, of_process in advantages]

    def finish(self, batch: Sequence[GroupAdvantages]) -> dict[str, float]:
        """Complete the advantages of a batch and return its metrics. Step-level credit is added here, because its scale
        depends on the whole batch. Continuations are stored in the rollout cache after all groups are scored, so that
        no group depends on which other one finished first."""
        credited = [scored for scored in batch if isinstance(scored, _CreditedGroup)]
        if self.credit.level == "step":
            self._add_step_level(credited)
        for scored in credited:
            scored.credit.pools.store()
        metrics = scores.summarise([scored.credit.report for scored in credited], self.credit) | super().finish(batch)
        outcomes = [list(map(outcome_reward, scored.credit.group)) for scored in credited]
        return metrics | {"credit/equal_outcome_groups": equal_share(outcomes)}

    def state_dict(self) -> Any:
        """The rollout cache, and the version of the policy whose continuations it has."""
        return self.process_reward.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.process_reward.load_state_dict(state)

    @classmethod
    def canonical(cls, settings: Settings) -> Settings:
        """The settings of GRPO where beta is 0: without the process reward both train the same policy."""
        if settings.credit.beta:
            return settings
        return settings.model_copy(update={"training": settings.training.model_copy(update={"algorithm": "grpo"})})

    @classmethod
    def needs_frozen(cls, settings: Settings) -> bool:
        """Whether continuations come from the frozen initial policy, not from the current one."""
        return settings.credit.continuation.policy == "frozen_init"

    @classmethod
    def scores_by(cls, settings: Settings) -> set[str]:
        """No policy where ``credit.verdicts`` is ``drawn``. Else the policy of continuations, which scores their
        diagnoses, and the current one, which scores those at visited states."""
        if settings.credit.verdicts == "drawn":
            return set()
        continues = {"frozen" if cls.needs_frozen(settings) else "current"}
        return continues | ({"current"} if settings.credit.diagnoses == "one_action" else set())
