"""The expert study: sample, blinding, forms and what comes back of them, statistics, and what is said of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import krippendorff
import numpy as np
import pytest
from browser import CHROMIUM, Browser
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import rankdata
from served import answering
from test_headroom import a_case

from cdpr.cases import iterate_records, write_records
from cdpr.environment import DiagnosticEnvironment, State, Turn
from cdpr.evaluation.significance import holm
from cdpr.job import Job
from cdpr.pipeline.cli import main
from cdpr.report import style
from cdpr.report.expert_study import describe_raters, plot_expert_study, sheet_expert_study
from cdpr.report.ledger.claims import read_claims
from cdpr.report.ledger.page import make_ledger
from cdpr.settings import SettingsError, merge, parse_settings
from cdpr.settings.datasets import BENCHMARKS
from cdpr.study import statistics
from cdpr.study.analysis import Analysis, analyse_study
from cdpr.study.decisions import (
    allot,
    hide_models,
    make_record,
    model_names,
    propose,
    propose_actions,
    rebuild_state,
    remove_action,
    sample_states,
)
from cdpr.study.forms import WORDS, blind, make_forms, protocol, write_forms
from cdpr.study.methods import left_out, study_run
from cdpr.study.ratings import PHYSICIAN, SIMULATED, read_ratings, write_ratings
from cdpr.study.records import (
    Content,
    Items,
    Key,
    Proposal,
    StudyError,
    StudyState,
    dimensions,
    read_lines,
    rubric,
    state_digest,
)
from cdpr.study.simulated import simulate_ratings, simulate_scores

RUNS = ("value_of_information", "cheapest_first", "random", "zero_test")
STUDY = {"states": 8, "source": "cheapest_first", "methods": list(RUNS), "permutations": 200, "seed": 3}
SETTINGS = parse_settings({"study": STUDY, "evaluation": {"bootstrap": 100}, "seeds": [0]})
OPENING = '</script><script>document.title="broken in"</script>'


class Place:
    """A study on disk, made by the stages themselves."""

    def __init__(self, root: Path, settings=SETTINGS):
        self.root, self.settings = root, settings
        self.folder = root / "results" / "study"

    def job(self, name: str, inputs: dict[str, Path], out: dict[str, str], **options: str) -> Job:
        made = {key: self.folder / path for key, path in out.items()}
        for path in made.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        return Job(name, "0" * 16, inputs, made, options=options, state=self.root / "state")

    @property
    def states_file(self) -> Path:
        return self.folder / "states" / f"{self.settings.study.source}.jsonl"

    def make(self, cases: dict[str, Path]) -> None:
        out = {"states": f"states/{self.settings.study.source}.jsonl"}
        sample_states(self.settings, self.job("sample_states", cases, out, run=self.settings.study.source))
        shown = {"states": self.states_file}
        for run in RUNS:
            job = self.job("propose_actions", cases | shown, {"proposals": f"proposals/{run}.jsonl"}, run=run)
            propose_actions(self.settings, job)
            shown[f"proposals_{len(shown)}"] = job.out["proposals"]
        make_forms(
            self.settings,
            self.job(
                "make_forms",
                shown,
                {"cards": "cards.json", "forms": "forms", "sealed": "sealed/key.json", "protocol": "protocol.md"},
            ),
        )

    def rate_and_analyse(self) -> None:
        items = {"states": self.states_file, "cards": self.folder / "cards.json"}
        simulate_ratings(self.settings, self.job("simulate_ratings", items, {"ratings": "simulated"}))
        inputs = items | {"sealed": self.folder / "sealed/key.json", "ratings": self.folder / "simulated"}
        analyse_study(
            self.settings, self.job("analyse_study", inputs, {"analysis": "analysis.json", "means": "means.jsonl"})
        )

    @property
    def items(self) -> Items:
        return Items.model_validate_json((self.folder / "cards.json").read_text("utf-8"))

    @property
    def states(self) -> list[StudyState]:
        return read_lines(self.states_file, StudyState)

    @property
    def analysis(self) -> Analysis:
        return Analysis.model_validate_json((self.folder / "analysis.json").read_text("utf-8"))

    def key(self) -> Key:
        return Key.open(self.folder / "sealed" / "key.json", self.items)


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> dict[str, Path]:
    """Twelve test cases per benchmark, drawn from the synthetic hospital; one of them tries to break in."""
    root, paths = tmp_path_factory.mktemp("cases"), {}
    for offset, dataset in enumerate(BENCHMARKS):
        drawn = [a_case(100 * offset + n).model_copy(update={"dataset": dataset}) for n in range(12)]
        drawn[0] = drawn[0].model_copy(update={"case_summary": f"{drawn[0].case_summary}\n{OPENING}"})
        paths[dataset] = root / f"{dataset}.jsonl"
        write_records(paths[dataset], drawn)
    return paths


@pytest.fixture(scope="module")
def study(tmp_path_factory, cases) -> Place:
    place = Place(tmp_path_factory.mktemp("study"))
    place.make(cases)
    place.rate_and_analyse()
    return place


# Sample and proposals


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 60), min_size=1), st.integers(1, 200))
@example({0: 1, 1: 1, 2: 4}, 3)  # rounded up, the two rare turns are over the number; neither may go
def test_every_turn_is_sampled_in_proportion(sizes, wanted):
    counts = allot(sizes, wanted)
    total = min(wanted, sum(sizes.values()))
    assert sum(counts.values()) == total and all(0 <= counts[t] <= sizes[t] for t in sizes)
    if total >= len(sizes):
        assert min(counts.values()) >= 1
    if total < len(sizes) or all(total * size >= sum(sizes.values()) for size in sizes.values()):
        assert all(abs(counts[t] - total * sizes[t] / sum(sizes.values())) <= 1 + 1e-9 for t in sizes)


def test_states_are_spread_over_cases_and_are_what_the_source_decided(study, cases):
    states = study.states
    assert Counter(state.dataset for state in states) == dict.fromkeys(BENCHMARKS, 8)
    assert len({state.digest for state in states}) == len(states) and {s.source for s in states} == {"cheapest_first"}
    assert len({state.note_id for state in states}) >= 20  # of 24 states
    assert len({state.turn for state in states}) > 2 and all(len(s.replies) == s.turn == len(s.found) for s in states)


def test_every_method_decides_at_the_very_same_state(study, cases):
    for run in RUNS:
        assert [p.state for p in read_lines(study.folder / f"proposals/{run}.jsonl", Proposal)] == [
            state.digest for state in study.states]  # fmt: skip
    latest = max(study.states, key=lambda state: state.turn)
    case = next(c for c in iterate_records(cases[latest.dataset]) if c.note_id == latest.note_id)
    environment = DiagnosticEnvironment(SETTINGS.environment)
    for wording in ("full", "compact"):
        state = asyncio.run(rebuild_state(SETTINGS, environment, case, latest, wording))
        assert state_digest(SETTINGS, case, state) == latest.digest and len(state.history) == latest.turn
    other = case.model_copy(update={"key_pertinent_results_dict": {}, "exam_cost_map": {}, "exam_billing_group": {}})
    with pytest.raises(StudyError, match="comes out differently"):
        asyncio.run(rebuild_state(SETTINGS, environment, other, latest, "full"))


def test_a_state_of_a_credentialed_case_is_named_by_pseudonyms(case, tmp_path):
    settings = parse_settings({"paths": {"state": str(tmp_path)}})
    case = case.model_copy(update={"credentialed": True, "note_id": "NOTE-77"})
    open_one = case.model_copy(update={"credentialed": False})
    assert "NOTE-77" not in make_record(settings, State(case), "x").model_dump_json()
    assert make_record(settings, State(open_one), "x").note_id == "NOTE-77"
    assert state_digest(settings, case, State(case)) != state_digest(settings, open_one, State(open_one))


def test_words_beside_the_action_are_kept_and_give_nobody_away():
    reply = "THINKING: As GPT-5.4 I suspect sepsis.\nACTION: REQUEST_TEST\nTest needed: Lactate\nReason: perfusion"
    assert hide_models(remove_action(reply), []) == "As [model] I suspect sepsis.\nperfusion"
    assert hide_models("I am Our-Model Large.", ["Our-Model", "Our-Model Large"]) == "I am [model]."
    assert remove_action("REQUEST_TEST: Lactate") == ""
    assert (
        hide_models("Gram stain of a medial swab; GPT 80 U/L.", ["Our-Model 7B"])
        == "Gram stain of a medial swab; GPT 80 U/L."
    )
    settings = parse_settings({"models": {"own": {"label": "Our-Model (7B)", "id": "us/our-model-7b", "at": "/w"}},
                               "agents": {"own": {"model": "own"}}})  # fmt: skip
    for name, agent in settings.agents.items():  # also one that only this hospital knows
        for called in model_names(settings, agent):
            assert (
                hide_models(f"I am {called}, and order a CT.", model_names(settings, agent))
                == "I am [model], and order a CT."
            )
        if name == "own":
            assert model_names(settings, agent) == ["Our-Model (7B)", "our-model-7b"]


# Blinding and forms


def codes_of(items: Items) -> dict[str, tuple[str, str]]:
    """By code, for each proposal in a form, the rater whose form it is and the name of the content."""
    return {card.code: (rater, card.content) for rater in items.forms for card in items.cards(rater)}


def everything_shown(folder: Path, name: str = "*") -> str:
    """All that the forms hold."""
    found = []
    for path in sorted(folder.rglob(name)):
        if path.is_file():
            found.append(path.read_text("utf-8"))
    return "\n".join(found)


def test_a_reply_of_repeated_verbs_proposes_nothing():
    class Stuck:
        async def act(self, state, forced, seed):
            return Turn("FINAL_DIAGNOSIS: REQUEST_TEST:REQUEST_TEST" if forced else "REQUEST_TEST: REQUEST_TEST:")

    environment = DiagnosticEnvironment(SETTINGS.environment)
    proposal = asyncio.run(propose(SETTINGS, environment, Stuck(), "r", environment.initial(a_case(1)), "d"))
    assert (proposal.kind, proposal.action) == ("unreadable", "")
    assert WORDS.action(proposal) == "(no readable action)"


def test_forms_hide_who_proposed_what_and_every_rater_has_an_order_of_its_own(study):
    items, key = study.items, study.key()
    told = everything_shown(study.folder / "forms")
    hidden = [*RUNS, "inspector", *items.contents, *(state.digest for state in study.states)]
    assert all(code in told for code in codes_of(items)) and not [name for name in hidden if name in told]
    assert not [state.note_id for state in study.states if re.search(rf"\b{re.escape(state.note_id)}\b", told)]
    others = [code for code, (rater, _) in codes_of(items).items() if rater != "R1"]
    assert not [code for code in others if code in everything_shown(study.folder / "forms", "*R1*")]
    orders = [[page.state for page in pages] for pages in items.forms.values()]
    assert len({tuple(order) for order in orders}) == 3 and {frozenset(order) for order in orders} == {
        frozenset(state.digest for state in study.states)}  # fmt: skip
    shown = Counter((items.contents[name].state, run) for name, runs in key.runs.items() for run in runs)
    assert shown == {(state.digest, run): 1 for state in study.states for run in RUNS}
    assert len(codes_of(items)) == 3 * len(items.contents)
    first = [key.runs[page.cards[0].content][0] for page in items.forms["R1"]]
    assert len(set(first)) > 1  # no method always stands first
    assert (study.folder / "sealed" / "key.json").stat().st_mode & 0o077 == 0


def test_codes_are_no_numbers_and_later_findings_are_in_no_form(study, cases):
    """A code such as 1e5 or 0012 would be a number there."""
    assert all(re.fullmatch("c[0-9a-f]{11}", code) for code in codes_of(study.items))
    told = everything_shown(study.folder / "forms")
    seen = {found.text for state in study.states for found in state.found}
    known = {state.note_id for state in study.states}
    results = [r for path in cases.values() for case in iterate_records(path) if case.note_id in known
               for r in case.key_pertinent_results_dict.values()]  # fmt: skip
    later = [text for text in results if text not in seen and len(text) > 40]
    assert len(later) > 20 and not [text for text in later if text in told] and any(text in told for text in seen)


def test_the_key_of_another_study_is_refused(study, tmp_path):
    other = tmp_path / "key.json"
    told = json.loads((study.folder / "sealed" / "key.json").read_text())
    other.write_text(json.dumps(told | {"study": "0" * 12}))
    with pytest.raises(StudyError, match="this is the key of study 000000000000"):
        Key.open(other, study.items)


def test_forms_are_the_same_bytes_whatever_the_outcome_and_another_seed_is_another_study(study, cases, tmp_path):
    again, other = Place(tmp_path), {name: tmp_path / f"{name}.jsonl" for name in cases}
    for name, path in other.items():
        records = list(iterate_records(cases[name]))
        outcome = {"final_diagnosis": "Somnambulism", "diagnosis_results": "Somnambulism"}
        write_records(path, [record.model_copy(update=outcome) for record in records])
    again.make(other)
    for path in sorted((study.folder / "forms").rglob("*.*")):
        assert path.read_bytes() == (again.folder / path.relative_to(study.folder)).read_bytes(), path
    plan = SETTINGS.study.model_copy(update={"seed": 4})
    proposals = [p for run in RUNS for p in read_lines(study.folder / f"proposals/{run}.jsonl", Proposal)]
    items, _ = blind(plan, study.states, proposals, {})
    assert items.study != study.items.study and not set(codes_of(items)) & set(codes_of(study.items))
    with pytest.raises(StudyError, match="not every method proposes"):
        blind(plan, study.states, proposals[:-1], {})


def test_what_reads_alike_is_shown_once(study):
    proposals = [p for run in RUNS for p in read_lines(study.folder / f"proposals/{run}.jsonl", Proposal)]
    apart, _ = blind(SETTINGS.study.model_copy(update={"merge_identical": False}), study.states, proposals, {})
    assert len(apart.contents) == len(proposals) > len(study.items.contents)


def test_text_of_a_case_stays_text(study):
    form = (study.folder / "forms" / "R1.html").read_text("utf-8")
    assert OPENING not in form and "http" not in re.sub(r"http-equiv", "", form)
    data = json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', form, re.DOTALL)[1])
    assert sum(OPENING in page["patient"] for page in data["pages"]) >= 1


def test_the_protocol_tells_bias_load_and_power(study):
    text = (study.folder / "protocol.md").read_text("utf-8")
    assert "decisions of cheapest_first, which is itself compared" in text and "do not hand it to raters" in text
    assert "| 1 | " in text and "R3: " in text and "Anyone knows" not in text
    content = next(iter(study.items.contents.values()))
    for cards, duration in ((4, "about 6 minutes"), (83, "about 2.1 hours")):
        some = study.items.model_copy(update={"contents": dict.fromkeys(map(str, range(cards)), content)})
        shown = protocol(study.settings, study.states, some, RUNS, {})
        assert shown.count(f": {cards} proposals, {5 * cards} ratings, {duration} at 1.5 minutes a proposal.") == 3
    real = {"data": {name: {"path": "/cases"} for name in BENCHMARKS}, "study": STUDY | {"raters": ["R1", "R2", "R3"]}}
    for seed, warned in ((0, True), (83914, False)):
        real["study"]["seed"] = seed
        assert ("Anyone knows" in protocol(parse_settings(real), study.states, study.items, RUNS, {})) is warned


# What comes back


def filled(study, rater: str = "R1") -> dict[str, dict[str, int]]:
    """Scores by code, all different enough to notice a mix-up."""
    cards = [card.code for page in study.items.forms[rater] for card in page.cards]
    return {code: {d: 1 + (n + 2 * k) % 5 for k, d in enumerate(dimensions())} for n, code in enumerate(cards)}


def as_json(place, folder: Path, rater: str = "R1", scores=None, **head) -> Path:
    path = folder / f"{rater}{len(list(folder.iterdir()))}.json"
    write_ratings(path, place.items.study, rater, PHYSICIAN, scores or filled(place, rater))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"filled_by": "x"} | head))
    return path


def beside_what_programs_leave(study, folder: Path) -> Path:
    as_json(study, folder)
    (folder / "~$back.xlsx").write_bytes(b"lock")
    (folder / ".DS_Store").write_bytes(b"\0")
    return folder


@pytest.mark.parametrize("form", [as_json, beside_what_programs_leave])
def test_a_returned_form_is_read_as_it_was_filled_in(study, tmp_path, form):
    only = study.items.model_copy(update={"forms": {"R1": study.items.forms["R1"]}})
    ratings = read_ratings([form(study, tmp_path)], only)
    codes = codes_of(study.items)
    assert ratings.scores == {"R1": {codes[code][1]: scores for code, scores in filled(study).items()}}
    assert ratings.missing == 0


def edited(study, **change):
    scores = filled(study)
    first, second, *_ = scores
    match change:
        case {"score": value}:
            scores[first]["diagnostic_gain"] = value
        case {"drop": True}:
            del scores[first]["diagnostic_gain"]
        case {"code": new}:
            scores[new] = scores.pop(second)
    return scores


def renamed(path: Path) -> None:
    path.write_text(path.read_text().replace('"R1"', '"R9"'))


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:-40])


WRONG = {
    "missing": (lambda s, f: as_json(s, f, scores=edited(s, drop=True)),
                "missing: 1 of .* ratings of R1; have the form"),
    "out of range": (lambda s, f: as_json(s, f, scores=edited(s, score=6)), "out of range: .*diagnostic_gain: 6 is no"),
    "a sentence": (lambda s, f: as_json(s, f, scores=edited(s, score="see Mrs Smith's letter")),
                   "out of range: .*'see Mrs Smit…' is no whole number"),
    "half": (lambda s, f: as_json(s, f, scores=edited(s, score=3.5)), "out of range: .*3.5 is no whole number"),
    "a word": (lambda s, f: as_json(s, f, scores=edited(s, score="good")), "out of range: .*'good' is no whole number"),
    "edited key": (lambda s, f: as_json(s, f, scores=edited(s, code="abc")), "edited key: 'abc' is no code of"),
    "swapped key": (lambda s, f: as_json(s, f, scores=edited(s, code=next(iter(filled(s, "R2"))))),
                    "edited key: .* is no code of the form of R1"),
    "wrong study": (lambda s, f: as_json(s, f, study="feedfeedfeed"), "wrong study: it is of 'feedfeedfeed', these"),
    "unknown rater": (lambda s, f: renamed(as_json(s, f)), "unknown rater 'R9'"),
    "twice": (lambda s, f: [as_json(s, f), as_json(s, f)],
              "R1: duplicate: .*; keep the latest"),
    "two versions": (lambda s, f: [as_json(s, f), as_json(s, f, scores=edited(s, score=5))], "R1: duplicate: "),
    "two raters": (lambda s, f: [as_json(s, f), as_json(s, f, scores=edited(s, score=5), filled_by="y")],
                   "R1: duplicate: .* give each the form of their own name"),
    "no form": (lambda s, f: (f / "letter.json").write_text('{"dear": "study team"}'), "not a complete JSON export"),
    "the form itself": (lambda s, f: shutil.copy(s.folder / "forms/R1.html", f), "R1.html: .* press Export JSON"),
    "a picture": (lambda s, f: (f / "scan.jpg").write_bytes(b"\xff"), "scan.jpg: cannot be read: it is not a complete"),
    "cut off": (lambda s, f: cut(as_json(s, f)), "it is not a complete JSON export"),
    "empty": (lambda s, f: (f / "R1.json").write_text(""), "it is not a complete JSON export"),
    "a list": (lambda s, f: (f / "R1.json").write_text("[]"), "it is not a complete JSON export"),
    "without a code": (lambda s, f: as_json(s, f, scores=edited(s, code="")), "edited key: '' is no code of"),
    "not filled in": (lambda s, f: as_json(s, f, ratings=[]), r"missing: (\d+) of \1 ratings of R1"),
    "kinds": (lambda s, f: as_json(s, f, kind=SIMULATED), "raters of different kinds"),
    "packed": (lambda s, f: (f / "R1.zip").write_bytes(b"PK"), "R1.zip: cannot be read: it is not a complete"),
    "true": (lambda s, f: as_json(s, f, scores=edited(s, score=True)), "out of range: .*True is no whole number"),
}  # fmt: skip


def refused(paths: list[Path], items: Items) -> list[str]:
    """The problems for which ratings are refused."""
    with pytest.raises(StudyError, match="these ratings cannot be used") as refusal:
        read_ratings(paths, items)
    return str(refusal.value).splitlines()[1:]


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_form_is_refused_with_what_is_wrong(study, tmp_path, what):
    make, message = WRONG[what]
    make(study, tmp_path)
    only = study.items.model_copy(update={"forms": {"R1": study.items.forms["R1"], "R2": study.items.forms["R2"]}})
    as_json(study, tmp_path, "R2")
    problems = refused([tmp_path], only)
    assert any(re.search(message, problem) for problem in problems), problems


def test_every_problem_of_a_form_is_listed(study, tmp_path):
    scores = edited(study, code="abc")
    scores[next(iter(scores))]["diagnostic_gain"] = 6
    problems = refused([as_json(study, tmp_path, scores=scores)], study.items)
    assert {"edited key", "out of range"} <= {problem.split(": ")[1] for problem in problems}


def test_a_repeated_row_and_a_rater_who_sent_nothing(study, tmp_path):
    path = as_json(study, tmp_path)
    form = json.loads(path.read_text())
    path.write_text(json.dumps(form | {"ratings": [*form["ratings"], form["ratings"][0]]}))
    problems = refused([path], study.items)
    assert any("is repeated" in p for p in problems) and any(p.startswith("  R2: missing: ") for p in problems)
    with pytest.raises(StudyError, match="there is no such file"):
        read_ratings([tmp_path / "nowhere"], study.items)


def test_what_is_missing_may_be_allowed_and_is_counted(study, tmp_path):
    scores = filled(study, "R2")
    del scores[next(iter(scores))]["diagnostic_gain"]
    as_json(study, tmp_path, "R2", scores)  # R1, who comes first, sent nothing
    ratings = read_ratings([tmp_path], study.items, allow_missing=True)
    assert ratings.missing == 1 + 2 * 5 * len(study.items.contents)


def test_the_check_of_returned_forms_allows_what_the_settings_allow(study, tmp_path, capsys):
    (tmp_path / "back").mkdir()
    as_json(study, tmp_path / "back", "R1")
    mine, asks = tmp_path / "mine.yaml", ["check_ratings", str(tmp_path / "back"), "--configfile"]
    for allowed, code, message in ((False, 2, "R2: missing"), (True, 0, "ratings are missing, as study.allow_missing")):
        mine.write_text(json.dumps({"study": STUDY | {"kept": str(study.folder), "allow_missing": allowed}}))
        assert main([*asks, str(mine)]) == code and message in "".join(capsys.readouterr())


def test_a_price_of_nothing_is_explained():
    orders = {usd: WORDS.action(Content(state="s", kind="request", action="CBC", usd=usd)) for usd in (0.0, 3.5)}
    assert orders == {0.0: "Order: CBC (USD 0.00: obtained already, or free of charge)", 3.5: "Order: CBC (USD 3.50)"}


def test_raters_of_synthetic_cases_are_not_called_physicians(study):
    analysis = study.analysis.model_copy(update={"kind": PHYSICIAN})
    assert analysis.synthetic and describe_raters(analysis) == "3 raters of synthetic cases (a trial)"
    assert describe_raters(analysis.model_copy(update={"synthetic": False})) == "3 physicians"


# Statistics


CODERS = """\
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 ."""


def counted(ratings: list[list[float]]) -> np.ndarray:
    """How often each item, a column of the ratings, got each score."""
    return np.stack([(np.array(ratings) == score).sum(axis=0) for score in statistics.SCALE], axis=1)


def test_alpha_is_the_published_one():
    ratings = [[float("nan") if x == "." else float(x) for x in line.split()] for line in CODERS.splitlines()]
    assert statistics.krippendorff_alpha(counted(ratings)) == pytest.approx(0.815, abs=5e-4)


def test_alpha_without_disagreement_to_speak_of_is_undefined():
    assert statistics.krippendorff_alpha(counted([[3, 3], [3, 3]])) is None
    assert statistics.krippendorff_alpha(counted([[1, 2], [float("nan")] * 2])) is None


def test_permutation_is_the_exact_one():
    d = np.array([1, 1, -1, 2, 0, 3, 1 / 3, 2 / 3])
    moved = d[d != 0]
    sums = [abs(np.dot(signs, moved)) for signs in itertools.product((-1, 1), repeat=len(moved))]
    exact = np.mean(np.array(sums) >= abs(moved.sum()) - 1e-9)
    assert statistics.permutation_p_value(d, 20000, 0) == pytest.approx(exact, abs=0.01)
    even = statistics.compare_pairs(np.zeros(9), 50, 0)
    assert even["p"] == even["p_permutation"] == 1.0


def test_signed_rank_and_effects_by_hand():
    d = np.array([2.0, -1.0, 3.0, 4.0])  # ranks 2, 1, 3, 4: positive 9, negative 1
    comparison = statistics.compare_pairs(d, 100, 0)
    assert comparison["rank_biserial"] == pytest.approx((9 - 1) / 10) and comparison["difference"] == 2.0
    assert comparison["p"] == pytest.approx(0.14413, abs=1e-5)  # z = (9 - 5) / sqrt(7.5) = 1.4606
    assert comparison["shift"] == np.median([(a + b) / 2 for a, b in itertools.combinations_with_replacement(d, 2)])
    comparison = statistics.compare_pairs(np.array([0.0, 0.0, 1.0, 2.0, -3.0, 4.0]), 100, 0)
    # Pratt: ranks 3, 4, 5, 6 behind two zeros: z = (5 - 9) / sqrt(21.5); dropped: ranks 1 to 4: z = (3 - 5) / sqrt(7.5)
    assert comparison["zeros"] == 2 and comparison["p"] == pytest.approx(0.38834, abs=1e-4)
    assert comparison["p_zeros_dropped"] == pytest.approx(0.46521, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_the_signed_rank_test_is_that_of_all_possible_signs(seed):
    """Pratt by brute force: zeros take the lowest ranks, then every sign of the others is as likely. The normal
    approximation has no steps, so half of the step that was observed counts."""
    d = np.round(np.random.default_rng(seed).normal(0.3, 1, 14) * 3) / 3
    ranks = rankdata(abs(d))[d != 0]
    signs = np.array(list(itertools.product((-1, 1), repeat=len(ranks))))
    sums, seen = abs(signs @ ranks), abs(np.sign(d[d != 0]) @ ranks)
    exact = np.mean(sums > seen + 1e-9) + np.mean(abs(sums - seen) < 1e-9) / 2
    assert statistics.signed_rank_p_value(d, "pratt") == pytest.approx(exact, abs=0.015)


@pytest.mark.parametrize(("n", "lower"), [(10, 9), (15, 26), (20, 53), (25, 90)])
def test_the_interval_of_the_shift_is_that_of_the_tables(n, lower):
    """Its ends are order statistics of the pairwise averages: the critical value of Wilcoxon's tables (two-sided 5%: 8,
    25, 52, 89) and one; the normal approximation may be one off."""
    d = np.random.default_rng(n).normal(size=n)
    walsh = np.sort([(a + b) / 2 for a, b in itertools.combinations_with_replacement(d, 2)])
    low, shift, high = statistics.hodges_lehmann(d)
    at = int(np.searchsorted(walsh, low)) + 1
    assert abs(at - lower) <= 1 and walsh[-at] == high and low < shift < high


def test_power_is_that_of_simulated_studies():
    rng, sd = np.random.default_rng(5), 1.1
    states = statistics.states_needed(0.5, sd)
    is_significant = [
        statistics.signed_rank_p_value(np.round(rng.normal(0.5, sd, states) * 3) / 3, "pratt") < 0.05
        for _ in range(600)
    ]
    assert np.mean(is_significant) == pytest.approx(0.8, abs=0.06)
    assert statistics.states_needed(0.5, sd, 20) > statistics.states_needed(0.5, sd, 5) > states
    with pytest.raises(ValueError, match="need difference"):
        statistics.states_needed(0, sd)


def test_states_of_a_case_are_drawn_together():
    weights = statistics.resample_clusters(["a", "a", "b", "c"], 500, 1)
    assert (weights[:, 0] == weights[:, 1]).all() and weights.mean() == pytest.approx(1, abs=0.1)
    assert not (weights[:, 1] == weights[:, 2]).all()


# What is said of it


def test_the_analysis_is_of_the_ratings(study):
    found, key, items = study.analysis, study.key(), study.items
    assert found.kind == "simulated" and found.runs == RUNS and found.missing == 0 and len(found.comparisons) == 15
    name, scores = "diagnostic_gain", {run: [] for run in RUNS}
    back = read_ratings([study.folder / "simulated"], items).scores
    for content, runs in key.runs.items():
        for run in runs:
            scores[run].append(np.mean([back[rater][content][name] for rater in back]))
    lines = [json.loads(line) for line in (study.folder / "means.jsonl").read_text("utf-8").splitlines()]
    of_random = [line["means"][name] for line in lines if line["run"] == "random"]
    assert np.mean(of_random) == pytest.approx(np.mean(scores["random"]))
    assert {line["state"] for line in lines} == {state.digest for state in study.states}
    for run in RUNS:
        assert found.scores[name][run].value == pytest.approx(np.mean(scores[run]))
        assert found.scores[name][run].low <= np.mean(scores[run]) <= found.scores[name][run].high
    test = found.comparison(name, "random")
    assert test["difference"] == pytest.approx(np.mean(scores[RUNS[0]]) - np.mean(scores["random"]))
    assert test["p"] <= test["holm"] <= 1 and test["holm"] <= test["holm_all"] + 1e-12
    for one in found.comparisons:
        means = (found.scores[one["dimension"]][run].value for run in (RUNS[0], one["than"]))
        assert one["low"] <= one["difference"] <= one["high"]
        assert one["difference"] == pytest.approx(np.subtract(*means))
    everything = holm([one["p"] for one in found.comparisons])
    assert [one["holm_all"] for one in found.comparisons] == pytest.approx(everything)
    leads = {}
    for d, of_run in found.scores.items():
        ours, *others = (of_run[run].value for run in RUNS)
        leads[d] = ours - max(others)
        assert found.lead[d].value == pytest.approx(leads[d])
    for d, at in found.ahead.items():
        assert at.value == pytest.approx(leads[d] - max(lead for other, lead in leads.items() if other != d))
        assert at.low <= at.value <= at.high
    table = [[rated.get(content, {}).get(name, np.nan) for content in key.runs] for rated in back.values()]
    alpha = krippendorff.alpha(table, level_of_measurement="ordinal", value_domain=statistics.SCALE)
    assert found.alpha[name].value == pytest.approx(alpha)
    assert 0 < found.alpha[name].low < alpha < found.alpha[name].high < 1, "raters agree beyond chance, and not in all"


FIRST, SECOND = list(dimensions())[:2]


@pytest.mark.parametrize(
    ("keep", "alphas"),
    [
        (lambda row, rater: {k: v for k, v in row.items() if k != SECOND}, {SECOND}),  # a scale without ratings
        (lambda row, rater: row if rater == 0 else {k: v for k, v in row.items() if k != SECOND}, {SECOND}),
        (lambda row, rater: row if rater == 0 else None, set(dimensions())),  # one rater alone
        (lambda row, rater: {"code": row["code"], FIRST: row[FIRST]}, set(dimensions()) - {FIRST}),
    ],
)  # fmt: skip
def test_what_was_not_rated_is_undefined_everywhere(study, tmp_path, keep, alphas):
    """Analysis, table, figure and ledger are made, and none shows a number where there is no rating."""
    settings = parse_settings(merge(SETTINGS.model_dump(), {"study": {"allow_missing": True}}))
    folder = tmp_path / "results/study"
    shutil.copytree(study.folder, folder)
    rated = set()
    for rater, path in enumerate(sorted((folder / "simulated").glob("*.json"))):
        form = json.loads(path.read_text())
        form["ratings"] = [row for row in (keep(dict(row), rater) for row in form["ratings"]) if row]
        rated |= {name for row in form["ratings"] for name in row}
        path.write_text(json.dumps(form)) if form["ratings"] else path.unlink()
    inputs = {"states": folder / "states" / f"{settings.study.source}.jsonl", "cards": folder / "cards.json",
              "sealed": folder / "sealed/key.json", "ratings": folder / "simulated"}  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        analyse_study(settings, Job("a", "k", inputs, {"analysis": folder / "analysis.json",
                                                       "means": folder / "means.jsonl"}))  # fmt: skip
    found = Analysis.model_validate_json((folder / "analysis.json").read_text("utf-8"))
    assert {name for name, at in found.alpha.items() if at.value is None} == alphas
    unrated = set(dimensions()) - rated
    for name in dimensions():
        assert all((at.value is None) == (name in unrated) for at in found.scores[name].values())
        assert all((means[name][run] is None) == (name in unrated) for means in found.datasets.values() for run in RUNS)
        assert (found.lead[name].value is None) == (name in unrated)
        assert all((found.comparison(name, run) is None) == (name in unrated) for run in RUNS[1:])
    out = {name: tmp_path / f"t.{name}" for name in ("csv", "md", "tex")}
    sheet_expert_study(settings, folder.parent).write(out)
    assert "nan" not in out["md"].read_text("utf-8").lower() and "nan" not in out["csv"].read_text("utf-8").lower()
    figure = {name: tmp_path / f"f.{name}" for name in ("png", "pdf")}
    plot_expert_study(settings, Job("f", "k", {"study": folder / "analysis.json"}, figure))
    claims = [claim for claim in read_claims() if claim["id"].startswith("expert.")]
    judged = {c["id"]: c for c in make_ledger(settings, tmp_path / "results", claims)["claims"]}
    if unrated:
        assert judged["expert.leads"]["verdict"] == "not run" and "undefined" in judged["expert.leads"]["why"]


def test_simulated_raters_know_a_good_choice_from_a_random_one(study):
    found = study.analysis
    for name in ("diagnostic_gain", "cost_effectiveness"):
        assert found.scores[name]["value_of_information"].value > found.scores[name]["random"].value + 0.3
    forms = [json.loads((study.folder / f"simulated/{r}.json").read_text()) for r in ("R1", "R2")]
    assert {form["kind"] for form in forms} == {"simulated"}
    neutral = dict.fromkeys(study.items.contents, np.full(len(dimensions()), 0.5))
    rated = [simulate_scores(rater, 0, study.items.cards(rater), neutral).values() for rater in study.items.forms]
    scores = [score for cards in rated for card in cards for score in card.values()]
    assert abs(np.mean(scores) - 3) < 0.5, "what is worth half stands in the middle of the scale"
    good, cards = dict.fromkeys(neutral, np.full(len(dimensions()), 0.75)), study.items.cards("R1")
    rated = [simulate_scores(f"rater {n}", 0, cards, good).values() for n in range(60)]
    scores = [score for cards in rated for card in cards for score in card.values()]
    assert np.mean(scores) == pytest.approx(3 + 4 * 0.25 * 0.975, abs=0.12), "the scale is as long as worths are"


def test_table_and_figure_say_who_rated(study, tmp_path, monkeypatch):
    out = {name: tmp_path / f"t.{name}" for name in ("csv", "md", "tex")}
    sheet_expert_study(SETTINGS, study.folder.parent).write(out)
    for name in ("md", "tex"):
        assert out[name].read_text("utf-8").count("3 simulated raters") >= 3
    assert "4.7" in out["md"].read_text("utf-8") and "simulated" in out["csv"].read_text("utf-8")
    out = {name: tmp_path / f"f.{name}" for name in ("png", "pdf")}
    figures, save = [], style.save
    monkeypatch.setattr(style, "save", lambda figure, out: (figures.append(figure), save(figure, out)))
    plot_expert_study(SETTINGS, Job("f", "k", {"study": study.folder / "analysis.json"}, out))
    radar, points = figures[0].axes
    runs = len(study.analysis.runs)
    assert radar.name == "polar" and radar.get_visible() and len(radar.lines) == len(points.containers) == runs > 1
    assert "3 simulated raters" in points.get_title() and out["png"].stat().st_size > 15_000 < out["pdf"].stat().st_size


def test_without_ratings_tables_say_so(study, tmp_path):
    inputs = {"states": study.states_file, "cards": study.folder / "cards.json",
              "sealed": study.folder / "sealed" / "key.json"}  # fmt: skip
    analysis = tmp_path / "study" / "analysis.json"
    analysis.parent.mkdir()
    analyse_study(SETTINGS, Job("a", "k", inputs, {"analysis": analysis, "means": tmp_path / "m"}))
    assert not (tmp_path / "m").read_text()
    out = {name: tmp_path / f"t.{name}" for name in ("csv", "md", "tex")}
    sheet_expert_study(SETTINGS, tmp_path).write(out)
    assert "no ratings yet" in out["md"].read_text("utf-8")
    figure = {name: tmp_path / f"f.{name}" for name in ("png", "pdf")}
    plot_expert_study(SETTINGS, Job("f", "k", {"study": analysis}, figure))


def test_simulated_ratings_do_not_pass_as_physicians(study, tmp_path):
    settings = parse_settings({"study": STUDY | {"ratings": str(study.folder / "simulated")}})
    inputs = {"states": study.states_file, "cards": study.folder / "cards.json",
              "sealed": study.folder / "sealed" / "key.json", "ratings": study.folder / "simulated"}  # fmt: skip
    with pytest.raises(StudyError, match=r"these are simulated ratings; study\.ratings is for physicians' alone"):
        analyse_study(settings, Job("a", "k", inputs, {"analysis": tmp_path / "a.json"}))


def test_claims_are_judged_and_never_more_than_a_direction(study, tmp_path):
    claims = [claim for claim in read_claims() if claim["id"].startswith("expert.")]
    judged = {c["id"]: c for c in make_ledger(SETTINGS, study.root / "results", claims)["claims"]}
    leads, agreement = judged["expert.leads"], judged["expert.agreement"]
    assert (
        leads["verdict"] in ("same direction", "open", "deviates") and "simulated raters, no physicians" in leads["why"]
    )
    least = min(study.analysis.lead.values(), key=lambda at: at.value)
    assert leads["measured"] == pytest.approx(least.value, abs=1e-6) and agreement["measured"] is not None
    assert judged["expert.medgemma"]["verdict"] == "not run" and "was not rated" in judged["expert.medgemma"]["why"]
    empty = {c["id"]: c for c in make_ledger(SETTINGS, tmp_path, claims)["claims"]}
    assert empty["expert.leads"]["verdict"] == "not run" and "missing" in empty["expert.leads"]["why"]


def test_a_claim_of_leads_needs_a_test_on_the_smallest_lead_alone(study, tmp_path):
    claims = [claim for claim in read_claims() if claim["id"] == "expert.leads"]
    weakest, *others = sorted(dimensions(), key=lambda name: study.analysis.lead[name].value)
    path = tmp_path / "study" / "analysis.json"
    path.parent.mkdir()
    verdicts = {}
    for untested in (weakest, others[-1]):
        tests = tuple(test for test in study.analysis.comparisons if test["dimension"] != untested)
        path.write_text(study.analysis.model_copy(update={"comparisons": tests}).model_dump_json())
        [verdicts[untested]] = make_ledger(SETTINGS, tmp_path, claims)["claims"]
    assert verdicts[weakest]["verdict"] == "not run" and "no state has scores of both" in verdicts[weakest]["why"]
    assert verdicts[others[-1]]["measured"] == pytest.approx(study.analysis.lead[weakest].value, abs=1e-6)


# Settings, models and plan


def test_methods_are_runs_and_what_cannot_be_run_is_told():
    settings = parse_settings({})
    assert study_run(settings, "cdpr") == "cdpr-seed0" and study_run(settings, "warm_start") == "warm_start"
    assert set(left_out(settings)) == {"gpt_5_4", "qwen3_32b", "med_gemma_27b", "mdagent"}
    with pytest.raises(SettingsError, match="'nobody' is neither a variant"):
        study_run(settings, "nobody")
    for wrong, message in (({"raters": ["Dr. Who"]}, "no pseudonym"), ({"methods": ["cdpr", "cdpr"]}, "occurs twice")):
        with pytest.raises(SettingsError, match=message):
            parse_settings({"study": wrong})


@pytest.fixture
def short_path():
    """A folder whose path leaves a command short enough for the display, which cuts long ones."""
    with tempfile.TemporaryDirectory(prefix="k") as folder:
        yield Path(folder)


def test_a_study_that_was_handed_out_is_analysed_as_it_was(short_path):
    for name in ("states/warm_start.jsonl", "cards.json", "sealed/key.json"):
        (short_path / name).parent.mkdir(exist_ok=True)
        (short_path / name).touch()
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--directory",
        str(short_path),
        "-s",
        str(root / "Snakefile"),
        "-n",
        "-p",
    ]
    shown = [subprocess.run([*command, "analyse_study", *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, check=True).stdout
             for more in ([], ["--config", f"study={{kept: {short_path}, ratings: {short_path}}}"])]  # fmt: skip
    usual, kept = (re.search(r"cdpr analyse_study .* --input (.*?) --output", text)[1].split() for text in shown)
    assert set(kept) == {f"states={short_path}/states/warm_start.jsonl", f"cards={short_path}/cards.json",
                         f"sealed={short_path}/sealed/key.json", f"ratings={short_path}"}  # fmt: skip
    assert "ratings=results/study/simulated" in usual and "cards=results/study/cards.json" in usual


def test_language_models_propose_once_and_are_replayed(study, cases, tmp_path):
    async def answer(request, server):
        said = (await request.json())["messages"][-1]["content"]
        server.requests.append(said)
        thought = "THINKING: Reader-9 thinks of sepsis.\nACTION: REQUEST_TEST\nTest needed: Lactate\nReason: perfusion"
        return {"choices": [{"message": {"role": "assistant", "content": thought}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}}  # fmt: skip

    def run(url: str, mode: str, out: Path):
        settings = parse_settings({
            "study": STUDY, "calls": {"mode": mode},
            "paths": {"state": str(tmp_path / "state")}, "matcher": {"model": "reader"},
            "models": {"reader": {"label": "Reader-9", "id": "reader", "at": url}},
            "agents": {"reader": {"model": "reader"}},
        })  # fmt: skip
        job = Job(
            "p", "k", cases | {"states": study.states_file}, {"proposals": out / "p.jsonl"}, options={"run": "reader"}
        )
        propose_actions(settings, job)
        return (out / "p.jsonl").read_bytes()

    (tmp_path / "first").mkdir()
    (tmp_path / "again").mkdir()
    with answering(answer) as server:
        first, asked = run(server.url, "record", tmp_path / "first"), len(server.requests)
    assert first == run(server.url, "replay", tmp_path / "again") and asked > len(study.states)
    proposals = read_lines(tmp_path / "first" / "p.jsonl", Proposal)
    assert {(p.reasoning, p.action, p.leaning) for p in proposals} == {
        ("[model] thinks of sepsis.\nperfusion", "Lactate", "")}  # fmt: skip


# The form in a browser


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: set CHROMIUM to a binary, or install one")


@needs_browser
def test_a_physician_fills_the_form_in_two_sittings(study, tmp_path):
    """Half of it by keyboard, the browser closed; reopened, finished, exported, imported."""
    form, items = tmp_path / "R1.html", study.items
    shutil.copy(study.folder / "forms" / "R1.html", form)
    profile, downloads = tmp_path / "profile", tmp_path / "downloads"
    profile.mkdir()
    downloads.mkdir()
    pages = items.forms["R1"]
    expected = filled(study)

    def rate(browser: Browser, pages) -> None:
        for page in pages:
            for card in page.cards:
                for name in dimensions():
                    focused = browser.js("document.activeElement.name")
                    assert focused == f"{card.code}/{name}"
                    browser.press(str(expected[card.code][name]))
            browser.press("n")

    half = len(pages) // 2
    browser = Browser(profile, downloads)
    try:
        browser.open(form)
        assert browser.js("document.title") == "Rating form"  # the case that tries to break in did not
        rate(browser, pages[:half])
        told = browser.js("document.getElementById('count').textContent")
        assert told.endswith(f"{half} of {len(pages)} states")
        browser.js("document.getElementById('json').click()")  # too early: it says what is open
        missing = 5 * sum(len(page.cards) for page in pages[half:])
        assert f"Not finished: {missing} ratings" in browser.js("document.getElementById('warning').textContent")
        browser.downloaded(".json").unlink()
        browser.js("dispatchEvent(new StorageEvent('storage', {key: place, newValue: '{\"ratings\": {}}'}))")
        assert "another window" in browser.js("document.getElementById('warning').textContent")
        assert browser.js("document.getElementById('count').textContent").startswith("0 of")
    finally:
        browser.close()
    browser = Browser(profile, downloads, 800, 1100)  # a tablet's width
    try:
        browser.open(form)
        assert browser.js("document.getElementById('count').textContent") == told
        assert browser.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        rate(browser, pages[half:])
        browser.js("document.getElementById('json').click()")
        assert browser.js("document.getElementById('warning').hidden")
        back = browser.downloaded(".json")
    finally:
        browser.close()
    only = items.model_copy(update={"forms": {"R1": pages}})
    codes = codes_of(items)
    assert read_ratings([back], only).scores == {
        "R1": {codes[code][1]: scores for code, scores in expected.items()}}  # fmt: skip


@needs_browser
def test_a_digit_after_the_last_line_of_a_state_changes_no_score(study, tmp_path):
    page = study.items.forms["R1"][0]
    with form_in(study, tmp_path) as browser:
        for _ in range(len(page.cards) * len(dimensions())):
            browser.press("4")
        browser.press("1")
        kept = browser.js("JSON.stringify(exported().ratings)")
        assert {tuple(rating[name] for name in dimensions()) for rating in json.loads(kept)} == {(4,) * 5}
        browser.js("show(kept.at)")  # a state that is whole, once more
        browser.press("1")
        assert browser.js("JSON.stringify(exported().ratings)") == kept
        browser.js("show(kept.at + 1)")
        browser.press("1")
        assert len(browser.js("exported().ratings")) == len(page.cards) + 1


@needs_browser
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_what_a_score_means_is_in_sight_and_the_header_leaves_room(study, tmp_path, width, height):
    with form_in(study, tmp_path, width, height) as browser:
        lines = browser.js("[...document.querySelectorAll('.card fieldset')].map(line => line.innerText)")
        anchors = [list(dimension.anchors.values()) for dimension in rubric()]
        assert len(lines) == len(study.items.forms["R1"][0].cards) * len(anchors)
        for place, line in enumerate(lines):
            assert [text for text in anchors[place % len(anchors)] if text not in line] == []
        assert browser.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert browser.js("document.querySelector('header').offsetHeight") < 0.15 * height


@contextlib.contextmanager
def form_in(study, folder: Path, width: int = 1280, height: int = 900) -> Iterator[Browser]:
    """The form of the first rater in a new browser."""
    profile = folder / "profile"
    profile.mkdir()
    shutil.copy(study.folder / "forms" / "R1.html", folder)
    browser = Browser(profile, folder)
    try:
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                     mobile=width < 500)  # fmt: skip
        browser.open(folder / "R1.html")
        yield browser
    finally:
        browser.close()


def test_forms_can_be_written_for_one_rater(study, tmp_path):
    """What a coordinator does who replaces a rater: the others' forms stay as they are."""
    only = study.items.model_copy(update={"forms": {"R2": study.items.forms["R2"]}})
    write_forms(study.states, only, tmp_path, "")
    assert sorted(p.name for p in tmp_path.glob("R*")) == ["R2.html"]
