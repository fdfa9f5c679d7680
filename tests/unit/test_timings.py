"""The cost of computing from small timing files written here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdpr.job import Job
from cdpr.report.timings import span, write_timings
from cdpr.settings import parse_settings

HEAD = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time"


def timing(folder: Path, name: str, *rows: tuple) -> None:
    path = folder / "timings" / f"{name}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{s}\t0:00:01\t{rss}\t1\t1\t1\t0\t0\t50\t{cpu}" for s, rss, cpu in rows]
    path.write_text("\n".join([HEAD, *lines]) + "\n")


def write(folder: Path) -> tuple[dict, str]:
    out = {"md": folder / "t.md", "json": folder / "t.json"}
    write_timings(parse_settings({}), Job("timings", "0" * 16, {"results": folder}, out))
    return json.loads((folder / "t.json").read_text()), (folder / "t.md").read_text()


def test_stages_sum_up_their_jobs(tmp_path):
    timing(tmp_path, "train/cdpr-seed0", (100.0, 900.0, 1800.0))
    timing(tmp_path, "train/grpo-seed0", (50.0, 1200.5, 1800.0), (60.0, 10.0, 1.0))  # repeated by `benchmark: repeat`
    timing(tmp_path, "main_table", (0.5, "-", "NA"))  # too short to be measured
    numbers, page = write(tmp_path)
    train, table = numbers["stages"]
    assert (train["stage"], train["jobs"], train["seconds"], train["median_seconds"]) == ("train", 3, 210.0, 60.0)
    assert (train["memory_mb"], train["cpu_hours"]) == (1200.5, pytest.approx(3601 / 3600, abs=1e-6))
    assert (table["memory_mb"], table["cpu_hours"]) == (None, None)
    assert numbers["seconds"] == 210.5 and train["share"] + table["share"] == pytest.approx(1, abs=1e-5)
    assert [job["job"] for job in numbers["slowest"]][:2] == ["train/cdpr-seed0", "train/grpo-seed0"]
    assert "| main_table | 1 | 0.5 | 0.5 | — | — | 0.2 |" in page and "3 min 30 s" in page and "unusable" not in page


def test_malformed_files_are_named_and_left_out(tmp_path):
    timing(tmp_path, "good", (1.0, 1.0, 1.0))
    timing(tmp_path, "a|b", (2.0, 1.0, 1.0))
    folder = tmp_path / "timings"
    for name, text in {"empty": "", "head": HEAD, "fields": "x\ty\n1\t2\n", "text": f"{HEAD}\nsoon" + "\t1" * 9,
                       "nan": f"{HEAD}\nnan" + "\t1" * 9, "cut": f"{HEAD}\n3.0\t0:00"}.items():  # fmt: skip
        (folder / f"{name}.tsv").write_text(text)
    (folder / "bytes.tsv").write_bytes(b"\xff\xfe\x00")
    numbers, page = write(tmp_path)
    assert numbers["jobs"] == 2 and numbers["seconds"] == 3.0
    assert [text.partition(".tsv")[0] for text in numbers["unusable"]] == [
        "bytes", "cut", "empty", "fields", "head", "nan", "text",
    ]  # fmt: skip
    assert "text.tsv:2: field 's': expected a number, got 'soon'" in page and r"a\|b" in page


def test_nothing_yet_says_so(tmp_path):
    numbers, page = write(tmp_path)
    assert numbers["jobs"] == 0 and "missing: timings/*.tsv" in page
    assert [span(s) for s in (4.21, 187, 3599.7, 7500)] == ["4.2 s", "3 min 07 s", "1 h 00 min", "2 h 05 min"]
