"""What the tiny policy learns from: clinicians' habits, textbook cases, and readings at every state."""

import asyncio
import contextlib
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy import logprobs_alone
from transformers import LlamaConfig, LlamaForCausalLM

from cdpr.agents.reference import Clinician
from cdpr.cases import CaseRecord, parse_analytes, write_records
from cdpr.costs import load_catalogue, price_case
from cdpr.credit.belief import true_names
from cdpr.environment import (
    DiagnosticEnvironment,
    PromptBuilder,
    State,
    Turn,
    parse_action,
    render_action,
    run_episode,
)
from cdpr.environment.prompt import compact_result
from cdpr.hospital.posterior import Diagnostician
from cdpr.hospital.raw_files import write_hospital
from cdpr.ingest.run import ingest
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.pipeline.experiment import Experiment
from cdpr.settings import load_settings, parse_settings
from cdpr.training.torch import warm_start
from cdpr.training.torch.optimisers import MuonAndAdamW
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.update import Segment, token_logprobs
from cdpr.training.torch.weights import load_model


@pytest.fixture(scope="module")
def textbook(tmp_path_factory) -> list[CaseRecord]:
    folder = tmp_path_factory.mktemp("raw")
    settings = load_settings("config.yaml")
    hospital = settings.hospital.model_copy(update={"textbook_cases": 300})
    write_hospital(hospital, folder, ["textbook"])
    records = ingest("textbook", settings, folder / "textbook")[0]
    return [price_case(record, settings.costs, load_catalogue()) for record in records]


def effort(cases, **shares):
    """Mean examinations, dollars and accuracy of clinicians with these habits."""
    settings = parse_settings({})
    environment, agent = DiagnosticEnvironment(settings.environment), Clinician(settings, "textbook")
    vars(agent).update({"premature": 0.0, "defensive": 0.0} | shares)
    workups = [asyncio.run(run_episode(environment, agent, case, 0)) for case in cases]
    spent = sum(agent.prices(s)[k] for w in workups for s in w.states if (k := agent.choose(s, 0)) is not None)
    return (
        sum(w.effort().issued for w in workups) / len(cases),
        spent / len(cases),
        sum(w.correct for w in workups) / len(cases),
    )


def test_every_habit_is_what_it_is_called(textbook):
    at_once = effort(textbook, premature=1.0, at_once=1.0)
    premature = effort(textbook, premature=1.0, at_once=0.0)
    defensive, economical = effort(textbook, defensive=1.0), effort(textbook)
    assert at_once[:2] == (0, 0) and 0 < premature[0] <= 1
    assert defensive[0] > premature[0] and economical[0] > premature[0]
    assert defensive[1] > 4 * economical[1], "who does not look at prices pays them"
    assert defensive[2] > premature[2] > at_once[2] and economical[2] > premature[2]


def test_the_textbook_speaks_like_every_hospital_and_can_be_read(textbook):
    doctor, environment = Diagnostician(dataset="textbook"), DiagnosticEnvironment(parse_settings({}).environment)
    labels = {a.label for case in textbook for t in case.key_pertinent_results_dict.values() for a in parse_analytes(t)}
    assert {"White Blood Cells", "White blood cell count", "WBC"} <= labels
    right = moved = 0
    for case in textbook:
        p = doctor.prior(case.case_summary)
        for exam, text in case.key_pertinent_results_dict.items():
            q = doctor.update(p, exam, text)
            moved += abs(q - p).max() > 1e-9
            p = q
        right += environment.is_correct(doctor.diseases[int(p.argmax())], case.diagnosis_results)
    assert right / len(textbook) > 0.9, "the whole record tells the disease"
    assert moved / len(textbook) > 20, "most results tell something"


def test_the_textbook_has_the_layout_of_every_hospital(textbook, tmp_path):
    """What the policy sees of another hospital's numbers, it has seen before: labels, levels and all around them."""
    settings = load_settings("config.yaml")
    small = {"mimic_patients": 60, "clinicalbench_cases": 60, "private_cases": 60}
    write_hospital(settings.hospital.model_copy(update=small), tmp_path, ["clinicalbench", "private"])
    read = {phrase for case in textbook for phrase in numbers(case)}
    for dataset in ("clinicalbench", "private"):
        met = [p for r in ingest(dataset, settings, tmp_path / dataset)[0][:60] for p in numbers(r)]
        assert sum(phrase in read for phrase in met) / len(met) > 0.97, dataset


def numbers(case: CaseRecord) -> list[str]:
    """Results of numbers as the policy reads them, quantity by quantity, without the figures."""
    shown = [compact_result(text) for text in case.key_pertinent_results_dict.values() if re.search(r"\d", text)]
    return [re.sub(r"[\d.% ]+$", "", phrase) for text in shown for phrase in text.split(", ")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Serum sodium 128 mmol/L (135-145); Serum albumin 41 g/L (35-52)", "Serum sodium low"),
        ("Pancreatic lipase activity 480 U/L (0-60)", "Pancreatic lipase activity high 6"),
        ("Haemoglobin 60 g/L (120-175)", "Haemoglobin low 2"),
        ("Arterial pH 7.4 (7.35-7.45)", "normal"),
        ("Lipase: Value: 130; Units: IU/L; Reference Range: 0.0--60.0", "Lipase high 2"),
        ("Limbs slender (as ever); gait 5 (steady)", "Limbs slender (as ever); gait 5 (steady)"),
    ],
)
def test_a_compact_result_grades_what_is_out_of_range(text, shown):
    assert compact_result(text) == shown


def test_readings_are_the_forced_diagnoses_of_every_state(textbook, tmp_path: Path):
    """Scored beside the workup in one row, they get the log-probabilities of whole forced conversations."""
    settings = parse_settings({})
    environment, agent = DiagnosticEnvironment(settings.environment), Clinician(settings, "textbook")
    agent.premature, agent.defensive = 0.0, 1.0
    workups = asyncio.run(warm_start.demonstrate(environment, agent, textbook[:6], True))
    tiny = settings.policy.tiny.model_copy(update={"vocab_size": 900})
    folder = build_tiny_policy(
        tmp_path / "policy", tiny, warm_start.tokenizer_corpus(settings, warm_start.Lessons(workups, []))
    )
    prompts = PromptBuilder(settings.environment.prompt, ChatTokenizer(folder), 2048)
    model = load_model(folder)
    demonstrations = [warm_start.encode_episode(prompts, workup) for workup in workups]
    whole, wanted = [], []
    for workup, demonstration in zip(workups, demonstrations, strict=True):
        conversation, *readings = demonstration
        assert len(readings) == len(workup.trajectory.states)
        for reading in readings:
            whole.append((*conversation.ids[: reading.start], *reading.ids))
            wanted.append(list(reading.scored))
        state = random.Random(0).choice(workup.trajectory.states)
        turn = asyncio.run(agent.act(state, True, 0))
        assert turn in workup.diagnoses
        # The loss is on what the demonstrator chose: its whole replies, and of each reading the words after the prefix.
        replies = [render_action(step.action, prompts.settings.style) for step in workup.trajectory.steps]
        assert scored_text(prompts, conversation) == "".join(replies)
        for state, reading, turn in zip(workup.trajectory.states, readings, workup.diagnoses, strict=True):
            prompt = (*conversation.ids[: reading.start], *prompts.forced_prefix_ids)
            assert prompt == prompts.prompt_ids(in_style(prompts, state), True)
            assert scored_text(prompts, reading) == parse_action(turn.text).text
    with torch.no_grad():
        beside = token_logprobs(model, [[Segment(0, first.ids, ()), *readings] for first, *readings in demonstrations])
        alone = logprobs_alone(model, whole, wanted)
    torch.testing.assert_close(beside, alone, atol=1e-5, rtol=1e-5)


def test_demonstrations_may_begin_with_a_differential_and_name_the_truth(textbook, tmp_path: Path):
    """The differential is the exact posterior's; the truth is named also where it is not the likeliest disease."""
    settings = parse_settings({"environment": {"prompt": {"differential": 3}}, "warm_start": {"names": "true"}})
    episodes, _ = warm_start._demonstrate_datasets(settings, {"textbook": textbook[:40]})
    plain, _ = warm_start._demonstrate_datasets(parse_settings({}), {"textbook": textbook[:40]})
    agent = Clinician(settings, "textbook")
    policy = build_tiny_policy(
        tmp_path, settings.policy.tiny, warm_start.tokenizer_corpus(settings, warm_start.Lessons(episodes, []))
    )
    prompts, surprises = PromptBuilder(settings.environment.prompt, ChatTokenizer(policy), 2048), 0
    for episode, likeliest in zip(episodes, plain, strict=True):
        case, steps = episode.trajectory.case, episode.trajectory.steps
        assert [step.action for step in steps[:-1]] == [step.action for step in likeliest.trajectory.steps[:-1]]
        truth = true_names(case)[0]
        assert {step.text for step in (steps[-1].action, *map(parse_of, episode.diagnoses))} == {truth}
        surprises += parse_of(likeliest.diagnoses[-1]).text != truth
        p = agent.posterior(episode.trajectory.states[-1])
        best = [f"{agent.doctor.diseases[k]} {10 * p[k]:.0f}" for k in np.argsort(-p, kind="stable")[:3]]
        conversation, *_ = warm_start.encode_episode(prompts, episode)
        line = "DIFFERENTIAL: " + ", ".join(best)
        assert scored_text(prompts, conversation).endswith(f"{line}\nFINAL_DIAGNOSIS: {truth}")
        assert parse_action(f"{line}\nFINAL_DIAGNOSIS: {truth}") == steps[-1].action
        assert likeliest.differentials == ("",) * len(likeliest.trajectory.steps)
    assert 0 < surprises < 40


def parse_of(turn: Turn):
    """The action of a reply."""
    return parse_action(turn.text)


@pytest.mark.parametrize(
    "model, chosen, lessons", [("folder", None, 0), ("folder", True, 40), ("tiny", None, 40), ("tiny", False, 0)]
)
def test_a_model_of_a_folder_reads_the_textbook_where_the_settings_say_so(textbook, tmp_path, model, chosen, lessons):
    change = {"policy": {"model": model, "warm_start": True}, "warm_start": {"cases": 0, "textbook": chosen}}
    write_records(tmp_path / "cases.jsonl", textbook[:40])
    cases = dict.fromkeys(("mimic_iv", "textbook"), tmp_path / "cases.jsonl")
    workups, static = warm_start.gather_lessons(parse_settings(change), cases)
    assert len(workups) == lessons and all(workup.diagnoses for workup in workups)
    assert bool(static) == bool(lessons)


def scored_text(prompts: PromptBuilder, piece: Segment) -> str:
    """The text of a piece that carries loss."""
    return prompts.tokenizer.decode([piece.ids[k - piece.start] for k in piece.scored]).strip()


def in_style(prompts: PromptBuilder, state: State) -> State:
    """The state with the demonstrator's replies in the words of the prompt's style."""
    style = prompts.settings.style
    steps = [replace(step, turn=Turn(render_action(step.action, style))) for step in state.history]
    return State(state.case, tuple(steps))


def test_a_static_demonstration_scores_the_diagnosis_of_the_whole_record(textbook, tmp_path: Path):
    settings = parse_settings({})
    environment, agent = DiagnosticEnvironment(settings.environment), Clinician(settings, "textbook")
    pairs = asyncio.run(warm_start.diagnose_whole_records(environment, agent, textbook[:4]))
    assert [case for case, _ in pairs] == textbook[:4]
    tiny = settings.policy.tiny.model_copy(update={"vocab_size": 900})
    workups = asyncio.run(warm_start.demonstrate(environment, agent, textbook[:8], True))
    folder = build_tiny_policy(
        tmp_path / "policy", tiny, warm_start.tokenizer_corpus(settings, warm_start.Lessons(workups, pairs))
    )
    prompts = PromptBuilder(settings.environment.prompt, ChatTokenizer(folder), 2048)
    for case, turn in pairs:
        (piece,) = warm_start.encode_whole_record(prompts, case, turn)
        assert piece.ids[: piece.scored[0]] == prompts.prompt_ids(State(case), True, whole=True)
        assert scored_text(prompts, piece) == parse_action(turn.text).text
        assert piece.ids[piece.scored[-1]] == prompts.tokenizer.end_of_turn


def test_the_learning_rate_rises_and_falls_and_every_epoch_has_its_own_order(monkeypatch, tmp_path):
    def record_share(step, steps, warmup):
        shares.append(schedule(step, steps, warmup))
        return shares[-1]

    def record(demonstrations, size, seed):
        orders.append(batches(demonstrations, size, seed))
        return orders[-1]

    shares, orders, batches, schedule = [], [], warm_start._batches, warm_start.warmup_and_cosine
    monkeypatch.setattr(warm_start, "warmup_and_cosine", record_share)
    monkeypatch.setattr(warm_start, "_batches", record)
    settings = parse_settings({"warm_start": {"epochs": 3, "batch_size": 1}})
    demonstrations = [[Segment(0, (1, 2 + k % 9, 3 + k % 5, k % 3), range(1, 4))] for k in range(64)]
    config = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                         num_attention_heads=1, num_key_value_heads=1)  # fmt: skip
    warm_start.imitate(LlamaForCausalLM(config), demonstrations, settings, tmp_path, lambda row: None)
    assert len({str(order) for order in orders}) == 3
    peak = shares.index(max(shares))
    assert len(shares) == 3 * 64 and shares[0] < 0.05 and 0.5 < shares[peak] <= 1 and shares[-1] < 0.01
    assert shares == sorted(shares[: peak + 1]) + sorted(shares[peak + 1 :], reverse=True)


def test_an_interrupted_warm_start_ends_where_an_undisturbed_one_ends(tmp_path):
    """After each epoch it could be killed; no epoch is trained twice."""
    settings = parse_settings({"warm_start": {"epochs": 3, "batch_size": 8}})
    demonstrations = [[Segment(0, (1, 2 + k % 9, 3 + k % 5, k % 3), range(1, 4))] for k in range(32)]
    config = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                         num_attention_heads=1, num_key_value_heads=1)  # fmt: skip

    def imitate(folder: str, killed: bool) -> tuple[dict, list[int]]:
        steps = []

        def log(row):
            steps.append(row["step"])
            if killed:
                raise KeyboardInterrupt

        for _ in range(3 if killed else 1):
            torch.manual_seed(0)
            model = LlamaForCausalLM(config)
            with contextlib.suppress(KeyboardInterrupt):
                warm_start.imitate(model, demonstrations, settings, tmp_path / folder, log)
        return model.state_dict(), steps

    (whole, steps), (parts, steps_in_parts) = imitate("whole", False), imitate("parts", True)
    assert steps == steps_in_parts == [1, 2, 3]
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_beginning_that_all_rows_share_passes_once_with_the_gradient_of_all(tmp_path):
    """A Llama with tied weights, as SmolLM2 is; rows of 300 shared tokens against each row by itself."""
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    rng = random.Random(0)
    begin = [rng.randrange(64) for _ in range(300)]
    rows = [begin + [rng.randrange(64) for _ in range(n)] for n in (9, 30, 17)]
    wanted = [tuple(range(303, len(row))) for row in rows]
    gradients = []
    for scored in (
        token_logprobs(model, [[Segment(0, row, at)] for row, at in zip(rows, wanted, strict=True)]),
        logprobs_alone(model, rows, wanted),
    ):
        model.zero_grad()
        scored.sum().backward()
        gradients.append((scored.detach(), [p.grad.clone() for p in model.parameters()]))
    (once, shared), (alone, separate) = gradients
    assert torch.allclose(once, alone, atol=1e-5)
    assert all(torch.allclose(a, b, atol=1e-3, rtol=1e-3) for a, b in zip(shared, separate, strict=True))


def test_a_clinician_gives_reasons_where_the_full_prompt_asks_for_them(textbook):
    settings = parse_settings({"environment": {"prompt": {"style": "full"}}})
    compact, full = (Clinician(s, "textbook") for s in (parse_settings({}), settings))
    workup = asyncio.run(run_episode(DiagnosticEnvironment(settings.environment), full, textbook[0], 0))
    for state, step in zip(workup.states, workup.steps, strict=True):
        forced = workup.forced and step is workup.steps[-1]
        plain = asyncio.run(compact.act(state, forced, 0))
        assert parse_action(plain.text) == step.action
        assert forced or re.match(r"THINKING: .+\nACTION: [\s\S]+\nReason: ", step.turn.text)


def test_a_model_of_ones_own_may_imitate_clinicians_first(tmp_path):
    """Training then starts from what it learned, on cases that were not demonstrated."""
    mine = parse_settings({"policy": {"model": str(tmp_path), "warm_start": True}, "warm_start": {"cases": 5}})
    assert Experiment(mine).initial_policy() == "<results>/policies/warm_start"
    plain = Experiment(parse_settings({"policy": {"model": str(tmp_path)}}))
    assert plain.initial_policy() == plain.acting_policy("warm_start") == str(tmp_path)


def test_muon_takes_the_steps_of_torch_in_single_precision():
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in [(24, 24), (8, 24), (48, 24), (24, 48), (8, 24)]]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    ours_in_model = torch.nn.ParameterList(ours)
    muon, reference = MuonAndAdamW(ours_in_model, 0.02, 1.0), torch.optim.Muon(theirs, lr=0.02, weight_decay=0.01)
    for _ in range(4):
        before = [p.detach().clone() for p in theirs]
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        muon.step(1.0)
        reference.step()
        for p, q, was in zip(ours, theirs, before, strict=True):
            assert (p - q).norm() < 0.05 * (q - was).norm()  # bfloat16 keeps two digits of a step
