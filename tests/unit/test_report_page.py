"""The HTML page from small results written here."""

from __future__ import annotations

import hashlib
import json
import pkgutil
import re
import shutil
import struct
import zlib
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from page import page as page_parts
from toy import CALL_COUNTS

from cdpr import escape
from cdpr.cases import CaseRecord, write_records
from cdpr.ingest.attrition import AttritionReport
from cdpr.job import Job, PageEntry
from cdpr.pipeline.stages import STAGES
from cdpr.report.data_card import count_cases, data_card
from cdpr.report.ledger.page import read_ledger
from cdpr.report.ledger.verdict import COUNTED, count_verdicts, verdict_of
from cdpr.report.methods import DATASETS, main_methods, page_methods
from cdpr.report.provenance import ProvenanceError
from cdpr.report.report_page import Records, banner, headline, write_report
from cdpr.report.results import Results
from cdpr.settings import merge, parse_settings

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'&|**x**"
# Run -> of ten cases so many are right, and the cost of the work-up.
RUNS = {
    "utility_grpo-seed0": (5, 12.0), "utility_grpo-seed1": (5, 12.0),
    "warm_start": (4, 20.0), "static": (7, 300.0), "grpo-seed0": (5, 30.0), "grpo-seed1": (5, 30.0),
    "cdpr-seed0": (8, 10.0), "cdpr-seed1": (8, 10.0), "zero_test": (2, 0.0),
}  # fmt: skip
EXPERIMENTS = parse_settings({}).experiments.model_dump()
EXPERIMENTS["variants"]["without_lambda_na"]["label"] = HOSTILE
BASE = {"seeds": [0, 1], "evaluation": {"bootstrap": 200, "decodings": ["greedy"]}, "utility": {"cost_unit_usd": 10},
        "experiments": EXPERIMENTS}  # fmt: skip
SETTINGS = parse_settings(BASE)
PAGE = tuple(page_parts().values())


def write_run(folder: Path, run: str, dataset: str, right: int, cost: float, cases: int = 30) -> None:
    rows = [
        {"note_id": f"c{i:03d}", "decoding": "greedy", "correct": i % 10 < right, "diagnosis": "SECRET",
         "gold": f"b{i}", "turns": 3, "n_issued": 2, "n_available": 2, "n_unavailable": 0, "n_invalid": 0,
         "n_repeated": 0,
         "n_physical": 0, "n_tests": 2, "n_na": 0, "cost_usd": cost, "utility": (i % 10 < right) - cost / 500,
         "forced": False, **CALL_COUNTS}
        for i in range(cases)
    ]  # fmt: skip
    path = folder / "evaluations" / run / f"{dataset}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    variant, _, seed = run.partition("-seed")
    record = {
        "stage": "evaluate_agent", "experiment": "cdpr/evaluation", "run_key": key_of(run, dataset),
        "tier": "demo", "seed": None,
        "options": {"run": run, "dataset": dataset}, "tags": {"variant": variant} | ({"seed": seed} if seed else {}),
        "code_digest": "c0de", "inputs": {"cases": {"path": "/home/me/x", "sha256": dataset * 8}}, "outputs": {},
        "started": "2026-01-01T00:00:00+00:00", "wall_seconds": 7.125, "commit": "deadbeef",
    }  # fmt: skip
    path.with_name(f"{dataset}.run.json").write_text(json.dumps(record))


def patient(number: int, **changes) -> CaseRecord:
    """A case of the evaluations."""
    fields = {
        "note_id": f"c{number:03d}", "case_summary": f"- Chief Complaint: toe {HOSTILE}",
        "final_diagnosis": f"b{number}",
        "key_pertinent_results_dict": {"Urate": HOSTILE}, "diagnosis_results": f"b{number}",
        "exam_cost_map": {"Urate": 9.0},
        "exam_billing_group": {}, "dataset": "mimic_iv", "split": "test", "subject_key": f"p{number}",
        "credentialed": False,
    }  # fmt: skip
    return CaseRecord(**fields | changes)


def key_of(run: str, dataset: str) -> str:
    return hashlib.sha256(f"{run}/{dataset}".encode()).hexdigest()[:16]


def png(path: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    path.parent.mkdir(parents=True, exist_ok=True)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + body)


def ledger(claims: list[dict]) -> str:
    """A ``claims.json`` of these claims, whose other fields are empty."""
    empty = {"also": (), "kind": "", "says": "", "headline": False, "printed": ()} | verdict_of("", "")
    whole = [empty | claim for claim in claims]
    headline, counts = count_verdicts(whole)
    return json.dumps({"tier": "demo", "headline": headline, "counts": counts, "claims": whole})


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "results"
    for run, (right, cost) in RUNS.items():
        for dataset in DATASETS:
            write_run(folder, run, dataset, right, cost)
    write_run(folder, "without_lambda_na-seed0", "mimic_iv", 6, 11.0)
    write_run(folder, "without_lambda_na-seed1", "mimic_iv", 6, 13.0)
    (folder / "tables").mkdir()
    for name in ("main_results", "ablations", "sample_case"):  # what the page shows is made again from the evaluations
        (folder / "tables" / f"{name}.md").write_text("made")
    cases = [patient(number) for number in range(30)]
    (folder / "cases").mkdir()
    write_records(folder / "cases/mimic_iv.jsonl", cases)
    for name in ("accuracy_cost", "sensitivity"):
        png(folder / "figures" / f"{name}.png")
    (folder / "cards").mkdir()
    told = AttritionReport.model_validate({
        "dataset": "private", "read": 31, "kept": 30, "dropped": {HOSTILE: 1},
        "leaks": [], "events": {}, "warnings": [HOSTILE], "splits": {"test": 30},
    })  # fmt: skip
    tally = count_cases(folder / "cases/mimic_iv.jsonl", [])
    card = data_card(SETTINGS, "private", tally, told, [], {"cases": "5a17"})
    (folder / "cards/private.json").write_text(json.dumps(card))
    claims = [
        {"id": "a1", "place": "Abstract", "says": f"CDPR is cheaper {HOSTILE}", "verdict": "same direction",
         "headline": True, "measured": -19.25, "low": -21.0, "high": -17.0, "unit": "USD",
         "n": 30, "seeds": [0, 1], "runs": ["cdpr-seed0", "grpo-seed1/private", HOSTILE]},
        {"id": "t1", "place": "Table 1", "says": "a figure", "verdict": "not run", "why": "synthetic cases",
         "printed": ["53.07"]},
    ]  # fmt: skip
    (folder / "claims.json").write_text(ledger(claims))
    return folder


@pytest.fixture
def results(pristine, tmp_path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "results"))


@pytest.fixture(scope="module")
def page(pristine, tmp_path_factory) -> Page:
    return Page(write(pristine, tmp_path_factory.mktemp("made")))


def write(folder: Path, out: Path, settings=SETTINGS) -> str:
    page = out / "report.html"
    write_report(settings, Job("report_page", "0" * 16, {"results": folder}, {"html": page}, page=PAGE))
    return page.read_text(encoding="utf-8")


class Page(HTMLParser):
    """What a browser would find: tags with their attributes, and the text."""

    def __init__(self, text: str):
        super().__init__()
        self.source, self.tags, self.text = text, [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.tags if attributes.get(name) is not None]

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.tags)


def test_nothing_is_fetched_and_nothing_breaks_out(page):
    assert (page.count("script"), page.count("style"), page.count("link"), page.count("iframe")) == (1, 1, 0, 0)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert all(source.startswith("data:image/png;base64,") for source in page.values("src"))
    beside = r"timings\.md$|claims_of_time\.md$|figures/training_time\.png$|inspector/index\.html#"
    assert all(re.match(rf"#|https://|{beside}", link) for link in page.values("href"))
    assert "url(" not in page.source and "@import" not in page.source
    assert "default-src 'none'" in page.source
    assert HOSTILE in page.text  # in the ledger, as text
    assert "-19.25 [-21.00, -17.00] USD; N = 30, seeds 0, 1" in page.text
    assert page.text.count("alert(2)") >= 10
    assert len(page.source) < 5e6


def test_every_link_has_a_target_and_every_image_a_text(page):
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    targets = [link[1:] for link in page.values("href") if link.startswith("#")]
    targets += [also for links in page.values("data-also") for also in links.split()]
    assert len(targets) > 100 and set(targets) <= set(ids)
    assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")
    assert page.count("th") == len([a for t, a in page.tags if t == "th" and a.get("scope")])
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))


def test_a_second_page_of_a_process_leads_to_its_own_runs(pristine, tmp_path):
    """Compiled templates are kept, and with them their functions: those of a page are its own."""
    escape.environment.cache_clear()
    write(pristine, tmp_path, SETTINGS.model_copy(update={"seeds": [0]}))
    assert 'data-also="made-cdpr-seed1-mimic_iv"' in write(pristine, tmp_path)


def test_numbers_lead_to_their_runs(page):
    wide = page.source.split("Every agent on every benchmark.")[1].split("</table>")[0]
    row = wide.split('<th scope="row">CDPR (ours)</th>')[1].split("</tr>")[0]
    links = [(href, *also.split()) for href, also in re.findall(r'href="#([^"]+)" data-also="([^"]+)"', row)]
    runs = {d: tuple(f"made-cdpr-seed{seed}-{d}" for seed in (0, 1)) for d in DATASETS}
    everything = tuple(run for of_dataset in runs.values() for run in of_dataset)
    assert links == [runs[d] for d in DATASETS for _ in range(3)] + [everything] * 4
    paired = page.source.split("CDPR (ours) against GRPO, greedy decoding</h3>")[1].split("</table>")[0]
    both = [f"made-{name}-seed{seed}-private" for name in ("cdpr", "grpo") for seed in (0, 1)]
    assert f'href="#{both[0]}" data-also="{" ".join(both[1:])}"' in paired
    block = page.source.split('id="made-cdpr-seed1-mimic_iv"')[1].split('id="made-')[0]
    key = key_of("cdpr-seed1", "mimic_iv")
    assert key in block and f"tags.`cdpr.run_key` = '{key}'" in block
    assert "snakemake --cores all results/evaluations/cdpr-seed1/mimic_iv.jsonl" in block
    assert "cdpr/evaluation, run cdpr-seed1/mimic_iv" in block and "c0de" in block
    # What trains the same thing is shown with the same runs.
    changes = page.source.split("Changes against CDPR (ours), greedy decoding</h3>")[1].split("</table>")[0]
    row = changes.split('<th scope="row">w/o R_proc</th>')[1].split("</tr>")[0]
    assert 'href="#made-grpo-seed0-mimic_iv" data-also="made-grpo-seed1-mimic_iv made-cdpr-seed0-mimic_iv' in row


def test_a_command_for_results_in_another_folder_names_the_overlays(tmp_path):
    elsewhere = "--configfile YOUR_OVERLAYS --"
    for folder, command in (("results", "results/x.csv"), ("results/ci", f"{elsewhere} results/ci/x.csv"),
                            ("/mine", f"{elsewhere} <results>/x.csv")):  # fmt: skip
        settings = parse_settings(merge(SETTINGS.model_dump(), {"paths": {"results": folder}}))
        assert Records(settings, tmp_path).artifact("x.csv")["command"] == f"snakemake --cores all {command}"


def test_marks_stand_and_what_the_paper_prints_leads_to_no_run(page):
    part = page.source.split("<h2>Ablations</h2>")[1]
    row = part.split('<th scope="row">CDPR (ours)</th>')[1].split("</tr>")[0]
    found = re.search(r'data-also="made-cdpr-seed1-mimic_iv"><strong>80\.00 \[([^]]+)\]</strong></a>', row)
    assert found and found[1].count(",\u00a0") == 1  # an interval breaks nowhere but before its bracket
    printed = part.split("Nothing here was measured by this pipeline.")[1].split("</table>")[0]
    assert '<td class="r">53.07</td>' in printed and "href" not in printed


def test_the_answer_comes_first_and_the_tier_before_it(page):
    places = [page.source.index(text) for text in ("Synthetic hospital, tiny policy", "<nav", "Yes, by +0.340 [",
                                                   "CDPR (ours) − GRPO", 'id="accuracy_against_cost"',
                                                   'id="main_table"', 'id="claims"', 'id="provenance"')]  # fmt: skip
    assert places == sorted(places)
    assert "not the paper's numbers" in page.text and "+30.00 [" in page.text
    real = {name: {"path": "mine"} for name in DATASETS}
    assert banner(parse_settings({"data": real, "policy": {"model": "Qwen3-4B"}, "tier": "paper"}))[0] == "Tier: paper"
    assert banner(parse_settings({"tier": "miniature"}))[0] == "Miniature"
    assert banner(parse_settings({"data": {"private": {"path": "mine"}}}))[0] == (
        "Synthetic: MIMIC-IV, ClinicalBench, tiny policy"
    )


def test_a_diverged_seed_stands_beside_the_answer(results, tmp_path):
    path = results / "training/cdpr-seed1/metrics.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"step": 9, "seconds": 1.0, "tokens": 1, "diverged": true}\n')
    answers, tables = headline(Results(SETTINGS, results, main_methods(SETTINGS)), "greedy")
    said = "cdpr-seed1 diverged at step 9"
    assert len(answers) == 6 and all(f" {said}: evaluated with the weights before." in a["sentence"] for a in answers)
    assert any("cdpr-seed1 at step 9" in note for note in tables[0].notes)
    source = write(results, tmp_path)
    assert source.index(said) < source.index('id="accuracy_against_cost"')
    for table in tables:
        assert [row for row in table.lines() if isinstance(row, str)] == ["In-domain", "Average of the data sets"]


def test_the_average_of_differences_resamples_each_data_set(pristine):
    results = Results(SETTINGS, pristine, main_methods(SETTINGS))
    ours, grpo, backbone = map(results.method, ("cdpr", "grpo", "warm_start"))
    at = results.change(ours, grpo, "average", "greedy")
    parts = [results.change(ours, grpo, d, "greedy") for d in DATASETS]
    assert at["accuracy"] == pytest.approx(sum(part["accuracy"] for part in parts) / 3)
    # three data sets resampled for themselves know their mean better than each alone
    widths = [row["accuracy_high"] - row["accuracy_low"] for row in (at, *parts)]
    assert widths[0] < min(widths[1:])
    assert set(at["runs"]) == {(f"{n}-seed{seed}", d) for n in ("cdpr", "grpo") for seed in (0, 1) for d in DATASETS}
    one = results.change(ours, backbone, "mimic_iv", "greedy")
    assert one["accuracy_by_seed"] == pytest.approx((0.4, 0.4))  # one backbone is compared with every seed
    assert one["runs"] == (("cdpr-seed0", "mimic_iv"), ("cdpr-seed1", "mimic_iv"), ("warm_start", "mimic_iv"))


@pytest.mark.parametrize(
    ("right", "cost", "short", "verdicts"),
    [
        (8, 10.0, r"Yes, by \+0.340 \[.*\]; more accurate, cheaper", ("better", "better", "better")),
        (2, 10.0, r"No, by -0.260 \[.*\]; less accurate, cheaper", ("worse", "better", "worse")),
        (5, 10.0, r"Yes, by \+0.040 \[.*\]; accuracy is open, cheaper", ("", "better", "better")),
        (8, 99.0, r"Open, by \+0.162 \[.*\]; more accurate, costlier", ("better", "worse", "")),
        (5, 99.0, r"No, by -0.138 \[.*\]; accuracy is open, costlier", ("", "worse", "worse")),
    ],
)
def test_the_answer_says_what_the_intervals_show(results, right, cost, short, verdicts):
    for seed in (0, 1):
        write_run(results, f"cdpr-seed{seed}", "mimic_iv", right, cost)
        write_run(results, f"grpo-seed{seed}", "mimic_iv", 5, 30.0)
    answers, tables = headline(Results(SETTINGS, results, main_methods(SETTINGS)), "greedy")
    assert re.fullmatch(short, answers[0]["short"])
    same_accuracy = 0 if right == 5 else 2
    assert f" Seeds with the same sign: 2, {same_accuracy} and 2 of 2." in answers[0]["sentence"]
    assert len(answers) == 6 and "the policy it started from (warm-started tiny policy)" in answers[2]["question"]
    change = tables[1].rows[0]
    assert tuple(change[f"{name}_mark"] for name in ("accuracy", "aec", "utility")) == verdicts


def test_the_answer_counts_the_seeds_that_agree_with_the_mean(results):
    for seed, right in enumerate((9, 4)):
        write_run(results, f"cdpr-seed{seed}", "mimic_iv", right, 10.0)
        write_run(results, f"grpo-seed{seed}", "mimic_iv", 5, 30.0)
    answers, _ = headline(Results(SETTINGS, results, main_methods(SETTINGS)), "greedy")
    assert " Seeds with the same sign: 1, 1 and 2 of 2." in answers[0]["sentence"]


def test_what_is_missing_is_a_labelled_hole(tmp_path):
    text = write(tmp_path / "nothing", tmp_path)
    holes = re.findall(r'<p class="hole">(.*?)</p>', text)
    for path in [*(entry.file for entry in PAGE), "claims.json", "cards/private.json"]:
        assert any(hole.startswith(f"missing: {path}") and f"cores all results/{path}" in hole for hole in holes), path
    assert text.count("Not known") == 6 and "missing: evaluations/cdpr-seed0/mimic_iv.jsonl" in text


@pytest.mark.parametrize("rule", page_parts())
def test_every_part_of_the_page_can_be_shown(rule):
    entry = page_parts()[rule]
    assert entry.chapter and entry.text and rule in STAGES
    assert bool(entry.sheet) == entry.file.startswith("tables/")
    assert not entry.sheet or callable(pkgutil.resolve_name(entry.sheet))


def test_a_new_chapter_appears_by_itself(results, tmp_path):
    png(results / "figures/engines.png")
    text = "Learning curves of the same variants under both engines."
    entry = PageEntry("Engines", text, file="figures/engines.png")
    job = Job("report_page", "0" * 16, {"results": results}, {"html": tmp_path / "report.html"}, page=(*PAGE, entry))
    write_report(SETTINGS, job)
    text = job.out["html"].read_text()
    assert text.count('<section id="engines">') == text.count("<h2>Engines</h2>") == 1
    assert 'href="#engines"' in text and "<figcaption>Learning curves of the same variants under both engines." in text


def test_a_lost_seed_is_a_hole_in_the_head(results, tmp_path):
    (results / "evaluations/grpo-seed1/private.jsonl").unlink()
    text = Page(write(results, tmp_path).partition('id="accuracy_against_cost"')[0]).text
    assert text.count("missing: evaluations/grpo-seed1/private.jsonl") == 3  # answer, row, difference of the average
    assert text.count("more accurate, cheaper") == 5


def test_same_results_same_bytes(results, tmp_path):
    first = write(results, tmp_path / "a")
    for path in results.rglob("*run.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"started": "2031", "wall_seconds": 1.5, "commit": "feed"}))
    assert write(results, tmp_path / "b") == first
    for word in (str(tmp_path), "2026-01-01", "7.125", "deadbeef", "/home/me"):
        assert word not in first
    elsewhere = parse_settings(BASE | {"paths": {"results": str(results)}})
    assert str(tmp_path) not in write(results, tmp_path / "c", elsewhere)


@pytest.mark.parametrize("damage", [
    lambda ledger: ledger["claims"], lambda ledger: ledger | {"claims": "none"}, lambda ledger: ledger | {"counts": 7},
    lambda ledger: ledger | {"claims": [ledger["claims"][0] | {"says": 7}]},
    lambda ledger: ledger | {"claims": [ledger["claims"][0] | {"measured": "much"}]},
    lambda ledger: ledger | {"claims": [{name: ledger["claims"][0][name] for name in ("id", "verdict")}]},
])  # fmt: skip
def test_a_file_that_is_no_ledger_is_refused(results, damage):
    path = results / "claims.json"
    assert len(read_ledger(SETTINGS, path)["claims"]) == 2
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(ProvenanceError, match="no ledger of claims"):
        read_ledger(SETTINGS, path)


@pytest.mark.parametrize(
    "path", ["figures/accuracy_cost.run.json", "claims.json", "evaluations/static/private.run.json"]
)
def test_results_of_another_tier_share_no_page(results, tmp_path, path):
    (results / path).write_text(json.dumps({"tier": "paper"}))
    with pytest.raises(ProvenanceError, match=path):
        write(results, tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"claims": [1]}', '{"claims": [{"id": "x"}]}'])
def test_a_broken_ledger_is_named(results, tmp_path, text):
    (results / "claims.json").write_text(text)
    with pytest.raises(ProvenanceError, match=r"claims\.json"):
        write(results, tmp_path)


def test_credentialed_cases_stay_out(results, tmp_path):
    cases = [patient(number, case_summary="- Chief Complaint: PATIENT TEXT") for number in range(30)]
    write_records(results / "cases/mimic_iv.jsonl", cases)
    assert "PATIENT TEXT" in write(results, tmp_path)
    data = {name: {"path": "mine", "credentialed": name == "mimic_iv"} for name in DATASETS}
    write_records(results / "cases/mimic_iv.jsonl", [case.model_copy(update={"credentialed": True}) for case in cases])
    for settings in (parse_settings(BASE | {"data": data}), SETTINGS):  # each sign alone is enough
        text = write(results, tmp_path, settings)
        assert "PATIENT TEXT" not in text and "not shown: cases are credentialed" in text


def test_what_is_no_image_is_named(results, tmp_path):
    (results / "figures/learning_curves.png").write_bytes(b"<svg onload=alert(1)>")
    text = write(results, tmp_path)
    assert "no PNG image: figures/learning_curves.png" in text and text.count("data:image/png") == 2


# A page with a chip of every verdict: [verdict, contrast of the chip's text with its ground, ground of its part of the
# bar]. The ground of a pattern is its darker colour.
CHIPS = """(() => {
  const grounds = element => {
    const {backgroundColor, backgroundImage} = getComputedStyle(element);
    const colours = (backgroundImage + backgroundColor).match(/rgba?\\([^)]*\\)/g);
    return colours.map(text => text.match(/[\\d.]+/g).map(Number)).filter(colour => colour[3] !== 0);
  };
  const light = colour => colour.slice(0, 3).map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  return [...document.querySelectorAll(".legend .chip")].map((chip, i) => {
    const text = light(getComputedStyle(chip).color.match(/[\\d.]+/g).map(Number));
    const part = document.querySelectorAll(".bar span")[i];
    return [chip.textContent, Math.min(...grounds(chip).map(g => contrast(text, light(g)))), grounds(part).length];
  });
})()"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: set CHROMIUM to a binary, or install one")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_verdict_has_a_colour_on_which_its_name_can_be_read(results, tmp_path, scheme):
    claims = [{"id": f"c{i}", "place": "Table 1", "says": "a figure", "verdict": v} for i, v in enumerate(COUNTED)]
    (results / "claims.json").write_text(ledger(claims))
    write(results, tmp_path)
    browser = Browser(tmp_path / "profile", tmp_path)
    try:
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.open(tmp_path / "report.html")
        chips = browser.js(CHIPS)
    finally:
        browser.close()
    assert [name for name, *_ in chips] == list(COUNTED)
    assert all(contrast and contrast >= 4.5 and grounds for _, contrast, grounds in chips), chips


def test_figures_and_tables_are_whole_on_a_narrow_page(page):
    wholes = [a["id"] for tag, a in page.tags if tag == "div" and a.get("class") == "pan"]
    assert len(wholes) == len(set(wholes)) == 2 and all(page.source.count(f'href="#{name}"') == 2 for name in wholes)
    style = re.search(r"<style>(.*?)</style>", page.source, re.DOTALL)[1]
    assert not re.search(r"img\{[^}]*min-width:[1-9]", style)  # nothing keeps a figure wider than the page
    scrolling = [a for tag, a in page.tags if a.get("class") == "wide"]
    assert scrolling and page.source.count('<p class="cue" aria-hidden="true">scroll →</p>\n<div class="wide"') == len(
        scrolling
    )


def test_every_variant_stands_once():
    methods = page_methods(SETTINGS)
    assert len({method.name for method in methods}) == len(methods)
    assert {"cdpr", "without_process_reward", "beta_1", "zero_test"} <= {method.name for method in methods}
