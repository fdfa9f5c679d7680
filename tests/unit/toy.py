"""A small enumerable problem: a policy whose action probabilities are known, and exact values under it."""

from __future__ import annotations

import asyncio
import math
import random
from typing import ClassVar

from cdpr.cases import CaseRecord
from cdpr.environment import DiagnosticEnvironment, Effort, Policy, State, Turn, run_episode
from cdpr.environment.utility import utility
from cdpr.llm.types import ModelFailure
from cdpr.settings import parse_settings
from cdpr.settings.schema import TinyModel

# Counts of model calls in a row of an evaluation.
CALL_COUNTS = {"calls": 2, "prompt_tokens": 900, "completion_tokens": 40, "unmarked": 0, "silent": 0,
         "too_long": 0}  # fmt: skip
RIGHT, WRONG = "FINAL_DIAGNOSIS: Acute appendicitis", "FINAL_DIAGNOSIS: Sepsis"
CBC, CT, MRI = "REQUEST_TEST: CBC", "REQUEST_TEST: CT Abdomen and Pelvis", "REQUEST_TEST: MRI Brain"


class Grouped(TinyModel):
    """A tiny policy whose queries share keys and values in two groups, as larger models' do."""

    kv_heads: ClassVar[int] = 2


def appendicitis() -> CaseRecord:
    """A priced case with a panel in two keys, a misspelt twin, and a physical examination."""
    results = {
        "Abdominal (Physical Examination)": "Tender in the right lower quadrant.",
        "Complete Blood Count": "White Blood Cells: Value: 15.1; Units: K/uL; Reference Range: 4.0--11.0; "
        "Flag: abnormal",
        "Platelet Count": "Platelet Count: Value: 250; Units: K/uL; Reference Range: 150.0--440.0",
        "Lipase": "Lipase: Value: 30; Units: IU/L; Reference Range: 0.0--60.0",
        "CT Abdomen and Pelvis": "Dilated appendix with fat stranding.",
    }
    return CaseRecord(
        note_id="T-1",
        case_summary="- Patient Information: 30 year old male\n- Chief Complaint: Abdominal pain\n"
        "- Family History: None",
        key_pertinent_results_dict=results,
        final_diagnosis="Acute appendicitis",
        diagnosis_results="Acute appendicitis",
        exam_cost_map=dict(zip(results, (0.0, 7.77, 7.77, 6.89, 297.26), strict=True)),
        exam_billing_group={"Complete Blood Count": "CBC_PANEL", "Platelet Count": "CBC_PANEL"},
        dataset="mimic_iv",
        split="train",
        subject_key="s1",
        credentialed=False,
    )


class ToyPolicy(Policy):
    """Orders a blood count, a CT, something unavailable, or diagnoses; the more it knows the more often it is right.

    ``jitter`` lets every reply come after a random number of turns of the event loop; ``failing`` is the share of
    requests that fail.
    """

    def __init__(self, jitter: random.Random | None = None, failing: float = 0.0):
        self.jitter, self.failing = jitter, failing

    def distribution(self, state: State, forced: bool) -> dict[str, float]:
        p = 0.2 + 0.2 * ("Complete Blood Count" in state.obtained) + 0.5 * ("CT Abdomen and Pelvis" in state.obtained)
        if forced or len(state.history) >= 4:
            return {RIGHT: p, WRONG: 1 - p}
        return {CBC: 0.4, CT: 0.2, MRI: 0.1, RIGHT: 0.3 * p, WRONG: 0.3 * (1 - p)}

    async def act(self, state, forced, seed):
        return (await self.sample(state, (0,), forced, seed))[0]

    async def sample(self, state, numbers, forced, seed):
        if self.jitter:
            for _ in range(self.jitter.randrange(5)):
                await asyncio.sleep(0)
        if random.Random(f"{seed} fails").random() < self.failing:
            raise ModelFailure("no answer")
        options = self.distribution(state, forced)
        return [Turn(random.Random(f"{seed} {k}").choices(list(options), list(options.values()))[0]) for k in numbers]

    async def score_diagnoses(self, state, names, forced):
        p = self.distribution(state, forced)
        return [Turn(text, (), (1,), (math.log(p[text]),)) for text in (f"FINAL_DIAGNOSIS: {name}" for name in names)]


class HastyPolicy(ToyPolicy):
    """Always begins with a blood count; then half the time it guesses wrong at once, half the time it goes on and,
    when stopped there, is right. So what ends early is worth nothing."""

    def distribution(self, state: State, forced: bool) -> dict[str, float]:
        if not state.history:
            return {CBC: 1.0}
        if "CT Abdomen and Pelvis" in state.obtained:
            return {RIGHT: 1.0} if forced or len(state.history) > 3 else {MRI: 1.0}
        return {WRONG: 1.0} if forced else {WRONG: 0.5, CT: 0.5}


class Script(ToyPolicy):
    """Says its lines, one a turn, whatever comes; then its last again."""

    def __init__(self, *lines: str):
        super().__init__()
        self.lines = lines

    async def sample(self, state, numbers, forced, seed):
        return [Turn(self.lines[min(len(state.history), len(self.lines) - 1)]) for _ in numbers]


def exact_value(env, policy, state, weights, horizon=math.inf, text=None) -> float:
    """Q(s, a) of the reply ``text``, or V(s), by enumeration; at most ``horizon`` decisions after this one (V: with
    it) before a diagnosis is forced."""
    forced = horizon <= 0 or env.must_diagnose(state, policy)
    options = {text: 1.0} if text else policy.distribution(state, forced)
    total = 0.0
    for reply, p in options.items():
        step = env.step(state, Turn(reply))
        if step.observation.kind == "end":
            total += p * env.judge.verdict(step.action.text, state.case.diagnosis_results).correct
            continue
        left = horizon if text else horizon - 1
        now = utility(0, Effort.of([step]), weights, env.settings.tests)
        total += p * (now + exact_value(env, policy, state.after(step), weights, left))
    return total


def problem(**settings):
    """Settings with dear money made cheap, and the environment."""
    settings_of_problem = parse_settings({"utility": {"cost_unit_usd": 100.0}, **settings})
    return settings_of_problem, DiagnosticEnvironment(settings_of_problem.environment)


def group(env, policy, case, n=4, seed=0):
    """n workups of one case."""

    async def run():
        return await asyncio.gather(*(run_episode(env, policy, case, 1000 * seed + i) for i in range(n)))

    return asyncio.run(run())


def update_policy(model, plan, groups, optimizer=None, progress=0.0):
    """One update of a model by samples, with the optimiser of all engines."""
    from cdpr.training.torch.loop import update
    from cdpr.training.torch.optimisers import AdamW

    return update(model, optimizer or AdamW(model.parameters(), plan.learning_rate), groups, plan, progress)


def logprobs_alone(model, ids, positions, temperature=1.0):
    """Log-probabilities of the tokens at these positions, each sequence in a pass of its own."""
    import torch

    from cdpr.training.torch.update import Segment, token_logprobs

    each = zip(ids, positions, strict=True)
    return torch.cat([token_logprobs(model, [[Segment(0, row, scored)]], temperature) for row, scored in each])
