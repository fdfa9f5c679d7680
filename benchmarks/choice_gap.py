"""Where a policy falls behind the reference that knows the hospital: by which decisions, at which turns, how much.

Every greedy workup is replayed. At each state the reference (``value_of_information``, two steps ahead) gives the value
of the decision and that of its own best decision, at the correctness weight 3. The differences are summed by kind:

    early     the policy diagnoses, and an examination would have gained
    late      the policy orders, and a diagnosis was best
    other     the policy orders one examination, and another one gains more
    reading   the policy names a disease that the exact posterior finds less likely than its first

Needs evaluations of config/beyond_paper.yaml: snakemake --cores all --configfile config/beyond_paper.yaml -- \
    results/beyond_paper/evaluations/{grid_belief_gain_3e4,grpo}-seed{0,1}/mimic_iv.jsonl
Usage: python benchmarks/choice_gap.py warm_start grid_belief_gain_3e4-seed0 grpo-seed0 [--cases 3000]
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean

from cdpr.agents.reference import ValueOfInformation
from cdpr.cases import iterate_records
from cdpr.credit.states import action_of
from cdpr.environment import DiagnosticEnvironment, FinalDiagnosis, Trajectory, run_episodes
from cdpr.evaluation.row import read_rows, replay
from cdpr.report.inspector.oracle import Oracle
from cdpr.settings import load_settings

WEIGHT, HOSPITAL = 3.0, "mimic_iv"
KINDS = ("early", "late", "other", "reading")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="names of runs in results/beyond_paper/evaluations")
    parser.add_argument("--cases", type=int, default=3000, help="test cases of each run")
    options = parser.parse_args()
    settings = load_settings("config.yaml", "config/beyond_paper.yaml")
    charges = ("lambda_test", "lambda_cost", "lambda_na")
    weights = {name: getattr(settings.utility, name) / WEIGHT for name in charges}
    settings = settings.model_copy(update={"utility": settings.utility.model_copy(update=weights)})
    environment, oracle = DiagnosticEnvironment(settings.environment), Oracle(settings, HOSPITAL)
    folder = Path(settings.paths.results)
    cases = {case.note_id: case for case in iterate_records(folder / "cases" / f"{HOSPITAL}.jsonl", "test")}
    chosen = list(cases.values())[: options.cases]
    names = {case.note_id for case in chosen}

    reference = asyncio.run(run_episodes(environment, ValueOfInformation(settings, HOSPITAL), chosen, 0))
    spent = fmean(workup.effort().cost_usd for workup in reference)
    print(f"reference: accuracy {fmean(workup.correct for workup in reference):.3f} at {spent:.1f} USD")
    for run in options.runs:
        rows = read_rows(folder / "evaluations" / run / f"{HOSPITAL}.jsonl")
        rows = [row for row in rows if row.decoding == "greedy" and row.note_id in names]
        workups = [asyncio.run(replay(environment, cases[row.note_id], row.replies or (), row.forced)) for row in rows]
        report(run, oracle, workups)


def report(run: str, oracle: Oracle, workups: list[Trajectory]) -> None:
    """Print the regret of a run per workup, in points of accuracy: by kind, and by kind and turn."""
    total: Counter[str] = Counter()
    by_turn: dict[int, Counter[str]] = defaultdict(Counter)
    for workup in workups:
        for turn, kind, lost in regrets(oracle, workup):
            total[kind] += lost
            by_turn[turn][kind] += lost
    scale = 100 / len(workups)
    accuracy, spent = fmean(w.correct for w in workups), fmean(w.effort().cost_usd for w in workups)
    print(f"\n{run}: accuracy {accuracy:.3f} at {spent:.1f} USD; lost: {scale * sum(total.values()):.1f} points")
    for label, row in [("all turns", total), *((f"turn {turn + 1}", by_turn[turn]) for turn in sorted(by_turn))]:
        print(f"  {label:<10}" + "".join(f"{kind} {scale * row[kind]:6.2f}   " for kind in KINDS))


def regrets(oracle: Oracle, workup: Trajectory) -> list[tuple[int, str, float]]:
    """(turn, kind, value lost) of each decision; a forced diagnosis can only be misread."""
    rows = []
    for turn, (state, step) in enumerate(zip(workup.states, workup.steps, strict=True)):
        action, end = action_of(step, "by_text"), ("end", "")
        forced = workup.forced and step is workup.steps[-1]
        opinion = oracle.opinion(state, action, [end])
        if isinstance(step.action, FinalDiagnosis):
            stop, value = opinion.values[end], opinion.values[action]
            rows.append((turn, "reading", (stop or 0.0) - (value or 0.0)))
            if not forced:
                rows.append((turn, "early", max(0.0, opinion.best_value - (stop or 0.0))))
        else:
            rows.append((turn, "late" if opinion.best[0] == "end" else "other", opinion.lost or 0.0))
    return rows


if __name__ == "__main__":
    main()
