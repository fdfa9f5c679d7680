"""Evaluate an agent on a benchmark: one row per case and decoding."""

import asyncio
import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import ValidationError
from tqdm import tqdm

from ..agents.build import agent_class, agent_entry, build_agent, model_spec
from ..cases import CaseRecord, is_physical, iterate_records
from ..costs.price import whole_record_usd
from ..environment.episode import EPISODES_AT_ONCE, Agent, DiagnosticEnvironment, case_seed, is_cut_result, run_episode
from ..environment.once import gather_all, run_async
from ..environment.opening import check_judges, open_environment, open_second_judge
from ..environment.state import Effort, RequestTest, Trajectory
from ..environment.table_judging import TableJudge
from ..environment.utility import count_tests, utility
from ..files import replacing
from ..job import Job
from ..llm.agent_model import Meter, is_same_model, metering
from ..llm.guard import disclosure_tags
from ..llm.types import SYSTEM
from ..settings import Settings
from ..settings.datasets import FURTHER
from ..settings.judging import DECIDING, SECOND, failing
from .replay import COUNTS
from .row import Decoding, EvaluationRow, Judging, public_text, read_rows

# Means over cases in the record of an evaluation, and so in MLflow: name and field of the rows.
_LOGGED = {"accuracy": "correct", "aec": "cost_usd", "aen": "n_tests", "n_na": "n_na", "utility": "utility"}

if TYPE_CHECKING:
    from ..llm.own_server import OwnServer


def evaluate_agent(settings: Settings, job: Job) -> None:
    """Stage ``evaluate_agent``: evaluate an agent on a benchmark. The job's tags record where credentialed text was
    sent."""
    run, policy = job.options["run"], job.inputs.get("policy")
    limit = settings.evaluation.open_cases.cases if job.options["dataset"] in FURTHER else None
    cases = read_test_cases(job.inputs["cases"], limit)
    dataset, credentialed = cases[0].dataset, any(case.credentialed for case in cases)
    spec = model_spec(settings, agent_entry(settings, run), policy, job.server, credentialed=credentialed)
    disclosures = [spec.check(dataset) if spec else None]
    disclosures += check_judges(settings, dataset, (*DECIDING, *SECOND), credentialed=credentialed)
    metrics = evaluate(settings, run, cases, job.out["evaluation"], job.state, policy, job.server)
    job.metrics.update(metrics)
    job.tags.update(disclosure_tags(disclosures))
    rows = list(read_rows(job.out["evaluation"]))
    answered = {name for row in rows for name in row.models or ()}
    if spec and (others := sorted(name for name in answered if not is_same_model(spec.name, name))):
        job.tags["answered_as"] = ", ".join(others)
        print(f"{run}: WARNING: {spec.name} was requested, but the server answered as {job.tags['answered_as']}")
    if failures := failures_of_judges(rows):
        job.tags["judging"] = failures
    figures = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())
    print(f"{run} on {job.options['dataset']}: {figures}")


def read_test_cases(path: Path, limit: int | None = None) -> list[CaseRecord]:
    """Read the first ``limit`` test cases of a file (None: all). Raises ValueError when there is none."""
    cases = list(islice(iterate_records(path, "test"), limit))
    if not cases:
        raise ValueError(f"{path}: no case of split 'test'")
    return cases


def evaluate(
    settings: Settings,
    run: str,
    cases: Sequence[CaseRecord],
    out: Path,
    state: Path,
    policy: Path | None = None,
    server: "OwnServer | None" = None,
) -> dict[str, float]:
    """Evaluate one run and write its rows to ``out``, whole or not at all; ``policy`` is the folder of the run's own
    policy, where it has one, and ``server`` the server that the job started for the run's model.

    Rows are saved under ``state`` wave by wave, and an interrupted evaluation resumes after the last whole wave; the
    agent is refreshed before every wave, so that a resumption changes no result. Returns the means of :data:`_LOGGED`
    per decoding, the number of cases, and of this attempt the seconds and the repeated requests. Raises as
    :func:`~cdpr.agents.build.build_agent`.
    """
    started, retries = time.perf_counter(), 0
    dataset, credentialed = cases[0].dataset, any(case.credentialed for case in cases)
    environment = open_environment(settings, credentialed=credentialed)
    second = open_second_judge(settings, credentialed=credentialed)
    greedy_only = agent_class(agent_entry(settings, run)).one_decoding
    decodings: list[Decoding] = ["greedy"] if greedy_only else settings.evaluation.decodings
    SYSTEM.set(run)
    state.mkdir(parents=True, exist_ok=True)
    # One event loop for all waves: each would open connections of its own, and close none.
    with (state / "evaluation.jsonl").open("a+b") as file, asyncio.Runner() as loop:
        file.seek(0)
        for decoding in decodings:
            agent = None
            temperature = 0.0 if decoding == "greedy" else settings.training.temperature
            waves = [cases[start : start + EPISODES_AT_ONCE] for start in range(0, len(cases), EPISODES_AT_ONCE)]
            for wave in tqdm(waves, f"{run} on {dataset}, {decoding}", unit="wave", mininterval=5):
                if _skip_rows(file, [(public_text(settings, case, case.note_id), decoding) for case in wave]):
                    continue
                agent = agent or build_agent(
                    settings, run, policy, temperature, dataset, server, credentialed=credentialed
                )
                agent.refresh()
                workups = loop.run(work_up(environment, agent, wave, settings.evaluation.seed, second))
                for workup, meter in workups:
                    retries += meter.retries
                    judging = judging_of(environment, workup, second)
                    file.write(evaluation_row(settings, agent, workup, decoding, meter, judging).line().encode())
                file.flush()
                os.fsync(file.fileno())  # safe from a kill and from a power cut
    with replacing(out) as partial:
        shutil.copyfile(file.name, partial)
    Path(file.name).unlink()
    rows = list(read_rows(out))
    for line in _troubles(settings, rows):
        print(f"{run}: {line}")
    if failures := failures_of_judges(rows):
        print(f"{run}: WARNING: {failures}")
    means = {
        f"{decoding}/{name}": fmean(getattr(row, field) for row in rows if row.decoding == decoding)
        for decoding in decodings
        for name, field in _LOGGED.items()
    }
    return means | {"cases": len(cases), "seconds": time.perf_counter() - started, "retries": retries}


def _troubles(settings: Settings, rows: Sequence[EvaluationRow]) -> Iterator[str]:
    """Describe what went wrong without an error."""

    def count(name: str) -> int:
        return sum(getattr(row, name) for row in rows)

    if silent := count("silent"):
        yield (
            f"{silent:,} of {count('calls'):,} calls returned no word, {count('too_long'):,} of them because the "
            "conversation was too long for the model (give its server a longer context), "
            f"{count('refused'):,} because it was refused, {count('failed'):,} for an unknown reason"
        )
    if cut := count("cut"):
        limit = settings.policy.max_prompt_tokens
        yield (
            f"{cut:,} of {count('calls'):,} prompts were cut: raise policy.max_prompt_tokens ({limit}) where a policy "
            "acts, else give the server a longer context (num_ctx or OLLAMA_CONTEXT_LENGTH of Ollama)"
        )
    if cut := count("cut_results"):
        yield f"{cut:,} results were cut to environment.prompt.max_observation_chars"


async def work_up(
    environment: DiagnosticEnvironment,
    agent: Agent,
    cases: Sequence[CaseRecord],
    seed: int,
    second: TableJudge | None = None,
) -> list[tuple[Trajectory, Meter]]:
    """Run one episode per case, all at the same time; return them with the usage of the agent's model. The ``second``
    judge judges each diagnosis too. An error of one episode is raised after all others have ended: their paid calls are
    recorded then."""

    async def one(case: CaseRecord) -> tuple[Trajectory, Meter]:
        with metering() as meter:
            workup = await run_episode(environment, agent, case, case_seed(seed, case))
        if second and workup.diagnosis is not None:
            await second.prepare(workup.diagnosis, case.diagnosis_results)
        return workup, meter

    return await gather_all(map(one, cases))


def evaluate_cases(agent: Agent, cases: Sequence[CaseRecord], settings: Settings | None = None) -> list[EvaluationRow]:
    """Run one episode of the agent for each case; return its row: correctness, examinations, US dollars, utility.

    ``settings`` (by default the paper's) set prices of decisions, turns, budget, judge and seed. Raises what the agent
    raises, and as :func:`~cdpr.environment.opening.open_environment`. Source: paper, equation "utility".
    """
    settings = settings or Settings()
    environment = open_environment(settings, credentialed=any(case.credentialed for case in cases))
    episodes = run_async(work_up(environment, agent, cases, settings.evaluation.seed))
    return [evaluation_row(settings, agent, episode, "greedy", meter, judging_of(environment, episode, None))
            for episode, meter in episodes]  # fmt: skip


def evaluation_row(
    settings: Settings,
    agent: Agent,
    workup: Trajectory,
    decoding: Decoding,
    meter: Meter,
    judging: Judging | None = None,
) -> EvaluationRow:
    """Make the row of one episode; texts of credentialed cases are pseudonyms."""
    case, tests = workup.case, settings.environment.tests
    effort = whole_record_effort(case) if agent.whole_record else workup.effort()
    return EvaluationRow(
        note_id=public_text(settings, case, case.note_id),
        decoding=decoding,
        correct=workup.correct,
        diagnosis=public_text(settings, case, workup.diagnosis or ""),
        gold=public_text(settings, case, case.diagnosis_results),
        turns=len(workup.steps),
        **{f"n_{name}": getattr(effort, name) for name in COUNTS},
        n_tests=count_tests(effort, tests),
        n_na=effort.infeasible,
        cost_usd=round(effort.cost_usd, 6),
        utility=round(utility(workup.correct, effort, settings.utility, tests), 9),
        forced=workup.forced,
        **{name: value for name, value in vars(meter).items() if name in EvaluationRow.model_fields}
        | {"models": tuple(sorted(meter.models)) or None},
        cut_results=sum(is_cut_result(case, step) for step in workup.steps),
        obtained=None if case.credentialed or agent.whole_record else workup.states[-1].obtained,
        judging=judging,
        replies=None if case.credentialed else tuple(step.turn.text for step in workup.steps),
    )


def judging_of(environment: DiagnosticEnvironment, workup: Trajectory, second: TableJudge | None) -> Judging | None:
    """Record the part of models in judging and matching; None where tables alone did both."""
    judge, matcher, case, diagnosis = environment.judge, environment.matcher, workup.case, workup.diagnosis
    if second is None and not judge.counters and not matcher.counters:
        return None
    verdicts: dict[str, Any] = {}
    if diagnosis is not None:
        verdict = judge.verdict(diagnosis, case.diagnosis_results)
        verdicts = {"by": verdict.by, "several": verdict.several}
        if second:
            other = second.verdict(diagnosis, case.diagnosis_results)
            verdicts |= {"second": other.correct, "second_invalid": other.by == "invalid"}
    names = (step.action.name for step in workup.steps if isinstance(step.action, RequestTest))
    how = [matcher.match(name, case.key_pertinent_results_dict)[1] for name in names]
    return Judging(**verdicts, n_matched=how.count("model"), n_unmatched=how.count("invalid"))


def failures_of_judges(rows: Iterable[EvaluationRow]) -> str:
    """Describe failures of judge, second judge and matcher, by the share of their unreadable answers."""
    judged = [row.judging for row in rows if row.judging]
    by = Counter(judging.by for judging in judged)
    second = [judging.second_invalid for judging in judged if judging.second is not None]
    unmatched = sum(judging.n_unmatched for judging in judged)
    failures = (
        failing("judge", by["invalid"], by["invalid"] + by["model"]),
        failing("second judge", sum(second), len(second)),
        failing("matcher", unmatched, unmatched + sum(judging.n_matched for judging in judged)),
    )
    return "; ".join(filter(None, failures))


def whole_record_effort(case: CaseRecord) -> Effort:
    """Compute the effort of a whole record: all its examinations, each billing group charged once."""
    physical = sum(map(is_physical, case.key_pertinent_results_dict))
    others = len(case.key_pertinent_results_dict) - physical
    return Effort(others, others, physical=physical, cost_usd=whole_record_usd(case))


def _skip_rows(file: BinaryIO, expected: Sequence[tuple[str, str]]) -> bool:
    """Skip the next rows if they are those of the ``expected`` cases and decoding; else cut off the rest of the
    file."""
    start = file.tell()
    with contextlib.suppress(ValidationError):  # of an incomplete line
        rows = [EvaluationRow.model_validate_json(line) for line in islice(file, len(expected))]
        if [(row.note_id, row.decoding) for row in rows] == list(expected):
            return True
    file.truncate(start)
    return False
