"""The registry of models: what every row of the main table lacks, how answers are cut out, what was asked."""

from __future__ import annotations

import asyncio
import csv

import pytest
from test_report import SETTINGS, job, row, write_rows
from toy import CALL_COUNTS

from cdpr.llm import Completion, Model, ModelSpec, Sampling, open_model
from cdpr.llm.agent_model import AgentModel, cut_answer, metering
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.pipeline.cli import main
from cdpr.pipeline.experiment import Experiment
from cdpr.pipeline.systems import list_missing, refuse_unready, render, systems
from cdpr.report import main_table
from cdpr.settings import ModelEntry, SettingsError, labels_of, load_settings, merge, parse_settings, why_not_run
from cdpr.settings.models import PROVIDERS
from cdpr.settings.schema import TinyModel
from cdpr.training.torch.tiny import CHAT_TEMPLATE, build_tiny_policy

OPEN = {"data": {"mimic_iv": {"path": "raw", "credentialed": False}, "private": {"path": "raw", "credentialed": False},
                 "clinicalbench": {"path": "raw"}}}  # fmt: skip
SERVER = "http://127.0.0.1:8000/v1"
FAR = "http://10.1.2.3:8000/v1"


def plan_of(**changes) -> Experiment:
    return Experiment(parse_settings(merge(load_settings().model_dump(), changes)))


def test_every_entry_says_what_a_user_must_know():
    models = parse_settings({}).models
    for name, entry in models.items():
        assert entry.label and entry.id and entry.licence and not entry.enabled, name
        assert (entry.prices is not None and entry.prices.date and entry.prices.source) if entry.paid else entry.needs
        assert entry.at is None and not any(secret in entry.model_dump_json() for secret in ("sk-", "Bearer"))
        assert entry.key_names == PROVIDERS[entry.provider].keys


def export(monkeypatch, **keys: str) -> None:
    """Let these be all keys of providers in the environment."""
    for name in (name for provider in PROVIDERS.values() for name in provider.keys):
        monkeypatch.delenv(name, raising=False)
    for name, key in keys.items():
        monkeypatch.setenv(name, key)


def test_nothing_is_asked_unless_somebody_said_so(monkeypatch):
    """Not even where every key is at hand."""
    plan = plan_of()
    export(monkeypatch, **{name: "zqkey" for provider in PROVIDERS.values() for name in provider.keys})
    asked = [name for name in plan.agents if plan.settings.agents[name].model in plan.settings.models]
    assert asked == []
    for name in ("gpt_5_4", "claude_sonnet_4_6", "gemini_3_1_flash", "deepseek_v4"):
        [lacks] = list_missing(plan, name)
        assert lacks.startswith(f"models.{plan.settings.agents[name].model}.enabled: true")


def test_one_job_evaluates_what_is_quick_on_all_benchmarks():
    """A job of the tiny policy or of a reference policy starts for longer than it works; a model's does not."""
    plan = plan_of(models={"gpt_5_4": {"enabled": True}})
    together = {*plan.evaluated_together()}
    assert "gpt_5_4" in plan.agents and together >= {"cdpr-seed0", "warm_start", "zero_test"}
    assert "gpt_5_4" not in together and not plan_of(policy={"model": "weights"}).evaluated_together()


@pytest.mark.parametrize(
    ("changes", "row", "keys", "lacks", "planned"),
    [
        ({}, "gpt_5_4", {}, ["export OPENAI_API_KEY", "models.gpt_5_4.enabled"], False),
        ({}, "gpt_5_4", {"OPENAI_API_KEY": "k"}, ["models.gpt_5_4.enabled"], False),
        ({"models": {"gpt_5_4": {"enabled": True}}}, "gpt_5_4", {}, ["export OPENAI_API_KEY"], True),
        ({"models": {"gpt_5_4": {"enabled": True}}}, "gpt_5_4", {"DEEPSEEK_API_KEY": "k"}, ["OPENAI_API_KEY"], True),
        ({"models": {"gpt_5_4": {"enabled": True}}}, "gpt_5_4", {"OPENAI_API_KEY": "k"}, [], True),
        ({"models": {"gpt_5_4": {"enabled": True}}, "data": {"private": {"path": "raw"}}}, "gpt_5_4",
         {"OPENAI_API_KEY": "k"}, ["governance.remote_agreement: the agreement under which the text of private"], True),
        ({"models": {"gpt_5_4": {"enabled": True}}, "data": {"private": {"path": "raw"}},
          "governance": {"remote_agreement": "DUA 17"}}, "gpt_5_4", {"OPENAI_API_KEY": "k"}, [], True),
        ({}, "qwen3_8b", {}, ["models.qwen3_8b.at: a server's address"], False),
        ({"models": {"qwen3_8b": {"at": SERVER}}, "data": {"private": {"path": "raw"}}}, "qwen3_8b", {}, [], True),
        ({"models": {"qwen3_8b": {"at": FAR}}, "data": {"private": {"path": "raw"}}}, "qwen3_8b", {},
         ["governance.remote_agreement"], True),
        ({"models": {"qwen3_8b": {"at": "http://key@host/v1"}}}, "qwen3_8b", {},
         ["models.qwen3_8b.at: a model's"], True),
        ({"models": {"qwen3_8b": {"at": "no/folder"}}}, "qwen3_8b", {}, ["models.qwen3_8b.at: no/folder is neither"],
         True),
        ({"agents": {"mine": {"label": "Mine", "model": "qwen3_8c"}}}, "mine", {},
         ["agents.mine.model: qwen3_8c"], True),
        ({"agents": {"mine": {"label": "Mine", "model": "qwen3_32b"}}}, "mine", {}, ["models.qwen3_32b.at"], False),
        ({}, "medagent", {}, ["models.qwen3_8b.at"], False),
        ({}, "warm_start", {}, [], True),
        ({"policy": {"model": "no/folder"}}, "static", {}, ["policy.model: there is no folder no/folder"], True),
        ({"models": {"qwen3_8b": {"at": FAR}}, "calls": {"budget_usd": 5}}, "qwen3_8b", {},
         ["models.qwen3_8b.prices: what its answers cost"], True),
        ({"models": {"qwen3_8b": {"at": SERVER}}, "calls": {"budget_usd": 5}}, "qwen3_8b", {}, [], True),
        ({"agents": {"mine": {"label": "Mine", "model": FAR}}, "calls": {"budget_usd": 5}}, "mine", {},
         [f"an entry of `models` for {FAR}, with `prices`"], True),
        ({}, "zero_test", {}, [], True),
        (OPEN, "zero_test", {}, ["not run: real cases have no known model"], True),
    ],
)  # fmt: skip
def test_what_a_row_lacks_and_how_to_supply_it(changes, row, keys, lacks, planned, monkeypatch):
    export(monkeypatch, **keys)
    plan = plan_of(**changes)
    found = list_missing(plan, row)
    assert len(found) == len(lacks) and all(text in told for text, told in zip(lacks, found, strict=True)), found
    assert (row in plan.agents) is planned == (why_not_run(plan.settings, row) == "")


def test_a_run_that_lacks_something_is_refused_before_its_first_job(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    plan = plan_of(models={"gpt_5_4": {"enabled": True}})
    refuse_unready(plan, ["warm_start", "cdpr-seed0"])
    with pytest.raises(SettingsError, match="gpt_5_4: a key: export OPENAI_API_KEY"):
        refuse_unready(plan, ["warm_start", "gpt_5_4"])


def test_all_rows_are_listed_with_both_names(capsys, monkeypatch):
    export(monkeypatch)
    found = systems(plan_of())
    settings = load_settings()
    assert {system.row for system in found} == {*settings.agents, *labels_of(settings, "main_table")}
    assert len({system.paper for system in found} - {""}) == 18, "rows of the paper's Table 1"
    ready = {system.row for system in found if not system.missing}
    assert {"grpo", "cdpr", "warm_start", "all_tests"} <= ready and not {"gpt_5_4", "qwen3_8b"} & ready
    text = render(found)
    assert "Baichuan-M2-32B (paper: Baichuan-M1-32B)" in text and "2.5 in, 15 out (2026-11-22)" in text
    monkeypatch.setenv("CDPR_SETTINGS", "config.yaml")
    assert main(["systems"]) == 0
    told = capsys.readouterr().out
    assert "not yet  qwen3_8b" in told and "Qwen/Qwen3-8B" in told


# Answers

MED_GEMMA = parse_settings({}).models["med_gemma_27b"].answer


@pytest.mark.parametrize(
    ("text", "expressions", "answer", "marked"),
    [
        ("ACTION", [], "ACTION", True),
        ("<think>no</think>\n\nACTION", ["</think>"], "ACTION", True),
        ("a </think> b </think> c", ["</think>"], "c", True),
        ("a thought that was cut off", ["</think>"], "a thought that was cut off", False),
        ("<think>all there is</think>", ["</think>"], "", True),
        ("## Thinking\nx\n## Final Response\n\ny\nz", ["## Final Response"], "y\nz", True),
        ("x ## Final Response y", ["</think>", "## Final Response"], "y", True),
        ("<unused94>thought\nx<unused95>ACTION: y\nTest<end_of_turn>", MED_GEMMA, "ACTION: y\nTest", True),
        ("<unused94>thought\nx<unused95>ACTION", MED_GEMMA, "ACTION", True),
    ],
)
def test_where_the_answer_stands(text, expressions, answer, marked):
    assert cut_answer(text, expressions) == (answer, marked)


def test_an_expression_that_is_none_is_refused_where_it_is_written():
    with pytest.raises(SettingsError, match=r"models\.x\.answer.*valid regular expression"):
        parse_settings({"models": {"x": {"answer": ["("]}}})


class Parrot(Model):
    """Says its line, and keeps what it was asked."""

    def __init__(self, line: str):
        self.line = line

    async def chat(self, messages, samples, sampling, seed):
        self.requests = [dict(message) for message in messages], sampling
        return [Completion(self.line, (), (), "stop") for _ in samples]


def test_an_entry_changes_what_it_names_and_nothing_else():
    parrot, conversation = Parrot("thought</think>word"), [
        {"role": "system", "content": "Rules"}, {"role": "user", "content": "Case"},
        {"role": "assistant", "content": "Test"}, {"role": "user", "content": "Result"}]  # fmt: skip
    plain = AgentModel(parrot, ModelEntry(answer=["nowhere"]))
    with metering() as meter:
        [said, _] = asyncio.run(plain.chat(conversation, (0, 1), Sampling(50, 0.0), 0))
    assert parrot.requests == (conversation, Sampling(50, 0.0)) and said.text == parrot.line and meter.unmarked == 2
    drawn = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_tokens": 400}
    entry = ModelEntry.model_validate({"answer": ["</think>"], "system": "fold", "sampling": drawn})
    [said] = asyncio.run(AgentModel(parrot, entry).chat(conversation, (0,), Sampling(50, 0.0), 0))
    messages, sampling = parrot.requests
    assert messages == [{"role": "user", "content": "Rules\n\nCase"}, *conversation[2:]] and said.text == "word"
    assert sampling == Sampling(400, 0.6, 0.95, 20)
    asyncio.run(AgentModel(parrot, entry).chat(conversation, (0,), Sampling(2500, 1.0), 0))
    assert parrot.requests[1].max_tokens == 2500, "room is never taken away"


# Folders


@pytest.fixture
def folder(tmp_path):
    tiny = TinyModel(hidden_size=32, layers=1, heads=2, intermediate_size=48, vocab_size=320)
    return build_tiny_policy(tmp_path / "tiny", tiny, ["fever cough pain in the flank"] * 20)


def test_a_template_is_told_its_arguments_and_never_the_date(folder):
    told = "{{ strftime_now('%Y-%m-%d') }}{% if enable_thinking is false %} at once{% endif %}"
    (folder / "chat_template.jinja").write_text(told + CHAT_TEMPLATE)
    ask = [{"role": "user", "content": "pain"}]
    assert ChatTokenizer(folder).render(ask).startswith("2026-01-01<|user|>")
    assert ChatTokenizer(folder, {"enable_thinking": False}).render(ask).startswith("2026-01-01 at once<|user|>")
    settings = parse_settings({})
    entry = ModelEntry(at=str(folder), extra={"chat_template_kwargs": {"enable_thinking": False}}, prices=None)
    model = open_model(ModelSpec.of_entry(entry, settings, credentialed=True))
    with metering() as meter:
        asyncio.run(model.chat(ask, (0,), Sampling(3), 0))
    assert meter.prompt_tokens == len(ChatTokenizer(folder, {"enable_thinking": False}).encode_conversation(ask))
    assert model.tokenizer is None, "a model of the registry reads messages, wherever it is"
    unheard = entry.model_copy(update={"extra": {"skip_special_tokens": False}})
    with pytest.raises(SettingsError, match="does not understand skip_special_tokens"):
        open_model(ModelSpec.of_entry(unheard, settings, credentialed=True))


# Effort


def test_effort_is_told_per_case_with_dollars_where_there_is_a_price(tmp_path):
    """Two cases of 1,000 and 3,000 tokens asked and 100 answered, at 2.5 and 15 dollars a million."""
    settings = parse_settings(merge(SETTINGS.model_dump(), {"models": {"gpt_5_4": {"enabled": True}}}))
    asked = [CALL_COUNTS | {"prompt_tokens": n, "completion_tokens": 100, "n_invalid": k, "n_na": k, "unmarked": 1,
                      "silent": k, "too_long": k}
             for k, n in enumerate((1000, 3000))]  # fmt: skip
    quiet = CALL_COUNTS | {"prompt_tokens": None, "completion_tokens": None, "calls": 5}
    for run, told in {"gpt_5_4": asked, "warm_start": [quiet, quiet]}.items():
        rows = [row(i, d, True, 1, 1.0) | told[i] for d in ("greedy", "sampled") for i in range(2)]
        write_rows(tmp_path / "evaluations" / run / "mimic_iv.jsonl", rows)
    done = job(tmp_path, tmp_path / "effort")
    main_table.sheet_effort(settings, done.inputs["results"]).write(done.out)
    lines = csv.DictReader(done.out["csv"].read_text().splitlines())
    table = {(line["method"], line["dataset"], line["decoding"]): line for line in lines}
    priced = table["gpt_5_4", "mimic_iv", "greedy"]
    told = ("calls", "prompt_tokens", "completion_tokens", "invalid", "unmarked", "silent", "too_long", "usd",
            "usd_in_all", "cases")  # fmt: skip
    assert [float(priced[name]) for name in told] == [2, 2000, 100, 0.5, 1, 0.5, 0.5, 0.0065, 0.013, 2]
    free = table["warm_start", "mimic_iv", "sampled"]
    assert (float(free["calls"]), free["prompt_tokens"], free["usd"]) == (5, "", "")
    assert table["Qwen3-8B", "", "greedy"]["status"].startswith("not run: needs a server")
    text = done.out["md"].read_text()
    none = "0.00 | 0.00 | 0.00 | 0.00"
    assert f"| GPT-5.4 | MIMIC-IV | 2 | 2.00 | 2000 | 100 | 0.50 | 1.00 | 0.50 | 0.50 | {none} | 0.0 | 0.0065" in text
    assert "GPT-5.4: 2.5 USD a million tokens asked" in text
