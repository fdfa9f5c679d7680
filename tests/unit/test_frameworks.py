"""Published agents, step by step against scripted conversations: who is asked what, who sees it, when it ends."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections import Counter
from dataclasses import dataclass

import pytest

from cdpr.agents.build import build_agent
from cdpr.agents.diag_agent import RESULT, SUFFICES, DiagAgent
from cdpr.agents.framework import prompts
from cdpr.agents.md_agents import MDAgents
from cdpr.agents.med_agents import MedAgents
from cdpr.agents.tree_of_reasoning import TreeOfReasoning, divide_evidence, field_of
from cdpr.environment import (
    DiagnosticEnvironment,
    FinalDiagnosis,
    RequestTest,
    State,
    Turn,
    parse_action,
    run_episode,
)
from cdpr.environment.state import Invalid
from cdpr.llm import Completion, Model, ModelFailure
from cdpr.settings import SettingsError, parse_settings

AGENTS = {"med_agents": MedAgents, "md_agents": MDAgents, "tree_of_reasoning": TreeOfReasoning, "diag_agent": DiagAgent}
CBC, CT = "ACTION: REQUEST_TEST\nTest needed: CBC", "ACTION: REQUEST_TEST\nTest needed: CT Abdomen and Pelvis"
SEPSIS = "ACTION: FINAL_DIAGNOSIS\nDiagnosis: Sepsis"
OPTIONS = "REQUEST_TEST: CBC\nFINAL_DIAGNOSIS: Sepsis\nREQUEST_TEST: Lipase\nFINAL_DIAGNOSIS: Stroke"
TRIAGE = {"basic": "1) basic", "intermediate": "2) intermediate", "advanced": "3) advanced"}
EXPERTS = "\n".join(f"{n}. Doctor{n} - skill{n} - Hierarchy: Independent" for n in range(1, 6))
TEAMS = "\n".join(
    f"Group {g} - {goal}\n" + "\n".join(f"Member {m}: G{g}M{m}{' (Lead)' * (m == 2)} - skill" for m in (1, 2, 3))
    for g, goal in enumerate(("Initial Assessment Team (IAT)", "Imaging Team", "Final Review Team (FRDT)"), 1)
)


@dataclass(frozen=True)
class Call:
    kind: str
    who: str  # the system's word
    text: str  # the last message
    said: tuple[str, ...]
    temperature: float
    max_tokens: int
    seed: int


class Scripted(Model):
    """Answers by a rule, and remembers the calls; ``jitter`` answers later, at random."""

    def __init__(self, agent, rule, jitter=None):
        self.rule, self.jitter, self.calls = rule, jitter, []
        shapes = {name: re.split(r"{\w+}", text) for name, text in prompts(agent).items()}
        self.shapes = {name: re.compile(".*".join(map(re.escape, s)), re.DOTALL) for name, s in shapes.items()}

    async def chat(self, messages, samples, sampling, seed):
        for _ in range(self.jitter.randrange(6) if self.jitter else 0):
            await asyncio.sleep(0)
        texts = [m["content"] for m in messages]
        assert all(texts) and [m["role"] for m in messages if m["role"] != "system"][::2][-1:] == ["user"]
        system = texts[0] if messages[0]["role"] == "system" else ""
        asked = texts[-1]
        call = Call(
            self._kind(asked, system), system, asked, tuple(texts), sampling.temperature, sampling.max_tokens, seed
        )
        self.calls.append(call)
        return [Completion(self.rule(call), (), (), "stop")]

    def _kind(self, asked, system):
        if asked == system:
            return "warm-up"
        found = [(len(shape.pattern), name) for name, shape in self.shapes.items() if shape.fullmatch(asked)]
        return max(found)[1] if found else "own"

    def count(self):
        return dict(Counter(call.kind for call in self.calls))

    def of(self, *kinds):
        """The calls of some kinds. There are some: what is said of all of them is said of something."""
        found = [call for call in self.calls if call.kind in kinds]
        assert found, f"nobody was asked {kinds}"
        return found


def agent_of(name, rule, temperature=0.7, jitter=None, **own):
    """The agent, and the model behind it; the rule is a function of the call, or answers by kind."""
    by = rule if callable(rule) else lambda call: rule.get(call.kind, "Nothing to add.")
    model = Scripted(name, by, jitter)
    return AGENTS[name](model, parse_settings({"frameworks": {name: own} if own else {}}), temperature), model


def act(agent, state, forced=False, seed=1):
    return asyncio.run(agent.act(state, forced, seed))


def worked_up(case, *texts):
    """The state after these replies."""
    environment, state = DiagnosticEnvironment(parse_settings({}).environment), State(case)
    for text in texts:
        state = state.after(environment.step(state, Turn(text)))
    return state


MED = {
    "propose": OPTIONS, "question_fields": "Medical Field: Surgery | Radiology | Nephrology | Oncology | Urology",
    "option_fields": "Medical Field: Emergency Medicine | Intensive Care", "analyse_question": "QFIND. unfinished",
    "analyse_options": "OFIND.", "report": "Key Knowledge: KNOW\nTotal Analysis: ANALYSIS", "vote": "YES",
    "advise": "Revisions: ADVICE", "revise": "Key Knowledge: KNOW2\nTotal Analysis: ANALYSIS2",
    "decide": "It fits.\nOption: A", "decide_openly": CBC,
}  # fmt: skip


def test_medagents_ask_18_times_where_all_agree_and_56_where_nobody_ever_does(case):
    agent, model = agent_of("med_agents", MED)
    turn = act(agent, State(case))
    assert parse_action(turn.text) == RequestTest("CBC") and "It fits." in turn.text
    stages = {"question_fields": 1, "option_fields": 1, "analyse_question": 5, "analyse_options": 2, "report": 1}
    assert model.count() == {"propose": 1, **stages, "vote": 7, "decide": 1}
    assert {c.kind: c.max_tokens for c in model.calls} == {
        "propose": 2500, "question_fields": 50, "option_fields": 50, "analyse_question": 300, "analyse_options": 300,
        "report": 2500, "vote": 30, "decide": 2500,
    }  # fmt: skip
    agent, model = agent_of("med_agents", MED | {"vote": "No."})
    act(agent, State(case))
    assert model.count() == {"propose": 1, **stages, "vote": 21, "advise": 21, "revise": 3, "decide": 1}
    assert len(model.calls) == 56 + 1


def test_medagents_show_each_stage_what_came_before_and_nothing_else(case):
    def dissent(call):
        if call.kind == "vote" and "Nephrology" in call.who and "ANALYSIS2" not in call.text:
            return "No, the kidneys."
        return MED.get(call.kind)

    agent, model = agent_of("med_agents", dissent)
    act(agent, worked_up(case, CBC))
    for call in model.calls:
        assert case.case_summary in call.text and "15.1" in call.text  # what was found is part of the question
    fields = [re.search("in ([A-Z][A-Za-z ]*)", call.who).group(1) for call in model.of("analyse_question")]
    assert fields == ["Surgery", "Radiology", "Nephrology", "Oncology", "Urology"]
    assert all("QFIND" not in call.text and "Lipase" not in call.text for call in model.of("analyse_question"))
    for call in model.of("analyse_options"):
        assert call.text.count("QFIND.") == 5 and "unfinished" not in call.text
        assert call.text.count("C. Request the examination: Lipase") == 1
    [report] = model.of("report")
    assert (report.text.count("QFIND."), report.text.count("OFIND.")) == (5, 2)
    votes = model.of("vote")
    assert len(votes) == 14 and all("FIND" not in vote.text for vote in votes)
    assert all("KNOW" in vote.text and "Lipase" in vote.text for vote in votes)
    assert [vote.who for vote in votes[:7]] == [c.who for c in model.of("analyse_question", "analyse_options")]
    [advice], [revision], [last] = model.of("advise"), model.of("revise"), model.of("decide")
    assert "Nephrology" in advice.who and "ADVICE" in revision.text and "ANALYSIS\n" in revision.text + "\n"
    assert "ANALYSIS2" in last.text and "ADVICE" not in last.text


def test_medagents_read_fields_that_commas_set_apart(case):
    fields = {"question_fields": "Medical Field: A1, B1, C1, D1, E1, F1"}
    agent, model = agent_of("med_agents", MED | fields)
    act(agent, State(case))
    assert len(model.of("analyse_question")) == 5


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("Option: B", "Sepsis"),
        ("Because: A fits.\nOption C", "Lipase"),
        ("So: I Choose B", None),
        ("B. Sepsis it is", "Sepsis"),
        ("Option: E", None),
        ("Option A is weak. Option: (D)", "Stroke"),
        ("nothing fits", None),
        ("", None),
    ],
)
def test_medagents_read_the_letter_of_an_answer(case, reply, choice):
    agent, _ = agent_of("med_agents", MED | {"decide": reply})
    action = parse_action(act(agent, State(case)).text)
    assert getattr(action, "name", getattr(action, "text", None)) in (choice, reply if choice is None else choice)
    assert isinstance(action, Invalid) == (choice is None)


@pytest.mark.parametrize(
    ("vote", "votes"),
    [("yes", 7), ("NO", 21), ("I know it", 7), ("", 7), ("Yes, no doubt", 7), ("Noted: yes", 7)],
)
def test_medagents_read_votes(case, vote, votes):
    agent, model = agent_of("med_agents", MED | {"vote": vote})
    act(agent, State(case))
    assert len(model.of("vote")) == votes


def test_medagents_offer_diagnoses_only_where_one_is_forced(case):
    agent, model = agent_of("med_agents", MED | {"decide": "none of them"})
    turn = act(agent, State(case), forced=True)
    assert "A. Give the final diagnosis: Sepsis\nB. Give the final diagnosis: Stroke" in model.of("decide")[0].text
    assert parse_action(turn.text) == FinalDiagnosis("Sepsis")  # the best proposed
    proposals = {
        "Nothing comes to mind.": ["decide_openly"],
        "1. REQUEST_TEST: CBC\n2. REQUEST_TEST: cbc\n- FINAL_DIAGNOSIS: Flu": ["A. ", "B. "],
        CBC: ["A. "],
    }
    for said, told in proposals.items():
        agent, model = agent_of("med_agents", MED | {"propose": said})
        act(agent, State(case))
        [last] = model.of("decide", "decide_openly")
        offered = re.findall(r"^[A-E]\. (?=Request|Give)", last.text, re.MULTILINE)
        assert (offered or [last.kind]) == told


MD = {
    "difficulty": TRIAGE["intermediate"], "recruit_intermediate": EXPERTS, "recruit_advanced": TEAMS,
    "opinion": "OPINION", "sum_up": "SUMMARY", "talk": "no", "whom": "2", "message": "MESSAGE",
    "final_answer": "LASTWORD", "moderate": CBC, "investigate": "LOOK", "assist": "FOUND", "report": "TEAMREPORT",
    "conclude": CT, "answer": SEPSIS,
}  # fmt: skip


def test_mdagents_ask_as_often_as_a_case_is_difficult(case):
    expected = {
        "basic": (4, FinalDiagnosis("Sepsis")),
        "intermediate": (28, RequestTest("CBC")),
        "advanced": (27, RequestTest("CT Abdomen and Pelvis")),
    }
    for level, (calls, action) in expected.items():
        agent, model = agent_of("md_agents", MD | {"difficulty": TRIAGE[level]}, rounds=5, turns=5)
        assert parse_action(act(agent, State(case)).text) == action
        assert len(model.calls) == calls, level
        decided = model.of("moderate", "conclude", "answer")
        assert [call.temperature for call in decided] == [0.0]
        assert {call.temperature for call in model.calls if call not in decided} == {0.7}


def test_mdagents_recruit_once_for_a_case_and_begin_every_state_afresh(case):
    agent, model = agent_of("md_agents", MD)

    async def two_states_at_once():
        states = State(case), worked_up(case, CBC)
        return await asyncio.gather(*(agent.act(state, False, n) for n, state in enumerate(states)))

    asyncio.run(two_states_at_once())
    recruiting = {"difficulty": 1, "recruit_intermediate": 1, "warm-up": 9}
    assert {kind: n for kind, n in model.count().items() if kind in recruiting} == recruiting
    assert all(len(call.said) == 4 for call in model.of("opinion"))  # role, role, its answer, the question
    assert all(call.said[0] == call.said[1] for call in model.of("opinion"))
    [first, second] = model.of("moderate")
    assert {len(first.said), len(second.said)} == {4} and ("15.1" in first.text) != ("15.1" in second.text)
    assert all("15.1" not in call.text for call in model.of("difficulty", "recruit_intermediate"))
    agent.refresh()
    act(agent, State(case))
    assert model.count()["difficulty"] == 2


def test_mdagents_try_a_roster_again_that_failed(case):
    failing = iter([True])

    def fail_once(call):
        if call.kind == "difficulty" and next(failing, False):
            raise ModelFailure("no answer")
        return MD.get(call.kind, "hello")

    agent, _ = agent_of("md_agents", fail_once)

    async def twice():
        with pytest.raises(ModelFailure):
            await agent.act(State(case), False, 1)
        return await agent.act(State(case), False, 1)

    assert parse_action(asyncio.run(twice()).text) == RequestTest("CBC")


def test_mdagents_ask_most_where_everyone_speaks_to_all_others(case):
    """All talk to all in every turn, or two doctors send a message each and then all are silent."""
    said: Counter = Counter()

    def chatter(call):
        number = int(call.who.partition("You are a Doctor")[2][:1] or 0)
        said[call.kind] += 1
        return {"talk": "Yes", "whom": ", ".join(str(n) for n in range(1, 6) if n != number)}.get(
            call.kind, MD.get(call.kind, "hello")
        )

    def two_speak(call):
        said[call.kind] += 1
        return {"talk": "Yes" if said["talk"] <= 2 else "No", "whom": "1" if said["whom"] > 1 else "2"}.get(
            call.kind, MD.get(call.kind, "hello")
        )

    for rule, calls in ((chatter, 83), (two_speak, 37)):
        said.clear()
        agent, model = agent_of("md_agents", rule)
        act(agent, State(case))
        assert len(model.calls) == calls


def test_mdagents_debate_until_nobody_speaks_up(case):
    """Doctor 1 talks to doctor 2 in the first turn, doctor 3 to 1 and 5 in the second, then nobody does."""
    said: Counter = Counter()

    def debate(call):
        number = re.search(r"You are a Doctor(\d)", call.who)
        doctor = number and int(number.group(1))
        if call.kind == "talk":
            said[doctor] += 1
            return "Yes" if (doctor, said[doctor]) in {(1, 1), (3, 2)} else "No"
        if call.kind == "whom":
            return {1: "2", 3: "1, 3, 9, 5"}[doctor]  # not oneself, nobody who is not there
        return f"MESSAGE{doctor}" if call.kind == "message" else MD.get(call.kind, "hello")

    agent, model = agent_of("md_agents", debate, rounds=5, turns=5)
    act(agent, State(case))
    assert model.count()["talk"] == 15 and model.count()["message"] == 3 and model.count()["final_answer"] == 5
    talks = model.of("talk")
    assert all("SUMMARY" in call.text for call in talks)
    assert ["MESSAGE1" in call.text for call in talks] == [False] + [True] * 14  # it is heard from then on
    assert "Doctor3 to Doctor5: MESSAGE3" in talks[-1].text and "Doctor3 to Doctor3" not in talks[-1].text
    assert model.of("moderate")[0].text.count("LASTWORD") == 5
    assert model.of("sum_up")[0].text.count("OPINION") == 5 and len(model.of("sum_up")) == 1


def test_mdagents_teams_read_and_conclude_all_reports(case):
    agent, model = agent_of("md_agents", MD | {"talk": "yes"}, rounds=2, turns=2)
    act(agent, State(case))
    assert ["LASTWORD" in call.text for call in model.of("sum_up")] == [False, True]

    def rule(call):
        rules = MD | {"difficulty": TRIAGE["advanced"]}
        return f"REPORT of {call.who[10:14]}" if call.kind == "report" else rules.get(call.kind, "hello")

    agent, model = agent_of("md_agents", rule)
    act(agent, State(case))
    assert re.findall(r"REPORT of (\w+)", model.of("conclude")[0].text) == ["G1M2", "G2M2", "G3M2"]
    assert "".join(sorted(call.who[11] for call in model.of("report"))) == "123"
    reviewing = [call for call in model.of("investigate") if "G3M2" in call.who][-1]
    assert "REPORT of G1M2" in reviewing.text


@pytest.mark.parametrize(
    "broken",
    [
        {"difficulty": "hard to say"},
        {"recruit_intermediate": f"Here they are:\n{EXPERTS}"},
        {"difficulty": TRIAGE["advanced"], "recruit_advanced": f"Sure.\n{TEAMS}"},
        {"talk": "yes", "whom": "7"},
        {"talk": "yes", "whom": "the second"},
    ],
)
def test_mdagents_go_on_after_an_unforeseen_answer(case, broken):
    agent, model = agent_of("md_agents", MD | broken)
    assert isinstance(parse_action(act(agent, State(case)).text), RequestTest)
    assert not broken.get("talk") or "message" not in model.count()


@pytest.mark.parametrize("level", ["intermediate", "advanced"])
def test_mdagents_have_clinicians_of_their_own_where_none_can_be_read(case, level):
    agent, model = agent_of("md_agents", MD | {f"recruit_{level}": "?", "difficulty": TRIAGE[level]})
    act(agent, State(case))
    assert (
        len({call.who for call in model.of("opinion", "investigate", "assist")})
        == {"intermediate": 5, "advanced": 9}[level]
    )


TREE = {
    "tree": "Disease: TREE",
    "nothing_known": "Disease: OPEN",
    "join": "Yes",
    "opinion": "VIEW",
    "revise": "NEWTREE",
    "decide": CBC,
}
BIOPSY = "ACTION: REQUEST_TEST\nTest needed: Skin Biopsy"


@pytest.fixture
def full_case(case):
    results = case.key_pertinent_results_dict | {"Skin Biopsy": "Granuloma."}
    prices = case.exam_cost_map | {"Skin Biopsy": 100.0}
    return case.model_copy(update={"key_pertinent_results_dict": results, "exam_cost_map": prices})


@pytest.fixture
def talkative(monkeypatch):
    """Every doctor in the discussion addresses all the others."""
    monkeypatch.setattr("cdpr.agents.tree_of_reasoning.ADDRESSES", 1.0)


def test_tor_asks_at_most_once_each_way(full_case, talkative):
    agent, model = agent_of("tree_of_reasoning", TREE)
    assert parse_action(act(agent, worked_up(full_case, CBC, CT, BIOPSY)).text) == RequestTest("CBC")
    assert len(model.calls) == 25 and len(model.of("tree")) == 4


def test_tor_asks_as_often_as_doctors_are_at_work(full_case):
    state = worked_up(full_case, CBC, CT, BIOPSY)
    agent, model = agent_of("tree_of_reasoning", TREE)
    counts = []
    for seed in range(40):
        act(agent, state, seed=seed)
        counts.append(len(model.calls))
        model.calls.clear()
    assert min(counts) >= 13 and max(counts) <= 25 and 20.4 < sum(counts) / 40 < 22.4  # 13 + 12 x 0.7
    agent, model = agent_of("tree_of_reasoning", TREE | {"join": "No"})
    act(agent, state)
    assert model.count() == {"tree": 4, "join": 4, "revise": 4, "decide": 1}
    # At the start one doctor knows something; the others say what to examine.
    agent, model = agent_of("tree_of_reasoning", TREE | {"join": "no"})
    act(agent, State(full_case))
    assert model.count() == {"tree": 1, "nothing_known": 3, "join": 4, "revise": 4, "decide": 1}


def test_tor_sections_hold_what_was_observed(full_case):
    state = worked_up(
        full_case,
        "ACTION: REQUEST_TEST\nTest needed: Abdominal",
        CBC,
        CT,
        BIOPSY,
        "x",
        "ACTION: REQUEST_TEST\nTest needed: MRI Brain",
    )
    sections = divide_evidence(state)
    assert list(sections) == ["chief complaint", "laboratory", "imaging", "pathology"]
    assert "Tender" in sections["chief complaint"] and full_case.case_summary in sections["chief complaint"]
    assert sections["laboratory"].startswith("Complete Blood Count: White") and sections["laboratory"].count("\n") == 0
    assert sections["imaging"] == "CT Abdomen and Pelvis: Dilated appendix with fat stranding."
    assert sections["pathology"] == "Skin Biopsy: Granuloma."
    for exam, field in {
        "XR CHEST PA/LAT": "imaging", "ECG": "imaging", "Blood Culture": "laboratory", "Liver biopsy": "pathology",
        "Unheard-of Assay": "imaging", "Abdominal (Physical Examination)": "chief complaint",
    }.items():  # fmt: skip
        assert field_of(exam, "Sinus rhythm.") == field
    assert field_of("Unheard-of Assay", "Assay: Value: 3; Units: g/L; Reference Range: 1.0--2.0") == "laboratory"


def test_tor_doctors_see_their_own_field_and_each_others_trees(full_case, talkative):
    state = worked_up(full_case, CBC, CT)
    views = lambda call: f"VIEW{call.said.__hash__() % 97}" if call.kind == "opinion" else TREE[call.kind]  # noqa: E731
    agent, model = agent_of("tree_of_reasoning", views)
    act(agent, state)
    trees = {call.text.split("Doctor of ")[1].split(" in a team")[0]: call.text for call in model.of("tree")}
    assert "15.1" in trees["laboratory"] and "Dilated" not in trees["laboratory"] and "15.1" not in trees["imaging"]
    for call in model.of("join"):
        assert call.text.count("TREE") == 3
        assert ("15.1" in call.text) == ("Doctor of laboratory in a team" in call.text)
    for call in model.of("revise"):
        assert call.text.count("VIEW") == 3 and "15.1" not in call.text
    [head] = model.of("decide")
    assert head.text.count("NEWTREE") == 4 and "Dilated" in head.text and "15.1" in head.text


MORE = "```\nCurrent diagnosis: Colitis\nExamination to be performed: {}\nReason: needed: nothing\n```"
ENOUGH = f"```\n{SUFFICES}\n\nDiagnosis: Acute\nappendicitis\nReason: the CT\n```"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (MORE.format("Vit. B12."), RequestTest("Vit. B12")),
        (MORE.format("CBC, CRP"), RequestTest("CBC")),
        (MORE.format("CT (abdomen, pelvis)"), RequestTest("CT (abdomen, pelvis)")),
        ("Current diagnosis: x\n\nThe test needed: **Lipase**", RequestTest("Lipase")),
        (ENOUGH, FinalDiagnosis("Acute appendicitis")),
        ("Diagnosis: Flu", FinalDiagnosis("Flu")),
        (SUFFICES, None),
        ("Current diagnosis: Flu", None),
        ("", None),
    ],
)
def test_diagagent_replies_are_actions(case, reply, expected):
    agent, _ = agent_of("diag_agent", lambda call: reply)
    turn = act(agent, State(case))
    assert parse_action(turn.text) == (Invalid(reply) if expected is None else expected)
    assert turn.text.startswith(reply)


def test_diagagent_hears_results_in_its_own_format(case):
    replies = [MORE.format('"CBC"'), MORE.format("MRI Brain"), "What now?"]
    agent, model = agent_of("diag_agent", lambda call: replies[min(len(call.said) // 2 - 1, 2)], temperature=0.0)
    state, environment = State(case), DiagnosticEnvironment(parse_settings({}).environment)
    for _ in range(4):
        state = state.after(environment.step(state, act(agent, state)))
    said = model.calls[-1].said
    assert said[1] == case.case_summary and said[2] == replies[0] and said[4] == replies[1] and said[6] == replies[2]
    assert said[3] == RESULT + case.key_pertinent_results_dict["Complete Blood Count"]
    assert "not available" in said[5] and RESULT not in said[5] and SUFFICES in said[0]
    assert (model.calls[-1].temperature, model.calls[-1].max_tokens) == (0.0, 2048)


def test_diagagent_forced(case, tmp_path):
    (tmp_path / "own.txt").write_text("INSTRUCTION")
    agent, model = agent_of("diag_agent", lambda call: MORE.format("CT"), instruction=str(tmp_path / "own.txt"))
    assert parse_action(act(agent, State(case), forced=True).text) == FinalDiagnosis("Colitis")  # the working one
    assert SUFFICES in model.calls[0].text and model.calls[0].who == "INSTRUCTION"
    with pytest.raises(SettingsError, match="cannot be read"):
        agent_of("diag_agent", {}, instruction=str(tmp_path / "absent"))


@pytest.mark.parametrize("name", ["med_agents", "md_agents", "tree_of_reasoning"])
def test_who_decides_knows_the_state_and_the_task_of_every_other_model(case, name):
    rules = {"med_agents": MED | {"propose": "?"}, "md_agents": MD, "tree_of_reasoning": TREE}
    state = worked_up(case, CBC, "ACTION: REQUEST_TEST\nTest needed: MRI Brain")
    agent, model = agent_of(name, rules[name])
    act(agent, state)
    act(agent, state, forced=True)
    free, forced = model.of("decide", "decide_openly", "moderate")
    told = [text.index(said) for text in [free.text] for said in (
        "Response Format", "Chief Complaint: Abdominal pain", "1. Result of Complete Blood Count: White Blood Cells",
        "2. MRI Brain is not available", "can be requested: 5.",
    )]  # fmt: skip
    assert told == sorted(told)
    assert "No further examination is possible.\n" in forced.text and "has to be FINAL_DIAGNOSIS" in forced.text
    assert "has to be" not in free.text and "can be requested" not in forced.text


NONSENSE = ["", "   ", "The patient seems unwell, I think.", "Option: Z", "99, 0, -1", "1.\n2.\n3.", "yes no YES",
            "| | |", ": : :", "{record} {0} %s", "ACTION: REQUEST_TEST", "Diagnosis:", "\u0000\u2028 ```"]  # fmt: skip


@pytest.mark.parametrize("name", AGENTS)
def test_nonsense_never_crashes_and_a_forced_turn_diagnoses(full_case, name):
    levels = TRIAGE if name == "md_agents" else ("",)
    for reply, forced, level in itertools.product(NONSENSE, (False, True), levels):
        agent, _ = agent_of(name, lambda call, r=reply, n=level: TRIAGE[n] if call.kind == "difficulty" else r)
        for state in (State(full_case), worked_up(full_case, CBC, "nonsense", CT)):
            found = parse_action(act(agent, state, forced).text)
            assert isinstance(found, Invalid | FinalDiagnosis) and (forced or isinstance(found, Invalid))
            if forced and reply.startswith("The patient"):
                assert found == FinalDiagnosis("The patient seems unwell, I think")


@pytest.mark.parametrize("name", AGENTS)
def test_the_same_seed_gives_the_same_bytes_in_any_order_of_answers(full_case, name):
    """Every answer is drawn from the very question and seed; which of several arrives first must not matter."""
    lines = [CBC, CT, SEPSIS, "Yes", "no", "2, 3", "1", "Option: B", OPTIONS, EXPERTS, TEAMS, *TRIAGE.values(),
             "a | b | c", "Key Knowledge: x\nTotal Analysis: y", MORE.format("CBC"), ENOUGH]  # fmt: skip

    def draw(call):
        return random.Random(f"{call.said} {call.seed}").choice(lines)

    def episodes(jitter, seeds):
        agent, model = agent_of(name, draw, jitter=jitter)
        environment = DiagnosticEnvironment(parse_settings({}).environment)

        async def run():
            return await asyncio.gather(*(run_episode(environment, agent, full_case, seed) for seed in seeds))

        return [[step.turn.text for step in one.steps] for one in asyncio.run(run())], model

    first, model = episodes(None, range(4))
    assert episodes(random.Random(1), range(4))[0] == first
    assert episodes(random.Random(2), [3, 2, 1, 0])[0] == first[::-1]
    assert len({tuple(one) for one in first}) > 1
    seeds = Counter((call.seed, call.said) for call in model.calls)
    assert max(seeds.values()) == 1  # nothing is asked twice with one seed


@pytest.mark.parametrize("name", AGENTS)
def test_they_need_a_model(name):
    kind = AGENTS[name]
    entry = {"label": "Mine", "group": "reference", "acts": f"{kind.__module__}:{kind.__name__}"}
    with pytest.raises(SettingsError, match="acts by a language model"):
        build_agent(parse_settings({"agents": {"mine": entry}}), "mine", None, 0.0, "private")
