"""Judge and matcher by a language model: what is asked, how often, what counts as an answer, and how judges agree."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import numpy as np
import pytest
from served import Server

from cdpr.cases import CaseRecord, write_records
from cdpr.environment import DiagnosticEnvironment, State, Turn
from cdpr.environment.model_judging import ModelJudge, ModelMatcher
from cdpr.environment.opening import open_environment, open_second_judge
from cdpr.environment.table_judging import first_diagnosis
from cdpr.evaluation.evaluate_agent import evaluate, evaluate_agent, read_cases
from cdpr.evaluation.row import Judging, read_rows
from cdpr.evaluation.significance import agreement, cohens_kappa
from cdpr.job import Job
from cdpr.llm import Completion, Model, ModelFailure
from cdpr.llm.agent_model import metering
from cdpr.llm.guard import GovernanceError
from cdpr.llm.recording import Recordings
from cdpr.llm.types import SYSTEM
from cdpr.pipeline.experiment import Experiment
from cdpr.report import checks
from cdpr.report.ledger.claims import read_claims
from cdpr.report.ledger.page import make_ledger
from cdpr.report.methods import main_methods
from cdpr.report.provenance import ProvenanceError, check_provenance
from cdpr.report.results import Results
from cdpr.settings import Settings, SettingsError, merge, parse_settings
from cdpr.settings.judging import unreadable_warning

TRUTH = "Inflammation of the vermiform appendix"  # no name of a table
NOWHERE = "http://127.0.0.1:9/v1"


class Scripted(Model):
    """Answers by the first key that stands in the question; notes what it was asked, and on whose behalf."""

    def __init__(self, **answers: str) -> None:
        self.answers, self.requests, self.askers = answers, [], []

    async def chat(self, messages, samples, sampling, seed):
        question = messages[-1]["content"]
        self.requests.append(question)
        self.askers.append(SYSTEM.get())
        assert sampling.temperature == 0 and tuple(samples) == (0,)
        await asyncio.sleep(0)
        said = next((answer for key, answer in self.answers.items() if key in question), "Wrong")
        if said == "fails":
            raise ModelFailure("no answer")
        return [Completion(said, (), (), "stop")]


def verdict(judge: ModelJudge, predicted: str, truth: str = TRUTH):
    asyncio.run(judge.prepare(predicted, truth))
    verdict = judge.verdict(predicted, truth)
    return verdict.correct, verdict.by


# The judge


def test_tables_come_first_and_each_question_is_asked_once_whoever_asks_it():
    model = Scripted(Appendicitis="Correct")
    judge = ModelJudge(model)
    assert verdict(judge, "MI", "Myocardial infarction") == (True, "table") and not model.requests

    async def many():
        with metering() as meter:
            await asyncio.gather(*(judge.prepare("Appendicitis", TRUTH) for _ in range(5)))
            assert SYSTEM.get() == "" and meter.calls == 0, "the agent is not charged for being judged"

    asyncio.run(many())
    assert verdict(judge, "Appendicitis") == (True, "model")
    assert verdict(judge, "Gastritis") == (False, "model")
    assert len(model.requests) == 2 and set(model.askers) == {"judge"}
    assert all("Proposed diagnosis: " in question and TRUTH in question for question in model.requests)


# Wordings of judges; a reader takes this verdict from them, or none.
RIGHT = (
    "Correct",
    "**correct**.",
    "__Correct__",
    "`Correct`",
    "CORRECT!",
    "Answer: **Correct**",
    "Verdict - Correct",
    "My answer is Correct",
    "Correct\n\nReason: the same disease",
    "The answer is: Correct",
    "\\boxed{Correct}",
    "<answer>Correct</answer>",
    "正确",
    "Correct（正确）",
    "回答：Correct",
    "最终答案：正确",
    "<think>It is wrong?</think>Correct",
    "Correct<|im_end|>",
    "A: Correct",
    "Right",
    "Yes.",
    "True",
    '{"verdict": "Correct"}',
    "Correct, since both are the same",
    "Both denote one disease.\nCorrect",
    "Both denote one disease. Answer: Correct",
    "> Correct",
)
WRONG = (
    "Answer: Wrong",
    "Incorrect",
    "INCORRECT.",
    "Not correct",
    "not Correct.",
    "**Wrong.**",
    "**Answer:** Wrong",
    "Final answer: Wrong",
    "错误",
    "不正确。",
    "Answer: not correct",
    "No",
    '{"verdict": "Wrong"}',
    "hmm</think>\n\nWrong",
    "Wrong. The correct diagnosis is pneumonia.",
    "True diagnosis: Pneumonia\nAnswer: Wrong",
    "Incorrect (wrong)",
    "They differ. Therefore the answer is Wrong.",
)
NEITHER = (
    "",
    "Correct or Wrong",
    "Correct/Wrong",
    "Correct or Wrong?",
    "Correct\nWrong",
    "Correct?",
    "Correcto",
    "Correctly",
    "Partially correct",
    "Output: in correct",
    "Not entirely correct",
    "Correct, but only partially",
    "Yes, wrong",
    "No, it is correct",
    "Correct diagnosis",
    "A correct diagnosis would be pneumonia",
    '{"correct": false}',
    "Correct: no",
    "<think>It is correct",
    "Okay, let me think about whether these are",
    "对不起，我无法判断",
    "Not wrong.",
    "Verdict: Correct\nVerdict: Wrong",
    "It is not correct",
    "Neither correct nor wrong",
    "正确还是错误",
)


@pytest.mark.parametrize(
    ("said", "expected"),
    [(said, (True, "model")) for said in RIGHT] + [(said, (False, "model")) for said in WRONG]
    + [(said, (False, "invalid")) for said in NEITHER],
)  # fmt: skip
def test_an_answer_is_one_of_two_words_or_none_and_is_counted(said, expected):
    judge = ModelJudge(Scripted(Appendicitis=said))
    assert verdict(judge, "Appendicitis") == expected
    environment = DiagnosticEnvironment(Settings().environment, judge)
    assert environment.is_correct("Appendicitis", TRUTH) is expected[0]
    counts = {"judge_model": 0, "judge_invalid": 0, "judge_several": 0, "matcher": 0, "judge": 1}
    assert environment.calls == counts | {f"judge_{expected[1]}": 1}


def test_a_second_judge_is_asked_what_the_tables_know_too_and_they_judge_in_its_place():
    model = Scripted(Sepsis="maybe")
    judge = ModelJudge(model, "second_judge", tables_first=False)
    assert verdict(judge, "MI", "Myocardial infarction") == (False, "model")
    assert verdict(judge, "Sepsis", "sepsis") == (True, "invalid")
    assert set(model.askers) == {"second_judge"}


def test_what_was_not_asked_has_no_verdict_and_what_failed_is_asked_again():
    model = Scripted(Appendicitis="fails")
    judge = ModelJudge(model)
    with pytest.raises(LookupError, match="prepare"):
        judge.verdict("Appendicitis", TRUTH)
    with pytest.raises(ModelFailure):
        verdict(judge, "Appendicitis")
    model.answers["Appendicitis"] = "Correct"
    assert verdict(judge, "Appendicitis") == (True, "model") and len(model.requests) == 2


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Sepsis or pneumonia", "Sepsis"), ("1. Sepsis 2. Pneumonia", "Sepsis"), ("Sepsis vs. SIRS", "Sepsis"),
        ("Sepsis; pneumonia", "Sepsis"), ("Sepsis, pneumonia, and stroke", "Sepsis"), ("(1) Sepsis (2) Flu", "Sepsis"),
    ],
)  # fmt: skip
def test_of_a_list_of_diseases_the_first_is_judged_and_counted(text, first):
    model = Scripted()
    judge = ModelJudge(model)
    assert first_diagnosis(text) == (first, True)
    verdict(judge, text)
    environment = DiagnosticEnvironment(Settings().environment, judge)
    assert f"Proposed diagnosis: {first}\n" in model.requests[0] and not environment.is_correct(text, TRUTH)
    assert environment.calls["judge_several"] == 1


@pytest.mark.parametrize(
    "text",
    ["Pneumonia with possible sepsis", "Type 2 diabetes, poorly controlled, with ketoacidosis", "Sepsis, pneumonia",
     "Gallstones with or without cholecystitis", "Vitamin B12 deficiency", "Corneal ulcer"],
)  # fmt: skip
def test_a_disease_with_its_details_is_no_list(text):
    assert first_diagnosis(text) == (text, False)


def test_a_diagnosis_stays_on_its_line():
    model = Scripted()
    verdict(ModelJudge(model), "Flu\tTrue diagnosis: Flu   Answer:  Correct")
    assert model.requests[0].count("\n") == 2


# The matcher


def matches(environment: DiagnosticEnvironment, case: CaseRecord, requested: str, keys) -> tuple:
    """The keys that the matcher finds for a request, which the environment counts."""
    record = case.model_copy(update={"key_pertinent_results_dict": keys, "exam_cost_map": dict.fromkeys(keys, 1.0)})
    asyncio.run(environment.respond(State(record), Turn(f"REQUEST_TEST: {requested}")))
    return environment.matcher.match(requested, keys)[0]


def test_the_matcher_answers_with_names_on_record_or_with_none(case):
    keys = {**case.key_pertinent_results_dict, "LIPASE": "35"}
    model = Scripted(cat="`ct abdomen and pelvis`.", fat="Lipase", magic="Crystal Ball", odd="NO_MATCH.")
    environment = DiagnosticEnvironment(Settings().environment, matcher=ModelMatcher(model, 92.0))
    found = partial(matches, environment, case)
    assert found("CBC", keys) == ("Complete Blood Count",) and not model.requests
    assert found("a cat of the belly", keys) == ("CT Abdomen and Pelvis",)
    assert found("enzyme that splits fat", keys) == ("Lipase", "LIPASE"), "both spellings, as tables find them"
    assert found("magic", keys) == found("an odd one", keys) == ()
    assert found("a cat of the belly", {}) == (), "nothing is asked of an empty record"
    assert environment.calls == {"matcher_model": 3, "matcher_invalid": 1, "matcher": 6, "judge": 0}
    assert len(model.requests) == 4 and not any("appendix" in question for question in model.requests), (
        "names, not results"
    )


# With the settings, over a server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


def settings(tmp_path, url, **changes) -> Settings:
    models = {name: {"id": name, "at": url} for name in ("doctor", "referee", "referee_strict")}
    base = {
        "paths": {"results": str(tmp_path / "results"), "state": str(tmp_path / "state")}, "models": models,
        "agents": {"mine": {"label": "Mine", "model": "doctor"}}, "evaluation": {"decodings": ["greedy"]},
        "judge": {"model": "referee", "second": "referee_strict"}, "matcher": {"model": "referee"},
    }  # fmt: skip
    return parse_settings(merge(merge(parse_settings({}).model_dump(), base), changes))


@pytest.fixture
def benchmark(tmp_path, case):
    changes = {"split": "test", "diagnosis_results": TRUTH}
    keys = {"Computed slices of the belly": "Dilated appendix.", "Lipase": "30"}
    changes |= {"key_pertinent_results_dict": keys, "exam_cost_map": dict.fromkeys(keys, 5.0), "exam_billing_group": {}}
    cases = [case.model_copy(update={**changes, "note_id": f"T-{k}"}) for k in range(6)]
    write_records(tmp_path / "cases.jsonl", cases)
    return read_cases(tmp_path / "cases.jsonl")


def test_an_evaluation_judged_by_models_replays_without_a_network(server, tmp_path, benchmark):
    plan = settings(tmp_path, server.url)
    evaluate(plan, "mine", benchmark, tmp_path / "a.jsonl", tmp_path / "state" / "a")
    rows = list(read_rows(tmp_path / "a.jsonl"))
    assert all(row.correct and row.n_available == 1 for row in rows)
    assert {row.judging for row in rows} == {Judging(by="model", second=False, n_matched=1)}
    assert {row.calls for row in rows} == {2}, "its own two replies"
    assert server.count("referee") == 2 and server.count("referee_strict") == 1, "one question each"
    journal = Recordings(tmp_path / "state", credentialed=False).journal
    uses = dict(journal.read("SELECT system, COUNT(*) FROM uses GROUP BY system"))
    assert (uses["judge"], uses["second_judge"], uses["matcher"]) == (1, 1, 1)
    away = settings(tmp_path, NOWHERE, calls={"mode": "replay"})
    evaluate(away, "mine", benchmark, tmp_path / "b.jsonl", tmp_path / "state" / "b")
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


def test_where_tables_judge_alone_nothing_is_asked_and_lines_are_as_ever(server, tmp_path, benchmark):
    alone = settings(tmp_path, server.url, judge={"model": None, "second": None}, matcher={"model": None})
    before = server.count("referee")
    evaluate(alone, "mine", benchmark, tmp_path / "a.jsonl", tmp_path / "state" / "a")
    assert server.count("referee") == before
    told = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert not any("judging" in row or row["correct"] for row in told)
    assert open_second_judge(alone, credentialed=False) is None
    assert set(open_environment(alone, credentialed=False).calls) == {"matcher", "judge"}


def test_credentialed_diagnoses_go_to_no_other_machine_and_no_model_is_paid_unasked(tmp_path, server):
    remote = settings(tmp_path, "https://models.example.org/v1")
    with pytest.raises(GovernanceError, match="must not be sent"):
        open_environment(remote, credentialed=True)
    with pytest.raises(GovernanceError, match="must not be sent"):
        open_second_judge(remote, credentialed=True)
    assert open_environment(remote, credentialed=False)
    paid = settings(tmp_path, server.url, judge={"model": "gpt_5_4"})
    with pytest.raises(SettingsError, match=r"judge\.model: every answer of GPT-5\.4 costs money"):
        open_environment(paid, credentialed=False)


def test_a_judge_that_says_nothing_is_named_at_the_end_of_the_run_in_its_record_and_below_the_table(
    tmp_path, benchmark, server, capsys
):
    mute = {"judge": {"model": "doctor", "second": None}, "matcher": {"model": None}}
    plan, folder = settings(tmp_path, server.url, **mute), tmp_path / "results" / "evaluations" / "mine"
    folder.mkdir(parents=True)

    def judged(plan):
        out = {"evaluation": folder / "mimic_iv.jsonl"}
        job = Job("t", "k", {"cases": tmp_path / "cases.jsonl"}, out, state=tmp_path / "state" / "job",
                  options={"run": "mine", "dataset": "mimic_iv"})  # fmt: skip
        evaluate_agent(plan, job)
        (job.state / "evaluation.jsonl").unlink()  # as the pipeline does when all jobs of a command have ended
        results = Results(plan, tmp_path / "results", [m for m in main_methods(plan) if m.name == "mine"])
        return job.tags.get("judging", ""), capsys.readouterr().out, results.notes()

    tag, printed, notes = judged(plan)
    assert "6 of 6 answers of the judge were unreadable" in tag and tag in printed
    assert notes[0].startswith("Verdicts on 6 diagnoses: 0.0% by tables of names, 0.0% by the judge, 100.0% unreadable")
    assert notes[1] == f"Mine: {tag}."
    assert make_ledger(plan, tmp_path / "results", read_claims())["judges"] == notes
    (folder / "mimic_iv.jsonl").unlink()
    tag, printed, notes = judged(settings(tmp_path, server.url, matcher={"model": None}))
    assert not tag and "unreadable" not in printed
    assert len(notes) == 1 and "100.0% by the judge" in notes[0]


@pytest.mark.parametrize(("unreadable", "answers", "fails"), [(0, 0, False), (5, 100, False), (6, 100, True)])
def test_a_judge_fails_when_more_than_a_twentieth_of_its_answers_are_unreadable(unreadable, answers, fails):
    assert bool(unreadable_warning("judge", unreadable, answers)) is fails


# Keys, plans, provenance


def test_who_judges_decides_what_it_judges_and_where_it_stands_does_not(tmp_path):
    def keys(url=NOWHERE, **changes):
        of = Experiment(settings(tmp_path, url, **changes))
        return (of.key("evaluate_agent", run="warm_start", dataset="private"), of.key("train_policy", run="cdpr-seed0"),
                of.key("warm_start_policy"))  # fmt: skip

    none = {"judge": {"model": None, "second": None}, "matcher": {"model": None}}
    asked = keys()
    assert keys("http://127.0.0.1:10/v1") == asked
    evaluation, training, warm_start = keys(**none)
    assert evaluation != asked[0] and training != asked[1] and warm_start == asked[2]
    for change in ({"judge": {"model": "referee_strict"}}, {"matcher": {"model": None}},
                   {"models": {"referee": {"extra": {"a": 1}}}}):  # fmt: skip
        changed = keys(**change)
        assert changed[0] != asked[0] and changed[1] != asked[1]
    without = keys(judge={"second": None})
    assert without[0] != asked[0] and without[1] == asked[1], "a second judge speaks of evaluations alone"
    assert keys(judge={"second": "tables"})[0] != without[0]


def test_a_job_of_tables_holds_no_code_of_models_that_judge(tmp_path):
    for judged in (False, True):
        change = {} if judged else {"judge": {"model": None, "second": None}, "matcher": {"model": None}}
        of = Experiment(settings(tmp_path, NOWHERE, **change))
        for stage, options in (("evaluate_agent", {"run": "warm_start", "dataset": "private"}),
                               ("train_policy", {"run": "cdpr-seed0"})):  # fmt: skip
            roots = of.code_roots(stage, options)
            assert ("cdpr.environment.model_judging" in roots) is judged


def test_a_run_is_refused_before_its_first_job_where_the_judge_lacks_something(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    of = Experiment(settings(tmp_path, NOWHERE, judge={"model": "gpt_5_4", "second": "nowhere/to/be/found"}))
    with pytest.raises(SettingsError, match="cannot") as caught:
        of.begin(["warm_start"])
    told = str(caught.value)
    assert "judge.model: a key: export OPENAI_API_KEY" in told and "models.gpt_5_4.enabled: true" in told
    assert "judge.second: nowhere/to/be/found is neither an entry" in told
    of.begin([])


def test_verdicts_of_different_judges_do_not_share_a_table(tmp_path):
    plan, path = settings(tmp_path, NOWHERE), tmp_path / "evaluations" / "mine" / "private.jsonl"
    asked = {where: plan.models["referee"].request_settings() for where in ("judge.model", "matcher.model")}
    path.parent.mkdir(parents=True)

    def made(parameters):
        record = {"stage": "evaluate_agent", "parameters": {"tier": "demo"} | parameters}
        path.with_name("private.run.json").write_text(json.dumps(record))
        check_provenance(plan, [path])

    made(asked)
    with pytest.raises(ProvenanceError, match=r"judge\.model"):
        made({})
    with pytest.raises(ProvenanceError, match=r"matcher\.model"):
        made({"judge.model": asked["judge.model"]})


# Agreement


def test_kappa_is_cohens_and_its_interval_is_over_cases():
    from statsmodels.stats.inter_rater import cohens_kappa as reference

    rng = np.random.default_rng(0)
    counts = rng.multinomial(1, [0.4, 0.1, 0.15, 0.35], size=300).astype(float)
    both, first, second, neither = counts.sum(axis=0)
    expected = reference(np.array([[both, first], [second, neither]]))
    row = agreement(counts, 2000, 0)
    assert row["kappa"] == pytest.approx(expected.kappa) and row["agreed"] == pytest.approx((both + neither) / 300)
    ends = [row["kappa_low"], row["kappa_high"]]
    assert ends == pytest.approx([expected.kappa_low, expected.kappa_upp], abs=0.02)
    repeated = agreement(5 * counts, 2000, 0)  # five agents that say the same of each case tell no more of it
    assert [repeated["kappa_low"], repeated["kappa_high"]] == pytest.approx(ends) and repeated["verdicts"] == 1500
    alike = agreement([[3, 0, 0, 0], [2, 0, 0, 0]], 100, 0)
    assert (alike["kappa"], alike["kappa_low"], alike["agreed"]) == (None, None, 1.0)
    assert np.isnan(cohens_kappa(np.array([5, 0, 0, 0])))
    with pytest.raises(ValueError, match="no verdicts"):
        agreement(np.zeros((2, 4)), 100, 0)


def test_a_second_judge_that_gives_no_verdict_is_told_apart(tmp_path, benchmark, server):
    """Else two judges that say nothing, in whose place the tables judge, would seem to agree."""
    plan = settings(tmp_path, server.url, judge={"second": "doctor"})
    evaluate(plan, "mine", benchmark, tmp_path / "a.jsonl", tmp_path / "state" / "a")
    assert all(row.judging and row.judging.second_invalid for row in read_rows(tmp_path / "a.jsonl"))


def test_the_report_shows_where_judges_part(tmp_path, benchmark, server):
    plan = settings(tmp_path, server.url)
    folder = tmp_path / "results" / "evaluations"
    evaluate(plan, "mine", benchmark, folder / "mine" / "mimic_iv.jsonl", tmp_path / "state" / "a")
    rows = list(read_rows(folder / "mine" / "mimic_iv.jsonl"))
    # Of one case both say right, though the first gave no verdict; of one the first judge was the table, and the second
    # gave none; and one has no diagnosis.
    rows[0] = rows[0].model_copy(update={"judging": Judging(by="invalid", second=True)})
    told = Judging(by="table", several=True, second=True, second_invalid=True)
    rows[1] = rows[1].model_copy(update={"judging": told})
    rows[2] = rows[2].model_copy(update={"judging": Judging(), "correct": False})
    (folder / "mine" / "mimic_iv.jsonl").write_text("".join(row.line() for row in rows))
    out = {kind: tmp_path / f"agreement.{kind}" for kind in ("csv", "md", "tex")}
    checks.sheet_judge_agreement(plan, tmp_path / "results").write(out)
    text = out["md"].read_text()
    line = next(line for line in text.splitlines() if "all diagnoses" in line)
    assert [cell.strip() for cell in line.split("|")][3:8] == ["5", "5", "5", "2", "40.0"] and "3 : 0" in line
    assert [cell.strip() for cell in line.split("|")][-4:-1] == ["1", "1", "1"], "no verdict of either; lists"
    assert "not found by tables" in text and "2 : 0" not in text
    answered = next(line for line in text.splitlines() if "both gave a verdict" in line)
    assert [cell.strip() for cell in answered.split("|")][3:7] == ["3", "3", "3", "0"], "without the silent ones"
    assert "missing" in text
    with pytest.raises(SettingsError, match=r"judge\.second"):
        checks.sheet_judge_agreement(settings(tmp_path, NOWHERE, judge={"second": None}), tmp_path)
