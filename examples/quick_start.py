import cdpr
from cdpr.agents.reference import CheapestFirst

cases = cdpr.synthetic_cases(10)
rows = cdpr.evaluate_cases(CheapestFirst(cdpr.Settings(), "private"), cases)
print(f"{sum(row.correct for row in rows)} of {len(rows)} right, utility {sum(row.utility for row in rows) / len(rows):.2f}")
