"""The credit of single decisions, on given episodes: how good it is, and what it is.

The stage ``measure_credit_quality`` measures how well process rewards estimate the true advantage, under many settings
of the estimator, and how many tokens each setting takes. The true advantage of each decision comes from many complete
continuations of every state. The estimates come from the code of training.

The stage ``credit_workups`` applies CDPR's process reward to evaluated episodes. Training credits its own rollouts on
training cases. Here the evaluated episodes of a test case are its group, and their decisions are credited at every
state, also where CDPR would not select it; only a forced diagnosis, and an action whose continuations all failed, gets
no credit. The settings ``credit`` are the same for all policies, whatever their variants say.
"""

import asyncio
import gc
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel
from tqdm import tqdm

from ..agents.policy import PolicyAgent
from ..cases import CaseRecord
from ..credit.continuations import Draws, group_advantages, state_values, step_advantages, whole_returns
from ..credit.process_reward import Candidate, GroupCredit, ProcessReward
from ..credit.scores import StateCredit
from ..credit.states import ActionKey, disagreed_states, selection_reason
from ..environment import Agent, DiagnosticEnvironment, Policy, State, Trajectory, Turn, case_seed, run_episode
from ..environment.opening import check_models, open_environment
from ..environment.utility import ReturnOf, count_tests, utility
from ..files import parse_yaml, read_json_lines, shipped_text, write_gz, write_text
from ..job import Job
from ..llm import ModelSpec
from ..seeding import derive_seed, stratified_sample
from ..settings import Credit, Settings, merge, nest
from .evaluate_agent import read_cases
from .row import EvaluationRow, deviations, public_text, read_rows, replay

SEED = 0  # of everything that is drawn here
# By the name of an estimator: its settings that are varied, one at a time, each with the values that it takes.
SWEEPS = parse_yaml(shipped_text(__package__, "sweeps.yaml"))
Group = Sequence[Trajectory]  # the episodes of one case
_CASES_AT_ONCE = 16  # evaluated cases that are credited together: enough to fill the sampler's batches


def measure_credit_quality(settings: Settings, job: Job) -> None:
    """Stage ``measure_credit_quality``: measure the errors of every estimator on validation cases, write them to the
    output ``quality``, and print those of the default settings. Raises ValueError when there is no validation case."""
    cases = read_cases(job.inputs["cases"], "validation", settings.analysis.cases)
    spec = ModelSpec.of_folder(job.inputs["policy"], settings.policy)
    policy = PolicyAgent.build(settings, spec, settings.training.temperature)
    gc.disable()  # Python's garbage collector would look through a million kept replies again and again
    quality = asyncio.run(assess(settings, policy, cases))
    write_text(job.out["quality"], json.dumps(quality, indent=1) + "\n")
    # Each sweep has a row with the default settings; these rows are equal.
    default = next(row for row in quality["rows"] if row["default"])
    figures = {name: default[name] for name in ("bias", "variance", "rmse", "rank_correlation", "right_signs")}
    job.metrics.update(figures)
    print(f"{quality['decisions']} decisions: " + "  ".join(f"{name} {value:.3f}" for name, value in figures.items()))


async def assess(settings: Settings, policy: Policy, cases: Sequence[CaseRecord]) -> dict[str, Any]:
    """Measure the errors of every estimator of :func:`list_estimators` on episodes of ``policy``. Returns a dictionary
    of JSON values. ``rows`` has a flat dictionary for each estimator: its name and setting, whether that is CDPR as the
    settings have it (``default``), its errors (:func:`measure_errors`), and the tokens that it takes per decision. All
    else is about the sample: counts, the root mean square of the true advantages (``truth_rms``), the mean of their
    standard errors (``truth_error_mean``), and the seeds of the replicates."""
    environment = open_environment(settings, credentialed=any(case.credentialed for case in cases))
    groups = await sample_groups(settings, environment, policy, cases)
    truth = await measure_truth(settings, environment, policy, groups)
    estimators, analysis = list_estimators(settings.credit), settings.analysis
    # Every replicate repeats all estimates with other random numbers.
    seeds = [derive_seed(SEED, "replicate", r) for r in range(analysis.replicates)]
    advantages, tokens = defaultdict[Credit | int, list](list), Counter[Credit | int]()
    for seed in tqdm(seeds, desc="estimates", unit="replicate"):
        cached: Any = CachedPolicy(policy)
        # Estimators with equal settings are computed once. Their tokens do not depend on the order: replies that
        # another estimator has drawn count too.
        for setting in dict.fromkeys(estimators.values()):
            values, drawn = await estimate(settings, environment, cached, groups, seed, setting)
            advantages[setting].append(list_advantages(truth, values))
            tokens[setting] += drawn
        gc.collect()  # frees the replies of the replicate before; ``cached`` still holds those of this one
    # One row for each estimator: its errors over all replicates.
    rows = []
    for (name, sweep, value), setting in estimators.items():
        # Whether this is CDPR as the settings have it: the varied setting has the value that they give it.
        default = name == "cdpr" and value == attrgetter(sweep)(settings.credit)
        errors = measure_errors(np.array(advantages[setting]), truth)
        rows.append({"estimator": name, "sweep": sweep, "value": value, "default": default, **errors,
                     "tokens_per_decision": tokens[setting] / len(seeds) / len(truth)})  # fmt: skip
    return {
        "decisions": len(truth),
        "states": truth.state.nunique(),
        "truth_rms": float((truth.advantage**2).mean() ** 0.5),
        "truth_error_mean": float(truth.error.mean()),
        "cases": len(cases),
        "truth": analysis.truth,
        "replicates": analysis.replicates,
        "replicate_seeds": seeds,
        "rows": rows,
    }


def measure_errors(estimates: np.ndarray, truth: pd.DataFrame) -> dict[str, float]:
    """Measure the errors of ``estimates`` [replicates, decisions] against the true advantages (:func:`measure_truth`).
    Returns measures of error by name, in units of utility (``variance`` in their square), except for correlation and
    share.

    ``bias`` is the mean error over decisions, in which errors of opposite sign cancel, and ``bias_error`` its standard
    error over cases (0 for a single case). ``bias_examinations`` is the same mean over requests alone,
    ``bias_diagnoses`` over diagnoses alone. ``bias_rms`` is the root mean square of the bias of single decisions.
    ``variance`` is the variance between replicates, a mean over decisions; ``rmse`` the root mean square error.
    ``rank_correlation`` is Spearman's correlation with the true advantages (0 where either is constant).
    ``right_signs`` is the share of estimates with the true sign, among the decisions whose true sign is known: the
    advantage is more than two standard errors from 0. A mean or share of nothing is 0.

    How ``bias_rms`` is freed from noise: an error is the bias of its decision, plus the noise of the estimate, plus
    that of the measured truth. The three are independent, so the mean squared error is the sum of mean squared bias,
    variance between replicates, and squared standard error of the truth; the last two are subtracted.

    All replicates have the same episodes. So errors that come from the choice of these episodes count as bias of a
    decision and in ``rmse``, not in ``variance``.
    """
    by_replicate = pd.DataFrame(estimates.T)  # a row per decision
    errors = by_replicate.sub(truth.advantage, axis=0)
    bias = errors.mean(axis=1)  # of each decision
    square = float((errors**2).to_numpy().mean())
    variance = float(by_replicate.var(axis=1).mean())
    noise_of_truth = float((truth.error**2).mean())
    has_right_sign = np.sign(by_replicate).eq(np.sign(truth.advantage), axis=0)
    measures = {
        "bias": bias.mean(),
        "bias_error": clustered_error(bias, truth.group),
        "bias_examinations": bias[~truth.ends].mean(),
        "bias_diagnoses": bias[truth.ends].mean(),
        "bias_rms": max(0.0, square - variance - noise_of_truth) ** 0.5,  # the difference of estimates may be below 0
        "variance": variance,
        "rmse": square**0.5,
        "rank_correlation": by_replicate.rank().corrwith(truth.advantage.rank()).fillna(0.0).mean(),
        "right_signs": has_right_sign[truth.advantage.abs() > 2 * truth.error].mean().mean(),
    }
    return {name: 0.0 if np.isnan(value) else float(value) for name, value in measures.items()}


def clustered_error(values: pd.Series, clusters: pd.Series) -> float:
    """Compute the standard error of the mean of ``values``, which depend on each other within clusters. ``clusters``
    has for each value the number of its cluster. Returns 0 for a single cluster."""
    sums = (values - values.mean()).groupby(clusters).sum()  # of the deviations from the mean, by cluster
    count = len(sums)
    return float(((sums**2).sum() * count / (count - 1)) ** 0.5 / len(values)) if count > 1 else 0.0


# True advantages


def list_advantages(truth: pd.DataFrame, values: Sequence[Sequence[Sequence[float | None]]]) -> list[float]:
    """List ``values`` [group][episode][turn] in the order of the decisions of ``truth``. None, for a decision without a
    value, becomes 0, as in training."""
    return [values[g][i][t] or 0.0 for g, i, t in zip(truth.group, truth.episode, truth.turn, strict=True)]


def utility_of(settings: Settings) -> ReturnOf:
    """Return the function that computes the utility U from correctness and effort (equation "utility"), with the
    weights of the settings."""
    return partial(utility, weights=settings.utility, tests=settings.environment.tests)


async def sample_groups(
    settings: Settings, environment: DiagnosticEnvironment, agent: Agent, cases: Sequence[CaseRecord]
) -> list[Group]:
    """Sample ``training.group_size`` episodes of each case; returns one group of trajectories per case, in the order of
    ``cases``."""
    groups: list[Group] = []
    for case in cases:
        seeds = [derive_seed(SEED, "workup", case.note_id, i) for i in range(settings.training.group_size)]
        groups.append(await asyncio.gather(*(run_episode(environment, agent, case, seed) for seed in seeds)))
    return groups


async def measure_truth(
    settings: Settings, environment: DiagnosticEnvironment, policy: Policy, groups: Sequence[Group]
) -> pd.DataFrame:
    """Measure the true advantages of the decisions of ``groups``, A(s, a) = Q(s, a) - V(s) under the policy, from
    ``analysis.truth`` continuations of every state to the end of the episode. Forced diagnoses are no choice and are
    left out. Where requests fail there are fewer continuations; with less than two the errors are NaN.

    Returns a row per decision, with the columns ``group``, ``episode`` and ``turn``, its indices; the key of its
    ``state``; ``advantage`` in units of utility, and its standard ``error``; and ``ends``, whether the action is a
    diagnosis, which ends the episode.

    V(s) is the mean return of the continuations of s. Q(s, a) is V of the next state plus the step's own return; for a
    diagnosis it is the return of its verdict.

    The continuations of every state are numbered. Two continuations with the same number depend on each other: where
    both reach the same state, they have the same replies from there on. So for each number all advantages are computed
    from the continuations with this number alone. The results of different numbers are independent.
    """
    rows, return_of = [], utility_of(settings)
    for g, group in enumerate(tqdm(groups, desc="true advantages", unit="case", mininterval=5)):
        draws = Draws(environment, policy, derive_seed(SEED, "truth"), ("truth",))
        # Keyed by the prompt, which is the same for two states only if all replies before them are.
        states = {state.prompt_key: state for trajectory in group for state in trajectory.states}
        calls = [whole_returns(draws, state, range(settings.analysis.truth), return_of) for state in states.values()]
        returns = dict(zip(states, await asyncio.gather(*calls), strict=True))
        for i, trajectory in enumerate(group):
            by_state = [returns[state.prompt_key] for state in trajectory.states]  # returns by continuation number
            numbers = sorted(set.intersection(*map(set, by_state)))  # whose continuation failed at no state
            values_by_number = [[of_state[k] for of_state in by_state] for k in numbers]
            by_number = np.array([step_advantages(trajectory, values, return_of) for values in values_by_number])
            advantages, errors = by_number.mean(axis=0), by_number.std(axis=0, ddof=1) / len(numbers) ** 0.5
            free_steps = trajectory.steps[:-1] if trajectory.forced else trajectory.steps
            rows += [(g, i, t, trajectory.states[t].key, advantages[t], errors[t], step.observation.kind == "end")
                     for t, step in enumerate(free_steps)]  # fmt: skip
    return pd.DataFrame(rows, columns=["group", "episode", "turn", "state", "advantage", "error", "ends"])


# Estimates


def list_estimators(credit: Credit) -> dict[tuple[str, str, int | str], Credit | int]:
    """List the estimators whose errors are measured: CDPR with one setting at a time changed to each value in
    :data:`SWEEPS` and to its value in ``credit``; and VinePPO with several numbers of continuations.

    The key of an estimator is its name (``cdpr`` or ``vineppo``), the name of the setting that is varied, and the value
    that it has here. The value is what :func:`estimate` takes: all settings ``credit`` of CDPR, or VinePPO's number of
    continuations.
    """
    base = credit_every_state(credit)
    estimators: dict[tuple[str, str, int | str], Credit | int] = {}
    for key, values in SWEEPS["cdpr"].items():
        for value in sorted({*values, attrgetter(key)(base)}):
            estimators["cdpr", key, value] = change(base, nest(key, value))
    return estimators | {("vineppo", "continuations", k): k for k in SWEEPS["vineppo"]["continuations"]}


def credit_every_state(credit: Credit) -> Credit:
    """Return a copy of the settings under which every state is selected, and nothing is cached between batches."""
    return change(credit, {"select_all": True, "max_states": None, "cache": {"scope": "batch"}})


def change(credit: Credit, values: Mapping[str, Any]) -> Credit:
    """Return a copy of the settings with some ``values`` in place of their own: ``{"cache": {"scope": "batch"}}``."""
    return Credit.model_validate(merge(credit.model_dump(), values))


class CachedPolicy:
    """A policy that samples each reply of another ``policy``, which it wraps, only once. Reply k to a prompt under a
    seed is always the same, so estimators that draw it share it. In all else it is the wrapped policy."""

    def __init__(self, policy: Policy):
        """Start without replies. ``known`` will hold them by (prompt, forced, seed) and then by number."""
        self.policy, self.known = policy, defaultdict[tuple, dict[int, Turn]](dict)

    def __getattr__(self, name: str) -> Any:
        """Return the attribute ``name`` of the wrapped policy: nothing but samples is cached."""
        return getattr(self.policy, name)

    async def sample(self, state: State, numbers: Sequence[int], forced: bool, seed: int) -> list[Turn]:
        """Return the replies with these ``numbers`` for a seed, in their order. With ``forced`` each has to be a
        diagnosis. Only replies that are not known yet are generated."""
        known = self.known[state.prompt_key, forced, seed]
        if missing := [k for k in numbers if k not in known]:
            known.update(zip(missing, await self.policy.sample(state, missing, forced, seed), strict=True))
        return [known[k] for k in numbers]


async def estimate(
    settings: Settings, environment: DiagnosticEnvironment, policy: Policy, groups: Sequence[Group], seed: int,
    setting: Credit | int,
) -> tuple[Sequence[Sequence[Sequence[float | None]]], int]:  # fmt: skip
    """Estimate the advantages of the decisions of ``groups`` with random numbers that ``seed`` fixes: by the process
    reward R_proc of CDPR under these settings, where the policy both proposes actions and continues after them; or as
    VinePPO does with this number of continuations, r + V(s') - V(s), with V from continuations of each state to the end
    of the episode. Returns the advantages [group][trajectory][decision], None for a decision without a value, and the
    number of tokens of all replies that they take, also of those that ``policy`` had generated for another estimator.
    """
    if not isinstance(setting, int):
        process = ProcessReward(environment, policy, policy, setting, settings.utility, seed)
        reports = await process.score(groups, iteration=0)
        tokens = sum(report.counts["probe_tokens"] + report.counts["continuation_tokens"] for report in reports)
        return [report.process for report in reports], tokens
    return_of = utility_of(settings)
    # The seed and the stream (purpose and iteration) of CDPR's own draws, so that both estimators share replies.
    draws = [Draws(environment, policy, seed, ("actor", 0)) for _ in groups]
    calls = [state_values(d, group, range(setting), return_of) for d, group in zip(draws, groups, strict=True)]
    values = zip(groups, await asyncio.gather(*calls), strict=True)
    return [group_advantages(group, of_group, return_of) for group, of_group in values], sum(d.tokens for d in draws)


# The credit of evaluated episodes


@dataclass(frozen=True)
class Ending:
    """One of the continuations from which the value U_hat of a candidate action was estimated.

    ``source`` says whether it is a ``suffix`` of an evaluated episode or ``fresh``, newly drawn. ``correct`` says
    whether its diagnosis is right; under ``credit.verdicts: scored`` it is the probability of that. ``tests``,
    ``cost_usd`` and ``infeasible`` (N_na) are the amounts that its ``utility`` charges, the candidate included.
    ``path`` lists the actions after the candidate. At its end the diagnosis is missing where an evaluated episode was
    cut at the horizon, and where its probability was computed instead.
    """

    source: Literal["suffix", "fresh"]
    correct: bool | float
    tests: int
    cost_usd: float
    infeasible: int
    utility: float
    path: tuple[ActionKey, ...]


class CreditedCase(BaseModel, frozen=True, extra="forbid"):
    """The evaluated episodes of one case, one per decoding, and the credit of their decisions: a line of the file that
    :func:`credit_workups` writes.

    There is one entry per episode in ``decodings`` (greedy or sampled) and in ``replies`` (their texts).

    ``process[i][t]`` is R_proc of decision t of episode i (None where forced, or without a value). ``selected[i][t]``
    is the reason why training would select its state for credit (empty: it would not). ``states`` are the states of the
    episodes, without token ids. ``endings[s][c]`` are the continuations of candidate c of state s. A line names
    examinations and holds replies, so it stays where the cases are.
    """

    case: str
    decodings: tuple[str, ...]
    replies: tuple[tuple[str, ...], ...]
    process: tuple[tuple[float | None, ...], ...]
    selected: tuple[tuple[str, ...], ...]
    states: tuple[StateCredit, ...]
    endings: tuple[tuple[tuple[Ending, ...], ...], ...]


def read_credit(path: Path) -> Iterator[CreditedCase]:
    """Yield the credited cases in a gzip file, one per line. Raises TableError for a line that is no credited case."""
    return (case for _, case in read_json_lines(path, CreditedCase))


def credit_workups(settings: Settings, job: Job) -> None:
    """Stage ``credit_workups``: credit the decisions of a run's evaluated episodes, on a few test cases of a data set.

    Raises ValueError when the file of cases holds no test case, and GovernanceError, before any text is sent, where a
    data use agreement forbids sending it.
    """
    cases = chosen_cases(settings, job.inputs["cases"])
    credentialed = any(case.credentialed for case in cases)
    job.tags.update(check_models(settings, cases[0].dataset, credentialed=credentialed))
    evaluated, initial = (ModelSpec.of_folder(job.inputs[name], settings.policy) for name in ("policy", "init_policy"))
    open_policy, temperature = partial(PolicyAgent.build, settings, evaluated), settings.training.temperature
    policy = continues = open_policy(temperature)
    # The initial policy continues where the settings say so and it is not the evaluated policy itself.
    if settings.credit.continuation.policy == "frozen_init" and evaluated != initial:
        continues = PolicyAgent.build(settings, initial, temperature)
    environment = open_environment(settings, credentialed=credentialed)
    crediting = Crediting(settings, open_process(settings, environment, policy, continues), open_policy)
    credited = asyncio.run(crediting.credit_cases(cases, job.inputs["evaluation"]))
    text = "".join(case.model_dump_json() + "\n" for case in credited)
    write_gz(job.out["credit"], [text.encode()])
    decisions, left_out = sum(len(steps) for case in credited for steps in case.process), len(cases) - len(credited)
    job.metrics.update(cases=len(credited), decisions=decisions, left_out=left_out)
    print(f"{job.options['run']} on {job.options['dataset']}: {decisions} decisions of {len(credited)} cases credited")
    if left_out:
        print(f"{left_out} cases left out: their episodes, run again, ended otherwise")


def chosen_cases(settings: Settings, path: Path) -> list[CaseRecord]:
    """Choose the test cases whose decisions are credited: ``inspector.cases`` cases of the file ``path``, spread over
    the diseases. Returns them in the order of the file."""
    cases = read_cases(path)
    disease_of, name_of = attrgetter("diagnosis_results"), attrgetter("note_id")
    chosen = stratified_sample(cases, settings.inspector.cases, disease_of, name_of, SEED)
    names = {case.note_id for case in chosen}
    return [case for case in cases if case.note_id in names]


def open_process(
    settings: Settings, environment: DiagnosticEnvironment, policy: Policy, continues: Policy
) -> ProcessReward:
    """Open CDPR's process reward with settings under which every state gets a value. ``policy``, the evaluated one,
    proposes actions, and ``continues`` acts after them."""
    # The evaluated episodes were not drawn at the temperature of training, so the probabilities of actions, p_hat,
    # are estimated from sampled next actions alone, without those of the episodes ("apart").
    credit = change(credit_every_state(settings.credit), {"own_actions": "apart"})
    return ProcessReward(environment, policy, continues, credit, settings.utility, derive_seed(SEED, "credit"))


@dataclass
class Crediting:
    """Credits every decision of evaluated episodes by the process reward of :func:`open_process`.
    ``open_policy(temperature)`` opens the evaluated policy; it decodes greedily at temperature 0."""

    settings: Settings
    process: ProcessReward
    open_policy: Callable[[float], Policy]

    async def credit_cases(self, cases: Sequence[CaseRecord], evaluation: Path) -> list[CreditedCase]:
        """Credit the episodes of cases, whose rows are in the file ``evaluation``. Returns the credited cases. Cases
        whose episodes cannot be rebuilt are left out."""
        rows = {(row.note_id, str(row.decoding)): row for row in read_rows(evaluation)}
        credited: list[CreditedCase | None] = []
        for start in tqdm(range(0, len(cases), _CASES_AT_ONCE), desc="credit", unit="batch", mininterval=5):
            batch = cases[start : start + _CASES_AT_ONCE]
            credited += await asyncio.gather(*(self.credit_case(case, rows) for case in batch))
        return [case for case in credited if case is not None]

    async def credit_case(self, case: CaseRecord, rows: Mapping[tuple[str, str], EvaluationRow]) -> CreditedCase | None:
        """Credit the evaluated episodes of a case. ``rows`` has the rows of the evaluation by case identifier and
        decoding. Returns None where the effort of a rebuilt episode differs from that of the evaluated one."""
        # Rebuild the episodes, one for each decoding: they are the group.
        group, decodings = list[Trajectory](), self.settings.evaluation.decodings
        for decoding in decodings:
            row = rows[public_text(self.settings, case, case.note_id), decoding]
            group.append(await self._rebuild_episode(case, row))
            if deviations(row, group[-1].effort()):
                return None
        # Credit the group, and list the continuations of each state's candidates.
        credit = self.process.open_group(group, iteration=0)
        await credit.score()
        states, candidates = credit.report.states, credit.candidates.values()
        return CreditedCase(
            case=case.note_id,
            decodings=tuple(decodings),
            replies=tuple(tuple(step.turn.text for step in episode.steps) for episode in group),
            process=tuple(map(tuple, credit.report.process)),
            selected=tuple(map(tuple, reasons_of_selection(credit, self.settings.credit))),
            states=tuple(replace(s, actions=[replace(a, tokens=()) for a in s.actions]) for s in states),
            endings=tuple(tuple(tuple(list_endings(self.process, c)) for c in of_state) for of_state in candidates),
        )

    async def _rebuild_episode(self, case: CaseRecord, row: EvaluationRow) -> Trajectory:
        """Rebuild the evaluated episode of a row from its replies. Rows of credentialed cases have no replies: the
        episode is then run again, with the seed of the evaluation."""
        environment = self.process.environment
        if row.replies is not None:
            return await replay(environment, case, row.replies, row.forced)
        agent = self.open_policy(0.0 if row.decoding == "greedy" else self.settings.training.temperature)
        return await run_episode(environment, agent, case, case_seed(self.settings.evaluation.seed, case))


def list_endings(process: ProcessReward, candidate: Candidate) -> Iterator[Ending]:
    """Yield the continuations from which ``process`` estimated the value of a candidate action. A diagnosis has
    none."""
    if (pool := candidate.pool) is None:
        return
    tests, own_effort = process.environment.settings.tests, candidate.steps[0].effort
    # Nothing is cached between batches here, so the pool has only suffixes of the group and fresh continuations.
    for number, end in enumerate(pool.continuations):
        effort = own_effort + end.effort
        amounts = count_tests(effort, tests), effort.cost_usd, effort.infeasible
        value = utility(end.correct, effort, process.weights, tests)
        yield Ending("suffix" if number < len(pool.own) else "fresh", end.correct, *amounts, value, end.path)


def reasons_of_selection(credit: GroupCredit, rule: Credit) -> list[list[str]]:
    """Say for each decision why training would select its state for credit: ``disagreed``, ``entropy`` or ``all``; the
    text is empty where it would not. Returns lists [trajectory][decision]. ``rule`` is the section ``credit`` of the
    settings of training; ``credit`` has the states of the group, which it has scored under other settings."""
    entropy = {key: state.entropy or 0.0 for key, state in zip(credit.nodes, credit.report.states, strict=True)}
    disagreed = disagreed_states(credit.group, credit.nodes, rule)
    selected = credit.select_states(disagreed, entropy, rule)  # the keys of the selected states of each trajectory
    reasons = [[""] * len(trajectory.steps) for trajectory in credit.group]
    for key, node in credit.nodes.items():
        for trajectory, decision in node.visits:
            if key in selected[trajectory]:
                reasons[trajectory][decision] = selection_reason(key, disagreed, rule)
    return reasons
