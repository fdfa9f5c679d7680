"""Claims about the setup: whether the configuration, the workflow and its prices are as the paper states."""

from __future__ import annotations

import math
from typing import Any

from ..results.methods import AGENTS, DATASETS
from ..results.results import Hole
from ..settings import job_of, shown, sweeps, value_at
from .measure import Evidence
from .outcome import OTHERWISE, STATED, Outcome, not_run
from .schema import BilledTogether, Cases, Number, Price, SameJob, Setting


def setting(claim: Setting, evidence: Evidence) -> Outcome:
    held = {name: value_at(evidence.settings, name) for name in claim.settings}
    other = [name for name, wanted in claim.settings.items() if not _same(held[name], wanted)]
    shown = other or claim.settings
    return Outcome(OTHERWISE if other else STATED, ", ".join(f"{name} = {_plain(held[name])}" for name in shown))


def number(claim: Number, evidence: Evidence) -> Outcome:
    settings, methods = evidence.settings, evidence.results.methods
    found = {
        "benchmarks": lambda: len(DATASETS), "out_of_domain": lambda: len(DATASETS) - 1,
        "groups": lambda: len({m.group for m in methods if m.paper}),
        "agents": lambda: sum(m.group == AGENTS for m in methods),
        "ablations": lambda: len(shown(settings, "ablations")) - 1,
        "schemes": lambda: len(shown(settings, "training_efficiency")),
        "sweeps": lambda: len(sweeps(settings, "sensitivity")),
    }[claim.what]()  # fmt: skip
    return Outcome(STATED if found == claim.value else OTHERWISE, f"this workflow has {found}")


def cases(claim: Cases, evidence: Evidence) -> Outcome:
    if other := evidence.other_cases(claim.on):
        return not_run(other.replace("figure is", "number is"))
    found = evidence.cases(claim.on)
    if isinstance(found, Hole):
        return not_run(found)
    return Outcome(STATED if found == claim.value else OTHERWISE, f"{found} test cases were evaluated", n=found)


def same_job(claim: SameJob, evidence: Evidence) -> Outcome:
    known = [evidence.method(name) for name in (claim.of, claim.than)]
    holes = [one for one in known if isinstance(one, Hole)]
    if holes:
        return not_run(holes[0])
    jobs = [job_of(evidence.settings, name) for name in (claim.of, claim.than)]
    same = jobs[0] == jobs[1]
    return Outcome(STATED if same else OTHERWISE, f"trained as {' and '.join(dict.fromkeys(jobs))}")


def price(claim: Price, evidence: Evidence) -> Outcome:
    from ..costs.catalogue import load_catalogue
    from ..costs.price import price_of

    found = price_of(claim.examination, evidence.settings.costs, load_catalogue())
    code = f" {found.hcpcs}" if found.hcpcs else ""
    why = f"{found.usd:.2f} USD, from {found.source}{code}"
    return Outcome(STATED if abs(found.usd - claim.usd) < 0.005 else OTHERWISE, why)


def billed_together(claim: BilledTogether, evidence: Evidence) -> Outcome:
    from ..costs.catalogue import load_catalogue

    found = {name: load_catalogue().find(name) for name in claim.examinations}
    groups = {name: price.group if price else None for name, price in found.items()}
    one = len(set(groups.values())) == 1 and None not in groups.values()
    why = f"billed as {next(iter(groups.values()))}" if one else f"billed as {groups}"
    return Outcome(STATED if one else OTHERWISE, why)


def _same(held: Any, wanted: Any) -> bool:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (held, wanted))
    return math.isclose(held, wanted, rel_tol=1e-9, abs_tol=1e-12) if numbers else held == wanted


def _plain(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
