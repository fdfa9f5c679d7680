"""Claims about the setup: whether the configuration, the workflow and its prices are as the paper says."""

from __future__ import annotations

import math
from typing import Any

from ..costs import load_catalogue, price_of
from ..results.methods import AGENTS, DATASETS
from ..settings import job_of, labels_of, sweeps, value_at
from .claims import SetupClaim
from .evidence import Evidence
from .verdict import OTHERWISE, STATED, NotMeasured, Verdict


def compare_setup(claim: SetupClaim, evidence: Evidence) -> Verdict:
    """`as stated` where what is held here is the claim's value, else `set otherwise`."""
    held, why = _HELD.get(claim.what, _number)(claim, evidence)
    cases = held if claim.what == "cases" else None
    return Verdict(STATED if _same(held, claim.value) else OTHERWISE, why, n=cases)


# Each returns what is held here, and the same in words.


def _cases(claim: SetupClaim, evidence: Evidence) -> tuple[Any, str]:
    """How many test cases the untrained policy was evaluated on."""
    (on,) = claim.names
    if other := evidence.other_cases(on):
        raise NotMeasured(other.replace("figure is", "number is"))
    cases = evidence.summary(evidence.method("warm_start"), on).cases
    return cases, f"{cases} test cases were evaluated"


def _settings(claim: SetupClaim, evidence: Evidence) -> tuple[Any, str]:
    """Settings by dotted name; in words only those that differ, if any do."""
    expected: dict[str, Any] = claim.value  # type: ignore[assignment]
    held = {name: value_at(evidence.settings, name) for name in expected}
    other = [name for name in expected if not _same(held[name], expected[name])]
    return held, ", ".join(f"{name} = {_plain(held[name])}" for name in other or expected)


def _number(claim: SetupClaim, evidence: Evidence) -> tuple[Any, str]:
    """How many of something this workflow has."""
    settings, methods = evidence.settings, evidence.results.methods
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


def _same_training(claim: SetupClaim, evidence: Evidence) -> tuple[Any, str]:
    """Whether variants come to one training."""
    jobs = dict.fromkeys(job_of(evidence.settings, evidence.method(name).name) for name in claim.names)
    return len(jobs) == 1, f"trained as {' and '.join(jobs)}"


def _price(claim: SetupClaim, evidence: Evidence) -> tuple[Any, str]:
    """What an examination is charged here, USD."""
    price = price_of(claim.names[0], evidence.settings.costs, load_catalogue())
    code = f" {price.hcpcs}" if price.hcpcs else ""
    return round(price.usd, 2), f"{price.usd:.2f} USD, from {price.source}{code}"


def _billed_together(claim: SetupClaim, evidence: Evidence) -> tuple[Any, str]:
    """Whether examinations are one billing event."""
    prices = {name: load_catalogue().find(name) for name in claim.names}
    groups = {name: price.group if price else None for name, price in prices.items()}
    one = len(set(groups.values())) == 1 and None not in groups.values()
    return one, f"billed as {next(iter(groups.values())) if one else groups}"


_HELD = {
    "cases": _cases, "settings": _settings, "same_training": _same_training, "price": _price,
    "billed_together": _billed_together,
}  # fmt: skip


def _same(held: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return all(_same(held[name], value) for name, value in expected.items())
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (held, expected))
    return math.isclose(held, expected, rel_tol=1e-9, abs_tol=1e-12) if numbers else held == expected


def _plain(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
