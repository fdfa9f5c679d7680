"""Claims about the setup: whether the configuration, the workflow and its prices are as the paper says."""

import math
from typing import Any

from ...costs import price_of
from ...settings import job_of, labels_of, sweeps, value_at
from ..methods import AGENTS, DATASETS
from ..results import NotMeasured
from .claims import Claim
from .evidence import Evidence
from .verdict import OTHERWISE, STATED, Verdict


def compare_setup(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare a value of the setup with the claim's: `as stated` or `set otherwise`."""
    value, why = _value_of(claim, evidence)
    cases = value if claim.what == "cases" else None
    return Verdict(STATED if _same(value, claim.value) else OTHERWISE, why, n=cases)


def _value_of(claim: Claim, evidence: Evidence) -> tuple[Any, str]:
    """Return the value of the setup, and a description: of settings only those that differ, if any do."""
    settings, names = evidence.settings, claim.names
    match claim.what:
        case "cases":
            if other := evidence.other_cases(names[0]):
                raise NotMeasured(other.replace("figure is", "number is"))
            cases = evidence.summary(evidence.method("warm_start"), names[0])["n"]
            return cases, f"{cases} test cases were evaluated"
        case "settings":
            expected: dict[str, Any] = claim.value  # type: ignore[assignment]
            value = {name: value_at(settings, name) for name in expected}
            other_values = [name for name in expected if not _same(value[name], expected[name])]
            return value, ", ".join(f"{name} = {_plain(value[name])}" for name in other_values or expected)
        case "same_training":
            jobs = dict.fromkeys(job_of(settings, evidence.method(name).name) for name in names)
            return len(jobs) == 1, f"trained as {' and '.join(jobs)}"
        case "price":
            price = price_of(names[0], settings.costs)
            code = f" {price.hcpcs}" if price.hcpcs else ""
            return round(price.usd, 2), f"{price.usd:.2f} USD, from {price.source}{code}"
        case "billed_together":
            groups = {name: price_of(name, settings.costs).group for name in names}
            one = len(set(groups.values())) == 1 and None not in groups.values()
            return one, f"billed as {next(iter(groups.values())) if one else groups}"
    methods = evidence.results.methods
    number = {
        "benchmarks": len(DATASETS),
        "out_of_domain": len(DATASETS) - 1,
        "groups": len({m.group for m in methods if m.paper}),
        "agents": sum(m.group == AGENTS for m in methods),
        "ablations": len(labels_of(settings, "ablations")) - 1,
        "schemes": len(labels_of(settings, "training_efficiency")),
        "sweeps": len(sweeps(settings, "sensitivity")),
    }[claim.what]
    return number, f"this workflow has {number}"


def _same(value: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return all(_same(value[name], other) for name, other in expected.items())
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (value, expected))
    return math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-12) if numbers else value == expected


def _plain(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
