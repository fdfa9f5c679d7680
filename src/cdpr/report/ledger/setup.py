"""Verdicts on claims about the setup: whether the settings, the workflow and its prices are as the paper says."""

import math
from typing import Any

from ...costs import price_of
from ...settings import job_of, labels_of, sweeps, value_at
from ..methods import AGENTS, DATASETS
from ..results import NotMeasured
from .claims import SetupClaim
from .evidence import Evidence
from .verdict import OTHERWISE, STATED, Verdict


def judge_setup(claim: SetupClaim, evidence: Evidence) -> Verdict:
    """Compare a value of the setup with that of the claim. Returns the verdict `as stated` or `set otherwise`. Raises
    NotMeasured for a claim about numbers of cases where our cases are not the paper's, or were not evaluated."""
    value, description = _find_value(claim, evidence)
    cases = value if claim.what == "cases" else None
    return Verdict(STATED if _equal(value, claim.value) else OTHERWISE, description, n=cases)


def _find_value(claim: SetupClaim, evidence: Evidence) -> tuple[Any, str]:
    """Return the value of the setup that a claim is about, and a sentence that describes it. ``claim.what`` says which
    value. For ``settings``, a dict of several, the sentence names those that differ from the claim, or all where none
    does. Raises as :func:`judge_setup`."""
    settings, names = evidence.settings, claim.names
    match claim.what:
        case "cases":
            if reason := evidence.why_other_cases(names[0]):
                raise NotMeasured(reason.replace("figure is", "number is"))  # the paper's number of cases
            # All methods have the same cases; counted are those of the policy before training.
            cases = evidence.summary(evidence.method("warm_start"), names[0])["n"]
            return cases, f"{cases} test cases were evaluated"
        case "settings":
            expected: dict[str, Any] = claim.value  # type: ignore[assignment]
            values = {name: value_at(settings, name) for name in expected}
            different = [name for name in expected if not _equal(values[name], expected[name])]
            return values, ", ".join(f"{name} = {_show(values[name])}" for name in different or expected)
        case "same_training":
            jobs = dict.fromkeys(job_of(settings, evidence.method(name).name) for name in names)
            return len(jobs) == 1, f"trained as {' and '.join(jobs)}"
        case "price":
            price = price_of(names[0], settings.costs)
            code = f" {price.hcpcs}" if price.hcpcs else ""
            return round(price.usd, 2), f"{price.usd:.2f} USD, from {price.source}{code}"
        case "billed_together":
            groups = {name: price_of(name, settings.costs).group for name in names}
            together = len(set(groups.values())) == 1 and None not in groups.values()
            first_group = groups[names[0]]
            return together, f"billed as {first_group if together else groups}"
    methods = evidence.results.methods
    number = {  # everything else is a number; one data set is in-domain, and CDPR itself is no ablation of it
        "benchmarks": len(DATASETS),
        "out_of_domain": len(DATASETS) - 1,
        "groups": len({method.group for method in methods if method.paper}),
        "agents": sum(method.group == AGENTS for method in methods),
        "ablations": len(labels_of(settings, "ablations")) - 1,
        "schemes": len(labels_of(settings, "training_efficiency")),
        "sweeps": len(sweeps(settings, "sensitivity")),
    }[claim.what]
    return number, f"this workflow has {number}"


def _equal(value: Any, expected: Any) -> bool:
    """Tell whether two values are equal. Numbers are compared up to rounding, and dicts (settings by name) by the keys
    of ``expected`` alone."""
    if isinstance(expected, dict):
        return all(_equal(value[name], other) for name, other in expected.items())
    # In Python a boolean is also an integer.
    if all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in (value, expected)):
        return math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-12)
    return value == expected


def _show(value: Any) -> str:
    """Return the value of a setting as text: ``none`` for None, floats without trailing zeros."""
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
