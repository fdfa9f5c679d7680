"""The environment of verifiers: the same conversations and the same worth as our own evaluation, reply by reply."""

from __future__ import annotations

import pytest
from served import answering

from cdpr.cases import write_records
from cdpr.evaluation.evaluate_agent import evaluate, read_cases
from cdpr.evaluation.row import read_rows
from cdpr.llm.guard import GovernanceError
from cdpr.settings import load_settings

vf = pytest.importorskip("verifiers", reason="needs envs/verifiers.txt")
verifiers_env = pytest.importorskip("cdpr_diagnosis")

CASES = 6


@pytest.fixture(scope="module")
def server():
    """A doctor behind the OpenAI protocol who decides by how often he was answered; `asked` holds what he was told."""

    async def answer(request, server):
        messages = [(m["role"], m["content"]) for m in (await request.json())["messages"]]
        server.requests.append(tuple(messages))
        number, turn = int(messages[1][1].split("case ")[1][0]), len(messages) // 2
        wanted = ["CBC", "MRI Brain", "CBC", "", "CT Abdomen and Pelvis", "Lipase", "Lipase"][turn - 1]
        text = f"I think.\nACTION: REQUEST_TEST\nTest needed: {wanted}" if wanted else "Let me think."
        if turn > number or (number == 4 and "final diagnosis now" in messages[-1][1]):
            right = number % 2 == 0
            text = f"ACTION: FINAL_DIAGNOSIS\nDiagnosis: {'Acute appendicitis' if right else 'Sepsis'}"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
        return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}

    with answering(answer) as server:
        yield server


def priced(case, **changed):
    told = f"\n{case.case_summary}"
    names = [{"note_id": f"T-{k}", "split": "test", "case_summary": f"- Note: case {k}{told}"} for k in range(CASES)]
    return [case.model_copy(update=name | changed) for name in names]


def test_rewards_are_those_of_our_own_evaluation(case, server, tmp_path, monkeypatch):
    """Workups that diagnose at once, miss, repeat, say nothing, are forced and diagnose, are forced and do not."""
    monkeypatch.setenv("TEST_KEY", "none")
    path, overlay = tmp_path / "cases.jsonl", tmp_path / "mine.yaml"
    write_records(path, priced(case))
    overlay.write_text(
        f"environment: {{max_turns: 5}}\nutility: {{cost_unit_usd: 70.0}}\npaths: {{state: {tmp_path / 'kept'}}}\n"
        f'evaluation: {{decodings: [greedy]}}\nagents: {{mine: {{model: "{server.url}", served_as: m}}}}\n'
    )
    evaluate(load_settings(overlay), "mine", read_cases(path), tmp_path / "e.jsonl", tmp_path / "state")
    ours, server.requests[:] = sorted(server.requests), []
    rows = {row.note_id: row for row in read_rows(tmp_path / "e.jsonl")}
    assert {row.correct for row in rows.values()} == {True, False} and sum(row.forced for row in rows.values()) == 2
    assert all(
        sum(getattr(row, f"n_{name}") for row in rows.values()) for name in ("invalid", "repeated", "unavailable")
    )

    client = vf.ClientConfig(api_key_var="TEST_KEY", api_base_url=server.url, max_retries=0)
    for reward in ("utility", "outcome"):
        env = verifiers_env.load_environment(str(path), str(overlay), reward=reward, train_split="test")
        done = env.evaluate_sync(client=client, model="m", sampling_args={"temperature": 0.0})["outputs"]
        assert len(done) == CASES and not any(one.get("error") for one in done)
        for one in done:
            row = rows[one["info"]["note_id"]]
            assert one["reward"] == pytest.approx(row.utility if reward == "utility" else float(row.correct), abs=1e-8)
            assert one["metrics"]["cost_usd"] == pytest.approx(row.cost_usd)
            assert one["metrics"]["infeasible"] == row.n_na and one["metrics"]["examinations"] == row.n_tests
            assert one["metrics"]["num_turns"] == row.turns
        assert sorted(server.requests) == ours  # it was shown the very same conversations
        server.requests.clear()


def test_credentialed_cases_are_refused(case, tmp_path):
    write_records(tmp_path / "cases.jsonl", priced(case, credentialed=True))
    with pytest.raises(GovernanceError, match="credentialed"):
        verifiers_env.load_environment(str(tmp_path / "cases.jsonl"), train_split="test")


def test_without_a_file_there_is_a_synthetic_hospital():
    env = verifiers_env.load_environment()
    trained, tested = env.get_dataset(), env.get_eval_dataset()
    assert len(trained) > 3 * len(tested) > 100
    assert {m["role"] for m in trained[0]["prompt"]} == {"system", "user"}
    ids = [{row["note_id"] for row in part["info"]} for part in (trained, tested)]
    assert not ids[0] & ids[1] and all(env.cases[name].exam_cost_map for name in ids[1])


def test_the_reward_is_one_of_two():
    with pytest.raises(ValueError, match="neither utility nor outcome"):
        verifiers_env.load_environment(reward="accuracy")
