"""What servers may answer, as the documentation of each says, and what becomes of it: every provider of
``workflow/models.yaml``, and programs and gateways with the OpenAI protocol.

Sources: the page of each behaviour is beside it. OPENAI, ANTHROPIC: also the types of the official packages
(``openai.types.chat.chat_completion.Choice``, ``anthropic.types.StopReason`` and ``anthropic.types.shared``), and
``_base_client._should_retry`` of both for the statuses that are tried again.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import pytest
from served import answering
from starlette.responses import JSONResponse, Response

from cdpr.cases import write_records
from cdpr.evaluation.evaluate_agent import evaluate, read_cases
from cdpr.evaluation.row import read_rows
from cdpr.llm import ModelFailure, ModelSpec, ModelUnavailable, Sampling, open_model
from cdpr.pipeline.cli import explain
from cdpr.settings import ModelEntry, parse_settings

OPENAI = "https://developers.openai.com/docs/guides/error-codes"
ANTHROPIC = "https://platform.claude.com/docs/api/errors"
ENDINGS = "https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons"
GOOGLE = "https://ai.google.dev/gemini-api/docs/troubleshooting"
GOOGLE_ENDINGS = "https://googleapis.github.io/js-genai/release_docs/enums/types.FinishReason.html"
GOOGLE_RAW = "https://github.com/HKUDS/Vibe-Trading/pull/308"  # the OpenAI protocol passes Google's words on
DEEPSEEK = "https://api-docs.deepseek.com/quick_start/error_codes"
DEEPSEEK_ENDINGS = "https://docs.rs/crate/ds-api/latest/source/src/raw/response/non_streaming/finish_reason.rs"
AZURE = "https://www.developersdigest.tech/errors/api/azure-openai"  # its own documentation, by status
OPENROUTER = "https://openrouter.ai/docs/api/reference/errors-and-debugging"
TOGETHER = "https://docs.together.ai/docs/error-codes"
DASHSCOPE = "https://www.alibabacloud.com/help/es/model-studio/coding-plan-faq"
MISTRAL = "https://docs.rs/crate/mistral-openapi-client/latest/source/src/models/chat_completion_choice.rs"
VLLM = "https://github.com/vllm-project/vllm/issues/20409"

DIAGNOSIS = "ACTION: FINAL_DIAGNOSIS\nDiagnosis: Acute appendicitis"
TRIGGER = "zqtrigger"  # in the conversation that meets the behaviour


class Behaviour(NamedTuple):
    """What a server sends to one conversation, at ``times`` attempts: an ending, or a status and its body."""

    source: str
    sends: str | tuple[int, Any]
    becomes: str
    times: int = 10**9
    content: Any = "Diagnosis: Acute"  # of an answer with that ending


def error(message: str = "no", **names: Any) -> dict[str, Any]:
    return {"error": {"message": message, **names}}


def passing(source: str, *sends: Any) -> list[Behaviour]:
    return [Behaviour(source, one, "again", times=2) for one in sends]


BEHAVIOURS: dict[str, list[Behaviour]] = {
    "openai": [
        Behaviour(OPENAI, "length", "length"), Behaviour(OPENAI, "content_filter", "refusal"),
        Behaviour(OPENAI, "tool_calls", "failed"),
        Behaviour(OPENAI, (400, error(code="context_length_exceeded", param="messages")), "too_long"),
        Behaviour(OPENAI, (400, error(code="string_above_max_length")), "too_long"),
        Behaviour("https://github.com/UKGovernmentBEIS/inspect_ai/issues/1750", (400, error(code="invalid_prompt")),
                  "refusal"),
        Behaviour(OPENAI, (429, error(type="insufficient_quota", code="insufficient_quota")), "money"),
        Behaviour("https://www.developersdigest.tech/errors/api/openai-api/429-slow-down",
                  (429, error(code="credit_balance_exhausted")), "money"),
        Behaviour(OPENAI, (401, error(code="invalid_api_key")), "key"),
        *passing(OPENAI, (429, error(code="rate_limit_exceeded")), (500, error()), (503, error()), (408, error()),
                 (409, error())),
    ],
    "anthropic": [
        Behaviour(ENDINGS, "max_tokens", "length"), Behaviour(ENDINGS, "model_context_window_exceeded", "length"),
        Behaviour(ENDINGS, "refusal", "refusal"), Behaviour(ENDINGS, "stop_sequence", "stop"),
        Behaviour(ENDINGS, "pause_turn", "failed"), Behaviour(ENDINGS, "tool_use", "failed"),
        Behaviour(ANTHROPIC, (413, error(type="request_too_large")), "too_long"),
        Behaviour("https://github.com/anthropics/claude-code/issues/12186", (400, error(
            "prompt is too long: 208310 tokens > 200000 maximum", type="invalid_request_error")), "too_long"),
        Behaviour(ANTHROPIC, (402, error(type="billing_error")), "money"),
        Behaviour(ANTHROPIC, (400, error("Your credit balance is too low to access the Anthropic API.",
                                         type="invalid_request_error")), "money"),
        Behaviour(ANTHROPIC, (429, error(type="rate_limit_error",
                                         details={"error_code": "enforced_spend_limit_reached"})), "money"),
        Behaviour(ANTHROPIC, (401, error(type="authentication_error")), "key"),
        *passing(ANTHROPIC, (529, error(type="overloaded_error")), (500, error(type="api_error")),
                 (504, error(type="timeout_error")), (409, error(type="conflict_error")),
                 (429, error(type="rate_limit_error"))),
    ],
    "gemini": [
        Behaviour(GOOGLE_ENDINGS, "MAX_TOKENS", "length"), Behaviour(GOOGLE_ENDINGS, "OTHER", "failed", content=None),
        Behaviour(GOOGLE_ENDINGS, "MALFORMED_FUNCTION_CALL", "failed", content=None),
        *[Behaviour(GOOGLE_RAW, word, "refusal", content=None)
          for word in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE",
                       "content_filter", "content_filter: PROHIBITED_CONTENT")],
        Behaviour("https://github.com/google-gemini/gemini-cli/issues/6678", (400, [error(
            "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", code=400,
            status="INVALID_ARGUMENT")]), "too_long"),
        Behaviour(GOOGLE, (500, [error(code=500, status="INTERNAL")]), "failed"),  # "your input context is too long"
        Behaviour(GOOGLE, (403, [error(code=403, status="PERMISSION_DENIED")]), "key", times=-1),
        *passing(GOOGLE, (429, [error(code=429, status="RESOURCE_EXHAUSTED")]),
                 (503, [error(code=503, status="UNAVAILABLE")]), (504, [error(status="DEADLINE_EXCEEDED")])),
    ],
    "deepseek": [
        Behaviour(DEEPSEEK_ENDINGS, "length", "length"), Behaviour(DEEPSEEK_ENDINGS, "content_filter", "refusal"),
        *passing(DEEPSEEK_ENDINGS, "insufficient_system_resource"),
        Behaviour("https://github.com/deepseek-ai/DeepSeek-V2/issues/30",
                  (400, error("Content Exists Risk", type="invalid_request_error", code="invalid_request_error")),
                  "refusal"),
        Behaviour(DEEPSEEK, (402, error("Insufficient Balance", code="invalid_request_error")), "money"),
        Behaviour(DEEPSEEK, (401, error(code="invalid_request_error")), "key"),
        *passing(DEEPSEEK, (429, error()), (500, error()), (503, error())),
    ],
    "own": [
        # vLLM, SGLang, llama.cpp, TGI, Ollama
        Behaviour(VLLM, (400, error("This model's maximum context length is 16384 tokens. However, you requested "
                                    "122946 tokens", type="BadRequestError", code=400)), "too_long"),
        Behaviour("https://github.com/vllm-project/vllm/pull/34363", (413, error(type="PayloadTooLarge")), "too_long"),
        Behaviour("https://github.com/vllm-project/vllm/issues/4667", (400, {
            "object": "error", "message": "max_tokens must be at least 1, got -186.", "code": 400}), "failed"),
        Behaviour("https://github.com/ggml-org/llama.cpp/pull/15780", (400, error(
            code=400, type="exceed_context_size_error")), "too_long"),
        Behaviour("https://github.com/ggml-org/llama.cpp/pull/15780", (500, error(
            code=500, type="exceed_context_size_error")), "too_long"),
        *passing("https://github.com/vllm-project/vllm/issues/57082", "abort", "error"),
        Behaviour("https://github.com/huggingface/text-generation-inference/pull/2344", "eos_token", "stop"),
        # gateways and other providers
        Behaviour(AZURE, (400, error(code="content_filter", param="prompt")), "refusal"),
        Behaviour(OPENROUTER, (403, error("flagged", code=403, metadata={"flagged_input": "...", "reasons": ["x"]})),
                  "refusal"),
        Behaviour(OPENROUTER, (402, error(code=402)), "money"),
        Behaviour(OPENROUTER, (200, error(code=402)), "money"),
        Behaviour(OPENROUTER, (200, error(code="content_filter")), "refusal"),
        *passing(OPENROUTER, "error", (200, error(code=502)), (200, error(code=429)), (425, error())),
        *passing("https://github.com/UKGovernmentBEIS/inspect_ai/issues/1536", (200, {"choices": []}),
                 (200, {"choices": None})),
        Behaviour(TOGETHER, (403, error("Input token count + max_tokens must be less than the context")), "failed"),
        Behaviour(DASHSCOPE, (400, error("Range of input length should be [1, 30720]", code="InvalidParameter")),
                  "failed"),
        Behaviour("https://github.com/compl-ai/compl-ai/issues/20",
                  (400, error(code="data_inspection_failed", type="data_inspection_failed")), "refusal"),
        *passing("https://github.com/genkit-ai/genkit/issues/6259", "network_error"),
        Behaviour("https://github.com/anomalyco/opencode/pull/18918", "model_context_window_exceeded", "length"),
        Behaviour(MISTRAL, "model_length", "length"), *passing(MISTRAL, "error"),
        Behaviour(MISTRAL, "stop", "parts", content=[
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": DIAGNOSIS}]),
        # without a source: other words, other forms
        *passing("none", "a word of tomorrow", None, (200, {"choices": [{"message": None, "finish_reason": "stop"}]}),
                 (200, "a text"), (599, error())),
        Behaviour("none", (400, error("in words of tomorrow")), "failed"),
        Behaviour("none", "sensitive", "refusal"), Behaviour("none", (451, error()), "failed"),
        Behaviour("none", (422, error()), "failed"),
    ],
}  # fmt: skip

OWN = ModelEntry(id="m", extra={"chat_template_kwargs": {"thinking": False}})
ROWS = {name: entry for name, entry in parse_settings({}).models.items() if entry.provider != "own"} | {"own": OWN}
CASES = [(row, behaviour) for row, entry in ROWS.items() for behaviour in BEHAVIOURS[entry.provider]]


def refused_fields(provider: str, question: dict[str, Any]) -> str:
    """The first field of a request that the provider does not take."""
    common = {"model", "messages", "temperature", "top_p"}
    taken = {
        "openai": common | {"max_completion_tokens", "reasoning_effort", "seed"},  # newer models refuse max_tokens
        "anthropic": {"model", "messages", "max_tokens", "system"},
        "gemini": common | {"max_tokens", "reasoning_effort"},
        "deepseek": common | {"max_tokens", "thinking"},
        "own": common | {"max_tokens", "seed", "chat_template_kwargs", "top_k"},
    }[provider]
    return next(iter(sorted(question.keys() - taken)), "")


def answered(provider: str, content: Any, ending: Any) -> dict[str, Any]:
    """An answer in the provider's form, with its usage."""
    if provider == "anthropic":
        usage = {"input_tokens": 900, "output_tokens": 20, "cache_read_input_tokens": 100}
        blocks = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": content}]
        return {"id": "1", "type": "message", "role": "assistant", "model": "m", "usage": usage, "content": blocks,
                "stop_reason": ending}  # fmt: skip
    thoughts = 30 if provider == "gemini" else 0
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020 + thoughts}
    choice = {"index": 0, "finish_reason": ending, "message": {"role": "assistant", "content": content}}
    return {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def behaving(provider: str, behaviour: Behaviour):
    """The server of a provider: conversations with the trigger meet the behaviour (at -1 times: all do)."""

    async def answer(request, served):
        question = await request.json()
        if field := refused_fields(provider, question):
            return JSONResponse(error(f"Unsupported parameter: '{field}'", param=field), 400)
        if not all(message["content"].strip() for message in question["messages"]):
            return JSONResponse(error("all messages must have non-empty content"), 400)
        served.requests.append(question)
        is_met = behaviour.times < 0 or TRIGGER in json.dumps(question)
        met = sum(TRIGGER in json.dumps(other) for other in served.requests)
        if is_met and (behaviour.times < 0 or met <= behaviour.times):
            if isinstance(behaviour.sends, tuple):
                return JSONResponse(behaviour.sends[1], behaviour.sends[0])
            return answered(provider, behaviour.content, behaviour.sends)
        return answered(provider, DIAGNOSIS, "end_turn" if provider == "anthropic" else "stop")

    return answer


def entry_at(entry: ModelEntry, url: str) -> ModelEntry:
    where = f"anthropic:{url.removesuffix('/v1')}" if entry.provider == "anthropic" else url
    return entry.model_copy(update={"at": where, "enabled": True})


def ask(entry: ModelEntry, text: str, retries: int = 2, temperature: float | None = 0.0):
    spec = ModelSpec(where=entry.where, name=entry.id, entry=entry, credentialed=False, retries=retries, pause=0.0)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    [completion] = asyncio.run(open_model(spec).chat(messages, (0,), Sampling(64, temperature), 0))
    return completion


@pytest.mark.parametrize(("row", "behaviour"), CASES, ids=[f"{row}-{b.sends!s:.40}" for row, b in CASES])
def test_every_provider_as_its_documentation_says(row, behaviour):
    entry = ROWS[row]
    with answering(behaving(entry.provider, behaviour)) as served:
        entry = entry_at(entry, served.url)
        if behaviour.becomes in ("money", "key"):
            words = "no money left" if behaviour.becomes == "money" else "check address, model name and key"
            with pytest.raises(ModelUnavailable, match=words):
                ask(entry, TRIGGER)
            assert len(served.requests) == (1 if behaviour.times > 0 else 2), "nothing that trying again would help"
            return
        completion, well = ask(entry, TRIGGER), ask(entry, "another case")
    assert well.text == DIAGNOSIS and well.finish_reason == "stop"
    thoughts = 30 if entry.provider == "gemini" else 0
    assert (well.usage.prompt_tokens, well.usage.completion_tokens) == (1000, 20 + thoughts)
    met = [question for question in served.requests if TRIGGER in json.dumps(question)]
    if behaviour.becomes in ("again", "parts"):
        assert completion.text == DIAGNOSIS and completion.is_answer
        assert len(met) == (3 if behaviour.becomes == "again" else 1)
    else:
        assert completion.finish_reason == behaviour.becomes
        assert completion.text == ("Diagnosis: Acute" if behaviour.becomes in ("stop", "length") else "")
        assert completion.is_answer == (behaviour.becomes not in ("failed", "too_long"))


@pytest.mark.parametrize(
    "sends", ["insufficient_system_resource", "abort", (500, error()), (400, error()), (200, error(code=502))]
)
def test_a_server_that_answers_nobody_so_is_ill(sends):
    """The same behaviour of every request, also of harmless words, is an error: no case is to blame."""
    ill = behaving("own", Behaviour("none", sends, "error", times=-1))
    with answering(ill) as served, pytest.raises(ModelFailure) as caught:
        ask(entry_at(OWN, served.url), TRIGGER)
    assert TRIGGER not in explain(caught.value)
    harmless = [question for question in served.requests if TRIGGER not in json.dumps(question)]
    assert len(harmless) == 1 and len(served.requests) == (2 if sends == (400, error()) else 4)


@pytest.mark.parametrize("row", ["gpt_5_4", "own"])
def test_a_temperature_can_be_left_out(row):
    async def answer(request, served):
        question = await request.json()
        if "temperature" in question:
            return JSONResponse(error("Unsupported parameter: 'temperature'", param="temperature"), 400)
        return answered("own", DIAGNOSIS, "stop")

    with answering(answer) as served:
        entry = entry_at(ROWS[row], served.url)
        with pytest.raises(ModelFailure, match="it names temperature, see `sampling`"):
            ask(entry, TRIGGER)
        fields = entry.model_dump() | {"sampling": {"temperature": None}}
        for loaded in (ModelEntry.model_validate(fields), ModelEntry.model_validate_json(
                ModelEntry.model_validate(fields).model_dump_json())):  # fmt: skip
            assert ask(loaded, TRIGGER).text == DIAGNOSIS


def test_what_a_server_asks_to_wait_is_kept_in_every_form():
    from email.utils import formatdate
    from time import time

    waits = {"retry-after-ms": "150", "retry-after": formatdate(time() + 90_000, usegmt=True)}
    for name, wait in waits.items():

        async def answer(request, served, name=name, wait=wait):
            served.requests.append(asyncio.get_running_loop().time())
            if len(served.requests) > 1:
                return answered("own", DIAGNOSIS, "stop")
            return JSONResponse(error(), 429, headers={name: wait})

        with answering(answer) as served:
            if name == "retry-after-ms":
                assert ask(entry_at(OWN, served.url), TRIGGER).text == DIAGNOSIS
                assert served.requests[1] - served.requests[0] >= 0.15
            else:
                with pytest.raises(ModelUnavailable, match=r"asks to wait (89|90)\d\d\d seconds"):
                    ask(entry_at(OWN, served.url), TRIGGER)


# Whole evaluations


@pytest.fixture
def cases(case, tmp_path):
    made = [case.model_copy(update={"note_id": f"T-{k}", "split": "test",
            "case_summary": f"Case {k} {TRIGGER if k == 2 else ''}"}) for k in range(4)]  # fmt: skip
    write_records(tmp_path / "cases.jsonl", made)
    return tmp_path / "cases.jsonl"


def evaluated(tmp_path, url, cases, name="e.jsonl", **more):
    settings = parse_settings({
        "paths": {"state": str(tmp_path / "state"), "results": str(tmp_path / "results")},
        "evaluation": {"decodings": ["greedy"]}, "environment": {"max_turns": 2},
        "agents": {"doctor": {"label": "Doctor", "model": "doctor_model"}},
        "models": {"doctor_model": {"id": "m", "at": url}, "judge_model": {"id": "j", "at": url}}, **more})  # fmt: skip
    evaluate(settings, "doctor", read_cases(cases), tmp_path / name, tmp_path / "job")
    return list(read_rows(tmp_path / name))


@pytest.mark.parametrize(("sends", "counts"), [
    ((400, error(code="content_filter")), "refused"), ("SAFETY", "refused"), ((403, error("flagged")), "failed"),
    ((400, error("in words of tomorrow")), "failed"), ("OTHER", "failed"), ((413, error()), "too_long"),
])  # fmt: skip
def test_one_case_that_is_refused_costs_its_turns_and_no_table(sends, counts, cases, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("cdpr.llm.server._LONGEST_PAUSE", 0)
    with answering(behaving("own", Behaviour("none", sends, counts, content=None))) as served:
        rows = evaluated(tmp_path, served.url, cases)
        assert evaluated(tmp_path, served.url, cases, "again.jsonl") == rows
    assert [row.correct for row in rows] == [True, True, False, True]
    assert [getattr(row, counts) for row in rows] == [row.silent for row in rows] == [0, 0, rows[2].calls, 0]
    assert f"{rows[2].calls} of {rows[2].calls + 3} calls returned no word" in capsys.readouterr().out


@pytest.mark.parametrize("sends", [(400, error(code="content_filter")), (403, error("no")), "SAFETY", "abort"])
def test_a_judge_and_a_matcher_that_refuse_one_case_leave_it_to_the_tables(sends, cases, tmp_path, monkeypatch):
    monkeypatch.setattr("cdpr.llm.server._LONGEST_PAUSE", 0)
    refusing = Behaviour("none", sends, "refusal", content=None)

    async def answer(request, served):
        question = await request.json()
        words = question["messages"][-1]["content"]
        if words.startswith(("On record", "Proposed diagnosis")) and "zqscan" in words:
            return await behaving("own", refusing._replace(times=-1))(request, served)
        if words.startswith("Proposed diagnosis"):
            return answered("own", "Correct", "stop")
        if "zqscan" in json.dumps(question) or TRIGGER not in words:
            return answered(
                "own",
                f"ACTION: FINAL_DIAGNOSIS\nDiagnosis: {'zqscan' if TRIGGER in json.dumps(question) else 'x'}",
                "stop",
            )
        return answered("own", "ACTION: REQUEST_TEST\nTest needed: zqscan", "stop")

    with answering(answer) as served:
        judging = {"judge": {"model": "judge_model"}, "matcher": {"model": "judge_model"}}
        rows = evaluated(tmp_path, served.url, cases, **judging)
    assert [row.correct for row in rows] == [True, True, False, True]
    assert rows[2].judging.by == "invalid" and rows[2].judging.n_unmatched == rows[2].n_unavailable == 1


@pytest.mark.parametrize("silent", ["", " \n"])
def test_a_silent_turn_is_sent_as_words(silent, cases, tmp_path):
    """Servers refuse messages without a word: the stub does, as Anthropic's and Mistral's do."""

    async def answer(request, served):
        question = await request.json()
        is_first = TRIGGER in json.dumps(question) and len(question["messages"]) == 2
        if is_first:
            served.requests.append(question)
            return answered("own", silent, "length")
        return await behaving("own", Behaviour("none", "stop", "stop", content=DIAGNOSIS))(request, served)

    with answering(answer) as served:
        rows = evaluated(tmp_path, served.url, cases)
    assert [(row.silent, row.correct) for row in rows] == [(0, True), (0, True), (1, True), (0, True)]
    assert "(no answer)" in json.dumps(served.requests)


@pytest.mark.parametrize(("window", "cut"), [(10**6, 0), (4096, 0), (200, 2), (750, 1)])
def test_a_server_that_cuts_prompts_is_noticed(window, cut, cases, tmp_path, capsys):
    """Ollama drops what exceeds its window, 4096 tokens by default, without an error
    (https://github.com/ollama/ollama/blob/main/docs/context-length.mdx): its count of tokens stays there."""

    async def answer(request, served):
        question = await request.json()
        said = " ".join(message["content"] for message in question["messages"])
        is_first = len(question["messages"]) == 2
        ends = f"ACTION: REQUEST_TEST\nTest needed: {'a ' * 300}" if is_first else DIAGNOSIS
        content = answered("own", ends, "stop")
        content["usage"]["prompt_tokens"] = min(int(1.3 * len(said.split())), window)
        return content

    with answering(answer) as served:
        rows = evaluated(tmp_path, served.url, cases)
    assert [row.calls for row in rows] == [2] * 4 and [row.cut for row in rows] == [cut] * 4
    assert ("OLLAMA_CONTEXT_LENGTH" in capsys.readouterr().out) == bool(cut)


def test_token_ids_of_an_answer_that_was_broken_off_are_no_draw(tmp_path):
    from toy import Grouped

    from cdpr.training.torch.tiny import build_tiny_policy

    tiny = Grouped(hidden_size=32, layers=2, heads=4, intermediate_size=48, vocab_size=320)
    folder = build_tiny_policy(tmp_path / "tiny", tiny, ["fever cough pain in the flank"] * 20)
    endings = ["abort", "error", None, "stop"]

    async def answer(request, served):
        served.requests.append(await request.json())
        ending = endings[len(served.requests) - 1]
        ids = [] if ending == "abort" else [5, 6]
        return {"choices": [{"index": 0, "text": "x", "finish_reason": ending, "token_ids": ids}]}

    with answering(answer) as served:
        model = open_model(ModelSpec(where=served.url, name="m", credentialed=False, tokens=str(folder), pause=0.0))
        [drawn] = asyncio.run(model.sample((1, 2), (0,), Sampling(3), 0))
        assert drawn.token_ids == (5, 6) and len(served.requests) == 4
        endings[:] = ["abort"] * 99
        with pytest.raises(ModelUnavailable, match="ended with 'abort'"):
            asyncio.run(model.sample((1, 2), (0,), Sampling(3), 0))


def test_a_response_without_json_is_tried_again():
    async def answer(request, served):
        served.requests.append(1)
        page = Response("<html>502 Bad Gateway</html>", media_type="text/html")
        return page if len(served.requests) < 3 else answered("own", DIAGNOSIS, "stop")

    with answering(answer) as served:
        assert ask(entry_at(OWN, served.url), TRIGGER).text == DIAGNOSIS
