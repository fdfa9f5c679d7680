"""Run an agent over a benchmark: one line per case and decoding."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path

from tqdm import tqdm

from ..agents.build import build_agent
from ..agents.reference import REFERENCE_POLICIES
from ..cases import CaseRecord, is_physical, iterate_records
from ..costs.billing import charge
from ..environment import Agent, DiagnosticEnvironment, Effort, Trajectory, run_episodes
from ..environment.utility import count_tests, utility
from ..files import write_text
from ..settings import Settings


def evaluate(
    settings: Settings,
    run: str,
    policy_dir: Path | None,
    cases_path: Path,
    out_path: Path,
    limit: int | None = None,
) -> dict[str, float]:
    """Evaluate one run on the test cases of one data set and write the rows (atomically).

    Reference policies are deterministic and stand as ``greedy``. Returns accuracy per decoding, wall
    seconds and number of cases. Raises ValueError when the file holds no test case.
    """
    cases = list(iterate_records(cases_path, "test"))[:limit]
    if not cases:
        raise ValueError(f"{cases_path}: no case of split 'test'")
    environment = DiagnosticEnvironment(settings.environment)
    decodings = ["greedy"] if run in REFERENCE_POLICIES else list(settings.evaluation.decodings)
    started = time.perf_counter()
    metrics: dict[str, float] = {}
    lines: list[str] = []
    for decoding in decodings:
        temperature = 0.0 if decoding == "greedy" else settings.training.temperature
        agent = build_agent(settings, run, policy_dir, temperature, cases[0].dataset)
        with tqdm(total=len(cases), desc=f"{run} on {cases[0].dataset}, {decoding}", mininterval=5) as progress:
            workups = asyncio.run(
                run_episodes(
                    environment, agent, cases, settings.evaluation.seed, lambda done, bar=progress: bar.update(done)
                )
            )
        rows = [case_row(settings, agent, workup, decoding) for workup in workups]
        lines += [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        metrics[f"{decoding}/accuracy"] = sum(row["correct"] for row in rows) / len(rows)
    write_text(out_path, "".join(lines))
    return metrics | {"cases": len(cases), "seconds": time.perf_counter() - started}


def case_row(settings: Settings, agent: Agent, workup: Trajectory, decoding: str) -> dict:
    """What is kept of one workup; diagnoses of credentialed cases only as digests."""
    case = workup.case
    effort = whole_record_effort(case) if getattr(agent, "whole_record", False) else workup.effort()
    shown = (lambda text: hashlib.sha256(text.encode()).hexdigest()[:16]) if case.credentialed else str
    tests = settings.environment.tests
    return {
        "note_id": shown(case.note_id),
        "decoding": decoding,
        "correct": workup.correct,
        "diagnosis": shown(workup.diagnosis or ""),
        "gold": shown(case.diagnosis_results),
        "turns": len(workup.steps),
        "n_issued": effort.issued,
        "n_available": effort.available,
        "n_unavailable": effort.unavailable,
        "n_invalid": effort.invalid,
        "n_repeated": effort.repeated,
        "n_physical": effort.physical,
        "n_tests": count_tests(effort, tests),
        "n_na": effort.infeasible,
        "cost_usd": round(effort.cost_usd, 6),
        "utility": round(utility(workup.correct, effort, settings.utility, tests), 9),
        "forced": workup.forced,
    }


def whole_record_effort(case: CaseRecord) -> Effort:
    """Effort behind a whole record: every examination of it, each billing group charged once."""
    keys = list(case.key_pertinent_results_dict)
    cost = sum(charge(case, keys[:i], key) for i, key in enumerate(keys))
    physical = sum(map(is_physical, keys))
    return Effort(len(keys) - physical, len(keys) - physical, physical=physical, cost_usd=cost)
