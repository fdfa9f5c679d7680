import cdpr
from cdpr.agents.reference import CheapestFirst

agent = CheapestFirst(cdpr.Settings(), "private")
for row in cdpr.evaluate_cases(agent, cdpr.synthetic_cases(10)):
    print(row.correct, row.n_tests, f"{row.cost_usd:.2f} USD, utility {row.utility:.2f}")
