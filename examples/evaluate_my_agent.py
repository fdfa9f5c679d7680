"""An agent of your own on ten priced cases: python evaluate_my_agent.py

In the workflow it is a line of a settings file, and a row of Table 1 (snakemake --configfile mine.yaml main_table):

    agents:
      count_first: {label: Count first, group: own, acts: "evaluate_my_agent:CountFirst"}
"""

from statistics import fmean

from cdpr import Agent, FinalDiagnosis, RequestTest, State, Turn, evaluate_cases, render_action, synthetic_cases


class CountFirst(Agent):
    """Orders a blood count, then diagnoses by the number of white cells."""

    one_decoding = True  # no language model: greedy and sampled decoding are the same

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """The next reply; with ``forced`` it has to be a diagnosis."""
        if not state.history and not forced:
            return Turn(render_action(RequestTest("Complete Blood Count")))
        last = state.history[-1].observation.text if state.history else ""
        disease = "Pneumonia" if "high" in last or "abnormal" in last else "Gastroenteritis"
        return Turn(render_action(FinalDiagnosis(disease)))


def main() -> None:
    rows = evaluate_cases(CountFirst(), synthetic_cases(10))
    for row in rows:
        verdict = "right" if row.correct else "wrong"
        print(f"{row.gold:32} {row.diagnosis:16} {verdict} {row.cost_usd:6.2f} USD, utility {row.utility:5.2f}")
    print(f"utility {fmean(row.utility for row in rows):.3f}, accuracy {fmean(row.correct for row in rows):.0%}")


if __name__ == "__main__":
    main()
