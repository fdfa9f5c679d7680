"""Evaluates an agent on a benchmark, with one row per case and decoding."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from tqdm import tqdm

from ..agents.build import agent_class, agent_entry, build_agent, model_spec
from ..cases import CaseRecord, is_physical, iterate_records
from ..costs.price import whole_record_usd
from ..environment import Effort, RequestTest, TableJudge, Trajectory
from ..environment.episode import EPISODES_AT_ONCE, Agent, DiagnosticEnvironment, case_seed, is_cut_result, run_episode
from ..environment.opening import check_models, open_environment, open_second_judge
from ..environment.utility import count_tests, utility
from ..files import append_text, parse_yaml, shipped_text, write_text
from ..job import Job
from ..llm import SYSTEM, gather_all, run_async
from ..llm.agent_model import Meter, is_same_model, metering
from ..settings import DECIDING, FURTHER, SECOND, Settings, unreadable_warning
from .row import COUNTS, Decoding, EvaluationError, EvaluationRow, Judging, public_text, read_rows

# The metrics in an evaluation's `run.json` and in MLflow, by name: each is the mean over cases of this field of a row.
_LOGGED = {"accuracy": "correct", "aec": "cost_usd", "aen": "n_issued", "n_na": "n_na", "utility": "utility"}


def evaluate_agent(settings: Settings, job: Job) -> None:
    """Stage ``evaluate_agent``: evaluate an agent on a benchmark (:func:`evaluate`)."""
    run, policy = job.options["run"], job.inputs.get("policy")
    # Of a data set of open cases only the first cases are evaluated.
    limit = settings.evaluation.open_cases.cases if job.options["dataset"] in FURTHER else None
    cases = read_cases(job.inputs["cases"], limit=limit)
    metrics, tags = evaluate(settings, run, cases, job.out["evaluation"], job.state, policy, job.server)
    job.metrics.update(metrics)
    job.tags.update(tags)
    figures = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())
    print(f"{run} on {job.options['dataset']}: {figures}")


def read_cases(path: Path, split: str = "test", limit: int | None = None) -> list[CaseRecord]:
    """Read the first ``limit`` cases of a split in the file ``path`` (None: all). Raises ValueError when it has
    none."""
    cases = list(islice(iterate_records(path, split), limit))
    if not cases:
        raise ValueError(f"{path}: no case of split {split!r}")
    return cases


def evaluate(
    settings: Settings, run: str, cases: Sequence[CaseRecord], out: Path, state: Path, policy: Path | None = None,
    server: Any = None,
) -> tuple[dict[str, float], dict[str, str]]:  # fmt: skip
    """Evaluate one run and write its rows, one per decoding and case, to the file ``out``. Returns metrics and tags of
    the job, by name.

    The metrics ``<decoding>/<name>`` are means over the cases, such as ``greedy/accuracy``; the names are ``accuracy``,
    ``aec`` (US dollars), ``aen`` (requests, as AEN in tables), ``n_na`` (unavailable or invalid requests) and
    ``utility``. ``cases`` is the number of cases; ``seconds`` and ``retries`` (repeated requests to models) are those
    of this call alone. The tags record the machines to which text of credentialed cases (under a data use agreement)
    was sent, the names under which servers answered if they were not the requested ones, and failures of judges.
    Printed are a progress bar, and warnings of other models, unanswered calls, cut prompts, cut results and failures of
    judges.

    ``policy`` is the folder of the run's own policy, where it has one. ``server`` is the
    :class:`~cdpr.llm.own_server.OwnServer` that the job started for the run's model, or None. Rows are saved under
    ``state`` batch by batch, and an interrupted evaluation resumes after the last complete batch; they stay there. The
    agent's caches are cleared before every batch, so that a resumption changes no result. Raises as
    :func:`~cdpr.agents.build.build_agent`, and GovernanceError where the agreement forbids a model that acts or judges.
    """
    # Open the environment with its judges; divide the cases into batches that run together.
    started, retries = time.perf_counter(), 0
    dataset, credentialed = cases[0].dataset, any(case.credentialed for case in cases)
    environment = open_environment(settings, credentialed=credentialed)
    second = open_second_judge(settings, credentialed=credentialed)
    entry = agent_entry(settings, run)
    spec = model_spec(settings, entry, policy, server, credentialed=credentialed)
    tags = check_models(settings, dataset, spec, (*DECIDING, *SECOND), credentialed=credentialed)
    decodings: list[Decoding] = ["greedy"] if agent_class(entry).one_decoding else settings.evaluation.decodings
    batches = [cases[start : start + EPISODES_AT_ONCE] for start in range(0, len(cases), EPISODES_AT_ONCE)]
    SYSTEM.set(run)  # calls of models are recorded under this name
    # Run the episodes batch by batch. All batches share one event loop, since every loop opens connections of its own,
    # and closes none. After each batch its rows are saved, so that an interrupted evaluation goes on behind it.
    saved = state / "evaluation.jsonl"
    done, rows = _read_saved(saved), list[EvaluationRow]()
    with asyncio.Runner() as loop:
        for decoding in decodings:
            agent = None  # built only if a batch is left to run
            temperature = 0.0 if decoding == "greedy" else settings.training.temperature
            for batch in tqdm(batches, f"{run} on {dataset}, {decoding}", unit="batch", mininterval=5):
                keys = [(decoding, public_text(settings, case, case.note_id)) for case in batch]
                if not done.keys() >= set(keys):
                    agent = agent or build_agent(settings, run, spec, temperature, dataset)
                    agent.refresh()
                    episodes = loop.run(run_metered(settings, environment, agent, batch, decoding, second))
                    retries += sum(retried for _, retried in episodes)
                    done.update(zip(keys, (row for row, _ in episodes), strict=True))
                    append_text(saved, "".join(row.line() for row, _ in episodes))
                rows += [done[key] for key in keys]
    write_text(out, "".join(row.line() for row in rows))
    # Summarise the rows.
    warnings, failures = _list_warnings(settings, rows), failures_of_judges(rows)
    answered = {name for row in rows for name in row.models or ()}
    if spec and (others := sorted(name for name in answered if not is_same_model(spec.name, name))):
        tags["answered_as"] = ", ".join(others)
        warnings.append(f"WARNING: {spec.name} was requested, but the server answered as {tags['answered_as']}")
    if failures:
        tags["judging"] = failures
        warnings.append(f"WARNING: {failures}")
    for warning in warnings:
        print(f"{run}: {warning}")
    metrics: dict[str, float] = {
        f"{decoding}/{name}": fmean(getattr(row, field) for row in rows if row.decoding == decoding)
        for decoding in decodings
        for name, field in _LOGGED.items()
    }
    return metrics | {"cases": len(cases), "seconds": time.perf_counter() - started, "retries": retries}, tags


def _read_saved(path: Path) -> dict[tuple[str, str], EvaluationRow]:
    """Read the rows that an interrupted evaluation has saved, by decoding and case. An incomplete line, which a kill
    may leave, is removed from the file, since further rows are appended; what is behind it is lost."""
    rows = {}
    if path.exists():
        with contextlib.suppress(EvaluationError):
            for row in read_rows(path):
                rows[str(row.decoding), row.note_id] = row
        write_text(path, "".join(row.line() for row in rows.values()))
        append_text(path, "")  # nothing more, but all of it is on the disk then
    return rows


def _list_warnings(settings: Settings, rows: Sequence[EvaluationRow]) -> list[str]:
    """List a sentence for each thing that went wrong without an error: calls without an answer, cut prompts and cut
    results. Empty where all went well."""
    fields = ("calls", "silent", "too_long", "refused", "failed", "cut", "cut_results")
    counts = {name: sum(getattr(row, name) for row in rows) for name in fields}
    texts = parse_yaml(shipped_text(__package__, "warnings.yaml"))
    return [texts[name].format(limit=settings.policy.max_prompt_tokens, **counts) for name in texts if counts[name]]


async def run_metered(
    settings: Settings, environment: DiagnosticEnvironment, agent: Agent, cases: Sequence[CaseRecord],
    decoding: Decoding = "greedy", second: TableJudge | None = None,
) -> list[tuple[EvaluationRow, int]]:  # fmt: skip
    """Run one episode per case, all at the same time. Returns for each episode its row, which has the usage of the
    agent's model, and the number of requests to that model that were repeated. ``decoding`` says how the ``agent``
    decodes, for the rows. The ``second`` judge judges each diagnosis too (None: there is none). An error of one episode
    is raised after all others have ended, because their paid calls have to be recorded."""

    async def run_one(case: CaseRecord) -> tuple[EvaluationRow, int]:
        """Run the episode of one case, and let the second judge prepare its verdict."""
        with metering() as meter:
            episode = await run_episode(environment, agent, case, case_seed(settings.evaluation.seed, case))
        if second and episode.diagnosis is not None:
            await second.prepare(episode.diagnosis, case.diagnosis_results)
        judging = record_judging(environment, episode, second)
        return evaluation_row(settings, agent, episode, decoding, meter, judging), meter.retries

    return await gather_all(map(run_one, cases))


def evaluate_cases(agent: Agent, cases: Sequence[CaseRecord], settings: Settings | None = None) -> list[EvaluationRow]:
    """Run one episode of the agent for each case. Returns one row per case, with correctness, examinations, US dollars
    and utility.

    ``settings`` (None: the paper's) set the weights of the utility, turns, budget, judge and seed. Raises what the
    agent raises, and as :func:`~cdpr.environment.opening.open_environment`. Source: paper, equation "utility".
    """
    settings = settings or Settings()
    environment = open_environment(settings, credentialed=any(case.credentialed for case in cases))
    return [row for row, _ in run_async(run_metered(settings, environment, agent, cases))]


def evaluation_row(
    settings: Settings, agent: Agent, episode: Trajectory, decoding: Decoding, meter: Meter,
    judging: Judging | None = None,
) -> EvaluationRow:  # fmt: skip
    """Make the row of one episode. ``meter`` has the usage of the agent's model, ``judging`` what models did in judging
    and matching, and the second verdict (None: tables of names did both, and there is no second judge). Texts of
    credentialed cases become pseudonyms or are left out."""
    case, tests = episode.case, settings.environment.tests
    effort = whole_record_effort(case) if agent.whole_record else episode.effort()
    # The counts of the meter have the names of fields of a row; ``models`` is a set.
    usage = {name: value for name, value in vars(meter).items() if name in EvaluationRow.model_fields}
    usage["models"] = tuple(sorted(meter.models)) or None
    return EvaluationRow(
        note_id=public_text(settings, case, case.note_id),
        decoding=decoding,
        correct=episode.correct,
        diagnosis=public_text(settings, case, episode.diagnosis or ""),
        gold=public_text(settings, case, case.diagnosis_results),
        turns=len(episode.steps),
        **{f"n_{name}": getattr(effort, name) for name in COUNTS},
        n_tests=count_tests(effort, tests),
        n_na=effort.infeasible,
        cost_usd=round(effort.cost_usd, 6),
        utility=round(utility(episode.correct, effort, settings.utility, tests), 9),
        forced=episode.forced,
        **usage,
        cut_results=sum(is_cut_result(case, step) for step in episode.steps),
        obtained=None if case.credentialed or agent.whole_record else episode.states[-1].obtained,
        judging=judging,
        replies=None if case.credentialed else tuple(step.turn.text for step in episode.steps),
    )


def record_judging(
    environment: DiagnosticEnvironment, episode: Trajectory, second: TableJudge | None
) -> Judging | None:
    """Record what language models did in judging the diagnosis of an episode and in matching its requests, and the
    verdict of the ``second`` judge, if there is one. Returns None where tables of names judge and match, and there is
    no second judge."""
    judge, matcher, case = environment.judge, environment.matcher, episode.case
    if second is None and not judge.counters and not matcher.counters:  # tables alone, which count nothing
        return None
    requests = [step.action.name for step in episode.steps if isinstance(step.action, RequestTest)]
    # What matched each request: table, model, or invalid, where the model's answer was unreadable.
    matched_by = [matcher.match(name, case.key_pertinent_results_dict)[1] for name in requests]
    record: dict[str, Any] = {"n_matched": matched_by.count("model"), "n_unmatched": matched_by.count("invalid")}
    if episode.diagnosis is not None:
        verdict = judge.verdict(episode.diagnosis, case.diagnosis_results)
        record |= {"by": verdict.by, "several": verdict.several}
        if second:
            other = second.verdict(episode.diagnosis, case.diagnosis_results)
            record |= {"second": other.correct, "second_invalid": other.by == "invalid"}
    return Judging(**record)


def failures_of_judges(rows: Iterable[EvaluationRow]) -> str:
    """Describe failures of the models that judge (first and second) and that match requests to examinations, each by
    the number of its unreadable answers. Empty where at most one in twenty answers of each was unreadable."""
    records = [row.judging for row in rows if row.judging]
    judged_by = Counter(record.by for record in records)
    second_unreadable = [record.second_invalid for record in records if record.second is not None]
    matched, unmatched = sum(record.n_matched for record in records), sum(record.n_unmatched for record in records)
    # For each of the three: the number of its unreadable answers, and of all its answers.
    warnings = (
        unreadable_warning("judge", judged_by["invalid"], judged_by["invalid"] + judged_by["model"]),
        unreadable_warning("second judge", sum(second_unreadable), len(second_unreadable)),
        unreadable_warning("matcher", unmatched, unmatched + matched),
    )
    return "; ".join(filter(None, warnings))


def whole_record_effort(case: CaseRecord) -> Effort:
    """Compute the effort of requesting all examinations of a case. Examinations that are billed together are charged
    once."""
    physical = sum(map(is_physical, case.key_pertinent_results_dict))
    others = len(case.key_pertinent_results_dict) - physical
    return Effort(issued=others, available=others, physical=physical, cost_usd=whole_record_usd(case))
