"""The decision process: grammar, matching, charging, caps."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdpr.environment import (
    Agent,
    DiagnosticEnvironment,
    Effort,
    FinalDiagnosis,
    Invalid,
    RequestTest,
    State,
    TableJudge,
    TableMatcher,
    Turn,
    parse_action,
    render_action,
    run_episode,
)
from cdpr.environment.prompt import compact_presentation, compact_result
from cdpr.settings import parse_settings


def environment(**changes) -> DiagnosticEnvironment:
    return DiagnosticEnvironment(parse_settings({"environment": changes}).environment)


def walk(env, case, *texts) -> State:
    state = env.initial(case)
    for text in texts:
        state = State(case, (*state.history, env.step(state, Turn(text))))
    return state


class Script(Agent):
    """Says its lines in order, then repeats the last one."""

    def __init__(self, *lines):
        self.lines = lines

    async def act(self, state, forced, seed):
        return Turn(self.lines[min(len(state.history), len(self.lines) - 1)])


@given(st.text(max_size=300))
def test_parser_never_raises(text):
    assert isinstance(parse_action(text), (RequestTest, FinalDiagnosis, Invalid))


@given(
    st.sampled_from(["full", "compact"]),
    st.sampled_from([RequestTest, FinalDiagnosis]),
    st.from_regex(r"[A-Za-z][A-Za-z0-9 /-]{0,30}[a-z]", fullmatch=True),
)
def test_parser_inverts_rendering(style, kind, argument):
    action = kind(argument)
    assert parse_action(render_action(action, style)) == action


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("THINKING: x\nACTION: REQUEST_TEST\nTest needed: **Lipase**\nReason: y", RequestTest("Lipase")),
        ("**ACTION:** FINAL_DIAGNOSIS\nDiagnosis: Sepsis.\nReason: y", FinalDiagnosis("Sepsis")),
        (
            "I would choose between ACTION: REQUEST_TEST and\nACTION: FINAL_DIAGNOSIS\nDiagnosis: Stroke",
            FinalDiagnosis("Stroke"),
        ),
        ("ACTION: REQUEST_TEST\nDiagnosis: Sepsis", Invalid("ACTION: REQUEST_TEST\nDiagnosis: Sepsis")),
        ("REQUEST_TEST: Lipase\nFINAL_DIAGNOSIS: Sepsis", Invalid("REQUEST_TEST: Lipase\nFINAL_DIAGNOSIS: Sepsis")),
        ("Diagnosis: Sepsis", Invalid("Diagnosis: Sepsis")),
    ],
)
def test_parser_on_replies(text, expected):
    assert parse_action(text) == expected


def test_matching_by_synonym_spelling_and_typo_but_not_by_resemblance(case):
    keys = tuple(case.key_pertinent_results_dict)
    match = TableMatcher(92.0).match
    assert match("CBC", keys) == ("Complete Blood Count",)
    assert match("complete blood count.", keys) == ("Complete Blood Count",)
    assert match("Complete Blod Count", keys) == ("Complete Blood Count",)
    assert match("abdominal exam", keys) == ("Abdominal (Physical Examination)",)
    assert match("CT Head", keys) == ()
    assert match("C-peptide", ("C-Reactive Protein",)) == ()
    assert match("Vitamin B6", ("Vitamin B12",)) == ()
    studies = ("CT HEAD W/O CONTRAST", "MRI Brain with Contrast", "CT HEAD W/ CONTRAST")
    assert match("CT Head", studies) == match("CT of the head", studies) == studies[:1]
    assert match("Head CT with contrast", studies[:2]) == match("CT Chest", studies) == ()


def test_a_billing_group_is_charged_once_and_repeats_are_free(case):
    env = environment()
    state = walk(
        env, case, *(f"REQUEST_TEST: {n}" for n in ("CBC", "Platelet Count", "CBC", "Abdominal exam", "MRI Brain")), "?"
    )
    kinds = [s.observation.kind for s in state.history]
    assert kinds == ["result", "result", "repeat", "result", "unavailable", "invalid"]
    assert state.spent_usd == pytest.approx(7.77)
    effort = Effort.of(state.history)
    assert effort == Effort(issued=4, available=2, unavailable=1, invalid=1, repeated=1, physical=1, cost_usd=7.77)
    assert effort.infeasible == 2


def test_budget_is_never_exceeded_and_forces_a_diagnosis(case):
    env = environment(budget_usd=100.0)
    state = walk(env, case, "REQUEST_TEST: CBC", "REQUEST_TEST: CT Abdomen and Pelvis")
    assert state.history[-1].observation.kind == "over_budget"
    assert state.spent_usd <= 100 and env.must_diagnose(state)


@pytest.mark.parametrize(("forced_turn", "turns"), [("within", 8), ("extra", 9)])
def test_garbage_ends_at_the_cap_with_counted_invalid_actions(case, forced_turn, turns):
    env = environment(forced_turn=forced_turn)
    trajectory = asyncio.run(run_episode(env, Script("garbage"), case, 0))
    assert len(trajectory.steps) == turns and trajectory.forced and not trajectory.correct
    assert trajectory.diagnosis is None and trajectory.effort().invalid == turns


def test_state_identity_is_evidence_not_words(case):
    env = environment()
    a = walk(env, case, "REQUEST_TEST: CBC", "REQUEST_TEST: Lipase")
    b = walk(env, case, "REQUEST_TEST: Complete Blood Count", "REQUEST_TEST: LIPASE")
    c = walk(env, case, "REQUEST_TEST: Lipase", "REQUEST_TEST: CBC")
    assert a.key == b.key and a.key != c.key


@pytest.mark.parametrize(
    ("predicted", "truth", "verdict"),
    [
        ("Heart attack", "Acute myocardial infarction", True),
        ("acute appendicitis with perforation", "Acute appendicitis", True),
        ("Sepsis or pneumonia", "Pneumonia", False),
        ("Infection", "Pneumonia", False),
        ("Myasthenia gravis", "Myasthenia Gravis.", True),
        ("", "Sepsis", False),
    ],
)
def test_judge(predicted, truth, verdict):
    assert TableJudge().judge(predicted, truth) is verdict


def test_compact_rendering(case):
    assert compact_presentation(case.case_summary) == "30 year old male | Abdominal pain"
    assert compact_result(case.key_pertinent_results_dict["Complete Blood Count"]) == "White Blood Cells high"
    assert compact_result(case.key_pertinent_results_dict["Lipase"]) == "normal"
