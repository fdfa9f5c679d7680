"""The whole workflow in miniature: it finishes, a second run does nothing, and errors are named."""

import csv
import html
import json
import re
from pathlib import Path

import pytest
from finished_project import ON_PAGE
from page import page
from project import RESULTS, ROOT

from cdpr.pipeline.experiment import Experiment
from cdpr.records import RunRecord, record_files
from cdpr.settings import is_trained, load_settings
from cdpr.study.methods import study_runs

pytestmark = pytest.mark.workflow


def test_all_results_exist(project):
    output = (project.folder / "output.txt").read_text()
    assert re.search(r"reproduce_paper: \d\d jobs, \d+ s on 2 fast cores", output)
    on_page = [path for paths in ON_PAGE.values() for path in paths]
    others = ["claims.json", "claims.md", "claims.csv", "report.html", "preflight.json", "mlflow.db",
              "training/cdpr-seed0/metrics.jsonl"]  # fmt: skip
    assert {"tables/main_results.csv", "figures/accuracy_cost.png", "figures/sensitivity.csv"} < set(on_page)
    assert [name for name in [*on_page, *others] if len(project.read(name)) < 100] == []
    assert json.loads(project.read("report.run.json"))["tags"]["says"].startswith("In-domain: Is the utility of CDPR")
    results = project.folder / RESULTS
    assert not list(results.rglob("*.partial*")) and not list(results.rglob(".partial*"))
    for folder in results.glob("evaluations/*/*.jsonl"):
        assert folder.with_suffix(".run.json").exists()


def test_a_second_run_has_nothing_to_do(project):
    assert "Nothing to be done" in project.snakemake()


def test_an_input_has_the_digest_that_its_producer_recorded(project):
    """Over all records of the project, after Snakemake has marked the folders among its outputs."""
    records = [RunRecord.read(path) for path in record_files(project.folder / RESULTS)]
    produced = {output.path: output.sha256 for record in records for output in record.outputs.values()}
    inputs = [(record.name, read) for record in records for read in record.inputs.values() if read.path in produced]
    assert len(inputs) > 150 and any(Path(project.folder, read.path).is_dir() for _, read in inputs)
    assert [(name, read.path) for name, read in inputs if read.sha256 != produced[read.path]] == []


def test_the_runs_are_indexed_in_the_end(project):
    log = (project.folder / RESULTS / "logs/index_runs.log").read_text(encoding="utf-8")
    assert re.search(r"mlflow\.db: \d{3} records, ", log), log


def test_every_link_of_the_page_leads_to_a_file(project):
    page = project.folder / RESULTS / "report.html"
    links = set(re.findall(r'href="([^"#:]+)[#"]', page.read_text(encoding="utf-8")))
    assert "inspector/index.html" in links and [link for link in links if not (page.parent / link).exists()] == []


def test_the_inspector_shows_what_was_evaluated(project):
    views = json.loads(project.read("inspector/data/index.js").partition(b",")[2].removesuffix(b");\n"))["views"]
    assert len(views) == 6 and {view["credited"] for view in views} == {0, 3}
    assert all(view["decisions"] >= view["workups"] > 0 for view in views)
    assert b'href="inspector/index.html#run=cdpr-seed0&amp;dataset=mimic_iv"' in project.read("report.html")


def test_the_report_of_snakemake_shows_what_our_page_shows(project):
    project.snakemake("--report", "report.html")
    text = (project.folder / "report.html").read_text(encoding="utf-8")
    captions = dict(re.findall(r'"name": "([^"]+)", [^{}]*?"caption": ("(?:[^"\\]|\\.)*")', text))
    for part in page(str(ROOT / "config/ci.yaml")).values():
        caption = html.unescape(re.sub("<[^>]+>", "", json.loads(captions[Path(part.file).name])))
        assert caption.split() == part.text.split() and json.dumps(part.chapter) in text


def test_rules_are_compared_at_matched_cost(project):
    feeds = {"feeds": ["frontier", "frontier_parts", "frontier_grid"]}
    variants = json.dumps({"variants": {"grpo": feeds, "cdpr": feeds}})
    project.snakemake("frontier", "--config", f"experiments={variants}")
    rows = list(csv.DictReader(project.read("tables/frontier.csv").decode().splitlines()))
    matched = {(r["rule"], r["dataset"], r["decoding"]) for r in rows if r["over_cdpr"]}
    assert len(matched) == 2 * 3 * 2 and all(float(r["over_cdpr"]) == 0 for r in rows if r["rule"] == "CDPR (ours)"
                                             and r["over_cdpr"])  # fmt: skip
    parts = {r["variant"]: r for r in csv.DictReader(project.read("tables/frontier_parts.csv").decode().splitlines())}
    for row in parts.values():
        assert float(row["exact"]) - float(row["reading"]) == pytest.approx(100 * float(row["accuracy"]), abs=1e-3)
    assert set(parts) == {"warm_start", "grpo", "cdpr"} and b"**" in project.read("tables/frontier_parts.md")
    assert len(project.read("figures/frontier.png")) > 10_000


@pytest.mark.parametrize("overlay", ["paper", "small_gpu"])
def test_larger_tiers_can_be_planned_without_their_data(project, overlay):
    result = project.run("-n", overlay=overlay)
    plan = Experiment(load_settings(ROOT / "config.yaml", ROOT / f"config/{overlay}.yaml"))
    # What the page shows, and what the expert study compares.
    runs = sum(map(is_trained, {*plan.evidence("write_report").runs, *study_runs(plan.settings)}))
    assert runs > 20 and re.search(rf"^train_policy +{runs}$", result.stdout, re.MULTILINE), result.stdout[-3000:]
    assert result.returncode == 0


def test_a_mistyped_path_stops_a_run_before_its_first_job(project):
    result = project.run("--config", "data={private: {path: no/such/folder}}")
    assert result.returncode != 0 and "data.private.path: no/such/folder" in result.stdout
    full = max((project.folder / ".snakemake/log").iterdir()).read_text()
    assert "Building DAG" in full and "rule ingest_dataset" not in full


def test_an_unknown_key_is_named(project):
    result = project.run("-n", "--config", "credit={betta: 1}")
    assert result.returncode != 0 and "did you mean 'credit.beta'" in result.stdout
