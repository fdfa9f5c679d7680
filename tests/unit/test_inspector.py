"""The inspector: its numbers are those of the credit artifact, its oracle is the reference, its page tells and hides
what it should."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from urllib.parse import parse_qsl

import pytest
from browser import CHROMIUM, FRAME, SCROLL, Browser, read_data
from page import page as results_page
from toy import CALL_COUNTS, HastyPolicy, ToyPolicy, problem

from cdpr.cases import CaseRecord, write_records
from cdpr.credit.process_reward import ProcessReward
from cdpr.environment import State, case_seed, run_episode
from cdpr.evaluation.decision_credit import CreditedCase, Crediting, open_process, read_credit
from cdpr.evaluation.evaluate_agent import evaluation_row
from cdpr.evaluation.row import EvaluationRow, public_text
from cdpr.job import Job
from cdpr.llm.agent_model import Meter
from cdpr.report.inspector.oracle import Oracle
from cdpr.report.inspector.write import credit_file, exam_names, write_data, write_inspector
from cdpr.report.methods import DATASETS
from cdpr.report.report_page import write_report
from cdpr.seeding import derive_seed, stratified_sample
from cdpr.settings import Settings
from cdpr.study.records import dimensions, state_digest

RUN, OTHER, DATASET = "cdpr-seed0", "grpo-seed0", "mimic_iv"
SCRIPT = "<script>document.title='taken over'</script>"


@dataclass(frozen=True)
class World:
    """Evaluations of two runs of the toy policy, credited, and the inspector made of them."""

    settings: Settings
    folder: Path
    credit: dict[str, CreditedCase]
    cases: list[CaseRecord]

    @property
    def site(self) -> Path:
        return self.folder / "inspector"

    def workups(self, run: str = RUN) -> list[dict]:
        return read_data(self.site, f"data/{run}.{DATASET}")


def rated(settings: Settings, case: CaseRecord) -> dict:
    """What raters gave a run for what it would do before anything is known of a case."""
    return dict(
        state=state_digest(settings, case, State(case)), dataset=DATASET,
        note_id=public_text(settings, case, case.note_id),
        turn=0, source=RUN, run=OTHER, kind="request", action="Chest X-ray",
        means=dict.fromkeys(dimensions(), 3.5) | {"cost_effectiveness": None},
    )  # fmt: skip


def made(
    folder: Path, case: CaseRecord, credentialed: bool = False, size: int = 6, study: bool = True, **changed
) -> World:
    settings, environment = problem(
        paths={"results": str(folder), "state": str(folder / "state")},
        inspector={"runs": [RUN, OTHER], "cases": 4, **changed.pop("inspector", {})},
        credit={"samples": 6, "continuations": 3, **changed.pop("credit", {})}, **changed,
    )  # fmt: skip
    cases = [
        case.model_copy(update={"note_id": f"T-{i}", "split": "test", "credentialed": credentialed,
                                "case_summary": f"{case.case_summary}\n{SCRIPT}"})
        for i in range(size)
    ]  # fmt: skip
    places = {f"cases_{name}": folder / "cases" / f"{name}.jsonl" for name in DATASETS}
    for path in places.values():
        write_records(path, cases)
    credit: dict[str, CreditedCase] = {}
    for run in (RUN, OTHER):
        rows = asyncio.run(_evaluated(settings, environment, cases, run))
        evaluation = folder / "evaluations" / run / f"{DATASET}.jsonl"
        evaluation.parent.mkdir(parents=True)
        evaluation.write_text("".join(row.line() for row in rows))
        policy = at_temperature(settings.training.temperature)
        crediting = Crediting(settings, open_process(settings, environment, policy, policy), at_temperature)
        credited = asyncio.run(crediting.credit_cases(cases[:4], evaluation))
        file = credit_file(folder, run, DATASET)
        file.parent.mkdir(parents=True)
        file.write_bytes(gzip.compress("".join(one.model_dump_json() + "\n" for one in credited).encode()))
        credit = credit or {one.case: one for one in read_credit(file)}
    places["study"] = folder / "study" / "means.jsonl"
    places["study"].parent.mkdir(parents=True, exist_ok=True)
    places["study"].write_text(json.dumps(rated(settings, cases[1])) + "\n" if study else "", encoding="utf-8")
    write_inspector(
        settings, Job("write_inspector", "0" * 16, {**places, "results": folder}, {"site": folder / "inspector"})
    )
    return World(settings, folder, credit, cases)


def at_temperature(temperature: float) -> ToyPolicy:
    """Greedily it is another policy, so that the two workups of a case part."""
    return ToyPolicy() if temperature else HastyPolicy()


async def _evaluated(settings, environment, cases, run: str) -> list[EvaluationRow]:
    rows = []
    for decoding in ("greedy", "sampled"):
        agent = at_temperature(settings.training.temperature if decoding == "sampled" else 0.0)
        for one in cases:
            seed = case_seed(settings.evaluation.seed, one) + (run != RUN)
            workup = await run_episode(environment, agent, one, seed)
            rows.append(evaluation_row(settings, agent, workup, decoding, Meter(**CALL_COUNTS)))
    return rows


@pytest.fixture(scope="module")
def world(tmp_path_factory, request) -> World:
    case = request.getfixturevalue("toy_case")
    return made(tmp_path_factory.mktemp("inspector"), case)


@pytest.fixture(scope="module")
def toy_case() -> CaseRecord:
    results = {
        "Complete Blood Count": "White Blood Cells: Value: 15.1; Units: K/uL; Reference Range: 4.0--11.0",
        "Lipase": "Lipase: Value: 30; Units: IU/L; Reference Range: 0.0--60.0",
        "CT Abdomen and Pelvis": f"Dilated appendix with fat stranding. {SCRIPT}",
    }
    return CaseRecord(
        note_id="T", case_summary="- Patient Information: 30 year old male\n- Chief Complaint: Abdominal pain",
        key_pertinent_results_dict=results, final_diagnosis="Acute appendicitis",
        diagnosis_results="Acute appendicitis", dataset=DATASET, split="test",
        exam_cost_map=dict(zip(results, (7.77, 6.89, 297.26), strict=True)),
        subject_key="s", credentialed=False,
    )  # fmt: skip


# Numbers


def test_its_numbers_are_those_of_the_credit_artifact(world):
    """Every decision of every credited workup: shares, values, terms, rewards and reasons."""
    compared, named = 0, exam_names(world.cases[0])

    def shown_as(action):
        return action[0], action[1] if action[0] == "end" else named(action[1])

    for workup in world.workups():
        line = world.credit.get(workup["case"])
        if line is None:
            assert not any("credit" in step for step in workup["steps"])
            continue
        place = line.decodings.index(workup["decoding"])
        for t, step in enumerate(workup["steps"]):
            state = next((s for s in line.states if (place, t) in s.visits), None)
            if state is None:
                assert workup["forced"] and t == len(workup["steps"]) - 1 and "credit" not in step
                continue
            credit, value = step["credit"], {shown_as(v.action): v for v in state.candidates}
            assert credit["why"] == line.selected[place][t]
            assert credit["entropy"] == pytest.approx(state.entropy, abs=1e-6)
            assert credit["process"] == pytest.approx(line.process[place][t], abs=1e-6)
            assert {tuple(each["action"]) for each in credit["candidates"]} == {
                *value,
                *(shown_as(a.action) for a in state.actions),
            }
            for each in credit["candidates"]:
                if "value" not in each:
                    continue
                found = value[tuple(each["action"])]
                shown = [each[name] for name in ("value", "correct", "tests", "cost_usd", "infeasible", "in_top_m")]
                assert shown == pytest.approx([found.value, found.correct, found.tests, found.cost_usd,
                                               found.infeasible, found.in_top_m], abs=1e-6)  # fmt: skip
                compared += 1
    assert compared > 30


def test_a_value_is_the_mean_of_its_continuations_and_a_reward_its_distance_from_the_baseline(world):
    checked = 0
    for workup in world.workups():
        for step in workup["steps"]:
            if "credit" not in step:
                continue
            candidates = [each for each in step["credit"]["candidates"] if each.get("value") is not None]
            for each in candidates:
                if each["action"][0] == "end":
                    continue
                assert len(each["endings"]) >= world.settings.credit.continuations
                assert each["value"] == pytest.approx(fmean(end["utility"] for end in each["endings"]), abs=1e-5)
                assert all(
                    end["path"][-1][0] in ("end", "invalid") or end["source"] == "suffix" for end in each["endings"]
                )
            baseline = fmean(each["value"] for each in candidates if each["in_top_m"])
            kind = step["action"][0]
            own = float(workup["correct"])
            if kind != "end":
                named = {each["action"][1].lower(): each["value"] for each in candidates}
                own = named[step["action"][1].lower()]
            assert step["credit"]["process"] == pytest.approx(max(-1, min(1, own - baseline)), abs=1e-5)
            checked += 1
        assert workup["steps"][-1]["spent"] == pytest.approx(workup["cost_usd"])
    assert checked > 15


@pytest.mark.parametrize("rule", [{}, {"max_states": 1}, {"threshold": 1.1}, {"select_disagreed": False}])
def test_selection_is_that_of_training(tmp_path, toy_case, rule):
    """What the artifact calls selected is what the process reward credits when it selects for itself."""
    here = made(tmp_path, toy_case, credit=rule)
    _, environment = problem()
    credit = here.settings.credit.model_copy(update={"own_actions": "apart"})
    policy, seed = ToyPolicy(), derive_seed(0, "credit")
    own = ProcessReward(environment, policy, policy, credit, here.settings.utility, seed)
    seen = set()
    for line in here.credit.values():
        case = next(case for case in here.cases if case.note_id == line.case)
        seed = case_seed(here.settings.evaluation.seed, case)
        agents = [at_temperature(float(decoding == "sampled")) for decoding in line.decodings]
        group = [asyncio.run(run_episode(environment, agent, case, seed)) for agent in agents]
        (report,) = asyncio.run(own.score([group], 0))
        assert [[bool(why) for why in steps] for steps in line.selected] == [
            [r is not None for r in steps] for steps in report.process
        ]
        seen |= {why for steps in line.selected for why in steps}
    assert len(seen) > 1


def test_the_oracle_is_the_reference(toy_case):
    settings, environment = problem()
    oracle = Oracle(settings, DATASET)
    agent, state = oracle.agent, State(toy_case)
    for reply in ("REQUEST_TEST: CT Abdomen and Pelvis", "REQUEST_TEST: Lipase", None):
        p = agent.posterior(state)
        likeliest = agent.doctor.diseases[int(p.argmax())]
        wrong = next(d for d in agent.doctor.diseases if d != likeliest)
        said = oracle.opinion(state, ("end", wrong), [("end", ""), ("result", "Lipase"), ("unavailable", "astrology")])
        assert dict(said.posterior)[likeliest] == pytest.approx(p.max())
        assert said.values["end", ""] == pytest.approx(p.max())
        assert said.values["end", wrong] == pytest.approx(p[agent.doctor.diseases.index(wrong)])
        pick = agent.choose(state, 0)
        assert said.best == (
            ("end", likeliest) if pick is None else ("result", agent.doctor.key(agent.doctor.exams[pick]))
        )
        assert said.lost == pytest.approx(said.best_value - said.values["end", wrong]) and said.disagrees
        refused = oracle.opinion(state, ("over_budget", "ct chest"), []).values["over_budget", "ct chest"]
        assert refused == pytest.approx(p.max() - agent.charges(state)[1])  # its charge, and the diagnosis comes next
        assert said.best_value >= max(v for v in said.values.values() if v is not None) - 1e-3
        agreed = oracle.opinion(state, said.best, [])
        assert agreed.lost == pytest.approx(0.0, abs=1e-9) and not agreed.disagrees
        if reply:
            turn = type(asyncio.run(ToyPolicy().act(state, False, 0)))(reply)
            state = state.after(environment.step(state, turn))


def test_a_sample_is_spread_and_nested():
    items = [f"{kind}{i}" for kind in "abc" for i in range(1 + 20 * (kind == "a"))]
    few, more = (stratified_sample(items, n, lambda x: x[0], str, 3) for n in (3, 9))
    assert {x[0] for x in few} == {"a", "b", "c"} and set(few) < set(more) and len(more) == 9
    assert (
        stratified_sample(reversed(items), 9, lambda x: x[0], str, 3)
        == more
        != stratified_sample(items, 9, lambda x: x[0], str, 4)
    )


# Privacy


def test_credentialed_cases_are_digests_without_the_switch(tmp_path, toy_case):
    closed = made(tmp_path / "closed", toy_case, credentialed=True)
    text = "".join(path.read_text() for path in closed.site.rglob("*") if path.is_file())
    for word in ("T-0", "appendicitis", "appendix", "Blood", "Chest", "30 year", "taken over"):
        assert word not in text, word
    workups = closed.workups()
    credited = [workup for workup in workups if workup["steps"]]
    assert len(credited) == 8 and all("credit" in workup["steps"][0] for workup in credited)
    names = {each["action"][1] for workup in credited for each in workup["steps"][0]["credit"]["candidates"]}
    assert all(re.fullmatch(r"[0-9a-f]{16}|", name) for name in names) and len(names) > 1
    shown = made(tmp_path / "open", toy_case, credentialed=True, inspector={"credentialed": True})
    assert shown.workups()[0]["case"] == "T-0" and "REQUEST" in str(shown.workups())


# The page, in a real browser

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
KEYS = {"ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "End": 35}


@contextlib.contextmanager
def opened(site: Path, folder: Path, width: int = 1280, height: int = 900, **place: object) -> Iterator[Browser]:
    """The inspector at a place, ready."""
    (folder / "profile").mkdir(parents=True)
    page = Browser(folder / "profile", folder, width, height)
    try:
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        page.inspect(site, **place)
        yield page
    finally:
        page.close()


def press(page: Browser, *keys: str) -> None:
    """Real keys, one after another."""
    for key in keys:
        code = KEYS.get(key, ord(key[0].upper()))
        text = {} if key in KEYS else {"text": key}
        page.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        page.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)


def place(page: Browser) -> dict[str, str]:
    return dict(parse_qsl(page.js("location.hash.slice(1)")))


@needs_browser
def test_a_link_leads_to_a_decision_and_text_is_shown_as_text(world, tmp_path):
    workup = next(w for w in world.workups() if w["case"] in world.credit and len(w["steps"]) > 1)
    at = {
        "run": RUN,
        "dataset": DATASET,
        "case": workup["case"],
        "decoding": workup["decoding"],
        "turn": 1,
        "beside": OTHER,
    }
    with opened(world.site, tmp_path, **at) as page:
        assert page.js("document.title") == "Decision inspector"
        text = page.js("document.getElementById('detail').textContent")
        assert SCRIPT in text and page.js("document.querySelectorAll('#detail script').length") == 0
        assert f"Entropy {workup['steps'][1]['credit']['entropy']:.3f}" in text and "Turn 2: " in text
        assert page.js("[...document.querySelectorAll('.side')].map(side => side.ariaLabel)") == [RUN, OTHER]
        assert place(page) == {name: str(value) for name, value in at.items()}


@needs_browser
def test_unasked_it_opens_at_a_decision_that_training_would_have_credited(world, tmp_path):
    site = shutil.copytree(world.site, tmp_path / "site")
    workups = read_data(site, f"data/{RUN}.{DATASET}")
    del workups[0]["steps"][0]["credit"]
    workups[0]["steps"][1]["credit"]["why"] = ""  # valued, but not selected
    write_data(site, f"data/{RUN}.{DATASET}", workups)
    credited = [
        (w["case"], str(t)) for w in workups for t, s in enumerate(w["steps"]) if s.get("credit", {}).get("why")
    ]
    with opened(site, tmp_path / "profile", run=RUN, dataset=DATASET) as page:
        assert (place(page)["case"], place(page)["turn"]) == credited[0]


@needs_browser
def test_states_of_the_study_show_their_ratings_to_whoever_came_there(world, tmp_path):
    for run, turn in ((RUN, 0), (OTHER, 0), (RUN, 1)):
        at = {"run": run, "dataset": DATASET, "case": "T-1", "decoding": "greedy", "turn": turn}
        with opened(world.site, tmp_path / f"{run}{turn}", **at) as page:
            text = page.js("document.getElementById('detail').textContent")
            assert f"turn 1 of {RUN}" in text
            assert (f"{OTHER}: Chest X-ray" in text and "3.50" in text) is (turn == 0)
            page.js("document.querySelector('[name=rated]').click()")
            page.wait(lambda page=page: _counted(page, "1 decisions of 1 workups"))
            assert place(page)["case"] == "T-1" and page.js("document.querySelectorAll('.row b.rated').length") == 1


def _counted(page: Browser, told: str) -> None:
    assert page.js("document.getElementById('count').textContent") == told


def test_before_the_key_is_opened_nothing_is_said_of_the_study(tmp_path, toy_case):
    sealed = made(tmp_path, toy_case, study=False)
    assert read_data(sealed.site, "data/index")["study"] == []
    assert not any("rated" in step for run in (RUN, OTHER) for w in sealed.workups(run) for step in w["steps"])


@needs_browser
def test_a_number_of_the_page_leads_to_its_cases(world, tmp_path):
    """From the page's table to the runs behind a cell, and from there to the cases; a rated state by its address."""
    results = tmp_path / "results"
    shutil.copytree(world.folder, results)
    (results / "tables").mkdir(exist_ok=True)
    (results / "tables" / "main_results.md").write_text("made")
    settings = world.settings.model_copy(update={"seeds": [0]})
    report = {"html": results / "report.html"}
    write_report(
        settings, Job("write_report", "0" * 16, {"results": results}, report, page=tuple(results_page().values()))
    )
    cell = f"document.querySelector('#main_table a.n[href=\"#made-{RUN}-{DATASET}\"]')"
    page = Browser(tmp_path / "profile", tmp_path)
    try:
        page.open(results / "report.html")
        page.js(f"{cell}.click(); document.querySelector('#box a[href^=inspector]').click()")
        page.wait(page.answers)
        assert {"run": RUN, "dataset": DATASET}.items() <= place(page).items()
        assert page.js("document.querySelectorAll('.row').length") > 1
        assert "What the raters" not in page.js("document.getElementById('detail').textContent")
    finally:
        page.close()
    rated_state = {"run": RUN, "dataset": DATASET, "case": "T-1", "turn": "0", "decoding": "greedy"}
    with opened(world.site, tmp_path / "rated", **rated_state) as page:
        assert "What the raters" in page.js("document.getElementById('detail').textContent")


@needs_browser
@pytest.mark.parametrize(
    ("at", "names"),
    [
        ({"run": "cdpr-seed7"}, "run cdpr-seed7"),
        ({"case": "T-77"}, "case T-77"),
        ({"dataset": "no", "turn": 9}, "turn 9"),
        ({"case": "T-1", "turn": 0}, None),
        ({}, None),
    ],
)
def test_an_address_that_leads_nowhere_is_named(world, tmp_path, at, names):
    with opened(world.site, tmp_path, **({"run": RUN, "dataset": DATASET, "decoding": "greedy"} | at)) as page:
        message = page.js("document.getElementById('missing').textContent")
        assert names in message if names else message == ""
        page.js("document.querySelector('.row:last-child').click()")
        page.js("document.querySelector('[name=decoding]').dispatchEvent(new Event('input', {bubbles: true}))")
        page.wait(lambda: _missing(page, ""))


def _missing(page: Browser, message: str) -> None:
    assert page.js("document.getElementById('missing').textContent") == message


@needs_browser
def test_beside_another_run_tables_are_whole_and_continuations_have_their_width(world, tmp_path):
    workup = next(w for w in world.workups() if w["case"] in world.credit and len(w["steps"]) > 1)
    site = tmp_path / "site"
    shutil.copytree(world.site, site)
    for run in (RUN, OTHER):  # the toy's actions are not those of the hospital's model
        workups = read_data(site, f"data/{run}.{DATASET}")
        for step in (step for w in workups for step in w["steps"] if "credit" in step):
            for each in step["credit"]["candidates"]:
                each |= {"true": 0.5} if "value" in each else {}
        write_data(site, f"data/{run}.{DATASET}", workups)
    at = {"run": RUN, "beside": OTHER, "dataset": DATASET, "case": workup["case"], "decoding": workup["decoding"]}
    with opened(site, tmp_path / "browser", **at) as page:
        assert page.js("[...document.querySelectorAll('.wide')].map(wide => wide.scrollWidth - wide.clientWidth)") == [
            0,
            0,
        ]
        assert page.js("[...document.querySelectorAll('th')].filter(th => th.textContent === 'true value').length") == 2
        page.js("document.querySelectorAll('td > button').forEach(button => button.click())")
        widths = page.js("[...document.querySelectorAll('td ol')].map(list => [list.offsetWidth, "
                         "list.closest('.wide').clientWidth])")  # fmt: skip
        assert len(widths) > 2 and all(width > 0.85 * table for width, table in widths)
        text = page.js("document.getElementById('detail').textContent")
        assert all(f"{symbol}: " in text for symbol in ("p̂", "Û", "N_na", "true value"))


@needs_browser
def test_a_continuation_that_was_cut_says_so(tmp_path, toy_case):
    """H is 1: whoever ordered anything after the candidate was cut."""
    here = made(tmp_path / "cut", toy_case, credit={"horizon": 1})
    endings = [
        (workup, t, end) for workup in here.workups() for t, step in enumerate(workup["steps"])
        for each in step.get("credit", {}).get("candidates", ()) for end in each.get("endings", ())
    ]  # fmt: skip
    for _, _, end in endings:
        assert end["cut"] is (end["path"][0][0] != "end")
    assert {end["cut"] for *_, end in endings} == {True, False}
    workup, turn, _ = next(place for place in endings if place[2]["cut"])
    at = {"case": workup["case"], "decoding": workup["decoding"], "turn": turn}
    with opened(here.site, tmp_path / "browser", run=RUN, dataset=DATASET, **at) as page:
        assert "cut at H = 1" in page.js("document.getElementById('detail').textContent")


def test_an_examination_has_one_name_on_the_site(toy_case):
    physical = "Abdomen (Physical Examination)"
    one, two = (exam_names(toy_case.model_copy(update={"key_pertinent_results_dict": dict.fromkeys(keys, "x")}))
                for keys in (("FBC", physical), ("FBC", "CBC")))  # fmt: skip
    assert [one(name) for name in ("FBC", "full blood count", physical, "phlogiston")] == [
        "Complete Blood Count", "Complete Blood Count", physical, "phlogiston",
    ]  # fmt: skip
    assert (two("FBC"), two("CBC")) == ("FBC", "CBC"), "two results of one record stay apart"


@needs_browser
def test_a_link_by_digest_finds_a_credentialed_case_whose_text_is_shown(tmp_path, toy_case):
    here = made(tmp_path / "open", toy_case, credentialed=True, inspector={"credentialed": True})
    line = rated(here.settings, here.cases[1])
    assert line["note_id"] != "T-1"
    with opened(here.site, tmp_path, run=RUN, dataset=DATASET, case=line["note_id"], decoding="greedy", turn=0) as page:
        assert place(page)["case"] == "T-1"
        assert "Chest X-ray" in page.js("document.getElementById('detail').textContent")


@needs_browser
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_ten_thousand_decisions_by_keyboard_alone(world, tmp_path, width, height):
    site = tmp_path / "site"
    shutil.copytree(world.site, site)
    count = _grow(world, site)
    with opened(site, tmp_path / "browser", width, height, run=RUN, dataset=DATASET) as page:
        assert page.js("document.getElementById('count').textContent").startswith(f"{count:,} decisions")
        page.js("document.getElementById('decisions').focus()")
        press(page, "ArrowDown")
        assert (place(page)["case"], place(page)["turn"]) == ("case-00000", "1")
        press(page, "ArrowLeft")
        assert place(page)["turn"] == "0"
        press(page, "]", "]", "[")
        assert (place(page)["case"], place(page)["turn"]) == ("case-00001", "0")
        press(page, "b")
        page.wait(lambda: _sides(page, 2))
        press(page, "d")
        assert page.js("document.getElementById('detail').contains(document.activeElement)")
        press(page, "l", "End")
        assert (
            page.js(
                FRAME + "(async () => (await frame(), "
                "document.getElementById('decisions').getAttribute('aria-activedescendant')))()"
            )
            == f"row-{count - 1}"
        )
        assert page.js(SCROLL)[1] < 80, "rows that are out of sight are not drawn"
        assert page.js("document.documentElement.scrollWidth <= innerWidth")
        press(page, "/", "x", "y")
        assert page.js("document.getElementById('count').textContent").startswith("0 decisions")


def _sides(page: Browser, count: int) -> None:
    assert page.js("document.querySelectorAll('.side').length") == count


def _grow(world: World, site: Path) -> int:
    """Ten thousand decisions and more, in both runs; how many."""
    cases, workups, count = read_data(site, f"data/{DATASET}"), [], 0
    one = [workup for workup in world.workups() if workup["case"] in world.credit and len(workup["steps"]) > 1]
    while count < 10_000:
        name = f"case-{len(workups):05d}"
        workups.append({**one[len(workups) % len(one)], "case": name, "decoding": "greedy"})
        cases[name] = cases["T-0"]
        count += len(workups[-1]["steps"])
    for name, data in ((f"{RUN}.{DATASET}", workups), (f"{OTHER}.{DATASET}", workups), (DATASET, cases)):
        write_data(site, f"data/{name}", data)
    return count
