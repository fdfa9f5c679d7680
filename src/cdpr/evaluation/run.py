"""Run an agent over a benchmark: one line per case and decoding."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import ValidationError
from tqdm import tqdm

from ..agents.build import agent_class, agent_entry, build_agent, model_spec
from ..cases import CaseRecord, is_physical, iterate_records
from ..costs.billing import charge
from ..environment import (
    WAVE,
    Agent,
    DiagnosticEnvironment,
    Effort,
    Judge,
    RequestTest,
    TableJudge,
    TableMatcher,
    Trajectory,
    case_seed,
    run_episode,
)
from ..environment.opening import check_judges, open_environment, open_second
from ..environment.utility import count_tests, utility
from ..files import replacing
from ..job import Job
from ..llm.guard import disclosed
from ..llm.types import SYSTEM
from ..llm.wrappers import Meter, metering
from ..settings import Settings
from ..settings.datasets import FURTHER
from ..settings.judging import DECIDING, SECOND
from .row import EvaluationRow, Judging, shown

if TYPE_CHECKING:
    from ..llm.own_server import OwnServer

_SILENCE = ("calls", "silent", "too_long")
_COUNTS = ("issued", "available", "unavailable", "invalid", "repeated", "physical")  # of an effort, as rows hold them


def evaluate_agent(settings: Settings, job: Job) -> None:
    """Stage ``evaluate_agent``: one agent on one benchmark. ``run.json`` tells where credentialed text was sent."""
    run, policy = job.options["run"], job.inputs.get("policy")
    limit = settings.evaluation.open_cases.cases if job.options["dataset"] in FURTHER else None
    benchmark = Benchmark.read(job.inputs["cases"], limit)
    spec = model_spec(settings, agent_entry(settings, run), policy, job.server, credentialed=benchmark.credentialed)
    told = [spec and spec.check(benchmark.dataset)]
    which = (*DECIDING, *SECOND)
    told += check_judges(settings, benchmark.dataset, which, credentialed=benchmark.credentialed)
    metrics = evaluate(settings, run, benchmark, job.out["evaluation"], job.state, policy, job.server)
    job.metrics.update(metrics)
    job.tags.update(disclosed(told))
    shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())
    print(f"{run} on {job.options['dataset']}: {shown}")


@dataclass(frozen=True)
class Benchmark:
    """The test cases of a file, read a wave at a time."""

    path: Path
    cases: int
    dataset: str
    credentialed: bool

    @classmethod
    def read(cls, path: Path, limit: int | None = None) -> Benchmark:
        """The first ``limit`` test cases (None: all). Raises ValueError when the file holds none."""
        told = [(case.dataset, case.credentialed) for case in islice(iterate_records(path, "test"), limit)]
        if not told:
            raise ValueError(f"{path}: no case of split 'test'")
        return cls(path, len(told), told[0][0], any(credentialed for _, credentialed in told))

    def waves(self) -> Iterator[list[CaseRecord]]:
        """The cases in their order, :data:`~cdpr.environment.WAVE` at a time."""
        records = islice(iterate_records(self.path, "test"), self.cases)
        while wave := list(islice(records, WAVE)):
            yield wave


def evaluate(
    settings: Settings,
    run: str,
    benchmark: Benchmark,
    out: Path,
    state: Path,
    policy: Path | None = None,
    server: OwnServer | None = None,
) -> dict[str, float]:
    """Evaluate one run and write its rows to ``out``, whole or not at all; ``policy`` is the folder of the run's own
    policy, where it acts by one, and ``server`` what the job has started to serve the run's model.

    Rows are kept under ``state`` wave by wave, and an evaluation that was interrupted goes on behind the last one;
    every wave starts afresh, so that this changes no result. Returns accuracy per decoding, number of cases, and
    seconds (of this attempt). Raises SettingsError and GovernanceError as :func:`~cdpr.agents.build.build_agent`.
    """
    started = time.perf_counter()
    environment = open_environment(settings, credentialed=benchmark.credentialed)
    second = open_second(settings, credentialed=benchmark.credentialed)
    once = agent_class(agent_entry(settings, run)).one_decoding
    correct: dict[str, int] = {}
    silent = Counter[str]()
    SYSTEM.set(run)
    state.mkdir(parents=True, exist_ok=True)
    with (state / "evaluation.jsonl").open("a+b") as rows:
        rows.seek(0)
        for decoding in ["greedy"] if once else settings.evaluation.decodings:
            agent, correct[decoding] = None, 0
            temperature = 0.0 if decoding == "greedy" else settings.training.temperature
            with tqdm(total=benchmark.cases, desc=f"{run} on {benchmark.dataset}, {decoding}", mininterval=5) as bar:
                for wave in benchmark.waves():
                    done = _recall(rows, [(shown(settings, case, case.note_id), decoding) for case in wave])
                    if not done:
                        agent = agent or build_agent(
                            settings, run, policy, temperature, benchmark.dataset, server,
                            credentialed=benchmark.credentialed,
                        )  # fmt: skip
                        agent.refresh()
                        workups = asyncio.run(work_up(environment, agent, wave, settings.evaluation.seed, second))
                        done = [
                            evaluation_row(settings, agent, one, decoding, asked, judging_of(environment, one, second))
                            for one, asked in workups
                        ]
                        rows.write("".join(row.line() for row in done).encode())
                        rows.flush()
                        os.fsync(rows.fileno())  # safe from a kill and from a power cut
                    correct[decoding] += sum(row.correct for row in done)
                    silent += Counter({name: sum(getattr(row, name) for row in done) for name in _SILENCE})
                    bar.update(len(wave))
    with replacing(out) as partial:
        shutil.copyfile(rows.name, partial)
    Path(rows.name).unlink()
    if silent["silent"]:  # it must not pass unnoticed: a server with too little room makes a table of failures
        print(f"{run}: {silent['silent']:,} of {silent['calls']:,} calls brought no word, {silent['too_long']:,} of "
              "them as the conversation was too long for the model: give its server more, or ask for less")  # fmt: skip
    accuracy = {f"{decoding}/accuracy": right / benchmark.cases for decoding, right in correct.items()}
    return accuracy | {"cases": benchmark.cases, "seconds": time.perf_counter() - started}


async def work_up(
    environment: DiagnosticEnvironment, agent: Agent, cases: Sequence[CaseRecord], seed: int,
    second: Judge | None = None,
) -> list[tuple[Trajectory, Meter]]:  # fmt: skip
    """One workup per case, all at the same time, and what it asked of the agent's model; the ``second`` judge is asked
    about its diagnosis too. Where one fails, its error is raised after the others have come to their end: what they
    have asked is paid for, and shall be answered and kept."""

    async def one(case: CaseRecord) -> tuple[Trajectory, Meter]:
        with metering() as meter:
            workup = await run_episode(environment, agent, case, case_seed(seed, case))
        if second and workup.diagnosis is not None:
            await second.prepare(workup.diagnosis, case.diagnosis_results)
        return workup, meter

    ended = await asyncio.gather(*map(one, cases), return_exceptions=True)
    for workup in ended:
        if isinstance(workup, BaseException):
            raise workup
    return ended  # type: ignore[return-value]


def evaluation_row(
    settings: Settings, agent: Agent, workup: Trajectory, decoding: str, asked: Meter, judging: Judging | None = None
) -> EvaluationRow:
    """What is kept of one workup; of credentialed cases texts only as pseudonyms."""
    case, tests = workup.case, settings.environment.tests
    effort = whole_record_effort(case) if agent.whole_record else workup.effort()
    return EvaluationRow(
        note_id=shown(settings, case, case.note_id),
        decoding=decoding,
        correct=workup.correct,
        diagnosis=shown(settings, case, workup.diagnosis or ""),
        gold=shown(settings, case, case.diagnosis_results),
        turns=len(workup.steps),
        **{f"n_{name}": getattr(effort, name) for name in _COUNTS},
        n_tests=count_tests(effort, tests),
        n_na=effort.infeasible,
        cost_usd=round(effort.cost_usd, 6),
        utility=round(utility(workup.correct, effort, settings.utility, tests), 9),
        forced=workup.forced,
        **asdict(asked),
        obtained=None if case.credentialed or agent.whole_record else workup.states[-1].obtained,
        judging=judging,
        replies=None if case.credentialed else tuple(step.turn.text for step in workup.steps),
    )


def judging_of(environment: DiagnosticEnvironment, workup: Trajectory, second: Judge | None) -> Judging | None:
    """Who judged and matched; None where tables did alone."""
    judge, matcher, case, diagnosis = environment.judge, environment.matcher, workup.case, workup.diagnosis
    if second is None and isinstance(judge, TableJudge) and isinstance(matcher, TableMatcher):
        return None
    told: dict[str, Any] = {}
    if diagnosis is not None:
        verdict = judge.verdict(diagnosis, case.diagnosis_results)
        told = {"by": verdict.by, "several": verdict.several}
        if second:
            other = second.verdict(diagnosis, case.diagnosis_results)
            told |= {"second": other.correct, "second_invalid": other.by == "invalid"}
    names = (step.action.name for step in workup.steps if isinstance(step.action, RequestTest))
    how = [matcher.found(name, case.key_pertinent_results_dict)[1] for name in names]
    return Judging(**told, n_matched=how.count("model"), n_unmatched=how.count("invalid"))


def whole_record_effort(case: CaseRecord) -> Effort:
    """Effort behind a whole record: every examination of it, each billing group charged once."""
    keys = list(case.key_pertinent_results_dict)
    cost = sum(charge(case, keys[:i], key) for i, key in enumerate(keys))
    physical = sum(map(is_physical, keys))
    return Effort(len(keys) - physical, len(keys) - physical, physical=physical, cost_usd=cost)


def _recall(rows: BinaryIO, expected: Sequence[tuple[str, str]]) -> list[EvaluationRow]:
    """The next rows of an earlier attempt where they are those of the ``expected`` cases and decoding; else none, and
    what follows is cut off, to be written anew."""
    start = rows.tell()
    with contextlib.suppress(ValidationError):  # of a line that was cut off
        found = [EvaluationRow.model_validate_json(line) for line in islice(rows, len(expected))]
        if [(row.note_id, row.decoding) for row in found] == list(expected):
            return found
    rows.truncate(start)
    return []
