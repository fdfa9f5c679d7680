"""The kill harness itself: it sees every difference and everything that a run leaves, and its plan follows the seed."""

import itertools
import json
import subprocess
import sys

import comparison
import pytest
from comparison import beside, differences, leftovers, snapshot
from kill import SIGNALS, TARGETS, Kill, planned, read_kills, table, write_kills, write_page


@pytest.fixture
def results(tmp_path):
    (tmp_path / "results/logs").mkdir(parents=True)
    (tmp_path / "results/a.csv").write_text("1,2\n")
    record = {
        "stage": "s",
        "started": "today",
        "wall_seconds": 3.5,
        "outputs": {"csv": {"path": "a.csv", "sha256": "x"}},
    }
    (tmp_path / "results/run.json").write_text(json.dumps(record))
    return tmp_path / "results"


def test_a_changed_byte_a_missing_and_an_extra_file_are_reported(results):
    expected = snapshot(results)
    assert set(expected) == {"a.csv", "run.json"} and differences(expected, snapshot(results)) == []
    (results / "a.csv").write_text("1,3\n")
    (results / "run.json").unlink()
    (results / "b.csv").touch()
    (results / ".partial-s").mkdir()
    (results / "logs/s.log").write_text("now")
    assert differences(expected, snapshot(results)) == [
        "changed: a.csv", "extra: .partial-s", "extra: b.csv", "missing: run.json"
    ]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "seen"), [("wall_seconds", 9.0, False), ("stage", "t", True)])
def test_of_a_record_only_its_times_may_differ(results, field, value, seen):
    expected, place = snapshot(results), results / "run.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {field: value}))
    assert differences(expected, snapshot(results)) == ["changed: run.json"] * seen


def test_what_a_run_leaves_is_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "GRACE", 0)
    for name in ("state/key", "tmp/snakemake1", "tmp/cdpr-1"):
        (tmp_path / name).mkdir(parents=True)
    expected = beside(tmp_path)
    (tmp_path / "tmp/snakemake2").mkdir()  # may stay
    assert leftovers(tmp_path, expected) == []
    (tmp_path / "state/key/a.partial").touch()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], cwd=tmp_path / "state")
    try:
        process, file = leftovers(tmp_path, expected)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert file == "file: state/key/a.partial" and f"pid={sleeper.pid}" in process
    assert leftovers(tmp_path, expected) == [file]


def test_a_seed_fixes_the_kills_and_each_pair_comes_equally_often():
    first, again, other = (list(itertools.islice(planned(seed), 24)) for seed in (1, 1, 2))
    assert first == again != other
    for half in (first[:12], first[12:]):
        assert {(kill.target, kill.signal) for kill in half} == set(itertools.product(TARGETS, SIGNALS))


def test_the_table_counts_what_was_not_sound_and_goes_into_the_page(tmp_path):
    kills = [Kill(3, 0, "job", "SIGINT", 0.5, stall=7.0), Kill(3, 1, "job", "SIGINT", 0.1, failed_starts=1, left=2),
             Kill(3, 2, "job", "SIGKILL", 0.2, round=1, differing=4)]  # fmt: skip
    write_kills(tmp_path / "kills.csv", kills)
    assert read_kills(tmp_path / "kills.csv", 3) == kills
    with pytest.raises(SystemExit, match="another seed"):
        read_kills(tmp_path / "kills.csv", 4)
    assert "| job | SIGINT | 2 | 1 | 0 | 2 | 7 s |" in table(kills) and "| **all** | | 3 | 2 | 4 | 2 | 7 s |" in table(
        kills
    )
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- kills: begin -->\nold\n<!-- kills: end -->\nafter\n")
    write_page(page, "new")
    assert page.read_text() == "before\n<!-- kills: begin -->\nnew\n<!-- kills: end -->\nafter\n"
