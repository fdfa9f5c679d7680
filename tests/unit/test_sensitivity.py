"""Sweeps of settings, from small evaluation files written here."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text
from toy import CALL_COUNTS

from cdpr.job import Job
from cdpr.pipeline.stages import STAGES
from cdpr.report import style
from cdpr.report.sensitivity import plot_further_sensitivity, plot_sensitivity, sweep_rows
from cdpr.report.table import to_csv
from cdpr.settings import merge, parse_settings, sweeps
from cdpr.settings.load import restrict

EVERY_POINT = parse_settings({}).experiments.model_copy(update={"swept": None, "points": None})
SETTINGS = parse_settings(
    {"experiments": EVERY_POINT, "seeds": [0, 1, 2], "evaluation": {"bootstrap": 200, "decodings": ["greedy"]}}
)
CASES = {"mimic_iv": 200, "clinicalbench": 60, "private": 40}


def write_run(results: Path, run: str, dataset: str, right: float, cost: float) -> Path:
    """Fake evaluation: this share is right, costs are spread about ``cost``, a tenth of the work-ups is free."""
    rng = np.random.default_rng([*run.encode(), *dataset.encode()])
    cases = CASES[dataset]
    path = results / "evaluations" / run / f"{dataset}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as out:
        for i in range(cases):
            tests = 0 if i % 10 == 9 else int(rng.integers(1, 5))
            spent = round(cost * tests / 2.5 * float(rng.lognormal(0, 0.6)), 2)
            correct = (i * 7919) % cases < round(right * cases)
            na = int(rng.integers(0, 2))
            row = {
                "note_id": f"c{i:03d}", "decoding": "greedy", "correct": correct, "diagnosis": "a", "gold": f"b{i}",
                "turns": tests + 1, "n_issued": tests, "n_available": tests, "n_unavailable": na, "n_invalid": 0,
                "n_repeated": 0, "n_physical": 0, "n_tests": tests, "n_na": na, "cost_usd": spent,
                "utility": correct - 0.05 * tests - 0.002 * spent, "forced": False, **CALL_COUNTS,
            }  # fmt: skip
            out.write(json.dumps(row) + "\n")
    return path


def fake_sweeps(results: Path, settings=SETTINGS, where=("sensitivity", "further_sensitivity")) -> None:
    """Every point of every sweep with two seeds; what sweeps share with other experiments with all seeds."""
    for name in where:
        for points in sweeps(settings, name).values():
            for place, variant in enumerate(points.values()):
                for seed in (0, 1):
                    right = 0.58 + 0.03 * place + 0.015 * seed
                    write_run(results, f"{variant}-seed{seed}", "mimic_iv", right, 20 + 12 * place)
    for variant, right, cost in (("cdpr", 0.66, 30), ("grpo", 0.55, 45), ("cdpr_step", 0.64, 28),
                                 ("without_lambda_test", 0.67, 48), ("without_lambda_cost", 0.68, 90),
                                 ("without_lambda_na", 0.63, 33)):  # fmt: skip
        for seed in settings.seeds:
            write_run(results, f"{variant}-seed{seed}", "mimic_iv", right + 0.015 * (seed - 1), cost + 4 * seed)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    fake_sweeps(folder)
    return folder


@pytest.fixture
def results(pristine, tmp_path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "results"))


def job(results: Path, stem: Path) -> Job:
    """The job of a figure over ``results`` that writes ``stem`` + an ending."""
    return Job("test", "0" * 16, {"results": results}, {k: stem.with_suffix(f".{k}") for k in ("png", "pdf", "csv")})


def lines(results: Path, where: str = "sensitivity", settings=SETTINGS) -> dict[tuple[str, str], dict]:
    rows = list(
        csv.DictReader(
            to_csv(sweep_rows(settings, results, where)[1], style.declared("sensitivity")["csv"]).splitlines()
        )
    )
    assert all(None not in row and None not in row.values() for row in rows)
    return {(row["sweep"], row["value"]): row for row in rows}


def lose(results: Path, *runs: str) -> None:
    for run in runs:
        shutil.rmtree(results / "evaluations" / run)


def test_every_point_has_its_line_and_the_default_is_cdpr(pristine):
    for where, count in (("sensitivity", 6), ("further_sensitivity", 7)):
        rows = lines(pristine, where)
        planned = {(name, variant) for name, points in sweeps(SETTINGS, where).items() for variant in points.values()}
        assert {(row["sweep"], row["variant"]) for row in rows.values()} == planned
        defaults = [row for row in rows.values() if row["default"] == "yes"]
        assert len(defaults) == count and len({(row["k"], row["aec"]) for row in defaults}) == 1
        assert all(row["status"] == "measured" and row["n"] == "200" for row in rows.values())
        assert {row["seeds"] for row in defaults} == {"3"}
    rows = lines(pristine)
    # Faked verdicts are nested: what the default gets right, the best point does too.
    best, default = rows["candidates", "8"], rows["candidates", "4"]
    assert (best["k"], default["k"]) == ("134+137", "129+132+135") and best["seeds"] == "2"
    assert float(best["difference"]) == pytest.approx(5 / 200) and float(best["difference_low"]) > 0
    assert float(best["low"]) < 0.67 < float(best["high"]) and default["difference"] == ""
    assert rows["beta", "0"]["k"] == "107+110+113"  # GRPO's, all three


def test_a_sweep_of_a_single_point_has_no_panel_and_the_figure_says_how_to_get_it(results, tmp_path, monkeypatch):
    chosen = parse_settings(merge(SETTINGS.model_dump(), {"experiments": {"swept": ["beta"], "points": 1}}))
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, stem: drawn.append(figure))
    done = job(results, tmp_path / "a")
    plot_sensitivity(chosen, done)
    assert [axes.get_title("left") for axes in drawn[0].axes if axes.lines] == [
        "weight of the process reward, synthetic",
        "",
    ]
    assert "not swept in the demo: M, K, H, η, n (snakemake sensitivity_all)" in drawn[0].texts[1].get_text()
    assert {row["sweep"] for row in csv.DictReader(done.out["csv"].read_text().splitlines())} == set(
        sweeps(SETTINGS, "sensitivity")
    )


def test_all_points_of_a_sweep_are_those_of_the_settings_that_choose_none():
    chosen = parse_settings(merge(SETTINGS.model_dump(), {"experiments": {"swept": ["beta"], "points": 1}}))
    assert list(sweeps(chosen, "sensitivity")["beta"]) == [0.0, 0.5]
    assert sweeps(chosen, "sensitivity", every=True) == sweeps(SETTINGS, "sensitivity")


def test_each_panel_shows_accuracy_and_cost_with_its_default_and_seeds(results, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, stem: drawn.append(figure))
    plot_sensitivity(SETTINGS, job(results, tmp_path / "whole"))
    lose(results, "beta_0.25-seed0")
    plot_sensitivity(SETTINGS, job(results, tmp_path / "a"))
    legends = [[text.get_text() for text in figure.legends[0].get_texts()] for figure in drawn]
    assert ["missing" in names for names in legends] == [False, True]
    grid = np.reshape(drawn[1].axes, (4, 3))
    shown = {axes.get_title("left").removesuffix(", synthetic"): (axes, below)
             for axes, below in zip(grid[::2].flat, grid[1::2].flat, strict=True)}  # fmt: skip
    above, below = shown["weight of the process reward"]
    rows = [row for (sweep, _), row in lines(results).items() if sweep == "beta"]
    default = next(position for position, row in enumerate(rows) if row["default"] == "yes")
    for axes, metric, factor in ((above, "accuracy", 100), (below, "aec", 1)):
        values = [factor * float(row[metric] or "nan") for row in rows]
        drawn_lines = [axes.containers[0].lines[0], *(line for line in axes.lines if line.get_marker() in ("D", "x"))]
        points, marked, missing = (line.get_xydata() for line in drawn_lines)
        np.testing.assert_allclose(points[:, 1], values, atol=1e-4)
        assert marked.tolist() == [[default, pytest.approx(values[default], abs=1e-4)]]
        assert missing[:, 0].tolist() == [position for position, row in enumerate(rows) if not row["accuracy"]] != []
    ticks = [label.get_text().split("\n×") for label in below.get_xticklabels()]
    assert [value for value, _ in ticks] == [row["value"] for row in rows] and ticks[default][1] == "3"


def test_a_missing_point_is_a_hole_in_its_own_place(results, tmp_path):
    whole = lines(results)
    lose(results, "beta_0.25-seed0")
    holed = lines(results)
    assert list(holed) == list(whole)
    lost = holed["beta", "0.25"]
    assert lost["status"] == "missing: evaluations/beta_0.25-seed0/mimic_iv.jsonl"
    assert not any(lost[name] for name in ("k", "n", "accuracy", "low", "difference", "utility"))
    assert all(holed[key] == whole[key] for key in whole.keys() - {("beta", "0.25")})
    assert all(row["status"].startswith("missing") for row in lines(tmp_path).values())


def test_stages_draw_from_what_they_may_read_and_repeat_to_the_byte(results, tmp_path):
    done = job(results, tmp_path / "a")
    plot_sensitivity(SETTINGS, done)
    first = {kind: path.read_bytes() for kind, path in done.out.items()}
    again = job(results, tmp_path / "again")
    plot_sensitivity(restrict(SETTINGS, STAGES["plot_sensitivity"].reads), again)
    assert again.out["png"].read_bytes().startswith(b"\x89PNG")
    assert b"CreationDate" not in again.out["pdf"].read_bytes()
    assert first == {kind: path.read_bytes() for kind, path in again.out.items()}


@pytest.mark.filterwarnings("error::UserWarning")
def test_words_keep_off_each_other_and_the_tier_is_told(results, tmp_path, monkeypatch):
    fake_sweeps(results)
    lose(results, "beta_0.25-seed0", "candidates_8-seed0")
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, stem: drawn.append(figure) or [])
    plot_sensitivity(SETTINGS, job(results, tmp_path / "a"))
    plot_further_sensitivity(SETTINGS, job(results, tmp_path / "b"))
    plot_sensitivity(SETTINGS, job(tmp_path / "nowhere", tmp_path / "d"))
    for figure in drawn:
        with matplotlib.rc_context(fname=style.PARAMETERS):
            figure.canvas.draw()
        unseen = _unseen_ticks(figure)
        words = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and t not in unseen]
        mark, notes = figure.texts
        assert "tier: demo — synthetic hospital" in mark.get_text() and "\nmissing: " not in notes.get_text()
        _assert_apart(figure, [text for text in words if text is not mark])
        notes.set_text(notes.get_text().splitlines()[-1])  # the line beside the mark
        _assert_apart(figure, [mark, notes])


def _assert_apart(figure, words: list[Text]) -> None:
    page, boxes = figure.bbox, [(text.get_text(), text.get_window_extent()) for text in words]
    for place, (name, box) in enumerate(boxes):
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, name
        for other, at in boxes[place + 1 :]:
            apart = box.x1 <= at.x0 + 1 or at.x1 <= box.x0 + 1 or box.y1 <= at.y0 + 1 or at.y1 <= box.y0 + 1
            assert apart, (name, other)


def _unseen_ticks(figure) -> set[Text]:
    """Labels of ticks outside of the limits, or of axes that are switched off."""
    unseen = set()
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in (*axis.majorTicks, *axis.minorTicks):
                if not axes.axison or not limits[0] <= tick.get_loc() <= limits[1]:
                    unseen |= {tick.label1, tick.label2}
    return unseen


def diverge(results: Path, run: str, step: int) -> None:
    path = results / "training" / run / "metrics.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"step": step, "seconds": 1.0, "tokens": 1, "diverged": True}) + "\n")


def test_a_diverged_run_is_told_in_the_numbers_and_below_the_figures(results, tmp_path, monkeypatch):
    whole = lines(results)
    diverge(results, "candidates_8-seed0", 7)
    diverge(results, "cdpr-seed2", 9)
    diverge(results, "beta_0.25-seed0", 3)
    lose(results, "beta_0.25-seed0")
    told = lines(results)
    assert told["candidates", "8"]["status"] == "measured; candidates_8-seed0 diverged at step 7"
    assert told["candidates", "4"]["status"] == "measured; cdpr-seed2 diverged at step 9"
    assert told["beta", "0.25"]["status"].startswith("missing")
    others = told.keys() - {("candidates", "8"), ("beta", "0.25")}
    assert all(told[key] == whole[key] | {"status": told[key]["status"]} for key in others)
    assert {told[key]["status"] for key in others if told[key]["default"] == "no"} == {"measured"}

    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, stem: drawn.append(figure) or [])
    plot_sensitivity(SETTINGS, job(results, tmp_path / "a"))
    (sweep,) = (figure.texts[1].get_text().replace("\n", " ") for figure in drawn)
    assert "candidates_8-seed0 diverged at step 7" in sweep and sweep.count("cdpr-seed2 diverged at step 9") == 1
