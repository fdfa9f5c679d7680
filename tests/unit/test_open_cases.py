"""The table of open cases: who stands in it, on what, and that it is no part of the main table."""

import csv
import json
from pathlib import Path

import pytest
from page import page
from toy import CALL_COUNTS

from cdpr.pipeline.experiment import Experiment
from cdpr.pipeline.stages import STAGES
from cdpr.report.main_table import sheet_main_table, sheet_open_cases
from cdpr.report.methods import open_methods
from cdpr.settings import Settings, SettingsError, load_settings, merge, parse_settings
from cdpr.settings.load import restrict

MEDQA = {"data": {"agentclinic": {"path": "medqa.jsonl"}}}
TWO = merge(MEDQA, {"data": {"agentclinic_extended": {"path": "extended.jsonl"}}})
REAL = {"policy": {"model": "models/real"}}
MINE = {"agents": {"mine": {"label": "Mine", "group": "open", "model": "models/mine"},
                   "other": {"label": "Other", "group": "open", "model": "models/other"}}}  # fmt: skip


def settings(tmp_path: Path, *changes: dict) -> Settings:
    shipped = load_settings().model_dump(mode="json")
    for change in ({"paths": {"results": str(tmp_path / "results"), "state": str(tmp_path / "state")}}, *changes):
        shipped = merge(shipped, change)
    return parse_settings(shipped)


def evaluated(tmp_path: Path, *changes: dict) -> dict[str, set[str]]:
    """Data sets by agent that the target evaluates."""
    found: dict[str, set[str]] = {}
    for run, dataset in Experiment(settings(tmp_path, *changes)).evidence("write_open_cases").evaluations:
        found.setdefault(run, set()).add(dataset)
    return found


def test_who_is_evaluated_on_what(tmp_path):
    assert evaluated(tmp_path) == evaluated(tmp_path, REAL, MINE) == {}, "no path, no cases"
    assert evaluated(tmp_path, MEDQA) == {}, "the tiny policy does not read them, and nothing is trained for them"
    assert evaluated(tmp_path, TWO, MINE) == {
        name: {"agentclinic", "agentclinic_extended"} for name in ("mine", "other")
    }
    assert evaluated(tmp_path, MEDQA, REAL).keys() == {"warm_start", "immediate", "static"}
    trained = evaluated(tmp_path, MEDQA, REAL, {"evaluation": {"open_cases": {"trained": True}}})
    assert {"warm_start", "cdpr-seed0", "grpo-seed4"} < trained.keys() and "random" not in trained


def test_only_where_there_are_open_cases_the_report_waits_for_them(tmp_path):
    without, given = Experiment(settings(tmp_path)), Experiment(settings(tmp_path, MEDQA, MINE))
    pair = ("mine", "agentclinic")
    assert (
        pair in given.evidence("write_report").evaluations
        and pair not in given.evidence("write_main_table").evaluations
    )
    overlay = tmp_path / "given.yaml"
    overlay.write_text(json.dumps(merge(MEDQA, MINE)))
    assert "write_open_cases" not in page() and "write_open_cases" in page(str(overlay))
    assert given.datasets[-1] == "agentclinic" and "agentclinic" not in without.datasets


def test_the_number_of_cases_concerns_open_cases_alone(tmp_path):
    (tmp_path / "medqa.jsonl").write_text("x")
    given = {"data": {"agentclinic": {"path": str(tmp_path / "medqa.jsonl")}}}

    def keys(number: int | None) -> list[str]:
        plan = Experiment(settings(tmp_path, given, MINE, {"evaluation": {"open_cases": {"cases": number}}}))
        return [plan.key("evaluate_agent", run="random", dataset=name) for name in ("private", "agentclinic")]

    (private, few), (same, every) = keys(20), keys(None)
    assert private == same and few != every


def test_a_mistyped_path_stops_the_run(tmp_path):
    plan = Experiment(settings(tmp_path, MEDQA))
    with pytest.raises(SettingsError, match=r"data\.agentclinic\.path: medqa\.jsonl"):
        plan.begin()


def write(tmp_path: Path, shown: Settings) -> dict[str, str]:
    stage = STAGES["write_open_cases"]
    out = {name: tmp_path / f"open_cases.{name}" for name in ("csv", "md", "tex")}
    view = restrict(shown, {*stage.reads, "paths"})
    sheet_open_cases(view, tmp_path / "results").write(out)
    return {name: path.read_text(encoding="utf-8") for name, path in out.items()}


def test_the_table(tmp_path):
    """A group of columns per file, intervals, why a row is not run, and neither average nor place in Table 1."""
    shown = settings(tmp_path, TWO, MINE, {"evaluation": {"bootstrap": 100}})
    for run, dataset, right in (
        ("mine", "agentclinic", 5),
        ("mine", "agentclinic_extended", 2),
        ("other", "agentclinic", 3),
    ):
        rows = [{"note_id": f"c{n}", "decoding": decoding, "correct": n < right, "diagnosis": "a", "gold": f"b{n}",
                 "turns": 2, "n_issued": 1, "n_available": 1, "n_unavailable": 0, "n_invalid": 0, "n_repeated": 0,
                 "n_physical": 0, "n_tests": 1, "n_na": 0, "cost_usd": 8.0, "utility": 0.0, "forced": False,
                 **CALL_COUNTS}
                for decoding in ("greedy", "sampled") for n in range(10)]  # fmt: skip
        file = tmp_path / "results" / "evaluations" / run / f"{dataset}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = write(tmp_path, shown)
    head = next(line for line in made["md"].splitlines() if line.startswith("| Method"))
    assert head == ("| Method | Seeds | MedQA Acc. | MedQA AEN | MedQA AEC | MedQA extended Acc. | "
                    "MedQA extended AEN | MedQA extended AEC |")  # fmt: skip
    assert "| Mine | 1 | **50.00** | **1.00** | **8.00** | 20.00 |" in made["md"]
    assert "| Other | 1 | <ins>30.00</ins> | **1.00** | **8.00** | missing |" in made["md"]
    assert "missing: evaluations/other/agentclinic_extended.jsonl" in made["md"]
    assert "Warm-started tiny policy — *not run: the tiny policy reads only the words" in made["md"]
    assert "50.00 [23.66, 76.34]" in made["md"], "Wilson's interval of 5 in 10"
    assert "Random" not in made["md"] and "verage:" not in made["md"] and "CDPR (ours)" not in made["md"]
    lines = list(csv.DictReader(made["csv"].splitlines()))
    assert {line["dataset"] for line in lines} == {"agentclinic", "agentclinic_extended"}
    assert [line["k"] for line in lines if line["method"] == "mine" and line["decoding"] == "greedy"] == ["5", "2"]
    main = sheet_main_table(shown, tmp_path / "results")
    assert not any("agentclinic" in column.key for table in main.tables for column in table.columns)
    assert [m.name for m in open_methods(shown)].count("mine") == 1


def test_without_a_model_that_can_run_one_line_says_what_to_do(tmp_path):
    """Also on the page, which then leaves the table out."""
    with pytest.raises(SettingsError, match=r"^no model can diagnose the open cases yet: `make local-llm`.*$"):
        write(tmp_path, settings(tmp_path, MEDQA))
    assert not Experiment(settings(tmp_path, MEDQA)).evidence("write_open_cases").evaluations


def test_without_cases_one_sentence_says_what_to_set(tmp_path):
    with pytest.raises(SettingsError, match=r"^there are no open cases: set data\.agentclinic\.path to .*[^.]$"):
        write(tmp_path, settings(tmp_path))
