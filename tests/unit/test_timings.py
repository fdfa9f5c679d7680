"""The cost of computing from small records written here."""

from __future__ import annotations

import re
from pathlib import Path

from cdpr.job import Job
from cdpr.records import RunRecord
from cdpr.report.timings import write_timings
from cdpr.settings import parse_settings


def record(results: Path, stage: str, job: str, seconds: float, memory_mb: float, cpu_seconds: float) -> None:
    path = results / stage / job / "run.json"
    path.parent.mkdir(parents=True)
    done = RunRecord(stage=stage, options={"run": job} if job else {}, wall_seconds=seconds, cpu_seconds=cpu_seconds,
                     peak_memory_mb=memory_mb)  # fmt: skip
    if stage == "train_policy":
        done.tags["variant"], done.metrics["seconds"] = job.rpartition("-seed")[0], seconds / 2
    path.write_text(done.model_dump_json())


def write(folder: Path) -> tuple[Job, str]:
    job = Job("timings", "0" * 16, {"results": folder}, {"md": folder / "t.md"})
    write_timings(parse_settings({}), job)
    return job, (folder / "t.md").read_text()


def test_stages_sum_up_their_jobs(tmp_path):
    record(tmp_path, "train_policy", "cdpr-seed0", 100.0, 900.0, 1800.0)
    record(tmp_path, "train_policy", "grpo-seed0", 50.0, 1200.5, 1800.0)
    record(tmp_path, "train_policy", "grpo-seed1", 60.0, 10.0, 1.0)
    record(tmp_path, "write_main_table", "", 0.5, 80.0, 0.36)
    job, page = write(tmp_path)
    assert job.metrics == {"jobs": 4, "seconds": 210.5}
    by_stage, slowest = (part.splitlines()[2:] for part in re.split(r"## (?:By stage|Slowest jobs)", page)[1:])
    train, table = by_stage[2:4]
    assert train == "| train_policy | 3 | 210.0 | 60.0 | 1.000 | 1200 | 99.8 |"
    assert table == "| write_main_table | 1 | 0.5 | 0.5 | 0.000 | 80 | 0.2 |"
    assert [line.split(" | ")[0] for line in slowest[2:4]] == ["| train_policy/cdpr-seed0", "| train_policy/grpo-seed1"]
    assert "| cdpr | 1 | 0.83 |\n| grpo | 2 | 0.46 |" in page  # without validation
    assert "4 jobs took 0:03:30 h" in page and "cannot be used" not in page


def test_malformed_records_are_named_and_left_out(tmp_path):
    record(tmp_path, "good", "", 1.0, 1.0, 1.0)
    for name, content in {"empty": b"", "text": b"soon", "bytes": b"\xff\xfe", "cut": b'{"stage":',
                          "a|b": b'{"wall_seconds": "soon"}'}.items():  # fmt: skip
        (tmp_path / f"{name}.run.json").write_bytes(content)
    job, page = write(tmp_path)
    assert job.metrics == {"jobs": 1, "seconds": 1.0}
    listed = re.findall(r"(?m)^- (\S+)\.run\.json", page)
    assert [Path(name).name for name in listed] == ["a|b", "bytes", "cut", "empty", "text"]
    assert "wall_seconds" in page


def test_nothing_yet_says_so(tmp_path):
    job, page = write(tmp_path)
    assert job.metrics["jobs"] == 0 and "missing: run.json" in page
