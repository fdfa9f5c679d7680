"""Templates are rendered as transformers renders them, and `policy.chat_template_kwargs` reaches every prompt of the
policy, whoever asks for it."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from _local_server import LocalServer
from test_serving import server

from cdpr.agents.build import agent_entry, build_agent, model_spec
from cdpr.cases import write_records
from cdpr.environment import DiagnosticEnvironment, PromptBuilder, State, Turn, run_episode
from cdpr.environment.episode import is_cut_result
from cdpr.environment.prompt import FORCED_PREFIX
from cdpr.evaluation.evaluate_agent import evaluate
from cdpr.evaluation.row import read_rows
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.settings import SettingsError, parse_settings
from cdpr.settings.load import merge
from cdpr.settings.schema import Environment, Prompt, TinyModel
from cdpr.training.torch.loop import roll_out
from cdpr.training.torch.tiny import CHAT_TEMPLATE, build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.training_run import TrainingRun
from cdpr.training.verl.session import Session

NO_THOUGHTS = "<thoughts></thoughts>"
SWITCH = "{% if add_generation_prompt and enable_thinking is false %}" + NO_THOUGHTS + "{% endif %}"
SETTINGS = {
    "policy": {"chat_template_kwargs": {"enable_thinking": False}, "max_turn_tokens": 4},
    "environment": {"max_turns": 3},
    "warm_start": {"cases": 1},
    "training": {"prompts_per_batch": 2, "mini_batch_prompts": 2, "group_size": 2, "verl": {"rollout": "cpu"}},
}


@pytest.fixture
def policy(tmp_path):
    """A tiny policy whose template can open a reply with empty thoughts."""
    tiny = TinyModel(hidden_size=32, layers=1, heads=2, intermediate_size=48, vocab_size=320)
    folder = build_tiny_policy(tmp_path / "tiny", tiny, ["fever cough pain in the flank"] * 20)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE + SWITCH)
    return folder


@pytest.fixture
def cases(case):
    return [case.model_copy(update={"note_id": f"T-{k}"}) for k in range(4)]


def prompts_of(workups):
    return [step.turn.prompt_ids for workup in workups for step in workup.steps]


def of_training(settings, policy, cases, tmp_path):
    groups = asyncio.run(roll_out(Trainer(TrainingRun(settings, cases, policy, 0)), 0))
    return prompts_of(workup for group in groups for workup in group)


def of_evaluation(settings, policy, cases, tmp_path, own=None):
    """Also of what an inspected or studied policy is asked: all open it by the same spec."""
    spec = model_spec(settings, agent_entry(settings, "cdpr-seed0"), policy, own)
    agent = build_agent(settings, "cdpr-seed0", spec, 1.0, "mimic_iv")
    environment = DiagnosticEnvironment(settings.environment)
    return prompts_of([asyncio.run(run_episode(environment, agent, case, 0)) for case in cases])


def of_served_evaluation(settings, policy, cases, tmp_path):
    with server(tmp_path, "--log", str(tmp_path / "asked")) as own:
        of_evaluation(settings, policy, cases, tmp_path, own)
    return [json.loads(line.partition(" ")[2]) for line in (tmp_path / "asked").read_text().splitlines()]


def of_verl(settings, policy, cases, tmp_path):
    """What reaches its rollout servers and the frozen one."""
    asked = []

    class Kept(LocalServer):
        async def generate(self, request_id, *, prompt_ids, sampling_params, **more):
            asked.append(prompt_ids)
            return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)

    write_records(tmp_path / "cases.jsonl", cases)
    session = Session(settings, tmp_path / "cases.jsonl", policy, tmp_path, 0)
    context = session.context(Kept(policy, Kept(policy)))
    for agent in (context.policy, context.load_frozen_policy()):
        before = len(asked)
        asyncio.run(run_episode(context.environment, agent, cases[0], 0))
        assert len(asked) > before
    return asked


@pytest.mark.parametrize("asked", [of_training, of_evaluation, of_served_evaluation, of_verl])
def test_every_reply_begins_as_the_settings_say(policy, cases, tmp_path, asked):
    prompts = asked(parse_settings(SETTINGS), policy, cases, tmp_path)
    texts = [ChatTokenizer(policy).decode(ids) for ids in prompts]
    begun = [text.removesuffix(FORCED_PREFIX["compact"]).endswith(NO_THOUGHTS) for text in texts]
    assert len(begun) > 3 and all(begun), texts
    assert max(text.count(NO_THOUGHTS) for text in texts) == 3, "of later turns too"


# As transformers renders them

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<s>", "<|im_start|>", "<|im_end|>", "<|im_end|><|more|>")


def folder_of(place, template, special=SPECIAL, **config):
    """A tokenizer of single bytes and these special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    tokenizer.save(str(place / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template} | config
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    return place


@pytest.mark.parametrize(("template", "config"), [
    (CHATML, {}),
    (CHATML.replace("'<|im_end|>\\n'", "'<|im_end|><|more|>\\n'"), {"eos_token": "<|im_end|>"}),
    ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
     "<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", {}),
    ("{% if tools is not none %}You may call {{ tools }}\n{% endif %}" + CHATML, {}),
    ("{% if documents is not none %}Read {{ documents }}\n{% endif %}" + CHATML, {}),
    ("{{ bos_token }}{{ sep_token }}" + CHATML, {"bos_token": "<s>"}),
    ("{{ bos_token }}" + CHATML, {"bos_token": None}),
    ("{% if bos_token is defined %}defined{% endif %}" + CHATML, {"bos_token": None, "unk_token": None}),
    ("{{ {'b': 'é<', 'a': 1} | tojson(sort_keys=true, separators=(',', ':')) }}" + CHATML, {}),
    ("{% for m in messages %}{% if loop.index > 9 %}{% break %}{% endif %}{% endfor %}" + CHATML, {}),
])  # fmt: skip
def test_a_template_reads_as_in_transformers(template, config, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = folder_of(tmp_path, template, **config)
    reference, own = transformers.AutoTokenizer.from_pretrained(folder), ChatTokenizer(folder)
    first = [{"role": "system", "content": 'Be brief: "é".'}, {"role": "user", "content": "pain"}]
    expected = reference.apply_chat_template(first, add_generation_prompt=True, tokenize=False)
    assert own.render(first) == expected
    whole = [*first, {"role": "assistant", "content": "REQUEST_TEST: CBC"}, {"role": "user", "content": "high"}]
    expected = reference.apply_chat_template(whole, add_generation_prompt=True, tokenize=False)
    turns = [
        *own.encode_conversation(first),
        *own.encode("REQUEST_TEST: CBC"),
        own.end_of_turn,
        *own.encode_user_turn("high"),
    ]
    assert turns == reference.encode(expected, add_special_tokens=False)
    assert own.decode([own.end_of_turn]) == "" and own.end_of_turn in own.eos_ids


@pytest.mark.parametrize("special", [(), ("<|endoftext|>",), ("<|im_start|>",)])
def test_an_end_of_turn_that_is_no_token_of_its_own_is_refused(special, tmp_path):
    """Or every reply would end at its first `<`, as in "platelets <150"."""
    with pytest.raises(ValueError, match=r"closes an assistant turn with '<\|im_end\|>.*no token of its own"):
        ChatTokenizer(folder_of(tmp_path, CHATML, special))


def test_a_turn_that_ends_with_a_line_is_refused(tmp_path):
    template = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    with pytest.raises(ValueError, match="no token of its own"):
        ChatTokenizer(folder_of(tmp_path, template))


LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HOSTILE = {
    "loops in a long conversation": ("{% if messages|length > 3 %}" + LOOPS + "{% endif %}", "seconds or 2 GiB"),
    "loops that print": (LOOPS.replace("{% endfor %}", "x{% endfor %}", 1), "renders far more text"),
    "a product": ("{{ 'a' * 10**11 }}", "seconds or 2 GiB"),
    "doubling": ("{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
                 "seconds or 2 GiB"),
    "a wide text": ("{{ 'a'|center(10**10) }}", "seconds or 2 GiB"),
    "a long template": ("{# " + "a" * 300_000 + " #}", "300,.* characters, over"),
    "deep brackets": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "cannot be compiled"),
    "endless calls": ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "RecursionError"),
    "a class": ("{{ ''.__class__.__mro__ }}", "is unsafe"),
    "another file": ("{% include '/etc/passwd' %}", "no loader"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_that_takes_too_much_is_refused_by_name(policy, name):
    template, message = HOSTILE[name]
    (policy / "chat_template.jinja").write_text(template + CHAT_TEMPLATE)
    with pytest.raises(SettingsError, match=message) as error:
        ChatTokenizer(policy)
    assert str(policy) in str(error.value)


def test_a_plain_template_needs_no_process_and_another_one_renders_the_same(policy, monkeypatch):
    real = "{% set ns = namespace(found=false) %}{{ (bos_token or '')|trim }}" + CHAT_TEMPLATE
    messages = [{"role": "user", "content": "fever"}]
    (policy / "chat_template.jinja").write_text(real)
    expected = ChatTokenizer(policy).encode_conversation(messages)
    (policy / "chat_template.jinja").write_text(CHAT_TEMPLATE + SWITCH)
    monkeypatch.setattr("cdpr.llm.chat_template.subprocess.run", None)
    assert ChatTokenizer(policy).encode_conversation(messages) == expected


def test_a_rendering_may_not_outgrow_its_conversation(policy):
    """What a template does to a text that it was not tried out with."""
    growing = (
        "{% for m in messages %}{% if m['content'].startswith('boom') %}{{ m['content'] * 999 }}{% endif %}{% endfor %}"
    )
    (policy / "chat_template.jinja").write_text(growing + CHAT_TEMPLATE)
    tokenizer = ChatTokenizer(policy)
    with pytest.raises(SettingsError, match="renders more than"):
        tokenizer.encode_conversation([{"role": "user", "content": "boom" * 1000}])


# Prompts that are too long


@pytest.mark.parametrize(("style", "limit"), [("compact", 100), ("compact", 101), ("compact", 257), ("full", 5000)])
def test_a_cut_prompt_fits_and_keeps_as_much_as_it_can(style, limit, case, tmp_path):
    """Also with a tokenizer of bytes, and where a forced reply begins behind it."""
    words = " ".join(f"word{n}é" for n in range(900))
    long = case.model_copy(update={"case_summary": f"- Chief Complaint: {words}"})
    prompts = PromptBuilder(Prompt(style=style), ChatTokenizer(folder_of(tmp_path, CHATML)), limit)
    ids = prompts.prompt_ids(State(long), True)
    assert limit - 4 <= len(ids) <= limit and prompts.is_cut(long)
    kept = prompts.tokenizer.decode(ids)
    assert "word0é" in kept and " ... " in kept and "word899é" in kept
    assert not prompts.is_cut(case.model_copy(update={"case_summary": "- Chief Complaint: pain"}))


def test_a_limit_that_holds_no_prompt_is_refused(case, tmp_path):
    prompts = PromptBuilder(Prompt(style="full"), ChatTokenizer(folder_of(tmp_path, CHATML)), 2048)
    with pytest.raises(SettingsError, match=r"policy.max_prompt_tokens: 2048 tokens do not hold .* which takes \d+"):
        prompts.prompt_ids(State(case), False)


def test_cut_prompts_and_results_are_counted(policy, cases, tmp_path, capsys):
    long = cases[0].model_copy(update={"case_summary": "- Chief Complaint: " + "fever and cough " * 400})
    mixed = [cases[1], long, *(case.model_copy(update={"split": "train"}) for case in (long, long, cases[2], cases[3]))]
    own = {"max_prompt_tokens": 120}
    settings = parse_settings(merge(SETTINGS, {"policy": own, "evaluation": {"decodings": ["greedy"]}, "paths": {
        "state": str(tmp_path / "s"), "results": str(tmp_path / "r")}, "warm_start": {"cases": 0}}))  # fmt: skip
    evaluate(settings, "warm_start", mixed[:2], tmp_path / "e.jsonl", tmp_path / "job", policy=policy)
    whole, cut = read_rows(tmp_path / "e.jsonl")
    assert (whole.cut, cut.cut) == (0, cut.calls) and cut.calls > 0
    assert f"{cut.calls} of {whole.calls + cut.calls} prompts were cut" in capsys.readouterr().out
    job = SimpleNamespace(metrics={})
    TrainingRun(settings, mixed, policy, 0).count_cut_prompts(job)
    assert job.metrics == {"cut_prompts": 3} and "3 cases lose a part" in capsys.readouterr().out


def test_a_cut_result_is_seen(case):
    environment = DiagnosticEnvironment(Environment(prompt=Prompt(max_observation_chars=40)))
    steps = [environment.step(State(case), Turn(f"REQUEST_TEST: {name}")) for name in ("CBC", "CT Abdomen and Pelvis")]
    assert [is_cut_result(case, step) for step in steps] == [True, False]
