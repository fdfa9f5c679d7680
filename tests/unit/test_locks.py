"""File systems without locks, as clusters have them: a preloaded library makes such a one of a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not shutil.which("gcc"), reason="needs Linux and gcc")
HOLD = """
import sys
from pathlib import Path
from cdpr.locks import hold
held = hold(Path(sys.argv[1]), wait=False)
print("held", flush=True)
sys.stdin.read()
"""


def library(folder: Path) -> Path:
    """The compiled `no_locks.c`."""
    made = folder / "no_locks.so"
    source = Path(__file__).with_name("no_locks.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


@pytest.fixture
def run(tmp_path):
    """Starts Python with a program, in a folder without locks."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(library(tmp_path)), "NO_LOCKS_BELOW": str(folder)}

    def start(program: str, *arguments: str, **variables: str) -> subprocess.Popen:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.Popen(command, cwd=folder, env=environment | variables, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    return start


def test_a_file_is_the_lock_where_the_file_system_has_none(run, tmp_path):
    first = run(HOLD, "state/lock")
    assert first.stdout.readline() == "held\n"
    assert "TimeoutError: it holds state/lock.held" in run(HOLD, "state/lock").communicate("")[1]
    first.kill()
    first.communicate()
    assert (tmp_path / "cluster/state/lock.held").exists()
    after_a_kill = run(HOLD, "state/lock")
    assert after_a_kill.communicate("") == ("held\n", "")
    assert not (tmp_path / "cluster/state/lock.held").exists()


def test_a_lock_of_the_file_system_serves_where_it_has_some(run):
    first = run(HOLD, "state/lock", NO_LOCKS_BELOW="/nowhere")
    assert first.stdout.readline() == "held\n"
    assert "it holds state/lock\n" in run(HOLD, "state/lock", NO_LOCKS_BELOW="/nowhere").communicate("")[1]
    first.communicate("")


TABLES = """
from pathlib import Path
from cdpr.ingest import Attrition
from cdpr.ingest.mimic_tables import Tables
with Tables(Path("raw"), Path("state/scratch"), Attrition("mimic_iv")) as tables:
    tables.connection.execute("CREATE TABLE a AS SELECT 1")
    print(tables.connection.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL").fetchone()[0])
"""


def test_the_engine_of_tables_works_in_the_temporary_folder_where_records_have_no_locks(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = {"TMPDIR": str(elsewhere)}
    assert Path(run(TABLES, **where).communicate()[0]).is_relative_to(tmp_path / "cluster/state/scratch")
    assert Path(run(TABLES, NO_RECORD_LOCKS="1", **where).communicate()[0]).is_relative_to(elsewhere)
    assert not list(elsewhere.iterdir())
    here = {"TMPDIR": str(tmp_path / "cluster"), "NO_RECORD_LOCKS": "1"}
    assert "set TMPDIR to a folder on another disk" in run(TABLES, **here).communicate()[1]


@pytest.mark.parametrize(("program", "path", "setting"), [
    ("from pathlib import Path; from cdpr.llm.journal import Journal; Journal(Path('state/calls'), '')", "state/calls",
     "name a folder on another disk in paths.state"),
    ("from cdpr.pipeline.mlflow_index import MlflowIndex; MlflowIndex('sqlite:///results/mlflow.db')",
     "results/mlflow.db", "set tracking.mlflow to false"),
])  # fmt: skip
def test_a_database_that_cannot_be_locked_says_which_setting_to_change(run, program, path, setting):
    problem = run(program, NO_RECORD_LOCKS="1").communicate()[1].splitlines()[-1]
    assert f"Error: {path}: the file system has no locks of records" in problem and setting in problem
    assert "Error" not in run(program).communicate()[1]
