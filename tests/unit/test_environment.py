"""The decision process: grammar, matching, charging, caps."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdpr.environment import (
    EPISODES_AT_ONCE,
    Agent,
    DiagnosticEnvironment,
    Effort,
    FinalDiagnosis,
    RequestTest,
    State,
    TableJudge,
    TableMatcher,
    Turn,
    parse_action,
    render_action,
    run_episode,
    run_episodes,
)
from cdpr.environment.prompt import compact_presentation, compact_result
from cdpr.environment.state import Invalid
from cdpr.environment.utility import utility
from cdpr.settings import parse_settings
from cdpr.settings.schema import Utility


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
        # Words that hold "action" are no verb.
        ("ACTION: FINAL_DIAGNOSIS\nDiagnosis: Drug reaction", FinalDiagnosis("Drug reaction")),
        (
            "ACTION: REQUEST_TEST\nTest needed: Echocardiography\nReason: the ejection fraction",
            RequestTest("Echocardiography"),
        ),
    ],
)
def test_parser_on_replies(text, expected):
    assert parse_action(text) == expected


def test_who_sees_the_whole_record_is_asked_once(case):
    class Static(Script):
        whole_record = True

    said = {"It could be anything.": False, "REQUEST_TEST: CBC": False, "FINAL_DIAGNOSIS: Acute appendicitis": True}
    for reply, right in said.items():
        workup = asyncio.run(run_episode(environment(), Static(reply), case, 0))
        assert (len(workup.steps), workup.correct, workup.forced) == (1, right, False)


def test_matching_by_synonym_spelling_and_typo_but_not_by_resemblance(case):
    keys = tuple(case.key_pertinent_results_dict)

    def match(requested: str, names: tuple[str, ...]) -> tuple[str, ...]:
        return TableMatcher(92.0).match(requested, names)[0]

    assert match("CBC", keys) == ("Complete Blood Count",)
    assert match("complete blood count.", keys) == ("Complete Blood Count",)
    assert match("Complete Blod Count", keys) == ("Complete Blood Count",)
    assert match("abdominal exam", keys) == ("Abdominal (Physical Examination)",)
    assert match("CT Head", keys) == ()
    assert match("Kidney Biopsy", ("Imaging", "Pathology")) == ("Pathology",)  # a heading gathers what is of its kind
    assert match("C-peptide", ("C-Reactive Protein",)) == ()
    assert match("Vitamin B6", ("Vitamin B12",)) == ()
    studies = ("CT HEAD W/O CONTRAST", "MRI Brain with Contrast", "CT HEAD W/ CONTRAST")
    assert match("CT Head", studies) == match("CT of the head", studies) == studies[:1]
    assert match("Head CT with contrast", studies[:2]) == match("CT Chest", studies) == ()
    # A place without studies of its own: the same contrast comes before one that is not named, never another.
    places = ("MRI of the tail", "tail MRI W/ CONTRAST", "tail MRI W/O CONTRAST")
    assert match("MRI tail with contrast", places) == places[1:2]
    assert match("MRI tail with contrast", places[::2]) == places[:1]
    assert match("MRI tail with contrast", places[2:]) == ()


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


def test_an_examination_in_two_spellings_is_given_and_charged_one_after_the_other(case):
    twins = {
        "key_pertinent_results_dict": {"Lipase": "30", "LIPASE": "35"},
        "exam_cost_map": {"Lipase": 6, "LIPASE": 9},
    }
    state = walk(environment(), case.model_copy(update=twins), *["REQUEST_TEST: lipase"] * 3)
    seen = [step.observation for step in state.history]
    assert [(o.kind, o.text, o.charge_usd) for o in seen] == [
        ("result", "30", 6),
        ("result", "35", 9),
        ("repeat", "35", 0),
    ]


@pytest.mark.parametrize("beyond", [0.0, 0.01])
def test_a_budget_may_be_spent_to_the_cent_and_what_exceeds_it_forces_a_diagnosis(case, beyond):
    env = environment(budget_usd=7.77 + 6.89 - beyond)
    state = walk(env, case, "REQUEST_TEST: CBC", "REQUEST_TEST: Lipase")
    assert (state.history[-1].observation.kind == "over_budget") is env.must_diagnose(state) is bool(beyond)
    assert state.spent_usd == pytest.approx(7.77 if beyond else 14.66)


@pytest.mark.parametrize(
    ("tests", "counted"),
    [
        ({}, 1),
        ({"count": "issued"}, 4),
        ({"count_physical": True}, 3),
        ({"count": "issued", "count_physical": True}, 6),
    ],
)
def test_what_requests_cost_that_give_no_new_result(case, tests, counted):
    """A repeat is free; one that is not available, refused for the budget, or cannot be parsed pays lambda_na."""
    env = environment(budget_usd=100.0, tests=tests)
    names = ("Abdominal exam", "Abdominal exam", "CBC", "CBC", "MRI Brain", "CT Abdomen and Pelvis")
    state = walk(env, case, *(f"REQUEST_TEST: {name}" for name in names), "?")
    assert [step.observation.kind for step in state.history] == [
        "result", "repeat", "result", "repeat", "unavailable", "over_budget", "invalid"
    ]  # fmt: skip
    assert state.obtained == ("Abdominal (Physical Examination)", "Complete Blood Count")
    weights = Utility(lambda_test=0.05, lambda_cost=0.02, lambda_na=0.1, cost_unit_usd=10.0)
    expected = 1 - 0.05 * counted - 0.02 * 0.777 - 0.1 * 3
    assert utility(1, Effort.of(state.history), weights, env.settings.tests) == pytest.approx(expected)


def test_a_forced_turn_that_requests_an_examination_is_an_invalid_reply_and_gives_nothing(case):
    env = environment(max_turns=2)
    trajectory = asyncio.run(run_episode(env, Script("REQUEST_TEST: CBC", "REQUEST_TEST: Lipase"), case, 0))
    assert trajectory.forced and trajectory.diagnosis is None and not trajectory.correct
    assert trajectory.effort() == Effort(issued=1, available=1, invalid=1, cost_usd=7.77)


def test_a_long_result_keeps_its_ends_within_the_limit(case):
    long = case.model_copy(update={"key_pertinent_results_dict": {"Lipase": "begin" + "x" * 500 + "end"}})
    text = walk(environment(prompt={"max_observation_chars": 101}), long, "REQUEST_TEST: Lipase").history[0].observation
    assert len(text.text) <= 101 and text.text.startswith("begin") and text.text.endswith("end")


def test_every_turn_of_every_case_has_its_own_seed_and_every_case_its_place(case):
    class Seeds(Agent):
        def __init__(self):
            self.seen = []

        async def act(self, state, forced, seed):
            self.seen.append(seed)
            return Turn("FINAL_DIAGNOSIS: Sepsis" if len(state.history) == 2 else "REQUEST_TEST: CBC")

    agent, cases = Seeds(), [case.model_copy(update={"note_id": f"T-{k}"}) for k in range(EPISODES_AT_ONCE + 3)]
    done = asyncio.run(run_episodes(environment(), agent, cases, 0))
    assert [trajectory.case.note_id for trajectory in done] == [record.note_id for record in cases]
    assert len(set(agent.seen)) == len(agent.seen) == 3 * len(cases)


def test_an_agent_without_limits_is_never_forced(case):
    class Tireless(Script):
        unlimited_turns = True

    lines = ["REQUEST_TEST: CT Abdomen and Pelvis"] * 12 + ["FINAL_DIAGNOSIS: Sepsis"]
    trajectory = asyncio.run(run_episode(environment(budget_usd=1.0), Tireless(*lines), case, 0))
    assert len(trajectory.steps) == 13 and not trajectory.forced


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
    assert TableJudge().verdict(predicted, truth).correct is verdict


def test_compact_rendering(case):
    assert compact_presentation(case.case_summary) == "30 year old male | Abdominal pain"
    assert compact_result(case.key_pertinent_results_dict["Complete Blood Count"]) == "White Blood Cells high"
    assert compact_result(case.key_pertinent_results_dict["Lipase"]) == "normal"
