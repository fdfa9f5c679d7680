"""The two frames of the results, from small evaluation files written in test_report.py."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from test_report import SETTINGS, job, lines_of, pristine, write, write_rows  # noqa: F401

from cdpr.pipeline.stages import STAGES
from cdpr.report.results import write_frames

PAGE = Path(__file__).parents[2] / "docs/reference/frames.md"


def frames(results: Path, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    done = job(results, folder / "f")
    done.out |= {name: folder / f"{name}.parquet" for name in ("evaluations", "trainings")}
    write_frames(STAGES["write_frames"].view(SETTINGS, {}), done)  # which sees declared settings alone
    return tuple(pd.read_parquet(done.out[name]) for name in ("evaluations", "trainings"))


@pytest.fixture(scope="module")
def both(pristine, tmp_path_factory):  # noqa: F811
    return frames(pristine, tmp_path_factory.mktemp("frames"))


def test_a_group_of_rows_has_the_numbers_of_table_1(both, pristine, tmp_path):  # noqa: F811
    evaluations, _ = both
    by_seed = evaluations.groupby(["method", "dataset", "decoding", "run"])[
        ["correct", "n_issued", "cost_usd", "utility"]
    ]
    means = by_seed.mean().groupby(["method", "dataset", "decoding"]).mean()
    table = {key: row for key, row in lines_of(write(pristine, tmp_path)[".csv"]).items()
             if row["accuracy"] and key[1] != "average"}  # fmt: skip
    assert len(table) > 30 and set(table) == set(means.index)
    for key, row in table.items():
        printed = [float(row[name]) for name in ("accuracy", "aen", "aec", "utility")]
        assert means.loc[key].tolist() == pytest.approx(printed, abs=1e-6)
    assert evaluations.groupby("method").seed.nunique()[["cdpr", "warm_start"]].tolist() == [2, 0]


def test_the_utility_is_the_sum_of_its_parts(both):
    at, weights = both[0], SETTINGS.utility
    parts = -weights.lambda_cost * at.cost_usd / weights.cost_unit_usd
    assert at.utility_cost.tolist() == pytest.approx(parts.tolist()) and (at.utility_cost < 0).any()
    assert (at.utility_tests.tolist()) == pytest.approx((-weights.lambda_test * at.n_tests).tolist())
    whole = at.correct + at.utility_tests + at.utility_cost + at.utility_n_na
    assert whole.tolist() == pytest.approx(at.utility.tolist(), abs=1e-9)


def test_the_page_documents_every_column(both):
    shared, evaluations, trainings = (
        set(re.findall(r"`([\w/*]+)`", " ".join(row.split("|")[1] for row in part.splitlines() if row.startswith("|"))))
        for part in re.split(r"\n## ", PAGE.read_text())[1:]
    )
    optional = {name for name in evaluations if name.startswith("judging_")}
    assert shared | evaluations - optional == set(both[0].columns)
    groups = {re.sub(r"/.*", "/*", name) for name in both[1].columns}
    assert groups <= shared | trainings and {"step", "tokens", "validation/*"} <= groups


def test_no_word_of_a_case_is_in_a_frame_and_the_bytes_repeat(both, pristine, tmp_path):  # noqa: F811
    """Rows hold the diagnoses `a` and `b0`; a frame has no column of them, of replies or of examinations."""
    assert not {"diagnosis", "gold", "replies", "obtained", "models"} & set(both[0].columns)
    texts = {value for name in both[0].columns if both[0][name].dtype == "str" for value in both[0][name].unique()}
    assert not {"a", "b0"} & texts
    for name in ("one", "two"):
        frames(pristine, tmp_path / name)
    for name in ("evaluations", "trainings"):
        one, two = ((tmp_path / of / f"{name}.parquet").read_bytes() for of in ("one", "two"))
        assert one == two


def test_what_is_missing_leaves_the_rest_and_a_broken_file_none(pristine, tmp_path):  # noqa: F811
    nothing, none = frames(tmp_path / "nowhere", tmp_path / "a")
    assert len(nothing) == len(none) == 0
    write_rows(tmp_path / "b/evaluations/warm_start/mimic_iv.jsonl", [{"note_id": "x"}])
    with pytest.raises(ValueError, match=r"warm_start/mimic_iv\.jsonl:1: field"):
        frames(tmp_path / "b", tmp_path / "c")
    assert not (tmp_path / "c").exists()
