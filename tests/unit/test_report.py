"""Tables and figures from small evaluation files written here."""

from __future__ import annotations

import csv
import importlib
import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from latex import compile_latex
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from toy import CALL_COUNTS

from cdpr.evaluation.metrics import METRICS, EvaluationError, Metric, by_run, metrics_by_name, read_evaluation
from cdpr.files import TableError
from cdpr.job import Job
from cdpr.metrics_log import split_times
from cdpr.report import accuracy_cost, in_domain, main_table, methods, style
from cdpr.report.accuracy_cost import accuracy_at, area, plot_accuracy_cost, plot_frontier
from cdpr.report.curves import (
    diverged_at,
    plot_engines,
    plot_learning_curves,
    plot_training_efficiency,
    plot_training_time,
    read_curves,
    read_figure_curves,
)
from cdpr.report.main_table import sheet_main_table
from cdpr.report.methods import list_methods, main_methods, variant_method
from cdpr.report.paper import printed_rows
from cdpr.report.provenance import ProvenanceError
from cdpr.report.results import Results, pair_runs
from cdpr.report.table import Column, Table, interval, number, to_csv, to_latex, to_markdown
from cdpr.settings import labels_of, parse_settings
from cdpr.settings.load import merge, restrict

CASES = {"mimic_iv": 40, "clinicalbench": 20, "private": 10}
# Run -> (right diagnoses of 10, examinations per case, cost of one).
RUNS = {
    "warm_start": (4, 3, 20.0), "static": (7, 9, 30.0), "grpo-seed0": (5, 4, 20.0), "grpo-seed1": (6, 4, 20.0),
    "utility_grpo-seed0": (5, 2, 10.0), "utility_grpo-seed1": (5, 2, 10.0), "cdpr-seed0": (6, 2, 15.0),
    "cdpr-seed1": (8, 2, 15.0), "zero_test": (2, 0, 0.0), "random": (4, 5, 9.0), "cheapest_first": (5, 5, 4.0),
    "all_tests": (9, 10, 30.0), "value_of_information": (8, 2, 12.0),
}  # fmt: skip
SETTINGS = parse_settings({"seeds": [0, 1], "evaluation": {"bootstrap": 200}, "utility": {"cost_unit_usd": 10}})
PANELS = style.declared("learning_curves")["panels"]
PLOTS = (plot_training_time, plot_training_efficiency, plot_learning_curves, plot_engines, plot_accuracy_cost)


def row(number: int, decoding: str, correct: bool, tests: int, price: float) -> dict:
    return {
        "note_id": f"c{number:03d}", "decoding": decoding, "correct": correct, "diagnosis": "a", "gold": f"b{number}",
        "turns": tests + 1, "n_issued": tests, "n_available": tests, "n_unavailable": 0, "n_invalid": 0,
        "n_repeated": 0, "n_physical": 0, "n_tests": tests, "n_na": 0, "cost_usd": tests * price,
        "utility": correct - 0.05 * tests - 0.002 * tests * price, "forced": False, **CALL_COUNTS,
    }  # fmt: skip


def write_rows(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    learned = {run for method in main_methods(SETTINGS) if not method.knows_hospital for run in method.runs}
    for run, (right, tests, price) in RUNS.items():
        for dataset, count in CASES.items():
            rows = [
                row(i, decoding, i % 10 < right, tests, price)
                for decoding in (("greedy", "sampled") if run in learned else ("greedy",))
                for i in range(count)
            ]
            write_rows(folder / "evaluations" / run / f"{dataset}.jsonl", rows)
    for variant, slope in {"grpo": 1, "utility_grpo": 2, "cdpr": 3}.items():
        for seed in SETTINGS.seeds:
            measured = [
                {"step": s, "seconds": s * 2.0 * (seed + 1), "tokens": 100 * s}
                | {
                    f"validation/{m}": 0.1 + 0.01 * slope * s + 0.02 * seed
                    for m in style.declared("learning_curves")["panels"]
                }
                for s in (0, 10, 20)
            ]
            between = [{"step": 5, "seconds": 1.0, "tokens": 5, "train/accuracy": 0.2}]
            rows = sorted(measured + between, key=lambda r: r["step"])
            place = folder / "training" / f"{variant}-seed{seed}"
            split_times(rows, place / "metrics.jsonl", place / "timings.jsonl")
    return folder


@pytest.fixture
def results(pristine, tmp_path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "results"))


@pytest.fixture(scope="module")
def made(pristine, tmp_path_factory) -> dict[str, str]:
    return write(pristine, tmp_path_factory.mktemp("made"))


def job(results: Path, stem: Path) -> Job:
    """The job of a table or figure over ``results`` that writes ``stem`` + an ending."""
    out = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in ("csv", "md", "tex", "png", "pdf")}
    return Job("test", "0" * 16, {"results": results}, out)


def make(stage, results: Path, stem: Path, settings=SETTINGS) -> dict[str, bytes]:
    """What a table or figure writes, by ending."""
    done = job(results, stem)
    if getattr(stage, "__name__", "").startswith("sheet_"):  # a table; some figures are partial functions
        stage(settings, results).write(done.out)
    else:
        stage(settings, done)
    return {path.suffix: path.read_bytes() for path in done.out.values() if path.exists()}


def write(results: Path, out: Path, settings=SETTINGS) -> dict[str, str]:
    written = make(sheet_main_table, results, out / "tables" / "main_results", settings)
    return {kind: text.decode() for kind, text in written.items()}


def lines_of(text: str) -> dict[tuple[str, str, str], dict[str, str]]:
    rows = list(csv.DictReader(text.splitlines()))
    assert all(None not in r and None not in r.values() for r in rows)  # no row is shorter or longer than the header
    found = {(r["method"], r["dataset"], r["decoding"]): r for r in rows}
    assert len(found) == len(rows)
    return found


def test_counts_means_and_seed_deviation(made):
    rows = lines_of(made[".csv"])
    cdpr = rows["cdpr", "mimic_iv", "greedy"]
    assert (cdpr["k"], cdpr["n"], cdpr["seeds"]) == ("24+32", "40", "2")
    assert float(cdpr["accuracy"]) == pytest.approx(0.7)
    assert float(cdpr["accuracy_seed_sd"]) == pytest.approx(np.std([0.6, 0.8], ddof=1), abs=1e-6)
    assert float(cdpr["aec"]) == 30.0 and float(cdpr["aec_low"]) == float(cdpr["aec_high"]) == 30.0
    assert float(cdpr["accuracy_low"]) < 0.7 < float(cdpr["accuracy_high"])
    warm = rows["warm_start", "private", "sampled"]
    assert (warm["k"], warm["accuracy_seed_sd"]) == ("4", "")
    # Wilson, 4 of 10
    assert (float(warm["accuracy_low"]), float(warm["accuracy_high"])) == pytest.approx((0.16818, 0.68733), abs=1e-5)
    assert "24+32 / 2×40" in made[".md"]


def test_average_is_unweighted(results, tmp_path):
    path = results / "evaluations/warm_start/private.jsonl"
    write_rows(path, [row(i, d, True, 6, 20.0) for d in ("greedy", "sampled") for i in range(10)])
    average = lines_of(write(results, tmp_path)[".csv"])["warm_start", "average", "greedy"]
    assert float(average["accuracy"]) == pytest.approx((0.4 + 0.4 + 1.0) / 3, abs=1e-6)
    assert float(average["aen"]) == pytest.approx(4.0)


def test_paper_figures_stand_apart(made):
    rows = lines_of(made[".csv"])
    assert rows["cdpr", "mimic_iv", "greedy"]["paper_acc"] == "53.07"
    absent = rows["GPT-5.4", "private", "greedy"]
    assert (absent["accuracy"], absent["paper_aec"]) == ("", "67.39")
    assert absent["status"] == "not run: costs money (models.gpt_5_4.enabled, OPENAI_API_KEY)"
    ours, printed = made[".md"].split("## As printed in the paper")
    assert "53.07" in printed and "53.07" not in ours
    assert "not comparable with the synthetic tier" in printed


def test_paper_facts_are_whole():
    printed = printed_rows("main_results.csv", "acc", "aen", "aec")
    numbers = {(row["method"], row["dataset"]): row for row in printed}
    rows = {row["method"] for row in printed}
    assert len(rows) == 18
    for row, name in itertools.product(rows, ("acc", "aen", "aec")):
        mean = np.mean([numbers[row, dataset][name] for dataset in CASES])
        assert numbers[row, "average"][name] == pytest.approx(mean, abs=0.0051)


def test_marks_are_among_learned_rows(made):
    table = made[".md"].split("## ")[1]
    line = {text.split(" |")[0].strip("| "): text for text in table.splitlines() if text.startswith("| ")}
    cells = {name: [c.strip() for c in text.strip("|").split("|")] for name, text in line.items()}
    # columns: method, seeds, Acc, AEN, AEC of MIMIC-IV
    assert cells["CDPR (ours)"][2:5] == ["**70.00**", "**2.00**", "<ins>30.00</ins>"]
    assert cells["Static diagnosis (whole record)"][2] == "**70.00**"  # a tie shares the mark
    assert cells["Utility-GRPO"][3:5] == ["**2.00**", "**20.00**"]
    assert cells["GRPO"][2] == "<ins>55.00</ins>"
    assert not any("**" in c or "<ins>" in c for c in cells["All-tests"] + cells["Zero-test"])
    column = Column("cost", "Cost", marked=2)
    rows = [{"cost": value, "learned": True} for value in (1.001, 1.004, None, 3.0, 4.0)]
    table = Table([column], [*rows, {"cost": 0.5}])  # the last row takes no part
    assert [table.cell(row, column).mark for row in table.rows] == ["best", "best", "", "second", "", ""]


def test_a_missing_evaluation_is_a_labelled_hole(results, tmp_path):
    whole = lines_of(write(results, tmp_path / "a")[".csv"])
    lost = "evaluations/cdpr-seed1/private.jsonl"
    (results / lost).unlink()
    holed = write(results, tmp_path / "b")
    rows = lines_of(holed[".csv"])
    assert rows.keys() == whole.keys()
    changed = {key for key in rows if rows[key] != whole[key]}
    assert changed == {("cdpr", d, c) for d in ("private", "average") for c in ("greedy", "sampled")}
    assert rows["cdpr", "private", "greedy"]["status"] == f"missing: {lost}"
    assert f"CDPR (ours), missing: {lost}" in holed[".md"] and "missing" in holed[".tex"]
    shutil.rmtree(results / "evaluations")
    assert "missing" in write(results, tmp_path / "c")[".md"]


def test_comparison_says_which_way_it_falls(made):
    part = made[".md"].split("## CDPR (ours) against GRPO, greedy")[1].split("## ")[0]
    assert "MIMIC-IV: CDPR (ours) against GRPO is better on AEN, AEC; open on Acc, Utility." in part  # two seeds
    assert "| MIMIC-IV | 40 | +15.00 [" in part and "4:0, 8:0" in part
    # exact McNemar, 4 to 0 and 8 to 0: 2/2^4 and 2/2^8
    assert "0.125, 0.008" in part


def test_refuses_what_does_not_belong_together(results, tmp_path):
    folder = results / "evaluations" / "grpo-seed0"
    for record, what in (
        ({"tier": "paper"}, "tier"),
        ({"tier": "demo", "parameters": {"utility": {"cost_unit_usd": 1.0}}}, "cost_unit_usd"),
    ):
        (folder / "mimic_iv.run.json").write_text(json.dumps(record))
        with pytest.raises(ProvenanceError, match=rf"grpo-seed0/mimic_iv\.jsonl.*{what}"):
            write(results, tmp_path)
    assert not (tmp_path / "tables").exists()
    stated = {"tier": "demo", "parameters": {"utility": SETTINGS.utility.model_dump()}}
    for run, digest in (("grpo-seed0", "aa"), ("cdpr-seed0", "bb")):
        record = stated | {"inputs": {"cases": {"path": "x", "sha256": digest}}}
        (results / "evaluations" / run / "mimic_iv.run.json").write_text(json.dumps(record))
    with pytest.raises(ProvenanceError, match="different cases of mimic_iv"):
        write(results, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"correct": 1}, r"warm_start/mimic_iv\.jsonl:2: field 'correct': Input should be a valid boolean"),
        ({"n_issued": 1.5}, "field 'n_issued': Input should be a valid integer"),
        ({"cost_usd": float("nan")}, "field 'cost_usd': Input should be a finite number"),
        ({"n_unavailable": 3}, "field 'n_na'"),
        ({"decoding": "beam"}, "field 'decoding'"),
        ({"note_id": "c000"}, r"jsonl:2: field 'note_id': 'c000' appears twice as greedy"),
        ({"gold": None}, "field 'gold': Input should be a valid string"),
    ],
)
def test_malformed_rows_name_file_line_and_field(tmp_path, change, message):
    rows = [row(0, "greedy", True, 1, 1.0), row(1, "greedy", True, 1, 1.0) | change]
    with pytest.raises(EvaluationError, match=message):
        read_evaluation(write_rows(tmp_path / "warm_start" / "mimic_iv.jsonl", rows))


def test_unfit_files_are_refused(tmp_path):
    incomplete = row(0, "greedy", True, 1, 1.0)
    del incomplete["forced"]
    with pytest.raises(EvaluationError, match=r"x\.jsonl:1: field 'forced': Field required"):
        read_evaluation(write_rows(tmp_path / "x.jsonl", [incomplete]))
    with pytest.raises(EvaluationError, match="holds no row"):
        read_evaluation(write_rows(tmp_path / "y.jsonl", []))
    uneven = [row(0, "greedy", True, 1, 1.0), row(1, "sampled", True, 1, 1.0)]
    with pytest.raises(EvaluationError, match="same cases"):
        read_evaluation(write_rows(tmp_path / "z.jsonl", uneven))
    paths = [write_rows(tmp_path / r / "d.jsonl", [row(i, "greedy", True, 1, 1.0)]) for i, r in enumerate("ab")]
    with pytest.raises(EvaluationError, match=r"not evaluated on the same cases \(case 'c000' only in one\)"):
        by_run(pd.concat([read_evaluation(path) for path in paths]), ["correct"])


def test_same_input_same_bytes(pristine, tmp_path):
    stems = [tmp_path / name / "figure" for name in ("one", "two")]
    tables = [write(pristine, stem.parent) for stem in stems]
    assert tables[0] == tables[1]
    for place, plot in enumerate(PLOTS):
        first, second = (make(plot, pristine, stem.with_name(f"plot{place}")) for stem in stems)
        assert first == second
        assert first[".png"].startswith(b"\x89PNG") and first[".pdf"].startswith(b"%PDF")
        assert b"CreationDate" not in first[".pdf"] and b"/FontFile2" in first[".pdf"]
        assert ink(first[".png"]) > 0.01


def test_every_legend_is_within_its_figure(results, tmp_path, monkeypatch):
    """Of all agents that the demo can run, as of a few."""
    for run in {run for method in list_methods(SETTINGS, "accuracy_cost") for run in method.runs} - RUNS.keys():
        shutil.copytree(results / "evaluations" / "grpo-seed0", results / "evaluations" / run)
    figures, save = [], style.save
    monkeypatch.setattr(style, "save", lambda figure, out: (figures.append(figure), save(figure, out)))
    for place, plot in enumerate(PLOTS):
        make(plot, results, tmp_path / f"plot{place}")
    legends = [(figure, legend) for figure in figures
               for legend in (*figure.legends, *(panel.get_legend() for panel in figure.axes)) if legend]  # fmt: skip
    assert len(legends) >= len(PLOTS) - 1  # the first picture has names instead
    for figure, legend in legends:
        box = legend.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1


@pytest.mark.parametrize(("alike", "seed"), [(True, 0), (False, 0), (False, 3)])
def test_each_of_six_agents_has_its_name_beside_its_point(results, tmp_path, monkeypatch, alike, seed):
    """No name lies on another, on a point, or beyond its panel, also where all points coincide."""
    rng = np.random.default_rng(seed)
    for dataset, cases in CASES.items():
        for run in sorted(run for m in list_methods(SETTINGS, "accuracy_cost") for run in m.runs):
            right, tests, price = (5, 3, 10.0) if alike else (*map(int, rng.integers(2, 9, 2)), 10.0)
            rows = [row(i, d, i % 10 < right, tests, price) for d in ("greedy", "sampled") for i in range(cases)]
            write_rows(results / "evaluations" / run / f"{dataset}.jsonl", rows)
    figures, save = [], style.save
    monkeypatch.setattr(style, "save", lambda figure, out: (figures.append(figure), save(figure, out)))
    first, again = (make(plot_accuracy_cost, results, tmp_path / "f") for _ in range(2))
    assert first == again
    labels = {
        f"{m.label} (reference: knows the hospital)" if m.knows_hospital else m.label
        for m in list_methods(SETTINGS, "accuracy_cost")
    }
    figure, _ = figures
    figure.draw_without_rendering()  # at the figure's resolution, not at that of the file that was saved last
    (panel,) = figure.axes
    assert "synthetic, in MIMIC-IV's format" in panel.get_title() and "higher is better" in panel.get_ylabel()
    names = [text for text in panel.texts if text.get_text() in labels]
    assert len(names) == len(labels) == len(list_methods(SETTINGS, "accuracy_cost")) >= 6
    boxes = [Text.get_window_extent(text) for text in names]  # without the line to the point
    points = [panel.transData.transform(c.lines[0].get_xydata()[0]) for c in panel.containers]
    assert len(points) == len(names)
    segments = [bar.get_segments()[0] for c in panel.containers for bar in c.lines[2]]
    bars = [Bbox(panel.transData.transform(segment)).padded(0.5) for segment in segments]
    assert sum(box.count_overlaps(bars) for box in boxes) <= 5  # 13 to 35 where bars do not count
    whole = panel.get_window_extent()
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:place])
        assert not any(box.contains(*point) for point in points)
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1


def ink(png: bytes) -> float:
    """Share of pixels that are not white."""
    import io

    from matplotlib.image import imread

    return float((imread(io.BytesIO(png))[..., :3] < 0.9).any(axis=2).mean())


def test_figures_without_results_say_so(tmp_path):
    curves = read_curves(tmp_path, variant_method(SETTINGS, "cdpr"), ["accuracy"])
    assert curves.missing == ("training/cdpr-seed0/metrics.jsonl", "training/cdpr-seed1/metrics.jsonl")
    for plot in PLOTS[1:]:
        drawn = make(plot, tmp_path, tmp_path / "f")
        assert drawn.keys() == {".png", ".pdf"} and all(len(content) > 1000 for content in drawn.values())


def test_efficiency_is_compared_over_the_same_seeds(results):
    """`without_cache` is trained with two seeds: of CDPR, which has three, the third is left out."""
    three = parse_settings(SETTINGS.model_dump() | {"seeds": [0, 1, 2]})
    for run in ("cdpr-seed2", "without_cache-seed0", "without_cache-seed1", "grpo-seed2"):
        shutil.copytree(results / "training/cdpr-seed0", results / "training" / run)
    curves = {curve.method.name: curve for curve in read_figure_curves(three, results, "training_efficiency")}
    assert curves["cdpr"].runs == ("cdpr-seed0", "cdpr-seed1") and len(curves["cdpr"].values["tokens"]) == 2
    assert curves["without_cache"].method.runs == ("without_cache-seed0", "without_cache-seed1")
    assert {len(curve.method.runs) for curve in curves.values()} == {2}


def test_curves_share_steps_and_never_extrapolate(results):
    path = results / "training/cdpr-seed1/metrics.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"step": 20' not in line))
    curves = read_curves(results, variant_method(SETTINGS, "cdpr"), ["accuracy"])
    assert curves.mean("step").tolist() == [0, 10]
    assert curves.mean("seconds").tolist() == [0, 30]  # mean of 20 and 40
    assert curves.mean("accuracy") == pytest.approx([0.11, 0.41])
    low, high = curves.band("accuracy")
    assert low == pytest.approx([0.1, 0.4]) and high == pytest.approx([0.12, 0.42])
    with path.open("a") as out:
        out.write('{"step": 30, "seconds": 1, "tokens": 2, "validation/accuracy": null}\n')
    with pytest.raises(TableError, match=r"metrics\.jsonl:4: field 'validation/accuracy'"):
        read_curves(results, variant_method(SETTINGS, "cdpr"), ["accuracy"])


def break_off(results: Path, run: str, step: int) -> None:
    """The run diverges at this step: what comes after is not there, and a last line says so."""
    path = results / "training" / run / "metrics.jsonl"
    kept = [line for line in path.read_text().splitlines(True) if json.loads(line)["step"] < step]
    mark = {"step": step, "seconds": 9.0, "tokens": 9, "diverged": True}
    path.write_text("".join(kept) + json.dumps(mark) + "\n")


def test_a_diverged_seed_ends_only_itself(results):
    whole = read_curves(results, variant_method(SETTINGS, "cdpr"), ["accuracy"])
    assert [piece.mean("step").tolist() for piece in whole.split_where_seeds_end()] == [[0, 10, 20]]
    assert whole.divergence_points("step", "accuracy").tolist() == []
    break_off(results, "cdpr-seed1", 13)
    curves = read_curves(results, variant_method(SETTINGS, "cdpr"), ["accuracy"])
    assert curves.mean("step").tolist() == [0, 10, 20] and curves.diverged == {"cdpr-seed1": 13}
    assert np.isnan(curves.values["step"]).tolist() == [[False] * 3, [False, False, True]]
    assert curves.mean("accuracy") == pytest.approx([0.11, 0.41, 0.7])
    assert curves.mean("seconds").tolist() == [0, 30, 40]  # 40 is seed 0 alone
    assert curves.band("accuracy")[1] == pytest.approx([0.12, 0.42, 0.7])
    # Each piece is of the same seeds all along, and goes forward on every axis.
    pieces = list(curves.split_where_seeds_end())
    assert [p.mean("seconds").tolist() for p in pieces] == [[0, 30], [20, 40]]
    assert [len(p.values["accuracy"]) for p in pieces] == [2, 1]
    assert pieces[1].mean("accuracy") == pytest.approx([0.4, 0.7])
    assert curves.divergence_points("seconds", "accuracy").tolist() == [[40.0, pytest.approx(0.42)]]
    # A run that goes on still shortens the curve, a diverged one beside it does not.
    path = results / "training/cdpr-seed0/metrics.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"step": 20' not in line))
    assert read_curves(results, variant_method(SETTINGS, "cdpr"), ["accuracy"]).mean("step").tolist() == [0, 10]
    break_off(results, "cdpr-seed0", 4)  # all diverged: up to the longest
    both = read_curves(results, variant_method(SETTINGS, "cdpr"), ["accuracy"])
    assert both.mean("step").tolist() == [0, 10] and both.mean("accuracy")[1] == pytest.approx(0.42)
    break_off(results, "cdpr-seed1", 0)  # before its first validation: diverged, not missing
    none = read_curves(results, variant_method(SETTINGS, "cdpr"), ["accuracy"])
    assert (none.runs, none.missing, none.diverged) == (("cdpr-seed0",), (), {"cdpr-seed0": 4, "cdpr-seed1": 0})


@pytest.mark.filterwarnings("error")
def test_figures_and_tables_show_which_runs_diverged(results, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, stem: drawn.append(figure) or [])
    for plot in PLOTS:
        plot(SETTINGS, job(results, tmp_path / "f"))
    assert not any("diverged" in text.get_text() for figure in drawn for text in figure.texts)
    drawn.clear()
    break_off(results, "cdpr-seed1", 13)
    for plot in PLOTS:
        plot(SETTINGS, job(results, tmp_path / "f"))
    for figure in drawn:
        assert "cdpr-seed1 at step 13" in figure.texts[1].get_text()
    of_time, of_tokens, learning = (figure.axes[0] for figure in drawn[:3])
    ends = [line.get_xydata().tolist() for axes in (of_time, of_tokens, learning) for line in axes.lines
            if line.get_marker() == "x"]  # fmt: skip
    assert ends == [[[x, pytest.approx(42)]] for x in (40 / 60, 0.001, 10.0)]  # minutes, millions, steps
    healthy = [line.get_xdata().tolist() for line in learning.lines if line.get_label() == "_CDPR (ours)"]
    assert healthy == [[0, 10], [10, 20]]
    written = {kind: text.decode() for kind, text in make(in_domain.sheet_comparators, results, tmp_path / "t").items()}
    row = next(r for r in csv.DictReader(written[".csv"].splitlines()) if r["variant"] == "cdpr")
    assert row["status"] == "measured; cdpr-seed1 diverged at step 13"
    assert float(row["tokens"]) == pytest.approx(0.0015, abs=1e-6)  # seed 1 up to its last validation


def test_the_legend_says_why_a_line_is_missing(results, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, stem: drawn.append(figure))
    break_off(results, "cdpr-seed0", 0)
    break_off(results, "cdpr-seed1", 0)
    (results / "training/grpo-seed0/metrics.jsonl").unlink()
    (results / "training/utility_grpo-seed0/metrics.jsonl").unlink()
    (results / "training/utility_grpo-seed1/metrics.jsonl").unlink()
    plot_learning_curves(SETTINGS, job(results, tmp_path / "f"))
    labels = {text.get_text() for text in drawn[0].legends[0].get_texts()}
    assert {"CDPR (ours) (diverged)", "GRPO (1/2 seeds)", "Utility-GRPO (missing)"} <= labels


@pytest.mark.parametrize("last", ['{"step": 21, "diverged', '{"step": 21, "dive', '{"seconds": 1, "diverged": true}'])
def test_a_cut_last_line_is_named(results, last):
    path = results / "training/cdpr-seed1/metrics.jsonl"
    number = len(path.read_text().splitlines()) + 1
    with path.open("a") as out:
        out.write(last)
    with pytest.raises(TableError, match=rf"cdpr-seed1/metrics\.jsonl:{number}: "):
        diverged_at(results, "cdpr-seed1")


@pytest.mark.parametrize(
    ("of", "record"),
    [("cdpr-seed1", {"tier": "paper"}), ("grpo-seed0", {"inputs": {"cases": {"sha256": "other"}}})],
)
def test_training_of_another_tier_or_on_other_cases_is_no_line_beside(results, tmp_path, of, record):
    own = {"tier": "demo", "inputs": {"cases": {"sha256": "same"}}}
    for run in ("cdpr-seed0", "cdpr-seed1", "grpo-seed0"):
        (results / "training" / run / "run.json").write_text(json.dumps(own | (record if run == of else {})))
    for stage in (*PLOTS[:2], in_domain.sheet_comparators):
        with pytest.raises(ProvenanceError, match=of):
            make(stage, results, tmp_path / "f")
    assert not list(tmp_path.glob("f*"))


def test_comparators_stand_side_by_side_with_what_their_training_cost(results, tmp_path):
    written = {kind: text.decode() for kind, text in make(in_domain.sheet_comparators, results, tmp_path / "t").items()}
    rows = list(csv.DictReader(written[".csv"].splitlines()))
    assert [r["method"] for r in rows[:2]] == ["Warm-started tiny policy", "GRPO"]
    greedy, sampled = ([r["method"] for r in rows if r["decoding"] == way] for way in ("greedy", "sampled"))
    assert greedy == sampled and len({*greedy}) == len(greedy) == len(rows) / 2
    cdpr = next(r for r in rows if r["method"] == "CDPR (ours)" and r["decoding"] == "greedy")
    assert float(cdpr["accuracy"]) == 70 and float(cdpr["aec"]) == 30
    assert float(cdpr["accuracy_low"]) < 70 < float(cdpr["accuracy_high"])
    assert float(cdpr["tokens"]) == pytest.approx(0.002, abs=1e-6) and "minutes" not in cdpr
    assert "missing: evaluations/vineppo-seed0/mimic_iv.jsonl" in written[".md"]
    assert "**70.00" in written[".md"] and "synthetic hospital" in written[".md"]


def test_accuracy_at_matched_cost_lies_between_two_points_of_a_rule():
    curve = np.array([[[0.2, 0.0], [0.8, 40.0], [0.6, 20.0]]] * 4)  # points in any order
    assert accuracy_at(curve, np.array([10.0, 20.0, 30.0, 99.0])).tolist() == pytest.approx([0.4, 0.6, 0.7, 0.8])
    assert area(curve)[0] == pytest.approx(0.75)  # half the way from 0.6 to 0.8, half at 0.8


def test_rules_are_compared_at_the_cost_of_cdpr_and_at_half_that_of_grpo(results, tmp_path):
    fed = {name: {"feeds": ["frontier"]} for name in ("grpo", "utility_grpo", "cdpr")}
    settings = parse_settings(SETTINGS.model_dump() | {"experiments": merge(
        SETTINGS.experiments.model_dump(), {"variants": fed})})  # fmt: skip
    for dataset, count in CASES.items():
        write_rows(results / "evaluations" / "immediate" / f"{dataset}.jsonl",
                   [row(i, d, i % 10 < 2, 0, 0.0) for d in ("greedy", "sampled") for i in range(count)])  # fmt: skip
    made = make(accuracy_cost.sheet_frontier, results, tmp_path / "t", settings)
    written = {kind: text.decode() for kind, text in made.items()}
    rows = [r for r in csv.DictReader(written[".csv"].splitlines()) if r["decoding"] == "greedy" and r["matched"]]
    at = {r["rule"]: {k: float(r[k] or "nan") for k in r if k.startswith(("matched", "over", "half"))}
          for r in rows if r["dataset"] == "mimic_iv"}  # fmt: skip
    # CDPR is right in 70% for 30 USD, GRPO in 55% for 80, utility-GRPO in 50% for 20; at once 20%.
    assert at["CDPR (ours)"]["matched"] == pytest.approx(0.7) and at["CDPR (ours)"]["over_cdpr"] == 0
    assert at["GRPO"]["matched"] == pytest.approx(0.2 + 0.35 * 30 / 80)
    assert at["Utility-GRPO"]["matched"] == pytest.approx(0.5)  # what is left over buys nothing
    assert at["CDPR (ours)"]["over_grpo"] == pytest.approx(0.15) and at["CDPR (ours)"]["half"] == pytest.approx(0.7)
    low, high = at["CDPR (ours)"]["over_grpo_low"], at["CDPR (ours)"]["over_grpo_high"]
    assert low < 0.15 < high
    (results / "evaluations" / "grpo-seed1" / "private.jsonl").unlink()
    assert "missing: evaluations/grpo-seed1/private.jsonl" in make(
        accuracy_cost.sheet_frontier, results, tmp_path / "v", settings)[".md"].decode()  # fmt: skip
    assert make(plot_frontier, results, tmp_path / "w", settings)[".png"]


def test_looks_differ_without_colour():
    entries = (*SETTINGS.experiments.variants.values(), *SETTINGS.agents.values())
    looks = [entry.look for entry in entries if entry.look]
    assert len({look.marker for look in looks}) == len(looks)
    for where in ("learning_curves", "training_efficiency"):
        drawn = [style.look_of(SETTINGS, name) for name in labels_of(SETTINGS, where)]
        assert len({look.line for look in drawn}) == len(drawn)


def test_an_agent_of_the_registry_is_a_row_without_more_ado(results, tmp_path):
    agents = SETTINGS.model_dump()["agents"] | {"mine": {"label": "My model", "group": "open", "model": "models/mine"}}
    settings = parse_settings(SETTINGS.model_dump() | {"agents": agents})
    (added,) = set(main_methods(settings)) - set(main_methods(SETTINGS))
    assert (added.name, added.label, added.runs, added.learned) == ("mine", "My model", ("mine",), True)
    lost = lines_of(write(results, tmp_path, settings)[".csv"])["mine", "mimic_iv", "greedy"]
    assert lost["status"] == "missing: evaluations/mine/mimic_iv.jsonl"
    shutil.copytree(results / "evaluations/warm_start", results / "evaluations/mine")
    whole = lines_of(write(results, tmp_path, settings)[".csv"])
    for place in (*CASES, "average"):
        mine, same = (whole[name, place, "sampled"] for name in ("mine", "warm_start"))
        assert mine["accuracy"] == same["accuracy"] != "" and mine["status"] == "measured"
    order = [method.name for method in main_methods(settings)]
    assert order.index("Baichuan-M1-32B") < order.index("mine") < order.index("MedAgent")
    assert order.index("utility_grpo") < order.index("DiagAgent-14B") < order.index("cdpr") < order.index("zero_test")


def test_a_verdict_on_a_policy_with_one_decoding_is_counted_once(tmp_path):
    judged = row(0, "greedy", True, 2, 1.0) | {"judging": {"by": "table"}}
    write_rows(tmp_path / "evaluations" / "value_of_information" / "mimic_iv.jsonl", [judged])
    settings = parse_settings({"judge": {"model": "gpt_5_4"}})
    assert len(settings.evaluation.decodings) == 2
    (method,) = (method for method in main_methods(settings) if method.name == "value_of_information")
    (note,) = Results(settings, tmp_path, [method]).judging_notes()
    assert note.startswith("Verdicts on 1 diagnoses: 100.0% by tables of names")


def test_a_fourth_benchmark_is_no_part_of_the_average(results, tmp_path, monkeypatch):
    before = lines_of(write(results, tmp_path / "a")[".csv"])
    monkeypatch.setitem(methods.DATASETS, "agentclinic", "AgentClinic")
    monkeypatch.setattr(methods.datasets, "FURTHER", ())
    for run in RUNS:
        rows = [row(i, decoding, True, 9, 50.0) for decoding in ("greedy", "sampled") for i in range(8)]
        write_rows(results / "evaluations" / run / "agentclinic.jsonl", rows)
    made = write(results, tmp_path / "b")
    after = lines_of(made[".csv"])
    assert after["cdpr", "agentclinic", "greedy"]["k"] == "8+8"
    assert {place for _, place, _ in after.keys() - before.keys()} == {"agentclinic"}
    assert {key: after[key] for key in before} == before
    assert "AgentClinic (OOD) Acc." in made[".md"] and "No part of the average: AgentClinic." in made[".md"]
    assert make(plot_accuracy_cost, results, tmp_path / "f")


def test_every_measured_cell_names_its_runs(pristine):
    tables = sheet_main_table(SETTINGS, pristine).tables
    for table in tables:
        for line in (line for line in table.rows if not line.get("reason")):
            runs = {column.key: table.cell(line, column).runs for column in table.columns}
            assert "printed in the paper" not in table.heading or not any(runs.values())
            assert not any(runs.get(key) for key in ("method", "label", "seeds", "dataset", "cases"))
    wide = tables[0]
    cdpr = next(line for line in wide.rows if line["label"] == "CDPR (ours)")
    of = {column.key: wide.cell(cdpr, column).runs for column in wide.columns}
    assert of["private.aec"] == (("cdpr-seed0", "private"), ("cdpr-seed1", "private"))
    assert set(of["average.utility"]) == {(f"cdpr-seed{seed}", d) for d in CASES for seed in (0, 1)}
    paired = next(table for table in tables if table.heading.startswith("CDPR (ours) against GRPO"))
    change = paired.cell(paired.rows[1], paired.columns[2])
    assert change.runs == tuple((f"{name}-seed{seed}", "clinicalbench") for name in ("cdpr", "grpo") for seed in (0, 1))


def test_latex_is_sound(made, tmp_path):
    tables = re.findall(r"\\begin\{tabular\}\{([lcr]+)\}\n(.*?)\\end\{tabular\}", made[".tex"], re.DOTALL)
    assert len(tables) == 9  # per decoding: layout, two comparisons, intervals; and the paper's
    for columns, body in tables:
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert rows
        for line in rows:
            spans = [int(width) for width in re.findall(r"\\multicolumn\{(\d+)\}", line)]
            assert len(re.findall(r"(?<!\\)&", line)) + 1 + sum(spans) - len(spans) == len(columns), line
    assert made[".tex"].isascii()
    assert made[".tex"].count("{") == made[".tex"].count("}")
    assert len(set(re.findall(r"\\label\{(.*?)\}", made[".tex"]))) == 9
    compile_latex(made[".tex"], tmp_path)


def test_a_number_is_printed_with_two_decimals_unless_another_count_is_given():
    assert [number(2.345), number(-0.001), number(2.345, None), number(2.346, 1, True)] == [
        "2.35",
        "0.00",
        "2.345",
        "+2.3",
    ]
    assert interval(1.0, 0.5, 2) == "1.00 [0.50, 2.00]" and number(0.0, 1, True) == "0.0"


def test_table_forms_agree():
    columns = [Column("a", "A", align="l"), Column("b", "B|", "G", 1, signed=True), Column("c", "C", "G")]
    rows = [{"a": "x_y", "b": 1.26, "b_mark": "best"}, {"a": "gone", "reason": "missing: f", "d": 1}]
    table = Table(columns, rows)
    assert to_csv(rows, ["a", "b", "c"], 1) == "a,b,c\nx_y,1.3,\ngone,,\n"
    assert to_markdown(table).splitlines()[2:] == ["| x_y | **+1.3** | — |", "| gone — *missing: f* | — | — |"]
    assert r"x\_y & \textbf{+1.3} & ---" in to_latex(table)
    assert r"gone & \multicolumn{2}{l}{\textit{missing: f}} \\" in to_latex(table)
    header = to_latex(table).partition(r"\toprule")[2].splitlines()[1:3]
    assert header == [r" & \multicolumn{2}{c}{\textbf{G}} \\", r"\cmidrule(lr){2-3}"]  # below both columns of G


def test_only_the_declared_settings_are_read(pristine, tmp_path):
    read = [
        "agents",
        "models",
        "judge",
        "matcher",
        "serving",
        "experiments",
        "tier",
        "seeds",
        "evaluation",
        "data",
        "costs",
        "training",
        "credit",
        "utility",
        "policy",
        "environment",
    ]
    assert write(pristine, tmp_path, restrict(SETTINGS, read)) == write(pristine, tmp_path / "b")


def test_a_metric_of_a_field_that_no_row_has_is_refused():
    with pytest.raises(TypeError, match="metric repeats: give a `field` of EvaluationRow"):
        metrics_by_name(Metric("repeats", "repetitions", "Repeats"))
    with pytest.raises(TypeError, match=r"metric repeats: .* where `main`, `short` and `about`"):
        metrics_by_name(Metric("repeats", "n_repeated", "Repeats", "Rep.", main=True))


@pytest.mark.parametrize("compared", [True, False])
def test_a_metric_is_one_entry(pristine, tmp_path, monkeypatch, compared):
    """Rows hold its field; columns of every place, caption, differences, LaTeX and the long form follow."""
    entry = Metric(
        "repeats", "n_repeated", "Repeats", "Rep.", about="requests made again", main=True, compared=compared
    )
    monkeypatch.setitem(METRICS, entry.name, entry)
    table = importlib.reload(main_table)
    try:
        out = {form: tmp_path / f"t.{form}" for form in ("csv", "md", "tex")}
        table.sheet_main_table(SETTINGS, pristine).write(out)
        text, tex, csv_text = (out[form].read_text() for form in ("md", "tex", "csv"))
    finally:
        monkeypatch.undo()
        importlib.reload(main_table)
    assert "Rep.: requests made again" in text and ("Δ Rep. [95%]" in text) == compared
    assert not compared or "| Rep. [95%]" in text
    assert tex.count("Rep.") >= 4 and "repeats_low" in csv_text.splitlines()[0]
    lines = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    at = [k for k, header in enumerate(lines[0]) if "Rep." in header]
    (row,) = [line for line in lines[:30] if line[1].strip() == "Warm-started tiny policy"][:1]
    assert [row[k].strip(" *") for k in at] == ["0.00"] * 4, "three data sets and the average"


def test_many_notes_make_a_figure_taller(tmp_path):
    out = {kind: tmp_path / f"f.{kind}" for kind in ("png", "pdf")}
    heights = []
    for count in (2, 60):
        with style.drawing(4, 2.5, out) as figure:
            panels = figure.subplots(1, 2)
            panels[0].set_title("title")
            style.write_notes(figure, SETTINGS, [f"note {number}" for number in range(count)])
        heights.append(figure.get_figheight())
    assert heights[0] == 2.5 and heights[1] > 60 * 0.125


def test_a_variant_without_its_row_in_the_main_table_takes_its_comparison_with_it(results, tmp_path):
    keys = SETTINGS.model_dump(mode="json")
    keys["experiments"]["variants"]["utility_grpo"]["feeds"] = []
    settings = parse_settings(keys)
    text = make(sheet_main_table, results, tmp_path / "t", settings)[".md"].decode()
    assert "CDPR (ours) against GRPO" in text and "against Utility-GRPO" not in text


def test_several_runs_without_seeds_are_no_pairs():
    assert pair_runs(["a-seed0", "a-seed1"], ["b-seed1", "b-seed2"]) == [("a-seed1", "b-seed1")]
    assert pair_runs(["random"], ["a-seed0", "a-seed1"]) == [("random", "a-seed0"), ("random", "a-seed1")]
    with pytest.raises(ValueError, match="one, two, three, four"):
        pair_runs(["one", "two"], ["three", "four"])
