"""Evaluation: every kind of agent by one line of the registry, and an interrupted evaluation that goes on."""

from __future__ import annotations

import gc
import hashlib
import json
from pathlib import Path

import httpx2
import psutil
import pytest
from pydantic import ValidationError
from served import answering
from toy import RIGHT, WRONG, Script

from cdpr.cases import write_records
from cdpr.environment import Turn
from cdpr.environment.prompt import opening_messages
from cdpr.evaluation import evaluate_agent as evaluation
from cdpr.evaluation.evaluate_agent import evaluate, evaluate_agent, read_cases
from cdpr.evaluation.row import EvaluationRow, read_rows
from cdpr.job import Job
from cdpr.llm.agent_model import current_meter, is_same_model, metering
from cdpr.llm.guard import GovernanceError
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.llm.types import Completion, Usage
from cdpr.pipeline.stages import STAGES
from cdpr.pseudonym import pseudonym
from cdpr.records import RunRecord
from cdpr.report.main_table import legend_words
from cdpr.report.methods import main_methods
from cdpr.report.results import Results
from cdpr.settings import Settings, SettingsError, load_settings, merge, parse_settings
from cdpr.settings.datasets import BENCHMARKS
from cdpr.settings.schema import TinyModel
from cdpr.training.torch.tiny import build_tiny_policy

FORCED = "Give your final diagnosis now."
TINY = TinyModel(hidden_size=32, layers=1, heads=2, intermediate_size=48, vocab_size=320)


@pytest.fixture
def cases(case, tmp_path) -> Path:
    """Eight test cases."""
    made = [case.model_copy(update={"note_id": f"T-{k}", "split": "test"}) for k in range(8)]
    write_records(tmp_path / "cases.jsonl", made)
    return tmp_path / "cases.jsonl"


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    corpus = ["REQUEST_TEST: Lipase", "FINAL_DIAGNOSIS: Acute appendicitis", "30 year old male | Abdominal pain"] * 20
    return build_tiny_policy(tmp_path_factory.mktemp("policy") / "tiny", TINY, corpus)


@pytest.fixture(scope="module")
def server():
    """A server of the OpenAI protocol that orders a CT and reads it; ``asked`` holds the requests."""

    async def answer(request, server):
        body = await request.json()
        server.requests.append(body | {"key": request.headers.get("authorization")})
        said = body["messages"][-1]["content"]
        text = "ACTION: REQUEST_TEST\nTest needed: CT Abdomen and Pelvis"
        if "appendix" in said or FORCED in said:
            text = f"ACTION: FINAL_DIAGNOSIS\nDiagnosis: {'Acute appendicitis' if 'appendix' in said else 'Sepsis'}"
        if body["model"] == "thinker":
            text = f"<think>ACTION: FINAL_DIAGNOSIS\nDiagnosis: Gout</think>{text}"
        usage = {} if body["model"] == "taciturn" else {"usage": {"prompt_tokens": 100, "completion_tokens": 7}}
        usage |= {"model": "smaller-one"} if body["model"] == "imposter" else {}
        return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]} | usage

    with answering(answer) as server:
        yield server


def with_lines(tmp_path: Path, *lines: str, models: tuple[str, ...] = ()) -> Settings:
    """The shipped settings with further lines in the registries of agents and models."""
    overlay = tmp_path / "mine.yaml"
    registries = {"agents": lines, "models": models}
    kept = f"paths: {{state: {tmp_path / 'kept'}}}\n"
    lines_of = (f"{name}:\n" + "".join(f"  {x}\n" for x in xs) for name, xs in registries.items() if xs)
    overlay.write_text(kept + "".join(lines_of))
    return load_settings(overlay)


def evaluated(settings: Settings, run: str, cases: Path, policy: Path | None = None) -> list[EvaluationRow]:
    """Rows of the stage."""
    out = cases.with_name(f"{run}.jsonl")
    inputs = {"cases": cases} | ({"policy": policy} if policy else {})
    job = Job("evaluate", "k", inputs, {"evaluation": out}, None, cases.parent / "state",
              {"run": run, "dataset": "mimic_iv"})  # fmt: skip
    evaluate_agent(STAGES["evaluate_agent"].view(settings, job.options), job)
    assert job.metrics["cases"] == 8
    (job.state / "evaluation.jsonl").unlink()  # as the pipeline does when all jobs of a command have ended
    return list(read_rows(out))


def test_the_record_holds_means_of_every_decoding(server, cases, tmp_path):
    line = f'mine: {{label: Mine, group: open, model: "{server.url}", served_as: m}}'
    few = [*read_cases(cases, limit=3), *read_cases(cases, limit=1)]
    few[-1] = few[-1].model_copy(update={"note_id": "T-9", "key_pertinent_results_dict": {}})  # whose CT is unavailable
    means, _ = evaluate(with_lines(tmp_path, line), "mine", few, tmp_path / "rows.jsonl", tmp_path / "state")
    expected = {"accuracy": 0.75, "aen": (3 + 7) / 4, "aec": 0.75 * 297.26, "n_na": 7 / 4,
                "utility": (3 * (1 - 0.05 - 0.02 * 297.26) - 7 * 0.1) / 4}  # fmt: skip
    for decoding in ("greedy", "sampled"):
        assert {name: means[f"{decoding}/{name}"] for name in expected} == pytest.approx(expected)


def test_a_server_is_one_line(server, cases, tmp_path):
    line = f'mine: {{label: Mine, group: open, model: "{server.url}", served_as: m}}'
    rows = evaluated(with_lines(tmp_path, line), "mine", cases)
    assert len(rows) == 16 and all(row.correct and row.n_available == 1 and row.turns == 2 for row in rows)
    assert {(row.cost_usd, row.obtained) for row in rows} == {(297.26, ("CT Abdomen and Pelvis",))}
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    assert roles[-3:] == ["user", "assistant", "user"] and {body["temperature"] for body in server.requests} == {
        0.0,
        1.0,
    }


@pytest.mark.parametrize(
    ("asked", "answered", "same"),
    [
        ("gpt-5.4", "gpt-5.4-2026-03-05", True), ("openai/gpt-5.4", "gpt-5.4", True),
        ("Qwen/Qwen3-8B", "qwen3-8b", True),
        ("claude-sonnet-4-6", "claude-sonnet-4-6@20260101", True), ("m", "/models/m/", True),
        ("gemini-3.1-flash", "gemini-3.1-flash-preview-06-17", True), ("gpt-5.4", "gpt-5.4-mini", False),
        ("gpt-5.4", "gpt-5", False), ("Qwen3-8B", "Qwen3-8B-Base", False), ("m", "other", False),
    ],
)  # fmt: skip
def test_a_model_under_another_name_is_another_model_unless_a_date_is_added(asked, answered, same):
    assert is_same_model(asked, answered) == same


def test_a_server_that_answers_as_another_model_is_named_in_record_and_table(server, cases, tmp_path, capsys):
    line = f'mine: {{label: Mine, group: open, model: "{server.url}", served_as: imposter}}'
    settings, folder = with_lines(tmp_path, line), tmp_path / "results"
    for dataset in BENCHMARKS:
        out = folder / "evaluations/mine" / f"{dataset}.jsonl"
        out.parent.mkdir(parents=True, exist_ok=True)
        job = Job("evaluate", "k", {"cases": cases}, {"evaluation": out}, None, tmp_path / "state",
                  {"run": "mine", "dataset": dataset})  # fmt: skip
        evaluate_agent(STAGES["evaluate_agent"].view(settings, job.options), job)
        assert job.tags["answered_as"] == "smaller-one" and {row.models for row in read_rows(out)} == {("smaller-one",)}
        record = RunRecord(tier=settings.tier, tags=job.tags)
        out.with_suffix(".run.json").write_text(record.model_dump_json())
    assert "imposter was requested, but the server answered as smaller-one" in capsys.readouterr().out
    mine = [method for method in main_methods(settings) if method.name == "mine"]
    notes = legend_words(Results(settings, folder, mine))["answered"]
    assert "Mine: the server answered as smaller-one, not as the requested model." in notes


@pytest.mark.parametrize(
    ("acts", "correct", "cost", "obtained"), [("ImmediateAgent", False, 0.0, ()), ("StaticAgent", True, 311.92, None)]
)
def test_a_server_in_one_shot(server, cases, tmp_path, acts, correct, cost, obtained):
    line = f'shot: {{label: Shot, model: "{server.url}", served_as: m, acts: "cdpr.agents.policy:{acts}"}}'
    rows = evaluated(with_lines(tmp_path, line), "shot", cases)
    assert {(row.correct, row.cost_usd, row.turns, row.obtained) for row in rows} == {(correct, cost, 1, obtained)}
    assert server.requests[-1]["messages"][-1]["content"].endswith(FORCED)


def test_a_folder_is_one_line(policy, cases, tmp_path):
    """It reads messages, the full prompt and all, as if it stood behind a server."""
    line = f'mine: {{label: Mine, group: open, model: "{policy}"}}'
    settings = with_lines(tmp_path, line, models=())
    settings = settings.model_copy(update={
        "evaluation": settings.evaluation.model_copy(update={"max_turn_tokens": 5}),
        "environment": settings.environment.model_copy(update={"max_turns": 2}),
    })  # fmt: skip
    rows = evaluated(settings, "mine", cases)
    assert {(row.calls, row.completion_tokens <= 10) for row in rows} == {(2, True)}
    full = opening_messages(settings.environment.prompt.model_copy(update={"style": "full"}), "")
    assert min(row.prompt_tokens for row in rows) > 2 * len(ChatTokenizer(policy).encode_conversation(full))


def test_a_trained_policy_is_evaluated_as_it_was_trained(policy, cases, tmp_path):
    settings = load_settings()
    rows = evaluated(settings, "warm_start", cases, policy)
    assert rows == evaluated(settings, "cdpr-seed0", cases, policy)
    assert all(row.calls == row.turns and row.completion_tokens <= 16 * row.turns for row in rows)


THINKER = 'thinker: {id: thinker, at: "URL", answer: ["</think>"], system: fold, sampling: {max_tokens: 900}}'


def test_a_model_of_the_registry_is_asked_as_its_entry_says(server, cases, tmp_path, monkeypatch):
    """The thought would have been a diagnosis; the answer behind it is none."""
    monkeypatch.setenv("OPENAI_API_KEY", "zqkey-openai")
    monkeypatch.delenv("CDPR_API_KEY", raising=False)
    entry, bare = THINKER.replace("URL", server.url), THINKER.replace("URL", server.url).replace("thinker:", "bare:", 1)
    bare = bare.replace('answer: ["</think>"]', 'answer: ["## Final Response"]')
    lines = "thinks: {group: open, model: thinker}", "bare: {group: open, model: bare}"
    settings = with_lines(tmp_path, *lines, models=(entry, bare))
    rows = evaluated(settings, "thinks", cases)
    assert {(row.correct, row.calls, row.prompt_tokens, row.completion_tokens, row.unmarked) for row in rows} == {
        (True, 2, 200, 14, 0)}  # fmt: skip
    asked = server.requests[-1]
    assert (asked["max_tokens"], asked["messages"][0]["role"], asked["key"]) == (900, "user", None)
    assert asked["messages"][0]["content"].startswith("You are a medical AI assistant") and "seed" in asked
    assert {row.unmarked for row in evaluated(settings, "bare", cases)} == {2}


@pytest.mark.parametrize(
    ("entry", "sent", "not_sent"),
    [
        ("provider: openai, extra: {reasoning_effort: none}",
         {"max_completion_tokens": 512, "reasoning_effort": "none", "key": "Bearer zqkey-openai"},
         {"seed", "max_tokens"}),
        ("provider: gemini", {"max_tokens": 512, "key": "Bearer zqkey-gemini"}, {"seed", "top_k", "top_p"}),
        ("provider: deepseek, keys: [MY_KEY], extra: {thinking: {type: disabled}}",
         {"thinking": {"type": "disabled"}, "key": "Bearer zqkey-mine"}, {"seed"}),
        ("sampling: {temperature: 0.6, top_p: 0.9, top_k: 20}",
         {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "key": "Bearer zqkey-own"}, set()),
    ],
)  # fmt: skip
def test_every_provider_is_asked_in_its_own_words_and_told_its_own_key(
    server, cases, tmp_path, monkeypatch, entry, sent, not_sent
):
    keys = {"OPENAI": "openai", "GEMINI": "gemini", "CDPR": "own"}
    for name, value in keys.items():
        monkeypatch.setenv(f"{name}_API_KEY", f"zqkey-{value}")
    monkeypatch.setenv("MY_KEY", "zqkey-mine")
    model = f'some: {{id: m, at: "{server.url}", enabled: true, {entry}}}'
    evaluated(with_lines(tmp_path, "some: {label: Some, model: some}", models=(model,)), "some", cases)
    asked = server.requests[-1]
    assert {name: asked.get(name) for name in sent} == sent and not not_sent & asked.keys()


def test_tokens_that_nobody_told_are_not_made_up(server, cases, tmp_path):
    line = f'quiet: {{label: Quiet, model: "{server.url}", served_as: taciturn}}'
    rows = evaluated(with_lines(tmp_path, line), "quiet", cases)
    assert {(row.calls, row.prompt_tokens, row.completion_tokens) for row in rows} == {(2, None, None)}


def test_who_judges_by_a_model_is_not_charged_to_the_agent():
    said = Completion("x", (), (), "stop", Usage(10, 2))
    with metering() as agent:
        current_meter().count([said])
        with metering() as judge:
            current_meter().count([said, said, said])
        current_meter().count([said])
    current_meter().count([said])
    assert (agent.calls, agent.prompt_tokens, judge.calls, judge.completion_tokens) == (2, 20, 3, 6)


@pytest.mark.parametrize(
    ("ending", "counts"),
    [("too_long", "too_long"), ("refusal", "refused"), ("failed", "failed"), ("stop", None), ("length", None)],
)
def test_a_call_without_a_word_counts_by_its_reason(ending, counts):
    with metering() as agent:
        current_meter().count([Completion("x", (), (), "stop"), Completion(" ", (), (), ending)])
    reasons = {name for name in ("too_long", "refused", "failed") if getattr(agent, name)}
    assert (agent.calls, agent.silent) == (2, 1) and reasons == {counts} - {None}


def test_an_agent_without_a_model_has_one_decoding(cases, tmp_path):
    rows = evaluated(load_settings(), "zero_test", cases)
    assert [row.decoding for row in rows] == ["greedy"] * 8
    assert {(row.calls, row.prompt_tokens) for row in rows} == {(0, 0)}


def test_credentialed_cases_reach_no_other_machine(case, cases, tmp_path):
    kept = case.model_copy(update={"split": "test", "credentialed": True, "dataset": "private"})
    write_records(cases, [kept])
    settings = with_lines(tmp_path, 'far: {label: Far, model: "http://10.1.2.3:8000/v1", served_as: m}')
    for attempt in (
        lambda: evaluated(settings, "far", cases),
        lambda: evaluate(settings, "far", read_cases(cases), tmp_path / "far.jsonl", tmp_path / "state"),
    ):
        with pytest.raises(GovernanceError, match="another machine"):
            attempt()
    assert not (tmp_path / "far.jsonl").exists()


def test_rows_of_credentialed_cases_hold_pseudonyms_that_nobody_without_the_secret_can_try_out(case, server, tmp_path):
    path = tmp_path / "cases.jsonl"
    write_records(path, [case.model_copy(update={"split": "test", "credentialed": True})])
    settings = with_lines(tmp_path, f'mine: {{label: Mine, model: "{server.url}", served_as: m}}')
    evaluate(settings, "mine", read_cases(path), tmp_path / "e.jsonl", tmp_path / "state")
    row = next(read_rows(tmp_path / "e.jsonl"))
    assert row.correct and row.gold == pseudonym(tmp_path / "kept", case.diagnosis_results)
    assert row.note_id == pseudonym(tmp_path / "kept", case.note_id)
    assert row.n_available == 1 and row.obtained is None
    assert "append" not in row.line() and case.note_id not in row.line()
    tried = {hashlib.sha256(text.encode()).hexdigest() for text in (case.diagnosis_results, case.note_id)}
    assert not any(digest.startswith((row.gold, row.note_id)) for digest in tried)


@pytest.mark.parametrize("finished", [0, 2, 5])
def test_an_evaluation_that_was_killed_goes_on_behind_its_last_wave(policy, cases, tmp_path, monkeypatch, finished):
    """Waves of three make six: three greedy, three sampled. Killed behind any of them, with a line half written, it
    works up only the others and ends in the same bytes."""
    settings, benchmark = parse_settings({"environment": {"max_turns": 3}}), read_cases(cases)
    monkeypatch.setattr(evaluation, "EPISODES_AT_ONCE", 3)
    work, done = evaluation.run_metered, []

    def evaluate_to(name: str, state: str) -> bytes:
        evaluate(settings, "warm_start", benchmark, tmp_path / name, tmp_path / state, policy)
        return (tmp_path / name).read_bytes()

    async def counted(*given):
        if len(done) == killed_after:
            raise KeyboardInterrupt
        done.append(1)
        return await work(*given)

    monkeypatch.setattr(evaluation, "run_metered", counted)
    killed_after = -1
    undisturbed = evaluate_to("whole.jsonl", "other")
    assert len(done) == 6 and len(undisturbed.splitlines()) == 16
    done.clear()
    killed_after = finished
    with pytest.raises(KeyboardInterrupt):
        evaluate_to("e.jsonl", "state")
    assert not (tmp_path / "e.jsonl").exists()
    left = list((tmp_path / "state").glob("evaluation.jsonl"))
    assert len(left) == bool(finished)
    for path in left:
        path.write_bytes(path.read_bytes() + undisturbed[:200])
    done.clear()
    killed_after = -1
    assert evaluate_to("e.jsonl", "state") == undisturbed and len(done) == 6 - finished


def test_an_evaluation_that_was_killed_at_any_byte_of_its_rows_ends_in_the_same_bytes(cases, tmp_path, monkeypatch):
    """Each wave of two appends its own rows; what was cut is worked up again, and nothing whole is."""
    settings, benchmark = load_settings(), read_cases(cases)
    benchmark = [case.model_copy(update={"note_id": f"é-{k}"}) for k, case in enumerate(benchmark[:6])]
    monkeypatch.setattr(evaluation, "EPISODES_AT_ONCE", 2)
    saved, work, files = tmp_path / "state/evaluation.jsonl", evaluation.run_metered, []

    async def noted(*given):
        files.append(saved.stat().st_ino if saved.exists() else None)
        return await work(*given)

    def evaluate_here() -> bytes:
        evaluate(settings, "zero_test", benchmark, tmp_path / "e.jsonl", tmp_path / "state")
        return (tmp_path / "e.jsonl").read_bytes()

    monkeypatch.setattr(evaluation, "run_metered", noted)
    undisturbed = evaluate_here()
    assert files[0] is None and files[1] == files[2] and saved.read_bytes() == undisturbed
    line_ends = [k + 1 for k, byte in enumerate(undisturbed) if byte == ord("\n")]
    for cut in {0, 1, 14, 15, *range(line_ends[2] - 2, line_ends[2] + 3), *line_ends, *(end - 1 for end in line_ends)}:
        saved.write_bytes(undisturbed[:cut])
        files.clear()
        whole = sum(end <= cut + 1 for end in line_ends)  # a line that lacks its end alone is whole
        assert evaluate_here() == undisturbed and len(files) == 3 - whole // 2
        files.clear()
        assert evaluate_here() == undisturbed and not files


def test_what_an_agent_remembers_of_a_wave_changes_no_later_one(cases, tmp_path, monkeypatch):
    """Otherwise an evaluation that was killed would end otherwise."""

    class Forgetful(Script):
        """Gives up after two cases, until it is refreshed."""

        one_decoding, waiting = True, 2

        async def act(self, state, forced, seed):
            self.waiting -= 1
            return Turn(RIGHT if self.waiting >= 0 else WRONG)

        def refresh(self):
            self.waiting = 2

    monkeypatch.setattr(evaluation, "EPISODES_AT_ONCE", 2)
    monkeypatch.setattr(evaluation, "agent_class", lambda entry: Forgetful)
    monkeypatch.setattr(evaluation, "build_agent", lambda *given, **named: Forgetful(RIGHT))
    evaluate(parse_settings({}), "zero_test", read_cases(cases), tmp_path / "e.jsonl", tmp_path / "state")
    assert [row.correct for row in read_rows(tmp_path / "e.jsonl")] == [True] * 8


def test_waves_share_their_connections(server, cases, tmp_path, monkeypatch):
    """An evaluation of days would run out of open files, where each wave had connections of its own."""
    monkeypatch.setattr(evaluation, "EPISODES_AT_ONCE", 1)
    line = f'mine: {{label: Mine, group: open, model: "{server.url}", served_as: m}}'
    settings, port = with_lines(tmp_path, line), httpx2.URL(server.url).port

    def connections():
        return sum(bool(c.raddr) and c.raddr.port == port for c in psutil.Process().net_connections("tcp"))

    gc.collect()
    gc.disable()  # it closes what nothing refers to, some time
    try:
        before = connections()
        evaluate(settings, "mine", read_cases(cases), tmp_path / "e.jsonl", tmp_path / "state")
        assert connections() - before <= 2  # greedy and sampled
    finally:
        gc.enable()
    assert len(list(read_rows(tmp_path / "e.jsonl"))) == 16


def test_rows_of_other_cases_are_not_taken_for_done(policy, case, cases, tmp_path):
    settings, state = load_settings(), tmp_path / "state"
    evaluate(settings, "zero_test", read_cases(cases), tmp_path / "e.jsonl", tmp_path / "other")
    state.mkdir()
    (state / "evaluation.jsonl").write_bytes((tmp_path / "e.jsonl").read_bytes())
    write_records(cases, [case.model_copy(update={"note_id": f"U-{k}", "split": "test"}) for k in range(8)])
    evaluate(settings, "zero_test", read_cases(cases), tmp_path / "e.jsonl", state)
    assert [row.note_id for row in read_rows(tmp_path / "e.jsonl")] == [f"U-{k}" for k in range(8)]


def test_what_cannot_be_evaluated_says_why(policy, case, cases, tmp_path):
    with pytest.raises(SettingsError, match="neither trained"):
        evaluated(load_settings(), "nobody", cases)
    settings = with_lines(tmp_path, 'odd: {label: Odd, model: policy, acts: "cdpr.agents.policy:Nobody"}')
    with pytest.raises(SettingsError, match="names no class"):
        evaluated(settings, "odd", cases, policy)
    write_records(cases, [case])
    with pytest.raises(ValueError, match="no case of split 'test'"):
        read_cases(cases)


LINE = (
    '{"note_id": "T-é", "decoding": "greedy", "correct": true, "diagnosis": "Sepsis", "gold": "Sepsis", "turns": 2, '
    '"n_issued": 1, "n_available": 1, "n_unavailable": 0, "n_invalid": 0, "n_repeated": 0, "n_physical": 0, '
    '"n_tests": 1, "n_na": 0, "cost_usd": 7.77, "utility": 0.912345678, "forced": false, "calls": 3, '
    '"prompt_tokens": 1200, "completion_tokens": null, "unmarked": 1, "silent": 1, "too_long": 0, '
    '"refused": 0, "failed": 0, "cut": 0, "cut_results": 0, '
    '"obtained": ["CBC"], "replies": ["REQUEST_TEST: CBC", "FINAL_DIAGNOSIS: Sepsis"]}\n'
)


def test_a_row_is_written_as_it_was_read():
    assert EvaluationRow.model_validate_json(LINE).line() == LINE


@pytest.mark.parametrize(
    ("field", "value"),
    [("correct", 1), ("turns", 2.0), ("turns", -1), ("utility", "high"), ("cost_usd", float("inf")), ("n_na", 1),
     ("decoding", "beam"), ("note_id", 3), ("further", 1)],
)  # fmt: skip
def test_a_row_is_closed_and_typed(field, value):
    with pytest.raises(ValidationError, match=field):
        EvaluationRow.model_validate_json(json.dumps(json.loads(LINE) | {field: value}))


def test_of_open_cases_as_many_are_taken_as_asked_for(policy, cases, tmp_path):
    """By a model of a folder, under the paper's prompt; of a benchmark all cases count whatever is asked for."""
    line = f'mine: {{label: Mine, group: open, model: "{policy}"}}'
    more = {"environment": {"prompt": {"style": "full"}, "max_turns": 2}, "policy": {"max_turn_tokens": 4}}

    def shown(dataset: str, asked: int | None) -> list[str]:
        settings = parse_settings(merge(with_lines(tmp_path, line).model_dump(), {
            **more, "evaluation": {"decodings": ["greedy"], "open_cases": {"cases": asked}}}))  # fmt: skip
        out = tmp_path / "rows.jsonl"
        evaluate_agent(settings, Job("evaluate_agent", "k", {"cases": cases}, {"evaluation": out}, None,
                                     tmp_path / "state", {"run": "mine", "dataset": dataset}))  # fmt: skip
        return [row.note_id for row in read_rows(out)]

    assert shown("agentclinic", 2) == ["T-0", "T-1"]
    assert len(shown("agentclinic", None)) == len(shown("mimic_iv", 2)) == 8
