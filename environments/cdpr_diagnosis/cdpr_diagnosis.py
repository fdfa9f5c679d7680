"""The decision process as an environment of ``verifiers``, for trainers that speak it (prime-rl and others):
``vf.load_environment("cdpr-diagnosis")``.

It has the classic interface (``MultiTurnEnv``, ``Rubric``) of verifiers 0.2 and 0.3,
https://docs.primeintellect.ai/verifiers/v0/environments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import verifiers as vf
from datasets import Dataset

from cdpr.cases import CaseRecord, iterate_records
from cdpr.environment import Effort, FinalDiagnosis, PromptBuilder, State, Trajectory, Turn
from cdpr.environment.opening import open_environment
from cdpr.environment.utility import count_tests, utility
from cdpr.ingest.synthetic import synthetic_cases
from cdpr.llm.guard import GovernanceError
from cdpr.settings import Settings, load_settings, parse_settings
from cdpr.settings.load import merge


def load_environment(
    cases: str | None = None,
    settings: str | Sequence[str] = (),
    reward: Literal["utility", "outcome"] = "utility",
    train_split: str = "train",
    eval_split: str = "test",
    overrides: Mapping[str, Any] | None = None,
) -> "DiagnosisEnv":
    """The environment over the priced cases of a file (``results/cases/DATASET.jsonl``), or a small synthetic hospital.

    ``settings`` are configuration files of the project, later ones over earlier ones, and ``overrides`` keys over them;
    they set prices of decisions (``utility``), turns and budget (``environment``). The reward of a workup is its
    ``utility`` U or its ``outcome``, 1 where the diagnosis is right.

    Raises GovernanceError for credentialed cases: the trainer would decide where their text goes.
    Raises SettingsError for settings, RecordError for cases, ValueError for an unknown reward or split.
    """
    if reward not in ("utility", "outcome"):
        raise ValueError(f"reward: {reward!r} is neither utility nor outcome")
    files = [settings] if isinstance(settings, str) else list(settings)
    chosen = parse_settings(merge((load_settings(*files) if files else Settings()).model_dump(), overrides or {}))
    records = list(iterate_records(cases)) if cases else synthetic_cases(settings=chosen)
    if any(case.credentialed or chosen.data.source(case.dataset).credentialed for case in records):
        raise GovernanceError(
            f"{cases}: these cases are credentialed. verifiers sends their text to any client, so "
            "this environment takes open cases alone; train on them with this project's own engines"
        )
    return DiagnosisEnv(chosen, records, reward, train_split, eval_split)


class DiagnosisEnv(vf.MultiTurnEnv):
    """One case a rollout: the model orders examinations, a turn each, until it diagnoses or has to.

    Every reply goes through :class:`~cdpr.environment.DiagnosticEnvironment` as it does in training and evaluation
    here. ``state["workup"]`` is the workup so far.
    """

    def __init__(self, settings: Settings, cases: Sequence[CaseRecord], reward: str, train_split: str, eval_split: str):
        self.decisions = open_environment(settings, credentialed=False)
        # Models of verifiers read messages: the paper's full prompt, like models of the registry.
        prompt = settings.environment.prompt.model_copy(update={"style": "full"})
        self.prompts = PromptBuilder(prompt, None, settings.policy.max_prompt_tokens)
        self.cases = {case.note_id: case for case in cases}
        super().__init__(
            dataset=self._dataset(train_split),
            eval_dataset=self._dataset(eval_split),
            rubric=diagnosis_rubric(settings, reward),
            env_id="cdpr-diagnosis",
        )

    async def setup_state(self, state: vf.State) -> vf.State:
        """The workup before its first decision."""
        state["workup"] = self.decisions.initial(self.cases[state["info"]["note_id"]])
        state["finished"] = None
        return state

    async def add_trajectory_step(self, state: vf.State, trajectory_step: vf.TrajectoryStep) -> None:
        """Answer the reply; a diagnosis or a forced turn ends the workup."""
        await super().add_trajectory_step(state, trajectory_step)
        workup: State = state["workup"]
        forced = self.decisions.must_diagnose(workup)
        step = await self.decisions.respond(workup, Turn(_text(trajectory_step["completion"])))
        if forced or isinstance(step.action, FinalDiagnosis):
            state["finished"] = self.decisions.finish(workup, step, forced)
        else:
            state["workup"] = workup.after(step)

    @vf.stop
    async def diagnosed(self, state: vf.State) -> bool:
        """Whether the workup has come to its diagnosis."""
        return state["finished"] is not None

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        """The answer to the last request, and whether a diagnosis must follow."""
        workup: State = state["workup"]
        *_, last = self.prompts.messages(workup, self.decisions.must_diagnose(workup))
        return [vf.UserMessage(content=last["content"])]

    def _dataset(self, split: str) -> Dataset:
        rows = []
        for case in self.cases.values():
            if case.split == split:
                start = self.decisions.initial(case)
                rows.append({
                    "prompt": self.prompts.messages(start, self.decisions.must_diagnose(start)),
                    "answer": case.diagnosis_results,
                    "info": {"note_id": case.note_id},
                })  # fmt: skip
        if not rows:
            splits = ", ".join(sorted({case.split for case in self.cases.values()}))
            raise ValueError(f"no case of split {split!r}; the cases are of {splits or 'none'}")
        return Dataset.from_list(rows)


def diagnosis_rubric(settings: Settings, reward: str) -> vf.Rubric:
    """U or the outcome (1 where the diagnosis is right) as the reward; both, and the effort of the workup, as metrics.

    A rollout cut off before its diagnosis (too long a prompt, a time limit) is wrong, and its requests are charged.
    """
    tests = settings.environment.tests
    measures: dict[str, Callable[[bool, Effort], float]] = {
        "utility": lambda correct, effort: utility(correct, effort, settings.utility, tests),
        "outcome": lambda correct, effort: correct,
        "cost_usd": lambda correct, effort: effort.cost_usd,
        "examinations": lambda correct, effort: count_tests(effort, tests),
        "infeasible": lambda correct, effort: effort.infeasible,
    }
    rubric = vf.Rubric()
    for name, measure in measures.items():
        rubric.add_reward_func(_of_state(name, measure), weight=float(name == reward))
    return rubric


def _of_state(name: str, measure: Callable[[bool, Effort], float]) -> Callable[[vf.State], float]:
    def of(state: vf.State) -> float:
        finished: Trajectory | None = state["finished"]
        effort = finished.effort() if finished else Effort.of(state["workup"].history)
        return float(measure(finished is not None and finished.correct, effort))

    of.__name__ = name
    return of


def _text(completion: vf.Messages) -> str:
    """The text of the last message of a reply, without its reasoning."""
    content = completion[-1].content if completion else ""
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text", "") if isinstance(part, dict) else getattr(part, "text", "") for part in content)
