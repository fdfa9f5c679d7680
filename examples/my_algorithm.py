"""RLOO (Ahmadian et al. 2024) as a training rule from outside the package, into tables and figures of the workflow:

    PYTHONPATH=examples snakemake --cores all --configfile config/ci.yaml examples/my_algorithm.yaml -- \\
      comparators plot_accuracy_cost

The row *RLOO* is then in results/ci/tables/comparators.md, and its point in results/ci/figures/accuracy_cost.png. In
Python: Settings(training={"algorithm": "my_algorithm:Rloo"}), as in train_cdpr.py.
"""

from cdpr import Algorithm, Group, GroupAdvantages, repeat_over_decisions


class Rloo(Algorithm):
    """A = outcome of a trajectory, less the mean outcome of the others of its group; nothing is divided."""

    reads = ()

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Advantages of the n trajectories of one case, the same for every decision of a trajectory."""
        scores = [float(trajectory.correct) for trajectory in group]
        others = max(1, len(scores) - 1)
        advantages = [score - (sum(scores) - score) / others for score in scores]
        return GroupAdvantages(decisions=repeat_over_decisions(advantages, group), scores=scores)
