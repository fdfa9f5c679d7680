"""Every answer is paid for once: what a question is, what is kept and when, replay, archives, and faults on the way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from served import Server

from cdpr.cases import iterate_records, write_records
from cdpr.evaluation.evaluate_agent import evaluate, read_cases
from cdpr.evaluation.row import read_rows
from cdpr.llm import ModelFailure, ModelSpec, ModelUnavailable, Sampling, open_model
from cdpr.llm.archive import ArchiveError, run_export, run_import
from cdpr.llm.journal import JournalError, open_journal
from cdpr.llm.recording import AnswerMissing, Recordings, canonical_json, model_identity, question_fields, question_key
from cdpr.pipeline.cli import explain, main
from cdpr.pseudonym import pseudonym
from cdpr.settings import ModelEntry, Settings, parse_settings
from cdpr.settings.models import Calls

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "zqsecret complaint"}]
GREEDY, WARM = Sampling(64, 0.0), Sampling(64, 0.7)
NOWHERE = "http://127.0.0.1:9/v1"
KEY = "zqkey-1f9d"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


def spec_of(state: Path, url: str, kind: str = "counts", mode: str = "record", **more) -> ModelSpec:
    patience = 2 if kind in ("hangs", "drips") else 60  # a busy machine answers late, and that is not the point
    more = {"timeout": patience, "retries": 1, "pause": 0.01, "credentialed": False} | more
    entry = more.pop("entry", ModelEntry(id=kind, at=url))
    return ModelSpec(where=url, name=kind, entry=entry, state=str(state), calls=Calls(mode=mode), **more)


def ask(spec: ModelSpec, messages=ASK, samples=(0,), sampling=GREEDY, seed=0) -> list[str]:
    return [a.text for a in asyncio.run(open_model(spec).chat(messages, samples, sampling, seed))]


def question(spec: ModelSpec, messages=ASK, sample=0, sampling=WARM, seed=0) -> str:
    return question_key(canonical_json(question_fields(model_identity(spec), messages, sample, sampling, seed)))


# What a question is


def test_whatever_decides_an_answer_makes_another_question(tmp_path):
    spec = spec_of(tmp_path, NOWHERE, "m")
    thinking = ModelEntry(id="m", at=NOWHERE, extra={"chat_template_kwargs": {"enable_thinking": True}})
    others = [
        question(spec), question(replace(spec, name="m2")), question(replace(spec, entry=thinking)),
        question(replace(spec, where="anthropic")), question(spec, ASK[1:]), question(spec, ASK[::-1]),
        question(spec, sample=1), question(spec, seed=1), question(spec, sampling=Sampling(65, 0.7)),
        question(spec, sampling=Sampling(64, 0.6)), question(spec, sampling=Sampling(64, 0.7, top_p=0.9)),
        question(spec, sampling=Sampling(64, 0.7, top_k=5)), question(spec, sampling=GREEDY),
    ]  # fmt: skip
    assert len(set(others)) == len(others)
    assert question(spec, sampling=GREEDY, seed=1) == question(spec, sampling=GREEDY), "greedy answers know no seed"


def test_circumstances_make_no_other_question(tmp_path, monkeypatch):
    spec = spec_of(tmp_path, NOWHERE, "m")
    elsewhere = replace(
        spec, where="https://api.example.org/v1", timeout=9.0, retries=7, at_once=3, state=str(tmp_path / "b"),
        credentialed=True, entry=ModelEntry(id="m", answer=["</think>"], prices={"input": 1, "output": 2}),
    )  # fmt: skip
    monkeypatch.setenv("CDPR_API_KEY", KEY)
    assert question(spec) == question(elsewhere)


def test_weights_of_a_folder_count_and_are_read_once(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "weights.bin"):
        (folder / name).write_text(name)
    (tmp_path / "state" / "recordings").mkdir(parents=True)  # where digests are kept; opening a model makes it
    spec = spec_of(tmp_path / "state", str(folder), "", entry=None)
    first = question(spec)
    assert first == question(replace(spec, device="cuda"))
    with monkeypatch.context() as patched:
        patched.setattr("cdpr.files.path_digest", lambda path: pytest.fail("read again"))
        assert question(spec) == first
    (folder / "weights.bin").write_text("other weights")
    assert question(spec) != first


# What is kept


def test_a_question_is_asked_once_also_at_the_same_time(server, tmp_path):
    spec, before = spec_of(tmp_path, server.url, "slow"), server.count("slow")

    async def twice() -> list[str]:
        model = open_model(spec)
        found = await asyncio.gather(*(model.chat(ASK, (0, 1), GREEDY, 0) for _ in range(3)))
        return [answer.text for answers in found for answer in answers]

    first = asyncio.run(twice())
    assert len(set(first)) == 2 and server.count("slow") == before + 2
    assert ask(spec, samples=(0, 1)) == first[:2] and server.count("slow") == before + 2
    assert ask(replace(spec, calls=Calls(mode="live"))) != first[:1] and server.count("slow") == before + 3


def test_what_is_kept_can_be_read_and_holds_no_address_or_key(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CDPR_API_KEY", KEY)
    ask(spec_of(tmp_path, server.url, "echo"))
    [(model, asked, answer, date)] = Recordings(tmp_path, False).journal.read(
        "SELECT model, asked, answer, date FROM answers"
    )
    assert model == "echo" and json.loads(asked)["messages"] == ASK and date.startswith("20")
    told = json.loads(answer)
    assert told["text"].startswith("zqsecret") and told["model"] == "told-by-server"
    assert told["usage"] == {"prompt_tokens": 100, "completion_tokens": 50}
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY.encode() not in stored and server.url.removesuffix("/v1").partition("//")[2].encode() not in stored


@pytest.mark.parametrize("kind", ["status500", "status429", "status400", "status404", "hangs", "garbage", "shapeless",
                                  "cut_off", "tomorrow"])  # fmt: skip
def test_errors_are_not_kept(server, tmp_path, kind):
    with pytest.raises(ModelFailure) as caught:
        ask(spec_of(tmp_path, server.url, kind))
    assert "zqsecret" not in explain(caught.value) and kind in explain(caught.value)
    assert Recordings(tmp_path, False).journal.read("SELECT COUNT(*) FROM answers") == [(0,)]


def test_an_answer_that_stays_empty_is_given_and_question_fields_again(server, tmp_path):
    before = server.count("empty")
    assert ask(spec := spec_of(tmp_path, server.url, "empty")) == [" "]
    assert server.count("empty") == before + spec.retries + 1
    assert ask(spec_of(tmp_path, server.url, "empty", "replay")) == [" "] and server.count("empty") == before + 2
    assert ask(spec) == [" "] and server.count("empty") == before + 4, "it was no answer"


@pytest.mark.parametrize(("kind", "text"), [("refuses", "I cannot help with that."), ("filtered", ""),
                                            ("thought_long", "")])  # fmt: skip
def test_a_refusal_is_an_answer_and_is_kept(server, tmp_path, kind, text):
    spec, before = spec_of(tmp_path, server.url, kind), server.count(kind)
    assert ask(spec) == ask(spec) == [text] and server.count(kind) == before + 1


def test_credentialed_answers_lie_apart(server, tmp_path):
    ask(spec_of(tmp_path, server.url, credentialed=True))
    [folder] = (tmp_path / "recordings").iterdir()
    assert folder.name == "credentialed" and folder.stat().st_mode & 0o777 == 0o700
    ask(spec_of(tmp_path, server.url, credentialed=False))
    assert Recordings(tmp_path, False).journal.read("SELECT COUNT(*) FROM answers") == [(1,)]


WRITER = """
import asyncio, sys
from pathlib import Path
from test_recording import ASK, spec_of
from cdpr.llm import Sampling, open_model

async def main(state, url, kind, numbers, at_once):
    model, gate = open_model(spec_of(Path(state), url, kind, timeout=30)), asyncio.Semaphore(at_once)
    async def one(number):
        async with gate:
            said = [*ASK, {"role": "assistant", "content": str(number)}, {"role": "user", "content": "And?"}]
            [answer] = await model.chat(said, (0,), Sampling(8, 0.0), 0)
        print(number, answer.text, sep="\\t", flush=True)
    await asyncio.gather(*map(one, numbers))

state, url, kind, start, stop, at_once = sys.argv[1:]
asyncio.run(main(state, url, kind, range(int(start), int(stop)), int(at_once)))
"""


def writer(state: Path, server: Server, kind: str, start: int, stop: int, at_once: int = 32) -> subprocess.Popen:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", WRITER, str(state), server.url, kind, str(start), str(stop), str(at_once)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path})


def test_many_processes_write_at_once(server, tmp_path):
    """Where two had the same question at the same time, both go on with the same answer."""
    writers = [writer(tmp_path, server, "counts", start, start + 60) for start in (0, 30, 60, 0)]
    told = [line.split("\t") for process in writers for line in process.communicate(timeout=400)[0].splitlines()]
    assert len(told) == 240 and len(dict(told)) == 120 and len({tuple(pair) for pair in told}) == 120
    assert Recordings(tmp_path, False).journal.read("SELECT COUNT(*) FROM answers") == [(120,)]


def test_a_kill_loses_no_answer_that_was_used(server, tmp_path):
    process, before = writer(tmp_path, server, "doctor_slow", 0, 400, at_once=4), server.count("doctor_slow")
    assert process.stdout is not None
    used = [process.stdout.readline() for _ in range(30)]
    process.send_signal(signal.SIGKILL)
    used += process.communicate()[0].splitlines()
    whole = [line for line in used if line.count("\t") == 1]
    [(kept,)] = Recordings(tmp_path, False).journal.read("SELECT COUNT(*) FROM answers")
    asked = server.count("doctor_slow") - before
    assert len(whole) <= kept and asked - kept <= 8, "at most what was on its way, and those asked in its place"
    assert writer(tmp_path, server, "doctor_slow", 0, 60).wait(400) == 0
    assert server.count("doctor_slow") - before <= max(60, asked) + 8


# Replay


@pytest.fixture
def cases(case, tmp_path) -> Path:
    made = [case.model_copy(update={"note_id": f"T-{k}", "split": "test", "case_summary": f"Case {k}"})
            for k in range(8)]  # fmt: skip
    write_records(tmp_path / "cases.jsonl", made)
    return tmp_path / "cases.jsonl"


def settings_of(tmp_path: Path, url: str, kind: str = "doctor", mode: str = "record", **calls) -> Settings:
    return parse_settings({
        "paths": {"state": str(tmp_path / "state")}, "calls": {"mode": mode, **calls},
        "agents": {"doctor": {"label": "Doctor", "model": "doctor_model"}},
        "models": {"doctor_model": {"id": kind, "at": url, "prices": {"input": 1, "output": 10}}},
    })  # fmt: skip


def evaluated(settings: Settings, cases: Path, name: str, state: str = "job") -> bytes:
    out = cases.with_name(name)
    evaluate(settings, "doctor", read_cases(cases), out, cases.with_name(state))
    (cases.with_name(state) / "evaluation.jsonl").unlink()  # as the pipeline does when all jobs of a command have ended
    return out.read_bytes()


def test_a_table_is_rebuilt_offline_byte_for_byte(server, cases, tmp_path, monkeypatch):
    before = server.count("doctor")
    live = evaluated(settings_of(tmp_path, server.url), cases, "live.jsonl")
    asked = server.count("doctor") - before
    assert asked == 2 * 8 * 2, "two decodings of two turns"
    assert evaluated(settings_of(tmp_path, server.url), cases, "again.jsonl") == live
    monkeypatch.setitem(sys.modules, "httpx2", None)  # not even a client is needed
    assert evaluated(settings_of(tmp_path, NOWHERE, mode="replay"), cases, "replay.jsonl") == live
    assert server.count("doctor") - before == asked
    assert all(row.calls == 2 and row.prompt_tokens == 200 for row in read_rows(tmp_path / "replay.jsonl"))


def test_what_had_no_answer_is_replayed_as_that_and_asked_again(tmp_path, cases, monkeypatch):
    """Of eight cases one is met with silence, and one is too long: turns of theirs that fail, and nobody else's."""
    monkeypatch.setattr("cdpr.llm.server._LONGEST_PAUSE", 0)
    with Server(tmp_path) as server:
        settings = settings_of(tmp_path, server.url, "doctor_patchy")
        live = evaluated(settings, cases, "live.jsonl")
        rows = {row.note_id: row for row in read_rows(tmp_path / "live.jsonl") if row.decoding == "greedy"}
        turns = settings.environment.max_turns
        mute, unread = rows["T-3"], rows["T-5"]
        assert (mute.calls, mute.silent, mute.too_long) == (turns, turns, 0)
        assert (unread.calls, unread.silent, unread.too_long, unread.prompt_tokens) == (turns, turns, turns, 0)
        assert all(row.n_invalid >= turns - 1 and row.forced and not row.correct for row in (mute, unread))
        assert all(row.correct and not row.silent for name, row in rows.items() if name not in ("T-3", "T-5"))
        export(tmp_path / "state", tmp_path / "a.jsonl")
        imported(tmp_path / "there" / "state", tmp_path / "a.jsonl")
        for place in (tmp_path, tmp_path / "there"):
            replay = settings_of(place, NOWHERE, "doctor_patchy", mode="replay")
            assert evaluated(replay, cases, "replay.jsonl", f"{place.name}-job") == live
        asked = server.count("doctor_patchy")
        (tmp_path / "well").touch()  # the server's hiccup is over, and it has more room
        evaluated(settings, cases, "later.jsonl")
        later = list(read_rows(tmp_path / "later.jsonl"))
        assert all(row.correct and not row.silent for row in later)
        assert server.count("doctor_patchy") == asked + 2 * 2 * 2, "two cases, two decodings, two turns"
        evaluated(settings, cases, "last.jsonl")
        assert server.count("doctor_patchy") == asked + 8, "now they are answered"
    assert " 0 conflicting" not in imported(tmp_path / "state", tmp_path / "a.jsonl"), "the answers stay"
    assert evaluated(settings_of(tmp_path, NOWHERE, "doctor_patchy", mode="replay"), cases, "r.jsonl") == (
        tmp_path / "later.jsonl").read_bytes()  # fmt: skip


def test_what_a_replay_lacks_is_told(server, case, cases, tmp_path):
    with pytest.raises(AnswerMissing) as caught:
        evaluated(settings_of(tmp_path, NOWHERE, mode="replay"), cases, "replay.jsonl")
    message = explain(caught.value)
    for part in ("doctor", "T-0", "recordings import", "calls.mode"):
        assert part in message
    write_records(cases, [case.model_copy(update={"split": "test", "credentialed": True})])
    settings = settings_of(tmp_path, "https://api.example.org/v1", mode="replay")
    with pytest.raises(AnswerMissing) as caught:
        evaluated(settings, cases, "replay.jsonl", "job2")
    message = explain(caught.value)
    assert f"case {pseudonym(settings.paths.state, case.note_id)} " in message and case.note_id not in message
    assert "Abdominal" not in message and "credentialed" in message


# Faults on the way


def test_a_server_that_dies_costs_no_answer(server, cases, tmp_path):
    """The evaluation goes on where it was: nothing is asked again, no case is lost or counted twice."""
    whole = evaluated(settings_of(tmp_path / "other", server.url), cases, "whole.jsonl", "other_job")
    for _life in range(20):
        with Server(tmp_path) as dying:
            try:
                found = _impatient(settings_of(tmp_path, dying.url, "doctor_dies"), cases)
                break
            except ModelUnavailable as error:
                assert "see whether the server is well" in explain(error)
    assert found == whole and _life == 6, "each life gives five of 32 answers"
    assert Recordings(tmp_path / "state", False).journal.read("SELECT COUNT(*) FROM answers") == [(32,)]


def _impatient(settings: Settings, cases: Path) -> bytes:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cdpr.llm.server._LONGEST_PAUSE", 0)
        return evaluated(settings, cases, "e.jsonl")


def test_one_case_that_fails_does_not_cost_the_others_their_answers(server, cases, tmp_path):
    with pytest.raises(ModelFailure, match="status 401"):
        evaluated(settings_of(tmp_path, server.url, "doctor_fails"), cases, "e.jsonl")
    asked = server.count("doctor_fails")
    [(kept,)] = Recordings(tmp_path / "state", False).journal.read("SELECT COUNT(*) FROM answers")
    assert kept == asked - 1 == 14, "seven cases came to their end"
    evaluated(settings_of(tmp_path, server.url, "doctor_fails"), cases, "e.jsonl")
    assert len(list(read_rows(tmp_path / "e.jsonl"))) == 16 and server.count("doctor_fails") == 32 + 1


def test_a_missing_key_says_what_to_do(server, tmp_path, monkeypatch):
    monkeypatch.delenv("CDPR_API_KEY", raising=False)
    with pytest.raises(ModelUnavailable, match=r"status 401; check address, model name and key \(CDPR_API_KEY\)"):
        ask(spec_of(tmp_path, server.url, "wants_key"))
    without_keys = ModelEntry(id="wants_key", at=server.url, keys=[])
    with pytest.raises(ModelUnavailable, match=r"status 401; check address, model name and key \(none is named\)"):
        ask(spec_of(tmp_path, server.url, "wants_key", entry=without_keys))


# Archives


def export(state: Path, file: Path, systems: tuple[str, ...] = (), credentialed: tuple[str, ...] = ()) -> str:
    """Export the recordings in ``state``; returns what is said after the file's name."""
    return run_export(_archiver(state, credentialed), file, systems).removeprefix(f"{file}: ")


def imported(state: Path, file: Path) -> str:
    """Import an archive into ``state``; returns the first line of what is said, after the file's name."""
    return run_import(_archiver(state), file).removeprefix(f"{file}: ").partition("\n")[0]


def _archiver(state: Path, credentialed: tuple[str, ...] = ()) -> Settings:
    agents = {name: {"label": name.title(), "model": "m"} for name in ("doctor", "nurse")}
    data = {name: {"credentialed": True} for name in credentialed}
    return parse_settings(
        {"paths": {"state": str(state)}, "agents": agents, "models": {"m": {"id": "m"}}, "data": data}
    )


def said(new: int, known: int, conflicting: int) -> str:
    """The count of an import."""
    return f"{new} new answers, {known} known ones, {conflicting} conflicting (what was recorded here stays)."


OPEN = "{} answers about open cases"


@pytest.fixture
def recorded(server, tmp_path, cases) -> Path:
    settings = settings_of(tmp_path, server.url)
    evaluated(settings, cases, "live.jsonl")
    return tmp_path / "state"


def test_an_archive_redoes_a_table_elsewhere(recorded, cases, tmp_path):
    assert export(recorded, tmp_path / "a.jsonl") == export(recorded, tmp_path / "b.jsonl") == OPEN.format(32)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    there = tmp_path / "there"
    assert imported(there / "state", tmp_path / "a.jsonl") == f"{said(32, 0, 0)} They are of doctor."
    replayed = evaluated(settings_of(there, NOWHERE, mode="replay"), cases, "there.jsonl")
    assert replayed == (tmp_path / "live.jsonl").read_bytes()
    export(there / "state", tmp_path / "c.jsonl")
    assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    assert export(recorded, tmp_path / "d.jsonl", ("doctor",)) == OPEN.format(32)
    with pytest.raises(ArchiveError, match="no answers about open cases for nurse"):
        export(recorded, tmp_path / "e.jsonl", ("nurse",))
    assert not (tmp_path / "e.jsonl").exists()


def test_an_import_counts_what_it_knows_and_what_contradicts_it(recorded, tmp_path):
    export(recorded, tmp_path / "a.jsonl")
    journal = Recordings(recorded, False).journal
    journal.write(lambda database: database.execute(
        "UPDATE answers SET answer = replace(answer, 'CT Abdomen', 'MRI Abdomen') WHERE rowid = 1"))  # fmt: skip
    changed = journal.read("SELECT answer FROM answers WHERE answer LIKE '%MRI%'")
    journal.write(lambda database: database.execute("DELETE FROM answers WHERE rowid = 2"))
    assert len(changed) == 1 and imported(recorded, tmp_path / "a.jsonl").startswith(said(1, 30, 1))
    assert journal.read("SELECT answer FROM answers WHERE answer LIKE '%MRI%'") == changed, "what was here stays"


NO_SERVER = "an answer that no server gave"


@pytest.mark.parametrize(("spoil", "fault"), [
    (lambda line: line | {"asked": line["asked"] | {"model": "a dearer one"}}, "the digest of another question"),
    (lambda line: line | {"answer": {"text": 7}}, NO_SERVER),
    (lambda line: {"question": line["question"]}, "field 'model': Field required"),
    (lambda line: [], "field 'record'"),
    (lambda line: line | {"answer": line["answer"] | {"text": "\ud800"}}, "not JSON"),
    (lambda line: line | {"answer": line["answer"] | {"usage": {"prompt_tokens": -9, "completion_tokens": 5}}},
     NO_SERVER),
    (lambda line: line | {"answer": line["answer"] | {"usage": {"prompt_tokens": "9", "completion_tokens": 5}}},
     NO_SERVER),
    (lambda line: line | {"answer": line["answer"] | {"model": {"name": "m"}}}, NO_SERVER),
])  # fmt: skip
def test_a_spoilt_archive_is_refused_whole(recorded, tmp_path, spoil, fault):
    export(recorded, tmp_path / "a.jsonl")
    first, second, *_ = (tmp_path / "a.jsonl").read_text().splitlines()
    (tmp_path / "bad.jsonl").write_text(f"{first}\n{json.dumps(spoil(json.loads(second)))}\n")
    with pytest.raises(ArchiveError, match=rf"bad\.jsonl:2: .*{fault}.*it is damaged or was edited: fetch it again"):
        imported(tmp_path / "there", tmp_path / "bad.jsonl")
    assert not (tmp_path / "there").exists(), "nothing is imported"


def test_an_archive_of_an_earlier_version_is_told_apart(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04\x99 no text")
    with pytest.raises(ArchiveError, match=r"a\.zip:1: not UTF-8.*no archive of recordings.*earlier version: unzip it"):
        imported(tmp_path / "there", tmp_path / "a.zip")


def test_an_answer_that_no_file_can_hold_is_mended_before_it_is_recorded(server, tmp_path):
    spec = spec_of(tmp_path, server.url, "surrogate")
    assert ask(spec) == ["well \N{REPLACEMENT CHARACTER} done"] == ask(spec)
    assert server.count("surrogate") == 1


def test_an_answer_that_was_recorded_unchecked_is_mended_when_it_is_read(server, tmp_path):
    spec = spec_of(tmp_path, server.url, "echo")
    [first] = ask(spec)
    journal = open_journal(tmp_path / "recordings/open/answers.sqlite", "")
    poisoned = json.dumps({"text": "\ud800", "finish_reason": "stop", "model": "m",
                           "usage": {"prompt_tokens": -5, "completion_tokens": 5}})  # fmt: skip
    journal.write(lambda database: database.execute("UPDATE answers SET answer = ?", (poisoned,)))
    assert ask(spec) == ["\N{REPLACEMENT CHARACTER}"] != [first]


def test_credentialed_answers_are_not_exported(server, recorded, tmp_path):
    spec = spec_of(recorded, server.url, "doctor", credentialed=True)
    ask(spec)
    assert export(recorded, tmp_path / "a.jsonl") == OPEN.format(32), "those of open cases alone"
    assert "zqsecret" not in (tmp_path / "a.jsonl").read_text()
    private = tmp_path / "private"
    ask(replace(spec, state=str(private)))
    with pytest.raises(ArchiveError, match="never leave"):
        export(private, tmp_path / "b.jsonl")
    ask(replace(spec, state=str(private), credentialed=False))  # the same case under another mark
    with pytest.raises(ArchiveError, match="credentialed case"):
        export(private, tmp_path / "b.jsonl")
    assert not (tmp_path / "b.jsonl").exists()


def test_the_mark_of_now_counts_for_exports_too(server, recorded, cases, tmp_path):
    """Answers that were recorded while their data set was open stay here once it is marked."""
    [dataset] = {case.dataset for case in iterate_records(cases)}
    assert export(recorded, tmp_path / "a.jsonl") == OPEN.format(32)
    assert export(recorded, tmp_path / "b.jsonl", credentialed=("private",)) == OPEN.format(32)
    with pytest.raises(ArchiveError, match="never leave"):
        export(recorded, tmp_path / "c.jsonl", credentialed=(dataset,))
    assert not (tmp_path / "c.jsonl").exists()
    ask(spec_of(recorded, server.url, "doctor"), [{"role": "user", "content": "of an unknown case"}])
    assert export(recorded, tmp_path / "d.jsonl") == OPEN.format(33)
    assert export(recorded, tmp_path / "e.jsonl", credentialed=("private",)).startswith(
        f"{OPEN.format(32)}; 1 left out"
    )
    there = tmp_path / "there"
    imported(there, tmp_path / "a.jsonl")  # about open cases, of others
    assert export(there, tmp_path / "f.jsonl", credentialed=(dataset,)) == OPEN.format(32)


def test_the_command_tells_how_to_replay(recorded, tmp_path, capsys):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        f"paths: {{state: {recorded}}}\n"
        "agents: {doctor: {label: Doctor, model: doctor_model}}\nmodels: {doctor_model: {id: doctor}}\n"
    )
    archive = str(tmp_path / "a.jsonl")
    assert main(["recordings", "export", archive, "--settings", str(mine)]) == 0
    assert main(["recordings", "import", archive, "--settings", str(mine)]) == 0
    message = capsys.readouterr().out
    assert "32 answers about open cases" in message and "0 new answers, 32 known ones, 0 conflicting" in message
    assert "They are of doctor." in message and "set calls.mode to replay" in message
    assert main(["recordings", "export", archive, "--system", "nurse", "--settings", str(mine)]) == 2
    assert "nurse" in capsys.readouterr().err


def test_a_file_that_is_no_database_is_told_apart(tmp_path):
    folder = tmp_path / "recordings" / "open"
    folder.mkdir(parents=True)
    (folder / "answers.sqlite").write_bytes(b"no database at all, but long enough to be read as one " * 20)
    with pytest.raises(JournalError, match=r"answers\.sqlite.*move it away"):
        Recordings(tmp_path, False)
