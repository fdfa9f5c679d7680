"""The figure that holds the two engines against each other."""

import csv
import json

import numpy as np
import pytest
from scipy.stats import t

from cdpr.job import Job
from cdpr.report.learning_curves import plot_engines, twins
from cdpr.settings import load_settings, merge, parse_settings

SETTINGS = load_settings("config.yaml")


def write(results, run: str, accuracy: list[float]) -> None:
    path = results / "training" / run / "metrics.jsonl"
    path.parent.mkdir(parents=True)
    named = [{f"validation/{m}": value for m in ("accuracy", "aen", "aec", "n_na", "utility")} for value in accuracy]
    rows = [{"step": 10 * k, "seconds": 1.0 * k, "tokens": k, **row} for k, row in enumerate(named)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def plot(results) -> dict:
    out = {kind: results / f"engines.{kind}" for kind in ("png", "pdf", "csv")}
    plot_engines(SETTINGS, Job("plot_engines", "0" * 16, {"results": results}, out))
    return {path.suffix: path for path in out.values()}


def test_every_variant_of_verl_has_its_twin():
    assert twins(SETTINGS) == {"grpo_verl": "grpo", "cdpr_verl": "cdpr"}
    other = merge(SETTINGS.model_dump(), {"experiments": {"variants": {"grpo_verl": {"change": {
        "training.algorithm": "grpo", "training.engine": "verl", "training.steps": 7}}}}})  # fmt: skip
    assert twins(parse_settings(other)) == {"cdpr_verl": "cdpr"}, "of other settings, hence no twin"


def test_levels_are_held_against_further_seeds(tmp_path):
    for seed, level in enumerate((0.50, 0.52, 0.54)):
        write(tmp_path, f"cdpr-seed{seed}", [0.1, level, level])
        write(tmp_path, f"grpo-seed{seed}", [0.1, level, level])
    write(tmp_path, "cdpr_verl-seed0", [0.9, 0.55, 0.57])  # the validation before training does not count
    write(tmp_path, "grpo_verl-seed0", [0.1, 0.7, 0.7])
    paths = plot(tmp_path)
    assert paths[".png"].stat().st_size > 10_000 and paths[".pdf"].exists()
    rows = {(r["variant"], r["metric"]): r for r in csv.DictReader(paths[".csv"].open())}
    assert len(rows) == 10
    row, half = rows["cdpr_verl", "accuracy"], t.ppf(0.975, 2) * 0.02 * np.sqrt(1 + 1 / 3)
    assert (float(row["verl"]), float(row["torch"])) == (pytest.approx(0.56), pytest.approx(0.52))
    assert float(row["low"]) == pytest.approx(0.52 - half, abs=1e-5)
    assert float(row["high"]) == pytest.approx(0.52 + half, abs=1e-5)
    assert float(row["same_seeds"]) == pytest.approx(0.06) and row["within"] == "yes"
    assert rows["grpo_verl", "accuracy"]["within"] == "no"


def test_an_engine_that_has_not_run_is_no_agreement(tmp_path):
    for seed in range(3):
        write(tmp_path, f"cdpr-seed{seed}", [0.1, 0.5])
    paths = plot(tmp_path)
    assert paths[".csv"].read_text().count("\n") == 1
