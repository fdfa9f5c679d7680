"""The cost of computing from small records written here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdpr.job import Job
from cdpr.records import RunRecord
from cdpr.report.timings import write_timings
from cdpr.settings import parse_settings


def record(results: Path, stage: str, job: str, seconds: float, memory_mb: float, cpu_seconds: float) -> None:
    path = results / stage / job / "run.json"
    path.parent.mkdir(parents=True)
    done = RunRecord(stage=stage, options={"run": job} if job else {}, wall_seconds=seconds, cpu_seconds=cpu_seconds,
                     peak_memory_mb=memory_mb)  # fmt: skip
    path.write_text(done.model_dump_json())


def write(folder: Path) -> tuple[dict, str]:
    out = {"md": folder / "t.md", "json": folder / "t.json"}
    write_timings(parse_settings({}), Job("timings", "0" * 16, {"results": folder}, out))
    return json.loads((folder / "t.json").read_text()), (folder / "t.md").read_text()


def test_stages_sum_up_their_jobs(tmp_path):
    record(tmp_path, "train_policy", "cdpr-seed0", 100.0, 900.0, 1800.0)
    record(tmp_path, "train_policy", "grpo-seed0", 50.0, 1200.5, 1800.0)
    record(tmp_path, "train_policy", "grpo-seed1", 60.0, 10.0, 1.0)
    record(tmp_path, "write_main_table", "", 0.5, 80.0, 0.36)
    numbers, page = write(tmp_path)
    train, table = numbers["stages"]
    assert (train["stage"], train["jobs"]) == ("train_policy", 3)
    assert (train["seconds"], train["median_seconds"]) == (210.0, 60.0)
    assert (train["memory_mb"], train["cpu_hours"]) == (1200.5, pytest.approx(3601 / 3600, abs=1e-6))
    assert (table["memory_mb"], table["cpu_hours"]) == (80.0, 0.0001)
    assert numbers["seconds"] == 210.5 and train["share"] + table["share"] == pytest.approx(1, abs=1e-5)
    assert [job["job"] for job in numbers["slowest"]][:2] == ["train_policy/cdpr-seed0", "train_policy/grpo-seed1"]
    assert "| write_main_table | 1 | 0.5 | 0.5 | 0.000 | 80 | 0.2 |" in page and "4 jobs took 0:03:30 h" in page
    assert "cannot be used" not in page


def test_malformed_records_are_named_and_left_out(tmp_path):
    record(tmp_path, "good", "", 1.0, 1.0, 1.0)
    for name, content in {"empty": b"", "text": b"soon", "bytes": b"\xff\xfe", "cut": b'{"stage":',
                          "a|b": b'{"wall_seconds": "soon"}'}.items():  # fmt: skip
        (tmp_path / f"{name}.run.json").write_bytes(content)
    numbers, page = write(tmp_path)
    assert numbers["jobs"] == 1 and numbers["seconds"] == 1.0
    assert [Path(text.partition(".run.json")[0]).name for text in numbers["unusable"]] == [
        "a|b", "bytes", "cut", "empty", "text",
    ]  # fmt: skip
    assert "wall_seconds" in page


def test_nothing_yet_says_so(tmp_path):
    numbers, page = write(tmp_path)
    assert numbers["jobs"] == 0 and "missing: run.json" in page
