"""The optional structurer: it may only copy, is asked only where it is needed, and keeps its answers in private."""

import dataclasses
import json
import socket
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdpr.ingest import structurer as s
from cdpr.ingest.attrition import Attrition
from cdpr.ingest.draft import Import
from cdpr.ingest.notes import DischargeNote, parse_discharge_note
from cdpr.ingest.structurer import NoteStructurer
from cdpr.llm import ModelUnavailable
from cdpr.llm.guard import GovernanceError
from cdpr.settings.datasets import Governance, Leaks
from cdpr.settings.datasets import Structurer as Settings

LUMP = """Thin, tired, dry tongue. Lungs clear bilaterally; heart regular, no murmur,
rub or gallop. Abdomen soft, tender in the right lower quadrant, no masses. Calves without swelling."""
PLAIN_DIAGNOSIS = "Acute appendicitis"
STORY = """The patient was found to have acute appendicitis with a small contained perforation, no evidence of
pancreatitis and was operated on the day of admission.
SECONDARY DIAGNOSES:
Asthma"""


def note(physical: str = LUMP, diagnosis: str = PLAIN_DIAGNOSIS) -> str:
    return f"""
Chief Complaint:
Abdominal pain

Physical Exam:
{physical}

DISCHARGE PHYSICAL EXAM:
Wound dry, walking without help.

Pertinent Results:
___ 06:10AM BLOOD WBC-15.0

Brief Hospital Course:
Operated for gangrenous appendicitis. Skin rash after antibiotics.

Discharge Diagnosis:
{diagnosis}

Discharge Condition:
Alert and walking
"""


# A server of the protocol that answers with what stands in a file; it counts the questions in another.
SERVER = """
import pathlib, sys
import uvicorn
from fastapi import FastAPI, Request

app, folder = FastAPI(), pathlib.Path(sys.argv[2])

@app.get("/")
def ready():
    return True

@app.post("/v1/chat/completions")
async def complete(request: Request):
    with (folder / "asked.jsonl").open("ab") as asked:
        asked.write(await request.body() + b"\\n")
    return {"choices": [{"message": {"content": (folder / "reply.txt").read_text()}, "finish_reason": "stop"}]}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


class Server:
    def __init__(self, folder: Path):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}/v1"
        (folder / "server.py").write_text(SERVER)
        self.process = subprocess.Popen([sys.executable, str(folder / "server.py"), port, str(folder)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                httpx2.get(f"http://127.0.0.1:{port}/", trust_env=False)
                break
            except httpx2.TransportError:
                time.sleep(0.05)

    def says(self, reply: str | dict) -> "Server":
        (self.folder / "asked.jsonl").write_text("")
        (self.folder / "reply.txt").write_text(reply if isinstance(reply, str) else json.dumps(reply))
        return self

    def asked(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "asked.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("server"))
    yield running
    running.process.kill()
    running.process.wait()


def structurer(settings: Settings, governance: Governance, credentialed: bool, state: Path) -> NoteStructurer:
    attrition = Attrition("mimic_iv")
    return NoteStructurer(settings, Import(credentialed, Leaks(), attrition, state=state, governance=governance))


@pytest.fixture
def improve(server, tmp_path):
    """Improve a note with a model that gives this reply; returns the note and what became of the answers."""

    def call(reply, text: str) -> tuple[DischargeNote, Counter]:
        helper = structurer(Settings(model=server.says(reply).url, name="m"), Governance(), True, tmp_path / "state")
        [found] = helper.improve_all([(parse_discharge_note(text), text)])
        return found, helper.counters

    return call


def physical(found: DischargeNote) -> dict[str, str]:
    return {key.removesuffix(" (Physical Examination)"): text for key, text in found.physical.items()}


SORTED = {
    "General": "Thin, tired",
    "HEENT": "dry tongue",
    "Lungs": "Lungs clear bilaterally",
    "Heart": "heart regular",
    "Abdomen": "Abdomen soft, tender in the right lower\n quadrant, no masses.",
}


def test_a_lump_is_sorted_by_system_and_loses_nothing(improve):
    found, counters = improve({"physical": SORTED, "primary_diagnosis": ""}, note())
    assert physical(found) == {
        "General Appearance": "Thin, tired, no murmur, rub or gallop. Calves without swelling.",
        "HEENT": "dry tongue.",
        "Respiratory": "Lungs clear bilaterally",
        "Cardiovascular": "heart regular",
        "Abdomen": "Abdomen soft, tender in the right lower quadrant, no masses.",
    }
    assert counters == {s.ASKED: 1, s.USED: 5}
    assert found.primary_diagnosis == PLAIN_DIAGNOSIS and found.history == {"Chief Complaint": "Abdominal pain"}


def test_a_negation_comes_along(improve):
    found, _ = improve({"physical": {"Abdomen": "masses", "Heart": "rub or gallop", "Legs": "Calves"}}, note())
    assert physical(found)["Abdomen"] == "no masses."
    assert physical(found)["Cardiovascular"] == "no murmur, rub or gallop."
    assert "Legs" not in physical(found), "a system of neither the vocabulary nor the note"


@pytest.mark.parametrize(
    ("answer", "counter"),
    [
        ({"Skin": "Skin rash after antibiotics"}, s.ABSENT),  # hospital course
        ({"Skin": "Wound dry"}, s.ABSENT),  # examination at discharge
        ({"Lungs": "Lungs are clear on both sides"}, s.ABSENT),  # reworded
        ({"Lungs": "ungs clear"}, s.ABSENT),  # part of a word
        ({"Abdomen": "soft", "Skin": "Abdomen soft"}, s.AMBIGUOUS),  # one clause for two systems
        ({"Extremities": "no"}, s.AMBIGUOUS),  # stands twice
        ({"Heart of darkness": "heart regular"}, s.ABSENT),  # an invented system
        ({"Lungs": ["Lungs clear"]}, s.MALFORMED),
        ("Lungs clear bilaterally", s.MALFORMED),
    ],
)
def test_what_is_no_copy_is_rejected_and_counted(improve, answer, counter):
    found, counters = improve({"physical": answer}, note())
    assert counters[counter] == 1
    taken = " ".join(found.physical.values())
    assert not any(word in taken for word in ("rash", "Wound", "both", "darkness"))


def test_the_diagnosis_of_a_story(improve):
    found, counters = improve({"primary_diagnosis": "acute appendicitis"}, note(diagnosis=STORY))
    assert found.primary_diagnosis == "acute appendicitis" and counters[s.USED] == 1
    assert found.final_diagnosis == parse_discharge_note(note(diagnosis=STORY)).final_diagnosis


@pytest.mark.parametrize(
    ("answer", "counter"),
    [
        ("pancreatitis", s.NEGATED),
        ("gangrenous appendicitis", s.ABSENT),  # hospital course
        ("Asthma", s.ABSENT),  # a secondary diagnosis
        ("Alert and walking", s.ABSENT),
        ("The patient was found to have acute appendicitis with a small contained perforation", s.MALFORMED),
        (["acute appendicitis"], s.MALFORMED),
    ],
)
def test_a_wrong_diagnosis_changes_nothing(improve, answer, counter):
    text = note(diagnosis=STORY)
    found, counters = improve({"primary_diagnosis": answer}, text)
    assert counters[counter] == 1
    assert found.primary_diagnosis == parse_discharge_note(text).primary_diagnosis


def test_it_sees_only_the_sections_in_question(improve, server):
    improve({}, note())
    [question] = server.asked()
    said = json.dumps(question["messages"])
    assert "quadrant" in said and question["temperature"] == 0
    for elsewhere in ("Wound", "gangrenous", "WBC", "Abdominal pain", PLAIN_DIAGNOSIS, "Alert"):
        assert elsewhere not in said


def test_notes_that_the_parser_understands_are_not_sent(improve, server):
    text = note("GENERAL: Tired.\nLUNGS: Clear.\nABDOMEN: Soft.")
    found, counters = improve({"physical": SORTED}, text)
    assert found == parse_discharge_note(text) and not counters and server.asked() == []
    empty = note("___", "SECONDARY DIAGNOSIS:\nAsthma")
    assert improve({}, empty)[0] == parse_discharge_note(empty) and server.asked() == []


@pytest.mark.parametrize(
    "reply", ["", "I cannot help with that.", "{", "[1, 2]", '{"physical": ', "{}" * 3, "{" * 9999]
)
def test_an_answer_in_no_form_changes_nothing(improve, reply):
    assert improve(reply, note())[0] == parse_discharge_note(note())


def test_many_notes_are_asked_about_at_once_and_come_back_in_order(server, tmp_path):
    helper = structurer(Settings(model=server.says({"physical": SORTED}).url, name="m"), Governance(), True, tmp_path)
    texts = [note(), note("GENERAL: Tired.\nLUNGS: Clear.\nABDOMEN: Soft."), note(diagnosis="Sepsis")] * 4
    found = helper.improve_all([(parse_discharge_note(text), text) for text in texts])
    assert [said.primary_diagnosis for said in found] == [PLAIN_DIAGNOSIS, PLAIN_DIAGNOSIS, "Sepsis"] * 4
    assert [len(said.physical) > 3 for said in found] == [True, False, True] * 4 and helper.counters[s.ASKED] == 8


def test_json_between_other_words_is_found(improve):
    found, _ = improve(f"Sure! ```json\n{json.dumps({'physical': SORTED})}\n``` Anything else?", note())
    assert "HEENT" in physical(found)


def test_answers_are_kept_in_private_and_outlive_the_server(tmp_path):
    with_folder = tmp_path / "server"
    with_folder.mkdir()
    running = Server(with_folder).says({"physical": SORTED})
    settings, state, before = Settings(model=running.url, name="m"), tmp_path / "state", parse_discharge_note(note())
    first = structurer(settings, Governance(), True, state)
    wanted = first.improve_all([(before, note())])
    running.process.kill()
    running.process.wait()
    again = structurer(settings, Governance(), True, state)
    assert again.improve_all([(before, note())]) == wanted and again.counters == first.counters
    folder = state / "recordings" / "credentialed"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and any(b"tongue" in f.read_bytes() for f in folder.iterdir())
    other = structurer(Settings(model=running.url, name="another"), Governance(), True, state)
    other.spec = dataclasses.replace(other.spec, pause=0.01)
    with pytest.raises(ModelUnavailable):
        other.improve_all([(before, note())])


def test_another_machine_is_refused_before_a_note_is_read(tmp_path):
    settings = Settings(model="http://10.1.2.3:8000/v1", name="m")
    with pytest.raises(GovernanceError, match=r"data\.mimic_iv"):
        structurer(settings, Governance(), True, tmp_path)
    assert structurer(settings, Governance(), False, tmp_path).tags() == {}
    agreed = structurer(settings, Governance(remote_agreement="DUA"), True, tmp_path)
    assert agreed.tags() == {}, "nothing was asked yet"
    agreed.counters[s.ASKED] += 1
    assert agreed.tags() == {"remote_agreement": "DUA", "remote_host": "10.1.2.3:8000"}


@pytest.fixture(scope="module")
def silent(tmp_path_factory) -> NoteStructurer:
    """A structurer whose model is never asked."""
    never_called = Settings(model="http://127.0.0.1:9/v1", name="m")
    return structurer(never_called, Governance(), True, tmp_path_factory.mktemp("state"))


WORDS = [*LUMP.replace("\n", " ").split(), "no", "rash", "Wound dry", "right lower", ".", "", "masses. Calves"]


def _words(text: str) -> list[str]:
    return text.replace(",", "").replace(";", "").split()


phrases = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
copied = st.tuples(st.integers(0, 150), st.integers(1, 80)).map(lambda cut: LUMP[cut[0] : sum(cut)])
systems = st.sampled_from(["Lungs", "Abdomen", "Skin", "Neck", "Heart", "tongue", "Soul"])


@given(st.dictionaries(systems, phrases | copied | st.none() | st.integers()))
def test_whatever_it_says_every_word_comes_from_the_section_once(silent, answer):
    """Sorted or left over, the words are those of the section: none added, none lost, none twice."""
    results = silent.physical(LUMP, answer)
    if results:
        assert Counter(_words(" ".join(results.values()))) == Counter(_words(LUMP))
        for text in results.values():
            assert not text.startswith(("murmur", "rub", "masses", "swelling"))


@given(phrases | copied | st.text())
def test_whatever_diagnosis_it_names_stands_in_the_section(silent, answer):
    found = silent.diagnosis(LUMP, answer)
    assert found == "" or found in " ".join(LUMP.split())
